"""The work ahead of some runs, listed before any of it is done, and the share of one
machine.
"""

import re
from collections.abc import Iterator, Sequence, Set
from typing import Any

from ropelab.lab import Lab, Plan, Work, unite
from ropelab.runs.cell import Cell, name_of
from ropelab.runs.errors import InputError
from ropelab.runs.estimate import size
from ropelab.runs.folders import fingerprint
from ropelab.runs.sentences import count_of
from ropelab.sweeps.cases import Sweep

MOST_SHARDS = 10_000
# Plans with their cells.
Ahead = Sequence[tuple[Plan, Work]]


def look_ahead(sweeps: Sequence[Sweep], lab: Lab) -> Ahead:
    """Find the cells of all runs of all files; nothing is computed and nothing
    written.
    """
    context = lab.context()
    ahead = []
    for sweep in sweeps:
        ahead += [(plan, lab.work(plan, context)) for plan in sweep.plans]
    return ahead


def lines(runs: Ahead, lab: Lab) -> Iterator[str]:
    """Describe every run with its models and their tasks, what is finished, and the
    rest's cost.
    """
    unfinished = []
    listed: set[str] = set()
    for plan, work in runs:
        about = f"{plan.label.origin}: {plan.experiment.name}"
        if lab.is_finished(plan):
            yield f"{about}, finished"
            continue

        unfinished.append(work)
        cells = ""
        if work.cells:
            cells = f", {len(work.left)} of {len(work.cells)} cells"
        # Cells of several runs are computed once, so they are listed once.
        new = _without(work, listed)
        yield f"{about}, to do{cells}, {new.estimate.text()}"
        for line in _describe_cells(new):
            yield f"    {line}"
        shared = len(work.cells) - len(new.cells)
        if shared:
            yield f"    {count_of(shared, 'cell')} of runs above"
        listed |= work.cells.keys()

    yield _describe_all(len(runs), unfinished, lab)


def _describe_all(count: int, unfinished: Sequence[Work], lab: Lab) -> str:
    every = unite(unfinished)
    finished = count - len(unfinished)
    text = f"in all {count_of(count, 'run')} ({finished} finished)"
    if every.cells:
        text += f", {_count_cells(every)}"
    if not unfinished:
        return text

    text += f": {_describe_cost(every, lab)}"
    some_unknown = any(work.estimate.is_unknown for work in unfinished)
    if some_unknown and not every.estimate.is_unknown:
        text += ", and what is not known before"
    return text


def _without(work: Work, names: Set[str]) -> Work:
    cells = {name: cell for name, cell in work.cells.items() if name not in names}
    left = {name: cell for name, cell in work.left.items() if name not in names}
    return Work(cells, left)


def lines_of_share(share: Work, lab: Lab) -> Iterator[str]:
    """Describe the cells of one shard, and the cost of the unfinished ones."""
    yield from _describe_cells(share)
    yield f"in all {_count_cells(share)}: {_describe_cost(share, lab)}"


def _describe_cells(work: Work) -> Iterator[str]:
    for name, cell in work.cells.items():
        # Pieces of arithmetic are many and small: the lines of their run count them.
        if not (cell.resources.dtype or cell.resources.alone):
            continue
        title = cell.title
        if not title.startswith(cell.kind):
            title = f"{cell.kind}: {title}"

        estimate = cell.resources.estimate()
        if name not in work.left:
            cost = "finished"
        elif estimate.is_unknown or estimate.seconds >= 1:
            cost = estimate.text()
        else:
            # Many of these take a second together, so none says that it does.
            cost = f"below 1 second, {size(estimate.bytes)}"
        yield f"{title}: {cost}"


def _count_cells(work: Work) -> str:
    return f"{count_of(len(work.cells), 'cell')} ({work.counts['reused']} finished)"


def _describe_cost(work: Work, lab: Lab) -> str:
    return work.estimate.text(work.workers(lab.workers))


def read_shard(text: str) -> tuple[int, int]:
    """Read `2/4` as the second of four."""
    match = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text)
    if match:
        number = int(match[1])
        shards = int(match[2])
        if 1 <= number <= shards <= MOST_SHARDS:
            return number, shards
    raise InputError(
        f"--shard takes I/N, 1 <= I <= N <= {MOST_SHARDS}, such as 2/4, not '{text}'"
    )


def share_of(runs: Ahead, shard: tuple[int, int]) -> Work:
    """Return the cells of one of several shards; the same for the same files at any
    time.

    A model and all that starts from it go to one shard. The longest is dealt out first,
    to the shard with the least work.
    """
    number, shards = shard
    every = unite(work for _, work in runs)
    units = {name: _name_unit(cell) for name, cell in every.cells.items()}
    sizes: dict[str, float] = {}
    for name, unit in units.items():
        sizes[unit] = sizes.get(unit, 0.0) + every.cells[name].resources.size

    heaps = [0.0] * shards
    mine = set()
    for unit in sorted(sizes, key=lambda unit: (-sizes[unit], unit)):
        least = heaps.index(min(heaps))
        # Work that takes no time is dealt out evenly too.
        heaps[least] += sizes[unit] + 1e-9
        if least == number - 1:
            mine.add(unit)

    others = {name for name, unit in units.items() if unit not in mine}
    return _without(every, others)


def _name_unit(cell: Cell) -> str:
    """Return the model trained from random weights that a cell starts from, or the cell
    itself.
    """
    model: Any = cell.key.get("model", cell.key)
    if "recipe" not in model:
        return name_of(cell)
    while "start" in model:
        model = model["start"]
    return fingerprint(model)


def compute(share: Work, lab: Lab) -> None:
    """Compute what is left of a share; the first error of it is raised at the end."""
    lab.announce(share)
    computed = lab.engine.compute(list(share.left.values()), lab.context())
    errors = [error for _, error in computed if error]
    if errors:
        raise errors[0]
