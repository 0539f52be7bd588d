"""Compute the tables of the base experiment."""

import math

import pandas as pd

from ropelab.context import Context
from ropelab.experiments.base.config import BaseConfig
from ropelab.experiments.base.fits import fits
from ropelab.experiments.base.search import Bound, bounds
from ropelab.experiments.base.theories import theories
from ropelab.literature.arithmetic.base_bound import judge
from ropelab.rope.bounds import first_negative, lowest, rules
from ropelab.rope.frequencies import inverse_frequencies, turns


def run(config: BaseConfig, context: Context) -> dict[str, pd.DataFrame]:
    """The exact bound, all theories beside it, the given base judged, and the published values."""
    found = bounds(config.similarity(), config.context, config.windows_up_to, context)
    bound = _bound(config, found)
    table = judge(bound)
    return {
        "bound": bound,
        "windows": _windows(found),
        "theories": pd.concat([theories(config, bound) for bound in found], ignore_index=True),
        "given_base": _given_base(config),
        "coverage": _coverage(config, found),
        "critical": _critical(config),
        "published": table,
        "fits": fits(found, table),
    }


def _bound(config: BaseConfig, found: list[Bound]) -> pd.DataFrame:
    """A row per context. ``certified``: a proof covers every base below the first window, and every
    position at the bases inside the windows."""
    rows = [
        {
            "context_tokens": bound.context,
            "head_dim": config.head_dim,
            "first_admissible_base": bound.first,
            "stable_base": bound.stable,
            "certified": bool(bound.windows),
            "rotary_dim": config.rotated,
            "turning_pairs": len(config.similarity().exponents),
            "status": bound.status,
        }
        for bound in found
    ]
    return pd.DataFrame(rows)


def _windows(found: list[Bound]) -> pd.DataFrame:
    """A row per admissible interval of bases; ``high`` is missing where it has no end."""
    rows = [
        (bound.context, low, high if high < math.inf else math.nan)
        for bound in found
        for low, high in bound.windows
    ]
    return pd.DataFrame(rows, columns=["context_tokens", "low", "high"])


def _given_base(config: BaseConfig) -> pd.DataFrame:
    """The base to judge at every context; no rows where none was given."""
    columns = ["context_tokens", "base", "admissible", "first_failing_position_tokens"]
    rows = [] if config.base is None else [_judged(config, length) for length in config.context]
    return pd.DataFrame(rows, columns=[*columns, "lowest_sum", "lowest_sum_at_tokens"])


def _judged(config: BaseConfig, length: int) -> tuple[object, ...]:
    assert config.base is not None
    fails = first_negative(config.similarity(), config.base, length)
    place, value = lowest(config.similarity(), config.base, length)
    missing = math.nan if fails is None else float(fails)
    return length, config.base, fails is None, missing, value, place


def _coverage(config: BaseConfig, found: list[Bound]) -> pd.DataFrame:
    """How many pairs complete no, less than one, or at least one turn in the trained length."""
    length = config.trained().trained_len
    bases = {"trained base": config.trained().base}
    if config.base is not None:
        bases["given base"] = config.base
    bases |= {f"first admissible for {b.context}": b.first for b in found if b.first > 1}
    rows = [_turned(config, name, base, length) for name, base in bases.items()]
    return pd.DataFrame(rows)


def _turned(config: BaseConfig, name: str, base: float, length: int) -> dict[str, object]:
    turning = [round(a * config.rotated / 2) for a in config.similarity().exponents]
    made = turns(inverse_frequencies(config.rotated, base), length)[turning]
    return {
        "which": name,
        "base": base,
        "trained_length_tokens": length,
        "pairs_not_turning": config.head_dim // 2 - len(turning),
        "pairs_below_one_turn": int((made < 1).sum()),
        "pairs_at_least_one_turn": int((made >= 1).sum()),
    }


def _critical(config: BaseConfig) -> pd.DataFrame:
    """The critical dimension of the trained geometry and how far larger bases would carry it."""
    trained = config.trained()
    bases = [trained.base] if config.base is None else [trained.base, config.base]
    rows = [
        {
            "trained_base": trained.base,
            "trained_length_tokens": trained.trained_len,
            "rotary_dim": trained.rotary_dim,
            "critical_dimension": rules.critical_dimension(trained),
            "tuned_base": base,
            "supported_context_tokens": rules.extrapolation_limit(trained, base),
        }
        for base in dict.fromkeys(bases)
    ]
    return pd.DataFrame(rows)
