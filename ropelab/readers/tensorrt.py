"""TensorRT-LLM, which reads config.json for one layer type, loaded by transformers.

A few of its classes make tables for each layer type.

Read from RopeParams.from_config in tensorrt_llm/_torch/attention_backend/interface.py, in a
copy of 2026 whose release is not known.

`settings.read` marks the key of a value as used, and `settings.get` does not. `trace.get`
reads a key beside the block of the scaling.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ropelab.readers import reader, scaling_types
from ropelab.readers.families import read_table
from ropelab.readers.reader import Reader
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RopeSpec,
    require_number,
    require_whole,
)
from ropelab.readers.trace import MAXIMUM, ORIGINAL, Trace
from ropelab.readers.transformers import Transformers5

_NAMES = read_table("names")["tensorrt"]
# The scalings of the classes that make their tables themselves, by model type and layer
# type.
OWN_METHODS: dict[str, dict[str, list[str]]] = _NAMES["own_methods"]
# The keys of a block that these classes pass over.
PASSED_OVER = ("mscale", "mscale_all_dim", "truncate")


class TensorRt(Reader):
    """TensorRT-LLM, its PyTorch path."""

    default_longest = None
    usual_factor = 1.0

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        own_methods = OWN_METHODS.get(trace.family.name)
        if own_methods and has_each_block(trace, own_methods):
            return read_own_tables(trace, own_methods)

        specs = super().read(trace)
        if not trace.family.local_base_key:
            return specs

        # modeling_gemma3.py: layers with a window have the base that transformers loads
        # for them, and no scaling.
        loaded = Transformers5().read_settings(trace).get("sliding_attention")
        if loaded is None:
            return specs
        full = specs["all"]
        sliding = full.unscaled(loaded.number("rope_theta"))
        return {"full_attention": full, "sliding_attention": sliding}

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        # transformers loads the file. Of several layer types full attention is read, which
        # is the first.
        loaded = next(iter(Transformers5().read_settings(trace).values()))
        if loaded.layer == "compress":
            raise NotModelledError(
                "DeepSeek-V4's bases by layer, with a rule of its own"
            )

        # The original length at top level wins. If no length is given, or 0, it is
        # 1024.
        original_beside_block = trace.get(ORIGINAL)
        if original_beside_block:
            loaded.put(ORIGINAL, original_beside_block, ORIGINAL)
            return {"all": loaded}

        # If the block has no original length, transformers copies the maximum there.
        # TensorRT-LLM does not, so that such a copy does not count.
        source = loaded.sources.get(ORIGINAL, "")
        is_copy = source == MAXIMUM
        original_in_block = 0 if is_copy else loaded.get(ORIGINAL)
        loaded.put(ORIGINAL, original_in_block or 1024, source)
        return {"all": loaded}

    def find_type(self, settings: Settings) -> Any:
        # An empty name means no scaling.
        return super().find_type(settings) or "default"

    def find_pairing(self, trace: Trace) -> Any:
        # modeling_deepseekv3.py passes is_neox=False, whatever rope_interleave says.
        return "interleaved" if trace.family.latent else super().find_pairing(trace)

    def find_width(self, settings: Settings, head_dim: int) -> int:
        trace = settings.trace
        # The base of GPT-NeoX, rotary_emb_base, is taken for a width.
        for name in ("rotary_dim", "rotary_emb_base", "qk_rope_head_dim"):
            width = trace.get(name)
            if width:
                return reader.check_rotated_width(head_dim, require_whole(width, name))

        share = trace.get("rotary_pct") or settings.read("partial_rotary_factor") or 1.0
        return reader.compute_rotated_width(head_dim, require_number(share, "share"))


def has_each_block(trace: Trace, layers: Iterable[str]) -> bool:
    """Return True if the file has a dict of settings for each of these layer types."""
    block = trace.block("rope_parameters") or {}
    return all(isinstance(block.get(layer), Mapping) for layer in layers)


def read_own_tables(
    trace: Trace, own_methods: Mapping[str, Collection[str]]
) -> dict[str, RopeSpec]:
    """Return the rotations of a class that makes its tables itself.

    It takes the settings that transformers loads for each layer type.

    Args:
        trace: the file.
        own_methods: the scalings that the class has, by layer type.
    """
    specs = Transformers5().read(trace)
    block = trace.block("rope_parameters") or {}
    for layer, spec in specs.items():
        # The name of the scaling without its parameters.
        method = spec.method.partition("(")[0]
        is_passed_over = any(key in block[layer] for key in PASSED_OVER)
        if method not in own_methods[layer] or is_passed_over:
            raise NotModelledError(
                f"'{trace.family.name}' with a scaling that its class there passes over"
            )
    return specs


@scaling_types.scaling_type("tensorrt-llm", "longrope", "su")
def choose_table_by_limit(settings: Settings) -> MadeScaling:
    """Return longrope with the table that the limit of the runtime chooses."""
    trained = settings.original()
    # Without max_seq_len the long table is used.
    limit = settings.trace.get("max_seq_len")
    is_long = limit is None or require_number(limit, "max_seq_len") > trained
    name = "long_factor" if is_long else "short_factor"
    return scaling_types.make_one_table(settings, name, trained)


TensorRt.rules = scaling_types.read_rules("unscaled") | scaling_types.read_rules(
    "tensorrt-llm"
)
