"""The rules of an audit: problems of a configuration, and differences between the runtimes."""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ropelab.audit.beside import Aspect
from ropelab.audit.overview import TOLERANCE, Case, distance
from ropelab.audit.runtimes.families import meaning, near
from ropelab.audit.runtimes.reader import SAME_TYPES
from ropelab.audit.runtimes.spec import RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import MAXIMUM, ORIGINAL, OUTSIDE
from ropelab.math.scaling import DynamicNtk, LongRope, Unscaled, Yarn

Level = Literal["error", "warn", "note"]
LEVELS: tuple[Level, ...] = ("error", "warn", "note")


@dataclass(frozen=True)
class Finding:
    """One finding: a stable code, its level, a sentence, and what to type instead."""

    code: str
    level: Level
    says: str
    do: str = ""


Found = Iterator[tuple[str, str, str]]  # code, sentence, advice


def of_ratio(case: Case) -> str:
    """Return the length to write where the block's factor is not the ratio of the lengths."""
    if case.kind != "yarn":
        return ""
    try:
        maximum, original = (whole(n, "") for n in (case.maximum, case.block.get(ORIGINAL)))
        reached = number(case.block.get("factor"), "") * original
    except RefusedError:
        return ""
    right = math.isclose(reached, maximum, rel_tol=1e-6) or math.isinf(reached)
    return "" if right else f'"{MAXIMUM}": {round(reached)}'


def unscaled(case: Case) -> list[str]:
    """Return the runtimes that pass over a scaling that others apply."""
    if not isinstance(case.kind, str) or case.kind in ("default", "mrope"):
        return []
    without = [name for name, spec in case.read if _plain(spec)]
    return without if len(without) < len(case.read) else []


def explained(case: Case) -> set[str]:
    """Return the runtimes whose difference has a cause of its own: base, width, no scaling."""
    right = case.spec
    other = [
        name
        for name, spec in case.read
        if not math.isclose(spec.base, right.base, rel_tol=1e-9)
        or spec.rotary_dim != right.rotary_dim
    ]
    return {*other, *unscaled(case)}


def level(case: Case, names: Collection[str]) -> Level:
    """Return the level of an error: that of a warning if none of the readers was compared."""
    named = (r for r in case.readings if r.runtime.name in names)
    return "error" if any(r.model_type in r.runtime.compared for r in named) else "warn"


def errors(case: Case) -> Iterator[Finding]:
    """Find contradictions, refusals, and runtimes that rotate by something else."""
    reference, right = case.reference.runtime.name, case.spec
    old, new = case.block.get("type"), case.block.get("rope_type")
    if old and new and old != new and (old, new) not in SAME_TYPES:
        says = f"type says {old}, rope_type says {new}: runtimes pick one or refuse both"
        yield Finding("E01", "error", says, f"write the same name twice: {new}")

    for reason, stopped in case.unread("refused").items():
        says = f"refused by {', '.join(stopped)}: {reason}"
        yield Finding("E02", level(case, stopped), says)

    for base, names in case.grouped(lambda spec: spec.base).items():
        if not math.isclose(base, right.base, rel_tol=1e-9):
            source = next(spec.base_source for _, spec in case.read if spec.base == base)
            says = f"{names} takes base {base:g} ({source}), not {right.base:g}"
            instead = f'write "rope_theta": {right.base!r} at top level'
            fix = f"leave {source} off" if source.startswith("--") else instead
            yield Finding("E03", level(case, names.split(", ")), says, fix)

    # By a factor of 1 from the lengths, or not at all: two causes.
    without, fix = unscaled(case), of_ratio(case)
    by_ratio = [n for n, s in case.read if n in without and fix and isinstance(s.scaling, Yarn)]
    for names_of_one in (by_ratio, [name for name in without if name not in by_ratio]):
        if not names_of_one:
            continue
        says = f"{case.kind} is declared, but not applied by {', '.join(names_of_one)}"
        instead = "ropelab emit --target, for the form that it reads"
        if names_of_one is by_ratio:
            ratio, instead = case.maximum / case.block[ORIGINAL], fix
            says = f"{says}: their factor is {MAXIMUM} / {ORIGINAL} = {ratio:g}"
        yield Finding("E08", level(case, names_of_one), says, instead)

    for width, names in case.grouped(lambda spec: spec.rotary_dim).items():
        if width != right.rotary_dim:
            says = f"{names} rotates {width} features, {reference} {right.rotary_dim}"
            yield Finding("W06", level(case, names.split(", ")), says)


def _plain(spec: RopeSpec) -> bool:
    """Return True if the spec changes nothing, even far beyond the trained length."""
    far = 4 * spec.trained_len  # dynamic and longrope change nothing at short lengths
    same = distance(spec, replace(spec, scaling=Unscaled()), far)[1] is None
    return same and math.isclose(spec.plan(far).attention_factor * spec.attention_factor, 1.0)


def contradicting_keys(case: Case) -> Found:
    """Find keys that contradict each other, or that few or no runtimes read."""
    maximum = case.maximum
    for name, spec in case.read:
        claimed = spec.claimed_len or 0
        if spec.multiplied and isinstance(maximum, int) and claimed > maximum:
            says = (
                f"{name} allows {claimed} tokens: it multiplies {MAXIMUM} {maximum} by "
                f"the factor, which is right only if {maximum} is the length before scaling"
            )
            yield "E07", says, "give the server the length you mean"

    paths = [use.path for use in case.reference.keys]
    for path in paths:
        close = near(path)
        # A name that holds a known one is a key of its own: indexer_rope_interleave.
        if not meaning(path) and close and close not in path:
            yield "W01", f"{path} is not a known key", f"did you mean {close}?"
    for path in paths:
        if path.endswith(".attn_factor"):
            says = f"{path}: SGLang multiplies its attention factor with it, others do not read it"
            yield "W01", says, "attention_factor, for the runtimes that read it"

    # Some runtimes take the factor from the file, others the ratio of the lengths.
    if (fix := of_ratio(case)) and not unscaled(case):
        factor, original = case.block["factor"], case.block[ORIGINAL]
        says = (
            f"{MAXIMUM} {maximum} is not factor {factor:g} x original {original}: runtimes that "
            f"compute the factor from the lengths use {maximum / original:g}, and servers allow "
            f"{maximum} tokens"
        )
        yield "W02", says, fix


def differences(case: Case) -> Found:
    """Find runtimes that scale by other numbers than the reference."""
    right, known = case.spec, explained(case)
    case = replace(case, readings=[r for r in case.readings if r.runtime.name not in known])
    # Every runtime has another default for a missing original length.
    if case.kind in ("yarn", "llama3", "longrope") and case.named(
        lambda s: s.trained_len != right.trained_len and case.apart(s)[2] is not None
    ):
        groups = case.grouped(lambda spec: spec.trained_len)
        by = "; ".join(f"{names} {length}" for length, names in groups.items())
        says = f"the trained length differs between runtimes: {by}"
        yield "W03", says, f"{ORIGINAL} inside the block"

    wanted = right.logit_multiplier
    # Rounded, because runtimes form the same factor in several orders.
    for value, names in case.grouped(lambda s: float(f"{s.logit_multiplier:.9g}")).items():
        if not math.isclose(value, wanted, rel_tol=1e-8):
            theirs = f"{case.reference.runtime.name} by {wanted:.6g}"
            yield "W04", f"{names} multiplies every logit by {value:.6g}, {theirs}", ""

    for (about, largest, first), names in case.grouped(case.apart).items():
        if first is not None:
            apart = f"has frequencies up to {largest:.4g} times off" if largest else "is off"
            says = (
                f"{names} ({about}) {apart} at {case.length} tokens; a phase is off by {TOLERANCE} "
                f"rad from position {first}"
            )
            yield "W05", says, ""

    if isinstance(right.scaling, DynamicNtk):
        says = (
            "dynamic: keys already in the cache keep the base they were rotated with, so beyond "
            f"{right.trained_len} tokens scores depend on when a token was read"
        )
        yield "W07", says, "yarn with a fixed factor"

    if isinstance(right.scaling, LongRope):
        # 64 tokens are below every original length, so that the short table is the right one.
        names = case.named(
            lambda s: s.rotary_dim != right.rotary_dim or distance(s, right, 64)[1] is not None
        )
        if names:
            says = f"{names} rotates a prompt of 64 tokens by another table than the reference"
            yield "W08", says, ""


def lengths(case: Case) -> Found:
    """Find lengths that differ between runtimes, or that the scaling does not reach or exceeds."""
    groups: dict[int | None, list[str]] = {}
    for name, spec in case.read:
        own = groups.setdefault(spec.claimed_len, [])
        if not spec.multiplied:  # those have a finding of their own
            own.append(name)
    plain = [(length, names) for length, names in groups.items() if length and names]
    if len(plain) > 1:
        by = "; ".join(f"{length} in {', '.join(names)}" for length, names in plain)
        yield "W15", f"the claimed length differs: {by}", "give the server the length you mean"

    factor = getattr(case.spec.scaling, "factor", 1.0)
    limit = factor * case.spec.trained_len
    low = {n: s.claimed_len for n, s in case.read if s.claimed_len and s.claimed_len < limit}
    if factor > 1 and isinstance(case.spec.scaling, Yarn) and low and not of_ratio(case):
        claims = " or ".join(str(length) for length in sorted(set(low.values())))
        says = f"the scaling reaches {limit:.0f} tokens, {', '.join(low)} allows {claims}"
        yield "W10", says, f'"{MAXIMUM}": {limit:.0f}'


def files(case: Case) -> Found:
    """Find entries of a file that do nothing, entries that it lacks, and a tokenizer's limit."""
    stray = [use.path for use in case.reference.keys if use.note == OUTSIDE]
    if stray:
        says = f"{', '.join(stray)} is outside the dicts of the layer types and has no effect"
        yield "W11", says, "move it into each layer type's dict"

    if case.document.kind == "gguf":
        fields = case.document.config
        if "rope.freq_base" not in fields:
            says = "the file has no rope.freq_base: llama.cpp takes base 10000"
            yield "W12", says, "--rope-freq-base, or convert again"
        if "rope.scaling.factor" in fields and "rope.scaling.type" not in fields:
            says = "a factor without rope.scaling.type is taken as linear"
            yield "W12", says, "--rope-scaling yarn, if that was meant"
        if "rope.scaling.yarn_attn_factor" in fields:
            says = "rope.scaling.yarn_attn_factor has no effect: it is computed from the factor"
            yield "W12", says, "rope.scaling.attn_factor multiplies it"

    limit, claimed = case.document.tokenizer_length, case.spec.claimed_len
    if limit and claimed and limit < claimed:
        says = f"tokenizer_config.json says model_max_length {limit}, the model claims {claimed}"
        yield "W14", says, ""


def notes(case: Case) -> Found:
    """State the effect of a static factor on short prompts, and the runtimes left out."""
    spec, factor = case.spec, getattr(case.spec.scaling, "factor", 1.0)
    if isinstance(spec.scaling, Yarn) and factor > 1:
        says = (
            f"static yarn by {factor:g} also affects prompts below {spec.trained_len} tokens: "
            f"every logit times {spec.attention_factor**2:.4g}, slow pairs divided"
        )
        yield "N01", says, ""
    if case.asked and factor > 1 and case.asked < factor * spec.trained_len:
        need = max(1.0, case.asked / spec.trained_len)
        says = f"{case.asked} tokens need a factor of {need:.4g}, the file has {factor:g}"
        yield "N02", says, f'"factor": {need:.4g}'
    if left := case.unread("not modelled"):
        parts = (f"{', '.join(names)} ({problem})" for problem, names in left.items())
        yield "N03", f"left out: {'; '.join(parts)}", ""


def beside_the_frequencies(beside: Sequence[Aspect]) -> Iterator[Finding]:
    """State what differs between runtimes or was not looked at beside the frequencies."""
    for aspect in beside:
        if aspect.differs:
            yield Finding("W16", "warn", aspect.in_words())
        elif aspect.unread:
            yield Finding("N04", "note", aspect.in_words())


def collect(case: Case, beside: Sequence[Aspect]) -> tuple[Finding, ...]:
    """Return all findings, worst first; those of one level in the order of the rules."""
    found = [*errors(case), *beside_the_frequencies(beside)]
    for rule in (contradicting_keys, differences, lengths, files, notes):
        kind: Level = "note" if rule is notes else "warn"
        found += [Finding(code, kind, *words) for code, *words in rule(case)]
    return tuple(sorted(found, key=lambda finding: LEVELS.index(finding.level)))
