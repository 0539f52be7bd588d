"""Rotations that a layer has beside the rotation of its attention: of an indexer, and
of compressed keys.

The indexer of sparse attention chooses the tokens that a query sees. Compressed keys
stand for several tokens each.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ropelab.readers.families import CLASSES, read_table
from ropelab.readers.spec import NotModelledError, RefusedError, RopeSpec, require_whole

# Facts by runtime, rotation and model type. The TOML file explains them.
ROTATIONS: dict[str, dict[str, dict[str, dict[str, Any]]]] = read_table(
    "extra_rotations"
)
# The runtime whose classes say which rotations a model type has.
DECLARING_RUNTIME = "transformers-5"
INDEXER = "indexer"
COMPRESSED_KEYS = "compressed_keys"
EXTRA_ROTATIONS = (INDEXER, COMPRESSED_KEYS)


@dataclass(frozen=True)
class ExtraRotation:
    """A rotation as one runtime computes it, or the reason why it is not known."""

    spec: RopeSpec | None
    outcome: Literal["read", "refused", "not modelled"] = "read"
    problem: str = ""


def list_rotations(language_part: Mapping[str, Any]) -> list[str]:
    """Return the names of the rotations that a model has beside the rotation of
    attention.
    """
    model_type = find_text_type(language_part)
    return [
        name
        for name in EXTRA_ROTATIONS
        if model_type in ROTATIONS[DECLARING_RUNTIME][name]
    ]


def find_text_type(language_part: Mapping[str, Any]) -> str:
    """Return the model type of the language part.

    A file may name the type of the whole model there, such as gemma3. It is replaced by
    the type of the language part that such a model has, gemma3_text.
    """
    named_type = str(language_part.get("model_type"))
    return str(CLASSES["texts"].get(named_type, named_type))


def read_rotation(
    runtime: str,
    name: str,
    language_part: Mapping[str, Any],
    layers: Mapping[str, RopeSpec],
) -> ExtraRotation:
    """Return a rotation by its name as a runtime computes it.

    ``layers`` are the specs of the layer types by the same runtime.
    """
    facts_by_type = ROTATIONS.get(runtime, {}).get(name, {})
    facts = facts_by_type.get(find_text_type(language_part))
    if facts is None:
        return ExtraRotation(
            None, "not modelled", "its code for this rotation was not read"
        )
    try:
        return ExtraRotation(make_spec(facts, name, language_part, layers))
    except RefusedError as error:
        return ExtraRotation(None, "refused", str(error))
    except NotModelledError as error:
        return ExtraRotation(None, "not modelled", str(error))


def make_spec(
    facts: Mapping[str, Any],
    name: str,
    language_part: Mapping[str, Any],
    layers: Mapping[str, RopeSpec],
) -> RopeSpec:
    """Return the spec of a rotation by its row in extra_rotations.toml."""
    spec = choose_frequencies(layers, facts.get("layer", ""))
    key = facts.get("head_dim_key", "index_head_dim")
    width = language_part.get(key)
    if width is None:
        width = facts.get("default_head_dim", 128)
    head_dim = require_whole(width, key)
    if head_dim < spec.rotary_dim:
        raise RefusedError(f"{key} is {head_dim}, below the {spec.rotary_dim} rotated")

    pairing = facts["pairing"]
    is_interleaved = language_part.get(facts.get("pairing_key", ""))
    if is_interleaved is not None:
        pairing = "interleaved" if is_interleaved else "half"

    # The index of the first feature that rotates.
    first_rotated = 0
    if facts["rotated"] == "last":
        first_rotated = head_dim - spec.rotary_dim

    # A factor on all scores of an indexer changes none of its choices.
    softmax_factor = 1.0 if name == INDEXER else spec.softmax_factor
    return replace(
        spec,
        head_dim=head_dim,
        pairing=pairing,
        place=first_rotated,
        softmax_factor=softmax_factor,
    ).check()


def choose_frequencies(layers: Mapping[str, RopeSpec], layer: str) -> RopeSpec:
    """Return the spec of the layers whose frequencies an extra rotation has.

    These are the layers of the given type, else those of full attention, else the
    first.
    """
    for name in (layer, "full_attention"):
        if name in layers:
            return layers[name]
    return next(iter(layers.values()))
