"""Tables of a config without the lab, and what tasks are tried on."""

from types import ModuleType
from typing import Any

import pandas as pd

from ropelab.models.lm.corpus import CorpusRef
from ropelab.runs.cell import Context, Values, list_with_prerequisites


def made(body: ModuleType, config: Any, context: Context) -> dict[str, pd.DataFrame]:
    """The tables of an experiment's body: all cells first, each behind those it starts
    from.
    """
    for cell in list_with_prerequisites(body.cells(config)).values():
        context.compute(cell)
    return dict(body.tables(config, Values(context)))


def corpus_of(path: str, piece: int = 257) -> CorpusRef:
    return CorpusRef.of(path, piece)


def nothing(*_: object, **__: object) -> None:
    """Report no progress."""
