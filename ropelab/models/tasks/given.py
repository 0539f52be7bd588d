"""One's own model in the place of a trained one."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from ropelab.models.released.fingerprint import fingerprint_of
from ropelab.models.released.load import ModelDtype
from ropelab.models.released.model import HuggingFaceModel
from ropelab.models.tasks.cells import Question
from ropelab.models.tasks.readers import Reader
from ropelab.runs.cell import Cell, Context, Needs


@dataclass(frozen=True)
class Given:
    """A Hugging Face model, small enough to be part of a cell's description.

    Attributes:
        path: the folder that `save_pretrained` wrote.
        fingerprint: of its files.
        dtype: the number format of its weights and products.
        device, device_map: where it computes; no part of what it computes.
    """

    path: str
    fingerprint: str
    dtype: ModelDtype = "auto"
    device: str = "cpu"
    device_map: str | None = None

    @classmethod
    def at(
        cls,
        path: str,
        dtype: ModelDtype = "auto",
        device: str = "cpu",
        device_map: str | None = None,
    ) -> "Given":
        """The model as its files are now."""
        return cls(path, fingerprint_of(Path(path)), dtype, device, device_map)

    @property
    def key(self) -> dict[str, Any]:
        """What identifies the model and its arithmetic."""
        return {"hf": self.fingerprint, "dtype": self.dtype}

    def model(self) -> HuggingFaceModel:
        """The model, loaded once for all that a process asks it."""
        return _loaded(self)


@lru_cache(maxsize=1)
def _loaded(given: Given) -> HuggingFaceModel:
    return HuggingFaceModel(Path(given.path), given.device, given.dtype, given.device_map)


@dataclass(frozen=True, kw_only=True)
class AskedOfGiven:
    """One question asked of a model given under one reader.

    Attributes:
        labels: what its rows say in front of the values; no part of what is computed.
    """

    subject: Given
    trial: Question
    reader: Reader
    labels: tuple[tuple[str, object], ...]

    @property
    def kind(self) -> str:
        """What is asked."""
        return f"given-{self.trial.name}"

    @property
    def version(self) -> int:
        """Of the question."""
        return self.trial.version

    @property
    def key(self) -> dict[str, Any]:
        """Everything its values depend on."""
        return {
            "model": self.subject.key,
            "trial": self.trial.key,
            "reader": self.reader.key,
        }

    @property
    def title(self) -> str:
        """What is said while it is computed."""
        return f"{self.trial.name}, {next(iter(dict(self.labels).values()))}"

    @property
    def needs(self) -> Needs:
        """Nothing that an engine could plan with: all is computed where the model is loaded."""
        return Needs()

    @property
    def starts(self) -> tuple[Cell, ...]:
        """None: the model is given."""
        return ()

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """The values of the question, per document or sequence."""
        model = self.subject.model()
        with context.progress(self.title, self.trial.steps) as advance:
            return self.trial.measure(model, self.reader, advance)
