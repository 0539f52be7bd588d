"""Ask a model every law of positions, and report the verdicts.

A law is tested by several trials, and judged by the worst trial.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import psutil
import torch

from ropelab.conformance.laws.axes import MROPE
from ropelab.conformance.laws.batch import PACKING, PADDING, SHIFT
from ropelab.conformance.laws.cached import CACHE
from ropelab.conformance.laws.eviction import EVICTION
from ropelab.conformance.laws.kept import disable_dropout
from ropelab.conformance.laws.law import (
    TOKENS,
    Case,
    Law,
    Trial,
    ask_trial,
    check_readable,
    explain_violation,
    make_row,
)
from ropelab.conformance.laws.model import find_subject, refuse_options_of_folder
from ropelab.conformance.laws.moved import COMPILED, KSHIFT, STATE
from ropelab.conformance.laws.rotation import ROTATION
from ropelab.conformance.laws.subject import Subject, make_subject
from ropelab.models.released.loading import ModelDtype
from ropelab.runs.arguments import check_texts, read_path
from ropelab.runs.errors import InputError
from ropelab.runs.rows import Result, Rows

LAWS = (SHIFT, PADDING, PACKING, CACHE, KSHIFT, EVICTION, ROTATION, MROPE, STATE)
# Verdicts from the worst to the best.
VERDICT_ORDER = ("broken", "rounding only", "holds", "cannot be asked")


@dataclass(frozen=True)
class Diagnosis(Result):
    """Verdicts by law and by trial, and what was recovered of each layer's rotation."""

    name: str
    answer: str
    # True if a law is broken.
    broken: bool
    rows: Mapping[str, Rows]
    # The processor time of the examination.
    cpu_s: float
    # The most memory that the process has held so far.
    peak_bytes: int


def doctor(
    model: Any,
    dtype: ModelDtype = "auto",
    device: str = "cpu",
    compiled: bool = False,
) -> Diagnosis:
    """Ask a model's own code whether positions are right in it.

    Args:
        model: a folder, an id in the Hub's local cache, `package.module:factory`, a model of
            transformers, or a callable from token ids, positions and a mask to logits.
        dtype: the number format of a folder's model, beside float32 and float64. Code
            that makes its own model has a format of its own.
        device: where a folder's model computes.
        compiled: ask with torch.compile too, which takes a minute.
    """
    start = time.process_time()
    check_texts(dtype=dtype, device=device)
    if isinstance(model, str | PathLike):
        subject = find_subject(read_path("model", model), dtype, device)
    else:
        refuse_options_of_folder(dtype, device)
        try:
            subject = make_subject(model)
        except TypeError as error:
            raise InputError(f"the model is {error}") from None

    laws_to_ask = [*LAWS]
    if compiled:
        with_compiled = STATE._replace(trials=(*STATE.trials, COMPILED))
        laws_to_ask[laws_to_ask.index(STATE)] = with_compiled
    trials, layers = examine(subject, laws_to_ask)
    for row in trials:
        if row["verdict"] == "broken":
            row |= explain_violation(row["law"], row["trial"], subject.model_kinds)

    laws = []
    for law in LAWS:
        rows_of_law = [row for row in trials if row["law"] == law.name]
        laws.append(find_worst(rows_of_law))
    return Diagnosis(
        name=subject.name,
        answer=make_answer(subject, laws),
        broken=any(row["verdict"] == "broken" for row in laws),
        rows={"laws": laws, "trials": trials, "layers": layers},
        cpu_s=time.process_time() - start,
        peak_bytes=measure_peak(),
    )


def examine(
    subject: Subject,
    laws: Sequence[Law] = LAWS,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return a row per trial of each law, and a row per layer that rotates."""
    # float32 comes first, since trials may change what a faulty model remembers.
    dtypes = [torch.float32]
    if subject.convertible:
        dtypes += [subject.dtype, torch.float64]

    answers_by_trial: dict[tuple[Law, Trial], dict[str, Any]] = {}
    layers: list[dict[str, Any]] = []
    for dtype in dict.fromkeys(dtypes):
        # An autocast of other code would round logits to 8 or 11 bits, which looks like
        # broken laws.
        with (
            torch.autocast(subject.device.type, enabled=False),
            disable_dropout(subject.code),
            subject.computing(dtype),
        ):
            case = Case(subject, dtype)
            if not answers_by_trial:
                check_readable(case)
            for law in laws:
                for trial in law.trials:
                    if trial.once and dtype != torch.float32:
                        continue
                    answers = answers_by_trial.setdefault((law, trial), {})
                    answers[name_dtype(dtype)] = ask_trial(trial, case)
            layers = layers or case.layers

    own_dtype = name_dtype(subject.dtype)
    rows = []
    for (law, trial), answers in answers_by_trial.items():
        rows.append(make_row(law, trial, own_dtype, answers))
    return rows, layers


def measure_peak() -> int:
    """Return the most memory that this process has held so far."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource

    # The unit is bytes on macOS, and KiB elsewhere.
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def name_dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def find_worst(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the row with the worst verdict. If several rows have it, return the row
    with the largest difference.

    Trials that only measure a price do not judge their law.
    """

    def rank(row: dict[str, Any]) -> tuple[int, float]:
        size = row["size"] or 0.0
        return VERDICT_ORDER.index(row["verdict"]), -size

    judged = [row for row in rows if row["verdict"] != "cost"]
    return min(judged, key=rank)


def make_answer(subject: Subject, laws: Sequence[Mapping[str, Any]]) -> str:
    """Return the verdict in one sentence, with the length and the number format."""
    kept_laws = 0
    largest_rounding = 0.0
    broken = []
    for row in laws:
        if row["verdict"] in ("holds", "rounding only"):
            kept_laws += 1
        # A size of frequencies, and not of logits, has no number for float32.
        if row["verdict"] == "rounding only" and row["float32"]:
            largest_rounding = max(largest_rounding, row["size"])
        if row["verdict"] == "broken":
            broken.append(f"{row['law']} ({row['trial']})")

    scope = f"{TOKENS} tokens, {name_dtype(subject.dtype)}"
    if broken:
        return (
            f"{subject.name} breaks {' and '.join(broken)}; it keeps {kept_laws} of"
            f" {len(laws)} laws ({scope})."
        )
    remark = ""
    if largest_rounding:
        remark = f"; rounding reaches {largest_rounding:.1e} of the spread of logits"
    return (
        f"{subject.name} keeps all laws that it can be asked,"
        f" {kept_laws} of {len(laws)} ({scope}){remark}."
    )
