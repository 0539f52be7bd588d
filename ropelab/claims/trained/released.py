"""Claims about released models, decided by runs that evaluated one."""

from collections.abc import Sequence

import pandas as pd

from ropelab.claims.record import Findings, Role, claim
from ropelab.claims.trained.tally import add_interval
from ropelab.runs.cell import Stored
from ropelab.runs.labels import AS_SHIPPED, row_labels
from ropelab.runs.stats import mean_interval


@claim("kvquant-before-rope")
def compare_stored_keys(
    findings: Findings,
    asked: Sequence[tuple[Role, str, str]],
    runs: Sequence[Stored] = (),
) -> None:
    """Test that keys of a released model cost more if stored after RoPE than before
    it.
    """
    answers = []
    for run in runs:
        model = run.tables["model"].iloc[0]
        about = f"{model['model_type']} of {model['layers']} layers, as it was released"
        answer = Findings(findings.expected, about)
        losses = _losses_by_document(run)
        for role, *pair in asked:
            labels = [f"{AS_SHIPPED} + {keys}" for keys in pair]
            what = f"text loss, {' less '.join(pair)}"
            if not {*labels} <= {*losses}:
                answer.missing(what, "not measured")
                continue
            more = mean_interval(losses[labels[0]] - losses[labels[1]])
            counted = f"{what}, {len(losses)} documents"
            unit = " nats per byte"
            add_interval(answer, role, counted, more, 0, "+.4f", unit)
        answers.append(answer)
    findings.take_best(answers, "a stored run of a released model")


def _losses_by_document(run: Stored) -> pd.DataFrame:
    """Return the text loss of each document (rows) under each method (columns)."""
    table = run.tables.get("text_by_document")
    if table is None:
        return pd.DataFrame()
    # A method may be measured with several factors, so its name alone is no key.
    labelled = table.assign(label=row_labels(table))
    return labelled.pivot(index="name", columns="label", values="nll_nats_per_byte")
