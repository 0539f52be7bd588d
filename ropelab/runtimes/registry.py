"""The runtimes by name, and reading one configuration with all of them."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ropelab.errors import InputError, unknown_name
from ropelab.runtimes import exllama, mlx, served, transformers4, transformers5
from ropelab.runtimes.spec import NotModelledError, Reading, RefusedError, Runtime
from ropelab.runtimes.trace import Trace
from ropelab.runtimes.transformers4 import Rules

_ROPE_UTILS = "src/transformers/modeling_rope_utils.py and the classes of the models"


def _v4(version: str, *rules: Any) -> Runtime:
    reader = partial(transformers4.read, rules=Rules(*rules))
    name = f"transformers-{version.rsplit('.', 1)[0]}"
    return Runtime(name, version, _ROPE_UTILS, "run", reader)


RUNTIMES: dict[str, Runtime] = {
    runtime.name: runtime
    for runtime in (
        Runtime("transformers-5", "5.23.0", _ROPE_UTILS, "run", transformers5.read),
        _v4("4.57.1", "factor", "switch"),
        _v4("4.55.4", "ratio", "switch"),
        _v4("4.51.3", "ratio", "switch", False),
        _v4("4.48.3", "maximum", "short", False, False),
        _v4("4.44.2", "maximum", "static", False, False),
        Runtime(
            "vllm",
            "0.33.0",
            "model_executor/layers/rotary_embedding, config/model.py",
            "run",
            served.read_vllm,
        ),
        Runtime(
            "sglang",
            "0.5.23",
            "srt/layers/rotary_embedding, srt/models/llama.py",
            "run",
            served.read_sglang,
        ),
        Runtime(
            "mlx-lm", "0.32.2", "mlx_lm/models/rope_utils.py and the model files", "run", mlx.read
        ),
        Runtime(
            "exllamav3",
            "1.6.5",
            "exllamav3/util/rope.py, model/config.py, architecture/*.py",
            "run",
            exllama.read,
        ),
    )
}

REFERENCE = "transformers-5"
"""The runtime against which the others are compared unless another is named."""


def chosen(names: Iterable[str]) -> list[Runtime]:
    """The runtimes of those names; a prefix such as `transformers` names several.

    Raises:
        InputError: a name that fits none, with the nearest.
    """
    found: dict[str, Runtime] = {}
    for name in names:
        fitting = {n: r for n, r in RUNTIMES.items() if n == name or n.startswith(f"{name}-")}
        if not fitting:
            raise unknown_name("runtime", name, RUNTIMES)
        found |= fitting
    return list(found.values()) or list(RUNTIMES.values())


def read(
    runtime: Runtime, config: Mapping[str, Any], flags: Mapping[str, Any] | None = None
) -> Reading:
    """One configuration as one runtime reads it; a refusal is a reading too."""
    trace = Trace(config, flags)
    try:
        layers = runtime.read(trace)
    except RefusedError as error:
        return Reading(runtime, {}, trace.uses(), "refused", str(error))
    except (NotModelledError, InputError) as error:
        return Reading(runtime, {}, trace.uses(), "not modelled", str(error))
    return Reading(runtime, layers, trace.uses())
