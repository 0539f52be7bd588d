"""From a config to tables: the arithmetic of every scheme, and models trained with each."""

import pandas as pd

from ropelab.claims.judge import judged
from ropelab.experiments.frequencies import tables
from ropelab.experiments.frequencies.config import FrequenciesConfig
from ropelab.experiments.frequencies.plan import questions
from ropelab.experiments.frequencies.representable import representable, schemes_table
from ropelab.models.tasks.cells import ask_all, train_all
from ropelab.runs.context import Context


def run(config: FrequenciesConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Compute, train and measure; `representable.py` and `tables.py` say what tables hold."""
    asked = questions(config)
    train_all(asked, context)
    measured = tables.units(ask_all(asked, context))
    found = {"schemes": schemes_table(config), "representable": representable(config)}
    found["learned"] = tables.learned(measured, config)
    found["comparisons"] = tables.comparisons(measured, config)
    if config.bands:
        found["removed"] = tables.removed(measured, config)
    found["literature"] = judged("frequencies", config.model_dump(mode="json"), found)
    return found
