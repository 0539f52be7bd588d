"""Scaling methods: limits that hold for all, formulas that hold for one, and the bad
inputs.
"""

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropelab.math.frequencies import Geometry, rotations, wavelengths
from ropelab.math.methods import FREQUENCY_METHODS, parse_scaling
from ropelab.math.scaling import (
    SCALINGS,
    NtkAware,
    RopePlan,
    Scaling,
    Yarn,
    compute_kept_weights,
    name_roles,
    ntk_base,
)
from ropelab.math.scaling.stretching import MrRope
from ropelab.runs.errors import InputError

LLAMA2 = Geometry(128, 10000.0, 4096)
GEOMETRIES = st.builds(
    Geometry,
    st.integers(2, 64).map(lambda pairs: 2 * pairs),
    st.floats(100, 1e7),
    st.integers(256, 32768),
)
FACTORS = st.floats(1.01, 64)
WITH_FACTOR = ("pi", "ntk", "ntk_by_parts", "yarn", "yarn_paper", "llama3", "mrrope")
DYNAMIC = ("dynamic_ntk", "dynamic_yarn")
# The parameters of methods that have no default for all of them.
NEEDED = {
    "longrope": "(long_factor=[1, 2.5])",
    "one": "(period=256)",
    "spaced": "(n=2)",
    "without": "(band=slow)",
}


def inv_freq(
    text: str, geometry: Geometry, length: int = 0, factor: float | None = None
) -> np.ndarray:
    return (
        parse_scaling(text, factor)
        .plan(geometry, length or geometry.trained_len)
        .inv_freq
    )


@given(GEOMETRIES, st.sampled_from(WITH_FACTOR), st.integers(1, 10**6))
def test_factor_one_is_the_identity_at_every_length(geometry, name, length):
    plan = parse_scaling(name, factor=1).plan(geometry, length)
    assert np.array_equal(plan.inv_freq, geometry.inv_freq)
    assert plan.attention_factor == 1


@given(GEOMETRIES, st.sampled_from(DYNAMIC), FACTORS, st.floats(0.001, 1))
def test_dynamic_methods_do_nothing_inside_the_trained_length(
    geometry, name, factor, share
):
    length = max(1, int(share * geometry.trained_len))
    plan = parse_scaling(name, factor=factor).plan(geometry, length)
    assert np.array_equal(plan.inv_freq, geometry.inv_freq)
    assert plan.attention_factor == 1


@given(GEOMETRIES, st.sampled_from(WITH_FACTOR), FACTORS)
def test_static_methods_stay_between_the_original_and_full_interpolation(
    geometry, name, factor
):
    scaled, original = inv_freq(name, geometry, factor=factor), geometry.inv_freq
    assert (scaled <= original * (1 + 1e-14)).all()
    assert (scaled >= original / factor * (1 - 1e-12)).all()


@given(GEOMETRIES, FACTORS)
def test_ntk_keeps_the_first_pair_and_divides_the_last_by_the_factor(geometry, factor):
    scaled = inv_freq("ntk", geometry, factor=factor)
    assert scaled[0] == 1
    assert scaled[-1] == pytest.approx(geometry.inv_freq[-1] / factor, rel=1e-12)


def test_ntk_bases_of_the_literature():
    assert ntk_base(LLAMA2, 2) == pytest.approx(20221.26, abs=0.01)
    assert ntk_base(LLAMA2, 4) == pytest.approx(40889.94, abs=0.01)


@given(GEOMETRIES, FACTORS, st.floats(1, 8))
def test_dynamic_ntk_is_ntk_with_the_bracket_as_its_factor(geometry, factor, longer):
    length = int(longer * geometry.trained_len)
    bracket = max(1.0, factor * length / geometry.trained_len - (factor - 1))
    found = inv_freq(f"dynamic_ntk(factor={factor!r})", geometry, length)
    np.testing.assert_allclose(
        found, inv_freq("ntk", geometry, factor=bracket), rtol=1e-9, atol=0
    )


@given(GEOMETRIES, FACTORS)
def test_dynamic_yarn_is_yarn_at_the_ratio_of_lengths(geometry, longer):
    length = int(longer * geometry.trained_len) + 1
    found = parse_scaling("dynamic_yarn").plan(geometry, length)
    static = Yarn(factor=length / geometry.trained_len).plan(geometry, length)
    assert np.array_equal(found.inv_freq, static.inv_freq)
    assert found.attention_factor == static.attention_factor


def test_yarn_of_llama_2_is_cut_where_the_literature_cuts_it():
    assert Yarn(truncate=False).ramp_range(LLAMA2) == pytest.approx(
        (20.9445, 45.0269), abs=1e-4
    )
    assert Yarn().ramp_range(LLAMA2) == (20, 46)
    for name in ("yarn", "yarn_paper"):
        plan = parse_scaling(name, factor=16).plan(LLAMA2, 65536)
        assert Counter(name_roles(plan, LLAMA2)) == {
            "kept": 21,
            "ramp": 25,
            "interpolated": 18,
        }


@pytest.mark.parametrize("uniform", [False, True])
def test_mrrope_multiplies_a_radix_per_pair_between_the_ends_of_yarn(uniform):
    """lambda_j = S^(1/n) or S^(2 (1 + j - d_l) / (n (n + 1))), each for all slower
    pairs.
    """
    low, high, factor = 20, 46, 16  # of Llama 2: test_yarn_of_llama_2 above
    divisor, want = 1.0, []
    for pair in range(64):
        want.append(10000.0 ** (-pair / 64) / divisor)
        if low <= pair < high:
            count = high - low
            share = (
                1 / count if uniform else 2 * (1 + pair - low) / (count * (count + 1))
            )
            divisor *= factor**share
    method = parse_scaling(f"mrrope(uniform={str(uniform).lower()})", factor=factor)
    plan = method.plan(LLAMA2, 65536)
    np.testing.assert_allclose(plan.inv_freq, want, rtol=1e-12)
    assert divisor == pytest.approx(factor)
    assert plan.attention_factor == pytest.approx(1 + 0.1 * math.log(16))


def test_a_ramp_of_mrrope_without_a_pair_inside_is_a_step():
    geometry = Geometry(6, 10.0, 2)
    method = parse_scaling("mrrope", factor=4)
    assert isinstance(method, MrRope)
    low, high = method.ramp_range(geometry)
    assert high - low == -1
    divided = geometry.inv_freq / method.plan(geometry, 8).inv_freq
    assert set(divided.tolist()) <= {1.0, 4.0}


def test_radices_of_mrrope_grow_and_those_of_yarn_fall():
    """The difference between the two, according to the paper."""
    for name, sign in (("mrrope", 1), ("yarn_paper", -1), ("mrrope(uniform=true)", 0)):
        divisors = LLAMA2.inv_freq / inv_freq(name, LLAMA2, factor=16)
        inside = np.diff(np.log(divisors[22:45]), n=2)
        assert (
            (np.abs(inside) < 1e-12).all() if sign == 0 else (sign * inside > 0).all()
        )


def test_a_ramp_of_yarn_ends_at_the_last_feature():
    assert parse_scaling("yarn(beta_slow=1e-307)").ramp_range(LLAMA2) == (20, 127)


def test_the_two_yarn_ramps_differ_up_to_threefold():
    ratio = inv_freq("yarn", LLAMA2, factor=16) / inv_freq(
        "yarn_paper", LLAMA2, factor=16
    )
    assert 2.5 < ratio.max() < 3.5


@pytest.mark.parametrize(("factor", "attention"), [(4, 1.138629), (16, 1.277259)])
def test_yarn_attention_factors(factor, attention):
    for name in ("yarn", "yarn_paper"):
        plan = parse_scaling(name, factor=factor).plan(LLAMA2, 4096)
        assert plan.attention_factor == pytest.approx(attention, abs=1e-6)
        assert plan.logit_multiplier == plan.attention_factor**2


def test_mscale_of_deepseek_v3_moves_the_factor_into_the_softmax():
    yarn = Yarn(factor=40, mscale=1.0, mscale_all_dim=1.0)
    assert yarn.plan(LLAMA2, 4096).attention_factor == 1
    assert yarn.softmax_factor == pytest.approx((0.1 * math.log(40) + 1) ** 2)
    assert Yarn(factor=40).softmax_factor is None


def test_a_given_attention_factor_wins():
    yarn = Yarn(factor=40, mscale=0.7, mscale_all_dim=1.0, attention_factor=1.0)
    assert yarn.plan(LLAMA2, 4096).attention_factor == 1


@given(GEOMETRIES, FACTORS)
def test_llama3_is_by_parts_between_one_and_four_rotations(geometry, factor):
    by_parts = inv_freq("ntk_by_parts(alpha=1, beta=4)", geometry, factor=factor)
    assert np.array_equal(inv_freq("llama3", geometry, factor=factor), by_parts)


@given(GEOMETRIES, FACTORS)
def test_by_parts_keeps_fast_pairs_and_interpolates_slow_ones(geometry, factor):
    scaled, r = (
        inv_freq("yarn_paper", geometry, factor=factor),
        rotations(geometry.inv_freq, geometry.trained_len),
    )
    np.testing.assert_allclose(
        scaled[r >= 32], geometry.inv_freq[r >= 32], rtol=1e-14, atol=0
    )
    np.testing.assert_allclose(scaled[r <= 1], geometry.inv_freq[r <= 1] / factor)


@given(GEOMETRIES)
def test_resonance_wavelengths_are_whole_tokens(geometry):
    found = wavelengths(inv_freq("resonance", geometry))
    np.testing.assert_allclose(found, np.round(found), rtol=1e-12, atol=0)
    assert (np.abs(found - wavelengths(geometry.inv_freq)) <= 0.5 + 1e-6).all()


def test_resonance_composes_with_yarn():
    plan = parse_scaling("resonance(inner=yarn)", factor=4).plan(LLAMA2, 16384)
    inner = Yarn(factor=4).plan(LLAMA2, 16384)
    assert plan.attention_factor == inner.attention_factor
    np.testing.assert_allclose(
        wavelengths(plan.inv_freq), np.round(wavelengths(inner.inv_freq))
    )


@given(GEOMETRIES, st.floats(2.1, 1e9))
def test_one_frequency_turns_every_pair_alike(geometry, period):
    found = wavelengths(inv_freq(f"one(period={period!r})", geometry))
    np.testing.assert_allclose(found, np.full(geometry.pairs, period), rtol=1e-15)


@given(GEOMETRIES)
def test_as_many_spaced_frequencies_as_pairs_are_those_of_rope(geometry):
    longest = float(wavelengths(geometry.inv_freq)[-1])
    found = inv_freq(f"spaced(n={geometry.pairs}, longest={longest!r})", geometry)
    np.testing.assert_allclose(found, geometry.inv_freq, rtol=1e-12)


def test_spaced_frequencies_share_the_pairs_evenly():
    geometry = Geometry(32, 1e4, 128)
    four = inv_freq("spaced(n=4, shortest=8, longest=8000)", geometry)
    np.testing.assert_allclose(
        wavelengths(four), np.repeat([8, 80, 800, 8000], 4), rtol=1e-12
    )
    even = inv_freq("spaced(n=4, shortest=8, longest=8000, uniform=true)", geometry)
    steps = np.diff(even[::4])
    np.testing.assert_allclose(steps, steps[0], rtol=1e-12)
    assert np.array_equal(even[[0, -1]], four[[0, -1]])
    assert Counter(inv_freq("spaced(n=3)", geometry).tolist()).most_common()[0][1] == 6


@given(GEOMETRIES, st.data())
def test_few_frequencies_leave_all_but_the_first_pairs_without_rotation(
    geometry: Geometry, data: st.DataObject
) -> None:
    pairs = data.draw(st.integers(1, geometry.pairs))
    found = inv_freq(f"one(period=32, pairs={pairs})", geometry)
    np.testing.assert_array_equal(found[:pairs], 2 * np.pi / 32)
    assert not found[pairs:].any()
    if pairs >= 2:
        found = inv_freq(f"spaced(n={pairs}, pairs={pairs})", geometry)
        expected = np.geomspace(1.0, 2 * np.pi / 1e6, pairs)
        np.testing.assert_allclose(found[:pairs], expected, rtol=1e-12)
        assert not found[pairs:].any()


def test_labels_name_the_rotating_pairs_only_where_they_are_given() -> None:
    # Keys of trained models.
    for text in ("one(period=32, pairs=8)", "spaced(n=4, pairs=8)", "one(period=32)"):
        assert parse_scaling(text).label == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("one(period=32, pairs=65)", "one: pairs must be between 0 and 64, not 65"),
        ("spaced(n=2, pairs=-1)", "spaced: pairs must be between 0 and 64, not -1"),
        ("spaced(n=9, pairs=8)", "n must be at most 8, the number of pairs, not 9"),
    ],
)
def test_no_more_rotating_pairs_than_pairs(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_scaling(text).plan(LLAMA2, 4096)


@given(GEOMETRIES.filter(lambda geometry: geometry.pairs >= 3))
def test_the_three_bands_are_all_pairs_each_once(geometry):
    kept = [
        inv_freq(f"without(band={band})", geometry)
        for band in ("fast", "middle", "slow")
    ]
    gone = np.array([each == 0 for each in kept])
    assert (gone.sum(0) == 1).all()
    assert np.ptp(gone.sum(1)) <= 1
    assert (np.diff(gone.argmax(0)) >= 0).all()
    assert all((each[each > 0] == geometry.inv_freq[each > 0]).all() for each in kept)


def test_a_band_is_taken_from_what_another_method_makes():
    plan = parse_scaling("without(band=slow, inner=yarn(factor=4))").plan(LLAMA2, 16384)
    inner = Yarn(factor=4).plan(LLAMA2, 16384)
    assert np.array_equal(plan.inv_freq[:43], inner.inv_freq[:43])
    assert (plan.inv_freq[43:] == 0).all()
    assert plan.attention_factor == inner.attention_factor


def test_p_rope_keeps_the_spacing_and_proportional_divides():
    kept = inv_freq("p_rope(p=0.25)", LLAMA2)
    assert np.array_equal(kept[:16], LLAMA2.inv_freq[:16])
    assert (kept[16:] == 0).all()
    assert np.array_equal(inv_freq("proportional(p=0.25, factor=8)", LLAMA2), kept / 8)
    assert name_roles(RopePlan(kept), LLAMA2).count("dropped") == 48


def test_clipped_tapers_the_last_pairs_to_zero():
    found = inv_freq("clipped(n=5)", LLAMA2) / LLAMA2.inv_freq
    assert np.array_equal(found[:60], np.ones(60))
    half = 0.5 * (1 - math.sqrt(0.5))
    expected = np.array([1 - half, 0.5, half, 0.0])
    np.testing.assert_allclose(found[60:], expected)
    assert np.array_equal(inv_freq("clipped(n=1)", LLAMA2), LLAMA2.inv_freq)


def test_clipped_takes_the_pairs_without_a_full_turn_by_default():
    unfinished = int((rotations(LLAMA2.inv_freq, 4096) < 1).sum())
    assert np.array_equal(
        inv_freq("clipped", LLAMA2), inv_freq(f"clipped(n={unfinished})", LLAMA2)
    )


def test_longrope_switches_at_the_trained_length():
    geometry = Geometry(4, 10000.0, 4096)
    method = parse_scaling(
        "longrope(long_factor=[2, 8], short_factor=[1, 1.5], factor=32)"
    )
    assert method.plan(geometry, 4096).inv_freq.tolist() == pytest.approx(
        [1, 0.01 / 1.5]
    )
    assert method.plan(geometry, 4097).inv_freq.tolist() == pytest.approx(
        [0.5, 0.01 / 8]
    )
    attention = math.sqrt(1 + math.log(32) / math.log(4096))
    assert method.plan(geometry, 10).attention_factor == pytest.approx(attention)


def test_abf_is_the_geometry_of_the_new_base():
    found = inv_freq("abf(base=5e5)", LLAMA2)
    assert np.array_equal(found, Geometry(128, 500_000.0, 4096).inv_freq)


@given(GEOMETRIES, st.sampled_from((*WITH_FACTOR, "dynamic_ntk")), FACTORS)
def test_weights_and_roles_describe_the_plan(geometry, name, factor):
    plan = parse_scaling(name, factor=factor).plan(geometry, 4 * geometry.trained_len)
    weight = compute_kept_weights(plan, geometry)
    rebuilt = (
        weight * geometry.inv_freq + (1 - weight) * geometry.inv_freq / plan.stretch
    )
    np.testing.assert_allclose(rebuilt, plan.inv_freq, rtol=1e-10, atol=0)
    expected = [
        "kept" if w == 1 else "interpolated" if w == 0 else "ramp" for w in weight
    ]
    assert name_roles(plan, geometry) == expected


@pytest.mark.parametrize("text", [*WITH_FACTOR, *DYNAMIC, "abf", "proportional(p=1)"])
def test_the_stretch_is_the_divisor_of_the_slowest_pair(text):
    plan = parse_scaling(text, factor=4).plan(LLAMA2, 8 * LLAMA2.trained_len)
    assert plan.stretch == pytest.approx(LLAMA2.inv_freq[-1] / plan.inv_freq[-1])
    assert plan.stretch > 1


def test_weights_of_a_plan_that_stretches_nothing_are_unknown():
    assert np.isnan(compute_kept_weights(RopePlan(LLAMA2.inv_freq), LLAMA2)).all()


@pytest.mark.parametrize("name", sorted(FREQUENCY_METHODS))
def test_every_method_has_a_source_and_reads_back_from_its_label(name):
    method = parse_scaling(name + NEEDED.get(name, ""), factor=3)
    assert method.name == name
    assert method.source
    assert parse_scaling(method.label) == method


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("linear", "pi"),
        ("YaRN", "yarn"),
        ("dynamic", "dynamic_ntk"),
        ("ntk-by-parts", "ntk_by_parts"),
        ("cope", "clipped"),
    ],
)
def test_other_names_in_use(text, method):
    assert parse_scaling(text).name == method


def test_labels_leave_defaults_out():
    assert Yarn(factor=4, beta_fast=16).label == "yarn(factor=4, beta_fast=16)"
    assert NtkAware(factor=2.5).label == "ntk(factor=2.5)"
    assert parse_scaling("unscaled", factor=4).label == "unscaled"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yarm", "unknown method 'yarm'; did you mean 'yarn'"),
        ("", "unknown method ''"),
        ("yarn(beta_fats=3)", "did you mean 'beta_fast'"),
        ("unscaled(factor=2)", "takes no parameters"),
        ("pi(factor=0.5)", "at least 1, not 0.5"),
        ("pi(factor=nan)", "must be a number, not 'nan'"),
        ("pi(factor=inf)", "must be a number"),
        ("pi(factor=much)", "must be a number, not 'much'"),
        ("pi(factor=2, factor=3)", "given twice"),
        ("yarn(truncate=maybe)", "true or false"),
        ("clipped(n=1.5)", "whole number"),
        ("clipped(n=-1)", "at least 0 pairs"),
        ("p_rope(p=1.5)", "between 0 and 1"),
        ("yarn(beta_slow=40)", "0 < beta_slow < beta_fast"),
        ("llama3(low_freq_factor=5)", "low_freq_factor < high_freq_factor"),
        ("ntk_by_parts(alpha=0)", "0 < alpha < beta"),
        ("yarn(attention_factor=-1)", "attention_factor must be a positive number"),
        ("longrope", "needs long_factor"),
        ("longrope(long_factor=[1, 0])", "must be positive, not 0"),
        ("abf(base=1)", "above 1"),
        ("yarn(factor=4", r"write name\(parameter=value"),
        ("resonance(inner=yarm)", "did you mean 'yarn'"),
        ("one", "one needs period="),
        ("one(period=2)", "above 2, not 2"),
        ("one(period=inf)", "must be a number, not 'inf'"),
        ("spaced(n=1)", "at least 2 frequencies"),
        ("spaced(n=2, longest=3)", "longest 3 is not above shortest"),
        ("without(band=fats)", "did you mean 'fast'"),
        ("without(band=)", "band needs a value"),
    ],
)
def test_bad_methods_get_one_clear_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_scaling(text)
    assert "\n" not in str(caught.value)


def test_a_common_factor_below_one_is_refused():
    with pytest.raises(InputError, match="at least 1"):
        parse_scaling("yarn", factor=0.9)


def test_no_more_frequencies_than_pairs():
    with pytest.raises(InputError, match="at most 64, the number of pairs, not 65"):
        parse_scaling("spaced(n=65)").plan(LLAMA2, 4096)


def test_longrope_factors_must_fit_the_width():
    with pytest.raises(InputError, match="2 numbers for 64 pairs"):
        parse_scaling("longrope(long_factor=[1, 2])").plan(LLAMA2, 8192)


def test_ntk_needs_a_second_pair():
    with pytest.raises(InputError, match="4 or more"):
        parse_scaling("ntk", factor=2).plan(Geometry(2, 1e4, 4096), 8192)


def test_every_name_has_its_class_and_every_class_its_name():
    assert set(SCALINGS) == set(FREQUENCY_METHODS)
    assert all(SCALINGS[name].name == name for name in FREQUENCY_METHODS)


class ReadOnce:
    """Frequencies that are no numbers any more when they are read again."""

    reads = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.reads += 1
        value = 0.5 if self.reads == 1 else math.nan
        return np.full(4, value)


@dataclass(frozen=True, kw_only=True)
class Given(Scaling):
    """Answers with what it is given."""

    numbers: Any
    attention: Any = 1.0

    @property
    def label(self) -> str:
        return "given"

    def plan(self, geometry: Geometry, length: int) -> RopePlan:
        return RopePlan(self.numbers, self.attention)


def test_frequencies_beyond_float64_are_no_plan():
    """A longer format has finite numbers that are infinite in float64."""
    geometry = Geometry(8, 1e4, 64)
    longer = np.full(4, np.longdouble("1e4000"))
    if not np.isfinite(longer).all():
        pytest.skip("this machine has no format longer than float64")
    with pytest.raises(InputError, match="plan"):
        Given(numbers=longer).plan(geometry, 64)


@pytest.mark.parametrize("attention", [10**400, 1e200, math.inf, np.float64(1e101)])
def test_a_factor_whose_square_is_infinite_is_no_plan(attention):
    geometry = Geometry(8, 1e4, 64)
    with pytest.raises(InputError, match="plan"):
        Given(numbers=np.ones(4), attention=attention).plan(geometry, 64)


@pytest.mark.parametrize("error", [TypeError, ValueError, RuntimeError])
def test_what_cannot_be_an_array_is_no_plan(error):
    """A tensor of torch refuses to be one where it has gradients or no memory."""

    class Tensor:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            raise error

    geometry = Geometry(8, 1e4, 64)
    with pytest.raises(InputError, match="plan"):
        Given(numbers=Tensor()).plan(geometry, 64)


def test_frequencies_are_read_once():
    geometry = Geometry(8, 1e4, 64)
    plan = Given(numbers=ReadOnce()).plan(geometry, 64)
    assert plan.inv_freq.tolist() == [0.5] * 4
