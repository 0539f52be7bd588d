"""The work that runs still need, listed before it begins, and one machine's shard of
it.
"""

import re
from collections.abc import Iterator, Sequence, Set
from typing import Any

from ropelab.lab import Lab
from ropelab.plan import Plan, Work, unite
from ropelab.runs.cell import Cell, hash_cell
from ropelab.runs.errors import InputError
from ropelab.runs.estimate import write_size
from ropelab.runs.folders import fingerprint
from ropelab.runs.sentences import write_count
from ropelab.sweeps.cases import Sweep

MOST_SHARDS = 10_000
# Plans, each with its cells.
PlannedWork = Sequence[tuple[Plan, Work]]


def look_ahead(sweeps: Sequence[Sweep], lab: Lab) -> PlannedWork:
    """Find the cells of all runs of all files; nothing is computed and nothing
    written.
    """
    context = lab.make_context()
    planned = []
    for sweep in sweeps:
        planned += [(plan, lab.find_work(plan, context)) for plan in sweep.plans]
    return planned


def describe_runs(runs: PlannedWork, lab: Lab) -> Iterator[str]:
    """Describe, in lines, every run with its cells, and the cost of what is
    unfinished.
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
        # A cell that several runs share is computed once, so it is listed once.
        new = _drop_cells(work, listed)
        yield f"{about}, to do{cells}, {new.estimate.text()}"
        for line in _describe_cells(new):
            yield f"    {line}"
        shared = len(work.cells) - len(new.cells)
        if shared:
            yield f"    {write_count(shared, 'cell')} of runs above"
        listed |= work.cells.keys()

    yield _describe_all(len(runs), unfinished, lab)


def _describe_all(count: int, unfinished: Sequence[Work], lab: Lab) -> str:
    """Describe the work of all runs together, of which there are `count`."""
    every = unite(unfinished)
    finished = count - len(unfinished)
    text = f"in all {write_count(count, 'run')} ({finished} finished)"
    if every.cells:
        text += f", {_count_cells(every)}"
    if not unfinished:
        return text

    text += f": {_describe_cost(every, lab)}"
    # The sum is called unknown only if the cost of all its cells is unknown.
    some_unknown = any(work.estimate.is_unknown for work in unfinished)
    if some_unknown and not every.estimate.is_unknown:
        text += ", plus cells of unknown cost"
    return text


def _drop_cells(work: Work, names: Set[str]) -> Work:
    cells = {name: cell for name, cell in work.cells.items() if name not in names}
    left = {name: cell for name, cell in work.left.items() if name not in names}
    return Work(cells, left)


def describe_share(share: Work, lab: Lab) -> Iterator[str]:
    """Describe the cells of one shard, and the cost of its unfinished cells."""
    yield from _describe_cells(share)
    yield f"in all {_count_cells(share)}: {_describe_cost(share, lab)}"


def _describe_cells(work: Work) -> Iterator[str]:
    for name, cell in work.cells.items():
        # Cells of arithmetic are many and small, so only their number is told, by the
        # line of their run. A cell of arithmetic has no dtype and shares the machine.
        is_arithmetic = not (cell.resources.dtype or cell.resources.exclusive)
        if is_arithmetic:
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
            # `text` would round each of these cells up to a second, although many of
            # them together take a second.
            cost = f"below 1 second, {write_size(estimate.bytes)}"
        yield f"{title}: {cost}"


def _count_cells(work: Work) -> str:
    return f"{write_count(len(work.cells), 'cell')} ({work.counts['reused']} finished)"


def _describe_cost(work: Work, lab: Lab) -> str:
    return work.estimate.text(work.count_workers(lab.workers))


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


def choose_share(runs: PlannedWork, shard: tuple[int, int]) -> Work:
    """Return the cells of one of several shards. The shards depend only on the files.

    A model and all cells that start from it go to one shard. The model with the most
    work is dealt out first, and each next model to the shard with the least work so
    far.

    Args:
        runs: the runs with their cells.
        shard: the number of the shard, from 1, and the number of shards.
    """
    number, shards = shard
    every = unite(work for _, work in runs)
    units = {name: _name_unit(cell) for name, cell in every.cells.items()}
    sizes: dict[str, float] = {}
    for name, unit in units.items():
        sizes[unit] = sizes.get(unit, 0.0) + every.cells[name].resources.size

    work_dealt = [0.0] * shards
    units_of_shard = set()
    largest_first = sorted(sizes, key=lambda unit: (-sizes[unit], unit))
    for unit in largest_first:
        least = work_dealt.index(min(work_dealt))
        # The small addition deals out units of size 0 evenly, too.
        work_dealt[least] += sizes[unit] + 1e-9
        if least == number - 1:
            units_of_shard.add(unit)

    others = {name for name, unit in units.items() if unit not in units_of_shard}
    return _drop_cells(every, others)


def _name_unit(cell: Cell) -> str:
    """Return the name of the unit that a cell belongs to: all cells of a unit have the
    same name and go to one shard.

    Cells that train the same model, continue its training or evaluate it are one unit. A
    cell that needs no trained model is a unit by itself.
    """
    # The key of a cell that evaluates a model describes the model. The key of a cell that
    # trains one is itself that description.
    model: Any = cell.key.get("model", cell.key)
    # A description of training has the recipe: steps, learning rate and so on.
    is_trained = "recipe" in model
    if not is_trained:
        return hash_cell(cell)

    # A model whose training continued that of another one describes the other one as its
    # `start`. The first model of this chain began with random weights.
    while "start" in model:
        model = model["start"]
    return fingerprint(model)


def compute(share: Work, lab: Lab) -> None:
    """Compute the unfinished cells of a share; raise the first error at the end."""
    lab.announce(share)
    computed = lab.engine.compute(list(share.left.values()), lab.make_context())
    errors = [error for _, error in computed if error]
    if errors:
        raise errors[0]
