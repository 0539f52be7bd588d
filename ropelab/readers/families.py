"""Facts about model types and about the keys of configurations, from the data files
beside it.
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
# Blanks and what has no width.
UNSEEN = re.compile(r"[\s\u200b-\u200f\ufeff]")


@dataclass(frozen=True)
class Family:
    """The facts of one model type: its class in transformers, and families.toml."""

    name: str
    # What the class takes where a file is silent: sizes, base, rotated share, the rope
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
    # what a bare dict for each becomes
    filled: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()  # layer types of a class that has one block for all
    declares: bool = False  # a file says which of the layer types there are
    head_scale: int = 1  # heads of that many times hidden_size / num_attention_heads
    usual_share: float | None = None  # of an unscaled block that gives none
    # Blocks at which the class stops: flat ones, scaling types, types without a
    # head_dim.
    refuses_flat: bool = False
    refuses: tuple[str, ...] = ()
    refuses_without_head_dim: tuple[str, ...] = ()
    flat: bool = False  # the class of the whole model reads these keys, too
    # in the code of its class
    constants: Mapping[str, Any] = field(default_factory=dict)
    # Keys that set others to these values in its class, if they are true.
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    needs_block: bool = False  # it stops without rope_scaling
    block_keys: tuple[str, ...] = ()  # that transformers 4 insists on
    # The keys of these; head_keys in the order in which they win.
    head_keys: tuple[str, ...] = ("head_dim",)
    base_keys: tuple[str, ...] = ("rope_theta",)
    fixed_base: float | None = None  # a server's model file takes no other
    # A base of 0 leaves its layers without a rotation (granite.py:210 in vLLM, :193 in
    # SGLang).
    unrotated_at_zero: bool = False
    unrotated_at_null: bool = False  # a base of null, too (granite.py:193 in SGLang)
    # A server's model file writes the block itself, and reads none of the file's.
    own_block: bool = False
    unscaled: bool = False  # a server's model file passes no scaling on
    rotates_whole: bool = False  # and this one no rotated share
    # The keys of a block that vLLM's model file hands on, as YaRN; all if empty.
    handed_on: tuple[str, ...] = ()
    # A server's own configuration class: stops without a head_dim; lets YaRN's
    # attention_factor count; takes base and share of full attention where a dict for
    # layers with a sliding window has none; comes with the weights alone.
    needs_head_dim: bool = False
    needs_lists: bool = False  # of bases and shares
    counts_attention_factor: bool = False
    sized_by_heads: bool = (
        False  # hidden_size / heads, whatever transformers' class has
    )
    # Keys of the file that SGLang's model file takes the rotated share or width from,
    # the first that is there; a share inside a block does not count.
    share_keys: tuple[str, ...] = ()
    whole_base: bool = False  # int(rope_theta)
    # Its class in transformers has no block, and drops the base if a file has both.
    blockless: bool = False
    needs_keys: tuple[str, ...] = ()  # that the model file stops without
    # A key that is true where features half a head apart form a pair.
    half_key: str = ""
    # The values of the pairing key that mean adjacent pairs; any true one if empty.
    interleaved_by: tuple[str, ...] = ()
    sliding_as_full: bool = False
    needs_remote: bool = False
    # The key of the size of heads in layers with a sliding window.
    local_head_key: str = ""
    scaled_beside: bool = False  # Grok's keys of a scaling are beside the base
    partial_keys: tuple[str, ...] = ("partial_rotary_factor",)
    width_key: str = ""
    # The rotated width that the class has where a file lacks that key; 0: the head's.
    usual_width: int = 0
    # What llama.cpp's converter writes in any case, and scaling types for which it was
    # not read.
    converted: Mapping[str, Any] = field(default_factory=dict)
    unconverted: tuple[str, ...] = ()
    attention_keys: tuple[str, ...] = ()  # one for each table of longrope
    aliases: Mapping[str, str] = field(default_factory=dict)  # of the sizes
    layer_base_keys: Mapping[str, str] = field(default_factory=dict)
    # Layer types that a block of transformers 4 goes into.
    scaled: tuple[str, ...] = ()
    shares: bool = False  # a rotated share counts without a scaling, too
    pairing: Literal["half", "interleaved"] = "half"
    pairing_key: str = ""
    # Which end of a head rotates where the head is wider than what rotates.
    place: Literal["first", "last"] = "first"
    backwards: bool = False  # the sine has the other sign
    latent: bool = False
    local_base_key: str = ""
    local_base: float | None = None  # the base of the others
    local_scaled: bool = False
    ratio_key: str = ""
    read_by: tuple[str, ...] = ()
    unread: str = ""
    unread_key: str = ""
    unread_usual: Any = 1  # the value of that key which is read
    unread_keys: tuple[str, ...] = ()  # any of these, whatever its value but null
    unread_odd: bool = False  # where that is not hidden_size / num_attention_heads
    known: bool = False  # the class was asked
    types: Mapping[str, str] = field(default_factory=dict)  # of its keys
    divides: bool = False  # hidden_size has to be a multiple of the heads

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
    """Return the facts of a model type; an unknown one has base 10000 and rotates
    everything. What ``served`` says, the facts of a server's model file, wins.
    """
    outer = model_type
    model_type = CLASSES["texts"].get(outer, outer)
    row = dict(CLASSES["classes"].get(model_type, {}))
    if row:
        row["known"] = True
        row["types"] = CLASSES["types"] | row.get("types", {})

    older = CLASSES["older"].get(release, {}).get(model_type)
    if older:
        # A default that is no literal there is None, and computed from the sizes.
        silent = {
            "head_dim",
            "partial",
            "rope",
            "base",
            "original_max_position_embeddings",
        }
        row = {name: value for name, value in row.items() if name not in silent}
        renamed = _TYPES["older_names"]
        row |= {renamed.get(name, name): value for name, value in older.items()}

    row |= FAMILIES.get(outer, {})
    row |= FAMILIES.get(model_type, {})
    row |= WHOLES.get(whole, {})
    # there the share beside the block counts for nearly all
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
    """Return the model types of each release of transformers, from the differences in
    the file.
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
# Their classes have rotary positions, whatever keys a file has.
ROTATED = ({*list(RELEASES.values())[-1]} | FAMILIES.keys()) - UNROTATED


def unrotated(text: Mapping[str, Any]) -> str:
    """Return why a configuration has no rotary positions, or nothing."""
    kind = str(text.get("model_type"))
    # Most classes pass over this key, which is then no word about what they do.
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
    if name in KEYS["top"] or name in KEYS["gguf"]:
        return True
    return "rope" in name.lower() or "rotary" in name.lower() or bool(meant(name))


def meaning(path: str) -> str:
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
