"""Rotary codes with one planted bug each, written apart from ropelab, and the sentence
for each.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ropelab.conformance.calls import ask_function
from ropelab.conformance.check_code import judge_code
from ropelab.conformance.diagnosis import Check, diagnose
from ropelab.conformance.expected import Expected, choose_positions
from ropelab.conformance.parts import combine
from ropelab.conformance.rotations import (
    observe_rotation,
    observe_tables,
    observe_vectors,
)
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.readers.registry import RUNTIMES, read
from ropelab.runs.errors import InputError
from tests.texts import mentions

HEAD = 64
PLAIN = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "max_position_embeddings": 32768,
    "rope_theta": 500000.0,
}
PARTIAL = {**PLAIN, "model_type": "phi", "partial_rotary_factor": 0.5}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 4096,
}
SCALED = {**PLAIN, "rope_scaling": LLAMA3}
YARN = {**PLAIN, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
LONG = {**PLAIN, "rope_theta": 1e4, "max_position_embeddings": 1_000_000}
GAIN = 1.138629436111989
DYNAMIC = {**PLAIN, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}


def expected(config: dict[str, Any]) -> Expected:
    spec = read(RUNTIMES["transformers-5"], config).main_spec
    assert spec is not None
    return Expected(spec, spec.length, {})


def ladder(base: float = 500000.0, width: int = HEAD, divided: int = 0) -> np.ndarray:
    return np.array(
        [1 / base ** (2 * i / (divided or width)) for i in range(width // 2)]
    )


def llama3(
    inverted: bool = False, turn: float = math.tau, plain: np.ndarray | None = None
) -> np.ndarray:
    """The ramp of Llama 3.1, from its published description."""
    found = []
    for theta in ladder() if plain is None else plain:
        share = (4096 * theta / turn - 1) / (4 - 1)
        share = min(max(share, 0.0), 1.0)
        share = 1 - share if inverted else share
        found.append(share * theta + (1 - share) * theta / 8)
    return np.array(found)


def yarn(factor: float = 4.0, truncate: bool = True) -> np.ndarray:
    """YaRN's ramp between the pairs of 32 rotations and of 1, from its published
    description.
    """
    low, high = (
        HEAD * math.log(32768 / (turns * math.tau)) / (2 * math.log(500000.0))
        for turns in (32, 1)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    ramp = np.clip((np.arange(HEAD // 2) - low) / (high - low), 0, 1)
    return ladder() * (ramp / factor + 1 - ramp)


def between(low: float, high: float, base: float = 500000.0) -> np.ndarray:
    """YaRN by 4 with a ramp between two pairs."""
    ramp = np.clip((np.arange(HEAD // 2) - low) / (high - low), 0, 1)
    return ladder(base) * (ramp / 4 + 1 - ramp)


def unlimited(low: float, high: float) -> np.ndarray:
    """YaRN by 4 with a ramp that nothing limits to 0 and 1."""
    ramp = (np.arange(HEAD // 2) - low) / (high - low)
    return ladder() * (ramp / 4 + 1 - ramp)


def banded(blend: Callable[[float], float]) -> np.ndarray:
    """Llama 3.1's frequencies with another blend between its two wavelengths."""
    found = []
    for theta in ladder():
        share = (4096 * theta / (2 * math.pi) - 1) / (4 - 1)
        share = float(share >= 1) if not 0 < share < 1 else blend(share)
        found.append(share * theta + (1 - share) * theta / 8)
    return np.array(found)


def halves(x: np.ndarray, y: np.ndarray, c: np.ndarray, s: np.ndarray) -> Any:
    return x * c - y * s, y * c + x * s


def columns(x: np.ndarray, y: np.ndarray, c: np.ndarray, s: np.ndarray) -> Any:
    """Halves, rotated by columns of a whole head."""
    half = HEAD // 2
    return x * c[:, :half] - y * s[:, :half], y * c[:, half:] + x * s[:, half:]


def rotating(
    inv_freq: np.ndarray | None = None,
    first: np.ndarray | None = None,
    second: np.ndarray | None = None,
    place: Callable[[float], float] = float,
    cast: type = np.float64,
    lines: Callable[..., tuple[np.ndarray, np.ndarray]] | None = None,
    gain: float = 1.0,
    reduce: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """A code that rotates feature by feature, with one thing changed."""
    theta = ladder() if inv_freq is None else inv_freq
    left = np.arange(len(theta)) if first is None else first
    right = left + len(theta) if second is None else second

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        y = np.array(x, dtype=np.float64)
        places = np.array([place(float(p)) for p in positions])
        angles = reduce((places[:, None] * theta).astype(cast).astype(np.float64))
        cos, sin = gain * np.cos(angles), gain * np.sin(angles)
        one, two = x[:, left], x[:, right]
        a, b = one * cos - two * sin, one * sin + two * cos
        y[:, left], y[:, right] = lines(one, two, cos, sin) if lines else (a, b)
        return y

    return rotate


def judged(config: dict[str, Any], rotate: Any) -> Check:
    wanted = expected(config)
    return diagnose(
        observe_rotation(rotate, wanted.spec, choose_positions(wanted)), wanted, 0.01
    )


EVEN, ODD = np.arange(0, HEAD, 2), np.arange(1, HEAD, 2)
HALF = ladder(width=32)
BF16_POWERS = 1 / round_to(500000.0 ** (np.arange(32) / 32), FORMATS["bfloat16"])
ONE_BACK = np.where(np.arange(HEAD // 2) == 5, -1, 1) * ladder()
LINEAR = {**PLAIN, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}
TABLES = {"short_factor": [1.0] * 32, "long_factor": [1.0 + i for i in range(32)]}
LONGROPE = {**PLAIN, "model_type": "phi3", "original_max_position_embeddings": 4096}
LONGROPE["rope_scaling"] = {"type": "longrope", **TABLES}
HALF_TABLES = {name: factors[:16] for name, factors in TABLES.items()}
PARTIAL_LONGROPE = {**LONGROPE, "partial_rotary_factor": 0.5}
PARTIAL_LONGROPE["rope_scaling"] = {"type": "longrope", **HALF_TABLES}
WIDER = math.sqrt(1 + math.log(8) / math.log(4096))
STATIC = 500000.0 * 2.0 ** (64 / 62)
# Dynamic scaling by 2 at 65536 of 32768 tokens: 2 * 2 - 1.
AT_TWICE = 500000.0 * 3.0 ** (64 / 62)
PLANTED: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("sign", PLAIN, {"inv_freq": -ladder()}, "the rotation has the wrong sign"),
    (
        "adjacent",
        PLAIN,
        {"first": EVEN, "second": ODD},
        "adjacent pairing instead of half",
    ),
    (
        "last block",
        PARTIAL,
        {"inv_freq": HALF, "first": np.arange(32, 48)},
        "features 32 to 63 rotate instead of 0 to 31",
    ),
    (
        "partner of the whole head",
        PARTIAL,
        {"inv_freq": HALF, "second": np.arange(32, 48)},
        "features i and i + 32 form a pair instead of i and i + 16",
    ),
    (
        "mirrored partner",
        PLAIN,
        {"second": np.arange(63, 31, -1)},
        "irregular pairing instead of half",
    ),
    (
        "minus in the first",
        PLAIN,
        {"lines": lambda x, y, c, s: (x * c + y * s, x * s + y * c)},
        "the first feature of a pair has sin with the wrong sign",
    ),
    (
        "minus in the second",
        PLAIN,
        {"lines": lambda x, y, c, s: (x * c - y * s, y * c - x * s)},
        "the second feature of a pair has sin with the wrong sign",
    ),
    (
        "second not rotated",
        PLAIN,
        {"lines": lambda x, y, c, s: (x * c - y * s, y)},
        "the second feature of a pair is not rotated",
    ),
    (
        "no sin term",
        PLAIN,
        {"lines": lambda x, y, c, s: (x * c - y * s, y * c)},
        "the second feature of a pair lacks its sin term",
    ),
    (
        "in place",
        PLAIN,
        {"lines": lambda x, y, c, s: (x * c - y * s, y * c + (x * c - y * s) * s)},
        "the second feature of a pair uses the rotated first",
    ),
    ("offset", PLAIN, {"place": lambda p: p + 1}, "positions are shifted by 1"),
    ("cache offset", PLAIN, {"place": lambda p: p + 37}, "positions are shifted by 37"),
    (
        "end of a table",
        PLAIN,
        {"place": lambda p: min(p, 4095)},
        "position 4096 is rotated as 4095",
    ),
    ("wrapped", PLAIN, {"place": lambda p: p % 2048}, "position 2048 is rotated as 0"),
    (
        "float16 positions",
        PLAIN,
        {"place": lambda p: float(np.float16(p))},
        "positions are rounded to float16: position 2049 is rotated as 2048",
    ),
    (
        "swapped",
        PLAIN,
        {"lines": lambda x, y, c, s: (x * s - y * c, x * c + y * s)},
        "swapped",
    ),
    ("negated", PLAIN, {"gain": -1.0}, "cos and sin are negated"),
    (
        "no factor 2",
        PLAIN,
        {"inv_freq": ladder(divided=128)},
        "divides by 128 instead of 64",
    ),
    (
        "factor 4",
        PLAIN,
        {"inv_freq": ladder(divided=32)},
        "divides by 32 instead of 64",
    ),
    (
        "from 1",
        PLAIN,
        {"inv_freq": ladder(width=66)[1:] ** (66 / 64)},
        "counted from 1 instead",
    ),
    ("base", PLAIN, {"inv_freq": ladder(10000.0)}, "base 10000 instead of 500000"),
    (
        "base, scaled",
        SCALED,
        {"inv_freq": ladder(10000.0)},
        "base 10000 instead of 500000",
    ),
    ("inverted ramp", SCALED, {"inv_freq": llama3(True)}, "the ramp is inverted"),
    ("no ramp", SCALED, {"inv_freq": ladder() / 8}, "all pairs are divided by 8"),
    ("no scaling", SCALED, {"inv_freq": ladder()}, "the scaling is not applied"),
    (
        "dynamic base",
        DYNAMIC,
        {"inv_freq": ladder(AT_TWICE)},
        "dynamic scaling has these frequencies at 65536 tokens",
    ),
    (
        "dynamic, always by the factor",
        DYNAMIC,
        {"inv_freq": ladder(STATIC)},
        "lacks its - (factor - 1), or NTK-aware scaling by 2 is always applied",
    ),
    (
        "slow pairs that stand still",
        PLAIN,
        {"inv_freq": np.where(np.arange(32) < 26, ladder(), 0)},
        "6 of 32 pairs do not rotate, the first at feature 26",
    ),
    (
        "ntk base",
        PLAIN,
        {"inv_freq": ladder(STATIC)},
        "which NTK-aware scaling by 2 gives",
    ),
    ("twice", PLAIN, {"inv_freq": 2 * ladder()}, "rotated twice"),
    ("rotations", PLAIN, {"inv_freq": math.tau * ladder()}, "angles count rotations"),
    ("interpolated", PLAIN, {"inv_freq": ladder() / 4}, "every angle is 0.25 times"),
    (
        "reversed",
        PLAIN,
        {"inv_freq": ladder()[::-1]},
        "the frequencies are in reverse order",
    ),
    ("whole head", PARTIAL, {"inv_freq": ladder()}, "64 features rotate instead of 32"),
    (
        "no attention factor",
        YARN,
        {"inv_freq": "right"},
        "attention factor 1.13863 is missing",
    ),
    (
        "attention factor squared",
        YARN,
        {"inv_freq": "right", "gain": 1.138629436111989**2},
        "attention factor 1.13863 is applied twice",
    ),
    ("float16 angles", PLAIN, {"cast": np.float16}, "angle in float16"),
    (
        "whole division",
        PLAIN,
        {"inv_freq": np.ones(32)},
        "every pair turns by 1 rad per token",
    ),
    (
        "last pair",
        PLAIN,
        {"inv_freq": np.append(ladder()[:-1], 0.0)},
        "1 of 32 pairs do not rotate, the first at feature 31",
    ),
    ("behind", PLAIN, {"place": lambda p: max(p - 1, 0)}, "shifted by -1 from 1 on"),
    ("frozen", PLAIN, {"place": lambda p: 3.0}, "every position is rotated alike"),
    (
        "ends, slow",
        LONG,
        {"inv_freq": ladder(1e4), "place": lambda p: min(p, 4095)},
        "as 4095",
    ),
    (
        "ramp's ends",
        YARN,
        {"inv_freq": yarn(truncate=False), "gain": GAIN},
        "are not rounded",
    ),
    (
        "another factor",
        YARN,
        {"inv_freq": yarn(8.0), "gain": GAIN},
        "factor 8 instead of 4",
    ),
    (
        "factor on cos",
        YARN,
        {
            "inv_freq": "right",
            "lines": lambda x, y, c, s: (GAIN * x * c - y * s, GAIN * y * c + x * s),
        },
        "cos is multiplied by 1.139, sin by 1",
    ),
    (
        "columns of neighbours",
        PLAIN,
        {
            "lines": lambda x, y, c, s: columns(
                x, y, np.repeat(c, 2, 1), np.repeat(s, 2, 1)
            )
        },
        "the columns of cos and sin are laid out for adjacent pairs",
    ),
    ("no rotation", PLAIN, {"inv_freq": 0 * ladder()}, "the output equals the input"),
    # From issue trackers of ports.
    (
        "betas exchanged",
        YARN,
        {"inv_freq": between(20, 13), "gain": GAIN},
        "from pair 20 to 13",
    ),
    (
        "ramp without 2 pi",
        YARN,
        {"inv_freq": between(16, 26), "gain": GAIN},
        "lack their 2 pi",
    ),
    ("llama3 without 2 pi", SCALED, {"inv_freq": llama3(turn=1.0)}, "lack their 2 pi"),
    (
        "ramp beyond its ends",
        YARN,
        {"inv_freq": unlimited(13, 21), "gain": GAIN},
        "beyond its ends",
    ),
    (
        "ramp of features",
        YARN,
        {"inv_freq": between(24, 42), "gain": GAIN},
        "from pair 24 to 42",
    ),
    (
        "no blend",
        SCALED,
        {"inv_freq": banded(lambda s: 1.0)},
        "pairs in the ramp are kept",
    ),
    (
        "hard step",
        SCALED,
        {"inv_freq": banded(lambda s: 0.0)},
        "pairs in the ramp are divided",
    ),
    (
        "blend",
        SCALED,
        {"inv_freq": banded(lambda s: 1 - s)},
        "the ramp are blended backwards",
    ),
    (
        "base 2 % off",
        PLAIN,
        {"inv_freq": ladder(510000.0)},
        "base 510000 instead of 500000",
    ),
    (
        "base off, scaled",
        YARN,
        {"inv_freq": between(12, 21, 510000.0), "gain": GAIN},
        "510000",
    ),
    (
        "linspace",
        PLAIN,
        {"inv_freq": ladder(divided=62)},
        "divides by 62 instead of 64",
    ),
    (
        "cache one short",
        PLAIN,
        {"place": lambda p: min(p, 32766)},
        "32767 is rotated as 32766",
    ),
    (
        "padding from 1",
        PLAIN,
        {"place": lambda p: max(p, 1)},
        "position 0 is rotated as 1",
    ),
    (
        "exponent of the head",
        PARTIAL,
        {"inv_freq": ladder()[:16]},
        "by 64 instead of 32",
    ),
    ("half the factor", LINEAR, {"inv_freq": ladder() / 2}, "factor 2 instead of 4"),
    (
        "back",
        PLAIN,
        {"place": lambda p: 32767 - p},
        "positions are counted back from 32767",
    ),
    (
        "sign of one",
        PLAIN,
        {"inv_freq": ONE_BACK},
        "1 of 32 pairs rotate the wrong way, from pair 5 on",
    ),
    (
        "sign of the odd",
        PLAIN,
        {"inv_freq": ladder() * (-1.0) ** np.arange(32)},
        "16 of 32 pairs",
    ),
    (
        "sums",
        PLAIN,
        {"inv_freq": np.cumsum(ladder())},
        "31 of 32 frequencies are wrong",
    ),
    ("divided", PLAIN, {"inv_freq": 1 / ladder()}, "positions are divided by inv_freq"),
    ("halved", PLAIN, {"place": lambda p: p // 2}, "positions are p // 2"),
    (
        "floored",
        LINEAR,
        {"inv_freq": ladder(), "place": lambda p: p // 4},
        "rounded down to multiples of 4",
    ),
    (
        "bfloat16 powers",
        PLAIN,
        {"inv_freq": BF16_POWERS},
        "inv_freq is rounded to bfloat16",
    ),
    (
        "a coarse 2 pi",
        PLAIN,
        {"reduce": lambda a: a - np.floor(a / 6.2832) * 6.2832},
        "sin and cos of large arguments (2 pi is taken as 6.2832): off by 0.0766",
    ),
    (
        "outputs exchanged",
        PLAIN,
        {"lines": lambda x, y, c, s: halves(x, y, c, s)[::-1]},
        "the first feature of a pair comes back as the second",
    ),
    (
        "degrees",
        PLAIN,
        {"inv_freq": ladder() * 180 / math.pi},
        "degrees are taken for radians",
    ),
    (
        "log2 for ln",
        PLAIN,
        {"inv_freq": ladder(500000 ** (1 / math.log(2)))},
        "instead of 500000",
    ),
    (
        "sin of the next pair",
        PLAIN,
        {"lines": lambda x, y, c, s: halves(x, y, c, np.roll(s, -1, 1))},
        "as long as elsewhere",
    ),
    (
        "multiplied by the table",
        LONGROPE,
        {"inv_freq": ladder() * TABLES["long_factor"], "gain": WIDER},
        "the long table multiplies the frequencies",
    ),
    # A mistake before or after the scaling.
    (
        "llama3 twice",
        SCALED,
        {"inv_freq": llama3(plain=llama3())},
        "the factor is applied twice",
    ),
    (
        "linspace, llama3",
        SCALED,
        {"inv_freq": llama3(plain=ladder(divided=62))},
        "62 instead of 64",
    ),
    (
        "exponent of the head, longrope",
        PARTIAL_LONGROPE,
        {"inv_freq": ladder()[:16] / TABLES["long_factor"][:16], "gain": WIDER},
        "the exponent divides by 64 instead of 32",
    ),
    (
        "exponent of the hidden state, yarn",
        YARN,
        {"inv_freq": yarn() / ladder() * ladder(divided=256), "gain": GAIN},
        "the exponent divides by 256 instead of 64",
    ),
    (
        "exponent, dynamic",
        DYNAMIC,
        {"inv_freq": ladder(divided=128)},
        "the exponent divides by 128 instead of 64",
    ),
    (
        "bfloat16 before llama3",
        SCALED,
        {"inv_freq": llama3(plain=BF16_POWERS)},
        "inv_freq is rounded to bfloat16",
    ),
    (
        "mscale's root",
        YARN,
        {"inv_freq": "right", "gain": GAIN**0.5},
        "by 1.06707 instead of",
    ),
]


@pytest.mark.parametrize(
    ("config", "change", "says"),
    [row[1:] for row in PLANTED],
    ids=[row[0] for row in PLANTED],
)
def test_every_planted_bug_is_found_and_named(
    config: dict[str, Any], change: dict[str, Any], says: str
) -> None:
    if isinstance(change.get("inv_freq"), str):
        change = {**change, "inv_freq": expected(config).inv_freq}
    done = judged(config, rotating(**change))
    assert done.wrong
    assert says in done.answer
    assert "uninitialised" not in done.answer
    assert done.fix


@pytest.mark.parametrize(
    ("stage", "fix"),
    [
        ("position", "keep positions in integers"),
        ("inv_freq", "keep inv_freq in float32"),
        ("angle", "form angles in float32"),
    ],
)
def test_what_to_keep_in_more_bits_is_what_was_rounded(stage: str, fix: str) -> None:
    wanted = expected(PLAIN)
    positions = choose_positions(wanted)
    factors = {"position": positions.astype(np.float64), "inv_freq": ladder()}
    if stage in factors:
        factors[stage] = round_to(factors[stage], FORMATS["bfloat16"])
    angles = factors["position"][:, None] * factors["inv_freq"]
    if stage == "angle":
        angles = round_to(angles, FORMATS["bfloat16"])

    tables = observe_tables(positions, np.cos(angles), np.sin(angles), wanted.spec)
    done = diagnose(tables, wanted, 0.01)
    assert done.wrong
    assert stage in done.answer
    assert fix in done.fix


@pytest.mark.parametrize("rotated", [10, 26])
def test_pairs_that_stand_still_in_tables(rotated: int) -> None:
    """Most of the numbers may be zeros, and the memory still be initialised."""
    inv_freq = np.where(np.arange(32) < rotated, ladder(), 0)

    def tables(positions: np.ndarray) -> Any:
        angles = positions[:, None] * inv_freq
        return np.cos(angles), np.sin(angles)

    done = judge_code(
        lambda spec, at: ask_function(tables, "tables", spec, at), expected(PLAIN), 0.01
    )
    still = 32 - rotated
    says = f"{still} of 32 pairs do not rotate, from pair {rotated} on"
    assert done.answer == says


def test_a_base_beyond_all_factors_is_not_explained_by_scaling() -> None:
    done = judged(PLAIN, rotating(ladder(500000 ** (1 / math.log(2)))))
    assert done.wrong
    assert "NTK" not in done.answer


def test_at_least_25_bugs_are_planted_and_the_codes_without_one_are_right() -> None:
    assert len(PLANTED) >= 25
    for config, code in (
        (PLAIN, rotating()),
        (PARTIAL, rotating(HALF)),
        (SCALED, rotating(llama3())),
        (DYNAMIC, rotating()),
        (YARN, rotating(yarn(), gain=GAIN)),
        (LONG, rotating(ladder(1e4))),
    ):
        done = judged(config, code)
        assert not done.wrong, done.answer


ALWAYS: Callable[[int], bool] = lambda last: True  # noqa: E731
OF_SHORT: dict[str, Any] = {"rope_type": "yarn", "factor": 4.0}
OF_SHORT |= {"original_max_position_embeddings": 32768}
SHORT = {**PLAIN, "max_position_embeddings": 131072, "rope_scaling": OF_SHORT}


@pytest.mark.parametrize(
    ("scaled", "length", "says"),
    [
        (ALWAYS, 131072, "nearest to float32"),
        (ALWAYS, 16384, "nearest to float32"),
        (lambda last: last >= 32768, 131072, "is missing (8193 tokens)"),
        (lambda last: last < 32768, 16384, "is missing (65536 tokens)"),
    ],
)
def test_a_static_scaling_is_the_same_in_every_context(
    scaled: Callable[[int], bool], length: int, says: str
) -> None:
    wanted = replace(expected(SHORT), length=length)

    def rope(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        inv_freq = yarn() if scaled(positions.max()) else ladder()
        return rotating(inv_freq, gain=GAIN)(x, positions)

    done = judge_code(
        lambda spec, at: ask_function(rope, "rope", spec, at), wanted, 0.01
    )
    assert done.wrong == ("missing" in says)
    assert done.answer.endswith(says)


def test_a_code_that_stops_in_other_contexts_is_not_accused() -> None:
    wanted = expected(SHORT)

    def stops(positions: np.ndarray) -> Any:
        if 2 < positions.max() < 131071:
            raise IndexError("a context of another length")
        angles = positions[:, None] * yarn()
        return GAIN * np.cos(angles), GAIN * np.sin(angles)

    done = judge_code(
        lambda spec, at: ask_function(stops, "stops", spec, at), wanted, 0.01
    )
    assert (done.wrong, "were seen" in done.answer) == (False, False)


def test_a_shift_is_named_of_codes_in_float32_at_far_positions() -> None:
    wanted = expected({**PLAIN, "max_position_embeddings": 1_000_000})
    places = np.array([0, 1, 2, 255, 4096, 131071, 1_000_000])
    code = rotating(place=lambda p: p + 1, cast=np.float32)
    done = diagnose(observe_rotation(code, wanted.spec, places), wanted, 0.01)
    assert mentions(done.answer, "shifted by 1")


def test_neighbours_that_come_back_as_halves_give_the_same_scores() -> None:
    """DeepSeek's code in transformers leaves them so, for queries and keys alike."""

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return rotating()(np.concatenate([x[:, ::2], x[:, 1::2]], axis=1), positions)

    done = judged({**PLAIN, "model_type": "cohere"}, rotate)
    assert not done.wrong
    assert "come back as halves" in done.answer
    assert mentions(judged(PLAIN, rotate).answer, "adjacent", "instead of half")


def test_tables_in_halves_say_nothing_about_adjacent_pairs() -> None:
    """Codes that rotate neighbours read tables of either layout (GLM, DeepSeek)."""
    wanted = expected({**PLAIN, "model_type": "cohere", "head_dim": HEAD})
    assert wanted.spec.pairing == "interleaved"
    cos, sin = wanted.rotation.tables(choose_positions(wanted))
    for double in (lambda t: np.concatenate([t, t], -1), lambda t: np.repeat(t, 2, -1)):
        observed = observe_tables(
            choose_positions(wanted), double(cos), double(sin), wanted.spec
        )
        assert (observed.partner, observed.cos.shape) == ("unknown", cos.shape)
        assert not diagnose(observed, wanted, 0.01).wrong


def test_columns_of_adjacent_pairs_are_wrong_for_halves_and_half_a_table_is_not_judged() -> (
    None
):
    wanted = expected(PLAIN)
    tables, places = (
        wanted.rotation.tables(choose_positions(wanted)),
        choose_positions(wanted),
    )
    for double, wrong, says in (
        (
            lambda t: np.repeat(t, 2, -1),
            True,
            "the columns of cos and sin are laid out for adjace",
        ),
        (lambda t: np.concatenate([t, t], -1), False, "nearest to float32"),
        (lambda t: t, False, "pairs were not judged, as tables do not show them"),
        (
            lambda t: np.repeat(0 * t + 1, 2, -1),
            True,
            "every position is rotated alike",
        ),
    ):
        cos, sin = (double(table) for table in tables)
        done = diagnose(observe_tables(places, cos, sin, wanted.spec), wanted, 0.01)
        assert done.wrong == wrong, done.answer
        assert says in done.answer


def test_few_vectors_show_pairs_and_blocks_as_unit_vectors_do() -> None:
    wanted = expected(PARTIAL)
    places, some = (
        choose_positions(wanted),
        np.random.default_rng(0).normal(size=(4, HEAD)),
    )
    changes: list[tuple[dict[str, Any], str]] = [
        ({"inv_freq": HALF}, "within"),
        ({"inv_freq": HALF, "first": np.arange(32, 48)}, "features 32 to 63 rotate"),
        (
            {"inv_freq": HALF, "first": EVEN[:16], "second": ODD[:16]},
            "adjacent pairing",
        ),
    ]
    for change, says in changes:
        code: Any = rotating(**change)
        after = np.stack([code(some, np.full(4, place)) for place in places])
        observed = observe_vectors(some, after, places, wanted.spec)
        assert says in diagnose(observed, wanted, 0.01).answer
    with pytest.raises(InputError, match="too few vectors"):
        observe_vectors(some[:1], after[:, :1], places, wanted.spec)


def test_a_norm_inside_a_rotation_is_a_fault_although_unit_vectors_do_not_show_it() -> (
    None
):
    wanted = expected(PLAIN)

    def judged_as(
        change: Callable[[np.ndarray], np.ndarray], kept: str = "float64"
    ) -> Check:
        def rope(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
            return round_to(
                rotating()(change(x.astype(np.float64)), positions), FORMATS[kept]
            )

        found = ask_function(rope, "rope", wanted.spec, choose_positions(wanted))
        return diagnose(found[""], wanted, 0.01)

    says = "the code does more than rotate"
    norms = (
        lambda x: x / np.linalg.norm(x, axis=1, keepdims=True),
        lambda x: np.clip(x, -1, 1),
    )
    assert [judged_as(norm).answer for norm in norms] == [says, says]
    assert not judged_as(lambda x: x, "bfloat16").wrong


def test_queries_in_halves_beside_keys_in_pairs_have_no_right_score() -> None:
    wanted = expected({**PLAIN, "model_type": "cohere", "head_dim": HEAD})
    pairs = rotating(first=EVEN, second=ODD)

    def halves(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return rotating()(np.concatenate([x[:, ::2], x[:, 1::2]], axis=1), positions)

    def judged_as(of_q: Any, of_k: Any) -> Check:
        def rope(q: np.ndarray, k: np.ndarray, positions: np.ndarray) -> Any:
            return of_q(q, positions), of_k(k, positions)

        found = ask_function(rope, "rope", wanted.spec, choose_positions(wanted))
        return combine(
            {name: diagnose(one, wanted, 0.01) for name, one in found.items()}
        )

    says = "{} comes back as halves and {} as adjacent pairs: no score is right"
    for of_q, of_k, names in ((halves, pairs, "qk"), (pairs, halves, "kq")):
        done = judged_as(of_q, of_k)
        assert (done.wrong, done.answer) == (True, says.format(*names))
    assert not judged_as(halves, halves).wrong
    assert not judged_as(pairs, pairs).wrong


def test_a_rest_that_rotates_or_grows_is_named() -> None:
    def rope(change: Callable[..., np.ndarray]) -> Any:
        def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
            y = rotating(HALF)(x, positions)
            y[:, 32:] = change(y[:, 32:], positions)
            return y

        return rotate

    def rotated(rest: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return rotating(HALF)(rest, positions)

    answer = judged(PARTIAL, rope(rotated)).answer
    assert mentions(answer, "64 features", "instead of 32")
    answer = judged(PARTIAL, rope(lambda rest, _: 1.05 * rest)).answer
    assert mentions(answer, "32 to 63", "do not rotate", "change")
    assert not judged(PARTIAL, rope(lambda rest, _: 1.002 * rest)).wrong


MILLION = {**PLAIN, "max_position_embeddings": 1_048_576}


def reduced(period: float) -> Callable[..., Any]:
    """A float32 sine whose argument is reduced by one float32 number."""

    def tables(positions: np.ndarray) -> Any:
        places = np.asarray(positions).astype(np.float32)
        angles = places[:, None] * ladder().astype(np.float32)
        once = np.float32(period)
        count = np.rint(angles / once).astype(np.float32)
        left = (angles - count * once).astype(np.float64)
        sign = np.where(count % 2 == 1, round(np.cos(period)), 1)
        return np.cos(left) * sign, np.sin(left) * sign

    return tables


@pytest.mark.parametrize("period", [math.pi, math.tau])
def test_a_sine_that_is_reduced_by_one_float32_number_is_named(period: float) -> None:
    wanted = expected(MILLION)
    code = reduced(period)
    done = judge_code(
        lambda spec, at: ask_function(code, "code", spec, at), wanted, 0.01
    )
    assert done.wrong
    says = "sin and cos of large arguments (2 pi in one term): off by 0.0"
    assert done.answer.startswith(says)


def test_a_sine_in_float32_whose_argument_is_reduced_well_is_right() -> None:
    wanted = expected(MILLION)

    def tables(positions: np.ndarray) -> Any:
        angles = positions.astype(np.float32)[:, None] * ladder().astype(np.float32)
        return np.cos(angles), np.sin(angles)

    done = judge_code(
        lambda spec, at: ask_function(tables, "x", spec, at), wanted, 0.01
    )
    assert not done.wrong
    assert "nearest to float32" in done.answer


def test_a_pair_whose_angle_is_exact_has_no_allowance() -> None:
    places = np.array([131071.0, 1_048_575.0])
    allowed = expected(MILLION).budget().angles(places)
    assert not allowed[:, 0].any()
    assert (allowed[:, 1] > 0.01).all()
    assert (
        not expected({**MILLION, "rope_scaling": LLAMA3})
        .budget()
        .angles(places)[:, 0]
        .any()
    )
