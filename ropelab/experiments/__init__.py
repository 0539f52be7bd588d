"""The experiments, by name: `load("precision")` returns one as an `Experiment`.

An experiment is computed in cells. A cell is one piece of work whose tables are kept on
disk, so that it is computed once. Each experiment has four parts:

- a table of experiments.toml: its question, and the values of --quick;
- a light module, `ropelab.experiments.<name>` (for the ledger of claims it is
  `ropelab.claims.experiment`), with all that its command needs before anything is
  computed: CANNOT_SHOW, VERSION, FUNCTIONS_MODULE and a config class named after the
  experiment;
- the module that FUNCTIONS_MODULE names, which is imported when the experiment is first
  used;
- `ropelab/show/figures/<name>.py`, with a function draw(tables) that returns figures.

The module that FUNCTIONS_MODULE names has these functions:

    check(config)                   raises InputError if values do not go together (optional)
    cells(config)                   the cells of a run, which follow from the config alone
    tables(config, values)          the tables of a run, from the values of those cells
    times(config, values)           measured times for the manifest (optional)
    answer(tables)                  the verdict in a few sentences
    summary(tables)                 the short table for the terminal
    summarize_for_index(tables)     the short table for an index of runs (optional)
    make_further_tables(tables)     more short tables, by name (optional)
    explain_columns(tables)         what columns of the short table are, by the beginnings of
                                    their names (optional)
    summarize_finished(finished)    the short table while cells are computed (optional)
    suggest_command(config, tables) the command to type next (optional)
    describe_pretrained(given)      names the models that come with ropelab and answer --quick
                                    without training; empty if no model can (optional)
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

from ropelab.runs.errors import InputError, check_known
from ropelab.runs.spelling import write_plainly

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from ropelab.runs.cell import Cell, Values
    from ropelab.runs.config import Config
    from ropelab.runs.tables import EarlyTable, Tables

# Each package in this folder is an experiment. `iter_modules` imports none of them.
_PACKAGES = [module.name for module in iter_modules(__path__) if module.ispkg]
# The ledger of claims is the last experiment, because it reads the runs of all other
# experiments. Its code is in `ropelab.claims`.
NAMES = (*sorted(name.replace("_", "-") for name in _PACKAGES), "claims")
# The options of every run, by name: the type, the default and the description.
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
    """One experiment, with the functions of the module that FUNCTIONS_MODULE names."""

    name: str
    question: str
    cannot_show: str
    version: int
    config: "type[Config]"
    # The module with the functions, such as "ropelab.experiments.freqs.pairs".
    module_name: str
    # The values that --quick sets; empty for an experiment that takes seconds.
    quick: Mapping[str, Any] = field(default_factory=dict, compare=False)
    # Prefixes, in order of preference, of the column that short tables print in bold.
    decisive: Sequence[str] = field(default=(), compare=False)
    # The values that --quick sets if models that come with ropelab can answer.
    quick_pretrained: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def options(self) -> Iterator[tuple[str, Any, Any, str]]:
        """Name, type, default and description of each field of the config, then of each
        option of RUN_OPTIONS.
        """
        for name, info in self.config.model_fields.items():
            default = Parameter.empty if info.is_required() else info.default
            description = info.description or "see the command's --help"
            yield name, info.annotation, default, description
        for name, (annotation, default, description) in RUN_OPTIONS.items():
            yield name, annotation, default, description

    @property
    def signature(self) -> Signature:
        """The signature of the function that runs this experiment from Python, such as
        `ropelab.freqs`.
        """
        parameters = [
            Parameter(
                name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
            for name, annotation, default, _ in self.options
        ]
        return Signature(parameters, return_annotation="Run")

    @property
    def text(self) -> str:
        """The docstring of the function that runs this experiment from Python: the
        question, what the experiment cannot show, and every parameter.
        """
        lines = [f"{name}: {description}" for name, _, _, description in self.options]
        template = Path(__file__).with_name("docstring.md").read_text(encoding="utf-8")

        return template.format(
            question=self.question,
            cannot_show=self.cannot_show,
            parameters="\n    ".join(lines),
        )

    @property
    def functions_module(self) -> ModuleType:
        """The module with the functions, which is imported now."""
        return import_module(self.module_name)

    def choose_quick_values(
        self, typed_values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], str]:
        """Return values for a run of about a minute, and a sentence about them.

        `typed_values` has the values that the user typed, which are kept. InputError:
        the experiment takes seconds anyway.
        """
        if not self.quick:
            raise InputError(f"{self.name} takes seconds; there is no --quick")

        # Models that come with ropelab answer without training, if the given values
        # allow it. The sentence is then about these models.
        describe_pretrained = getattr(
            self.functions_module, "describe_pretrained", None
        )
        if describe_pretrained is not None:
            about_models = describe_pretrained(typed_values)
            if about_models:
                return {**self.quick_pretrained, **typed_values}, about_models

        smaller_values = {}
        changes = []
        for name, value in self.quick.items():
            if name in typed_values:
                continue
            smaller_values[name] = value
            change = f"{name} {write_plainly(value) or 'none'}"
            # The default value, which the smaller value replaces, if there is a default.
            field_info = self.config.model_fields[name]
            if not field_info.is_required():
                change += f" for {write_plainly(field_info.default)}"
            changes.append(change)

        listed = ", ".join(changes) or "nothing is given up"
        sentence = f"{listed}; a first look, and no verdict on longer work"
        return {**smaller_values, **typed_values}, sentence

    def check(self, config: "Config") -> None:
        """Raise InputError if a config's values do not go together."""
        check = getattr(self.functions_module, "check", None)
        if check is not None:
            check(config)

    def cells(self, config: "Config") -> "list[Cell]":
        return self.functions_module.cells(config)

    def tables(
        self, config: "Config", values: "Values"
    ) -> "Mapping[str, pd.DataFrame]":
        return self.functions_module.tables(config, values)

    def times(self, config: "Config", values: "Values") -> "Mapping[str, pd.DataFrame]":
        times = getattr(self.functions_module, "times", None)
        if times is None:
            return {}
        return times(config, values)

    def answer(self, tables: "Tables") -> str:
        return self.functions_module.answer(tables)

    def summary(self, tables: "Tables") -> "pd.DataFrame":
        return self.functions_module.summary(tables)

    def summarize_for_index(self, tables: "Tables") -> "pd.DataFrame":
        """Return the short table for an index, which need not fit into a terminal."""
        summarize = getattr(self.functions_module, "summarize_for_index", None)
        if summarize is None:
            return self.summary(tables)
        return summarize(tables)

    def summarize_finished(
        self, finished: "Iterable[tuple[Cell, Tables]]"
    ) -> "EarlyTable | None":
        """Return the short table of the cells that are finished so far.

        None: the cells fill no table yet, or the experiment shows no table so early.
        """
        summarize = getattr(self.functions_module, "summarize_finished", None)
        if summarize is None:
            return None
        early_table: EarlyTable | None = summarize(finished)
        return early_table

    def make_further_tables(self, tables: "Tables") -> "Mapping[str, pd.DataFrame]":
        """Return the short tables that are shown after the summary, by name."""
        make_tables = getattr(self.functions_module, "make_further_tables", None)
        if make_tables is None:
            return {}
        return make_tables(tables)

    def explain_columns(self, tables: "Tables") -> "Mapping[str, str]":
        """Return what columns of the short table are, by the beginnings of their names."""
        explain = getattr(self.functions_module, "explain_columns", None)
        if explain is None:
            return {}
        return explain(tables)

    def suggest_command(self, config: "Config", tables: "Tables") -> str:
        """Return the command to type next."""
        suggest = getattr(self.functions_module, "suggest_command", None)
        if suggest is not None:
            return suggest(config, tables)

        # A result of models of a single seed may be chance.
        if len(getattr(config, "seeds", ())) == 1:
            return config.replace(seeds=(0, 1, 2)).command(self.name)
        return "ropelab report"

    def draw(self, tables: "Tables") -> "dict[str, Figure]":
        """Draw the figures, the most telling one first."""
        from ropelab.show.drawn import find_draw

        return find_draw(self.name)(tables)


@cache
def read_records() -> dict[str, dict[str, Any]]:
    """Return the tables of experiments.toml, by the name of the experiment.

    Experiments are listed in the order of these tables. No experiment is imported.
    """
    file = Path(__file__).with_name("experiments.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def load(name: str) -> Experiment:
    """Return an experiment, without importing the module of its functions.

    InputError: no experiment has that name; the error suggests the nearest names.
    """
    check_known("experiment", name, NAMES)
    if name == "claims":
        module_name = "ropelab.claims.experiment"
    else:
        module_name = f"ropelab.experiments.{name.replace('-', '_')}"
    module = import_module(module_name)
    # For example, the config class of `base-empirical` is BaseEmpiricalConfig.
    config_name = f"{name.title().replace('-', '')}Config"
    record = read_records()[name]

    return Experiment(
        name=name,
        question=record["question"],
        cannot_show=module.CANNOT_SHOW,
        version=module.VERSION,
        config=getattr(module, config_name),
        module_name=module.FUNCTIONS_MODULE,
        quick=record.get("quick", {}),
        decisive=record.get("decisive", ()),
        quick_pretrained=record.get("quick_pretrained", {}),
    )
