"""What ropelab did not write is not replaced, and no option takes an empty name."""

import json
from pathlib import Path

import pytest

from tests.test_cli import call

__all__ = ["call"]  # a fixture

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "rope_theta": 1e4,
}
FREQS = 'experiment = "freqs"\nhead_dim = 16\n'


@pytest.fixture
def inputs(call):
    Path("model.json").write_text(json.dumps(LLAMA))
    Path("x.toml").write_text(FREQS)
    return call


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("vectors --config model.json --out out", "out/README.md"),
        ("vectors --config model.json --out out", "out/vectors.json"),
        ("vectors --config model.json --out out", "out/about.json"),
        ("run x.toml --results out", "out/index.html"),
        ("run x.toml --results out", "out/index.md"),
        ("run x.toml --results out --index README.md", "out/README.md"),
        ("explore -o out/page.html", "out/page.html"),
        ("audit model.json --figures out", "out/ratios.png"),
    ],
)
def test_a_foreign_file_is_not_replaced_and_our_own_is(inputs, command, file):
    assert inputs(*command.split())[0] == 0
    path = Path(file)
    if not path.exists():
        pytest.fail(f"{command} writes {[*map(str, Path('out').rglob('*'))]}")
    # Again, over what it wrote itself.
    assert inputs(*command.split())[0] == 0

    for other in sorted(Path("out").glob("*")):
        if other.is_file():
            other.unlink()
    path.write_text("mine\n")
    status, out, err = inputs(*command.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert str(path) in err
    assert path.read_text() == "mine\n"


def test_foreign_files_are_seen_before_anything_is_computed(inputs):
    Path("web").mkdir()
    Path("web/index.html").write_text("<title>mine</title>")
    assert inputs("run", "x.toml", "--results", "web")[0] == 2
    assert sorted(path.name for path in Path("web").iterdir()) == ["index.html"]


@pytest.mark.parametrize("kind", ["csv", "markdown", "latex"])
def test_exports_replace_their_own_files_alone(inputs, kind):
    assert inputs("run", "x.toml", "-q")[0] == 0
    run = next(Path("results/freqs").iterdir())
    export = ["export", run, "--format", kind, "-o", "out"]
    assert inputs(*export)[0] == 0
    assert inputs(*export)[0] == 0
    written = next(path for path in Path("out").iterdir() if path.name[0] != ".")
    written.write_text("mine\n")
    assert inputs(*export)[0] == 2
    assert written.read_text() == "mine\n"


EMPTY = [
    "freqs --results",
    "freqs --config",
    "freqs --model",
    "freqs --method",
    "freqs --format",
    "run x.toml --results",
    "run x.toml --shard",
    "run x.toml --index",
    "extrapolate --corpus",
    "extrapolate --address",
    "report --results",
    "report -o",
    "report --output",
    "explore -o",
    "export results -o",
    "audit model.json --figures",
    "audit model.json --runtime",
    "emit --context 8k --from",
    "check model.json --config",
    "vectors --config model.json --out",
    "vectors --out out --config",
    "run x.toml --quiet",
]


@pytest.mark.parametrize("command", EMPTY)
def test_an_option_with_an_empty_value_is_refused(inputs, command):
    before = sorted(Path().rglob("*"))
    status, out, err = inputs(*command.split(), "")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "is empty" in err
    if command.split()[-1].startswith("--"):
        assert inputs(f"{command}=".split()[0], *f"{command}=".split()[1:])[0] == 2
    assert sorted(Path().rglob("*")) == before


def test_python_refuses_an_empty_folder_of_results():
    import ropelab
    from ropelab.runs.errors import InputError

    with pytest.raises(InputError, match="results is empty"):
        ropelab.freqs(head_dim=16, results="")
