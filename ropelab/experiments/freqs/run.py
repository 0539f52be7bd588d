"""Compute the tables of the freqs experiment."""

import math
from dataclasses import asdict

import numpy as np
import pandas as pd
from jaxtyping import Float

from ropelab.context import Context
from ropelab.experiments.freqs.config import FreqsConfig
from ropelab.rope.frequencies import Geometry, turns, wavelengths
from ropelab.rope.models import MODELS
from ropelab.rope.scaling import RopePlan, Scaling, kept_weights, roles


def run(config: FreqsConfig, context: Context) -> dict[str, pd.DataFrame]:
    """A row per pair, a row for the method, and the models known by name."""
    geometry, scaling = config.geometry(), config.scaling()
    plan = scaling.plan(geometry, config.target)
    return {
        "pairs": _pairs(geometry, plan, config.target),
        "scaling": _scaling(geometry, scaling, plan, config.target),
        "models": _models(),
    }


def _pairs(geometry: Geometry, plan: RopePlan, target: int) -> pd.DataFrame:
    """A row per pair.

    ``weight``: share of the original frequency in the blend; missing where nothing is blended.
    ``trained_phase_rad``, ``phase_at_target_rad``: the angle turned over the length.
    ``unseen``: "new angles" where the pair had not completed a turn in training and now goes beyond
    the largest trained angle; "none" where every angle was seen, "never turns" for a dropped pair.
    """
    original, scaled = geometry.inv_freq, plan.inv_freq
    trained_phase = original * geometry.trained_len
    phase = scaled * target
    return pd.DataFrame(
        {
            "pair": range(geometry.pairs),
            "inv_freq": original,
            "wavelength_tokens": wavelengths(original),
            "trained_turns": turns(original, geometry.trained_len),
            "target_turns": turns(original, target),
            "role": roles(plan, geometry),
            "weight": kept_weights(plan, geometry),
            "scaled_inv_freq": scaled,
            "scaled_wavelength_tokens": wavelengths(scaled),
            "divided_by": np.divide(
                original, scaled, where=scaled > 0, out=np.full_like(original, math.nan)
            ),
            "scaled_target_turns": turns(scaled, target),
            "trained_phase_rad": trained_phase,
            "phase_at_target_rad": phase,
            "unseen": _unseen(trained_phase, phase),
        }
    ).replace(math.inf, math.nan)


def _unseen(trained: Float[np.ndarray, "pairs"], phase: Float[np.ndarray, "pairs"]) -> list[str]:
    """Which pairs meet angles at the target length that training never showed."""
    return [_angles_of(*pair) for pair in zip(trained.tolist(), phase.tolist(), strict=True)]


def _angles_of(trained: float, phase: float) -> str:
    if phase == 0:
        return "never turns"
    all_seen = trained >= 2 * math.pi or phase <= trained * (1 + 1e-12)
    return "none" if all_seen else "new angles"


def _scaling(geometry: Geometry, scaling: Scaling, plan: RopePlan, target: int) -> pd.DataFrame:
    """One row: the method, how far it stretches here, and what it does to every logit.

    ``ramp_low``, ``ramp_high``: first and last pair of the blend, missing where there is none.
    ``softmax_multiplier``: DeepSeek's factor on the whole score, missing elsewhere.
    """
    low, high = scaling.ramp_range(geometry) or (math.nan, math.nan)
    softmax = scaling.softmax_multiplier
    row = {
        "method": scaling.label,
        "factor": getattr(scaling, "factor", math.nan),
        "attention_factor": plan.attention_factor,
        "logit_multiplier": plan.logit_multiplier,
        "ramp_low": low,
        "ramp_high": high,
        "stretch_at_target": plan.stretch,
        "trained_length_tokens": geometry.trained_len,
        "target_length_tokens": target,
        "softmax_multiplier": math.nan if softmax is None else softmax,
        "source": scaling.source,
    }
    return pd.DataFrame([row])


def _models() -> pd.DataFrame:
    """The models that --model knows, and where their numbers come from."""
    rows = [
        {**asdict(model), "rotary_dim": model.rotated, "context_len": model.promised}
        for model in MODELS.values()
    ]
    names = {"trained_len": "trained_length_tokens", "context_len": "context_length_tokens"}
    order = ["name", "base", "head_dim", "rotary_dim", "trained_len", "context_len", "method"]
    return pd.DataFrame(rows)[[*order, "note", "source"]].rename(columns=names)
