"""The work ahead of some runs, listed before any of it is done, and the share of one machine."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ropelab.errors import InputError, naming
from ropelab.lab import Lab, Plan, Work, workers_for
from ropelab.runs.cell import Cell, estimate_of, name_of
from ropelab.runs.estimate import Estimate, duration, size
from ropelab.runs.folders import fingerprint
from ropelab.sweeps.cases import Sweep

MOST_SHARDS = 10_000


@dataclass(frozen=True)
class Ahead:
    """One run of a file: whether it is finished, and its cells."""

    plan: Plan
    finished: bool
    work: Work


def look_ahead(sweeps: Sequence[Sweep], lab: Lab) -> list[Ahead]:
    """List all runs of all files; nothing is computed and nothing written."""
    found = []
    context = lab.context()
    for plan in (plan for sweep in sweeps for plan in sweep.plans):
        with naming(plan.label.origin):
            found.append(Ahead(plan, lab.is_finished(plan), lab.work(plan, context)))
    return found


def lines(runs: Sequence[Ahead], lab: Lab) -> Iterator[str]:
    """Describe every run with its cells, what is finished, and the cost of the rest."""
    unfinished = [run for run in runs if not run.finished]
    for run in runs:
        yield f"{run.plan.label.origin}: {run.plan.experiment.name}, {_state(run)}"
        if not run.finished:
            yield from (f"    {line}" for line in _cells(run.work.cells, run.work.left))
    every = {name for run in unfinished for name in run.work.cells}
    left = {name: cell for run in unfinished for name, cell in run.work.left.items()}
    estimate = estimate_of(left.values())
    text = f"{count_of(len(runs), 'run')} ({len(runs) - len(unfinished)} finished)"
    if every:
        text += f", {count_of(len(every), 'cell')} ({len(every) - len(left)} finished)"
    if unfinished:
        some = any(_is_unknown(run.work.estimate) for run in unfinished)
        more = ", and what is not known before" if some and not _is_unknown(estimate) else ""
        text += f": {_words(estimate, workers_for(lab.workers, list(left.values())))}{more}"
    yield f"in all {text}"


def lines_of_share(cells: Mapping[str, Cell], lab: Lab) -> Iterator[str]:
    """Describe the cells of one shard, and the cost of the unfinished ones."""
    left = _left(cells, lab)
    yield from _cells(cells, left)
    text = f"{count_of(len(cells), 'cell')} ({len(cells) - len(left)} finished)"
    workers = workers_for(lab.workers, list(left.values()))
    yield f"in all {text}: {_words(estimate_of(left.values()), workers)}"


def _cells(cells: Mapping[str, Cell], left: Mapping[str, Cell]) -> Iterator[str]:
    for name, cell in cells.items():
        title = cell.title if cell.title.startswith(cell.kind) else f"{cell.kind}: {cell.title}"
        yield f"{title}: {_words(cell.needs.estimate()) if name in left else 'finished'}"


def _left(cells: Mapping[str, Cell], lab: Lab) -> dict[str, Cell]:
    context = lab.context()
    return {name: cell for name, cell in cells.items() if not context.cells.finished(cell)}


def _state(run: Ahead) -> str:
    if run.finished:
        return "finished"
    work = run.work
    of_cells = f", {len(work.left)} of {len(work.cells)} cells" if work.cells else ""
    return f"to do{of_cells}, {_words(work.estimate)}"


def _words(estimate: Estimate, workers: int = 1) -> str:
    if estimate == Estimate():
        return "a few seconds"
    if _is_unknown(estimate):
        return "time not known before"
    where = f" on {workers} workers, {size(estimate.bytes)} each" if workers > 1 else ""
    alone = "" if where else f", {size(estimate.bytes)}"
    return f"about {duration(max(1.0, estimate.on(workers)))}{where or alone}"


def _is_unknown(estimate: Estimate) -> bool:
    """Whether there is work of unknown cost: on a GPU, or for a released model."""
    return bool(estimate.parts) and not (estimate.seconds or estimate.bytes)


def count_of(number: int, what: str) -> str:
    """A number of things.

    >>> count_of(1, "run"), count_of(3, "cell")
    ('1 run', '3 cells')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def read_shard(text: str) -> tuple[int, int]:
    """`2/4` as the second of four.

    >>> read_shard("2/4")
    (2, 4)
    """
    found = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text)
    if not (found and 1 <= int(found[1]) <= int(found[2]) <= MOST_SHARDS):
        raise InputError(
            f"--shard must be I/N with 1 <= I <= N <= {MOST_SHARDS}, such as 2/4, got '{text}'"
        )
    return int(found[1]), int(found[2])


def share_of(runs: Sequence[Ahead], shard: tuple[int, int]) -> dict[str, Cell]:
    """Return the cells of one of several shards; the same for the same files at any time.

    A model and all that starts from it go to one shard. The longest is dealt out first, to the
    shard with the least work.
    """
    number, shards = shard
    cells = {name: cell for run in runs for name, cell in run.work.cells.items()}
    work: dict[str, float] = {}
    for cell in cells.values():
        unit = _unit(cell)
        work[unit] = work.get(unit, 0.0) + cell.needs.size
    heaps = [0.0] * shards
    mine = set()
    for unit in sorted(work, key=lambda unit: (-work[unit], unit)):
        least = heaps.index(min(heaps))
        # Work that takes no time is dealt out evenly too.
        heaps[least] += work[unit] + 1e-9
        if least == number - 1:
            mine.add(unit)
    return {name: cell for name, cell in cells.items() if _unit(cell) in mine}


def _unit(cell: Cell) -> str:
    """The model trained from random weights that a cell starts from, or the cell itself."""
    model: Any = cell.key.get("model", cell.key)
    if "recipe" not in model:
        return name_of(cell)
    while "start" in model:
        model = model["start"]
    return fingerprint(model)


def compute(cells: Mapping[str, Cell], lab: Lab) -> dict[str, int]:
    """Compute a share on the lab's engine.

    Returns:
        How many cells were computed and how many were there before.
    """
    left = _left(cells, lab)
    lab.announce(list(left.values()))
    errors = [e for _, e in lab.engine.compute(list(left.values()), lab.context()) if e]
    if errors:
        raise errors[0]
    return {"computed": len(left), "reused": len(cells) - len(left)}
