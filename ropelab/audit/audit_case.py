"""A configuration as the runtimes read it, and how far their rotations are apart.

One of the readings is the reference, which all others are compared with: that of
transformers 5 if it reads the file.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelab.readers.document import Document
from ropelab.readers.extra_rotations import ExtraRotation, read_rotation
from ropelab.readers.registry import Reading
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import MAXIMUM, language_part, rope_block
from ropelab.runs.rows import group_pairs

# Radians by which a phase may be off before it counts, between runtimes and within a
# format.
TOLERANCE = 0.01
# Radians per token; slower pairs do not rotate, and their wavelengths are beyond all
# numbers.
SLOWEST = 1e-300
# The rotation of the queries and keys of attention; no other was compared with what a
# runtime computed.
MAIN = "main"


@dataclass(frozen=True)
class AuditCase:
    """A document as the runtimes read it, and the question about it."""

    document: Document
    readings: Sequence[Reading]
    reference: Reading
    length: int  # tokens at which the runtimes are compared
    asked: int | None  # the same if the user gave it
    asking: str  # the runtime whose own flag gave it, all if empty

    @property
    def spec(self) -> RopeSpec:
        assert self.reference.main is not None
        return self.reference.main

    @property
    def maximum(self) -> Any:
        _, text = language_part(self.document.config)
        return text.get(MAXIMUM)

    @property
    def block(self) -> Mapping[str, Any]:
        _, text = language_part(self.document.config)
        _, block = rope_block(text)
        return block

    @property
    def kind(self) -> Any:
        return self.block.get("rope_type") or self.block.get("type")

    @property
    def specs(self) -> list[tuple[str, RopeSpec]]:
        """The runtimes that read the file by name, with their main specs."""
        return [(r.runtime.name, r.main) for r in self.readings if r.main is not None]

    def group_problems(self, outcome: str) -> dict[str, list[str]]:
        """Return the runtimes of an outcome other than `read`, by the problem."""
        pairs = []
        for reading in self.readings:
            if reading.outcome == outcome:
                pairs.append((reading.problem, reading.runtime.name))
        return group_pairs(pairs)

    def group(self, value: Callable[[RopeSpec], Any]) -> dict[Any, list[str]]:
        """Return the runtimes that read the file, by something of their spec."""
        return group_pairs((value(spec), name) for name, spec in self.specs)

    def compare(self, spec: RopeSpec) -> tuple[str, float | None, int | None]:
        """Return method and distance from the reference; none if base or width
        differ.
        """
        if spec.base != self.spec.base or spec.rotary_dim != self.spec.rotary_dim:
            return "", None, None
        ratio, position = measure_distance(spec, self.spec, self.length)
        return spec.method, ratio, position

    def list_layers(self, reading: Reading) -> Iterator[tuple[str, RopeSpec, RopeSpec]]:
        """Yield a runtime's layer types: name, spec, and that of the reference."""
        for layer, spec in reading.layers.items():
            yield layer, spec, self.reference.layers.get(layer) or self.spec

    def read_rotation(self, reading: Reading, name: str) -> ExtraRotation:
        """Return a rotation beside that of attention as a runtime computes it."""
        _, text = language_part(self.document.config)
        return read_rotation(reading.runtime.name, name, text, reading.layers)


def measure_distance(
    spec: RopeSpec, other: RopeSpec, length: int
) -> tuple[float | None, int | None]:
    """Return the largest ratio of frequencies (None: no pairs in common), first
    position off.
    """
    ours = spec.inv_freq(length)
    theirs = other.inv_freq(length)
    if ours.shape != theirs.shape:
        return None, 1
    # Another order of operations changes the last places, which means nothing.
    if np.allclose(ours, theirs, rtol=1e-9, atol=0):
        return 1.0, None

    position = math.ceil(TOLERANCE / float(np.abs(ours - theirs).max()))
    rotating = (ours > SLOWEST) & (theirs > SLOWEST)
    logs = np.abs(np.log(ours[rotating] / theirs[rotating]))
    ratio = float(np.exp(logs.max())) if logs.size else None
    return ratio, position


def agrees(ours: RopeSpec, theirs: RopeSpec) -> bool:
    """Return True for the same frequencies, near and far, and the same factor on the
    logits.
    """
    # Inside the trained length and far beyond it; other widths are off at any length.
    for length in (64, 2 * max(theirs.trained_len, theirs.length)):
        if measure_distance(ours, theirs, length)[1] is not None:
            return False
    return math.isclose(ours.logit_multiplier, theirs.logit_multiplier, rel_tol=1e-9)
