"""The situations in which something is made to happen: a command, and the folder it
finds.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.small import SMALL
from tests.stress.bench import NAME, Told, command, told
from tests.stress.operations import Operations, counted
from tests.stress.promise import State, ended, everything, is_stepwise, leftovers, state

Arguments = Callable[[Path], tuple[str, ...]]
LESS_OFTEN = 7
"""Of situations that take long, or do nearly all that another does, every so many are disturbed."""


@dataclass(frozen=True)
class Scene:
    """A situation: a command for a results folder, which begins as `first` or empty.

    Attributes:
        before: what is there at first.
        right: what is there when the command has been carried out.
        operations: how many file operations that takes.
        sparse: of how many of them one is disturbed.
    """

    name: str
    results: Path
    arguments: tuple[str, ...]
    first: Path | None
    before: State
    right: State
    operations: int
    sparse: int

    def begin(self) -> None:
        """Put the folder into its first state."""
        begin(self.results, self.first)

    def numbers(self, few: bool) -> range:
        """The operations that are disturbed."""
        return range(
            1, self.operations + 1, max(128, 28 * self.sparse) if few else self.sparse
        )

    def endured(self, disturbance: AbstractContextManager[object]) -> str:
        """What does not hold of the command under a disturbance, and again without
        it.
        """
        self.begin()
        try:
            with disturbance:
                first = told(*self.arguments)
            problems = list(ended(first, self.results, self.before, self.right))
            problems += self.repeated(first)
        except Exception as failure:
            problems = [f"{type(failure).__name__}: {failure}"]
        return "; ".join(problems)

    def repeated(self, first: Told | None) -> Iterator[str]:
        """Problems of the same command without a disturbance."""
        yield from everything(told(*self.arguments), self.results, self.right)
        if (first is None or first.status) and (left := leftovers(self.results)):
            # Of a page or figure: whoever writes it again removes it.
            told(*self.arguments, *(["--force"] if first is None else []))
            if still := set(left) & set(leftovers(self.results)):
                yield f"left behind: {still}"


def begin(results: Path, first: Path | None) -> None:
    shutil.rmtree(results, ignore_errors=True)
    if first:
        shutil.copytree(first, results)


def scenes(folder: Path) -> Iterator[Scene]:
    """All situations, in the folder `results`; beside it is what they begin with."""
    results, done, figureless = (
        folder / name for name in ("results", "done", "figureless")
    )
    told(*command(figureless, "--no-figures"))
    told(*command(done))
    config, training = config_of(folder), config_of_training(folder)
    (run,) = (done / NAME).iterdir()
    exported = (str(results / NAME / run.name), "--output", str(results / "exported"))
    # Figures and pages are other situations; drawing takes longer than this training.
    quietly = ("--results", str(results), "--quiet", "--workers", "1", "--no-figures")
    trained = ("spectrum", "--config", str(training), *quietly)
    for name, arguments, first, sparse in (
        ("a first run", command(results, "--no-figures"), None, 1),
        ("a run that is there", command(results), done, 1),
        ("--force", command(results, "--force", "--no-figures"), done, LESS_OFTEN),
        ("--redraw", command(results, "--redraw"), done, 1),
        ("figures of a run without", command(results), figureless, 1),
        ("a PDF as well", command(results, "--format", "pdf"), done, LESS_OFTEN),
        ("ropelab run, index and page", of_file(config, results), None, LESS_OFTEN),
        ("a page", ("report", "--results", str(results)), done, 1),
        ("an export", ("export", *exported), done, 1),
        ("a training", trained, None, 24 * LESS_OFTEN),
    ):
        begin(results, first)
        before = state(results)
        if "--force" in arguments:  # trainings begin anew
            before = {
                unit: files for unit, files in before.items() if not is_stepwise(unit)
            }
        with counted(Operations(results)) as operations:
            made = told(*arguments)
        assert not made.status, made.err
        count = operations.count
        yield Scene(
            name, results, arguments, first, before, state(results), count, sparse
        )


def of_file(
    config: Path, results: Path, workers: int = 1, *more: str
) -> tuple[str, ...]:
    """A config file, quietly."""
    return (
        "run",
        str(config),
        "--results",
        str(results),
        "-q",
        "--workers",
        str(workers),
        *more,
    )


def config_of(folder: Path) -> Path:
    """The config file of the small experiment."""
    path = folder / "default.toml"
    path.write_text(f'experiment = "{NAME}"\n')
    return path


def config_of_training(folder: Path) -> Path:
    """The config file of two models that are trained for two steps, and evaluated."""
    chance, corpus, path = random.Random(0), folder / "corpus", folder / "training.toml"
    corpus.mkdir(exist_ok=True)
    words = [
        "".join(chance.choices("abcdefgh", k=chance.randint(2, 7))) for _ in range(300)
    ]
    for number in range(12):
        (corpus / f"{number}.txt").write_text(" ".join(chance.choices(words, k=1500)))
    values = {
        **SMALL,
        "test_len": 128,
        "draws": 20,
        "schemes": ["unscaled", "pi(factor=4)"],
    }
    values |= {"dtype": "float32", "corpus": str(corpus)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    path.write_text("\n".join(['experiment = "spectrum"', *lines, ""]))
    return path
