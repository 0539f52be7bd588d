"""The commands for the model on the desk: audit, emit, check. They print and keep nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ropelab.cli.flags import Json
from ropelab.cli.outcome import print_document, print_line
from ropelab.errors import InputError, unknown_name
from ropelab.runs.config import read_number, split_list
from ropelab.runs.notices import say

if TYPE_CHECKING:
    from ropelab.audit.audit import Audit

FOUND = 3
"""Exit status where something was found."""

Level = Literal["error", "warn", "never"]
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
    app.command(
        "emit",
        short_help="What has to be written so that a runtime computes what is wanted?",
        epilog="Exit status: 0 fine, 3 the target cannot hold everything, 2 bad input, 130 "
        "interrupted.",
    )(emit)
    app.command(
        "check",
        short_help="Does this rotary code do what its configuration says?",
        epilog="Exit status: 0 within the tolerance, 3 something is wrong, 2 it cannot be loaded, "
        "130 interrupted.",
    )(check)


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
    dtype: Annotated[
        str,
        typer.Option(
            "--dtype", metavar="NAME", help="The model's number format; the file's own if left out."
        ),
    ] = "",
    flags: Annotated[
        str, typer.Option("--flags", metavar="TEXT", help="Flags of the server, in quotes.")
    ] = "",
    figures: Annotated[
        str, typer.Option("--figures", metavar="DIR", help="Draw two figures per file there.")
    ] = "",
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
    from ropelab.audit.audit import Options, compare_files
    from ropelab.audit.audit import audit as audit_document
    from ropelab.audit.runtimes.document import load
    from ropelab.audit.runtimes.flags import parse_flags

    level = checked_level(fail_on)
    options = Options(tuple(split_list(runtime)), tokens(length), parse_flags(flags), dtype)
    audits = [audit_document(load(name), options) for name in files]
    difference = compare_files(*audits) if len(audits) == 2 else None
    if figures:
        draw_figures(audits, Path(figures))
    if json:
        print_json(audits, difference)
    else:
        print_text(audits, difference)
    return FOUND if any(counts(one, level) for one in audits) else 0


def draw_figures(audits: "list[Audit]", folder: Path) -> None:
    """Two figures per file, in numbered folders if there are several files."""
    from ropelab.show import drawn
    from ropelab.show.figures.audit import draw

    for number, one in enumerate(audits, 1):
        place = folder if len(audits) == 1 else folder / str(number)
        try:
            drawn.write(drawn.as_files(drawn.finished(draw, one.tables)), place)
        except FileExistsError:
            raise InputError(f"--figures {place} is a file, not a folder") from None


def emit(
    context: Annotated[
        str, typer.Option("--context", metavar="N", help="Length wanted, in tokens.")
    ],
    from_: Annotated[
        str, typer.Option("--from", metavar="FILE", help="config.json or model folder.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", metavar="NAME", help="A known model (see freqs).")
    ] = "",
    method: Annotated[
        str, typer.Option("--method", metavar="NAME", help="Scaling method with its knobs.")
    ] = "",
    target: Annotated[
        str, typer.Option("--target", metavar="NAME", help="hf4, hf5, vllm, ..., portable, all.")
    ] = "portable",
    json: Json = False,
) -> int:
    """What has to be written so that a runtime computes what is wanted?

    Only the text to paste goes to stdout, notes to stderr. The text is read back by the runtime's
    reader, and what comes out differently is named: the target cannot hold it.
    """
    from ropelab.audit.emit import Request, wanted_spec
    from ropelab.audit.runtimes.emit import TARGETS, emit_all

    length = tokens(context, "--context")
    spec, kept = wanted_spec(Request(from_, model, length or 0, method))
    names = list(TARGETS) if target == "all" else split_list(target)
    emissions = emit_all(names, spec, kept)
    if json:
        rows = [{"target": e.target, "text": e.text, "lost": list(e.lost)} for e in emissions]
        print_document({"experiment": "emit", "method": spec.scaling.label, "targets": rows})
    else:
        for emission in emissions:
            if len(emissions) > 1:
                print_line(f"# {emission.target}")
            print_line(emission.text)
            for loss in emission.lost:
                say(f"ropelab: {emission.target} cannot hold {loss}")
    return FOUND if any(emission.lost for emission in emissions) else 0


def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="package.module:factory, a model folder, or an .npz with cos and sin.",
        ),
    ],
    config: Annotated[
        str, typer.Option("--config", metavar="FILE", help="The config.json it should follow.")
    ] = "",
    length: Length = None,
    dtype: Annotated[
        str, typer.Option("--dtype", metavar="NAME", help="float32, bfloat16 or float16.")
    ] = "float32",
    tolerance: Annotated[
        float, typer.Option("--tolerance", metavar="X", help="Radians that a phase may be off.")
    ] = 0.01,
    json: Json = False,
) -> int:
    """Does this rotary code do what its configuration says?

    A factory is called without arguments and returns a function: of positions, which gives cos and
    sin, or of vectors [tokens, head_dim] and positions, which gives the rotated vectors. Importing
    its module runs its code. A folder runs none: transformers' own class is built from config.json.

    Cannot show: what a kernel does on another device.
    """
    from ropelab.audit.check import Question
    from ropelab.audit.check import check as check_target

    outcome = check_target(Question(target, config, tokens(length), dtype, tolerance))
    verdict = outcome.verdict
    if json:
        document = {"answer": verdict.says, "wrong": verdict.wrong, "fix": verdict.fix}
        tables = {"casts": outcome.casts}
        print_document({"experiment": "check", "target": target, **document, "tables": tables})
    else:
        print_line(f"{target}: {verdict.says}")
        if verdict.fix:
            print_line(f"    instead: {verdict.fix}")
    return FOUND if verdict.wrong else 0


def checked_level(name: str) -> str:
    """--fail-on, or an error that names the nearest."""
    if name not in ("error", "warn", "never"):
        raise unknown_name("--fail-on", name, ("error", "warn", "never"))
    return name


def counts(one: "Audit", level: str) -> bool:
    """Whether the worst finding is at or above the level."""
    return one.worst() in {"error": ("error",), "warn": ("error", "warn"), "never": ()}[level]


def tokens(text: str | None, flag: str = "--length") -> int | None:
    """A length as people type it."""
    if text is None:
        return None
    try:
        value = read_number(text)
    except ValueError as error:
        raise InputError(f"{flag} {error}, got '{text}'") from None
    if not isinstance(value, int) or not 2 <= value <= 2**40:
        raise InputError(f"{flag} must be a whole number of tokens from 2 to 2^40, got '{text}'")
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
    print_document(document)


def print_text(audits: "list[Audit]", difference: list[dict[str, Any]] | None) -> None:
    """The reports one after the other, and the difference of two."""
    from ropelab.audit.audit import report

    for one in audits:
        write(report.lines(one))
    if difference is not None:
        title = "difference" if difference else "no difference"
        write([title, *report.table(difference)])


def write(text: Any) -> None:
    """Lines on stdout."""
    for line in text:
        print_line(line)
