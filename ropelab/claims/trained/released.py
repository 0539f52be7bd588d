"""Claims about released models, decided by stored runs that evaluated such a model.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

from collections.abc import Sequence

import pandas as pd

from ropelab.claims.record import Findings, Role, claim
from ropelab.claims.trained.deciding import write_earlier_version
from ropelab.claims.trained.tally import add_interval
from ropelab.runs.cell import Stored
from ropelab.runs.labels import AS_SHIPPED, label_rows
from ropelab.runs.stats import average_samples


@claim("kvquant-before-rope")
def compare_stored_keys(
    findings: Findings,
    asked: Sequence[tuple[Role, str, str]],
    runs: Sequence[Stored] = (),
) -> None:
    """Test that one format of stored keys costs a released model more than another
    format. A format also says whether keys are stored before or after RoPE.

    Each row of `asked` is the role of the finding and two formats, first the format that
    the claim says is costlier.
    """
    answers = []
    for run in runs:
        model = run.tables["model"].iloc[0]
        description = (
            f"{model['model_type']} of {model['layers']} layers, as it was released"
            f"{write_earlier_version(run)}"
        )
        answer = Findings(findings.expected, models=description)
        losses = _read_losses(run)

        for role, costlier, cheaper in asked:
            what = f"text loss, {costlier} less {cheaper}"
            costlier_label = f"{AS_SHIPPED} + {costlier}"
            cheaper_label = f"{AS_SHIPPED} + {cheaper}"
            if costlier_label not in losses or cheaper_label not in losses:
                answer.add_missing(what, "not measured")
                continue

            difference = average_samples(losses[costlier_label] - losses[cheaper_label])
            what = f"{what}, {len(losses)} documents"
            unit = " nats per byte"
            add_interval(answer, role, what, difference, 0, "+.4f", unit)
        answers.append(answer)
    findings.take_best(answers, "a stored run of a released model")


def _read_losses(run: Stored) -> pd.DataFrame:
    """Return the text loss of each document (rows) under each method (columns)."""
    table = run.tables.get("text_by_document")
    if table is None:
        return pd.DataFrame()
    # A method may be measured with several factors, so that its name without the factor
    # does not identify it.
    labelled = table.assign(label=label_rows(table))
    return labelled.pivot(index="name", columns="label", values="nll_nats_per_byte")
