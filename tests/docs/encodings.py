"""Entries for the section on encodings."""

from collections.abc import Iterator
from pathlib import Path

from ropelab.models.encoding.registry import ENCODINGS
from tests.docs.entry import Entry
from tests.docs.reference import newest, only, table, titled

FINDINGS = "docs/findings.md"
LONGER = "Encodings trained four times as long"
NAMED = "Encodings by name, trained at 128 tokens"
SHORT = (
    "alibi", "fire", "rope", "transformer_xl", "kerple_log", "t5", "learned", "shaw", "deberta",
    "sinusoidal", "nope",
)  # fmt: skip
"""In the order of what the worst seed copies."""

TRAINED_LONGER = (
    "alibi", "t5", "transformer_xl", "rope", "rope_values", "sinusoidal", "learned", "deberta",
    "nope",
)  # fmt: skip
BY_NAME = (
    "sines", "exponential", "learned_distance", "convolution", "concatenated", "rope_values_back",
    "rope_values", "mla", "xpos", "tupe", "gaussian", "multiplied", "polynomial",
)  # fmt: skip


def eleven() -> Path:
    """The run of the section, with most seeds."""
    return newest("encodings", "quality")


def values(folder: Path, encoding: str) -> list[str]:
    """Copying by the worst seed, copying and text loss at the trained length and at four times it.

    Means over seeds but the first; what is not defined at four times the length is a dash.
    """
    rows = table(folder, "quality").query(f"encoding == '{encoding}'")
    wide = rows.pivot(index="metric", columns="times_trained_len", values="value")
    copies, losses = wide.loc["copy accuracy"], wide.loc["text loss"]
    worst = rows[(rows["metric"] == "copy accuracy") & (rows["times_trained_len"] == 1)]
    numbers = [
        f"{only(worst, 'worst_seed_value'):.2f}",
        *(f"{copies[times]:.2f}" for times in (1, 4)),
        *(f"{losses[times]:.3f}" for times in (1, 4)),
    ]
    return ["–" if number == "nan" else number for number in numbers]


def by_context(encoding: str) -> list[str]:
    """Text loss after each context inside the trained length, over seeds."""
    rows = table(eleven(), "last_window").query(f"encoding == '{encoding}'")
    inside = rows[rows["context_tokens"] <= rows["train_len_tokens"]]
    means = inside.groupby("context_tokens")["nll_nats_per_byte"].mean()
    return [f"{value:.3f}" for value in means]


def differs(encoding: str) -> list[str]:
    """Its loss against the encoding that the literature sets it against, trained longer."""
    pairs = table(titled("encodings", LONGER), "pairs").set_index("encoding_a").loc[encoding]
    return [f"{pairs[column]:.3f}" for column in ("difference", "ci_low", "ci_high")]


def rows(folder: Path, encodings: tuple[str, ...], tag: str = "") -> Iterator[Entry]:
    """A table of encodings of one run; `tag` tells its rows from those of other tables."""
    for encoding in encodings:
        row = f"| {ENCODINGS[encoding].label}{tag} |" + " {} |" * 5
        yield Entry(FINDINGS, row, lambda encoding=encoding: values(folder, encoding))


def encodings_entries() -> Iterator[Entry]:
    """What context is worth, and the tables of the section."""
    yield Entry(
        FINDINGS,
        "bytes cost RoPE {}, {} and {} nats per byte after 32, 64 and 128 tokens; NoPE, which does "
        "not use it, {}, {} and {}.",
        lambda: [*by_context("rope"), *by_context("nope")],
    )
    yield from rows(eleven(), SHORT)
    yield from rows(titled("encodings", LONGER), TRAINED_LONGER, ", 2,400 steps")
    yield Entry(
        FINDINGS,
        "a learned table reads worse than sinusoids, by {} [{}, {}] nats per byte.",
        lambda: differs("learned"),
    )
    yield Entry(
        FINDINGS,
        "Rotating values too is not told from leaving them alone ({} [{}, {}]).",
        lambda: differs("rope_values"),
    )
    yield from rows(titled("encodings", NAMED), ("rope",), ", as a standard")
    yield from rows(titled("encodings", NAMED), BY_NAME)
