"""The exact bound for one context, searched from where the search of a shorter context
ended.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context
from typing import Self

import pandas as pd

from ropelab.experiments.base import BaseConfig
from ropelab.math.bounds import Similarity, Walk, first_negative
from ropelab.math.bounds.survey import BLOCK
from ropelab.runs.cell import Computation, Resources
from ropelab.runs.tables import Tables

# The fewest rotating pairs of a head for which all windows are searched. With fewer there
# are too many narrow windows.
FEWEST_PAIRS = 8

# Processor times, measured for a head of 64 pairs. All windows of a context of n tokens
# take this times n^2 (1.6 s at 64k).
SECONDS_PER_SQUARE = 4e-10
# The first window of a context of n tokens takes this times n (3.7 s at 512k together
# with the halves of the context).
SECONDS_PER_TOKEN = 4e-6
# The stable base of a context takes 0.15 to 0.5 s from 32k to 1M tokens. With twice the
# pairs the search takes about twenty times as long, because neighbouring pairs rotate at
# nearly the same speed.
SECONDS_OF_STABLE = 0.3
# The memory, in bytes, of Python with NumPy, SciPy, pandas and matplotlib.
LIBRARIES = 300_000_000
# The memory for each token of the context: positions that could fail at some base are
# examined together.
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


@dataclass(frozen=True)
class SearchState:
    """What the search of one length found that holds for longer ones, too.

    Bases are written as u, their natural logarithm.
    """

    # No base below this is admissible.
    start: float = 0.0
    # From `settled` on all bases are admissible at `settled_tokens`.
    settled: float = math.inf
    settled_tokens: int = 1

    @classmethod
    def from_table(cls, state: pd.DataFrame) -> Self:
        row = state.iloc[0]
        return cls(
            start=float(row.start_u),
            settled=float(row.settled_u),
            settled_tokens=int(row.settled_tokens),
        )

    def to_table(self) -> pd.DataFrame:
        row = {
            "start_u": self.start,
            "settled_u": self.settled,
            "settled_tokens": self.settled_tokens,
        }
        return pd.DataFrame([row])

    def advance(self, length: int, windows: Sequence[tuple[float, float]]) -> Self:
        """Return the progress after a search that found these windows at a length."""
        if not windows:
            return self

        # A base that fails at a shorter length fails at a longer one too.
        start = windows[0][0]
        last_low, last_high = windows[-1]
        if last_high < math.inf:
            return replace(self, start=start)
        return replace(self, start=start, settled=last_low, settled_tokens=length)


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
    progress = SearchState()
    for tables in starts:
        progress = SearchState.from_table(tables["state"])

    windows: list[tuple[float, float]] = []
    *shorter, context = lengths
    for length in shorter:
        # The first window moves the start of the next search up.
        windows = _find_first(_walk(similarity, length, progress), progress.start)
        progress = progress.advance(length, windows)

    walk = _walk(similarity, context, progress)
    if complete:
        windows = list(walk.windows(progress.start))
    else:
        windows = _find_first_and_last(walk, progress.start)
    progress = progress.advance(context, windows)

    bases = [(_exp(low), _exp(high)) for low, high in windows]
    smallest = math.nan
    stable = math.nan
    if bases:
        smallest = bases[0][0]
        last_low, last_high = bases[-1]
        if last_high == math.inf:
            stable = last_low
    bound = {
        "context_tokens": context,
        "head_dim": head_dim,
        "rotary_dim": rotary_dim,
        "rotating_pairs": len(similarity.exponents),
        "recommended_base": _recommend(similarity, context, smallest, stable),
        "stable_base": stable,
        "smallest_admissible_base": smallest,
        "certified": bool(bases),
        "status": _describe_search(complete, smallest, stable),
    }

    rows = []
    for low, high in bases:
        end = high if high < math.inf else math.nan
        rows.append((context, low, end))
    return {
        "bound": pd.DataFrame([bound]),
        "windows": pd.DataFrame(rows, columns=["context_tokens", "low", "high"]),
        "state": progress.to_table(),
    }


def _walk(similarity: Similarity, length: int, progress: SearchState) -> Walk:
    return Walk(similarity, length, (progress.settled, progress.settled_tokens))


def _describe_search(complete: bool, smallest: float, stable: float) -> str:
    """Say which windows were searched and found; bases that are nan were not found."""
    if math.isnan(smallest):
        return "no base is admissible"
    if complete:
        return "all windows"
    if math.isnan(stable):
        return "first window only"
    return "first and last window"


def _find_first(walk: Walk, start: float) -> list[tuple[float, float]]:
    """Return the first window from `start` on, in a list that is empty without one."""
    first = walk.first(start)
    return [] if first is None else [first]


def _find_first_and_last(walk: Walk, start: float) -> list[tuple[float, float]]:
    """Return the first window from `start` on, and the last one if it is proved."""
    windows = _find_first(walk, start)
    if windows and windows[0][1] < math.inf:
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
    """Return the stable base rounded up; nan if there is none, or if the rounded base
    is not admissible.
    """
    # If the smallest base is 1, every base is admissible and none needs to be
    # recommended.
    if not smallest > 1:
        return smallest
    if not stable > 1:
        return stable

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
    # The nearest float64 of the decimal may be below it, but never below `base`, which is
    # a float64 itself.
    return float(exact)
