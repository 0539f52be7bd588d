"""Trainers that compute their own rotation, or change the rotation of transformers.

Read from megatron-core 0.16.1 (models/common/embeddings/rotary_pos_embedding.py,
models/gpt) with Megatron-LM's arguments, and from llamafactory 0.9.5
(model/model_utils/rope.py), megatron-bridge 0.3.1 (models/*/*_bridge.py), torchtitan
0.3.0 (models) and unsloth 2026.10.9 (models/llama.py).
"""

import math
from collections.abc import Mapping
from typing import Any

from ropelab.math.scaling import Unscaled
from ropelab.readers import reader, scaling_types
from ropelab.readers.families import read_table
from ropelab.readers.reader import Reader
from ropelab.readers.scaling_types import USUAL_BANDS, MadeScaling
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    MOST_FEATURES,
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_whole,
)
from ropelab.readers.trace import MAXIMUM, MSCALES, ORIGINAL, Trace, find_rope_block
from ropelab.readers.transformers import Transformers5
from ropelab.readers.transformers4 import Transformers4

# The flags that set a value, and the flags without a value, with the name of the
# setting.
FLAGS: dict[str, str] = read_table("trainers")["flags"]
SWITCHES: dict[str, str] = read_table("trainers")["switches"]
# The model types of Megatron-Bridge: those that were read, and those with YaRN.
BRIDGED: dict[str, list[str]] = read_table("trainers")["bridged"]
# The scaling types that LLaMA-Factory offers.
LLAMAFACTORY = ("linear", "dynamic", "yarn", "llama3")


class Megatron(Reader):
    """Megatron-LM's GPT model with --position-embedding-type rope: no key of the file
    counts.
    """

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        if trace.family.latent:
            raise NotModelledError("Megatron-LM's latent attention")
        settings = Settings(trace)
        flags = trace.flags

        base_source = "default of --rotary-base"
        if "rotary_base" in flags:
            base_source = "--rotary-base"
        settings.put("rope_theta", flags.get("rotary_base", 10000), base_source)
        share = flags.get("rotary_percent", 1.0)
        settings.put("partial_rotary_factor", share, "--rotary-percent")
        settings.put("rope_type", "default", "flags")

        uses_llama3 = flags.get("use_rope_scaling")
        interpolation_factor = flags.get("interpolation")
        if uses_llama3 and interpolation_factor:
            raise NotModelledError("--use-rope-scaling with an interpolation factor")
        if uses_llama3:
            # The other three numbers are constants in its code.
            settings.values |= {
                "rope_type": "llama3",
                "factor": flags.get("rope_scaling_factor", 8.0),
                **USUAL_BANDS,
                ORIGINAL: 8192,
            }
        elif interpolation_factor:
            settings.values |= {"rope_type": "linear", "factor": interpolation_factor}
        return {"all": settings}

    def read_head_dim(self, trace: Trace) -> int:
        if "kv_channels" not in trace.flags:
            return reader.read_head_dim(trace, ())
        width = require_whole(trace.flags["kv_channels"], "--kv-channels")
        if width > MOST_FEATURES:
            raise RefusedError(f"heads of {width} features")
        return width

    def find_pairing(self, trace: Trace) -> Any:
        return "interleaved" if trace.flags.get("rotary_interleaved") else "half"


Megatron.rules = scaling_types.COMMON_RULES | scaling_types.read_rules("megatron")


class LlamaFactory(Transformers4):
    """transformers 4 after LLaMA-Factory has replaced the block."""

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        scaling_type = trace.flags.get("rope_scaling", "null")
        if scaling_type not in (*LLAMAFACTORY, "null"):
            raise RefusedError(f"rope_scaling must be one of {', '.join(LLAMAFACTORY)}")
        if scaling_type != "null":
            trace.language_part = {
                **trace.language_part,
                **extend_length(trace, scaling_type),
            }
        return super().read(trace)


def extend_length(trace: Trace, scaling_type: str) -> dict[str, Any]:
    """Return the keys that LLaMA-Factory sets for training.

    There are none if LLaMA-Factory's cutoff is not beyond the length of the model.
    `scaling_type` is the scaling type that the user asks for.
    """
    block_of_file: Mapping[str, Any] = {}
    if trace.has("rope_scaling"):
        _, block_of_file = find_rope_block(trace.language_part)
    length = require_whole(
        block_of_file.get(ORIGINAL, trace.language_part.get(MAXIMUM)), MAXIMUM
    )
    cutoff = require_number(trace.flags.get("cutoff_len", 2048), "--cutoff-len")
    factor = math.ceil(cutoff / length)
    if factor <= 1:
        return {}

    block = {"rope_type": scaling_type, "factor": float(factor)}
    if scaling_type == "llama3":
        block |= USUAL_BANDS
    if scaling_type != "linear":
        block[ORIGINAL] = length
    return {MAXIMUM: length * factor, "rope_scaling": block}


class MegatronBridge(Reader):
    """Megatron-LM's GPT model, as Megatron-Bridge (verl, NeMo-RL) builds it from a file."""

    model_types = tuple(BRIDGED["types"])
    refusal_of_model = "of Megatron-Bridge the class for '{}' was not read"

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        settings = Transformers4("factor", "switch").read_settings(trace)["all"]
        # The bridge of a model passes on only what the model's class in Megatron-LM
        # takes.
        model = trace.model_type
        scaling_type = settings.get("rope_type")
        if model == "gpt_oss":
            settings.values |= read_table("trainers")["bridged_gpt_oss"]
        elif (model, scaling_type) == ("llama", "llama3"):
            settings.values |= {**USUAL_BANDS, ORIGINAL: 8192}
        elif (model, scaling_type) == ("mistral", "yarn"):
            raise RefusedError("MistralModelProvider takes no scale_factor")
        elif scaling_type != "yarn":
            settings.values["rope_type"] = "default"
        return {"all": settings}


@scaling_types.scaling_type("megatron-bridge", "yarn")
def make_bridged_yarn(settings: Settings) -> MadeScaling:
    """Keep YaRN's factor on cos and sin; only two bridges keep its frequencies."""
    factor = settings.number("factor")
    attention = scaling_types.yarn_attention(factor)
    has_mscales = all(settings.get(name) is not None for name in MSCALES)
    if has_mscales:
        attention = scaling_types.mscale_ratio(settings, factor)

    if settings.trace.model_type in BRIDGED["types_with_yarn"]:
        return scaling_types.make_yarn(settings, factor, attention)
    # Other bridges set the numbers of YaRN, and position_embedding_type to 'rope':
    # frequencies are then plain, and attention still has the factor.
    return Unscaled(), attention, settings.longest


MegatronBridge.rules = {
    **Megatron.rules,
    **scaling_types.read_rules("megatron-bridge"),
}


class TorchTitan(Transformers5):
    """torchtitan's own models, found by their sizes. No rotary key of a file is read."""

    models = read_table("trainers")["torchtitan"]
    sizes = ("hidden_size", "num_hidden_layers", "num_key_value_heads")
    model_types = frozenset(kind for row in models for kind in row["types"])
    refusal_of_model = "torchtitan has no model of type '{}'"

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        sizes = [trace.language_part.get(key) for key in self.sizes]
        for row in self.models:
            if trace.model_type not in row["types"]:
                continue
            for size_name, known_sizes in row["sizes"].items():
                if known_sizes == sizes:
                    model_name = f"torchtitan's {row['name']} {size_name}"
                    return {"all": Settings(trace, row["rope"], model_name)}
        raise NotModelledError("torchtitan has no model of these sizes")


class Unsloth(Transformers5):
    """transformers 5, but for a few model types, for which it computes frequencies
    itself.
    """

    types_with_own_code = tuple(read_table("trainers")["unsloth"]["types"])

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        if trace.model_type in self.types_with_own_code:
            return super().read(trace)
        return Transformers5().read(trace)

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        settings = super().read_settings(trace)["all"]
        longest = self.find_longest(trace)
        requested_length = require_whole(
            trace.flags.get("max_seq_length", longest), "--max-seq-length"
        )
        # The rotation is scaled to a context that is longer than the file's, unless the
        # file has llama3.
        if requested_length > longest:
            trace.language_part = {**trace.language_part, MAXIMUM: requested_length}
            if settings.get("rope_type") != "llama3":
                factor = requested_length / longest
                settings.values |= {"rope_type": "linear", "factor": factor}
        if trace.model_type.startswith("gemma"):
            settings.values["rope_type"] = "default"
        return {"all": settings}


Unsloth.rules = {
    **Transformers5.rules,
    **scaling_types.read_rules("unsloth"),
}
