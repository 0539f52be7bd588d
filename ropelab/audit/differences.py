"""Rules of an audit: runtimes that scale by other numbers than the reference."""

import math
from collections.abc import Iterator

from ropelab.audit.audit_case import TOLERANCE, AuditCase, measure_distance
from ropelab.audit.causes import (
    describe_phase,
    find_explained,
    leave_out,
    list_scaled_from_other_length,
)
from ropelab.audit.finding import AuditFinding, make_finding, say_where
from ropelab.audit.fixes import advise_original
from ropelab.math.scaling import DynamicNtk, LongRope
from ropelab.runs.sentences import shorten_numbers


def find_differences(case: AuditCase) -> Iterator[AuditFinding]:
    """Find runtimes that scale by other numbers than the reference."""
    reference_spec = case.spec
    whole_case = case
    # If a separate finding reports the cause of a difference, the difference is not
    # listed again.
    case = leave_out(case, find_explained(case))
    # If the original length is missing, runtimes scale from different defaults.
    names_of_other_length = list_scaled_from_other_length(case)
    if names_of_other_length:
        parts = []
        for length, names in case.group(lambda spec: spec.trained_len).items():
            parts.append(f"{', '.join(names)} {length}")
        fix = advise_original(whole_case)
        off = describe_phase(case, names_of_other_length)
        yield make_finding("W03", by="; ".join(parts), off=off, fix=fix)
        case = leave_out(case, names_of_other_length)

    yield from find_other_numbers(case)
    yield from find_dynamic_bases(whole_case)
    if isinstance(reference_spec.scaling, LongRope):
        # 64 tokens are below every original length, where the short table is to be used.
        other_tables = []
        for name, spec in case.specs:
            _, first_wrong_position = measure_distance(spec, reference_spec, 64)
            if first_wrong_position is not None:
                other_tables.append(name)
        if other_tables:
            yield make_finding("W08", names=other_tables)


def find_dynamic_bases(case: AuditCase) -> Iterator[AuditFinding]:
    """Find runtimes whose base follows the number of tokens in the context."""
    lengths = {}
    for name, spec in case.specs:
        if isinstance(spec.scaling, DynamicNtk):
            lengths[name] = spec.trained_len
    if not lengths:
        return
    yield make_finding(
        "W07",
        where=say_where(case, lengths),
        trained=min(lengths.values()),
    )


def find_other_numbers(case: AuditCase) -> Iterator[AuditFinding]:
    """Find other factors on the logits, and other frequencies."""
    reference = case.reference.runtime.name
    reference_multiplier = case.spec.logit_multiplier
    # The factors are rounded, because runtimes multiply the same numbers in other orders.
    multipliers = case.group(lambda spec: float(f"{spec.logit_multiplier:.9g}"))
    for value, names in multipliers.items():
        if not math.isclose(value, reference_multiplier, rel_tol=1e-8):
            about = {
                "value": value,
                "reference": reference,
                "wanted": reference_multiplier,
            }
            yield make_finding("W04", names=names, **about)

    for (method, ratio, position), names in case.group(case.compare).items():
        if position is None:
            continue
        several = len(names) > 1
        # There is no ratio if no pair rotates in both rotations.
        if ratio:
            verb = "have" if several else "has"
            apart = f"{verb} frequencies up to {ratio:.4g} times off"
        else:
            apart = "are off" if several else "is off"
        yield make_finding(
            "W05",
            names=names,
            about=shorten_numbers(method),
            apart=apart,
            length=case.length,
            tolerance=TOLERANCE,
            first=position,
        )
