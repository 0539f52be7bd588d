"""Values, files and folders in forms that people and other tools give them.

Numbers in every option that takes one, keys and types of GGUF files, text in the place
of a configuration, runs that were moved, merged or edited. Each is used as it is meant,
or refused in one line.
"""

import contextlib
import json
import re
import shutil
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ropelab import experiments
from tests.readers.test_gguf import FIELDS, as_array, as_field, write_raw
from tests.stress import mutations
from tests.stress.bench import NAME, command, told
from tests.stress.promise import Trial, one_line

NUMBERS = (
    *("0", "-1", "-0.0", "1e308", "1e400", "1e-400", "nan", "inf", "-inf", "0x10"),
    *("1_000", "1__0", "1_", " 5", "5 ", "5\t", "٥", "５", "²", "5,", "1,000"),
    *("1.000,5", "1/2", "2^3", "2**3", "1k", "1.5k", "1e3k", "1kk", "true", "None"),
    *("5.0", "5.5", "+5", "--5", "5 tokens", "1j", "9" * 400, "1e00005", ".5", "5."),
)
EVERY = 5
"""Of these each fifth is tried with an option, others with the next one."""
MODEL = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}
TEXT = json.dumps(MODEL)
TEXTS: Mapping[str, bytes] = {
    "two values": f'{TEXT[:-1]}, "rope_theta": 5e5}}'.encode(),
    "marks of a merge": f"<<<<<<< a\n{TEXT}\n=======\n{TEXT}\n>>>>>>> b\n".encode(),
    "a pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "a page": b"<!DOCTYPE html>\n<html>",
    "two documents": TEXT.encode() * 2,
    "a byte order mark": b"\xef\xbb\xbf" + TEXT.encode(),
    "UTF-16": TEXT.encode("utf-16"),
    "UTF-32": TEXT.encode("utf-32"),
    "zero bytes behind": TEXT.encode() + bytes(100),
    "a decimal comma": TEXT.replace("10000.0", '"10.000,0"').encode(),
    "a number in hexadecimal": TEXT.replace("10000.0", "0x10").encode(),
    "lists in lists": f'{TEXT[:-1]}, "a": {"[" * 90_000}{"]" * 90_000}}}'.encode(),
    "many keys": json.dumps({**MODEL, **dict.fromkeys(map(str, range(9000)))}).encode(),
    "a number as text": TEXT.replace("256", '"256"').encode(),
    "true for a number": TEXT.replace("256", "true").encode(),
    "a block by another name": f'{TEXT[:-1]}, "rope_scalling": {{"factor": 4}}}}'.encode(),
}
BASE = "llama.rope.freq_base"
CHANGES: Mapping[str, Mapping[str, bytes]] = {
    "a key twice": {"again": FIELDS["freq_base"]},
    "a base in float64": {"freq_base": as_field(BASE, "float64", 5e5)},
    "a base in uint32": {"freq_base": as_field(BASE, "uint32", 500000)},
    "a base in text": {"freq_base": as_field(BASE, "string", "5e5")},
    "a base as a list": {"freq_base": as_array(BASE, 6, bytes(4), 1)},
    "a list of lists": {"more": as_array("other", 9, struct.pack("<IQI", 4, 1, 7), 1)},
    "an alignment of 0": {"more": as_field("general.alignment", "uint32", 0)},
    "an alignment of 7": {"more": as_field("general.alignment", "uint32", 7)},
    "an alignment in text": {"more": as_field("general.alignment", "string", "32")},
    "no architecture": {
        "general.architecture": as_field("general.architecture", "uint32", 1)
    },
}


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Numbers, files of models, and folders of runs; the same ones every time."""
    yield from _numbers(folder, few)
    yield from _models(folder)
    yield from _has_all_functions(folder)


def _numbers(folder: Path, few: bool) -> Iterator[Trial]:
    turn = 0
    with mutations.checked_only() as plans:
        for name in experiments.NAMES:
            fields = experiments.load(name).config.model_fields
            for field, about in fields.items():
                if not re.search("int|float", str(about.annotation)):
                    continue
                turn += 1
                if few and turn % 20:
                    continue
                for number in NUMBERS[turn % EVERY :: EVERY]:
                    flag = f"--{field.replace('_', '-')}={number}"
                    line = (name, flag, "--results", str(folder / "r"))
                    yield mutations.one(line, f"{name} {flag}", plans)


def _models(folder: Path) -> Iterator[Trial]:
    here = folder / "models"
    here.mkdir()
    with contextlib.chdir(here):
        for what, content in TEXTS.items():
            Path("config.json").write_bytes(content)
            for line in (
                ("audit", "config.json"),
                ("emit", "--from", "config.json", "--context", "8192"),
            ):
                yield _told(f"config.json, {what}", line)
        for what, changes in CHANGES.items():
            write_raw(Path("model.gguf"), dict(changes))
            yield _told(f"GGUF, {what}", ("audit", "model.gguf"), refused=True)


def _told(what: str, line: tuple[str, ...], refused: bool = False) -> Trial:
    problems: list[str] = []
    try:
        answer = told(*line)
        if refused or answer.status not in (0, 3):
            problems += one_line(answer)
    except Exception as failure:
        problems.append(f"{type(failure).__name__}: {failure}")
    return Trial(f"{' '.join(line[:2])}: {what}", "; ".join(problems))


def _move(run: Path) -> None:
    run.rename(run.with_name(f"renamed{run.name[-9:]}"))


def _on_text(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def edit(run: Path) -> None:
        for path in run.rglob("*"):
            if path.suffix in (".csv", ".toml", ".json"):
                path.write_bytes(change(path.read_bytes()))

    return edit


def _merge(content: bytes) -> bytes:
    return b"<<<<<<< a\n" + content + b"=======\n" + content + b">>>>>>> b\n"


EDITS: Mapping[str, Callable[[Path], object]] = {
    "renamed": _move,
    "copied into itself": lambda run: shutil.copytree(
        run,
        run / "copy",
        ignore=lambda place, names: ["copy"] if "copy" in names else [],
    ),
    "without figures": lambda run: shutil.rmtree(run / "figures"),
    "half copied": lambda run: (run / "manifest.json").rename(
        run / ".manifest.json.aB"
    ),
    "merged": _on_text(_merge),
    "with line ends of Windows": _on_text(lambda text: text.replace(b"\n", b"\r\n")),
    "with byte order marks": _on_text(lambda text: b"\xef\xbb\xbf" + text),
    "with decimal commas": _on_text(lambda text: text.replace(b".", b",")),
    "without the last line end": _on_text(lambda text: text.rstrip(b"\n")),
}


def _has_all_functions(folder: Path) -> Iterator[Trial]:
    whole, results = folder / "whole", folder / "results"
    told(*command(whole))
    for what, edit in EDITS.items():
        for more in ((), ("--force",)):
            shutil.rmtree(results, ignore_errors=True)
            shutil.copytree(whole, results)
            (run,) = (results / NAME).iterdir()
            (run / "notes.md").write_text("mine")
            edit(run)
            answer = told(*command(results, *more))
            problems = [] if answer.status == 0 else [*one_line(answer)]
            (kept,) = (results / NAME).iterdir()
            if (kept / "notes.md").read_text() != "mine":
                problems.append("a file of the user's is lost")
            for name in ("tables/bench.csv", "config.toml", "metrics.json"):
                (right,) = whole.glob(f"{NAME}/*/{name}")
                if (kept / name).read_bytes() != right.read_bytes():
                    problems.append(f"not right: {name}")
            yield Trial(f"run {what} {' '.join(more)}", "; ".join(problems))
