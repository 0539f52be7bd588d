"""Facts about model families and about the keys of configurations, from families and keys.toml."""

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, Literal


def _table(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__package__) / f"{name}.toml").read_text(encoding="utf-8"))


FAMILIES = _table("families")
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

    @property
    def pairing(self) -> Literal["half", "interleaved"]:
        return "interleaved" if self.interleaved or self.latent else "half"


def family_of(model_type: str) -> Family:
    """Return the family's facts; one that is not listed has base 10000 and rotates everything."""
    if model_type not in FAMILIES and f"{model_type}_text" in FAMILIES:
        model_type = f"{model_type}_text"
    row = dict(FAMILIES.get(model_type, {}))
    row.setdefault("earlier_base", row.get("base", 10000.0))
    lists = {name: tuple(value) for name, value in row.items() if isinstance(value, list)}
    return Family(model_type, **{**row, **lists})


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
