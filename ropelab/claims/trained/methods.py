"""Claims about what one scaling method does, and about two methods compared.

The models of a run were trained at one length, and evaluated at a longer one under each
method. Methods are called by their labels, such as `yarn ×4`. Text is judged by the loss
of the same final tokens after the longest context, copying at distances beyond the
trained length. The sliding window is the unscaled model with no more context than it was
trained on.

For most claims trained.toml has a list `asked`, with a row for each finding. The entry
`asks` of a row is what the claim says of a method, or of two, such as `works` or `better`.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from ropelab.claims.record import Findings, Role, claim
from ropelab.claims.trained.deciding import (
    ask_runs,
    describe_models,
    sort_largest_first,
)
from ropelab.claims.trained.orders import DOUBLED
from ropelab.claims.trained.runs import MethodsRun
from ropelab.claims.trained.tally import add_interval, interval_or_value_reaches
from ropelab.runs.cell import Stored
from ropelab.runs.labels import WINDOW
from ropelab.runs.sentences import write_interval
from ropelab.runs.stats import Interval, average_samples
from ropelab.runs.thresholds import CLOSE, FAILS, LEARNED, WORKS

# The metric of text after the longest context.
TEXT = "nll_last_window"
# The metric of a comparison, by the value of `on` in a row of trained.toml. The loss by
# position, which "nearer text" and "text just beyond" are about, is not among them.
METRICS = {"text": TEXT, "short text": "nll_short_context", "copying": "copy_accuracy"}
# The role of a finding about copying, by what the claim says of copying: the value of
# `asks` in a row of trained.toml.
ROLES: dict[str, Role] = {"works": "part", "fails": "part", "may work": "limit"}


@claim("du-indexing")
def check_indexing(
    findings: Findings,
    asked: Sequence[tuple[Role, str, str, str]],
    runs: Sequence[Stored] = (),
) -> None:
    """Test whether models find items of a list by their place in the list, and as a
    control by their key.

    Each row of `asked` is the role of the finding, the task, the method, and what the
    claim says: `works` or `fails`.
    """
    answers = []
    for run in sort_largest_first(MethodsRun, runs):
        if not {"indexing_accuracy", "keyed_accuracy"}.issubset(run.tables):
            continue
        answer = Findings(findings.expected, describe_models(run))
        for role, task, method, claimed in asked:
            table_name = f"{task}_accuracy"
            label = run.find_label(method, tables=(table_name,))
            rows = run.rows(table_name)
            rows = rows[rows["label"] == label]
            shares = rows.groupby(["context_tokens", "seed"])["accuracy"].mean()
            at_train_len = average_samples(shares.get(run.train_len, ()))
            at_test_len = average_samples(shares.get(run.test_len, ()))

            # Such as `0.93 [0.90, 0.96] in 128`.
            share_in_words = f"{write_interval(at_train_len, '.2f')} in {run.train_len}"
            # A share that was not measured is nan, which compares as false.
            has_learned = at_train_len.value >= LEARNED
            if not has_learned:
                answer.add_missing(f"models that learned {task}", share_in_words)
                continue
            what = (
                f"{task}, {method}, right in {run.test_len} tokens ({share_in_words})"
            )
            # One threshold decides both answers: a share that is not below it works.
            fails = claimed == "fails"
            add_interval(answer, role, what, at_test_len, least=FAILS, fails=fails)
        answers.append(answer)
    findings.take_best(answers, "a stored run of the tasks indexing and keyed")


@claim(
    "plain-fails",
    "rope-extrapolates",
    "yarn-extends",
    "yarn-extends-text",
    "yarn-beats-ntk",
    "ntk-better-short",
    "pi-fails-zero-shot",
)
@ask_runs(MethodsRun)
def check_methods(
    findings: Findings, run: MethodsRun, asked: Sequence[Mapping[str, str]]
) -> None:
    """Add a finding for each row of `asked` (trained.toml describes these rows)."""
    for row in asked:
        if "b" in row:
            _compare_methods(findings, run, **row)
        else:
            _ask_copying(findings, run, **row)


def _compare_methods(
    findings: Findings,
    run: MethodsRun,
    a: str,
    b: str,
    on: str = "text",
    asks: str = "better",
    what: str = "{comparison}",
) -> None:
    """Add a comparison of the methods a and b. The arguments from `a` on are a row of
    trained.toml, which describes them.
    """
    label_a = _label_in_run(run, a)
    label_b = _label_in_run(run, b)
    where = _describe_subject(run, label_a, label_b, on)

    if on in METRICS:
        result = run.tally_against(label_a, label_b, METRICS[on])
    else:
        start = run.train_len if on == "text just beyond" else 0
        result = run.tally_within(label_a, label_b, 2 * run.train_len, start)
        if result.compared_places == 0:
            # Runs of an earlier form do not have the loss by position.
            return

    comparison = f"{label_a} against {label_b} {where}"
    result.add_to(findings, what.format(comparison=comparison, where=where), asks)


def _describe_subject(run: MethodsRun, label_a: str, label_b: str, on: str) -> str:
    """Say on what two methods are compared: on copying and on the tested length of text,
    also with their values.
    """
    if on == "copying":
        copied_a = run.write_copies_beyond(label_a)
        copied_b = run.write_copies_beyond(label_b)
        shares = f"{copied_a} and {copied_b}"
        return f"at copying beyond {run.train_len} tokens ({shares})"
    if on == "text":
        loss_a = run.write_loss(label_a)
        loss_b = run.write_loss(label_b)
        losses = f"{loss_a} and {loss_b} nats per byte"
        return f"on the last {run.last_tokens} of {run.test_len} tokens ({losses})"
    if on == "short text":
        return f"on the last {run.last_tokens} of {run.train_len} tokens"
    if on == "nearer text":
        return f"on text up to {2 * run.train_len} tokens"
    if on == "text just beyond":
        return f"on text from {run.train_len} to {2 * run.train_len} tokens"
    raise ValueError(f"unknown subject '{on}'")


def _label_in_run(run: MethodsRun, name: str) -> str:
    """Label a method at the run's smallest factor that covers the tested length.

    A name that ends with DOUBLED means the method at twice this factor, which is the
    largest factor of the run.
    """
    is_doubled = name.endswith(DOUBLED)
    method = name.removesuffix(DOUBLED)
    return run.find_label(method, largest=is_doubled)


def _ask_copying(
    findings: Findings,
    run: MethodsRun,
    what: str,
    a: str,
    at: str,
    asks: str = "works",
) -> None:
    """Add the copying of the method a at one distance. The arguments from `what` on are a
    row of trained.toml, which describes them.
    """
    label = run.find_label(a)
    distance, copied = run.measure_copying_at(label, at)
    what = what.format(a=label, distance=distance)
    fails = asks == "fails"
    threshold = FAILS if fails else WORKS
    add_interval(findings, ROLES[asks], what, copied, least=threshold, fails=fails)


@claim("low-perplexity-enough")
@ask_runs(MethodsRun)
def check_low_loss(findings: Findings, run: MethodsRun) -> None:
    """Test that every method whose text loss is as low as the lowest also copies from far
    away, and as a limit, that a lower loss goes together with more copying.
    """
    # A row per method: its label, loss and copy accuracy, each nan if it was not measured.
    rows = []
    for label in run.rows("last_window")["label"].unique():
        # The sliding window is left out: it cannot see far by construction.
        if label != WINDOW:
            rows.append((label, run.loss(label), run.copies_beyond(label)))
    table = pd.DataFrame(rows, columns=["label", "loss", "accuracy"])
    with_loss = table.dropna(subset="loss")
    with_both = with_loss.dropna()
    if with_both.empty or run.table("comparisons").empty:
        findings.add_missing(
            "methods that were measured on text and copying and compared"
        )
        return

    best = with_loss.sort_values("loss", kind="stable")["label"].iloc[0]
    # For each method, whether no other method has a significantly lower loss.
    is_unbeaten = []
    for label in with_loss["label"]:
        defeats = 0
        for other in with_loss["label"]:
            if other != label:
                defeats += run.tally_against(other, label, TEXT).better
        is_unbeaten.append(defeats == 0)
    unbeaten = with_loss[is_unbeaten]
    best_copier = with_both.sort_values("accuracy", kind="stable")["label"].iloc[-1]
    best_accuracy = with_both["accuracy"].max()
    # A method that was not asked to copy has a nan here, which compares as false. It is
    # not known to copy well. It can leave the claim open, but not refute it.
    copies_well = unbeaten["accuracy"] >= best_accuracy / 2
    poor_copiers = unbeaten[~copies_well]
    # The claim is refuted by a method that was asked to copy, and whose text loss is shown
    # to equal the best. Two losses without a significant difference need not be equal: the
    # whole interval of their difference must be near 0.
    refuting_labels = []
    for label in poor_copiers.dropna()["label"]:
        if label == best or run.are_equal(best, label, TEXT):
            refuting_labels.append(label)
    agrees: bool | None = True
    if refuting_labels:
        agrees = False
    elif len(poor_copiers):
        agrees = None

    what = (
        f"methods that copy less than half as well as {best_copier} from beyond"
        f" {run.train_len} back ({_write_copies(run, best_copier)}, the mean over"
        f" distances), or were not asked, among {len(unbeaten)} that no other method beats"
        f" on the last {run.last_tokens} of {run.test_len} tokens (the sliding window,"
        " which cannot see far, is not counted)"
    )
    texts = []
    for label in poor_copiers["label"]:
        written_loss = write_interval(average_samples(run.losses_by_seed(label)), ".3f")
        texts.append(f"{label} with {written_loss} copies {_write_copies(run, label)}")
    measured = ", ".join(texts) or "none"
    if agrees is None:
        measured += f"; not shown to read as well as {best} (within {CLOSE})"
    findings.add_part(what, measured, agrees, len(refuting_labels))

    _add_rank_correlation(findings, run, with_both["label"].tolist())


def _add_rank_correlation(
    findings: Findings, run: MethodsRun, labels: Sequence[str]
) -> None:
    """Add as a limit whether methods with a lower loss copy more."""
    correlation = _correlate_ranks(run, labels)
    what = (
        f"rank correlation over {len(labels)} methods of low loss there and copying"
        f" from beyond {run.train_len} back"
    )
    agrees = interval_or_value_reaches(correlation, WORKS)
    measured = write_interval(correlation, ".2f")
    findings.add_limit(what, measured, agrees, correlation.value)


def _write_copies(run: MethodsRun, label: str) -> str:
    """Write how much a method copies beyond the trained length, with its interval."""
    return write_interval(average_samples(run.copies_beyond_by_seed(label)), ".2f")


def _correlate_ranks(run: MethodsRun, labels: Sequence[str]) -> Interval:
    """Return Spearman's correlation of low loss and copying over methods.

    Each seed has a correlation of its own; the result is the mean of these correlations.
    """
    correlations = []
    losses = pd.DataFrame({label: run.losses_by_seed(label) for label in labels})
    copies = pd.DataFrame({label: run.copies_beyond_by_seed(label) for label in labels})
    for seed in losses.index.intersection(copies.index):
        losses_of_seed = losses.loc[seed]
        copies_of_seed = copies.loc[seed]
        # The correlation is not defined if all losses, or all accuracies, are equal.
        if losses_of_seed.nunique() > 1 and copies_of_seed.nunique() > 1:
            # The sign is changed, since the correlation is one of low losses with copying.
            correlation = losses_of_seed.corr(copies_of_seed, method="spearman")
            correlations.append(-float(correlation))
    return average_samples(correlations)
