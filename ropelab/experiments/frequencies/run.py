"""From a config to tables: the arithmetic of every scheme, and models trained with each."""

import pandas as pd

from ropelab.experiments.frequencies import tables as made
from ropelab.experiments.frequencies.config import FrequenciesConfig
from ropelab.experiments.frequencies.plan import questions
from ropelab.experiments.frequencies.representable import representable, schemes_table
from ropelab.models.tasks.cells import collected
from ropelab.runs.cell import Cell, Values


def cells(config: FrequenciesConfig) -> list[Cell]:
    """Every task of every model."""
    return [*questions(config)]


def tables(config: FrequenciesConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make the tables that `representable.py` and `tables.py` describe."""
    measured = made.units(collected(questions(config), values))
    found = {"schemes": schemes_table(config), "representable": representable(config)}
    found["learned"] = made.learned(measured, config)
    found["comparisons"] = made.comparisons(measured, config)
    if config.bands:
        found["removed"] = made.removed(measured, config)
    return found
