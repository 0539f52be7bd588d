"""The model files of the servers: which file runs a configuration, and what it does.

A server has its own class for each architecture that it lists. Only a file that was
read is in served.toml; for any other, nothing is computed.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ropelab.readers import families
from ropelab.readers.families import read_table
from ropelab.readers.spec import shorten_value

# Written by tools/model_lists.py: the architectures or model types that a runtime has a
# class for, for some with the model file behind each.
_LISTS: dict[str, str] = json.loads(
    (files(__package__) / "model_lists.json").read_text(encoding="utf-8")
)
CLASS_OF: dict[str, str] = families.REMOTE_ARCHITECTURES | dict(
    pair.split(":") for pair in _LISTS.pop("architectures").split()
)
FILES = {
    name: dict(word.partition(":")[::2] for word in words.split())
    for name, words in _LISTS.items()
}
LISTS = {name: frozenset(words) for name, words in FILES.items()}
SERVED: dict[str, dict[str, Any]] = read_table("served")


@dataclass(frozen=True)
class Served:
    """The facts about a server's model file that differ from the facts of the model
    type.
    """

    facts: Mapping[str, Any]
    # The reason why nothing is known of the model file; empty if the file was read.
    unread: str = ""
    # The reason why the model file stops at its language part; empty: it does not.
    refusal: str = ""


USUAL = Served({})


def find_served(
    runtime: str, config: Mapping[str, Any], text: Mapping[str, Any]
) -> Served:
    """Return what the model file of a configuration does.

    ``text``: the language part of the configuration.
    """
    if runtime not in SERVED:
        return USUAL
    name, file = find_file(runtime, config)
    if not file:
        return USUAL

    rows = SERVED[runtime]
    inner = rows["texts"].get(name, rows["texts"].get(file, file))
    taken = rows.get("takes", {}).get(file)
    if taken and not is_taken(taken.split(), text):
        return Served(
            {}, refusal=f"the model file takes {', '.join(taken.split())} alone"
        )
    if inner == "text":
        _, inner = find_file(runtime, text)
    if not inner:
        kind = shorten_value(text.get("model_type", ""))
        return Served({}, f"its language part '{kind}' has no class of its own there")
    if inner in rows["files"]:
        return Served(rows["files"][inner])
    if inner in rows["read"].split():
        return USUAL
    return Served({}, f"its model file {inner}.py was not read")


def is_taken(taken: list[str], text: Mapping[str, Any]) -> bool:
    """Return True if a model file takes the first architecture that a part names.

    Such a file looks at the list itself, so that it stops at a part without one.
    """
    named = text.get("architectures")
    return isinstance(named, list) and bool(named) and named[0] in taken


def find_file(runtime: str, part: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first architecture that the server lists with its file, or nothing."""
    named = part.get("architectures")
    names: list[str] = []
    if isinstance(named, list):
        names = [name for name in named if isinstance(name, str)]
    if not names:
        names = list_architectures([str(part.get("model_type"))])
    for name in names:
        if name in FILES[runtime]:
            return name, FILES[runtime][name]
    return "", ""


def list_architectures(kinds: Iterable[str]) -> list[str]:
    """Return the classes of model types, first the classes for text, then the classes
    for images.
    """
    names = [name for kind in kinds for name in CLASS_OF.get(kind, "").split()]
    wider = [name.replace("CausalLM", "ConditionalGeneration") for name in names]
    return names + wider
