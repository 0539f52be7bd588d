"""The certified search for admissible bases against the direct scan, side by side.

The direct scan is what one would write first: every position for every base of a grid,
in float64, until a base has no negative sum. Its time grows with context x grid, and a
grid of relative step h can still step over windows narrower than h. The search needs no
grid.

    python benchmarks/bench_base.py
"""

import math
import time
from collections.abc import Callable

import numpy as np

from ropelab.math.bounds import Similarity, Walk, scan

Method = Callable[[Similarity, int], float]
STEP = 1e-4
"""Relative step of the direct scan's grid."""
CONTEXT = 1024
START = math.log(3500.0)


def direct(similarity: Similarity, context: int) -> float:
    """The smallest admissible base on the grid, every cosine computed."""
    positions = np.arange(context, dtype=np.float64)
    u = START
    while (similarity.evaluate(positions, u) < 0).any():
        u += STEP
    return math.exp(u)


def direct_by_products(similarity: Similarity, context: int) -> float:
    """The same grid, with the sums as a matrix product: the search's own scan at every
    base.
    """
    u = START
    while (scan(similarity, u, 0, context) < 0).any():
        u += STEP
    return math.exp(u)


def certified(similarity: Similarity, context: int) -> float:
    """The smallest admissible base, nothing skipped."""
    return math.exp(_find_first(Walk(similarity, context), START))


def _find_first(walk: Walk, start: float) -> float:
    found = walk.find_first(start)
    return math.inf if found is None else found[0]


def main() -> None:
    """Print the ratios, then the times of the published contexts."""
    similarity = Similarity.of_head(128)
    print(
        "smallest admissible base, head_dim 128, from base 3500; grid step"
        f" {STEP:g} (relative)"
    )
    print(f"{'context':>8} {'method':<22} {'base':>10} {'seconds':>9} {'ratio':>8}")
    seconds = _timed(certified, similarity, None)
    for method in (direct_by_products, direct):
        _timed(method, similarity, seconds)
    print("\ncertified search, each context from the first base of the one before")
    u = 0.0
    for power in range(6, 21):
        start = time.perf_counter()
        u = _find_first(Walk(similarity, 2**power), u)
        if power >= 10:
            seconds = time.perf_counter() - start
            print(
                f"{2**power:>8} {'certified':<22} {math.exp(u):>10.6g} {seconds:>9.3f}"
            )


def _timed(method: Method, similarity: Similarity, reference: float | None) -> float:
    start = time.perf_counter()
    base = method(similarity, CONTEXT)
    seconds = time.perf_counter() - start
    ratio = "1" if reference is None else f"{seconds / reference:.1f}"
    print(
        f"{CONTEXT:>8} {method.__name__:<22} {base:>10.6g} {seconds:>9.3f} {ratio:>8}"
    )
    return seconds


if __name__ == "__main__":
    main()
