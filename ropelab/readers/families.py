"""Facts about model types and about the keys of configurations.

They come from the TOML and JSON files in this folder. A family is what is known of one
model type: what its class in transformers reads and has by default (classes.json), and
what servers and converters do otherwise (families.toml, served.toml).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from ropelab.runs.files import table_beside


def table(name: str) -> dict[str, Any]:
    """Return a TOML file of this folder by its name."""
    return table_beside(__file__, name)


FAMILIES = table("families")
_TYPES = table("model_types")
IN_CODE = frozenset(_TYPES["in_code"]["types"].split())
UNROTATED = frozenset(_TYPES["unrotated"].split())
PARTS, WHOLES, RENAMED = (_TYPES[name] for name in ("parts", "wholes", "renamed"))
REMOTE, READ_FLAT = _TYPES["remote"], _TYPES["read_flat"]
# Model types with the length that files allow, and the shorter one that was trained.
TRAINED = {
    (kind, most): trained for kind, (most, trained) in table("names")["trained"].items()
}
KEYS: dict[str, dict[str, str]] = table("keys")
# Written by tools/class_defaults.py.
CLASSES = json.loads((files(__package__) / "classes.json").read_text(encoding="utf-8"))
RELEASE: str = CLASSES["release"]
# The dicts of a file about rotation, and the similarity of a name that means one of
# them: rope_scalling, ropeScaling; not rope_scaling_factor, a key of its own.
BLOCKS = ("rope_scaling", "rope_parameters")
LIKE_A_BLOCK = 0.9
# Values of position_embedding_type that mean a rotation, the last two in Nemotron-NAS.
ROTARY_NAMES = ("rope", "rotary", "mistral_yarn", "rope_llama4")
# Blanks and characters without width.
UNSEEN = re.compile(r"[\s\u200b-\u200f\ufeff]")


@dataclass(frozen=True)
class Family:
    """The facts of one model type: its class in transformers, and families.toml."""

    name: str
    # What the class takes where a file says nothing: sizes, base, rotated share, the rope
    # block, and the block of each layer type.
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    max_position_embeddings: int | None = None
    original_max_position_embeddings: int | None = None
    head_dim: int | None = None
    global_head_dim: int | None = None
    base: float = 10000.0
    partial: float | None = None
    rope: Mapping[str, Any] = field(default_factory=dict)
    layers: Mapping[str, Any] = field(default_factory=dict)
    # What the class makes of an empty block for each layer type.
    filled: Mapping[str, Any] = field(default_factory=dict)
    # The layer types of a class that has one block for all.
    labels: tuple[str, ...] = ()
    # True if a file says which of the layer types there are.
    declares: bool = False
    # Heads have this many times hidden_size / num_attention_heads features.
    head_scale: int = 1
    # The rotated share of an unscaled block that gives none.
    usual_share: float | None = None
    # True if the class stops at one block for all layer types.
    refuses_flat: bool = False
    # The scaling types at which the class stops.
    refuses: tuple[str, ...] = ()
    # The scaling types at which it stops unless the file has a head_dim.
    refuses_without_head_dim: tuple[str, ...] = ()
    # True if the class of the whole model reads the keys of its language part, too.
    flat: bool = False
    # Values that are constants in the code of the class.
    constants: Mapping[str, Any] = field(default_factory=dict)
    # Keys that set others to these values in the class, if they are true.
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # True if the class stops without rope_scaling.
    needs_block: bool = False
    # The keys that transformers 4 insists on in a block.
    block_keys: tuple[str, ...] = ()
    # The keys of the features of a head, the first of which that is there counts.
    head_keys: tuple[str, ...] = ("head_dim",)
    base_keys: tuple[str, ...] = ("rope_theta",)
    # The only base that a server's model file takes.
    fixed_base: float | None = None
    # True if layers with a base of 0 do not rotate (granite.py:210 in vLLM, :193 in
    # SGLang).
    unrotated_at_zero: bool = False
    # True if layers with a base of null do not rotate (granite.py:193 in SGLang).
    unrotated_at_null: bool = False
    # True if a server's model file makes the block itself, and reads none of the file.
    own_block: bool = False
    # True if a server's model file passes no scaling on.
    unscaled: bool = False
    # True if a server's model file passes no rotated share on.
    rotates_whole: bool = False
    # The keys of a block that vLLM's model file hands on, as YaRN. Empty: all keys.
    handed_on: tuple[str, ...] = ()
    # True if a server's own configuration class stops without a head_dim.
    needs_head_dim: bool = False
    # True if it stops without lists of bases and shares.
    needs_lists: bool = False
    # True if it reads YaRN's attention_factor.
    counts_attention_factor: bool = False
    # True if it takes hidden_size / num_attention_heads for the features of a head.
    sized_by_heads: bool = False
    # The keys from which SGLang's model file takes the rotated share or width, the first
    # that is there. A share inside a block is not read.
    share_keys: tuple[str, ...] = ()
    # True if the base is rounded down to a whole number.
    whole_base: bool = False
    # True if the class in transformers has no block, and drops the base of a file that has
    # a block, too.
    blockless: bool = False
    # Keys without which a server's model file stops.
    needs_keys: tuple[str, ...] = ()
    # A key that is true where features half of the width apart form a pair.
    half_key: str = ""
    # The values of the pairing key that mean adjacent pairs. Empty: any true value does.
    interleaved_by: tuple[str, ...] = ()
    # True if layers with a sliding window take base and share of full attention where
    # their block has none.
    sliding_as_full: bool = False
    # True if a server has no configuration class but that which comes with the weights.
    needs_remote: bool = False
    # The key of the features of a head in layers with a sliding window.
    local_head_key: str = ""
    # True if the keys of a scaling are beside the base, outside a block (Grok).
    scaled_beside: bool = False
    partial_keys: tuple[str, ...] = ("partial_rotary_factor",)
    # The key of the rotated width.
    width_key: str = ""
    # The rotated width of the class where a file lacks this key. 0: that of the head.
    usual_width: int = 0
    # What llama.cpp's converter writes for every file of this type.
    converted: Mapping[str, Any] = field(default_factory=dict)
    # The scaling types for which the converter was not read.
    unconverted: tuple[str, ...] = ()
    # Keys with a factor on attention for each table of longrope.
    attention_keys: tuple[str, ...] = ()
    # Other names of the keys of sizes.
    aliases: Mapping[str, str] = field(default_factory=dict)
    # The key of the base of each layer type.
    layer_base_keys: Mapping[str, str] = field(default_factory=dict)
    # The layer types to which a block of transformers 4 belongs.
    scaled: tuple[str, ...] = ()
    # True if a rotated share is read without a scaling, too.
    shares: bool = False
    pairing: Literal["half", "interleaved"] = "half"
    pairing_key: str = ""
    # The end of a head that rotates, where a part of it does.
    place: Literal["first", "last"] = "first"
    # True if vectors rotate by the negative angle.
    backwards: bool = False
    # True for latent attention, as DeepSeek's.
    latent: bool = False
    # The key of the base of layers with a sliding window, and its default.
    local_base_key: str = ""
    local_base: float | None = None
    # True if layers with a sliding window are scaled.
    local_scaled: bool = False
    # A key that the base is multiplied with.
    ratio_key: str = ""
    # The only runtimes whose code for this model type was read; empty: all were.
    read_by: tuple[str, ...] = ()
    # What no reader here computes, in words.
    unread: str = ""
    # It is not computed if this key has another value than the usual one.
    unread_key: str = ""
    unread_usual: Any = 1
    # It is not computed if one of these keys has a value other than null.
    unread_keys: tuple[str, ...] = ()
    # True if the usual value is hidden_size / num_attention_heads.
    unread_odd: bool = False
    # True if the class of transformers was asked for its defaults.
    known: bool = False
    # The types that the class takes for the values of its keys.
    types: Mapping[str, str] = field(default_factory=dict)
    # True if hidden_size has to be a multiple of the heads.
    divides: bool = False

    @property
    def unscalable(self) -> bool:
        """True if its class in transformers reads no scaling at all."""
        return self.name in IN_CODE or self.constants.get("rope_type") == "default"


def family_of(
    model_type: str,
    release: str = RELEASE,
    whole: str = "",
    served: Mapping[str, Any] | None = None,
) -> Family:
    """Return the facts of a model type. An unknown one has base 10000, and all rotates.

    Args:
        model_type: the type of the language part.
        release: the release of transformers whose class is meant.
        whole: the type of the whole model.
        served: the facts of a server's model file, which replace others.
    """
    outer = model_type
    model_type = CLASSES["texts"].get(outer, outer)
    row = dict(CLASSES["classes"].get(model_type, {}))
    if row:
        row["known"] = True
        row["types"] = CLASSES["types"] | row.get("types", {})

    older = CLASSES["older"].get(release, {}).get(model_type)
    if older:
        # Defaults of a newer class that an older one does not have, unless it says so.
        newer = {
            "head_dim",
            "partial",
            "rope",
            "base",
            "original_max_position_embeddings",
        }
        row = {name: value for name, value in row.items() if name not in newer}
        renamed = _TYPES["older_names"]
        row |= {renamed.get(name, name): value for name, value in older.items()}

    row |= FAMILIES.get(outer, {})
    row |= FAMILIES.get(model_type, {})
    row |= WHOLES.get(whole, {})
    # In these releases nearly all classes read the share outside a block.
    if release in _TYPES["stops"]:
        if row.get("partial_keys") == [] and model_type != "bamba":
            del row["partial_keys"]
        for kind in (outer, model_type):
            row |= _TYPES["stops"][release].get(kind, {})

    row |= served or {}
    for name, value in row.items():
        if isinstance(value, list):
            row[name] = tuple(value)
    return Family(model_type, **row)


def _releases() -> dict[str, frozenset[str]]:
    """Return the model types of each release of transformers.

    The file lists the new ones of each release, and with a dash those that are gone.
    """
    releases = {}
    known = frozenset[str]()
    for version, text in _TYPES["releases"].items():
        words = frozenset(text.split())
        dashed = frozenset(word for word in words if word.startswith("-"))
        gone = {word.removeprefix("-") for word in dashed}
        known = (known | words) - dashed - gone
        releases[version] = known
    return releases


RELEASES = _releases()
# Types of transformers whose class no table here describes.
UNASKED = frozenset[str]().union(*RELEASES.values()) - FAMILIES.keys()
# Types whose class has rotary positions, whatever keys a file has.
ROTATED = ({*list(RELEASES.values())[-1]} | FAMILIES.keys()) - UNROTATED


def unrotated(text: Mapping[str, Any]) -> str:
    """Return why a configuration has no rotary positions, or nothing."""
    kind = str(text.get("model_type"))
    # Most classes do not read this key, so that it does not tell what they do.
    given = text.get("position_embedding_type") or _TYPES["asks_for_rope"].get(kind)
    rotates = not isinstance(given, str) or given in ROTARY_NAMES
    if kind in UNROTATED and (given is None or not rotates):
        return f"the layers of '{kind}' rotate nothing"
    if not rotates and (kind in _TYPES["asks_for_rope"] or kind not in ROTATED):
        return f"position_embedding_type is '{given[:40]}'"
    if kind == "olmo_hybrid" and has_null_base(text):
        return "rope_theta is null"
    if kind == "zamba2" and not text.get("use_mem_rope"):
        return "use_mem_rope is not true"
    return "alibi is true" if text.get("alibi") is True else ""


def has_null_base(text: Mapping[str, Any]) -> bool:
    """Return True if the base of a configuration is null, in its block or beside it.

    OLMo Hybrid's layers then rotate nothing (modeling_olmo_hybrid.py:899 in
    transformers, olmo_hybrid.py:141 in vLLM).
    """
    for name in BLOCKS:
        block = text.get(name)
        if isinstance(block, Mapping) and "rope_theta" in block:
            return block["rope_theta"] is None
    return "rope_theta" in text and text["rope_theta"] is None


def concerns_rope(name: str) -> bool:
    """Return True if the name of a key says that it is about rotation."""
    if name in KEYS["top"] or name in KEYS["gguf"]:
        return True
    return "rope" in name.lower() or "rotary" in name.lower() or bool(meant(name))


def meaning(path: str) -> str:
    """Return in words what a known key does; empty for others."""
    if path in KEYS["gguf"]:
        return KEYS["gguf"][path]
    *parents, name = path.split(".")
    in_block = "rope_scaling" in parents or "rope_parameters" in parents
    return KEYS["block" if in_block else "top"].get(name, "")


@lru_cache(maxsize=4096)
def meant(name: str) -> str:
    """Return the known key that a name looks like to a person, or nothing.

    It differs in blanks, case, dashes or letters of another alphabet; the name of a
    block may differ in any letter.

    >>> meant("rope_theta "), meant("Rope-Scaling"), meant("rope_theta")
    ('rope_theta', 'rope_scaling', '')
    """
    known = (*BLOCKS, *KEYS["top"], *KEYS["block"])
    if name in known:
        return ""
    seen = UNSEEN.sub("", name).replace("-", "_").lower()
    for key in known:
        if _looks_like(seen, key):
            return key
    blocks = get_close_matches(seen, BLOCKS, n=1, cutoff=LIKE_A_BLOCK)
    return blocks[0] if blocks else ""


def _looks_like(name: str, key: str) -> bool:
    """Return True if the letters of a name are those of a key, or of no Latin alphabet."""
    if len(name) != len(key) or not any(map(str.isascii, name)):
        return False
    pairs = zip(name, key, strict=True)
    return all(letter == wanted or not letter.isascii() for letter, wanted in pairs)


def near(path: str) -> str:
    """Return the known key whose name is nearest to an unknown one, or nothing."""
    name = path.rsplit(".", 1)[-1]
    if meant(name):
        return meant(name)
    known = {**KEYS["block"], **KEYS["top"]}
    known.pop(name, None)
    matches = get_close_matches(name, known, n=1, cutoff=0.7)
    return matches[0] if matches else ""
