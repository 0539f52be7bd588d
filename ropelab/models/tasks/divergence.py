"""The difference between the probabilities of one model under two roundings.

A model that is trained with one rounding and served with another gives the same text two
probabilities. Here one model computes both for the same documents, and they are compared
token by token: p under a rounding (a cast, or a format of stored keys), q under the
rounding that it is compared with. There are two tables:

divergence
    A row for each rounding, over whole documents. `kl_nats_per_token` is the mean over
    tokens of KL(p || q) = sum of p (log p - log q) over the vocabulary. The other columns
    are about |log p - log q| for the token that the text has: its mean, its largest
    value, and `share_beyond`, the share of tokens where it is above 0.01 nats. Intervals
    are over seeds and documents. The largest value has no interval, since it grows with
    the number of tokens.
divergence_by_place
    The same columns with a row for each rounding and bucket, a range of positions.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd
import torch
from torch import Tensor

from ropelab.math.frequencies import Geometry
from ropelab.models.lm.evaluation import LOGITS_PER_CHUNK, EvaluableModel
from ropelab.models.methods.method import Method, Scaled
from ropelab.models.tasks import grid
from ropelab.models.tasks.cells import Evaluation
from ropelab.models.tasks.config import (
    EvaluationConfig,
    RoundingConfig,
    list_roundings,
    read_against,
)
from ropelab.models.tasks.modes import Mode, Rounded, WithMethod
from ropelab.models.tasks.task import DocumentTask, Windows
from ropelab.runs.cell import Advance, Values
from ropelab.runs.labels import label_method
from ropelab.runs.sentences import describe_casts_apart, write_with_interval
from ropelab.runs.stats import average_crossed
from ropelab.runs.tables import Tables
from ropelab.runs.thresholds import DIVERGED

# The columns that identify a bucket.
BUCKET = ["bucket_start_tokens", "bucket_end_tokens"]
# The columns that identify a pair of roundings.
PAIR = ["method", "factor", "cast", "against"]


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
        # Each document is passed twice, once in each mode.
        return [(2 * self.steps, self.length)]

    def measure(
        self, model: EvaluableModel, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return `divergence`: a row per document and bucket."""
        tokens, _ = self.corpus.documents(self.length + 1, self.documents)
        starts = {end: start for start, end in self.buckets}
        first_document = 0 if self.only is None else self.only
        rows = []
        for document in range(first_document, first_document + self.steps):
            # A pass over a document serves one or several buckets. `ends` are the ends of
            # these buckets, of which the last is the number of tokens in the pass.
            for ends in mode.passes(model, list(starts)):
                # `mode` has set the model's encoding for this pass. `other` replaces
                # this encoding, and the next step of the loop sets the encoding of
                # `mode` again.
                text = tokens[document, : ends[-1] + 1]
                hidden = _pass_text(model, text)
                self.other.prepare(model, ends)
                other_hidden = _pass_text(model, text)

                kl, differences = compare_predictions(
                    model, hidden, other_hidden, targets=text[1:]
                )
                for end in ends:
                    in_bucket = slice(starts[end], end)
                    magnitudes = differences[in_bucket].abs()
                    row = {
                        "document": document,
                        "bucket_start_tokens": starts[end],
                        "bucket_end_tokens": end,
                        "kl_nats_per_token": float(kl[in_bucket].mean()),
                        "mean_difference_nats_per_token": float(magnitudes.mean()),
                        "largest_difference_nats_per_token": float(magnitudes.max()),
                        "share_beyond": float((magnitudes > DIVERGED).double().mean()),
                    }
                    rows.append(row)
            advance(1)
        return {"divergence": pd.DataFrame(rows)}


@torch.inference_mode()
def _pass_text(model: EvaluableModel, text: Tensor) -> Tensor:
    """Return the hidden states that predict all tokens of a text but the first.

    `text` is [tokens], the result [tokens - 1, width].
    """
    inputs = text[None, :-1].to(model.head.weight.device)
    (hidden,) = model.hidden_states(inputs)
    return hidden


@torch.inference_mode()
def compare_predictions(
    model: EvaluableModel, hidden: Tensor, other_hidden: Tensor, targets: Tensor
) -> tuple[Tensor, Tensor]:
    """Return KL(p || q) and log p - log q of each target, in nats, on the CPU.

    Args:
        model: its head makes logits of hidden states.
        hidden: hidden states [tokens, width], from which p follows.
        other_hidden: hidden states [tokens, width], from which q follows.
        targets: [tokens], the tokens that the text has.
    """
    targets = targets.to(hidden.device)
    tokens_per_chunk = max(1, LOGITS_PER_CHUNK // model.size.vocabulary)

    divergences = []
    differences = []
    for start in range(0, len(targets), tokens_per_chunk):
        chunk = slice(start, start + tokens_per_chunk)
        # Differences can be as small as 1e-6, which a sum over the vocabulary would lose
        # in float32.
        log_p = model.head(hidden[chunk]).double().log_softmax(-1)
        log_q = model.head(other_hidden[chunk]).double().log_softmax(-1)

        # [tokens, vocabulary]
        log_ratios = log_p - log_q
        divergences.append((log_p.exp() * log_ratios).sum(-1))
        log_ratio_of_target = log_ratios.gather(-1, targets[chunk, None])
        differences.append(log_ratio_of_target.squeeze(-1))
    return torch.cat(divergences).cpu(), torch.cat(differences).cpu()


class ComparingConfig(EvaluationConfig, RoundingConfig, Protocol):
    """A config of an experiment that compares roundings with another rounding."""

    @property
    def against(self) -> str:
        """The name of the other rounding; empty if roundings are not compared."""

    def parsed_methods(self) -> Sequence[Method]: ...


@dataclass(frozen=True)
class RoundingPair:
    """Two roundings of one method that are compared."""

    method: str
    factor: float
    # The names of the two roundings.
    cast: str
    against: str
    # The evaluation modes under the two roundings.
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


def pair_roundings(
    config: ComparingConfig, method: str, factor: float, mode: Mode, geometry: Geometry
) -> Iterator[RoundingPair]:
    """Yield each rounding of a config beside the rounding with which it is compared.

    `mode` is the evaluation mode of the method without a rounding. Both roundings are
    computed by one code, also where one of them rounds nothing: a model's own code
    rounds its angles to float32.
    """
    if not config.against:
        return
    against = read_against(config.against)
    for rounding in list_roundings(config):
        # Under both roundings the text begins at the same position.
        other = against._replace(first=rounding.first)
        yield RoundingPair(
            method,
            factor,
            cast=rounding.label,
            against=against.name,
            mode=Rounded(mode, rounding, geometry),
            other=Rounded(mode, other, geometry),
        )


def pair_roundings_of_methods(
    config: ComparingConfig, geometry: Geometry
) -> Iterator[RoundingPair]:
    """Yield the pairs of roundings of every scaling method of a config."""
    for method in config.parsed_methods():
        if isinstance(method, Scaled):
            mode = WithMethod(method, geometry)
            yield from pair_roundings(
                config, method.label, method.factor, mode, geometry
            )


def make_divergence(config: ComparingConfig, pair: RoundingPair) -> Divergence:
    """Return the task that compares the two modes of a pair on a config's documents."""
    return Divergence(
        corpus=config.text,
        documents=config.documents,
        buckets=tuple(grid.list_buckets(config.grid_len, config.longest)),
        other=pair.other,
    )


def make_divergence_tables(
    cells: Iterable[Evaluation], values: Values
) -> dict[str, pd.DataFrame]:
    """Return the tables that the head of this file describes; none without cells."""
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
    by_document = join_buckets(by_place)
    return {
        "divergence": average_documents(by_document, [*PAIR, *BUCKET]),
        "divergence_by_place": average_documents(by_place, [*PAIR, *BUCKET]),
    }


def join_buckets(by_place: pd.DataFrame) -> pd.DataFrame:
    """Return a row per document instead of one per bucket.

    Means over the tokens of a document are weighted by the tokens of its buckets.
    """
    means = ["kl_nats_per_token", "mean_difference_nats_per_token", "share_beyond"]

    records = []
    keys = [*PAIR, "seed", "document"]
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


def average_documents(values: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Return means over seeds and documents, with 95 % intervals.

    The table has a row for each combination of values of `columns`.
    """
    mean_difference = "mean_difference_nats_per_token"
    largest_difference = "largest_difference_nats_per_token"
    records = []

    for key, rows in values.groupby(columns, sort=False):
        record = dict(zip(columns, key, strict=True))
        record["seeds"] = rows["seed"].nunique()
        record["documents"] = rows["document"].nunique()
        record["tokens"] = rows["tokens"].sum()
        # Each column that has an interval, and the prefix of the columns with the ends
        # of this interval.
        intervals = (("kl_nats_per_token", "kl"), ("share_beyond", "share"))
        for name, prefix in intervals:
            by_seed = rows.pivot(index="seed", columns="document", values=name)
            mean = average_crossed(by_seed.to_numpy()).compute_interval()
            record[name] = mean.value
            # Neither a divergence nor a share is ever below 0.
            record[f"{prefix}_ci_low"] = max(0.0, mean.low)
            record[f"{prefix}_ci_high"] = mean.high
        record[mean_difference] = rows[mean_difference].mean()
        record[largest_difference] = rows[largest_difference].max()
        records.append(record)

    return pd.DataFrame(records)


def describe_divergence(tables: Tables) -> list[str]:
    """Say how far the roundings of each pair are apart; nothing without a comparison."""
    if "divergence" not in tables:
        return []
    return describe_casts_apart(
        tables["divergence"],
        "kl_nats_per_token",
        _describe_pair,
        "with a lower mean KL",
    )


def _describe_pair(row: pd.Series) -> str:
    label = label_method(row["method"], row["factor"])
    lead = f"{label}, {row['cast']} against {row['against']}, {row['tokens']} tokens: "
    largest = row["largest_difference_nats_per_token"]
    if largest == 0 and row["kl_nats_per_token"] == 0:
        return f"{lead}every token has the same log-probability"

    kl = write_with_interval(
        row["kl_nats_per_token"], row["kl_ci_low"], row["kl_ci_high"]
    )
    share_beyond = "none"
    share = row["share_beyond"]
    low = row["share_ci_low"]
    high = row["share_ci_high"]
    if share >= 0.01:
        share_beyond = write_with_interval(share, low, high, "%")
    elif share > 0:
        # In whole percent this share would be 0 or 1.
        percent = write_with_interval(100 * share, 100 * low, 100 * high)
        share_beyond = f"{percent} %"
    return (
        f"{lead}the mean KL is {kl} nats; the log-probability of a token differs by more"
        f" than {DIVERGED:g} in {share_beyond} of tokens, by {largest:.2g} at most"
    )


def shorten_divergence(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return the short table of the comparison; no table if nothing was compared."""
    if "divergence" not in tables:
        return {}
    table = tables["divergence"]
    shown = {
        "method": table["method"],
        "cast": table["cast"],
        "against": table["against"],
        "tokens": table["tokens"],
        "mean_kl": table["kl_nats_per_token"],
        "mean_kl_ci_low": table["kl_ci_low"],
        "mean_kl_ci_high": table["kl_ci_high"],
        "share_beyond": table["share_beyond"],
        "share_beyond_ci_low": table["share_ci_low"],
        "share_beyond_ci_high": table["share_ci_high"],
        "largest_difference": table["largest_difference_nats_per_token"],
    }
    return {"divergence": pd.DataFrame(shown)}
