"""Sizes of models and lengths of training, by name; plain numbers, for a config to read."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The shape of one model and how long it is trained; the width of a head is configured apart.

    Attributes:
        steps: optimizer steps of `tokens_per_step` tokens.
        matrix_rate: the highest learning rate of the matrices.
    """

    layers: int
    width: int
    heads: int
    steps: int
    tokens_per_step: int
    matrix_rate: float


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The two models of an experiment: one that copies and one that reads text."""

    copy: Budget
    text: Budget


PRESETS = {
    # Minutes on two cores: 0.4 and 1.1 million parameters.
    "small": Sizes(
        copy=Budget(
            layers=2, width=128, heads=2, steps=1600, tokens_per_step=4096, matrix_rate=0.02
        ),
        text=Budget(
            layers=3, width=192, heads=1, steps=1200, tokens_per_step=4096, matrix_rate=0.02
        ),
    ),
    # Minutes on one GPU: about 10 million.
    "base": Sizes(
        copy=Budget(
            layers=4, width=384, heads=6, steps=1500, tokens_per_step=32768, matrix_rate=0.02
        ),
        text=Budget(
            layers=6, width=384, heads=6, steps=3000, tokens_per_step=65536, matrix_rate=0.02
        ),
    ),
    # An hour or more on one GPU: about 120 million.
    "large": Sizes(
        copy=Budget(
            layers=6, width=768, heads=12, steps=3000, tokens_per_step=65536, matrix_rate=0.01
        ),
        text=Budget(
            layers=17, width=768, heads=12, steps=6000, tokens_per_step=131072, matrix_rate=0.01
        ),
    ),
}
