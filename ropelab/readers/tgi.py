"""TGI (text-generation-inference), which reads config.json itself, for one layer type.

Read from server/text_generation_server/layers/rotary.py of text-generation-inference
db931fc (2026-01-08).
"""

from collections.abc import Mapping
from typing import Any

from ropelab.math.scaling import Yarn
from ropelab.readers import reader, scaling_types
from ropelab.readers.families import read_table
from ropelab.readers.reader import Reader
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.settings import Settings
from ropelab.readers.spec import NotModelledError, require_number
from ropelab.readers.trace import Trace


class Tgi(Reader):
    """text-generation-inference: the block of transformers 4, with its own scaling types."""

    refusal_of_type = "rope scaling type '{}' is not implemented"
    multiplies_unscaled_scores = False
    reads_local_base = True
    # The model types whose model file takes the rotated share.
    types_with_share = frozenset(read_table("names")["tgi"]["types_with_share"])
    # The model types whose model file reads head_dim; the others divide hidden_size.
    types_with_head_dim = frozenset(read_table("names")["tgi"]["types_with_head_dim"])

    def read_head_dim(self, trace: Trace) -> int:
        family = trace.family
        if family.latent or family.name in self.types_with_head_dim:
            return super().read_head_dim(trace)
        return reader.read_head_dim(trace, ())

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        block: Mapping[str, Any] = trace.block("rope_scaling") or {}
        # The variables ROPE_SCALING and ROPE_FACTOR replace the block. They are among the
        # flags here.
        if "rope_scaling" in trace.flags:
            block = {
                "type": trace.flags["rope_scaling"],
                "factor": trace.flags.get("rope_factor"),
            }
        settings = Settings(trace, block, "rope_scaling")
        settings.put_first_found(
            "rope_theta", trace.family.base_keys, trace.family.base, "class default"
        )
        return {"all": settings}

    def find_pairing(self, trace: Trace) -> Any:
        # flash_deepseek_v2 and _v3 sort the features of neighbours into halves first.
        return "interleaved" if trace.family.latent else super().find_pairing(trace)

    def find_width(self, settings: Settings, head_dim: int) -> int:
        # Only flash_gptj, flash_phi and flash_neox rotate a part of the head. The files of
        # GPT-J give the width of this part, which `find_rotated_width` reads; it returns
        # None for models without such a key.
        trace = settings.trace
        family = trace.family
        if family.name in self.types_with_share:
            share, _ = trace.first(family.share_keys, family.share or 1.0)
            share = require_number(share, "share")
            return reader.compute_rotated_width(head_dim, share)
        width = reader.find_rotated_width(trace) or head_dim
        return reader.check_rotated_width(head_dim, width)


@scaling_types.scaling_type("tgi", "default", "linear", "mrope")
def make_tgi_unscaled(settings: Settings) -> MadeScaling:
    """Scale nothing."""
    settings.mark("factor", "ignored", "linear is not applied on this path")
    return scaling_types.make_unscaled(settings)


@scaling_types.scaling_type("tgi", "yarn")
def make_tgi_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN by TGI's rules."""
    # Betas are fixed at 32 and 1, and only one mscale is read. attention_factor and
    # truncate are not read.
    factor = settings.number("factor")
    attention = scaling_types.mscale_ratio(settings, factor)
    scaling = Yarn(factor=factor, attention_factor=attention)
    return scaling, attention, settings.original()


@scaling_types.scaling_type("tgi", "longrope", "su")
def refuse_tgi_longrope(settings: Settings) -> MadeScaling:
    raise NotModelledError(
        "two tables inside one sequence: short below the original length"
    )


Tgi.rules = scaling_types.read_rules("tgi")
