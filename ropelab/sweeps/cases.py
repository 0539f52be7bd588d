"""From TOML files to runs: every value is read and checked before anything is computed.

A file asks for one run, or for several: `[grid]` has a list per key, and every
combination is a run; each table `[[case]]` is a run. Keys above them hold for all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from textwrap import shorten
from typing import Any

from ropelab.lab import Lab, Plan
from ropelab.runs.config import Label, read_toml, take_label, title_in
from ropelab.runs.errors import InputError, naming
from ropelab.runs.spelling import PARTIAL, plain, spellings

# Runs that one file may ask for.
MOST = 1000
Values = dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """The runs of one file, in its order."""

    path: Path
    title: str
    plans: tuple[Plan, ...]
    keys: tuple[str, ...] = ()  # the fields in which they differ; none for a single run


def read_sweeps(paths: Sequence[Path], lab: Lab) -> list[Sweep]:
    """Read the runs that files, and folders of them, ask for."""
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        if not found:
            raise InputError(f"no .toml files in {path}")
        files += found
    return [read_sweep(path, lab) for path in files]


def read_sweep(path: Path, lab: Lab) -> Sweep:
    name, values = read_toml(path)
    label, values = take_label(path, values)
    with naming(str(path)):
        cases = list(_cases(values))
    shared = {
        key: value for key, value in values.items() if key not in ("grid", "case")
    }
    several = shared != values
    plans: dict[Plan, int] = {}
    for number, case in enumerate(cases, 1):
        its = _label(label, case, number) if several else label
        own = {key: value for key, value in case.items() if key != "title"}
        with naming(its.origin):
            plan = replace(lab.prepare(name, {**shared, **own}), label=its)
            plan.config.inputs()  # checks the files that it reads
        if (first := plans.setdefault(plan, number)) != number:
            raise InputError(f"{path}: case {number} is the same run as case {first}")
    return Sweep(
        path, label.title, tuple(plans), _keys(list(plans), cases) if several else ()
    )


def _cases(values: Values) -> Iterator[Values]:
    if "grid" not in values:
        tables = values.get("case", [{}])
        if not (
            isinstance(tables, list)
            and tables
            and all(isinstance(t, dict) for t in tables)
        ):
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
    return (dict(zip(grid, choice, strict=True)) for choice in product(*grid.values()))


def _refuse_many(table: str, count: int) -> None:
    if count > MOST:
        raise InputError(
            f"{table} asks for {count} runs; at most {MOST} are allowed in a file"
        )


def _label(shared: Label, case: Values, number: int) -> Label:
    words = (f"{key}={plain(value)}" for key, value in case.items() if key != "title")
    text = shorten(", ".join(words), 80, placeholder=" ...") or "nothing of its own"
    origin = f"{shared.origin}, case {number} ({text})"
    title = title_in(case, origin) or (
        f"{shared.title}: {text}" if shared.title else text
    )
    return Label(f"{shared.name}_{text}", title, origin)


def _keys(plans: Sequence[Plan], cases: Sequence[Values]) -> tuple[str, ...]:
    """Return the fields in which cases say that they differ, and do, in the order of
    the file.
    """
    theirs = {PARTIAL: "rotary_dim"}
    theirs |= {
        other: ours
        for ours, other in spellings(type(plans[0].config).model_fields).items()
    }
    named = dict.fromkeys(
        theirs.get(key, key) for case in cases for key in case if key != "title"
    )
    configs = [plan.config for plan in plans]
    return tuple(
        k
        for k in named
        if any(getattr(c, k) != getattr(configs[0], k) for c in configs)
    )
