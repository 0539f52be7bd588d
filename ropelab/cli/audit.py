"""The commands for one model: audit, emit, check, vectors, doctor. They store no
runs.
"""

import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option, Typer

import ropelab
from ropelab.cli import panels
from ropelab.cli.flags import Json
from ropelab.cli.outcome import print_document, print_line
from ropelab.runs.errors import InputError, known, say
from ropelab.runs.rows import Rows
from ropelab.runs.sentences import count_of

if TYPE_CHECKING:
    from ropelab.audit.audited import FileAudit
    from ropelab.audit.emit import Emission
    from ropelab.audit.finding import AuditFinding
    from ropelab.conformance.laws.doctor import Diagnosis
    from ropelab.math.scaling.plan import Scaling
    from ropelab.models.released.loading import ModelDtype

FOUND = 3  # exit status if something was found
LEVELS = {"error": ("error",), "warn": ("error", "warn"), "never": ()}

Length = Annotated[str | None, Option(metavar="N", help="Tokens in the context.")]


# The exit status of each command.
STATUS = {
    "audit": "0 clean, 3 findings at or above --fail-on, 2 no RoPE configuration",
    "emit": "0 fine, 3 a target loses something, or --method replaces, 2 invalid input",
    "check": "0 within the tolerance, 3 something is wrong, 2 it cannot be loaded",
    "vectors": "0 written, 2 no RoPE configuration, or DIR cannot be written",
    "doctor": "0 every law that can be asked holds, 3 one is broken, 2 no model",
}


def register(app: Typer) -> None:
    """Add the commands to the application, their docstrings as help."""
    commands: dict[Callable[..., Any], str] = {
        audit: panels.CONFIGURATIONS,
        emit: panels.CONFIGURATIONS,
        check: panels.CODE,
        vectors: panels.CODE,
        doctor: panels.CODE,
    }
    for command, panel in commands.items():
        name = command.__name__
        epilog = f"Exit status: {STATUS[name]}, 1 runtime error, 130 interrupted."
        panels.add_command(app, name, command, panel, epilog=epilog)


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
    from ropelab.audit import audited, draft

    if out:
        command = f"{shlex.join(['ropelab', 'audit', *files])} --json"
        raise InputError(
            f"audit prints, and writes no file of its own; type: {command} >"
            f" {shlex.quote(out)}"
        )
    if json and format_ not in ("text", "json"):
        raise InputError("give --format or --json, not both")
    kind = "json" if json else known("--format", format_, ("text", "json", "sarif"))
    failing = LEVELS[known("--fail-on", fail_on, LEVELS)]
    asked = tokens(length)
    read_flags = list_flags(flags)
    audits = []
    for name in files:
        one = audited.audit(
            name,
            runtime=runtime,
            length=asked,
            dtype=dtype,
            flags=flags,
            precision=verbose or kind == "json",
        )
        audits.append(one)
    difference: Rows | None = None
    draft_findings: list[AuditFinding] = []
    if len(audits) == 2:
        difference = audited.compare(*audits)
        draft_findings = [*draft.compare_draft(*audits)]

    if figures:
        draw_audits(audits, Path(figures))
    if kind == "sarif":
        from ropelab.audit.sarif import as_sarif

        audits[-1] = replace(
            audits[-1], findings=(*audits[-1].findings, *draft_findings)
        )
        print_document(as_sarif(audits, ropelab.__version__))
    elif kind == "json":
        print_audits(audits, read_flags, difference, draft_findings)
    else:
        for number, one in enumerate(audits):
            if number > 0:
                print_line("")
            show_audit(one, verbose, read_flags)
        if difference is not None:
            show_difference(audits, difference)
        show_findings(draft_findings)

    levels = {one.worst() for one in audits}
    levels |= {finding.level for finding in draft_findings}
    return FOUND if levels & {*failing} else 0


def draw_audits(audits: "Sequence[FileAudit]", folder: Path) -> None:
    """Draw the figures of each file, of several in folders by number."""
    from ropelab.runs.store import check_writable
    from ropelab.show import drawn
    from ropelab.show.figures.audit import draw

    check_writable(folder, "figures")
    for number, audit in enumerate(audits, 1):
        place = folder if len(audits) == 1 else folder / str(number)
        drawn.write(drawn.encode_figures(drawn.draw_figures(draw, audit.tables)), place)


def print_audits(
    audits: "Sequence[FileAudit]",
    flags: "Sequence[str]",
    difference: Rows | None,
    draft: "Sequence[AuditFinding]",
) -> None:
    """Print the document of --json."""
    documents = []
    for audit in audits:
        document = {
            "name": audit.document.name,
            "answer": audit.answer,
            "length": audit.length,
            "tables": audit.rows,
        }
        documents.append(document)

    more: dict[str, Any] = {}
    if flags:
        more["flags"] = flags
    if difference is not None:
        more["difference"] = difference
    if draft:
        more["draft"] = [asdict(finding) for finding in draft]
    print_document({"experiment": "audit", "files": documents, **more})


def list_flags(text: str) -> list[str]:
    """Return the flags of a server that were read, each with its value."""
    from ropelab.readers.flags import take_known

    flags, _ = take_known(split_words(text))
    return [f"{name} {value}".rstrip() for name, value in flags]


def split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return []  # The reader of flags says what is wrong.


def show_audit(audit: "FileAudit", verbose: bool, flags: "Sequence[str]") -> None:
    """Print the verdict, the findings with their advice, the runtimes and what to type
    next.
    """
    from ropelab.audit import audited, words
    from ropelab.show import terminal

    terminal.show_paragraph(audit.answer)
    if flags:
        terminal.show_paragraph(f"flags that were read: {', '.join(flags)}")
    print_line("")
    findings = audit.findings
    if not verbose:  # a line at the end counts the runtimes that are left out
        findings = tuple(one for one in findings if one.code != "N03")
    show_findings(findings)
    if findings:
        print_line("")

    if verbose:
        show_tables(audited.shorten_tables(audit))
    else:
        groups = words.group_alike(audit, audit.rows["runtimes"])
        for text, names in groups:
            terminal.show_paragraph(f"{text}: {names}", hanging=4)
        if any("*" in names for _, names in groups):
            print_line("* read from source, not run")
        left = audit.group_problems("not modelled").values()
        count = sum(len(names) for names in left)
        if count:
            print_line(f"{count_of(count, 'runtime')} left out (--verbose)")
    document, length = audit.document, max(audit.length, audit.spec.trained_len)
    if document.kind != "gguf" and Path(document.name).exists():  # emit reads no other
        source = shlex.quote(document.name)
        command = f"ropelab emit --from {source} --context {length} --target all"
        terminal.show_places({"next": command})


def show_difference(audits: "Sequence[FileAudit]", difference: Rows) -> None:
    """Print how a second file differs, in a sentence and a table."""
    from ropelab.audit.audited import describe_difference
    from ropelab.show import terminal

    print_line("")
    if not difference:
        print_line("no difference")
        return
    terminal.show_paragraph(describe_difference(*audits))
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


def emit(
    context: Annotated[str, Option(metavar="N", help="Wanted length, in tokens.")] = "",
    from_: Annotated[
        str, Option("--from", metavar="FILE", help="config.json or folder.")
    ] = "",
    model: Annotated[
        str, Option(metavar="NAME", help="Known model, see ropelab models.")
    ] = "",
    method: Annotated[
        str, Option(metavar="NAME", help="Scaling  [default: the file's own]")
    ] = "",
    target: Annotated[
        str, Option(metavar="NAMES", help="hf5, vllm, ..., or all.")
    ] = "portable",
    factor: Annotated[str, Option(hidden=True)] = "",
    json: Json = False,
) -> int:
    """Write the config or flags that give a scaling in vLLM, llama.cpp and other
    runtimes.

    A scaled file keeps its own method and parameters unless --method replaces them; any
    other model gets YaRN, unless its own length is enough. Only the text to paste goes
    to stdout, notes to stderr. The text is read back by the model of the runtime, and
    every difference from the wanted scaling is named.
    """
    from ropelab.audit import emit as emission

    if factor or not context:
        raise InputError(ask_for_context(factor, from_, model, method, target))
    length = tokens(context, "--context") or 0
    done = emission.emit(
        from_, context=length, model=model, method=method, target=target
    )
    if json:
        label = done.wanted.scaling.label
        about = {"method": label, "note": done.note, "replaced": done.replaced}
        print_document({"experiment": "emit", **about, **done.rows})
    else:
        for one in done.targets:
            if len(done.targets) > 1:
                print_line(f"# {one.target}")
            print_line(one.text)
            for remark in (*one.lost, *one.remarks):
                say(f"ropelab: {one.target}: {remark}")
        for note in filter(None, (done.note, done.replaced)):
            say(f"ropelab: {note}")
        changes = any(one.changes for one in done.targets)
        seen = describe_observation(done.wanted.scaling)
        if changes and seen:
            say(f"observed {seen}")
        say(f"next  {next_of_emit(from_ or model, done.targets)}")
    lost = any(one.lost for one in done.targets)
    return FOUND if lost or done.replaced else 0


def ask_for_context(
    factor: str, from_: str, model: str, method: str, target: str
) -> str:
    """Return what to type where emit was given a factor, or no length at all."""
    from ropelab.audit.emit import read_trained_length
    from ropelab.readers.flags import read_option

    command = ["ropelab", "emit"]
    given = {"--from": from_, "--model": model, "--method": method}
    for flag, value in given.items():
        if value:
            command += [flag, value]
    if target != "portable":
        command += ["--target", target]
    if not factor and not (from_ or model):
        return "emit needs a model and a length; type: ropelab emit --help"
    if not factor:
        return f"emit needs a length; type: {shlex.join(command)} --context 131072"

    times = float(read_option("--factor", factor))
    if not (from_ or model):
        return "emit takes a length, not a factor; type: ropelab emit --help"

    trained = read_trained_length(from_, model)
    length = round(times * trained)
    return (
        f"emit takes a length, and {times:g} times the trained {trained} tokens are"
        f" {length}; type: {shlex.join(command)} --context {length}"
    )


def describe_observation(scaling: "Scaling") -> str:
    """Say what small trained models did under a scaling; nothing if it was not tried."""
    from ropelab.cli.observed import describe_scaling

    factor = getattr(scaling, "factor", 1.0)
    return describe_scaling(scaling.name, factor)


def next_of_emit(source: str, emissions: "Sequence[Emission]") -> str:
    """Say where the texts go, and the command that audits a file with them."""
    from ropelab.audit.targets import TARGETS

    is_file = Path(source).exists()
    file = shlex.quote(source) if is_file else "config.json"
    place = file if is_file else "the model's config.json"
    flags = [one for one in emissions if one.text.startswith("-")]
    keys = [one for one in emissions if one.text.startswith("{") and one.changes]
    audit_file = f"ropelab audit {file}"
    if len(emissions) == 1 and flags:
        runtime = TARGETS[flags[0].target].runtimes[0]
        words = shlex.quote(flags[0].text)
        return f"{audit_file} --runtime {runtime} --flags {words}"
    if flags and keys:
        return (
            f"put keys into {place}, or flags into the server's command, then:"
            f" {audit_file}, with --flags for flags"
        )
    if keys:
        return f"put it into {place}, then: {audit_file}"
    return f"{audit_file} --flags, with the flags in quotes" if flags else audit_file


def check(
    target: Annotated[
        str, Argument(metavar="TARGET", help="module:factory, folder or arrays.")
    ],
    config: Annotated[
        str, Option(metavar="FILE", help="config.json that it should follow.")
    ] = "",
    length: Length = None,
    dtype: Annotated[
        str, Option(metavar="NAME", help="float32, bfloat16, float16.")
    ] = "float32",
    tolerance: Annotated[
        float, Option(metavar="X", help="Largest phase error, in rad.")
    ] = 0.01,
    layer_type: Annotated[
        str, Option(metavar="NAME", help="Such as full_attention or indexer.")
    ] = "",
    json: Json = False,
) -> int:
    """Compare rotary code with its configuration, and name the first stage that is
    wrong.

    A factory is called without arguments and returns a function: of positions, which
    gives cos and sin, or of vectors and positions, which gives the rotated vectors; or
    both, if the second takes what the first makes. Parameters are known by name (x, q,
    k, positions, offset, seq_len, cos, sin), else by trying. Importing its module runs
    its code. A folder runs none: transformers' own class is built from config.json.

    Cannot show: the behaviour of a kernel on another device.
    """
    from ropelab.conformance.check import check as check_target
    from ropelab.show.terminal import Delayed, progress_here

    seen = tokens(length)
    # Code that builds its tables at every call takes a minute at a million tokens.
    with Delayed(progress_here())(f"checking {target}"):
        done = check_target(
            target,
            config=config,
            length=seen,
            dtype=dtype,
            tolerance=tolerance,
            layer_type=layer_type,
        )
    if json:
        about = {
            name: getattr(done, name) for name in ("answer", "wrong", "fix", "called")
        }
        about["target"] = target
        print_document({"experiment": "check", **about, "tables": done.rows})
    else:
        from ropelab.show.terminal import show_paragraph, show_places

        show_paragraph(f"{target}: {done.answer}")
        if done.called:
            show_paragraph(f"called as {done.called}", indent=4, hanging=8)
        if done.fix:
            show_paragraph(f"fix: {done.fix}", indent=4, hanging=5)
        again = ["ropelab", "check", target]
        if config:
            again += ["--config", config]
        if layer_type:
            again += ["--layer-type", layer_type]
        audited = ["ropelab", "audit", config or target]
        # arrays alone have nothing to audit
        if done.wrong or config or Path(target).is_dir():
            show_places({"next": shlex.join(again if done.wrong else audited)})
    return FOUND if done.wrong else 0


def vectors(
    config: Annotated[str, Option(metavar="FILE", help="config.json or model folder.")],
    out: Annotated[str, Option(metavar="DIR", help="Folder to write to.")],
    length: Length = None,
    prompt: Annotated[
        str, Option(metavar="TEXT", help="As 'text 5, image 8x12, text 3'.")
    ] = "",
    json: Json = False,
) -> int:
    """Write what an engine in any language must compute: tables, rotated queries and
    keys.

    DIR gets them as .npz, .safetensors and JSON with hexadecimal floats, bounds on the
    errors of honest codes, the results of the commonest mistakes, and a README. ropelab
    check then reads what the engine computed. Layer types that rotate differently have
    a folder each, as an encoder of images has. Of a model of images and text, DIR has
    the position ids of a prompt, too: of the usual one, or of --prompt.
    """
    from ropelab.conformance.vectors import vectors as write_vectors
    from ropelab.show.terminal import Delayed, progress_here

    with Delayed(progress_here())(f"writing vectors into {out}"):
        done = write_vectors(config, out, length=tokens(length), prompt=prompt)
    if json:
        print_document({"experiment": "vectors", "tables": done.rows})
        return 0
    from ropelab.show import terminal

    for row in done.rows["layers"]:
        kind = f"{row['layer_type']} layers: {row['method']}, base {row['base']:g}"
        terminal.show_paragraph(
            f"{kind}, {row['rotary_dim']} of {row['head_dim']} features, logits x "
            f"{row['logit_multiplier']:.6g}, at {row['length']} tokens"
        )
        mine = f"ropelab check {shlex.quote(row['folder'] + '/mine.npz')}"
        terminal.show_places({"read": f"{row['folder']}/README.md", "next": mine})
    return 0


def doctor(
    model: Annotated[
        str, Argument(metavar="MODEL", help="Folder, Hub id, or module:factory.")
    ],
    dtype: Annotated[
        str, Option(metavar="NAME", help="Number format of a folder.")
    ] = "auto",
    device: Annotated[str, Option(metavar="NAME", help="cpu or cuda.")] = "cpu",
    trials: Annotated[
        bool, Option("--trials", help="Show every trial of each law.")
    ] = False,
    compiled: Annotated[
        bool, Option("--compile", help="Ask with torch.compile too.")
    ] = False,
    json: Json = False,
) -> int:
    """Ask a model's own code whether positions are right: padding, packing, cache,
    rotation.

    MODEL is a folder as in evaluate; without weights it is given small random ones,
    since laws are about code. Importing the module of a factory runs its code: it
    returns a model of transformers, or a callable from token ids, positions and a mask
    [rows, queries, keys] to logits. Each law is asked in the model's number format, in
    float32 and in float64, to tell rounding from defects.

    Cannot show: the quality of a model's text, or laws beyond the tokens that are read.
    """
    from ropelab.conformance.laws.doctor import doctor as examined
    from ropelab.show.terminal import Delayed, progress_here

    known("--dtype", dtype, ("auto", "float32", "bfloat16", "float16"))
    known("--device", device, ("cpu", "cuda"))
    waiting = Delayed(progress_here())
    # The user's code may print.
    with waiting(f"examining {model}"), redirect_stdout(sys.stderr):
        done = examined(model, cast("ModelDtype", dtype), device, compiled)
    if json:
        about = {"model": done.name, "answer": done.answer, "broken": done.broken}
        cost = {"cpu_s": done.cpu_s, "peak_bytes": done.peak_bytes}
        print_document({"experiment": "doctor", **about, **cost, "tables": done.rows})
    else:
        show_diagnosis(done, trials)
    return FOUND if done.broken else 0


def show_diagnosis(done: "Diagnosis", trials: bool) -> None:
    """Print the verdict, a line per law or trial, and what is known about each
    violation.
    """
    import pandas as pd

    from ropelab.runs.estimate import size
    from ropelab.show import terminal

    rows = done.rows["trials" if trials else "laws"]
    columns = ("law", "verdict", "size", "float64", "position", "layer", "trial")
    shown = pd.DataFrame(
        [{name: row[name] for name in columns} for row in rows], dtype=object
    )
    for name in ("size", "float64"):
        shown[name] = [f"{value:.1e}" if value else None for value in shown[name]]
    terminal.show_answer(done.answer, shown)
    right = ("holds", "rounding only")
    for law in ("rotation", "eviction"):
        said = []
        for row in done.rows["trials"]:
            is_right = row["law"] == law and row["verdict"] in right
            if is_right and row["says"] and row["says"] not in said:
                said.append(row["says"])
        if said:
            print_line("")
            terminal.show_paragraph(f"{law}: {'; '.join(said)}", hanging=4)
    broken = [row for row in done.rows["trials"] if row["verdict"] == "broken"]
    told = {row["says"]: row for row in reversed(broken)}.values()
    for row in reversed(told):
        print_line("")
        kind = f" ({row['kind']})" if row["kind"] else ""
        words = f"{row['law']}, {row['trial']}{kind}: {row['says']}"
        terminal.show_paragraph(words, hanging=4)
        if row["fix"]:
            terminal.show_paragraph(f"fix: {row['fix']}", indent=4, hanging=5)
    unasked = [row for row in rows if row["verdict"] == "cannot be asked"]
    for says in dict.fromkeys(row["says"] for row in unasked):
        print_line("")
        names = dict.fromkeys(row["law"] for row in unasked if row["says"] == says)
        terminal.show_paragraph(
            f"{', '.join(names)} cannot be asked: {says}", hanging=4
        )
    took = (
        f"{done.cpu_s:.1f} s of processor time, {size(done.peak_bytes)} of memory at"
        " most"
    )
    terminal.show_places({"took": took})


def tokens(text: str | None, flag: str = "--length") -> int | None:
    """Return a length as people type it."""
    if text is None:
        return None
    from ropelab.readers.flags import read_option

    value = read_option(flag, text)
    if not isinstance(value, int) or not 2 <= value <= 2**40:
        raise InputError(
            f"{flag} must be a whole number of tokens from 2 to 2^40, got '{text}'"
        )
    return value
