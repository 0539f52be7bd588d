"""The rules of an audit: problems of a configuration, and differences between the
runtimes.
"""

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ropelab.audit.beside import Aspect
from ropelab.audit.overview import TOLERANCE, AuditCase, measure_distance
from ropelab.math.scaling import (
    DynamicNtk,
    Llama3,
    LongRope,
    Unscaled,
    Yarn,
)
from ropelab.readers.document import ROTATING
from ropelab.readers.families import TRAINED, family_of, meaning, meant, near
from ropelab.readers.reader import SAME_TYPES
from ropelab.readers.registry import explain_untyped
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
from ropelab.runs.rows import group_pairs
from ropelab.runs.sentences import printable, shorten_numbers, write_number

Level = Literal["error", "warn", "note"]
LEVELS: tuple[Level, ...] = ("error", "warn", "note")
# In config.json and in a GGUF file.
SIZES = (("num_hidden_layers", "block_count"), ("hidden_size", "embedding_length"))
CODES = table_beside(__file__, "codes")
# Repeated keys that a finding names.
MOST_NAMED = 5
VERB = re.compile(r"\[(\w*)\|(\w*)\]")
_BESIDE = table_beside(__file__, "beside")
STOPS_BEYOND = _BESIDE["stops_beyond"]
TRAINED_SCALED = frozenset(_BESIDE["trained_scaled"].split())


@dataclass(frozen=True)
class AuditFinding:
    """One finding: a stable code, its level, a sentence, and what to type instead."""

    code: str
    level: Level
    says: str
    do: str = ""


def make_finding(
    code: str, which: str = "", level: Level = "warn", **values: Any
) -> AuditFinding:
    """Return a finding with the values in its sentence; ``which`` of the code's
    sentences.
    """
    row = CODES[code]
    if which:
        row = row[which]
    if code.startswith("N"):
        level = "note"

    names = values.get("names", ())
    values["names"] = ", ".join(names)
    sentence = agree_verbs(row.get("says", ""), several=len(names) > 1)
    advice = row.get("do", "")
    says = printable(sentence.format(**values))
    return AuditFinding(code, level, says, printable(advice.format(**values)))


def agree_verbs(sentence: str, several: bool) -> str:
    """Take the form of each verb in brackets that fits one name or several.

    >>> agree_verbs("{names} multipl[ies|y] scores", several=True)
    '{names} multiply scores'
    """
    return VERB.sub(r"\2" if several else r"\1", sentence)


def blame_runtimes(
    case: AuditCase, code: str, names: Collection[str], which: str = "", **values: Any
) -> AuditFinding:
    """Return an error of some runtimes: a warning if none of their readers was
    compared.
    """
    level: Level = "warn"
    for reading in case.readings:
        compared = reading.model_type in reading.runtime.compared
        if reading.runtime.name in names and compared:
            level = "error"

    # Finding no class is a rule for all model types.
    if values.get("reason") == explain_untyped(case.document.config):
        level = "error"
    return make_finding(code, which, level, names=names, **values)


# Runtimes by the cause of what they compute.


def fix_ratio(case: AuditCase) -> str:
    """Return the length to write where the block's factor is not the ratio of the
    lengths, or nothing.
    """
    if case.kind != "yarn":
        return ""
    try:
        maximum = whole(case.maximum, "")
        original = whole(case.block.get(ORIGINAL), "")
        reached = number(case.block.get("factor"), "") * original
    except RefusedError:
        return ""

    # A factor below 1 is a mistake of its own.
    if reached < original or math.isinf(reached):
        return ""
    if math.isclose(reached, maximum, rel_tol=1e-6):
        return ""
    return f'"{MAXIMUM}": {round(reached)}'


def list_unscaled(case: AuditCase) -> list[str]:
    """Return the runtimes that pass over a scaling."""
    if not isinstance(case.kind, str) or case.kind in ("default", "mrope"):
        return []
    names = [name for name, spec in case.specs if is_plain(spec)]
    if len(names) < len(case.specs):
        return names

    # Where nobody scales, the block may ask for nothing.
    factor = case.block.get("factor")
    divisors = case.block.get("long_factor")
    if factor not in (None, 1):
        return names
    if isinstance(divisors, list) and any(divisor != 1 for divisor in divisors):
        return names
    return []


def is_plain(spec: RopeSpec) -> bool:
    """Return True if the spec changes nothing, even far beyond the trained length."""
    far = 4 * spec.trained_len  # dynamic and longrope change nothing at short lengths
    unscaled = replace(spec, scaling=Unscaled())
    if measure_distance(spec, unscaled, far)[1] is not None:
        return False
    return math.isclose(spec.plan(far).attention_factor * spec.attention_factor, 1.0)


def list_explained(case: AuditCase) -> set[str]:
    """Return the runtimes whose difference has a cause of its own: base, width, no
    scaling, a factor from the lengths.
    """
    right = case.spec
    names = {*list_unscaled(case), *list_scaled_by_ratio(case)}
    for name, spec in case.specs:
        other_base = not math.isclose(spec.base, right.base, rel_tol=1e-7)
        if spec.rotary_dim != right.rotary_dim or other_base:
            names.add(name)
    return names


def list_scaled_by_ratio(case: AuditCase) -> list[str]:
    """Return the runtimes whose factor is the ratio of the lengths, not the file's."""
    if not fix_ratio(case):
        return []
    ratio = case.maximum / case.block[ORIGINAL]
    names = []
    for name, spec in case.specs:
        if isinstance(spec.scaling, Yarn) and math.isclose(spec.scaling.factor, ratio):
            names.append(name)
    return names


def list_started_elsewhere(case: AuditCase) -> list[str]:
    """Return the runtimes that scale from another trained length, and differ by it."""
    if case.kind not in ("yarn", "llama3", "longrope"):
        return []
    names = []
    for name, spec in case.specs:
        elsewhere = spec.trained_len != case.spec.trained_len
        if elsewhere and case.compare(spec)[2] is not None:
            names.append(name)
    return names


def leave_out(case: AuditCase, names: Collection[str]) -> AuditCase:
    """Return the case without some runtimes."""
    left = [each for each in case.readings if each.runtime.name not in names]
    return replace(case, readings=left)


def describe_phase(case: AuditCase, names: Collection[str]) -> str:
    """Say from which position on the phases of these runtimes are off, if they are."""
    positions = []
    for name, spec in case.specs:
        position = case.compare(spec)[2]
        if name in names and position is not None:
            positions.append(position)
    if not positions:
        return ""
    return f"; a phase is off by {TOLERANCE} rad from position {min(positions)}"


# Rules: contradictions, refusals, and runtimes that rotate by something else.


def find_errors(case: AuditCase) -> Iterator[AuditFinding]:
    """Find contradictions, refusals, and runtimes that rotate by something else."""
    old = case.block.get("type")
    new = case.block.get("rope_type")
    if old and new and old != new and (old, new) not in SAME_TYPES:
        yield make_finding("E01", level="error", old=old, new=new)

    encoding = case.document.encoding
    if encoding:
        yield make_finding("E09", level="error", encoding=encoding)
    for reason, names in case.group_problems("refused").items():
        yield blame_runtimes(case, "E02", names, reason=reason)

    for reason, names in case.group_problems("meaningless").items():
        if reason.startswith("base must be"):
            yield make_finding("E03", "none", "error", names=names, reason=reason)
        else:
            yield make_finding("E11", level="error", names=names, reason=reason)
    yield from find_other_bases(case)
    yield from find_scaling_not_applied(case)

    reference = case.reference.runtime.name
    right = case.spec.rotary_dim
    for width, names in case.group(lambda spec: spec.rotary_dim).items():
        if width != right:
            about = {"width": width, "reference": reference, "right": right}
            yield blame_runtimes(case, "W06", names, **about)


def find_other_bases(case: AuditCase) -> Iterator[AuditFinding]:
    """Find runtimes that take another base."""
    config = case.document.config
    right = case.spec.base
    for base, names in case.group(lambda spec: spec.base).items():
        if math.isclose(base, right, rel_tol=1e-7):
            continue  # float32 holds it in a GGUF file

        source = ""
        for _, spec in case.specs:
            if spec.base == base and not source:
                source = spec.base_source
        wanted = base if base == config.get("rotary_emb_base") else right
        if source.startswith("--"):
            fix = f"leave {source} off"
        elif config.get("rope_theta") != wanted:
            fix = f'write "rope_theta": {wanted!r} at top level'
        elif "llama.cpp" in names:  # the key is passed over
            fix = f"--rope-freq-base {wanted!r}"
        else:
            fix = ""
        about = {
            "base": write_number(base),
            "right": write_number(right),
            "source": source,
        }
        yield blame_runtimes(case, "E03", names, fix=fix, **about)


def find_scaling_not_applied(case: AuditCase) -> Iterator[AuditFinding]:
    """Find runtimes that pass over a scaling: by a factor of 1 from the lengths, or
    in any case, which are two causes.
    """
    fix = fix_ratio(case)
    by_ratio, others = [], []
    specs = dict(case.specs)
    for name in list_unscaled(case):
        if fix and isinstance(specs[name].scaling, Yarn):
            by_ratio.append(name)
        else:
            others.append(name)

    if by_ratio:
        ratio = case.maximum / case.block[ORIGINAL]
        why = f": their factor is {MAXIMUM} / {ORIGINAL} = {ratio:g}"
        yield blame_runtimes(case, "E08", by_ratio, kind=case.kind, why=why, fix=fix)
    if others:
        instead = "ropelab emit --target, for the form that it reads"
        yield blame_runtimes(case, "E08", others, kind=case.kind, why="", fix=instead)


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

    in_block = family_of(case.reference.model_type).rope
    for use in case.reference.keys:
        *parents, key = use.path.split(".")
        if parents and key in in_block:
            continue  # the class itself puts it into the block
        close = near(use.path)
        # A name that holds a known one is a key of its own: rope_interleave_factor.
        is_own = close in use.path and not meant(key)
        if not meaning(use.path) and close and not is_own:
            yield make_finding("W01", "unknown", path=show_key(use.path), close=close)
        elif use.path.endswith(".attn_factor"):
            yield make_finding("W01", "one", path=use.path)

    # Some runtimes take the factor from the file, others the ratio of the lengths.
    fix = fix_ratio(case)
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


# Rules: other numbers in the same scaling.


def find_differences(case: AuditCase) -> Iterator[AuditFinding]:
    """Find runtimes that scale by other numbers than the reference."""
    right = case.spec
    # One finding for a cause: what follows from it is not listed again.
    case = leave_out(case, list_explained(case))
    # Every runtime has another default for a missing original length.
    elsewhere = list_started_elsewhere(case)
    if elsewhere:
        parts = []
        for length, names in case.group(lambda spec: spec.trained_len).items():
            parts.append(f"{', '.join(names)} {length}")
        fix = "" if ORIGINAL in case.block else f"{ORIGINAL} inside the block"
        off = describe_phase(case, elsewhere)
        yield make_finding("W03", by="; ".join(parts), off=off, fix=fix)
        case = leave_out(case, elsewhere)

    yield from find_other_numbers(case)
    if isinstance(right.scaling, DynamicNtk):
        yield make_finding("W07", trained=right.trained_len)

    if isinstance(right.scaling, LongRope):
        # 64 tokens are below every original length, where the short table is right.
        other_tables = []
        for name, spec in case.specs:
            if measure_distance(spec, right, 64)[1] is not None:
                other_tables.append(name)
        if other_tables:
            yield make_finding("W08", names=other_tables)


def find_other_numbers(case: AuditCase) -> Iterator[AuditFinding]:
    """Find other factors on the logits, and other frequencies."""
    reference = case.reference.runtime.name
    wanted = case.spec.logit_multiplier
    # Rounded, because runtimes form the same factor in several orders.
    multipliers = case.group(lambda spec: float(f"{spec.logit_multiplier:.9g}"))
    for value, names in multipliers.items():
        if not math.isclose(value, wanted, rel_tol=1e-8):
            about = {"value": value, "reference": reference, "wanted": wanted}
            yield make_finding("W04", names=names, **about)

    for (method, ratio, position), names in case.group(case.compare).items():
        if position is None:
            continue
        several = len(names) > 1
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


# Rules: lengths.


def find_length_differences(case: AuditCase) -> Iterator[AuditFinding]:
    """Find lengths that differ between runtimes, or that the scaling does not reach or
    exceeds.
    """
    # Those that multiply have a finding of their own.
    parts = []
    for length, names in case.group(lambda spec: spec.claimed_len).items():
        specs = dict(case.specs)
        plain = [name for name in names if not specs[name].multiplied]
        if length and plain:
            parts.append(f"{length} in {', '.join(plain)}")
    if len(parts) > 1:
        yield make_finding("W15", by="; ".join(parts))

    scaling = case.spec.scaling
    if not isinstance(scaling, Yarn) or scaling.factor <= 1 or fix_ratio(case):
        return
    limit = scaling.factor * case.spec.trained_len
    low = {}
    for name, spec in case.specs:
        if spec.claimed_len and spec.claimed_len < limit:
            low[name] = spec.claimed_len
    if low:
        claims = " or ".join(str(length) for length in sorted({*low.values()}))
        yield make_finding("W10", limit=limit, names=[*low], claims=claims)


def find_limit(case: AuditCase, name: str, spec: RopeSpec) -> int | None:
    """Return the tokens up to which a runtime has rotations that the model was made
    for, None without a limit.
    """
    scaling = spec.scaling
    if isinstance(scaling, DynamicNtk):
        return None

    # Where all rotating layers have a window, no position is far from another.
    if name not in STOPS_BEYOND and case.reference.window:
        return None

    if isinstance(scaling, LongRope) and isinstance(case.maximum, int):
        # vLLM allows less by itself, and as much as the file has if it is asked.
        return max(spec.length, case.maximum)
    if name not in STOPS_BEYOND and isinstance(scaling, Yarn | Llama3):
        reach = scaling.factor * spec.trained_len
        return None if math.isinf(reach) else max(spec.length, round(reach))
    return spec.length


def list_exceeded(case: AuditCase) -> list[tuple[int, str]]:
    """Return the runtimes that are asked for more tokens than the model has in them,
    each behind its limit.
    """
    if case.asked is None:
        return []

    exceeded = []
    for name, spec in case.specs:
        limit = find_limit(case, name, spec)
        asking = case.asking in ("", name)
        if asking and limit is not None and case.asked > limit:
            exceeded.append((limit, name))
    return exceeded


def find_lengths_beyond(case: AuditCase) -> Iterator[AuditFinding]:
    """Find lengths that a server refuses, and those that no position was made for."""
    for limit, names in group_pairs(list_exceeded(case)).items():
        others = []
        for name in names:
            if name in STOPS_BEYOND:
                variable = STOPS_BEYOND[name]
                about = {"asked": case.asked, "limit": limit, "variable": variable}
                yield blame_runtimes(case, "E10", [name], **about)
            else:
                others.append(name)
        if others:
            yield make_finding("W18", names=others, asked=case.asked, limit=limit)


# Rules: the file itself.


def check_file(case: AuditCase) -> Iterator[AuditFinding]:
    """Find entries of a file that do nothing, entries that it lacks, and a tokenizer's
    limit.
    """
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
        if architecture not in ROTATING:
            yield make_finding("W12", "architecture", name=short(architecture))

    limit = case.document.tokenizer_length
    claimed = case.spec.claimed_len
    if limit and claimed and limit < claimed:
        yield make_finding("W14", limit=limit, claimed=claimed)


def find_unread_values(
    case: AuditCase, outside: Collection[str]
) -> Iterator[AuditFinding]:
    """Find values of the base and the width that no runtime takes."""
    taken = {"rope_theta": case.spec.base, "rotary_dim": case.spec.rotary_dim}
    uses = []
    for reading in case.readings:
        if reading.layers:
            uses += [(use.path, use.status) for use in reading.keys]

    for path, statuses in group_pairs(uses).items():
        own = taken.get(path.split(".")[-1])
        value = value_in(case.document.config, path)
        unread = all(status == "ignored" for status in statuses)
        if own and unread and value not in (None, own) and path not in outside:
            about: dict[str, Any] = {"value": short(value), "own": write_number(own)}
            yield make_finding("W11", "unread", path=path, **about)


def is_trained_scaled(model_type: str) -> bool:
    """Return True for models whose training went on with YaRN switched on."""
    family = family_of(model_type)
    by_class = family.rope.get("rope_type", family.rope.get("type")) == "yarn"
    return by_class or family.latent or model_type in TRAINED_SCALED


def make_notes(case: AuditCase) -> Iterator[AuditFinding]:
    """State the effect of a static factor on short prompts, and the runtimes left
    out.
    """
    spec = case.spec
    model_type = case.reference.model_type
    # Of a model that was trained with it, the factor is no news, and stays.
    static = isinstance(spec.scaling, Yarn) and spec.scaling.factor > 1
    if static and not is_trained_scaled(model_type):
        yield from note_static_factor(case)

    trained = TRAINED.get((model_type, spec.length))
    if trained is not None and isinstance(spec.scaling, Unscaled):
        about = {"trained": trained, "allowed": spec.length}
        yield make_finding("N07", kind=model_type, **about)
    if case.document.kind == "config" and not model_type:
        yield make_finding("N06")

    parts = []
    for problem, names in case.group_problems("not modelled").items():
        parts.append(f"{', '.join(names)} ({problem})")
    if parts:
        yield make_finding("N03", runtimes="; ".join(parts))


def note_static_factor(case: AuditCase) -> Iterator[AuditFinding]:
    """State what YaRN does to short prompts, and the factor that is enough."""
    spec = case.spec
    factor = getattr(spec.scaling, "factor", 1.0)
    # Rounded as it is printed: 1 is no factor at all.
    rounded = f"{spec.logit_multiplier:.4g}"
    times = "" if rounded == "1" else f"every logit times {rounded}, "
    yield make_finding("N01", factor=factor, trained=spec.trained_len, times=times)

    if case.asked and case.asked < factor * spec.trained_len:
        need = max(1.0, case.asked / spec.trained_len)
        yield make_finding("N02", asked=case.asked, need=need, factor=factor)


def collect_findings(
    case: AuditCase, beside: Sequence[Aspect]
) -> tuple[AuditFinding, ...]:
    """Return all findings, worst first; those of one level in the order of the
    rules.
    """
    findings = [*find_errors(case), *find_lengths_beyond(case)]
    for aspect in beside:
        if aspect.differs:
            findings.append(make_finding("W16", aspect=aspect.in_words()))
    for aspect in beside:
        if aspect.unread and not aspect.differs:
            findings.append(make_finding("N04", aspect=aspect.in_words()))

    findings += find_contradictions(case)
    findings += find_differences(case)
    findings += find_length_differences(case)
    findings += check_file(case)
    findings += make_notes(case)
    return tuple(sorted(findings, key=lambda finding: LEVELS.index(finding.level)))


# A second file as a draft model.


def read_sizes(case: AuditCase) -> list[float]:
    """Return the number of layers and their width, as far as the file gives them."""
    _, text = language_part(case.document.config)
    sizes = []
    for names in SIZES:
        given = [text[name] for name in names if name in text]
        if given and isinstance(given[0], int | float):
            sizes.append(given[0])
    return sizes


def compare_draft(target: AuditCase, draft: AuditCase) -> Iterator[AuditFinding]:
    """State what a second file means as the draft model of the first, for speculative
    decoding.
    """
    sizes = read_sizes(target)
    draft_sizes = read_sizes(draft)
    if len(sizes) < len(SIZES) or len(draft_sizes) < len(SIZES) or sizes == draft_sizes:
        return
    if any(own < other for own, other in zip(sizes, draft_sizes, strict=True)):
        return

    spec = target.spec
    longest = max(target.asked or 0, spec.length)
    reached = draft.spec.length
    if reached < longest:
        about: dict[str, Any] = {"theirs": reached, "longest": longest}
        yield make_finding("W17", name=draft.document.name, **about)

    values = {
        "base": (write_number(spec.base), write_number(draft.spec.base)),
        "scaling": (spec.method, draft.spec.method),
        "factor on logits": (
            write_number(spec.logit_multiplier),
            write_number(draft.spec.logit_multiplier),
        ),
    }
    parts = []
    for name, (own, other) in values.items():
        if own != other:
            parts.append(f"{name} {other}, not {own}")
    if parts:
        yield make_finding("N05", apart="; ".join(parts))
