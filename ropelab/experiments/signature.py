"""The Python face of an experiment: a signature and a text for `help`, from its config."""

from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from ropelab.experiments import Experiment

KEPT = {
    "results": (str | Path | None, None, "folder in which the run is kept; None: in memory only"),
    "force": (bool, False, "run again what is finished"),
    "limits": (bool, True, "refuse work of more than a day, or of more memory than there is"),
}
TEXT = """{question}

Cannot show: {cannot_show}

Numbers may be text as on the command line (`"128k"`); a list may be one value.

Args:
    {parameters}

Returns:
    The run: `tables` (DataFrames by name), `answer`, `summary()`, `figures()`.

Raises:
    ropelab.runs.errors.InputError: a value that is not allowed.
"""


def signature_of(experiment: Experiment) -> Signature:
    """Return the fields of the config, then the options of every run; all by keyword."""
    about: dict[str, tuple[Any, Any]] = {}
    for name, field in experiment.config.model_fields.items():
        default = Parameter.empty if field.is_required() else field.default
        about[name] = field.annotation, default
    about |= {name: (kind, default) for name, (kind, default, _) in KEPT.items()}
    parameters = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in about.items()
    ]
    return Signature(parameters, return_annotation="Run")


def text_of(experiment: Experiment) -> str:
    """Return the docstring: question, what it cannot show, and every parameter."""
    fields = experiment.config.model_fields.items()
    parameters = {name: field.description or "see the command's --help" for name, field in fields}
    parameters |= {name: text for name, (_, _, text) in KEPT.items()}
    return TEXT.format(
        question=experiment.question,
        cannot_show=experiment.cannot_show,
        parameters="\n    ".join(f"{name}: {text}" for name, text in parameters.items()),
    )
