"""Text that names nothing, and standard input that is asked for twice."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ropelab
from ropelab.cli.app import main
from ropelab.runs.errors import InputError
from tests.conformance.test_check import LLAMA

Call = Callable[..., tuple[int, str, str]]
# What a shell makes of a list of variables that are not set.
NOTHING = [",", ",,,", " ", ", ,", "\t"]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Type a command; `typed` is its standard input."""

    def run(*words: str, typed: str = "") -> tuple[int, str, str]:
        stream = io.TextIOWrapper(io.BytesIO(typed.encode()))
        monkeypatch.setattr(sys, "stdin", stream)
        with pytest.raises(SystemExit) as ended:
            main(words)
        out, err = capsys.readouterr()
        status = ended.value.code
        assert isinstance(status, int)
        return status, out, err

    return run


@pytest.mark.parametrize("text", NOTHING)
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("audit config.json", "--runtime"),
        ("freqs", "--sections"),
        ("base", "--formats"),
        ("base", "--dropped"),
        ("precision", "--schemes"),
        ("precision", "--formats"),
        ("precision", "--cast"),
        ("precision", "--long-lengths"),
    ],
)
def test_separators_alone_are_refused(
    call: Call, command: str, option: str, text: str
) -> None:
    Path("config.json").write_text(json.dumps(LLAMA))
    status, out, err = call(*command.split(), f"{option}={text}")
    assert (status, out) == (2, "")
    assert err.startswith("ropelab: ")
    assert f"{option.lstrip('-')} names nothing" in err


@pytest.mark.parametrize("formats", [(), ("float64",)])
def test_a_run_in_which_nothing_is_rounded_is_refused(formats: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match="nothing is rounded"):
        ropelab.precision(formats=formats, head_dim=8, length=64)


def test_a_configuration_on_standard_input_is_read_once(call: Call) -> None:
    config = json.dumps({**LLAMA, "rope_theta": 777.0})
    kit = ("vectors", "--config", "-", "--out", "kit")
    assert call(*kit, typed=config)[0] == 0
    about = json.loads(Path("kit/about.json").read_text())
    assert (about["base"], about["config"]["rope_theta"]) == (777.0, 777.0)

    with np.load("kit/vectors.npz") as right:
        rotated = right["k_rotated"]
    np.savez("mine.npz", k_rotated=rotated)
    check = ("check", "mine.npz", "--config", "-")
    assert call(*check, typed=config)[0] == 0
    assert call(*check, typed=json.dumps(LLAMA))[0] == 3


def test_standard_input_is_no_second_file(call: Call) -> None:
    status, out, err = call("audit", "-", "-", typed=json.dumps(LLAMA))
    assert (status, out) == (2, "")
    assert "can be read once only" in err


@pytest.mark.parametrize("factor", ["0", "-4", "1e400", "1e308", "9" * 400])
def test_a_factor_that_gives_no_length_is_refused(call: Call, factor: str) -> None:
    status, out, err = call("emit", "--model", "qwen3-8b", f"--factor={factor}")
    assert (status, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "type: ropelab emit --help" in err
