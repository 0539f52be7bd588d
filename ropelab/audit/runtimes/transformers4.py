"""transformers 4: `rope_theta` and `rope_scaling` beside each other; YaRN changed three times.

Read from src/transformers/modeling_rope_utils.py and the Llama, Phi-3, Gemma 3 and GPT-NeoX classes
of 4.44.2, 4.48.3, 4.51.3, 4.55.4 and 4.57.1.
"""

from typing import Any, Literal

from ropelab.audit.runtimes.reader import (
    BANDS,
    LISTS,
    ORIGINAL,
    Made,
    Method,
    Reader,
    Settings,
    dynamic,
    linear,
    llama3,
    longrope_attention,
    ramp,
    stated_attention,
    tables,
    unscaled,
    width_of,
)
from ropelab.audit.runtimes.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    numbers,
    whole,
)
from ropelab.audit.runtimes.trace import Trace
from ropelab.math.scaling import Unscaled


class Transformers4(Reader):
    """One release, by its differences from the others.

    Args:
        yarn: the source of ramp length and factor. "maximum": max_position_embeddings and factor;
            "ratio": original length, and max/original as the factor; "factor": original and factor.
        longrope: "static": long table from the start; "short": never switches (its Llama class);
            "switch": by length.
        truncate, phi3_share: whether YaRN reads truncate, and Phi-3 partial_rotary_factor.
    """

    # Model types that the release lacks, or whose classes read no rope_scaling.
    absent: frozenset[str] = frozenset()

    def __init__(
        self,
        yarn: Literal["maximum", "ratio", "factor"],
        longrope: Literal["static", "short", "switch"],
        truncate: bool = True,
        phi3_share: bool = True,
    ) -> None:
        self.yarn_rule, self.longrope_rule = yarn, longrope
        self.truncate, self.phi3_share = truncate, phi3_share
        bands = (*BANDS, ORIGINAL)
        self.methods = {
            "default": Method(unscaled),
            "linear": Method(linear, takes=("factor",), needs=("factor",)),
            "dynamic": Method(dynamic, takes=("factor",), needs=("factor",)),
            "yarn": Method(self.yarn, needs=("factor",)),
            "llama3": Method(llama3, takes=bands, needs=bands),
            "longrope": Method(self.longrope, takes=(*LISTS, "attention_factor"), needs=LISTS),
        }

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        """Return one spec, or Gemma 3's two."""
        if trace.model_type in self.absent:
            problem = f"that release has no '{trace.model_type}' that reads rope_scaling"
            raise NotModelledError(problem)
        specs, local = super().read(trace), trace.family.local_base_key
        if not local:
            return specs
        # Gemma 3's sliding-window layers have a base of their own and are never scaled.
        spec = specs["all"]
        sliding = RopeSpec(
            base=number(trace.get(local, 10000.0), local),
            head_dim=spec.head_dim,
            rotary_dim=spec.rotary_dim,
            scaling=Unscaled(),
            trained_len=spec.trained_len,
            claimed_len=spec.claimed_len,
            pairing=spec.pairing,
        )
        return {"full_attention": spec, "sliding_attention": sliding}

    def settings(self, trace: Trace) -> dict[str, Settings]:
        """Read rope_scaling with base and share beside it; rope_parameters is not known here."""
        family, block = trace.family, trace.block("rope_scaling") or {}
        settings = Settings(trace, block, "rope_scaling")
        kind, path = trace.first(("rope_scaling.type", "rope_scaling.rope_type"), "default")
        if path == "rope_scaling.type" and "rope_type" in block:
            trace.mark("rope_scaling.rope_type", "overridden", "type wins in transformers 4")
        if family.name == "phi3" and kind in ("su", "yarn"):
            kind = "longrope"
        settings.put("rope_type", "default" if kind == "mrope" else kind, path)
        base, source = trace.first(family.base_keys, family.earlier_base)
        source = source or f"default of the {family.name or 'model'} class"
        settings.put("rope_theta", base, source)
        share, source = trace.first(family.partial_keys, family.partial or 1.0)
        settings.put("partial_rotary_factor", share, source)
        return {"all": settings}

    def kind(self, settings: Settings) -> Any:
        """Return the scaling type that was chosen with the settings."""
        return settings.get("rope_type")

    def width(self, settings: Settings, head_dim: int) -> int:
        """Return the share of the head; Phi-3 rotated all of it before it read a share."""
        if settings.family.name == "phi3" and not self.phi3_share:
            return width_of(head_dim, 1.0)
        return super().width(settings, head_dim)

    def yarn(self, settings: Settings) -> Made:
        """YaRN, its ramp length and factor by the rule of the release."""
        trained, rule = settings.longest, self.yarn_rule
        if rule == "ratio" and ORIGINAL in settings.values:
            settings.take(ORIGINAL)
            trained = whole(settings.get(ORIGINAL), ORIGINAL)
            path = "rope_scaling.factor"
            settings.trace.mark(path, "overridden", "max_position_embeddings / original wins")
            factor = settings.longest / trained
        else:
            settings.take("factor")
            factor = settings.number("factor")
            if rule == "factor" and settings.get(ORIGINAL):
                settings.take(ORIGINAL)
                trained = whole(settings.get(ORIGINAL), ORIGINAL)
        settings.take("beta_fast", "beta_slow", "attention_factor")
        truncate = True
        if self.truncate:
            settings.take("truncate")
            truncate = bool(settings.get("truncate", True))
        attention = stated_attention(settings, factor, mscales=rule != "maximum")
        fast = number(settings.get("beta_fast") or 32, "beta_fast")
        slow = number(settings.get("beta_slow") or 1, "beta_slow")
        return ramp(factor, attention, fast, slow, truncate), attention, trained

    def longrope(self, settings: Settings) -> Made:
        """longrope; only an original length at top level counts, not the one in the block."""
        static, attention = self.longrope_rule == "static", settings.get("attention_factor")
        if static and attention is None:
            raise RefusedError("longrope without attention_factor: its check compares None with 0")
        trained, given = settings.longest, settings.get("factor")
        original = settings.trace.get(ORIGINAL)
        if original is not None:
            trained = whole(original, ORIGINAL)
            given = settings.longest / trained
        elif given is None and (static or attention is None):
            raise RefusedError("longrope without a factor and without a top-level original length")
        else:
            settings.take("factor")
        factor = 1.0 if given is None else number(given, "factor") or 1.0
        if attention is None:
            attention = longrope_attention(factor, trained)
        short, long = (numbers(settings.get(name), name) for name in LISTS)
        if static:
            short = long = long if factor > 1 else short
        elif self.longrope_rule == "short" and settings.trace.model_type != "phi3":
            long = short
        attention = number(attention, "attention_factor")
        return tables(short, long, factor, attention), attention, trained
