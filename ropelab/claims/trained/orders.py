"""Published orderings of methods, compared with stored runs.

An ordering is a list of groups of methods, the best group first. The methods of a group
were published as equal, or without an order among them. The finding on every pair of an
ordering is a part of its claim: the claim does not hold if the finding disagrees.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise, product

import pandas as pd

from ropelab.claims.margins import margin_below, margin_of_interval
from ropelab.claims.record import ClaimFinding, Findings, claim
from ropelab.claims.trained.deciding import describe_models, sort_largest_first
from ropelab.claims.trained.runs import MethodsRun, select_context
from ropelab.claims.trained.tally import write_difference
from ropelab.runs.cell import Stored
from ropelab.runs.comparisons import FAILING, select_pair
from ropelab.runs.labels import label_method
from ropelab.runs.stats import Interval
from ropelab.runs.thresholds import CLOSE, LEARNED

# Methods that have no factor.
WITHOUT_FACTOR = ("unscaled", "dynamic_ntk")
# A claim writes this after the name of a method that was published with twice the
# factor of all other methods.
DOUBLED = " of twice the factor"


@claim(
    "order-zero-shot-2x",
    "order-zero-shot-4x",
    "order-finetuned-inside",
    "order-finetuned-outside",
    "yarn-temperature-helps",
    "yarn-temperature-finetuned",
    "static-costs-short",
    "order-log-n",
)
def compare_published_order(
    findings: Findings,
    metric: str,
    groups: Sequence[Sequence[str]],
    factors: tuple[float, float] = (1.0, math.inf),
    equal: bool = True,
    finetuned: bool = False,
    outside: bool = False,
    runs: Sequence[Stored] = (),
) -> None:
    """Compare a published ordering with the largest runs that measured all its methods.

    The same models may have been measured in several runs, each with a different list
    of methods. The significance of a difference depends on how many methods are
    compared, so that these runs can decide a pair differently. A pair that is decided
    differently is left open.

    Args:
        findings: the findings so far.
        metric: the metric of the comparisons.
        groups: the names of the methods, the best group first.
        factors: the least and the largest factor by which the context was longer than the
            trained length when the ordering was claimed. The factor of a run is
            test_len / train_len, or finetune_len / train_len for fine-tuned models.
        equal: True if the methods of a group were claimed to be equal.
        finetuned: True if the ordering is about fine-tuned models.
        outside: True if the ordering was claimed just beyond the length of fine-tuning.
        runs: the stored runs.
    """
    findings.expected = _write_order(groups, equal)

    answers: list[tuple[tuple[int, ...], Findings]] = []
    for run in sort_largest_first(MethodsRun, runs):
        rows = run.select("comparisons", metric=metric)
        # Copying that was not measured is nan, which compares as false: a run without
        # it has not shown that its models learned the task.
        has_learned = run.copies_within() >= LEARNED
        if rows.empty or not has_learned:
            continue

        length = run.test_len
        arm = "zero_shot"
        if finetuned:
            length = _find_tuned_length(run)
            arm = "finetuned"
        factor = length / run.train_len
        labels = [[_label(name, factor, arm) for name in group] for group in groups]

        rows = _select_place(rows, run, metric, finetuned, outside)
        where = _name_place(rows, run, metric)
        known = {*rows["method_a"], *rows["method_b"]}
        is_measured = known.issuperset(label for group in labels for label in group)
        is_claimed = factors[0] <= factor <= factors[1]
        if not is_measured or not is_claimed:
            continue

        answer = Findings(models=describe_models(run))
        _compare_groups(answer, rows, labels, equal, where)
        answers.append((run.quality, answer))
    if not answers:
        findings.add_missing("a stored run that compares these methods")
        return

    # Runs of the same quality decide together.
    best_quality, first_answer = answers[0]
    deciding = []
    for quality, answer in answers:
        if quality == best_quality:
            deciding.append(answer.findings)
    findings.models = first_answer.models
    # Each deciding run compares the same pairs, in the same order.
    for findings_on_pair in zip(*deciding, strict=True):
        findings.findings.append(_unite(findings_on_pair))


def _write_order(groups: Sequence[Sequence[str]], equal: bool) -> str:
    """Write an ordering such as `from best to worst: yarn = ntk > pi`. In a group whose
    methods were not claimed to be equal, commas stand in the place of `=`.
    """
    sign = " = " if equal else ", "
    texts = []
    for group in groups:
        names = [name.removesuffix(DOUBLED) for name in group]
        texts.append(sign.join(names))
    return f"from best to worst: {' > '.join(texts)}"


def _find_tuned_length(run: MethodsRun) -> int:
    """Return the length of fine-tuning. A config without this length fine-tunes at the
    tested length.
    """
    finetune_len = run.config.get("finetune_len")
    return int(finetune_len) if finetune_len else run.test_len


def _select_place(
    rows: pd.DataFrame, run: MethodsRun, metric: str, finetuned: bool, outside: bool
) -> pd.DataFrame:
    """Select the comparisons at the one position, or copying distance, that an ordering
    is about.

    Copying is compared at twice the trained length. Losses are compared at the end of the
    text; those of fine-tuned models at the end of the length of fine-tuning, or just
    beyond it (`outside`).
    """
    positions = rows["at_tokens"]
    tuned_len = _find_tuned_length(run)
    if metric == "copy_accuracy":
        position = 2 * run.train_len
    elif outside:
        position = positions[positions > tuned_len].min()
    elif finetuned:
        position = positions[positions <= tuned_len].max()
    else:
        position = positions.max()
    return select_context(rows[positions == position], "at_tokens")


def _name_place(rows: pd.DataFrame, run: MethodsRun, metric: str) -> str:
    """Name the metric and the place of comparisons that `_select_place` selected."""
    if rows.empty:
        return ""
    place = int(rows["at_tokens"].iloc[0])
    if metric == "copy_accuracy":
        return f"copy accuracy from {place} tokens back"
    if metric == "nll_bucket":
        # A bucket has the place of its end, and begins where the one before it ends.
        ends = run.select("comparisons", metric=metric)["at_tokens"]
        start = int(ends[ends < place].max()) if (ends < place).any() else 0
        return f"text loss (nats per byte) of tokens {start} to {place}"
    return f"loss (nats per byte) of the last {run.last_tokens} of {place} tokens"


def _compare_groups(
    findings: Findings,
    rows: pd.DataFrame,
    groups: Sequence[Sequence[str]],
    equal: bool,
    where: str,
) -> None:
    """Add a finding for every pair within a group, if `equal`, and for every pair of a
    method and a method of the next group.
    """
    if equal:
        for group in groups:
            for a, b in combinations(group, 2):
                _compare(findings, rows, a, b, where, claimed_equal=True)
    for group, next_group in pairwise(groups):
        for a, b in product(group, next_group):
            _compare(findings, rows, a, b, where, claimed_equal=False)


def _unite(findings_on_pair: Sequence[ClaimFinding]) -> ClaimFinding:
    """Unite the findings of several runs on one pair of methods. The united finding is
    open if the findings have different answers.
    """
    first_finding = findings_on_pair[0]
    if all(other.agrees == first_finding.agrees for other in findings_on_pair):
        return first_finding

    # Runs with equal results are listed once.
    results = dict.fromkeys(finding.measured for finding in findings_on_pair)
    listed = ", in another ".join(results)
    reason = "runs of the same models do not decide alike"
    return replace(
        first_finding, agrees=None, measured=f"in one run {listed}; {reason}"
    )


def _label(name: str, factor: float, arm: str) -> str:
    """Label a method of a claim at the factor of its run."""
    if name in WITHOUT_FACTOR:
        factor = 1.0
    elif name.endswith(DOUBLED):
        factor *= 2
    return label_method(name.removesuffix(DOUBLED), factor, arm)


def _compare(
    findings: Findings,
    rows: pd.DataFrame,
    a: str,
    b: str,
    where: str,
    claimed_equal: bool,
) -> None:
    """Add the finding on a pair of methods, published as equal or as a better than b.

    The measured word is `equal` if the whole interval of the difference is near 0,
    `better` or `worse` if the difference is significant, and else `within the noise`: no
    difference is shown.
    """
    # Only the order of the two is compared: published numbers belong to other models,
    # texts and lengths.
    row = select_pair(rows, a, b).iloc[0]
    interval = Interval(row["difference"], row["ci_low"], row["ci_high"], n=1)
    better_label = str(row["verdict"])
    is_significant = better_label != "~"
    is_small = abs(interval.value) < CLOSE
    # A sign such as > would be read as one of losses, where less is better.
    word = {a: "better", b: "worse", "~": "within the noise"}[better_label]

    # The finding stays open, for the reason given, unless one of the cases decides it.
    agrees: bool | None = None
    if claimed_equal:
        # Two results without a significant difference need not be equal. They are equal if
        # the whole interval of their difference is near 0.
        largest_difference = max(abs(interval.low), abs(interval.high))
        margin = margin_below(largest_difference, CLOSE)
        reason = f"the interval contains 0 and reaches {CLOSE:g}"
        if largest_difference < CLOSE:
            word = "equal"
            agrees = True
        elif is_significant and not is_small:
            agrees = False
        elif is_significant:
            reason = (
                f"the interval reaches {CLOSE:g}, up to which two results are equal"
            )
    else:
        margin = margin_of_interval(interval.low, interval.high, 0)
        reason = "the interval contains 0"
        if is_significant and not is_small:
            agrees = better_label == a
        elif is_significant:
            reason = (
                f"the difference is below {CLOSE:g}, up to which two results are equal"
            )

    # A method that fails in these runs, after minutes of training, refutes no published
    # order.
    if agrees is False and row.get("status") == FAILING:
        agrees = None
        reason = "one of the two fails here, which refutes no published order"

    measured = f"{word} ({write_difference(interval)})"
    what = f"{a} against {b}, {where}"
    if claimed_equal:
        what = f"{a} against {b}, which is said to be equal, {where}"
    findings.add_part(what, measured, agrees, interval.value, margin)
    if agrees is None:
        findings.leave_open(reason)
