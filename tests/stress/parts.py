"""A GGUF model in several files, with its divisors in any of them.

Left as it is, moved or linked, it is read as the same model in one file. With a file
that is missing, swapped, cut, doubled or of another model, it is read so too, or refused
in one line.
"""

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.readers.test_gguf import DIVISORS, as_tensor, write_files, write_raw
from tests.stress.bench import Told, told
from tests.stress.promise import Trial, one_line

FILES, FEW = 300, 20
DIVISOR = "rope_freqs.weight"
Change = Callable[[list[Path], random.Random], None]


def leave(paths: list[Path], chance: random.Random) -> None:
    """Change nothing."""


def add_others(paths: list[Path], chance: random.Random) -> None:
    """Put files of another model and of another number of files beside them."""
    shutil.copy(paths[0], "other.gguf")
    shutil.copy(paths[-1], "m-00009-of-00009.gguf")


def link(paths: list[Path], chance: random.Random) -> None:
    """Let each name be a link to a file of another name, as in the cache of the Hub."""
    for number, path in enumerate(paths):
        blob = path.rename(f"blob{number}")
        path.symlink_to(blob)


def remove(paths: list[Path], chance: random.Random) -> None:
    chance.choice(paths[1:]).unlink()


def swap(paths: list[Path], chance: random.Random) -> None:
    first, second = chance.sample(paths, 2)
    first.rename("held")
    second.rename(first)
    Path("held").rename(second)


def copy_over(paths: list[Path], chance: random.Random) -> None:
    source, target = chance.sample(paths, 2)
    shutil.copy(source, target)


def cut(paths: list[Path], chance: random.Random) -> None:
    path = chance.choice(paths)
    path.write_bytes(path.read_bytes()[: chance.randrange(path.stat().st_size)])


def replace_by_pipe(paths: list[Path], chance: random.Random) -> None:
    path = chance.choice(paths[1:])
    path.unlink()
    os.mkfifo(path)


def replace_by_loop(paths: list[Path], chance: random.Random) -> None:
    path = chance.choice(paths[1:])
    path.unlink()
    path.symlink_to(path.name)


def rename_first(paths: list[Path], chance: random.Random) -> None:
    paths[0] = paths[0].rename("renamed.gguf")


HARMLESS: tuple[Change, ...] = (leave, add_others, link)
HARMFUL: tuple[Change, ...] = (
    remove,
    swap,
    copy_over,
    cut,
    replace_by_pipe,
    replace_by_loop,
    rename_first,
)


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Models in two to four files; the same ones every time."""
    chance = random.Random(19)
    names = ["output.weight", DIVISOR, "token_embd.weight"]
    with contextlib.chdir(folder):
        tensors = tuple(
            as_tensor(name, 32, 128 * place) for place, name in enumerate(names)
        )
        whole = write_raw(Path("whole.gguf"), {}, tensors, 3 * DIVISORS)
        right = list_pairs(told("audit", whole, "--json"))
        for number in range(FEW if few else FILES):
            place = Path(f"model{number}").absolute()
            place.mkdir()
            with contextlib.chdir(place):
                yield try_model(chance, names, right)
            shutil.rmtree(place)


def list_pairs(answer: Told) -> object:
    """Return the rows of pairs of the one file of an audit."""
    (file,) = json.loads(answer.out)["files"]
    return file["tables"]["pairs"]


def try_model(chance: random.Random, names: list[str], right: object) -> Trial:
    """Write a model, change its files, and audit it."""
    contents: list[list[str]] = [[] for _ in range(chance.randint(2, 4))]
    for name in names:
        chance.choice(contents).append(name)
    paths = write_files(Path(), contents)
    change = chance.choice(HARMLESS + HARMFUL)
    change(paths, chance)
    what = f"{change.__name__}: {contents}"

    answer = told("audit", paths[0], "--json")
    if answer.status == 0:
        same = list_pairs(answer) == right
        return Trial(what, "" if same else "other frequencies")
    if change in HARMLESS:
        return Trial(what, f"status {answer.status}: {answer.err!r}")
    return Trial(what, "; ".join(one_line(answer)))
