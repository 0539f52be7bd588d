"""What surrounds a command: streams of any kind, errors in one line, nothing that
steers.
"""

import errno
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ropelab.cli import outcome
from ropelab.cli.app import main
from ropelab.runs.errors import InputError, escape_controls
from tests.texts import mentions

ERRORS = [
    *(errno.ENOSPC, errno.EFBIG, errno.EMFILE, errno.ENAMETOOLONG, errno.EISDIR),
    *(errno.ENOTDIR, errno.ENOENT, errno.EIO, errno.EROFS, errno.EACCES, errno.ELOOP),
]


@pytest.mark.parametrize("number", ERRORS, ids=errno.errorcode.get)
def test_an_error_of_the_system_is_one_line(number, capsys):
    def command():
        raise OSError(number, os.strerror(number), "tables/x.csv")

    assert outcome.run_for_status(command) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert mentions(said, "ropelab:", os.strerror(number), "(tables/x.csv)")


@pytest.mark.parametrize(
    "error",
    [OSError("surprise"), RecursionError("deep"), OverflowError(), ImportError("x")],
)
def test_a_defect_is_one_line_and_its_traceback_a_file(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def command() -> None:
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert outcome.run_for_status(command) == 1
    (file,) = tmp_path.iterdir()
    name = type(error).__name__
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert mentions(said, "ropelab: a defect", file, name)
    assert file.read_text().startswith("Traceback")
    assert name in file.read_text()


@pytest.mark.parametrize(
    "error",
    [
        ImportError("x.so: failed to map segment: Cannot allocate memory"),
        ImportError("x.so: failed to map segment from shared object"),
        RuntimeError("CUDA out of memory. Tried to allocate 12.00 GiB."),
    ],
)
def test_too_little_memory_is_no_defect(
    capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def command() -> None:
        raise error

    assert outcome.run_for_status(command) == 1
    assert capsys.readouterr().err.startswith("ropelab: memory ran out")


@pytest.mark.processes
def test_a_closed_stdin_holds_no_configuration(tmp_path: Path) -> None:
    command = f"{sys.executable} -m ropelab audit - <&-"
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("name", ["stdin", "stdout", "stderr"])
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_program_without_streams_calls_commands(monkeypatch, name, is_closed) -> None:
    stream = None
    if is_closed:
        with Path(os.devnull).open() as stream:
            pass
    monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit) as ended:
        main(["audit", "-"] if name == "stdin" else ["methods"])
    getattr(sys, name).close()
    assert ended.value.code == (2 if name == "stdin" else 0)


@pytest.mark.processes
def test_warnings_of_libraries_do_not_reach_stderr(tmp_path: Path) -> None:
    options = ["--base", "1.7e308", "--head-dim", "1024", "--train-len", "64"]
    # matplotlib logs that it has no folder for its list of fonts.
    env = {**os.environ, "HOME": "/dev/null", "MPLCONFIGDIR": "/dev/null"}
    done = ropelab("freqs", *options, cwd=tmp_path, env=env, capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_memory_is_one_line(capsys):
    def command():
        raise MemoryError

    assert outcome.run_for_status(command) == 1
    assert capsys.readouterr().err.startswith("ropelab: memory ran out")


STEERING = "\x1b[2J\x9b31m\u202ename\x7f\udcff"


def test_what_steers_a_terminal_is_written_out(capsys):
    def command():
        raise InputError(f"no such corpus {STEERING}")

    assert escape_controls(STEERING) == r"\x1b[2J\x9b31m\u202ename\x7f\udcff"
    assert outcome.run_for_status(command) == 2
    outcome.print_line(STEERING)
    out, err = capsys.readouterr()
    plain = r"\x1b[2J\x9b31m\u202ename\x7f\udcff"
    assert out == f"{plain}\n"
    assert err == f"ropelab: no such corpus {plain}\n"


def ropelab(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "ropelab", *arguments], text=True, **options
    )


@pytest.mark.processes
@pytest.mark.parametrize("encoding", ["ascii", "cp437"])
@pytest.mark.parametrize("arguments", [["methods", "--json"], ["methods"]], ids=len)
def test_every_encoding_of_stdout_takes_what_is_told(encoding, arguments):
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "ropelab", *arguments],
        env=environment,
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode(encoding)
    if "--json" in arguments:
        assert json.loads(text) == json.loads(
            ropelab(*arguments, capture_output=True).stdout
        )


@pytest.mark.processes
@pytest.mark.parametrize("closed", ["1", "2", "0 1 2"])
def test_closed_streams_disturb_nothing(tmp_path, closed):
    closing = " ".join(f"{number}>&-" for number in closed.split())
    command = (
        f"{sys.executable} -m ropelab base --context 64 --results results --json"
        f" {closing}"
    )
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if "1" not in closed:
        assert json.loads(done.stdout)["experiment"] == "base"
    assert len(list(tmp_path.glob("results/base/*/manifest.json"))) == 1


@pytest.mark.processes
def test_a_reader_that_goes_away_is_no_error_message():
    command = f"{sys.executable} -m ropelab methods | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""


@pytest.mark.processes
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110
def test_a_full_stdout_is_one_line():
    done = subprocess.run(
        f"{sys.executable} -m ropelab methods > /dev/full",
        shell=True,
        capture_output=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"ropelab: No space left on device")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.processes
@pytest.mark.parametrize(
    "name",
    [
        *(
            "../x.md",
            "sub/x.md",
            "/tmp/x.md",
            "..",
            ".",
            "",
            "two\nlines.md",
            "a\x1b.md",
        ),
        *(".cells", "freqs", "index.html", ".md", "x" * 300 + ".md"),
    ],
)
def test_an_index_outside_the_results_is_refused(tmp_path, name):
    done = ropelab("run", "x.toml", "--index", name, cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert mentions(done.stderr, "--index")
    assert (done.stderr.count("\n"), "\x1b" in done.stderr) == (1, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
@pytest.mark.parametrize(
    "kind", ["a pipe", "a device", "large", "a folder", "deep", "not text"]
)
def test_what_is_no_config_file_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "x.toml"
    content = {
        "large": b"#" * (2**20 + 1),
        "deep": b"x = " + b"[" * 5000 + b"]" * 5000,
        "not text": b"\xff\xfe",
    }
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a folder":
        path.mkdir()
    else:
        path.write_bytes(content[kind])
    done = ropelab(
        "base", "--config", str(path), cwd=tmp_path, capture_output=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert str(path) in done.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with one finished run of freqs."""
    folder = tmp_path_factory.mktemp("finished")
    done = ropelab("freqs", "--quiet", "--no-figures", cwd=folder)
    assert done.returncode == 0
    return folder / "results"


@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [
        *(["freqs", "--results", "\udcff"], ["run", "freqs", "--results", "\udcff"]),
        *(["extrapolate", "--corpus", "\udcff"], ["extrapolate", "--corpus", "text"]),
        *(["run", "configs"], ["report", "\udcff"], ["report", "--title", "\udcff"]),
    ],
    ids=" ".join,
)
def test_a_name_that_is_not_utf_8_is_refused_at_the_start(
    tmp_path: Path, finished: Path, arguments: list[str]
) -> None:
    shutil.copytree(finished, tmp_path / "results")
    shutil.copytree(finished, tmp_path / "\udcff")
    for folder, content in (
        ("text", "words " * 20_000),
        ("configs", 'experiment = "freqs"'),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "\udcff.toml").write_text(content)
    before = sorted(tmp_path.rglob("*"))
    done = ropelab(*arguments, cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert mentions(done.stderr, "not a name", "UTF-8")
    assert done.stderr.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.processes
def test_a_run_whose_name_is_not_utf_8_is_left_out(
    tmp_path: Path, finished: Path
) -> None:
    shutil.copytree(finished, tmp_path / "results")
    (run,) = (tmp_path / "results/freqs").iterdir()
    shutil.copytree(run, run.with_name("\udcff-1"))
    done = ropelab("run", "freqs", cwd=tmp_path, capture_output=True)
    assert done.returncode == 0
    assert mentions(done.stderr, "left out:", r"results/freqs/\udcff-1", "UTF-8")


@pytest.mark.processes
def test_a_working_folder_that_is_gone_is_one_line(tmp_path):
    command = f"rmdir {tmp_path}/gone; {sys.executable} -m ropelab base --context 64"
    (tmp_path / "gone").mkdir()
    done = subprocess.run(
        command, shell=True, cwd=tmp_path / "gone", capture_output=True, text=True
    )
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ropelab: ")


# A control of eight bits, marks of direction, line ends of Unicode, DEL, a tag beyond
# the first plane, an unpaired surrogate.
UNSEEN = [
    "\x9b",
    "\u202e",
    "\u2028",
    "\u2029",
    "\x7f",
    "\u200b",
    "\U000e0041",
    "\ud800",
]


def test_a_document_has_null_for_numbers_that_json_lacks(capsys) -> None:
    outcome.print_document({"rows": [{"nan": math.nan, "inf": (-math.inf, 1.5)}]})
    read = json.loads(capsys.readouterr().out)
    assert read == {"rows": [{"nan": None, "inf": [None, 1.5]}]}


@pytest.mark.parametrize("letter", UNSEEN)
def test_a_document_holds_nothing_that_steers_a_terminal(letter, capsys):
    document = {f"key{letter}": [f"a{letter}b", "größer"]}
    outcome.print_document(document)
    out = capsys.readouterr().out
    assert letter not in out
    assert "größer" in out
    assert json.loads(out) == document


def test_an_error_of_any_length_is_a_line_that_can_be_read(capsys) -> None:
    def fail() -> None:
        raise InputError("what is wrong " * 10**5 + "and why")

    assert outcome.run_for_status(fail) == 2
    line = capsys.readouterr().err
    assert line.startswith("ropelab: what is wrong")
    assert " ... " in line
    assert line.endswith(" and why\n")
    assert len(line) < 4100


def test_a_system_without_devices_runs_commands(monkeypatch, capsys) -> None:
    """A sandbox may have an empty /dev."""
    monkeypatch.setattr(os, "devnull", "/proc/nowhere/null")
    monkeypatch.setattr(sys, "stdin", None)
    assert outcome.run_for_status(lambda: 0) == 0
    assert sys.stdin.read() == ""
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [KeyError("COMP_WORDS"), ValueError("int")])
def test_a_shell_that_gives_no_words_is_no_defect(monkeypatch, capsys, error) -> None:
    def complete() -> None:
        raise error

    monkeypatch.setenv(outcome.COMPLETION, "complete_bash")
    assert outcome.run_for_status(complete) == 2
    assert mentions(capsys.readouterr().err, "ropelab:", "COMP_WORDS")
