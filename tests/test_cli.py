"""The command line as a person meets it: help, bad input, JSON, interruption, a full
disk.
"""

import errno
import json
import os
import shlex
import signal
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import Any, get_origin

import pandas as pd
import pytest
import typer
from typer.main import get_command

import ropelab
from ropelab import experiments
from ropelab.cli import app as cli
from ropelab.cli.panels import PANELS
from ropelab.math.methods import FREQUENCY_METHODS
from ropelab.models.methods.registry import METHODS
from ropelab.runs import store
from ropelab.runs.config import build, group_of
from ropelab.runs.errors import InputError
from ropelab.runs.spelling import FieldGroup, make_flag
from tests.processes import started
from tests.texts import mentions

SMOKE = Path(__file__).parents[1] / "configs/smoke"
QUICK = ["precision", "--config", str(SMOKE / "precision.toml")]


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Type a command in an empty folder; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def typed(*arguments):
        with pytest.raises(SystemExit) as stop:
            cli.main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    return typed


def visible(folder):
    """Everything in a folder that is not a lock."""
    return sorted(
        str(p) for p in folder.rglob("*") if p.is_file() and p.suffix != ".lock"
    )


def test_version(call):
    status, out, _ = call("--version")
    assert (status, out) == (0, f"ropelab {ropelab.__version__}\n")


def read_panels(text):
    """Return the panels of a help text: the first words of their rows."""
    panels: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.endswith(":") and line[0] != " ":
            panels[line[:-1]] = []
        elif panels and line.startswith("  ") and line[2:3].strip():
            panels[[*panels][-1]].append(line.split()[0].rstrip(","))
    return panels


def test_bare_command_shows_what_to_type_first_and_the_commands_in_panels(call):
    status, out, _ = call()
    assert status == 0
    panels = read_panels(out)
    assert next(iter(panels)) == "Type first"
    assert len(panels["Type first"]) == 3
    commands = getattr(typer.main.get_command(cli.make_application()), "commands", {})
    shown = [name for panel in PANELS for name in panels[panel]]
    assert sorted(shown) == sorted(commands)
    assert set(experiments.NAMES) < set(panels["Measure"])
    assert "..." not in out.replace("[ARGS]...", "")


@pytest.mark.parametrize("name", experiments.NAMES)
def test_options_of_a_command_stand_in_panels_the_commonest_first(call, name):
    panels = read_panels(call(name, "--help")[1])
    config = experiments.load(name).config
    if config.common_options:
        first = panels["Most used"]
        assert first[: len(config.common_options)] == [
            make_flag(field) for field in config.common_options
        ]
        assert len(first) == 5
    groups = {*map(str, FieldGroup)}
    for field, info in config.model_fields.items():
        if field not in (*config.common_options, config.argument):
            assert make_flag(field) in panels[group_of(info)]
    assert groups & {*panels}
    assert "--results" in panels["Output"]
    assert panels["Running"][-1] == "-h"


@pytest.mark.parametrize("name", experiments.NAMES)
def test_every_field_is_a_flag_with_a_help_text(call, name):
    status, out, _ = call(name, "--help")
    assert status == 0
    config = experiments.load(name).config
    for field, info in config.model_fields.items():
        assert (field.upper() if field == config.argument else make_flag(field)) in out
        assert info.description, f"{name}.{field} has no help text"


@pytest.mark.parametrize(
    "name",
    ["base", "base-empirical", "encodings", "extrapolate", "precision", "spectrum"],
)
def test_a_list_that_may_be_empty_may_be_typed_so(name):
    """The command in a manifest types it, too."""
    config = experiments.load(name).config
    refused = []
    for field, info in config.model_fields.items():
        if get_origin(info.annotation) is not tuple:
            continue
        with suppress(InputError):
            build(config, {field: []})
            if make_flag(field) not in cli.MAY_BE_EMPTY:
                refused.append(field)
    assert not refused


def test_the_command_of_a_run_with_an_empty_list_is_read(call):
    config = build(experiments.load("spectrum").config, {"bands": [], "seeds": [1]})
    words = shlex.split(config.command("spectrum"))
    assert "" in words
    # A folder that cannot be is refused when all words have been read.
    status, _, err = call(*words[1:], "--results", "/dev/null")
    assert status == 2
    assert mentions(err, "/dev/null")
    assert "empty" not in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["precison"], "No such command 'precison'"),
        (["precision", "--bse", "1"], "No such option: --bse"),
        (["precision", "--head-dim", "7"], "--head-dim must be even"),
        (
            ["precision", "--head-dim", "0"],
            "--head-dim must be greater than or equal to 2",
        ),
        (["precision", "--base", "1"], "--base must be greater than 1"),
        (["precision", "--base", "nan"], "--base must be a number"),
        (["precision", "--length", "-5"], "--length must be"),
        (["precision", "--formats", "bfloat61"], "did you mean 'bfloat16'?"),
        (["precision", "--config", "none.toml"], "no config file at none.toml"),
        (["extrapolate", "--train-len", "2048", "--test-len", "1024"], "test"),
        (["extrapolate", "--methods", "yarm"], "did you mean 'yarn'?"),
        (
            ["extrapolate", "--methods", "yarm", "--method", "pi"],
            "did you mean 'yarn'?",
        ),
        (
            ["freqs", "--method", "rerope"],
            "rerope is not a change of frequencies alone",
        ),
        (["extrapolate", "--corpus", "/no/such/folder"], "/no/such/folder"),
        (["run", "nowhere"], "no config file at nowhere"),
        (
            ["freqs", "--test-len", "1e300"],
            "--test-len must be less than or equal to 900719925474",
        ),
        (["freqs", "--method", "ntk(factor=1e308)"], "inf tokens are more than 2^53"),
        (
            ["freqs", "--head-dim", "1e7"],
            "--head-dim must be less than or equal to 1048576",
        ),
        (
            ["freqs", "--head-dim", "9e15"],
            "--head-dim must be less than or equal to 1048576",
        ),
        (["claims", "--source", "06"], "unknown source '06'"),
        (
            ["precision", "--schemes", "single", "--components", "score"],
            "give components cos, sin or",
        ),
        (["spectrum", "--schemes", "one(period=1e400)"], "above 2, not inf"),
        (["spectrum", "--schemes", "ntk(factor=1e308)"], "needs a base beyond float64"),
        (
            ["spectrum", "--schemes", "spaced(n=17)"],
            "n must be at most 16, the number of pairs",
        ),
        (["spectrum", "--schemes", "without(band=fsat)"], "did you mean 'fast'?"),
        (["spectrum", "--schemes", "one(period=\x1b[2J)"], r"not '\x1b[2J'"),
        (
            ["spectrum", "--draws", "1e15"],
            "--draws must be less than or equal to 65536",
        ),
        (["encodings", "--encodings", "gausian"], "did you mean 'gaussian'?"),
        (
            ["encodings", "--encodings", ","],
            "--encodings names nothing",
        ),
        (["encodings", "--encodings", "mla", "--head-dim", "2"], "at least 4 for mla"),
        (
            ["evaluate", "", "--context", "16384"],
            "the argument after 'evaluate' is empty",
        ),
        (
            ["extrapolate", "--search", "-1"],
            "--search must be greater than or equal to 0",
        ),
        (
            ["extrapolate", "--search", "5", "--arms", "finetuned"],
            "which arms leaves out",
        ),
        (["extrapolate", "--engine", "rya"], "did you mean 'ray'?"),
        (
            ["extrapolate", "--engine", "local", "--address", "x:1"],
            "give --engine ray with it",
        ),
        (["audit", "/dev/zero"], "/dev/zero"),
        (["audit", "nothing.json"], "nothing.json"),
        (
            ["emit", "--context", "1e300", "--model", "llama-3"],
            "from 2 to 2^40, got '1e300'",
        ),
        (
            ["emit", "--context", "8k", "--model", "lama-3-8b"],
            "did you mean 'llama-3-8b'?",
        ),
        (
            ["emit", "--context", "8k", "--model", "llama-3-8b", "--target", "vlm"],
            "'vllm'?",
        ),
        (["check", "nothing.npz"], "give --config FILE"),
        (["check", "x", "--config", "nothing.json"], "nothing.json"),
        (["report", "nothing"], "no finished run in nothing"),
        (["run", "\x1b[2J.toml"], r"no config file at \x1b[2J.toml"),
        (["run", "smoke/freqs", "--shard", "1/0"], "--shard takes I/N"),
        (
            ["run", "smoke/freqs", "--index", ".cells"],
            "--index must be the name of a file",
        ),
        (
            ["extrapolate", "--methods", "log_n(inner=" * 400 + "yarn" + ")" * 400],
            "too deeply",
        ),
        (
            ["precision", "--period", "1e-300"],
            "--period must be greater than or equal to",
        ),
        (
            ["freqs", "--rope-theta", "1e4", "--base", "5e5"],
            "--base and --rope-theta are the same",
        ),
        (
            ["freqs", "--rotary-dim", "8", "--partial-rotary-factor", "0.5"],
            "are the same",
        ),
        (
            ["claims", "--seed", "9007199254740993"],
            "--seed must be less than or equal to",
        ),
        (
            ["claims", "--seed", "1e30"],
            "--seed must be less than or equal to 9007199254740992",
        ),
    ],
)
def test_bad_input_is_one_line_with_status_2_and_writes_nothing(
    call, arguments, sentence
):
    status, out, err = call(*arguments)
    assert status == 2
    assert sentence in err
    assert err.count("\n") == 1
    assert err.startswith("ropelab: ")
    assert out == ""
    assert visible(Path.cwd()) == []


def test_an_option_that_takes_one_value_is_given_once():
    group: Any = get_command(cli.make_application())
    tried = []
    for name, command in group.commands.items():
        for option in command.params:
            if option.param_type_name != "option":
                continue
            words = [option.opts[0], *([] if option.is_flag else ["1"])]
            other = [(option.secondary_opts or option.opts)[-1], *words[1:]]
            may_be_repeated = option.multiple or (
                option.is_flag and not option.secondary_opts
            )
            if may_be_repeated:
                continue
            tried.append((name, *words))
            with pytest.raises(InputError, match=r"^-.* is given twice; give it once"):
                command.make_context(name, [*words, *other])
    assert len(tried) > 100


def test_a_list_that_is_given_twice_is_one_list(call):
    typed = ["base", "--head-dim", "8", "--json"]
    both = call(*typed, "--context", "64", "--context", "128")
    assert both[1] == call(*typed, "--context", "64,128")[1]


def test_a_config_with_an_unknown_key_names_the_nearest(call):
    Path("x.toml").write_text('experiment = "precision"\nhed_dim = 64\n')
    status, _, err = call("precision", "--config", "x.toml")
    assert status == 2
    assert mentions(err, "'hed_dim'", "'head_dim'")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f'experiment = "freqs"\nbase = {"[" * 5000}{"]" * 5000}',
            "x.toml is nested too deeply",
        ),
        ('experiment = "evaluate"\nmodel = 128', "model must be text, got 128"),
        (
            f'experiment = "freqs"\nbase = 1{"0" * 5000}',
            "x.toml is not valid TOML: Exceeds",
        ),
        ('experiment = "freqs"\nmodel = ["x"]', "x.toml: unknown model"),
    ],
)
def test_odd_values_in_a_file_are_one_line_that_names_it(call, text, sentence):
    Path("x.toml").write_text(text)
    status, _, err = call("run", "x.toml")
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith("ropelab: x.toml")
    assert sentence in err
    assert not Path("results").exists()


def test_a_config_for_another_experiment_is_refused(call):
    Path("x.toml").write_text('experiment = "claims"\n')
    status, _, err = call("precision", "--config", "x.toml")
    assert (status, err.count("\n")) == (2, 1)
    assert mentions(err, "x.toml", "'claims'", "not for 'precision'")


def test_all_configs_are_checked_before_the_first_runs(call):
    Path("a.toml").write_text((SMOKE / "precision.toml").read_text())
    Path("b.toml").write_text('experiment = "precision"\nbase = 0.5\n')
    status, _, err = call("run", ".")
    assert status == 2
    assert mentions(err, "b.toml:", "base", "greater than 1", 0.5)
    assert not Path("results").exists()


def test_json_is_one_document_and_equals_the_tables(call):
    status, out, _ = call(*QUICK, "--json")
    assert status == 0
    document = json.loads(out)
    promised = {"experiment", "config", "answer", "summary", "tables", "run"}
    assert set(document) == promised
    for name, rows in document["tables"].items():
        table = pd.read_csv(
            Path(document["run"]) / f"tables/{name}.csv",
            keep_default_na=False,
            na_values=[""],
        )
        assert rows == store.make_records(table)


def test_methods_are_listed_with_what_their_factor_means(call):
    status, out, _ = call("methods")
    assert status == 0
    first_words = {line.split()[0] for line in out.splitlines() if line.strip()}
    assert set(METHODS) <= first_words
    rows = {
        row["method"]: row
        for row in json.loads(call("methods", "--json")[1])["tables"]["methods"]
    }
    assert mentions(rows["dynamic_ntk"]["factor"], "length/L - 1", "length/L")
    assert "window=..." in call("methods", "rerope")[1]


def test_the_help_names_every_method(call):
    help_text = " ".join(call("extrapolate", "--help")[1].split())
    assert all(name in help_text for name in METHODS)
    help_text = " ".join(call("freqs", "--help")[1].split())
    assert all(name in help_text for name in FREQUENCY_METHODS)


@pytest.mark.slow
def test_flags_win_over_the_file_and_the_file_over_defaults(call):
    Path("x.toml").write_text((SMOKE / "precision.toml").read_text() + "\nbase = 5e5\n")
    _, out, _ = call("precision", "--config", "x.toml", "--json")
    assert json.loads(out)["config"]["base"] == 5e5
    _, out, _ = call("precision", "--config", "x.toml", "--base", "7e5", "--json")
    assert json.loads(out)["config"]["base"] == 7e5
    # Whatever either of them calls it.
    text = 'experiment = "freqs"\nrope_theta = 5e5\npartial_rotary_factor = 0.5\n'
    Path("y.toml").write_text(text)
    _, out, _ = call(
        "freqs", "--config", "y.toml", "--base", "7e5", "--rotary-dim", "8", "--json"
    )
    found = json.loads(out)["config"]
    assert (found["base"], found["rotary_dim"]) == (7e5, 8)


@pytest.mark.slow
def test_a_second_call_reuses_the_run(call):
    assert "\nrun  " in call(*QUICK)[1]
    assert "reused" in call(*QUICK)[1]


@pytest.mark.slow
def test_quiet_prints_nothing(call):
    assert call(*QUICK, "--quiet") == (0, "", "")


@pytest.mark.slow
def test_run_writes_an_index_with_every_figure(call):
    status, _, _ = call("run", SMOKE / "precision.toml")
    assert status == 0
    index = Path("results/index.md").read_text()
    figures = list(Path("results").glob("*/*/figures/*.png"))
    assert figures
    for figure in figures:
        assert f"({figure.relative_to('results')})" in index


def test_a_results_folder_that_cannot_be_written_is_named(call):
    Path("file").write_text("")
    status, _, err = call(*QUICK, "--results", "file")
    assert status == 2
    assert mentions(err, "cannot write", "results folder file")


@pytest.mark.slow
def test_a_full_disk_is_one_line_status_1_and_nothing_half_written(call, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "tables/x.csv")

    with monkeypatch.context() as patched:
        patched.setattr(store, "flatten_summary", full)  # inside of a run's new folder
        status, _, err = call(*QUICK, "--quiet")
    assert status == 1
    assert mentions(err, "ropelab:", os.strerror(errno.ENOSPC))
    assert err.count("\n") == 1
    # Finished cells are kept, and the same command continues from them.
    assert not list(Path("results").glob("precision/*/*"))
    assert call(*QUICK, "--quiet") == (0, "", "")
    (manifest,) = Path("results").glob("precision/*/manifest.json")
    assert json.loads(manifest.read_text())["measurements"]["computed"] == 0


@pytest.mark.processes
@pytest.mark.parametrize(
    ("stop", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_an_interrupted_run_leaves_no_results(tmp_path, stop, status):
    # it takes days
    command = ["-m", "ropelab", "precision", "--length", "8e10", "--no-limits"]
    with started(*command, cwd=tmp_path, stderr=PIPE) as process:
        assert any("%" in line for line in process.stderr)  # it is in the middle of it
        process.send_signal(stop)
        _, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Traceback" not in err
    assert mentions(err, "ropelab: interrupted", "the same command continues")
    assert not list((tmp_path / "results").glob("*/*/*"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_offered(call, monkeypatch, shell):
    monkeypatch.setenv("_ROPELAB_COMPLETE", f"source_{shell}")
    status, out, _ = call()
    assert status == 0
    assert "_ROPELAB_COMPLETE" in out


def test_a_shell_completes_the_flags_of_a_command(call, monkeypatch):
    monkeypatch.setenv("_ROPELAB_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "ropelab freqs --rope")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert call()[:2] == (0, "--rope-theta\n")
