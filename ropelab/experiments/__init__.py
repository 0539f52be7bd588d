"""The experiments, by name.

An experiment is a table of experiments.toml, a light face (CANNOT_SHOW, VERSION and a
config class named after it: all that its command needs) and a body, imported when it is
first used:

    check(config)             InputError where the values do not go together (optional)
    cells(config)             its cells, which follow from the config alone
    tables(config, values)    its tables, from the values of those cells
    times(config, values)     measured times for the manifest (optional)
    answer(tables), summary(tables)    the verdict and a few sentences, and the short table
    further(tables)              more short tables, by name (optional)
    summarize_finished(finished)    the short table while cells are computed (optional)
    following(config, tables)    the command to type next (optional)
    ropelab/show/figures/<name>.py     draw(tables) -> figures

The face is `ropelab.experiments.<name>` (of the ledger `ropelab.claims.experiment`),
BODY its body.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ropelab.runs.errors import InputError, known
from ropelab.runs.spelling import plain

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ropelab.runs.cell import Cell, Values
    from ropelab.runs.config import Config
    from ropelab.runs.tables import Tables

# Every package beside this file, found without importing it; the ledger is above them
# all, since it reads their runs.
NAMES = (
    *sorted(
        module.name.replace("_", "-")
        for module in iter_modules(__path__)
        if module.ispkg
    ),
    "claims",
)
# The options of every run: type, default, description.
RUN_OPTIONS = {
    "results": (
        str | Path | None,
        None,
        "folder in which the run is kept; None: in memory only",
    ),
    "force": (bool, False, "run again what is finished"),
    "quick": (bool, False, "less of everything, under a minute: a first look"),
    "limits": (
        bool,
        True,
        "refuse work of more than a day, or of more memory than there is",
    ),
}


@dataclass(frozen=True)
class Experiment:
    """One experiment, with the functions of its body."""

    name: str
    question: str
    cannot_show: str
    version: int
    config: "type[Config]"
    body: str
    quick: Mapping[str, Any] = field(default_factory=dict, compare=False)
    # Beginnings of names of columns: the first one that a short table has decides.
    decisive: Sequence[str] = field(default=(), compare=False)
    # The values of --quick where models that come with ropelab can answer.
    quick_pretrained: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def options(self) -> Iterator[tuple[str, Any, Any, str]]:
        """Name, type, default and description of the config's fields, then of every
        run's.
        """
        for name, info in self.config.model_fields.items():
            default = Parameter.empty if info.is_required() else info.default
            yield (
                name,
                info.annotation,
                default,
                info.description or "see the command's --help",
            )
        yield from ((name, *about) for name, about in RUN_OPTIONS.items())

    @property
    def signature(self) -> Signature:
        """Its options, all by keyword."""
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, kind, default, _ in self.options
        ]
        return Signature(parameters, return_annotation="Run")

    @property
    def text(self) -> str:
        """The docstring of its function: question, what it cannot show, and every
        parameter.
        """
        lines = [f"{name}: {text}" for name, _, _, text in self.options]
        template = Path(__file__).with_name("docstring.md").read_text(encoding="utf-8")

        return template.format(
            question=self.question,
            cannot_show=self.cannot_show,
            parameters="\n    ".join(lines),
        )

    @property
    def parts(self) -> ModuleType:
        """The body, imported now."""
        return import_module(self.body)

    def quickly(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """Return values for a run of about a minute, and a sentence about them.

        What was given is kept. InputError: the experiment is quick as it is.
        """
        if not self.quick:
            raise InputError(f"{self.name} takes seconds; there is no --quick")

        describe_pretrained = getattr(self.parts, "describe_pretrained", None)
        words = ""
        if describe_pretrained is not None:
            words = describe_pretrained(given)
        if words:
            return {**self.quick_pretrained, **given}, words

        less = {name: value for name, value in self.quick.items() if name not in given}
        changes = []
        for name, value in less.items():
            change = f"{name} {plain(value) or 'none'}"
            field_info = self.config.model_fields[name]
            if not field_info.is_required():
                change += f" for {plain(field_info.default)}"
            changes.append(change)

        lost = ", ".join(changes) or "nothing is given up"
        words = f"{lost}; a first look, and no verdict on longer work"
        return {**less, **given}, words

    def check(self, config: "Config") -> None:
        """Raise InputError where a config's values do not go together."""
        check = getattr(self.parts, "check", None)
        if check is not None:
            check(config)

    def cells(self, config: "Config") -> "list[Cell]":
        return self.parts.cells(config)

    def tables(
        self, config: "Config", values: "Values"
    ) -> "Mapping[str, pd.DataFrame]":
        return self.parts.tables(config, values)

    def times(self, config: "Config", values: "Values") -> "Mapping[str, pd.DataFrame]":
        times = getattr(self.parts, "times", None)
        if times is None:
            return {}
        return times(config, values)

    def answer(self, tables: "Tables") -> str:
        return self.parts.answer(tables)

    def summary(self, tables: "Tables") -> "pd.DataFrame":
        return self.parts.summary(tables)

    def summarize_finished(
        self, finished: "Iterable[tuple[Cell, Tables]]"
    ) -> "pd.DataFrame | None":
        """Return what finished cells tell so far; None where the experiment has no such
        table.
        """
        summarize = getattr(self.parts, "summarize_finished", None)
        if summarize is None:
            return None
        table: pd.DataFrame = summarize(finished)
        return table

    def further(self, tables: "Tables") -> "Mapping[str, pd.DataFrame]":
        """Return short tables beside the summary, by name."""
        further = getattr(self.parts, "further", None)
        if further is None:
            return {}
        return further(tables)

    def following(self, config: "Config", tables: "Tables") -> str:
        """Return the command to type next: the body's, else more seeds where one was
        trained.
        """
        following = getattr(self.parts, "following", None)
        if following is not None:
            return following(config, tables)

        if len(getattr(config, "seeds", ())) == 1:
            return config.replace(seeds=(0, 1, 2)).command(self.name)
        return "ropelab report"

    def draw(self, tables: "Tables") -> "dict[str, Figure]":
        """Draw the figures, the most telling one first."""
        from ropelab.show.drawn import find_draw

        return find_draw(self.name)(tables)


@cache
def read_records() -> dict[str, dict[str, Any]]:
    """Return question and `quick` of all experiments in the order of lists; none is
    imported.
    """
    file = Path(__file__).with_name("experiments.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def load(name: str) -> Experiment:
    """Return an experiment without its heavy parts; InputError names the nearest."""
    known("experiment", name, NAMES)
    if name == "claims":
        module = "ropelab.claims.experiment"
    else:
        module = f"ropelab.experiments.{name.replace('-', '_')}"
    face = import_module(module)
    config_name = f"{name.title().replace('-', '')}Config"
    record = read_records()[name]

    return Experiment(
        name=name,
        question=record["question"],
        cannot_show=face.CANNOT_SHOW,
        version=face.VERSION,
        config=getattr(face, config_name),
        body=face.BODY,
        quick=record.get("quick", {}),
        decisive=record.get("decisive", ()),
        quick_pretrained=record.get("quick_pretrained", {}),
    )
