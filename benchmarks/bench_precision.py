"""What the precision experiment costs, in passes: one pass is cos and sin in float64
over a grid.

The grid is positions x pairs, computed by NumPy into memory that is already there.
Ratios are of processor time, measured side by side in one run, the best of several, so
that a busy machine disturbs both sides alike.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.results import cells, tables
from ropelab.experiments.precision.shared import make_spectrum
from ropelab.math.numerics.chain import list_positions
from ropelab.runs.cell import Context, Values

LONG = 1 << 24


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Processor seconds of the quickest of some runs."""
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    return best


def one_pass(config: PrecisionConfig) -> Callable[[], object]:
    """cos and sin of every angle of the grid."""
    inv_freq = make_spectrum(config).inv_freq[:, None]
    angles = inv_freq * list_positions(config.offset, config.offset + config.length)
    into = np.empty_like(angles)

    def work() -> None:
        np.cos(angles, out=into)
        np.sin(angles, out=into)

    return work


def compare(
    title: str, config: PrecisionConfig, work: Callable[[], object], repeats: int
) -> None:
    """Print the cost of some work in passes over the grid of a config."""
    reference = one_pass(config)
    reference(), work()
    unit, cost = seconds(reference, 5), seconds(work, repeats)
    grid = f"{config.length} x {config.rotated // 2}"
    print(f"{title:44} {grid:>14} {1e3 * unit:8.1f} ms/pass {cost / unit:6.1f} passes")


def compute(config: PrecisionConfig, kind: str) -> None:
    """Compute the cells of one kind."""
    for cell in cells(config):
        if cell.kind == kind:
            cell.tables(Context())


def long_run() -> None:
    """In a process of its own: the encodings of 2^24 positions, and the memory they
    took.
    """
    config = PrecisionConfig(length=LONG, long_lengths=())
    start = time.perf_counter()
    tables(config, Values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{'everything at 2^24 positions':44} {time.perf_counter() - start:8.1f} s"
        f" {peak:6.2f} GiB"
    )


def main() -> None:
    """Print the table."""
    config, large = PrecisionConfig(), PrecisionConfig(length=1 << 20)
    compare("default run, all of it", config, lambda: tables(config, Values()), 3)
    compare("  the encodings", config, lambda: compute(config, "precision-encoding"), 3)
    compare("  the casts", config, lambda: compute(config, "precision-casts"), 3)
    compare(
        "the encodings, four formats",
        large,
        lambda: compute(large, "precision-encoding"),
        1,
    )
    subprocess.run([sys.executable, __file__, "long"], check=True)


if __name__ == "__main__":
    long_run() if sys.argv[1:] == ["long"] else main()
