"""The commands check and vectors: code compared with its configuration."""

import shlex
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ropelab.cli.flags import Json
from ropelab.cli.lengths import Length, read_tokens
from ropelab.cli.outcome import STATUS_OF_FINDINGS, print_document

# The default of --tolerance, in radians.
LARGEST_PHASE_ERROR = 0.01


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
    ] = LARGEST_PHASE_ERROR,
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
    from ropelab.show.terminal import DelayedProgress, choose_progress

    tokens = read_tokens(length)
    # Code that builds its tables at every call takes a minute at a million tokens.
    with DelayedProgress(choose_progress())(f"checking {target}"):
        outcome = check_target(
            target,
            config=config,
            length=tokens,
            dtype=dtype,
            tolerance=tolerance,
            layer_type=layer_type,
        )
    if json:
        document = {
            "experiment": "check",
            "answer": outcome.answer,
            "wrong": outcome.wrong,
            "fix": outcome.fix,
            "called": outcome.called,
            "target": target,
            "tables": outcome.rows,
        }
        print_document(document)
    else:
        from ropelab.show.terminal import show_paragraph, show_places

        show_paragraph(f"{target}: {outcome.answer}")
        if outcome.called:
            show_paragraph(f"called as {outcome.called}", indent=4, hanging=8)
        if outcome.fix:
            show_paragraph(f"fix: {outcome.fix}", indent=4, hanging=5)
        next_command = ["ropelab", "check", target]
        if config:
            next_command += ["--config", config]
        if layer_type:
            next_command += ["--layer-type", layer_type]
        # The verdict depends on these options, so that the command repeats them.
        if tokens is not None:
            next_command += ["--length", str(tokens)]
        if dtype != "float32":
            next_command += ["--dtype", dtype]
        if tolerance != LARGEST_PHASE_ERROR:
            next_command += ["--tolerance", f"{tolerance}"]
        if outcome.wrong:
            show_places({"next": shlex.join(next_command)})
        elif config or Path(target).is_dir():
            # If there is a configuration, audit can read it. A file of arrays that is not
            # in a folder of `ropelab vectors` has none.
            audit_command = ["ropelab", "audit", config or target]
            show_places({"next": shlex.join(audit_command)})
    return STATUS_OF_FINDINGS if outcome.wrong else 0


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
    from ropelab.show import terminal
    from ropelab.show.terminal import DelayedProgress, choose_progress

    with DelayedProgress(choose_progress())(f"writing vectors into {out}"):
        outcome = write_vectors(config, out, length=read_tokens(length), prompt=prompt)
    if json:
        print_document({"experiment": "vectors", "tables": outcome.rows})
        return 0

    for row in outcome.rows["layers"]:
        title = f"{row['layer_type']} layers: {row['method']}, base {row['base']:g}"
        terminal.show_paragraph(
            f"{title}, {row['rotary_dim']} of {row['head_dim']} features, logits x "
            f"{row['logit_multiplier']:.6g}, at {row['length']} tokens"
        )
        # The user puts what the engine computed into mine.npz.
        check_command = f"ropelab check {shlex.quote(row['folder'] + '/mine.npz')}"
        terminal.show_places(
            {"read": f"{row['folder']}/README.md", "next": check_command}
        )
    return 0
