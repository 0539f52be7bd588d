"""The inverse of the readers: text that makes a runtime compute a wanted spec.

Every text is read back by the runtime's own reader, and what comes out differently is what the
target cannot hold; nothing is claimed to be held that was not read back.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ropelab.audit.runtimes import forms, registry
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.errors import unknown_name
from ropelab.math.scaling import DynamicNtk, NtkAware, Unscaled, ntk_base


@dataclass(frozen=True)
class Emission:
    """Text to paste for one target, and which fields the target cannot hold.

    ``config`` and ``flags`` are what the text sets, as the target's reader takes them.
    """

    target: str
    text: str
    lost: tuple[str, ...]
    config: Mapping[str, Any]
    flags: Mapping[str, Any]


@dataclass(frozen=True)
class Target:
    """How one target is written to, and which runtimes read it back."""

    name: str
    runtimes: tuple[str, ...]
    write: Callable[[RopeSpec], forms.Form]
    show: Callable[[forms.Fragment, Mapping[str, Any], int], str]


def emit(target: str, wanted: RopeSpec, model: Mapping[str, Any]) -> Emission:
    """The text for one target.

    Args:
        wanted: the spec, its claimed length included.
        model: the configuration's keys that do not concern rotation (sizes, model_type).
    Raises:
        InputError: an unknown target, or a method that no configuration can name.
    """
    if target not in TARGETS:
        raise unknown_name("target", target, TARGETS)
    chosen = TARGETS[target]
    configured = as_configured(wanted)
    fragment, flags = chosen.write(configured)
    if flags and configured.base != wanted.base:
        flags["rope_freq_base"], fragment["rope_theta"] = configured.base, wanted.base
    config = {**model, **fragment}
    lost = tuple(loss for name in chosen.runtimes for loss in losses(name, wanted, config, flags))
    text = chosen.show(fragment, flags, forms.claimed(wanted))
    return Emission(target, text, lost, config, flags)


def as_configured(wanted: RopeSpec) -> RopeSpec:
    """NTK-aware as what it is, another base; every other method as it stands."""
    if isinstance(wanted.scaling, NtkAware) and not isinstance(wanted.scaling, DynamicNtk):
        base = ntk_base(wanted.geometry, wanted.scaling.factor)
        return replace(wanted, base=base, scaling=Unscaled())
    return wanted


def losses(
    runtime: str, wanted: RopeSpec, config: Mapping[str, Any], flags: Mapping[str, Any]
) -> list[str]:
    """The fields that the runtime's reader reads back differently, in words."""
    reading = registry.read(registry.RUNTIMES[runtime], config, flags)
    got = reading.main
    if got is None:
        return [f"{runtime}: everything ({reading.outcome}: {reading.problem})"]
    return [f"{runtime}: {word}" for word in differences(got, wanted)]


def differences(got: RopeSpec, wanted: RopeSpec) -> list[str]:
    """Width, frequencies at short and long lengths, factor on the logits, claimed length."""
    if got.rotary_dim != wanted.rotary_dim:
        return [f"rotary_dim {got.rotary_dim}, not {wanted.rotary_dim}"]
    words = []
    lengths = (64, wanted.trained_len, forms.claimed(wanted), 2 * forms.claimed(wanted))
    if not all(
        np.allclose(got.inv_freq(n), wanted.inv_freq(n), rtol=1e-6, atol=0) for n in lengths
    ):
        words.append(f"frequencies: {got.method} instead of {wanted.method}")
    if not math.isclose(got.logit_multiplier, wanted.logit_multiplier, rel_tol=1e-6):
        words.append(f"logits x {got.logit_multiplier:.6g}, not {wanted.logit_multiplier:.6g}")
    if got.claimed_len is not None and got.claimed_len != forms.claimed(wanted):
        words.append(f"length {got.claimed_len}, not {forms.claimed(wanted)}")
    return words


def _portable() -> tuple[str, ...]:
    """All but the oldest transformers, and ollama's converter, which writes no yarn at all."""
    beyond = ("transformers-4.4", "ollama")
    return tuple(name for name in registry.RUNTIMES if not name.startswith(beyond))


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("hf4", ("transformers-4.57",), forms.file4, forms.as_json),
        Target("hf5", ("transformers-5",), forms.file5, forms.as_json),
        Target("vllm", ("vllm",), forms.vllm, forms.as_vllm),
        Target("sglang", ("sglang",), forms.sglang, forms.as_sglang),
        Target("llama.cpp", ("llama.cpp",), forms.llamacpp, forms.as_llamacpp),
        Target("koboldcpp", ("llama.cpp",), forms.koboldcpp, forms.as_koboldcpp),
        Target("ollama", ("llama.cpp",), forms.ollama, forms.as_ollama),
        Target("mlx", ("mlx-lm",), forms.file4, forms.as_json),
        Target("trtllm", ("tensorrt-llm",), forms.file4, forms.as_json),
        Target("exllama", ("exllamav3",), forms.file4, forms.as_json),
        Target("tgi", ("tgi",), forms.file4, forms.as_json),
        Target("portable", _portable(), forms.file4, forms.as_json),
    )
}


def emit_all(names: Sequence[str], wanted: RopeSpec, model: Mapping[str, Any]) -> list[Emission]:
    """Several targets, each on its own."""
    return [emit(name, wanted, model) for name in names]
