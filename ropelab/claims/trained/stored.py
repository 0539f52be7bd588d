"""Reading the stored runs of the labs that train: which run decides, and what it says of a pair.

Nothing is compared here anew: the labs store paired differences with 95 % intervals in their tables
`comparisons` (and `extrapolation`), whose `verdict` names the better one or is `~`.

Columns read of the extrapolation lab: last_window (method, factor, arm, context_tokens,
nll_nats_per_byte), copy_accuracy (method, factor, arm, seed, distance_tokens, accuracy, ci_low,
ci_high and, where it varies, context_tokens), comparisons (metric, at_tokens, context_tokens where
it varies, method_a, method_b, difference, ci_low, ci_high, verdict). Of the encodings lab: quality
(metric, encoding, times_trained_len, value), comparisons (metric, times_trained_len, encoding_a,
encoding_b, verdict), extrapolation (metric, encoding, difference, ci_low, ci_high), pairs
(encoding_a, encoding_b, difference, ci_low, ci_high, verdict).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

import pandas as pd

from ropelab.claims.record import Claim, Evidence, Finding, Kind, Passage, limit, missing, part
from ropelab.runs.cell import Stored
from ropelab.runs.labels import method_label, row_labels
from ropelab.runs.stats import Interval, mean_interval
from ropelab.runs.thresholds import LEARNED

SIZES = {"small": "about 1 M", "base": "about 10 M", "large": "about 120 M"}
"""Parameters of the presets."""
BYTES = 256
NOT_MEASURED = Interval(math.nan, math.nan, math.nan, 0)


@dataclass(frozen=True)
class Tally:
    """Places at which one row is better than another, worse, or not told apart."""

    better: int
    worse: int
    ties: int

    @property
    def text(self) -> str:
        """The outcome as words."""
        total = self.better + self.worse + self.ties
        if total == 0:
            return "not compared"
        if total == 1:
            return "better" if self.better else "worse" if self.worse else "within the noise"
        return f"better at {self.better}, worse at {self.worse} of {total} distances"

    def mostly_better(self, what: str) -> Finding:
        """A part that agrees if it is better more often than worse; None where noise decides."""
        if self.better + self.worse + self.ties == 0:
            return missing(what, self.text)
        agrees = None if self.better == self.worse == 0 else self.better > self.worse
        return part(what, self.text, agrees, self.better - self.worse)

    def nowhere_worse(self, what: str) -> Finding:
        """A limit that agrees if it is worse nowhere."""
        return limit(what, self.text, self.worse == 0, self.worse)


def tally(winners: pd.Series, name: str) -> Tally:
    """Count a column that names the better one of each pair, or `~`."""
    better, ties = int((winners == name).sum()), int((winners == "~").sum())
    return Tally(better, len(winners) - better - ties, ties)


class Trained:
    """One stored run of a lab that trains models at one length and tests them at a longer one."""

    plain: str
    """The row whose copying inside the trained length shows that the models have learned."""

    def __init__(self, run: Stored) -> None:
        self.tables = run.tables
        self.config = run.config
        self.train_len = int(run.config["train_len"])
        self.test_len = int(run.config["test_len"])
        self.seeds = len(run.config.get("seeds", ()))
        self.documents = int(run.config.get("documents", 0))

    @property
    def quality(self) -> tuple[int, ...]:
        """Larger for the run that should decide.

        Copying and text, several seeds (one model is an example), trained at more tokens, more
        seeds, trained for longer, more documents, tested at more tokens.
        """
        measured = int(not math.isnan(self.copies_within())) + int("last_window" in self.tables)
        several, steps = int(self.seeds > 1), int(self.config.get("steps") or 0)
        size = (self.train_len, self.seeds, steps, self.documents, self.test_len)
        return measured, several, *size

    def table(self, name: str) -> pd.DataFrame:
        """A stored table, empty if there is none."""
        return self.tables.get(name, pd.DataFrame())

    def copies_within(self, name: str = "") -> float:
        """Copy accuracy of a row (the plain one) inside the trained length; nan if not measured.

        Of the seed that copies least, where seeds are told apart: all models must have learned.
        """
        raise NotImplementedError


def described(config: dict[str, object]) -> str:
    """The models of a run in words: their size, how many seeds, the trained length."""
    seeds = config.get("seeds", ())
    count = len(seeds) if isinstance(seeds, Sequence) else 0
    amount = f"{count} seed" + ("" if count == 1 else "s")
    return f"{_size(config)} parameters, {amount}, trained at {config['train_len']} tokens"


def _size(config: dict[str, object]) -> str:
    """Parameters of a model of bytes without those of its encoding, or of its preset."""
    names = ("layers", "width", "heads", "head_dim")
    if not all(isinstance(config.get(name), int) for name in names):
        return SIZES.get(str(config.get("preset")), "unknown")
    layers, width, heads, head_dim = (int(str(config[name])) for name in names)
    layer = 4 * width * heads * head_dim + 8 * width**2
    return f"{(layers * layer + 2 * BYTES * width) / 1e6:.1f} M"


READ = (
    "method",
    "factor",
    "label",
    "seed",
    "context_tokens",
    "nll_nats_per_byte",
    "distance_tokens",
    "accuracy",
)
"""The columns read here, for a table that a run does not have or has in an older form."""


class Methods(Trained):
    """A run of the extrapolation lab; rows are methods, each called by its label."""

    plain = "unscaled"

    @cached_property
    def factors(self) -> dict[str, list[float]]:
        """The factors that every method was tried with, ascending."""
        factors: dict[str, list[float]] = {}
        for name in ("last_window", "copy_accuracy"):
            for method, group in self.rows(name).groupby("method"):
                factors[str(method)] = sorted({*factors.get(str(method), ()), *group["factor"]})
        return factors

    @property
    def labels(self) -> list[str]:
        """Every row that read text, zero-shot."""
        return list(dict.fromkeys(self.rows("last_window")["label"]))

    def rows(self, name: str, arm: str = "zero_shot") -> pd.DataFrame:
        """The rows of a table that belong to an arm, with their labels."""
        table = self.table(name)
        if "arm" not in table:
            return pd.DataFrame(columns=[*READ])
        chosen = table[table["arm"] == arm]
        return chosen.assign(label=row_labels(chosen))

    def label(self, method: str, largest: bool = False, arm: str = "zero_shot") -> str:
        """A method at the least of its factors that reaches the tested length, or the largest."""
        factors = self.factors.get(method, [1.0])
        reaching = [f for f in factors if f >= self.test_len / self.train_len]
        factor = factors[-1] if largest or not reaching else reaching[0]
        return method_label(method, factor, arm)

    def against(self, a: str, b: str, metric: str) -> Tally:
        """How `a` fares against `b`; copying is counted at distances beyond the trained length."""
        pairs = self.table("comparisons")
        if pairs.empty:
            return Tally(0, 0, 0)
        chosen = pairs["method_a"].isin([a, b]) & pairs["method_b"].isin([a, b])
        chosen &= pairs["metric"] == metric
        if metric == "copy_accuracy":
            chosen &= pairs["at_tokens"] > self.train_len
        return tally(in_context(pairs[chosen], "at_tokens")["verdict"], a)

    def loss(self, label: str, arm: str = "zero_shot") -> float:
        """Mean loss of the last tokens after the longest context, in nats per byte."""
        table = self.rows("last_window", arm)
        chosen = (table["label"] == label) & (table["context_tokens"] == self.test_len)
        return float(table.loc[chosen, "nll_nats_per_byte"].mean())

    def copying(self, label: str, longest: bool = True) -> pd.Series:
        """Mean copy accuracy over the seeds, by distance, in the longest context (or shortest)."""
        table = self.rows("copy_accuracy")
        mine = in_context(table[table["label"] == label], "distance_tokens", longest)
        return mine.groupby("distance_tokens")["accuracy"].mean()

    def copies_beyond(self, label: str) -> float:
        """Mean copy accuracy at distances beyond the trained length; nan if not measured."""
        accuracy = self.copying(label)
        return float(accuracy.loc[accuracy.index > self.train_len].mean())

    def level(self, label: str, distance: int) -> Interval:
        """Copy accuracy from a distance in the longest context, with its interval.

        Over the seeds; of a single model over its sequences.
        """
        table = self.rows("copy_accuracy")
        mine = in_context(table[table["label"] == label], "distance_tokens")
        mine = mine[mine["distance_tokens"] == distance]
        if len(mine) != 1:
            return mean_interval(mine["accuracy"])
        row = mine.iloc[0]
        return Interval(row["accuracy"], row["ci_low"], row["ci_high"], 1)

    def level_at_twice(self, label: str) -> Interval:
        """That at twice the trained length, or at the distance nearest to it."""
        distances = self.copying(label).index.to_numpy(dtype=int)
        if not distances.size:
            return NOT_MEASURED
        return self.level(label, int(distances[abs(distances - 2 * self.train_len).argmin()]))

    def lowest(self, label: str) -> Interval:
        """That at the distance from which least is copied."""
        accuracy = self.copying(label).sort_values()
        return NOT_MEASURED if accuracy.empty else self.level(label, accuracy.index[0])

    def highest(self, label: str) -> Interval:
        """That at the distance from which most is copied."""
        accuracy = self.copying(label).sort_values()
        return NOT_MEASURED if accuracy.empty else self.level(label, accuracy.index[-1])

    def copies_within(self, name: str = "") -> float:
        table = self.rows("copy_accuracy")
        mine = table[table["label"] == (name or self.plain)]
        mine = in_context(mine, "distance_tokens", longest=False)
        mine = mine[mine["distance_tokens"] <= self.train_len / 2]
        return float(mine.groupby("seed")["accuracy"].mean().min())


def in_context(table: pd.DataFrame, place: str, longest: bool = True) -> pd.DataFrame:
    """Of every distance in the column `place` the rows of its longest context, or its shortest."""
    if "context_tokens" not in table:
        return table
    contexts = table.groupby(place)["context_tokens"]
    return table[table["context_tokens"] == contexts.transform("max" if longest else "min")]


class Encodings(Trained):
    """A run of the encodings lab: rows are position encodings."""

    plain = "rope"

    def growth(self, encoding: str, metric: str) -> pd.Series | None:
        """The stored difference between the longest context and the trained length."""
        return self._one("extrapolation", {"encoding": encoding, "metric": metric})

    def at(self, encoding: str, metric: str, longest: bool, column: str = "value") -> float:
        """A quality at the longest context or at the trained length: the mean over the seeds."""
        table = self.table("quality")
        if table.empty:
            return math.nan
        mine = table[(table["encoding"] == encoding) & (table["metric"] == metric)]
        values = mine.sort_values("times_trained_len")[column]
        return float(values.iloc[-1 if longest else 0]) if len(values) else math.nan

    def pair(self, a: str, b: str) -> pd.Series | None:
        """The stored difference of two text losses at the trained length, a - b."""
        return self._one("pairs", {"encoding_a": a, "encoding_b": b})

    def against_baseline(self, encoding: str, metric: str) -> tuple[str, Tally]:
        """The encoding that others are compared with, and how this one fares at the longest."""
        where = {"encoding_a": encoding, "metric": metric}
        row = self._one("comparisons", where, longest=True)
        if row is None:
            return self.plain, Tally(0, 0, 0)
        return str(row["encoding_b"]), tally(pd.Series([row["verdict"]]), encoding)

    def copies_within(self, name: str = "") -> float:
        return self.at(name or self.plain, "copy accuracy", False, "worst_seed_value")

    def _one(self, name: str, where: dict[str, str], longest: bool = False) -> pd.Series | None:
        table = self.table(name)
        for column, value in where.items():
            table = table[table[column] == value] if column in table else table.iloc[:0]
        if table.empty:
            return None
        return table.sort_values("times_trained_len").iloc[-1] if longest else table.iloc[0]


def at_least(value: float, least: float) -> bool | None:
    """Whether a value reaches another; None if it was not measured (nan)."""
    return None if math.isnan(value) else value >= least


def reaches(found: Interval, least: float) -> bool | None:
    """Whether a value reaches another; None where its interval leaves that open, or not measured.

    >>> [reaches(Interval(0.9, low, high, 5), 0.8) for low, high in ((0.85, 1), (0.7, 1), (0, 0.7))]
    [True, None, False]
    """
    if math.isnan(found.low):
        return None
    return True if found.low >= least else False if found.high < least else None


def stays_below(found: Interval, limit: float) -> bool | None:
    """Whether a value lies below another; None as in `reaches`."""
    reached = reaches(found, limit)
    return None if reached is None else not reached


R = TypeVar("R", bound=Trained)


def guarded(run: Trained, names: tuple[str, ...], finding: Finding) -> Finding:
    """The finding, without a verdict if one of the models named did not learn the task."""
    learned = {name: run.copies_within(name) for name in names}
    weak = [f"{name} ({copied:.2f})" for name, copied in learned.items() if not copied >= LEARNED]
    if finding.missing or not weak:
        return finding
    note = f"{finding.measured}; did not learn to copy: {', '.join(weak)}"
    return replace(finding, agrees=None, measured=note, unlearned=True)


def decided_by(
    *,
    kind: type[R],
    expected: str,
    findings: Callable[[R], tuple[Finding, ...]],
    runs: tuple[Stored, ...] = (),
) -> Evidence:
    """What `findings` says of the largest run that can answer, or what is missing for that.

    A run whose models did not all learn the task is asked only if there is no other.
    """
    answers = [_asked(run, expected, findings) for run in largest_first(kind, runs)]
    nothing = missing("a stored run that tests beyond its trained length")
    answers = answers or [Evidence(expected=expected, findings=(nothing,))]
    return min(answers, key=lambda answer: (answer.is_missing, answer.is_unlearned))


def _asked(run: R, expected: str, findings: Callable[[R], tuple[Finding, ...]]) -> Evidence:
    """What one run says; nothing if its models did not learn the task."""
    models = described(run.config)
    copied = run.copies_within()
    if copied >= LEARNED:
        return Evidence(expected=expected, findings=findings(run), models=models)
    what = f"copy accuracy of {run.plain} inside the trained length {run.train_len}"
    text = "not measured" if math.isnan(copied) else f"{copied:.2f}, below {LEARNED}"
    return Evidence(expected=expected, findings=(missing(what, text),), models=models)


def trained_claim(
    kind: type[R],
    reads: str,
    command: str,
    id_: str,
    passages: tuple[Passage, ...],
    statement: str,
    expected: str,
    findings: Callable[[R], tuple[Finding, ...]],
) -> Claim:
    """A claim that the stored runs of the experiment `reads` decide."""
    return Claim(
        id=id_,
        passages=passages,
        statement=statement,
        check=partial(decided_by, kind=kind, expected=expected, findings=findings),
        kind=Kind.TRAINED,
        reads=reads,
        command=command,
    )


def largest_first(kind: type[R], runs: Sequence[Stored]) -> list[R]:
    """The stored runs that test beyond their trained length, the largest first."""
    usable = (kind(run) for run in runs if run.config["test_len"] > run.config["train_len"])
    return sorted(usable, key=lambda run: run.quality, reverse=True)
