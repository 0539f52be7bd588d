"""docs/sweeps.md: its files are read, and its commands print what it shows."""

import re
from pathlib import Path

import pytest

from ropelab.lab import Lab
from ropelab.runs import estimate
from ropelab.sweeps.cases import read_sweep
from tests.test_cli import call

__all__ = ["call"]  # a fixture
TEXT = (Path(__file__).parents[2] / "docs/sweeps.md").read_text()
FILES = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("text", FILES)
def test_every_file_that_is_shown_is_read(text, tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(text)
    assert len(read_sweep(path, Lab()).plans) > 1


def test_the_command_prints_what_is_shown(call, monkeypatch):
    monkeypatch.setattr(estimate, "measure_slowness", lambda: 1.0)
    Path("rope.toml").write_text(FILES[0])
    (shown,) = re.findall(r"```\n\$ ropelab (.*?)```", TEXT, re.DOTALL)
    command, _, printed = shown.partition("\n")
    assert call(*command.split()) == (0, printed, "")
