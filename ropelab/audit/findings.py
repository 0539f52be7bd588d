"""The rules of an audit: problems of a configuration, and differences between the runtimes."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeGuard

from ropelab.audit.document import Document
from ropelab.audit.overview import TOLERANCE, distance
from ropelab.audit.runtimes.families import meaning, near
from ropelab.audit.runtimes.reader import MAXIMUM, ORIGINAL
from ropelab.audit.runtimes.registry import Reading
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.audit.runtimes.trace import BLOCKS, language_part
from ropelab.math.scaling import LongRope, Unscaled

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
        """Return the finding as a row of a table."""
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """The input of the rules. ``asked``: the length that the user gave, if any."""

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

    @cached_property
    def text(self) -> Mapping[str, Any]:
        """The language model's part of the file."""
        return language_part(self.document.config)[1]

    @cached_property
    def block(self) -> Mapping[str, Any]:
        """The flat scaling block of the file, empty if there is none."""
        blocks = (self.text.get(name) for name in BLOCKS)
        return next((block for block in blocks if isinstance(block, dict) and block), {})

    @property
    def kind(self) -> Any:
        """The declared scaling type."""
        return self.block.get("rope_type") or self.block.get("type")

    @cached_property
    def read(self) -> list[tuple[str, RopeSpec]]:
        """The runtimes that read the file by name, with their main specs."""
        return [(r.runtime.name, r.main) for r in self.readings if r.main is not None]

    def named(self, test: Callable[[RopeSpec], Any]) -> str:
        """Return the runtimes whose spec passes a test, empty if none does."""
        return ", ".join(name for name, spec in self.read if test(spec))

    def grouped(self, value: Callable[[RopeSpec], Any]) -> dict[Any, str]:
        """Return the runtimes that read the file, by something of their spec."""
        groups: dict[Any, list[str]] = {}
        for name, spec in self.read:
            groups.setdefault(value(spec), []).append(name)
        return {value: ", ".join(names) for value, names in groups.items()}


def conflicting_types(case: Case) -> Iterator[Finding]:
    """Find two names for the type that say different things."""
    old, new = case.block.get("type"), case.block.get("rope_type")
    if old and new and old != new and (old, new) not in (("su", "longrope"), ("mrope", "default")):
        says = f"type says {old}, rope_type says {new}: runtimes pick one or refuse both"
        yield Finding("E01", "error", says, f"write the same name twice: {new}")


def refusals(case: Case) -> Iterator[Finding]:
    """Find runtimes that stop at this file, by reason."""
    reasons = [r.problem for r in case.readings if r.outcome == "refused"]
    for reason in dict.fromkeys(reasons):
        by = [r for r in case.readings if r.outcome == "refused" and r.problem == reason]
        stopped = [reading.runtime.name for reading in by]
        yield Finding("E02", "error", f"refused by {', '.join(stopped)}: {reason}")


def lost_base(case: Case) -> Iterator[Finding]:
    """Find a base that the file gives and a runtime does not see."""
    right = case.spec.base
    for base, names in case.grouped(lambda spec: spec.base).items():
        if not math.isclose(base, right, rel_tol=1e-9):
            spec = next(spec for _, spec in case.read if spec.base == base)
            source = spec.sources.get("rope_theta", "")
            says = f"{names} takes base {base:g} ({source}), not {right:g}"
            yield Finding("E03", "error", says, f'write "rope_theta": {right!r} at top level')


def counted_twice(case: Case) -> Iterator[Finding]:
    """Find a claimed length that counts the factor a second time."""
    maximum = case.text.get(MAXIMUM)
    for name, spec in case.read:
        if not (_multiplied(spec) and spec.claimed_len and isinstance(maximum, int)):
            continue
        if spec.claimed_len > maximum:
            says = (
                f"{name} allows {spec.claimed_len} tokens: it multiplies {MAXIMUM} {maximum} by "
                f"the factor, which is right only if {maximum} is the length before scaling"
            )
            yield Finding("E07", "warn", says, "give the server the length you mean")


def _multiplied(spec: RopeSpec) -> bool:
    return spec.sources.get("claimed_len", "").endswith("x factor")


def not_applied(case: Case) -> Iterator[Finding]:
    """Find a declared scaling that some runtimes do not apply."""
    if case.kind in (None, "default", "mrope") or not isinstance(case.kind, str):
        return
    without = case.named(_plain)
    if without and case.named(lambda spec: not _plain(spec)):
        says = f"{case.kind} is declared, and {without} turns unscaled"
        yield Finding("E08", "error", says, "ropelab emit --target, for the form that it reads")


def _plain(spec: RopeSpec) -> bool:
    """Return True if the spec changes nothing, even far beyond the trained length."""
    far = 4 * spec.trained_len
    same = distance(spec, replace(spec, scaling=Unscaled()), far)[1] is None
    return same and math.isclose(spec.plan(far).attention_factor * spec.attention_factor, 1.0)


def unknown_keys(case: Case) -> Iterator[Finding]:
    """Find keys that nobody knows, and keys that a minority reads."""
    paths = [use.path for use in case.reference.keys]
    for path in paths:
        close = near(path)
        if not meaning(path) and close:
            yield Finding("W01", "warn", f"{path} is known to nobody", f"did you mean {close}?")
    for path in paths:
        if path.endswith(".attn_factor"):
            says = f"{path}: SGLang multiplies its attention factor with it, others do not read it"
            yield Finding("W01", "warn", says, "attention_factor, for the runtimes that read it")


def factor_and_ratio(case: Case) -> Iterator[Finding]:
    """Find a factor that is not the ratio of the lengths."""
    factor, original = case.block.get("factor"), case.block.get(ORIGINAL)
    maximum = case.text.get(MAXIMUM)
    if case.kind != "yarn" or not original:
        return
    if not (_is_number(factor) and _is_number(original) and _is_number(maximum)):
        return
    if not math.isclose(factor * original, maximum, rel_tol=1e-6):
        says = (
            f"{MAXIMUM} {maximum} is not factor {factor:g} x original {original}: runtimes that "
            f"compute the factor from the lengths use {maximum / original:g}, and servers allow "
            f"{maximum} tokens"
        )
        yield Finding("W02", "warn", says, f'"{MAXIMUM}": {round(factor * original)}')


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float)


def assumed_length(case: Case) -> Iterator[Finding]:
    """Find a missing original length, for which every runtime has another default."""
    if case.kind not in ("yarn", "llama3", "longrope"):
        return
    right = case.spec.trained_len
    if case.named(lambda spec: spec.trained_len != right and apart(case, spec)[2] is not None):
        groups = case.grouped(lambda spec: spec.trained_len)
        by = "; ".join(f"{names} {length}" for length, names in groups.items())
        says = f"the trained length differs between runtimes: {by}"
        yield Finding("W03", "warn", says, f"{ORIGINAL} inside the block")


def apart(case: Case, spec: RopeSpec) -> tuple[str, float | None, int | None]:
    """Return method and distance from the reference; none if base or width differ."""
    if spec.base != case.spec.base or spec.rotary_dim != case.spec.rotary_dim:
        return "", None, None
    return spec.method, *distance(spec, case.spec, case.length)


def differing_logits(case: Case) -> Iterator[Finding]:
    """Find factors on the logits that differ from the reference, by value."""
    right = case.spec.logit_multiplier
    for value, names in case.grouped(lambda s: float(f"{s.logit_multiplier:.9g}")).items():
        if not math.isclose(value, right, rel_tol=1e-8):
            theirs = f"{case.reference.runtime.name} by {right:.6g}"
            says = f"{names} multiplies every logit by {value:.6g}, {theirs}"
            yield Finding("W04", "warn", says)


def differing_widths(case: Case) -> Iterator[Finding]:
    """Find rotated widths that differ from the reference."""
    for width, names in case.grouped(lambda spec: spec.rotary_dim).items():
        if width != case.spec.rotary_dim:
            theirs = f"{case.reference.runtime.name} {case.spec.rotary_dim}"
            yield Finding("W06", "error", f"{names} turns {width} features, {theirs}")


def differing_frequencies(case: Case) -> Iterator[Finding]:
    """Find frequencies that differ from the reference though base and width are the same."""
    for (about, largest, first), names in case.grouped(lambda spec: apart(case, spec)).items():
        if first is not None and largest is not None:
            says = (
                f"{names} ({about}) has frequencies up to {largest:.4g} times off at "
                f"{case.length} tokens; a phase is off by {TOLERANCE} rad from position {first}"
            )
            yield Finding("W05", "warn", says)


def grows_with_cache(case: Case) -> Iterator[Finding]:
    """Find a base that follows the length, while cached keys keep the old one."""
    if case.spec.scaling.name == "dynamic_ntk":
        says = (
            "dynamic: keys already in the cache keep the base they were turned with, so beyond "
            f"{case.spec.trained_len} tokens scores depend on when a token was read"
        )
        yield Finding("W07", "warn", says, "yarn with a fixed factor")


def table_rules(case: Case) -> Iterator[Finding]:
    """Find runtimes that choose another one of longrope's tables for a short prompt."""
    right = case.spec
    if isinstance(right.scaling, LongRope):
        names = case.named(
            lambda spec: (
                spec.rotary_dim != right.rotary_dim or distance(spec, right, 64)[1] is not None
            )
        )
        if names:
            says = f"{names} turns a prompt of 64 tokens with another table than the reference"
            yield Finding("W08", "warn", says)


def differing_lengths(case: Case) -> Iterator[Finding]:
    """Find claimed lengths that differ though none was multiplied by a factor."""
    groups: dict[int | None, list[str]] = {}
    for name, spec in case.read:
        own = groups.setdefault(spec.claimed_len, [])
        if not _multiplied(spec):
            own.append(name)
    plain = [(length, names) for length, names in groups.items() if length and names]
    if len(plain) > 1:
        by = "; ".join(f"{length} in {', '.join(names)}" for length, names in plain)
        says = f"the claimed length differs: {by}"
        yield Finding("W15", "warn", says, "give the server the length you mean")


def length_not_raised(case: Case) -> Iterator[Finding]:
    """Find a scaled model whose server stops at the unscaled length."""
    factor = getattr(case.spec.scaling, "factor", 1.0)
    limit = factor * case.spec.trained_len
    low = [
        (name, s.claimed_len) for name, s in case.read if s.claimed_len and s.claimed_len < limit
    ]
    if factor > 1 and case.spec.scaling.name in ("yarn", "llama3") and low:
        claims = " or ".join(str(length) for length in sorted({length for _, length in low}))
        names = ", ".join(name for name, _ in low)
        says = f"the scaling reaches {limit:.0f} tokens, {names} allows {claims}"
        yield Finding("W10", "warn", says, f'"{MAXIMUM}": {limit:.0f}')


def beside_layers(case: Case) -> Iterator[Finding]:
    """Find entries beside the dicts of layer types."""
    stray = [use.path for use in case.reference.keys if use.note.startswith("stands beside")]
    if stray:
        says = f"{', '.join(stray)} stands beside the dicts of the layer types and does nothing"
        yield Finding("W11", "warn", says, "move it into each layer type's dict")


def file_traps(case: Case) -> Iterator[Finding]:
    """Find keys that a GGUF file lacks, or that nothing reads."""
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
    """Find a tokenizer that stops before the model."""
    limit, claimed = case.document.tokenizer_length, case.spec.claimed_len
    if limit and claimed and limit < claimed:
        says = f"tokenizer_config.json says model_max_length {limit}, the model claims {claimed}"
        yield Finding("W14", "warn", says)


def short_price(case: Case) -> Iterator[Finding]:
    """State the effect of a static factor below the trained length."""
    spec, factor = case.spec, getattr(case.spec.scaling, "factor", 1.0)
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
    """Name runtimes that do something which is not computed here."""
    for reading in case.readings:
        if reading.outcome == "not modelled":
            says = f"{reading.runtime.name} is left out: {reading.problem}"
            yield Finding("N03", "note", says)


# In the order in which findings of one level are shown.
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


def collect(case: Case) -> tuple[Finding, ...]:
    """Return all findings, worst first."""
    found = [finding for rule in RULES for finding in rule(case)]
    return tuple(sorted(found, key=lambda finding: LEVELS.index(finding.level)))
