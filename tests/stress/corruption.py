"""Every file of a run and of its cells is damaged, and all commands that read them are
given.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from itertools import cycle
from pathlib import Path

from tests.stress.bench import NAME, Told, command, told
from tests.stress.promise import State, Trial, everything, one_line, state
from tests.stress.scenes import config_of, config_of_training, of_file

FLIPS = 16
"""Bytes of each file of which one bit is turned, one at a time."""
FEW = 2
"""Ways in which each file is damaged in a small share."""

Damage = Callable[[Path], object]


def _instead(make: Damage) -> Damage:
    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def _flipped(place: float, bit: int) -> Damage:
    """Turns one bit of a file, at a share of its length."""

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(place * len(content))] ^= 1 << bit
        path.write_bytes(content)

    return flip


WAYS: Mapping[str, Damage] = {
    "a cut": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "something appended": lambda path: path.write_bytes(path.read_bytes() + b"1,2\n"),
    "gone": Path.unlink,
    "a folder": _instead(Path.mkdir),
    "a pipe": _instead(os.mkfifo),
    "an endless device": _instead(lambda path: path.symlink_to("/dev/zero")),
}


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per file, damage and command that reads the file."""
    whole, results, chance = folder / "whole", folder / "results", random.Random(0)
    config = config_of(folder)
    told(*command(whole))
    (run,) = (whole / NAME).iterdir()
    made = {"again": command(results), "run": of_file(config, results)}
    read: dict[str, tuple[str, ...]] = {
        "report": ("report", "--results", str(results)),
        "export": ("export", str(results / NAME / run.name)),
    }
    right, texts = {}, {}
    for name, arguments in (made | read).items():
        _begin(whole, results)
        texts[name] = told(*arguments).out
        right[name] = state(results)
    for name in sorted(
        str(p.relative_to(whole)) for p in whole.rglob("*") if p.is_file()
    ):
        if name.startswith(".cells/steps"):
            continue  # no hashes, which checkpoints have
        turned = [(chance.random(), chance.randrange(8)) for _ in range(FLIPS)]
        ways = {
            **WAYS,
            **{f"bit {bit} at {at:.4f}": _flipped(at, bit) for at, bit in turned},
        }
        turns = cycle((made | read).items())
        for way in chance.sample(sorted(ways), FEW) if few else ways:
            of_run = name.startswith(NAME)
            for each, arguments in (made | read if of_run else made).items():
                if few and of_run and each != next(turns)[0]:
                    continue
                _begin(whole, results)
                if not of_run:  # nobody reads cells whose run is there
                    shutil.rmtree(results / NAME)
                ways[way](results / name)
                before = state(results) if each in read else {}
                answer = told(*arguments)
                problems = (
                    _read(answer, results, before, right[each], texts[each])
                    if each in read
                    else everything(answer, results, right[each])
                )
                yield Trial(f"{each}, {name}: {way}", "; ".join(problems))

    yield from checkpoints(folder, few)


def checkpoints(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per damage of a checkpoint that is read to evaluate its model."""
    results, trained = folder / "results", folder / "trained"
    arguments = of_file(config_of_training(folder), results)
    shutil.rmtree(results)
    told(*arguments)
    right = state(results)
    shutil.copytree(results / ".cells/model", trained / ".cells/model")
    turned = [
        (chance.random(), chance.randrange(8))
        for chance in map(random.Random, range(FEW))
    ]
    ways = {
        **WAYS,
        **{f"bit {bit} at {at:.4f}": _flipped(at, bit) for at, bit in turned},
    }
    for what, damage in list(ways.items())[: 2 if few else None]:
        _begin(trained, results)
        damage(min(results.rglob("checkpoint.safetensors")))
        problems = everything(told(*arguments), results, right)
        yield Trial(f"checkpoint: {what}", "; ".join(problems))


def _begin(whole: Path, results: Path) -> None:
    shutil.rmtree(results, ignore_errors=True)
    shutil.copytree(whole, results)


def _read(
    told: Told, results: Path, before: State, right: State, text: str
) -> Iterator[str]:
    """Problems of a command that only reads: it says what is wrong, or shows what is
    right.
    """
    now = state(results)
    pages = {unit for unit in now if unit.startswith("index.")}
    if any(now[unit] != before.get(unit) for unit in now.keys() - pages):
        yield "something was changed"
    if told.status:
        yield from one_line(told)
    elif not told.err and (
        told.out != text or any(now[unit] != right[unit] for unit in pages)
    ):
        yield "something else was shown, without a word"
