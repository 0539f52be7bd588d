"""What an encoding must know of the model that carries it, and of how that model is trained."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes in features and tokens; `trained_len` is the longest window seen in training."""

    layers: int
    width: int
    heads: int
    head_dim: int
    trained_len: int
