"""Every file of a run and of its cells is damaged, in each way, and in each of many bytes."""

import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.stress.bench import NAME, command, told
from tests.stress.promise import Trial, all_right, said_in, tables_in

FLIPS = 40
"""Bytes of each file of which one bit is turned, one at a time."""

FEW = 3
"""Ways in which each file is damaged in a small share."""


def _link_to_zeros(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


WAYS: Mapping[str, Callable[[Path], object]] = {
    "a cut": _cut,
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "something appended": lambda path: path.write_bytes(path.read_bytes() + b"1,2\n"),
    "gone": Path.unlink,
    "a folder": _folder,
    "a pipe": _pipe,
    "an endless device": _link_to_zeros,
}


def flipped(place: float, bit: int) -> Callable[[Path], object]:
    """Turns one bit of a file, at a share of its length."""

    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(place * len(content))] ^= 1 << bit
        path.write_bytes(content)

    return flip


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per file and damage; then the same with several files damaged at once."""
    whole, results, chance = folder / "whole", folder / "results", random.Random(0)
    told(*command(whole))
    right, said = tables_in(whole), said_in(whole)
    for name in sorted(str(p.relative_to(whole)) for p in whole.rglob("*") if p.is_file()):
        turned = [(chance.random(), chance.randrange(8)) for _ in range(FLIPS)]
        bits = {f"bit {bit} at {place:.4f}": flipped(place, bit) for place, bit in turned}
        ways = {**WAYS, **bits}
        for way in chance.sample(sorted(ways), FEW) if few else ways:
            damage = ways[way]
            shutil.rmtree(results, ignore_errors=True)
            shutil.copytree(whole, results)
            damage(results / name)
            yield judged(results, right, said, f"{name}: {way}")
            if not name.startswith(NAME):  # cells are looked at when the run is made again
                shutil.rmtree(results / NAME)
                damage_again(results / name, damage)
                yield judged(results, right, said, f"{name}, and no run: {way}")


def damage_again(path: Path, damage: Callable[[Path], object]) -> None:
    """Damage a file that an earlier trial may have left as it is, or may have put right."""
    if path.is_file() and not path.is_symlink():
        damage(path)


def judged(results: Path, right: dict[str, bytes], said: list[dict[str, Any]], what: str) -> Trial:
    """Whether the command gives the right tables and manifest, whatever state the folder is in."""
    again = told(*command(results))
    problems = list(all_right(results, again, right)) if not cell_of_run(what) else []
    if cell_of_run(what) and again.status:
        problems.append(f"status {again.status}: {again.err!r}")
    if said_in(results) != said:
        problems.append("another manifest")
    return Trial(what, "; ".join(problems))


def cell_of_run(what: str) -> bool:
    """Whether a cell was damaged whose run is there: nobody reads it."""
    return what.startswith(".cells") and "and no run" not in what
