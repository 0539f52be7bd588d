"""Plans of runs from TOML files. Every value is checked before anything is computed.

A file asks for one run, or for several. `[grid]` has a list of values per key, and every
combination of values is a run. Each table `[[case]]` is a run. The keys above these
tables hold for all runs of the file.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from textwrap import shorten
from typing import Any

from ropelab.lab import Lab
from ropelab.plan import Plan
from ropelab.runs.config import Config, Label, find_title, read_toml, take_label
from ropelab.runs.errors import InputError, naming
from ropelab.runs.spelling import ROTARY_SHARE, list_spellings, write_plainly

# The most runs that one file may ask for.
MOST_RUNS = 1000
Values = dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """The runs that one file asks for, in the order of the file."""

    path: Path
    title: str
    plans: tuple[Plan, ...]
    # The config fields in which the runs differ; none for a single run.
    keys: tuple[str, ...] = ()


def read_sweeps(paths: Sequence[Path], lab: Lab) -> list[Sweep]:
    """Read the runs that files, and folders of files, ask for."""
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        files_in_folder = sorted(path.glob("*.toml"))
        if not files_in_folder:
            raise InputError(f"no .toml files in {path}")
        files += files_in_folder
    return [read_sweep(path, lab) for path in files]


def read_sweep(path: Path, lab: Lab) -> Sweep:
    """Read the runs that one file asks for.

    InputError: a run is not valid, or the file asks for the same run twice.
    """
    experiment, values = read_toml(path)
    label, values = take_label(path, values)
    # `naming` puts the path before the message of an error.
    with naming(str(path)):
        cases = list(_read_cases(values))
    asks_for_several = "grid" in values or "case" in values
    shared_values = dict(values)
    shared_values.pop("grid", None)
    shared_values.pop("case", None)

    number_of_plan: dict[Plan, int] = {}
    for number, case in enumerate(cases, 1):
        case_values = dict(case)
        case_values.pop("title", None)
        case_label = label
        if asks_for_several:
            case_label = _label_case(label, case, number)
        with naming(case_label.origin):
            plan = lab.prepare(experiment, {**shared_values, **case_values})
            plan = replace(plan, label=case_label)
            # The result is not used. The call raises an error if an input file is
            # missing.
            plan.config.inputs()
        # Plans are equal if their experiments and configs are: all labels compare
        # equal, also those of different cases.
        first = number_of_plan.setdefault(plan, number)
        if first != number:
            raise InputError(f"{path}: case {number} is the same run as case {first}")

    plans = tuple(number_of_plan)
    keys: tuple[str, ...] = ()
    if asks_for_several:
        keys = _find_keys(plans, cases)
    return Sweep(path, label.title, plans, keys)


def _read_cases(values: Values) -> Iterator[Values]:
    """Return, for each run, the values that are not shared by all runs of the file. A
    file of one run gives one empty case.

    InputError: [grid] or [[case]] has not the form that it must have.
    """
    if "grid" not in values:
        tables = values.get("case", [{}])
        is_list = isinstance(tables, list) and bool(tables)
        if not is_list or not all(isinstance(table, dict) for table in tables):
            raise InputError("each run must be a table under [[case]]")
        _refuse_many("[[case]]", len(tables))
        return iter(tables)

    if "case" in values:
        raise InputError("give [grid] or [[case]], not both")
    grid = values["grid"]
    if not (isinstance(grid, dict) and grid):
        raise InputError("[grid] must be a table of lists, such as base = [1e4, 1e6]")
    for key, choices in grid.items():
        if not (isinstance(choices, list) and choices):
            raise InputError(f"grid: {key} must be a list of values, got {choices!r}")
        if key in values:
            raise InputError(f"'{key}' is in [grid] and above it; give one")
    _refuse_many("[grid]", prod(map(len, grid.values())))
    combinations = product(*grid.values())
    return (dict(zip(grid, choice, strict=True)) for choice in combinations)


def _refuse_many(table: str, count: int) -> None:
    if count > MOST_RUNS:
        raise InputError(
            f"{table} asks for {count} runs; at most {MOST_RUNS} are allowed in a file"
        )


def _label_case(file_label: Label, case: Values, number: int) -> Label:
    """Return the name, title and origin of one of several runs. They are made from the
    label of the file and the values of the case.
    """
    words = [
        f"{key}={write_plainly(value)}" for key, value in case.items() if key != "title"
    ]
    text = shorten(", ".join(words), 80, placeholder=" ...")
    if not text:
        text = "nothing of its own"
    origin = f"{file_label.origin}, case {number} ({text})"
    title = find_title(case, origin)
    if not title:
        title = text
        if file_label.title:
            title = f"{file_label.title}: {text}"
    return Label(f"{file_label.name}_{text}", title, origin)


def _find_keys(plans: Sequence[Plan], cases: Sequence[Values]) -> tuple[str, ...]:
    """Return the fields that some case sets and whose values differ between the runs, in
    the order of the file.
    """
    configs = [plan.config for plan in plans]
    # A file may use Hugging Face's name of a field, or give the number of rotated features
    # as a share of the head.
    spelling_of = list_spellings(type(configs[0]).model_fields)
    field_of = {spelling: field for field, spelling in spelling_of.items()}
    field_of[ROTARY_SHARE] = "rotary_dim"

    # A dict is used as a set that keeps the order.
    fields: dict[str, None] = {}
    for case in cases:
        for key in case:
            if key != "title":
                fields[field_of.get(key, key)] = None

    return tuple(field for field in fields if _is_different(field, configs))


def _is_different(key: str, configs: Sequence[Config]) -> bool:
    first = getattr(configs[0], key)
    return any(getattr(config, key) != first for config in configs)
