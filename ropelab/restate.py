"""What a stored run says, in today's words.

The sentences in a manifest were written when the run was made. Its numbers are in its
tables, and an index or a page tells them by the same functions as a new run does.
"""

from collections.abc import Mapping
from typing import Any

from ropelab import experiments
from ropelab.plan import write_answer
from ropelab.runs import store
from ropelab.runs.errors import InputError
from ropelab.runs.tables import Tables

# What today's functions raise for the tables and fields of an earlier version.
ERRORS_OF_EARLIER_VERSIONS = (
    # The config has no such field, or the experiment no such function.
    AttributeError,
    # A table, a column or a row does not exist, or a name is known no more.
    LookupError,
    InputError,
    # A value has another type, or a text is written in another form.
    TypeError,
    ValueError,
)


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
        question = config.ask_again(experiment.question, tables)
        answer = write_answer(experiment, config, tables)
        summary = experiment.summarize_for_index(tables)
        columns = dict(experiment.explain_columns(tables))
    except ERRORS_OF_EARLIER_VERSIONS:
        return manifest
    return {
        **manifest,
        "question": question,
        "answer": answer,
        "summary": store.make_records(summary),
        "cannot_show": experiment.cannot_show,
        "columns": columns,
    }
