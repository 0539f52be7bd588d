"""Things that are no ordinary text, given as a corpus: used, or refused in one line."""

import os
import random
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import typer

from ropelab import lab
from ropelab.models.lm.corpus import MOST_BYTES
from ropelab.plan import Plan
from tests.stress.bench import told
from tests.stress.promise import Trial, one_line

LONG = b"the quick brown fox jumps over the lazy dog; " * 2000
STEERING = "\x1b[2J\x1b]0;title\x07\x9b31m"

Maker = Callable[[Path], object]


def _socket(path: Path) -> str:
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.relpath(path))
    server.close()
    return str(path)


def _deep(path: Path) -> str:
    """A folder so deep that its path cannot be given to the system at once."""
    path.mkdir()
    here = Path.cwd()
    os.chdir(path)
    for _ in range(40):
        Path("x" * 200).mkdir()
        os.chdir("x" * 200)
    Path("text").write_bytes(LONG)
    os.chdir(here)
    return str(path)


def _loop(path: Path) -> None:
    path.mkdir()
    (path / "again").symlink_to(path)
    (path / "text").write_bytes(LONG)


def _sparse(size: int) -> Maker:
    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    return make


def _in_folder(make: Maker, name: str = "odd") -> Maker:
    def made(path: Path) -> None:
        path.mkdir()
        for number in range(20):
            text = random.Random(number).choices("abcdefgh ", k=2000)
            (path / f"{number}.txt").write_text("".join(text))
        make(path / name)

    return made


def _gone(path: Path) -> None:
    path.symlink_to(path.with_name("nowhere"))


def _bytes(content: bytes) -> Maker:
    return lambda path: path.write_bytes(content)


def _many(path: Path) -> None:
    path.mkdir()
    for number in range(3000):
        (path / f"{number}.txt").write_bytes(b"%d " % number + LONG[: number % 500])


def _hidden(path: Path) -> None:
    path.mkdir()
    (path / ".hidden").write_bytes(LONG)


def _copies(path: Path) -> None:
    path.mkdir()
    for number in range(30):
        (path / str(number)).write_bytes(LONG)


PLACES: Mapping[str, Maker] = {
    "nothing": lambda path: None,
    "an empty file": Path.touch,
    "an empty folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a socket": _socket,
    "a link to nothing": _gone,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a folder that holds itself": _loop,
    "a very deep folder": _deep,
    "three thousand files": _many,
    "a terabyte without content": _sparse(2**40),
    "one byte more than allowed": _sparse(MOST_BYTES + 1),
    "a gigabyte of nothing": _sparse(MOST_BYTES // 8),
    "one byte": _bytes(b"x"),
    "one line": _bytes(b"a line\n"),
    "zero bytes": _bytes(bytes(10_000)),
    "a zero byte at the start": _bytes(b"\0" + LONG),
    "a zero byte far inside": _bytes(LONG + b"\0" + LONG),
    "the same letter": _bytes(b"a" * 100_000),
    "only line ends": _bytes(b"\n" * 100_000),
    "bytes that are no UTF-8": _bytes(bytes(range(1, 256)) * 400),
    "UTF-16": _bytes("text ".encode("utf-16") * 5000),
    "a byte-order mark": _bytes(b"\xef\xbb\xbf" + LONG),
    "control characters": _bytes(STEERING.encode() * 5000),
    "a folder with a pipe": _in_folder(os.mkfifo),
    "a folder with a socket": _in_folder(_socket),
    "a folder with a device": _in_folder(lambda path: path.symlink_to("/dev/zero")),
    "a folder with a dead link": _in_folder(_gone),
    "a folder with a link to itself": _in_folder(lambda path: path.symlink_to(path)),
    "a folder with a terabyte": _in_folder(_sparse(2**40)),
    "a folder with an undecodable name": _in_folder(
        _bytes(LONG), os.fsdecode(b"\xff\xfe")
    ),
    "a folder with a steering name": _in_folder(_bytes(LONG), "\x1b[2Jname"),
    "a folder with a name of two lines": _in_folder(_bytes(LONG), "two\nlines"),
    "a folder with hidden files only": _hidden,
    "a folder with copies only": _copies,
}
TEXTS: Mapping[str, str] = {
    "no name": "",
    "a name of 300 letters": "x" * 300,
    "a path of 10,000 letters": "x/" * 5000,
    "a zero byte in the name": "corpus\0name",
    "a name that cannot be encoded": "\udcff\udcfe",
    "a name that steers the terminal": STEERING,
    "a name of two lines": "two\nlines",
    "a file as if it were a folder": f"{__file__}/x",
    "the root's processes": "/proc/self/fd",
    "its own memory": "/proc/self/mem",
    "the kernel's memory": "/proc/kcore",
    "a URL": "https://example.org/corpus.txt",
    "a home that is not there": "~nobody/corpus",
}
FEW = 9
"""Every so many of them are tried in a small share."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per odd thing: the command is checked as far as its training would
    begin.
    """
    given = dict(TEXTS)
    for number, (what, make) in enumerate(list(PLACES.items())[:: FEW if few else 1]):
        place = folder / str(number)
        make(place)
        given[what] = str(place)
    ordinary = folder / "ordinary"
    ordinary.write_bytes(LONG)
    yield one("ordinary text", str(ordinary), allowed=("used",))
    for what, corpus in given.items():
        yield one(what, corpus)


def one(
    what: str, corpus: str, allowed: tuple[str, ...] = ("used", "refused")
) -> Trial:
    """A command with that corpus: refused in one line, or its corpus is used."""
    used: list[str] = []

    def stop(self: object, plans: Sequence[Plan]) -> None:
        used.append(plans[0].config.inputs()["corpus"])
        # The end of a command that typer knows; others count as code that ends it.
        raise typer.Exit(0)

    before, lab.Lab.run_all = lab.Lab.run_all, stop  # type: ignore[assignment, method-assign]
    problems: list[str] = []
    try:
        short = (
            "--train-len",
            "256",
            "--documents",
            "2",
            "--results",
            "/nowhere/at/all",
        )
        answer = told("base-empirical", "--corpus", corpus, *short)
        if answer.status or not used:
            problems += one_line(answer) if "refused" in allowed else [answer.err]
            if any(ord(letter) < 32 for letter in answer.err.rstrip("\n")):
                problems.append(f"steers the terminal: {answer.err!r}")
    except Exception as failure:
        problems.append(f"{type(failure).__name__}: {failure}")
    finally:
        lab.Lab.run_all = before  # type: ignore[method-assign]
    return Trial(what, "; ".join(problems))
