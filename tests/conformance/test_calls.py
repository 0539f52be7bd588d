"""Functions as the authors of engines write them: called by the names of their
parameters.
"""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest

from ropelab.conformance.calls import ask_function
from ropelab.conformance.check import check
from ropelab.conformance.check_code import judge_code
from ropelab.conformance.diagnosis import Check
from ropelab.conformance.expected import choose_positions, expect_config
from ropelab.conformance.observation import Observed, Positions
from ropelab.conformance.user_code import ask_factory_in_turn
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.readers.spec import RopeSpec
from ropelab.runs.errors import InputError
from ropelab.testing import assert_rope
from tests.conformance.test_check import LLAMA
from tests.texts import mentions

# Each right code has a twin with one mistake.
CODE = """
import numpy as np
import torch

INV = 500000.0 ** (-np.arange(32) / 32)

def half(x):
    return np.concatenate([-x[..., 32:], x[..., :32]], -1)

def turned(x, positions, inv=INV):
    angles = np.asarray(positions)[..., None] * np.concatenate([inv, inv])
    return x * np.cos(angles) + half(x) * np.sin(angles)

# f(x, position_ids=None)
def of_ids(x, position_ids=None):
    if position_ids is None:
        position_ids = np.arange(x.shape[-2])
    return turned(x, position_ids)
def of_ids_wrong(x, position_ids=None):
    return turned(x, position_ids + 1)
def unused(x, position_ids=None):
    return of_ids(x)
def moved(x, position_ids=None):
    return turned(x, position_ids + (x.ndim == 2))
def first_of_all(x, position_ids=None):
    return turned(x, np.full(x.shape[-2], position_ids.reshape(-1)[0]))
def last_of_all(x, position_ids=None):
    return turned(x, np.full(x.shape[-2], position_ids.reshape(-1)[-1]))

# f(q, k, positions), heads in the middle
def both(q, k, positions):
    return turned(q, positions[:, None]), turned(k, positions[:, None])
def both_wrong(q, k, positions):
    return turned(q, positions[:, None]), turned(k, positions[:, None] + 1)
def exchanged(q, k, positions):
    return both(k, q, positions)
def copied(q, k, positions):
    return both(q, q, positions)

# f(positions, x)
def first(positions, x):
    return turned(x, positions)
def first_wrong(positions, x):
    return turned(x, positions, 2 * INV)
def no_numbers(x, positions):
    return turned(x, positions) * np.nan
def nameless(a, b):
    return turned(b, a.reshape(len(a)))

# f(q, k, cos, sin) with tables made by another function, as transformers has them
def tables(position_ids):
    inv = torch.tensor(INV, dtype=torch.float32)
    angles = position_ids[:, :, None].float() * torch.cat([inv, inv])
    return angles.cos(), angles.sin()
def swap(x):
    return torch.cat([-x[..., 32:], x[..., :32]], -1)
def apply(q, k, cos, sin, position_ids=None, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return q * cos + swap(q) * sin, k * cos + swap(k) * sin
def still(q, k, cos, sin):
    return apply(q, k, cos, sin)[0], k
def with_tables(): return tables, apply
def with_tables_wrong(): return tables, still

# tables by length, looked up
def by_length(seq_len):
    angles = np.arange(seq_len)[:, None] * INV
    return {"sin": np.sin(angles), "cos": np.cos(angles)}
def looked_up(q, k, cos, sin, positions):
    c, s = (np.concatenate([t, t], -1)[positions] for t in (cos, sin))
    return q * c + half(q) * s, k * c + half(k) * s
def whole(): return by_length, looked_up
def whole_wrong():
    return by_length, lambda q, k, cos, sin, positions: looked_up(q, k, sin, cos, positions)

# complex numbers, adjacent pairs
def complex_tables(positions):
    angles = torch.outer(positions, torch.tensor(INV)).float()
    return torch.polar(torch.ones_like(angles), angles)
def adjacent(xq, xk, freqs_cis):
    found = []
    for x in (xq, xk):
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], 32, 2)) * freqs_cis
        found.append(torch.view_as_real(z).flatten(-2))
    return found
def meta(): return complex_tables, adjacent

# positions and a length, as transformers had them
def with_length(positions, seq_len):
    angles = positions[:, None] * INV
    return np.cos(angles), np.sin(angles)
def older(x, position_ids, seq_len):
    return tables(position_ids)
def older_wrong(x, position_ids, seq_len):
    return tables(position_ids + 1)
def from_offset(x, offset, seq_len):
    return turned(x, np.arange(x.shape[-2]) + offset)

class Rotary(torch.nn.Module):
    factor = 1.0
    def forward(self, x, position_ids):
        cos, sin = tables(position_ids * self.factor)
        return cos, sin
class Halved(Rotary):
    factor = 0.5
class Named(torch.nn.Module):
    def forward(self, x, position_ids):
        cos, sin = tables(position_ids)
        return {"cos": cos, "sin": sin, "scale": 1.0}
class Offset:
    def __init__(self, shift=0): self.shift = shift
    def __call__(self, x, offset=0):
        return turned(x, np.arange(x.shape[-2]) + offset + self.shift)
def late(): return Offset(1)

# both orders work, with other results
def unclear(a, b):
    return a + b if a.ndim == b.ndim else np.eye(64) * (2 if a.ndim == 1 else 3)
def without(q, k):
    return q, k
"""


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Check]:
    (tmp_path / "engine_rope.py").write_text(CODE)
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    # In this process: `test_check.py` is about the one that a target has of its own.
    def here(target: str, spec: RopeSpec, positions: Positions) -> dict[str, Observed]:
        sys.modules.pop("engine_rope", None)
        module, _, name = target.partition(":")
        (answer,) = ask_factory_in_turn(module, name, spec, [positions])
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("ropelab.conformance.check.ask_in_process", here)
    return lambda name: check(f"engine_rope:{name}", config="config.json")


RIGHT = {
    "of_ids": "of_ids(x [n, d], position_ids [n])",
    "both": "both(q [n, d], k [n, d], positions [1, n])",
    "first": "first(positions [n], x [n, d])",
    "nameless": "nameless(a as positions [n], b as vectors [n, d])",
    "with_tables": (
        "apply(q [n, d], k [n, d], cos, sin), with tables from "
        "tables(position_ids [1, n])"
    ),
    "whole": (
        "looked_up(q [n, d], k [n, d], cos, sin, positions [n]), with tables from "
        "by_length(seq_len)"
    ),
    "by_length": "by_length(seq_len)",
    "with_length": "with_length(positions [n], seq_len)",
    "older": "older(x [n, d], position_ids [1, n], seq_len)",
    "from_offset": "from_offset(x [1, d], offset, seq_len)",
    "Rotary": "Rotary(x [n, d], position_ids [1, n])",
    "Named": "Named(x [n, d], position_ids [1, n])",
    "Offset": "Offset(x [1, d], offset)",
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_is_right_in_the_way_that_it_was_called(
    says: Callable[[str], Check], name: str
) -> None:
    done = says(name)
    assert not done.wrong, done
    assert done.called == RIGHT[name]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("of_ids_wrong", "positions are shifted by 1"),
        ("both_wrong", "k: positions are shifted by 1"),
        ("exchanged", "q and k: another vector comes back in its place"),
        ("copied", "k: another vector comes back in its place"),
        ("first_wrong", "rotated twice: every angle is doubled"),
        ("with_tables_wrong", "k: no rotation: the output equals the input"),
        ("whole_wrong", "q and k: cos and sin are swapped"),
        ("meta", "xq and xk: adjacent pairing instead of half"),
        ("Halved", "every angle is halved"),
        ("late", "positions are shifted by 1"),
        ("older_wrong", "positions are shifted by 1"),
        ("no_numbers", "rotated vectors are not finite"),
        ("unused", "the positions that are given are not used"),
        ("first_of_all", "a token is rotated otherwise among other tokens"),
        ("last_of_all", "every position is rotated alike"),
    ],
)
def test_a_wrong_one_is_named(
    says: Callable[[str], Check], name: str, answer: str
) -> None:
    done = says(name)
    assert (done.wrong, done.answer) == (True, answer), done
    assert "(" in done.called


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("unclear", "both work and differ: call the parameters x, q, k, positions"),
        ("moved", "both work and differ: take but one of them"),
        ("without", "engine_rope:without: call the parameters x, q, k, positions"),
        ("adjacent", r"takes tables: give a factory that returns \(tables, f\)"),
    ],
)
def test_no_way_of_calling_is_guessed(
    says: Callable[[str], Check], name: str, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        says(name)
    assert "\n" not in str(caught.value)


def test_assert_rope_calls_in_the_same_ways() -> None:
    theta = 500000.0 ** (-np.arange(32) / 32)

    def rotate(positions: np.ndarray, x: np.ndarray, times: float = 1.0) -> np.ndarray:
        cos, sin = (f(times * positions[:, None] * theta) for f in (np.cos, np.sin))
        a, b = x[:, :32], x[:, 32:]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    assert_rope(rotate, LLAMA)
    twice: Any = lambda positions, x: rotate(positions, x, 2.0)  # noqa: E731
    with pytest.raises(
        AssertionError, match=r"doubled \(called as <lambda>\(positions \[n\], x"
    ):
        assert_rope(twice, LLAMA)


def end_by(error: BaseException) -> Callable[[np.ndarray], Any]:
    def tables(positions: np.ndarray) -> Any:
        raise error

    return tables


@pytest.mark.parametrize(
    "error",
    [SystemExit(0), SystemExit(), GeneratorExit(), SkipTest("no"), BaseException("x")],
)
def test_assert_rope_fails_where_code_ends_the_process_or_skips_the_test(
    error: BaseException,
) -> None:
    with pytest.raises(AssertionError, match=f"^tables raised {type(error).__name__}"):
        assert_rope(end_by(error), LLAMA)


def test_assert_rope_leaves_an_interrupt_and_other_errors_as_they_are() -> None:
    with pytest.raises(KeyboardInterrupt):
        assert_rope(end_by(KeyboardInterrupt()), LLAMA)
    with pytest.raises(ZeroDivisionError):
        assert_rope(end_by(ZeroDivisionError()), LLAMA)


@pytest.mark.processes
def test_assert_rope_fails_where_code_leaves_the_process(tmp_path: Path) -> None:
    code = f"""
import os
from ropelab.testing import assert_rope

def tables(positions):
    os._exit(0)

assert_rope(tables, {LLAMA!r})
"""
    (tmp_path / "script.py").write_text(code)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert "script.py, line 6: os._exit ends the process" in done.stderr


LAYERS = (("full", 1e6, 8), ("sliding", 1e4, 1))
ODD: list[Any] = [-1, 0, math.inf, math.nan, "x", None]
LENGTHS: list[Any] = [0, 1, -4096, 2**45, 4096.5, math.nan, "4k"]
GEMMA: dict[str, Any] = {
    "model_type": "gemma3_text",
    "hidden_size": 512,
    "num_attention_heads": 4,
    "head_dim": 128,
    "num_hidden_layers": 6,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 131072,
    "rope_theta": 1e6,
    "rope_local_base_freq": 1e4,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}


@pytest.mark.parametrize(
    ("layer", "other", "says"),
    [
        (
            "full",
            "sliding",
            r"sliding_attention layers should \(base 10000, unscaled\)",
        ),
        (
            "sliding",
            "full",
            r"full_attention layers should \(base 1e6, pi\(factor=8\)\)",
        ),
    ],
)
def test_a_rotation_of_the_other_layers_is_named_so(
    layer: str, other: str, says: str
) -> None:
    ladders = {
        name: 1 / (base ** (np.arange(64) / 64)) / by for name, base, by in LAYERS
    }

    def tables(name: str) -> Any:
        def made(positions: np.ndarray) -> Any:
            angles = positions[:, None] * ladders[name]
            return np.cos(angles), np.sin(angles)

        return made

    assert_rope(tables(layer), GEMMA, layer_type=f"{layer}_attention")
    with pytest.raises(AssertionError, match=f"rotates as {says}"):
        assert_rope(tables(other), GEMMA, layer_type=f"{layer}_attention")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        *(({"tolerance": t}, "tolerance must be a positive number") for t in ODD),
        *(({"length": n}, "length must be a whole number of tokens") for n in LENGTHS),
    ],
)
def test_assert_rope_refuses_what_the_command_refuses(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError, match=says) as caught:
        assert_rope(lambda positions: positions, LLAMA, **given)
    assert "\n" not in str(caught.value)


LONGROPE: dict[str, Any] = {
    "short_factor": [1.0] * 32,
    "long_factor": [1.0 + i for i in range(32)],
}
LONGROPE |= {"rope_type": "longrope", "original_max_position_embeddings": 4096}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0}
SHORT = {**LLAMA, "max_position_embeddings": 8192}


def by_length(block: dict[str, Any], seq_len: bool, change: str = "") -> Any:
    """A code that takes its frequencies from the tokens of the call, with one thing
    changed.
    """
    long_rope, kept = "long_factor" in block, [0]

    def inv_freq(tokens: int) -> np.ndarray:
        exponents = -np.arange(32) / 32
        tokens = int(tokens) - (change == "last")
        tokens = 1 << (tokens - 1).bit_length() if change == "rounded" else tokens
        tokens = -(-tokens // 256) * 256 if change == "blocks" else tokens
        kept[0] = max(tokens, kept[0])
        tokens = kept[0] if change == "kept" else tokens
        if long_rope:
            switch = 8192 if change == "switch" else 4096
            switch -= change == "early"
            long = change == "long" or (tokens > switch and change != "short")
            return (
                500000.0**exponents / block["long_factor" if long else "short_factor"]
            )
        factor = 2.0 if change == "factor" else block["factor"]
        tokens = 32768 if change == "longest" else tokens
        stretch = 1 + factor * (max(tokens, 8192) / 8192 - 1)
        if change == "no one" and tokens > 8192:
            stretch = factor * tokens / 8192
        if change == "fixed" and tokens > 8192:
            stretch = factor
        power = {"power": 1.0, "upside down": 62 / 64}.get(change, 64 / 62)
        return (
            500000.0 * (1.0 if change == "static" else stretch) ** power
        ) ** exponents

    def turned(x: np.ndarray, positions: np.ndarray, tokens: int) -> np.ndarray:
        if change == "table" and positions.max() >= 8192:
            raise IndexError("the table has 8192 rows")
        angles = positions[..., None] * inv_freq(tokens)
        if change == "token":
            angles = np.where(
                angles[..., :1] < 4096, positions[..., None] * inv_freq(1), angles
            )
        factor = math.sqrt(1 + math.log(8) / math.log(4096)) if long_rope else 1.0
        factor = 1.0 if change == "no factor" and tokens <= 4096 else factor
        cos, sin = factor * np.cos(angles), factor * np.sin(angles)
        a, b = x[..., :32], x[..., 32:]
        return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)

    if seq_len:
        return lambda x, positions, seq_len: turned(x, positions, seq_len)
    return lambda x, positions: turned(x, positions, positions.max() + 1)


@pytest.mark.parametrize("seq_len", [False, True])
@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({**LLAMA, "rope_scaling": LONGROPE}, None),
        ({**LLAMA, "rope_scaling": LONGROPE}, 4096),
        ({**SHORT, "rope_scaling": DYNAMIC}, None),
        ({**SHORT, "rope_scaling": DYNAMIC}, 32768),
    ],
)
def test_frequencies_may_follow_the_tokens_of_a_call(
    config: dict[str, Any], length: int | None, seq_len: bool
) -> None:
    assert_rope(by_length(config["rope_scaling"], seq_len), config, length=length)


@pytest.mark.parametrize(
    ("block", "change", "says"),
    [
        (LONGROPE, "switch", "the short table is used at 4097 tokens"),
        (LONGROPE, "short", "the short table is used at 32768 tokens"),
        (LONGROPE, "early", "the long table is used at 4096 tokens"),
        (LONGROPE, "token", "each token's position chooses its table"),
        (
            LONGROPE,
            "no factor",
            r"the attention factor 1\.1180\d* is missing \(4095 tokens\)",
        ),
        (DYNAMIC, "power", r"without the exponent d / \(d - 2\) \(10650 tokens\)"),
        (
            DYNAMIC,
            "static",
            r"dynamic_ntk\(factor=4\) is missing, or .* down to 1 \(10650 tokens\)",
        ),
        (LONGROPE, "long", r"the long table is used at 4095 tokens"),
        (DYNAMIC, "upside down", r"the base's exponent is \(d - 2\) / d instead of d"),
        (DYNAMIC, "factor", "10650 tokens"),
        (DYNAMIC, "fixed", r"NTK-aware scaling by 4, whatever the length is \(10650"),
        (DYNAMIC, "last", r"first at position \d+ of those looked at \(10650 tokens\)"),
        (DYNAMIC, "rounded", r"next power of two or multiple of 8192 \(10650 tokens"),
        (DYNAMIC, "blocks", "sees 10752 tokens, the next multiple of 128, 256 or 512"),
        (DYNAMIC, "no one", r"lacks its - \(factor - 1\) \(10650 tokens\)"),
        (DYNAMIC, "longest", "has these frequencies at 32768 tokens"),
    ],
)
def test_scaling_by_the_length_is_judged_on_both_sides_of_where_it_begins(
    block: dict[str, Any], change: str, says: str
) -> None:
    config = {**(SHORT if block is DYNAMIC else LLAMA), "rope_scaling": block}
    with pytest.raises(AssertionError, match=says):
        assert_rope(by_length(block, True, change), config)


@pytest.mark.parametrize("change", ["", "long"])
def test_a_length_that_may_be_left_out_is_given(change: str) -> None:
    inner = by_length(LONGROPE, True, change)

    def turn(x: np.ndarray, positions: np.ndarray, seq_len: int | None = None) -> Any:
        return inner(x, positions, seq_len or int(positions.max()) + 1)

    config = {**LLAMA, "rope_scaling": LONGROPE}
    if not change:
        assert_rope(turn, config)
        return
    with pytest.raises(AssertionError, match="the long table is used at 4095 tokens"):
        assert_rope(turn, config)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("", "within 0.01 rad up to position 8191; nearest to float32"),
        (
            "static",
            "nearest to float32; no other frequencies were seen at 10650 tokens",
        ),
        ("table", "nearest to float32; no other frequencies were seen at 10650 tokens"),
    ],
)
def test_a_scaling_that_was_not_seen_is_not_called_right(
    change: str, says: str
) -> None:
    expected = expect_config("config.json", {**SHORT, "rope_scaling": DYNAMIC}, None)[
        "all"
    ]
    code = by_length(DYNAMIC, False, change)
    done = judge_code(
        lambda spec, at: ask_function(code, "code", spec, at), expected, 0.01
    )
    assert not done.wrong
    assert done.answer.endswith(says)


def test_a_short_text_after_a_long_one_has_its_own_frequencies_again() -> None:
    expected = expect_config("config.json", {**SHORT, "rope_scaling": DYNAMIC}, None)[
        "all"
    ]
    code = by_length(DYNAMIC, False, "kept")
    done = judge_code(
        lambda spec, at: ask_function(code, "code", spec, at), expected, 0.01
    )
    assert done.wrong
    assert done.answer.startswith("2049 tokens after 10650 have other frequencies")


def test_axes_of_positions_are_said_not_to_be_judged() -> None:
    block = {"type": "mrope", "mrope_section": [8, 12, 12]}
    config = {**LLAMA, "model_type": "qwen2_5_vl", "rope_scaling": block}
    expected, code = (
        expect_config("config.json", config, None)["all"],
        in_form("vectors", lambda p: p),
    )
    done = judge_code(
        lambda spec, at: ask_function(code, "code", spec, at), expected, 0.01
    )
    assert not done.wrong
    assert mentions(done.answer, "float32", "axes of positions", "not judged")


def clamped(p: np.ndarray) -> np.ndarray:
    return np.where((p > 3000) & (p < 4000), 3000, p)


@cache
def first_positions() -> np.ndarray:
    (expected,) = expect_config("config", LLAMA, None).values()
    return choose_positions(expected)


def remembered(p: np.ndarray) -> np.ndarray:
    """The nearest position of those that are looked at first."""
    known = first_positions()
    return known[np.searchsorted(known, p, side="right") - 1]


class BySize:
    """Positions of the last call with as many tokens, but for a few of them."""

    def __init__(self) -> None:
        self.kept: dict[int, np.ndarray] = {}

    def __call__(self, p: np.ndarray) -> np.ndarray:
        return self.kept.setdefault(p.size, p) if p.size > 2000 and p.size % 64 else p


def turned(x: np.ndarray, p: np.ndarray) -> np.ndarray:
    angles = p[..., None] * 500000.0 ** (-np.arange(32) / 32)
    a, b = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def in_form(form: str, changed: Callable[[np.ndarray], np.ndarray]) -> Any:
    """A code that is right but for the positions that are changed."""

    def tables(position_ids: np.ndarray) -> Any:
        angles = changed(position_ids)[..., None] * 500000.0 ** (-np.arange(32) / 32)
        return np.cos(angles), np.sin(angles)

    def doubled(position_ids: np.ndarray) -> Any:
        right = [
            np.concatenate([t, t], -1)
            for t in in_form("tables", lambda p: p)(position_ids)
        ]
        wrong = tables(position_ids)
        return [
            np.concatenate([a[..., :32], b], -1)
            for a, b in zip(right, wrong, strict=True)
        ]

    forms: dict[str, Any] = {
        "tables": tables,
        "one half of tables": doubled,
        "vectors": lambda x, positions: turned(x, changed(positions)),
        "keys": lambda q, k, positions: (
            turned(q, positions),
            turned(k, changed(positions)),
        ),
        "one at a time": lambda x, offset: turned(x, changed(np.array([offset]))),
    }
    return forms[form]


@pytest.mark.parametrize("changed", [clamped, remembered])
@pytest.mark.parametrize(
    "form", ["tables", "one half of tables", "vectors", "keys", "one at a time"]
)
def test_a_code_that_is_right_only_where_it_is_looked_at_first_is_wrong(
    form: str, changed: Callable[[np.ndarray], np.ndarray]
) -> None:
    assert_rope(in_form(form, lambda p: p), LLAMA)
    with pytest.raises(AssertionError, match="further positions are rotated otherwise"):
        assert_rope(in_form(form, changed), LLAMA)


def test_a_code_that_keeps_the_positions_of_a_call_of_the_same_size_is_wrong() -> None:
    with pytest.raises(AssertionError, match="further positions are rotated otherwise"):
        assert_rope(in_form("vectors", BySize()), LLAMA)


def test_a_rest_that_changes_between_is_named() -> None:
    def partial(x: np.ndarray, positions: np.ndarray, wrong: bool = True) -> np.ndarray:
        rest = x[..., 64:] * np.where(wrong & (positions == 700), 2.0, 1.0)[..., None]
        return np.concatenate([turned(x[..., :64], positions), rest], -1)

    config = {
        **LLAMA,
        "model_type": "phi",
        "hidden_size": 512,
        "partial_rotary_factor": 0.5,
    }
    assert_rope(lambda x, positions: partial(x, positions, wrong=False), config)
    with pytest.raises(AssertionError, match="do not rotate change at position 700"):
        assert_rope(lambda x, positions: partial(x, positions), config)


@pytest.mark.parametrize("kept", ["bfloat16", "float16"])
def test_rounded_sums_are_right_between_too(kept: str) -> None:
    def rounded(x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return round_to(turned(x.astype(np.float64), positions), FORMATS[kept])

    assert_rope(rounded, LLAMA)


def test_code_that_takes_long_gets_a_line_of_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ropelab.cli.app import main
    from ropelab.show import terminal

    class AtOnce:
        """A timer whose second is over when it starts."""

        def __init__(self, seconds: float, function: Callable[[], None]) -> None:
            self.start = function

        def cancel(self) -> None:
            pass

    (tmp_path / "config.json").write_text(
        '{"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4,'
        ' "max_position_embeddings": 2048, "rope_theta": 1e4}'
    )
    (tmp_path / "right_tables.py").write_text(RIGHT_TABLES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(terminal, "Timer", AtOnce)
    config = str(tmp_path / "config.json")
    with pytest.raises(SystemExit) as ended:
        main(["check", "right_tables:tables", "--config", config])
    assert ended.value.code == 0
    assert "checking right_tables:tables" in capsys.readouterr().err


RIGHT_TABLES = """
import numpy as np


def tables(positions):
    inv_freq = 1e4 ** (-np.arange(0, 64, 2) / 64)
    angles = np.outer(positions, inv_freq)
    return np.cos(angles), np.sin(angles)
"""
