"""Sizes of models and lengths of training, by name; plain numbers, for a config to read."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Preset:
    """The shape of the model and how long it is trained; the width of a head is configured apart.

    Attributes:
        steps: optimizer steps of `tokens_per_step` tokens.
        matrix_rate: the highest learning rate of the matrices.
        other_rate: that of everything else.
    """

    layers: int
    width: int
    heads: int
    steps: int
    tokens_per_step: int
    matrix_rate: float = 0.02
    other_rate: float = 6e-3


PRESETS = {
    # Minutes on one core: 1.1 million parameters.
    "small": Preset(layers=3, width=192, heads=1, steps=1200, tokens_per_step=4096),
    # Minutes on one GPU: about 10 million.
    "base": Preset(layers=6, width=384, heads=6, steps=3000, tokens_per_step=65536),
    # An hour or more on one GPU: about 120 million.
    "large": Preset(
        layers=17,
        width=768,
        heads=12,
        steps=6000,
        tokens_per_step=131072,
        matrix_rate=0.01,
        other_rate=3e-3,
    ),
}
