"""What `ropelab run` does: tell what is ahead, or compute all of it, or one share of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ropelab.errors import InputError
from ropelab.lab import Lab, Run
from ropelab.runs.cell import Cell
from ropelab.runs.engine import Engine
from ropelab.runs.sweeps.ahead import (
    compute,
    count_of,
    lines,
    lines_of_share,
    look_ahead,
    read_shard,
    share_of,
)
from ropelab.runs.sweeps.cases import Sweep, read_sweeps
from ropelab.runs.sweeps.combined import combine
from ropelab.show.gallery import write_index
from ropelab.show.page.report import write_report
from ropelab.show.page.shown import find_runs


@dataclass(frozen=True)
class Request:
    """What was asked for.

    Attributes:
        shard: `I/N`, or empty for everything.
        show: prints a line.
        draw_more: draws the figures of a run that were asked for beside the usual ones.
    """

    paths: Sequence[Path]
    lab: Lab
    shard: str
    show: Callable[[str], object]
    draw_more: Callable[[Run], object]
    quiet: bool

    def __post_init__(self) -> None:
        if self.shard and self.lab.force:
            raise InputError("--force makes everything anew, which shards cannot share; give one")


def tell(request: Request) -> None:
    """List what is finished and what is to do, with its cost; nothing is computed."""
    sweeps = read_sweeps(request.paths, request.lab)
    told = (
        lines_of_share(_share(request, sweeps), request.lab)
        if request.shard
        else lines(look_ahead(sweeps, request.lab), request.lab)
    )
    for line in told:
        request.show(line)


def carry_out(request: Request, engine: Engine, index: str) -> None:
    """Compute what was asked for, and tell where it is."""
    sweeps = read_sweeps(request.paths, request.lab)
    if request.shard:
        _compute_share(request, sweeps, engine)
        return
    lab = replace(request.lab, engine=engine)
    runs = _all_runs(request, sweeps, lab)
    for sweep in sweeps:
        if sweep.keys:
            folder = combine(sweep, [runs[plan.label.origin] for plan in sweep.plans], lab)
            request.show(f"{sweep.path}: all runs in one table: {folder}")
    assert lab.results is not None
    request.show(f"index: {write_index(lab.results, index)}")
    request.show(f"page: {write_report(find_runs([lab.results]), lab.results / 'index.html')}")


def _all_runs(request: Request, sweeps: Sequence[Sweep], lab: Lab) -> dict[str, Run]:
    """Every run, by what asked for it."""
    plans = [plan for sweep in sweeps for plan in sweep.plans]
    runs: dict[str, Run] = {}
    for number, run in lab.run_all(plans):
        origin = plans[number].label.origin
        runs[origin] = run
        request.draw_more(run)
        if not request.quiet:
            request.show(f"[{len(runs)}/{len(plans)}] {origin}")
            request.show(f"    {run.answer}\n    {run.folder}{' (reused)' if run.reused else ''}")
    return runs


def _share(request: Request, sweeps: Sequence[Sweep]) -> dict[str, Cell]:
    return share_of(look_ahead(sweeps, request.lab), read_shard(request.shard))


def _compute_share(request: Request, sweeps: Sequence[Sweep], engine: Engine) -> None:
    counts = compute(_share(request, sweeps), replace(request.lab, engine=engine))
    done = [f"{count_of(number, 'cell')} {what}" for what, number in counts.items() if number]
    request.show(
        f"shard {request.shard}: {', '.join(done) or 'nothing to do'}; when all shards are done, "
        "the same command without --shard makes the tables"
    )
