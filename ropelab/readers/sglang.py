"""SGLang: what it does otherwise than vLLM (servers.py has the steps that both share).

Read from sglang 0.5.23: srt/layers/rotary_embedding, srt/models/llama.py and
srt/utils/hf_transformers/common.py.
"""

from collections.abc import Mapping
from typing import Any

from ropelab.math.scaling import NtkAware
from ropelab.readers import reader, scaling_types
from ropelab.readers.blocks import stop_unrotated
from ropelab.readers.families import read_table
from ropelab.readers.mistral_params import OWN_PARAMS
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.servers import LATENT_TYPE, SERVER_RULES, Server, read_lengths
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_whole,
)
from ropelab.readers.trace import MSCALES, ORIGINAL, Trace

_NAMES: dict[str, list[str]] = read_table("names")["sglang"]
# The keys of the length, of which the first is taken that a file has.
LENGTHS = tuple(_NAMES["lengths"])
# The model types whose scaling is not read.
UNSCALED_TYPES = tuple(_NAMES["unscaled_types"])


def refuse_params(trace: Trace) -> None:
    """Raise RefusedError for a params.json that SGLang does not load.

    NotModelledError: it is loaded as a model whose code was not read for it
    (adapt_config_dict in srt/utils/hf_transformers/mistral_utils.py).
    """
    params = trace.language_part.get(OWN_PARAMS)
    if params is None:
        return

    experts = params.get("moe")
    if not experts:
        if trace.family.latent:
            raise NotModelledError("a params.json of latent attention without experts")
        return
    if not trace.family.latent:
        raise NotModelledError("a params.json of experts without latent attention")
    queries = params.get("llama_4_scaling")
    needed = {"beta", "original_max_position_embeddings"}
    if not isinstance(queries, Mapping) or not needed <= queries.keys():
        raise RefusedError(
            "a params.json with shared experts needs llama_4_scaling, with beta and"
            " original_max_position_embeddings"
        )


class Sglang(Server):
    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        refuse_params(trace)
        return super().read(trace)

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        settings = super().read_settings(trace)
        if trace.family.has_no_block:
            fill_blockless(settings["all"])
        return settings

    def make_spec(self, settings: Settings) -> RopeSpec:
        if settings.get("rope_theta") is None:
            stop_unrotated(settings.trace)
        if settings.trace.family.whole_base:
            base = int(settings.number("rope_theta"))
            settings.put("rope_theta", base, settings.sources["rope_theta"])
        return super().make_spec(settings)

    def find_pairing(self, trace: Trace) -> Any:
        # The weights beside a params.json have adjacent pairs. vLLM reorders them,
        # SGLang rotates them as they are (mistral_utils.py:93).
        if OWN_PARAMS in trace.language_part and not trace.family.latent:
            return "interleaved"
        return super().find_pairing(trace)

    def find_type(self, settings: Settings) -> Any:
        family = settings.trace.family
        if family.name in UNSCALED_TYPES:
            return "default"
        scaling_type = super().find_type(settings)
        # mistral_utils.py:163 names the scaling of any params.json so.
        if OWN_PARAMS in settings.trace.language_part and scaling_type == "yarn":
            return LATENT_TYPE
        return scaling_type

    def limit_length(self, settings: Settings) -> tuple[int, int]:
        trace = settings.trace
        factor = settings.get("factor")
        if OWN_PARAMS in trace.language_part:
            # _remap_general_mistral_args fills in this key, which comes before the usual
            # one.
            length, _ = trace.first(("max_seq_len",), 128_000)
            return require_whole(length, "max_seq_len"), 0
        length = next(read_lengths(trace, LENGTHS), 2048)

        # The factor multiplies the length in a flat block only, and only without an
        # original length. The path of a key in the dict of a layer type has two dots, as
        # in rope_parameters.full_attention.rope_type.
        dots = settings.sources.get("rope_type", "").count(".")
        is_nested = trace.family.layer_blocks or dots > 1
        is_llama3 = settings.get("rope_type") == "llama3"
        has_original = ORIGINAL in settings.values or is_llama3
        if is_nested or has_original or factor is None:
            return length, 0
        return int(length * require_number(factor, "factor")), length

    def find_width(self, settings: Settings, head_dim: int) -> int:
        if settings.trace.get("rope_rotate_half_dims") is True:
            return reader.compute_rotated_width(head_dim, 0.5)
        if settings.trace.family.sglang_share_keys:
            return find_width_by_keys(settings, head_dim)
        # gpt_j.py passes the width on.
        width = reader.find_cut_width(settings.trace, head_dim)
        if width is not None:
            return width
        is_proportional = settings.get("rope_type") == "proportional"
        if not settings.trace.family.reads_share_unscaled and not is_proportional:
            return reader.compute_rotated_width(head_dim, 1.0)
        return super().find_width(settings, head_dim)


def find_width_by_keys(settings: Settings, head_dim: int) -> int:
    """Return the rotated width of model files that read the share outside the block, by
    `getattr(config, "partial_rotary_factor", 1)`.

    transformers 5.19, which SGLang 0.5.23 runs, leaves the key of the file outside the
    block (modeling_rope_utils.py:763), also beside a block that has another share.
    """
    trace = settings.trace
    family = trace.family
    note = "the model file takes the share from beside the block"
    settings.mark("partial_rotary_factor", "ignored", note)

    for key in family.sglang_share_keys:
        if trace.has(key):
            value = trace.get(key)
            trace.mark(key, "used")
            # This key has the width itself, and the other keys have the share.
            if key == "rotary_dim":
                return reader.check_rotated_width(head_dim, require_whole(value, key))
            return reader.compute_rotated_width(head_dim, require_number(value, key))
        if key == "partial_rotary_factor" and family.share is not None:
            return reader.compute_rotated_width(head_dim, family.share)

    if family.usual_width:
        return reader.check_rotated_width(head_dim, family.usual_width)
    return reader.compute_rotated_width(head_dim, 1.0)


def fill_blockless(settings: Settings) -> None:
    """Set the base of a class that has no block (GPT-J).

    transformers 5.19 takes both keys of an older file out of the configuration
    (configuration_utils.py:345), and a base inside rope_parameters is not looked at.
    """
    trace = settings.trace
    base = trace.get("rope_theta", 10000.0)
    source = "rope_theta"

    if trace.block("rope_scaling") and base:
        note = "dropped with rope_scaling before the model file looks"
        trace.mark("rope_theta", "ignored", note)
        base = 10000.0
        source = "default of the model file"
    settings.put("rope_theta", base, source)


@scaling_types.scaling_type("sglang", "yarn")
def make_sglang_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN by SGLang's rules."""
    if settings.get("extrapolation_factor", 1) != 1:
        raise NotModelledError("an extrapolation_factor other than 1")

    factor = settings.number("factor")
    family = settings.trace.family
    if family.name == "deepseek_v4" or family.has_scaling_beside_base:
        # Their classes rotate by their own tables, without a factor on cos and sin.
        return scaling_types.make_yarn(settings, factor, 1.0)
    if family.counts_attention_factor and settings.get("attention_factor") is not None:
        return scaling_types.make_yarn(
            settings, factor, settings.number("attention_factor")
        )

    attention = scaling_types.yarn_attention(factor)
    # Unlike in transformers, mscales of 0 count.
    if all(settings.get(name) is not None for name in MSCALES):
        attention = scaling_types.mscale_ratio(settings, factor)
    # attention_factor is not read; attn_factor multiplies.
    attention *= settings.number("attn_factor", 1.0)
    return scaling_types.make_yarn(settings, factor, attention)


@scaling_types.scaling_type("sglang", "deepseek_yarn")
def make_sglang_latent_yarn(settings: Settings) -> MadeScaling:
    """Return the YaRN of latent attention by SGLang's rules."""
    # attn_factor multiplies the factor on cos and sin here, too.
    scaling, attention, trained = scaling_types.make_mscale_yarn(settings)
    return scaling, attention * settings.number("attn_factor", 1.0), trained


@scaling_types.scaling_type("sglang", "dynamic")
def make_sglang_dynamic(settings: Settings) -> MadeScaling:
    """Raise the base at every length, to the base that the longest sequence needs."""
    if "alpha" in settings.values:
        return scaling_types.raise_base(settings)

    # The longest sequence has `factor` times the tokens of the maximum.
    factor = settings.number("factor")
    multiplier = factor * factor - (factor - 1)
    return NtkAware(factor=multiplier), 1.0, settings.longest


Sglang.rules = SERVER_RULES | scaling_types.read_rules("sglang")
