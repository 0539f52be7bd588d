"""A factor on scores that came with a checkpoint's YaRN: it goes when its frequencies go."""

import math
import sys
from typing import Any

from torch import nn

from ropelab.models.released.facts import rope_parameters


class SoftmaxFactor:
    """A factor on whole scores that DeepSeek's code takes from the parameters of YaRN."""

    def __init__(self, model: nn.Module, text: Any) -> None:
        self.factor = softmax_factor(rope_parameters(text))
        modules: list[Any] = [module for module in model.modules() if _has_factor(module)]
        self.shipped = [(module, float(module.scaling)) for module in modules]

    def exchange(self, factor: float) -> None:
        """Another factor in the place of the checkpoint's."""
        for module, scaling in self.shipped:
            module.scaling = scaling / self.factor * factor

    def restore(self) -> None:
        """The factor of the checkpoint."""
        for module, scaling in self.shipped:
            module.scaling = scaling


def softmax_factor(rope: dict[str, Any]) -> float:
    """What DeepSeek's code multiplies scores with (mscale_all_dim of YaRN), 1 without it."""
    share, factor = rope.get("mscale_all_dim"), rope.get("factor")
    if rope.get("rope_type", "default") == "default" or not share or not factor or factor <= 1:
        return 1.0
    return float(0.1 * share * math.log(factor) + 1) ** 2


def _has_factor(module: Any) -> bool:
    """Whether the code of a module's architecture multiplies scores for YaRN."""
    code = sys.modules[type(module).__module__]
    return hasattr(code, "yarn_get_mscale") and isinstance(getattr(module, "scaling", None), float)
