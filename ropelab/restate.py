"""What a stored run says, in today's words.

The sentences in a manifest were written when the run was made. Its numbers are in its
tables, and an index or a page tells them by the same functions as a new run does.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ropelab import experiments
from ropelab.plan import write_answer
from ropelab.runs import store
from ropelab.runs.config import Config
from ropelab.runs.errors import InputError
from ropelab.runs.tables import Tables

# The columns of the ledger that an index shows: a verdict is read beside the statement.
CLAIM_COLUMNS = {
    "id": "id",
    "statement": "statement",
    "verdict": "verdict",
    "decided_by": "decided by",
    "decided_at": "measured",
}


def restate(manifest: Mapping[str, Any], tables: Tables) -> Mapping[str, Any]:
    """Return a manifest whose question, answer and short table are written anew from the
    run's tables.

    A run of a newer ropelab, or one whose tables today's functions cannot read, keeps
    its own sentences.
    """
    name = manifest["experiment"]
    if name not in experiments.NAMES:
        return manifest
    experiment = experiments.load(name)
    if manifest["version"] > experiment.version:
        return manifest

    try:
        # The fields were validated when the run was made. What a field names, such as a
        # folder with a model, need not be on this machine.
        config = experiment.config.model_construct(**manifest["config"])
        question = _ask_again(config, manifest["question"], experiment.question, tables)
        answer = write_answer(experiment, config, tables)
        summary = _choose_short_table(experiment.summary(tables), tables)
        columns = dict(experiment.explain_columns(tables))
    except (AttributeError, InputError, LookupError, TypeError, ValueError):
        # An earlier version may have had other tables or fields.
        return manifest
    return {
        **manifest,
        "question": question,
        "answer": answer,
        "summary": store.make_records(summary),
        "cannot_show": experiment.cannot_show,
        "columns": columns,
    }


def _ask_again(config: Config, asked: str, question: str, tables: Tables) -> str:
    """Return the question of a stored run, from `asked`, the question in its manifest."""
    if "model" not in tables:
        return config.adapt_question(question)
    # A released model is not read again: the run's table says how long it was trained.
    train_len = int(tables["model"]["train_len_tokens"].iloc[0])
    ask_about = getattr(config, "ask_about", None)
    return asked if ask_about is None else str(ask_about(train_len))


def _choose_short_table(summary: pd.DataFrame, tables: Tables) -> pd.DataFrame:
    """Return the short table. In the ledger each verdict gets its statement beside it."""
    claims = tables.get("claims")
    if claims is None or len(claims) < 2 or not set(CLAIM_COLUMNS) <= set(claims):
        return summary
    return claims[list(CLAIM_COLUMNS)].rename(columns=CLAIM_COLUMNS)
