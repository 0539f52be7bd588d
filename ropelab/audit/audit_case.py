"""A configuration as the runtimes read it, and how far their rotations are apart.

One of the readings is the reference, and all other readings are compared with it. The
reference is the reading of transformers 5 if that reads the file, and otherwise that of a
trainer, or one that takes what the file declares.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ropelab.readers.document import Document
from ropelab.readers.extra_rotations import ExtraRotation, read_rotation
from ropelab.readers.flags import Flags
from ropelab.readers.mistral_params import OWN_PARAMS
from ropelab.readers.registry import Reading
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import (
    MAXIMUM,
    find_language_part,
    find_rope_block,
    list_blocks,
)
from ropelab.runs.rows import group_pairs

# The largest error of an angle, in radians, that counts as none: between two runtimes,
# or by the rounding of a number format.
TOLERANCE = 0.01
# A length in tokens that is within the trained length of every model.
SHORT_LENGTH = 64
# Pairs with a lower frequency, in radians per token, count as not rotating. Their
# wavelengths would overflow.
SLOWEST_FREQUENCY = 1e-300
# The name of the rotation of queries and keys of attention. A model may have other
# rotations, of an indexer or of compressed keys.
MAIN = "main"


@dataclass(frozen=True)
class AuditCase:
    """A document as the runtimes read it, and the question about it."""

    document: Document
    readings: Sequence[Reading]
    reference: Reading
    # The number of tokens at which the runtimes are compared.
    length: int
    # The length that the user requested, which is then `length`; None if `length` is the
    # length that the reference claims.
    requested_length: int | None
    # The runtime whose own flag requests the length; empty if the request is for all
    # runtimes.
    requested_runtime: str
    # The flags of servers. Their values replace values of the document.
    flags: Flags

    @property
    def spec(self) -> RopeSpec:
        """The main rotation of the reference."""
        assert self.reference.main_spec is not None
        return self.reference.main_spec

    @property
    def maximum(self) -> Any:
        """The value of max_position_embeddings; None: the file states none."""
        _, language_part = find_language_part(self.document.config)
        if self.document.kind == "params":
            # The translation of a params.json fills in a default.
            language_part = language_part[OWN_PARAMS]
        return language_part.get(MAXIMUM)

    @property
    def block_name(self) -> str:
        """The name of the rope block: rope_parameters, or rope_scaling in older files.

        Of two blocks it is the one that the reference reads.
        """
        prefix, language_part = find_language_part(self.document.config)
        for name in list_blocks(language_part):
            if reads_block(self.reference, f"{prefix}{name}"):
                return name
        name, _ = find_rope_block(language_part)
        return name

    @property
    def layer_in_block(self) -> str:
        """The layer type whose dict in the rope block has the main rotation; empty if the
        block has no dict for each layer type.
        """
        main_layer = self.reference.main_layer
        has_dict = isinstance(self.whole_block.get(main_layer), Mapping)
        return main_layer if has_dict else ""

    @property
    def block_path(self) -> str:
        """The path from the language part to the keys of `block`."""
        layer = self.layer_in_block
        return f"{self.block_name}.{layer}" if layer else self.block_name

    @property
    def whole_block(self) -> Mapping[str, Any]:
        """The rope block, which may have a dict for each layer type; empty if there is
        none.
        """
        _, language_part = find_language_part(self.document.config)
        block = language_part.get(self.block_name)
        return block if isinstance(block, Mapping) else {}

    @property
    def block(self) -> Mapping[str, Any]:
        """The keys of the rope block, or of the dict in it for the main layers; empty if
        there is none.
        """
        block: Mapping[str, Any] = self.whole_block
        layer = self.layer_in_block
        return block[layer] if layer else block

    @property
    def scaling_type(self) -> Any:
        """The name of the scaling in the block.

        Beside the dicts of layer types it has no effect, and is declared all the same.
        """
        scaling_type = self.block.get("rope_type") or self.block.get("type")
        if self.layer_in_block and scaling_type in (None, "default"):
            beside = self.whole_block.get("rope_type") or self.whole_block.get("type")
            return beside or scaling_type
        return scaling_type

    @property
    def specs(self) -> list[tuple[str, RopeSpec]]:
        """The name and the main rotation of each runtime that reads the file."""
        specs = []
        for reading in self.readings:
            if reading.main_spec is not None:
                specs.append((reading.runtime.name, reading.main_spec))
        return specs

    def group_problems(self, outcome: str) -> dict[str, list[str]]:
        """Return the names of runtimes with an outcome such as `refused`, by the problem."""
        pairs = []
        for reading in self.readings:
            if reading.outcome == outcome:
                pairs.append((reading.problem, reading.runtime.name))
        return group_pairs(pairs)

    def group(self, value: Callable[[RopeSpec], Any]) -> dict[Any, list[str]]:
        """Return the names of the runtimes that read the file, by a value of their spec."""
        return group_pairs((value(spec), name) for name, spec in self.specs)

    def compare(self, spec: RopeSpec) -> tuple[str, float | None, int | None]:
        """Return the method, and the distance from the reference as `measure_distance`.

        If base or width differ, which separate findings report, the method is empty and
        the distance None.
        """
        if spec.base != self.spec.base or spec.rotary_dim != self.spec.rotary_dim:
            return "", None, None
        ratio, position = measure_distance(spec, self.spec, self.length)
        return spec.method, ratio, position

    def list_layers(self, reading: Reading) -> Iterator[tuple[str, RopeSpec, RopeSpec]]:
        """Yield the name of each layer type, its rotation, and the rotation of the
        reference.

        A layer type that the reference lacks is compared with the reference's main
        rotation.
        """
        for layer, spec in reading.layers.items():
            reference_spec = self.reference.layers.get(layer) or self.spec
            yield layer, spec, reference_spec

    def read_rotation(self, reading: Reading, name: str) -> ExtraRotation:
        """Return a rotation beside that of attention, as a runtime computes it."""
        _, language_part = find_language_part(self.document.config)
        return read_rotation(reading.runtime.name, name, language_part, reading.layers)


def reads_block(reading: Reading, path: str) -> bool:
    """Return True if a runtime reads any key of the block at a path."""
    return any(
        use.path.startswith(f"{path}.") and use.status in ("used", "translated")
        for use in reading.keys
    )


def measure_distance(
    spec: RopeSpec, other: RopeSpec, length: int
) -> tuple[float | None, int | None]:
    """Return the largest ratio of two frequencies, and the first position with a wrong
    angle.

    The ratio is None if no pair rotates in both rotations. The position is None if no
    angle is wrong by more than TOLERANCE.
    """
    inv_freq = spec.inv_freq(length)
    other_inv_freq = other.inv_freq(length)
    # With another number of pairs, some feature rotates otherwise from position 1 on.
    if inv_freq.shape != other_inv_freq.shape:
        return None, 1
    # Runtimes compute the same in different orders, which changes the last digits.
    if np.allclose(inv_freq, other_inv_freq, rtol=1e-9, atol=0):
        return 1.0, None

    largest_difference = float(np.abs(inv_freq - other_inv_freq).max())
    position = math.ceil(TOLERANCE / largest_difference)
    is_rotating = (inv_freq > SLOWEST_FREQUENCY) & (other_inv_freq > SLOWEST_FREQUENCY)
    ratios = inv_freq[is_rotating] / other_inv_freq[is_rotating]
    if not ratios.size:
        return None, position
    largest_logarithm = np.abs(np.log(ratios)).max()
    return float(np.exp(largest_logarithm)), position


def list_compared_lengths(reference_spec: RopeSpec) -> tuple[int, int]:
    """Return a length within the trained length, and a length far beyond it.

    A scaling may depend on the length, so that frequencies are compared at both.
    """
    far = 2 * max(reference_spec.trained_len, reference_spec.length)
    return SHORT_LENGTH, far


def have_equal_rotation(spec: RopeSpec, other: RopeSpec) -> bool:
    """Return True for the same frequencies and the same factor on the logits.

    Frequencies are compared at each of `list_compared_lengths`.
    """
    for length in list_compared_lengths(other):
        _, first_wrong_position = measure_distance(spec, other, length)
        if first_wrong_position is not None:
            return False
    return math.isclose(spec.logit_multiplier, other.logit_multiplier, rel_tol=1e-9)
