"""Say in words what runtimes compute. Runtimes with equal rotations are named together."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ropelab.audit.audit_case import (
    MAIN,
    AuditCase,
    have_equal_rotation,
    measure_distance,
)
from ropelab.readers.extra_rotations import COMPRESSED_KEYS, INDEXER
from ropelab.readers.spec import RopeSpec
from ropelab.runs.rows import Rows
from ropelab.runs.sentences import shorten_numbers, write_number

# Names of the rotations other than the rotation of attention.
EXTRA_NAMES = {
    INDEXER: "indexer of sparse attention",
    COMPRESSED_KEYS: "compressed keys",
}

# The features that form pairs, in words, by the value of `pairing`.
PAIRED_FEATURES = {"half": "halves", "interleaved": "adjacent features"}


@dataclass
class RotationGroup:
    """A rotation of one layer type, and the runtimes that compute it."""

    # The row of the group's first runtime in the table of runtimes.
    row: Mapping[str, Any]
    spec: RopeSpec
    names: list[str] = field(default_factory=list)

    def has_equal_rotation(
        self, row: Mapping[str, Any], spec: RopeSpec, length: int
    ) -> bool:
        """Return True if another runtime has an equal rotation, at this length and at
        other lengths.
        """
        columns = ["layers", "rotation", "base", "rotary_dim", "claimed_tokens"]
        if row["rotation"] != MAIN:
            # For attention these columns depend on the order in which a runtime stores
            # the weights, so that they are not compared there.
            columns += ["pairing", "place", "head_dim"]
        if any(self.row[name] != row[name] for name in columns):
            return False
        _, position = measure_distance(spec, self.spec, length)
        return position is None and have_equal_rotation(spec, self.spec)


def group_alike(case: AuditCase, rows: Rows) -> list[tuple[str, str]]:
    """Return in words what runtimes compute, each with the names of the runtimes that
    compute it.

    ``rows`` is the table of runtimes. A name with a star was read from source only.
    """
    readings = {reading.runtime.name: reading for reading in case.readings}
    groups: list[RotationGroup] = []
    for row in rows:
        if "base" not in row:
            continue
        reading = readings[row["runtime"]]
        if row["rotation"] == MAIN:
            spec = reading.layers[row["layers"]]
        else:
            extra = case.read_rotation(reading, row["rotation"]).spec
            # A row with a base describes a rotation.
            assert extra is not None
            spec = extra

        group = None
        for each in groups:
            if each.has_equal_rotation(row, spec, case.length):
                group = each
                break
        if group is None:
            group = RotationGroup(row, spec)
            groups.append(group)
        star = "*" if row["proof"].startswith("read") else ""
        group.names.append(f"{row['runtime']}{star}")

    lines = []
    for group in groups:
        text = describe_row(group.row)
        equal_groups = [each for each in groups if describe_row(each.row) == text]
        first_wrong_position = group.row["first_off_tokens"]
        if first_wrong_position and equal_groups[0].row["first_off_tokens"] is None:
            # The group has the same numbers in the table as the reference, such as its
            # base, and some of its frequencies differ.
            pairs = describe_different_pairs(
                group.spec, equal_groups[0].spec, case.length
            )
            layer, _, _ = text.partition("base ")
            text = f"{layer}the same numbers, but {pairs}"
        elif len(equal_groups) > 1 and not first_wrong_position:
            # Different rotations may have the same words: the method tells them apart.
            text = f"{text}, by {shorten_numbers(group.spec.method)}"
        if first_wrong_position:
            text = f"{text}, off from position {first_wrong_position} in {case.length}"
        lines.append((text, ", ".join(group.names)))
    return lines


def describe_different_pairs(spec: RopeSpec, right: RopeSpec, length: int) -> str:
    """Return in words which pairs of a rotation have another frequency than in the
    right rotation.

    Both rotations have the same number of pairs.
    """
    inv_freq = spec.inv_freq(length)
    right_inv_freq = right.inv_freq(length)
    # Two runtimes round the same formula in different ways.
    different = np.flatnonzero(
        ~np.isclose(inv_freq, right_inv_freq, rtol=1e-5, atol=0)
    ).tolist()
    if not different:
        return "other frequencies"
    first, last = different[0], different[-1]
    if first == last:
        return f"pair {first} turns otherwise"
    if last - first + 1 > len(different):
        return f"{len(different)} of pairs {first} to {last} turn otherwise"
    return f"pairs {first} to {last} turn otherwise"


def count_pairs(row: Mapping[str, Any]) -> str:
    """Return the numbers of pairs that are kept, blended and divided, and of pairs that
    are none of these.

    >>> row = {"pairs_kept": 8, "pairs_blended": 9, "pairs_divided": 15}
    >>> count_pairs({**row, "pairs_otherwise": 0})
    '8/9/15'
    >>> count_pairs({**row, "pairs_otherwise": 2})
    '8/9/15, 2 otherwise'
    """
    counts = "{pairs_kept}/{pairs_blended}/{pairs_divided}".format(**row)
    if row["pairs_otherwise"]:
        counts = f"{counts}, {row['pairs_otherwise']} otherwise"
    return counts


def describe_pairs(row: Mapping[str, Any]) -> str:
    """Return what a scaling does with the pairs of a row of the table of runtimes."""
    pairs = row["rotary_dim"] // 2
    if row["pairs_kept"] == pairs:
        return "unscaled"
    method = row["method"].partition("(")[0]
    if method == "longrope":
        return f"a divisor for each of {pairs} pairs"
    if not (row["pairs_blended"] or row["pairs_divided"]):
        return method
    counts, comma, unexplained = count_pairs(row).partition(",")
    return f"{counts} pairs kept/blended/divided{comma}{unexplained}"


def describe_row(row: Mapping[str, Any]) -> str:
    """Return a row of the table of runtimes in words, without its distance from the
    reference.
    """
    features = f"{row['rotary_dim']} features"
    if row["rotation"] != MAIN:
        features = describe_place(row)
    words = [f"base {write_number(row['base'])}", features, describe_pairs(row)]
    if row["logit_multiplier"] != 1:
        words.append(f"logits x{row['logit_multiplier']:.4g}")
    if row["claimed_tokens"]:
        words.append(f"up to {row['claimed_tokens']} tokens")
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
