"""transformers 4: `rope_theta` and `rope_scaling` beside each other; YaRN changed three times.

Read from src/transformers/modeling_rope_utils.py and the Llama, Phi-3, Gemma 3 and GPT-NeoX classes
of 4.44.2, 4.48.3, 4.51.3, 4.55.4 and 4.57.1.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from ropelab.audit.runtimes import reader
from ropelab.audit.runtimes.reader import Made, Method, Reader, Settings
from ropelab.audit.runtimes.spec import RefusedError, RopeSpec, number, whole
from ropelab.audit.runtimes.trace import BANDS, LISTS, ORIGINAL, Trace


@dataclass
class Transformers4(Reader):
    """One release, by its differences from the others."""

    # Ramp length and factor from: max_position_embeddings and factor; original length and
    # max/original; original length and factor.
    yarn_rule: Literal["maximum", "ratio", "factor"]
    # The long table from the start; no switch in the Llama class; a switch by length.
    longrope_rule: Literal["static", "short", "switch"]
    truncate: bool = True  # YaRN reads truncate
    phi3_share: bool = True  # Phi-3 reads partial_rotary_factor
    types: Collection[str] = ()
    other = "of that release the class of '{}' was not read"

    def __post_init__(self) -> None:
        self.methods = {
            "default": Method(reader.unscaled),
            "linear": Method(reader.linear, ("factor",)),
            "dynamic": Method(reader.dynamic, ("factor",)),
            "yarn": Method(self.yarn, ("factor",)),
            "llama3": Method(reader.llama3, (*BANDS, ORIGINAL)),
            "longrope": Method(self.longrope, LISTS),
        }

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        specs, local = super().read(trace), trace.family.local_base_key
        if not local:
            return specs
        # Gemma 3's sliding-window layers have a base of their own and are never scaled.
        sliding = specs["all"].unscaled(number(trace.get(local, trace.family.local_base), local))
        return {"full_attention": specs["all"], "sliding_attention": sliding}

    def settings(self, trace: Trace) -> dict[str, Settings]:
        # Base and share are beside rope_scaling; rope_parameters is not known to these releases.
        family, block = trace.family, trace.block("rope_scaling") or {}
        settings = Settings(trace, block, "rope_scaling")
        kind, path = trace.first(("rope_scaling.type", "rope_scaling.rope_type"), "default")
        if path == "rope_scaling.type" and "rope_type" in block:
            trace.mark("rope_scaling.rope_type", "overridden", "type wins in transformers 4")
        # Phi3Config._rope_scaling_adjustment renames both on loading.
        if family.name == "phi3" and kind in ("su", "yarn"):
            kind = "longrope"
        settings.put("rope_type", "default" if kind == "mrope" else kind, path)
        usual = f"default of the {family.name or 'model'} class"
        settings.put_first("rope_theta", family.base_keys, family.earlier_base, usual)
        share, source = trace.first(family.partial_keys, family.partial or 1.0)
        if (width := reader.share_of(trace, reader.head_dim_of(trace))) is not None:
            share = width
        settings.put("partial_rotary_factor", share, source)
        return {"all": settings}

    def kind(self, settings: Settings) -> Any:
        return settings.get("rope_type")

    def width(self, settings: Settings, head_dim: int) -> int:
        # Phi-3 of 4.48 and before rotates all of the head.
        if settings.trace.family.name == "phi3" and not self.phi3_share:
            return reader.width_of(head_dim, 1.0)
        return super().width(settings, head_dim)

    def yarn(self, settings: Settings) -> Made:
        trained, rule = settings.longest, self.yarn_rule
        if rule == "ratio" and ORIGINAL in settings.values:
            trained = settings.original()
            settings.mark("factor", "overridden", "max_position_embeddings / original wins")
            factor = settings.longest / trained
        else:
            factor = settings.number("factor")
            if rule == "factor" and settings.get(ORIGINAL):
                trained = settings.original()
        attention = reader.stated_attention(settings, factor, mscales=rule != "maximum")
        settings.drop_empty("beta_fast", "beta_slow")  # `config.rope_scaling.get(..) or 32`
        truncate = None if self.truncate else True
        return reader.coded_yarn(settings, factor, attention, trained, truncate)

    def longrope(self, settings: Settings) -> Made:
        static, attention = self.longrope_rule == "static", settings.read("attention_factor")
        short, long = settings.lists()
        if static and attention is None:
            raise RefusedError("longrope without attention_factor: its check compares None with 0")
        trained, given = settings.longest, settings.get("factor")
        # Only an original length at top level counts, not the one in the block.
        original = settings.trace.get(ORIGINAL)
        if original is not None:
            trained = whole(original, ORIGINAL)
            given = settings.longest / trained
        elif given is None and (static or attention is None):
            raise RefusedError("longrope without a factor and without a top-level original length")
        else:
            settings.read("factor")
        factor = 1.0 if given is None else number(given, "factor") or 1.0
        if attention is None:
            attention = reader.longrope_attention(factor, trained)
        if static:
            short = long = long if factor > 1 else short
        elif self.longrope_rule == "short" and settings.trace.model_type != "phi3":
            long = short
        return reader.longrope(short, long, factor, number(attention, "attention_factor"), trained)
