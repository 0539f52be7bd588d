"""The rotation that a configuration asks for, which a code is compared with.

A model may have several: one for each type of its layers, for an indexer, for an encoder
of images. Each is an `Expected` under the name of its layer type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ropelab.conformance.blocks import Shape
from ropelab.conformance.observation import Positions, Rotated, Table, Vectors
from ropelab.conformance.pairs import pair_features
from ropelab.conformance.usual import USUAL
from ropelab.math.frequencies import Frequencies, rotations
from ropelab.math.numerics.budget import Budget, Kind
from ropelab.math.numerics.chain import Spectrum
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.numerics.reduction import find_worst_angles
from ropelab.math.rotary import Pairing
from ropelab.math.scaling import Llama3
from ropelab.readers import registry
from ropelab.readers.axes import VISION, is_encoder, read_vision
from ropelab.readers.document import load
from ropelab.readers.extra_rotations import list_rotations, read_rotation
from ropelab.readers.spec import RopeSpec, check_length, shorten_value
from ropelab.readers.trace import find_language_part, find_rope_block
from ropelab.runs.arguments import check_texts
from ropelab.runs.errors import InputError, check_known

# Notes of an `Expected`.
AXES_NOT_JUDGED = "axes of positions were not judged"
LAYERS_NOT_JUDGED = "which layers rotate was not judged"
# Positions at which mistakes show.
PROBES = tuple(USUAL["positions"])
# The number of last tokens of a context. Their angles are nearly the largest of the
# context.
LATE_TOKENS = 4096


@dataclass(frozen=True)
class Rotation:
    """A rotary implementation in float64, right by default or with one mistake."""

    inv_freq: Frequencies
    # The factor on cos and sin.
    factor: float
    pairing: Pairing
    # The first feature of the rotated block.
    start: int = 0
    # True if vectors are rotated by the negative angle.
    backwards: bool = False
    # The number that is added to all positions.
    shift: int = 0
    # The number format that angles are rounded to.
    angle_format: str = "float64"
    # True if sin takes the place of cos, and cos takes the place of sin.
    swapped: bool = False
    # The 2 x 2 block of a pair, row by row, from its cos and sin.
    shape: Shape = field(default=lambda c, s: (c, -s, s, c))

    def tables(self, positions: Positions) -> tuple[Table, Table]:
        """Return cos and sin, the factor included."""
        shifted = (positions + self.shift).astype(np.float64)
        angles = shifted[:, None] * self.inv_freq
        angles = round_to(angles, FORMATS[self.angle_format])
        cos = self.factor * np.cos(angles)
        sin = self.factor * np.sin(angles)
        if self.swapped:
            return sin, cos
        return cos, sin

    def apply(self, vectors: Vectors, positions: Positions) -> Rotated:
        """Return the vectors rotated to each position.

        ``vectors`` may be [vectors, head_dim], or have a first axis of positions.
        """
        return self.rotate(vectors, *self.tables(positions))

    def rotate(self, vectors: Vectors, cos: Table, sin: Table) -> Rotated:
        """Return the vectors rotated by each row of tables, as `apply` does."""
        width = 2 * len(self.inv_freq)
        first, second = pair_features(self.pairing, width, self.start)
        if self.backwards:
            first, second = second, first

        # The entries of the blocks, each [n, 1, pairs], for all vectors of a position.
        a, b, c, d = (entry[:, None] for entry in self.shape(cos, sin))
        x = vectors[..., first]
        y = vectors[..., second]
        shape = (len(cos), *vectors.shape[-2:])
        result = np.broadcast_to(vectors, shape).copy()
        result[:, :, first] = a * x + b * y
        result[:, :, second] = c * x + d * y
        return result


@dataclass(frozen=True)
class Expected:
    """The rotation of one layer type while ``length`` tokens are in the context."""

    spec: RopeSpec
    length: int
    # The rotation that each runtime computes from the same configuration.
    by_runtime: Mapping[str, RopeSpec]
    # The rotations of all layer types.
    layers: Mapping[str, RopeSpec] = field(default_factory=dict)
    # A remark on what is not judged.
    note: str = ""
    # For each layer of the model, whether it rotates. None: all do, or it is not known.
    rotating: tuple[bool, ...] | None = None

    @property
    def inv_freq(self) -> Frequencies:
        return self.spec.inv_freq(self.length)

    @property
    def is_of_images(self) -> bool:
        """True for an encoder of images: its positions are rows and columns, without
        times.
        """
        return self.spec.has_patches

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

    def scale(self, frequencies: Frequencies) -> Frequencies:
        """Return what the scaling makes of some frequencies that take the place of the
        unscaled ones.
        """
        spec = self.spec
        method = spec.scaling
        # In Llama 3 the ramp follows the frequency, in other methods the number of the
        # pair.
        if isinstance(method, Llama3):
            ends = (method.low_freq_factor, method.high_freq_factor)
            turns = rotations(frequencies, spec.trained_len)
            return frequencies * np.interp(turns, ends, (1 / method.factor, 1))
        return frequencies * self.inv_freq / spec.geometry.inv_freq

    def budget(self, kind: Kind = "float32") -> Budget:
        """Return how much a right code of some kind, such as float32, may lose by
        rounding.
        """
        spectrum = Spectrum(self.inv_freq, self.spec.base, self.spec.rotary_dim)
        return Budget(kind, spectrum, self.spec.attention_factor)


def choose_positions(expected: Expected) -> np.ndarray:
    """Return the positions to ask for: the usual positions, and positions around the ends
    of the trained length and of the context.
    """
    trained = expected.spec.trained_len
    length = expected.length
    ends = (trained - 1, trained, trained + 1, length - 1)
    candidates = {*PROBES, *ends, *find_sine_positions(length)}
    positions = sorted(each for each in candidates if 0 <= each < length)
    if 1 not in positions:
        raise InputError(f"a length of {length} leaves no position to look at")
    return np.array(positions, dtype=np.int64)


def find_sine_positions(length: int) -> list[int]:
    """Return late positions at which sines of large arguments lose most.

    The frequency of pair 0 without a scaling is assumed: one radian per token.
    """
    start = max(length - LATE_TOKENS, 0)
    late_positions = np.arange(start, length)
    return late_positions[find_worst_angles(late_positions)].tolist()


def expect_file(source: str, length: int | None) -> dict[str, Expected]:
    """Return the rotations of a config.json or model folder: see `expect_config`."""
    return expect_config(source, load_config(source), length)


def load_config(source: str) -> Mapping[str, Any]:
    """Return the keys of a config.json or model folder, or of standard input (`-`).

    Standard input can be read once only, so that a caller keeps what it needs twice.
    """
    document = load(source, images=True)
    if document.kind == "gguf":
        raise InputError(f"{source}: a config.json is wanted, not a GGUF file")
    return document.config


def expect_config(
    name: str,
    config: Mapping[str, Any],
    length: int | None,
) -> dict[str, Expected]:
    """Return the rotation that transformers computes for each layer type.

    Args:
        name: the words that an error begins with.
        config: the configuration.
        length: tokens in the context, the claimed length if None.
    """
    if length is not None:
        check_length(length)
    vision = read_vision(config)
    if is_encoder(config):
        if vision is None:
            raise InputError(f"{name}: its sizes or base are none that its class takes")
        return {VISION: expect_vision(vision)}

    readings = {}
    by_runtime = {}
    for runtime, record in registry.RUNTIMES.items():
        reading = registry.read(record, config)
        readings[runtime] = reading
        if reading.main_spec:
            by_runtime[runtime] = reading.main_spec
    reading = readings[registry.REFERENCE]
    layers = reading.layers
    if not layers:
        reading = registry.read_by_reference(name, config)
        layers = {"all": reading.layers[reading.main_layer]}

    _, language_part = find_language_part(config)
    _, block = find_rope_block(language_part)
    has_axes = bool(block.get("mrope_section"))
    expected_layers = {}
    for layer, spec in layers.items():
        note = ""
        if spec.axes:
            note = AXES_NOT_JUDGED
        elif has_axes:
            model_type = shorten_value(language_part.get("model_type", ""))
            note = f"{AXES_NOT_JUDGED}: nobody looked at those of '{model_type}'"
        rotating = reading.rotating
        if rotating and not all(rotating):
            count = f"{sum(rotating)} of {len(rotating)} layers should"
            note = "; ".join(filter(None, (note, f"{LAYERS_NOT_JUDGED}: {count}")))
        length_asked = length or spec.length
        expected = Expected(spec, length_asked, by_runtime, layers, note, rotating)
        expected_layers[layer] = expected

    for rotation_name in list_rotations(language_part):
        rotation = read_rotation(
            registry.REFERENCE, rotation_name, language_part, layers
        ).spec
        if rotation:
            # How other runtimes read this rotation is not known.
            expected_layers[rotation_name] = Expected(
                rotation,
                length or rotation.length,
                by_runtime={},
                layers={rotation_name: rotation},
            )
    if vision:
        expected_layers[VISION] = expect_vision(vision)
    return expected_layers


def expect_vision(spec: RopeSpec) -> Expected:
    """Return the rotation of an encoder of images, with no other runtime or layer to
    compare.
    """
    return Expected(spec, spec.length, by_runtime={}, layers={VISION: spec})


def find_main(layers: Mapping[str, Expected]) -> str:
    """Return the layer type that sees the whole context."""
    if "full_attention" in layers:
        return "full_attention"
    return next(iter(layers))


def choose_layer(layers: Mapping[str, Expected], name: str = "") -> Expected:
    """Return the rotation of a layer type, or of the layer type that sees the whole
    context.
    """
    check_texts(layer_type=name)
    if name:
        return layers[check_known("layer type", name, layers)]
    return layers[find_main(layers)]
