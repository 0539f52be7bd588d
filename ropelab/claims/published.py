"""Checks of published numbers: angles in number formats, bug reports, bounds on the base."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ropelab.claims.arrays import count_of
from ropelab.claims.methods import LLAMA_2, Shape, turns
from ropelab.claims.record import Findings, Role
from ropelab.math.bounds import Similarity, first_negative
from ropelab.math.bounds.published import (
    CONTEXTS,
    DIGITS,
    FIT_EXPONENT,
    FIT_FACTOR,
    MEN,
    SU,
    exact_bases,
)
from ropelab.math.frequencies import Geometry, inverse_frequencies
from ropelab.math.numerics.angle_errors import Worst, first_beyond, worst, worst_by_octave
from ropelab.math.numerics.casts import preset_named
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.incidents import incidents
from ropelab.math.numerics.scores import draw, scores, shift_errors
from ropelab.runs.cell import Stored
from ropelab.runs.thresholds import ANGLE_RAD, BROKEN, FIT

HEAD, BASE = 128, 10000.0
Table = Sequence[tuple[int, float]]
# Printed bases for 1k to 32k tokens, by publication.
PRINTED: dict[str, Table] = {
    name: tuple(zip(CONTEXTS, bases, strict=True))[:6] for name, bases in (("men", MEN), ("su", SU))
}


def chain(preset: str) -> Chain:
    """A known implementation applied to the frequencies of a head."""
    spectrum = Spectrum(inverse_frequencies(HEAD, BASE), BASE, HEAD)
    return Chain(preset_named(preset).plan, spectrum)


def angle_errors(preset: str, length: int) -> Worst:
    """The worst angle error of any pair in the far half of a length, where errors are largest."""
    # The error of an angle grows with the position.
    return worst(chain(preset), length // 2, length - length // 2)


def angles_good_enough(
    found: Findings,
    preset: str = "float32",
    length: int = 1 << 17,
    longer: Sequence[int] = (1 << 20, 10_000_000),
) -> None:
    """Compare the worst angle error of any pair up to each length with a tolerance."""
    found.expected = f"at most {ANGLE_RAD:g} rad"
    for end in (length, *longer):
        error = angle_errors(preset, end)
        what = f"worst angle error up to {end:,}"
        text = f"{{:.2g}} rad at {error.position} (pair {error.pair})"
        role: Role = "part" if end == length else "limit"
        found.within(what, error.error_rad, ANGLE_RAD, text, role)
    implementation = chain(preset)
    everything = worst_by_octave(implementation, 0, max(length, *longer, 0))
    first = first_beyond(implementation, everything, ANGLE_RAD)
    where = "nowhere" if first is None else f"position {first:,}"
    found.limit("first error beyond the tolerance", where, first is None, first)


def shift_breaks_scores(
    found: Findings,
    preset: str = "half_cache_bfloat16",
    careful: str = "transformers_llama",
    shifts: Sequence[int] = (4099, 65537),
    seed: int = 0,
) -> None:
    """Move both positions and compare the change of a score, by where bfloat16 is used."""
    draws = draw(512, HEAD // 2, "random", seed)
    distance, nothing = np.array([61.0]), np.array([0.0])

    def changes(name: str) -> tuple[str, bool, float]:
        """Typical change of a score at each shift, over the typical score."""
        implementation = chain(name)
        moved = shift_errors(implementation, draws, 0, distance, np.array(shifts, dtype=float))
        typical = np.sqrt(np.square(scores(implementation, draws, distance, nothing)).mean())
        shares = (np.sqrt(np.square(moved).mean((1, 2))) / typical).tolist()
        shown = " and ".join(f"{share:.1%}" for share in shares)
        return shown, min(shares) > BROKEN, max(shares)

    far = " and ".join(f"{shift:,}" for shift in shifts)
    found.expected = f"changes of more than {BROKEN:.0%} of the score"
    what = f"change of a typical score when both positions move by {far}, {preset}"
    found.part(what, *changes(preset))
    found.limit(careful, *changes(careful))


def critical_dimension(found: Findings, geometry: Shape = LLAMA_2, printed: int = 92) -> None:
    model = Geometry(*geometry)
    counted = 2 * int((turns(model.inv_freq, model.trained_len) >= 1).sum())
    found.expected = f"{printed}"
    what = f"features whose pairs turn fully in {model.trained_len} tokens"
    found.part(what, f"{counted} of {model.rotary_dim}", counted == printed, counted)


def same_numbers(found: Findings, link: str) -> None:
    """Measure the numbers again that a bug report prints."""
    rows = incidents()
    for _, row in rows[rows["source"] == link].iterrows():
        what = f"{row['measure']} ({row['meaning']}; {row['plan']})"
        text = f"{row['ours']:.6g}, reported {row['reported']:g}"
        found.part(what, text, row["verdict"] == "agrees", float(row["ours"]))


# Printed least bases for a context length, against exact bounds (arXiv:2405.14591)


def _exact(runs: Sequence[Stored]) -> dict[int, float]:
    """First admissible base by context, from all stored runs."""
    return exact_bases(pd.concat([run.tables["bound"] for run in runs])) if runs else {}


def bases_are_least(
    found: Findings,
    by: str = "men",
    printed: Table = (),
    runs: Sequence[Stored] = (),
    step: float = 4e-3,
) -> None:
    """Look for bases below the printed ones that keep every cosine sum from turning negative.

    A stored exact bound decides. Without one a grid is tried, which can only refute: admissible
    windows narrower than its step may be between its points.
    """
    printed, exact = printed or PRINTED[by], _exact(runs)
    similarity, loose = Similarity.of_head(HEAD), {}
    for context, base in printed:
        # The least number that is rounded to the printed base.
        least = base - 10.0 ** (math.floor(math.log10(base)) + 1 - DIGITS) / 2
        grid = map(math.exp, np.arange(math.log(0.5 * base), math.log(least), step))
        works = (u for u in grid if first_negative(similarity, u, context) is None)
        smaller = exact.get(context) or next(works, math.inf)
        if smaller < least:
            loose[context] = f"{context}: {smaller:,.0f} works below {base:g}"
    known = sum(context in exact for context, _ in printed)
    shown = f" ({', '.join(loose.values())})" if loose else ""
    found.part(
        f"printed bases, d = {HEAD}, below which another works "
        f"({known} contexts exactly, the others on a grid of {step:.1%})",
        count_of(len(loose), len(printed)) + shown,
        False if loose else known == len(printed) or None,
        len(loose),
    )


def fit_is_right(found: Findings, runs: Sequence[Stored] = (), least_contexts: int = 5) -> None:
    """Compare the printed power law with the exact bounds, and with a fit to them."""
    found.expected = f"the printed law within {FIT:.0%} of every exact bound"
    known = _exact(runs)
    if len(known) < least_contexts:
        text = f"{len(known)} stored contexts, needs {least_contexts}"
        found.missing("exact bounds", text)
        return
    contexts, exact = np.array(list(known), dtype=float), np.array(list(known.values()))
    slope = float(np.polyfit(np.log(contexts), np.log(exact), 1)[0])
    ratio = FIT_FACTOR * contexts**FIT_EXPONENT / exact
    off = float(np.abs(ratio - 1).max())
    what = f"printed law over exact bound, {contexts[0]:.0f} to {contexts[-1]:.0f} tokens"
    found.part(what, f"{ratio.min():.2f} to {ratio.max():.2f}", off <= FIT, off)
    what = "exponent that fits the exact bounds"
    text = f"{slope:.3f}, printed {FIT_EXPONENT}"
    found.limit(what, text, abs(slope - FIT_EXPONENT) <= 0.005, slope)


def balances(
    found: Findings, base: float = 1e4, short: int = 512, long: int = 4096, head_dim: int = HEAD
) -> None:
    """Find where the sum of cosines turns negative: within texts of 2017 to 2021, or of today?"""
    fails = first_negative(Similarity.of_head(head_dim), base, 64 * long)
    shown = "none" if fails is None else f"{fails:,} tokens"
    texts = {short: "as BERT and RoFormer read", long: "as Llama 2 reads"}
    for length, whose in texts.items():
        found.add(
            "part" if length == short else "limit",
            f"base {base:g}, d = {head_dim}: first distance at which the sum of cosines is "
            f"negative, for texts of {length:,} ({whose})",
            shown,
            fails is None or fails >= length,
            fails,
        )
