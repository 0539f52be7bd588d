"""`ropelab run`: list what files ask for, or compute all of it, or one share of it."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ropelab.cli.outcome import print_line
from ropelab.lab import Lab, Run
from ropelab.runs.errors import InputError
from ropelab.show.gallery import write_index
from ropelab.show.page.report import write_report
from ropelab.show.page.shown import find_runs
from ropelab.sweeps.cases import read_sweeps
from ropelab.sweeps.combined import combine
from ropelab.sweeps.shares import compute, count_of, lines, lines_of_share, look_ahead, share_of

if TYPE_CHECKING:
    from ropelab.runs.engine import Engine


def list_files(paths: Sequence[Path], lab: Lab, shard: tuple[int, int] | None) -> None:
    """List what is finished and what is to do, with its cost; nothing is computed."""
    runs = look_ahead(read_sweeps(paths, lab), lab)
    for line in lines_of_share(share_of(runs, shard), lab) if shard else lines(runs, lab):
        print_line(line)


def run_share(
    paths: Sequence[Path],
    lab: Lab,
    shard: tuple[int, int],
    engine: "AbstractContextManager[Engine]",
) -> None:
    """Compute one share of the cells that files ask for."""
    if lab.force:
        raise InputError("--force makes everything anew, which shards cannot share; give one")
    share = share_of(look_ahead(read_sweeps(paths, lab), lab), shard)
    with engine as started:
        counts = compute(share, replace(lab, engine=started))
    done = [f"{count_of(number, 'cell')} {what}" for what, number in counts.items() if number]
    print_line(
        f"shard {shard[0]}/{shard[1]}: {', '.join(done) or 'nothing to do'}; when all shards are "
        "done, the same command without --shard makes the tables"
    )


def run_files(
    paths: Sequence[Path],
    lab: Lab,
    engine: "AbstractContextManager[Engine]",
    draw_more: Callable[[Run], object],
    index: str,
    quiet: bool,
) -> None:
    """Make every run that files ask for, then an index and a page of all runs."""
    assert lab.results is not None
    sweeps = read_sweeps(paths, lab)
    plans = [plan for sweep in sweeps for plan in sweep.plans]
    runs: dict[str, Run] = {}
    with engine as started:
        for number, run in replace(lab, engine=started).run_all(plans):
            origin = plans[number].label.origin
            runs[origin] = run
            draw_more(run)
            if not quiet:
                print_line(f"[{len(runs)}/{len(plans)}] {origin}")
                print_line(f"    {run.answer}\n    {run.folder}{' (reused)' if run.reused else ''}")
    for sweep in sweeps:
        if sweep.keys:
            folder = combine(sweep, [runs[plan.label.origin] for plan in sweep.plans], lab)
            print_line(f"{sweep.path}: all runs in one table: {folder}")
    print_line(f"index: {write_index(lab.results, index)}")
    print_line(f"page: {write_report(find_runs([lab.results]), lab.results / 'index.html')}")
