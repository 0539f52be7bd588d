"""The rules of an audit: problems of a configuration, and differences between the
runtimes.
"""

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ropelab.audit.beside import Aspect
from ropelab.audit.layers import find_window
from ropelab.audit.overview import TOLERANCE, Case, distance
from ropelab.math.scaling import (
    DynamicNtk,
    Llama3,
    LongRope,
    Unscaled,
    Yarn,
)
from ropelab.readers.families import TRAINED, family_of, meaning, near
from ropelab.readers.reader import SAME_TYPES
from ropelab.readers.registry import untyped
from ropelab.readers.servers import VLLM_LENGTHS
from ropelab.readers.spec import RefusedError, RopeSpec, number, short, whole
from ropelab.readers.trace import (
    MAXIMUM,
    ORIGINAL,
    OUTSIDE,
    language_part,
    value_in,
)
from ropelab.runs.files import table_beside
from ropelab.runs.rows import grouped
from ropelab.runs.sentences import printable, shorten_numbers, typed

Level = Literal["error", "warn", "note"]
LEVELS: tuple[Level, ...] = ("error", "warn", "note")
# In config.json and in a GGUF file.
SIZES = (("num_hidden_layers", "block_count"), ("hidden_size", "embedding_length"))
CODES = table_beside(__file__, "codes")
VERB = re.compile(r"\[(\w*)\|(\w*)\]")
_BESIDE = table_beside(__file__, "beside")
STOPS_BEYOND = _BESIDE["stops_beyond"]
TRAINED_SCALED = frozenset(_BESIDE["trained_scaled"].split())


@dataclass(frozen=True)
class Finding:
    """One finding: a stable code, its level, a sentence, and what to type instead."""

    code: str
    level: Level
    says: str
    do: str = ""


def found(code: str, which: str = "", level: Level = "warn", **values: Any) -> Finding:
    """Return a finding with the values in its sentence; ``which`` of the code's
    sentences.
    """
    row = CODES[code][which] if which else CODES[code]
    level = "note" if code.startswith("N") else level
    several = ", " in str(values.get("names", ""))
    says = agree_verbs(row.get("says", ""), several).format(**values)
    do = row.get("do", "").format(**values)
    return Finding(code, level, printable(says), printable(do))


def agree_verbs(sentence: str, several: bool) -> str:
    """Take the form of each verb in brackets that fits one name or several.

    >>> agree_verbs("{names} multipl[ies|y] scores", several=True)
    '{names} multiply scores'
    """
    return VERB.sub(r"\2" if several else r"\1", sentence)


def of_ratio(case: Case) -> str:
    """Return the length to write where the block's factor is not the ratio of the
    lengths.
    """
    if case.kind != "yarn":
        return ""
    try:
        maximum, original = (
            whole(n, "") for n in (case.maximum, case.block.get(ORIGINAL))
        )
        reached = number(case.block.get("factor"), "") * original
    except RefusedError:
        return ""
    # A factor below 1 is a mistake of its own.
    fits = (
        reached < original
        or math.isinf(reached)
        or math.isclose(reached, maximum, rel_tol=1e-6)
    )
    return "" if fits else f'"{MAXIMUM}": {round(reached)}'


def unscaled(case: Case) -> list[str]:
    """Return the runtimes that pass over a scaling."""
    if not isinstance(case.kind, str) or case.kind in ("default", "mrope"):
        return []
    without = [name for name, spec in case.read if _plain(spec)]
    factor, table = (case.block.get(name) for name in ("factor", "long_factor"))
    scales = factor not in (None, 1) or (
        isinstance(table, list) and table != [1] * len(table)
    )
    return without if scales or len(without) < len(case.read) else []


def explained(case: Case) -> set[str]:
    """Return the runtimes whose difference has a cause of its own: base, width, no
    scaling.
    """
    right = case.spec
    other = {n for n, s in case.read if s.rotary_dim != right.rotary_dim} | {
        *unscaled(case)
    }
    return other | {
        n for n, s in case.read if not math.isclose(s.base, right.base, rel_tol=1e-7)
    }


def blamed(case: Case, code: str, names: Collection[str], **values: Any) -> Finding:
    """Return an error of some runtimes: a warning if none of their readers was
    compared.
    """
    named = (r for r in case.readings if r.runtime.name in names)
    sure = any(r.model_type in r.runtime.compared for r in named)
    # Finding no class is a rule for all model types.
    sure = sure or values.get("reason") == untyped(case.document.config)
    level: Level = "error" if sure else "warn"
    return found(code, level=level, names=", ".join(names), **values)


def errors(case: Case) -> Iterator[Finding]:
    """Find contradictions, refusals, and runtimes that rotate by something else."""
    reference, right = case.reference.runtime.name, case.spec
    old, new = case.block.get("type"), case.block.get("rope_type")
    if old and new and old != new and (old, new) not in SAME_TYPES:
        yield found("E01", level="error", old=old, new=new)

    config = case.document.config
    if case.document.encoding:
        yield found("E09", level="error", encoding=case.document.encoding)
    for reason, stopped in case.unread("refused").items():
        yield blamed(case, "E02", stopped, reason=reason)

    for reason, left in case.unread("not modelled").items():
        if reason.startswith("base must be"):
            yield found(
                "E03", "none", level="error", names=", ".join(left), reason=reason
            )
    for base, names in case.grouped(lambda spec: spec.base).items():
        # float32 holds it in a GGUF file
        if not math.isclose(base, right.base, rel_tol=1e-7):
            source = next(
                spec.base_source for _, spec in case.read if spec.base == base
            )
            wanted = base if base == config.get("rotary_emb_base") else right.base
            fix = f'write "rope_theta": {wanted!r} at top level'
            if config.get("rope_theta") == wanted:  # passed over
                fix = f"--rope-freq-base {wanted!r}" if "llama.cpp" in names else ""
            fix = f"leave {source} off" if source.startswith("--") else fix
            about: dict[str, Any] = {"base": typed(base), "right": typed(right.base)}
            yield blamed(
                case, "E03", names.split(", "), source=source, fix=fix, **about
            )

    # By a factor of 1 from the lengths, or not at all: two causes.
    without, fix = unscaled(case), of_ratio(case)
    by_ratio = [
        n for n, s in case.read if n in without and fix and isinstance(s.scaling, Yarn)
    ]
    if by_ratio:
        why = (
            f": their factor is {MAXIMUM} / {ORIGINAL} ="
            f" {case.maximum / case.block[ORIGINAL]:g}"
        )
        yield blamed(case, "E08", by_ratio, kind=case.kind, why=why, fix=fix)
    if rest := [name for name in without if name not in by_ratio]:
        instead = "ropelab emit --target, for the form that it reads"
        yield blamed(case, "E08", rest, kind=case.kind, why="", fix=instead)

    for width, names in case.grouped(lambda spec: spec.rotary_dim).items():
        if width != right.rotary_dim:
            about = {"width": width, "reference": reference, "right": right.rotary_dim}
            yield blamed(case, "W06", names.split(", "), **about)


def _plain(spec: RopeSpec) -> bool:
    """Return True if the spec changes nothing, even far beyond the trained length."""
    far = 4 * spec.trained_len  # dynamic and longrope change nothing at short lengths
    same = distance(spec, replace(spec, scaling=Unscaled()), far)[1] is None
    return same and math.isclose(
        spec.plan(far).attention_factor * spec.attention_factor, 1.0
    )


def contradicting_keys(case: Case) -> Iterator[Finding]:
    """Find keys that contradict each other, or that few or no runtimes read."""
    text = language_part(case.document.config)[1]
    multiplied = []
    for name, spec in case.read:
        claimed, length = spec.claimed_len or 0, spec.multiplied
        if length and claimed > length and claimed not in map(text.get, VLLM_LENGTHS):
            multiplied.append(((claimed, length), name))
    for (claimed, length), servers in grouped(multiplied).items():
        yield found("E07", names=", ".join(servers), claimed=claimed, length=length)

    usual = family_of(case.reference.model_type).rope
    for path in (use.path for use in case.reference.keys):
        close = near(path)
        if path.split(".")[-1] in usual and "." in path:
            continue  # the class itself puts it into the block
        # A name that holds a known one is a key of its own: indexer_rope_interleave.
        if not meaning(path) and close and close not in path:
            yield found("W01", "unknown", path=path, close=close)
        elif path.endswith(".attn_factor"):
            yield found("W01", "one", path=path)

    # Some runtimes take the factor from the file, others the ratio of the lengths.
    if (fix := of_ratio(case)) and not unscaled(case):
        original = case.block[ORIGINAL]
        names = scaled_by_ratio(case)
        yield found(
            "W02",
            factor=case.block["factor"],
            maximum=case.maximum,
            original=original,
            ratio=case.maximum / original,
            who=", ".join(names) or "none of these runtimes",
            off=describe_phase(case, names),
            fix=fix,
        )


def scaled_by_ratio(case: Case) -> list[str]:
    """Return the runtimes whose factor is the ratio of the lengths, not the file's."""
    if not of_ratio(case):
        return []
    ratio = case.maximum / case.block[ORIGINAL]
    names = []
    for name, spec in case.read:
        if isinstance(spec.scaling, Yarn) and math.isclose(spec.scaling.factor, ratio):
            names.append(name)
    return names


def started_elsewhere(case: Case) -> list[str]:
    """Return the runtimes that scale from another trained length, and differ by it."""
    if case.kind not in ("yarn", "llama3", "longrope"):
        return []
    names = []
    for name, spec in case.read:
        other = spec.trained_len != case.spec.trained_len
        if other and case.apart(spec)[2] is not None:
            names.append(name)
    return names


def describe_phase(case: Case, names: Collection[str]) -> str:
    """Say from which position on the phases of these runtimes are off, if they are."""
    firsts = [case.apart(spec)[2] for name, spec in case.read if name in names]
    known = [first for first in firsts if first is not None]
    if not known:
        return ""
    return f"; a phase is off by {TOLERANCE} rad from position {min(known)}"


def without_runtimes(case: Case, names: Collection[str]) -> Case:
    left = [each for each in case.readings if each.runtime.name not in names]
    return replace(case, readings=left)


def differences(case: Case) -> Iterator[Finding]:
    """Find runtimes that scale by other numbers than the reference."""
    right = case.spec
    # One finding for a cause: what follows from it is not listed again.
    case = without_runtimes(case, {*explained(case), *scaled_by_ratio(case)})
    # Every runtime has another default for a missing original length.
    elsewhere = started_elsewhere(case)
    if elsewhere:
        groups = case.grouped(lambda spec: spec.trained_len)
        fix = "" if ORIGINAL in case.block else f"{ORIGINAL} inside the block"
        by = "; ".join(f"{names} {length}" for length, names in groups.items())
        off = describe_phase(case, elsewhere)
        yield found("W03", by=by, off=off, fix=fix)
        case = without_runtimes(case, elsewhere)

    wanted, reference = right.logit_multiplier, case.reference.runtime.name
    # Rounded, because runtimes form the same factor in several orders.
    for value, names in case.grouped(
        lambda s: float(f"{s.logit_multiplier:.9g}")
    ).items():
        if not math.isclose(value, wanted, rel_tol=1e-8):
            yield found(
                "W04", names=names, value=value, reference=reference, wanted=wanted
            )

    for (about, largest, first), names in case.grouped(case.apart).items():
        if first is not None:
            several = ", " in names
            apart = "are off" if several else "is off"
            if largest:
                verb = "have" if several else "has"
                apart = f"{verb} frequencies up to {largest:.4g} times off"
            place: dict[str, Any] = {
                "length": case.length,
                "tolerance": TOLERANCE,
                "first": first,
            }
            words = shorten_numbers(about)
            yield found("W05", names=names, about=words, apart=apart, **place)

    if isinstance(right.scaling, DynamicNtk):
        yield found("W07", trained=right.trained_len)

    # 64 tokens are below every original length, so that the short table is the right
    # one.
    names = case.named(lambda s: distance(s, right, 64)[1] is not None)
    if names and isinstance(right.scaling, LongRope):
        yield found("W08", names=names)


def lengths(case: Case) -> Iterator[Finding]:
    """Find lengths that differ between runtimes, or that the scaling does not reach or
    exceeds.
    """
    # Those that multiply have a finding of their own.
    groups = grouped(
        (spec.claimed_len, "" if spec.multiplied else n) for n, spec in case.read
    )
    plain = {
        length: ", ".join(filter(None, names))
        for length, names in groups.items()
        if length
    }
    parts = [f"{length} in {names}" for length, names in plain.items() if names]
    if len(parts) > 1:
        yield found("W15", by="; ".join(parts))

    factor = getattr(case.spec.scaling, "factor", 1.0)
    limit = factor * case.spec.trained_len
    low = {
        n: s.claimed_len
        for n, s in case.read
        if s.claimed_len and s.claimed_len < limit
    }
    if (
        factor > 1
        and isinstance(case.spec.scaling, Yarn)
        and low
        and not of_ratio(case)
    ):
        claims = " or ".join(str(length) for length in sorted(set(low.values())))
        yield found("W10", limit=limit, names=", ".join(low), claims=claims)


def find_limit(case: Case, name: str, spec: RopeSpec) -> int | None:
    """Return the tokens up to which a runtime has rotations that the model was made
    for, None without a limit.
    """
    scaling = spec.scaling
    if isinstance(scaling, DynamicNtk):
        return None
    # Where all rotating layers have a window, no position is far from another.
    text = language_part(case.document.config)[1]
    if name not in STOPS_BEYOND and find_window(case.reference.model_type, text):
        return None
    if isinstance(scaling, LongRope) and isinstance(case.maximum, int):
        # vLLM allows less by itself, and as much as the file has if it is asked.
        return max(spec.length, case.maximum)
    if name not in STOPS_BEYOND and isinstance(scaling, Yarn | Llama3):
        reach = scaling.factor * spec.trained_len
        return None if math.isinf(reach) else max(spec.length, round(reach))
    return spec.length


def list_exceeded(case: Case) -> list[tuple[int, str]]:
    """Return the runtimes that are asked for more tokens than the model has in them,
    each behind its limit.
    """
    exceeded = []
    for name, spec in case.read:
        limit = find_limit(case, name, spec)
        if (
            case.asked is not None
            and limit is not None
            and case.asked > limit
            and case.asking in ("", name)
        ):
            exceeded.append((limit, name))
    return exceeded


def lengths_beyond(case: Case) -> Iterator[Finding]:
    """Find lengths that a server refuses, and those that no position was made for."""
    for limit, names in grouped(list_exceeded(case)).items():
        others = []
        for name in names:
            if name in STOPS_BEYOND:
                variable = STOPS_BEYOND[name]
                about = {"asked": case.asked, "limit": limit, "variable": variable}
                yield blamed(case, "E10", [name], **about)
            else:
                others.append(name)
        if others:
            words = ", ".join(others)
            yield found("W18", names=words, asked=case.asked, limit=limit)


def files(case: Case) -> Iterator[Finding]:
    """Find entries of a file that do nothing, entries that it lacks, and a tokenizer's
    limit.
    """
    if stray := [use.path for use in case.reference.keys if use.note == OUTSIDE]:
        yield found("W11", "outside", paths=", ".join(stray))
    takes = {"rope_theta": case.spec.base, "rotary_dim": case.spec.rotary_dim}
    uses = ((use.path, use.status) for r in case.readings if r.layers for use in r.keys)
    for path, statuses in grouped(uses).items():
        own, value = (
            takes.get(path.split(".")[-1]),
            value_in(case.document.config, path),
        )
        if (
            own
            and {*statuses} == {"ignored"}
            and value not in (None, own)
            and path not in stray
        ):
            yield found("W11", "unread", path=path, value=short(value), own=typed(own))

    if case.document.kind == "gguf":
        fields = case.document.config
        kinds = {"base": "rope.freq_base" not in fields}
        kinds["untyped"] = (
            "rope.scaling.factor" in fields and "rope.scaling.type" not in fields
        )
        kinds["dead"] = "rope.scaling.yarn_attn_factor" in fields
        yield from (found("W12", kind) for kind, there in kinds.items() if there)

    limit, claimed = case.document.tokenizer_length, case.spec.claimed_len
    if limit and claimed and limit < claimed:
        yield found("W14", limit=limit, claimed=claimed)


def is_trained_scaled(model_type: str) -> bool:
    """Return True for models whose training went on with YaRN switched on."""
    family = family_of(model_type)
    by_class = family.rope.get("rope_type", family.rope.get("type")) == "yarn"
    return by_class or family.latent or model_type in TRAINED_SCALED


def notes(case: Case) -> Iterator[Finding]:
    """State the effect of a static factor on short prompts, and the runtimes left
    out.
    """
    spec, factor = case.spec, getattr(case.spec.scaling, "factor", 1.0)
    # Of a model that was trained with it, the factor is no news, and stays.
    if (
        isinstance(spec.scaling, Yarn)
        and factor > 1
        and not is_trained_scaled(case.reference.model_type)
    ):
        # Rounded as it is printed: 1 is no factor at all.
        rounded = f"{spec.logit_multiplier:.4g}"
        times = "" if rounded == "1" else f"every logit times {rounded}, "
        yield found("N01", factor=factor, trained=spec.trained_len, times=times)
        if case.asked and case.asked < factor * spec.trained_len:
            need = max(1.0, case.asked / spec.trained_len)
            yield found("N02", asked=case.asked, need=need, factor=factor)
    kind = (case.reference.model_type, spec.length)
    if kind in TRAINED and isinstance(spec.scaling, Unscaled):
        yield found("N07", kind=kind[0], trained=TRAINED[kind], allowed=kind[1])
    if case.document.kind == "config" and not case.reference.model_type:
        yield found("N06")
    if left := case.unread("not modelled"):
        parts = (f"{', '.join(names)} ({problem})" for problem, names in left.items())
        yield found("N03", runtimes="; ".join(parts))


def collect(case: Case, beside: Sequence[Aspect]) -> tuple[Finding, ...]:
    """Return all findings, worst first; those of one level in the order of the
    rules.
    """
    every = [*errors(case), *lengths_beyond(case)]
    every += [found("W16", aspect=one.in_words()) for one in beside if one.differs]
    every += [
        found("N04", aspect=a.in_words()) for a in beside if a.unread and not a.differs
    ]
    for rule in (contradicting_keys, differences, lengths, files, notes):
        every += rule(case)
    return tuple(sorted(every, key=lambda finding: LEVELS.index(finding.level)))


def sizes(case: Case) -> list[float]:
    """Return the number of layers and their width, as far as the file gives them."""
    _, text = language_part(case.document.config)
    found = (
        next((text[name] for name in names if name in text), None) for names in SIZES
    )
    return [value for value in found if isinstance(value, int | float)]


def of_draft(target: Case, draft: Case) -> Iterator[Finding]:
    """State what a second file means as the draft model of the first, for speculative
    decoding.
    """
    mine, its = sizes(target), sizes(draft)
    larger = any(one < other for one, other in zip(mine, its, strict=False))
    if min(len(mine), len(its)) < len(SIZES) or mine == its or larger:
        return
    ours, theirs = target.spec, draft.spec
    longest = max(target.asked or 0, ours.length)
    if theirs.length < longest:
        yield found(
            "W17", name=draft.document.name, theirs=theirs.length, longest=longest
        )
    differences = {
        "base": (typed(ours.base), typed(theirs.base)),
        "scaling": (ours.method, theirs.method),
        "factor on logits": (
            typed(ours.logit_multiplier),
            typed(theirs.logit_multiplier),
        ),
    }
    apart = [
        f"{n} {its}, not {own}" for n, (own, its) in differences.items() if own != its
    ]
    if apart:
        yield found("N05", apart="; ".join(apart))
