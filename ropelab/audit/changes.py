"""Changes of a file, laid over a copy of it that the runtimes read anew."""

import os
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ropelab.audit.audit_case import AuditCase, measure_distance
from ropelab.audit.causes import is_plain, list_scaled_by_ratio, list_unscaled
from ropelab.audit.wanted import Fragment, merge_into_part
from ropelab.readers import registry
from ropelab.readers.document import Document
from ropelab.readers.mistral_params import OWN_PARAMS, change_params, translate_params
from ropelab.readers.registry import Reading
from ropelab.readers.servers import VLLM_LENGTHS
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import MAXIMUM, find_language_part, list_blocks


def change_file(document: Document, changes: Fragment) -> Fragment:
    """Return a copy of a file with other values of some keys of the language model."""
    config = document.config
    if document.kind == "params":
        return translate_params(change_params(config, changes))
    prefix, _ = find_language_part(config)
    # The prefix is empty, or the path to the part with a dot at its end, such as
    # "text_config.". The piece after the last dot is no key.
    *path_to_part, _ = prefix.split(".")
    return merge_into_part(config, changes, path_to_part)


def change_block(case: AuditCase, change: Fragment) -> Fragment:
    """Return the change of the language part that changes keys of its rope block."""
    return replace_block(case, {**case.block, **change})


def replace_block(case: AuditCase, block: Fragment) -> Fragment:
    """Return the change of the language part that gives its rope block other keys."""
    if case.layer_in_block:
        block = {**case.whole_block, case.layer_in_block: block}
    return {case.block_name: block}


def name_block(case: AuditCase) -> str:
    """Return the words for the rope block: its path only if there are several dicts."""
    has_several = has_two_blocks(case) or case.layer_in_block
    return case.block_path if has_several else "the block"


def has_two_blocks(case: AuditCase) -> bool:
    """Return True if the language part has two rope blocks."""
    _, language_part = find_language_part(case.document.config)
    return len(list_blocks(language_part)) > 1


def claim_length(case: AuditCase, length: int) -> Fragment:
    """Return the change of the language part that claims a length.

    Each key that states another length is changed. Where no key states any, it is
    max_position_embeddings. Empty: the file claims the length already.
    """
    _, language_part = find_language_part(case.document.config)
    if case.document.kind == "params":
        language_part = language_part[OWN_PARAMS]
    stated = [key for key in VLLM_LENGTHS if language_part.get(key) is not None]
    return {
        key: length for key in stated or [MAXIMUM] if language_part.get(key) != length
    }


def describe_lengths(case: AuditCase, change: Fragment) -> str:
    """Return a change of lengths as it is typed; empty if there is none."""
    if not change:
        return ""
    lengths = " and ".join(f'"{key}": {length}' for key, length in change.items())
    prefix, _ = find_language_part(case.document.config)
    return f"{lengths} in {prefix.removesuffix('.')}" if prefix else lengths


def read_changed(
    case: AuditCase, reading: Reading, changed_config: Mapping[str, Any]
) -> RopeSpec | None:
    """Return the main rotation that the runtime of a reading computes from a changed file;
    None: it computes none.
    """
    config = case.flags.apply(reading.runtime.name, changed_config)
    return registry.read(reading.runtime, config, case.flags.settings).main_spec


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


def list_misled(
    case: AuditCase,
    changed_config: Mapping[str, Any],
    spec_before: RopeSpec,
    spec_after: RopeSpec,
) -> list[str]:
    """Return the runtimes that rotate as is right, and would no longer do so after a
    change of the file.

    Args:
        case: the configuration as the runtimes read it.
        changed_config: the changed file.
        spec_before: the rotation that is right for the file as it is.
        spec_after: the rotation that is right for the changed file.
    """
    misled = []
    for reading in case.readings:
        if not _rotates_as(reading.main_spec, spec_before, case.length):
            continue
        changed_spec = read_changed(case, reading, changed_config)
        if not _rotates_as(changed_spec, spec_after, case.length):
            misled.append(reading.runtime.name)
    return misled


def write_command(case: AuditCase, context: str, target: str = "") -> str:
    """Return the command `emit` for a file, as it is typed."""
    name = case.document.name
    # A configuration may come from standard input.
    file = shlex.quote(name) if os.path.exists(name) else "FILE"  # noqa: PTH110
    command = f"ropelab emit --from {file} --context {context}"
    return f"{command} --target {target}" if target else command


def name_misled(names: Sequence[str]) -> str:
    """Return the end of an advice that misleads runtimes; empty for none."""
    return f" (with which {', '.join(names)} would be wrong)" if names else ""


def _rotates_as(spec: RopeSpec | None, wanted_spec: RopeSpec, length: int) -> bool:
    """Return True if no angle is wrong at a length."""
    if spec is None:
        return False
    _, first_wrong_position = measure_distance(spec, wanted_spec, length)
    return first_wrong_position is None
