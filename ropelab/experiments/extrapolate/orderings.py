"""Do the orderings that were published reappear? Decided from the table of comparisons.

An ordering is a list of groups, the best first. Methods of one group were published as equal,
those of different groups as different. It is

    reproduced      every pair of different groups differs as published, beyond its interval,
                    and every pair inside a group is closer than CLOSE or inside its interval
    within noise    nothing contradicts it, but some pair that should differ does not
    not reproduced  some pair differs the other way round, or should be equal and is not

Only shapes can reappear: the published numbers belong to other models, texts and lengths.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, product

import pandas as pd

from ropelab.labels import method_label
from ropelab.tables import in_longest_context

CLOSE = 0.02
"""Smaller differences (nats per byte, or accuracy) count as equal where equal was claimed."""
COLUMNS = ["ordering", "source", "metric", "at_tokens", "published", "measured", "result"]


@dataclass(frozen=True)
class Entry:
    """A method in an ordering; its factor is `share` times the reach, or none for share 0."""

    method: str
    share: float = 1.0
    arm: str = "zero_shot"

    def label(self, reach: float) -> str:
        """Its row in tables of a run that reaches `reach` times the trained length."""
        return method_label(self.method, self.share * reach or 1.0, self.arm)


@dataclass(frozen=True)
class Ordering:
    """What was published.

    Attributes:
        reaches: least and largest test_len / train_len it was claimed for.
        groups: the best first; equals together.
        ties: whether the methods of one group were said to be equal, or nothing was said.
        outside: read just beyond the length of training on, not at it.
    """

    name: str
    source: str
    metric: str
    groups: tuple[tuple[Entry, ...], ...]
    reaches: tuple[float, float] = (1.0, float("inf"))
    ties: bool = True
    outside: bool = False

    @property
    def is_tuned(self) -> bool:
        """Whether it is about models that were trained on."""
        return any(entry.arm == "finetuned" for group in self.groups for entry in group)


PLAIN = Entry("unscaled", 0)
YARN, PARTS, PI = Entry("yarn"), Entry("ntk_by_parts"), Entry("pi")
NTK, NTK_TWICE, DYNAMIC = Entry("ntk"), Entry("ntk", 2), Entry("dynamic_ntk", 0)
COOL = Entry("yarn(attention_factor=1)")
YARN_PAPER = "Peng et al. 2023, arXiv:2309.00071"


def tuned(*entries: Entry) -> tuple[Entry, ...]:
    """The same methods after training on."""
    return tuple(Entry(entry.method, entry.share, "finetuned") for entry in entries)


ORDERINGS = (
    Ordering(
        "zero-shot at 2x",
        YARN_PAPER,
        "nll_bucket",
        ((DYNAMIC, PARTS, YARN), (NTK,), (PLAIN,)),
        (2, 2),
    ),
    Ordering(
        "zero-shot at 4x to 8x",
        YARN_PAPER,
        "nll_bucket",
        ((YARN,), (PARTS,), (NTK_TWICE,), (PI, PLAIN)),
        (4, 8),
        ties=False,
    ),
    Ordering(
        "fine-tuned, inside the window",
        YARN_PAPER,
        "nll_bucket",
        (tuned(YARN, PARTS, PI), tuned(NTK)),
    ),
    Ordering(
        "fine-tuned, just outside the window",
        YARN_PAPER,
        "nll_bucket",
        (tuned(YARN), tuned(NTK), tuned(PI)),
        outside=True,
    ),
    Ordering("YaRN's temperature helps zero-shot", YARN_PAPER, "nll_bucket", ((YARN,), (COOL,))),
    Ordering(
        "YaRN's temperature hardly matters after fine-tuning",
        YARN_PAPER,
        "nll_bucket",
        (tuned(YARN, COOL),),
    ),
    Ordering(
        "static scaling costs something at short length",
        "Qwen model cards; QwenLM/Qwen3#1567",
        "nll_short_context",
        ((PLAIN,), (YARN,)),
    ),
    Ordering(
        "dynamic scaling costs nothing at short length",
        "emozilla 2023",
        "nll_short_context",
        ((PLAIN, DYNAMIC),),
    ),
    Ordering(
        "log-n on top of NTK",
        "Su 2023, kexue.fm/archives/9675",
        "copy_accuracy",
        ((Entry("log_n(inner=ntk)"),), (NTK,), (PLAIN,), (PI,)),
    ),
)


def orderings(
    compared: pd.DataFrame, train_len: int, test_len: int, tuned_len: int
) -> pd.DataFrame:
    """The orderings that this run measured, with their results.

    Args:
        compared: the table of comparisons.
        train_len: the trained length, in tokens.
        test_len: how far the models were read.
        tuned_len: the length at which models were trained on.
    """
    records = []
    for ordering in ORDERINGS:
        rows = compared[compared["metric"] == ordering.metric]
        if ordering.metric == "copy_accuracy":
            rows = in_longest_context(rows)
        rows = rows[rows["at_tokens"] == _place(ordering, rows["at_tokens"], train_len, tuned_len)]
        reach = (tuned_len if ordering.is_tuned else test_len) / train_len
        known = {*rows["method_a"], *rows["method_b"]}
        groups = [[entry.label(reach) for entry in group] for group in ordering.groups]
        low, high = ordering.reaches
        if low <= reach <= high and known.issuperset(label for group in groups for label in group):
            records.append(_record(ordering, groups, rows))
    return pd.DataFrame(records, columns=COLUMNS)


def _place(ordering: Ordering, measured: pd.Series, train_len: int, tuned_len: int) -> float:
    """Where an ordering is looked at, of the places that were measured; nan if there is none.

    Copying at twice the trained length; losses at the end of the text or, of models that were
    trained on, at the end or just outside of what they were trained on.
    """
    if ordering.metric == "copy_accuracy":
        return 2 * train_len
    if ordering.outside:
        return measured[measured > tuned_len].min()
    return measured[measured <= tuned_len].max() if ordering.is_tuned else measured.max()


def _record(ordering: Ordering, groups: list[list[str]], rows: pd.DataFrame) -> tuple[object, ...]:
    found = [*(_ties(groups, rows) if ordering.ties else ()), *_steps(groups, rows)]
    if any(outcome == "against" for _, outcome in found):
        result = "not reproduced"
    else:
        result = "within noise" if any(o == "open" for _, o in found) else "reproduced"
    equal = " ~ " if ordering.ties else ", "
    published = " > ".join(equal.join(group) for group in groups)
    measured = "; ".join(text for text, _ in found)
    at = rows["at_tokens"].iloc[0]
    return (ordering.name, ordering.source, ordering.metric, at, published, measured, result)


def _ties(groups: list[list[str]], rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Pairs claimed to be equal, and whether the measurement is `for` or `against` it."""
    for group in groups:
        for a, b in combinations(group, 2):
            difference, better = _look_up(rows, a, b)
            equal = better == "~" or abs(difference) < CLOSE
            yield _said(a, b, difference, better), "for" if equal else "against"


def _steps(groups: list[list[str]], rows: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Pairs claimed to differ, and whether the measurement is `for`, `against` or `open`."""
    for group, next_group in pairwise(groups):
        for a, b in product(group, next_group):
            difference, better = _look_up(rows, a, b)
            outcome = {a: "for", b: "against", "~": "open"}[better]
            yield _said(a, b, difference, better), outcome


def _said(a: str, b: str, difference: float, better: str) -> str:
    sign = {a: ">", b: "<", "~": "~"}[better]
    return f"{a} {sign} {b} ({difference:+.3f})"


def _look_up(rows: pd.DataFrame, a: str, b: str) -> tuple[float, str]:
    """Difference a - b and which is better, whichever way round the table has the pair."""
    there = rows[(rows["method_a"] == a) & (rows["method_b"] == b)]
    if len(there):
        return float(there["difference"].iloc[0]), str(there["verdict"].iloc[0])
    difference, better = _look_up(rows, b, a)
    return -difference, better
