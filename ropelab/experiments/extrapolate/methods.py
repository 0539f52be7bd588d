"""A scaling method as the experiment uses it: which encoding a context of some length gets.

A method that depends on the length of the context (dynamic NTK, dynamic YaRN) is always measured
as a prompt of that length would be read: all of its tokens under the plan of its full length. So
every bucket of positions and every copying distance is measured with the plan of the context that
ends there, in a pass of its own where the plans differ.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby

from ropelab.encodings.base import Encoding
from ropelab.encodings.rope import Rope
from ropelab.rope.frequencies import Geometry
from ropelab.rope.rotary import Pairing
from ropelab.rope.scaling import Scaling, parse_method

NEEDS_TWICE = {"ntk"}
"""Good to about half its factor only, so without a factor given twice the factor is tried too."""

PAIRING: Pairing = "interleaved"
"""Which features of a head form a pair; trained weights belong to one of the two layouts."""


@dataclass(frozen=True)
class Method:
    """One scaling method of one trained geometry.

    Attributes:
        scaling: what it does to the frequencies.
        geometry: what the model was trained with.
    """

    scaling: Scaling
    geometry: Geometry

    @property
    def factor(self) -> float:
        """How far it is meant to reach, 1 where it has no such knob."""
        return float(getattr(self.scaling, "factor", 1.0))

    @property
    def name(self) -> str:
        """As it would be typed, without the factor, which tables hold in a column of its own."""
        if any(knob.name == "factor" for knob in fields(self.scaling)):
            return replace(self.scaling, factor=1.0).label  # type: ignore[call-arg]
        return self.scaling.label

    def encoding(self, length: int) -> Encoding:
        """The encoding with which a context of `length` tokens is read."""
        return Rope(self.scaling.plan(self.geometry, length), PAIRING)

    def signature(self, length: int) -> Hashable:
        """Equal for two lengths exactly when their contexts are read with the same encoding."""
        plan = self.scaling.plan(self.geometry, length)
        return (*plan.inv_freq.tolist(), plan.attention_factor)

    def passes(self, lengths: Sequence[int]) -> Iterator[tuple[Encoding, list[int]]]:
        """Rising lengths in groups that share an encoding: one pass over the longest serves all."""
        for _, group in groupby(lengths, self.signature):
            ends = list(group)
            yield self.encoding(ends[-1]), ends


def parse_methods(texts: Iterable[str], geometry: Geometry, test_len: int) -> tuple[Method, ...]:
    """Read methods as typed; the factor defaults to test_len / trained length.

    Raises:
        InputError: an unknown method or knob, or a value it does not allow.
    """
    reach = test_len / geometry.trained_len
    methods: dict[tuple[str, float], Method] = {}
    for text in texts:
        for factor in (reach, 2 * reach):
            method = Method(parse_method(text, factor), geometry)
            method.signature(test_len)
            if factor == reach or method.scaling.name in NEEDS_TWICE:
                methods.setdefault((method.name, method.factor), method)
    return tuple(methods.values())
