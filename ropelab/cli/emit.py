"""The command emit: the configuration or flags that give a scaling in a runtime.

A runtime is software that runs models, such as vLLM. A target is a runtime, or a version
of a runtime, for which the texts to paste are written.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from ropelab.cli.flags import Json
from ropelab.cli.lengths import read_tokens
from ropelab.cli.outcome import STATUS_OF_FINDINGS, print_document, print_line
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
    outcome = emit_texts(
        from_, context=length, model=model, method=method, target=target
    )
    emissions = outcome.targets
    if json:
        label = outcome.rotation.scaling.label
        about = {"method": label, "note": outcome.note, "replaced": outcome.replaced}
        print_document({"experiment": "emit", **about, **outcome.rows})
    else:
        for emission in emissions:
            if len(emissions) > 1:
                print_line(f"# {emission.target}")
            print_line(emission.text)
            for remark in (*emission.lost, *emission.remarks):
                # A remark on the runtime of that name names it already.
                lead = f"{emission.target}: "
                say(f"ropelab: {lead}{remark.removeprefix(lead)}")

        for note in (outcome.note, outcome.replaced):
            if note:
                say(f"ropelab: {note}")
        has_changes = any(emission.changes for emission in emissions)
        observation = describe_observation(outcome.rotation.scaling)
        if has_changes and observation:
            say(f"observed {observation}")
        say(f"next  {choose_next(from_ or model, emissions)}")

    # Some targets cannot do everything that the wanted scaling asks for.
    is_lossy = any(emission.lost for emission in emissions)
    return STATUS_OF_FINDINGS if is_lossy or outcome.replaced else 0


def ask_for_context(
    factor: str, from_: str, model: str, method: str, target: str
) -> str:
    """Return the message for a call of emit with a factor or without a length, with the
    command to type instead.
    """
    from ropelab.audit.emit import read_trained_length
    from ropelab.readers.flags import read_option
    from ropelab.readers.spec import LONGEST_CONTEXT

    command = ["ropelab", "emit"]
    given_flags = {"--from": from_, "--model": model, "--method": method}
    for flag, value in given_flags.items():
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
    # A context has from 2 to LONGEST_CONTEXT tokens.
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
    tried, or if it scales nothing.
    """
    from ropelab.cli.observed import describe_scaling
    from ropelab.math.scaling import DynamicNtk

    factor = getattr(scaling, "factor", 1.0)
    # Dynamic scaling by 1 scales what is longer than the trained length.
    if factor == 1 and not isinstance(scaling, DynamicNtk):
        return ""
    return describe_scaling(scaling.name, factor)


def choose_next(source: str, emissions: "Sequence[Emission]") -> str:
    """Say where the user puts the texts, and with which command the changed file is
    audited.
    """
    from ropelab.audit.targets import TARGETS

    is_file = Path(source).exists()
    file = shlex.quote(source) if is_file else "config.json"
    place = file if is_file else "the model's config.json"
    # A text has the flags of a server's command, or keys of config.json in braces.
    with_flags = []
    with_keys = []
    for emission in emissions:
        if emission.text.startswith("-"):
            with_flags.append(emission)
        elif emission.text.startswith("{") and emission.changes:
            with_keys.append(emission)
    audit_command = f"ropelab audit {file}"
    if len(emissions) == 1 and with_flags:
        (emission,) = with_flags
        runtime, *_ = TARGETS[emission.target].runtimes
        words = shlex.quote(emission.text)
        return f"{audit_command} --runtime {runtime} --flags {words}"
    if with_flags and with_keys:
        return (
            f"put keys into {place}, or flags into the server's command, then:"
            f" {audit_command}, with --flags for flags"
        )
    if with_keys:
        return f"put it into {place}, then: {audit_command}"
    if with_flags:
        return f"{audit_command} --flags, with the flags in quotes"
    return audit_command
