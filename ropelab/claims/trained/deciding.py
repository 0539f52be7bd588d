"""Choose the run that decides a claim; leave findings open if its models learned too
little.
"""

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

from ropelab.claims.record import Findings
from ropelab.claims.trained.runs import TrainedRun
from ropelab.runs.cell import Stored
from ropelab.runs.sentences import write_count
from ropelab.runs.thresholds import LEARNED

# The parameters of a model of each preset, in millions. A run that names a preset does not
# store the sizes of its models.
SIZES = {"tiny": 0.4, "small": 1, "medium": 4, "base": 11, "large": 38, "xl": 120}
# The number of symbols that a model of bytes reads and writes.
BYTES = 256
# The usual base of RoPE, which descriptions of models leave out.
USUAL_BASE = 1e4
# A check of a claim: it adds its findings to the `Findings` in its first argument.
Check = Callable[..., None]


def describe_models(run: Stored | TrainedRun) -> str:
    """Write the size of a run's models, the number of seeds, and the trained length.

    The base is added if it is not the usual one, and the version of the tasks if it is
    not the current one.
    """
    config = run.config
    names = ("layers", "width", "heads", "head_dim")
    if all(isinstance(config.get(name), int) for name in names):
        # These are models of bytes. The parameters of the encoding are not counted.
        layers, width, heads, head_dim = (config[name] for name in names)
        # A layer has four projections of attention, and two of a feed-forward layer that
        # is four times as wide. Each byte has an embedding and an output.
        layer = 4 * width * heads * head_dim + 8 * width**2
        parameters = layers * layer + 2 * BYTES * width
        size = f"{parameters / 1e6:.1f} M"
    else:
        millions = SIZES.get(str(config.get("preset")))
        size = f"about {millions:g} M" if millions else "unknown"

    seeds = write_count(len(config.get("seeds", ())), "seed")
    base = ""
    if config.get("base", USUAL_BASE) != USUAL_BASE:
        base = f", base {config['base']:g}"
    length = f"trained at {config['train_len']} tokens"
    return f"{size} parameters, {seeds}, {length}{base}{write_earlier_version(run)}"


def write_earlier_version(run: Stored | TrainedRun) -> str:
    """Write which version of the tasks measured a run; empty for the current version."""
    if run.earlier_version is None:
        return ""
    return f", measured by version {run.earlier_version} of the tasks"


# The class that reads the stored runs of one experiment.
R = TypeVar("R", bound=TrainedRun)


def sort_largest_first(run_class: type[R], runs: Sequence[Stored]) -> list[R]:
    """Select the stored runs that test beyond their trained length, and sort them by
    `quality`, the largest first.
    """
    testing_beyond = []
    for run in runs:
        if run.config["test_len"] > run.config["train_len"]:
            testing_beyond.append(run_class(run))
    return sorted(testing_beyond, key=lambda run: run.quality, reverse=True)


def open_last_unless_learned(findings: Findings, run: TrainedRun, *names: str) -> None:
    """Leave the last finding open if the models of one of these rows did not learn to
    copy.
    """
    unlearned = []
    for name in names:
        copied = run.copies_within(name)
        # Copying that was not measured is nan, which compares as false.
        has_learned = copied >= LEARNED
        if not has_learned:
            unlearned.append(f"{name} ({copied:.2f})")
    if unlearned and not findings.findings[-1].missing:
        reason = f"did not learn to copy: {', '.join(unlearned)}"
        findings.leave_open(reason, mute=True)


def _add_unlearned(findings: Findings, run: TrainedRun) -> None:
    """Add that the plain models of a run did not learn to copy, or were not asked to."""
    copied = run.copies_within()
    what = f"copy accuracy of {run.plain} inside the trained length {run.train_len}"
    if math.isnan(copied):
        findings.add_missing(what, "not measured")
    else:
        findings.add_missing(what, f"{copied:.2f}, below {LEARNED}")


def ask_runs(run_class: type[TrainedRun]) -> Callable[[Check], Check]:
    """Make a check of stored runs from a function that adds the findings of one run.

    The run that leaves least open decides. If several runs leave equally little open,
    the largest of these runs decides. A run whose plain models did not all learn the task
    decides only if there is no other run.
    """

    def decorate(add_findings: Check) -> Check:
        @wraps(add_findings)
        def check(
            findings: Findings, runs: Sequence[Stored] = (), **inputs: Any
        ) -> None:
            answers = []
            for run in sort_largest_first(run_class, runs):
                answer = Findings(findings.expected, describe_models(run))
                # Copying that was not measured is nan, which compares as false.
                if run.copies_within() >= LEARNED:
                    add_findings(answer, run, **inputs)
                else:
                    _add_unlearned(answer, run)
                answers.append(answer)

            findings.take_best(
                answers, "a stored run that tests beyond its trained length"
            )

        return check

    return decorate
