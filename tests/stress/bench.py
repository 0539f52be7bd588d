"""A small experiment with all that the large ones have: cells, a folder of its own, a
figure.

It stands for them wherever something is broken on purpose, thousands of times.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd
import typer
from matplotlib.figure import Figure

from ropelab import experiments
from ropelab.cli import app as cli
from ropelab.experiments import Experiment
from ropelab.runs.cell import Cell, CellName, Context, Resources
from ropelab.runs.config import Base, Config
from ropelab.runs.errors import say_once
from ropelab.runs.folders import replace_file

NAME = "bench"
STEPS = 3
PAUSE = "ROPELAB_STRESS_PAUSE"
"""An environment variable with a folder: each step leaves a file there, and takes a while."""
SECONDS = 0.15


class BenchConfig(Config):
    """One field."""

    base: Base = 1e4


@dataclass(frozen=True)
class Square:
    """A cell: a few numbers, after some steps that are kept in a folder as a training's
    are.
    """

    base: float
    place: int
    prerequisites: tuple[Cell, ...] = ()
    kind: str = "square"
    version: int = 1

    @property
    def key(self) -> dict[str, Any]:
        return {"base": self.base, "place": self.place}

    @property
    def title(self) -> str:
        return f"square {self.place}"

    @property
    def resources(self) -> Resources:
        return Resources(folders=(self._steps,))

    @property
    def _steps(self) -> CellName:
        return CellName("steps", 1, self.key)

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        with context.cells.directory(self._steps) as folder:
            path = folder / "steps.json"
            done = json.loads(path.read_text()) if path.exists() else []
            while len(done) < STEPS:
                done.append(self.base ** (1 / (2 + len(done) + self.place)))
                with replace_file(path) as fresh:
                    fresh.write_text(json.dumps(done))
                if place := os.environ.get(PAUSE):
                    (Path(place) / f"{os.getpid()}-{self.place}-{len(done)}").touch()
                    time.sleep(SECONDS)
        return {"square": pd.DataFrame({"step": range(STEPS), "value": done})}


class Bench(Experiment):
    """Two cells, one table of both, one figure."""

    def check(self, config):
        """All that can be asked for can be done."""

    def cells(self, config):
        """Two of them."""
        return [Square(config.base, place) for place in (0, 1)]

    def tables(self, config, values):
        """The tables of the cells, one below the other."""
        tables = [values[cell]["square"] for cell in self.cells(config)]
        return {"bench": pd.concat(tables, ignore_index=True)}

    def times(self, config, values):
        """Nothing is timed."""
        return {}

    def answer(self, tables):
        """The largest value."""
        return f"The largest value is {tables['bench'].value.max():.3f}."

    def summary(self, tables):
        """All of it."""
        return tables["bench"]

    def draw(self, tables):
        """The answer, as a picture that is quickly drawn."""
        figure = Figure(figsize=(1, 0.2))
        figure.text(0, 0, self.answer(tables), fontsize=4)
        return {"bench": figure}


def install() -> None:
    """Make it an experiment like the others, in this process; commands are built
    once.
    """
    bench = Bench(
        NAME, "What is the largest value?", "anything else", 1, BenchConfig, ""
    )
    load = experiments.load
    experiments.load = lambda name: bench if name == NAME else load(name)
    app = cli.make_application()
    cli._add_command(app, bench)
    make = typer.main.get_command
    built: Any = make(app)
    cli.make_application = lambda word="": built

    def get_command(typer_instance: Any) -> Any:
        # The command line asks again for what is built already.
        return built if typer_instance is built else make(typer_instance)

    typer.main.get_command = get_command


@dataclass(frozen=True)
class Told:
    """What a command told: its status and all that it wrote."""

    status: int
    out: str
    err: str


def told(*arguments: object) -> Told:
    """Type a command in this process; whatever is no orderly end is raised."""
    out, err = StringIO(), StringIO()
    say_once.cache_clear()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main([str(argument) for argument in arguments])
        except SystemExit as stop:
            assert isinstance(stop.code, int), f"status {stop.code!r}"
            status = stop.code
    return Told(status, out.getvalue(), err.getvalue())


def command(results: Path, *more: str) -> tuple[str, ...]:
    """The experiment, quietly."""
    return (NAME, "--results", str(results), "--quiet", *more)
