"""The wheel in an empty environment without torch: its size, and each command that
needs none.
"""

import json
import subprocess
import sys
from importlib.metadata import distribution, distributions
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from tests.installed.try_wheel import ROOT, elsewhere, wheel

pytestmark = pytest.mark.installed

# Bytes that an installation without extras may take, without pip itself and the bytecode of
# ropelab.
MOST = 303_000_000
HEAVY = ("torch", "scipy", "transformers")
CONFIG = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}


class Done(NamedTuple):
    status: int
    out: str
    err: str


def ran(*command: object, at: Path) -> Done:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=at,
        env=elsewhere(),
        capture_output=True,
        text=True,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment in which pip has installed the wheel and what it
    requires.
    """
    at = tmp_path_factory.mktemp("light")
    built, environment = wheel(at), at / "environment"
    # This environment's pip installs into the other one, which needs none of its own. It
    # leaves out bytecode, of which the commands below need but a part.
    ran(sys.executable, "-m", "venv", "--without-pip", environment, at=at)
    lock = ROOT / "requirements.lock"
    # The versions of the lock; its hashes belong to files that may not be those of this
    # machine.
    pins = [line.split()[0] for line in lock.read_text().splitlines() if "==" in line]
    (at / "pins.txt").write_text("\n".join(pins))
    python = environment / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-compile"]
    silent = ["--quiet", "--retries", "1", "--disable-pip-version-check"]
    done = ran(*pip, *silent, "--constraint", at / "pins.txt", built, at=at)
    if done.status:
        pytest.skip(f"nothing can be installed here: {done.err.splitlines()[-1]}")
    (at / "work").mkdir()
    (at / "work" / "config.json").write_text(json.dumps(CONFIG))
    positions = np.arange(64)
    angles = positions[:, None] * 10000.0 ** (-np.arange(32) / 32)
    np.savez(at / "work" / "table.npz", cos=np.cos(angles), sin=np.sin(angles))
    return at


@pytest.fixture
def call(installed: Path):
    """Type a command in a folder with a configuration and a table."""

    def typed(command: str) -> Done:
        ropelab = installed / "environment" / "bin" / "ropelab"
        return ran(ropelab, *command.split(), at=installed / "work")

    return typed


def test_it_is_small(installed: Path) -> None:
    (packages,) = (installed / "environment").glob("lib/python*/site-packages")
    assert not {each.name for each in packages.iterdir()} & {*HEAVY}

    size = 0
    for package in distributions(path=[str(packages)]):
        # The same version lies in this environment as pip installs it, with bytecode.
        compiled = package
        if package.name != "ropelab":
            compiled = distribution(package.name)
            assert compiled.version == package.version
        size += sum(Path(file.locate()).stat().st_size for file in compiled.files or ())
    assert 50_000_000 < size < MOST


@pytest.mark.parametrize(
    "command",
    [
        "audit config.json",
        "audit config.json --json --figures drawn",
        "emit --from config.json --context 8k --target all",
        "check table.npz --config config.json",
        "vectors --config config.json --out made --length 64",
        "schema audit",
        "freqs --model llama-3.1-8b",
        "base --context 4096",
        "precision --length 256 --long-lengths 512",
        "methods",
        "models",
        "claims --id note-004-mask",
        "claims --id three-forms",
        "run smoke/freqs",
        "run",
        "report",
        "explore",
    ],
)
def test_what_needs_no_torch_answers(call, command: str) -> None:
    done = call(command)
    # emit says with status 3 what a runtime cannot hold.
    assert done.status == (3 if command.startswith("emit") else 0), done.err
    assert done.out
    assert "defect" not in done.err


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("extrapolate", "train"),
        ("extrapolate --device cpu --dtype float32", "train"),
        ("encodings", "train"),
        ("spectrum", "train"),
        ("base-empirical", "train"),
        ("run smoke/extrapolate", "train"),
        ("evaluate .", "hf"),
    ],
)
def test_what_needs_torch_says_in_one_line_what_to_type(
    call, command: str, extra: str
) -> None:
    done = call(command)
    assert (done.status, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert done.err.endswith(f"type: pip install '.[{extra}]'\n")


def test_a_model_folder_is_not_checked_without_transformers(call) -> None:
    done = call("check . --config config.json")
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert "pip install" in done.err


def test_the_claims_that_need_torch_have_the_committed_findings(call) -> None:
    rows = json.loads(call("claims --json").out)["tables"]["claims"]
    sources = {row["id"]: row["decided_from"] for row in rows}
    assert sources["note-004-mask"] == "committed results, without torch"
    assert sources["three-forms"] == "here"


def test_from_python_the_same_sentence_is_an_input_error(installed: Path) -> None:
    code = (
        "import ropelab\nfrom ropelab.runs.errors import InputError\n"
        "try:\n    ropelab.extrapolate()\nexcept InputError as error:\n    print(error)"
    )
    python = installed / "environment" / "bin" / "python"
    done = ran(python, "-c", code, at=installed)
    assert "type: pip install '.[train]'" in done.out, done.err
