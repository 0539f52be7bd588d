"""The answer of an audit in two sentences: which runtimes agree, and on what.

Parts of the sentences are empty where there is nothing to say.
"""

from collections.abc import Sequence

from ropelab.audit.aspects import Aspect
from ropelab.audit.audit_case import AuditCase, have_equal_rotation
from ropelab.audit.lengths import SERVERS_WITH_LIMIT, list_exceeded
from ropelab.math.scaling import PositionInterpolation
from ropelab.readers.spec import shorten_value
from ropelab.runs.sentences import shorten_numbers, write_number


def write_answer(case: AuditCase, aspects: Sequence[Aspect]) -> str:
    """Say which runtimes agree, and then what the reference computes."""
    document = case.document
    spec = case.spec
    claimed_lengths = {each.claimed_len for _, each in case.specs if each.claimed_len}
    # A server that multiplies the length of the file claims more than the file does.
    lengths_in_file = {
        each.multiplied_len or each.claimed_len
        for _, each in case.specs
        if each.claimed_len
    }
    agreement = describe_meaningless(case)
    agreement += describe_agreement(
        case, aspects, several_lengths=len(claimed_lengths) > 1
    )

    model_type = shorten_value(document.config.get("model_type") or document.kind)
    layers = describe_layers(case)
    features = f"{spec.rotary_dim} of {spec.head_dim} features{layers}"
    method = shorten_numbers(spec.method)

    # A file with linear scaling states only the length after scaling.
    if spec.states_trained_len and not isinstance(spec.scaling, PositionInterpolation):
        trained = f"{spec.trained_len} tokens"
    else:
        trained = "a length that is not stated"
    claimed = ""
    if lengths_in_file:
        claims = " or ".join(map(str, sorted(lengths_in_file)))
        claimed = f"; the file claims {claims}"

    reference = case.reference.runtime.name
    return (
        f"{document.name}: {agreement}{describe_refusals(case)}. As {reference} reads"
        f" it: {model_type}, {features}, base {write_number(spec.base)}, {method}, trained"
        f" at {trained}{claimed}."
    )


def describe_meaningless(case: AuditCase) -> str:
    """Say which runtimes read values without a meaning. The rest of the answer is about
    all other runtimes.
    """
    problems = case.group_problems("meaningless")
    if not problems:
        return ""

    count = sum(len(names) for names in problems.values())
    return (
        f"{'; '.join(problems)}; no rotation follows from this for {count} of"
        f" {len(case.readings)} runtimes, correct it; of the others: "
    )


def describe_agreement(
    case: AuditCase, aspects: Sequence[Aspect], several_lengths: bool
) -> str:
    """Say how many runtimes compute the same, and which runtimes compute something
    else.

    ``several_lengths``: True if runtimes claim different lengths.
    """
    reference = case.reference.runtime.name
    # The names of runtimes that compute something else.
    differing = set()
    for name, spec in case.specs:
        if not have_equal_rotation(spec, case.spec):
            differing.add(name)
    for aspect in aspects:
        words_of_reference = aspect.words_by_runtime.get(reference)
        for name, words in aspect.words_by_runtime.items():
            if words_of_reference and words != words_of_reference:
                differing.add(name)

    count = len(case.specs)
    unread_aspects = [aspect.name for aspect in aspects if aspect.unread_runtimes]
    if differing:
        # In the order of the runtimes, which a set does not keep.
        ordered_names = ", ".join(name for name, _ in case.specs if name in differing)
        agreement = (
            f"{count - len(differing)} of {count} runtimes compute what {reference}"
            f" computes; these do not: {ordered_names}"
        )
    elif count > 1:
        agreement = f"all {count} runtimes that read it agree"
        if unread_aspects or several_lengths:
            agreement += " on the frequencies"
        if several_lengths:
            agreement += ", not on the length"
    else:
        agreement = "one runtime reads it"

    if unread_aspects:
        agreement += f"; not looked at in all: {', '.join(unread_aspects)}"
    if case.document.encoding:
        agreement = f"refused as {case.document.encoding}; saved as UTF-8, {agreement}"
    return agreement


def describe_refusals(case: AuditCase) -> str:
    """Say which runtimes refuse the file, and which refuse the requested length."""
    words = ""
    refusing = [r.runtime.name for r in case.readings if r.outcome == "refused"]
    if refusing:
        words += f"; refused by {', '.join(refusing)}"

    exceeded = list_exceeded(case)
    stopping = [name for _, name in exceeded if name in SERVERS_WITH_LIMIT]
    if stopping:
        words += (
            f"; {case.requested_length} tokens are refused by {', '.join(stopping)}"
        )
    elif exceeded:
        words += f"; {case.requested_length} tokens are more than it has"
    return words


def describe_layers(case: AuditCase) -> str:
    """Say how many layers rotate in the reference; empty if all layers do.

    If the rotating layers have a window, its number of tokens is named, too.
    """
    rotating = case.reference.rotating
    if rotating is None or all(rotating):
        return ""

    words = f" in {sum(rotating)} of {len(rotating)} layers"
    window = case.reference.window
    return f"{words}, which see {window} tokens" if window else words
