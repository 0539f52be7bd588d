"""The wanted spec, from a file or a model by name, a context and a method."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ropelab.audit.runtimes import registry
from ropelab.audit.runtimes.document import load
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.audit.runtimes.trace import BLOCKS, language_part
from ropelab.errors import InputError
from ropelab.math.methods import parse_scaling
from ropelab.math.models import model_named
from ropelab.math.scaling import LongRope

ROTATING = frozenset(
    {
        *BLOCKS,
        "rope_theta",
        "max_position_embeddings",
        "original_max_position_embeddings",
        "partial_rotary_factor",
    }
)
"""Keys that an emission sets, so that the file's own are left out."""


@dataclass(frozen=True)
class Request:
    """A model (a file or a name, one of them), a context in tokens, a method."""

    file: str = ""
    model: str = ""
    context: int = 0
    method: str = ""


def wanted_spec(request: Request) -> tuple[RopeSpec, dict[str, Any]]:
    """The spec to emit, and the keys of the configuration that stay as they are.

    Raises:
        InputError: neither or both of file and model, a context below the trained length, or a
            method that does not exist.
    """
    if bool(request.file) == bool(request.model):
        raise InputError("give either --from FILE or --model NAME")
    spec, kept = from_file(request.file) if request.file else from_name(request.model)
    if request.context < spec.trained_len:
        raise InputError(
            f"--context {request.context} is below the trained length of {spec.trained_len} tokens"
        )
    return stretched(spec, request), kept


def stretched(spec: RopeSpec, request: Request) -> RopeSpec:
    """The spec at the wanted context: the method with factor = context / trained length."""
    factor = request.context / spec.trained_len
    method = request.method or ("yarn" if factor > 1 else "unscaled")
    scaling = parse_scaling(method, factor)
    attention = scaling.plan(spec.geometry, request.context).attention_factor
    if isinstance(scaling, LongRope):
        attention = scaling.attention(spec.trained_len)
    return replace(
        spec,
        scaling=scaling,
        attention_factor=attention,
        softmax_factor=1.0,
        claimed_len=request.context,
    )


def from_file(path: str) -> tuple[RopeSpec, dict[str, Any]]:
    """The unscaled geometry of a configuration, and its other keys."""
    document = load(path)
    if document.kind == "gguf":
        raise InputError("--from wants a config.json: a GGUF file is scaled by flags, see audit")
    reading = registry.read(registry.RUNTIMES[registry.REFERENCE], document.config)
    if reading.main is None:
        raise InputError(f"{path}: {reading.problem}")
    return reading.main, without_rotation(document.config)


def without_rotation(config: Mapping[str, Any]) -> dict[str, Any]:
    """The language model's keys without those that an emission sets."""
    _, text = language_part(config)
    return {name: value for name, value in text.items() if name not in ROTATING}


def from_name(name: str) -> tuple[RopeSpec, dict[str, Any]]:
    """A model by name, as a Llama of its sizes."""
    model = model_named(name)
    scaling = parse_scaling("unscaled")
    spec = RopeSpec(
        base=model.base,
        head_dim=model.head_dim,
        rotary_dim=model.rotated,
        scaling=scaling,
        trained_len=model.trained_len,
        claimed_len=model.promised,
    )
    kind = "llama" if model.rotated == model.head_dim else "phi"
    sizes = {"head_dim": model.head_dim, "hidden_size": model.head_dim, "num_attention_heads": 1}
    return spec, {"model_type": kind, **sizes}
