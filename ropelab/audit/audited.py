"""An audit: one configuration as all runtimes read it, with tables and findings."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from typing import Any, Literal

from ropelab.audit.answer import write_answer
from ropelab.audit.aspects import list_aspects
from ropelab.audit.audit_case import AuditCase
from ropelab.audit.causes import declares_scaling, is_plain
from ropelab.audit.finding import LEVELS, AuditFinding
from ropelab.audit.findings import collect_findings
from ropelab.audit.overview import (
    find_format,
    list_axes,
    list_contexts,
    list_keys,
    list_pairs,
    list_runtimes,
    search_errors,
)
from ropelab.audit.sources import read_source
from ropelab.audit.words import count_pairs
from ropelab.readers import registry
from ropelab.readers.document import Document
from ropelab.readers.families import read_table
from ropelab.readers.flags import SETTINGS, Flags, parse_flags, take_known
from ropelab.readers.registry import Reading
from ropelab.readers.spec import check_length, is_context
from ropelab.readers.trace import ORIGINAL, find_language_part, find_scaled_block
from ropelab.runs.arguments import check_texts, read_path
from ropelab.runs.errors import InputError, cut_text
from ropelab.runs.rows import Result, Rows
from ropelab.runs.spelling import split_named

# The columns of the table of runtimes that are shown, by their titles.
COLUMNS = read_table("names")["columns"]
# The settings of flags by which the user chooses the length to look at.
REQUESTED_LENGTHS = ("length", "ctx_size")


@dataclass(frozen=True)
class FileAudit(AuditCase, Result):
    """A case with its tables, its findings, and the answer in a sentence."""

    rows: Mapping[str, Rows]
    # The worst findings come first.
    findings: tuple[AuditFinding, ...]
    answer: str

    def worst(self) -> Literal["error", "warn", "note", ""]:
        """Return the worst level of a finding; empty if there is none."""
        levels = {finding.level for finding in self.findings}
        for level in LEVELS:
            if level in levels:
                return level
        return ""


def read_runtimes(runtime: str | Sequence[str]) -> Sequence[str]:
    """Return names of runtimes.

    InputError: the text has separators, such as commas, but no name.
    """
    if isinstance(runtime, Sequence) and not isinstance(runtime, str):
        for name in runtime:
            check_texts(runtime=name)
        return runtime

    check_texts(runtime=runtime)
    try:
        return split_named(runtime)
    except ValueError as error:
        raise InputError(f"runtime {error}, got {runtime!r}") from None


def read_flags(text: str) -> Flags:
    """Read the flags of a server; InputError if they are not a text."""
    check_texts(flags=text)
    return parse_flags(text)


def read_context(value: Any) -> int:
    """Return the context that a server's flag sets, where 0 stands for the length of the
    model.

    InputError: the value is not a whole number of tokens.
    """
    is_zero = isinstance(value, int) and value == 0
    if not (is_zero or is_context(value)):
        raise InputError(
            f"--ctx-size must be 0 or a whole number of tokens from 2 to 2^40, got"
            f" {cut_text(str(value))}"
        )
    return value


def audit(
    source: str | PathLike[str] | Document,
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
    check_texts(dtype=dtype)
    if length is not None:
        check_length(length)
    server_flags = flags if isinstance(flags, Flags) else read_flags(flags)
    if isinstance(source, Document):
        document = source
    else:
        document = read_source(read_path("source", source))
    names = read_runtimes(runtime)
    model_format = find_format(document.config, dtype)
    readings = read_by_runtimes(document, names, server_flags)
    reference = choose_reference(document, readings)

    requested_length = length or server_flags.settings.get("length")
    requested_runtime = ""
    if requested_length is None and "ctx_size" in server_flags.settings:
        requested_length = read_context(server_flags.settings["ctx_size"])
        requested_runtime = "llama.cpp"
    claimed_length = reference.layers[reference.main_layer].length
    compared_length = requested_length or claimed_length
    case = AuditCase(
        document,
        readings,
        reference,
        compared_length,
        requested_length,
        requested_runtime,
        server_flags,
    )

    aspects = list_aspects(case)
    findings = collect_findings(case, aspects)
    rows: dict[str, Rows] = {
        "runtimes": list_runtimes(case),
        "keys": list_keys(case),
        "pairs": list_pairs(case),
        "context": list_contexts(case),
        "precision": search_errors(case, model_format) if precision else [],
        "findings": [asdict(finding) for finding in findings],
    }
    axes = list_axes(case)
    if axes:
        rows["axes"] = axes
    # An audit has all fields of its case, and the results.
    return FileAudit(
        **vars(case),
        rows=rows,
        findings=findings,
        answer=write_answer(case, aspects),
    )


def read_by_runtimes(
    document: Document, names: Sequence[str], flags: Flags
) -> tuple[Reading, ...]:
    """Return a document as runtimes read it, with their flags laid over it.

    ``names``: the runtimes by name or prefix; all if empty.
    """
    # The reason why no runtime finds a class for the model type; empty if runtimes do.
    problem = ""
    if document.kind == "config":
        problem = registry.explain_missing_class(document.config)

    readings = []
    for runtime in registry.choose_runtimes(names, document.kind):
        config = flags.apply(runtime.name, document.config)
        readings.append(registry.read(runtime, config, flags.settings, problem))
    return tuple(readings)


def list_idle_runtimes(names: Sequence[str], audits: Sequence[FileAudit]) -> list[str]:
    """Return the names and prefixes of runtimes, as typed, of which no runtime reads a
    file of this kind.
    """
    readers: set[str] = set()
    for audit in audits:
        readers |= {reading.runtime.name for reading in audit.readings}
    return [name for name in names if not registry.select_named(name, readers)]


def list_idle_flags(text: str, audits: Sequence[FileAudit]) -> list[str]:
    """Return the flags of a server without which every audited runtime computes the
    same.

    They are flags of a server that is not audited, or say what a file says already.
    Flags that set a length are left out, as they choose what is looked at.
    """
    known_flags, _ = take_known(shlex.split(text))
    idle_flags = []
    for number, (name, value) in enumerate(known_flags):
        if SETTINGS.get(name) in REQUESTED_LENGTHS:
            continue
        words: list[str] = []
        for other_number, (other_name, other_value) in enumerate(known_flags):
            if other_number != number:
                # A switch has no value.
                words += filter(None, (other_name, other_value))
        try:
            flags_without = parse_flags(shlex.join(words))
        except InputError:
            continue
        if all(_reads_alike(each, flags_without) for each in audits):
            idle_flags.append(f"{name} {value}".rstrip())
    return idle_flags


def _reads_alike(audit: FileAudit, flags: Flags) -> bool:
    """Return True if all runtimes of an audit read the same under other flags."""
    names = [reading.runtime.name for reading in audit.readings]
    readings = read_by_runtimes(audit.document, names, flags)
    pairs = zip(readings, audit.readings, strict=True)
    return all(
        (one.layers, one.outcome, one.problem)
        == (other.layers, other.outcome, other.problem)
        for one, other in pairs
    )


def choose_reference(document: Document, readings: Sequence[Reading]) -> Reading:
    """Return the reading that all others are compared with.

    It is the reading of transformers 5 or, if that reads nothing, of a trainer, which
    says what the model was trained with. Else it is a reading that takes the base and
    the scaling that the file declares. Among several it is that of the first runtime in
    the order of the table of runtimes: the order in which a user names them says nothing
    about the file.

    InputError: no runtime reads the document.
    """
    order = list(registry.EVERY_RUNTIME)
    _, language_part = find_language_part(document.config)
    block = find_scaled_block(language_part)

    def rank(reading: Reading) -> tuple[bool, bool, bool, int, int]:
        """Return what is compared between two readings; False and less come first."""
        spec = reading.main_spec
        assert spec is not None
        name = reading.runtime.name
        is_other = name != registry.REFERENCE
        serves = name not in registry.TRAINERS
        passes_over_scaling = declares_scaling(document.config) and is_plain(spec)
        # Some runtimes compute a factor in place of that of the file, or take the claimed
        # length for the trained one.
        factor = getattr(spec.scaling, "factor", None)
        passed_over = int(passes_over_scaling)
        passed_over += factor != block.get("factor", factor)
        passed_over += spec.trained_len != block.get(ORIGINAL, spec.trained_len)
        return is_other, serves, spec.has_default_base, passed_over, order.index(name)

    successful = [each for each in readings if each.main_spec is not None]
    if successful:
        return min(successful, key=rank)

    # The reason of transformers 5 is reported if it is among the runtimes.
    reason = readings[0].explanation
    for reading in readings:
        if reading.runtime.name == registry.REFERENCE:
            reason = reading.explanation
            break
    raise InputError(f"{document.name}: {reason or 'no runtime reads it'}")


def shorten_tables(audit: FileAudit) -> dict[str, Rows]:
    """Return the tables by their titles, with the columns that fit on a line."""
    keys = []
    for row in audit.rows["keys"]:
        # The status is one word if all runtimes agree, else a count for each status.
        counts = Counter(row["status"].values()).most_common()
        status, _ = counts[0]
        if len(counts) > 1:
            status = ", ".join(f"{word} {count}" for word, count in counts)
        shown = {name: row[name] for name in ("key", "value", "does")}
        keys.append({**shown, "status": status})

    runtimes = []
    for row in audit.rows["runtimes"]:
        # The column `reader` says what is known of our reader of the runtime: why it
        # reads nothing from this file, or else how it was checked.
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
