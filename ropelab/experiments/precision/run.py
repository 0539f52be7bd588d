"""Put the tables of the precision experiment together."""

import pandas as pd

from ropelab.experiments.precision.codes import (
    code_tables,
    codes,
    pairs_table,
    scores_table,
    signal_table,
)
from ropelab.experiments.precision.config import PrecisionConfig
from ropelab.experiments.precision.explain import explain_table
from ropelab.experiments.precision.ladder import drift_table, ladder_tables
from ropelab.experiments.precision.plan import Plan, plan
from ropelab.experiments.precision.reported import Range, reported_table
from ropelab.math.numerics.casts import CastPlan
from ropelab.math.numerics.chain import Chain
from ropelab.runs.cell import Context


def run(config: PrecisionConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Codes, ladder, and what else was asked for; tables without rows are left out."""
    planned = plan(config)
    tables: dict[str, pd.DataFrame] = {}
    if found := codes(planned.spectra, planned.channels):
        with context.progress("which positions collide", total=len(found)) as advance:
            tables |= code_tables(planned, found, advance)
    if planned.spectra:
        tables["pairs"] = pairs_table(planned)
        tables["scores"] = scores_table(planned)
        tables["signal"] = signal_table(planned)
    with context.progress("which cast is wrong", total=1) as advance:
        tables |= ladder_tables(planned, advance)
    tables["drift"] = drift_table(planned)
    if config.explain is not None:
        pair = config.explain_pair
        tables["explain"] = explain_table(planned.rope, planned.formats, config.explain, pair)
    if planned.reported:
        tables["incidents"] = _incidents(planned, config.source)
    return tables


def _incidents(planned: Plan, source: str) -> pd.DataFrame:
    """The reported numbers, measured under the first implementation named (none: exact)."""
    plans = [preset.plan for preset in planned.implementations] or [CastPlan()]
    where = Range(Chain(plans[0], planned.rope), planned.offset, planned.length)
    return reported_table(planned.reported, where, source)
