"""The command audit: a model's configuration as each runtime reads it.

A runtime is software that runs models, such as vLLM or llama.cpp. A finding is an error
or a difference that audit reports, with a code and a level. A draft model is a small
model that guesses tokens for a large model, and has to agree with it.
"""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from typer import Argument, Option

import ropelab
from ropelab.cli.flags import Json
from ropelab.cli.lengths import Length, read_tokens
from ropelab.cli.outcome import STATUS_OF_FINDINGS, print_document, print_line
from ropelab.runs.errors import InputError, check_known, say
from ropelab.runs.rows import Rows
from ropelab.runs.sentences import write_count
from ropelab.runs.spelling import split_named

if TYPE_CHECKING:
    from ropelab.audit.audited import FileAudit
    from ropelab.audit.finding import AuditFinding

# The levels of findings with which the command fails, by the value of --fail-on.
LEVELS = {"error": ("error",), "warn": ("error", "warn"), "never": ()}


@dataclass(frozen=True)
class AuditReport:
    """Everything that one call of the command prints."""

    # The audit of each file.
    audits: "Sequence[FileAudit]"
    # The flags of a server that were read, each with its value.
    flags: Sequence[str]
    # The rows in which two files differ; None for one file, or more than two.
    difference: Rows | None = None
    # The findings on the second of two files as the draft model of the first.
    draft_findings: "Sequence[AuditFinding]" = ()

    def find_levels(self) -> set[str]:
        """Return the levels of the worst finding of each file, and of all findings on a
        draft model.
        """
        levels: set[str] = {audit.worst() for audit in self.audits}
        levels |= {finding.level for finding in self.draft_findings}
        return levels


def audit(
    files: Annotated[
        list[str], Argument(metavar="FILE", help="JSON, GGUF, model folder, or -.")
    ],
    runtime: Annotated[
        str, Option(metavar="NAMES", help="Runtimes, by name or by prefix.")
    ] = "",
    length: Length = None,
    dtype: Annotated[
        str, Option(metavar="NAME", help="Number format  [default: the file's]")
    ] = "",
    flags: Annotated[
        str, Option(metavar="TEXT", help="Flags of the server, in quotes.")
    ] = "",
    figures: Annotated[
        str, Option(metavar="DIR", help="Draw two figures per file there.")
    ] = "",
    fail_on: Annotated[
        str, Option(metavar="LEVEL", help="error, warn or never.")
    ] = "error",
    verbose: Annotated[
        bool, Option("--verbose", help="Keys, context and precision, too.")
    ] = False,
    out: Annotated[str, Option("-o", "--out", hidden=True)] = "",
    format_: Annotated[
        str, Option("--format", metavar="NAME", help="text, json, sarif.")
    ] = "text",
    json: Json = False,
) -> int:
    """Read a model's configuration as each runtime does, and report differences and
    errors.

    FILE is a config.json, params.json or GGUF file, a model folder, or - for standard
    input; the differences between two files are listed too, and a smaller second one is
    taken for the draft model of the first. Runtimes are modelled, not run: a reader was
    compared with what the stated version computed, or is marked as read from source
    only.

    Cannot show: the quality of a model's text, or the behaviour of other versions.
    """
    if out:
        refuse_out(files, out)
    if files.count("-") > 1:
        raise InputError("standard input (-) can be read once only; give - once")
    form = choose_form(format_, json)
    # The errors of number formats are shown in these forms alone.
    shows_precision = form == "json" or (verbose and form == "text")
    failing_levels = LEVELS[check_known("--fail-on", fail_on, LEVELS)]

    report = make_report(
        files,
        flags,
        runtime=runtime,
        length=read_tokens(length),
        dtype=dtype,
        precision=shows_precision,
    )
    if figures:
        draw_audits(report.audits, Path(figures))

    if dtype and not shows_precision:
        say("--dtype has no effect: it is for --verbose and --json")
    from ropelab.audit.audited import list_idle_flags, list_idle_runtimes

    for name in list_idle_runtimes(split_named(runtime), report.audits):
        say(f"{name} is left out: ropelab has no reader of such files for it")
    if flags:
        for flag in list_idle_flags(flags, report.audits):
            say(f"{flag} changes nothing that the audited runtimes compute")
    if form == "sarif":
        print_sarif(report)
    elif form == "json":
        print_json(report)
    else:
        show_report(report, verbose)

    if report.find_levels().isdisjoint(failing_levels):
        return 0
    return STATUS_OF_FINDINGS


def refuse_out(files: Sequence[str], out: str) -> NoReturn:
    """Raise InputError with the command that writes the audit into a file."""
    # People type --out here because other commands have it.
    command = shlex.join(["ropelab", "audit", *files, "--json"])
    raise InputError(
        f"audit prints, and writes no file of its own; type: {command} >"
        f" {shlex.quote(out)}"
    )


def choose_form(format_: str, json: bool) -> str:
    """Return the form that --format or --json asks for: text, json or sarif."""
    if not json:
        return check_known("--format", format_, ("text", "json", "sarif"))
    if format_ not in ("text", "json"):
        raise InputError("give --format or --json, not both")
    return "json"


def make_report(files: Sequence[str], flags: str, **options: Any) -> AuditReport:
    """Audit files and, if there are two, compare them.

    `flags` are the flags of a server, as typed. `options` are further arguments of
    `ropelab.audit.audited.audit`, and hold for every file.
    """
    from ropelab.audit import audited
    from ropelab.audit.comparison import compare
    from ropelab.audit.draft import compare_draft

    known_flags = list_flags(flags)
    audits = [audited.audit(name, flags=flags, **options) for name in files]
    if len(audits) != 2:
        return AuditReport(audits, known_flags)

    first, second = audits
    draft_findings = list(compare_draft(first, second))
    return AuditReport(audits, known_flags, compare(first, second), draft_findings)


def draw_audits(audits: "Sequence[FileAudit]", folder: Path) -> None:
    """Draw the figures of a single file into a folder, or of several files into a
    numbered folder each.
    """
    from ropelab.runs.store import check_writable
    from ropelab.show import drawn
    from ropelab.show.figures.audit import draw

    check_writable(folder, "figures")
    for number, file_audit in enumerate(audits, 1):
        folder_of_file = folder
        if len(audits) > 1:
            folder_of_file = folder / str(number)
        figures = drawn.draw_figures(draw, file_audit.tables)
        drawn.write_for_user(drawn.encode_figures(figures), folder_of_file)


def print_sarif(report: AuditReport) -> None:
    """Print the document of --format sarif.

    The findings on a draft model are listed with the findings of the last file.
    """
    from ropelab.audit.sarif import write_sarif

    *earlier_audits, last = report.audits
    findings = (*last.findings, *report.draft_findings)
    audits = [*earlier_audits, replace(last, findings=findings)]
    print_document(write_sarif(audits, ropelab.__version__))


def print_json(report: AuditReport) -> None:
    """Print the document of --json."""
    documents = []
    for file_audit in report.audits:
        document = {
            "name": file_audit.document.name,
            "answer": file_audit.answer,
            "length": file_audit.length,
            "tables": file_audit.rows,
        }
        documents.append(document)

    # These keys are in the document only if they have a value.
    optional_keys: dict[str, Any] = {}
    if report.flags:
        optional_keys["flags"] = report.flags
    if report.difference is not None:
        optional_keys["difference"] = report.difference
    if report.draft_findings:
        optional_keys["draft"] = [asdict(finding) for finding in report.draft_findings]
    print_document({"experiment": "audit", "files": documents, **optional_keys})


def list_flags(text: str) -> list[str]:
    """Return the flags of a server that were read, each with its value."""
    from ropelab.readers.flags import take_known

    try:
        words = shlex.split(text)
    except ValueError:
        # The audit itself raises an error for these flags that explains more.
        return []

    flags, _ = take_known(words)
    return [f"{name} {value}".rstrip() for name, value in flags]


def show_report(report: AuditReport, verbose: bool) -> None:
    """Print the audit of each file. If there are two files, print how they differ, and
    the findings on the second as the draft model of the first.
    """
    for number, file_audit in enumerate(report.audits):
        if number > 0:
            print_line("")
        show_audit(file_audit, verbose, report.flags)

    if report.difference is not None:
        show_difference(report.audits, report.difference)
    show_findings(report.draft_findings)


def show_audit(audit: "FileAudit", verbose: bool, flags: Sequence[str]) -> None:
    """Print the verdict, the findings with their advice, the runtimes and what to type
    next.
    """
    from ropelab.audit import audited
    from ropelab.show import terminal

    terminal.show_paragraph(audit.answer)
    if flags:
        terminal.show_paragraph(f"flags that were read: {', '.join(flags)}")
    print_line("")

    # The finding N03 lists runtimes that are not modelled. It is not printed:
    # `show_runtimes` counts these runtimes, and with --verbose the table of runtimes has
    # a reason in the row of each.
    findings = tuple(finding for finding in audit.findings if finding.code != "N03")
    show_findings(findings)
    if findings:
        print_line("")

    if verbose:
        show_tables(audited.shorten_tables(audit))
    else:
        show_runtimes(audit)

    document = audit.document
    # emit reads neither GGUF files, nor Mistral's params.json, nor standard input.
    if document.kind == "config" and Path(document.name).exists():
        source = shlex.quote(document.name)
        context = max(audit.length, audit.spec.trained_len)
        command = f"ropelab emit --from {source} --context {context} --target all"
        terminal.show_places({"next": command})


def show_runtimes(audit: "FileAudit") -> None:
    """Print a line per group of runtimes that compute the same, and the number of
    runtimes that are not modelled.
    """
    from ropelab.audit.words import group_alike
    from ropelab.show import terminal

    groups = group_alike(audit, audit.rows["runtimes"])
    for text, names in groups:
        terminal.show_paragraph(f"{text}: {names}", hanging=4)
    # A star marks runtimes whose source was read, and that were never run.
    if any("*" in names for _, names in groups):
        print_line("* read from source, not run")

    names_by_reason = audit.group_problems("not modelled")
    count = sum(len(names) for names in names_by_reason.values())
    if count:
        print_line(f"{write_count(count, 'runtime')} left out (--verbose)")


def show_difference(audits: "Sequence[FileAudit]", difference: Rows) -> None:
    """Print how the second of two files differs from the first, in a sentence and a
    table.
    """
    from ropelab.audit.comparison import describe_difference
    from ropelab.show import terminal

    print_line("")
    if not difference:
        print_line("no difference")
        return
    terminal.show_paragraph(describe_difference(audits, difference))
    show_tables({"difference": difference})


def show_findings(findings: "Sequence[AuditFinding]") -> None:
    from ropelab.show import terminal

    for finding in findings:
        terminal.show_paragraph(
            f"{finding.code} {finding.level}: {finding.says}", hanging=4
        )
        if finding.do:
            terminal.show_paragraph(f"fix: {finding.do}", indent=4, hanging=5)


def show_tables(tables: dict[str, Rows]) -> None:
    import pandas as pd

    from ropelab.show import terminal

    for title, rows in tables.items():
        terminal.show_more(title, pd.DataFrame(rows))
