"""The commands for one configuration: audit, emit, check. They print and keep nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropelab.cli.flags import Json
from ropelab.cli.outcome import print_document, print_line
from ropelab.errors import InputError, unknown_name
from ropelab.runs.config import read_number
from ropelab.runs.notices import say

if TYPE_CHECKING:
    from ropelab.audit.audited import Audit

FOUND = 3  # exit status if something was found
LEVELS = {"error": ("error",), "warn": ("error", "warn"), "never": ()}

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
    from ropelab.audit.audited import audit as audit_file
    from ropelab.audit.audited import compare

    if fail_on not in LEVELS:
        raise unknown_name("--fail-on", fail_on, LEVELS)
    seen = tokens(length)
    audits = [
        audit_file(name, runtime=runtime, length=seen, dtype=dtype, flags=flags) for name in files
    ]
    difference = compare(*audits) if len(audits) == 2 else None
    if figures:
        draw_figures(audits, Path(figures))
    if json:
        documents = [
            {"name": a.document.name, "answer": a.answer, "length": a.length, "tables": a.rows}
            for a in audits
        ]
        more = {} if difference is None else {"difference": difference}
        print_document({"experiment": "audit", "files": documents, **more})
    else:
        for one in audits:
            show(one)
        if difference == []:
            print_line("no difference")
        elif difference:
            show_rows("difference", difference)
    return FOUND if any(one.worst() in LEVELS[fail_on] for one in audits) else 0


def draw_figures(audits: "list[Audit]", folder: Path) -> None:
    """Draw two figures per file, in numbered folders if there are several files."""
    from ropelab.show import drawn
    from ropelab.show.figures.audit import draw

    for number, one in enumerate(audits, 1):
        place = folder if len(audits) == 1 else folder / str(number)
        files = drawn.as_files(drawn.finished(draw, one.tables))
        try:
            drawn.write(files, place)
        except FileExistsError:
            raise InputError(f"--figures {place} is a file, not a folder") from None


def show(one: "Audit") -> None:
    """Print the answer, the findings worst first, and the tables that fit on a screen."""
    from ropelab.audit.audited import finding_lines, short_tables

    print_line(one.answer)
    if one.findings:
        print_line("")
        print_line("findings")
        for line in finding_lines(one):
            print_line(f"  {line}")
    for title, rows in short_tables(one).items():
        show_rows(title, rows)


def show_rows(title: str, rows: list[dict[str, Any]]) -> None:
    """Print a table under its title."""
    import pandas as pd

    from ropelab.show import terminal

    terminal.show_more(title, pd.DataFrame(rows))


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
    from ropelab.audit.emit import emit as emit_targets

    length = tokens(context, "--context") or 0
    done = emit_targets(from_, context=length, model=model, method=method, target=target)
    if json:
        method = done.wanted.scaling.label
        print_document({"experiment": "emit", "method": method, "targets": done.rows})
    else:
        for emission in done.targets:
            if len(done.targets) > 1:
                print_line(f"# {emission.target}")
            print_line(emission.text)
            for loss in emission.lost:
                say(f"ropelab: {emission.target} cannot hold {loss}")
    return FOUND if any(emission.lost for emission in done.targets) else 0


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
    from ropelab.audit.check import check as check_target

    seen = tokens(length)
    done = check_target(target, config=config, length=seen, dtype=dtype, tolerance=tolerance)
    if json:
        document = {"answer": done.answer, "wrong": done.wrong, "fix": done.fix}
        tables = {"casts": done.casts}
        print_document({"experiment": "check", "target": target, **document, "tables": tables})
    else:
        print_line(f"{target}: {done.answer}")
        if done.fix:
            print_line(f"    instead: {done.fix}")
    return FOUND if done.wrong else 0


def tokens(text: str | None, flag: str = "--length") -> int | None:
    """Return a length as people type it."""
    if text is None:
        return None
    try:
        value = read_number(text)
    except ValueError as error:
        raise InputError(f"{flag} {error}, got '{text}'") from None
    if not isinstance(value, int) or not 2 <= value <= 2**40:
        raise InputError(f"{flag} must be a whole number of tokens from 2 to 2^40, got '{text}'")
    return value
