"""Answers of rotary code in all forms that arrays and tensors have, and in none."""

from collections import namedtuple
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from ropelab.conformance.answers import to_numbers
from ropelab.runs.errors import InputError
from ropelab.testing import assert_rope
from tests.conformance.test_check import LLAMA

INV_FREQ = 500000.0 ** (-torch.arange(32, dtype=torch.float64) / 32)
SineFirst = namedtuple("SineFirst", ["sin", "cos"])
Tables = tuple[Tensor, Tensor]


def tables(positions: Any) -> Tables:
    """The tables of LLAMA."""
    angles = torch.as_tensor(positions).double()[:, None] * INV_FREQ
    return angles.cos().float(), angles.sin().float()


def conjugated(positions: Any) -> Tensor:
    cos, sin = tables(positions)
    return torch.complex(cos, -sin).conj()


def sine_first(positions: Any) -> SineFirst:
    cos, sin = tables(positions)
    return SineFirst(cos=cos, sin=sin)


def for_tensors_alone(positions: Tensor) -> Tables:
    """Raise another error than TypeError for arrays, as torch.vmap and compiled code
    do.
    """
    if not isinstance(positions, Tensor):
        raise ValueError("a tensor is needed")
    return tables(positions)


def plain(positions: Tensor) -> Tables:
    exponents = torch.arange(32, dtype=torch.float64) / 32
    angles = positions.double()[:, None] * (500000.0 ** (-exponents))
    return angles.cos(), angles.sin()


CODES: dict[str, Callable[..., Any]] = {
    "a complex table with the sign of its conjugate beside it": conjugated,
    "a named tuple in another order": sine_first,
    "an error of its own for arrays": for_tensors_alone,
    "a sparse table": lambda positions: [t.to_sparse() for t in tables(positions)],
    "a table of oneDNN": lambda positions: [t.to_mkldnn() for t in tables(positions)],
}


@pytest.mark.parametrize("name", CODES)
def test_right_code_is_right_in_every_form(name: str) -> None:
    assert_rope(CODES[name], LLAMA)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_right_code_is_right_in_torch_script() -> None:
    assert_rope(torch.jit.script(plain), LLAMA)


def test_a_named_tuple_with_its_values_exchanged_is_wrong() -> None:
    def code(positions: Any) -> SineFirst:
        return SineFirst(*tables(positions))

    with pytest.raises(AssertionError, match="swapped"):
        assert_rope(code, LLAMA)


def generate(positions: Any) -> Iterator[Tensor]:
    yield from tables(positions)


async def wait(positions: Any) -> Tables:
    return tables(positions)


NO_ARRAYS: dict[str, Callable[..., Any]] = {
    "generator": generate,
    "coroutine": wait,
    "SimpleNamespace": lambda positions: SimpleNamespace(cos=1),
    "meta": lambda positions: [t.to("meta") for t in tables(positions)],
}


# Python warns of a coroutine that nobody has waited for, and warnings are errors.
@pytest.mark.parametrize("name", NO_ARRAYS)
def test_an_answer_without_numbers_is_named(name: str) -> None:
    with pytest.raises(InputError, match=name):
        assert_rope(NO_ARRAYS[name], LLAMA)


def test_code_that_answers_otherwise_the_second_time_is_told_so() -> None:
    calls = []

    def code(positions: Any) -> Tables:
        calls.append(1)
        cos, sin = tables(positions)
        return cos + len(calls), sin

    with pytest.raises(InputError, match="other numbers when it is called again"):
        assert_rope(code, LLAMA)


def test_an_answer_of_another_length_names_the_code() -> None:
    cached: dict[int, Tables] = {}

    def code(positions: Any) -> Tables:
        last = int(max(positions))
        return cached.setdefault(last, tables(positions))

    with pytest.raises(InputError, match=r"^code gives shape"):
        assert_rope(code, LLAMA)


def test_an_error_of_the_code_is_that_of_its_first_call() -> None:
    def code(positions: Any) -> Tables:
        raise LookupError(f"no {type(positions).__name__}")

    with pytest.raises(LookupError, match="no Tensor"):
        assert_rope(code, LLAMA)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
def test_complex_numbers_of_16_bits_are_read() -> None:
    half = torch.tensor([1 + 2j]).to(torch.complex32)
    assert to_numbers(half)[0] == 1 + 2j


def in_halves(positions: Any) -> Tensor:
    """As vLLM's cos_sin_cache."""
    return torch.cat(tables(positions), -1)


def in_turns(positions: Any) -> Tensor:
    """As the table of mlir-air's kernel, in bfloat16."""
    return on_an_axis(positions).flatten(-2).bfloat16()


def on_an_axis(positions: Any) -> Tensor:
    """As torchtune's cache."""
    return torch.stack(tables(positions), -1)


@pytest.mark.parametrize("both", [in_halves, in_turns, on_an_axis])
def test_cos_and_sin_in_one_table_are_told_apart(both: Callable[..., Any]) -> None:
    assert_rope(both, LLAMA)
    with pytest.raises(AssertionError, match="every angle is doubled"):
        assert_rope(lambda positions: both(2 * positions), LLAMA)


def test_one_table_that_is_on_no_circle_is_no_answer() -> None:
    def cosines(positions: Any) -> Tensor:
        cos, _ = tables(positions)
        return torch.cat([cos, cos], -1)

    with pytest.raises(InputError, match="not with cos and sin"):
        assert_rope(cosines, LLAMA)


def test_code_that_changes_at_each_call_is_told_so() -> None:
    inv_freq = torch.tensor(10000.0) ** -(torch.arange(32) / 32)

    def drifting(positions: Tensor) -> Tables:
        inv_freq.mul_(1.01)
        angles = positions.reshape(-1, 1) * inv_freq
        return angles.cos(), angles.sin()

    with pytest.raises(InputError, match="gives other numbers when it is called again"):
        assert_rope(drifting, LLAMA)
