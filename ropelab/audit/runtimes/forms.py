"""The forms in which runtimes take a spec: keys of a configuration, flags, and both as text."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ropelab.audit.runtimes.reader import magnitude
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.errors import InputError
from ropelab.math.scaling import DynamicNtk, Llama3, LongRope, PositionInterpolation, Unscaled, Yarn

Fragment = dict[str, Any]
Form = tuple[Fragment, dict[str, Any]]
"""Keys of a configuration, and flags."""


def claimed(wanted: RopeSpec) -> int:
    """The length wanted."""
    return wanted.claimed_len or wanted.trained_len


def block_of(spec: RopeSpec) -> Fragment:
    """The scaling block without names for the type that only some runtimes read.

    Raises:
        InputError: a method that no configuration has a name for.
    """
    scaling, original = spec.scaling, {"original_max_position_embeddings": spec.trained_len}
    if isinstance(scaling, Unscaled):
        return {}
    if isinstance(scaling, PositionInterpolation):
        return {"rope_type": "linear", "factor": float(scaling.factor)}
    if isinstance(scaling, DynamicNtk):
        return {"rope_type": "dynamic", "factor": float(scaling.factor)}
    if isinstance(scaling, Yarn):
        return {"rope_type": "yarn", "factor": float(scaling.factor), **original, **knobs(spec)}
    if isinstance(scaling, Llama3):
        low, high = float(scaling.low_freq_factor), float(scaling.high_freq_factor)
        ends = {"low_freq_factor": low, "high_freq_factor": high}
        return {"rope_type": "llama3", "factor": float(scaling.factor), **ends, **original}
    if isinstance(scaling, LongRope):
        return {"rope_type": "longrope", **lists(scaling), **original, **attention(spec)}
    raise InputError(f"no configuration has a name for {scaling.name}; one with a name is yarn")


def lists(scaling: LongRope) -> Fragment:
    """longrope's two tables; an empty short one is all ones."""
    long = list(scaling.long_factor)
    short = list(scaling.short_factor) or [1.0] * len(long)
    return {"short_factor": short, "long_factor": long, "factor": float(scaling.factor)}


def knobs(spec: RopeSpec) -> Fragment:
    """YaRN's keys that are not at their defaults."""
    scaling = spec.scaling
    assert isinstance(scaling, Yarn)
    found: Fragment = {}
    if scaling.beta_fast != 32:
        found["beta_fast"] = float(scaling.beta_fast)
    if scaling.beta_slow != 1:
        found["beta_slow"] = float(scaling.beta_slow)
    if not scaling.truncate:
        found["truncate"] = False
    return {**found, **attention(spec)}


def attention(spec: RopeSpec) -> Fragment:
    """attention_factor, where it is not what the factor would give."""
    usual = usual_attention(spec)
    if math.isclose(spec.attention_factor, usual, rel_tol=1e-12):
        return {}
    return {"attention_factor": spec.attention_factor}


def usual_attention(spec: RopeSpec) -> float:
    """What runtimes compute from the factor alone."""
    factor = getattr(spec.scaling, "factor", 1.0)
    if isinstance(spec.scaling, LongRope):
        ratio = max(1.0, factor)
        return math.sqrt(1 + math.log(ratio) / math.log(spec.trained_len))
    return magnitude(factor)


def share(spec: RopeSpec) -> Fragment:
    """partial_rotary_factor, where not the whole head turns."""
    if spec.rotary_dim == spec.head_dim:
        return {}
    return {"partial_rotary_factor": spec.rotary_dim / spec.head_dim}


def version4(spec: RopeSpec) -> Fragment:
    """rope_theta and rope_scaling, the type under both of its names."""
    block = block_of(spec)
    if block:
        block = {"rope_type": block["rope_type"], "type": block["rope_type"], **block}
    original = {}
    if isinstance(spec.scaling, LongRope):
        original = {"original_max_position_embeddings": spec.trained_len}
    return {
        "max_position_embeddings": maximum(spec),
        "rope_theta": spec.base,
        **original,
        **share(spec),
        "rope_scaling": block or None,
    }


def version5(spec: RopeSpec) -> Fragment:
    """rope_parameters with everything inside."""
    block = block_of(spec) or {"rope_type": "default"}
    parameters = {"rope_theta": spec.base, **block, **share(spec)}
    return {"max_position_embeddings": maximum(spec), "rope_parameters": parameters}


def maximum(spec: RopeSpec) -> int:
    """max_position_embeddings: the length wanted; dynamic starts from it, so the trained one."""
    return spec.trained_len if isinstance(spec.scaling, DynamicNtk) else claimed(spec)


def file4(spec: RopeSpec) -> Form:
    """A config.json of version 4."""
    return version4(spec), {}


def file5(spec: RopeSpec) -> Form:
    """A config.json of version 5."""
    return version5(spec), {}


def vllm(spec: RopeSpec) -> Form:
    """vLLM multiplies the length of linear and dynamic by the factor itself."""
    return multiplied(version5(spec), spec), {}


def sglang(spec: RopeSpec) -> Form:
    """SGLang takes the magnitude as a multiplier of its own."""
    fragment = multiplied(version5(spec), spec)
    block = fragment["rope_parameters"]
    wanted = block.pop("attention_factor", None)
    if wanted is not None and block["rope_type"] == "yarn":
        block["attn_factor"] = wanted / magnitude(block["factor"])
    del fragment["rope_parameters"]
    return {**fragment, "rope_scaling": block}, {}


def multiplied(fragment: Fragment, spec: RopeSpec) -> Fragment:
    """The length before the factor, where the server multiplies."""
    if isinstance(spec.scaling, PositionInterpolation | DynamicNtk):
        length = round(claimed(spec) / spec.scaling.factor)
        return {**fragment, "max_position_embeddings": length}
    return fragment


def llamacpp(spec: RopeSpec) -> Form:
    """Flags on top of a file of the unscaled model."""
    plain = replace(spec, scaling=Unscaled(), attention_factor=1.0, claimed_len=spec.trained_len)
    flags: dict[str, Any] = {"ctx_size": claimed(spec)}
    scaling = spec.scaling
    if isinstance(scaling, PositionInterpolation):
        flags |= {"rope_scaling": "linear", "rope_scale": scaling.factor}
    elif isinstance(scaling, Yarn):
        flags |= {"rope_scaling": "yarn", "rope_scale": scaling.factor}
        flags["yarn_orig_ctx"] = spec.trained_len
        flags |= {f"yarn_{n}": getattr(scaling, n) for n in ("beta_fast", "beta_slow")}
    return version4(plain), flags


def koboldcpp(spec: RopeSpec) -> Form:
    """A scale and a base on top of the unscaled file, always both: else a rule of its own picks."""
    plain = replace(spec, scaling=Unscaled(), attention_factor=1.0, claimed_len=spec.trained_len)
    linear = isinstance(spec.scaling, PositionInterpolation)
    scale = 1 / spec.scaling.factor if isinstance(spec.scaling, PositionInterpolation) else 1.0
    flags = {"ctx_size": claimed(spec), "rope_freq_scale": scale, "rope_freq_base": spec.base}
    return version4(plain), {**flags, "rope_scaling": "linear"} if linear else flags


def ollama(spec: RopeSpec) -> Form:
    """Nothing but a length: the GGUF, which llama.cpp reads, has to hold the rest already."""
    plain = replace(spec, scaling=Unscaled(), attention_factor=1.0, claimed_len=spec.trained_len)
    return version4(plain), {"ctx_size": claimed(spec)}


def as_json(fragment: Fragment, flags: Mapping[str, Any], length: int) -> str:
    """Keys to set in config.json."""
    return json.dumps(fragment, indent=2)


def as_vllm(fragment: Fragment, flags: Mapping[str, Any], length: int) -> str:
    """vLLM's command line."""
    return f"--hf-overrides '{json.dumps(fragment)}' --max-model-len {length}"


def as_sglang(fragment: Fragment, flags: Mapping[str, Any], length: int) -> str:
    """SGLang's command line."""
    return f"--json-model-override-args '{json.dumps(fragment)}' --context-length {length}"


def as_llamacpp(fragment: Fragment, flags: Mapping[str, Any], length: int) -> str:
    """llama.cpp's command line; the base only where it is not the file's."""
    words = [f"-c {flags['ctx_size']}"]
    for name, value in flags.items():
        if name != "ctx_size" and not _default(name, value):
            words.append(f"--{name.replace('_', '-')} {_plain(value)}")
    return " ".join(words)


def as_koboldcpp(fragment: Fragment, flags: Mapping[str, Any], length: int) -> str:
    """koboldcpp's command line."""
    scale, base = _plain(flags["rope_freq_scale"]), _plain(flags["rope_freq_base"])
    return f"--contextsize {length} --ropeconfig {scale} {base}"


def as_ollama(fragment: Fragment, flags: Mapping[str, Any], length: int) -> str:
    """A line of a Modelfile."""
    return f"PARAMETER num_ctx {length}"


def _default(name: str, value: Any) -> bool:
    return (name, value) in (("yarn_beta_fast", 32), ("yarn_beta_slow", 1))


def _plain(value: Any) -> str:
    exact = f"{value:g}" if isinstance(value, float) else str(value)
    return exact if not isinstance(value, float) or float(exact) == value else repr(value)
