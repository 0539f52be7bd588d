"""An audit: one configuration as all runtimes read it, with tables, findings and a
report.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ropelab.audit import findings, overview
from ropelab.audit.beside import Aspect, aspects
from ropelab.audit.findings import LEVELS, Finding
from ropelab.audit.layers import find_rule, find_window, list_rotating
from ropelab.audit.overview import Case
from ropelab.audit.sources import read_source
from ropelab.audit.words import count_pairs
from ropelab.math.scaling import PositionInterpolation
from ropelab.readers import registry
from ropelab.readers.document import Document
from ropelab.readers.families import table
from ropelab.readers.flags import Flags, parse_flags
from ropelab.readers.spec import short
from ropelab.readers.trace import language_part
from ropelab.runs.errors import InputError
from ropelab.runs.rows import Result, Rows, grouped
from ropelab.runs.sentences import listed, shorten_numbers, typed
from ropelab.runs.spelling import split_list

# Columns of the table of runtimes by which two files are compared.
EFFECTS = ("base", "rotary_dim", "method", "attention_factor", "claimed_tokens")
COLUMNS = table("names")["columns"]  # of the runtimes, by their titles


@dataclass(frozen=True)
class Audit(Case, Result):
    """A case with its tables, its findings, worst first, and the answer in a
    sentence.
    """

    rows: Mapping[str, Rows]
    findings: tuple[Finding, ...]
    answer: str

    def worst(self) -> Literal["error", "warn", "note", ""]:
        found = {finding.level for finding in self.findings}
        return next((level for level in LEVELS if level in found), "")


def audit(
    source: str | Document,
    *,
    runtime: str | Sequence[str] = (),
    length: int | None = None,
    dtype: str = "",
    flags: str | Flags = "",
    precision: bool = True,
) -> Audit:
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
    runtimes = registry.chosen(names, document.kind)
    model_format = overview.model_format(document.config, dtype)
    own, given = document.config, settings.settings
    unfound = registry.untyped(own) if document.kind == "config" else ""
    applied = ((runtime, settings.applied(runtime.name, own)) for runtime in runtimes)
    readings = tuple(registry.read(r, config, given, unfound) for r, config in applied)
    # The reference is transformers 5 if it reads the file, else the first runtime that
    # does.
    reference = min(
        readings, key=lambda r: (not r.layers, r.runtime.name != registry.REFERENCE)
    )
    if reference.main is None:
        raise InputError(
            f"{document.name}: {reference.stopped or 'no runtime reads it'}"
        )
    length = length or given.get("length")
    asking = ""
    if length is None and "ctx_size" in given:
        length, asking = given["ctx_size"], "llama.cpp"
    compared = length or reference.main.length
    case = Case(document, readings, reference, compared, length, asking)
    beside = aspects(case)
    found = findings.collect(case, beside)
    rows = {
        "runtimes": overview.runtimes(case),
        "keys": overview.keys(case),
        "pairs": overview.pairs(case),
        "context": overview.context(case),
        "precision": overview.precision(case, model_format) if precision else [],
        "findings": [asdict(finding) for finding in found],
    }
    return Audit(**vars(case), rows=rows, findings=found, answer=sentence(case, beside))


def sentence(case: Case, beside: Sequence[Aspect]) -> str:
    """Say which runtimes agree, and in brackets on what."""
    document, spec, name = case.document, case.spec, case.reference.runtime.name
    others = {other for other, own in case.read if not overview.agrees(own, spec)}
    for aspect in beside:
        ours = aspect.does.get(name)
        others |= {other for other, own in aspect.does.items() if ours and own != ours}
    count = len(case.read)
    lengths = sorted({own.claimed_len for _, own in case.read if own.claimed_len})
    agreement = (
        f"all {count} runtimes that read it agree"
        if count > 1
        else "one runtime reads it"
    )
    if others:
        same = count - len(others)
        apart = ", ".join(other for other, _ in case.read if other in others)
        agreement = (
            f"{same} of {count} runtimes compute what {name} computes, not {apart}"
        )
    unread = [aspect.name for aspect in beside if aspect.unread]
    if not others and count > 1 and (unread or lengths[1:]):
        agreement += " on the frequencies" + ", not on the length" * bool(lengths[1:])
    if unread:
        agreement = f"{agreement}; not looked at in all: {', '.join(unread)}"
    if document.encoding:
        agreement = f"refused as {document.encoding}; saved as UTF-8, {agreement}"
    stopped = [r.runtime.name for r in case.readings if r.outcome == "refused"]
    refused = f"; refused by {', '.join(stopped)}" if stopped else ""
    exceeded = findings.list_exceeded(case)
    stopping = [name for _, name in exceeded if name in findings.STOPS_BEYOND]
    if stopping:
        refused += f"; {case.asked} tokens are refused by {', '.join(stopping)}"
    elif exceeded:
        refused += f"; {case.asked} tokens are more than it has"
    kind = short(document.config.get("model_type") or document.kind)
    claimed = f", claims {' or '.join(map(str, lengths))}" if lengths else ""
    method = shorten_numbers(spec.method)
    start = "a length that the file does not state"
    # Of a linear scaling a file gives the length after it.
    if spec.stated and not isinstance(spec.scaling, PositionInterpolation):
        start = f"{spec.trained_len} tokens"
    return (
        f"{document.name}: {agreement}{refused} ({kind}: {spec.rotary_dim} of"
        f" {spec.head_dim} features{describe_layers(case)}, base {typed(spec.base)}, {method} from"
        f" {start}{claimed})."
    )


def describe_layers(case: Case) -> str:
    """Say in how many layers the reference rotates, and what these see, if not all."""
    _, text = language_part(case.document.config)
    kind = case.reference.model_type
    rule = find_rule(kind, case.reference.runtime.name)
    rotating = list_rotating(rule, kind, text) if rule else None
    if rotating is None or all(rotating):
        return ""

    words = f" in {sum(rotating)} of {len(rotating)} layers"
    window = find_window(kind, text)
    return f"{words}, which see {window} tokens" if window else words


def compare(one: Audit, other: Audit) -> Rows:
    """Return the differences of two files: keys, and what runtimes make of them; those
    that several runtimes share are one row.
    """
    rows: list[dict[str, Any]] = []
    mine, theirs = keys_of(one), keys_of(other)
    for key in dict.fromkeys((*mine, *theirs)):
        first, second = mine.get(key, "absent"), theirs.get(key, "absent")
        if first != second:
            row = {"what": key, "first": first, "second": second, "runtimes": ""}
            rows.append(row)

    effects, runtimes = effects_of(one), effects_of(other)
    changes = []
    for runtime in dict.fromkeys((*effects, *runtimes)):
        before, after = effects.get(runtime, {}), runtimes.get(runtime, {})
        for what in dict.fromkeys((*before, *after)):
            first, second = before.get(what, "absent"), after.get(what, "absent")
            if first != second:
                changes.append(((what, first, second), runtime))
    for (what, first, second), names in grouped(changes).items():
        everywhere = len(names) == len(effects.keys() & runtimes.keys())
        who = "all" if everywhere and len(names) > 1 else ", ".join(names)
        rows.append({"what": what, "first": first, "second": second, "runtimes": who})
    return rows


def keys_of(audit: Audit) -> dict[str, Any]:
    return {row["key"]: row["value"] for row in audit.rows["keys"]}


def effects_of(audit: Audit) -> dict[str, dict[str, Any]]:
    """Return what each runtime that reads a file computes, by names."""
    effects: dict[str, dict[str, Any]] = {}
    for row in audit.rows["runtimes"]:
        if "base" not in row:
            continue
        place = "" if row["layers"] == "all" else f", {row['layers']} layers"
        own = effects.setdefault(row["runtime"], {})
        for name in EFFECTS:
            own[f"{name}{place}"] = row[name]
    return effects


def describe_difference(one: Audit, other: Audit) -> str:
    """Say in a sentence how the main rotation of a second file differs."""
    before, after = one.spec, other.spec
    values = {
        "base": (typed(before.base), typed(after.base)),
        "rotated features": (before.rotary_dim, after.rotary_dim),
        "scaling": (shorten_numbers(before.method), shorten_numbers(after.method)),
        "factor on cos and sin": (
            typed(before.attention_factor),
            typed(after.attention_factor),
        ),
        "length": (before.length, after.length),
    }
    changes = []
    for what, (first, second) in values.items():
        if first != second:
            changes.append(f"{what} {second} instead of {first}")
    if not changes:
        return "the main layers rotate alike in both files"
    return f"the second file has {listed(changes)}"


def short_tables(audit: Audit) -> dict[str, Rows]:
    """Return the tables for reading, with the columns that fit on a line, by their
    titles.
    """
    keys = []
    for row in audit.rows["keys"]:
        # One word if all runtimes agree, else a count for each status.
        counts = Counter(row["status"].values()).most_common()
        status = ", ".join(
            f"{word} {count}" if counts[1:] else word for word, count in counts
        )
        keys.append(
            {name: row[name] for name in ("key", "value", "does")} | {"status": status}
        )
    runtimes = []
    for row in audit.rows["runtimes"]:
        named = {"runtime": f"{row['runtime']} {row['version']}"}
        pairs = {"pairs": count_pairs(row)} if "pairs_kept" in row else {}
        about = {"reader": row["problem"] or row["proof"], **row, **named, **pairs}
        runtimes.append({title: about.get(column) for title, column in COLUMNS.items()})
    more = {name: audit.rows[name] for name in ("context", "precision")}
    return {"keys": keys, f"runtimes at {audit.length} tokens": runtimes, **more}
