"""What the precision experiment costs, in passes: one pass is cos and sin in float64 over a grid.

The grid is positions x pairs, computed by NumPy into memory that is already there. Ratios are of
processor time, measured side by side in one run, the best of several, so that a busy machine
disturbs both sides alike.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from ropelab.experiments.precision.codes import code_tables, codes
from ropelab.experiments.precision.config import PrecisionConfig
from ropelab.experiments.precision.ladder import ladder_tables
from ropelab.experiments.precision.plan import Plan, plan
from ropelab.experiments.precision.run import run

from ropelab.math.numerics.chain import span
from ropelab.runs.cell import Context

LONG = 1 << 24


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Processor seconds of the quickest of some runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def one_pass(planned: Plan) -> Callable[[], object]:
    """cos and sin of every angle of the grid."""
    inv_freq = planned.rope.inv_freq[:, None]
    angles = inv_freq * span(planned.offset, planned.offset + planned.length)
    into = np.empty_like(angles)

    def work() -> None:
        np.cos(angles, out=into)
        np.sin(angles, out=into)

    return work


def compare(title: str, planned: Plan, work: Callable[[], object], repeats: int) -> None:
    """Print the cost of some work in passes over the grid of a plan."""
    reference = one_pass(planned)
    reference(), work()
    unit, cost = seconds(reference, 5), seconds(work, repeats)
    grid = f"{planned.length} x {planned.rope.pairs}"
    print(f"{title:44} {grid:>14} {1e3 * unit:8.1f} ms/pass {cost / unit:6.1f} passes")


def long_run() -> None:
    """In a process of its own: the codes of 2^24 positions, and the memory they took."""
    config = PrecisionConfig(length=LONG, long_lengths=())
    start = time.perf_counter()
    run(config, Context())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{'everything at 2^24 positions':44} {time.perf_counter() - start:8.1f} s {peak:6.2f} GiB"
    )


def main() -> None:
    """Print the table."""
    config, silent = PrecisionConfig(), {"advance": lambda steps: None}
    default = plan(config)
    found = codes(default.spectra, default.channels)
    compare("default run, all of it", default, lambda: run(config, Context()), 3)
    compare("  the codes", default, lambda: code_tables(default, found, **silent), 3)
    compare("  the ladder", default, lambda: ladder_tables(default, **silent), 3)
    large = plan(PrecisionConfig(length=1 << 20))
    compare("the codes, three formats", large, lambda: code_tables(large, found, **silent), 1)
    subprocess.run([sys.executable, __file__, "long"], check=True)


if __name__ == "__main__":
    long_run() if sys.argv[1:] == ["long"] else main()
