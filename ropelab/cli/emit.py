"""The command emit: the configuration or flags that give a scaling in a runtime.

A runtime is software that runs models, such as vLLM. A target is a runtime, or a version
of one, for which texts are written.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ropelab.cli.flags import Json
from ropelab.cli.lengths import read_tokens
from ropelab.cli.outcome import FOUND, print_document, print_line
from ropelab.runs.errors import InputError, cut_text, say

if TYPE_CHECKING:
    from ropelab.audit.emit import Emission
    from ropelab.math.scaling.plan import Scaling


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
    from ropelab.audit.emit import emit as emit_texts

    if factor or not context:
        raise InputError(ask_for_context(factor, from_, model, method, target))
    length = read_tokens(context, "--context") or 0
    done = emit_texts(from_, context=length, model=model, method=method, target=target)
    if json:
        label = done.wanted.scaling.label
        about = {"method": label, "note": done.note, "replaced": done.replaced}
        print_document({"experiment": "emit", **about, **done.rows})
    else:
        for emission in done.targets:
            if len(done.targets) > 1:
                print_line(f"# {emission.target}")
            print_line(emission.text)
            for remark in (*emission.lost, *emission.remarks):
                say(f"ropelab: {emission.target}: {remark}")

        for note in (done.note, done.replaced):
            if note:
                say(f"ropelab: {note}")
        changes = any(emission.changes for emission in done.targets)
        observation = describe_observation(done.wanted.scaling)
        if changes and observation:
            say(f"observed {observation}")
        say(f"next  {choose_next(from_ or model, done.targets)}")

    # A target may not be able to do all that is wanted.
    is_lossy = any(emission.lost for emission in done.targets)
    return FOUND if is_lossy or done.replaced else 0


def ask_for_context(
    factor: str, from_: str, model: str, method: str, target: str
) -> str:
    """Return what to type if emit was given a factor, or no length."""
    from ropelab.audit.emit import read_trained_length
    from ropelab.readers.flags import read_option
    from ropelab.readers.spec import LONGEST_CONTEXT

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

    times = read_option("--factor", factor)
    if not (from_ or model):
        return "emit takes a length, not a factor; type: ropelab emit --help"

    trained = read_trained_length(from_, model)
    if not 2 / trained <= times <= LONGEST_CONTEXT / trained:
        return (
            f"emit takes a length, and {cut_text(factor)} times the trained {trained}"
            " tokens are none; type: ropelab emit --help"
        )
    length = round(times * trained)
    return (
        f"emit takes a length, and {times:g} times the trained {trained} tokens are"
        f" {length}; type: {shlex.join(command)} --context {length}"
    )


def describe_observation(scaling: "Scaling") -> str:
    """Say what small trained models did under a scaling; empty if the scaling was not
    tried.
    """
    from ropelab.cli.observed import describe_scaling

    factor = getattr(scaling, "factor", 1.0)
    return describe_scaling(scaling.name, factor)


def choose_next(source: str, emissions: "Sequence[Emission]") -> str:
    """Say where the texts go, and the command that audits a file with them."""
    from ropelab.audit.targets import TARGETS

    is_file = Path(source).exists()
    file = shlex.quote(source) if is_file else "config.json"
    place = file if is_file else "the model's config.json"
    # Texts are flags of a server's command, or keys of config.json in braces.
    flags = []
    keys = []
    for emission in emissions:
        if emission.text.startswith("-"):
            flags.append(emission)
        elif emission.text.startswith("{") and emission.changes:
            keys.append(emission)
    audit_file = f"ropelab audit {file}"
    if len(emissions) == 1 and flags:
        (emission,) = flags
        runtime, *_ = TARGETS[emission.target].runtimes
        words = shlex.quote(emission.text)
        return f"{audit_file} --runtime {runtime} --flags {words}"
    if flags and keys:
        return (
            f"put keys into {place}, or flags into the server's command, then:"
            f" {audit_file}, with --flags for flags"
        )
    if keys:
        return f"put it into {place}, then: {audit_file}"
    if flags:
        return f"{audit_file} --flags, with the flags in quotes"
    return audit_file
