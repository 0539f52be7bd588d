"""Claims about one slow frequency against many: what number formats can still tell apart."""

import math

import numpy as np
import pandas as pd

from ropelab.claims.numbers import frequencies
from ropelab.claims.record import Claim, Evidence, Finding, Passage, limit, part
from ropelab.math.frequencies import inverse_frequencies, wavelengths
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.code import Channel, Code
from ropelab.math.numerics.formats import FORMATS
from ropelab.math.numerics.resolution import Census, take_census

PERIOD = 1_000_000.0
HEAD, BASE = 64, 1e6
COMPARED = ("float32", "float16", "bfloat16")
CHANNELS: dict[str, Channel] = {"cos": "cos", "cos and sin": "vector"}
MORE = "ropelab precision --period 1e6 --base 1e6"


def one(period: float) -> Spectrum:
    """A code with a single period, in tokens."""
    return Spectrum(inverse_frequencies(2, 1.5) * (2 * math.pi / period))


def many(head_dim: int = HEAD, base: float = BASE) -> Spectrum:
    """The frequencies of a head; MiniMind's by default."""
    return Spectrum(inverse_frequencies(head_dim, base))


def census(spectrum: Spectrum, channel: Channel, length: int) -> dict[str, Census]:
    """What each format can tell apart below `length`, of tables that are right before rounding."""
    code = Code(Chain(CastPlan(), spectrum), channel, range(len(spectrum.inv_freq)))
    found = take_census(code, [FORMATS[fmt] for fmt in COMPARED], 0, length)
    return dict(zip(COMPARED, found, strict=True))


def neighbours_lost(
    *, period: float = PERIOD, format_: str = "float32", length: int = 131072
) -> Evidence:
    """Count neighbours whose codes agree: by cos alone, and by cos and sin together."""
    table = resolution(period, length)
    shares = _shares_of_one(table)
    pair, alone = shares[format_, "cos and sin"], shares[format_, "cos"]
    theta = 2 * math.pi / period
    scores = np.cos(np.array([0, theta])).astype(np.float32)
    return Evidence(
        expected="most neighbours share their code",
        findings=(
            part(
                f"neighbours below {length} with the same (cos, sin) in {format_}",
                f"{pair:.1%} (by cos alone {alone:.1%}; sin at 1 is {math.sin(theta):.4g})",
                pair > 0.5,
                pair,
            ),
            limit(
                "float32 scores of equal q and k, one pair, at distances 0 and 1",
                " and ".join(f"{float(score):.10g}" for score in scores),
                bool(scores[0] == scores[1]),
            ),
            *(
                limit(f"the same neighbours in {fmt}", f"{share:.1%}", share > 0.5, share)
                for (fmt, channel), share in shares.items()
                if channel == "cos and sin" and fmt != format_
            ),
        ),
        series={"resolution": table},
    )


def _shares_of_one(resolution: pd.DataFrame) -> dict[tuple[str, str], float]:
    """Share of neighbours that collide under one frequency, by format and channel."""
    chosen = resolution[resolution["scheme"] == "one"].set_index(["format", "channel"])
    return dict(chosen["adjacent_collisions"] / chosen["neighbours"])


def resolution(period: float, length: int) -> pd.DataFrame:
    """Neighbours that share their code, for one frequency and for many, by format and channel."""
    rows = [
        (scheme, spectrum.pairs, fmt, name, length - 1, found.adjacent_collisions, found.distinct)
        for scheme, spectrum in {"one": one(period), "many": many()}.items()
        for name, channel in CHANNELS.items()
        for fmt, found in census(spectrum, channel, length).items()
    ]
    columns = ["scheme", "pairs", "format", "channel", "neighbours"]
    columns += ["adjacent_collisions", "distinct_codes"]
    return pd.DataFrame(rows, columns=columns)


def one_is_unique(*, period: float = PERIOD) -> Evidence:
    """Distinct (cos, sin) of all positions of one turn, by format."""
    length = round(period)
    found = census(one(period), "vector", length)
    findings: list[Finding] = []
    for fmt, counted in found.items():
        make = part if fmt == "float32" else limit
        good = counted.distinct == length
        text = f"{counted.distinct:,}"
        findings.append(make(f"different codes of {length:,} positions in {fmt}", text, good))
    return Evidence(expected=f"{length:,}", findings=tuple(findings))


def fastest_pair_separates(*, printed_degrees: float = 57.3, length: int = 1 << 17) -> Evidence:
    """The angle between neighbours in the fastest pair, and neighbours that still collide."""
    degrees = math.degrees(float(frequencies(HEAD, BASE)[0]))
    findings = [
        part(
            "angle between neighbours in pair 0",
            f"{degrees:.2f} degrees",
            abs(degrees - printed_degrees) <= 0.05,
            degrees,
        )
    ]
    for fmt, found in census(one(2 * math.pi), "pair", length).items():
        make = part if fmt == "float32" else limit
        same = found.adjacent_collisions
        what = f"neighbours below {length} with the same pair 0 in {fmt}"
        findings.append(make(what, str(same), same == 0, same))
    return Evidence(
        expected=f"{printed_degrees} degrees, no equal neighbours", findings=tuple(findings)
    )


def positions_unique(*, base: float = BASE, length: int = 1 << 20) -> Evidence:
    """Period of the slowest pair, and distinct codes after rounding to each format."""
    period = float(wavelengths(inverse_frequencies(HEAD, base))[-1])
    return Evidence(
        expected=f"a code of its own for each of {length} positions",
        findings=(
            part(
                "the slowest pair alone repeats after",
                f"{period:,.0f} tokens",
                period > length,
                period,
            ),
            *(
                part(
                    f"distinct codes of the first {length} positions in {fmt}",
                    f"{found.distinct}",
                    found.distinct == length,
                    found.distinct,
                )
                for fmt, found in census(many(HEAD, base), "vector", length).items()
            ),
        ),
    )


CLAIMS = (
    Claim(
        id="one-frequency-unique",
        passages=(
            Passage(
                "001",
                "§5.2",
                302,
                "可以唯一标识100万个位置",
                "can identify a million positions uniquely",
            ),
        ),
        statement="One frequency with a period of a million tokens gives each of a million "
        "positions a code of its own.",
        check=one_is_unique,
        command=MORE,
    ),
    Claim(
        id="one-frequency-neighbours",
        passages=(
            Passage(
                "001",
                "§5.3",
                320,
                "计算机无法区分相邻位置",
                "a computer cannot tell neighbouring positions apart",
            ),
            Passage(
                "001",
                "§8.1",
                467,
                "浮点数精度限制,单一频率无法区分相邻位置",
                "limited by floating-point precision, a single frequency cannot tell "
                "neighbouring positions apart",
            ),
            Passage("rope_why_multi_frequency"),
        ),
        statement="So in float32 a computer cannot tell neighbouring positions apart by one "
        "frequency with a period of 1,000,000 tokens.",
        check=neighbours_lost,
        command=MORE,
    ),
    Claim(
        id="fast-pair-separates",
        passages=(
            Passage(
                "001",
                "§5.5",
                351,
                "高频分量差异明显(0.5403 vs 1.0),可以区分相邻位置",
                "the fast component differs clearly (0.5403 against 1.0) and can tell "
                "neighbouring positions apart",
            ),
            Passage(
                "001",
                "§5.5",
                343,
                "精确区分相邻位置(角度差57.3°)",
                "tells neighbouring positions apart exactly (57.3 degrees)",
            ),
        ),
        statement="In the fastest pair neighbours are 57.3 degrees apart, which tells them apart.",
        check=fastest_pair_separates,
        command="ropelab precision --base 1e6",
    ),
    Claim(
        id="many-unique",
        passages=(
            Passage(
                "001",
                "§5.5",
                352,
                "低频分量覆盖远距离,可以标识百万级位置",
                "slow components cover long distances and can identify millions of positions",
            ),
            Passage("minimind-knowledge", "§2.4"),
        ),
        statement="MiniMind's 32 frequencies together give each of a million positions a code of "
        "its own.",
        check=positions_unique,
        command="ropelab precision --base 1e6",
    ),
)
