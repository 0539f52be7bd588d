"""What a second file means as a draft model, for speculative decoding.

A small draft model proposes tokens, and the large target model checks them. The two may
rotate in different ways.
"""

from collections.abc import Iterator
from typing import Any

from ropelab.audit.audit_case import AuditCase
from ropelab.audit.finding import AuditFinding, make_finding
from ropelab.readers.trace import find_language_part
from ropelab.runs.sentences import shorten_numbers, write_number

# The number of layers and their width: the names of each in config.json and in a GGUF
# file.
SIZES = (("num_hidden_layers", "block_count"), ("hidden_size", "embedding_length"))


def read_sizes(case: AuditCase) -> list[float]:
    """Return the number of layers and their width, as far as the file gives them."""
    _, language_part = find_language_part(case.document.config)
    sizes = []
    for names in SIZES:
        stated_sizes = [language_part[name] for name in names if name in language_part]
        if stated_sizes and isinstance(stated_sizes[0], int | float):
            sizes.append(stated_sizes[0])
    return sizes


def compare_draft(target: AuditCase, draft: AuditCase) -> Iterator[AuditFinding]:
    """Find how the second file, as a draft model, differs from the target model.

    Nothing is found if the second model is not the smaller one, or if a size is unknown.
    """
    sizes = read_sizes(target)
    draft_sizes = read_sizes(draft)
    has_unknown_size = len(sizes) < len(SIZES) or len(draft_sizes) < len(SIZES)
    if has_unknown_size or sizes == draft_sizes:
        return
    if any(
        target_value < draft_value
        for target_value, draft_value in zip(sizes, draft_sizes, strict=True)
    ):
        return

    spec = target.spec
    longest = target.requested_length or spec.length
    draft_length = draft.spec.length
    if draft_length < longest:
        about: dict[str, Any] = {"theirs": draft_length, "longest": longest}
        yield make_finding("W17", name=draft.document.name, **about)

    values = {
        "base": (write_number(spec.base), write_number(draft.spec.base)),
        "scaling": (
            shorten_numbers(spec.method),
            shorten_numbers(draft.spec.method),
        ),
        "factor on logits": (
            write_number(spec.logit_multiplier),
            write_number(draft.spec.logit_multiplier),
        ),
    }
    parts = []
    for name, (target_value, draft_value) in values.items():
        if target_value != draft_value:
            parts.append(f"{name} {draft_value}, not {target_value}")
    if parts:
        yield make_finding("N05", apart="; ".join(parts))
