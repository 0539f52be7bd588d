"""The rows of the tables: every encoding, and the models of RoPE under methods.

A method changes a trained model when it is tested, so that it is a rival of a design
that has to be trained: both are asked on the same models of RoPE.
"""

from dataclasses import dataclass

from ropelab.experiments.encodings import TRAINED_ROPE, EncodingsConfig
from ropelab.math.rotary import Pairing
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.composed import compose
from ropelab.models.encoding.registry import EncodingRecord, record_of
from ropelab.models.methods.method import FixedMethod, Scaled
from ropelab.models.tasks.modes import AsTrained, Mode, WithMethod
from ropelab.runs.labels import method_label

# The layout that the encoding `rope` is trained with.
PAIRING_OF_ROPE: Pairing = "half"
# The text between the encoding and the method in the name of a row.
JOINED_BY = " + "


@dataclass(frozen=True)
class Row:
    """An encoding that was trained, and the method under which it is tested."""

    trained: str
    method: FixedMethod | None = None

    @property
    def name(self) -> str:
        """What stands in the column `encoding`."""
        return self._add_method(self.trained)

    @property
    def label(self) -> str:
        """The name in figures and answers."""
        return self._add_method(self.record.label)

    @property
    def record(self) -> EncodingRecord:
        return record_of(self.trained)

    @property
    def source(self) -> str:
        """Who published what is tested."""
        if self.method is None:
            return self.record.source
        if isinstance(self.method, Scaled):
            return self.method.scaling.source
        return self.method.source

    @property
    def claim(self) -> str:
        """What was published about extrapolation; nothing is noted of methods."""
        if self.method is None:
            return self.record.claim
        return "none"

    def _add_method(self, text: str) -> str:
        if self.method is None:
            return text
        return f"{text}{JOINED_BY}{method_label(self.method.label, self.method.factor)}"

    def mode(self, config: EncodingsConfig) -> Mode:
        """Return the way in which the trained model is tested."""
        if self.method is None:
            return AsTrained()
        return WithMethod(self.method, config.geometry(), PAIRING_OF_ROPE)

    def tested_encoding(self, config: EncodingsConfig) -> Encoding:
        """Return the encoding with which the model reads the longest context."""
        if self.method is None:
            return compose(self.trained, config.shape())
        return self.method.encoding(config.geometry(), config.test_len)


def list_rows(config: EncodingsConfig) -> list[Row]:
    """Return a row per encoding, then a row per method."""
    rows = [Row(name) for name in config.encodings]
    for method in config.parsed_methods():
        rows.append(Row(TRAINED_ROPE, method))
    return rows
