"""Write what the configuration classes of transformers fill in where a file is silent.

python tools/class_defaults.py [WHEEL ...]

The classes of the installed release are built and asked: a key is changed, and what
follows from it is read off the object and off the rotary class. Of older releases,
given as wheels, only the literal defaults of the classes are read. Result:
ropelab/readers/classes.json.
"""

import ast
import dataclasses
import inspect
import json
import logging
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import torch
import transformers
from transformers.models.auto.configuration_auto import (
    CONFIG_MAPPING,
    CONFIG_MAPPING_NAMES,
)

from ropelab.conformance.rotary_classes import find_rotary_class
from ropelab.runs.errors import InputError

TARGET = Path(__file__).parents[1] / "ropelab/readers/classes.json"
SIZES = ("hidden_size", "num_attention_heads", "max_position_embeddings")
HEAD_KEYS = ("qk_rope_head_dim", "attention_head_dim", "kv_channels", "head_dim")
BASE_KEYS = (
    "rope_theta",
    "rotary_emb_base",
    "global_rope_theta",
    "compress_rope_theta",
)
LOCAL_KEYS = ("rope_local_base_freq", "local_rope_theta", "rope_theta")
SHARE_KEYS = ("partial_rotary_factor", "rotary_pct")
OLDER = {"rope_theta", "rotary_emb_base", "partial_rotary_factor", "rotary_pct"}
OLDER |= {
    "head_dim",
    "qk_rope_head_dim",
    "rope_scaling",
    "rope_local_base_freq",
    *SIZES,
}
OLDER |= {"global_rope_theta", "local_rope_theta", "original_max_position_embeddings"}
# Keys whose declared types are kept, and what nearly all classes declare.
TYPES = dict.fromkeys(
    ("hidden_size", "num_attention_heads", "num_hidden_layers"), "int"
)
TYPES |= {"max_position_embeddings": "int", "rope_parameters": "dict or null"}
TYPED = (
    *TYPES,
    *HEAD_KEYS,
    *BASE_KEYS,
    *LOCAL_KEYS,
    *SHARE_KEYS,
    "num_key_value_heads",
)
TYPED += (
    "original_max_position_embeddings",
    "layer_types",
    "sliding_window",
    "rope_interleave",
)
TYPED += (
    "attn_temperature_tuning",
    "floor_scale",
    "attn_scale",
    "no_rope_layers",
    "rotary_dim",
)
WORDS = {NoneType: "null", int: "int", float: "float", bool: "bool", list: "list"}
ODD, MARK = 12345.0, 0.75  # values that no class has
NO_TEXT = re.compile(
    "vision|audio|speech|codec|mimi|moshi|kyutai|vq|_tts|esm|timesfm|encoder|lasr"
)

Row = dict[str, Any]
BLOCKS: dict[str, Row] = {
    "linear": {"factor": 2.0},
    "dynamic": {"factor": 2.0},
    "yarn": {"factor": 2.0, "original_max_position_embeddings": 1024},
    "llama3": {
        "factor": 2.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
    "proportional": {"partial_rotary_factor": 0.5},
}


def types() -> Iterator[tuple[str, Any]]:
    """Yield model types of language models with their classes."""
    for kind in sorted(CONFIG_MAPPING_NAMES):
        if not NO_TEXT.search(kind) and CONFIG_MAPPING[kind].model_type == kind:
            yield kind, CONFIG_MAPPING[kind]


def head_of(config: Any) -> int | None:
    """Return the head's size as the rotary classes take it; None where it varies by
    layer.
    """
    try:
        given = getattr(config, "head_dim", None)
    except Exception:
        return None
    return int(given or config.hidden_size // config.num_attention_heads)


class Asked:
    """A configuration class, and what it makes of a few keys."""

    def __init__(self, config_class: Any) -> None:
        self.config_class = config_class

    def made(self, **keys: Any) -> Any:
        return self.config_class.from_dict(json.loads(json.dumps(keys)))

    def head(self, rotary: Any, **keys: Any) -> int | None:
        """Return the pairs of the first table of such a file, None where the classes
        stop.
        """
        try:
            tables = rotary(config=self.made(**keys)).named_buffers()
        except Exception:
            return None
        return next(len(table) for name, table in tables if name.endswith("inv_freq"))

    def rope(self, **keys: Any) -> dict[str, Any]:
        try:
            found = self.made(**keys).rope_parameters
        except Exception:
            return {}  # a class that refuses a key does not read it
        return json.loads(json.dumps(found)) if found else {}


def row(config_class: Any) -> Row | None:
    """Return the facts of one class, None if it has no rotary positions of text."""
    asked = Asked(config_class)
    bare = asked.made()
    if bare.get_text_config() is not bare or not getattr(bare, "rope_parameters", None):
        return None
    if not hasattr(bare, "vocab_size"):
        return None  # images
    rotary = find_rotary_class(config_class)
    rotary(config=bare)  # raises where the class is built from something else
    found = pairing(config_class, bare) | sizes(asked, bare)
    names = {k: v for k, v in asked.config_class.attribute_map.items() if k in SIZES}
    found["aliases"] = names or None
    # DeepSeek's attention, which has a factor on whole scores.
    found["latent"] = "mscale_all_dim" in inspect.getsource(
        sys.modules[rotary.__module__]
    )
    rope = asked.rope()
    found |= layered(asked, rotary, rope) if is_nested(rope) else flat(asked, rope)
    if "layer_blocks" not in found:
        # A dict per layer type stops a class that declares these types, others pass
        # over it.
        labels = sorted(set(getattr(bare, "layer_types", None) or ()))
        part: Row = {"rope_type": "default", "rope_theta": 1e4}
        if asked.head(rotary, rope_parameters=dict.fromkeys(labels, part)) is None:
            found["layer_types"] = labels
        found |= refused(asked, rotary, found)
    found["stops_at_null_head_dim"] = stops_at_null(asked, rotary)
    found["reads_share_unscaled"] = shares(asked, rotary, rope)
    found["key_types"] = declared(config_class) or None
    found["needs_divisible_size"] = divides(asked, bare)
    return {name: value for name, value in found.items() if value not in (None, False)}


def declared(config_class: Any) -> dict[str, str]:
    """Return the types of keys that are not the usual; nothing for an undeclared
    key.
    """
    found = dict.fromkeys(TYPED, "")
    for field in dataclasses.fields(config_class):
        union = get_origin(field.type) in (Union, UnionType)
        members = get_args(field.type) if union else (field.type,)
        words = (WORDS.get(get_origin(one) or one, "dict") for one in members)
        if field.name in found:
            found[field.name] = " or ".join(dict.fromkeys(words))
    return {key: words for key, words in found.items() if words != TYPES.get(key, "")}


def divides(asked: Asked, bare: Any) -> bool:
    """Return True if the class insists on a hidden size that is a multiple of the
    heads.
    """
    sizes = {"hidden_size": 64 * bare.num_attention_heads, "head_dim": 64}
    odd = {**sizes, "hidden_size": sizes["hidden_size"] + 1}
    # Falcon's class stops at any head_dim.
    return changed_head(asked, sizes) is not None and changed_head(asked, odd) is None


def refused(asked: Asked, rotary: Any, found: Row) -> Row:
    """Return the scaling types at which the class stops, always or without a
    head_dim.
    """
    always, without = [], []
    # The usual sizes of a class may make heads of an odd size.
    heads = asked.made().num_attention_heads
    even: Row = {"hidden_size": 64 * heads}
    for kind, block in BLOCKS.items():
        scaled = {"rope_type": kind, **block}
        tables = (
            asked.head(rotary, rope_parameters=scaled, **sizes) for sizes in ({}, even)
        )
        if any(table is not None for table in tables):
            continue
        with_head: Row = dict.fromkeys(found.get("head_keys") or ["head_dim"], 64)
        built = asked.head(
            rotary, rope_parameters={"rope_type": kind, **block}, **with_head
        )
        (always if built is None else without).append(kind)
    return {"refuses": always or None, "refuses_without_head_dim": without or None}


def stops_at_null(asked: Asked, rotary: Any) -> bool:
    """Tell whether a head_dim of null stops the class with YaRN, and not without it."""
    plain: Row = {"rope_scaling": {"rope_type": "default"}}
    scaled: Row = {"rope_scaling": {"rope_type": "yarn", **BLOCKS["yarn"]}}
    null: Row = {"head_dim": None}
    works = asked.head(rotary, **scaled) is not None
    works_unscaled = asked.head(rotary, **plain, **null) is not None
    return works and works_unscaled and asked.head(rotary, **scaled, **null) is None


def sizes(asked: Asked, bare: Any) -> Row:
    told = bare.to_dict()
    names = (*SIZES, "original_max_position_embeddings")
    found: Row = {name: told.get(name, getattr(bare, name, None)) for name in names}
    if (head := head_of(bare)) is None:  # Gemma 4: by layer type
        found["head_dim"] = told["head_dim"]
        found["global_head_dim"] = bare.per_layer_config["full_attention"].head_dim
        return found
    other = 72 if head != 72 else 88
    wide = changed_head(asked, {"hidden_size": other * bare.num_attention_heads})
    if wide == head or wide is None:
        found["head_dim"] = head
    elif wide != other:
        found["head_scale"] = wide // other  # Zamba 2: heads of twice the size
    # Keys of the head's size, the one that wins first.
    keys = [
        key for key in HEAD_KEYS if changed_head(asked, {key: 2 * head}) == 2 * head
    ]
    if keys[1:]:
        both = changed_head(asked, {keys[0]: 2 * head, keys[1]: 4 * head})
        keys = keys if both == 2 * head else keys[::-1]
    if keys != ["head_dim"]:
        found["head_keys"] = keys
    return found


def changed_head(asked: Asked, keys: Mapping[str, int]) -> int | None:
    try:
        return head_of(asked.made(**keys))
    except Exception:
        return None


def is_nested(rope: Mapping[str, Any]) -> bool:
    return any(isinstance(value, dict) or value is None for value in rope.values())


def flat(asked: Asked, rope: Row) -> Row:
    """Return what a class with one dict for all layers fills in."""
    least = asked.rope(rope_parameters={"rope_type": "default"})
    found: Row = {
        "base": least["rope_theta"],
        "share": least.get("partial_rotary_factor"),
    }
    found["base_keys"] = [
        k for k in BASE_KEYS if asked.rope(**{k: ODD}).get("rope_theta") == ODD
    ]
    found["share_keys"] = [
        key
        for key in SHARE_KEYS
        if asked.rope(**{key: MARK}).get("partial_rotary_factor") == MARK
    ]
    share = asked.rope(rotary_dim=2).get("partial_rotary_factor")
    if share != rope.get("partial_rotary_factor"):
        found["width_key"] = "rotary_dim"
    if rope != least:
        # A base inside the default block wins over one beside it.
        inside = "rope_theta" not in found["base_keys"]
        found["rope_block"] = {
            k: v for k, v in rope.items() if inside or k != "rope_theta"
        }
        found["base_keys"] = found["base_keys"] or ["rope_theta"]
    usual = {"base_keys": ["rope_theta"], "share_keys": [SHARE_KEYS[0]]}
    return {name: value for name, value in found.items() if usual.get(name) != value}


def layered(asked: Asked, rotary: Any, rope: Row) -> Row:
    """Return what a class with a dict per layer type fills in."""
    least = asked.rope(
        rope_parameters={label: {"rope_type": "default"} for label in rope}
    )
    found: Row = {"layer_blocks": rope, "layer_blocks_from_empty": least}
    found["refuses_flat"] = not asked.rope(rope_parameters={"rope_type": "default"})
    if asked.rope(partial_rotary_factor=MARK) == rope:
        found["share_keys"] = []
    if head := head_of(asked.made()):
        part: Row = {"rope_type": "default", "rope_theta": 1e4}
        pairs = asked.head(
            rotary, rope_parameters={label: dict(part) for label in rope}
        )
        # The share of a bare dict, which the rotary class itself assumes.
        given = any(
            "partial_rotary_factor" in (value or {}) for value in least.values()
        )
        if pairs and 2 * pairs != head and not given:
            found["unscaled_share"] = 2 * pairs / head
    scaled = asked.rope(rope_scaling={"rope_type": "linear", "factor": 2.0})
    if any(
        "factor" in (part or {})
        for part in scaled.values()
        if isinstance(part, dict | None)
    ):
        # Classes that take a block of transformers 4: into which layers it goes, and by
        # which keys the bases are given.
        found["scaled_layer_types"] = [
            k for k, v in scaled.items() if isinstance(v, dict) and "factor" in v
        ]
    keys: dict[str, str] = {}
    for label in rope:
        for key in (*BASE_KEYS, *LOCAL_KEYS):
            made = asked.rope(**{key: ODD}).get(label)
            if isinstance(made, dict) and made.get("rope_theta") == ODD:
                keys.setdefault(label, key)
    return found | {"layer_base_keys": keys or None}


def shares(asked: Asked, rotary: Any, rope: Row) -> bool:
    """Return True if the class reads a rotated share without a scaling."""
    least: Row = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.5,
    }
    block = dict.fromkeys(rope, least) if is_nested(rope) else least
    widths = []
    for part in (
        block,
        {**block, "partial_rotary_factor": 1.0}
        if block is least
        else require_whole(rope),
    ):
        built = rotary(config=asked.made(rope_parameters=part))
        widths.append(
            min(len(b) for n, b in built.named_buffers() if n.endswith("inv_freq"))
        )
    return widths[0] != widths[1]


def require_whole(rope: Row) -> Row:
    full: Row = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 1.0,
    }
    return dict.fromkeys(rope, full)


def pairing(config_class: Any, bare: Any) -> Row:
    """Return which features the module's own function pairs, from a rotated unit
    vector.
    """
    module = sys.modules[find_rotary_class(config_class).__module__]
    if hasattr(module, "apply_rotary_pos_emb_interleave"):
        if not hasattr(bare, "rope_interleave"):
            return {"pairing": "interleaved"}
        return {
            "pairing": "interleaved" if bare.rope_interleave else "half",
            "pairing_key": "rope_interleave",
        }
    rotate = getattr(module, "apply_rotary_pos_emb", None) or module.apply_rotary_emb
    angle = torch.full((1, 1, 4), 0.5)
    unit = torch.zeros(1, 1, 1, 8)
    unit[..., 0] = 1
    names = list(inspect.signature(rotate).parameters)
    if "freqs_cis" in names:
        turned = rotate(unit, unit, torch.polar(torch.ones(1, 1, 4), angle))[0]
    else:
        vectors = (unit, unit) if {"q", "k"} <= set(names) else (unit,)
        for parts in (angle, torch.cat((angle, angle), -1)):
            try:
                turned = rotate(*vectors, parts.cos(), parts.sin())
                break
            except RuntimeError:
                continue
        turned = turned[0] if isinstance(turned, tuple) else turned
    partner = int(turned.flatten()[1:].abs().argmax()) + 1
    return {"pairing": "interleaved" if partner == 1 else "half"}


def literals(wheel: Path) -> dict[str, Row]:
    """Return the literal defaults of the configuration classes in a wheel of
    transformers 4.
    """
    found = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.search(r"models/[^/]+/configuration_\w+\.py$", name):
                tree = ast.parse(archive.read(name))
                found |= dict(filter(None, map(of_class, tree.body)))
    return dict(sorted(found.items()))


def of_class(node: ast.stmt) -> tuple[str, Row] | None:
    if not isinstance(node, ast.ClassDef):
        return None
    kind, defaults = "", {}
    for item in node.body:
        if (
            isinstance(item, ast.Assign)
            and getattr(item.targets[0], "id", "") == "model_type"
        ):
            kind = ast.literal_eval(item.value)
        if isinstance(item, ast.FunctionDef) and item.name == "__init__":
            pairs = zip(item.args.args[::-1], item.args.defaults[::-1], strict=False)
            for argument, value in pairs:
                if argument.arg in OLDER and isinstance(value, ast.Constant | ast.Dict):
                    defaults[argument.arg] = ast.literal_eval(value)
    defaults = {name: value for name, value in defaults.items() if value is not None}
    rotates = defaults.keys() & (OLDER - {*SIZES, "head_dim"})
    return (kind, defaults) if kind and rotates and not NO_TEXT.search(kind) else None


def classes() -> tuple[dict[str, Row], dict[str, str], list[str]]:
    """Return the rows by model type; for outer types that of their language part; flat
    ones.
    """
    rows, texts, without_part = {}, {}, []
    for kind, config_class in types():
        try:
            if made := row(config_class):
                rows[kind] = made
            elif (inner := config_class().get_text_config().model_type) not in (
                "",
                kind,
            ):
                texts[kind] = inner
                # Some read a file without a language part of its own, of before they
                # had one.
                if (
                    config_class.from_dict({"hidden_size": 64})
                    .get_text_config()
                    .hidden_size
                    == 64
                ):
                    without_part.append(kind)
        except (InputError, ImportError):
            continue  # no rotary class
        except Exception as error:
            print(
                f"{kind}: left out, {type(error).__name__}: {str(error)[:90]}",
                file=sys.stderr,
            )
    texts = {outer: inner for outer, inner in texts.items() if inner in rows}
    return rows, texts, [kind for kind in without_part if kind in texts]


def document(wheels: list[Path]) -> str:
    rows, texts, flat_types = classes()
    older = {wheel.name.split("-")[1]: literals(wheel) for wheel in wheels}
    if not wheels:
        older = json.loads(TARGET.read_text())["older"]
    parts: Row = {
        "release": transformers.__version__,
        "texts": texts,
        "flat": flat_types,
    }
    parts |= {"key_types": TYPES, "classes": rows}
    lines = ["{"]
    for name, value in {**parts, "older": older}.items():
        if not isinstance(value, dict):
            lines.append(f"{json.dumps(name)}: {json.dumps(value)},")
            continue
        entries = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()]
        lines.append(f"{json.dumps(name)}: {{\n" + ",\n".join(entries) + "\n},")
    return "\n".join(lines)[:-1] + "\n}\n"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    TARGET.write_text(document([Path(name) for name in sys.argv[1:]]))
