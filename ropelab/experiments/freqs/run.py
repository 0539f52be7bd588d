"""Compute the tables of the freqs experiment."""

import math
from dataclasses import asdict

import numpy as np
import pandas as pd
from jaxtyping import Float

from ropelab.experiments.freqs.config import FreqsConfig
from ropelab.experiments.freqs.plan import Plan, plan
from ropelab.math.frequencies import Geometry, rotations, wavelengths
from ropelab.math.models import MODELS
from ropelab.math.scaling import RopePlan, kept_weights, roles
from ropelab.runs.cell import Context


def run(config: FreqsConfig, context: Context) -> dict[str, pd.DataFrame]:
    """A row per pair, a row for the method, and the models known by name."""
    planned = plan(config)
    return {
        "pairs": _all_pairs(planned),
        "scaling": _scaling(planned),
        "models": _models(),
    }


def _all_pairs(planned: Plan) -> pd.DataFrame:
    """The pairs of every part, counted through, with the `axis` that each reads, if any."""
    tables = [_pairs(*part, planned.test_len) for part in planned.parts]
    pairs = pd.concat(tables, ignore_index=True)
    pairs["pair"] = pairs.index
    return pairs.assign(axis=planned.axes) if planned.axes else pairs


def _pairs(geometry: Geometry, scaled: RopePlan, test_len: int) -> pd.DataFrame:
    """A row per pair.

    ``weight``: share of the original frequency in the blend; missing where nothing is blended.
    ``trained_phase_rad``, ``test_phase_rad``: the angle turned over the length.
    ``unseen``: "new angles" where the pair had not completed a turn in training and now goes beyond
    the largest trained angle; "none" where every angle was seen, "never turns" for a dropped pair.
    """
    original, inv_freq = geometry.inv_freq, scaled.inv_freq
    trained_phase = original * geometry.trained_len
    phase = inv_freq * test_len
    return pd.DataFrame(
        {
            "pair": range(geometry.pairs),
            "inv_freq": original,
            "wavelength_tokens": wavelengths(original),
            "trained_turns": rotations(original, geometry.trained_len),
            "test_turns": rotations(original, test_len),
            "role": roles(scaled, geometry),
            "weight": kept_weights(scaled, geometry),
            "scaled_inv_freq": inv_freq,
            "scaled_wavelength_tokens": wavelengths(inv_freq),
            "divided_by": _quotient(original, inv_freq),
            "scaled_test_turns": rotations(inv_freq, test_len),
            "trained_phase_rad": trained_phase,
            "test_phase_rad": phase,
            "unseen": _unseen(trained_phase, phase),
        }
    ).replace(math.inf, math.nan)


def _unseen(trained: Float[np.ndarray, " pairs"], phase: Float[np.ndarray, " pairs"]) -> list[str]:
    """Which pairs meet angles at the tested length that training never showed."""
    return [_angles_of(*pair) for pair in zip(trained.tolist(), phase.tolist(), strict=True)]


def _angles_of(trained: float, phase: float) -> str:
    if phase == 0:
        return "never turns"
    all_seen = trained >= 2 * math.pi or phase <= trained * (1 + 1e-12)
    return "none" if all_seen else "new angles"


def _quotient(
    original: Float[np.ndarray, " pairs"], scaled: Float[np.ndarray, " pairs"]
) -> Float[np.ndarray, " pairs"]:
    """Missing for a pair that no longer turns."""
    return np.divide(original, scaled, where=scaled > 0, out=np.full_like(original, math.nan))


def _scaling(planned: Plan) -> pd.DataFrame:
    """One row: the method, how far it stretches here, and what it does to every logit.

    ``ramp_low``, ``ramp_high``: first and last pair of the blend, missing where there is none; of
    the first axis where each has frequencies of its own.
    ``softmax_multiplier``: DeepSeek's factor on the whole score, missing elsewhere.
    """
    scaling, scaled = planned.scaling, planned.scaled
    low, high = scaling.ramp_range(planned.geometry) or (math.nan, math.nan)
    softmax = scaling.softmax_factor
    row = {
        "method": scaling.label,
        "factor": getattr(scaling, "factor", math.nan),
        "attention_factor": scaled.attention_factor,
        "logit_multiplier": scaled.logit_multiplier,
        "ramp_low": low,
        "ramp_high": high,
        "stretch": scaled.stretch,
        "train_len_tokens": planned.geometry.trained_len,
        "test_len_tokens": planned.test_len,
        "softmax_multiplier": math.nan if softmax is None else softmax,
        "source": scaling.source,
    }
    return pd.DataFrame([row])


def _models() -> pd.DataFrame:
    """The models that --model knows, and where their numbers come from."""
    rows = [
        {
            **asdict(model),
            "rotary_dim": model.rotated,
            "train_len_tokens": model.trained_len,
            "context_tokens": model.promised,
        }
        for model in MODELS.values()
    ]
    order = ["name", "base", "head_dim", "rotary_dim", "train_len_tokens", "context_tokens"]
    return pd.DataFrame(rows)[[*order, "method", "note", "source"]]
