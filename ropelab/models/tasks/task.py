"""The base of the tasks that models are evaluated on."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import pandas as pd

from ropelab.models.lm.corpus import CorpusRef
from ropelab.models.lm.evaluation import Readable
from ropelab.models.tasks.modes import Mode
from ropelab.models.tasks.tokens import Text
from ropelab.runs.cell import Advance, Supply

# Rows and tokens in each, pass by pass.
Windows = Sequence[tuple[int, int]]
# Sequences to search with: no training seed, and not the seed 0 of those that are measured.
SEARCH_SEED = 1_000_003


@dataclass(frozen=True, kw_only=True)
class EvaluationTask(ABC):
    """Real text, or something to be found again. Small, and identified by its key."""

    name: str  # as configs spell it; the kind of its cells
    corpus: Text

    @property
    def version(self) -> int:
        """Raised when the values change their meaning."""
        return 1

    @property
    def key(self) -> dict[str, Any]:
        """Everything its values depend on besides the model and its evaluation mode."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        # The kind of the cell has the name already.
        del own["name"], own["corpus"]
        return {**{name: v for name, v in own.items() if v is not None}, **self.text_key}

    @property
    def text_key(self) -> dict[str, Any]:
        """The part of the key that the corpus gives."""
        return self.corpus.key

    @property
    def supplies(self) -> tuple[Supply, ...]:
        """The corpus as an input that can be sent."""
        # A released model is evaluated where its files are, and so is its text.
        return (self.corpus,) if isinstance(self.corpus, CorpusRef) else ()

    @property
    @abstractmethod
    def windows(self) -> Windows:
        """Roughly the passes of a measurement."""

    @property
    def steps(self) -> int:
        """The rows that it reports as progress."""
        return sum(rows for rows, _ in self.windows)

    @property
    def searched(self) -> Windows:
        """The passes of one evaluation of a search."""
        return []

    def check(self) -> None:
        """Raise InputError if its text or its contexts are too short."""
        return

    def inside(self, length: int) -> Self | None:
        """Return an easy task in a context of that length; None if every model does some."""
        return None

    @abstractmethod
    def measure(self, model: Any, mode: Mode, advance: Advance) -> dict[str, pd.DataFrame]:
        """Return values per document or sequence."""

    def search_loss(self, model: Readable, mode: Mode) -> float:
        """Return a loss on material that is not measured, which a search lowers."""
        raise NotImplementedError(f"nothing is searched on {self.name}")
