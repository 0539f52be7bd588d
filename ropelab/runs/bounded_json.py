"""JSON of unknown origin: one object, of bounded size and depth, with finite numbers only."""

import json
import math
from collections.abc import Sequence
from typing import Any, NoReturn

from ropelab.errors import InputError

MOST_BYTES = 16 * 2**20
DEEPEST = 64  # dicts and lists inside each other; real files have fewer than ten


def parse(name: str, raw: bytes) -> dict[str, Any]:
    """Return a JSON object from bytes; anything else is an InputError."""
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
    """Return True if dicts and lists go deeper; by levels, so without recursion."""
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
