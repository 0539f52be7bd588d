"""One's own model in the place of a trained one."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from ropelab.context import Context
from ropelab.hf.fingerprint import fingerprint_of
from ropelab.hf.model import HuggingFaceModel


@dataclass(frozen=True)
class Given:
    """A Hugging Face model with the face of a training, so that it is measured like one.

    Attributes:
        path: the folder that `save_pretrained` wrote.
        fingerprint: of its files.
        seed: nothing was drawn, but tables have such a column.
    """

    path: str
    fingerprint: str
    seed: int = 0

    @classmethod
    def at(cls, path: str) -> "Given":
        """The model as its files are now."""
        return cls(path, fingerprint_of(Path(path)))

    @property
    def key(self) -> dict[str, Any]:
        """What identifies the model."""
        return {"hf": self.fingerprint}

    def model(self, context: Context, device: str = "cpu") -> HuggingFaceModel:
        """The model, loaded once for all that a process asks it."""
        return _loaded(self, device)


@lru_cache(maxsize=1)
def _loaded(given: Given, device: str) -> HuggingFaceModel:
    return HuggingFaceModel(Path(given.path), device)
