"""Say in words what runtimes compute; those that rotate alike are named together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ropelab.audit.audit_case import MAIN, AuditCase, agrees, measure_distance
from ropelab.readers.extra_rotations import COMPRESSED_KEYS, INDEXER
from ropelab.readers.spec import RopeSpec
from ropelab.runs.rows import Rows
from ropelab.runs.sentences import shorten_numbers, write_number

# What other rotations than that of attention are called.
EXTRA_NAMES = {
    INDEXER: "indexer of sparse attention",
    COMPRESSED_KEYS: "compressed keys",
}


@dataclass
class Alike:
    """A rotation of one layer type, and the runtimes that compute it."""

    # The row of the first of these in the table of runtimes.
    row: Mapping[str, Any]
    spec: RopeSpec
    names: list[str] = field(default_factory=list)

    def includes(self, row: Mapping[str, Any], spec: RopeSpec, length: int) -> bool:
        """Return True if another runtime rotates alike, at this length and at others."""
        columns = ["layers", "rotation", "base", "rotary_dim", "claimed_tokens"]
        if row["rotation"] != MAIN:
            # For attention these columns depend on the order in which a runtime stores
            # the weights, and tell no difference.
            columns += ["pairing", "place", "head_dim"]
        if any(self.row[name] != row[name] for name in columns):
            return False
        _, position = measure_distance(spec, self.spec, length)
        return position is None and agrees(spec, self.spec)


def group_alike(case: AuditCase, rows: Rows) -> list[tuple[str, str]]:
    """Return in words what runtimes compute, and the names of those that compute it.

    ``rows`` is the table of runtimes. A name with a star was read from source only.
    """
    readings = {reading.runtime.name: reading for reading in case.readings}
    groups: list[Alike] = []
    for row in rows:
        if "base" not in row:
            continue
        reading = readings[row["runtime"]]
        if row["rotation"] == MAIN:
            spec = reading.layers[row["layers"]]
        else:
            extra = case.read_rotation(reading, row["rotation"]).spec
            # A row with a base is that of a rotation.
            assert extra is not None
            spec = extra

        group = None
        for each in groups:
            if each.includes(row, spec, case.length):
                group = each
                break
        if group is None:
            group = Alike(row, spec)
            groups.append(group)
        star = "*" if row["proof"].startswith("read") else ""
        group.names.append(f"{row['runtime']}{star}")

    words = [describe_row(group.row, case.length) for group in groups]
    lines = []
    for group, text in zip(groups, words, strict=True):
        # Different rotations may have the same words: the method tells them apart.
        if words.count(text) > 1:
            text = f"{text}, by {shorten_numbers(group.spec.method)}"
        lines.append((text, ", ".join(group.names)))
    return lines


def count_pairs(row: Mapping[str, Any]) -> str:
    """Return the numbers of pairs that are kept, blended and divided."""
    return "{pairs_kept}/{pairs_blended}/{pairs_divided}".format(**row)


def describe_row(row: Mapping[str, Any], length: int) -> str:
    """Return a row of the table of runtimes in words."""
    pairs = "unscaled"
    if row["pairs_kept"] < row["rotary_dim"] // 2:
        method = row["method"].partition("(")[0]
        pairs = method.replace("longrope", "a divisor per pair")
    if row["pairs_blended"] or row["pairs_divided"]:
        pairs = f"{count_pairs(row)} pairs kept/blended/divided"

    features = f"{row['rotary_dim']} features"
    if row["rotation"] != MAIN:
        features = describe_place(row)
    words = [f"base {write_number(row['base'])}", features, pairs]
    if row["logit_multiplier"] != 1:
        words.append(f"logits x{row['logit_multiplier']:.4g}")
    if row["claimed_tokens"]:
        words.append(f"up to {row['claimed_tokens']} tokens")
    if row["first_off_tokens"]:
        words.append(f"off from position {row['first_off_tokens']} in {length}")
    text = ", ".join(words)
    if row["rotation"] != MAIN:
        return f"{EXTRA_NAMES[row['rotation']]}: {text}"
    return text if row["layers"] == "all" else f"{row['layers']}: {text}"


def describe_place(row: Mapping[str, Any]) -> str:
    """Return which features of a head rotate, and in which pairs.

    >>> shape = {"head_dim": 128, "rotary_dim": 64, "place": 64, "pairing": "half"}
    >>> describe_place(shape)
    'the last 64 of 128 features in pairs of halves'
    """
    pairs = "pairs of halves"
    if row["pairing"] == "interleaved":
        pairs = "adjacent pairs"
    end = "last" if row["place"] else "first"
    return f"the {end} {row['rotary_dim']} of {row['head_dim']} features in {pairs}"
