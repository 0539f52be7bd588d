"""Rules of an audit about lengths: lengths that differ between runtimes, and lengths
that reach too far.

A runtime claims a length: the most tokens that it allows for the file. Its trained
length is the length before scaling.
"""

import math
from collections.abc import Iterator

from ropelab.audit.audit_case import AuditCase
from ropelab.audit.causes import find_length_to_claim
from ropelab.audit.finding import AuditFinding, blame_runtimes, make_finding
from ropelab.audit.fixes import advise_claim, advise_reach
from ropelab.math.scaling import (
    DynamicNtk,
    Llama3,
    LongRope,
    PositionInterpolation,
    Yarn,
)
from ropelab.readers import registry
from ropelab.readers.spec import (
    FrequencyFactors,
    RefusedError,
    RopeSpec,
    require_number,
    require_whole,
)
from ropelab.readers.trace import ORIGINAL
from ropelab.runs.files import read_table_beside
from ropelab.runs.rows import group_pairs

# The servers that refuse a context longer than their limit, each with the environment
# variable that allows it.
SERVERS_WITH_LIMIT: dict[str, str] = read_table_beside(__file__, "aspects")[
    "stops_beyond"
]


def find_length_differences(case: AuditCase) -> Iterator[AuditFinding]:
    """Find lengths that differ between runtimes, or stay below what YaRN reaches."""
    yield from find_different_lengths(case)
    yield from find_low_claims(case)


def find_different_lengths(case: AuditCase) -> Iterator[AuditFinding]:
    """Find a claimed length that is not the same in all runtimes."""
    # Runtimes that multiply the length have a separate finding (E07), and whoever gives
    # a server a length has chosen it.
    parts = []
    for length, names in case.group(lambda spec: spec.claimed_len).items():
        specs = dict(case.specs)
        names_as_stated = [
            name
            for name in names
            if not specs[name].multiplied_len and name not in case.flags.lengths
        ]
        if length and names_as_stated:
            parts.append(f"{length} in {', '.join(names_as_stated)}")
    if len(parts) > 1:
        yield make_finding("W15", by="; ".join(parts))


def find_low_claims(case: AuditCase) -> Iterator[AuditFinding]:
    """Find runtimes that claim fewer tokens than the file's YaRN reaches."""
    scaling = case.spec.scaling
    if not isinstance(scaling, Yarn) or scaling.factor <= 1:
        return
    # Where the length that the file should state is known, other findings name it.
    if find_length_to_claim(case) is not None:
        return

    limit = scaling.factor * case.spec.trained_len
    if math.isinf(limit):
        return
    # A factor is often written with few digits.
    limit = round(limit)
    if case.document.kind == "gguf" and limit <= (case.requested_length or 0):
        # --ctx-size takes the place of what the file claims.
        return
    lower_claims = {}
    for name, spec in case.specs:
        is_chosen = name in case.flags.lengths
        if spec.claimed_len and spec.claimed_len < limit and not is_chosen:
            lower_claims[name] = spec.claimed_len
    if not lower_claims:
        return

    lengths = sorted(set(lower_claims.values()))
    claims = " or ".join(str(length) for length in lengths)
    fix = advise_claim(case, limit, lower_claims)
    yield make_finding(
        "W10", limit=limit, names=list(lower_claims), claims=claims, fix=fix
    )


def find_limit(case: AuditCase, name: str, spec: RopeSpec) -> int | None:
    """Return how many tokens a runtime's rotation of a model was made for.

    None: the rotation has no limit.

    Args:
        case: the configuration as the runtimes read it.
        name: the name of the runtime.
        spec: the rotation that the runtime computes.
    """
    scaling = spec.scaling
    if isinstance(scaling, DynamicNtk):
        return None

    # If all rotating layers have a window, no query sees a key that is far away.
    if name not in SERVERS_WITH_LIMIT and case.reference.window:
        return None

    if isinstance(scaling, FrequencyFactors) and case.scaling_type == "llama3":
        return max(spec.length, compute_reach_of_llama3(case))
    if isinstance(scaling, LongRope) and isinstance(case.maximum, int):
        # vLLM allows fewer tokens by default, and as many as the file states if a flag
        # asks for them.
        return max(spec.length, case.maximum)
    if name not in SERVERS_WITH_LIMIT and isinstance(scaling, Yarn | Llama3):
        most_tokens = scaling.factor * spec.trained_len
        if math.isinf(most_tokens):
            return None
        return max(spec.length, round(most_tokens))

    if case.flags.name_scaling(name) and isinstance(scaling, PositionInterpolation):
        return stretch_length(case, name, spec, scaling.factor)
    return spec.length


def compute_reach_of_llama3(case: AuditCase) -> int:
    """Return the length that the file's llama3 reaches, 0 if it states none.

    llama.cpp gets llama3 as a table of divisors, which says nothing about lengths.
    """
    # The names that are passed below are for messages, and none is shown here.
    try:
        original = require_whole(case.block.get(ORIGINAL), ORIGINAL)
        reach = require_number(case.block.get("factor"), "factor") * original
    except RefusedError:
        return 0
    return 0 if math.isinf(reach) else round(reach)


def stretch_length(case: AuditCase, name: str, spec: RopeSpec, factor: float) -> int:
    """Return the length that a linear scaling by flags reaches, in tokens.

    The file states the length that its own scaling reaches, if it has any.
    """
    config = case.document.config
    own_spec = registry.read(registry.EVERY_RUNTIME[name], config).main_spec
    own_factor = getattr(own_spec and own_spec.scaling, "factor", 1.0)
    return max(spec.length, round(spec.length * factor / own_factor))


def list_exceeded(case: AuditCase) -> list[tuple[int, str]]:
    """Return the limit and the name of each runtime that has a lower limit than the user
    requests of it.
    """
    if case.requested_length is None:
        return []

    exceeded = []
    for name, spec in case.specs:
        limit = find_limit(case, name, spec)
        is_requested = case.requested_runtime in ("", name)
        if is_requested and limit is not None and case.requested_length > limit:
            exceeded.append((limit, name))
    return exceeded


def find_lengths_beyond(case: AuditCase) -> Iterator[AuditFinding]:
    """Find lengths that a server refuses, or that the model was not made for."""
    fix = advise_reach(case)
    for limit, names in group_pairs(list_exceeded(case)).items():
        # The runtimes that go on with more tokens than the model was made for.
        continuing = []
        for name in names:
            if name in SERVERS_WITH_LIMIT:
                variable = SERVERS_WITH_LIMIT[name]
                about = {
                    "asked": case.requested_length,
                    "limit": limit,
                    "variable": variable,
                    "fix": f"{fix}, or " if fix else "",
                }
                yield blame_runtimes(case, "E10", [name], **about)
            else:
                continuing.append(name)
        if continuing:
            about = {"asked": case.requested_length, "limit": limit, "fix": fix}
            yield make_finding("W18", names=continuing, **about)
