"""Claims about one slow frequency against many: what number formats can still tell apart."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from ropelab.experiments.claims.record import Claim, Evidence, limit, part, tiny
from ropelab.numerics.casts import CastPlan
from ropelab.numerics.chain import Chain, Spectrum
from ropelab.numerics.code import Channel, Code
from ropelab.numerics.formats import FORMATS, round_to
from ropelab.numerics.resolution import Census, take_census
from ropelab.rope.frequencies import inverse_frequencies, wavelengths
from ropelab.rope.rotary import cos_sin
from ropelab.rope.scaling import RopePlan

PERIOD = 1_000_000
COMPARED = ("float32", "float16", "bfloat16")
CHANNELS: dict[str, Channel] = {"cos": "cos", "cos and sin": "vector"}
MORE = "ropelab precision --period 1e6 --base 1e6"


def one_frequency(period: float) -> Float[np.ndarray, "1"]:
    """The frequency of a code with a single period."""
    return np.array([2 * math.pi / period])


def census(
    inv_freq: Float[np.ndarray, "pairs"], channel: Channel, length: int
) -> dict[str, Census]:
    """What each format can tell apart below `length`, of tables that are right before rounding."""
    code = Code(Chain(CastPlan(), Spectrum(inv_freq)), channel, range(len(inv_freq)))
    found = take_census(code, [FORMATS[fmt] for fmt in COMPARED], 0, length)
    return dict(zip(COMPARED, found, strict=True))


def stored(
    position: int, inv_freq: Float[np.ndarray, "pairs"], fmt: str
) -> tuple[Float[np.ndarray, "pairs"], Float[np.ndarray, "pairs"]]:
    """cos and sin of every pair at one position, rounded once to a format."""
    cos, sin = cos_sin(np.array([position]), RopePlan(inv_freq))
    return round_to(cos[0], FORMATS[fmt]), round_to(sin[0], FORMATS[fmt])


@dataclass(frozen=True, kw_only=True)
class Single:
    """One frequency, a format, and the positions that it should tell apart."""

    period: float = PERIOD
    format: str = "float32"
    length: int = 131072
    printed_cos: float = 0.999999999980261
    printed_difference: float = 1.97e-11


def cos_of_neighbours(given: Single) -> Evidence:
    """cos at positions 0 and 1, in float64 and in the format."""
    theta = 2 * math.pi / given.period
    cosine, difference = math.cos(theta), 2 * math.sin(theta / 2) ** 2
    cos = np.concatenate([stored(m, one_frequency(given.period), given.format)[0] for m in (0, 1)])
    return Evidence(
        expected=f"{given.printed_cos:.15f}, {given.printed_difference:g}, and 1.0 twice",
        findings=(
            part("cos at 1", f"{cosine:.15f}", abs(cosine - given.printed_cos) < 1e-15, cosine),
            part(
                "cos at 0 minus cos at 1",
                f"{difference:.4e}",
                abs(difference - given.printed_difference) <= 0.005e-11,
                difference,
            ),
            part(
                f"the two in {given.format}",
                " and ".join(f"{float(value):.10g}" for value in cos),
                bool((cos == 1).all()),
            ),
        ),
    )


def neighbours_lost(given: Single) -> Evidence:
    """Count neighbours whose codes agree: by cos alone, and by cos and sin together."""
    table = resolution(given.period, given.length)
    shares = _shares_of_one(table)
    pair, alone = shares[given.format, "cos and sin"], shares[given.format, "cos"]
    step = float(stored(1, one_frequency(given.period), given.format)[1][0])
    return Evidence(
        expected="most neighbours share their code",
        findings=(
            part(
                f"neighbours below {given.length} with the same (cos, sin) in {given.format}",
                f"{pair:.1%} (by cos alone {alone:.1%}; sin at 1 is {step:.4g})",
                pair > 0.5,
                pair,
            ),
            *(
                limit(f"the same in {fmt}", f"{share:.1%}", share > 0.5, share)
                for (fmt, channel), share in shares.items()
                if channel == "cos and sin" and fmt != given.format
            ),
        ),
        series={"resolution": table},
    )


def _shares_of_one(resolution: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Share of neighbours that collide under one frequency, by format and channel."""
    one = resolution[resolution["scheme"] == "one"].set_index(["format", "channel"])
    return dict(one["adjacent_collisions"] / one["neighbours"])


def resolution(period: float, length: int, head_dim: int = 64, base: float = 1e6) -> pd.DataFrame:
    """Neighbours that share their code, for one frequency and for many, by format and channel."""
    schemes = {"one": one_frequency(period), "many": inverse_frequencies(head_dim, base)}
    rows = [
        (scheme, len(inv_freq), fmt, name, length - 1, found.adjacent_collisions, found.distinct)
        for scheme, inv_freq in schemes.items()
        for name, channel in CHANNELS.items()
        for fmt, found in census(inv_freq, channel, length).items()
    ]
    columns = ["scheme", "pairs", "format", "channel", "neighbours"]
    columns += ["adjacent_collisions", "distinct_codes"]
    return pd.DataFrame(rows, columns=columns)


@dataclass(frozen=True, kw_only=True)
class CosStep:
    """An approximation of the step of cos at a position, as printed in a script."""

    period: float = PERIOD
    position: int = 1
    printed: float = 3.94e-11


def cos_step(given: CosStep) -> Evidence:
    """cos(theta i) - cos(theta (i + 1)) without cancellation, against the printed number."""
    theta = 2 * math.pi / given.period
    step = 2 * math.sin(theta * (given.position + 0.5)) * math.sin(theta / 2)
    return Evidence(
        expected=f"{given.printed:g}, within one unit of its last digit",
        findings=(
            part(
                f"step of cos from position {given.position} to {given.position + 1}",
                f"{step:.3e} = {step / theta**2:.2f} theta^2",
                abs(step - given.printed) <= 0.01e-11,
                step,
            ),
        ),
    )


def covers_everything(given: Single) -> Evidence:
    """The code one period away."""
    at = np.array([0, round(given.period)])
    cos, sin = cos_sin(at, RopePlan(one_frequency(given.period)))
    apart = math.hypot(*(cos[1] - cos[0]), *(sin[1] - sin[0]))
    return Evidence(
        expected="codes that never come back",
        findings=(
            part(
                f"codes of positions 0 and {round(given.period)}",
                f"{tiny(apart)} apart",
                apart > 1e-9,
                apart,
            ),
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Many:
    """The frequencies of a head and the range in which they should tell positions apart."""

    head_dim: int = 64
    base: float = 1e6
    length: int = 1 << 20
    listed_degrees: float = 57.3

    @property
    def inv_freq(self) -> Float[np.ndarray, "pairs"]:
        """Radians per token of every pair."""
        return inverse_frequencies(self.head_dim, self.base)


def fastest_pair_separates(given: Many) -> Evidence:
    """The angle between neighbours in the fastest pair, and neighbours that still collide."""
    degrees = math.degrees(float(given.inv_freq[0]))
    findings = [
        part(
            "angle between neighbours in pair 0",
            f"{degrees:.2f} degrees",
            abs(degrees - given.listed_degrees) <= 0.05,
            degrees,
        )
    ]
    for fmt, found in census(given.inv_freq[:1], "pair", given.length).items():
        same = found.adjacent_collisions
        what = f"neighbours below {given.length} with the same pair 0 in {fmt}"
        findings.append(part(what, str(same), same == 0, same))
    return Evidence(
        expected=f"{given.listed_degrees} degrees, no equal neighbours", findings=tuple(findings)
    )


def positions_unique(given: Many) -> Evidence:
    """Period of the slowest pair, and distinct codes after rounding to each format."""
    period = float(wavelengths(given.inv_freq)[-1])
    return Evidence(
        expected=f"a code of its own for each of {given.length} positions",
        findings=(
            part(
                "the slowest pair alone repeats after",
                f"{period:,.0f} tokens",
                period > given.length,
                period,
            ),
            *(
                part(
                    f"distinct codes of the first {given.length} positions in {fmt}",
                    f"{found.distinct}",
                    found.distinct == given.length,
                    found.distinct,
                )
                for fmt, found in census(given.inv_freq, "vector", given.length).items()
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="one-frequency-cos",
        source="note 001 §5.3",
        statement="With one period of 1,000,000 tokens cos at 0 and 1 differ by 1.97e-11 "
        "(0.999999999980261), and in float32 both are 1.0.",
        inputs=Single(),
        check=cos_of_neighbours,
        command=MORE,
    ),
    Claim(
        id="one-frequency-neighbours",
        source="note 001 §5.3, §5.4; rope_why_multi_frequency.py",
        statement="So in float32 a computer cannot tell neighbouring positions apart by one "
        "frequency with a period of 1,000,000 tokens.",
        inputs=Single(),
        check=neighbours_lost,
        command=MORE,
    ),
    Claim(
        id="script-cos-step",
        source="rope_why_multi_frequency.py, experiment 5",
        statement="The step of cos at position i is about theta^2 i in size, 3.94e-11 at "
        "position 1.",
        inputs=CosStep(),
        check=cos_step,
    ),
    Claim(
        id="script-covers-everything",
        source="rope_why_multi_frequency.py, experiment 4",
        statement="In theory one very low frequency covers sequences of any length.",
        inputs=Single(),
        check=covers_everything,
    ),
    Claim(
        id="fast-pair-separates",
        source="note 001 §5.5",
        statement="In the fastest pair neighbours are 57.3 degrees apart, which every format can "
        "tell apart.",
        inputs=Many(length=1 << 17),
        check=fastest_pair_separates,
        command="ropelab precision --base 1e6",
    ),
    Claim(
        id="many-unique",
        source="note 001 §5.5; MiniMind knowledge base §2.4",
        statement="MiniMind's 32 frequencies together give each of a million positions a code of "
        "its own.",
        inputs=Many(),
        check=positions_unique,
        command="ropelab precision --base 1e6",
    ),
)
