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
# class for, for some runtimes with the model file of each class.
_LISTS: dict[str, str] = json.loads(
    (files(__package__) / "model_lists.json").read_text(encoding="utf-8")
)
# The architectures of a model type, with blanks between them.
CLASS_OF: dict[str, str] = families.REMOTE_ARCHITECTURES | dict(
    pair.split(":") for pair in _LISTS.pop("architectures").split()
)


def _parse_list(words: str) -> dict[str, str]:
    """Return the model file of each name in a list of `name:file`; empty: none is
    known.
    """
    file_by_name = {}
    for word in words.split():
        name, _, file = word.partition(":")
        file_by_name[name] = file
    return file_by_name


# The model file of each architecture or model type, by runtime.
FILES = {runtime: _parse_list(words) for runtime, words in _LISTS.items()}
# The architectures or model types that have a class, by runtime.
LISTED_NAMES = {runtime: frozenset(names) for runtime, names in FILES.items()}
# The facts on model files that were read, by runtime.
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


# A model file that does what the facts of the model type say.
USUAL = Served({})


def find_served(
    runtime: str, config: Mapping[str, Any], language_part: Mapping[str, Any]
) -> Served:
    """Return what the model file of a configuration does.

    ``language_part``: the language part of the configuration.
    """
    if runtime not in SERVED:
        return USUAL
    architecture, file = find_file(runtime, config)
    if not file:
        architecture, file = find_file_of_whole(runtime, config)
    if not file:
        return USUAL

    rows = SERVED[runtime]
    model_type = str(config.get("model_type"))
    part_key = rows.get("parts", {}).get(model_type)
    if part_key and not isinstance(config.get(part_key), Mapping):
        return Served(
            {}, f"'{model_type}' has its language model in {part_key}, which is missing"
        )
    # The model file of the language part; the same file if the model has only this
    # part.
    text_file = rows["texts"].get(architecture, rows["texts"].get(file, file))
    accepted = rows.get("takes", {}).get(file, "").split()
    if accepted and not is_accepted(accepted, language_part):
        return Served({}, refusal=f"the model file takes {', '.join(accepted)} alone")
    # The language part has a model type, whose file runs it.
    if text_file == "text":
        _, text_file = find_file(runtime, language_part)
    if not text_file:
        model_type = shorten_value(language_part.get("model_type", ""))
        return Served(
            {}, f"its language part '{model_type}' has no class of its own there"
        )
    if text_file in rows["files"]:
        return Served(rows["files"][text_file])
    if text_file in rows["read"].split():
        return USUAL
    return Served({}, f"its model file {text_file}.py was not read")


def is_accepted(accepted: list[str], language_part: Mapping[str, Any]) -> bool:
    """Return True if a model file accepts a language part by its first architecture.

    Such a model file looks at the list of architectures itself, so that it stops at a
    part without one.
    """
    named = language_part.get("architectures")
    return isinstance(named, list) and bool(named) and named[0] in accepted


def find_file(runtime: str, config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the first architecture of a configuration, or of a part of one, that the
    server lists, and its model file.

    Both are empty if the server lists none.
    """
    named = config.get("architectures")
    names: list[str] = []
    if isinstance(named, list):
        names = [name for name in named if isinstance(name, str)]
    if not names:
        names = list_architectures([str(config.get("model_type"))])
    for name in names:
        if name in FILES[runtime]:
            return name, FILES[runtime][name]
    return "", ""


def find_file_of_whole(
    runtime: str, language_part: Mapping[str, Any]
) -> tuple[str, str]:
    """Return the architecture and the model file of the whole model of a language part.

    A file that describes only the language part of such a model names no architecture
    that the server lists.
    """
    for whole in families.list_wholes(str(language_part.get("model_type"))):
        architecture, file = find_file(runtime, {"model_type": whole})
        if file:
            return architecture, file
    return "", ""


def list_architectures(model_types: Iterable[str]) -> list[str]:
    """Return the classes of model types, first the classes for text, then the classes
    for images.
    """
    names = []
    for model_type in model_types:
        names += CLASS_OF.get(model_type, "").split()
    wider = [name.replace("CausalLM", "ConditionalGeneration") for name in names]
    return names + wider
