"""An encoding whose layers have parameters of their own."""

from collections.abc import Iterable

from torch import nn

from ropelab.models.encoding.base import Encoding


class PerLayer(Encoding):
    """Hands out the `layers` one by one; only for encodings that leave the embeddings alone."""

    def __init__(self, layers: Iterable[Encoding]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.fused = all(self.for_layer(i).fused for i in range(len(self.layers)))

    def for_layer(self, layer: int) -> Encoding:
        mine = self.layers[layer]
        assert isinstance(mine, Encoding)
        return mine
