"""What is wrong or worth knowing about a configuration: all rules, and what they find together."""

from collections.abc import Callable, Iterator, Sequence

from ropelab.audit.audit import between, of_file
from ropelab.audit.audit.case import LEVELS, Case, Finding
from ropelab.audit.runtimes.document import Document
from ropelab.audit.runtimes.registry import Reading

RULES: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    of_file.conflicting_types,
    between.refusals,
    between.lost_base,
    between.counted_twice,
    between.not_applied,
    of_file.unknown_keys,
    of_file.factor_and_ratio,
    between.assumed_length,
    between.differing_logits,
    between.differing_widths,
    between.differing_frequencies,
    of_file.grows_with_cache,
    between.table_rules,
    between.differing_lengths,
    between.length_not_raised,
    of_file.beside_layers,
    of_file.file_traps,
    of_file.tokenizer,
    of_file.short_price,
    between.not_modelled,
)
"""In the order in which findings of one level are told."""


def collect(
    document: Document,
    readings: Sequence[Reading],
    reference: Reading,
    length: int,
    asked: int | None,
) -> tuple[Finding, ...]:
    """All findings, worst first."""
    case = Case(document, readings, reference, length, asked)
    found = [finding for rule in RULES for finding in rule(case)]
    return tuple(sorted(found, key=lambda finding: LEVELS.index(finding.level)))
