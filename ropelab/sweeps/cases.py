"""From TOML files to runs: every value is read and checked before anything is computed.

A file asks for one run, or for several: `[grid]` has a list per key, and every combination is a
run; each table `[[case]]` is a run. Keys above them hold for all.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from textwrap import shorten
from typing import Any

from ropelab.lab import Lab, Plan
from ropelab.runs.config import PARTIAL, Label, read_toml, spellings, take_label
from ropelab.runs.errors import InputError, naming

# Runs that one file may ask for.
MOST = 1000
Values = dict[str, Any]


@dataclass(frozen=True)
class Sweep:
    """The runs of one file.

    Attributes:
        plans: its runs, in the order of the file.
        keys: the fields in which they differ, as far as the file says; none for a single run.
    """

    path: Path
    title: str
    plans: tuple[Plan, ...]
    keys: tuple[str, ...] = ()


def read_sweeps(paths: Sequence[Path], lab: Lab) -> list[Sweep]:
    """Read the runs that files, and folders of them, ask for.

    Raises:
        InputError: one line that names the file, the case and the key.
    """
    return [read_sweep(path, lab) for path in _files(paths)]


def read_sweep(path: Path, lab: Lab) -> Sweep:
    """Read the runs that one file asks for."""
    name, values = read_toml(path)
    label, values = take_label(path, values)
    with naming(str(path)):
        cases = list(_cases(values))
    shared = {key: value for key, value in values.items() if key not in ("grid", "case")}
    if shared == values:
        return Sweep(path, label.title, (_planned(lab, name, shared, label),))
    labels = [_label(label, case, number) for number, case in enumerate(cases, 1)]
    plans = tuple(
        _planned(lab, name, {**shared, **_without_title(case)}, its)
        for case, its in zip(cases, labels, strict=True)
    )
    with naming(str(path)):
        _refuse_repeats(plans)
    return Sweep(path, label.title, plans, _keys(plans, cases))


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        found = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        if not found:
            raise InputError(f"no .toml files in {path}")
        files += found
    return files


def _cases(values: Values) -> Iterator[Values]:
    """Yield the values that each run of a file has of its own.

    Raises:
        InputError: `grid` or `case` is not what it should be, or asks for too many runs.
    """
    if "grid" in values and "case" in values:
        raise InputError("give [grid] or [[case]], not both")
    if "grid" in values:
        return _of_grid(values["grid"], values)
    return _of_tables(values.get("case", [{}]))


def _of_grid(grid: object, values: Values) -> Iterator[Values]:
    if not (isinstance(grid, dict) and grid):
        raise InputError("[grid] must be a table of lists, such as base = [1e4, 1e6]")
    for key, choices in grid.items():
        if not (isinstance(choices, list) and choices):
            raise InputError(f"grid: {key} must be a list of values, got {choices!r}")
        if key in values:
            raise InputError(f"'{key}' stands in [grid] and above it; give one")
    _refuse_many("[grid]", prod(map(len, grid.values())))
    return (dict(zip(grid, choice, strict=True)) for choice in product(*grid.values()))


def _of_tables(tables: object) -> Iterator[Values]:
    if not (isinstance(tables, list) and tables and all(isinstance(t, dict) for t in tables)):
        raise InputError("each run must be a table under [[case]]")
    _refuse_many("[[case]]", len(tables))
    return iter(tables)


def _refuse_many(what: str, count: int) -> None:
    if count > MOST:
        raise InputError(f"{what} asks for {count} runs; at most {MOST} are allowed in a file")


def _label(shared: Label, case: Values, number: int) -> Label:
    """Name one case, for its folder, the gallery and errors."""
    own, said = case.get("title"), _said(_without_title(case))
    origin = f"{shared.origin}, case {number} ({said})"
    if own is not None and not isinstance(own, str):
        raise InputError(f"{origin}: title must be text, got {own!r}")
    title = own or (f"{shared.title}: {said}" if shared.title else said)
    return Label(f"{shared.name}_{said}", title, origin)


def _without_title(case: Values) -> Values:
    return {key: value for key, value in case.items() if key != "title"}


def _said(case: Values) -> str:
    """Write keys and values in a line: `base=10000.0, methods=pi+yarn`."""
    words = (f"{key}={plain(value)}" for key, value in case.items())
    return shorten(", ".join(words), 80, placeholder=" ...") or "nothing of its own"


def plain(value: object) -> str:
    """Write a value of a config as one word."""
    if isinstance(value, list | tuple):
        return "+".join(map(plain, value))
    if isinstance(value, float):
        return re.sub(r"e\+0?", "e", f"{value:g}")
    return str(value)


def _planned(lab: Lab, name: str, values: Mapping[str, Any], label: Label) -> Plan:
    """Make one plan, and check it with the files that it reads."""
    with naming(label.origin):
        plan = replace(lab.prepare(name, values), label=label)
        plan.config.inputs()
    return plan


def _refuse_repeats(plans: Sequence[Plan]) -> None:
    """Raise InputError where two cases are the same run."""
    seen: dict[str, int] = {}
    for number, plan in enumerate(plans, 1):
        first = seen.setdefault(plan.config.model_dump_json(), number)
        if first != number:
            raise InputError(f"case {number} is the same run as case {first}")


def _keys(plans: Sequence[Plan], cases: Sequence[Values]) -> tuple[str, ...]:
    """Return the fields in which cases say that they differ, and do, in the order of the file."""
    theirs = {PARTIAL: "rotary_dim"}
    theirs |= {other: ours for ours, other in spellings(type(plans[0].config)).items()}
    named = dict.fromkeys(theirs.get(key, key) for case in cases for key in _without_title(case))
    configs = [plan.config for plan in plans]
    return tuple(
        key for key in named if any(getattr(c, key) != getattr(configs[0], key) for c in configs)
    )
