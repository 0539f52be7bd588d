"""What newcomers type: one line that says what to type instead, status 2, nothing
written.
"""

import json
from pathlib import Path

import pytest

from ropelab.cli.app import main
from tests.test_cli import call

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
        ("freqs qwen.json", "type: ropelab audit qwen.json"),
        ("base qwen.json", "type: ropelab audit qwen.json"),
        ("precision qwen.json", "type: ropelab audit qwen.json"),
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
        ("precision --formats bf61", "did you mean 'bfloat16'?"),
        ("precision --config qwen.json", "type: ropelab audit qwen.json"),
        ("run qwen.json", "type: ropelab audit qwen.json"),
        ("freqs --base 500k", "type 500000"),
        ("precision --length 32,768", "type 32768"),
        ("extrapolate --seeds 0-4", "type: --seeds 0,1,2,3,4"),
        ("help precision", "type: ropelab precision --help"),
        ("help", "type: ropelab --help"),
        ("precison", "type: ropelab --help"),
        ("freqs --model llama3.1", "did you mean 'llama-3.1-8b'? type: ropelab models"),
        ("freqs --model Qwen2.5", "did you mean 'qwen2.5-7b'?"),
        ("extrapolate --device gpu", "did you mean 'cuda'?"),
        ("freqs --seeds 3", "type: ropelab freqs --help"),
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


@pytest.mark.parametrize("command", ["audit", "check", "run", "export", "report"])
def test_an_empty_argument_is_not_the_working_folder(call, command: str) -> None:
    Path("config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    Path("x.toml").write_text('experiment = "freqs"\nhead_dim = 16\n')
    status, out, err = call(command, "")
    assert (status, out, err) == (
        2,
        "",
        f"ropelab: the argument after '{command}' is empty\n",
    )
    assert not Path("results").exists()
