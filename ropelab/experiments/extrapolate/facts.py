"""What the config.json of a Hugging Face model says about its rotary embedding; nothing heavy."""

import json
from pathlib import Path
from typing import Any

from ropelab.errors import InputError


def read_facts(folder: str) -> dict[str, Any]:
    """train_len, base and head_dim (its rotated part) of a model.

    Raises:
        InputError: there is no readable config.json, or it does not say how long a context is.
    """
    path, config = _config(folder)
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    length = rope.get("original_max_position_embeddings") or config.get("max_position_embeddings")
    heads, width = config.get("num_attention_heads"), config.get("hidden_size")
    if not (length and heads and width):
        raise InputError(
            f"{path} names no max_position_embeddings, num_attention_heads, hidden_size"
        )
    share = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    head_dim = config.get("head_dim") or width // heads
    return {
        "train_len": length,
        "base": float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0),
        "head_dim": int(head_dim * share),
    }


def vocabulary_of(folder: str) -> int:
    """How many different tokens a model knows."""
    path, config = _config(folder)
    if "vocab_size" not in config:
        raise InputError(f"{path} names no vocab_size")
    return int(config["vocab_size"])


def _config(folder: str) -> tuple[Path, dict[str, Any]]:
    path = Path(folder) / "config.json"
    try:
        return path, json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"no readable {path}; give a folder that save_pretrained wrote") from None
