"""What to write into a file instead: each change is tried before it is advised."""

import math
import re
from collections.abc import Callable, Collection, Mapping

from ropelab.audit.audit_case import AuditCase, have_equal_rotation
from ropelab.audit.causes import is_plain
from ropelab.audit.changes import (
    change_block,
    change_file,
    claim_length,
    describe_lengths,
    find_wanted_spec,
    has_two_blocks,
    list_misled,
    name_block,
    name_misled,
    read_changed,
    replace_block,
    write_command,
)
from ropelab.audit.wanted import Fragment
from ropelab.readers.flags import OVERRIDES
from ropelab.readers.scaling_types import yarn_attention
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import MAXIMUM, ORIGINAL, find_language_part, list_blocks

# The advice for a value without a meaning.
VALUE_OF_CARD = "the value from the model's card"


def advise_value(case: AuditCase, reason: str, names: Collection[str]) -> str:
    """Return the advice for a value without a meaning. A key is left out only if all
    runtimes that read it have a default.

    Args:
        case: the configuration as the runtimes read it.
        reason: the sentence about the value, with the names of keys.
        names: the runtimes that compute no rotation from it.
    """
    words = set(re.findall(r"\w+", reason))
    keys = [key for key in case.block if key in words]
    kept = {key: value for key, value in case.block.items() if key not in keys}
    changed_config = change_file(case.document, replace_block(case, kept))
    for reading in case.readings:
        is_named = reading.runtime.name in names
        if is_named and read_changed(case, reading, changed_config) is None:
            return VALUE_OF_CARD
    if not keys:
        return VALUE_OF_CARD
    return f"{VALUE_OF_CARD}, or leave {' and '.join(keys)} out for the default"


def advise_base(case: AuditCase, base: float, names: Collection[str]) -> str:
    """Return the advice where to write a base so that runtimes take it.

    The advice names the runtimes that do, if others do not. It is empty if no place is
    read by any of them, or if another runtime would lose this base.

    Args:
        case: the configuration as the runtimes read it.
        base: the base to be written.
        names: the runtimes that are to take it.
    """
    best_place = ""
    best_mended: list[str] = []
    for place, change in list_places_of_base(case, base).items():
        changed_config = change_file(case.document, change)
        mended = []
        is_lost = False
        for reading in case.readings:
            spec = read_changed(case, reading, changed_config)
            takes_base = spec is not None and spec.base == base
            took_base = reading.main_spec is not None and reading.main_spec.base == base
            if takes_base and reading.runtime.name in names:
                mended.append(reading.runtime.name)
            is_lost = is_lost or (took_base and not takes_base)
        if not is_lost and len(mended) > len(best_mended):
            best_place = place
            best_mended = mended

    if not best_mended:
        return ""
    advice = f'write "rope_theta": {base!r} {best_place}'
    if len(best_mended) < len(names):
        advice += f" (for {', '.join(best_mended)})"
    return advice


def list_places_of_base(case: AuditCase, base: float) -> dict[str, Fragment]:
    """Return the changes of the language part that write a base, by the place in words.

    A GGUF file is not edited by hand, and has none.
    """
    if case.document.kind == "gguf":
        return {}
    prefix, language_part = find_language_part(case.document.config)
    part_name = prefix.removesuffix(".")
    beside_block = f"in {part_name}" if part_name else "at top level"
    changes: dict[str, Fragment] = {beside_block: {"rope_theta": base}}
    # The block of a params.json holds no base.
    if case.block and case.document.kind == "config":
        in_block = change_block(case, {"rope_theta": base})
        changes[f"in {prefix}{case.block_path}"] = in_block
    blocks = list_blocks(language_part)
    if not blocks and case.document.kind == "config":
        in_new_block = {"rope_parameters": {"rope_theta": base}}
        changes[f"in {prefix}rope_parameters"] = in_new_block
    for name in blocks:
        if name != case.block_name and case.document.kind == "config":
            in_other_block = {name: {**language_part[name], "rope_theta": base}}
            changes[f"in {prefix}{name}"] = in_other_block
    return changes


def advise_claim(case: AuditCase, limit: int, names: Collection[str]) -> str:
    """Return the advice to claim the length that a scaling reaches.

    Without a length of training in the block, runtimes scale from the length that the
    file claims, so that both have to be written.

    Args:
        case: the configuration as the runtimes read it.
        limit: the length in tokens that the scaling reaches.
        names: the runtimes that claim less.
    """
    if case.document.kind == "gguf":
        # llama.cpp takes more than the file states, and warns.
        return f"--ctx-size {limit}"
    original = ""
    condition = ""
    in_block: Fragment = {}
    is_by_flag = case.flags.name_scaling(case.reference.runtime.name)
    if case.block.get(ORIGINAL) is None and not is_by_flag:
        original, condition = describe_original(case)
        in_block = change_block(case, {ORIGINAL: case.spec.trained_len})

    # Some runtimes look at another key than those that state a length now: SGLang, of a
    # params.json, at max_seq_len.
    stated = claim_length(case, limit)
    claims = [stated, {**stated, MAXIMUM: limit}]
    if case.document.kind == "params":
        claims.append({**stated, "max_seq_len": limit})
    changes = [{**claim, **in_block} for claim in claims]
    raised = [count_raised(case, change, limit, names) for change in changes]
    # Of equals, it is the first.
    best = raised.index(max(raised))
    if not raised[best]:
        return ""

    parts = filter(None, (original, describe_lengths(case, claims[best])))
    advice = f"{' and '.join(parts)}{condition}"
    return choose_change(
        case,
        {advice: changes[best]},
        lambda spec: have_equal_rotation(spec, case.spec),
    )


def count_raised(
    case: AuditCase, change: Fragment, limit: int, names: Collection[str]
) -> int:
    """Return how many of some runtimes claim a length after a change of the file."""
    changed_config = change_file(case.document, change)
    raised = 0
    for reading in case.readings:
        spec = read_changed(case, reading, changed_config)
        if reading.runtime.name in names and spec is not None:
            raised += (spec.claimed_len or limit) >= limit
    return raised


def advise_original(case: AuditCase) -> str:
    """Return the advice to write the trained length into the block, if it has none."""
    is_by_flag = case.flags.name_scaling(case.reference.runtime.name)
    if case.block.get(ORIGINAL) is not None or is_by_flag:
        return ""
    factor = getattr(case.spec.scaling, "factor", 1.0)
    limit = factor * case.spec.trained_len
    reached = case.spec.length if math.isinf(limit) else round(limit)
    original, condition = describe_original(case)
    in_block = change_block(case, {ORIGINAL: case.spec.trained_len})
    # Some runtimes compute the factor from both lengths, and others take the claimed
    # length for the trained one.
    changes = {f"{original}{condition}": in_block}
    change = claim_length(case, reached)
    if change:
        both = {**change, **in_block}
        claim = describe_lengths(case, change)
        changes = {f"{original} and {claim}{condition}": both, **changes}
    return choose_change(
        case, changes, lambda spec: have_equal_rotation(spec, case.spec)
    )


def describe_original(case: AuditCase) -> tuple[str, str]:
    """Return the words that write the trained length into the block, and the words of
    the condition under which it is right.

    The condition is empty if the file says what the model was trained at.
    """
    trained = case.spec.trained_len
    _, language_part = find_language_part(case.document.config)
    condition = ""
    if language_part.get(ORIGINAL) != trained:
        condition = f", if the model was trained at {trained} tokens"
    return f'"{ORIGINAL}": {trained} inside {name_block(case)}', condition


def advise_factor(case: AuditCase, factor: float, name: str) -> str:
    """Return the advice to scale by a smaller factor.

    Some runtimes compute the factor from the lengths, and a factor on attention may be
    written for the larger one.

    Args:
        case: the configuration as the runtimes read it.
        factor: the factor that is enough.
        name: the runtime that scales by more.
    """
    flag = case.flags.name_scaling(name)
    if flag in OVERRIDES:
        return f'"factor": {factor!r} in {flag}'
    if flag == "--rope-freq-scale":
        return f"{flag} {1 / factor:.6g}"
    if flag or case.document.kind == "gguf":
        return f"--rope-scale {factor:.6g}"
    # Another runtime's scaling may come from another block than the reference's.
    if name != case.reference.runtime.name:
        return ""
    block_change: Fragment = {"factor": factor}
    advice = f'"factor": {factor!r}'
    old_factor = case.block.get("factor")
    attention = case.block.get("attention_factor")
    follows_factor = (
        isinstance(attention, float)
        and isinstance(old_factor, int | float)
        and math.isclose(attention, yarn_attention(old_factor), rel_tol=1e-3)
    )
    if follows_factor:
        # In full, since runtimes that pass over the key compute all its digits.
        block_change["attention_factor"] = yarn_attention(factor)
        advice += f' and "attention_factor": {block_change["attention_factor"]}'
    if has_two_blocks(case) or case.layer_in_block:
        advice += f" inside {case.block_path}"
    in_block = change_block(case, block_change)
    changes = {advice: in_block}
    trained = case.spec.trained_len
    change = claim_length(case, round(factor * trained))
    # Without a length of training in the block, runtimes take the claimed one for it.
    if change and case.block.get(ORIGINAL) is not None:
        claim = describe_lengths(case, change)
        changes = {f"{advice} and {claim}": {**change, **in_block}, **changes}

    def scales_as_wanted(spec: RopeSpec) -> bool:
        changed_factor = getattr(spec.scaling, "factor", 1.0)
        return spec.trained_len == trained and math.isclose(changed_factor, factor)

    return choose_change(case, changes, scales_as_wanted)


def advise_reach(case: AuditCase) -> str:
    """Return the advice that makes a model read the requested length, if it does not.

    `emit` takes a config.json alone. Flags of llama.cpp scale an unscaled GGUF file.
    """
    length = case.requested_length
    if case.document.kind == "config":
        return f"{write_command(case, str(length))}, for what reaches it"
    if case.document.kind != "gguf" or length is None or not is_plain(case.spec):
        return ""
    factor = length / case.spec.trained_len
    return f"--rope-scaling yarn --rope-scale {factor:.6g} --ctx-size {length}"


def choose_change(
    case: AuditCase,
    changes: Mapping[str, Fragment],
    is_wanted: Callable[[RopeSpec], bool],
) -> str:
    """Return the advice whose change puts the fewest runtimes apart from the reference,
    with their names; empty if no change does what is wanted.

    Args:
        case: the configuration as the runtimes read it.
        changes: changes of the language part, by the advice to make them. Of equals,
            the first is chosen.
        is_wanted: tells of what the reference reads in a changed file whether it is
            what the change is for.
    """
    best_advice = ""
    fewest_misled: list[str] | None = None
    for advice, change in changes.items():
        changed_config = change_file(case.document, change)
        changed_spec = read_changed(case, case.reference, changed_config)
        if changed_spec is None or not is_wanted(changed_spec):
            continue
        misled = list_misled(case, changed_config, case.spec, changed_spec)
        if fewest_misled is None or len(misled) < len(fewest_misled):
            best_advice = advice
            fewest_misled = misled
    return best_advice + name_misled(fewest_misled or [])


def advise_length(case: AuditCase, length: int) -> str:
    """Return the advice to write a length into the file, and the runtimes that would then
    no longer rotate as the file means. It is empty if the reference is one of them.
    """
    change = claim_length(case, length)
    changed_config = change_file(case.document, change)
    wanted_spec = find_wanted_spec(case, changed_config)
    misled = list_misled(case, changed_config, wanted_spec, wanted_spec)
    if case.reference.runtime.name in misled:
        return ""
    return f"{describe_lengths(case, change)}{name_misled(misled)}"
