"""What is wrong or worth knowing about a configuration, and what to type instead."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeGuard

from ropelab.experiments.audit.tables import OFF, distance
from ropelab.rope.scaling import LongRope, Unscaled
from ropelab.runtimes.document import Document
from ropelab.runtimes.keys import meaning, near
from ropelab.runtimes.spec import Reading, RopeSpec
from ropelab.runtimes.trace import language_part

Level = Literal["error", "warn", "note"]
LEVELS: tuple[Level, ...] = ("error", "warn", "note")


@dataclass(frozen=True)
class Finding:
    """One finding: a stable code, its level, a sentence, and what to type instead."""

    code: str
    level: Level
    says: str
    do: str = ""

    def row(self) -> dict[str, Any]:
        """The finding as a row of a table."""
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """What the rules look at. ``asked``: the length the user gave, if any."""

    document: Document
    readings: Sequence[Reading]
    reference: Reading
    length: int
    asked: int | None

    @property
    def spec(self) -> RopeSpec:
        """The reference's main layer type."""
        assert self.reference.main is not None
        return self.reference.main

    @property
    def block(self) -> dict[str, Any]:
        """The flat scaling block of the file, empty where there is none."""
        _, text = language_part(self.document.config)
        for name in ("rope_scaling", "rope_parameters"):
            if isinstance(text.get(name), dict) and text[name]:
                return dict(text[name])
        return {}

    @property
    def read(self) -> list[Reading]:
        """The runtimes that read the file."""
        return [reading for reading in self.readings if reading.main is not None]


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


def names(readings: Sequence[Reading]) -> str:
    """Runtimes in a sentence."""
    return ", ".join(reading.runtime.name for reading in readings)


def conflicting_types(case: Case) -> Iterator[Finding]:
    """Two names for the type that say different things."""
    old, new = case.block.get("type"), case.block.get("rope_type")
    if old and new and old != new and (old, new) not in (("su", "longrope"), ("mrope", "default")):
        says = f"type says {old}, rope_type says {new}: runtimes pick one or refuse both"
        yield Finding("E01", "error", says, f"write the same name twice: {new}")


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


def unknown_keys(case: Case) -> Iterator[Finding]:
    """Keys that nobody knows, and keys that a minority reads."""
    for use in case.reference.keys:
        close = near(use.path)
        if not meaning(use.path) and close:
            yield Finding("W01", "warn", f"{use.path} is known to nobody", f"did you mean {close}?")
    for path in [use.path for use in case.reference.keys if use.path.endswith(".attn_factor")]:
        says = f"{path}: SGLang multiplies its attention factor with it, others do not read it"
        yield Finding("W01", "warn", says, "attention_factor, for the runtimes that read it")


def factor_and_ratio(case: Case) -> Iterator[Finding]:
    """A factor that is not the ratio of the lengths."""
    _, text = language_part(case.document.config)
    factor, original = case.block.get("factor"), case.block.get("original_max_position_embeddings")
    maximum = text.get("max_position_embeddings")
    kind = case.block.get("rope_type") or case.block.get("type")
    if kind != "yarn" or not original:
        return
    if not (_is_number(factor) and _is_number(original) and _is_number(maximum)):
        return
    if not math.isclose(factor * original, maximum, rel_tol=1e-6):
        says = (
            f"max_position_embeddings {maximum} is not factor {factor:g} x original {original}: "
            "runtimes that compute the factor from the lengths use "
            f"{maximum / original:g}, and servers allow {maximum} tokens"
        )
        yield Finding("W02", "warn", says, f'"max_position_embeddings": {round(factor * original)}')


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float)


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


def grouped(case: Case, value: Callable[[RopeSpec], Any]) -> list[tuple[Any, list[Reading]]]:
    """The runtimes that read the file, grouped by something of their main spec."""
    groups: dict[Any, list[Reading]] = {}
    for reading in case.read:
        if reading.main is not None:
            groups.setdefault(value(reading.main), []).append(reading)
    return list(groups.items())


def grows_with_cache(case: Case) -> Iterator[Finding]:
    """A base that follows the length, while cached keys keep the old one."""
    if case.spec.scaling.name == "dynamic_ntk":
        says = (
            "dynamic: keys already in the cache keep the base they were turned with, so beyond "
            f"{case.spec.trained_len} tokens scores depend on when a token was read"
        )
        yield Finding("W07", "warn", says, "yarn with a fixed factor")


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


def _multiplied(spec: RopeSpec) -> bool:
    return spec.sources.get("claimed_len", "").endswith("x factor")


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


def beside_layers(case: Case) -> Iterator[Finding]:
    """Entries beside the dicts of layer types."""
    stray = [use.path for use in case.reference.keys if use.note.startswith("stands beside")]
    if stray:
        says = f"{', '.join(stray)} stands beside the dicts of the layer types and does nothing"
        yield Finding("W11", "warn", says, "move it into each layer type's dict")


def file_traps(case: Case) -> Iterator[Finding]:
    """What a GGUF file leaves to defaults, and which of its keys nothing reads."""
    if case.document.kind != "gguf":
        return
    fields = case.document.config
    if "rope.freq_base" not in fields:
        says = "the file has no rope.freq_base: llama.cpp turns with base 10000"
        yield Finding("W12", "warn", says, "--rope-freq-base, or convert again")
    if "rope.scaling.factor" in fields and "rope.scaling.type" not in fields:
        says = "a factor without rope.scaling.type is taken as linear"
        yield Finding("W12", "warn", says, "--rope-scaling yarn, if that was meant")
    if "rope.scaling.yarn_attn_factor" in fields:
        says = "rope.scaling.yarn_attn_factor has no effect: it is computed from the factor"
        yield Finding("W12", "warn", says, "rope.scaling.attn_factor multiplies it")


def tokenizer(case: Case) -> Iterator[Finding]:
    """A tokenizer that stops before the model."""
    limit = case.document.tokenizer_length
    claimed = case.spec.claimed_len
    if limit and claimed and limit < claimed:
        says = f"tokenizer_config.json says model_max_length {limit}, the model claims {claimed}"
        yield Finding("W14", "warn", says)


def short_price(case: Case) -> Iterator[Finding]:
    """What a static factor costs below the trained length."""
    spec = case.spec
    factor = getattr(spec.scaling, "factor", 1.0)
    if spec.scaling.name == "yarn" and factor > 1:
        says = (
            f"yarn by {factor:g} is there from position 0: every logit times "
            f"{spec.attention_factor**2:.4g} and slow pairs divided, also below "
            f"{spec.trained_len} tokens"
        )
        yield Finding("N01", "note", says, "leave it off where contexts are short")
    if case.asked and factor > 1 and case.asked < factor * spec.trained_len:
        need = max(1.0, case.asked / spec.trained_len)
        says = f"{case.asked} tokens need a factor of {need:.4g}, the file has {factor:g}"
        yield Finding("N02", "note", says, f'"factor": {need:.4g}')


def not_modelled(case: Case) -> Iterator[Finding]:
    """Runtimes that do something which is not computed here."""
    for reading in case.readings:
        if reading.outcome == "not modelled":
            says = f"{reading.runtime.name} is left out: {reading.problem}"
            yield Finding("N03", "note", says)


RULES: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    conflicting_types,
    refusals,
    lost_base,
    counted_twice,
    not_applied,
    unknown_keys,
    factor_and_ratio,
    assumed_length,
    differing_logits,
    differing_widths,
    differing_frequencies,
    grows_with_cache,
    table_rules,
    differing_lengths,
    length_not_raised,
    beside_layers,
    file_traps,
    tokenizer,
    short_price,
    not_modelled,
)
