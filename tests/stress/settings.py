"""Settings of NumPy and torch that other code of a process has made, and models of
others: numbers and verdicts are the same, and the models stay as they were.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ropelab
from ropelab.audit.audited import audit
from tests.models.released.tiny import untouched
from tests.stress.arrays import MODEL
from tests.stress.promise import Trial

FEW = 12
"""Of the trials each one of so many is in the small part."""


@contextlib.contextmanager
def use_default_dtype(dtype: torch.dtype) -> Iterator[None]:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


SETTINGS: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
    "NumPy raises": lambda: np.errstate(all="raise"),
    "NumPy prints as 1.13": lambda: np.printoptions(legacy="1.13"),
    "NumPy prints little": lambda: np.printoptions(precision=1, threshold=2),
    "float64": lambda: use_default_dtype(torch.float64),
    "bfloat16": lambda: use_default_dtype(torch.bfloat16),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "inference": torch.inference_mode,
    "no gradients": torch.no_grad,
    "device meta": lambda: torch.device("meta"),
}


def list_tables(run: Any) -> str:
    return str({name: table.to_dict("list") for name, table in run.tables.items()})


def ask_doctor(model: Any) -> str:
    """Return the verdicts; an error tells of a model that has changed."""
    before = [(p.data_ptr(), p.dtype, p.tolist()) for p in model.parameters()]
    config = model.config.to_dict()
    table = ropelab.doctor(model).tables["laws"]
    after = [(p.data_ptr(), p.dtype, p.tolist()) for p in model.parameters()]
    if before != after or config != model.config.to_dict():
        raise ValueError("the model has changed")
    return str(table[["law", "verdict"]].to_dict("list"))


def make_eager() -> Any:
    model = untouched("llama")
    model.set_attn_implementation("eager")
    return model


QUESTIONS: dict[str, Callable[[], str]] = {
    "base": lambda: list_tables(ropelab.base(context=[256], head_dim=16)),
    "freqs": lambda: list_tables(ropelab.freqs(head_dim=16)),
    "precision": lambda: list_tables(
        ropelab.precision(length=512, draws=2, samples=4, head_dim=16)
    ),
    "audit": lambda: audit("config.json").answer,
    "emit": lambda: str(ropelab.emit("config.json", context=65536)),
    "check": lambda: ropelab.check(".").answer,
    "doctor": lambda: ask_doctor(untouched("llama")),
    "doctor of float64": lambda: ask_doctor(untouched("llama").double()),
    "doctor of eager attention": lambda: ask_doctor(make_eager()),
}


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Each question under each setting, beside the answer without it."""
    with contextlib.chdir(folder):
        Path("config.json").write_text(json.dumps(MODEL))
        pairs = [(q, s) for q in QUESTIONS for s in SETTINGS if is_asked(q, s)]
        expected: dict[str, str] = {}
        for question, setting in pairs[:: FEW if few else 1]:
            ask = QUESTIONS[question]
            problem = ""
            try:
                if question not in expected:
                    expected[question] = ask()
                with SETTINGS[setting]():
                    if ask() != expected[question]:
                        problem = "another answer"
            except Exception as failure:
                problem = f"{type(failure).__name__}: {failure}"
            yield Trial(f"{question}, {setting}", problem)


def is_asked(question: str, setting: str) -> bool:
    """Return False where the setting decides what model is built."""
    decides = ("device meta", "float64", "bfloat16", "inference")
    return not question.startswith("doctor") or setting not in decides
