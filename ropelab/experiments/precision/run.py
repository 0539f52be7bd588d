"""Put the tables of the precision experiment together."""

import pandas as pd

from ropelab.context import Context
from ropelab.experiments.precision.codes import code_tables, codes, pairs_table, scores_table
from ropelab.experiments.precision.config import PrecisionConfig
from ropelab.experiments.precision.explain import explain_table
from ropelab.experiments.precision.ladder import drift_table, ladder_tables
from ropelab.experiments.precision.reported import Range, reported_table
from ropelab.numerics.casts import CastPlan
from ropelab.numerics.chain import Chain


def run(config: PrecisionConfig, context: Context) -> dict[str, pd.DataFrame]:
    """Codes, ladder, and what else was asked for; tables without rows are left out."""
    tables: dict[str, pd.DataFrame] = {}
    if codes(config):
        with context.progress("which positions collide", total=len(codes(config))) as advance:
            tables |= code_tables(config, advance)
    if config.schemes:
        tables["pairs"] = pairs_table(config)
        tables["scores"] = scores_table(config)
    with context.progress("which cast is wrong", total=1) as advance:
        tables |= ladder_tables(config, advance)
    tables["drift"] = drift_table(config)
    if config.explain is not None:
        tables["explain"] = explain_table(config, config.explain)
    if config.comparisons():
        tables["incidents"] = _incidents(config)
    return tables


def _incidents(config: PrecisionConfig) -> pd.DataFrame:
    """The reported numbers, measured under the first implementation named (none: exact)."""
    plans = [preset.plan for preset in config.implementations()] or [CastPlan()]
    chain = Chain(plans[0], config.spectrum("rope"))
    where = Range(chain, config.offset, config.length)
    return reported_table(config.comparisons(), where, config.source)
