"""The tables of model types, and what they say of one model type.

`find_family` puts the facts of a model type together from the tables of this folder. The
names of the facts are explained in `Family`.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from ropelab.readers.family import Family
from ropelab.readers.keys import BLOCKS
from ropelab.runs.files import read_table_beside


@cache
def read_table(name: str) -> dict[str, Any]:
    """Return the content of a TOML file of this folder, by its name without ending.

    Each file is read once, so that its readers share the tables and must not change them.
    """
    return read_table_beside(__file__, name)


# Facts by model type that the class in transformers does not show when it is asked.
FAMILIES = read_table("families")
_TYPES = read_table("model_types")
# Types whose class in transformers rotates by numbers in its code, and reads no block.
FIXED_TYPES = frozenset(_TYPES["in_code"]["types"].split())
# Types without rotary positions.
UNROTATED_TYPES = frozenset(_TYPES["unrotated"].split())
# The key of the language part, by the type of the whole model, where it is not
# text_config.
TEXT_KEYS: dict[str, str] = _TYPES["parts"]
# Other keys under which the class of the whole reads its language part, by the type of
# the whole.
OLDER_TEXT_KEYS: dict[str, str] = _TYPES["older_parts"]
# Facts by the type of the whole model. They win over the facts of its language part.
FACTS_OF_WHOLES: dict[str, dict[str, Any]] = _TYPES["wholes"]
# The type as which a class reads its language part, by "type of the whole.type in the
# file".
RENAMED_TYPES: dict[str, str] = _TYPES["renamed"]
# Architectures by model type, for types whose code comes with the weights.
REMOTE_ARCHITECTURES: dict[str, str] = _TYPES["remote"]
# Classes of transformers 4 in which `type` wins over `rope_type`.
TYPE_COPIES = frozenset(_TYPES["copies_type"]["types"].split())
# Architectures by runtime whose classes read a file without its language part.
FLAT_ARCHITECTURES: dict[str, list[str]] = _TYPES["read_flat"]
# The value of position_embedding_type that a class assumes where the file has none.
_ASSUMED_EMBEDDING: dict[str, str] = _TYPES["asks_for_rope"]
# The value of position_embeddings_type, with an s, that a class of speech assumes.
_ASSUMED_SPEECH_EMBEDDING: dict[str, str] = _TYPES["asks_for_rotary"]
# Words on the runtimes that assume a rotation if the file has no such key, by model
# type.
_ROTATED_WITHOUT_KEY: dict[str, str] = _TYPES["rotated_without_key"]
# The values of position_embedding_type that mean a rotation. Nemotron-NAS has the last
# two.
ROTARY_EMBEDDINGS = ("rope", "rotary", "mistral_yarn", "rope_llama4")
# The length that a model was trained at, in tokens, by its type and the longer length
# that its file allows.
TRAINED_LENGTHS: dict[tuple[str, int], int] = {
    (kind, allowed): trained
    for kind, (allowed, trained) in read_table("names")["trained"].items()
}
# The keys that the classes of transformers read, and their defaults.
# tools/class_defaults.py asks the classes and writes this file.
CLASSES = json.loads((files(__package__) / "classes.json").read_text(encoding="utf-8"))
# The release of transformers that was asked.
RELEASE: str = CLASSES["release"]
# Facts that an older class does not share with the newer one, unless its row says so.
_FACTS_OF_NEWER_CLASSES = frozenset(
    {"head_dim", "share", "rope_block", "base", "original_max_position_embeddings"}
)


def find_family(
    model_type: str,
    release: str = RELEASE,
    whole: str = "",
    served: Mapping[str, Any] | None = None,
) -> Family:
    """Return the facts of a model type. An unknown model type has the defaults of
    `Family`.

    Args:
        model_type: the type of the language part.
        release: the release of transformers whose class is meant.
        whole: the type of the whole model; empty if it equals the type of the language
            part.
        served: the facts of a server's model file, which win over all other facts.
    """
    # A file may name the whole model, whose class then builds a language part of
    # another type.
    text_type = CLASSES["texts"].get(model_type, model_type)
    facts = _read_class(text_type, release)
    facts |= FAMILIES.get(model_type, {})
    facts |= FAMILIES.get(text_type, {})
    facts |= FACTS_OF_WHOLES.get(whole, {})

    if release in _TYPES["stops"]:
        # In these releases nearly all classes read the share outside a block.
        if facts.get("share_keys") == []:
            del facts["share_keys"]
        refusals = _TYPES["stops"][release]
        facts |= refusals.get(model_type, {})
        facts |= refusals.get(text_type, {})

    facts |= served or {}
    for name, value in facts.items():
        if isinstance(value, list):
            facts[name] = tuple(value)
    return Family(text_type, **facts)


def _read_class(model_type: str, release: str) -> dict[str, Any]:
    """Return what the class of a release of transformers reads and has by default."""
    facts = dict(CLASSES["classes"].get(model_type, {}))
    if facts:
        facts["has_known_defaults"] = True
        facts["key_types"] = CLASSES["key_types"] | facts.get("key_types", {})

    # An older class states its defaults by the keys of files, not by names of facts.
    defaults = CLASSES["older"].get(release, {}).get(model_type)
    if defaults:
        for name in _FACTS_OF_NEWER_CLASSES:
            facts.pop(name, None)
        for key, value in defaults.items():
            name = _TYPES["older_names"].get(key, key)
            facts[name] = value
    return facts


def list_wholes(model_type: str) -> list[str]:
    """Return the types of the whole models that a type is the language part of.

    Only parts that are named after their whole count: other models may have a part of a
    general type such as qwen2.
    """
    return [
        whole
        for whole, part in CLASSES["texts"].items()
        if part == model_type and part.startswith(whole)
    ]


def is_unscalable(family: Family) -> bool:
    """Return True if the class of a model type reads no scaling at all."""
    has_fixed_type = family.constants.get("rope_type") == "default"
    return family.name in FIXED_TYPES or has_fixed_type


def _list_releases() -> dict[str, frozenset[str]]:
    """Return the model types of each release of transformers.

    The table has the new types of each release and, with a dash before them, the types
    that the release dropped.
    """
    releases = {}
    types = frozenset[str]()
    for version, types_of_release in _TYPES["releases"].items():
        words = frozenset(types_of_release.split())
        dashed = frozenset(word for word in words if word.startswith("-"))
        dropped = {word.removeprefix("-") for word in dashed}
        types = (types | words) - dashed - dropped
        releases[version] = types
    return releases


RELEASES = _list_releases()
_NEWEST_TYPES = list(RELEASES.values())[-1]
# The types of all these releases.
TRANSFORMERS_TYPES = frozenset[str]().union(*RELEASES.values())
# Types whose class has rotary positions, whatever keys a file has.
ROTATED_TYPES = (_NEWEST_TYPES | FAMILIES.keys()) - UNROTATED_TYPES


def explain_unrotated(language_part: Mapping[str, Any]) -> str:
    """Return why a model has no rotary positions; empty if it has them.

    ``language_part``: the language part of the configuration.
    """
    model_type = str(language_part.get("model_type"))
    stated_embedding = language_part.get("position_embedding_type")
    embedding = stated_embedding or _ASSUMED_EMBEDDING.get(model_type)
    is_rotary = not isinstance(embedding, str) or embedding in ROTARY_EMBEDDINGS
    # A file whose embedding is rotary wins over the table of types.
    if model_type in UNROTATED_TYPES and (embedding is None or not is_rotary):
        return f"the layers of '{model_type}' rotate nothing"
    # Most classes with rotary positions do not read position_embedding_type.
    reads_embedding = (
        model_type in _ASSUMED_EMBEDDING or model_type not in ROTATED_TYPES
    )
    if not is_rotary and reads_embedding:
        reason = f"position_embedding_type is '{str(embedding)[:40]}'"
        if not stated_embedding and model_type in _ROTATED_WITHOUT_KEY:
            reason = f"{reason} {_ROTATED_WITHOUT_KEY[model_type]}"
        return reason

    if model_type in _ASSUMED_SPEECH_EMBEDDING:
        default = _ASSUMED_SPEECH_EMBEDDING[model_type]
        speech_embedding = language_part.get("position_embeddings_type", default)
        if speech_embedding is None:
            return "position_embeddings_type is null"
        if speech_embedding != "rotary":
            return f"position_embeddings_type is '{str(speech_embedding)[:40]}'"

    if model_type == "olmo_hybrid" and has_null_base(language_part):
        return "rope_theta is null"
    if model_type == "zamba2" and not language_part.get("use_mem_rope"):
        return "use_mem_rope is not true"
    if language_part.get("alibi") is True:
        return "alibi is true"
    return ""


def has_null_base(language_part: Mapping[str, Any]) -> bool:
    """Return True if the base of a configuration is null, in its block or beside it.

    OLMo Hybrid's layers then rotate nothing (modeling_olmo_hybrid.py:899 in
    transformers, olmo_hybrid.py:141 in vLLM).
    """
    for name in BLOCKS:
        block = language_part.get(name)
        if isinstance(block, Mapping) and "rope_theta" in block:
            return block["rope_theta"] is None
    return "rope_theta" in language_part and language_part["rope_theta"] is None
