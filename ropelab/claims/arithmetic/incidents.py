"""Numbers from bug reports: what counts as the same number, and one claim per report.

`ropelab precision --reported` measures such numbers again under a cast plan and keeps them in its
table `incidents`; a claim reads the stored runs that name its report.
"""

from decimal import Decimal
from enum import StrEnum
from functools import partial

import pandas as pd

from ropelab.claims.record import Claim, Evidence, Passage, missing, part
from ropelab.claims.sources import SOURCES
from ropelab.runs.cell import Stored


def agrees(printed: str, ours: float) -> bool:
    """Whether ours rounds to what was printed, to within half of its last digit.

    >>> agrees("1045", 1044.6), agrees("1045.0", 1044.6)
    (True, False)
    """
    digits = Decimal(printed)
    unit = Decimal(1).scaleb(int(digits.as_tuple().exponent))
    return abs(Decimal(ours) - digits) <= unit / 2 * Decimal("1.001")


class Match(StrEnum):
    """Whether a number of a report was met."""

    AGREES = "agrees"
    DIFFERS = "differs"


def judge(printed: str, ours: float) -> Match:
    """Ours beside a printed number."""
    return Match.AGREES if agrees(printed, ours) else Match.DIFFERS


def same_numbers(*, link: str, runs: tuple[Stored, ...] = ()) -> Evidence:
    """A part per number of the report, from every stored run that measured it again."""
    tables = [run.tables["incidents"] for run in runs if run.config.get("source") == link]
    if not tables:
        nothing = missing("a stored run that measures the reported numbers again")
        return Evidence(expected="the reported numbers", findings=(nothing,))
    rows = pd.concat(tables, ignore_index=True)
    findings = [
        part(
            f"{row['measure']} ({row['meaning']}; {row['plan']})",
            f"{row['ours']:.6g}, reported {row['reported']:g}",
            row["verdict"] == Match.AGREES,
            float(row["ours"]),
        )
        for _, row in rows.iterrows()
    ]
    return Evidence(expected="the reported numbers", findings=tuple(findings))


def _claim(key: str, statement: str) -> Claim:
    return Claim(
        id=f"reported-{key}",
        passages=(Passage(key),),
        statement=statement,
        check=partial(same_numbers, link=SOURCES[key].link),
        reads="precision",
        command=f"ropelab precision --config configs/incidents/{key}.toml",
    )


CLAIMS = (
    _claim(
        "gpt-neox-1003",
        "With everything in float16 the angle of pair 1 at position 1857 is stored as 1045 instead "
        "of 1044.2678, and cosines are off by up to 0.78.",
    ),
    _claim(
        "candle-3520",
        "With positions in bfloat16 position 15962 is stored as 15936, one step of 16 below 15968.",
    ),
    _claim(
        "diffusers-13920",
        "With positions in bfloat16 all 512 image positions from 65536 on become one.",
    ),
    _claim(
        "modalities-462",
        "inv_freq in bfloat16 makes phases wrong by 0.62 rad within 512 tokens and by 2.5 rad "
        "within 2048; only the table in bfloat16, by 0.0028.",
    ),
    _claim(
        "tensorrt-llm-18774",
        "inv_freq in float32 alone makes angles wrong by about a milliradian at 32k.",
    ),
    _claim("transformers-48428", "In TF32 position 2049 becomes 2048."),
    _claim(
        "mlx-lm-1076",
        "With float16 rotation all neighbouring positions beyond 262144 become identical.",
    ),
)
