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
from ropelab.readers.gguf import ARRAY, PER_LAYER, Length
from ropelab.readers.gguf_parts import is_later_file, read_model
from ropelab.readers.mistral_params import META_KEYS, is_params, translate_params
from ropelab.readers.spec import shorten_value
from ropelab.readers.trace import (
    MAXIMUM,
    find_language_part,
    find_rope_block,
    list_rope_paths,
)
from ropelab.runs.errors import InputError
from ropelab.runs.files import MOST_BYTES, check_regular, find_repeated_keys, parse

# The most keys of one object. Real files have a few hundred, and each key is looked at for
# each runtime.
MOST_KEYS = 2**13
# The first length that counts as no limit: transformers writes a huge number for a
# tokenizer without a limit.
FIRST_UNLIMITED_LENGTH = 2**40
# Keys by which a file states the size of heads, in the words of several model types.
SIZE_KEYS = ("num_attention_heads", "n_head", "n_heads", "head_dim")
# Keys by which a file states the size of images.
IMAGE_KEYS = ("patch_size", "image_size", "patch_embed")
# The names of encodings in messages, by the names that `json` uses. Plain UTF-8 is not
# mentioned.
ENCODING_NAMES = {"utf-8": "", "utf-8-sig": "UTF-8 with a byte order mark"}
# Facts about GGUF files: architectures, and the numbers of the types of values.
GGUF = read_table("names")["gguf"]
# Kinds of GGUF files that are not models, by their general.type. The error begins with
# "is no model but", so that "one" stands for a model.
OTHER_KINDS = {
    "adapter": "an adapter for one, which has no rotation of its own",
    "imatrix": "weights by which one is quantized",
    "mmproj": "an encoder beside one",
}
# Architectures whose layers rotate nothing in llama.cpp.
UNROTATED_ARCHITECTURES = frozenset(GGUF["unrotated"].split())
# Architectures of which no file has a base: llama.cpp's own is theirs.
ARCHITECTURES_WITHOUT_BASE = frozenset(GGUF["without_base"].split())
# Architectures whose layers rotate in llama.cpp. An audit warns of all others.
ROTATED_ARCHITECTURES = frozenset(GGUF["rotated"].split())


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
    """Return the configuration in a file, in a model folder, or on standard input.

    InputError: the file is too large, is not JSON, or says nothing about rotary
    positions.

    Args:
        source: the path of the file or folder, or `-` for standard input.
        images: True to accept an encoder of images by itself, too, if ropelab knows how
            its class rotates.
    """
    if source == "-":
        raw = sys.stdin.buffer.read(MOST_BYTES + 1)
        return parse_document("standard input", raw, images)

    path = Path(source)
    # `Path.is_dir` raises OSError for a name that is too long.
    if os.path.isdir(path):  # noqa: PTH112
        return load_folder(path, images)
    if read_beginning(path, count=4) == b"GGUF":
        return load_gguf(path)
    return parse_document(source, read_beginning(path), images)


def load_folder(folder: Path, images: bool) -> Document:
    """Return the configuration in a model folder: as JSON, or in its only GGUF
    model.
    """
    for name in ("config.json", "params.json"):
        if (folder / name).is_file():
            document = load(str(folder / name), images)
            return replace(document, tokenizer_length=read_tokenizer_length(folder))

    # A model in several files is read from its first.
    gguf_files = [
        file for file in sorted(folder.glob("*.gguf")) if not is_later_file(file.name)
    ]
    if len(gguf_files) > 1:
        raise InputError(f"{folder} holds several GGUF models; give the file of one")
    if not gguf_files:
        raise InputError(f"{folder} holds neither config.json nor params.json")
    return load(str(gguf_files[0]))


def read_tokenizer_length(folder: Path) -> int | None:
    """Return the most tokens that the tokenizer in a folder allows; None: no limit."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return None
    length = parse(str(path), read_beginning(path)).get("model_max_length")
    if isinstance(length, bool) or not isinstance(length, int | float):
        return None
    if 0 < length < FIRST_UNLIMITED_LENGTH:
        return int(length)
    return None


def read_beginning(path: Path, count: int = MOST_BYTES + 1) -> bytes:
    """Return the first bytes of a file.

    The default count is one byte more than a configuration may have, which shows that a
    file is too large.
    """
    try:
        check_regular(path)
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def parse_document(name: str, raw: bytes, images: bool = False) -> Document:
    """Return the configuration of a JSON text.

    Args:
        name: the name of the file, for errors.
        raw: the text, in UTF-8, UTF-16 or UTF-32.
        images: True to accept an encoder of images by itself, too, if ropelab knows how
            its class rotates.
    """
    # `Infinity` is allowed: transformers writes it where there is no limit (Nemotron's
    # time_step_limit).
    config = parse(name, raw, finite=False)
    detected = json.detect_encoding(raw)
    encoding = ENCODING_NAMES.get(detected, detected.upper())
    repeated = tuple(find_repeated_keys(raw))

    # The config.json of some models that rotate nothing has the two keys by which a
    # params.json is known, as that of DistilBERT.
    is_unrotated = str(config.get("model_type")) in UNROTATED_TYPES
    if is_params(config) and not is_unrotated:
        if META_KEYS & config.keys():
            raise InputError(
                f"{name} is Meta's params.json: runtimes read config.json beside it"
            )
        params = translate_params(config)
        return Document(name, "params", params, encoding=encoding, repeated=repeated)

    check_objects(name, config)
    is_accepted_encoder = images and is_encoder(config)
    if not is_accepted_encoder:
        check_has_positions(name, config)
    return Document(name, "config", config, encoding=encoding, repeated=repeated)


def check_objects(name: str, config: Mapping[str, Any]) -> None:
    """Raise InputError for too many keys in an object, or a model_type that is not a
    text.
    """
    _, language_part = find_language_part(config)
    _, block = find_rope_block(language_part)
    for part in (config, language_part, block):
        if len(part) > MOST_KEYS:
            raise InputError(
                f"{name} has {len(part)} keys in one object; no model has more than"
                f" {MOST_KEYS}"
            )
        if not isinstance(part.get("model_type"), str | None):
            raise InputError(
                f"{name}: model_type must be a name, not {shorten_value(part['model_type'])}"
            )


def check_has_positions(name: str, config: Mapping[str, Any]) -> None:
    """Raise InputError for a configuration that has no rotary positions of text."""
    _, language_part = find_language_part(config)
    refuse_images(name, config, language_part)
    reason = explain_unrotated(language_part)
    if reason:
        raise InputError(f"{name} has no rotary positions: {reason}")

    # The keys of an unknown model type have to show that it is a model, and that it
    # rotates.
    if language_part.get("model_type") in ROTATED_TYPES:
        return
    has_size = any(key in language_part for key in SIZE_KEYS)
    has_length = MAXIMUM in language_part
    if not has_size or not (has_length or names_rotation(language_part)):
        model_type = language_part.get("model_type")
        # Of a class that was not read, ropelab does not know whether it rotates.
        unread = (
            f"; the class of '{shorten_value(model_type)}' was not read"
            if model_type
            else ""
        )
        other_part = find_other_part(config)
        if other_part:
            raise InputError(
                f"{name} has keys about rotation in {other_part} alone, a part that is"
                f" not known for a language model{unread}"
            )
        raise InputError(f"{name} has no keys of a model with rotary positions{unread}")


def names_rotation(part: Mapping[str, Any]) -> bool:
    """Return True if a key of a part of a configuration names a rotation."""
    paths = " ".join(list_rope_paths(part))
    return "rope" in paths or "rotary" in paths


def find_other_part(config: Mapping[str, Any]) -> str:
    """Return the path of the first part with keys about rotation, where a configuration
    has its language model under no key that is known; empty: there is none.
    """
    for name, part in config.items():
        if not isinstance(part, Mapping):
            continue
        prefix, inner_part = find_language_part(part)
        if names_rotation(inner_part):
            return shorten_value(f"{name}.{prefix}".rstrip("."))
    return ""


def refuse_images(
    name: str, config: Mapping[str, Any], language_part: Mapping[str, Any]
) -> None:
    """Raise InputError for a model of images without a language model, whose positions
    have several axes.

    Args:
        name: the name of the file, for the error.
        config: the configuration.
        language_part: the language part of the configuration.
    """
    diffusers_class = config.get("_class_name")
    if isinstance(diffusers_class, str):
        raise InputError(
            f"{name} is a file of diffusers ({shorten_value(diffusers_class)}), which rotates by"
            " axes of an image; ask ropelab freqs about each axis by its width and base"
        )

    has_images = any(key in language_part for key in IMAGE_KEYS)
    has_text = "vocab_size" in language_part or MAXIMUM in language_part
    if has_text or not has_images:
        return
    advice = "a file with a language model is read"
    if is_encoder(config):
        # `check` and `vectors` are commands of ropelab.
        advice = "no runtimes are compared; check and vectors read it"
    model_type = shorten_value(language_part.get("model_type", ""))
    raise InputError(
        f"{name} is a model of images ({model_type}), whose positions are rows and"
        f" columns; {advice}"
    )


def load_gguf(path: Path) -> Document:
    """Return the header of a GGUF file, without the architecture before its keys.

    The key `llama.rope.freq_base` becomes `rope.freq_base`, and the architecture the
    model_type. Tensors become lists.

    InputError is raised if

    - the file has no rotary positions, or no tensors
    - the model is in several files, and this file is not the first of them, or another
      one is missing
    - llama.cpp refuses the type of a key.
    """
    header = read_model(path)
    content_type = header.fields.get("general.type", "model")
    if isinstance(content_type, str) and content_type in OTHER_KINDS:
        raise InputError(f"{path} is no model but {OTHER_KINDS[content_type]}")
    architecture = header.fields.get("general.architecture", "")
    if architecture in UNROTATED_ARCHITECTURES:
        raise InputError(
            f"{path} has no rotary positions: the layers of '{architecture}' rotate"
            " nothing in llama.cpp"
        )
    # The architecture in a file can be of any type. If it is not a text, no key begins
    # with it.
    if not isinstance(architecture, str):
        architecture = ""
    prefix = f"{architecture}."
    check_gguf_types(str(path), prefix, header.kinds)

    fields = {}
    for name, value in header.fields.items():
        was_skipped = isinstance(value, Length)
        if name.startswith(prefix) and not was_skipped:
            fields[name.removeprefix(prefix)] = value
    if not {"attention.head_count", "embedding_length"} <= fields.keys():
        raise InputError(
            f"{path} has no attention heads: no model with rotary positions"
        )
    if not header.tensor_names and "tokenizer.ggml.tokens" in header.fields:
        # Such files test tokenizers. llama.cpp stops at the missing token_embd.weight.
        raise InputError(f"{path} has no tensors: a bare vocabulary, and no model")

    tensors = {name: values.tolist() for name, values in header.tensors.items()}
    config = {"model_type": architecture, **fields, **tensors}
    return Document(str(path), "gguf", config)


def check_gguf_types(
    name: str, prefix: str, types: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise InputError for a key that has another type than llama.cpp reads.

    Args:
        name: the name of the file, for the error.
        prefix: the architecture with a dot, which begins the keys.
        types: for each key the number of its type in the file. For an array these are
            two numbers: `ARRAY`, and the number of the type of its elements.
    """
    per_layer_key = PER_LAYER.removeprefix(".")
    for type_name, keys in GGUF["types"].items():
        scalar = (GGUF["numbers"][type_name],)
        arrays = [(ARRAY, number) for number in GGUF["numbers_per_layer"]]
        for key in keys:
            allowed: list[tuple[int, ...]] = [scalar]
            # Some models have another number of heads in each layer.
            if key == per_layer_key:
                allowed += arrays

            full_key = f"{prefix}{key}"
            if full_key in types and types[full_key] not in allowed:
                raise InputError(
                    f"{name} is refused by llama.cpp: {full_key} is not of type"
                    f" {type_name}"
                )
