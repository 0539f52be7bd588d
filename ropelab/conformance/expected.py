"""The rotation that a configuration asks for, which a code is compared with."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ropelab.conformance.rotations import (
    Pairs,
    Positions,
    Rotated,
    Shape,
    Table,
    Vectors,
    pair_features,
)
from ropelab.math.frequencies import rotations
from ropelab.math.models import Layout
from ropelab.math.numerics.budget import Budget, Kind
from ropelab.math.numerics.chain import Spectrum
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.rotary import Pairing
from ropelab.math.scaling import Llama3
from ropelab.readers import registry
from ropelab.readers.document import load
from ropelab.readers.indexer import read_indexer
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import language_part, rope_block
from ropelab.runs.errors import InputError, known
from ropelab.runs.files import table_beside

USUAL = table_beside(__file__, "explained")
AXES_NOT_JUDGED = "axes of positions were not judged"
# Their classes give each axis pairs that follow one another.
RUNS_OF_AXES = {"qwen2_vl", "qwen2_5_vl"}
INDEXER = "indexer"
PROBES = tuple(USUAL["positions"])  # at which errors show


@dataclass(frozen=True)
class Rotation:
    """A rotary code in float64, right or with one mistake."""

    inv_freq: Pairs
    factor: float
    pairing: Pairing
    start: int = 0  # first feature of the rotated block
    backwards: bool = False  # the sine has the other sign, where vectors are rotated
    shift: int = 0  # of positions
    angle_format: str = "float64"
    swapped: bool = False  # cos and sin
    shape: Shape = field(default=lambda c, s: (c, -s, s, c))

    def tables(self, positions: Positions) -> tuple[Table, Table]:
        """Return cos and sin, the factor included."""
        angles = (positions + self.shift).astype(np.float64)[:, None] * self.inv_freq
        angles = round_to(angles, FORMATS[self.angle_format])
        cos = self.factor * np.cos(angles)
        sin = self.factor * np.sin(angles)
        return (sin, cos) if self.swapped else (cos, sin)

    def apply(self, vectors: Vectors, positions: Positions) -> Rotated:
        """Return the vectors rotated at each position; each position may have its
        own.
        """
        first, second = pair_features(self.pairing, 2 * len(self.inv_freq), self.start)
        if self.backwards:
            first, second = second, first
        a, b, c, d = (part[:, None] for part in self.shape(*self.tables(positions)))
        result = np.broadcast_to(vectors, (len(positions), *vectors.shape[-2:])).copy()
        x = vectors[..., first]
        y = vectors[..., second]
        result[:, :, first], result[:, :, second] = a * x + b * y, c * x + d * y
        return result


@dataclass(frozen=True)
class Expected:
    """The rotation of one layer type while ``length`` tokens are in the context."""

    spec: RopeSpec
    length: int
    others: Mapping[str, RopeSpec]  # as other runtimes read the same file
    # all types in this file
    layers: Mapping[str, RopeSpec] = field(default_factory=dict)
    note: str = ""  # on what is not judged
    # of several axes of positions, how many pairs each has, and in which order
    sections: tuple[int, ...] = ()
    axis_layout: Layout = "mrope"

    @property
    def inv_freq(self) -> Pairs:
        return self.spec.inv_freq(self.length)

    @property
    def rotation(self) -> Rotation:
        spec = self.spec
        return Rotation(
            self.inv_freq,
            spec.attention_factor,
            spec.pairing,
            start=spec.place,
            backwards=spec.backwards,
        )

    def scale(self, ladder: Pairs) -> Pairs:
        """Return what the scaling makes of these frequencies instead of the plain
        ones.
        """
        spec = self.spec
        method = spec.scaling
        # Its ramp follows the frequency, those of others the pair.
        if isinstance(method, Llama3):
            ends = (method.low_freq_factor, method.high_freq_factor)
            turns = rotations(ladder, spec.trained_len)
            return ladder * np.interp(turns, ends, (1 / method.factor, 1))
        return ladder * self.inv_freq / spec.geometry.inv_freq

    def budget(self, kind: Kind = "float32") -> Budget:
        """Return what an honest code may lose."""
        spectrum = Spectrum(self.inv_freq, self.spec.base, self.spec.rotary_dim)
        return Budget(kind, spectrum, self.spec.attention_factor)


def choose_positions(expected: Expected) -> np.ndarray:
    """Return the positions to look at: the usual ones, and the ends of both lengths."""
    trained = expected.spec.trained_len
    length = expected.length
    ends = (trained - 1, trained, trained + 1, length - 1)
    places = sorted({p for p in (*PROBES, *ends) if 0 <= p < length})
    if 1 not in places:
        raise InputError(f"a length of {length} leaves no position to look at")
    return np.array(places, dtype=np.int64)


def expect_file(source: str, length: int | None) -> dict[str, Expected]:
    document = load(source)
    if document.kind == "gguf":
        raise InputError(f"{source}: a config.json is wanted, not a GGUF file")
    return expect_config(source, document.config, length)


def expect_config(
    name: str,
    config: Mapping[str, Any],
    length: int | None,
) -> dict[str, Expected]:
    """Return the rotation that the reference computes for each layer type."""
    is_whole = isinstance(length, int | np.integer)
    if length is not None and not (is_whole and 2 <= length <= 2**40):
        raise InputError(
            f"length must be a whole number of tokens from 2 to 2^40, not {length!r}"
        )

    readings = {n: registry.read(r, config) for n, r in registry.RUNTIMES.items()}
    others = {name: reading.main for name, reading in readings.items() if reading.main}
    layers = readings[registry.REFERENCE].layers
    if not layers:
        layers = {"all": registry.reference(name, config)}

    text = language_part(config)[1]
    block = rope_block(text)[1]
    note = AXES_NOT_JUDGED if block.get("mrope_section") else ""
    expected = {}
    for kind, spec in layers.items():
        one = Expected(spec, length or spec.length, others, layers, note)
        if block.get("mrope_section"):
            one = add_axes(one, text, block)
        expected[kind] = one
    if indexer := read_indexer(text, layers):
        # No runtime is known to be compared with.
        expected[INDEXER] = Expected(
            indexer, length or indexer.length, {}, {INDEXER: indexer}
        )
    return expected


def add_axes(
    expected: Expected,
    text: Mapping[str, Any],
    block: Mapping[str, Any],
) -> Expected:
    """Add which axis of positions each pair reads, where that is known."""
    sections = block["mrope_section"]
    if not isinstance(sections, list):
        return expected
    if not all(type(size) is int for size in sections):
        return expected
    if sum(sections) != len(expected.inv_freq):
        return expected
    if block.get("mrope_interleaved") is True:
        return replace(
            expected, sections=tuple(sections), axis_layout="mrope_interleaved"
        )
    if str(text.get("model_type")).removesuffix("_text") in RUNS_OF_AXES:
        return replace(expected, sections=tuple(sections))
    return expected


def find_main(layers: Mapping[str, Expected]) -> str:
    """Return the layer type that sees the whole context."""
    return "full_attention" if "full_attention" in layers else next(iter(layers))


def choose_layer(layers: Mapping[str, Expected], name: str = "") -> Expected:
    """Return the layer type of a name, by default the one that sees everything."""
    if name:
        return layers[known("layer type", name, layers)]
    return layers[find_main(layers)]
