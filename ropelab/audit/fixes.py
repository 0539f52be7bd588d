"""What to write into a file instead: each change is tried before it is advised.

A change is laid over a copy of the file, which the runtimes then read anew.
"""

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

from ropelab.audit.audit_case import AuditCase, have_equal_rotation, measure_distance
from ropelab.audit.causes import is_plain, list_scaled_by_ratio, list_unscaled
from ropelab.readers import registry
from ropelab.readers.registry import Reading
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import (
    MAXIMUM,
    ORIGINAL,
    find_language_part,
    find_rope_block,
)


def advise_base(case: AuditCase, base: float, names: Collection[str]) -> str:
    """Return the advice where to write a base so that runtimes take it.

    The advice names the runtimes that do, if others do not. It is empty if no place is
    read by any of them, or if another runtime would lose this base.

    Args:
        case: the configuration as the runtimes read it.
        base: the base to be written.
        names: the runtimes that are to take it.
    """
    best_place = ""
    best_mended: list[str] = []
    for place, change in list_places_of_base(case, base):
        changed_config = change_language_part(case.document.config, change)
        mended = []
        is_lost = False
        for reading in case.readings:
            spec = read_changed(case, reading, changed_config)
            takes_base = spec is not None and spec.base == base
            took_base = reading.main_spec is not None and reading.main_spec.base == base
            if takes_base and reading.runtime.name in names:
                mended.append(reading.runtime.name)
            is_lost = is_lost or (took_base and not takes_base)
        if not is_lost and len(mended) > len(best_mended):
            best_place = place
            best_mended = mended

    if not best_mended:
        return ""
    advice = f'write "rope_theta": {base!r} {best_place}'
    if len(best_mended) < len(names):
        advice += f" (for {', '.join(best_mended)})"
    return advice


def list_places_of_base(
    case: AuditCase, base: float
) -> list[tuple[str, dict[str, Any]]]:
    """Return the places of a base in words, each with the change of the language part.

    A GGUF file is not edited by hand, and has none.
    """
    if case.document.kind == "gguf":
        return []
    prefix, language_part = find_language_part(case.document.config)
    part_name = prefix.removesuffix(".")
    beside_block = f"in {part_name}" if part_name else "at top level"
    places: list[tuple[str, dict[str, Any]]] = [(beside_block, {"rope_theta": base})]
    block_name, block = find_rope_block(language_part)
    if block:
        in_block = {block_name: {**block, "rope_theta": base}}
        places.append((f"in {prefix}{block_name}", in_block))
    return places


def advise_claim(case: AuditCase, key: str, limit: int) -> str:
    """Return the advice to claim the length that a scaling reaches, without another
    rotation.

    Without a length of training in the block, runtimes scale from the length that the
    file claims, so that both have to be written.

    Args:
        case: the configuration as the runtimes read it.
        key: the key of the length that is claimed.
        limit: the length in tokens that the scaling reaches.
    """
    if case.document.kind == "gguf":
        # llama.cpp takes more than the file states, and warns.
        return f"--ctx-size {limit}"

    _, language_part = find_language_part(case.document.config)
    block_name, block = find_rope_block(language_part)
    trained = case.spec.trained_len
    original = {block_name: {**block, ORIGINAL: trained}}
    changes: dict[str, dict[str, Any]] = {
        f'"{key}": {limit}': {key: limit},
        f'"{key}": {limit}, and "{ORIGINAL}": {trained} inside the block': {
            key: limit,
            **original,
        },
    }
    for advice, change in changes.items():
        changed_config = change_language_part(case.document.config, change)
        spec = read_changed(case, case.reference, changed_config)
        if spec is None or spec.trained_len != trained:
            continue
        if have_equal_rotation(spec, case.spec):
            return advice
    return f"ropelab emit --context {limit}, which writes every length that is needed"


def advise_length(case: AuditCase, length: int) -> str:
    """Return the advice to write a length into the file, and the runtimes that would then
    no longer rotate as the file means.
    """
    advice = f'"{MAXIMUM}": {length}'
    misled = list_misled(case, length)
    if misled:
        advice += f" (with which {', '.join(misled)} would be wrong)"
    return advice


def list_misled(case: AuditCase, length: int) -> list[str]:
    """Return the runtimes that rotate as the file means, and would no longer do so if the
    file claimed this length.
    """
    changed_config = change_language_part(case.document.config, {MAXIMUM: length})
    wanted_spec = find_wanted_spec(case, changed_config)
    misled = []
    for reading in case.readings:
        if not _rotates_as(reading.main_spec, wanted_spec, case.length):
            continue
        changed_spec = read_changed(case, reading, changed_config)
        if not _rotates_as(changed_spec, wanted_spec, case.length):
            misled.append(reading.runtime.name)
    return misled


def find_wanted_spec(case: AuditCase, changed_config: Mapping[str, Any]) -> RopeSpec:
    """Return the rotation that the file means: that of the reference or, if it passes
    over the scaling, of another runtime that does not.

    If all of them pass over it, it is what a runtime reads of the changed file.
    """
    faulty = {*list_unscaled(case), *list_scaled_by_ratio(case)}
    specs = {case.reference.runtime.name: case.spec, **dict(case.specs)}
    for name, spec in specs.items():
        if name not in faulty:
            return spec

    for reading in case.readings:
        changed_spec = read_changed(case, reading, changed_config)
        if changed_spec is not None and not is_plain(changed_spec):
            return changed_spec
    return case.spec


def read_changed(
    case: AuditCase, reading: Reading, changed_config: Mapping[str, Any]
) -> RopeSpec | None:
    """Return the main rotation that the runtime of a reading computes from a changed file;
    None: it computes none.
    """
    config = case.flags.apply(reading.runtime.name, changed_config)
    return registry.read(reading.runtime, config, case.flags.settings).main_spec


def _rotates_as(spec: RopeSpec | None, wanted_spec: RopeSpec, length: int) -> bool:
    """Return True if no angle is wrong at a length."""
    if spec is None:
        return False
    _, first_wrong_position = measure_distance(spec, wanted_spec, length)
    return first_wrong_position is None


def change_language_part(
    original_config: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a copy of a file with other values of some keys of the language model."""
    prefix, _ = find_language_part(original_config)
    config = deepcopy(dict(original_config))
    # Go to the part of the file that has the keys of the language model. The prefix is
    # empty, or the path to this part with a dot at its end, such as "text_config.". The
    # piece after the last dot is empty, and no key.
    language_part = config
    *path_to_part, _ = prefix.split(".")
    for key in path_to_part:
        language_part = language_part[key]
    language_part.update(changes)
    return config
