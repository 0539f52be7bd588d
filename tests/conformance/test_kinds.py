"""Kinds of mistakes from issue trackers of engines, and right code of many styles."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ropelab.conformance.angles import name_shifted_pairs
from ropelab.conformance.calls import ask_function
from ropelab.conformance.check_code import judge_code
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.expected import expect_config, find_main
from ropelab.conformance.observation import Observed
from ropelab.math.numerics.formats import FORMATS, round_to

SIZES = {"hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 2}
PLAIN: dict[str, Any] = {**SIZES, "model_type": "llama", "rope_theta": 500000.0}
PLAIN["max_position_embeddings"] = 131072
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
SCALED = {**PLAIN, "rope_scaling": LLAMA3}
YARN = {**PLAIN, "rope_theta": 1e6}
YARN["rope_scaling"] = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
}
PARTIAL: dict[str, Any] = {**SIZES, "model_type": "stablelm", "rope_theta": 10000.0}
PARTIAL |= {"max_position_embeddings": 32768, "partial_rotary_factor": 0.5}
ADJACENT = {**PARTIAL, "model_type": "glm4", "head_dim": 64}
GEMMA4: dict[str, Any] = {**SIZES, "model_type": "gemma4_text", "head_dim": 64}
GEMMA4 |= {"global_head_dim": 128, "max_position_embeddings": 131072}
GEMMA4["layer_types"] = ["sliding_attention", "full_attention"]
GEMMA4["rope_parameters"] = {
    "full_attention": {
        "rope_type": "proportional",
        "partial_rotary_factor": 0.25,
        "rope_theta": 1e6,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
DYNAMIC = {**PLAIN, "max_position_embeddings": 4096}
DYNAMIC["rope_scaling"] = {"rope_type": "dynamic", "factor": 4.0}
GPTJ = {"model_type": "gptj", "n_embd": 256, "n_head": 4, "n_layer": 2}
GPTJ |= {"n_positions": 8192, "rotary_dim": 64}
GAIN = 0.1 * math.log(4) + 1


def ladder(base: float = 500000.0, width: int = 64, divisor: int = 0) -> np.ndarray:
    return base ** (-np.arange(0, width, 2) / (divisor or width))


def llama3(low: float = 1.0, high: float = 4.0) -> np.ndarray:
    """Meta's apply_scaling, line by line."""
    scaled = []
    for theta in ladder():
        wavelength = 2 * math.pi / theta
        if wavelength < 8192 / high:
            scaled.append(theta)
        elif wavelength > 8192 / low:
            scaled.append(theta / 8)
        else:
            smooth = (8192 / wavelength - low) / (high - low)
            scaled.append((1 - smooth) * theta / 8 + smooth * theta)
    return np.array(scaled)


def yarn(base: float, width: int, dims: int = 0) -> np.ndarray:
    """YaRN by 4 from 32768 tokens, its ramp between pairs of so many features."""
    ends = [
        (dims or width) * math.log(32768 / (turns * math.tau)) / (2 * math.log(base))
        for turns in (32, 1)
    ]
    low, high = math.floor(ends[0]), math.ceil(ends[1])
    ramp = np.clip((np.arange(width // 2) - low) / (high - low), 0, 1)
    return ladder(base, width) * (ramp / 4 + 1 - ramp)


def rotating(
    theta: np.ndarray,
    features: tuple[np.ndarray, np.ndarray] | None = None,
    place: Callable[[np.ndarray], np.ndarray] = np.asarray,
    gain: Any = 1.0,
    tables: Callable[..., Any] | None = None,
) -> Any:
    """A code that rotates some features, with one thing changed."""
    pairs = np.arange(len(theta))
    first, second = features or (pairs, pairs + len(theta))

    def rotate(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        places = place(np.asarray(positions, np.float64))
        angles = places[:, None] * theta
        factor = gain(places) if callable(gain) else gain
        cos, sin = factor * np.cos(angles), factor * np.sin(angles)
        if tables:
            cos, sin = tables(angles)
        y = np.array(x, dtype=np.float64)
        y[:, first] = x[:, first] * cos - x[:, second] * sin
        y[:, second] = x[:, second] * cos + x[:, first] * sin
        return y

    return rotate


def checked(config: dict[str, Any], code: Any, layer: str = "") -> Check:
    layers = expect_config("config.json", config, None)
    wanted = layers[layer or find_main(layers)]
    return judge_code(
        lambda spec, at: ask_function(code, "code", spec, at), wanted, 0.01
    )


def held_in(bits: int) -> Callable[[np.ndarray], np.ndarray]:
    half = 2 ** (bits - 1)
    return lambda p: (p + half) % (2 * half) - half


def self_extend(window: int, group: int) -> Callable[[np.ndarray], np.ndarray]:
    shift = window - window // group
    return lambda p: np.where(p < window, p, p // group + shift)


def of_keys(rotate_keys: Any, rotate_queries: Any = None) -> Any:
    queries = rotate_queries or rotating(ladder())

    def apply(q: np.ndarray, k: np.ndarray, positions: np.ndarray) -> Any:
        return queries(q, positions), rotate_keys(k, positions)

    return apply


def xpos(sign: int, start: int = 0) -> Any:
    share = (np.arange(0, 64, 2) + 0.4 * 64) / (1.4 * 64)
    step = 2048 if start else 512
    return rotating(
        ladder(), gain=lambda p: share ** (sign * (p[:, None] - start) / step)
    )


def two_terms(angles: np.ndarray) -> Any:
    """A float32 sine: two numbers of 24 bits are taken off, one after the other."""
    first = np.float32(math.tau)
    second = np.float32(math.tau - float(first))
    stored = angles.astype(np.float32)
    periods = np.rint(stored * np.float32(1 / math.tau))
    left = (stored - periods * first) - periods * second
    return np.cos(left).astype(np.float64), np.sin(left).astype(np.float64)


def one_term(angles: np.ndarray) -> Any:
    period = np.float32(math.tau)
    stored = angles.astype(np.float32)
    left = stored - np.rint(stored / period) * period
    return np.cos(left).astype(np.float64), np.sin(left).astype(np.float64)


def summed() -> Any:
    steps = np.broadcast_to(ladder().astype(np.float32), (131072, 32))
    sums = np.cumsum(steps, axis=0, dtype=np.float32)
    table = np.vstack([np.zeros((1, 32)), sums]).astype(np.float64)

    def tables(positions: np.ndarray) -> Any:
        return np.cos(table[positions]), np.sin(table[positions])

    return tables


def alternating(angles: np.ndarray) -> Any:
    """A table that holds sin and cos in turns, cut into halves."""
    table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(len(angles), -1)
    return table[:, 32:], table[:, :32]


def rounded(kind: str) -> Callable[[np.ndarray], Any]:
    fmt = FORMATS[kind]
    return lambda a: (round_to(np.cos(a), fmt), round_to(np.sin(a), fmt))


def one_section_ahead(positions: np.ndarray) -> Any:
    ahead = np.zeros(32)
    ahead[8:16] = 1
    angles = (np.asarray(positions, np.float64)[:, None] + ahead) * ladder()
    return np.cos(angles), np.sin(angles)


def in_steps(count: int) -> Callable[[np.ndarray], Any]:
    def tables(angles: np.ndarray) -> Any:
        steps = np.round(angles / math.tau * count) * math.tau / count
        return np.cos(steps), np.sin(steps)

    return tables


def strided(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    y = np.array(x, dtype=np.float64)
    y[:, ::2] = rotating(ladder(1e4, 32))(y[:, ::2], positions)
    return y


def put_last(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The half that rotates comes back behind the other one."""
    y = rotating(ladder(1e4, 32))(x, positions)
    return np.concatenate([y[:, 32:], y[:, :32]], axis=1)


def reduce_turns(angles: np.ndarray) -> np.ndarray:
    return np.asarray(angles - math.tau * np.rint(angles / math.tau))


def parabolas(angles: np.ndarray) -> Any:
    def sine(x: np.ndarray) -> np.ndarray:
        x = reduce_turns(x)
        return np.asarray(4 / math.pi * x - 4 / math.pi**2 * x * abs(x))

    return sine(angles + math.pi / 2), sine(angles)


def polynomials(angles: np.ndarray) -> Any:
    """Taylor's, of degree 6 and 7, for a whole turn."""
    x = reduce_turns(angles)
    cos = 1 - x**2 / 2 + x**4 / 24 - x**6 / 720
    return cos, x - x**3 / 6 + x**5 / 120 - x**7 / 5040


def bhaskara(angles: np.ndarray) -> Any:
    """Bhaskara's quotient, off by 0.0016."""

    def sine(x: np.ndarray) -> np.ndarray:
        x = x % math.tau
        half = x % math.pi
        product = half * (math.pi - half)
        value = 16 * product / (5 * math.pi**2 - 4 * product)
        return np.where(x < math.pi, value, -value)

    return sine(angles + math.pi / 2), sine(angles)


def taylor_5(angles: np.ndarray) -> Any:
    x = reduce_turns(angles)
    return np.cos(angles), x - x**3 / 6 + x**5 / 120


def cordic(steps: int) -> Callable[[np.ndarray], Any]:
    """Turns of arctan(2^-i), which add up to the angle but for the last of them."""

    def tables(angles: np.ndarray) -> Any:
        left = reduce_turns(angles)
        is_behind = abs(left) > math.pi / 2
        left = left - np.sign(left) * math.pi * is_behind
        x, y = np.ones(left.shape), np.zeros(left.shape)
        for step in range(steps):
            way, size = np.where(left < 0, -1.0, 1.0), 2.0**-step
            x, y = x - way * y * size, y + way * x * size
            left = left - way * math.atan(size)
        length = np.hypot(x, y) * np.where(is_behind, -1, 1)
        return x / length, y / length

    return tables


def argument_in(kind: str) -> Callable[[np.ndarray], Any]:
    def tables(angles: np.ndarray) -> Any:
        held = round_to(angles % math.tau, FORMATS[kind])
        return np.cos(held), np.sin(held)

    return tables


def blended_by_wavelength() -> np.ndarray:
    shares = np.clip((8192 - math.tau / ladder()) / (8192 - 2048), 0, 1)
    return ladder() * (shares + (1 - shares) / 8)


def multiplied() -> np.ndarray:
    shares = np.clip((8192 * ladder() / math.tau - 1) / 3, 0, 1)
    return ladder() * (shares + (1 - shares) * 8)


def grown(exponent: float, factor: float = 4.0) -> Any:
    """Dynamic scaling from 4096 tokens on."""

    def tables(positions: np.ndarray, seq_len: int) -> Any:
        ratio = max(seq_len / 4096, 1.0)
        base = 500000.0 * (factor * ratio - (factor - 1)) ** exponent
        angles = positions[:, None] * ladder(base)
        return np.cos(angles), np.sin(angles)

    return tables


NEIGHBOURS = np.arange(0, 64, 2), np.arange(1, 64, 2)
SPREAD = np.arange(0, 64, 4), np.arange(1, 64, 4)
QUARTER = np.arange(16), np.arange(64, 80)
LONGER = ("max_position_embeddings", "rope_scaling")
PLANTED: dict[str, tuple[dict[str, Any], Any, str]] = {
    "half a position": (
        PLAIN,
        rotating(ladder(), place=lambda p: p + 0.5),
        "positions are shifted by 0.5",
    ),
    "half a position, keys": (
        PLAIN,
        of_keys(rotating(ladder(), place=lambda p: p + 0.5)),
        "k: positions are shifted by 0.5",
    ),
    "int16": (
        PLAIN,
        rotating(ladder(), place=held_in(16)),
        "positions are held in int16: position 65519 is rotated as -17",
    ),
    "int8": (
        PLAIN,
        rotating(ladder(), place=held_in(8)),
        "positions are held in int8: position 255 is rotated as -1",
    ),
    "uint16": (
        PLAIN,
        rotating(ladder(), place=lambda p: p % 65536),
        "positions are held in uint16",
    ),
    "self-extend": (
        PLAIN,
        rotating(ladder(), place=self_extend(1024, 8)),
        "positions are divided by 8 from about 1024 on, as Self-Extend does",
    ),
    "self-extend by 4": (
        PLAIN,
        rotating(ladder(), place=self_extend(2048, 4)),
        "positions are divided by 4 from about 2048 on",
    ),
    "divided from 1024 on": (
        PLAIN,
        rotating(ladder(), place=lambda p: np.where(p < 1024, p, p // 4)),
        "positions are divided by 4 from 2047 on at the latest",
    ),
    "first quarter four times": (
        PLAIN,
        rotating(np.tile(ladder()[:8], 4)),
        "the first quarter of the frequencies is there four times",
    ),
    "low and high exchanged": (
        SCALED,
        rotating(llama3(4.0, 1.0)),
        "low_freq_factor and high_freq_factor are exchanged",
    ),
    "first half twice": (
        PLAIN,
        rotating(np.tile(ladder()[:16], 2)),
        "the first half of the frequencies is there twice",
    ),
    "every second twice": (
        PLAIN,
        rotating(np.repeat(ladder()[::2], 2)),
        "every second frequency is there twice",
    ),
    "folded into q": (
        PLAIN,
        of_keys(rotating(ladder()), rotating(ladder(), gain=64**-0.5)),
        "q: 1 / sqrt(d) is folded into the vectors",
    ),
    "folded into both": (
        PLAIN,
        rotating(ladder(), gain=64**-0.25),
        "the root of 1 / sqrt(d) is folded into the vectors",
    ),
    "xpos": (PLAIN, xpos(1), "fall with the position, as xPos makes them"),
    "xpos of keys": (PLAIN, xpos(-1), "grow with the position, as xPos makes them"),
    "xpos from the middle": (
        PLAIN,
        xpos(1, start=65536),
        "fall with the position, as xPos makes them",
    ),
    "sine without its sign": (
        PLAIN,
        rotating(ladder(), tables=lambda a: (np.cos(a), np.abs(np.sin(a)))),
        "sin has lost its sign",
    ),
    "sine of 256 entries": (
        PLAIN,
        rotating(ladder(), tables=in_steps(256)),
        "angles come in 256 steps of a turn",
    ),
    "one section ahead": (
        PLAIN,
        one_section_ahead,
        "8 pairs from 8 to 15 are one token ahead",
    ),
    "divided by inv_freq": (
        PLAIN,
        rotating(1 / ladder()),
        "positions are divided by inv_freq",
    ),
    "default betas": (
        {**YARN, "rope_scaling": {**YARN["rope_scaling"], "beta_fast": 1.0}},
        rotating(yarn(1e6, 64), gain=GAIN),
        "beta_fast 32 and beta_slow 1 instead of 1 and 1",
    ),
    "summed": (PLAIN, summed(), "angles are summed in float32 from token to token"),
    "e4m3": (
        PLAIN,
        rotating(ladder(), tables=rounded("float8_e4m3fn")),
        "table in float8_e4m3fn: off by",
    ),
    "e5m2": (
        PLAIN,
        rotating(ladder(), tables=rounded("float8_e5m2")),
        "table in float8_e5m2: off by",
    ),
    "strided": (PARTIAL, strided, "every second feature rotates, from 0 on"),
    "strided pairs": (
        ADJACENT,
        rotating(ladder(1e4, 32), SPREAD),
        "two features in 4 rotate, from 0 on",
    ),
    "alternating table": (
        GPTJ,
        rotating(ladder(1e4), NEIGHBOURS, tables=alternating),
        "a table in which sin and cos alternate is cut into halves",
    ),
    "ramp of the head": (
        {
            **ADJACENT,
            "max_position_embeddings": 131072,
            "rope_theta": 1e8,
            "rope_scaling": YARN["rope_scaling"],
        },
        rotating(
            yarn(1e8, 32, 64), (np.arange(0, 32, 2), np.arange(1, 32, 2)), gain=GAIN
        ),
        "the ramp's ends come from 64 features instead of 32",
    ),
    "a part put last": (
        PARTIAL,
        put_last,
        "features 0 to 31 come back as 32 to 63",
    ),
    "padding on the left": (
        PLAIN,
        of_keys(rotating(ladder(), place=lambda p: np.maximum(p - 4, 0))),
        "k: positions are shifted by -4, and 0 before that",
    ),
    "a ring of keys": (
        PLAIN,
        rotating(ladder(), place=lambda p: p % 3000),
        "positions begin again after 3000 tokens: position 4095 is rotated as 1095",
    ),
    "linspace for arange": (
        PLAIN,
        rotating(ladder(), place=lambda p: p * 32768 / 32767),
        "positions are multiplied by 1.0000305",
    ),
    "parabolas": (
        PLAIN,
        rotating(ladder(), tables=parabolas),
        "cos and sin are approximated too coarsely: off by 0.05",
    ),
    "polynomials": (
        SCALED,
        rotating(llama3(), tables=polynomials),
        "cos and sin are approximated too coarsely: off by 0.2",
    ),
    "Bhaskara": (
        PLAIN,
        rotating(ladder(), tables=bhaskara),
        "cos and sin are approximated too coarsely: off by 0.0016",
    ),
    "Taylor of degree 5": (
        PLAIN,
        rotating(ladder(), tables=taylor_5),
        "cos and sin are approximated too coarsely: off by 0.5",
    ),
    "CORDIC": (
        PLAIN,
        rotating(ladder(), tables=cordic(8)),
        "cos and sin are approximated too coarsely: off by 0.0",
    ),
    "grown keys": (
        PLAIN,
        of_keys(
            rotating(ladder(), gain=lambda p: 1 + p[:, None] / 65536),
            rotating(ladder()),
        ),
        "k: cos and sin",
    ),
    "argument in bfloat16": (
        PLAIN,
        rotating(ladder(), tables=argument_in("bfloat16")),
        "angles less their whole turns are rounded to bfloat16",
    ),
    "blended by wavelength": (
        SCALED,
        rotating(blended_by_wavelength()),
        "the ramp is linear in the wavelength instead of the frequency",
    ),
    "slow pairs multiplied": (
        SCALED,
        rotating(multiplied()),
        "slow pairs are multiplied by 8 instead of divided",
    ),
    "a base for linear scaling": (
        {**PLAIN, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        rotating(ladder(4e6)),
        "base 4e6 instead of 500000, and the scaling is not applied: pi(factor=8)",
    ),
    "dynamic, another exponent": (
        DYNAMIC,
        grown(64 / 63),
        "the base's exponent is d / (d - 1) instead of d / (d - 2)",
    ),
    "dynamic, no factor": (
        DYNAMIC,
        grown(64 / 62, 1.0),
        "dynamic scaling does not read its factor",
    ),
    "gemma, a block of its own": (
        GEMMA4,
        rotating(ladder(1e6, 32)),
        "features i and i + 16 form a pair instead of i and i + 64",
    ),
    "gemma, exponents": (
        GEMMA4,
        rotating(ladder(1e6, 32), QUARTER),
        "the exponent divides by 32 instead of 128",
    ),
    "gemma, the width of a local head": (
        GEMMA4,
        rotating(ladder(1e6, 16, 64), (np.arange(8), np.arange(64, 72))),
        "8 of 16 pairs do not rotate, the first at feature 8",
    ),
    "gemma, all pairs": (
        GEMMA4,
        rotating(ladder(1e6, 128)),
        "128 features rotate instead of 32",
    ),
}


FAST = {**PLAIN, "rope_theta": 1e4}
LATENT: dict[str, Any] = {**SIZES, "qk_rope_head_dim": 64}
LATENT |= {"rope_theta": 1e4, "max_position_embeddings": 163840}
LATENT["model_type"] = "deepseek_v3"
LATENT["rope_scaling"] = {
    "type": "yarn",
    "factor": 40.0,
    "original_max_position_embeddings": 4096,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}


def ramped(low: float, high: float) -> np.ndarray:
    """YaRN by 4 with a ramp from one pair to another."""
    ramp = np.clip((np.arange(32) - low) / (high - low), 0, 1)
    return ladder(1e6) * (ramp / 4 + 1 - ramp)


def find_end(turns: float) -> float:
    """The pair that completes so many turns in the original length of YARN."""
    return 32 * math.log(32768 / turns / math.tau) / math.log(1e6)


def bfloat16(x: Any) -> np.ndarray:
    return round_to(np.asarray(x, np.float64), FORMATS["bfloat16"])


def under_autocast(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Positions, frequencies and their product in bfloat16, and float32 after that."""
    angles = bfloat16(bfloat16(positions)[:, None] * bfloat16(ladder()))
    pairs = (x[:, :32] + 1j * x[:, 32:]) * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag], axis=1)


PLANTED |= {
    "slots of a ring, a fast ladder": (
        FAST,
        rotating(ladder(1e4), place=lambda p: p % 1024),
        "positions begin again after 1024 tokens",
    ),
    "counted anew behind a table": (
        PLAIN,
        rotating(ladder(), place=lambda p: np.where(p < 8192, p, p - 8192)),
        "positions are shifted by -8192 from 16383 on at the latest",
    ),
    "behind dropped keys": (
        PLAIN,
        rotating(ladder(), place=lambda p: np.where(p < 4, p, p - 4)),
        "positions are shifted by -4 from 4 on",
    ),
    "ramp of a head of latents": (
        LATENT,
        rotating(ladder(1e4), NEIGHBOURS),
        "is missing, or the ramp's ends come from 192 features",
    ),
    "betas exchanged": (
        YARN,
        rotating(ramped(math.floor(find_end(1)), math.ceil(find_end(32))), gain=GAIN),
        "as with beta_fast and beta_slow exchanged",
    ),
    "ramp of features": (
        YARN,
        rotating(ramped(find_end(32) / 2, find_end(1) / 2), gain=GAIN),
        "half of the right pairs, as if it counted features",
    ),
    "both ends rounded up": (
        YARN,
        rotating(ramped(*np.ceil([find_end(32), find_end(1)])), gain=GAIN),
        "both ends rounded up instead of outwards",
    ),
    "log10 in YaRN's factor": (
        YARN,
        rotating(yarn(1e6, 64), gain=0.1 * math.log10(4) + 1),
        "0.1 ln(4) + 1 with log10 for ln",
    ),
    "the root of YaRN's factor": (
        YARN,
        rotating(yarn(1e6, 64), gain=math.sqrt(GAIN)),
        "instead of 1.13863, its root",
    ),
    "another high_freq_factor": (
        SCALED,
        rotating(llama3(high=2.5)),
        "low_freq_factor 1 and high_freq_factor 2.5 instead of 1 and 4",
    ),
    "log10 of the base": (
        PLAIN,
        rotating(ladder(math.exp(math.log10(500000.0)))),
        "as with log10 for ln",
    ),
    "autocast": (PLAIN, under_autocast, "position, inv_freq and angle in bfloat16"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_mistake_of_this_kind_is_named(name: str) -> None:
    config, code, says = PLANTED[name]
    done = checked(config, code)
    assert done.wrong
    assert says in done.answer
    assert done.fix


LONGROPE = {**PLAIN, "model_type": "phi3", "original_max_position_embeddings": 4096}
TABLES = {"short_factor": [1.0] * 32, "long_factor": [1.0 + i for i in range(32)]}
LONGROPE["rope_scaling"] = {"type": "longrope", **TABLES}
LINEAR = {**PLAIN, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
MILLION = {**PLAIN, "max_position_embeddings": 1_048_576}
MISTRAL4: dict[str, Any] = {**SIZES, "model_type": "mistral4", "head_dim": 128}
MISTRAL4 |= {"qk_nope_head_dim": 64, "qk_rope_head_dim": 64}
MISTRAL4 |= {"max_position_embeddings": 32768}
MISTRAL4["rope_parameters"] = {
    "rope_type": "linear",
    "factor": 1.0,
    "rope_theta": 1e4,
    "partial_rotary_factor": 0.5,
    "original_max_position_embeddings": 32768,
    "llama_4_scaling_beta": 0.1,
}


def half_split(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], -1)


def torch_angles(position_ids: torch.Tensor) -> torch.Tensor:
    steps = torch.arange(0, 64, 2).float() / 64
    inv_freq = 1.0 / (500000.0**steps)
    return position_ids.reshape(-1).float()[:, None] * inv_freq


def transformers_style() -> Any:
    def tables(position_ids: torch.Tensor) -> Any:
        angles = torch.cat([torch_angles(position_ids)] * 2, -1)
        return angles.cos(), angles.sin()

    def apply(q: Any, k: Any, cos: torch.Tensor, sin: torch.Tensor) -> Any:
        turned = [x * cos + half_split(x) * sin for x in (q, k)]
        return turned[0], turned[1]

    return tables, apply


def bfloat16_tables() -> Any:
    tables, apply = transformers_style()

    def stored(position_ids: torch.Tensor) -> Any:
        cos, sin = tables(position_ids)
        return cos.bfloat16(), sin.bfloat16()

    return stored, apply


def complex_style(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Meta's: neighbours as complex numbers."""
    angles = positions.reshape(-1).float()[:, None] * torch.tensor(ladder(1e4)).float()
    unit = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.float().reshape(len(x), -1, 2))
    return torch.view_as_real(pairs * unit).flatten(-2)


def recurrence(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """ggml's: the angle of the next pair is this one's times a constant, in float32."""
    step = np.float32(500000.0) ** np.float32(-2 / 64)
    angle = np.asarray(positions).astype(np.float32)
    columns = []
    for _ in range(32):
        columns.append(angle)
        angle = angle * step
    angles = np.stack(columns, -1)
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = x[:, :32], x[:, 32:]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def scaled_positions(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    places = np.asarray(positions).astype(np.float32) / np.float32(8)
    return rotating(ladder())(x, places)


def longrope(x: np.ndarray, positions: np.ndarray, seq_len: int) -> np.ndarray:
    long = seq_len > 4096
    divisors = TABLES["long_factor" if long else "short_factor"]
    factor = math.sqrt(1 + math.log(32) / math.log(4096))
    return rotating(ladder() / np.array(divisors), gain=factor)(x, positions)


def dynamic(x: np.ndarray, positions: np.ndarray, seq_len: int) -> np.ndarray:
    stretch = max(4.0 * seq_len / 4096 - 3.0, 1.0)
    return rotating(ladder(500000.0 * stretch ** (64 / 62)))(x, positions)


def in_float16(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return rotating(ladder())(x, positions).astype(np.float16)


def one_token(x: np.ndarray, offset: int) -> np.ndarray:
    return rotating(ladder())(x, np.arange(len(x)) + offset)


def whole_table() -> Any:
    angles = np.arange(131072)[:, None] * ladder()
    cos, sin = np.cos(angles), np.sin(angles)
    return lambda positions: (cos[positions], sin[positions])


def float32_million(positions: np.ndarray) -> Any:
    angles = positions.astype(np.float32)[:, None] * ladder().astype(np.float32)
    return np.cos(angles), np.sin(angles)


def each_its_own_base(positions: np.ndarray, seq_len: int) -> Any:
    places = np.asarray(positions, np.float64)[:, None]
    stretch = np.maximum(4.0 * (places + 1) / 4096 - 3.0, 1.0)
    bases = 500000.0 * stretch ** (64 / 62)
    angles = places * bases ** (-np.arange(0, 64, 2) / 64)
    return np.cos(angles), np.sin(angles)


def divided_by_length(positions: np.ndarray, seq_len: int) -> Any:
    places = np.asarray(positions, np.float64) / max(seq_len / 4096, 1.0)
    angles = places[:, None] * ladder()
    return np.cos(angles), np.sin(angles)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (each_its_own_base, "each token's position chooses its base"),
        (divided_by_length, "frequencies are divided by 1.3"),
    ],
)
def test_a_rule_of_dynamic_scaling_that_is_another_is_named(
    code: Any,
    says: str,
) -> None:
    done = checked(DYNAMIC, code)
    assert done.wrong
    assert says in done.answer


def test_a_sine_that_loses_angles_only_now_and_then_is_named() -> None:
    code = rotating(ladder(), tables=two_terms)
    done = checked(MILLION, code)
    assert done.wrong
    assert "2 pi in two terms of 24 bits" in done.answer


def in_fixed_point(steps: float) -> Callable[[np.ndarray], Any]:
    return lambda a: (
        np.rint(np.cos(a) * steps) / steps,
        np.rint(np.sin(a) * steps) / steps,
    )


@pytest.mark.parametrize(
    ("steps", "base"),
    [(127, 5e5), (127.5, 5e5), (128, 5e5), (2**14, 2.8e9), (2**15 - 1, 2.8e9)],
)
def test_a_table_in_fixed_point_is_right_within_the_tolerance(
    steps: float, base: float
) -> None:
    """Of a large base the slowest pairs turn by few steps in the whole context."""
    config = {**MILLION, "rope_theta": base}
    done = checked(config, rotating(ladder(base), tables=in_fixed_point(steps)))
    assert not done.wrong, done.answer


@pytest.mark.parametrize("steps", [8, 32, 63])
def test_a_table_in_fixed_point_of_few_bits_is_named(steps: float) -> None:
    done = checked(PLAIN, rotating(ladder(), tables=in_fixed_point(steps)))
    assert done.wrong
    assert f"steps of 1 / {steps}" in done.answer


def test_fixed_point_hides_no_other_frequencies() -> None:
    code = rotating(ladder(1e4), tables=in_fixed_point(127))
    done = checked(PLAIN, code)
    assert done.wrong
    assert "base 10000 instead of 500000" in done.answer


def in_turns(angles: np.ndarray) -> Any:
    turns = angles.astype(np.float32) * np.float32(1 / math.tau)
    left = (turns - np.floor(turns)) * np.float32(math.tau)
    return np.cos(left), np.sin(left)


def test_a_sine_whose_argument_is_counted_in_turns_is_named() -> None:
    done = checked(MILLION, rotating(ladder(), tables=in_turns))
    assert done.wrong
    assert "held in turns" in done.answer


def test_rotations_that_are_multiplied_from_token_to_token_are_named() -> None:
    """Sixteen features a head, since each pair needs its product for every token."""
    config = {**MILLION, "hidden_size": 128}

    def tables(positions: np.ndarray) -> Any:
        powers = np.empty((int(positions.max()) + 1, 8), np.complex64)
        powers[0] = 1
        powers[1:] = np.exp(1j * ladder(width=16))
        table = np.cumprod(powers, axis=0)[positions]
        return table.real, table.imag

    done = checked(config, tables)
    assert done.wrong
    assert "multiplied in float32 from token to token" in done.answer


def test_a_sine_that_loses_less_than_the_tolerance_is_named_and_right() -> None:
    done = checked(PLAIN, rotating(ladder(), tables=one_term))
    assert not done.wrong
    assert "sin and cos of large arguments lose" in done.answer
    assert "2 pi in one term" in done.answer


LAST = np.arange(64, 128, 2), np.arange(65, 128, 2)
RIGHT: dict[str, tuple[dict[str, Any], Any]] = {
    "halves": (PLAIN, rotating(ladder())),
    "transformers": (PLAIN, transformers_style()),
    "bfloat16 tables": (PLAIN, bfloat16_tables()),
    "float16 results": (PLAIN, in_float16),
    "recurrence": (PLAIN, recurrence),
    "CORDIC of 24 steps": (PLAIN, rotating(ladder(), tables=cordic(24))),
    "one token at an offset": (PLAIN, one_token),
    "a table looked up": (PLAIN, whole_table()),
    "float32 to a million": (MILLION, float32_million),
    "adjacent": (GPTJ, rotating(ladder(1e4), NEIGHBOURS)),
    "complex": (GPTJ, complex_style),
    "partial": (PARTIAL, rotating(ladder(1e4, 32))),
    "partial, adjacent": (
        ADJACENT,
        rotating(ladder(1e4, 32), (np.arange(0, 32, 2), np.arange(1, 32, 2))),
    ),
    "llama3": (SCALED, rotating(llama3())),
    "yarn": (YARN, rotating(yarn(1e6, 64), gain=GAIN)),
    "linear, by positions": (LINEAR, scaled_positions),
    "linear, by frequencies": (LINEAR, rotating(ladder() / 8)),
    "longrope": (LONGROPE, longrope),
    "dynamic": (DYNAMIC, dynamic),
    "the last features": (MISTRAL4, rotating(ladder(1e4), LAST)),
    "proportional": (
        GEMMA4,
        rotating(ladder(1e6, 32, 128), QUARTER),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_code_of_every_style_is_right(name: str) -> None:
    config, code = RIGHT[name]
    done = checked(config, code)
    assert not done.wrong, done.answer
    assert "no other frequencies" not in done.answer


def test_dynamic_scaling_that_keeps_the_base_of_a_longer_context_is_named() -> None:
    longest = [4096]

    def tables(positions: np.ndarray, seq_len: int) -> Any:
        longest.append(max(longest[-1], seq_len))
        base = 500000.0 * (4 * longest[-1] / 4096 - 3) ** (64 / 62)
        angles = positions[:, None] * ladder(base)
        return np.cos(angles), np.sin(angles)

    done = checked(DYNAMIC, tables)
    assert done.wrong
    assert "have other frequencies than before" in done.answer


def test_a_slow_pair_that_is_off_far_from_the_start_is_not_called_shifted() -> None:
    """With a shift by one token the pair would be within the tolerance."""
    expected = expect_config("config.json", PLAIN, None)["all"]
    positions = np.array([0, 1, 2, 4000])
    angles = positions[:, None] * expected.inv_freq
    observed = Observed(positions, np.cos(angles), np.sin(angles))
    tolerance = 0.01
    differences = np.zeros_like(angles)
    lost_in_float32 = expected.budget().angles(positions)
    half_a_token = expected.inv_freq[-1] / 2
    differences[-1, -1] = tolerance + lost_in_float32[-1, -1] + half_a_token
    assert name_shifted_pairs(differences, observed, expected, tolerance) == ""
