"""From TOML files to runs: every value is read and checked before anything is computed.

A file asks for one run, or for several. `[grid]` has a list per key, and every
combination of their values is a run. Each table `[[case]]` is a run. The keys above
these tables hold for all runs of the file.
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

# The number of runs that one file may ask for.
MOST_RUNS = 1000
Values = dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """The runs of one file, in its order."""

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
        inside = sorted(path.glob("*.toml"))
        if not inside:
            raise InputError(f"no .toml files in {path}")
        files += inside
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
    shared = dict(values)
    shared.pop("grid", None)
    shared.pop("case", None)

    number_of_plan: dict[Plan, int] = {}
    for number, case in enumerate(cases, 1):
        case_values = dict(case)
        case_values.pop("title", None)
        case_label = label
        if asks_for_several:
            case_label = _label_case(label, case, number)
        with naming(case_label.origin):
            plan = lab.prepare(experiment, {**shared, **case_values})
            plan = replace(plan, label=case_label)
            # The paths that it returns are not used: the call raises an error for an
            # input file that is missing.
            plan.config.inputs()
        first = number_of_plan.setdefault(plan, number)
        if first != number:
            raise InputError(f"{path}: case {number} is the same run as case {first}")

    plans = tuple(number_of_plan)
    keys: tuple[str, ...] = ()
    if asks_for_several:
        keys = _find_keys(plans, cases)
    return Sweep(path, label.title, plans, keys)


def _read_cases(values: Values) -> Iterator[Values]:
    """Return the values of each run that are not shared by all; a single run has none.

    InputError: [grid] or [[case]] is not what it must be.
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


def _label_case(shared: Label, case: Values, number: int) -> Label:
    """Return the name, title and origin of one of several runs, made from the values of
    its case, which may differ from the values of all other cases.
    """
    words = [
        f"{key}={write_plainly(value)}" for key, value in case.items() if key != "title"
    ]
    text = shorten(", ".join(words), 80, placeholder=" ...")
    if not text:
        text = "nothing of its own"
    origin = f"{shared.origin}, case {number} ({text})"
    title = find_title(case, origin)
    if not title:
        title = text
        if shared.title:
            title = f"{shared.title}: {text}"
    return Label(f"{shared.name}_{text}", title, origin)


def _find_keys(plans: Sequence[Plan], cases: Sequence[Values]) -> tuple[str, ...]:
    """Return the fields that cases set and whose values differ, in the order of the
    file.
    """
    configs = [plan.config for plan in plans]
    # A file may use the name that Hugging Face has for a field, or give the rotated
    # features as a share of the head.
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
