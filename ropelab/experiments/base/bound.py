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
    few = not similarity.unrotated and len(similarity.exponents) < FEWEST_PAIRS
    share, done = config.head_dim / 128, 0
    found: list[Computation] = []
    for context in config.context:
        walked = [
            length for length in steps(config.context) if done < length <= context
        ]
        done = context
        complete = context <= config.windows_up_to and not few
        windows = complete * float(context) ** 2 * SECONDS_PER_SQUARE
        seconds = share * (sum(walked) * SECONDS_PER_TOKEN + windows)
        grids = 2 * math.isqrt(min(context, BLOCK)) * config.head_dim * 8
        memory = LIBRARIES + 3 * grids + context * BYTES_PER_TOKEN
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
                "lengths": walked,
                "complete": complete,
            },
            resources=Resources(
                seconds=seconds + share**4 * SECONDS_OF_STABLE, memory_bytes=memory
            ),
            starts=tuple(found[-1:]),
        )
        found.append(cell)
    return found


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
    start, settled = 0.0, (math.inf, 1)
    for before in starts:
        state = before["state"].iloc[0]
        start, settled = (
            float(state.start_u),
            (float(state.settled_u), int(state.settled_tokens)),
        )
    for length in lengths:
        walk, asked = Walk(similarity, length, settled), length == context
        if asked and complete:
            windows = list(walk.windows(start))
        else:
            first = walk.first(start)
            windows = [] if first is None else [first]
            if (
                asked
                and windows
                and windows[0][1] < math.inf
                and (u := walk.stable()) < math.inf
            ):
                windows.append((u, math.inf))
        if windows:
            # A base that fails at a shorter length fails at a longer one too.
            start = windows[0][0]
            if windows[-1][1] == math.inf:
                settled = (windows[-1][0], length)

    # exp(710) is beyond float64.
    bases = [
        [math.exp(u) if u < 700 else math.inf for u in window] for window in windows
    ]
    smallest = bases[0][0] if bases else math.nan
    stable = bases[-1][0] if bases and bases[-1][1] == math.inf else math.nan
    # At a smallest base of 1 every base is admissible, and none needs to be
    # recommended.
    usable = stable if smallest > 1 else smallest
    if usable > 1:
        usable = rounded_up(stable)
        # Checked in float64, independently of the proof.
        if first_negative(similarity, usable, context) is not None:
            usable = math.nan
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
        "recommended_base": usable,
        "stable_base": stable,
        "smallest_admissible_base": smallest,
        "certified": bool(bases),
        "status": status,
    }
    rows = [
        (context, low, high if high < math.inf else math.nan) for low, high in bases
    ]
    end = {"start_u": start, "settled_u": settled[0], "settled_tokens": settled[1]}
    return {
        "bound": pd.DataFrame([bound]),
        "windows": pd.DataFrame(rows, columns=["context_tokens", "low", "high"]),
        "state": pd.DataFrame([end]),
    }


def rounded_up(base: float, digits: int = 2) -> float:
    """Return the smallest number of so many significant digits that is not below
    ``base``.

    >>> rounded_up(3325751.03), rounded_up(99.5), rounded_up(1.5e7), rounded_up(629978.3, 6)
    (3400000.0, 100.0, 15000000.0, 629979.0)
    """
    exact = Context(digits, ROUND_CEILING).create_decimal_from_float(base)
    # its nearest float64, which is not below another float64 either
    return float(exact)
