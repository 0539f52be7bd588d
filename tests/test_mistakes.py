"""What newcomers type: one line that says what to type instead, status 2, nothing
written.
"""

import json
from pathlib import Path

import pytest
import typer

from ropelab.cli.app import main, make_application
from ropelab.cli.mistakes import TABLES, explain_mistake
from ropelab.runs.errors import InputError
from tests.test_cli import call
from tests.texts import mentions

__all__ = ["call"]  # a fixture

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
}


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("freqs qwen.json", "type: ropelab freqs --model qwen.json"),
        ("base qwen.json", "type: ropelab base --model qwen.json"),
        ("precision qwen.json", "type: ropelab precision --model qwen.json"),
        ("emit qwen.json", "type: ropelab emit --from qwen.json --context 128k"),
        (
            "emit qwen.json --context 64k",
            "type: ropelab emit --from qwen.json --context 64k",
        ),
        (
            "emit --from qwen.json --max-model-len 65536",
            "type: ropelab emit --from qwen.json --context 65536",
        ),
        (
            "audit qwen.json --rope-scaling yarn",
            "type: ropelab audit qwen.json --flags '--rope-scaling yarn'",
        ),
        (
            "audit qwen.json --max-model-len 131072 --length 64k",
            (
                "type: ropelab audit qwen.json --length 64k --flags '--max-model-len"
                " 131072'"
            ),
        ),
        (
            "audit --use-rope-scaling qwen.json",
            "type: ropelab audit qwen.json --flags --use-rope-scaling",
        ),
        (
            "audit qwen.json --ropeconfig 0.5 20000",
            """type: ropelab audit qwen.json --flags '--ropeconfig '"'"'0.5 20000'"'"''""",
        ),
        ("audit", "type: ropelab audit --help"),
        ("precision --dtype bf16", "type: ropelab precision --formats bfloat16"),
        ("precision --formats bfloat61", "did you mean 'bfloat16'?"),
        ("precision --config qwen.json", "type: ropelab audit qwen.json"),
        ("run qwen.json", "type: ropelab audit qwen.json"),
        ("freqs --base 500k", "type 500000"),
        ("extrapolate --max-len 100", "type: ropelab extrapolate --test-len 100"),
        ("extrapolate --lr 1e-3", "type: ropelab extrapolate --help"),
        ("extrapolate -j 4", "type: ropelab extrapolate --workers 4"),
        ("extrapolate yarn,pi", "type: ropelab extrapolate --methods yarn,pi"),
        ("extrapolate qwen.json", "type: ropelab audit qwen.json"),
        ("extrapolate --methods yarn:4", "type 'yarn(factor=4)'"),
        ("extrapolate --methods yarn,4", "such as 'yarn(factor=4)'"),
        ("freqs --method yarn=4", "type 'yarn(factor=4)'"),
        ("freqs --theta 1e6", "type: ropelab freqs --base 1e6"),
        ("freqs 128k", "type: ropelab freqs --test-len 128k"),
        ("freqs qwen3-8b", "type: ropelab freqs --model qwen3-8b"),
        ("freqs --quick", "type: ropelab freqs"),
        ("precision --cast cos=bf16", "did you mean 'table'?"),
        (
            "precision --bas 1e6 --results DIR",
            "type: ropelab precision --base 1e6 --results DIR",
        ),
        ("base 32768", "type: ropelab base --context 32768"),
        ("base --length 32k", "type: ropelab base --context 32k"),
        ("list", "No such command 'list'; type: ropelab --help"),
        ("train", "type: ropelab extrapolate"),
        ("compare a", "type: ropelab compare a ANOTHER_RUN"),
        ("vectors qwen.json", "ropelab vectors --config qwen.json --out vectors"),
        (
            "emit qwen.json --factor 4",
            "type: ropelab emit --from qwen.json --context 131072",
        ),
        (
            "emit --model llama-3-8b --factor 4",
            "type: ropelab emit --model llama-3-8b --context 32768",
        ),
        ("audit qwen.json -o out.json", "ropelab audit qwen.json --json > out.json"),
        ("extrapolate --workers x", "--workers must be a whole number"),
        ("precision --length 32,768", "type 32768"),
        ("extrapolate --seeds 0-4", "type: --seeds 0,1,2,3,4"),
        ("help precision", "type: ropelab precision --help"),
        ("help", "type: ropelab --help"),
        ("precison --base 1e6", "type: ropelab precision --base 1e6"),
        ("freqs --model llama3.1", "did you mean 'llama-3.1-8b'? type: ropelab models"),
        ("freqs --model Qwen2.5", "did you mean 'qwen2.5-7b'?"),
        ("extrapolate --device gpu", "did you mean 'cuda'?"),
        ("freqs --seeds 3", "type: ropelab freqs --help"),
        ("freqs --theta 1e6 --ctx 4k", "type: ropelab freqs --base 1e6 --test-len 4k"),
        # Words for flags that a command lacks, which are spelt like others of it.
        ("precision --seeds 0,1", "type: ropelab precision --help"),
        ("precision --scale 4", "type: ropelab precision --help"),
        ("extrapolate --epochs 3", "type: ropelab extrapolate --help"),
        # A hidden size is no width of a head, and stored keys are no tables.
        ("freqs --hidden-size 4096", "type: ropelab freqs --help"),
        ("spectrum --hidden-size 64", "type: ropelab spectrum --width 64"),
        (
            "precision --kv-cache-dtype fp8_e4m3",
            "type: ropelab precision --cache fp8_e4m3",
        ),
        (
            "extrapolate --kv-cache-dtype bfloat16",
            "type: ropelab extrapolate --cache bfloat16",
        ),
        (
            "emit --model qwen3-8b --ctx 32k",
            "type: ropelab emit --model qwen3-8b --context 32k",
        ),
        (
            "emit qwen.json -c 64k",
            "type: ropelab emit --from qwen.json --context 64k",
        ),
        (
            "emit qwen.json --rope-scale=4",
            "type: ropelab emit --from qwen.json --context 131072",
        ),
        ("emit --model qwen3-8b --results r", "type: ropelab emit --help"),
        (
            "vectors --config qwen.json --model qwen3-8b",
            "type: ropelab vectors --config qwen.json --out vectors",
        ),
        (
            "vectors qwen.json --ctx 4k",
            "type: ropelab vectors --config qwen.json --length 4k --out vectors",
        ),
    ],
)
def test_a_mistake_is_one_line_with_what_to_type(
    typed: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("qwen.json").write_text(json.dumps(QWEN))
    with pytest.raises(SystemExit) as ended:
        main(typed.split())
    out, err = capsys.readouterr()
    assert (ended.value.code, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert [path.name for path in tmp_path.iterdir()] == ["qwen.json"]


@pytest.mark.parametrize(
    "command",
    ["freqs", "base", "precision", "extrapolate", "spectrum", "emit", "vectors"],
)
def test_no_flag_that_is_proposed_is_unknown(command: str) -> None:
    """Every word of the tables, typed beside what the command reads."""
    application = typer.main.get_command(make_application(command))
    assert isinstance(application, typer.core.TyperGroup)
    reader = application.commands[command]
    options = {flag for item in reader.params for flag in item.opts}

    Path("qwen.json").write_text(json.dumps(QWEN))
    names = [
        *TABLES["flags"],
        *(word for row in TABLES["words"].values() for word in row),
    ]
    proposals = 0
    for name in names:
        file = ["qwen.json"] if command in ("emit", "vectors") else []
        words = [*file, f"--{name}", "4"]
        try:
            reader.make_context(command, list(words))
        except typer.TyperException as error:
            said = explain_mistake([command, *words], error)
            _, _, line = said.partition("type: ropelab ")
            proposed = [word for word in line.split() if word.startswith("-")]
            assert set(proposed) <= {*options, "--help"}, said
            proposals += proposed != ["--help"]
    assert proposals


@pytest.mark.parametrize("command", ["audit", "check", "run", "export", "report"])
def test_an_empty_argument_is_not_the_working_folder(call, command: str) -> None:
    Path("config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    Path("x.toml").write_text('experiment = "freqs"\nhead_dim = 16\n')
    status, out, err = call(command, "")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert mentions(err, f"after '{command}'", "empty")
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("yarn factor=4", "yarn(factor=4)"),
        ("YaRN x4", "yarn(factor=4)"),
        ("yarn ×1.5", "yarn(factor=1.5)"),
        ("yarn factor=4 beta_fast=16", "yarn(factor=4, beta_fast=16)"),
    ],
)
def test_a_factor_beside_a_method_is_put_into_brackets(typed: str, meant: str) -> None:
    from ropelab.math.methods import parse_scaling

    with pytest.raises(InputError) as caught:
        parse_scaling(typed)
    assert f"'{meant}'" in str(caught.value)
    parse_scaling(meant)


@pytest.mark.parametrize(
    "words",
    [
        ("spectrum", "--results", "--quick"),
        ("freqs", "--base", "--json"),
        ("audit", "x.json", "--flags", "--json"),
    ],
)
def test_an_option_is_no_value_of_the_one_before(call, words):
    status, out, error = call(*words)
    assert (status, out) == (2, "")
    assert f"{words[-2]} has no value before {words[-1]}" in error
    assert not list(Path.cwd().iterdir())


def test_flags_without_values_may_follow_each_other(call):
    assert call("freqs", "--quiet", "--json", "--no-figures")[0] == 0


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("vectors --model q.json", "ropelab vectors --config q.json --out vectors"),
        ("vectors --model q.json -o v", "ropelab vectors --config q.json --out v"),
        (
            "emit --from q.json --context 64k -o out.json",
            "ropelab emit --from q.json --context 64k > out.json",
        ),
    ],
)
def test_a_suggested_command_can_be_run(line, meant, capsys):
    file = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
    file |= {"max_position_embeddings": 2048, "rope_theta": 10000.0}
    Path("q.json").write_text(json.dumps(file))
    with pytest.raises(SystemExit, match="2"):
        main(line.split())
    assert capsys.readouterr().err.rstrip().endswith(f"type: {meant}")
    words = meant.partition(" > ")[0].split()[1:]
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code in (0, 3)
