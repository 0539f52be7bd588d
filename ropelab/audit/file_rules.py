"""Rules of an audit about the entries of a file.

They may contradict each other, do nothing, or be missing.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any

from ropelab.audit.audit_case import AuditCase
from ropelab.audit.causes import (
    advise_length,
    describe_phase,
    list_scaled_by_ratio,
    list_unscaled,
)
from ropelab.audit.finding import AuditFinding, make_finding
from ropelab.readers.document import ROTATED_ARCHITECTURES
from ropelab.readers.families import find_family
from ropelab.readers.keys import explain_key, find_misspelt_key, find_nearest_key
from ropelab.readers.servers import VLLM_LENGTHS
from ropelab.readers.spec import short
from ropelab.readers.trace import ORIGINAL, OUTSIDE, language_part, value_in
from ropelab.runs.rows import group_pairs
from ropelab.runs.sentences import write_number

# The most repeated keys that a finding names.
MOST_NAMED = 5


def show_key(path: str) -> str:
    """Return a key as text in which no blank and no foreign letter is overlooked."""
    if path.isascii() and not re.search(r"\s", path):
        return path
    return ascii(path)


def find_contradictions(case: AuditCase) -> Iterator[AuditFinding]:
    """Find keys that contradict each other, or that few or no runtimes read."""
    _, text = language_part(case.document.config)
    stated = [text.get(key) for key in VLLM_LENGTHS]
    multiplied = []
    for name, spec in case.specs:
        claimed = spec.claimed_len or 0
        if spec.multiplied and claimed > spec.multiplied and claimed not in stated:
            multiplied.append(((claimed, spec.multiplied), name))
    for (claimed, length), names in group_pairs(multiplied).items():
        yield make_finding("E07", names=names, claimed=claimed, length=length)

    in_block = find_family(case.reference.model_type).rope_block
    for use in case.reference.keys:
        *parents, key = use.path.split(".")
        if parents and key in in_block:
            # Transformers' class itself puts this key into the block.
            continue
        close = find_nearest_key(use.path)
        # A longer name that contains a known one is a key by itself, and no misspelling:
        # rope_interleave_factor. But rope_theta_2 looks as if it were a base.
        is_other_key = close in use.path and not find_misspelt_key(key)
        if re.fullmatch(rf"{re.escape(close)}_?\d+", key):
            is_other_key = False
        is_used = use.status in ("used", "translated")
        if not explain_key(use.path) and close and not is_other_key and not is_used:
            yield make_finding("W01", "unknown", path=show_key(use.path), close=close)
        elif use.path.endswith(".attn_factor"):
            yield make_finding("W01", "one", path=use.path)

    # Some runtimes take the factor from the file, others the ratio of the lengths.
    fix = advise_length(case)
    if fix and not list_unscaled(case):
        original = case.block[ORIGINAL]
        by_ratio = list_scaled_by_ratio(case)
        yield make_finding(
            "W02",
            factor=case.block["factor"],
            maximum=case.maximum,
            original=original,
            ratio=case.maximum / original,
            who=", ".join(by_ratio) or "none of these runtimes",
            off=describe_phase(case, by_ratio),
            fix=fix,
        )


def check_file(case: AuditCase) -> Iterator[AuditFinding]:
    """Find entries that do nothing or are missing, and a limit of the tokenizer."""
    outside = [use.path for use in case.reference.keys if use.note == OUTSIDE]
    if outside:
        yield make_finding("W11", "outside", paths=", ".join(outside))
    yield from find_unread_values(case, outside)

    if case.document.repeated:
        yield make_finding("W19", names=case.document.repeated[:MOST_NAMED])

    if case.document.kind == "gguf":
        fields = case.document.config
        if "rope.freq_base" not in fields:
            yield make_finding("W12", "base")
        if "rope.scaling.factor" in fields and "rope.scaling.type" not in fields:
            yield make_finding("W12", "untyped")
        if "rope.scaling.yarn_attn_factor" in fields:
            yield make_finding("W12", "dead")
        architecture = fields["model_type"]
        if architecture not in ROTATED_ARCHITECTURES:
            yield make_finding("W12", "architecture", name=short(architecture))

    limit = case.document.tokenizer_length
    claimed = case.spec.claimed_len
    if limit and claimed and limit < claimed:
        yield make_finding("W14", limit=limit, claimed=claimed)


def find_unread_values(
    case: AuditCase, outside: Collection[str]
) -> Iterator[AuditFinding]:
    """Find values of the base and the width that no runtime takes.

    ``outside``: the keys that are reported already, as they are outside the block.
    """
    values_in_use = {"rope_theta": case.spec.base, "rotary_dim": case.spec.rotary_dim}
    uses = []
    for reading in case.readings:
        if reading.layers:
            uses += [(use.path, use.status) for use in reading.keys]

    for path, statuses in group_pairs(uses).items():
        *_, key = path.split(".")
        value_in_use = values_in_use.get(key)
        value = value_in(case.document.config, path)
        is_unread = all(status == "ignored" for status in statuses)
        if not value_in_use or not is_unread or path in outside:
            continue
        if value not in (None, value_in_use):
            about: dict[str, Any] = {
                "value": short(value),
                "own": write_number(value_in_use),
            }
            yield make_finding("W11", "unread", path=path, **about)
