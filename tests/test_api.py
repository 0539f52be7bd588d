"""From Python: every command is a function that returns DataFrames."""

from pathlib import Path

import pytest

import ropelab
from ropelab.errors import InputError
from ropelab.methods.registry import METHODS


def test_every_experiment_is_a_function():
    from ropelab import experiments

    for name in experiments.NAMES:
        assert callable(getattr(ropelab, name.replace("-", "_")))


def test_the_readme_names_every_method():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    missing = [name for name in METHODS if f"`{name}`" not in readme]
    assert missing == []


def test_a_command_gives_tables_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = ropelab.freqs(base=1e6, head_dim=8)
    assert len(run.tables["pairs"]) == 4
    assert run.tables["pairs"].inv_freq[0] == 1.0
    assert run.answer
    assert list(tmp_path.iterdir()) == []


def test_results_are_kept_where_asked(tmp_path):
    first = ropelab.run("freqs", results=tmp_path, head_dim="8")
    second = ropelab.freqs(results=tmp_path, head_dim=8)
    assert second.reused
    assert second.folder == first.folder


def test_bad_values_raise_the_same_sentence():
    with pytest.raises(InputError, match="head_dim must be even"):
        ropelab.freqs(head_dim=7)


def test_unknown_attributes_are_unknown():
    with pytest.raises(AttributeError, match="no attribute 'precison'"):
        ropelab.precison  # noqa: B018
