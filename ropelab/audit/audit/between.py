"""Where runtimes read a configuration differently, stop at it, or do what is not computed here."""

import math
from collections.abc import Iterator

from ropelab.audit.audit.case import Case, Finding, grouped, names
from ropelab.audit.audit.tables import OFF, distance
from ropelab.audit.runtimes.registry import Reading
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.audit.runtimes.trace import language_part
from ropelab.math.scaling import LongRope, Unscaled


def refusals(case: Case) -> Iterator[Finding]:
    """Runtimes that stop at this file, by reason."""
    by_reason: dict[str, list[Reading]] = {}
    for reading in case.readings:
        if reading.outcome == "refused":
            by_reason.setdefault(reading.problem, []).append(reading)
    for reason, stopped in by_reason.items():
        yield Finding("E02", "error", f"refused by {names(stopped)}: {reason}")


def lost_base(case: Case) -> Iterator[Finding]:
    """A base that the file gives and a runtime does not see."""
    lost = [
        reading
        for reading in case.read
        if reading.main is not None
        and not math.isclose(reading.main.base, case.spec.base, rel_tol=1e-9)
    ]
    for base in dict.fromkeys(r.main.base for r in lost if r.main):
        mine = [r for r in lost if r.main and r.main.base == base]
        source = mine[0].main.sources.get("rope_theta", "") if mine[0].main else ""
        says = f"{names(mine)} takes base {base:g} ({source}), not {case.spec.base:g}"
        yield Finding("E03", "error", says, f'write "rope_theta": {case.spec.base!r} at top level')


def counted_twice(case: Case) -> Iterator[Finding]:
    """A claimed length that counts the factor a second time."""
    _, text = language_part(case.document.config)
    maximum = text.get("max_position_embeddings")
    for reading in case.read:
        spec = reading.main
        if spec and spec.claimed_len and isinstance(maximum, int) and spec.claimed_len > maximum:
            if not _multiplied(spec):
                continue
            says = (
                f"{reading.runtime.name} allows {spec.claimed_len} tokens: it multiplies "
                f"max_position_embeddings {maximum} by the factor, which is right only if "
                f"{maximum} is the length before scaling"
            )
            yield Finding("E07", "warn", says, "give the server the length you mean")


def _multiplied(spec: RopeSpec) -> bool:
    return spec.sources.get("claimed_len", "").endswith("x factor")


def not_applied(case: Case) -> Iterator[Finding]:
    """A declared scaling that a runtime does not apply."""
    kind = case.block.get("rope_type") or case.block.get("type")
    if kind in (None, "default", "mrope") or not isinstance(kind, str):
        return
    without = [reading for reading in case.read if reading.main and _plain(reading.main)]
    scaled = [reading for reading in case.read if reading.main and not _plain(reading.main)]
    if without and scaled:
        says = f"{kind} is declared, and {names(without)} turns unscaled"
        yield Finding("E08", "error", says, "ropelab emit --target, for the form that it reads")


def _plain(spec: RopeSpec) -> bool:
    """Whether the spec changes no frequency at any length."""
    far = spec.plan(4 * spec.trained_len)
    same = distance(spec, _unscaled(spec), 4 * spec.trained_len)[1] is None
    return same and math.isclose(far.attention_factor * spec.attention_factor, 1.0)


def _unscaled(spec: RopeSpec) -> RopeSpec:
    return RopeSpec(
        base=spec.base,
        head_dim=spec.head_dim,
        rotary_dim=spec.rotary_dim,
        scaling=Unscaled(),
        trained_len=spec.trained_len,
    )


def assumed_length(case: Case) -> Iterator[Finding]:
    """A missing original length, for which every runtime has another default."""
    kind = case.block.get("rope_type") or case.block.get("type")
    if kind not in ("yarn", "llama3", "longrope"):
        return
    if any(
        r.main.trained_len != case.spec.trained_len and _far(case, r.main)
        for r in case.read
        if r.main
    ):
        by = "; ".join(f"{names(r)} {length}" for length, r in grouped(case, _trained))
        says = f"the trained length differs between runtimes: {by}"
        yield Finding("W03", "warn", says, "original_max_position_embeddings inside the block")


def _trained(spec: RopeSpec) -> int:
    return spec.trained_len


def _far(case: Case, spec: RopeSpec) -> bool:
    return apart(case, spec)[2] is not None


def differing_logits(case: Case) -> Iterator[Finding]:
    """Factors on the logits that differ from the reference, by value."""
    reference = case.spec.logit_multiplier
    for value, readings in grouped(case, lambda spec: float(f"{spec.logit_multiplier:.9g}")):
        if not math.isclose(value, reference, rel_tol=1e-8):
            says = f"{names(readings)} multiplies every logit by {value:.6g}, "
            theirs = f"{case.reference.runtime.name} by {reference:.6g}"
            yield Finding("W04", "warn", f"{says}{theirs}")


def differing_widths(case: Case) -> Iterator[Finding]:
    """Rotated widths that differ from the reference."""
    for width, readings in grouped(case, lambda spec: spec.rotary_dim):
        if width != case.spec.rotary_dim:
            theirs = f"{case.reference.runtime.name} {case.spec.rotary_dim}"
            says = f"{names(readings)} turns {width} features, {theirs}"
            yield Finding("W06", "error", says)


def differing_frequencies(case: Case) -> Iterator[Finding]:
    """Frequencies that differ from the reference though base and width are the same."""
    for (about, largest, first), readings in grouped(case, lambda spec: apart(case, spec)):
        if first is None or largest is None:
            continue
        says = (
            f"{names(readings)} ({about}) has frequencies up to {largest:.4g} times off at "
            f"{case.length} tokens; a phase is off by {OFF} rad from position {first}"
        )
        yield Finding("W05", "warn", says)


def apart(case: Case, spec: RopeSpec) -> tuple[str, float | None, int | None]:
    """The method and how far it is from the reference; nothing where base or width differ."""
    if spec.base != case.spec.base or spec.rotary_dim != case.spec.rotary_dim:
        return "", None, None
    return spec.method, *distance(spec, case.spec, case.length)


def table_rules(case: Case) -> Iterator[Finding]:
    """longrope: who chooses which table when."""
    if not isinstance(case.spec.scaling, LongRope):
        return
    short = [r for r in case.read if r.main and not _same(r.main, case.spec, 64)]
    if short:
        says = f"{names(short)} turns a prompt of 64 tokens with another table than the reference"
        yield Finding("W08", "warn", says)


def _same(spec: RopeSpec, other: RopeSpec, length: int) -> bool:
    return spec.rotary_dim == other.rotary_dim and distance(spec, other, length)[1] is None


def differing_lengths(case: Case) -> Iterator[Finding]:
    """Claimed lengths that differ between runtimes though none was multiplied by a factor."""
    counted = {r.runtime.name for r in case.read if r.main and _multiplied(r.main)}
    groups = [
        (length, [r for r in readings if r.runtime.name not in counted])
        for length, readings in grouped(case, lambda spec: spec.claimed_len)
    ]
    plain = [(length, readings) for length, readings in groups if length and readings]
    if len(plain) > 1:
        by = "; ".join(f"{length} in {names(readings)}" for length, readings in plain)
        yield Finding(
            "W15",
            "warn",
            f"the claimed length differs: {by}",
            "give the server the length you mean",
        )


def length_not_raised(case: Case) -> Iterator[Finding]:
    """A stretched model whose server stops at the unstretched length."""
    factor = getattr(case.spec.scaling, "factor", 1.0)
    reach = factor * case.spec.trained_len
    low = [r for r in case.read if r.main and r.main.claimed_len and r.main.claimed_len < reach]
    if factor > 1 and case.spec.scaling.name in ("yarn", "llama3") and low:
        claims = sorted({r.main.claimed_len or 0 for r in low if r.main})
        says = (
            f"the scaling reaches {reach:.0f} tokens, {names(low)} "
            f"allows {' or '.join(map(str, claims))}"
        )
        yield Finding("W10", "warn", says, f'"max_position_embeddings": {reach:.0f}')


def not_modelled(case: Case) -> Iterator[Finding]:
    """Runtimes that do something which is not computed here."""
    for reading in case.readings:
        if reading.outcome == "not modelled":
            says = f"{reading.runtime.name} is left out: {reading.problem}"
            yield Finding("N03", "note", says)
