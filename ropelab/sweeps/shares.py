"""The work that runs still need, listed before it begins, and one machine's shard of
it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from ropelab.lab import Lab
from ropelab.plan import Plan, Work, unite
from ropelab.runs.cell import Cell, hash_cell
from ropelab.runs.errors import InputError
from ropelab.runs.estimate import write_size
from ropelab.runs.folders import fingerprint
from ropelab.runs.sentences import write_count
from ropelab.sweeps.cases import Sweep

# The most shards into which work may be divided.
MOST_SHARDS = 10_000
# Plans of runs, each with its cells.
PlannedWork = Sequence[tuple[Plan, Work]]


def look_ahead(sweeps: Sequence[Sweep], lab: Lab) -> PlannedWork:
    """Find the cells of all runs of all files. Nothing is computed, and nothing is
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
    # The hashes of the cells that were described.
    listed: set[str] = set()
    for plan, work in runs:
        about = f"{plan.label.origin}: {plan.experiment.name}"
        if lab.is_finished(plan):
            yield f"{about}, finished"
            continue

        unfinished.append(work)
        cells = ""
        if work.cells:
            cells = f", {len(work.cells_left)} of {len(work.cells)} cells"
        # A cell that several runs share is computed once, so it is listed once.
        unlisted = _drop_cells(work, listed)
        yield f"{about}, to do{cells}, {unlisted.estimate.text()}"
        for line in _describe_cells(unlisted):
            yield f"    {line}"
        shared_count = len(work.cells) - len(unlisted.cells)
        if shared_count:
            yield f"    {write_count(shared_count, 'cell')} of runs above"
        listed |= work.cells.keys()

    yield _describe_all(len(runs), unfinished, lab)


def _describe_all(count: int, unfinished: Sequence[Work], lab: Lab) -> str:
    """Describe `count` runs together; `unfinished` has the work of those that are not
    finished.
    """
    all_work = unite(unfinished)
    finished_count = count - len(unfinished)
    text = f"in all {write_count(count, 'run')} ({finished_count} finished)"
    if all_work.cells:
        text += f", {_count_cells(all_work)}"
    if not unfinished:
        return text

    text += f": {_describe_cost(all_work, lab)}"
    # The estimate of all cells is unknown only if the cost of every cell is unknown.
    some_unknown = any(work.estimate.is_unknown for work in unfinished)
    if some_unknown and not all_work.estimate.is_unknown:
        text += ", plus cells of unknown cost"
    return text


def _drop_cells(work: Work, hashes: Set[str]) -> Work:
    """Return work without the cells that have these hashes."""

    def drop(cells: Mapping[str, Cell]) -> dict[str, Cell]:
        return {key: cell for key, cell in cells.items() if key not in hashes}

    return Work(drop(work.cells), drop(work.cells_left))


def describe_share(share: Work, lab: Lab) -> Iterator[str]:
    """Describe the cells of one shard, and the cost of its unfinished cells."""
    yield from _describe_cells(share)
    yield f"in all {_count_cells(share)}: {_describe_cost(share, lab)}"


def _describe_cells(work: Work) -> Iterator[str]:
    for cell_hash, cell in work.cells.items():
        # Cells of arithmetic are many and small. They are not described one by one: the
        # line of their run tells their number. A cell of arithmetic has no dtype and
        # shares the machine.
        is_arithmetic = not (cell.resources.dtype or cell.resources.exclusive)
        if is_arithmetic:
            continue
        title = cell.title
        if not title.startswith(cell.kind):
            title = f"{cell.kind}: {title}"

        estimate = cell.resources.estimate()
        if cell_hash not in work.cells_left:
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
    all_work = unite(work for _, work in runs)
    # The unit of each cell, by the hash of the cell.
    units = {key: _name_unit(cell) for key, cell in all_work.cells.items()}
    sizes: dict[str, float] = {}
    for cell_hash, unit in units.items():
        size = all_work.cells[cell_hash].resources.size
        sizes[unit] = sizes.get(unit, 0.0) + size

    # The size of all units that each shard has been given.
    sizes_dealt = [0.0] * shards
    units_of_shard = set()
    largest_first = sorted(sizes, key=lambda unit: (-sizes[unit], unit))
    for unit in largest_first:
        shard_index = sizes_dealt.index(min(sizes_dealt))
        # The small addition deals out units of size 0 evenly, too.
        sizes_dealt[shard_index] += sizes[unit] + 1e-9
        if shard_index == number - 1:
            units_of_shard.add(unit)

    hashes_elsewhere = {
        key for key, unit in units.items() if unit not in units_of_shard
    }
    return _drop_cells(all_work, hashes_elsewhere)


def _name_unit(cell: Cell) -> str:
    """Return the name of the unit that a cell belongs to: all cells of a unit have the
    same name and go to one shard.

    Cells that train the same model, continue its training or evaluate it are one unit. A
    cell that needs no trained model is a unit by itself.
    """
    # The key of a cell that evaluates a model describes the model under "model". The key
    # of a cell that trains a model is itself the description of the model.
    model: Any = cell.key.get("model", cell.key)
    # A description of training has the recipe: steps, learning rate and so on.
    is_trained = "recipe" in model
    if not is_trained:
        return hash_cell(cell)

    # If the training began with the weights of another model, the description of that
    # model is under "start". The first model of this chain began with random weights.
    while "start" in model:
        model = model["start"]
    return fingerprint(model)


def compute(share: Work, lab: Lab) -> None:
    """Compute the unfinished cells of a share; raise the first error at the end."""
    lab.announce(share)
    computed = lab.engine.compute(list(share.cells_left.values()), lab.make_context())
    errors = [error for _, error in computed if error]
    if errors:
        raise errors[0]
