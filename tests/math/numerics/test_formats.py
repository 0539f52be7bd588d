"""round_to against a scalar specification, torch, ml_dtypes and bit patterns,
exhaustively.
"""

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropelab.math.numerics.formats import FORMATS, format_named, round_to, spacing
from ropelab.runs.errors import InputError
from tests.math.numerics.scalar_rounding import round_scalar

SMALL = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
NUMPY = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


def every_value(name: str) -> np.ndarray:
    """All finite values of a 8- or 16-bit format, ascending, decoded by ml_dtypes or
    numpy.
    """
    dtype = np.dtype(NUMPY[name])
    codes = np.arange(2 ** (8 * dtype.itemsize), dtype=np.uint64)
    with np.errstate(invalid="ignore"):
        values = (
            codes.astype(f"uint{8 * dtype.itemsize}").view(dtype).astype(np.float64)
        )
    return np.unique(values[np.isfinite(values)])


def around(values: np.ndarray) -> np.ndarray:
    """The values, their midpoints, the overflow thresholds, and the float32 beside
    each.
    """
    step = values[-1] - values[-2]
    beyond = values[-1] + step * np.array([0.5, 1.0, 1.5, 2.0, 100.0])
    points = np.concatenate(
        [
            values,
            (values[1:] + values[:-1]) / 2,
            beyond,
            -beyond,
            [np.inf, -np.inf, -0.0],
        ]
    )
    points = points[(np.abs(points) <= np.finfo(np.float32).max) | np.isinf(points)]
    single = points.astype(np.float32)
    assert np.array_equal(single.astype(np.float64), points)
    with np.errstate(over="ignore"):
        return np.concatenate(
            [
                single,
                np.nextafter(single, np.float32(np.inf)),
                np.nextafter(single, -single),
            ]
        )


def same(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    return round_to(np.asarray(values, dtype=np.float64), FORMATS[name])


@pytest.mark.parametrize("name", SMALL)
def test_every_code_is_a_fixed_point(name):
    values = every_value(name)
    same(rounded(values, name), values)


@pytest.mark.parametrize("name", SMALL)
def test_codes_ties_subnormals_and_overflow_equal_numpy_and_ml_dtypes(name):
    points = around(every_value(name))
    with np.errstate(over="ignore", invalid="ignore"):
        theirs = points.astype(NUMPY[name]).astype(np.float64)
    same(np.abs(rounded(points, name)), np.abs(theirs))
    numbers = ~np.isnan(theirs)
    same(rounded(points, name)[numbers], theirs[numbers])


# torch 2.13 clamps what overflows this format, and torch 2.9 makes it nan.
CLAMPS = bool(torch.tensor(1e4).to(torch.float8_e4m3fn).float() == 448)
E4M3_OF_TORCH = "float8_e4m3fn_saturating" if CLAMPS else "float8_e4m3fn"


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float16", torch.float16),
        ("bfloat16", torch.bfloat16),
        ("float8_e5m2", torch.float8_e5m2),
        (E4M3_OF_TORCH, torch.float8_e4m3fn),
    ],
)
def test_codes_ties_subnormals_and_overflow_equal_torch(name, dtype):
    points = torch.from_numpy(around(every_value(name.removesuffix("_saturating"))))
    same(rounded(points.numpy(), name), points.to(dtype).double().numpy())


def test_float32_equals_torch_including_subnormals_and_overflow():
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randint(-(2**63), 2**63 - 1, (200_000,), generator=generator)
    scale = torch.randint(-150, 130, (200_000,), generator=generator)
    values = torch.ldexp(1 + patterns.abs().double() / 2**63, scale)
    same(rounded(values.numpy(), "float32"), values.to(torch.float32).double().numpy())
    assert np.isinf(rounded(np.array(2.0**128), "float32"))


def test_tf32_equals_rounding_the_float32_bit_pattern():
    fractions = np.arange(
        0, 2**23, 64, dtype=np.uint32
    )  # all of 17 fraction bits: 10 kept, ties and beyond
    for exponent in (0, 1, 100, 127, 254):
        bits = fractions | np.uint32(exponent << 23)
        kept = (
            bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        ) & ~np.uint32(0x1FFF)
        same(
            rounded(bits.view(np.float32), "tf32"),
            kept.view(np.float32).astype(np.float64),
        )


@pytest.mark.parametrize("name", FORMATS)
@given(x=st.floats(width=64), exponent=st.integers(-160, 160), fraction=st.floats(1, 2))
def test_any_float64_equals_the_scalar_specification(name, x, exponent, fraction):
    fmt = FORMATS[name]
    values = [x, math.ldexp(fraction, exponent), -math.ldexp(fraction, exponent)]
    same(
        rounded(np.array(values), name),
        np.array([round_scalar(v, fmt) for v in values]),
    )


@pytest.mark.parametrize("name", [n for n in FORMATS if n != "float64"])
def test_ties_of_every_binade_equal_the_scalar_specification(name):
    fmt = FORMATS[name]
    tie = 1 + fmt.epsilon * np.array([0.5, 1.5])
    beside = np.concatenate([tie, np.nextafter(tie, 0), np.nextafter(tie, 9)])
    exponents = range(
        max(fmt.min_exponent - fmt.precision - 2, -1022), fmt.max_exponent + 2
    )
    values = np.concatenate([np.ldexp(beside, e) for e in exponents])
    same(rounded(values, name), np.array([round_scalar(v, fmt) for v in values]))


def test_rounding_once_differs_from_torch_casting_float64_to_float16_twice():
    just_above_a_tie = torch.tensor([1 + 2**-11 + 2**-40], dtype=torch.float64)
    assert rounded(just_above_a_tie.numpy(), "float16") == [1 + 2**-10]
    assert just_above_a_tie.half().item() == 1.0


@pytest.mark.parametrize(
    "name",
    ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"],
)
def test_derived_facts_equal_torch_finfo(name):
    fmt, info = FORMATS[name], torch.finfo(getattr(torch, name))
    assert (fmt.exponent_bits + fmt.precision, fmt.epsilon) == (info.bits, info.eps)
    assert fmt.largest == info.max
    assert math.ldexp(1.0, fmt.min_exponent) == info.smallest_normal


@pytest.mark.parametrize(
    ("name", "integers"),
    [
        ("bfloat16", 256),
        ("float16", 2048),
        ("tf32", 2048),
        ("float32", 2**24),
        ("float8_e4m3fn", 16),
    ],
)
def test_integers_are_exact_up_to_two_to_the_precision(name, integers):
    fmt = FORMATS[name]
    # Of the many integers of float32 an odd step asks for all residues.
    step = 1 + 2 * (integers // 2**18)
    values = np.append(np.arange(0, integers, step), integers).astype(np.float64)
    same(round_to(values, fmt), values)
    assert round_to(np.array([integers + 1.0]), fmt) != integers + 1


@pytest.mark.parametrize("name", SMALL)
def test_spacing_is_the_distance_to_the_next_value_away_from_zero(name):
    values = every_value(name)
    values = values[values >= 0]
    steps = spacing(values, FORMATS[name])
    same(steps[:-1], np.diff(values))


def test_spacing_of_wide_formats_equals_numpy():
    values = np.concatenate([10.0 ** np.arange(-300, 300, 7), [0.0]])
    same(spacing(values, FORMATS["float64"]), np.spacing(values))
    single = np.concatenate([10.0 ** np.arange(-44.0, 38), [0.0]]).astype(np.float32)
    ours = spacing(single.astype(np.float64), FORMATS["float32"])
    same(ours, np.spacing(single).astype(np.float64))


def test_only_float64_is_rounded():
    with pytest.raises(TypeError, match="float32"):
        round_to(np.ones(1, dtype=np.float32), FORMATS["bfloat16"])


def test_an_unknown_format_gets_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'bfloat16'"):
        format_named("bfloat61")
