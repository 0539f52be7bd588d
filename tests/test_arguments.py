"""Values of types that nobody asked for, given to the functions of the package: one line
that names the argument.
"""

import io
import json
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from transformers import LlamaConfig

import ropelab
from ropelab.runs.errors import InputError
from ropelab.testing import assert_rope
from tests.conformance.test_check import LLAMA

FILE = "config.json"
# None stands for no value in some places, and is not among these.
VALUES: tuple[Any, ...] = (
    *({}, LLAMA, [], ["config.json"], {1}, -5, 1.5, True, 1j, 10**400),
    *(b"config.json", bytearray(b"x"), io.StringIO("{}"), object(), dict, len, json),
    *(pd.DataFrame({"a": [1]}), pd.Series([1]), np.arange(3), np.float64("nan")),
    ValueError("x"),
)
STRINGS = ("a\0b", "\udcff", "a" * 100_000)
PATHS: dict[str, Callable[[Any], object]] = {
    "source": lambda value: ropelab.audit(value),
    "target": lambda value: ropelab.check(value, config=FILE),
    "config": lambda value: ropelab.vectors(value, "kit"),
    "results": lambda value: ropelab.run("freqs", results=value),
}
TEXTS: dict[str, Callable[[Any], object]] = {
    "dtype of audit": lambda value: ropelab.audit(FILE, dtype=value),
    "flags": lambda value: ropelab.audit(FILE, flags=value),
    "runtime": lambda value: ropelab.audit(FILE, runtime=[value]),
    "dtype": lambda value: ropelab.check(".", dtype=value),
    "model": lambda value: ropelab.emit(model=value, context=8192),
    "method": lambda value: ropelab.emit(FILE, context=8192, method=value),
    "target of emit": lambda value: ropelab.emit(FILE, context=8192, target=value),
    "prompt": lambda value: ropelab.vectors(FILE, "kit", prompt=value),
    "name": lambda value: ropelab.run(value),
    "layer_type": lambda value: assert_rope(len, LLAMA, layer_type=value),
}
LENGTHS: dict[str, Callable[[Any], object]] = {
    "length": lambda value: ropelab.audit(FILE, length=value),
    "length of check": lambda value: ropelab.check(".", length=value),
    "context": lambda value: ropelab.emit(FILE, context=value),
}


@pytest.fixture(autouse=True)
def file() -> None:
    Path(FILE).write_text(json.dumps(LLAMA))


def refuse(call: Callable[[Any], object], value: Any) -> str:
    """Return the text of the error, which has one line."""
    with pytest.raises(InputError) as refused:
        call(value)
    text = str(refused.value)
    assert "\n" not in text
    assert len(text) < 3000
    return text


@pytest.mark.parametrize("name", PATHS)
def test_a_value_that_is_no_path_is_refused(name: str) -> None:
    for value in VALUES:
        kind = type(value).__name__
        text = refuse(PATHS[name], value)
        assert text == f"{name} must be a path, not of type {kind}"
    for value in STRINGS:
        refuse(PATHS[name], value)


@pytest.mark.parametrize("name", TEXTS)
def test_a_value_that_is_no_text_is_refused(name: str) -> None:
    for value in VALUES:
        kind = type(value).__name__
        text = refuse(TEXTS[name], value)
        assert text == f"{name.split()[0]} must be text, not of type {kind}"


@pytest.mark.parametrize("name", LENGTHS)
def test_a_value_that_is_no_length_is_refused(name: str) -> None:
    for value in (*VALUES, *STRINGS):
        text = refuse(LENGTHS[name], value)
        assert text.startswith(f"{name.split()[0]} must be a whole number of tokens")


def test_an_error_has_one_line_whatever_it_quotes() -> None:
    assert refuse(ropelab.audit, "a\nb") == "cannot read a b: No such file or directory"
    assert "\n" not in refuse(
        lambda value: ropelab.freqs(base=value), pd.Series([1, 2])
    )


def test_a_path_of_any_class_is_a_path() -> None:
    path = Path(FILE)
    assert ropelab.audit(path).answer == ropelab.audit(FILE).answer
    assert ropelab.vectors(path, Path("kit")).folders == ("kit",)
    assert not ropelab.check(Path("kit/vectors.npz"), config=path).wrong
    assert (
        ropelab.emit(path, context=8192).rows == ropelab.emit(FILE, context=8192).rows
    )
    stored = ropelab.freqs(head_dim=8, results=Path("results"))
    assert stored.folder is not None
    assert stored.folder.parent == Path("results/freqs")


def test_a_quoted_value_of_several_lines_is_one_line_and_blanks_of_a_name_stay() -> (
    None
):
    error = InputError("cannot read 'my  file': a table\n  of two\u2028lines\n")
    assert str(error) == "cannot read 'my  file': a table of two lines"


def test_the_configuration_of_a_program_is_as_json_would_hold_it() -> None:
    llama: dict[Any, Any] = dict(LLAMA)
    endless = dict(llama)
    endless["text_config"] = endless
    endless_list: list[Any] = []
    endless_list.append(endless_list)
    configurations: tuple[Any, ...] = (
        *({**llama, (1, 2): 3}, {**llama, "a": {b"rope_theta": 3}}),
        *(endless, {**llama, "a": endless_list}, LlamaConfig()),
    )
    for configuration in configurations:
        with pytest.raises(InputError) as refused:
            assert_rope(len, configuration)
        assert "\n" not in str(refused.value)


def test_a_configuration_of_mappings_and_tuples_is_one() -> None:
    block = UserDict({"rope_type": "linear", "factor": 2.0})
    configuration = UserDict({**LLAMA, "rope_scaling": block, "id2label": {0: "a"}})
    with pytest.raises(AssertionError, match=r"pi\(factor=2\) is missing"):
        assert_rope(rotate, configuration)


def rotate(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return cos and sin without the scaling."""
    llama: dict[str, Any] = dict(LLAMA)
    width = llama["hidden_size"] // llama["num_attention_heads"]
    inv_freq = llama["rope_theta"] ** (-np.arange(0, width, 2) / width)
    angles = positions[:, None] * inv_freq
    return np.cos(angles), np.sin(angles)
