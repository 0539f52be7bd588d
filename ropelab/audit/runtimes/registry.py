"""The runtimes by name, and reading one configuration with all of them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ropelab.audit.runtimes import (
    exllama,
    llamacpp,
    mlx,
    ollama,
    served,
    tgi,
    transformers4,
    transformers5,
    trtllm,
)
from ropelab.audit.runtimes.spec import NotModelledError, Reading, RefusedError, Runtime
from ropelab.audit.runtimes.trace import Trace
from ropelab.audit.runtimes.transformers4 import Rules
from ropelab.errors import InputError, unknown_name

_ROPE_UTILS = "src/transformers/modeling_rope_utils.py and the classes of the models"


ASKED = frozenset(
    [
        "cohere",
        "deepseek_v2",
        "deepseek_v3",
        "gemma2",
        "gemma3_text",
        "glm",
        "gpt_neox",
        "gpt_oss",
        "granite",
        "llama",
        "mistral",
        "mixtral",
        "olmo2",
        "phi",
        "phi3",
        "qwen2",
        "qwen3",
        "smollm3",
        "stablelm",
    ]
)
"""The model types of the configurations that the runtimes were asked about."""

LLAMA_LIKE = frozenset(
    [
        "llama",
        "qwen2",
        "qwen3",
        "mistral",
        "mixtral",
        "phi3",
        "olmo2",
        "granite",
        "deepseek_v2",
        "deepseek_v3",
    ]
)


def _without(text: str) -> frozenset[str]:
    return ASKED - set(text.split())


def _v4(version: str, compared: frozenset[str], rules: Rules) -> Runtime:
    known = replace(rules, absent=ASKED - compared)
    reader = partial(transformers4.read, rules=known)
    name = f"transformers-{version.rsplit('.', 1)[0]}"
    return Runtime(name, version, _ROPE_UTILS, "run", reader, compared=compared)


_IN_448 = _without("deepseek_v2 deepseek_v3 gemma3_text gpt_oss qwen3 smollm3")
_LLAMA = frozenset({"llama"})
_CONVERTED = _without("cohere glm gpt_neox granite gemma2 smollm3")

RUNTIMES: dict[str, Runtime] = {
    runtime.name: runtime
    for runtime in (
        Runtime("transformers-5", "5.23.0", _ROPE_UTILS, "run", transformers5.read, compared=ASKED),
        _v4("4.57.1", ASKED, Rules("factor", "switch")),
        _v4("4.55.4", ASKED, Rules("ratio", "switch")),
        _v4("4.51.3", _without("deepseek_v2 gpt_oss smollm3"), Rules("ratio", "switch", False)),
        _v4("4.48.3", _IN_448, Rules("maximum", "short", False, False)),
        _v4("4.44.2", _LLAMA, Rules("maximum", "static", False, False)),
        Runtime(
            "vllm",
            "0.33.0",
            "model_executor/layers/rotary_embedding, config/model.py",
            "run",
            served.read_vllm,
            compared=ASKED,
        ),
        Runtime(
            "sglang",
            "0.5.23",
            "srt/layers/rotary_embedding, srt/models/llama.py",
            "run",
            served.read_sglang,
            compared=LLAMA_LIKE | {"gpt_oss"},
        ),
        Runtime(
            "mlx-lm",
            "0.32.2",
            "mlx_lm/models/rope_utils.py and the model files",
            "run",
            mlx.read,
            compared=_without("cohere deepseek_v2 gemma3_text gpt_neox granite phi smollm3"),
        ),
        Runtime(
            "exllamav3",
            "1.6.5",
            "exllamav3/util/rope.py, model/config.py, architecture/*.py",
            "run",
            exllama.read,
            compared=LLAMA_LIKE,
        ),
        Runtime(
            "llama.cpp",
            "0c1e570",
            "src/llama-context.cpp, src/llama-model.cpp, conversion/*.py",
            "parts",
            llamacpp.read,
            reads=("config", "params", "gguf"),
            compared=_CONVERTED,
        ),
        Runtime(
            "tensorrt-llm",
            "2026",
            "_torch/attention_backend/interface.py",
            "read",
            trtllm.read,
        ),
        Runtime("tgi", "db931fc", "server/.../layers/rotary.py", "read", tgi.read),
        Runtime(
            "ollama",
            "fb30760",
            "convert/convert.go, convert_llama.go, convert_qwen2.go, convert_phi3.go, "
            "convert_gptoss.go",
            "read",
            ollama.read,
            reads=("config",),
        ),
    )
}

LONGEST = 300
"""Characters of a problem that are kept; a file can hold names of any length."""

REFERENCE = "transformers-5"
"""The runtime against which the others are compared unless another is named."""


def chosen(names: Iterable[str], kind: str = "config") -> list[Runtime]:
    """The runtimes of those names that read such a file, all without names.

    A prefix such as `transformers` names several.

    Raises:
        InputError: a name that fits none, with the nearest.
    """
    found: dict[str, Runtime] = {}
    for name in names:
        fitting = {n: r for n, r in RUNTIMES.items() if n == name or n.startswith(f"{name}-")}
        if not fitting:
            raise unknown_name("runtime", name, RUNTIMES)
        found |= fitting
    return [runtime for runtime in (found or RUNTIMES).values() if kind in runtime.reads]


def read(
    runtime: Runtime, config: Mapping[str, Any], flags: Mapping[str, Any] | None = None
) -> Reading:
    """One configuration as one runtime reads it; a refusal is a reading too."""
    trace = Trace(config, flags)
    try:
        layers = runtime.read(trace)
    except RefusedError as error:
        return Reading(runtime, {}, trace.uses(), "refused", str(error)[:LONGEST], trace.model_type)
    except (NotModelledError, InputError) as error:
        problem = str(error)[:LONGEST]
        return Reading(runtime, {}, trace.uses(), "not modelled", problem, trace.model_type)
    except (ArithmeticError, ValueError) as error:  # lengths of 1, factors of 1e300
        problem = f"numbers out of range ({error})"
        return Reading(runtime, {}, trace.uses(), "not modelled", problem, trace.model_type)
    return Reading(runtime, layers, trace.uses(), model_type=trace.model_type)
