"""Compute the tables of the base experiment."""

import math

import pandas as pd

from ropelab.experiments.base.config import BaseConfig
from ropelab.experiments.base.fits import fits
from ropelab.experiments.base.plan import Plan, plan
from ropelab.experiments.base.search import Bound, bounds
from ropelab.experiments.base.theories import theories
from ropelab.math.bounds import first_negative, lowest, rules
from ropelab.math.bounds.published import judge
from ropelab.math.frequencies import inverse_frequencies, rotations
from ropelab.runs.cell import Context


def run(config: BaseConfig, context: Context) -> dict[str, pd.DataFrame]:
    """The exact bound, all theories beside it, the given base judged, and the published values."""
    planned = plan(config)
    found = bounds(planned.similarity, planned.contexts, config.windows_up_to, context)
    bound = _bound(planned, found)
    table = judge(bound)
    return {
        "bound": bound,
        "windows": _windows(found),
        "theories": pd.concat([theories(planned, bound) for bound in found], ignore_index=True),
        "given_base": _given_base(planned),
        "coverage": _coverage(planned, found),
        "critical": _critical(planned),
        "published": table,
        "fits": fits(found, table),
    }


def _bound(planned: Plan, found: list[Bound]) -> pd.DataFrame:
    """A row per context.

    ``usable_base``: see Bound.usable. ``certified``: a proof covers every base below the first
    window, and every position at the bases inside the windows.
    """
    rows = [
        {
            "context_tokens": bound.context,
            "head_dim": planned.head_dim,
            "rotary_dim": planned.rotary_dim,
            "turning_pairs": len(planned.turning),
            "usable_base": bound.usable,
            "stable_base": bound.stable,
            "first_admissible_base": bound.first,
            "certified": bool(bound.windows),
            "status": bound.status,
        }
        for bound in found
    ]
    return pd.DataFrame(rows)


def _windows(found: list[Bound]) -> pd.DataFrame:
    """A row per admissible interval of bases that is known; ``high`` missing: it has no end."""
    rows = [
        (bound.context, low, high if high < math.inf else math.nan)
        for bound in found
        for low, high in bound.windows
    ]
    return pd.DataFrame(rows, columns=["context_tokens", "low", "high"])


def _given_base(planned: Plan) -> pd.DataFrame:
    """The base to judge at every context, under its method; no rows where none was given."""
    columns = ["context_tokens", "base", "method", "admissible", "first_failing_position_tokens"]
    rows = [] if planned.judged is None else [_judged(planned, n) for n in planned.contexts]
    return pd.DataFrame(rows, columns=[*columns, "lowest_sum", "lowest_sum_at_tokens"])


def _judged(planned: Plan, length: int) -> tuple[object, ...]:
    assert planned.judged is not None
    base, scaled = planned.judged.base, planned.scaled(length)
    fails = first_negative(scaled, base, length)
    place, value = lowest(scaled, base, length)
    missing = math.nan if fails is None else float(fails)
    return length, base, planned.scaling.label, fails is None, missing, value, place


def _coverage(planned: Plan, found: list[Bound]) -> pd.DataFrame:
    """How many pairs complete no, less than one, or at least one turn in the trained length."""
    bases = {"trained base": planned.trained.base}
    if planned.judged is not None:
        bases["given base"] = planned.judged.base
    bases |= {f"usable for {b.context}": b.usable for b in found if b.usable > 1}
    rows = [_turned(planned, name, base) for name, base in bases.items()]
    return pd.DataFrame(rows)


def _turned(planned: Plan, name: str, base: float) -> dict[str, object]:
    length, turning = planned.trained.trained_len, planned.turning
    made = rotations(inverse_frequencies(planned.rotary_dim, base), length)[turning]
    return {
        "which": name,
        "base": base,
        "train_len_tokens": length,
        "pairs_not_turning": planned.head_dim // 2 - len(turning),
        "pairs_below_one_turn": int((made < 1).sum()),
        "pairs_at_least_one_turn": int((made >= 1).sum()),
    }


def _critical(planned: Plan) -> pd.DataFrame:
    """The critical dimension of the trained geometry and how far larger bases would carry it."""
    trained = planned.trained
    bases = [trained.base, *([planned.judged.base] if planned.judged else [])]
    rows = [
        {
            "trained_base": trained.base,
            "train_len_tokens": trained.trained_len,
            "rotary_dim": trained.rotary_dim,
            "critical_dimension": rules.critical_dimension(trained),
            "tuned_base": base,
            "supported_context_tokens": rules.extrapolation_limit(trained, base),
        }
        for base in dict.fromkeys(bases)
    ]
    return pd.DataFrame(rows)
