"""Facts about model families and about the keys of configurations, from families and keys.toml."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, Literal


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / f"{name}.toml").read_text(encoding="utf-8"))


FAMILIES = _table("families")
_TYPES = _table("model_types")
UNROTATED = frozenset(_TYPES["unrotated"].split())
KEYS: dict[str, dict[str, str]] = _table("keys")


@dataclass(frozen=True)
class Family:
    """The facts of one family; families.toml says what each means."""

    name: str
    base: float = 10000.0
    earlier_base: float = 10000.0
    partial: float | None = None
    latent: bool = False
    interleaved: bool = False
    base_keys: tuple[str, ...] = ("rope_theta",)
    partial_keys: tuple[str, ...] = ("partial_rotary_factor",)
    local_base_key: str = ""
    local_base: float = 10000.0
    half: bool = False
    head_dim: int | None = None
    bare_head_dim: int | None = None
    longest: int | None = None
    width_key: str = ""
    unread: str = ""
    unread_key: str = ""

    @property
    def pairing(self) -> Literal["half", "interleaved"]:
        return "interleaved" if self.interleaved or (self.latent and not self.half) else "half"


def family_of(model_type: str) -> Family:
    """Return the family's facts; one that is not listed has base 10000 and rotates everything."""
    if model_type not in FAMILIES and f"{model_type}_text" in FAMILIES:
        model_type = f"{model_type}_text"
    row = dict(FAMILIES.get(model_type, {}))
    row.setdefault("earlier_base", row.get("base", 10000.0))
    lists = {name: tuple(value) for name, value in row.items() if isinstance(value, list)}
    return Family(model_type, **{**row, **lists})


def _releases() -> dict[str, frozenset[str]]:
    """Return the model types of each release of transformers, from the differences in the file."""
    found, known = {}, frozenset[str]()
    for version, text in _TYPES["releases"].items():
        words = frozenset(text.split())
        gone = frozenset(word.removeprefix("-") for word in words if word.startswith("-"))
        known = (known | {word for word in words if not word.startswith("-")}) - gone
        found[version] = known
    return found


RELEASES = _releases()
_NEWEST = list(RELEASES.values())[-1]


def known_to_rotate(model_type: str) -> bool:
    """Return True for a type whose class has rotary positions, whatever keys a file has."""
    return (model_type in _NEWEST or model_type in FAMILIES) and model_type not in UNROTATED


def unrotated(text: Mapping[str, Any]) -> str:
    """Return why a configuration has no rotary positions, or nothing."""
    kind = text.get("model_type")
    if isinstance(kind, str) and kind in UNROTATED:
        return f"the layers of '{kind}' rotate nothing"
    given = text.get("position_embedding_type")
    if isinstance(given, str) and given not in ("rope", "rotary"):
        return f"position_embedding_type is '{given[:40]}'"
    if text.get("alibi") is True:
        return "alibi is true"
    return ""


def concerns_rope(name: str) -> bool:
    known = name in KEYS["top"] or name in KEYS["gguf"]
    return known or "rope" in name.lower() or "rotary" in name.lower()


def meaning(path: str) -> str:
    if path in KEYS["gguf"]:
        return KEYS["gguf"][path]
    *parents, name = path.split(".")
    in_block = "rope_scaling" in parents or "rope_parameters" in parents
    return KEYS["block" if in_block else "top"].get(name, "")


def near(path: str) -> str:
    """Return the known key whose name is nearest to an unknown one, or nothing."""
    name = path.rsplit(".", 1)[-1]
    known = {**KEYS["block"], **KEYS["top"]}
    found = get_close_matches(name, [key for key in known if key != name], n=1, cutoff=0.7)
    return found[0] if found else ""
