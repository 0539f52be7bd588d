"""The command doctor: does the code of a model treat positions correctly?

A law is a property that correct code has, such as that padding changes no logits. A trial
is one test of a law. Each row of results has a verdict: holds, rounding only, broken, or
cannot be asked.
"""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated, Any, cast

from typer import Argument, Option

from ropelab.cli.flags import Json
from ropelab.cli.outcome import STATUS_OF_FINDINGS, print_document, print_line
from ropelab.runs.errors import check_known
from ropelab.runs.rows import Rows

if TYPE_CHECKING:
    import pandas as pd

    from ropelab.conformance.laws.doctor import Diagnosis
    from ropelab.models.released.loading import ModelDtype


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
    from ropelab.conformance.laws.doctor import doctor as examine_model
    from ropelab.show.terminal import DelayedProgress, choose_progress

    check_known("--dtype", dtype, ("auto", "float32", "bfloat16", "float16"))
    check_known("--device", device, ("cpu", "cuda"))
    progress = DelayedProgress(choose_progress())
    # The user's code may print, but stdout is for the answer.
    with progress(f"examining {model}"), redirect_stdout(sys.stderr):
        diagnosis = examine_model(model, cast("ModelDtype", dtype), device, compiled)
    if json:
        document = {
            "experiment": "doctor",
            "model": diagnosis.name,
            "answer": diagnosis.answer,
            "broken": diagnosis.broken,
            "cpu_s": diagnosis.cpu_s,
            "peak_bytes": diagnosis.peak_bytes,
            "tables": diagnosis.rows,
        }
        print_document(document)
    else:
        show_diagnosis(diagnosis, trials)
    return STATUS_OF_FINDINGS if diagnosis.broken else 0


def show_diagnosis(diagnosis: "Diagnosis", shows_trials: bool) -> None:
    """Print the verdict, a line per law or trial, and what is known about each
    violation.
    """
    from ropelab.runs.estimate import write_size
    from ropelab.show import terminal

    trials = diagnosis.rows["trials"]
    shown_rows = trials if shows_trials else diagnosis.rows["laws"]
    terminal.show_answer(diagnosis.answer, shorten_rows(shown_rows))
    show_results_that_hold(trials)
    show_violations(trials)
    show_unasked(shown_rows)
    cost = (
        f"{diagnosis.cpu_s:.1f} s of processor time,"
        f" {write_size(diagnosis.peak_bytes)} of memory at most"
    )
    terminal.show_places({"took": cost})


def shorten_rows(rows: Rows) -> "pd.DataFrame":
    """Return the table of laws or trials, with only the columns that fit on a line."""
    import pandas as pd

    columns = ("law", "verdict", "size", "float64", "position", "layer", "trial")
    short_rows = []
    for row in rows:
        short_row = {name: row[name] for name in columns}
        for name in ("size", "float64"):
            value = row[name]
            # The cell stays blank if the difference is 0 or was not measured.
            short_row[name] = f"{value:.1e}" if value else None
        short_rows.append(short_row)
    return pd.DataFrame(short_rows, dtype=object)


def show_results_that_hold(trials: Rows) -> None:
    """Print the sentences of trials that hold, for the laws rotation and eviction. Their
    sentences say what was found: for example, which layers rotate.
    """
    from ropelab.show import terminal

    for law in ("rotation", "eviction"):
        sentences = []
        for row in trials:
            holds = row["verdict"] in ("holds", "rounding only")
            sentence = row["says"]
            if row["law"] != law or not holds:
                continue
            if sentence and sentence not in sentences:
                sentences.append(sentence)
        if sentences:
            print_line("")
            terminal.show_paragraph(f"{law}: {'; '.join(sentences)}", hanging=4)


def show_violations(trials: Rows) -> None:
    """Print each violation once, with the name of the first trial that found it."""
    from ropelab.show import terminal

    first_trials: dict[str, Mapping[str, Any]] = {}
    for row in trials:
        if row["verdict"] == "broken":
            # If several trials have the same sentence, it is printed where the last of
            # these trials comes, with the name of the first.
            first_trial = first_trials.pop(row["says"], row)
            first_trials[row["says"]] = first_trial

    for row in first_trials.values():
        print_line("")
        kind = f" ({row['kind']})" if row["kind"] else ""
        words = f"{row['law']}, {row['trial']}{kind}: {row['says']}"
        terminal.show_paragraph(words, hanging=4)
        if row["fix"]:
            terminal.show_paragraph(f"fix: {row['fix']}", indent=4, hanging=5)


def show_unasked(rows: Rows) -> None:
    """Print why some laws cannot be asked: each reason, with the laws it holds for."""
    from ropelab.show import terminal

    laws_by_reason: dict[str, list[str]] = {}
    for row in rows:
        if row["verdict"] == "cannot be asked":
            laws = laws_by_reason.setdefault(row["says"], [])
            if row["law"] not in laws:
                laws.append(row["law"])

    for reason, laws in laws_by_reason.items():
        print_line("")
        words = f"{', '.join(laws)} cannot be asked: {reason}"
        terminal.show_paragraph(words, hanging=4)
