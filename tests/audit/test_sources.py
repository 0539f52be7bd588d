"""What is no configuration is answered with what to type instead."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.test_cli import call

__all__ = ["call"]  # a fixture


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("meta-llama/Llama-3.1-8B", "downloaded"),
        (
            "https://huggingface.co/Qwen/Qwen3-8B",
            "https://huggingface.co/Qwen/Qwen3-8B",
        ),
        ("llama-3.1-8b", "ropelab freqs --model llama-3.1-8b"),
    ],
)
def test_a_name_that_is_no_file(name: str, named: str, call: Any) -> None:
    for command in (["audit", name], ["emit", "--context", "8k", "--from", name]):
        status, _, err = call(*command)
        assert (status, err.count("\n")) == (2, 1)
        assert named in err
        assert "config.json" in err


def test_a_path_that_does_not_exist_is_no_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("models/qwen", "qwen.json", "models/config.json"):
        status, _, err = call("audit", name)
        assert status == 2
        assert f"cannot read {name}" in err


@pytest.mark.parametrize("suffix", ["npz", "npy"])
def test_arrays_are_for_check(suffix: str, tmp_path: Path, call: Any) -> None:
    path = tmp_path / f"dump.{suffix}"
    if suffix == "npz":
        np.savez(path, cos=np.ones(4))
    else:
        np.save(path, np.ones(4))
    status, _, err = call("audit", str(path))
    assert (status, err.count("\n")) == (2, 1)
    assert f"ropelab check {path}" in err


def test_audit_writes_no_file(tmp_path: Path, call: Any) -> None:
    status, _, err = call("audit", "config.json", "-o", str(tmp_path / "out.json"))
    assert status == 2
    assert "--json >" in err
    assert not (tmp_path / "out.json").exists()
