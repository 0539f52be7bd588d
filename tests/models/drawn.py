"""Models whose weights are all drawn, so that every layer does something."""

import torch

from ropelab.models.lm.model import LanguageModel


def drawn_weights(model: LanguageModel) -> LanguageModel:
    """Draw every weight, the encoding's included; the same ones every time."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.3, generator=generator)
    return model.eval()
