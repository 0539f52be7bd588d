"""Do the orderings that were published reappear? Asked of the comparisons of a stored run.

An ordering is a list of groups, the best first. Methods of one group were published as equal,
those of different groups as different. Every pair is a part of the claim: a pair that should
differ agrees if the comparison says so, disagrees if it says the opposite by CLOSE or more, and is
open otherwise; a pair that should be equal agrees if the interval of its difference lies within
CLOSE, disagrees if the two are told apart by CLOSE or more, and is open otherwise. Only shapes can
reappear: the published numbers belong to other models, texts and lengths.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise, product
from typing import NamedTuple

import pandas as pd

from ropelab.claims.record import Claim, Evidence, Finding, Kind, Passage, missing, part
from ropelab.claims.trained.stored import Methods, described, in_context, largest_first
from ropelab.runs.cell import Stored
from ropelab.runs.labels import method_label
from ropelab.runs.thresholds import CLOSE, LEARNED

COMMAND = "ropelab extrapolate --train-len 2048 --test-len 8192"
TUNED = f"{COMMAND} --arms zero_shot,finetuned"


@dataclass(frozen=True)
class Entry:
    """A method in an ordering; its factor is `share` times the reach, or none for share 0."""

    method: str
    share: float = 1.0
    arm: str = "zero_shot"

    def label(self, reach: float) -> str:
        """Its row in tables of a run that reaches `reach` times the trained length."""
        return method_label(self.method, self.share * reach or 1.0, self.arm)


Groups = tuple[tuple[Entry, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Ordering:
    """What was published.

    Attributes:
        groups: the best first; equals together.
        reaches: least and largest test_len / train_len it was claimed for.
        ties: whether the methods of one group were said to be equal, or nothing was said.
        outside: read just beyond the length of fine-tuning, not at it.
    """

    metric: str
    groups: Groups
    reaches: tuple[float, float] = (1.0, math.inf)
    ties: bool = True
    outside: bool = False

    @property
    def is_tuned(self) -> bool:
        """Whether it is about fine-tuned models."""
        return any(entry.arm == "finetuned" for group in self.groups for entry in group)

    def labels(self, reach: float) -> list[list[str]]:
        """The rows of every group in a run of that reach."""
        return [[entry.label(reach) for entry in group] for group in self.groups]


def judge(
    ordering: Ordering, comparisons: pd.DataFrame, train_len: int, test_len: int, tuned_len: int
) -> tuple[Finding, ...]:
    """A part per published pair; none if the run did not measure the whole ordering.

    Args:
        comparisons: metric, at_tokens, method_a, method_b, difference (a - b), its ci_low and
            ci_high, verdict (the better of the two, or `~`).
        train_len: the trained length, in tokens.
        test_len: how far the models were read.
        tuned_len: the length of fine-tuning.
    """
    rows = comparisons[comparisons["metric"] == ordering.metric]
    place = _place(ordering, rows["at_tokens"], train_len, tuned_len)
    rows = in_context(rows[rows["at_tokens"] == place], "at_tokens")
    reach = (tuned_len if ordering.is_tuned else test_len) / train_len
    groups = ordering.labels(reach)
    low, high = ordering.reaches
    known = {*rows["method_a"], *rows["method_b"]}
    if not low <= reach <= high or not known.issuperset(x for group in groups for x in group):
        return ()
    ties = _ties(groups, rows) if ordering.ties else ()
    return (*ties, *_steps(groups, rows))


def _place(ordering: Ordering, measured: pd.Series, train_len: int, tuned_len: int) -> float:
    """Where an ordering is looked at, of the places that were measured; nan if there is none.

    Copying at twice the trained length; losses at the end of the text or, of fine-tuned models,
    at the end or just outside of the length of fine-tuning.
    """
    if ordering.metric == "copy_accuracy":
        return 2 * train_len
    if ordering.outside:
        return measured[measured > tuned_len].min()
    return measured[measured <= tuned_len].max() if ordering.is_tuned else measured.max()


def _ties(groups: list[list[str]], rows: pd.DataFrame) -> Iterator[Finding]:
    """Pairs that were published as equal."""
    for group in groups:
        for a, b in combinations(group, 2):
            pair = _look_up(rows, a, b)
            apart = pair.better != "~" and abs(pair.difference) >= CLOSE
            equal = True if pair.furthest < CLOSE else False if apart else None
            yield part(f"{a} ~ {b}", _said(a, b, pair), equal, pair.difference)


def _steps(groups: list[list[str]], rows: pd.DataFrame) -> Iterator[Finding]:
    """Pairs that were published as different."""
    for group, next_group in pairwise(groups):
        for a, b in product(group, next_group):
            pair = _look_up(rows, a, b)
            contradicted = pair.better == b and abs(pair.difference) >= CLOSE
            agrees = True if pair.better == a else False if contradicted else None
            yield part(f"{a} > {b}", _said(a, b, pair), agrees, pair.difference)


class Compared(NamedTuple):
    """A pair in the stored comparisons.

    Attributes:
        difference: a - b.
        furthest: how far from 0 its interval reaches.
        better: which of the two is better, or `~`.
    """

    difference: float
    furthest: float
    better: str


def _said(a: str, b: str, pair: Compared) -> str:
    sign = {a: ">", b: "<", "~": "~"}[pair.better]
    return f"{sign} ({pair.difference:+.3f})"


def _look_up(rows: pd.DataFrame, a: str, b: str) -> Compared:
    """The pair, whichever way round the table has it."""
    there = rows[(rows["method_a"] == a) & (rows["method_b"] == b)]
    if there.empty:
        back = _look_up(rows, b, a)
        return back._replace(difference=-back.difference)
    row = there.iloc[0]
    furthest = max(abs(row["ci_low"]), abs(row["ci_high"]))
    return Compared(float(row["difference"]), float(furthest), str(row["verdict"]))


def reappears(*, ordering: Ordering, runs: tuple[Stored, ...] = ()) -> Evidence:
    """The ordering in the largest run that measured all of it and learned the task."""
    expected = _published(ordering)
    for run in largest_first(Methods, runs):
        findings = _of_run(ordering, run)
        if findings:
            models = described(run.config)
            return Evidence(expected=expected, findings=findings, models=models)
    nothing = missing("a stored run that compares these methods")
    return Evidence(expected=expected, findings=(nothing,))


def _of_run(ordering: Ordering, run: Methods) -> tuple[Finding, ...]:
    compared = run.table("comparisons")
    if compared.empty or not run.copies_within() >= LEARNED:
        return ()
    tuned_len = int(run.config.get("finetune_len") or run.test_len)
    return judge(ordering, compared, run.train_len, run.test_len, tuned_len)


def _published(ordering: Ordering) -> str:
    """The ordering as it was published, methods without factors."""
    equal = " ~ " if ordering.ties else ", "
    return " > ".join(equal.join(entry.method for entry in group) for group in ordering.groups)


def tuned(*entries: Entry) -> tuple[Entry, ...]:
    """The same methods after fine-tuning."""
    return tuple(Entry(entry.method, entry.share, "finetuned") for entry in entries)


PLAIN, DYNAMIC = Entry("unscaled", 0), Entry("dynamic_ntk", 0)
YARN, PARTS, PI = Entry("yarn"), Entry("ntk_by_parts"), Entry("pi")
NTK, NTK_TWICE = Entry("ntk"), Entry("ntk", 2)
COOL = Entry("yarn(attention_factor=1)")


def _claim(id_: str, source: str, statement: str, ordering: Ordering) -> Claim:
    return Claim(
        id=id_,
        passages=(Passage(source),),
        statement=statement,
        check=partial(reappears, ordering=ordering),
        kind=Kind.TRAINED,
        reads="extrapolate",
        command=TUNED if ordering.is_tuned else COMMAND,
    )


BUCKET = "nll_bucket"

CLAIMS = (
    _claim(
        "order-zero-shot-2x",
        "yarn",
        "Without fine-tuning, at twice the trained length, dynamic NTK, NTK-by-parts and YaRN read "
        "text equally well, better than NTK, and NTK better than no scaling.",
        Ordering(metric=BUCKET, groups=((DYNAMIC, PARTS, YARN), (NTK,), (PLAIN,)), reaches=(2, 2)),
    ),
    _claim(
        "order-zero-shot-4x",
        "yarn",
        "Without fine-tuning, at four to eight times the trained length, YaRN reads text best, "
        "then NTK-by-parts, then NTK of twice the factor, then PI and no scaling.",
        Ordering(
            metric=BUCKET,
            groups=((YARN,), (PARTS,), (NTK_TWICE,), (PI, PLAIN)),
            reaches=(4, 8),
            ties=False,
        ),
    ),
    _claim(
        "order-finetuned-inside",
        "yarn",
        "Fine-tuned, inside the new window, YaRN, NTK-by-parts and PI read text equally well and "
        "better than NTK.",
        Ordering(metric=BUCKET, groups=(tuned(YARN, PARTS, PI), tuned(NTK))),
    ),
    _claim(
        "order-finetuned-outside",
        "yarn",
        "Fine-tuned, just outside the new window, YaRN reads text better than NTK, and NTK better "
        "than PI.",
        Ordering(metric=BUCKET, groups=(tuned(YARN), tuned(NTK), tuned(PI)), outside=True),
    ),
    _claim(
        "yarn-temperature-helps",
        "yarn",
        "YaRN's temperature helps without fine-tuning.",
        Ordering(metric=BUCKET, groups=((YARN,), (COOL,))),
    ),
    _claim(
        "yarn-temperature-finetuned",
        "yarn",
        "YaRN's temperature hardly matters after fine-tuning.",
        Ordering(metric=BUCKET, groups=(tuned(YARN, COOL),)),
    ),
    _claim(
        "static-costs-short",
        "qwen",
        "Static scaling costs something at short length.",
        Ordering(metric="nll_short_context", groups=((PLAIN,), (YARN,))),
    ),
    _claim(
        "dynamic-free-short",
        "emozilla",
        "Dynamic scaling costs nothing at short length.",
        Ordering(metric="nll_short_context", groups=((PLAIN, DYNAMIC),)),
    ),
    _claim(
        "order-log-n",
        "su-9675",
        "Log-n scaling on top of NTK copies better than NTK, NTK better than no scaling, and that "
        "better than PI.",
        Ordering(
            metric="copy_accuracy",
            groups=((Entry("log_n(inner=ntk)"),), (NTK,), (PLAIN,), (PI,)),
        ),
    ),
)
