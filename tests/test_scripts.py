"""For scripts: JSON schemas, codes of findings, SARIF, runs compared, agents' page,
hooks.
"""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
import yaml

import ropelab
from ropelab import experiments
from ropelab.audit.sarif import TITLES
from ropelab.cli.app import main
from ropelab.cli.schema import SHAPES
from ropelab.show import compare
from ropelab.show.page.shown import ShownRun
from tests.texts import mentions

ROOT = Path(__file__).parents[1]
CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
    "rope_scaling": {
        "type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    },
}


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Type a command beside a configuration; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(CONFIG))
    angles = np.arange(64)[:, None] * 1e6 ** (-np.arange(64) / 64)
    np.savez("table.npz", cos=np.cos(angles), sin=np.sin(angles))

    def typed(line: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line))
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return typed


def schema(call: Any, command: str) -> dict[str, Any]:
    status, out, _ = call(f"schema {command}")
    assert status == 0
    found: dict[str, Any] = json.loads(out)
    jsonschema.Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize(
    "line",
    [
        "audit config.json",
        "audit config.json config.json",
        "emit --from config.json --context 64k --target all",
        "check table.npz --config config.json",
        "vectors --config config.json --out made --length 64",
        "methods",
        "models",
        "freqs --head-dim 16",
        "base --context 64",
        "claims --id three-forms",
    ],
)
def test_what_json_prints_follows_its_schema(call: Any, line: str) -> None:
    found = schema(call, line.split()[0])
    document = json.loads(call(f"{line} --json")[1])
    jsonschema.validate(document, found)
    del document["tables" if "tables" in document else "experiment"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, found)


def test_every_command_with_json_has_a_schema(call: Any) -> None:
    for command in (*SHAPES, *experiments.NAMES):
        assert "properties" in schema(call, command)
    status, _, err = call("schema audt")
    assert (status, err.count("\n")) == (2, 1)
    assert "did you mean 'audit'" in err


def test_every_code_of_a_finding_is_in_the_one_table() -> None:
    used: set[str] = set()
    for path in (ROOT / "ropelab/audit").glob("*.py"):
        used |= set(re.findall(r'"([EWN]\d\d)"', path.read_text()))
    assert used == set(TITLES)
    rows = dict(
        re.findall(
            r"^\| ([EWN]\d\d) \| (.+) \|$",
            (ROOT / "docs/audit.md").read_text(),
            re.MULTILINE,
        )
    )
    assert rows == TITLES


def test_sarif_has_every_finding_under_a_rule(call: Any) -> None:
    # The properties that the schema of SARIF 2.1.0 requires, and those that code
    # scanning reads.
    status, out, _ = call("audit config.json --format sarif")
    document, tables = json.loads(out), json.loads(call("audit config.json --json")[1])
    assert status == 3
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("ropelab", ropelab.__version__)
    expected = tables["files"][0]["tables"]["findings"]
    assert [result["ruleId"] for result in run["results"]] == [
        one["code"] for one in expected
    ]
    assert len(expected) > 2
    for result, one in zip(run["results"], expected, strict=True):
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert one["says"] in result["message"]["text"]
        (location,) = result["locations"]
        assert location["physicalLocation"]["artifactLocation"]["uri"] == "config.json"
        region = location["physicalLocation"]["region"]
        lines = Path("config.json").read_text().splitlines()
        assert '"rope_' in lines[region["startLine"] - 1]


def test_sarif_has_what_is_wrong_with_a_draft_model(call: Any) -> None:
    model = {"model_type": "llama", "num_attention_heads": 32, "rope_theta": 500000.0}
    for name, width, length in (("target", 4096, 32768), ("draft", 2048, 8192)):
        sizes = {
            "hidden_size": width,
            "num_hidden_layers": 32,
            "max_position_embeddings": length,
        }
        Path(f"{name}.json").write_text(json.dumps({**model, **sizes}))
    _, out, _ = call("audit target.json draft.json --format sarif")
    assert "W17" in {each["ruleId"] for each in json.loads(out)["runs"][0]["results"]}


def test_sarif_of_an_absolute_path_is_a_uri(call: Any) -> None:
    # Microsoft's validator refuses a relative reference that begins with a slash
    # (SARIF1004).
    _, out, _ = call(f"audit '{Path('config.json').resolve()}' --format sarif")
    (run,) = json.loads(out)["runs"]
    for result in run["results"]:
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert uri == Path("config.json").resolve().as_uri()


def test_lines_of_sarif_are_those_of_an_editor(call: Any) -> None:
    text = Path("config.json").read_text()
    # JSON lets these stand in a string; they end a line for Python alone.
    Path("odd.json").write_text(text.replace("{", '{"note": "a\u2028b\u0085c",', 1))
    places = []
    for name in ("config.json", "odd.json"):
        (run,) = json.loads(call(f"audit {name} --format sarif")[1])["runs"]
        found = {
            json.dumps(each["locations"][0]["physicalLocation"]["region"])
            for each in run["results"]
        }
        places.append(found)
    assert places[0] == places[1]


def test_an_unknown_format_is_refused(call: Any) -> None:
    status, out, err = call("audit config.json --format srif")
    assert (status, out) == (2, "")
    assert "did you mean 'sarif'" in err


def test_one_format_is_asked_for_at_a_time(call: Any) -> None:
    status, out, err = call("audit config.json --format sarif --json")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert mentions(err, "--format", "--json", "not both")


def test_two_runs_are_compared(call: Any) -> None:
    one, two, third = (
        ropelab.freqs(head_dim=16, base=base, results="kept").folder
        for base in (1e4, 1e5, 1e4 + 1)
    )
    other = ropelab.base(context=64, head_dim=8, results="kept").folder
    status, out, _ = call(f"compare {one} {two} --json")
    document = json.loads(out)
    assert status == 0
    jsonschema.validate(document, schema(call, "compare"))
    assert document["tables"]["settings"] == [
        {"setting": "base", "first": "10000.0", "second": "100000.0"}
    ]
    values = {row["value"]: row for row in document["tables"]["values"]}
    # The first pair has the same frequency at every base.
    assert (values["inv_freq"]["rows"], values["inv_freq"]["differ"]) == (8, 7)
    assert "1 settings differ" in document["answer"]
    assert "0 of" in json.loads(call(f"compare {one} {one} --json")[1])["answer"]
    assert "next  ropelab report" in call(f"compare {one} {third}")[1]
    status, _, err = call(f"compare {one} {other}")
    assert (status, "measure different things" in err) == (2, True)
    assert call("compare kept kept")[0] == 2


def test_rows_that_differ_in_a_factor_are_compared_and_tables_that_are_not_are_named() -> (
    None
):
    def run(columns: dict[str, list[Any]], says: str = "yes") -> ShownRun:
        about = {"experiment": "x", "config": {}, "tables": {"t": {}, "u": {}}}
        text = pd.DataFrame({"says": [says]})
        stored_tables = {"t": pd.DataFrame(columns), "u": text}
        return ShownRun(Path("x"), {**about, "inputs": {}, "version": 1}, stored_tables)

    rows: dict[str, list[Any]] = {"method": ["yarn", "yarn"], "factor": [1.5, 2.5]}
    first, second = {**rows, "loss": [0.5, 0.5]}, {**rows, "loss": [0.5, 0.25]}
    answer, tables = compare.compare_runs(run(first), run(second, "no"))
    assert mentions(answer, "1 of 1 columns", "differ")
    assert "not compared: u" in answer
    # Words that are the same in both were compared.
    assert "not compared" not in compare.compare_runs(run(first), run(second))[0]
    assert tables["values"]["where"].tolist() == ["yarn, 2.5"]


def test_measured_words_are_compared_and_identify_no_row() -> None:
    def run(**columns: list[Any]) -> ShownRun:
        about = {"experiment": "x", "config": {}, "tables": {"t": {}}}
        stored_tables = {"t": pd.DataFrame(columns)}
        return ShownRun(Path("x"), {**about, "inputs": {}, "version": 1}, stored_tables)

    one = run(measured=["0.4 apart", "same"], id=["a", "b"], value=[0.4, 1.0])
    two = run(
        measured=["0.9 apart", "same", "new"], id=["a", "b", "c"], value=[0.9, 1.0, 2.0]
    )
    answer, tables = compare.compare_runs(one, two)
    assert mentions(answer, "2 of 2 columns", "differ")
    assert mentions(answer, "one run alone", "t")
    values = tables["values"].set_index("value")
    assert values["rows"].tolist() == [2, 2]
    assert values["alone"].tolist() == [1, 1]
    assert values.loc["value", "largest"] == "0.4 -> 0.9"
    assert list(values.loc["measured", ["largest", "where"]]) == [
        "0.4 apart -> 0.9 apart",
        "a",
    ]


def test_what_two_runs_have_read_and_their_versions_are_compared_as_settings() -> None:
    about = {"experiment": "toy", "config": {"base": 1.0}, "tables": {}, "version": 1}
    one = ShownRun(Path("one"), {**about, "inputs": {"corpus": "aaaa"}})
    two = ShownRun(Path("two"), {**about, "inputs": {"corpus": "bbbb"}, "version": 2})
    answer, tables = compare.compare_runs(one, two)
    assert "2 settings differ" in answer
    assert tables["settings"].values.tolist() == [
        ["corpus", "aaaa", "bbbb"],
        ["version", "1", "2"],
    ]


def test_an_input_does_not_hide_the_setting_of_its_name() -> None:
    """`documents` is a number of documents, and the hash of their names."""
    about = {"experiment": "evaluate", "tables": {}, "version": 1}
    inputs = {"documents": "aaaa", "corpus": "bbbb"}
    runs = []
    for count, corpus in ((2, "bbbb"), (3, "cccc")):
        config = {"documents": count, "corpus": "texts"}
        read = {**inputs, "corpus": corpus}
        runs.append(ShownRun(Path("x"), {**about, "config": config, "inputs": read}))
    answer, tables = compare.compare_runs(*runs)
    assert "2 settings differ" in answer
    assert tables["settings"].values.tolist() == [
        ["documents", "2", "3"],
        ["corpus (content)", "bbbb", "cccc"],
    ]


def test_runs_are_compared_in_whole_numbers_too_and_where_a_column_is_of_another_kind() -> (
    None
):
    def run(config: dict[str, int], **columns: list[Any]) -> ShownRun:
        stored_tables = {"t": pd.DataFrame(columns)}
        about = {"experiment": "x", "config": config, "tables": {"t": {}}}
        return ShownRun(Path("x"), {**about, "inputs": {}, "version": 1}, stored_tables)

    one = run({"old": 1}, source=[1, 2], name=["a", "b"], lost=[3, 3], share=[0.5, 0.5])
    two = run(
        {"new": 2},
        source=["x", "y"],
        name=["a", "b"],
        lost=[3, 300_000],
        share=[0.5, 0.5],
    )
    answer, tables = compare.compare_runs(one, two)
    assert mentions(answer, "2 of 3 columns", "differ")
    values = tables["values"].set_index("value")
    assert values.loc["source", "largest"] == "1 -> x"
    assert (values.loc["lost", "largest"], values.loc["lost", "where"]) == (
        "3 -> 300000",
        "b",
    )
    assert tables["settings"]["setting"].tolist() == ["old", "new"]
    apart = run({}, source=[8, 9], name=["c", "d"], lost=[9, 9], share=[0.1, 0.2])
    assert compare.compare_runs(one, apart)[0].startswith("0 of 0 columns")


def test_truth_values_words_and_columns_of_one_run_alone_are_not_passed_over() -> None:
    def run(**columns: list[Any]) -> ShownRun:
        about = {"experiment": "x", "config": {}, "tables": {"t": {}}}
        table = pd.DataFrame({"base": [1, 2], "kind": ["a", "a"], **columns})
        return ShownRun(Path("x"), {**about, "inputs": {}, "version": 1}, {"t": table})

    one = run(
        admissible=[True, True], sign=[None, None], says=["yes", "yes"], old=[1, 2]
    )
    two = run(admissible=[True, False], sign=[None, "-"], says=["yes", "no"])
    answer, tables = compare.compare_runs(one, two)
    assert mentions(answer, "3 of 3 columns", "differ")
    assert mentions(answer, "only one run", "t.old")
    largest = tables["values"].set_index("value")["largest"]
    assert largest.to_dict() == {
        "admissible": "True -> False",
        "sign": "None -> -",
        "says": "yes -> no",
    }


def test_commands_on_the_page_for_agents_exist(call: Any) -> None:
    page = (ROOT / "docs/agents.md").read_text()
    commands = re.findall(r"`ropelab (\w+) (.+?)`", page)
    assert len(commands) > 5
    for command, rest in commands:
        help_text = call(f"{command} --help")[1]
        for flag in re.findall(r"(?<!')--[a-z-]+", rest):
            assert flag in help_text, (command, flag)
    assert set(re.findall(r"[EW]\d\d", page)) <= set(TITLES)
    links = re.findall(r"\]\((.+?)\)", (ROOT / "llms.txt").read_text())
    assert all((ROOT / link).exists() for link in links)


def test_the_hook_and_the_action_call_a_command_that_exists(
    call: Any, tmp_path: Path
) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert call(f"{hook['entry'].removeprefix('ropelab ')} config.json")[0] == 3
    for name, matched in (
        ("a/config.json", True),
        ("params.json", True),
        ("myconfig.json", False),
    ):
        assert bool(re.search(hook["files"], name)) == matched
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    steps = action["runs"]["steps"]
    runs = [step["run"] for step in steps if "run" in step and "ropelab" in step["run"]]
    assert len(runs) == 2
    for run in runs:
        line = (
            run.split(">")[0].replace("$FILES", "config.json").replace("$OPTIONS", "")
        )
        assert call(line.strip().removeprefix("ropelab "))[0] == 3
        # What the user sets does not meet an option of the step: options are given once.
        options = run.replace("$OPTIONS", "--length 128k --fail-on warn")
        line_with_options = options.split(">")[0].replace("$FILES", "config.json")
        assert call(line_with_options.strip().removeprefix("ropelab "))[0] == 3

        # The step that writes the file passes if there are findings, and for nothing
        # else; the other one ends the job.
        for status in range(4):
            stand_in = f"ropelab() {{ return {status}; }}; {run}"
            passes = {0, 3} if "$SARIF" in run else {0}
            shell = ["bash", "-e", "-o", "pipefail", "-c", stand_in]
            environment = {**os.environ, "SARIF": str(tmp_path / "sarif")}
            done = subprocess.run(shell, env=environment, check=False)
            assert (done.returncode == 0) == (status in passes)

        # A file of a pull request may be called like an option, such as one that lets
        # every finding pass.
        named = line.replace("config.json", "config.json --fail-on=never")
        status, _, err = call(named.strip().removeprefix("ropelab "))
        assert status == 2
        assert "--fail-on=never" in err
