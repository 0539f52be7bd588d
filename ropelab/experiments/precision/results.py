"""The cells and the tables of the precision experiment.

The work is cut into cells, each of which computes some tables or a part of a table. There
are two kinds of cells. The cells of `encodings` round the stored encodings of positions,
such as cosines, to each number format. The cells of `stages`, `sines` and `against` round
the stages of an implementation (position, inv_freq, angle, table, rotation and score) by a
cast plan, which says the format of every stage.
"""

from collections.abc import Iterable

import pandas as pd

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.against import make_against_cell
from ropelab.experiments.precision.answer import answer, suggest_command
from ropelab.experiments.precision.axes import compute_axes
from ropelab.experiments.precision.encodings import make_encoding_cells
from ropelab.experiments.precision.explain import make_explain_table
from ropelab.experiments.precision.neighbours import choose_encodings, list_neighbours
from ropelab.experiments.precision.plans import list_entries, read_implementations
from ropelab.experiments.precision.shared import make_spectrum
from ropelab.experiments.precision.stages import make_cast_tables, make_stage_cells
from ropelab.experiments.precision.summary import make_further_tables, summary
from ropelab.math.numerics.keys import parse_keys
from ropelab.runs.cell import Cell, Values
from ropelab.runs.errors import InputError
from ropelab.runs.tables import EarlyTable, Tables

# The functions that `ropelab.experiments` calls.
__all__ = [
    "answer",
    "cells",
    "check",
    "make_further_tables",
    "suggest_command",
    "summarize_finished",
    "summary",
    "tables",
]

# Columns of whole numbers that are missing in some rows. pandas would read such a column
# back from disk as floats.
WHOLE_NUMBERS = [
    "first_collision_position",
    "period_tokens",
    "worst_position",
    "worst_pair",
    "first_position_over_tolerance",
    "distinct_positions",
    "resolved_from_tokens",
    "first_losing_pair",
]
# The order of the tables: first the tables about encodings, then the tables about casts.
ORDER = (
    "neighbours",
    "resolution",
    "collisions",
    "pairs",
    "limits",
    "scores",
    "score_margin",
    "casts",
    "against",
    "spread",
    "growth",
    "drift",
    "reductions",
    "keys",
)


def check(config: PrecisionConfig) -> None:
    """Raise InputError for unknown formats, methods and casts, and for values that do
    not fit the head.
    """
    if not list_entries(config):
        raise InputError(
            "formats names none beside float64, so that nothing is rounded; give another"
            " one, or a cast or a preset"
        )
    # These raise InputError; their results are not needed here.
    make_spectrum(config)
    cells(config)
    if config.explain is not None:
        make_explain_table(config, config.explain, read_implementations(config))
    for text in config.cache:
        # A cache stores whole keys, with the features that do not rotate.
        key_format = parse_keys(text)
        key_format.check(config.head_dim)


def cells(config: PrecisionConfig) -> list[Cell]:
    """Return all cells that a config asks for."""
    all_cells: list[Cell] = [*make_encoding_cells(config), *make_stage_cells(config)]
    if config.against:
        all_cells.append(make_against_cell(config))
    return all_cells


def tables(config: PrecisionConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Return the tables by name, made of the values of all cells."""
    # Several cells have a part of the same table.
    parts: dict[str, list[pd.DataFrame]] = {}
    for cell in cells(config):
        for name, part in values[cell].items():
            whole_numbers = part.columns.intersection(WHOLE_NUMBERS)
            part = part.astype(dict.fromkeys(whole_numbers, "Int64"))
            parts.setdefault(name, []).append(part)

    measured = {}
    for name, parts_of_table in parts.items():
        measured[name] = pd.concat(parts_of_table, ignore_index=True)
    # Some tables are made from other tables.
    measured |= make_cast_tables(config, measured)
    if "resolution" in measured:
        measured["neighbours"] = choose_encodings(measured["resolution"])
    in_order = {name: measured[name] for name in ORDER if name in measured}

    if config.sections:
        in_order["axes"] = compute_axes(config)
    if config.explain is not None:
        # These few numbers are computed at once, which is quicker than with a cell.
        plans = read_implementations(config)
        in_order["explain"] = make_explain_table(config, config.explain, plans)
    return in_order


def summarize_finished(finished: Iterable[tuple[Cell, Tables]]) -> EarlyTable | None:
    """Return the shares of equal neighbours of the schemes that are finished.

    Each share counts all positions, so that it does not change any more. None: no scheme
    is finished.
    """
    parts = [part["resolution"] for _, part in finished if "resolution" in part]
    if not parts:
        return None
    resolution = pd.concat(parts, ignore_index=True)
    neighbours = list_neighbours({"neighbours": choose_encodings(resolution)})
    return EarlyTable(neighbours, "shares of equal neighbours; casts follow")
