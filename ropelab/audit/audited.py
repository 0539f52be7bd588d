"""An audit: one configuration as all runtimes read it, with tables, findings and a
report.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ropelab.audit import overview
from ropelab.audit.beside import Aspect, list_aspects
from ropelab.audit.finding import LEVELS, AuditFinding
from ropelab.audit.findings import collect_findings
from ropelab.audit.lengths import STOPS_BEYOND, list_exceeded
from ropelab.audit.overview import AuditCase, agrees
from ropelab.audit.sources import read_source
from ropelab.audit.words import count_pairs
from ropelab.math.scaling import PositionInterpolation
from ropelab.readers import registry
from ropelab.readers.document import Document
from ropelab.readers.families import table
from ropelab.readers.flags import Flags, parse_flags
from ropelab.readers.registry import Reading
from ropelab.readers.spec import short
from ropelab.runs.errors import InputError, cut_text
from ropelab.runs.rows import Result, Rows, group_pairs
from ropelab.runs.sentences import join_names, shorten_numbers, write_number
from ropelab.runs.spelling import split_list

# Columns of the table of runtimes by which two files are compared.
EFFECTS = ("base", "rotary_dim", "method", "attention_factor", "claimed_tokens")
COLUMNS = table("names")["columns"]  # of the runtimes, by their titles


@dataclass(frozen=True)
class FileAudit(AuditCase, Result):
    """A case with its tables, its findings, worst first, and the answer in a
    sentence.
    """

    rows: Mapping[str, Rows]
    findings: tuple[AuditFinding, ...]
    answer: str

    def worst(self) -> Literal["error", "warn", "note", ""]:
        levels = {finding.level for finding in self.findings}
        for level in LEVELS:
            if level in levels:
                return level
        return ""


# Tokens of the longest context that is looked at.
LONGEST_CONTEXT = 2**40


def read_context(value: Any) -> int:
    """Return the context of a server's flag; InputError for no whole number of tokens.

    0 stands for the length of the model.
    """
    if not isinstance(value, int) or not (value == 0 or 2 <= value <= LONGEST_CONTEXT):
        raise InputError(
            f"--ctx-size must be 0 or a whole number of tokens from 2 to 2^40, got"
            f" {cut_text(str(value))}"
        )
    return value


def audit(
    source: str | Document,
    *,
    runtime: str | Sequence[str] = (),
    length: int | None = None,
    dtype: str = "",
    flags: str | Flags = "",
    precision: bool = True,
) -> FileAudit:
    """Return what a model's configuration means to each runtime.

    Args:
        source: a config.json, params.json, GGUF file, model folder, or `-` for standard input.
        runtime: runtimes by name or prefix, all if empty.
        length: the length to look at in tokens, the claimed one if None.
        dtype: the model's number format, the file's own if empty.
        flags: flags of the server.
        precision: search the worst errors of number formats, which takes most of the time.
    """
    settings = parse_flags(flags) if isinstance(flags, str) else flags
    document = read_source(source) if isinstance(source, str) else source
    names = split_list(runtime) if isinstance(runtime, str) else runtime
    model_format = overview.find_format(document.config, dtype)
    readings = read_by_runtimes(document, names, settings)
    reference = choose_reference(document, readings)

    asked = length or settings.settings.get("length")
    asking = ""
    if asked is None and "ctx_size" in settings.settings:
        asked = read_context(settings.settings["ctx_size"])
        asking = "llama.cpp"
    compared = asked or reference.layers[reference.label].length
    case = AuditCase(document, readings, reference, compared, asked, asking)

    beside = list_aspects(case)
    findings = collect_findings(case, beside)
    rows: dict[str, Rows] = {
        "runtimes": overview.list_runtimes(case),
        "keys": overview.list_keys(case),
        "pairs": overview.list_pairs(case),
        "context": overview.list_contexts(case),
        "precision": overview.search_errors(case, model_format) if precision else [],
        "findings": [asdict(finding) for finding in findings],
    }
    axes = overview.list_axes(case)
    if axes:
        rows["axes"] = axes
    return FileAudit(
        document,
        readings,
        reference,
        compared,
        asked,
        asking,
        rows=rows,
        findings=findings,
        answer=write_answer(case, beside),
    )


def read_by_runtimes(
    document: Document, names: Sequence[str], settings: Flags
) -> tuple[Reading, ...]:
    """Return a document as each of some runtimes reads it behind its flags."""
    unfound = ""
    if document.kind == "config":
        unfound = registry.explain_untyped(document.config)

    readings = []
    for runtime in registry.choose_runtimes(names, document.kind):
        config = settings.applied(runtime.name, document.config)
        readings.append(registry.read(runtime, config, settings.settings, unfound))
    return tuple(readings)


def choose_reference(document: Document, readings: Sequence[Reading]) -> Reading:
    """Return transformers 5's reading if it reads the file, else the first runtime's
    that does; InputError if none does.
    """
    able = [reading for reading in readings if reading.main is not None]
    for reading in able:
        if reading.runtime.name == registry.REFERENCE:
            return reading
    if able:
        return able[0]

    stopped = [each for each in readings if each.runtime.name == registry.REFERENCE]
    reason = (stopped or [*readings])[0].stopped
    raise InputError(f"{document.name}: {reason or 'no runtime reads it'}")


def write_answer(case: AuditCase, beside: Sequence[Aspect]) -> str:
    """Say which runtimes agree, and in brackets on what."""
    document = case.document
    spec = case.spec
    lengths = sorted({own.claimed_len for _, own in case.specs if own.claimed_len})
    agreement = describe_meaningless(case)
    agreement += describe_agreement(case, beside, several_lengths=len(lengths) > 1)
    kind = short(document.config.get("model_type") or document.kind)
    layers = describe_layers(case)
    features = f"{spec.rotary_dim} of {spec.head_dim} features{layers}"
    method = shorten_numbers(spec.method)
    # A file with linear scaling states the length after scaling.
    if spec.stated and not isinstance(spec.scaling, PositionInterpolation):
        start = f"{spec.trained_len} tokens"
    else:
        start = "a length that the file does not state"
    claimed = ""
    if lengths:
        claimed = f", claims {' or '.join(str(length) for length in lengths)}"
    return (
        f"{document.name}: {agreement}{describe_refusals(case)} ({kind}: {features},"
        f" base {write_number(spec.base)}, {method} from {start}{claimed})."
    )


def describe_meaningless(case: AuditCase) -> str:
    """Say which values have no meaning, before what is said of the other runtimes."""
    problems = case.group_problems("meaningless")
    if not problems:
        return ""

    count = sum(len(names) for names in problems.values())
    return (
        f"{'; '.join(problems)}; no rotation follows from this for {count} of"
        f" {len(case.readings)} runtimes, correct it; of the others: "
    )


def describe_agreement(
    case: AuditCase, beside: Sequence[Aspect], several_lengths: bool
) -> str:
    """Say how many runtimes compute the same, and which do not."""
    reference = case.reference.runtime.name
    others = set()
    for name, spec in case.specs:
        if not agrees(spec, case.spec):
            others.add(name)
    for aspect in beside:
        right = aspect.does.get(reference)
        for name, words in aspect.does.items():
            if right and words != right:
                others.add(name)

    count = len(case.specs)
    unread = [aspect.name for aspect in beside if aspect.unread]
    if others:
        apart = ", ".join(name for name, _ in case.specs if name in others)
        agreement = (
            f"{count - len(others)} of {count} runtimes compute what {reference}"
            f" computes, not {apart}"
        )
    elif count > 1:
        agreement = f"all {count} runtimes that read it agree"
        if unread or several_lengths:
            agreement += " on the frequencies"
        if several_lengths:
            agreement += ", not on the length"
    else:
        agreement = "one runtime reads it"

    if unread:
        agreement += f"; not looked at in all: {', '.join(unread)}"
    if case.document.encoding:
        agreement = f"refused as {case.document.encoding}; saved as UTF-8, {agreement}"
    return agreement


def describe_refusals(case: AuditCase) -> str:
    """Say which runtimes refuse the file, and which the length."""
    words = ""
    refused = [r.runtime.name for r in case.readings if r.outcome == "refused"]
    if refused:
        words += f"; refused by {', '.join(refused)}"

    exceeded = list_exceeded(case)
    stopping = [name for _, name in exceeded if name in STOPS_BEYOND]
    if stopping:
        words += f"; {case.asked} tokens are refused by {', '.join(stopping)}"
    elif exceeded:
        words += f"; {case.asked} tokens are more than it has"
    return words


def describe_layers(case: AuditCase) -> str:
    """Say in how many layers the reference rotates, and what these see, if not all."""
    rotating = case.reference.rotating
    if rotating is None or all(rotating):
        return ""

    words = f" in {sum(rotating)} of {len(rotating)} layers"
    window = case.reference.window
    return f"{words}, which see {window} tokens" if window else words


def compare(one: FileAudit, other: FileAudit) -> Rows:
    """Return the differences of two files: keys, and what runtimes make of them; those
    that several runtimes share are one row.
    """
    rows: list[dict[str, Any]] = []
    first_keys = {row["key"]: row["value"] for row in one.rows["keys"]}
    second_keys = {row["key"]: row["value"] for row in other.rows["keys"]}
    for key, first, second in list_changes(first_keys, second_keys):
        row = {"what": key, "first": first, "second": second, "runtimes": ""}
        rows.append(row)

    first_effects = list_effects(one)
    second_effects = list_effects(other)
    changes = []
    for runtime in dict.fromkeys((*first_effects, *second_effects)):
        before = first_effects.get(runtime, {})
        after = second_effects.get(runtime, {})
        for change in list_changes(before, after):
            changes.append((change, runtime))

    in_both = len(first_effects.keys() & second_effects.keys())
    for (what, first, second), names in group_pairs(changes).items():
        everywhere = len(names) > 1 and len(names) == in_both
        runtimes = "all" if everywhere else ", ".join(names)
        row = {"what": what, "first": first, "second": second, "runtimes": runtimes}
        rows.append(row)
    return rows


def list_changes(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the names whose values differ, with both values, `absent` for none."""
    for name in dict.fromkeys((*before, *after)):
        first = before.get(name, "absent")
        second = after.get(name, "absent")
        if first != second:
            yield name, first, second


def list_effects(audit: FileAudit) -> dict[str, dict[str, Any]]:
    """Return what each runtime that reads a file computes, by names."""
    effects: dict[str, dict[str, Any]] = {}
    for row in audit.rows["runtimes"]:
        if "base" not in row:
            continue
        place = "" if row["layers"] == "all" else f", {row['layers']} layers"
        if row["rotation"] != overview.MAIN:
            place = f", {row['rotation']}"
        own = effects.setdefault(row["runtime"], {})
        for name in EFFECTS:
            own[f"{name}{place}"] = row[name]
    return effects


def describe_difference(one: FileAudit, other: FileAudit) -> str:
    """Say in a sentence how the main rotation of a second file differs."""
    before, after = one.spec, other.spec
    values = {
        "base": (write_number(before.base), write_number(after.base)),
        "rotated features": (before.rotary_dim, after.rotary_dim),
        "scaling": (shorten_numbers(before.method), shorten_numbers(after.method)),
        "factor on cos and sin": (
            write_number(before.attention_factor),
            write_number(after.attention_factor),
        ),
        "length": (before.length, after.length),
    }
    changes = []
    for what, (first, second) in values.items():
        if first != second:
            changes.append(f"{what} {second} instead of {first}")
    if not changes:
        return "the main layers rotate alike in both files"
    return f"the second file has {join_names(changes)}"


def shorten_tables(audit: FileAudit) -> dict[str, Rows]:
    """Return the tables for reading, with the columns that fit on a line, by their
    titles.
    """
    keys = []
    for row in audit.rows["keys"]:
        # The status is one word if all runtimes agree, else a count for each status.
        counts = Counter(row["status"].values()).most_common()
        status = counts[0][0]
        if len(counts) > 1:
            status = ", ".join(f"{word} {count}" for word, count in counts)
        shown = {name: row[name] for name in ("key", "value", "does")}
        keys.append({**shown, "status": status})

    runtimes = []
    for row in audit.rows["runtimes"]:
        about = {"reader": row["problem"] or row["proof"], **row}
        about["runtime"] = f"{row['runtime']} {row['version']}"
        if "pairs_kept" in row:
            about["pairs"] = count_pairs(row)
        runtimes.append({title: about.get(column) for title, column in COLUMNS.items()})

    return {
        "keys": keys,
        f"runtimes at {audit.length} tokens": runtimes,
        "context": audit.rows["context"],
        "precision": audit.rows["precision"],
    }
