"""The cast plans of a run. A cast plan says to which format each stage of an
implementation is rounded (position, inv_freq, angle, table, rotation, score).

--preset and --cast name implementations, whose plans are the plans of the run. If no
implementation is named, each plan rounds one stage, and all other stages are exact.
"""

from typing import NamedTuple

from ropelab.experiments.precision import PrecisionConfig
from ropelab.experiments.precision.shared import list_formats
from ropelab.math.numerics.casts import (
    PRESETS,
    STAGES,
    CastPlan,
    find_preset,
    parse_cast,
)

# The formats to which single stages are rounded unless --formats names formats.
STAGE_FORMATS = (
    "float32",
    "tf32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
)
# Of these, the formats that models are trained in.
TRAINING_FORMATS = ("bfloat16", "float16")


class Entry(NamedTuple):
    """A plan as a row of the table `casts`."""

    # 'stage': one stage is rounded, and all others are exact. 'preset': an implementation
    # that --preset names. 'cast': an implementation that --cast describes. 'repair': an
    # implementation with one stage made exact.
    kind: str
    # The name of the row. A repair has the name of its implementation.
    name: str
    plan: CastPlan
    # The only stage that is rounded, or the stage that a repair makes exact; None for an
    # implementation.
    stage: str | None = None
    # The format of the only stage that is rounded; None for all other kinds.
    format: str | None = None


def list_entries(config: PrecisionConfig) -> list[Entry]:
    """Return the entries of a run.

    Each implementation is followed by its repairs. Without implementations, each entry
    rounds one stage to one format. InputError: an unknown preset, stage or format.
    """
    named_plans = read_implementations(config)
    if not named_plans:
        return _list_stages(config)

    entries = []
    for name, plan in named_plans.items():
        # A cast is named as it is written, such as angle=float16.
        kind = "cast" if "=" in name else "preset"
        entries.append(Entry(kind, name, plan))
        for stage, _ in plan.list_inexact():
            entries.append(Entry("repair", name, plan.repair(stage), stage))
    return entries


def _list_stages(config: PrecisionConfig) -> list[Entry]:
    """Return an entry for each stage and format, in which only that stage is rounded.

    The formats are given by --formats, or else by STAGE_FORMATS.
    """
    default = PrecisionConfig.model_fields["formats"].default
    formats = list(STAGE_FORMATS)
    # The order of formats decides nothing.
    if config.only_formats or set(config.formats) != set(default):
        exact, *formats = list_formats(config)
        assert exact == "float64", "the format of exact stages comes first"

    entries = []
    for stage in STAGES:
        for fmt in formats:
            label = f"{stage}={fmt}"
            entries.append(Entry("stage", label, parse_cast(label), stage, fmt))
    return entries


def read_implementations(config: PrecisionConfig) -> dict[str, CastPlan]:
    """Return the cast plans that `preset` and `cast` name, by name."""
    # A wrong name is an error even beside `all`, which names every preset.
    for name in config.preset:
        if name != "all":
            find_preset(name)

    names = PRESETS if "all" in config.preset else config.preset
    plans = {name: find_preset(name).plan for name in names}
    if config.cast:
        plan = parse_cast(config.cast)
        plans[plan.title] = plan
    return plans
