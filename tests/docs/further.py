"""Entries for what else was asked of models trained at 2048: other lengths, fine-tuning."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from ropelab.runs.labels import WINDOW, method_label
from tests.docs.entry import Entry
from tests.docs.reference import table, titled

FINDINGS = "docs/findings.md"
ZERO_SHOT = ("zero_shot",)
PAPER_AND_CODE = ("yarn_paper", "yarn")


@dataclass(frozen=True)
class Shown:
    """A table of the findings: a row for every method of a run.

    Attributes:
        title: of the run.
        tag: what follows the method in its row, so that no two tables have equal rows.
        copies: distance and context, in tokens, of the columns on copying.
        reads: ends of the buckets of text, in tokens, of the columns on text.
        arms: a column each, side by side.
    """

    title: str
    tag: str
    copies: tuple[tuple[int, int], ...]
    reads: tuple[int, ...]
    arms: tuple[str, ...] = ZERO_SHOT

    def rows(self, name: str, arm: str) -> pd.DataFrame:
        """The rows of an arm in a table of the run, with a label for every row."""
        return of(self.title, name, arm)

    def labels(self) -> list[str]:
        """The methods, in their order."""
        return list(dict.fromkeys(self.rows("text_nll", self.arms[-1])["label"]))

    def values(self, label: str) -> list[str]:
        """What stands in the row of a method: copying, then text; means over seeds."""
        copies = [self.copied(label, *at, arm) for at in self.copies for arm in self.arms]
        return [*copies, *(self.read(label, end, arm) for end in self.reads for arm in self.arms)]

    def copied(self, label: str, back: int, context: int, arm: str) -> str:
        """Accuracy of copying from `back` tokens in `context` tokens."""
        rows = self.rows("copy_accuracy", arm)
        rows = rows[(rows["distance_tokens"] == back) & (rows["context_tokens"] == context)]
        return shown(rows[rows["label"] == label]["accuracy"].mean(), 2)

    def read(self, label: str, end: int, arm: str) -> str:
        """Nats per byte in the bucket of text that ends there."""
        rows = self.rows("text_nll", arm)
        rows = rows[(rows["bucket_end_tokens"] == end) & (rows["label"] == label)]
        return shown(rows["nll_nats_per_byte"].mean(), 3)

    def entries(self) -> Iterator[Entry]:
        """One for each method."""
        columns = (len(self.copies) + len(self.reads)) * len(self.arms)
        for label in self.labels():
            row = f"| `{label}` {self.tag} |" + " {} |" * columns
            yield Entry(FINDINGS, row, lambda label=label: self.values(label))


TWICE = Shown(
    "Twice the trained length", "at 2 L", ((1024, 4096), (2048, 4096), (3072, 4096)), (4096,)
)
FINETUNED = Shown(
    "After fine-tuning at 8k", "fine-tuned", ((4096, 8192), (6144, 8192)), (8192,),
    ("zero_shot", "finetuned"),
)  # fmt: skip
PROSE = Shown(
    "Trained at 2k, read at 8k, on English prose (Django's documentation)",
    "on prose",
    ((1536, 8192), (4096, 8192), (6144, 8192)),
    (2048, 8192),
)

METHODS = Shown(
    "Every method, on text, copying and recall",
    "of all",
    ((1536, 8192), (4096, 8192), (6144, 8192)),
    (4096, 8192),
)
ATTENTION = Shown(
    "Methods that change attention itself",
    "with one seed",
    ((1536, 8192), (4096, 8192), (6144, 8192)),
    (4096, 8192),
)
OUTSIDE = Shown(
    "Fine-tuned at 4k, read at 8k", "at 4k", ((3072, 4096), (3072, 8192)), (4096, 8192),
    ("zero_shot", "finetuned"),
)  # fmt: skip
CEILING = "Against training at 8k from the start"
LONGER = "Position interpolation, fine-tuned for longer"
SEARCHED = Shown(
    "Knobs searched on the model, one budget for all", "searched", ((4096, 8192), (6144, 8192)),
    (8192,), ("zero_shot", "searched"),
)  # fmt: skip


def shown(value: float, digits: int) -> str:
    """A number; a dash where there is none."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def of(title: str, name: str, arm: str) -> pd.DataFrame:
    """The rows of an arm in a table of the run with that title, with a label for every row."""
    rows = table(titled("extrapolate", title), name)
    rows = rows[rows["arm"] == arm]
    pairs = zip(rows["method"], rows["factor"], strict=True)
    return rows.assign(label=[method_label(*pair) for pair in pairs])


def further_entries() -> Iterator[Entry]:
    """The tables of the findings, and what is said of them."""
    for each in (TWICE, METHODS, ATTENTION, SEARCHED, FINETUNED, OUTSIDE, PROSE):
        yield from each.entries()
    yield Entry(
        FINDINGS,
        "the best method, `{}`, differs from it by {} [{}, {}] nats per byte.",
        best_finetuned,
    )
    yield Entry(
        FINDINGS,
        "`pi ×4` reads the end at {} nats per byte, `yarn ×4` at {}:",
        lambda: [read_at_the_end(LONGER, "finetuned", label) for label in ("pi ×4", "yarn ×4")],
    )
    yield Entry(
        FINDINGS,
        "YaRN does beat the window, by {} [{}, {}].",
        lambda: differs(LONGER, WINDOW, "yarn ×4 finetuned", 8192),
    )
    yield Entry(
        FINDINGS,
        "of that gain {} is there inside L too",
        lambda: differs(LONGER, WINDOW, "yarn ×4 finetuned", 2048)[:1],
    )
    yield Entry(
        FINDINGS,
        "it does not learn to copy ({} from 1024 back in 2048 tokens), and reads the last quarter "
        "at {} nats per byte.",
        ceiling,
    )
    yield Entry(
        FINDINGS,
        "`unscaled` moves up too ({} [{}, {}] from the window)",
        lambda: differs(FINETUNED.title, "unscaled finetuned", WINDOW, 8192),
    )
    yield Entry(
        FINDINGS,
        "costs text at every length, {} [{}, {}] nats per byte at the end,",
        lambda: differs(TWICE.title, "ntk ×4", "ntk ×2", 4096),
    )
    yield Entry(
        FINDINGS,
        "only `yarn ×2` cannot be told from it ({} [{}, {}]).",
        lambda: differs(TWICE.title, "yarn ×2", WINDOW, 4096),
    )
    yield Entry(
        FINDINGS,
        "reads the end better than `yarn ×4`, by {} [{}, {}], and copies more from 3 L ({} against "
        "{}).",
        lambda: [
            *differs(METHODS.title, "yarn ×4", "yarn_paper ×4", 8192),
            *(METHODS.copied(f"{m} ×4", 6144, 8192, "zero_shot") for m in PAPER_AND_CODE),
        ],
    )
    yield Entry(
        "README.md",
        "copies more from 6144 back than as its code computes it: {} against {} (three",
        lambda: [METHODS.copied(f"{m} ×4", 6144, 8192, "zero_shot") for m in PAPER_AND_CODE],
    )
    yield Entry(
        FINDINGS,
        "Only `yarn_paper ×4` cannot be told from the window there ({} [{}, {}]).",
        lambda: differs(METHODS.title, "yarn_paper ×4", WINDOW, 8192),
    )
    yield Entry(
        FINDINGS,
        "without it YaRN reads the end worse by {} [{}, {}], and with log-n scaling NTK reads it "
        "better by {} [{}, {}].",
        lambda: [
            *differs(METHODS.title, "yarn(attention_factor=1) ×4", "yarn ×4", 8192),
            *differs(METHODS.title, "ntk ×4", "log_n(inner=ntk) ×4", 8192),
        ],
    )
    yield Entry(
        FINDINGS,
        "its factor became {} to {} in place of 4, `beta_fast` {} to {} in place of 32;",
        chosen_for_yarn,
    )
    yield Entry(
        FINDINGS,
        "For text PI, NTK, NTK-by-parts and Llama 3 chose factors from {} to {}:",
        chosen_for_text,
    )
    yield Entry(
        FINDINGS,
        "the end by {} [{}, {}] less than as published",
        lambda: differs(SEARCHED.title, "yarn ×4", "yarn ×4 searched", 8192),
    )
    yield Entry(
        FINDINGS,
        "context the same last ones cost {}, {} and {} nats per byte):",
        prose_by_context,
    )


def differs(title: str, a: str, b: str, end: int) -> list[str]:
    """Loss of row `a` minus that of `b` in the bucket of text that ends there, its interval."""
    rows = table(titled("extrapolate", title), "comparisons")
    rows = rows[(rows["metric"] == "nll_bucket") & (rows["at_tokens"] == end)]
    row = rows[rows["method_a"].isin([a, b]) & rows["method_b"].isin([a, b])].iloc[0]
    ends = [row["difference"], row["ci_low"], row["ci_high"]]
    turned = ends if row["method_a"] == a else [-ends[0], -ends[2], -ends[1]]
    return [f"{value:.3f}" for value in turned]


def chosen(knob: str, method: str, task: str) -> list[float]:
    """What a search chose for a knob on each model, 1 where the factor is not named."""
    rows = table(titled("extrapolate", SEARCHED.title), "searched")
    rows = rows[(rows["method"] == method) & (rows["task"] == task)]
    found = [re.search(rf"\b{knob}=([\d.]+)", text) for text in rows["chosen"]]
    return [float(match[1]) if match else 1.0 for match in found]


def chosen_for_text() -> list[str]:
    """The least and the largest factor of the four methods that hardly scale."""
    methods = ("pi", "ntk", "ntk_by_parts", "llama3")
    factors = [factor for method in methods for factor in chosen("factor", method, "text")]
    return [f"{min(factors):.0f}", f"{max(factors):.1f}"]


def chosen_for_yarn() -> list[str]:
    """The range of YaRN's factor and of its faster end, for copying."""
    factors, fast = (chosen(knob, "yarn", "copy") for knob in ("factor", "beta_fast"))
    return [f"{min(factors):.1f}", f"{max(factors):.1f}", f"{min(fast):.0f}", f"{max(fast):.0f}"]


def read_at_the_end(title: str, arm: str, label: str) -> str:
    """Nats per byte in the last bucket."""
    return Shown(title, "", (), ()).read(label, 8192, arm)


def ceiling() -> list[str]:
    """Copying from 1024 back in 2048 tokens, and the last quarter of the text."""
    rows = Shown(CEILING, "", (), ())
    label = str(rows.rows("text_nll", "ceiling")["label"].iloc[0])
    return [rows.copied(label, 1024, 2048, "ceiling"), rows.read(label, 8192, "ceiling")]


def best_finetuned() -> list[str]:
    """The fine-tuned method that reads the end best, and how it differs from the window."""
    rows = FINETUNED.rows("text_nll", "finetuned")
    losses = rows[rows["bucket_end_tokens"] == 8192].groupby("label")["nll_nats_per_byte"].mean()
    best = str(losses.idxmin())
    return [best, *differs(FINETUNED.title, f"{best} finetuned", WINDOW, 8192)]


def prose_by_context() -> list[str]:
    """Loss of the models of prose on the same last bytes, by context; means over seeds."""
    rows = PROSE.rows("last_window", "zero_shot")
    rows = rows[(rows["label"] == "unscaled") & (rows["context_tokens"] <= 2048)]
    return [f"{loss:.3f}" for loss in rows.groupby("context_tokens")["nll_nats_per_byte"].mean()]
