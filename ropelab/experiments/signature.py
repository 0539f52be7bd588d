"""The Python face of an experiment: a signature and a text for `help`, from its config."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from ropelab.experiments import Experiment

KEPT = {
    "results": (str | Path | None, None, "folder in which the run is kept; None: in memory only"),
    "force": (bool, False, "run again what is finished"),
    "limits": (bool, True, "refuse work of more than a day, or of more memory than there is"),
}


def signature_of(experiment: Experiment) -> inspect.Signature:
    """Return the fields of the config, then the options of every run; all by keyword."""
    fields = experiment.config.model_fields.items()
    parameters = [
        _parameter(
            name,
            field.annotation,
            inspect.Parameter.empty if field.is_required() else field.default,
        )
        for name, field in fields
    ]
    parameters += [_parameter(name, kind, default) for name, (kind, default, _) in KEPT.items()]
    return inspect.Signature(parameters, return_annotation="Run")


def _parameter(name: str, kind: Any, default: Any) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=kind)


def text_of(experiment: Experiment) -> str:
    """Return the docstring: question, what it cannot show, and every parameter."""
    return "\n".join(_lines(experiment))


def _lines(experiment: Experiment) -> Iterator[str]:
    yield f"{experiment.question}"
    yield ""
    yield f"Cannot show: {experiment.cannot_show}"
    yield ""
    yield 'Numbers may be text as on the command line (`"128k"`); a list may be one value.'
    yield ""
    yield "Args:"
    for name, field in experiment.config.model_fields.items():
        yield f"    {name}: {_described(field)}"
    for name, (_, _, text) in KEPT.items():
        yield f"    {name}: {text}"
    yield ""
    yield "Returns:"
    yield "    The run: `tables` (DataFrames by name), `answer`, `summary()`, `figures()`."
    yield ""
    yield "Raises:"
    yield "    ropelab.runs.errors.InputError: a value that is not allowed."


def _described(field: FieldInfo) -> str:
    return field.description or "see the command's --help"
