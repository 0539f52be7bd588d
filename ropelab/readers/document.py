"""A model's configuration from disk or from standard input, read within bounds.

Nobody's code is run: a configuration is JSON of at most 16 MB; of a GGUF only the
header is read.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropelab.readers.axes import is_encoder
from ropelab.readers.families import (
    ROTATED_TYPES,
    UNROTATED_TYPES,
    explain_unrotated,
    read_table,
)
from ropelab.readers.gguf import ARRAY, PER_LAYER, Length, read_header
from ropelab.readers.spec import short
from ropelab.readers.trace import MAXIMUM, language_part, rope_block, rope_paths
from ropelab.runs.errors import InputError
from ropelab.runs.files import MOST_BYTES, check_regular, parse, repeated_keys

PARAMS, PARAMS_YARN, META = (
    read_table("names")[name] for name in ("params", "params_yarn", "meta")
)
# The name under which a configuration keeps the params.json that it was made of.
OWN_PARAMS = "params.json"
# The most keys of one object. Real files have a few hundred, and each key is looked at for
# each runtime.
MOST_KEYS = 2**13
GGUF = read_table("names")["gguf"]
# Architectures of llama.cpp whose layers rotate nothing.
WITHOUT_ROTATION = frozenset(GGUF["unrotated"].split())
ROTATING = frozenset(GGUF["rotated"].split())


@dataclass(frozen=True)
class Document:
    """One configuration, with what else is known of its file."""

    name: str
    # config: a config.json. params: Mistral's params.json, with the keys of a config.json.
    # gguf: the header of a GGUF file.
    kind: str
    config: Mapping[str, Any]
    # The length that the tokenizer in the same folder allows.
    tokenizer_length: int | None = None
    # The encoding, unless it is plain UTF-8, which is all that runtimes read.
    encoding: str = ""
    # Keys of which a JSON file has two values.
    repeated: tuple[str, ...] = ()


def load(source: str, images: bool = False) -> Document:
    """Return the configuration at a path, in a model folder, or on standard input
    (`-`).

    Args:
        source: the path, folder, or `-`.
        images: True to read an encoder of images by itself, too, if its class was read.

    InputError if it is too large, not JSON, or has nothing about rotary positions in
    it.
    """
    if source == "-":
        raw = sys.stdin.buffer.read(MOST_BYTES + 1)
        return from_json("standard input", raw, images)
    path = Path(source)
    if not os.path.isdir(path):  # noqa: PTH112 (Path.is_dir stops at names that are too long)
        if read_bytes(path, 4) == b"GGUF":
            return from_gguf(path)
        return from_json(source, read_bytes(path), images)

    for name in ("config.json", "params.json"):
        if (path / name).is_file():
            document = load(str(path / name), images)
            return replace(document, tokenizer_length=read_tokenizer_length(path))
    files = sorted(path.glob("*.gguf"))
    if len(files) != 1:
        raise InputError(f"{path} holds neither config.json nor params.json")
    return load(str(files[0]))


def read_tokenizer_length(folder: Path) -> int | None:
    """Return the length that the tokenizer of a folder allows; None: it states none."""
    limits = folder / "tokenizer_config.json"
    if not limits.is_file():
        return None
    length = parse(str(limits), read_bytes(limits)).get("model_max_length")
    # transformers writes a huge number where there is no limit.
    if isinstance(length, int | float) and 0 < length < 2**40:
        return int(length)
    return None


def read_bytes(path: Path, most: int = MOST_BYTES + 1) -> bytes:
    """Return the beginning of a file, by default one byte more than is allowed."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def from_json(name: str, raw: bytes, images: bool = False) -> Document:
    detected = json.detect_encoding(raw)
    names = {"utf-8": "", "utf-8-sig": "UTF-8 with a byte order mark"}
    encoding = names.get(detected, detected.upper())
    # `Infinity` is allowed: transformers writes it for a limit that is none (Nemotron's
    # time_step_limit).
    config = parse(name, raw, finite=False)

    rotates = str(config.get("model_type")) not in UNROTATED_TYPES
    if rotates and {"n_heads", "dim"} <= config.keys():
        if META.keys() & config.keys():
            raise InputError(
                f"{name} is Meta's params.json: runtimes read config.json beside it"
            )
        params = from_params(config)
        repeated = tuple(repeated_keys(raw))
        return Document(name, "params", params, encoding=encoding, repeated=repeated)

    _, text = language_part(config)
    _, block = rope_block(text)
    for part in (config, text, block):
        if len(part) > MOST_KEYS:
            raise InputError(
                f"{name} has {len(part)} keys in one object; no model has more than"
                f" {MOST_KEYS}"
            )
        if not isinstance(part.get("model_type"), str | None):
            raise InputError(
                f"{name}: model_type must be a name, not {short(part['model_type'])}"
            )
    if images and is_encoder(config):
        return Document(name, "config", config, encoding=encoding)
    refuse_images(name, config, text)
    reason = explain_unrotated(text)
    if reason:
        raise InputError(f"{name} has no rotary positions: {reason}")

    sized = any(
        key in text for key in ("num_attention_heads", "n_head", "n_heads", "head_dim")
    )
    paths = " ".join(rope_paths(text))
    rotates = "max_position_embeddings" in text or "rope" in paths or "rotary" in paths
    if text.get("model_type") not in ROTATED_TYPES and not (sized and rotates):
        raise InputError(f"{name} has no keys of a model with rotary positions")
    repeated = tuple(repeated_keys(raw))
    return Document(name, "config", config, encoding=encoding, repeated=repeated)


def refuse_images(
    name: str, config: Mapping[str, Any], text: Mapping[str, Any]
) -> None:
    """Raise InputError for a model of images alone, whose positions have several axes."""
    kind = config.get("_class_name")
    if isinstance(kind, str):
        raise InputError(
            f"{name} is a file of diffusers ({short(kind)}), which rotates by axes of an"
            " image; ask ropelab freqs about each axis by its width and base"
        )

    sized = {"patch_size", "image_size", "patch_embed"} & text.keys()
    if sized and "vocab_size" not in text and MAXIMUM not in text:
        kind = short(text.get("model_type", ""))
        advice = "a file with a language model is read"
        if is_encoder(config):
            advice = "no runtimes are compared; check and vectors read it"
        raise InputError(
            f"{name} is a model of images ({kind}), whose positions are rows and"
            f" columns; {advice}"
        )


def from_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a params.json under the names of a config.json, as vLLM does.

    The file itself is kept beside them.
    """
    left_out = {"yarn", "sliding_window"}
    # Mistral Large 3 has latent attention.
    moe = params.get("moe")
    shared_experts = moe.get("num_shared_experts") if isinstance(moe, Mapping) else None
    is_latent = bool(shared_experts if moe else params.get("qk_nope_head_dim"))
    if is_latent:
        left_out.add("head_dim")

    config = {}
    for key, value in params.items():
        if key not in left_out:
            config[PARAMS.get(key, key)] = value
    config.setdefault("max_position_embeddings", 128000)
    config.setdefault("model_type", "deepseek_v3" if is_latent else "mistral")
    # llama.cpp's converter reads the file as it is.
    config[OWN_PARAMS] = dict(params)

    yarn = params.get("yarn")
    if isinstance(yarn, Mapping):
        block = {PARAMS_YARN.get(key, key): value for key, value in yarn.items()}
        block.pop("apply_scale", None)
        block |= {"rope_type": "yarn", "mscale_all_dim": 1}
        if yarn.get("apply_scale") is False:
            block["attention_factor"] = 1.0
        config["rope_scaling"] = block
    return config


def check_types(name: str, prefix: str, kinds: Mapping[str, tuple[int, ...]]) -> None:
    """Raise InputError for a key whose type is not the one that llama.cpp reads."""
    for kind, keys in GGUF["types"].items():
        usual: tuple[int, ...] = (GGUF["numbers"][kind],)
        for key in keys:
            wanted = [usual]
            if key == PER_LAYER.removeprefix("."):
                for number in GGUF["numbers_per_layer"]:
                    wanted.append((ARRAY, number))

            full = f"{prefix}{key}"
            if kinds.get(full, usual) not in wanted:
                raise InputError(
                    f"{name} is refused by llama.cpp: {full} is not of type {kind}"
                )


def from_gguf(path: Path) -> Document:
    """Return a GGUF file's header; its keys lose the architecture's prefix."""
    header = read_header(path)
    architecture = header.fields.get("general.architecture", "")
    if architecture in WITHOUT_ROTATION:
        raise InputError(
            f"{path} has no rotary positions: the layers of '{architecture}' rotate"
            " nothing in llama.cpp"
        )
    prefix = f"{architecture}." if isinstance(architecture, str) else "."
    check_types(str(path), prefix, header.kinds)

    fields = {}
    for name, value in header.fields.items():
        if name.startswith(prefix) and not isinstance(value, Length):
            fields[name.removeprefix(prefix)] = value
    if not {"attention.head_count", "embedding_length"} <= fields.keys():
        raise InputError(
            f"{path} has no attention heads: no model with rotary positions"
        )
    tensors = {name: values.tolist() for name, values in header.tensors.items()}
    return Document(str(path), "gguf", {"model_type": prefix[:-1], **fields, **tensors})
