"""What can be named: models, scaling methods, number formats and presets, each as a table."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import pandas as pd

from ropelab.errors import unknown_name


def models() -> pd.DataFrame:
    """The models known by name: base, widths, lengths, scaling method and where it is written."""
    from ropelab.rope.models import MODELS

    return pd.DataFrame(
        {
            "name": model.name,
            "base": model.base,
            "head_dim": model.head_dim,
            "rotary_dim": model.rotated,
            "trained_len_tokens": model.trained_len,
            "context_len_tokens": model.promised,
            "method": model.method,
            "source": model.source,
        }
        for model in MODELS.values()
    )


def methods() -> pd.DataFrame:
    """The scaling methods with their knobs, as they would be typed, and sources."""
    from ropelab.rope.scaling import METHODS

    return pd.DataFrame(
        {
            "name": name,
            "knobs": ", ".join(knob.name for knob in fields(kind)),
            "what": _first_line(kind.__doc__),
            "source": kind.source,
        }
        for name, kind in METHODS.items()
    )


def formats() -> pd.DataFrame:
    """The number formats with their precision and range."""
    from ropelab.numerics.formats import FORMATS

    return pd.DataFrame(
        {
            "name": one.name,
            "bits": one.bits,
            "significant_bits": one.precision,
            "epsilon": one.epsilon,
            "largest": one.largest,
            "exact_integers_up_to": one.exact_integers,
        }
        for one in FORMATS.values()
    )


def presets() -> pd.DataFrame:
    """The implementations whose casts are known, and the code or thread that shows them."""
    from ropelab.numerics.presets import PRESETS

    return pd.DataFrame(
        {"name": one.name, "what": one.models, "casts": one.plan.label, "source": one.source}
        for one in PRESETS.values()
    )


LISTS: Mapping[str, Callable[[], pd.DataFrame]] = {
    "methods": methods,
    "models": models,
    "formats": formats,
    "presets": presets,
}


def listed(what: str) -> pd.DataFrame:
    """The list of that name; InputError with the nearest one if there is none."""
    if what not in LISTS:
        raise unknown_name("list", what, tuple(LISTS))
    return LISTS[what]()


def _first_line(text: Any) -> str:
    return str(text or "").strip().split("\n")[0]
