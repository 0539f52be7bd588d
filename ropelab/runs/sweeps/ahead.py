"""What the runs of some files are going to do, and the share of it that one machine takes."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from ropelab.errors import InputError, naming
from ropelab.lab import Lab
from ropelab.runs.context import Cell
from ropelab.runs.estimate import Estimate, duration, size
from ropelab.runs.folders import fingerprint
from ropelab.runs.outlook import Outlook, cost_of, outlook, workers_for
from ropelab.runs.sweeps.cases import Plan, Sweep

OPERATIONS_PER_SECOND = 1e11
"""Makes runs without cells comparable with cells; the same everywhere, so that all shards agree."""
MOST_SHARDS = 10_000


@dataclass(frozen=True)
class Ahead:
    """One run of a file: whether it is finished, and what it consists of if not."""

    plan: Plan
    finished: bool
    outlook: Outlook

    @property
    def origin(self) -> str:
        """The file, and the case in it, that asks for the run."""
        return self.plan[2].origin


@dataclass(frozen=True)
class Work:
    """What is to be computed: cells, phase by phase, and runs that are computed as a whole."""

    phases: list[list[Cell]] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)


def look_ahead(sweeps: Sequence[Sweep], lab: Lab, finished_too: bool = False) -> list[Ahead]:
    """All runs of all files; nothing is computed and nothing written.

    Args:
        finished_too: look at the cells of finished runs as well.
    """
    found = []
    for plan in (plan for sweep in sweeps for plan in sweep.plans):
        with naming(plan[2].origin):
            done = lab.is_finished(*plan)
            nothing = Outlook((), (), Estimate())
            look = finished_too or not done
            ahead = outlook(plan[0], plan[1], lab.context()) if look else nothing
            found.append(Ahead(plan, done, ahead))
    return found


def foretell(runs: Sequence[Ahead], lab: Lab) -> None:
    """Say what all of it costs.

    Raises:
        InputError: a run, or all of them, are beyond the limits.
    """
    for run in runs:
        with naming(run.origin):
            replace(lab, notice=None).foretell(run.outlook.estimate, run.outlook.left)
    cells, estimate = left_of(runs)
    lab.foretell(estimate, cells)


def left_of(runs: Sequence[Ahead]) -> tuple[list[Cell], Estimate]:
    """The cells that are still to be computed, each once, and what everything left costs."""
    unfinished = [run for run in runs if not run.finished]
    cells = {name_of(cell): cell for run in unfinished for cell in run.outlook.left}
    whole = [run.outlook.estimate for run in unfinished if not run.outlook.phases]
    return list(cells.values()), sum(whole, cost_of(cells.values()))


def lines(runs: Sequence[Ahead], lab: Lab) -> Iterator[str]:
    """Every run with its cells, what is finished and what the rest costs; last, all together."""
    for run in runs:
        yield f"{run.origin}: {run.plan[0].name}, {_state(run)}"
        if not run.finished:
            left = {name_of(cell) for cell in run.outlook.left}
            for cell in (cell for phase in run.outlook.phases for cell in phase):
                to_do = name_of(cell) in left
                yield f"    {_called(cell)}: {_words(cell.needs.cost()) if to_do else 'finished'}"
    yield f"in all {_whole(runs, lab)}"


def lines_of_share(work: Work, lab: Lab) -> Iterator[str]:
    """The cells and runs of one shard, and what the unfinished ones cost; last, all together."""
    cells, whole = left_of_share(work, lab)
    left = {name_of(cell) for cell in cells}
    for cell in (cell for phase in work.phases for cell in phase):
        to_do = name_of(cell) in left
        yield f"{_called(cell)}: {_words(cell.needs.cost()) if to_do else 'finished'}"
    for plan in work.plans:
        state = "finished" if lab.is_finished(*plan) else "to do"
        yield f"{plan[2].origin}: {plan[0].name}, {state}"
    every = sum(map(len, work.phases))
    text = f"{count_of(every, 'cell')} ({every - len(cells)} finished)"
    text += f", {count_of(len(work.plans), 'run')} computed as a whole"
    yield f"in all {text}: {_words(whole, workers_for(lab.workers, cells))}"


def left_of_share(work: Work, lab: Lab) -> tuple[list[Cell], Estimate]:
    """The cells of a shard that are still to be computed, and what everything left costs."""
    cells = lab.context().unfinished([cell for phase in work.phases for cell in phase])
    whole = [plan[0].estimate(plan[1]) for plan in work.plans if not lab.is_finished(*plan)]
    return cells, sum((each for each in whole if each), cost_of(cells))


def _state(run: Ahead) -> str:
    if run.finished:
        return "finished"
    ahead = run.outlook
    cells = sum(len(phase) for phase in ahead.phases)
    of_cells = f", {len(ahead.left)} of {cells} cells" if cells else ""
    return f"to do{of_cells}, {_words(ahead.estimate)}"


def _called(cell: Cell) -> str:
    """What a cell computes, and of what."""
    return cell.title if cell.title.startswith(cell.kind) else f"{cell.kind}: {cell.title}"


def _words(estimate: Estimate, workers: int = 1) -> str:
    if estimate == Estimate():
        return "a few seconds"
    if _is_unknown(estimate):
        return "time not known before"
    where = f" on {workers} workers, {size(estimate.bytes)} each" if workers > 1 else ""
    alone = "" if where else f", {size(estimate.bytes)}"
    return f"about {duration(max(1.0, estimate.on(workers)))}{where or alone}"


def _is_unknown(estimate: Estimate) -> bool:
    """Whether there is work of which nothing can be told: on a GPU, or for a model given."""
    return bool(estimate.parts) and not (estimate.seconds or estimate.bytes)


def _whole(runs: Sequence[Ahead], lab: Lab) -> str:
    cells, estimate = left_of(runs)
    every = {name_of(c) for run in runs for phase in run.outlook.phases for c in phase}
    done = sum(run.finished for run in runs)
    text = f"{count_of(len(runs), 'run')} ({done} finished)"
    if every:
        text += f", {count_of(len(every), 'cell')} ({len(every) - len(cells)} finished)"
    if done == len(runs):
        return text
    some = any(_is_unknown(run.outlook.estimate) for run in runs) and not _is_unknown(estimate)
    more = ", and what is not known before" if some else ""
    return f"{text}: {_words(estimate, workers_for(lab.workers, cells))}{more}"


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


def share_of(runs: Sequence[Ahead], shard: tuple[int, int]) -> Work:
    """What one of several shards computes; the same for the same files, whatever is finished.

    A model and all that is asked of it, or that starts from it, go to one shard; so do the cells
    of a run without cells. Whatever takes longest is dealt out first, to the shard that has least.
    Runs that read the results of others are left to whoever joins the shards.
    """
    number, of = shard
    mine = _dealt(_units(runs), of)[number - 1]
    phases = zip_longest(*(run.outlook.phases for run in runs), fillvalue=())
    together = [
        {name_of(c): c for part in phase for c in part if _unit(c) in mine} for phase in phases
    ]
    plans = [run.plan for run in runs if _is_whole(run) and _run_name(run) in mine]
    return Work([list(cells.values()) for cells in together if cells], plans)


def _units(runs: Sequence[Ahead]) -> dict[str, float]:
    """What is not divided any further, with a measure of its work."""
    cells = {name_of(c): c for run in runs for phase in run.outlook.phases for c in phase}
    units: dict[str, float] = {}
    for cell in cells.values():
        units[_unit(cell)] = units.get(_unit(cell), 0.0) + cell.needs.operations
    for run in filter(_is_whole, runs):
        units[_run_name(run)] = run.outlook.estimate.seconds * OPERATIONS_PER_SECOND
    return units


def _dealt(units: dict[str, float], shards: int) -> list[set[str]]:
    """Units in as many heaps, of about equal work."""
    heaps: list[set[str]] = [set() for _ in range(shards)]
    work = [0.0] * shards
    for name in sorted(units, key=lambda name: (-units[name], name)):
        least = work.index(min(work))
        heaps[least].add(name)
        work[least] += units[name] + 1.0  # what takes no time is dealt out evenly too
    return heaps


def _is_whole(run: Ahead) -> bool:
    """Whether a run is computed as a whole, and needs no other one."""
    config = run.plan[1]
    return not (run.outlook.phases or config.reads() or config.requires())


def _run_name(run: Ahead) -> str:
    experiment, config, _ = run.plan
    return fingerprint({"experiment": experiment.name, "config": config.model_dump(mode="json")})


def name_of(cell: Cell) -> str:
    """What tells a cell from all others."""
    return fingerprint({"kind": cell.kind, "version": cell.version, **cell.key})


def _unit(cell: Cell) -> str:
    """The model trained from random weights that a cell is about, or the cell itself."""
    model: Any = cell.key.get("model", cell.key)
    if "recipe" not in model:
        return name_of(cell)
    while "start" in model:
        model = model["start"]
    return fingerprint(model)


def compute(work: Work, lab: Lab) -> dict[str, int]:
    """Compute a share: its cells, wherever the lab's engine does so, and its runs.

    Returns:
        How many cells were computed and how many were there before.
    """
    context = lab.context()
    for cells in work.phases:
        context.phase(cells)
    for plan in work.plans:
        with naming(plan[2].origin):
            lab.carry_out(*plan)
    return context.cells.counts()
