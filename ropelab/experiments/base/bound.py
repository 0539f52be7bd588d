"""The exact bound for one context, searched from where the search of a shorter one
ended.
"""

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context

import pandas as pd

from ropelab.experiments.base import BaseConfig
from ropelab.math.bounds import Similarity, Walk, first_negative
from ropelab.math.bounds.survey import BLOCK
from ropelab.runs.cell import Computation, Resources
from ropelab.runs.tables import Tables

# With fewer rotating pairs there are so many narrow windows that not all are searched.
FEWEST_PAIRS = 8

# Measured for a head of 64 pairs. All windows of a context of n tokens, over n^2: 1.6 s
# at 64k.
SECONDS_PER_SQUARE = 4e-10
# The first window of a context alone, over n: 3.7 s at 512k with its halves.
SECONDS_PER_TOKEN = 4e-6
# The stable base of a context: 0.15 to 0.5 s from 32k to 1M tokens. With twice the
# pairs it takes about twenty times as long, as neighbouring pairs rotate at nearly the
# same speed.
SECONDS_OF_STABLE = 0.3
# Python with NumPy, SciPy, pandas and matplotlib, and sums in memory at once.
LIBRARIES = 300_000_000
# Positions that could fail at some base, as far as they are examined together.
BYTES_PER_TOKEN = 4


def cells(config: BaseConfig) -> list[Computation]:
    """Return a cell per context, each starting from the previous one."""
    similarity = similarity_of(config)
    few_pairs = not similarity.unrotated and len(similarity.exponents) < FEWEST_PAIRS
    cells: list[Computation] = []
    done = 0
    for context in config.context:
        lengths = [
            length for length in steps(config.context) if done < length <= context
        ]
        complete = context <= config.windows_up_to and not few_pairs
        cell = Computation(
            kind="base-bound",
            version=1,
            title=f"admissible bases for {context} tokens",
            function=search,
            inputs={
                "head_dim": config.head_dim,
                "rotary_dim": config.rotated,
                "kept": config.kept,
                "dropped": list(config.dropped),
                "lengths": lengths,
                "complete": complete,
            },
            resources=_resources(config.head_dim, lengths, complete),
            starts=tuple(cells[-1:]),
        )
        cells.append(cell)
        done = context
    return cells


def _resources(head_dim: int, lengths: Sequence[int], complete: bool) -> Resources:
    """Estimate time and memory of a search whose last length is its context."""
    context = lengths[-1]
    windows = 0.0
    if complete:
        windows = float(context) ** 2 * SECONDS_PER_SQUARE
    share = head_dim / 128
    seconds = share * (sum(lengths) * SECONDS_PER_TOKEN + windows)
    grids = 2 * math.isqrt(min(context, BLOCK)) * head_dim * 8

    return Resources(
        seconds=seconds + share**4 * SECONDS_OF_STABLE,
        memory_bytes=LIBRARIES + 3 * grids + context * BYTES_PER_TOKEN,
    )


def similarity_of(config: BaseConfig) -> Similarity:
    """Return the sum of cosines of the head; InputError where its widths do not fit."""
    return Similarity.of_head(
        config.head_dim, config.rotated, config.kept, config.dropped
    )


def steps(contexts: tuple[int, ...]) -> list[int]:
    """Return the contexts, and halves on the way up to and between them, ascending."""
    lengths = set(contexts)
    for longest in contexts:
        # Short searches cost little and move the start of the next one up.
        while longest > 64:
            longest //= 2
            lengths.add(longest)
    return sorted(lengths)


def search(
    *,
    head_dim: int,
    rotary_dim: int,
    kept: float,
    dropped: Sequence[int],
    lengths: Sequence[int],
    complete: bool,
    starts: Sequence[Tables] = (),
) -> dict[str, pd.DataFrame]:
    """Search the admissible bases of the last of ``lengths``; the others are steps on
    the way.

    Only the first and the last window unless ``complete``. ``starts`` are the tables of
    the context before. Returns bound, one row: from ``stable_base`` on all bases are
    admissible (missing: none is proved); ``recommended_base`` is that rounded up to two
    digits; ``certified``: a proof covers every base below the first window and every
    position inside the windows. windows: the known admissible intervals, ``high``
    missing: no end. state: where the next search starts.
    """
    similarity = Similarity.of_head(head_dim, rotary_dim, kept, tuple(dropped))
    context = lengths[-1]
    start = 0.0
    settled = (math.inf, 1)
    for before in starts:
        before_state = before["state"].iloc[0]
        start = float(before_state.start_u)
        settled = (float(before_state.settled_u), int(before_state.settled_tokens))

    windows: list[tuple[float, float]] = []
    for length in lengths:
        walk = Walk(similarity, length, settled)
        if length < context:
            first = walk.first(start)
            windows = [] if first is None else [first]
        elif complete:
            windows = list(walk.windows(start))
        else:
            windows = _first_and_last(walk, start)

        if windows:
            # A base that fails at a shorter length fails at a longer one too.
            start = windows[0][0]
            last_low, last_high = windows[-1]
            if last_high == math.inf:
                settled = (last_low, length)

    bases = [(_exp(low), _exp(high)) for low, high in windows]
    smallest = bases[0][0] if bases else math.nan
    stable = math.nan
    if bases and bases[-1][1] == math.inf:
        stable = bases[-1][0]

    status = "all windows" if complete else "first and last window"
    if not bases:
        status = "no base is admissible"
    elif not complete and math.isnan(stable):
        status = "first window only"
    bound = {
        "context_tokens": context,
        "head_dim": head_dim,
        "rotary_dim": rotary_dim,
        "rotating_pairs": len(similarity.exponents),
        "recommended_base": _recommend(similarity, context, smallest, stable),
        "stable_base": stable,
        "smallest_admissible_base": smallest,
        "certified": bool(bases),
        "status": status,
    }

    rows = []
    for low, high in bases:
        end = high if high < math.inf else math.nan
        rows.append((context, low, end))
    settled_u, settled_tokens = settled
    state = {
        "start_u": start,
        "settled_u": settled_u,
        "settled_tokens": settled_tokens,
    }
    return {
        "bound": pd.DataFrame([bound]),
        "windows": pd.DataFrame(rows, columns=["context_tokens", "low", "high"]),
        "state": pd.DataFrame([state]),
    }


def _first_and_last(walk: Walk, start: float) -> list[tuple[float, float]]:
    """Return the first window from `start` on, and the last one where it is proved."""
    first = walk.first(start)
    if first is None:
        return []

    windows = [first]
    if first[1] < math.inf:
        stable = walk.stable()
        if stable < math.inf:
            windows.append((stable, math.inf))
    return windows


def _exp(u: float) -> float:
    # exp(710) is beyond float64.
    return math.exp(u) if u < 700 else math.inf


def _recommend(
    similarity: Similarity, context: int, smallest: float, stable: float
) -> float:
    """Return the stable base rounded up, nan where that is not admissible."""
    # At a smallest base of 1 every base is admissible, and none needs to be
    # recommended.
    usable = stable if smallest > 1 else smallest
    if usable > 1:
        usable = round_up(stable)
        # Checked in float64, independently of the proof.
        if first_negative(similarity, usable, context) is not None:
            return math.nan
    return usable


def round_up(base: float, digits: int = 2) -> float:
    """Return the smallest number of so many significant digits that is not below
    ``base``.

    >>> round_up(3325751.03), round_up(99.5), round_up(1.5e7), round_up(629978.3, 6)
    (3400000.0, 100.0, 15000000.0, 629979.0)
    """
    exact = Context(digits, ROUND_CEILING).create_decimal_from_float(base)
    # its nearest float64, which is not below another float64 either
    return float(exact)
