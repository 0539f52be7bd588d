"""The inverse of the readers: text that makes a runtime compute a wanted scaling.

Every text is read back by the runtime's own reader, and whatever comes out differently is named as
a loss; nothing counts as held that was not read back.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ropelab.audit.document import load
from ropelab.audit.runtimes import registry
from ropelab.audit.runtimes.reader import MAXIMUM, ORIGINAL, longrope_attention, magnitude
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.audit.runtimes.trace import BLOCKS, language_part
from ropelab.errors import InputError, unknown_name
from ropelab.math.methods import parse_scaling
from ropelab.math.models import model_named
from ropelab.math.scaling import (
    DynamicNtk,
    Llama3,
    LongRope,
    NtkAware,
    PositionInterpolation,
    Unscaled,
    Yarn,
    ntk_base,
)
from ropelab.runs.config import split_list

if TYPE_CHECKING:
    import pandas as pd

Fragment = dict[str, Any]
Form = tuple[Fragment, dict[str, Any]]  # keys of a configuration, and flags

# Keys that an emission sets, so that the file's own are left out.
ROTATING = frozenset({*BLOCKS, "rope_theta", MAXIMUM, ORIGINAL, "partial_rotary_factor"})


@dataclass(frozen=True)
class Emission:
    """Text to paste for one target, and the fields that the target cannot hold.

    ``config`` and ``flags`` are the settings in the text, as the target's reader takes them.
    """

    target: str
    text: str
    lost: tuple[str, ...]
    config: Mapping[str, Any]
    flags: Mapping[str, Any]


@dataclass(frozen=True)
class Emissions:
    """The wanted spec as text for several targets; ``tables["targets"]`` has a row for each."""

    wanted: RopeSpec
    targets: tuple[Emission, ...]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Target, text and losses, a row per target."""
        return [{"target": e.target, "text": e.text, "lost": list(e.lost)} for e in self.targets]

    @cached_property
    def tables(self) -> "dict[str, pd.DataFrame]":
        """The rows as DataFrame."""
        import pandas as pd

        return {"targets": pd.DataFrame(self.rows)}


def emit(
    file: str = "", *, context: int, model: str = "", method: str = "", target: str = "portable"
) -> Emissions:
    """Return the config or flags that give a model this scaling in each target.

    Args:
        file: a config.json or model folder, unless `model` is given.
        context: the wanted length in tokens, at least the trained length.
        model: the name of a known model.
        method: a scaling method; YaRN if the context exceeds the trained length.
        target: names of targets with commas between them, or `all`.
    Raises:
        InputError: neither or both of file and model, a context that is too short, or an unknown
            name.
    """
    if bool(file) == bool(model):
        raise InputError("give either --from FILE or --model NAME")
    spec, kept = from_file(file) if file else from_name(model)
    if context < spec.trained_len:
        raise InputError(
            f"--context {context} is below the trained length of {spec.trained_len} tokens"
        )
    factor = context / spec.trained_len
    scaling = parse_scaling(method or ("yarn" if factor > 1 else "unscaled"), factor)
    attention = scaling.plan(spec.geometry, context).attention_factor
    if isinstance(scaling, LongRope):
        attention = scaling.attention(spec.trained_len)
    wanted = replace(
        spec,
        scaling=scaling,
        attention_factor=attention,
        softmax_factor=1.0,
        claimed_len=context,
    )
    names = list(TARGETS) if target == "all" else split_list(target)
    return Emissions(wanted, tuple(emitted(name, wanted, kept) for name in names))


def from_file(path: str) -> tuple[RopeSpec, Fragment]:
    """Return the reference's reading of a configuration, and the keys that stay as they are."""
    document = load(path)
    if document.kind == "gguf":
        raise InputError("--from wants a config.json: a GGUF file is scaled by flags, see audit")
    reading = registry.read(registry.RUNTIMES[registry.REFERENCE], document.config)
    if reading.main is None:
        raise InputError(f"{path}: {reading.problem}")
    _, text = language_part(document.config)
    return reading.main, {name: value for name, value in text.items() if name not in ROTATING}


def from_name(name: str) -> tuple[RopeSpec, Fragment]:
    """Return a known model, as a Llama of its sizes."""
    model = model_named(name)
    spec = RopeSpec(
        base=model.base,
        head_dim=model.head_dim,
        rotary_dim=model.rotated,
        scaling=Unscaled(),
        trained_len=model.trained_len,
        claimed_len=model.promised,
    )
    kind = "llama" if model.rotated == model.head_dim else "phi"  # phi knows a rotated share
    sizes = {"head_dim": model.head_dim, "hidden_size": model.head_dim, "num_attention_heads": 1}
    return spec, {"model_type": kind, **sizes}


def emitted(target: str, wanted: RopeSpec, model: Mapping[str, Any]) -> Emission:
    """Return the text for one target.

    Args:
        wanted: the spec, its claimed length included.
        model: the configuration's keys that do not concern rotation (sizes, model_type).
    Raises:
        InputError: an unknown target, or a method that no configuration can name.
    """
    if target not in TARGETS:
        raise unknown_name("target", target, TARGETS)
    chosen, written = TARGETS[target], wanted
    if isinstance(wanted.scaling, NtkAware) and not isinstance(wanted.scaling, DynamicNtk):
        # No configuration has a name for NTK-aware, but it is only another base.
        base = ntk_base(wanted.geometry, wanted.scaling.factor)
        written = replace(wanted, base=base, scaling=Unscaled())
    fragment, flags = chosen.write(written)
    if flags and written.base != wanted.base:
        flags["rope_freq_base"], fragment["rope_theta"] = written.base, wanted.base
    config = {**model, **fragment}
    lost = []
    for name in chosen.runtimes:
        reading = registry.read(registry.RUNTIMES[name], config, flags)
        if reading.main is None:
            lost.append(f"{name}: everything ({reading.outcome}: {reading.problem})")
        else:
            lost += [f"{name}: {word}" for word in differences(reading.main, wanted)]
    text = chosen.show(fragment, flags, claimed(wanted))
    return Emission(target, text, tuple(lost), config, flags)


def differences(got: RopeSpec, wanted: RopeSpec) -> list[str]:
    """Name differences in width, frequencies by length, factor on the logits, claimed length."""
    if got.rotary_dim != wanted.rotary_dim:
        return [f"rotary_dim {got.rotary_dim}, not {wanted.rotary_dim}"]
    words, context = [], claimed(wanted)
    lengths = (64, wanted.trained_len, context, 2 * context)
    # Runtimes compute in float32, so smaller differences mean nothing.
    if not all(
        np.allclose(got.inv_freq(n), wanted.inv_freq(n), rtol=1e-6, atol=0) for n in lengths
    ):
        words.append(f"frequencies: {got.method} instead of {wanted.method}")
    if not math.isclose(got.logit_multiplier, wanted.logit_multiplier, rel_tol=1e-6):
        words.append(f"logits x {got.logit_multiplier:.6g}, not {wanted.logit_multiplier:.6g}")
    if got.claimed_len is not None and got.claimed_len != context:
        words.append(f"length {got.claimed_len}, not {context}")
    return words


def claimed(spec: RopeSpec) -> int:
    """Return the wanted length."""
    return spec.claimed_len or spec.trained_len


def block_of(spec: RopeSpec) -> Fragment:
    """Return the scaling block under the one name of the type that all runtimes know.

    Raises:
        InputError: a method that no configuration has a name for.
    """
    scaling, original = spec.scaling, {ORIGINAL: spec.trained_len}
    if isinstance(scaling, Unscaled):
        return {}
    if isinstance(scaling, PositionInterpolation):
        return {"rope_type": "linear", "factor": float(scaling.factor)}
    if isinstance(scaling, DynamicNtk):
        return {"rope_type": "dynamic", "factor": float(scaling.factor)}
    if isinstance(scaling, Llama3):
        names = ("factor", "low_freq_factor", "high_freq_factor")
        bands = {name: float(getattr(scaling, name)) for name in names}
        return {"rope_type": "llama3", **bands, **original}
    # attention_factor is written if it is not what the factor alone would give.
    usual = usual_attention(spec)
    same = math.isclose(spec.attention_factor, usual, rel_tol=1e-12)
    attention = {} if same else {"attention_factor": spec.attention_factor}
    if isinstance(scaling, Yarn):
        block: Fragment = {"rope_type": "yarn", "factor": float(scaling.factor), **original}
        if scaling.beta_fast != 32:
            block["beta_fast"] = float(scaling.beta_fast)
        if scaling.beta_slow != 1:
            block["beta_slow"] = float(scaling.beta_slow)
        if not scaling.truncate:
            block["truncate"] = False
        return {**block, **attention}
    if isinstance(scaling, LongRope):
        long = list(scaling.long_factor)
        short = list(scaling.short_factor) or [1.0] * len(long)
        lists = {"short_factor": short, "long_factor": long, "factor": float(scaling.factor)}
        return {"rope_type": "longrope", **lists, **original, **attention}
    raise InputError(f"no configuration has a name for {scaling.name}; one with a name is yarn")


def usual_attention(spec: RopeSpec) -> float:
    """Return the attention factor that runtimes compute from the scaling factor alone."""
    factor = getattr(spec.scaling, "factor", 1.0)
    if isinstance(spec.scaling, LongRope):
        return longrope_attention(factor, spec.trained_len)
    return magnitude(factor)


def share(spec: RopeSpec) -> Fragment:
    """Return partial_rotary_factor, unless the whole head rotates."""
    if spec.rotary_dim == spec.head_dim:
        return {}
    return {"partial_rotary_factor": spec.rotary_dim / spec.head_dim}


def maximum(spec: RopeSpec) -> int:
    """Return max_position_embeddings: the wanted length; dynamic starts from the trained one."""
    return spec.trained_len if isinstance(spec.scaling, DynamicNtk) else claimed(spec)


def version4(spec: RopeSpec) -> Form:
    """Return rope_theta and rope_scaling, the type under both of its names."""
    block = block_of(spec)
    if block:
        block = {"rope_type": block["rope_type"], "type": block["rope_type"], **block}
    original = {ORIGINAL: spec.trained_len} if isinstance(spec.scaling, LongRope) else {}
    start = {MAXIMUM: maximum(spec), "rope_theta": spec.base}
    return {**start, **original, **share(spec), "rope_scaling": block or None}, {}


def version5(spec: RopeSpec) -> Form:
    """Return rope_parameters with everything inside."""
    block = block_of(spec) or {"rope_type": "default"}
    parameters = {"rope_theta": spec.base, **block, **share(spec)}
    return {MAXIMUM: maximum(spec), "rope_parameters": parameters}, {}


def vllm(spec: RopeSpec) -> Form:
    """Return version 5 with the length before the factor where the server multiplies by it."""
    fragment, flags = version5(spec)
    if isinstance(spec.scaling, PositionInterpolation | DynamicNtk):
        fragment[MAXIMUM] = round(claimed(spec) / spec.scaling.factor)
    return fragment, flags


def sglang(spec: RopeSpec) -> Form:
    """Return vLLM's form as rope_scaling, the magnitude as a multiplier of SGLang's own."""
    fragment, flags = vllm(spec)
    block = fragment.pop("rope_parameters")
    wanted = block.pop("attention_factor", None)
    if wanted is not None and block["rope_type"] == "yarn":
        block["attn_factor"] = wanted / magnitude(block["factor"])
    return {**fragment, "rope_scaling": block}, flags


def unscaled_file(spec: RopeSpec) -> Fragment:
    """Return the file of the unscaled model, on top of which flags are given."""
    plain = replace(spec, scaling=Unscaled(), attention_factor=1.0, claimed_len=spec.trained_len)
    return version4(plain)[0]


def llamacpp(spec: RopeSpec) -> Form:
    """Return llama.cpp's flags."""
    flags: dict[str, Any] = {"ctx_size": claimed(spec)}
    scaling = spec.scaling
    if isinstance(scaling, PositionInterpolation):
        flags |= {"rope_scaling": "linear", "rope_scale": scaling.factor}
    elif isinstance(scaling, Yarn):
        flags |= {"rope_scaling": "yarn", "rope_scale": scaling.factor}
        flags["yarn_orig_ctx"] = spec.trained_len
        flags |= {f"yarn_{n}": getattr(scaling, n) for n in ("beta_fast", "beta_slow")}
    return unscaled_file(spec), flags


def koboldcpp(spec: RopeSpec) -> Form:
    """Return a scale and a base, always both: else koboldcpp picks by a rule of its own."""
    linear = isinstance(spec.scaling, PositionInterpolation)
    scale = 1 / spec.scaling.factor if isinstance(spec.scaling, PositionInterpolation) else 1.0
    flags = {"ctx_size": claimed(spec), "rope_freq_scale": scale, "rope_freq_base": spec.base}
    return unscaled_file(spec), {**flags, "rope_scaling": "linear"} if linear else flags


def ollama(spec: RopeSpec) -> Form:
    """Return nothing but a length: the GGUF file has to hold the rest already."""
    return unscaled_file(spec), {"ctx_size": claimed(spec)}


def as_llamacpp(fragment: Fragment, flags: Mapping[str, Any], length: int) -> str:
    """Return llama.cpp's command line; settings at their defaults are left out."""
    usual = {"ctx_size": flags["ctx_size"], "yarn_beta_fast": 32, "yarn_beta_slow": 1}
    words = [
        f"--{name.replace('_', '-')} {_plain(value)}"
        for name, value in flags.items()
        if usual.get(name) != value
    ]
    return " ".join([f"-c {flags['ctx_size']}", *words])


def as_koboldcpp(fragment: Fragment, flags: Mapping[str, Any], length: int) -> str:
    """Return koboldcpp's command line."""
    scale, base = _plain(flags["rope_freq_scale"]), _plain(flags["rope_freq_base"])
    return f"--contextsize {length} --ropeconfig {scale} {base}"


def _plain(value: Any) -> str:
    """A number in few digits if these read back as the same number, else in all."""
    exact = f"{value:g}" if isinstance(value, float) else str(value)
    return exact if not isinstance(value, float) or float(exact) == value else repr(value)


Show = Callable[[Fragment, Mapping[str, Any], int], str]


@dataclass(frozen=True)
class Target:
    """One target: the runtimes that read its text back, and the functions that write it."""

    name: str
    runtimes: tuple[str, ...]
    write: Callable[[RopeSpec], Form]
    show: Show = lambda fragment, flags, length: json.dumps(fragment, indent=2)


def _command(template: str) -> Show:
    return lambda fragment, flags, length: template.format(json.dumps(fragment), length)


# All but the oldest transformers, and ollama's converter, which writes no yarn at all.
_PORTABLE = tuple(n for n in registry.RUNTIMES if not n.startswith(("transformers-4.4", "ollama")))

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("hf4", ("transformers-4.57",), version4),
        Target("hf5", ("transformers-5",), version5),
        Target("vllm", ("vllm",), vllm, _command("--hf-overrides '{}' --max-model-len {}")),
        Target(
            "sglang",
            ("sglang",),
            sglang,
            _command("--json-model-override-args '{}' --context-length {}"),
        ),
        Target("llama.cpp", ("llama.cpp",), llamacpp, as_llamacpp),
        Target("koboldcpp", ("llama.cpp",), koboldcpp, as_koboldcpp),
        Target("ollama", ("llama.cpp",), ollama, _command("PARAMETER num_ctx {1}")),
        Target("mlx", ("mlx-lm",), version4),
        Target("trtllm", ("tensorrt-llm",), version4),
        Target("exllama", ("exllamav3",), version4),
        Target("tgi", ("tgi",), version4),
        Target("portable", _PORTABLE, version4),
    )
}
