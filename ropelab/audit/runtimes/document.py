"""A model's configuration from disk or from standard input, read within bounds.

Nothing here runs anybody's code, and no file is read beyond its bound: a configuration is JSON of
at most 16 MB, of a GGUF only the header is read.
"""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ropelab.audit.runtimes.trace import language_part, rope_paths
from ropelab.errors import InputError
from ropelab.runs.files import check_regular

MOST_BYTES = 16 * 2**20
DEEPEST = 64
"""Dicts and lists inside each other; real files have fewer than ten."""


@dataclass(frozen=True)
class Document:
    """One configuration and what came with it.

    ``kind``: config (config.json), params (Mistral's params.json, translated), gguf.
    ``tokenizer_length``: model_max_length of a tokenizer_config.json beside it, if it says one.
    """

    name: str
    kind: str
    config: Mapping[str, Any]
    tokenizer_length: int | None = None
    notes: tuple[str, ...] = field(default=())


def load(source: str) -> Document:
    """The configuration behind a path, a model folder or `-`.

    Raises:
        InputError: not there, too large, not JSON, or nothing about rotary positions in it.
    """
    if source == "-":
        return from_json("standard input", sys.stdin.buffer.read(MOST_BYTES + 1))
    path = Path(source)
    if path.is_dir():
        return from_folder(path)
    with_magic = read_bytes(path, 4)
    if with_magic == b"GGUF":
        from ropelab.audit.runtimes.gguf import document

        return document(path)
    return from_json(str(path), read_bytes(path, MOST_BYTES + 1))


def read_bytes(path: Path, most: int) -> bytes:
    """The first bytes of a file, or why it cannot be read."""
    try:
        check_regular(path)
        with path.open("rb") as file:
            return file.read(most)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def from_folder(folder: Path) -> Document:
    """config.json or params.json of a model folder, with its tokenizer's length."""
    name = next((n for n in ("config.json", "params.json") if (folder / n).is_file()), None)
    if name is None:
        found = sorted(folder.glob("*.gguf"))
        if len(found) == 1:
            return load(str(found[0]))
        raise InputError(f"{folder} holds neither config.json nor params.json")
    document = load(str(folder / name))
    return Document(
        document.name, document.kind, document.config, tokenizer_length(folder), document.notes
    )


def tokenizer_length(folder: Path) -> int | None:
    """model_max_length of tokenizer_config.json; the huge number that means 'none' is none."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return None
    length = parse(str(path), read_bytes(path, MOST_BYTES + 1)).get("model_max_length")
    return int(length) if isinstance(length, int | float) and 0 < length < 2**40 else None


def from_json(name: str, raw: bytes) -> Document:
    """A configuration from its bytes."""
    config = parse(name, raw)
    if "n_heads" in config and "dim" in config:
        return Document(name, "params", from_params(config))
    _, text = language_part(config)
    sized = "num_attention_heads" in text or "n_head" in text or "head_dim" in text
    turns = "max_position_embeddings" in text or any(
        "rope" in path or "rotary" in path for path in rope_paths(text)
    )
    if not (sized and turns):
        raise InputError(f"{name} is no configuration of a model with rotary positions")
    return Document(name, "config", config)


def parse(name: str, raw: bytes) -> dict[str, Any]:
    """A JSON object from bytes; anything else is an InputError."""
    if len(raw) > MOST_BYTES:
        raise InputError(f"{name} is larger than 16 MB, which no configuration is")
    try:
        value = json.loads(raw, parse_constant=_not_finite, parse_float=_finite)
    except RecursionError:
        raise InputError(f"{name} is nested too deeply") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{name} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{name} must hold a JSON object, not a {type(value).__name__}")
    if _deeper_than(value, DEEPEST):
        raise InputError(f"{name} is nested too deeply")
    return value


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is not a finite number")
    return value


def _deeper_than(value: object, levels: int) -> bool:
    """Whether dicts and lists go deeper; by levels, so that no recursion is needed."""
    level: Sequence[object] = [value]
    for _ in range(levels):
        inside = [v for item in level for v in _children(item) if isinstance(v, dict | list)]
        if not inside:
            return False
        level = inside
    return True


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


PARAMS = {
    "dim": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_layers": "num_hidden_layers",
    "max_seq_len": "max_position_embeddings",
}
PARAMS_YARN = {"beta": "beta_fast", "alpha": "beta_slow"}


def from_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Mistral's params.json in the words of a config.json, as vLLM translates it."""
    config = {PARAMS.get(name, name): value for name, value in params.items() if name != "yarn"}
    config.setdefault("model_type", "mistral")
    yarn = params.get("yarn")
    if isinstance(yarn, Mapping):
        block = {PARAMS_YARN.get(n, n): v for n, v in yarn.items() if n != "apply_scale"}
        block["rope_type"] = "yarn"
        if yarn.get("apply_scale") is False:
            block["attention_factor"] = 1.0
        config["rope_scaling"] = block
    return config
