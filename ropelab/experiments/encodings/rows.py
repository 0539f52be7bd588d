"""The rows of the tables: every encoding, and RoPE under every method.

An encoding has to be trained. A method, such as YaRN, changes the trained models of RoPE
when they are tested. Both are ways to longer contexts, so they are compared.
"""

from dataclasses import dataclass

from ropelab.experiments.encodings import TRAINED_ROPE, EncodingsConfig
from ropelab.math.rotary import Pairing
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.composed import compose
from ropelab.models.encoding.registry import EncodingRecord, find_record
from ropelab.models.methods.method import FixedMethod, Scaled
from ropelab.models.tasks.modes import AsTrained, Mode, WithMethod
from ropelab.runs.labels import label_method

# The features that form a pair in the encoding `rope`: one feature of each half of a
# head.
PAIRING_OF_ROPE: Pairing = "half"
# The text between the encoding and the method in the name of a row.
JOINED_BY = " + "


@dataclass(frozen=True)
class Row:
    """An encoding that was trained, and the method under which it is tested."""

    # The name of the encoding that was trained.
    encoding_name: str
    # None: the encoding is tested as it was trained.
    method: FixedMethod | None = None

    @property
    def name(self) -> str:
        """The value of the column `encoding`."""
        return self._add_method(self.encoding_name)

    @property
    def label(self) -> str:
        """The name in figures and answers."""
        return self._add_method(self.record.label)

    @property
    def record(self) -> EncodingRecord:
        """The facts about the encoding that was trained."""
        return find_record(self.encoding_name)

    @property
    def source(self) -> str:
        """The publication of the method, or of the encoding if there is no method."""
        if self.method is None:
            return self.record.source
        if isinstance(self.method, Scaled):
            return self.method.scaling.source
        return self.method.source

    @property
    def claim(self) -> str:
        """The publication's statement about extrapolation by the encoding.

        It is `none` for a method, as no claims about methods are recorded.
        """
        if self.method is None:
            return self.record.claim
        return "none"

    def _add_method(self, text: str) -> str:
        if self.method is None:
            return text
        method = label_method(self.method.label, self.method.factor)
        return f"{text}{JOINED_BY}{method}"

    def mode(self, config: EncodingsConfig) -> Mode:
        """Return the way in which the trained model is tested."""
        if self.method is None:
            return AsTrained()
        return WithMethod(self.method, config.geometry(), PAIRING_OF_ROPE)

    def tested_encoding(self, config: EncodingsConfig) -> Encoding:
        """Return the encoding that the model has in the longest context."""
        if self.method is None:
            return compose(self.encoding_name, config.shape())
        return self.method.encoding(config.geometry(), config.test_len)


def list_rows(config: EncodingsConfig) -> list[Row]:
    """Return a row per encoding, then a row per method."""
    rows = [Row(name) for name in config.encodings]
    for method in config.parsed_methods():
        rows.append(Row(TRAINED_ROPE, method))
    return rows
