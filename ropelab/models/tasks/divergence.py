"""What two roundings do to the probabilities of the same tokens.

A model that is trained with one rounding and served with another gives the same text two
probabilities. Both are computed here by one model, on the same documents, and compared
token by token: p under a cast, q under the cast that it is compared with.

divergence
    a row per cast over whole documents. `kl_nats_per_token` is the mean over tokens of
    KL(p || q) = sum of p (log p - log q) over the vocabulary. The other columns are
    about |log p - log q| of the token that the text has: its mean, its largest value,
    and `share_beyond`, the share of tokens where it is above 0.01 nats. Intervals are
    over seeds and documents. The largest value has none: it grows with the number of
    tokens
divergence_by_place
    the same in buckets of positions
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor

from ropelab.math.frequencies import Geometry
from ropelab.math.numerics.keys import Rounding
from ropelab.models.lm.evaluation import LOGITS_PER_CHUNK, Readable
from ropelab.models.methods.method import Method, Scaled
from ropelab.models.tasks import grid
from ropelab.models.tasks.cells import Evaluation
from ropelab.models.tasks.config import Evaluated, Roundable, read_against, roundings
from ropelab.models.tasks.modes import Mode, Rounded, WithMethod
from ropelab.models.tasks.task import DocumentTask, Windows
from ropelab.runs.cell import Advance, Values
from ropelab.runs.labels import method_label
from ropelab.runs.sentences import describe_casts_apart
from ropelab.runs.stats import crossed_mean
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import DIVERGED

PLACE = ["bucket_start_tokens", "bucket_end_tokens"]
# The columns that identify a row over whole documents.
PLANS = ["method", "factor", "cast", "against"]


@dataclass(frozen=True, kw_only=True)
class Divergence(DocumentTask):
    """How far the predictions of two evaluation modes are apart, on real text."""

    name: str = "divergence"
    # The mode that the mode of the evaluation is compared with.
    other: Mode

    @property
    def title(self) -> str:
        if self.only is None:
            return "two casts on the same tokens"
        return f"two casts on {super().title}"

    @property
    def key(self) -> dict[str, Any]:
        key = super().key
        key["other"] = self.other.key
        return key

    @property
    def windows(self) -> Windows:
        return [(2 * self.steps, self.length)]

    def measure(
        self, model: Readable, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return `divergence`: a row per document and bucket."""
        tokens, _ = self.corpus.documents(self.length + 1, self.documents)
        starts = {end: start for start, end in self.buckets}
        first_document = self.only or 0
        rows = []
        for document in range(first_document, first_document + self.steps):
            for ends in mode.passes(model, list(starts)):
                text = tokens[document : document + 1, : ends[-1] + 1]
                hidden = _read_text(model, text)
                self.other.prepare(model, ends)
                other_hidden = _read_text(model, text)
                # The next step of the loop sets the encoding of `mode` again.

                kl, differences = compare_predictions(
                    model, hidden, other_hidden, text[0, 1:]
                )
                for end in ends:
                    place = slice(starts[end], end)
                    apart = differences[place].abs()
                    row = {
                        "document": document,
                        "bucket_start_tokens": starts[end],
                        "bucket_end_tokens": end,
                        "kl_nats_per_token": float(kl[place].mean()),
                        "mean_difference_nats_per_token": float(apart.mean()),
                        "largest_difference_nats_per_token": float(apart.max()),
                        "share_beyond": float((apart > DIVERGED).double().mean()),
                    }
                    rows.append(row)
            advance(1)
        return {"divergence": pd.DataFrame(rows)}


@torch.inference_mode()
def _read_text(model: Readable, text: Tensor) -> Tensor:
    """Return the hidden states, [tokens, width], that predict all tokens but the first."""
    inputs = text[:, :-1].to(model.head.weight.device)
    return model.hidden_states(inputs)[0]


@torch.inference_mode()
def compare_predictions(
    model: Readable, hidden: Tensor, other_hidden: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Return KL(p || q) and log p - log q of each target, in nats, on the CPU.

    Args:
        model: its head makes logits of hidden states.
        hidden: [tokens, width], from which p follows.
        other_hidden: the same, from which q follows.
        targets: [tokens], the tokens that the text has.
    """
    targets = targets.to(hidden.device)
    size = max(1, LOGITS_PER_CHUNK // model.size.vocabulary)
    divergences = []
    differences = []
    for start in range(0, len(targets), size):
        chunk = slice(start, start + size)
        # Differences of 1e-6 are looked for, which float32 has lost behind a sum over
        # the vocabulary.
        log_p = model.head(hidden[chunk]).double().log_softmax(-1)
        log_q = model.head(other_hidden[chunk]).double().log_softmax(-1)
        ratios = log_p - log_q
        divergences.append((log_p.exp() * ratios).sum(-1))
        chosen = targets[chunk, None]
        differences.append(ratios.gather(-1, chosen)[:, 0])
    return torch.cat(divergences).cpu(), torch.cat(differences).cpu()


class Compared(Evaluated, Roundable, Protocol):
    """A config of an experiment that compares casts with another cast."""

    @property
    def against(self) -> str:
        """The name of the other cast; empty if casts are not compared."""

    def parsed_methods(self) -> Sequence[Method]: ...


@dataclass(frozen=True)
class PlanPair:
    """Two evaluation modes of one method, and the columns that name them."""

    method: str
    factor: float
    cast: str
    against: str
    mode: Mode
    other: Mode

    @property
    def labels(self) -> tuple[tuple[str, object], ...]:
        return (
            ("method", self.method),
            ("factor", self.factor),
            ("cast", self.cast),
            ("against", self.against),
        )


def pair_plans(
    config: Compared, method: str, factor: float, mode: Mode, geometry: Geometry
) -> Iterator[PlanPair]:
    """Yield each rounding of a config beside the rounding that it is compared with."""
    if not config.against:
        return
    against = read_against(config.against)
    for rounding in roundings(config):
        # The positions of both plans begin at the same number.
        other = against._replace(first=rounding.first)
        yield PlanPair(
            method,
            factor,
            cast=rounding.label,
            against=against.name,
            mode=round_mode(mode, rounding, geometry),
            other=round_mode(mode, other, geometry),
        )


def pair_method_plans(config: Compared, geometry: Geometry) -> Iterator[PlanPair]:
    """Yield the pairs of roundings of every scaling method of a config."""
    for method in config.parsed_methods():
        if isinstance(method, Scaled):
            mode = WithMethod(method, geometry)
            yield from pair_plans(config, method.label, method.factor, mode, geometry)


def round_mode(mode: Mode, rounding: Rounding, geometry: Geometry) -> Mode:
    """Return a mode under a rounding, which may round nothing."""
    if rounding.rounds:
        return Rounded(mode, rounding, geometry)
    return mode


def make_divergence(config: Compared, pair: PlanPair) -> Divergence:
    """Return the comparison of two modes on the documents of a config."""
    return Divergence(
        corpus=config.text,
        documents=config.documents,
        buckets=tuple(grid.buckets(config.grid_len, config.longest)),
        other=pair.other,
    )


def divergence_tables(
    cells: Iterable[Evaluation], values: Values
) -> dict[str, pd.DataFrame]:
    """Return the tables that the head of this file describes; none without a cell."""
    parts = []
    for cell in cells:
        table = values[cell]["divergence"]
        labels = pd.DataFrame({"seed": 0, **dict(cell.labels)}, index=table.index)
        parts.append(labels.join(table))
    if not parts:
        return {}

    by_place = pd.concat(parts, ignore_index=True)
    sizes = by_place["bucket_end_tokens"] - by_place["bucket_start_tokens"]
    by_place = by_place.assign(tokens=sizes)
    whole = join_buckets(by_place)
    return {
        "divergence": average(whole, [*PLANS, *PLACE]),
        "divergence_by_place": average(by_place, [*PLANS, *PLACE]),
    }


def join_buckets(by_place: pd.DataFrame) -> pd.DataFrame:
    """Return a row per document instead of one per bucket."""
    means = ["kl_nats_per_token", "mean_difference_nats_per_token", "share_beyond"]
    records = []
    keys = [*PLANS, "seed", "document"]
    for key, rows in by_place.groupby(keys, sort=False):
        tokens = rows["tokens"]
        record = dict(zip(keys, key, strict=True))
        record["bucket_start_tokens"] = rows["bucket_start_tokens"].min()
        record["bucket_end_tokens"] = rows["bucket_end_tokens"].max()
        record["tokens"] = tokens.sum()
        for name in means:
            record[name] = (rows[name] * tokens).sum() / tokens.sum()
        largest = "largest_difference_nats_per_token"
        record[largest] = rows[largest].max()
        records.append(record)
    return pd.DataFrame(records)


def average(values: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return means over seeds and documents with their 95 % intervals."""
    records = []
    for key, rows in values.groupby(columns, sort=False):
        record = dict(zip(columns, key, strict=True))
        record["seeds"] = rows["seed"].nunique()
        record["documents"] = rows["document"].nunique()
        record["tokens"] = rows["tokens"].sum()
        intervals = (("kl_nats_per_token", "kl"), ("share_beyond", "share"))
        for name, short in intervals:
            wide = rows.pivot(index="seed", columns="document", values=name)
            mean = crossed_mean(wide.to_numpy()).interval()
            record[name] = mean.value
            # Neither is ever below 0.
            record[f"{short}_ci_low"] = max(0.0, mean.low)
            record[f"{short}_ci_high"] = mean.high
        name = "mean_difference_nats_per_token"
        record[name] = rows[name].mean()
        name = "largest_difference_nats_per_token"
        record[name] = rows[name].max()
        records.append(record)
    return pd.DataFrame(records)


def describe_divergence(tables: Tables) -> list[str]:
    """Say how far the two casts are apart; nothing if they were not compared."""
    if "divergence" not in tables:
        return []
    return describe_casts_apart(
        tables["divergence"],
        "kl_nats_per_token",
        _describe_pair,
        "have a mean KL of",
    )


def _describe_pair(row: pd.Series) -> str:
    label = method_label(row["method"], row["factor"])
    lead = f"{label}, {row['cast']} against {row['against']}, {row['tokens']} tokens: "
    largest = row["largest_difference_nats_per_token"]
    if largest == 0 and row["kl_nats_per_token"] == 0:
        return f"{lead}every token has the same log-probability"

    interval = ""
    if pd.notna(row["kl_ci_high"]):
        interval = f" ({row['kl_ci_low']:.2g} to {row['kl_ci_high']:.2g})"
    beyond = "none"
    if row["share_beyond"]:
        beyond = f"{100 * row['share_beyond']:.2g} %"
    return (
        f"{lead}the mean KL is {row['kl_nats_per_token']:.2g}{interval} nats; the"
        f" log-probability of a token differs by {largest:.2g} at most, and by more than"
        f" {DIVERGED:g} in {beyond} of tokens"
    )


def shorten_divergence(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the short table of casts beside the cast that they are compared with; none
    if no casts were compared.
    """
    if "divergence" not in tables:
        return {}
    table = tables["divergence"]
    shown = {
        "method": table["method"],
        "cast": table["cast"],
        "against": table["against"],
        "tokens": table["tokens"],
        "mean_kl": table["kl_nats_per_token"],
        "largest_difference": table["largest_difference_nats_per_token"],
        "share_beyond": table["share_beyond"],
    }
    return {"divergence": pd.DataFrame(shown)}
