"""The differences of two audited files: their keys, and the rotations that runtimes
compute from them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ropelab.audit.aspects import ASPECT_FACTS, list_other_aspects
from ropelab.audit.audit_case import MAIN, list_compared_lengths
from ropelab.audit.audited import FileAudit
from ropelab.audit.overview import describe_value
from ropelab.audit.words import PAIRED_FEATURES
from ropelab.readers.axes import VISION_CONFIG
from ropelab.readers.extra_rotations import list_rotations
from ropelab.readers.layers import FLAG_KEYS
from ropelab.readers.spec import RopeSpec, shorten_value
from ropelab.readers.trace import ABSENT, find_language_part, find_value
from ropelab.runs.rows import Rows, group_pairs
from ropelab.runs.sentences import join_names, shorten_numbers, write_number

# Columns of the table of runtimes by which two files are compared.
EFFECTS = (
    "base",
    "rotary_dim",
    "head_dim",
    "place",
    "pairing",
    "method",
    "attention_factor",
    "softmax_factor",
    "claimed_tokens",
)
# The name of the difference that a runtime reads one of the files alone.
OUTCOME = "file"
# Keys that say which layers rotate, by which base, or what queries are multiplied by. They
# say nothing about the angles of a layer, so that the tables of keys do not have them all.
LAYER_KEYS = (
    *ASPECT_FACTS["compared"]["layer_keys"],
    *FLAG_KEYS,
    *ASPECT_FACTS["temperature"]["keys"],
)
# The sizes of an encoder of images that decide how wide its heads are.
VISION_KEYS = tuple(ASPECT_FACTS["compared"]["vision_keys"])


def compare(first_audit: FileAudit, second_audit: FileAudit) -> Rows:
    """Return a row for each difference of two files.

    Keys differ, the rotations that runtimes compute from the keys, or what runtimes do
    beside these rotations. A difference that several runtimes share is one row.
    """
    rows: list[dict[str, Any]] = []
    for key, first, second in list_changed_keys(first_audit, second_audit):
        rows.append({"what": key, "first": first, "second": second, "runtimes": ""})

    first_effects = list_effects(first_audit)
    second_effects = list_effects(second_audit)
    changes = list(list_changed_outcomes(first_audit, second_audit))
    for runtime in first_effects:
        if runtime not in second_effects:
            continue
        for change in list_changes(first_effects[runtime], second_effects[runtime]):
            changes.append((change, runtime))
    changes += list_changed_frequencies(first_audit, second_audit)
    changes += list_changed_aspects(first_audit, second_audit)

    count_in_both = len(first_effects.keys() & second_effects.keys())
    for (what, first, second), names in group_pairs(changes).items():
        # `count_in_both` does not count the runtimes of an OUTCOME, which read one file
        # alone.
        is_in_both = what != OUTCOME
        are_all = is_in_both and len(names) > 1 and len(names) == count_in_both
        runtimes = "all" if are_all else ", ".join(names)
        row = {"what": what, "first": first, "second": second, "runtimes": runtimes}
        rows.append(row)
    return rows


def list_changes(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the names whose values differ, with both values.

    A value that is missing is `absent`.
    """
    for name in dict.fromkeys((*before, *after)):
        first = before.get(name, "absent")
        second = after.get(name, "absent")
        if first != second:
            yield name, first, second


def list_changed_outcomes(
    first_audit: FileAudit, second_audit: FileAudit
) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield the runtimes that read one of two files alone."""
    after = {each.runtime.name: each.outcome for each in second_audit.readings}
    for reading in first_audit.readings:
        first = reading.outcome
        second = after.get(reading.runtime.name, first)
        if first != second and "read" in (first, second):
            yield (OUTCOME, first, second), reading.runtime.name


def list_changed_keys(
    first_audit: FileAudit, second_audit: FileAudit
) -> Iterator[tuple[str, str, str]]:
    """Yield the keys whose values differ, with both values in words."""
    paths: dict[str, None] = {}
    for file_audit in (first_audit, second_audit):
        paths |= dict.fromkeys(row["key"] for row in file_audit.rows["keys"])
        prefix, _ = find_language_part(file_audit.document.config)
        paths |= dict.fromkeys(f"{prefix}{key}" for key in LAYER_KEYS)
        paths |= dict.fromkeys(f"{VISION_CONFIG}.{key}" for key in VISION_KEYS)

    for path in paths:
        first = find_given_value(first_audit, path)
        second = find_given_value(second_audit, path)
        # 4096 and 4096.0 are different keys to a class, so that the words are compared.
        if first is second or (first == second and str(first) == str(second)):
            continue
        yield path, *describe_values(first_audit, second_audit, path)


def find_given_value(file_audit: FileAudit, path: str) -> Any:
    """Return the value of a file at a path, or ABSENT."""
    config = file_audit.document.config
    # A key of a GGUF file contains dots itself.
    return config[path] if path in config else find_value(config, path)


def describe_values(
    first_audit: FileAudit, second_audit: FileAudit, path: str
) -> tuple[str, str]:
    """Return the values of two files at a path in a few words."""
    values = [find_given_value(each, path) for each in (first_audit, second_audit)]
    words = []
    for file_audit, value in zip((first_audit, second_audit), values, strict=True):
        if value is ABSENT:
            words.append("absent")
        else:
            words.append(describe_value(file_audit.document.config, path))

    first, second = values
    if words[0] == words[1] and isinstance(first, list) and isinstance(second, list):
        # Lists of one length: the first place where they differ.
        for place, (one, other) in enumerate(zip(first, second, strict=True)):
            if one != other:
                words = [
                    f"{word}, [{place}] = {shorten_value(value)}"
                    for word, value in zip(words, (one, other), strict=True)
                ]
                break
    return words[0], words[1]


def list_effects(file_audit: FileAudit) -> dict[str, dict[str, Any]]:
    """Return what each runtime that reads a file computes.

    The names of its values tell the layer type or rotation, unless it is the only one.
    """
    effects: dict[str, dict[str, Any]] = {}
    for row in file_audit.rows["runtimes"]:
        if "base" not in row:
            continue
        where = name_place(row["rotation"], row["layers"])
        effects_of_runtime = effects.setdefault(row["runtime"], {})
        for name in EFFECTS:
            effects_of_runtime[f"{name}{where}"] = row[name]
    return effects


def name_place(rotation: str, layers: str) -> str:
    """Return the end of a name that tells a layer type or rotation.

    >>> name_place("main", "all"), name_place("main", "sliding_attention")
    ('', ', sliding_attention layers')
    """
    if rotation != MAIN:
        return f", {rotation}"
    return "" if layers == "all" else f", {layers} layers"


def list_specs(file_audit: FileAudit) -> dict[str, dict[str, RopeSpec]]:
    """Return the rotations of each runtime that reads a file, by `name_place`."""
    _, language_part = find_language_part(file_audit.document.config)
    specs: dict[str, dict[str, RopeSpec]] = {}
    for reading in file_audit.readings:
        if not reading.layers:
            continue
        specs_of_runtime = specs.setdefault(reading.runtime.name, {})
        for layer, spec in reading.layers.items():
            specs_of_runtime[name_place(MAIN, layer)] = spec
        for name in list_rotations(language_part):
            spec_of_rotation = file_audit.read_rotation(reading, name).spec
            if spec_of_rotation is not None:
                specs_of_runtime[name_place(name, "all")] = spec_of_rotation
    return specs


def list_changed_frequencies(
    first_audit: FileAudit, second_audit: FileAudit
) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield the rotations that are named alike and have other frequencies, each with its
    runtime.

    A table of divisors is not in the name of its method, nor is the trained length.
    """
    first_specs = list_specs(first_audit)
    second_specs = list_specs(second_audit)
    for runtime, before in first_specs.items():
        after = second_specs.get(runtime, {})
        for where in before:
            if where not in after:
                continue
            words = describe_frequencies(before[where], after[where])
            if words is not None:
                yield (f"frequencies{where}", *words), runtime


def describe_frequencies(first: RopeSpec, second: RopeSpec) -> tuple[str, str] | None:
    """Return the frequencies of the pair where two rotations of one name differ most.

    None: the names differ, or no frequency does.
    """
    for name in ("base", "rotary_dim", "method"):
        if getattr(first, name) != getattr(second, name):
            return None
    lengths = {*list_compared_lengths(first), *list_compared_lengths(second)}
    for length in sorted(lengths):
        one = first.inv_freq(length)
        other = second.inv_freq(length)
        if np.allclose(one, other, rtol=1e-9, atol=0):
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.abs(np.log(one / other))
        pair = int(np.nan_to_num(ratios, nan=0.0, posinf=np.inf).argmax())
        where = f"pair {pair} at {length} tokens"
        return f"{where}: {one[pair]:.6g}", f"{where}: {other[pair]:.6g}"
    return None


def list_readers(file_audit: FileAudit) -> set[str]:
    """Return the names of the runtimes that read a file."""
    return {each.runtime.name for each in file_audit.readings if each.layers}


def list_changed_aspects(
    first_audit: FileAudit, second_audit: FileAudit
) -> Iterator[tuple[tuple[str, str, str], str]]:
    """Yield what runtimes do beside the rotations, where they do it for both files
    otherwise, each with its runtime.
    """
    before = {
        each.name: each.words_by_runtime for each in list_other_aspects(first_audit)
    }
    after = {
        each.name: each.words_by_runtime for each in list_other_aspects(second_audit)
    }
    readers = list_readers(first_audit) & list_readers(second_audit)
    for name in dict.fromkeys((*before, *after)):
        words_before = before.get(name, {})
        words_after = after.get(name, {})
        for runtime in dict.fromkeys((*words_before, *words_after)):
            if runtime not in readers:
                continue
            first = words_before.get(runtime, "absent")
            second = words_after.get(runtime, "absent")
            if first != second:
                yield (name, first, second), runtime


def describe_difference(audits: Sequence[FileAudit], difference: Rows) -> str:
    """Say in a sentence how the main rotation of the second of two files differs.

    `difference` are the rows of `compare`.
    """
    first_audit, second_audit = audits
    before = first_audit.spec
    after = second_audit.spec
    values = {
        "base": (write_number(before.base), write_number(after.base)),
        "rotated features": (before.rotary_dim, after.rotary_dim),
        "first rotated feature": (before.place, after.place),
        "pairs of": (PAIRED_FEATURES[before.pairing], PAIRED_FEATURES[after.pairing]),
        "scaling": (shorten_numbers(before.method), shorten_numbers(after.method)),
        "factor on cos and sin": (
            write_number(before.attention_factor),
            write_number(after.attention_factor),
        ),
        "length": (before.length, after.length),
    }

    changes = []
    for what, (first, second) in values.items():
        if first != second:
            changes.append(f"{what} {second} instead of {first}")
    if describe_frequencies(before, after) is not None:
        changes.append("other frequencies by a scaling of the same name")

    lead = ""
    first_reader = first_audit.reference.runtime.name
    second_reader = second_audit.reference.runtime.name
    if first_reader != second_reader:
        lead = f"as {first_reader} reads the first and {second_reader} the second, "
    if changes:
        return f"{lead}the second file has {join_names(changes)}"
    equal_rotations = f"{lead}the main layers rotate alike in both files"
    other_parts = list_other_parts(first_audit, difference)
    if other_parts:
        return f"{equal_rotations}; what differs beside them: {join_names(other_parts)}"
    if not lead and any(is_about_runtime(row) for row in difference):
        return f"{equal_rotations} in {first_reader}; other runtimes see a difference"
    return equal_rotations


def is_about_runtime(row: Mapping[str, Any]) -> bool:
    """Return True for a row of `compare` about what a runtime does."""
    is_unread = "not modelled" in (row["first"], row["second"])
    return bool(row["runtimes"]) and not is_unread


def list_other_parts(file_audit: FileAudit, difference: Rows) -> Sequence[str]:
    """Return the parts beside the main layers that differ, by the rows of `compare`.

    Parts are those of the reference. If there are none, they are the keys about layers.
    """
    reference = file_audit.reference.runtime.name
    main_place = name_place(MAIN, file_audit.reference.main_layer)
    parts: dict[str, None] = {}
    keys: dict[str, None] = {}
    for row in difference:
        what = row["what"]
        if not row["runtimes"]:
            key = what.split(".")[-1]
            if key in LAYER_KEYS and key != "model_type":
                keys[key] = None
            continue
        if row["runtimes"] != "all" and reference not in row["runtimes"].split(", "):
            continue
        name, comma, where = what.partition(", ")
        if name not in (*EFFECTS, "frequencies"):
            parts[what] = None
        elif f"{comma}{where}" != main_place:
            parts[where] = None
    parts.pop(OUTCOME, None)
    return list(parts or keys)
