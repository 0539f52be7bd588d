"""From Python: every command is a function that returns DataFrames."""

import dataclasses
import inspect
import json
import pickle
import pydoc
from importlib import import_module
from pathlib import Path

import pytest

import ropelab
from ropelab.cli.app import main
from ropelab.models.methods.registry import METHODS
from ropelab.runs.errors import InputError


def test_every_experiment_is_a_function():
    from ropelab import experiments

    for name in experiments.NAMES:
        assert callable(getattr(ropelab, name.replace("-", "_")))


def test_the_page_of_commands_names_the_one_that_lists_every_method(capsys):
    page = Path(__file__).parents[1] / "docs" / "commands.md"
    assert "`ropelab methods`" in page.read_text()
    with pytest.raises(SystemExit):
        main(["methods"])
    listed = capsys.readouterr().out.split()
    assert [name for name in METHODS if name not in listed] == []


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


def test_a_command_says_what_it_takes():
    signature = inspect.signature(ropelab.freqs)
    config = ropelab.experiments.load("freqs").config
    assert list(signature.parameters) == [
        *config.model_fields,
        "results",
        "force",
        "quick",
        "limits",
    ]
    assert signature.parameters["base"].default == config.model_fields["base"].default
    text = inspect.getdoc(ropelab.freqs) or ""
    assert text.startswith("What does each frequency pair do")
    assert all(f"{name}: " in text for name in signature.parameters)
    assert ropelab.freqs.__name__ == "freqs"
    assert "Cannot show" in pydoc.render_doc(ropelab.freqs)


def test_one_value_is_taken_where_a_list_is():
    one, many = (ropelab.base(context=context, head_dim=8) for context in (64, (64,)))
    assert one.tables["bound"].equals(many.tables["bound"])


def test_a_run_says_in_one_line_what_it_is():
    run = ropelab.freqs(head_dim=8)
    assert repr(run).startswith("<Run of freqs: ")
    assert "\n" not in repr(run)


def test_a_run_is_found_in_a_list_and_in_a_set():
    first, second = ropelab.freqs(base=1e4), ropelab.freqs(base=1e4)
    assert second in [first, second]
    assert {first: 1, second: 2}[second] == 2


def test_a_notebook_shows_question_answer_and_table():
    run = ropelab.freqs(head_dim=8)
    html = run._repr_html_()
    assert run.experiment.question in html
    assert html.count("<tr") == len(run.summary()) + 1
    assert "pairs (4 rows)" in html


def test_what_a_notebook_shows_is_escaped():
    run = dataclasses.replace(
        ropelab.freqs(head_dim=8), answer="<script>alert(1)</script>"
    )
    assert "<script>" not in run._repr_html_()


def test_models_are_a_table():
    table = ropelab.models()
    row = table.set_index("name").loc["llama-3.1-8b"]
    assert (row.base, row.head_dim, row.train_len_tokens) == (500000.0, 128, 8192)


def test_models_are_listed_by_a_command(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["models"])
    printed = capsys.readouterr().out
    assert all(name in printed for name in ropelab.models()["name"])
    with pytest.raises(SystemExit, match="0"):
        main(["models", "--json"])
    rows = json.loads(capsys.readouterr().out)["tables"]["models"]
    assert [row["name"] for row in rows] == ropelab.models()["name"].tolist()


def test_methods_are_a_table():
    assert {"yarn", "pi"} <= set(ropelab.methods()["method"])


@pytest.mark.parametrize("room", ["audit", "claims", "models"])
def test_a_room_that_is_called_is_given_to_other_processes_by_its_name(room):
    module = import_module(f"ropelab.{room}")
    assert pickle.loads(pickle.dumps(module)) is module
