"""The comparison tables of the notes once more, each cell beside what was measured.

`differs` says whether the measurement contradicts the claim: yes, no, `~` where the noise decides,
`not measured` where this run cannot tell.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pandas as pd

Tables = Mapping[str, pd.DataFrame]
Finding = tuple[str, bool | None]
"""What was measured, in words, and whether it agrees with the claim (None: undecided)."""

HARMLESS = 0.02
"""A text loss that grows by less, in nats per byte, counts as kept."""
COPIES = 0.5
"""Copying is kept if at least this share of the accuracy at the trained length is left."""
SLOW = 1.25
"""From this many times the work of a model without positions an encoding is called slow."""
SAME = 1e-3
"""Relative differences below this are rounding."""


@dataclass(frozen=True)
class Claim:
    """One cell of a comparison table.

    Attributes:
        source: the note and section.
        encoding: as in the registry.
        about: the column of the note.
        says: the cell, in English.
        measure: finds the measured counterpart in the tables.
    """

    source: str
    encoding: str
    about: str
    says: str
    measure: Callable[[Tables, str], Finding]


def claimed_vs_measured(tables: Tables) -> pd.DataFrame:
    """source, encoding, about, claimed, measured, differs; encodings that did not run left out."""
    present = set(tables["cost"]["encoding"])
    rows = []
    for claim in CLAIMS:
        if claim.encoding in present:
            measured, agrees = claim.measure(tables, claim.encoding)
            about = (claim.source, claim.encoding, claim.about, claim.says)
            rows.append((*about, measured, _differs(measured, agrees)))
    return pd.DataFrame(
        rows, columns=["source", "encoding", "about", "claimed", "measured", "differs"]
    )


def _differs(measured: str, agrees: bool | None) -> str:
    if agrees is None:
        return "~" if measured else "not measured"
    return "no" if agrees else "yes"


def text_kept(expected: bool) -> Callable[[Tables, str], Finding]:
    """Is the text loss at the longest context still that of the trained length?"""

    def measure(tables: Tables, encoding: str) -> Finding:
        row, undefined = _growth(tables, "text loss", encoding)
        if undefined:
            return undefined, not expected
        if row is None:
            return "", None
        text = (
            f"{row['difference']:+.3f} nats per byte at {row['times_trained_len']}x "
            f"[{row['ci_low']:+.3f}, {row['ci_high']:+.3f}]"
        )
        if row["ci_low"] <= HARMLESS <= row["ci_high"] or math.isnan(row["ci_low"]):
            return text, None
        return text, bool(row["ci_high"] < HARMLESS) == expected

    return measure


def copying_kept(expected: bool) -> Callable[[Tables, str], Finding]:
    """Is at least COPIES of the accuracy left at the longest context?"""

    def measure(tables: Tables, encoding: str) -> Finding:
        row, undefined = _growth(tables, "copy accuracy", encoding)
        if undefined:
            return undefined, not expected
        if row is None:
            return "", None
        near, far = (_quality(tables, "copy accuracy", encoding, t) for t in (1, None))
        text = f"copies {near:.2f} at 1x, {far:.2f} at {row['times_trained_len']}x"
        if near < COPIES:
            return f"{text}: did not learn to copy", None
        return text, (far >= COPIES * near) == expected

    return measure


def either(tables: Tables, encoding: str) -> Finding:
    """A cell that commits itself to nothing: what text says, and always in agreement."""
    measured, _ = text_kept(True)(tables, encoding)
    return measured, True if measured else None


def _growth(tables: Tables, metric: str, encoding: str) -> tuple[pd.Series | None, str]:
    """The row of `extrapolation`, or in words that the encoding has no such positions."""
    quality = tables["quality"]
    mine = quality[(quality["metric"] == metric) & (quality["encoding"] == encoding)]
    if mine.empty:
        return None, ""
    if (mine["status"] == "undefined").any():
        return None, "undefined beyond its table"
    table = tables["extrapolation"]
    rows = table[(table["metric"] == metric) & (table["encoding"] == encoding)]
    return (None if rows.empty else rows.iloc[0]), ""


def _quality(tables: Tables, metric: str, encoding: str, times: int | None) -> float:
    quality = tables["quality"]
    mine = quality[(quality["metric"] == metric) & (quality["encoding"] == encoding)]
    return float(mine["value"].iloc[-1 if times is None else times - 1])


def _cost(tables: Tables, encoding: str) -> pd.Series:
    cost = tables["cost"]
    return cost[cost["encoding"] == encoding].iloc[0]


def no_parameters(tables: Tables, encoding: str) -> Finding:
    """It adds nothing that is trained."""
    count = int(_cost(tables, encoding)["parameters"])
    return f"{count:,}", count == 0


def some_parameters(tables: Tables, encoding: str) -> Finding:
    """It adds something that is trained."""
    count = int(_cost(tables, encoding)["parameters"])
    return f"{count:,}", count > 0


def parameters_grow(tables: Tables, encoding: str) -> Finding:
    """It adds parameters in proportion to the trained length."""
    row = _cost(tables, encoding)
    one, two = int(row["parameters"]), int(row["parameters_at_twice_the_length"])
    return f"{one:,}, {two:,} at twice the length", two == 2 * one > 0


def memory_grows(column: str, power: int) -> Callable[[Tables, str], Finding]:
    """The bytes in a column of `memory` grow as the length to that power."""

    def measure(tables: Tables, encoding: str) -> Finding:
        memory = tables["memory"]
        one, two = memory.loc[memory["encoding"] == encoding, column]
        found = math.log2(two / one) if one else 0.0
        what = column.removesuffix("_bytes").replace("_", " ")
        return f"{what}: {one:,} bytes, grows as L^{found:.2f}", abs(found - power) < 0.25

    return measure


def work(slow: bool) -> Callable[[Tables, str], Finding]:
    """More than SLOW times the matrix products of NoPE, in training or decoding, or not."""

    def measure(tables: Tables, encoding: str) -> Finding:
        row = _cost(tables, encoding)
        train, decode = row["train_flops_ratio"], row["decode_flops_ratio"]
        text = f"{train:.2f}x the work of NoPE in training, {decode:.2f}x in decoding"
        return text, (max(train, decode) >= SLOW) == slow

    return measure


def no_cache(tables: Tables, encoding: str) -> Finding:
    """Decoding from cached keys and values gives something else than the full pass."""
    behaviour = tables["behaviour"]
    error = behaviour.loc[behaviour["encoding"] == encoding, "cache_logit_error"].max()
    return f"cached logits differ by {error:.1e} of their size", bool(error > SAME)


def relative(expected: bool) -> Callable[[Tables, str], Finding]:
    """Scores stay the same when all positions move on by half the window."""

    def measure(tables: Tables, encoding: str) -> Finding:
        behaviour = tables["behaviour"]
        change = behaviour.loc[behaviour["encoding"] == encoding, "moved_scores"].max()
        return f"scores change by {change:.1e} when all positions move", (change < SAME) == expected

    return measure


END_003, ALIBI_003, XL_003 = "note 003, comparison", "note 003, ALiBi", "note 003, Transformer-XL"
TABLE_001, LIST_001 = "note 001 §3, comparison", "note 001 §3, lists"
TEXT, COPYING = "extrapolates: text", "extrapolates: copying"

CLAIMS = (
    Claim(END_003, "sinusoidal", TEXT, "yes", text_kept(True)),
    Claim(END_003, "sinusoidal", COPYING, "yes", copying_kept(True)),
    Claim(END_003, "sinusoidal", "parameters", "none", no_parameters),
    Claim(END_003, "learned", TEXT, "no", text_kept(False)),
    Claim(END_003, "learned", "parameters", "in proportion to length", parameters_grow),
    Claim(END_003, "shaw", TEXT, "depends", either),
    Claim(END_003, "shaw", "parameters", "some", some_parameters),
    Claim(END_003, "rope", TEXT, "yes", text_kept(True)),
    Claim(END_003, "rope", COPYING, "yes", copying_kept(True)),
    Claim(END_003, "rope", "parameters", "none", no_parameters),
    Claim(END_003, "alibi", TEXT, "yes", text_kept(True)),
    Claim(END_003, "alibi", COPYING, "yes", copying_kept(True)),
    Claim(END_003, "alibi", "parameters", "a few, trainable", some_parameters),
    Claim(
        ALIBI_003, "alibi", "memory", "no position vectors are kept", memory_grows("kept_bytes", 0)
    ),
    Claim(XL_003, "transformer_xl", "speed", "slow", work(slow=True)),
    Claim(XL_003, "transformer_xl", "KV cache", "cannot be used", no_cache),
    Claim(TABLE_001, "learned", "relative", "no", relative(False)),
    Claim(TABLE_001, "learned", "memory", "O(L x D)", memory_grows("kept_bytes", 1)),
    Claim(TABLE_001, "t5", "relative", "yes", relative(True)),
    Claim(LIST_001, "t5", TEXT, "to some extent", text_kept(True)),
    Claim(TABLE_001, "t5", "memory", "O(L^2)", memory_grows("largest_tensor_bytes", 2)),
    Claim(LIST_001, "t5", "speed", "costly", work(slow=True)),
    Claim(TABLE_001, "rope", "relative", "yes", relative(True)),
    Claim(LIST_001, "rope", "speed", "efficient", work(slow=False)),
    Claim(TABLE_001, "rope", "memory", "O(1)", memory_grows("kept_bytes", 0)),
)
