"""Checks of claims about number formats: errors of angles, and changes of scores.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

import math
from collections.abc import Sequence

import numpy as np

from ropelab.claims.record import Agrees, Findings, Role, claim
from ropelab.math.bounds.walls import make_chain
from ropelab.math.numerics.angle_errors import (
    Worst,
    find_first_wrong,
    find_worst,
    find_worst_by_octave,
)
from ropelab.math.numerics.casts import find_preset, parse_cast
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.numerics.incidents import measure_incidents
from ropelab.math.numerics.scores import draw, measure_shift_errors
from ropelab.runs.sentences import write_interval
from ropelab.runs.stats import Interval, average_samples
from ropelab.runs.thresholds import ANGLE_RAD, BROKEN

# The features of a head and the base, which these claims do not name.
HEAD = 128
BASE = 10000.0
# The tested length of claims about float32.
FLOAT32_LENGTH = 1 << 17
# The numbers of tokens by which positions are moved: primes just above 2^12 and 2^16.
# bfloat16, which keeps 8 bits of a number, rounds both.
SHIFTS = (4099, 65537)
# The number of random queries with their keys.
DRAWS = 4096


def make_preset_chain(preset: str) -> Chain:
    """Return an implementation that rounds its stages as a preset says."""
    return make_chain(find_preset(preset).plan, BASE, HEAD)


def find_worst_angle(preset: str, length: int) -> Worst:
    """Return the worst angle error of any pair in the far half of a length."""
    # The error of an angle grows with the position, so the near half need not be
    # searched.
    half = length // 2
    return find_worst(make_preset_chain(preset), half, length - half)


@claim("float32-enough", bound=ANGLE_RAD)
def measure_angle_errors(
    findings: Findings,
    preset: str = "float32",
    longer: Sequence[int] = (1 << 20, 10_000_000),
) -> None:
    """Measure the worst angle error at several lengths, and find the first position
    whose error is beyond the tolerance.
    """
    # The first length decides, and all longer lengths are limits.
    lengths = (FLOAT32_LENGTH, *longer)
    for length in lengths:
        worst_angle = find_worst_angle(preset, length)
        role: Role = "part" if length == FLOAT32_LENGTH else "limit"
        what = f"worst angle error up to {length:,}"
        template = f"{{:.2g}} rad at {worst_angle.position} (pair {worst_angle.pair})"
        findings.add_at_most(what, worst_angle.error_rad, ANGLE_RAD, template, role)

    implementation = make_preset_chain(preset)
    octaves = find_worst_by_octave(implementation, 0, max(lengths))
    first_wrong = find_first_wrong(implementation, octaves, ANGLE_RAD)
    measured = "nowhere" if first_wrong is None else f"position {first_wrong:,}"
    findings.add_limit(
        "first error beyond the tolerance", measured, first_wrong is None, first_wrong
    )


@claim("bfloat16-breaks", bound=BROKEN)
def measure_shifts(
    findings: Findings,
    preset: str = "half_cache_bfloat16",
    careful: str = "transformers_llama",
    seed: int = 0,
) -> None:
    """Measure how much scores change when both positions move, in an implementation that
    rounds to bfloat16, and in one that is more careful.
    """
    draws = draw(DRAWS, HEAD // 2, "random", seed)
    query_positions = np.array([61.0])
    shifts = np.array(SHIFTS, dtype=float)

    def measure_changes(name: str) -> list[Interval]:
        """Return the changes by shift, as shares of a typical score."""
        implementation = make_preset_chain(name)
        # [shifts, draws, 1]
        errors = measure_shift_errors(implementation, draws, 0, query_positions, shifts)
        # Root mean squares are compared, because single scores may be close to 0. The mean
        # square of the scores of `draw` is 1, so that a change is a share of it.
        shares = []
        for squares in np.square(errors[..., 0]):
            mean = average_samples(squares)
            low = math.sqrt(max(mean.low, 0))
            high = math.sqrt(mean.high)
            shares.append(Interval(math.sqrt(mean.value), low, high, mean.n))
        return shares

    def add_changes(role: Role, what: str, name: str) -> None:
        shares = measure_changes(name)
        texts = [write_interval(share, ".1%") for share in shares]
        breaks: Agrees = None
        if all(share.low > BROKEN for share in shares):
            breaks = True
        elif any(share.high <= BROKEN for share in shares):
            breaks = False
        largest = max(share.value for share in shares)
        findings.add(role, what, " and ".join(texts), breaks, largest)
        findings.mark_drawn(DRAWS)

    listed = " and ".join(f"{shift:,}" for shift in SHIFTS)
    lead = f"change of a typical score when both positions move by {listed}"
    add_changes("part", f"{lead}, {preset}", preset)
    add_changes("limit", f"{lead}, {careful}", careful)


@claim(
    "reported-gpt-neox-1003",
    "reported-candle-3520",
    "reported-diffusers-13920",
    "reported-modalities-462",
    "reported-tensorrt-llm-18774",
    "reported-transformers-48428",
    "reported-mlx-lm-1076",
)
def compare_reported(
    findings: Findings, link: str, grid: tuple[int, int] | None = None
) -> None:
    """Compare the numbers of a reported fault with ours; `link` is the report.

    `grid` is the first position and the number of positions that are reported to become
    one in bfloat16, if the report is about that.
    """
    rows = measure_incidents()
    for _, row in rows[rows["source"] == link].iterrows():
        plan = parse_cast(row["plan"]).title
        # The same cast has other errors with another base or another number of pairs.
        geometry = f"base {row['base']:g}, {row['rotary_dim']} features"
        what = f"{row['meaning']} ({geometry}, {plan})"
        measured = f"{row['as_measured']}, reported: {row['as_reported']}"
        findings.add_part(
            what, measured, row["verdict"] == "agrees", float(row["ours"])
        )

    if grid is not None:
        first, reported = grid
        positions = np.arange(first, first + reported, dtype=float)
        is_first = round_to(positions, FORMATS["bfloat16"]) == first
        # The number of positions before the first that is not stored as `first`.
        equal = reported if is_first.all() else int(is_first.argmin())
        what = f"positions from {first:,} on that do become one"
        findings.add_limit(what, f"the first {equal}", equal == reported, equal)
