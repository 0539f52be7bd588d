"""The differences of two audited files: their keys, and the rotations that runtimes
compute from them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ropelab.audit.audit_case import MAIN
from ropelab.audit.audited import FileAudit
from ropelab.runs.rows import Rows, group_pairs
from ropelab.runs.sentences import join_names, shorten_numbers, write_number

# Columns of the table of runtimes by which two files are compared.
EFFECTS = ("base", "rotary_dim", "method", "attention_factor", "claimed_tokens")


def compare(first_audit: FileAudit, second_audit: FileAudit) -> Rows:
    """Return a row for each difference of two files.

    Keys differ, or the rotations that runtimes compute from the keys. A difference that
    several runtimes share is one row.
    """
    rows: list[dict[str, Any]] = []
    first_keys = {row["key"]: row["value"] for row in first_audit.rows["keys"]}
    second_keys = {row["key"]: row["value"] for row in second_audit.rows["keys"]}
    for key, first, second in list_changes(first_keys, second_keys):
        row = {"what": key, "first": first, "second": second, "runtimes": ""}
        rows.append(row)

    first_effects = list_effects(first_audit)
    second_effects = list_effects(second_audit)
    changes = []
    for runtime in dict.fromkeys((*first_effects, *second_effects)):
        before = first_effects.get(runtime, {})
        after = second_effects.get(runtime, {})
        for change in list_changes(before, after):
            changes.append((change, runtime))

    count_in_both = len(first_effects.keys() & second_effects.keys())
    for (what, first, second), names in group_pairs(changes).items():
        are_all = len(names) > 1 and len(names) == count_in_both
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


def list_effects(file_audit: FileAudit) -> dict[str, dict[str, Any]]:
    """Return what each runtime that reads a file computes.

    The names of its values tell the layer type or rotation, unless it is the only one.
    """
    effects: dict[str, dict[str, Any]] = {}
    for row in file_audit.rows["runtimes"]:
        if "base" not in row:
            continue
        where = ""
        if row["rotation"] != MAIN:
            where = f", {row['rotation']}"
        elif row["layers"] != "all":
            where = f", {row['layers']} layers"
        effects_of_runtime = effects.setdefault(row["runtime"], {})
        for name in EFFECTS:
            effects_of_runtime[f"{name}{where}"] = row[name]
    return effects


def describe_difference(first_audit: FileAudit, second_audit: FileAudit) -> str:
    """Say in a sentence how the main rotation of a second file differs."""
    before = first_audit.spec
    after = second_audit.spec
    values = {
        "base": (write_number(before.base), write_number(after.base)),
        "rotated features": (before.rotary_dim, after.rotary_dim),
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

    if not changes:
        return "the main layers rotate alike in both files"
    return f"the second file has {join_names(changes)}"
