"""Why runtimes compute something else than the reference, and which do for each cause.

A runtime may pass over the scaling, take its factor from the lengths of the file, or
scale from another trained length.
"""

import math
from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace

from ropelab.audit.audit_case import TOLERANCE, AuditCase, measure_distance
from ropelab.math.scaling import Unscaled, Yarn
from ropelab.readers import registry
from ropelab.readers.spec import RefusedError, RopeSpec, number, whole
from ropelab.readers.trace import MAXIMUM, ORIGINAL, language_part


def find_length_to_claim(case: AuditCase) -> int | None:
    """Return the length to claim where YaRN's factor is not the ratio of the lengths.

    None: it is the ratio, or there is no such factor.
    """
    if case.kind != "yarn":
        return None
    try:
        maximum = whole(case.maximum, "")
        original = whole(case.block.get(ORIGINAL), "")
        reached = number(case.block.get("factor"), "") * original
    except RefusedError:
        return None

    # A factor below 1 is another mistake.
    if reached < original or math.isinf(reached):
        return None
    if math.isclose(reached, maximum, rel_tol=1e-6):
        return None
    return round(reached)


def advise_length(case: AuditCase, length: int) -> str:
    """Return the advice to write a length into the file, and the runtimes that would then
    compute something else than before.
    """
    advice = f'"{MAXIMUM}": {length}'
    misled = list_misled(case, length)
    if misled:
        advice += f" (with which {', '.join(misled)} would be wrong)"
    return advice


def list_misled(case: AuditCase, length: int) -> list[str]:
    """Return the runtimes that rotate as the reference does, and would no longer do so if
    the file claimed this length.
    """
    prefix, _ = language_part(case.document.config)
    config = deepcopy(dict(case.document.config))
    # The part of the file that has the keys of the language model.
    part = config
    for name in prefix.split(".")[:-1]:
        part = part[name]
    part[MAXIMUM] = length

    misled = []
    for reading in case.readings:
        if reading.main is None:
            continue
        _, first_off = measure_distance(reading.main, case.spec, case.length)
        if first_off is not None:
            continue

        name = reading.runtime.name
        changed = case.flags.applied(name, config)
        spec = registry.read(reading.runtime, changed, case.flags.settings).main
        if spec is None:
            misled.append(name)
            continue
        _, first_off = measure_distance(spec, case.spec, case.length)
        if first_off is not None:
            misled.append(name)
    return misled


def list_unscaled(case: AuditCase) -> list[str]:
    """Return the runtimes that pass over a scaling."""
    if not isinstance(case.kind, str) or case.kind in ("default", "mrope"):
        return []
    names = [name for name, spec in case.specs if is_plain(spec)]
    if len(names) < len(case.specs):
        return names

    # If no runtime scales, the block may ask for no scaling.
    factor = case.block.get("factor")
    divisors = case.block.get("long_factor")
    if factor not in (None, 1):
        return names
    if isinstance(divisors, list) and any(divisor != 1 for divisor in divisors):
        return names
    return []


def is_plain(spec: RopeSpec) -> bool:
    """Return True if the scaling changes nothing, even far beyond the trained length."""
    # Dynamic scaling and longrope change nothing at short lengths.
    far = 4 * spec.trained_len
    unscaled = replace(spec, scaling=Unscaled())
    _, first_off = measure_distance(spec, unscaled, far)
    if first_off is not None:
        return False
    return math.isclose(spec.plan(far).attention_factor * spec.attention_factor, 1.0)


def list_explained(case: AuditCase) -> set[str]:
    """Return the runtimes whose difference has a cause that is reported by itself.

    These are another base or width, no scaling, and a factor from the lengths.
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
    if find_length_to_claim(case) is None:
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
        starts_elsewhere = spec.trained_len != case.spec.trained_len
        _, _, first_off = case.compare(spec)
        if starts_elsewhere and first_off is not None:
            names.append(name)
    return names


def leave_out(case: AuditCase, names: Collection[str]) -> AuditCase:
    """Return the case without some runtimes."""
    others = [each for each in case.readings if each.runtime.name not in names]
    return replace(case, readings=others)


def describe_phase(case: AuditCase, names: Collection[str]) -> str:
    """Return the end of a sentence, on the first position at which a phase is off."""
    positions = []
    for name, spec in case.specs:
        _, _, first_off = case.compare(spec)
        if name in names and first_off is not None:
            positions.append(first_off)
    if not positions:
        return ""
    return f"; a phase is off by {TOLERANCE} rad from position {min(positions)}"
