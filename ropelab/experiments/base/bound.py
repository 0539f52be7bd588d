"""The search for the admissible bases of a context. It starts from where the search of a
shorter context ended.

A base is admissible for a context if the sum of cosines of its frequencies is not
negative at any position of the context. Admissible bases are intervals, called windows.
The last window may have no end; its lower end is then the stable base.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context
from typing import Self

import pandas as pd

from ropelab.experiments.base import BaseConfig
from ropelab.math.bounds import Similarity, Walk, find_first_negative
from ropelab.math.bounds.survey import BLOCK
from ropelab.runs.cell import Computation, Resources
from ropelab.runs.tables import Tables

# All windows are searched if at least this many pairs of a head rotate. With fewer pairs
# there are too many narrow windows.
FEWEST_PAIRS = 8

# Processor times, measured for a head of 64 pairs.
# The seconds of a search of all windows, for each square of a token: a context of n tokens
# takes n^2 times this (1.6 s at 64k).
SECONDS_PER_SQUARE = 4e-10
# The seconds of a search of the first window, for each token of the context (3.7 s at 512k
# together with the halves of the context).
SECONDS_PER_TOKEN = 4e-6
# The seconds of the search of the stable base, which takes 0.15 to 0.5 s from 32k to 1M
# tokens. With twice the pairs the search takes about twenty times as long, because
# neighbouring pairs rotate at nearly the same speed.
SECONDS_OF_STABLE = 0.3
# The memory, in bytes, of Python with NumPy, SciPy, pandas and matplotlib.
LIBRARY_BYTES = 300_000_000
# The memory, in bytes, for each token of the context: positions that could fail at some
# base are examined together.
BYTES_PER_TOKEN = 4


def cells(config: BaseConfig) -> list[Computation]:
    """Return a cell per context. Each cell starts from the cell of the next shorter
    context.
    """
    similarity = make_similarity(config)
    has_few_pairs = (
        len(similarity.exponents) < FEWEST_PAIRS and not similarity.unrotated
    )

    all_lengths = list_lengths(config.context)
    cells: list[Computation] = []
    previous_context = 0
    for context in config.context:
        lengths = [n for n in all_lengths if previous_context < n <= context]
        complete = context <= config.windows_up_to and not has_few_pairs

        cell = Computation(
            kind="base-bound",
            version=1,
            title=f"admissible bases for {context} tokens",
            function=search_bases,
            inputs={
                "head_dim": config.head_dim,
                "rotary_dim": config.rotated,
                "kept": config.kept,
                "dropped": list(config.dropped),
                "lengths": lengths,
                "complete": complete,
            },
            resources=_estimate_resources(config.head_dim, lengths, complete),
            # The first cell has no prerequisite.
            prerequisites=tuple(cells[-1:]),
        )

        cells.append(cell)
        previous_context = context
    return cells


def _estimate_resources(
    head_dim: int, lengths: Sequence[int], complete: bool
) -> Resources:
    """Estimate time and memory of a search of these lengths, the last of which is the
    context. A complete search finds all windows of the context.
    """
    context = lengths[-1]
    seconds = sum(lengths) * SECONDS_PER_TOKEN
    if complete:
        seconds += float(context) ** 2 * SECONDS_PER_SQUARE
    # The times were measured for heads of 128 features. The search of the stable base
    # takes about 2^4 times as long for twice the features.
    head_share = head_dim / 128
    seconds = head_share * seconds + head_share**4 * SECONDS_OF_STABLE

    # The cosines are computed from a pair of grids of complex numbers. The sides of a
    # grid have the square root of the number of positions. Three pairs of grids are
    # held in memory.
    bytes_of_grids = 2 * math.isqrt(min(context, BLOCK)) * head_dim * 8
    return Resources(
        seconds=seconds,
        memory_bytes=LIBRARY_BYTES + 3 * bytes_of_grids + context * BYTES_PER_TOKEN,
    )


def make_similarity(config: BaseConfig) -> Similarity:
    """Return the sum of cosines of the head; InputError if its widths do not fit."""
    return Similarity.of_head(
        config.head_dim, config.rotated, config.kept, config.dropped
    )


def list_lengths(contexts: tuple[int, ...]) -> list[int]:
    """Return the lengths to search, ascending: the contexts, their halves, the halves of
    these, and so on.
    """
    lengths = set(contexts)
    for length in contexts:
        # A search of a short length costs little. Bases below the smallest base that it
        # finds need not be searched for a longer length.
        while length > 64:
            length //= 2
            lengths.add(length)
    return sorted(lengths)


# The lowest and the highest base of a window, as natural logarithms; the highest may be
# inf.
Window = tuple[float, float]


@dataclass(frozen=True)
class SearchState:
    """The results of the search of one length that also hold for all longer lengths.

    `start` and `settled` are natural logarithms of bases.
    """

    # No base below this base is admissible.
    start: float = 0.0
    # From this base on all bases are admissible for `settled_tokens` tokens.
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

    def advance(self, length: int, windows: Sequence[Window]) -> Self:
        """Return the state after a search that found these windows for a length."""
        if not windows:
            return self

        # A base that fails at a shorter length fails at a longer one too.
        first_low, _ = windows[0]
        last_low, last_high = windows[-1]
        if last_high < math.inf:
            return replace(self, start=first_low)
        return replace(self, start=first_low, settled=last_low, settled_tokens=length)


def search_bases(
    *,
    head_dim: int,
    rotary_dim: int,
    kept: float,
    dropped: Sequence[int],
    lengths: Sequence[int],
    complete: bool,
    prerequisites: Sequence[Tables] = (),
) -> dict[str, pd.DataFrame]:
    """Search the admissible bases of a context.

    Args:
        head_dim: features of a head.
        rotary_dim: features of the head that could rotate.
        kept: the share of their pairs that rotates.
        dropped: pairs that do not rotate, by number.
        lengths: shorter lengths, which are list_lengths on the way, and last the context.
        complete: search all windows of the context, not only the first and the last.
        prerequisites: the tables of the next shorter context, if there is one.

    Returns:
        Three tables.
        bound: one row. From ``stable_base`` on all bases are admissible (missing: none is
        proved). ``recommended_base`` is the stable base rounded up to two digits.
        ``certified``: a proof covers every base below the first window and every position
        inside the windows.
        windows: a row per known window; ``high`` is missing if the window has no end.
        state: where the next search starts.
    """
    similarity = Similarity.of_head(head_dim, rotary_dim, kept, tuple(dropped))
    state = SearchState()
    for tables in prerequisites:
        state = SearchState.from_table(tables["state"])

    *shorter, context = lengths
    for length in shorter:
        # The next search starts from the first window of this search.
        walk = _make_walk(similarity, length, state)
        state = state.advance(length, _find_first(walk, state.start))

    walk = _make_walk(similarity, context, state)
    if complete:
        windows = list(walk.find_windows(state.start))
    else:
        windows = _find_first_and_last(walk, state.start)
    state = state.advance(context, windows)

    windows_of_bases = [(_exp(low), _exp(high)) for low, high in windows]
    smallest, stable = _find_ends(windows_of_bases)
    bound = {
        "context_tokens": context,
        "head_dim": head_dim,
        "rotary_dim": rotary_dim,
        "rotating_pairs": len(similarity.exponents),
        "recommended_base": _recommend(similarity, context, smallest, stable),
        "stable_base": stable,
        "smallest_admissible_base": smallest,
        "certified": bool(windows_of_bases),
        "status": _describe_search(complete, smallest, stable),
    }

    rows = []
    for low, high in windows_of_bases:
        end = high if high < math.inf else math.nan
        rows.append((context, low, end))
    return {
        "bound": pd.DataFrame([bound]),
        "windows": pd.DataFrame(rows, columns=["context_tokens", "low", "high"]),
        "state": state.to_table(),
    }


def _make_walk(similarity: Similarity, length: int, state: SearchState) -> Walk:
    """Return the object that finds the windows of a length, from the results of shorter
    lengths (`state`).
    """
    return Walk(similarity, length, (state.settled, state.settled_tokens))


def _find_ends(windows: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the smallest base of some windows of bases, and the stable base.

    The smallest base is nan if there is no window. The stable base is nan if there is no
    window without an end.
    """
    if not windows:
        return math.nan, math.nan

    smallest, _ = windows[0]
    # At a base of 1 every pair is as fast as the first. Where no sum is negative then, a
    # larger base makes none negative, though narrow heads are not searched to the end.
    if smallest <= 1:
        return smallest, smallest

    last_low, last_high = windows[-1]
    if last_high < math.inf:
        return smallest, math.nan
    return smallest, last_low


def _describe_search(complete: bool, smallest: float, stable: float) -> str:
    """Say which windows were searched and found.

    `smallest` and `stable` are bases, or nan if no base was found.
    """
    if math.isnan(smallest):
        return "no base is admissible"
    if complete:
        return "all windows"
    if math.isnan(stable):
        return "first window only"
    return "first and last window"


def _find_first(walk: Walk, start: float) -> list[Window]:
    """Return a list of the first window from `start` on; it is empty if there is none."""
    first_window = walk.find_first(start)
    return [] if first_window is None else [first_window]


def _find_first_and_last(walk: Walk, start: float) -> list[Window]:
    """Return the first window from `start` on and, if it is proved, the last window."""
    first_window = walk.find_first(start)
    if first_window is None:
        return []
    _, first_high = first_window
    # A first window without an end is also the last window.
    if first_high == math.inf:
        return [first_window]

    stable = walk.find_stable()
    if stable == math.inf:
        return [first_window]
    return [first_window, (stable, math.inf)]


def _exp(log_base: float) -> float:
    """Return the base of a logarithm; inf for a base that is near the end of float64."""
    # exp(710) is beyond float64.
    return math.exp(log_base) if log_base < 700 else math.inf


def _recommend(
    similarity: Similarity, context: int, smallest: float, stable: float
) -> float:
    """Return the stable base rounded up, or 1 if every base is admissible.

    nan: no base is stable, or the rounded base is not admissible.
    """
    # If the smallest base is 1, every base is admissible and none needs to be
    # recommended.
    if math.isnan(smallest) or smallest <= 1:
        return smallest
    if math.isnan(stable) or stable <= 1:
        return stable

    rounded = round_up(stable)
    # This is checked in float64, independently of the proof.
    if find_first_negative(similarity, rounded, context) is not None:
        return math.nan
    return rounded


def round_up(base: float, digits: int = 2) -> float:
    """Return the smallest number of ``digits`` significant digits that is not below
    ``base``.

    >>> round_up(3325751.03), round_up(99.5), round_up(1.5e7), round_up(629978.3, 6)
    (3400000.0, 100.0, 15000000.0, 629979.0)
    """
    rounded = Context(digits, ROUND_CEILING).create_decimal_from_float(base)
    # The nearest float64 may be below the decimal number. It is never below `base`, which
    # is a float64 itself.
    return float(rounded)
