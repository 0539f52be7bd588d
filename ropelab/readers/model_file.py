"""Read a configuration file in place of a known model, as transformers reads it."""

from pathlib import Path

from ropelab.math.methods import parse_scaling
from ropelab.math.models import KnownModel
from ropelab.readers import registry
from ropelab.readers.document import load
from ropelab.runs.errors import InputError

SUFFIXES = (".json", ".gguf")


def is_model_file(name: str) -> bool:
    """Return True for a path of a file or model folder, which may be missing."""
    return name.endswith(SUFFIXES) or Path(name).exists()


def read_model(name: str) -> KnownModel:
    """Return the model of a file.

    InputError: it has no rotation, or one that no method here computes.
    """
    document = load(name)
    if document.kind == "gguf":
        reading = registry.read(registry.RUNTIMES["llama.cpp"], document.config)
    else:
        reading = registry.read_by_reference(name, document.config)
    spec = reading.main_spec
    if spec is None:
        raise InputError(f"{name}: {reading.explanation}")

    method = spec.scaling.label
    try:
        is_method = parse_scaling(method) == spec.scaling
    except InputError:
        is_method = False
    if not is_method:
        advice = "give --base, --head-dim and --method in its place"
        raise InputError(f"{name}: no method by name is its {spec.method}; {advice}")

    partial = spec.rotary_dim != spec.head_dim
    return KnownModel(
        name=name,
        base=spec.base,
        head_dim=spec.head_dim,
        rotary_dim=spec.rotary_dim if partial else None,
        trained_len=spec.trained_len,
        context_len=spec.claimed_len,
        method=method,
        source=name,
    )
