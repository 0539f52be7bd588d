"""Lists of configs, methods, models and claims: a line for each, and one in full."""

import json

import pytest
from rich.console import Console

from ropelab.cli.app import main
from ropelab.math.models import MODELS
from ropelab.models.methods.registry import METHODS
from ropelab.runs import builtin


@pytest.fixture
def call(capsys, monkeypatch):
    """Type a command at 80 columns; return status, lines and errors."""
    narrow = Console(width=80, highlight=False, markup=False)
    monkeypatch.setattr("ropelab.show.terminal.make_console", lambda: narrow)

    def typed(line):
        with pytest.raises(SystemExit) as stop:
            main(line.split())
        out, err = capsys.readouterr()
        return stop.value.code or 0, out.splitlines(), err

    return typed


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("run", builtin.list_configs()),
        ("methods", METHODS),
        ("models", MODELS),
    ],
)
def test_a_list_has_each_name_once_and_a_line_for_it(call, command, names):
    status, lines, _ = call(command)
    assert status == 0
    assert max(map(len, lines)) <= 80
    begin = [line.split()[0] for line in lines if line.strip()]
    for name in names:
        assert begin.count(name) == 1
    # A title, blank lines between folders, and what to type next.
    assert len(lines) < len(names) + 20


@pytest.mark.parametrize(
    ("line", "name", "fields"),
    [
        ("methods yarn", "yarn", {"parameters", "acts on", "does", "source"}),
        ("methods linear", "pi", {"parameters", "aliases"}),
        ("models QWEN3-8B", "qwen3-8b", {"base", "head dim", "method", "source"}),
    ],
)
def test_one_of_a_list_is_shown_in_full(call, line, name, fields):
    status, lines, _ = call(line)
    assert status == 0
    assert lines[0] == name
    shown = {line.partition(":")[0].strip() for line in lines if ":" in line}
    assert fields <= shown


def test_json_of_one_has_its_row_alone(call):
    document = json.loads("\n".join(call("models gpt-j-6b --json")[1]))
    assert [row["name"] for row in document["tables"]["models"]] == ["gpt-j-6b"]


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("methods yran", "yarn"),
        ("models qwen3-8", "qwen3-8b"),
        ("claims rotate-hlf", "rotate-half"),
        ("run precison --explain", "precision"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(call, line, nearest):
    status, _, err = call(line)
    assert status == 2
    assert nearest in err


def test_a_config_is_explained_and_not_run(call, tmp_path):
    status, lines, _ = call("run reference/spectrum-search --explain")
    assert status == 0
    text = "\n".join(lines)
    assert "grid: lr_scale 0.5, 1, 2" in text
    assert "seeds: 5" in text
    assert not [*tmp_path.glob("results/*")]


@pytest.mark.parametrize(
    "line",
    ["run --index ../x.md", "run --dry-run", "run --shard 1/2", "run --explain"],
)
def test_options_of_runs_need_a_config(call, line):
    status, lines, err = call(line)
    assert (status, lines) == (2, [])
    assert "ropelab run configs" in err


def test_a_claim_is_explained_by_its_id_with_and_without_a_flag(call):
    bare = call("claims rotate-half")
    assert bare[0] == 0
    assert bare[1][0].startswith("Holds with a condition")
    assert call("claims --id rotate-half")[1][:3] == bare[1][:3]
    assert call("claims rotate-half --id rotate-half")[0] == 2
