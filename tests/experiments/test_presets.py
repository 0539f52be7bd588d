"""The models of the presets of the extrapolation lab: their sizes, and that they
learn.
"""

import math
from dataclasses import replace

import pytest
import torch

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.experiments.extrapolate.rows import make_trainings
from ropelab.models.lm.evaluation import compute_token_losses
from ropelab.models.lm.trained import Training
from ropelab.models.lm.training import make_optimizers, make_step
from ropelab.runs.cell import Context
from ropelab.runs.config import build


def training(corpora: tuple[str, str], preset: str) -> Training:
    """What the lab would train."""
    small = {"train_len": 64, "test_len": 256, "documents": 3, "device": "cpu"}
    config = build(ExtrapolateConfig, {**small, "preset": preset, "corpus": corpora[0]})
    (described,) = make_trainings(config, config.geometry())
    return described


@pytest.mark.parametrize(
    ("preset", "millions"),
    [
        ("small", 1.13),
        ("base", 10.8),
        # Their weights take half a gigabyte.
        pytest.param("large", 38.0, marks=pytest.mark.slow),
        pytest.param("xl", 121, marks=pytest.mark.slow),
    ],
)
def test_the_models_of_a_preset_have_its_size_and_read(
    preset: str, millions: float, corpora: tuple[str, str]
) -> None:
    described = training(corpora, preset)
    model = described.make_untrained(Context())
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(
        millions, rel=0.01
    )
    tokens = torch.arange(65)[None]
    assert compute_token_losses(model, tokens).mean() == pytest.approx(
        math.log(256), rel=1e-3
    )


@pytest.mark.slow
def test_a_larger_preset_learns(corpora: tuple[str, str]) -> None:
    described = training(corpora, "base")
    model = described.make_untrained(Context())
    recipe = replace(
        described.recipe, steps=3, window=64, tokens_per_step=256, warmup=1
    )
    optimizers = make_optimizers(model, recipe, "float32")
    losses = [
        make_step(model, optimizers, described.batch, recipe, 0) for _ in range(3)
    ]
    assert losses[2] < losses[0]
