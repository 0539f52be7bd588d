"""Mistakes in rotary code, planted by somebody who did not write the check, and the
words that must name each.

They are about features that come back elsewhere, frequencies of a part of the head,
bases that are rounded, factors that grow, positions of several axes, and codes that
count features in `x[:, i]`.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ropelab.conformance.calls import ask_function
from ropelab.conformance.check_code import judge_code
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.expected import expect_config, find_main
from ropelab.conformance.observation import Observed
from ropelab.conformance.rotations import observe_vectors
from tests.conformance.several_axes import MODELS

SIZES: dict[str, Any] = {"hidden_size": 512, "num_attention_heads": 8}
PLAIN = {**SIZES, "model_type": "llama", "rope_theta": 500000.0}
PLAIN["max_position_embeddings"] = 32768
MILLION = {**PLAIN, "rope_theta": 5e6, "max_position_embeddings": 1_000_000}
LLAMA3 = {**PLAIN, "max_position_embeddings": 131072}
LLAMA3["rope_scaling"] = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LINEAR = {**PLAIN, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}
YARN = {**PLAIN, "rope_theta": 1e6, "max_position_embeddings": 131072}
YARN["rope_scaling"] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
    "attention_factor": 1.0,
}
DIVISORS = {
    "short_factor": [1 + 0.02 * pair for pair in range(32)],
    "long_factor": [1 + 1.5 * pair for pair in range(32)],
}
LONGROPE = {**PLAIN, "model_type": "phi3", "original_max_position_embeddings": 4096}
LONGROPE["rope_scaling"] = {"type": "longrope", **DIVISORS}
PARTIAL = {**SIZES, "model_type": "phi", "partial_rotary_factor": 0.5}
PARTIAL |= {"rope_theta": 1e4, "max_position_embeddings": 2048}
ADJACENT = {**SIZES, "model_type": "glm4", "head_dim": 64, "rope_theta": 1e4}
ADJACENT |= {"partial_rotary_factor": 0.5, "max_position_embeddings": 32768}
WIDE: dict[str, Any] = {"hidden_size": 512, "num_attention_heads": 4, "head_dim": 128}
WIDE |= {"max_position_embeddings": 32768, "rope_theta": 1e6}
RUNS = {**WIDE, "model_type": "qwen2_5_vl_text"}
RUNS["rope_scaling"] = {"rope_type": "default", "mrope_section": [16, 24, 24]}
TURNS = {**WIDE, "model_type": "qwen3_vl_text"}
TURNS["rope_scaling"] = {
    "rope_type": "default",
    "mrope_section": [24, 20, 20],
    "mrope_interleaved": True,
}
LAST = {**WIDE, "model_type": "ernie4_5_vl_moe_text"}
LAST["rope_parameters"] = {
    "rope_type": "default",
    "rope_theta": 5e5,
    "mrope_section": [22, 22, 20],
}


# The smallest turn that 16 bits hold.
TURN = math.tau / 65536


def ladder(base: float = 500000.0, width: int = 64) -> np.ndarray:
    return 1 / base ** (np.arange(0, width, 2) / width)


def turned(
    x: np.ndarray,
    angles: np.ndarray,
    first: np.ndarray | None = None,
    second: np.ndarray | None = None,
) -> np.ndarray:
    """Rotate the first features of pairs with the second ones, by default in halves."""
    x = np.asarray(x, np.float64)
    pairs = angles.shape[-1]
    first = np.arange(pairs) if first is None else first
    second = first + pairs if second is None else second
    cos, sin = np.cos(angles), np.sin(angles)
    y = x.copy()
    y[:, first] = x[:, first] * cos - x[:, second] * sin
    y[:, second] = x[:, second] * cos + x[:, first] * sin
    return y


def by(positions: np.ndarray, inv_freq: np.ndarray) -> np.ndarray:
    return np.asarray(positions, np.float64).reshape(-1, 1) * inv_freq


def rotating(inv_freq: np.ndarray, place: Any = lambda p: p) -> Any:
    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return turned(x, by(place(positions), inv_freq))

    return rotate


def returning(change: Callable[[np.ndarray], np.ndarray], inv_freq: np.ndarray) -> Any:
    """A code that rotates rightly and returns its features in another order."""

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return change(turned(x, by(positions, inv_freq)))

    return rotate


def half_a_sine(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    angles = by(positions, ladder())
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = x[:, :32], x[:, 32:]
    halved = second * cos + first * sin / 2
    return np.concatenate([first * cos - second * sin, halved], axis=1)


def copy_front(y: np.ndarray) -> np.ndarray:
    return np.concatenate([y[:, :32], y[:, :32]], axis=1)


def stack_halves(y: np.ndarray) -> np.ndarray:
    return np.stack([y[:, :32], y[:, 32:]], axis=-1).reshape(y.shape)


def tables(angles: Callable[[np.ndarray], np.ndarray]) -> Any:
    def make(positions: np.ndarray) -> Any:
        found = angles(positions)
        return np.cos(found), np.sin(found)

    return make


def powers(positions: np.ndarray) -> Any:
    """The rotation of one token in 8 bits, to the power of the position."""
    unit = np.round(np.exp(1j * ladder()) * 256) / 256
    found = unit ** np.asarray(positions, np.float64).reshape(-1, 1)
    return found.real, found.imag


def llama3(blend: Callable[[float, float], float]) -> np.ndarray:
    found = []
    for theta in ladder():
        turns = 8192 * theta / math.tau
        found.append(blend(theta, min(max((turns - 1) / 3, 0.0), 1.0)))
    return np.array(found)


def geometric(theta: float, share: float) -> float:
    return float(theta**share * (theta / 32) ** (1 - share))


def smooth(theta: float, share: float) -> float:
    share = share**2 * (3 - 2 * share)
    return share * theta + (1 - share) * theta / 32


def yarn_with_ramp_of(base: float) -> np.ndarray:
    """YaRN by 4 whose ramp's ends have another base than its frequencies."""
    low, high = (
        64 * math.log(32768 / (turns * math.tau)) / (2 * math.log(base))
        for turns in (32, 1)
    )
    ramp = np.clip((np.arange(32) - int(low)) / (math.ceil(high) - int(low)), 0, 1)
    return ladder(1e6) * (1 - ramp + ramp / 4)


def longrope_in_reverse(
    x: np.ndarray, positions: np.ndarray, seq_len: int
) -> np.ndarray:
    divisors = np.array(DIVISORS["long_factor" if seq_len > 4096 else "short_factor"])
    gain = math.sqrt(1 + math.log(8) / math.log(4096))
    y = turned(x, by(positions, ladder() / divisors[::-1]))
    return y * gain


def next_sine(positions: np.ndarray) -> Any:
    return np.cos(by(positions, ladder())), np.sin(by(positions + 1, ladder()))


def log_n(q: np.ndarray, k: np.ndarray, positions: np.ndarray) -> Any:
    """Qwen's: queries grow with the logarithm of the position."""
    angles = by(positions, ladder())
    logarithms = np.log(np.maximum(positions, 1)) / math.log(2048)
    return turned(q, angles) * np.maximum(logarithms, 1)[:, None], turned(k, angles)


def stepped(positions: np.ndarray) -> Any:
    """The factor on cos and sin comes where the trained length ends."""
    angles = by(positions, ladder())
    gain = np.where(positions < 2048, 1, 1.1386)[:, None]
    return gain * np.cos(angles), gain * np.sin(angles)


def multiplied(positions: np.ndarray) -> Any:
    """ggml's: in slow pairs more is lost than by a product for each pair."""
    step = np.float32(5e6) ** np.float32(-2 / 64)
    column = positions.astype(np.float32)
    columns = []
    for _ in range(32):
        columns.append(column)
        column = column * step
    angles = np.stack(columns, axis=1).astype(np.float64)
    return np.cos(angles), np.sin(angles)


def loses_now_and_then(positions: np.ndarray) -> Any:
    """The angle of pair 0 is exact, and lost by 0.05 where few positions are asked for."""
    angles = by(positions.astype(np.float32), ladder(5e6))
    is_lost = (positions > 200_000) & (positions < 900_000)
    angles[is_lost, 0] += 0.05
    return np.cos(angles), np.sin(angles)


PLANTED: dict[str, tuple[dict[str, Any], Any, str]] = {
    "the rest copied from the front": (
        PARTIAL,
        returning(copy_front, ladder(1e4, 32)),
        "features 32 to 63 come back as copies of 0 to 31",
    ),
    "in reverse": (
        PLAIN,
        returning(lambda y: y[:, ::-1], ladder()),
        "features come back in reverse order",
    ),
    "halves stacked": (
        PLAIN,
        returning(stack_halves, ladder()),
        "the two halves come back as neighbours",
    ),
    "rolled by one": (
        PLAIN,
        returning(lambda y: np.roll(y, 1, axis=1), ladder()),
        "features come back in another order: 63 in place of 0",
    ),
    "mirrored": (
        PLAIN,
        lambda x, positions: turned(
            x, by(positions, ladder()), np.arange(32), 63 - np.arange(32)
        ),
        "features i and 63 - i form a pair",
    ),
    "half a sine": (
        PLAIN,
        half_a_sine,
        "in every pair, sin of the second feature is multiplied by 0.5",
    ),
    "the slow half": (
        PARTIAL,
        rotating(ladder(1e4)[16:]),
        "the slowest of the 32 frequencies of the whole head",
    ),
    "geometric mean": (
        LLAMA3,
        rotating(llama3(geometric)),
        "pairs in the ramp have the geometric mean of both frequencies",
    ),
    "base in bfloat16": (
        PLAIN,
        tables(lambda p: by(p, ladder(499712.0))),
        "the base is rounded to bfloat16, base 499712",
    ),
    "powers": (PLAIN, powers, "some pairs grow with the position and others fall"),
    "log n": (PLAIN, log_n, "a factor that grows with the logarithm of the position"),
    "a step": (PLAIN, stepped, "times as long"),
    "neighbours": (
        PLAIN,
        rotating(ladder(), lambda p: p ^ 1),
        "positions 2n and 2n + 1 are exchanged",
    ),
    "blocks in reverse": (
        PLAIN,
        rotating(ladder(), lambda p: p - p % 16 + 15 - p % 16),
        "positions are counted back in each block of 16",
    ),
    "smooth ramp": (
        LLAMA3,
        rotating(llama3(smooth)),
        "the ramp rises smoothly, as 3 s^2 - 2 s^3",
    ),
    "ramp of another base": (
        YARN,
        rotating(yarn_with_ramp_of(1e4)),
        "as with base 10000 for the ramp alone",
    ),
    "table in reverse": (
        LONGROPE,
        longrope_in_reverse,
        "the long table is in reverse order",
    ),
    "next sine": (PLAIN, next_sine, "sin is that of the next position"),
    "a third in bfloat16": (
        LINEAR,
        rotating(ladder(), lambda p: p * 0.333984375),
        "factor 2.99415 instead of 3",
    ),
    "rounded positions": (
        PLAIN,
        rotating(ladder(), lambda p: np.round(p / 2) * 2),
        "positions are rounded to multiples of 2",
    ),
    "limited angles": (
        PLAIN,
        tables(lambda p: np.minimum(by(p, ladder()), 1000.0)),
        "angles are limited to one between 257 and 1023 rad",
    ),
    "fixed point": (
        PLAIN,
        tables(lambda p: by(p, np.round(ladder() * 65536) / 65536)),
        "inv_freq is held in radians with 16 bits of fraction",
    ),
    "turns in fixed point": (
        PLAIN,
        tables(lambda p: by(p, np.round(ladder() / TURN) * TURN)),
        "inv_freq is held in turns with 16 bits of fraction",
    ),
    "ratio in float16": (
        PLAIN,
        tables(lambda p: by(p, float(np.float16(ladder()[1])) ** np.arange(32))),
        "the ratio of one frequency to the next is rounded to float16",
    ),
    "2 pi in bfloat16": (
        PLAIN,
        tables(lambda p: np.fmod(by(p, ladder()), 6.28125)),
        "2 pi is taken as 6.28125",
    ),
    "lost now and then": (
        MILLION,
        loses_now_and_then,
        "sin and cos of large arguments (pair 0, whose angle is exact, is off by 0.05",
    ),
}
IN_RUNS = np.repeat([0, 1, 2], [16, 24, 24])
IN_TURNS = np.append(np.tile([0, 1, 2], 20), [0, 0, 0, 0])


def of_axes(
    axes: np.ndarray,
    inv_freq: np.ndarray,
    change: Callable[[np.ndarray], np.ndarray] = lambda places: places,
) -> Any:
    """A code that rotates halves, each pair by the position on its axis."""

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        places = np.broadcast_to(positions, (3, positions.shape[-1]))
        return turned(x, change(places.astype(np.float64))[axes].T * inv_freq)

    return rotate


def add_height(places: np.ndarray) -> np.ndarray:
    return np.stack([places[0], places[1], places[1] + places[2]])


def take_largest(places: np.ndarray) -> np.ndarray:
    return np.stack([places.max(axis=0)] * 3)


def time_from_zero(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """ERNIE's order, in which time has the last pairs, with the ladder's first part."""
    places = np.broadcast_to(positions, (3, positions.shape[-1]))
    axes = np.append(np.tile([1, 2], 22), [0] * 20)
    theta = ladder(5e5, 128)
    angles = places[axes].T * np.append(theta[:44], theta[:20])
    return turned(x, angles, np.arange(0, 128, 2), np.arange(1, 128, 2))


THETA = ladder(1e6, 128)
EXCHANGED = np.concatenate([THETA[:16], THETA[40:], THETA[16:40]])
PLANTED_ON_AXES: dict[str, tuple[dict[str, Any], Any, str]] = {
    "width from height on": (
        RUNS,
        of_axes(IN_RUNS, THETA, add_height),
        "positions of width are height + width",
    ),
    "the largest": (
        RUNS,
        of_axes(IN_RUNS, THETA, take_largest),
        "all pairs read the largest of the positions on all axes",
    ),
    "exchanged ladders": (
        RUNS,
        of_axes(IN_RUNS, EXCHANGED),
        "height and width have each other's frequencies",
    ),
    "time from 0": (
        LAST,
        time_from_zero,
        "the frequencies of time start again at pair 0",
    ),
    "the smallest": (
        RUNS,
        of_axes(IN_RUNS, THETA, lambda places: np.stack([places.min(axis=0)] * 3)),
        "all pairs read the smallest of the positions on all axes",
    ),
    "width in reverse": (
        RUNS,
        of_axes(IN_RUNS, np.append(THETA[:40], THETA[:39:-1])),
        "the frequencies of width are in reverse order",
    ),
    "a base of its own": (
        TURNS,
        of_axes(IN_TURNS, np.where(IN_TURNS == 2, ladder(1e4, 128), THETA)),
        "base 10000 instead of 1e6 for width",
    ),
}


def checked(config: dict[str, Any], code: Any) -> Check:
    layers = expect_config("config.json", config, None)

    def ask(spec: Any, positions: np.ndarray) -> dict[str, Observed]:
        return ask_function(code, "code", spec, positions)

    return judge_code(ask, layers[find_main(layers)], 0.01)


@pytest.mark.parametrize("name", [*PLANTED, *PLANTED_ON_AXES])
def test_a_mistake_is_named(name: str) -> None:
    config, code, says = {**PLANTED, **PLANTED_ON_AXES}[name]
    done = checked(config, code)
    assert done.wrong
    assert says in done.answer
    assert done.fix


def loop_over_pairs(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Features counted in the second dimension, whatever the shape."""
    y = np.array(x, np.float64)
    for pair, theta in enumerate(ladder()):
        angles = np.asarray(positions) * theta
        cos, sin = np.cos(angles), np.sin(angles)
        y[:, pair] = x[:, pair] * cos - x[:, pair + 32] * sin
        y[:, pair + 32] = x[:, pair + 32] * cos + x[:, pair] * sin
    return y


def loop_over_axes(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    y = np.array(x, np.float64)
    places = np.broadcast_to(positions, (3, np.shape(positions)[-1]))
    for pair, axis in enumerate([0, 0, 1, 1, 1, 2, 2, 2]):
        angles = places[axis] * 1e6 ** (-pair / 8)
        cos, sin = np.cos(angles), np.sin(angles)
        first, second = 2 * pair, 2 * pair + 1
        y[:, first] = x[:, first] * cos - x[:, second] * sin
        y[:, second] = x[:, second] * cos + x[:, first] * sin
    return y


def matrix_by_matrix(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """A matrix of the whole head for each token, in the first dimension."""
    rows = []
    for row, position in zip(x, np.asarray(positions).reshape(-1), strict=False):
        cos, sin = (np.diag(f(position * ladder())) for f in (np.cos, np.sin))
        rows.append(np.block([[cos, -sin], [sin, cos]]) @ row)
    return np.array(rows)


@pytest.mark.parametrize(
    ("config", "code"),
    [
        (PLAIN, loop_over_pairs),
        (MODELS["glm4v"], loop_over_axes),
        (PLAIN, matrix_by_matrix),
    ],
)
def test_code_that_counts_features_in_its_second_dimension_is_right(
    config: dict[str, Any], code: Any
) -> None:
    """In another shape the same code takes tokens for features, and is not meant."""
    assert not checked(config, code).wrong


def test_a_recurrence_over_pairs_is_right_as_in_a_kit() -> None:
    done = checked(MILLION, multiplied)
    assert not done.wrong
    assert "angles are multiplied in float32 from pair to pair" in done.answer


def test_few_vectors_show_a_block_inside_the_head() -> None:
    layers = expect_config("config.json", ADJACENT, None)
    spec = layers[find_main(layers)].spec
    positions = np.array([0, 1, 2, 5, 100])
    before = np.random.default_rng(0).normal(size=(8, 64))
    after = []
    for position in positions:
        angles = by(np.full(8, position), ladder(1e4, 32))
        first = np.arange(16, 48, 2)
        after.append(turned(before, angles, first, first + 1))
    fault = observe_vectors(before, np.stack(after), positions, spec).fault
    assert fault is not None
    assert fault[0] == "features 16 to 47 rotate instead of 0 to 31"
