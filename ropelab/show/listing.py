"""The models that can be named, as a table."""

import pandas as pd

from ropelab.math.models import MODELS


def models() -> pd.DataFrame:
    """The models known by name: base, widths, lengths, scaling method and where it is written."""
    return pd.DataFrame(
        {
            "name": model.name,
            "base": model.base,
            "head_dim": model.head_dim,
            "rotary_dim": model.rotated,
            "train_len_tokens": model.trained_len,
            "context_len_tokens": model.promised,
            "method": model.method,
            "source": model.source,
        }
        for model in MODELS.values()
    )
