"""The answer in words and the short table for the terminal, both from the tables alone."""

from collections.abc import Mapping

import pandas as pd

Tables = Mapping[str, pd.DataFrame]


def answer(tables: Tables) -> str:
    """How far each method copies, and which reading of the last positions of text is best."""
    return " ".join(filter(None, [_copying(tables), _text(tables)]))


def label(method: str, factor: float) -> str:
    """A row's name: the method, and its factor where it has one."""
    return method if factor == 1 else f"{method} ×{factor:g}"
