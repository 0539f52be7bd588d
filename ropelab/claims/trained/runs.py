"""Stored runs of the experiments that train models, and what their tables say.

Nothing is compared anew: the tables `comparisons` (and `extrapolation`) have paired
differences with 95 % intervals, and a `verdict` that names the better row or is `~`.

A row stands for a method or an encoding, with the results of its models. The label of a
row is its name, with its factor if it has one. The arm of a row says how its models were
trained and evaluated: as they are (zero_shot), or after further training (finetuned), for
example.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ropelab.claims.trained.tally import Tally, count_verdicts
from ropelab.math.frequencies import inverse_frequencies, rotations
from ropelab.models.tasks.grid import choose_last_window
from ropelab.models.tasks.tables import average_with_intervals, write_mean
from ropelab.runs.cell import Stored
from ropelab.runs.comparisons import select_pair
from ropelab.runs.labels import label_method, label_rows
from ropelab.runs.stats import Interval, average_samples
from ropelab.runs.thresholds import CLOSE, LEARNED

# The metrics of copying and of text in the tables of encodings and frequencies.
COPYING = "copy accuracy"
TEXT_LOSS = "text loss"
# The least number of seeds for an interval over seeds.
FEWEST_SEEDS = 3
# The tally of two rows that a run does not compare.
NOT_COMPARED = Tally(better=0, worse=0, ties=0)


def _write_mean(rows: pd.DataFrame, column: str) -> str:
    """Write the mean of a column over the rows of one label, with its interval."""
    if rows.empty:
        return "not measured"
    means = average_with_intervals(rows, column, column)
    return write_mean(means, str(means.index[0]))


def select_context(
    table: pd.DataFrame, distance_column: str, longest: bool = True
) -> pd.DataFrame:
    """Select, for each distance in a column, the rows with the longest or the shortest
    context in which this distance was measured.
    """
    # Runs with a single context lack the column.
    if "context_tokens" not in table:
        return table
    contexts = table.groupby(distance_column)["context_tokens"]
    chosen = contexts.transform("max") if longest else contexts.transform("min")
    return table[table["context_tokens"] == chosen]


class TrainedRun:
    """One stored run of an experiment that trains models at one length and tests them at
    a longer one.
    """

    # The name of the plain row, with which all other rows are compared. If its models copy
    # inside the trained length, the models of the run have learned.
    plain: str

    def __init__(self, run: Stored) -> None:
        self.tables = run.tables
        self.config = run.config
        self.earlier_version = run.earlier_version
        self.train_len = int(run.config["train_len"])
        self.test_len = int(run.config["test_len"])

    @property
    def last_tokens(self) -> int:
        """The number of final tokens whose loss is the text loss after a context."""
        return choose_last_window(self.train_len)

    @property
    def quality(self) -> tuple[int, ...]:
        """A rank, which is larger for the run that should decide. Its entries are
        compared in their order.
        """
        seeds = len(self.config.get("seeds", ()))

        # A run of copying and text answers more claims than a larger run of nothing but
        # text.
        tasks = 0
        if not math.isnan(self.copies_within()):
            tasks += 1
        if "last_window" in self.tables:
            tasks += 1

        return (
            tasks,
            # A single model, however large, is only an example.
            int(seeds > 1),
            # Runs that the current version measured come before runs of an earlier
            # version.
            int(self.earlier_version is None),
            self.train_len,
            seeds,
            int(self.config.get("steps") or 0),
            int(self.config.get("documents", 0)),
            self.test_len,
        )

    def table(self, name: str) -> pd.DataFrame:
        """Return a table, empty if the run lacks it."""
        return self.tables.get(name, pd.DataFrame())

    def select(self, name: str, **where: Any) -> pd.DataFrame:
        """Select the rows of a table with the values `where`, by column; none if the
        table lacks a column.
        """
        # Older runs and other versions of an experiment lack some tables and columns.
        table = self.table(name)
        for column, value in where.items():
            if column not in table:
                return table.iloc[:0]
            table = table[table[column] == value]
        return table

    def find_row(self, name: str, **where: Any) -> pd.Series | None:
        """Return the first row that `select` finds; None if it finds none."""
        rows = self.select(name, **where)
        return None if rows.empty else rows.iloc[0]

    def copies_within(self, name: str | None = None) -> float:
        """Return the copy accuracy of a row inside the trained length; nan if it was
        not measured.

        If the run has the accuracy of each seed, the lowest one counts: all models must
        have learned.

        Args:
            name: the row; None for the plain row.
        """
        raise NotImplementedError


class MethodsRun(TrainedRun):
    """A run of the experiment `extrapolate`; rows are methods, each called by its label."""

    plain = "unscaled"

    def rows(self, name: str, arm: str = "zero_shot") -> pd.DataFrame:
        """Select the rows of one arm, and add their labels."""
        table = self.table(name)
        if "arm" not in table:
            # The run does not have the table, or has it in an older form without arms.
            # The result then has all columns and no row.
            names = (
                "method",
                "factor",
                "label",
                "seed",
                "context_tokens",
                "nll_nats_per_byte",
            )
            return pd.DataFrame(columns=[*names, "distance_tokens", "accuracy"])

        chosen = table[table["arm"] == arm]
        return chosen.assign(label=label_rows(chosen))

    def find_label(
        self,
        method: str,
        largest: bool = False,
        arm: str = "zero_shot",
        tables: Sequence[str] = ("last_window", "copy_accuracy"),
    ) -> str:
        """Return the label of a method at its smallest factor that covers the tested
        length, or at its largest factor.
        """
        factors: set[float] = set()
        for name in tables:
            rows = self.select(name, arm="zero_shot", method=method)
            factors.update(rows.get("factor", ()))
        if not factors:
            # A method that is not in the run gets a label that no row has.
            return label_method(method, 1.0, arm)

        needed = self.test_len / self.train_len
        covering = [factor for factor in factors if factor >= needed]
        if largest or not covering:
            return label_method(method, max(factors), arm)
        return label_method(method, min(covering), arm)

    def select_comparisons(self, a: str, b: str, metric: str) -> pd.DataFrame:
        """Select the comparisons of two rows under a metric, differences a - b."""
        pairs = self.select("comparisons", metric=metric)
        return pairs if pairs.empty else select_pair(pairs, a, b)

    def tally_against(self, a: str, b: str, metric: str) -> Tally:
        """Compare `a` with `b`; copying is counted at distances beyond the trained
        length.
        """
        rows = self.select_comparisons(a, b, metric)
        if rows.empty:
            return NOT_COMPARED
        if metric == "copy_accuracy":
            rows = rows[rows["at_tokens"] > self.train_len]
        return count_verdicts(select_context(rows, "at_tokens"), a)

    def tally_within(self, a: str, b: str, length: int, start: int = 0) -> Tally:
        """Compare `a` with `b` by the text loss at positions after `start`, up to
        `length`.
        """
        rows = self.select_comparisons(a, b, "nll_bucket")
        if rows.empty:
            return NOT_COMPARED
        rows = rows[rows["at_tokens"].between(start + 1, length)]
        tally = count_verdicts(select_context(rows, "at_tokens"), a)
        return replace(tally, noun="positions")

    def are_equal(self, a: str, b: str, metric: str) -> bool:
        """Return True if the whole interval of the difference of two rows is within
        CLOSE of 0.
        """
        rows = self.select_comparisons(a, b, metric)
        if rows.empty:
            return False
        is_close = rows[["ci_low", "ci_high"]].abs() < CLOSE
        return bool(is_close.all(axis=None))

    def loss(self, label: str, arm: str = "zero_shot") -> float:
        """Return the mean loss after the longest context, in nats per byte."""
        return float(self.losses_by_seed(label, arm).mean())

    def losses_by_seed(self, label: str, arm: str = "zero_shot") -> pd.Series:
        """Return the loss after the longest context, in nats per byte, by seed."""
        chosen = self.select_losses(label, arm)
        return chosen.groupby("seed")["nll_nats_per_byte"].mean()

    def select_losses(self, label: str, arm: str = "zero_shot") -> pd.DataFrame:
        """Select the losses of a row after the longest context."""
        table = self.rows("last_window", arm)
        has_label = table["label"] == label
        is_longest = table["context_tokens"] == self.test_len
        return table[has_label & is_longest]

    def write_loss(self, label: str) -> str:
        """Write the loss after the longest context with its interval."""
        return _write_mean(self.select_losses(label), "nll_nats_per_byte")

    def write_copies_beyond(self, label: str) -> str:
        """Write the copy accuracy, averaged over distances beyond the trained length,
        with its interval.
        """
        copies = self.select_copies(label)
        beyond = copies[copies["distance_tokens"] > self.train_len]
        return _write_mean(beyond, "accuracy")

    def select_copies(self, label: str, longest: bool = True) -> pd.DataFrame:
        """Select the measurements of copying of a row, in the longest or the shortest
        context of each distance.
        """
        table = self.rows("copy_accuracy")
        return select_context(
            table[table["label"] == label], "distance_tokens", longest
        )

    def average_copies(self, label: str) -> pd.Series:
        """Average the copy accuracy over the seeds, by distance, in the longest
        context.
        """
        return self.select_copies(label).groupby("distance_tokens")["accuracy"].mean()

    def copies_beyond(self, label: str) -> float:
        """Average the copy accuracy over distances beyond the trained length."""
        accuracy = self.average_copies(label)
        return float(accuracy.loc[accuracy.index > self.train_len].mean())

    def copies_beyond_by_seed(self, label: str) -> pd.Series:
        """Return the copy accuracy, averaged over distances beyond the trained length,
        by seed.
        """
        copies = self.select_copies(label)
        beyond = copies[copies["distance_tokens"] > self.train_len]
        return beyond.groupby("seed")["accuracy"].mean()

    def measure_copying(self, label: str, distance: int) -> Interval:
        """Return the copy accuracy at a distance in the longest context, with its
        interval.
        """
        copies = self.select_copies(label)
        copies = copies[copies["distance_tokens"] == distance]
        if len(copies) != 1:
            return average_samples(copies["accuracy"])
        # A single model has no spread over seeds. The stored interval is over the
        # sequences on which the model was tested.
        row = copies.iloc[0]
        return Interval(row["accuracy"], row["ci_low"], row["ci_high"], n=1)

    def measure_copying_at(self, label: str, place: str) -> tuple[int, Interval]:
        """Return one distance and the copy accuracy there: the distance where it is
        `best`, the distance where it is `least`, or the distance nearest to `twice` the
        trained length.
        """
        accuracy = self.average_copies(label)
        if accuracy.empty:
            return 0, average_samples(())
        ranked = accuracy.sort_values().index
        if place == "best":
            distance = int(ranked[-1])
        elif place == "least":
            distance = int(ranked[0])
        else:
            distances = accuracy.index.to_numpy(dtype=int)
            nearest = abs(distances - 2 * self.train_len).argmin()
            distance = int(distances[nearest])
        return distance, self.measure_copying(label, distance)

    def copies_within(self, name: str | None = None) -> float:
        # Distances of more than half of the trained length do not count.
        near_copies = self.select_copies(name or self.plain, longest=False)
        near_copies = near_copies[near_copies["distance_tokens"] <= self.train_len / 2]
        return float(near_copies.groupby("seed")["accuracy"].mean().min())


class EncodingsRun(TrainedRun):
    """A run of the experiment `encodings`; rows are position encodings."""

    plain = "rope"

    def find_end_row(self, name: str, longest: bool, **where: Any) -> pd.Series | None:
        """Return the row of a table at the longest context, or else at the trained
        length, of the rows with the values `where`.
        """
        rows = self.select(name, **where)
        if rows.empty:
            return None
        # The shortest context is the trained length.
        by_context = rows.sort_values("times_trained_len")
        return by_context.iloc[-1] if longest else by_context.iloc[0]

    def read_quality(
        self, encoding: str, metric: str, longest: bool, column: str = "value"
    ) -> float:
        """Return a number of an encoding at the longest context, or else at the trained
        length; nan if it was not measured.
        """
        row = self.find_end_row("quality", longest, encoding=encoding, metric=metric)
        return math.nan if row is None else float(row[column])

    def name_place(self, metric: str, context: int) -> str:
        """Name a metric, and the tokens of a context at which a run measures it."""
        if metric == COPYING:
            # Only symbols that stand half of the context back are counted.
            return f"{metric} from {context // 2} tokens back in {context}"
        return f"{metric} of the last {self.last_tokens} of {context} tokens"

    def read_interval(self, encoding: str, metric: str, longest: bool) -> Interval:
        """Return `read_quality` with its interval; nan ends if it has none."""
        row = self.find_end_row("quality", longest, encoding=encoding, metric=metric)
        if row is None:
            return Interval(math.nan, math.nan, math.nan, n=1)
        low = float(row.get("ci_low", math.nan))
        high = float(row.get("ci_high", math.nan))
        return Interval(float(row["value"]), low, high, n=1)

    def losses_by_seed(self, encoding: str, context: int) -> pd.Series:
        """Return the text loss after a context, by training seed."""
        rows = self.select("last_window", encoding=encoding, context_tokens=context)
        if rows.empty:
            return pd.Series(dtype=float)
        return rows.set_index("seed")["nll_nats_per_byte"]

    def seeds_that_copy(self, encoding: str) -> list[bool]:
        """Return for each seed whether its model learned to copy in the trained length."""
        rows = self.select(
            "copy_accuracy", encoding=encoding, context_tokens=self.train_len
        )
        if rows.empty:
            # If the run has no row for each seed, the mean stands for all seeds.
            return [self.copies_within(encoding) >= LEARNED]
        near_rows = rows[rows["distance_tokens"] <= self.train_len / 2]
        shares = near_rows.groupby("seed")["accuracy"].mean()
        return [bool(share >= LEARNED) for share in shares]

    def bounds_between(self, a: str, b: str, longest: bool) -> tuple[float, float]:
        """Return bounds on the difference of two text losses, in nats per byte.

        The bounds are the interval over seeds: each seed trained both encodings on the
        same text. If there are too few seeds, the bounds follow from the intervals of both
        encodings to the baseline.
        """
        context = self.test_len if longest else self.train_len
        losses_a = self.losses_by_seed(a, context)
        losses_b = self.losses_by_seed(b, context)
        differences = (losses_a - losses_b).dropna()
        if len(differences) >= FEWEST_SEEDS:
            interval = average_samples(differences)
            return interval.low, interval.high
        return self._bounds_by_baseline(a, b, longest)

    def _bounds_by_baseline(self, a: str, b: str, longest: bool) -> tuple[float, float]:
        # The two encodings were compared with the baseline, not with each other, so the
        # widths of their intervals add up.
        row_a = self.find_end_row(
            "comparisons", longest, encoding_a=a, metric=TEXT_LOSS
        )
        row_b = self.find_end_row(
            "comparisons", longest, encoding_a=b, metric=TEXT_LOSS
        )
        if row_a is None or row_b is None:
            return math.nan, math.nan
        if "ci_low" not in row_a or "ci_low" not in row_b:
            return math.nan, math.nan
        return row_a["ci_low"] - row_b["ci_high"], row_a["ci_high"] - row_b["ci_low"]

    def tally_against_baseline(self, encoding: str, metric: str) -> tuple[str, Tally]:
        """Return the baseline, and the comparison of an encoding with the baseline in
        the longest context.
        """
        row = self.find_end_row(
            "comparisons", longest=True, encoding_a=encoding, metric=metric
        )
        if row is None:
            return self.plain, NOT_COMPARED
        return str(row["encoding_b"]), count_verdicts(row.to_frame().T, encoding)

    def copies_within(self, name: str | None = None) -> float:
        encoding = name or self.plain
        return self.read_quality(
            encoding, COPYING, longest=False, column="worst_seed_value"
        )


class FrequenciesRun(TrainedRun):
    """A run of the experiment `spectrum`; rows are schemes: the frequencies by which
    the pairs of a head rotate. Some rows test a scheme with a band of frequencies removed.
    """

    def __init__(self, run: Stored) -> None:
        super().__init__(run)
        schemes = self.table("schemes")
        self.plain = str(schemes["scheme"].iloc[0]) if len(schemes) else ""

    def copies_within(self, name: str | None = None) -> float:
        return self.measure_copies_within(name).value

    def measure_copies_within(self, name: str | None = None) -> Interval:
        """Return `copies_within` with its interval; nan ends if it has none."""
        row = self.find_row(
            "learned",
            metric=COPYING,
            scheme=name or self.plain,
            removed="none",
            context_tokens=self.train_len,
            distance_tokens=self.train_len // 2,
        )
        if row is None:
            return average_samples(())
        low = float(row.get("ci_low", math.nan))
        high = float(row.get("ci_high", math.nan))
        return Interval(float(row["value"]), low, high, int(row.get("n", 1)))

    def has_resting_pairs(self, scheme: str) -> bool:
        """Return True if some pairs of a scheme do not rotate."""
        rows = self.select("schemes", scheme=scheme)
        return bool(len(rows) and (rows["rotating_pairs"] < rows["pairs"]).all())

    @property
    def slow_turns(self) -> float:
        """The number of rotations of the fastest pair of the slow third within the
        trained length.
        """
        head_dim = int(self.config["head_dim"])
        base = float(self.config["base"])
        inv_freq = inverse_frequencies(head_dim, base)
        first_slow = len(inv_freq) - len(inv_freq) // 3
        return float(rotations(inv_freq, self.train_len)[first_slow])

    def count_turning_pairs(self, scheme: str) -> int | None:
        """Return the number of pairs of a scheme that rotate; None if it is not known."""
        row = self.find_row("schemes", scheme=scheme)
        return None if row is None else int(row["rotating_pairs"])

    def find_control(self, single: str) -> str | None:
        """Return the scheme with most frequencies that rotates as many pairs as a scheme
        of one frequency; None if only others rotate as many.
        """
        turning = self.count_turning_pairs(single)
        rows = self.select("schemes", rotating_pairs=turning)
        rows = rows[rows["frequencies"] > 1] if len(rows) else rows
        if rows.empty:
            return None
        return str(rows.sort_values("frequencies")["scheme"].iloc[-1])

    def list_single_frequencies(self) -> list[str]:
        """List the schemes in which all pairs that rotate have one frequency."""
        return list(self.select("schemes", frequencies=1).get("scheme", ()))

    def select_comparisons(
        self, name: str, who: str, far: bool | None = None
    ) -> pd.DataFrame:
        """Select the comparisons of copying with the plain scheme.

        Args:
            name: the table: `comparisons` has schemes, and `removed` has the plain scheme
                without a band of frequencies.
            who: the scheme, or the band that was removed.
            far: True selects the farthest distance, False the nearest, None all.
        """
        column = "removed_a" if name == "removed" else "scheme_a"
        where = {column: who, "metric": COPYING, "context_tokens": self.train_len}
        rows = self.select(name, **where)
        if rows.empty or far is None:
            return rows
        rows = rows.sort_values("distance_tokens")
        return rows.iloc[-1:] if far else rows.iloc[:1]
