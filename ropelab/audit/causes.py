"""The causes why runtimes compute something else than the reference.

A runtime may pass over the scaling, compute the factor from the lengths that the file
states, or scale from another trained length. For each cause, a function here lists the
runtimes that it affects.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ropelab.audit.audit_case import TOLERANCE, AuditCase, measure_distance
from ropelab.math.scaling import Unscaled, Yarn
from ropelab.readers.spec import RefusedError, RopeSpec, require_number, require_whole
from ropelab.readers.trace import (
    LISTS,
    MAXIMUM,
    ORIGINAL,
    find_language_part,
    find_rope_block,
    find_scaled_block,
)


def find_length_to_claim(case: AuditCase) -> int | None:
    """Return the length that the file should claim, if it claims another length.

    With YaRN a model reaches the factor times the original length, and the file should
    claim this length. None: the file claims it already, or has another scaling, or its
    factor or one of its lengths is missing, makes no sense or is not what is scaled from.
    """
    if case.scaling_type != "yarn":
        return None
    # What the file says about its scaling is for nobody if flags take its place.
    if all(case.flags.name_scaling(name) for name, _ in case.specs):
        return None
    # The names that are passed below are for messages, and none is shown here.
    try:
        maximum = require_whole(case.maximum, MAXIMUM)
        original = require_whole(case.block.get(ORIGINAL), ORIGINAL)
        reached = require_number(case.block.get("factor"), "factor") * original
    except RefusedError:
        return None

    # A factor below 1 is another mistake.
    if reached < original or math.isinf(reached):
        return None
    # A key outside of the block may state another original length, and come first.
    _, language_part = find_language_part(case.document.config)
    if case.spec.trained_len == language_part.get(ORIGINAL) != original:
        return None
    if math.isclose(reached, maximum, rel_tol=1e-6):
        return None
    return round(reached)


def declares_scaling(config: Mapping[str, Any]) -> bool:
    """Return True if the rope block of a file asks for a scaling.

    A scaling by a factor of 1 changes nothing, but for types with lists or an alpha.
    """
    _, language_part = find_language_part(config)
    _, block = find_rope_block(language_part)
    scaled_block = find_scaled_block(language_part)
    # A scaling beside the dicts of layer types is declared as well.
    return asks_for_scaling(scaled_block) or asks_for_scaling(block)


def asks_for_scaling(block: Mapping[str, Any]) -> bool:
    """Return True if the keys of a block ask for a scaling."""
    scaling_type = block.get("rope_type") or block.get("type")
    if not isinstance(scaling_type, str) or scaling_type in ("default", "mrope"):
        return False
    has_other_numbers = any(block.get(key) for key in (*LISTS, "alpha"))
    return block.get("factor") != 1 or has_other_numbers


def list_unscaled(case: AuditCase) -> list[str]:
    """Return the runtimes that pass over a scaling.

    Whoever replaces it by a flag of the server has asked for that.
    """
    if not declares_scaling(case.document.config):
        return []
    names = []
    for name, spec in case.specs:
        config_with_flags = case.flags.apply(name, case.document.config)
        if is_plain(spec) and declares_scaling(config_with_flags):
            names.append(name)
    if len(names) < len(case.specs):
        return names

    # If no runtime scales, the block may ask for a scaling by a factor of 1, which
    # changes nothing.
    factor = case.block.get("factor") or case.whole_block.get("factor")
    divisors = case.block.get("long_factor")
    if factor not in (None, 1):
        return names
    if isinstance(divisors, list) and any(divisor != 1 for divisor in divisors):
        return names
    return []


def list_unscaled_by_ratio(case: AuditCase) -> list[str]:
    """Return the runtimes that pass over YaRN since they compute its factor from the
    lengths of the file, whose ratio is 1.
    """
    if find_length_to_claim(case) is None or case.maximum != case.block[ORIGINAL]:
        return []
    specs = dict(case.specs)
    return [
        name for name in list_unscaled(case) if isinstance(specs[name].scaling, Yarn)
    ]


def is_plain(spec: RopeSpec) -> bool:
    """Return True if the scaling changes nothing, even far beyond the trained length."""
    # Dynamic scaling and longrope change nothing at short lengths.
    far = 4 * spec.trained_len
    unscaled = replace(spec, scaling=Unscaled())
    _, first_wrong_position = measure_distance(spec, unscaled, far)
    if first_wrong_position is not None:
        return False

    # `logit_multiplier` has the factors that the runtime applies. The factor on cos and sin
    # that the method defines is not looked at, since a runtime may leave it out.
    return math.isclose(spec.logit_multiplier, 1.0)


def find_explained(case: AuditCase) -> set[str]:
    """Return the runtimes whose difference has a cause that a separate finding
    reports.

    The causes are: another base, another width, no scaling, and a factor that is the ratio
    of the lengths.
    """
    reference = case.spec
    names = {*list_unscaled(case), *list_scaled_by_ratio(case)}
    for name, spec in case.specs:
        has_other_base = not math.isclose(spec.base, reference.base, rel_tol=1e-7)
        has_other_width = spec.rotary_dim != reference.rotary_dim
        if has_other_width or has_other_base:
            names.add(name)
    return names


def list_scaled_by_ratio(case: AuditCase) -> list[str]:
    """Return the runtimes that scale by the ratio of the lengths instead of the factor
    that the file states.
    """
    if find_length_to_claim(case) is None:
        return []
    ratio = case.maximum / case.block[ORIGINAL]
    names = []
    for name, spec in case.specs:
        if isinstance(spec.scaling, Yarn) and math.isclose(spec.scaling.factor, ratio):
            names.append(name)
    return names


def list_scaled_from_other_length(case: AuditCase) -> list[str]:
    """Return the runtimes that scale from another trained length than the reference, and
    whose angles differ for this reason.
    """
    if case.scaling_type not in ("yarn", "llama3", "longrope"):
        return []
    # The reference may pass over the scaling. Then it says nothing about the length.
    if len(case.group(lambda spec: spec.trained_len)) < 2:
        return []
    names = []
    for name, spec in case.specs:
        has_other_length = spec.trained_len != case.spec.trained_len
        _, _, first_wrong_position = case.compare(spec)
        if has_other_length and first_wrong_position is not None:
            names.append(name)
    return names


def leave_out(case: AuditCase, names: Collection[str]) -> AuditCase:
    """Return the case without some runtimes."""
    kept_readings = [each for each in case.readings if each.runtime.name not in names]
    return replace(case, readings=kept_readings)


def describe_phase(case: AuditCase, names: Collection[str]) -> str:
    """Return the end of a sentence about runtimes: the first position at which the phase
    of any of them is wrong.
    """
    positions = []
    for name, spec in case.specs:
        _, _, first_wrong_position = case.compare(spec)
        if name in names and first_wrong_position is not None:
            positions.append(first_wrong_position)
    if not positions:
        return ""
    return f"; a phase is off by {TOLERANCE} rad from position {min(positions)}"
