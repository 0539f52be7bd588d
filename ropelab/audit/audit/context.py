"""How far a spec reaches: turns, critical pair, bounds, and what its factor costs."""

import math
from typing import Any

import numpy as np

from ropelab.audit.runtimes.registry import Reading
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.math.bounds.rules import one_rotation_base, su_asymptote


def rows(reference: Reading, length: int) -> list[dict[str, Any]]:
    """A row per layer type of the reference."""
    return [{"layers": layer, **row(spec, length)} for layer, spec in reference.layers.items()]


def row(spec: RopeSpec, length: int) -> dict[str, Any]:
    """Turns of the slowest pair, the first pair without a whole turn, bounds on the base."""
    unscaled = np.asarray(spec.geometry.inv_freq, dtype=np.float64)
    scaled = spec.inv_freq(length)
    turning = scaled[scaled > 0]
    unfinished = np.flatnonzero(unscaled * spec.trained_len < 2 * math.pi)
    return {
        "trained_tokens": spec.trained_len,
        "claimed_tokens": spec.claimed_len,
        "length_tokens": length,
        "slowest_turns": float(turning.min() * length / (2 * math.pi)) if turning.size else 0.0,
        "critical_pair": int(unfinished[0]) if unfinished.size else None,
        "smallest_factor": max(1.0, length / spec.trained_len),
        "base_asymptotic_bound": su_asymptote(length),
        "base_one_turn": one_rotation_base(spec.rotary_dim, length),
        "short_logit_multiplier": spec.logit_multiplier,
    }
