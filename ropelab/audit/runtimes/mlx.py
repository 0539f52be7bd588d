"""MLX-LM: every model file keeps the keys that its arguments name, and drops the others.

Read from mlx_lm/models/rope_utils.py and the model files of mlx-lm 0.32.2.
"""

from dataclasses import dataclass
from typing import Any

from ropelab.audit.runtimes.reader import (
    BANDS,
    LISTS,
    MAXIMUM,
    MSCALES,
    ORIGINAL,
    Made,
    Method,
    Reader,
    Settings,
    dynamic,
    linear,
    llama3,
    mscale_yarn,
    one_table,
    proportional,
    unscaled,
    width_of,
)
from ropelab.audit.runtimes.spec import NotModelledError, RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import Trace

RAMP = ("factor", "beta_fast", "beta_slow", *MSCALES)


@dataclass(frozen=True)
class ModelFile:
    """One model file of MLX-LM: its default base, whether it scales, what it knows of version 5.

    base is None where the file insists on the key.
    """

    base: float | None = 10000.0
    scales: bool = True
    reads_parameters: bool = False
    share: bool = False
    interleaved: bool = False


# A model file keeps the keys that its arguments name, and drops the others.
FILES = {
    "llama": ModelFile(),
    "mistral": ModelFile(),
    "qwen2": ModelFile(1e6),
    "qwen3": ModelFile(None, reads_parameters=True),
    "mixtral": ModelFile(1e6, scales=False),
    "gemma2": ModelFile(scales=False),
    "phi3": ModelFile(share=True),
    "gpt_oss": ModelFile(150000.0),
    "deepseek_v3": ModelFile(interleaved=True),
    "glm": ModelFile(scales=False, interleaved=True),
    "stablelm": ModelFile(None, scales=False, share=True),
    "olmo2": ModelFile(),
}


class MlxSettings(Settings):
    """An original length of null counts as missing."""

    def original(self) -> int:
        """Return the original length inside the block, else the default of the method."""
        given = self.get(ORIGINAL)
        return whole(self.defaults[ORIGINAL] if given is None else given, ORIGINAL)


class Mlx(Reader):
    """MLX-LM: the model file decides which keys exist."""

    unknown = "unsupported rope type '{}'"

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        """Return one spec."""
        if trace.model_type not in FILES:
            raise NotModelledError(f"the model file for '{trace.model_type}' was not read")
        return super().read(trace)

    def settings(self, trace: Trace) -> dict[str, Settings]:
        """Read base and block from the places that the file knows."""
        file, source = FILES[trace.model_type], "rope_theta"
        base, block, where = trace.get(source), trace.block("rope_scaling"), "rope_scaling"
        if file.reads_parameters and (parameters := trace.block("rope_parameters")):
            if base is None:
                source = "rope_parameters.rope_theta"
                base = trace.get(source)
            if block is None:
                block, where = parameters, "rope_parameters"
        if base is None:
            if file.base is None:
                raise RefusedError("rope_theta is missing, and the model file has no default")
            base, source = file.base, f"default of mlx_lm/models/{trace.model_type}.py"
        settings = MlxSettings(trace, block if file.scales else {}, where)
        settings.put("rope_theta", base, source)
        return {"all": settings}

    def longest(self, trace: Trace) -> tuple[int, str]:
        """Return max_position_embeddings; only dynamic and longrope need it."""
        value = trace.get(MAXIMUM)
        if value is None:
            return (131072 if trace.model_type == "phi3" else 2048), "not read"
        return whole(value, MAXIMUM), MAXIMUM

    def claimed(self, settings: Settings, source: str) -> tuple[int | None, str]:
        """Return the length if the file gives one."""
        return (None if source == "not read" else settings.longest), source

    def head_dim(self, trace: Trace) -> int:
        """phi3.py and stablelm.py know no head_dim."""
        if trace.model_type in ("phi3", "stablelm") and trace.has("head_dim"):
            hidden, heads = trace.get("hidden_size"), trace.get("num_attention_heads")
            return whole(hidden, "hidden_size") // whole(heads, "num_attention_heads")
        return super().head_dim(trace)

    def method(self, settings: Settings) -> Made:
        """Return the scaling by its type; phi3.py has rules of its own."""
        if settings.trace.model_type == "phi3":
            return self.phi3(settings)
        return super().method(settings)

    def kind(self, settings: Settings) -> Any:
        """`type` wins over `rope_type`."""
        kind = super().kind(settings)
        if settings.get("type") and "rope_type" in settings.values:
            path = settings.sources["rope_type"]
            settings.trace.mark(path, "overridden", "type wins in MLX-LM")
        return kind

    def phi3(self, settings: Settings) -> Made:
        """Only `type`, only longrope and linear; the original length is at top level."""
        if len(settings.values) == 1:  # the base
            return unscaled(settings)
        settings.needs("long_factor", "type")
        settings.take("type")
        if settings.get("type") == "linear":
            return self.methods["linear"].made(settings)
        if settings.get("type") not in ("longrope", "su"):
            return unscaled(settings)
        return long_table(settings, whole(settings.trace.get(ORIGINAL, 4096), ORIGINAL))

    def width(self, settings: Settings, head_dim: int) -> int:
        """Return the share of the head in files that know one."""
        share, trace = 1.0, settings.trace
        if FILES[trace.model_type].share:
            share = number(trace.get("partial_rotary_factor", 1.0), "share")
        return width_of(head_dim, share)

    def pairing(self, trace: Trace) -> Any:
        """Return the pairing of the model file."""
        return "interleaved" if FILES[trace.model_type].interleaved else "half"


def mlx_dynamic(settings: Settings) -> Made:
    """The base that grows; the one method that insists on a maximum."""
    if not settings.trace.has(MAXIMUM):
        raise RefusedError(f"dynamic without {MAXIMUM}")
    settings.take("factor")
    return dynamic(settings)


def long_table(settings: Settings, trained: int | None = None) -> Made:
    """longrope with the long table at every length."""
    settings.take("long_factor")
    if "short_factor" in settings.sources:
        path = settings.sources["short_factor"]
        settings.trace.mark(path, "ignored", "always the long table")
    return one_table(settings, "long_factor", trained or settings.original())


_YARN = Method(mscale_yarn, (*RAMP, ORIGINAL), defaults={ORIGINAL: 4096})
Mlx.methods = {
    "default": Method(unscaled),
    "mrope": Method(unscaled),
    "linear": Method(linear, ("factor",)),
    "dynamic": Method(mlx_dynamic),
    "yarn": _YARN,
    "deepseek_yarn": _YARN,
    "telechat3-yarn": _YARN,
    "llama3": Method(
        llama3,
        (*BANDS, ORIGINAL),
        defaults={"low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 8192},
    ),
    "longrope": Method(long_table, (ORIGINAL,), (ORIGINAL, *LISTS), {ORIGINAL: 4096}),
    "proportional": Method(proportional, ("partial_rotary_factor", "factor")),
}
