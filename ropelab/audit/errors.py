"""Rules of an audit: refusals, and runtimes that rotate by something else."""

import math
from collections.abc import Iterator, Sequence

from ropelab.audit.audit_case import AuditCase
from ropelab.audit.causes import (
    find_length_to_claim,
    list_unscaled,
    list_unscaled_by_ratio,
)
from ropelab.audit.finding import AuditFinding, blame_runtimes, make_finding
from ropelab.audit.fixes import (
    VALUE_OF_CARD,
    advise_base,
    advise_length,
    advise_value,
)
from ropelab.audit.forms import advise_form
from ropelab.readers.axes import explain_vision
from ropelab.readers.registry import TRAINERS
from ropelab.readers.scaling_types import SAME_TYPES
from ropelab.readers.trace import (
    ABSENT,
    MAXIMUM,
    ORIGINAL,
    find_language_part,
    find_value,
)
from ropelab.runs.sentences import write_number


def find_errors(case: AuditCase) -> Iterator[AuditFinding]:
    """Find contradictions, refusals, and runtimes that rotate by something else."""
    older_type = case.block.get("type")
    newer_type = case.block.get("rope_type")
    have_both = older_type and newer_type
    mean_the_same = older_type == newer_type or (older_type, newer_type) in SAME_TYPES
    if have_both and not mean_the_same:
        yield make_finding("E01", level="error", old=older_type, new=newer_type)

    encoding = case.document.encoding
    if encoding:
        yield make_finding("E09", level="error", encoding=encoding)
    for reason, names in case.group_problems("refused").items():
        yield blame_runtimes(case, "E02", names, reason=reason)

    for reason, names in case.group_problems("meaningless").items():
        if reason.startswith("base must be"):
            yield make_finding("E03", "none", "error", names=names, reason=reason)
        else:
            fix = advise_value(case, reason, names)
            yield make_finding(
                "E11", level="error", names=names, reason=reason, fix=fix
            )
    reason = explain_vision(case.document.config)
    if reason:
        encoder = ["the encoder of images"]
        yield make_finding(
            "E11", level="error", names=encoder, reason=reason, fix=VALUE_OF_CARD
        )

    yield from find_other_bases(case)
    yield from find_scaling_not_applied(case)

    reference = case.reference.runtime.name
    right_width = case.spec.rotary_dim
    for width, names in case.group(lambda spec: spec.rotary_dim).items():
        if width != right_width:
            about = {"width": width, "reference": reference, "right": right_width}
            yield blame_runtimes(case, "W06", names, **about)


def find_other_bases(case: AuditCase) -> Iterator[AuditFinding]:
    """Find runtimes that take another base."""
    right_base = case.spec.base
    for base, names in case.group(lambda spec: spec.base).items():
        if math.isclose(base, right_base, rel_tol=1e-7):
            # A GGUF file holds the base in float32.
            continue

        source = ""
        for _, spec in case.specs:
            if spec.base == base and not source:
                source = spec.base_source
        about = {
            "base": write_number(base),
            "right": write_number(right_base),
            "source": source,
            "fix": advise_one_base(case, base, source, names),
        }
        yield blame_runtimes(case, "E03", names, **about)


def advise_one_base(
    case: AuditCase, base: float, source: str, names: Sequence[str]
) -> str:
    """Return the advice that gives all runtimes one base: that of the reference, or the
    base that the file states where the reference takes a default.

    Args:
        case: the configuration as the runtimes read it.
        base: the base that some runtimes take, other than that of the reference.
        source: where these runtimes take it from: a key of the file, or a flag.
        names: the names of these runtimes.
    """
    if source.startswith("--"):
        return f"leave {source} off"

    reference = case.reference.runtime.name
    right_base = case.spec.base
    _, language_part = find_language_part(case.document.config)
    is_stated = find_value(language_part, source) is not ABSENT
    # A GGUF file is made with GPT-NeoX's key as well, under another name.
    is_stated = is_stated or base == language_part.get("rotary_emb_base")
    is_wanted = is_stated and case.spec.has_default_base
    if is_wanted and reference not in TRAINERS:
        return advise_base(case, base, [reference])

    fix = advise_base(case, right_base, names)
    if is_wanted:
        trained = f"give {reference} the base {base!r} if the model was trained with it"
        return f"{trained}, else {fix}" if fix else trained
    if not fix and "llama.cpp" in names:
        who = " (for llama.cpp)" if len(names) > 1 else ""
        return f"--rope-freq-base {right_base!r}{who}"
    return fix


def find_scaling_not_applied(case: AuditCase) -> Iterator[AuditFinding]:
    """Find runtimes that pass over a scaling.

    There are two causes: a runtime computes the factor from the lengths of the file,
    which gives 1, or it does not apply such a scaling at all.
    """
    length = find_length_to_claim(case)
    by_ratio = list_unscaled_by_ratio(case)
    unscaled = [name for name in list_unscaled(case) if name not in by_ratio]
    if by_ratio and length is not None:
        why = f": their factor is {MAXIMUM} / {ORIGINAL} = 1"
        fix = advise_length(case, length)
        yield blame_runtimes(
            case, "E08", by_ratio, kind=case.scaling_type, why=why, fix=fix
        )
    if unscaled:
        fix = advise_form(case, unscaled)
        yield blame_runtimes(
            case, "E08", unscaled, kind=case.scaling_type, why="", fix=fix
        )
