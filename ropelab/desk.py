"""The commands for the model on the desk: audit. They print and keep nothing."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ropelab.config import read_number, split_list
from ropelab.errors import InputError, unknown_name

if TYPE_CHECKING:
    from ropelab.experiments.audit import Audit

FOUND = 3
"""Exit status where something was found."""

Level = Literal["error", "warn", "never"]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
Length = Annotated[
    str | None, typer.Option("--length", metavar="N", help="Length to look at, in tokens.")
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(
        "audit",
        short_help="What does a model's configuration mean, and do the runtimes agree?",
        epilog="Exit status: 0 clean, 3 findings at or above --fail-on, 2 no RoPE configuration, "
        "1 the machine failed, 130 interrupted.",
    )(audit)


def audit(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="config.json, params.json, a model folder, or - for standard input.",
        ),
    ],
    runtime: Annotated[
        str, typer.Option("--runtime", metavar="NAMES", help="Runtimes, by name or by prefix.")
    ] = "",
    length: Length = None,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="error|warn|never", help="What counts as found.")
    ] = "error",
    json: Json = False,
) -> int:
    """What does a model's configuration mean, and do the runtimes agree?

    With two files, also where they differ. Readers are compared with what the stated version of the
    runtime computed, or say that they were only read from its source. No code of the model is run.

    Cannot show: what a model makes of it, or what a runtime of another version does.
    """
    from ropelab.experiments.audit import Options, compare_files
    from ropelab.experiments.audit import audit as audit_document
    from ropelab.runtimes.document import load

    level = checked_level(fail_on)
    options = Options(tuple(split_list(runtime)), tokens(length))
    audits = [audit_document(load(name), options) for name in files]
    difference = compare_files(*audits) if len(audits) == 2 else None
    if json:
        print_json(audits, difference)
    else:
        print_text(audits, difference)
    return FOUND if any(counts(one, level) for one in audits) else 0


def checked_level(name: str) -> str:
    """--fail-on, or an error that names the nearest."""
    if name not in ("error", "warn", "never"):
        raise unknown_name("--fail-on", name, ("error", "warn", "never"))
    return name


def counts(one: "Audit", level: str) -> bool:
    """Whether the worst finding is at or above the level."""
    return one.worst() in {"error": ("error",), "warn": ("error", "warn"), "never": ()}[level]


def tokens(text: str | None) -> int | None:
    """A length as people type it."""
    if text is None:
        return None
    try:
        value = read_number(text)
    except ValueError as error:
        raise InputError(f"--length {error}, got '{text}'") from None
    if not isinstance(value, int) or not 2 <= value <= 2**40:
        raise InputError(f"--length must be a whole number of tokens from 2 to 2^40, got '{text}'")
    return value


def print_json(audits: "list[Audit]", difference: list[dict[str, Any]] | None) -> None:
    """One document; a list of files inside it, so that one and many look the same."""
    files = [
        {
            "name": one.document.name,
            "answer": one.sentence,
            "length": one.length,
            "tables": one.tables,
        }
        for one in audits
    ]
    document: dict[str, Any] = {"experiment": "audit", "files": files}
    if difference is not None:
        document["difference"] = difference
    print(json.dumps(document, ensure_ascii=False, allow_nan=False))


def print_text(audits: "list[Audit]", difference: list[dict[str, Any]] | None) -> None:
    """The reports one after the other, and the difference of two."""
    from ropelab.experiments.audit import report

    for one in audits:
        write(report.lines(one))
    if difference is not None:
        title = "difference" if difference else "no difference"
        write([title, *report.table(difference)])


def write(text: Any) -> None:
    """Lines on stdout."""
    for line in text:
        print(line)
