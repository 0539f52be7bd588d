"""The promise, whatever happens: everything is right, or one line says why and nothing
is half.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropelab.runs.errors import find_unseen
from tests.stress.bench import Told, told

HIDDEN = (".new", ".old", ".lock")
DESCRIPTIONS = ("manifest.json", "cell.json")
EACH_TIME = {"start", "seconds", "measurements", "times", "sha256", "again"}
"""Entries of descriptions that differ from run to run."""
TIMES = re.compile(
    rb"\d+ s from start to end( \([^)]*\))?|(started|seconds)[^;]{1,80}</(td|dd)>"
)
STEPWISE = ("steps", "model")
"""Kinds of cells whose folders hold what is not finished, too."""

State = Mapping[str, Mapping[str, Any]]
"""The files of each run, cell and page by its place, with what must be the same in each."""


@dataclass(frozen=True)
class Trial:
    """One thing that was tried; it counts if the disturbance was met, or if something
    is wrong.
    """

    what: str
    problem: str = ""
    met: bool = True


def state(results: Path) -> State:
    """All that is stored in a results folder, but for locks and what is written just
    now.
    """
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(results.rglob("*")):
        parts = path.relative_to(results).parts
        if path.is_file() and not any(map(_is_hidden, parts)):
            depth = 3 if parts[0] == ".cells" else 2
            found.setdefault("/".join(parts[:depth]), {})["/".join(parts[depth:])] = (
                _shared(path)
            )
    return found


def _is_hidden(name: str) -> bool:
    return name.startswith(".") and (
        name.endswith(HIDDEN) or name.startswith(".writable")
    )


def _shared(path: Path) -> Any:
    content = path.read_bytes()
    if path.name in DESCRIPTIONS:
        try:
            return {k: v for k, v in json.loads(content).items() if k not in EACH_TIME}
        except (ValueError, AttributeError):
            return content
    return TIMES.sub(b"", content) if path.suffix in (".md", ".html") else content


def is_stepwise(unit: str) -> bool:
    """Whether a unit is the folder of a training."""
    return unit.startswith(tuple(f".cells/{kind}/" for kind in STEPWISE))


def leftovers(results: Path) -> list[str]:
    """The hidden files and folders of an unfinished command, but for locks."""
    return [
        str(p.relative_to(results))
        for p in results.rglob(".*")
        if _is_hidden(p.name) and p.suffix != ".lock"
    ]


def one_line(told: Told) -> Iterator[str]:
    """Problems of a command that failed: it says why in one line, with status 1 or
    2.
    """
    if told.status not in (1, 2):
        yield f"status {told.status}"
    lines = told.err.splitlines()
    if not lines or not lines[-1].startswith("ropelab: ") or "Traceback" in told.err:
        yield f"stderr {told.err!r}"
    if sum(line.startswith("ropelab: ") for line in lines) > 1:
        yield f"more than one line: {told.err!r}"
    if "a defect" in told.err:
        yield (
            "a defect:"
            f" {told.err!r}\n{Path(told.err.split(', ')[-1].split(': ')[0]).read_text()}"
        )


def find_unplain(told: Told) -> Iterator[str]:
    """Problems of a command that was given something odd: it answers, or says why not
    in one line, and nothing in its words steers a terminal.
    """
    if told.status not in (0, 3):
        yield from one_line(told)
    for text in (told.out, told.err):
        unseen = find_unseen(text)
        if unseen:
            yield f"steers the terminal: {sorted(unseen)}"


def type_command(what: str, statuses: Collection[int], *line: str) -> Trial:
    """Type a command: it ends in an orderly way, plainly, and with one of these statuses."""
    try:
        answer = told(*line)
    except Exception as failure:
        return Trial(what, f"{type(failure).__name__}: {failure}")
    problems = list(find_unplain(answer))
    if answer.status not in statuses:
        problems.append(f"status {answer.status}: {answer.err or answer.out!r}")
    return Trial(what, "; ".join(problems))


def require_whole(
    results: Path, before: State, right: State, said: str = ""
) -> Iterator[str]:
    """Problems after a failure: each run, cell and page is the one before or the right
    one.
    """
    now = state(results)
    for unit, files in now.items():
        # of what the page says, too
        if unit.startswith("index.") and "left out" in said:
            continue
        known = files in (before.get(unit), right.get(unit))
        if not known and not (
            is_stepwise(unit) and set(files) <= set(right.get(unit, ()))
        ):
            yield f"half: {unit}"
    for unit in before.keys() - now.keys():
        # Between two renames the old folder has another name; the next command restores
        # it.
        place = results / unit
        if not place.with_name(f".{place.name}.old").exists():
            yield f"lost: {unit}"


def everything(told: Told, results: Path, right: State) -> Iterator[str]:
    """Problems of a command that was not disturbed: status 0 and everything is
    right.
    """
    if told.status:
        yield f"status {told.status}: {told.err!r}"
    now = state(results)
    for unit in sorted(now.keys() | right.keys()):
        if now.get(unit) != right.get(unit):
            yield f"not right: {unit}"


def ended(told: Told, results: Path, before: State, right: State) -> Iterator[str]:
    """Problems of a disturbed command: everything is right, or it says why and nothing
    is half.
    """
    if told.status:
        yield from one_line(told)
    if told.status or "figures are not drawn" in told.err or "left out" in told.err:
        yield from require_whole(results, before, right, told.err)
    else:
        yield from everything(told, results, right)
