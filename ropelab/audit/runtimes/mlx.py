"""MLX-LM: every model file keeps the keys that its arguments name, and drops the others.

Read from mlx_lm/models/rope_utils.py and the model files of mlx-lm 0.32.2.
"""

from dataclasses import dataclass
from typing import Any

from ropelab.audit.runtimes import reader
from ropelab.audit.runtimes.reader import KEPT, Made, Method, Reader, Settings
from ropelab.audit.runtimes.spec import RefusedError, number, whole
from ropelab.audit.runtimes.trace import LISTS, MAXIMUM, ORIGINAL, Trace


@dataclass(frozen=True)
class ModelFile:
    """One model file of MLX-LM, by the keys that its arguments name."""

    base: float | None = 10000.0  # None where the file insists on the key
    scales: bool = True
    reads_parameters: bool = False  # rope_parameters, of transformers 5
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
    """The original length inside the block, else the default of the method."""

    def original(self) -> int:
        given = self.read(ORIGINAL)  # null counts as missing
        return whole(self.defaults[ORIGINAL] if given is None else given, ORIGINAL)


class Mlx(Reader):
    """MLX-LM: the model file decides which keys exist."""

    unknown = "unsupported rope type '{}'"
    types = FILES
    other = "the model file for '{}' was not read"
    lengths = (MAXIMUM,)  # only dynamic and longrope need it
    allows_usual = False

    def settings(self, trace: Trace) -> dict[str, Settings]:
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

    def longest(self, trace: Trace) -> int:
        bare = trace.model_type == "phi3" and trace.get(MAXIMUM) is None
        return 131072 if bare else super().longest(trace)

    def head_dim(self, trace: Trace) -> int:
        # phi3.py and stablelm.py know no head_dim.
        if trace.model_type in ("phi3", "stablelm") and trace.has("head_dim"):
            hidden, heads = trace.get("hidden_size"), trace.get("num_attention_heads")
            return whole(hidden, "hidden_size") // whole(heads, "num_attention_heads")
        return super().head_dim(trace)

    def kind(self, settings: Settings) -> Any:
        if settings.get("type"):
            settings.mark("rope_type", "overridden", "type wins in MLX-LM")
        return super().kind(settings)

    def method(self, settings: Settings) -> Made:
        if settings.trace.model_type != "phi3":
            return super().method(settings)
        # phi3.py has rules of its own: only `type`, only longrope and linear.
        if len(settings.values) == 1:  # the base
            return reader.unscaled(settings)
        settings.needs("long_factor", "type")
        if settings.read("type") == "linear":
            return self.methods["linear"].made(settings)
        if settings.get("type") not in ("longrope", "su"):
            return reader.unscaled(settings)
        # Its original length is at top level.
        return long_table(settings, whole(settings.trace.get(ORIGINAL, 4096), ORIGINAL))

    def width(self, settings: Settings, head_dim: int) -> int:
        share, trace = 1.0, settings.trace
        if FILES[trace.model_type].share:
            share = number(trace.get("partial_rotary_factor", 1.0), "share")
        return reader.width_of(head_dim, share)

    def pairing(self, trace: Trace) -> Any:
        return "interleaved" if FILES[trace.model_type].interleaved else "half"


def mlx_dynamic(settings: Settings) -> Made:
    # The one method that insists on a maximum.
    if not settings.trace.has(MAXIMUM):
        raise RefusedError(f"dynamic without {MAXIMUM}")
    return reader.dynamic(settings)


def long_table(settings: Settings, trained: int | None = None) -> Made:
    settings.mark("short_factor", "ignored", "always the long table")
    return reader.one_table(settings, "long_factor", trained or settings.original())


Mlx.methods = {
    **reader.UNSCALED,
    "linear": Method(reader.linear),
    "dynamic": Method(mlx_dynamic),
    **dict.fromkeys(
        ("yarn", "deepseek_yarn", "telechat3-yarn"),
        Method(reader.mscale_yarn, defaults={ORIGINAL: 4096}),
    ),
    "llama3": Method(reader.llama3, defaults={**KEPT, ORIGINAL: 8192}),
    "longrope": Method(long_table, (ORIGINAL, *LISTS), {ORIGINAL: 4096}),
    "proportional": Method(reader.proportional),
}
