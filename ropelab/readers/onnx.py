"""ONNX Runtime GenAI: the tables of cos and sin that its model builder writes.

Read from models/builder.py and builders/base.py, llama.py and phi.py of
onnxruntime-genai 0.18.0, which loads a file by transformers. Its imports need transformers
5. What it makes of a file that transformers 4 loaded is the subject of its pull request
2609.
"""

import math
from dataclasses import dataclass
from typing import Any

from ropelab.readers import reader, scaling_types
from ropelab.readers.families import read_table
from ropelab.readers.reader import Reader
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.settings import Settings
from ropelab.readers.spec import NotModelledError, RefusedError, require_whole
from ropelab.readers.trace import ORIGINAL, Trace
from ropelab.readers.transformers import Transformers5
from ropelab.readers.transformers4 import Transformers4

NAMES = read_table("names")["onnx"]


@dataclass
class OnnxBuilder(Reader):
    """The builder, with one release of transformers."""

    # True: the release fills in a block for every file, as transformers 5 does.
    fills: bool = True

    model_types = NAMES["types"]
    refusal_of_model = "of onnxruntime-genai the class for '{}' was not read"
    refusal_of_type = "the class of this model does not know the rope type '{}'"

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        if trace.language_part.get("rope_position_scale") is not None:
            raise NotModelledError("positions times rope_position_scale")
        if not self.fills:
            refuse_null(trace)
            return Transformers4("factor", "switch").read_settings(trace)
        settings = Transformers5().read_settings(trace)
        if "all" not in settings:
            raise NotModelledError("a rotation for each layer type")
        return settings

    def find_type(self, settings: Settings) -> Any:
        scaling_type = settings.read("rope_type", "default")
        model = settings.trace.model_type
        if model == "phi3" and find_original(settings) != settings.longest:
            # Its builder for longer contexts makes two tables, whatever the type.
            return "longrope" if scaling_type == "longrope" else "short and long tables"
        if scaling_type == "longrope":
            return f"{scaling_type} at the original length"
        # The class of Llama replaces the method that knows all other scaling types.
        if model == "llama" and scaling_type not in ("default", "llama3"):
            settings.mark("rope_type", "ignored", "this class reads llama3 alone")
            return "default"
        if model != "llama" and scaling_type == "llama3":
            return "llama3, outside of Llama"
        return scaling_type


def refuse_null(trace: Trace) -> None:
    """Raise RefusedError for a rope_scaling of null, since the builder looks at its
    keys.

    In transformers 4 most classes fill in a null if the file does not have the key.
    """
    block = trace.block("rope_scaling")
    fills_in_null = trace.model_type in NAMES["null"]
    if block is None and (fills_in_null or trace.has("rope_scaling")):
        raise RefusedError(
            "rope_scaling is null, and its keys are looked at (TypeError); loaded by"
            " transformers 5 it is filled in"
        )
    # The class of Phi-3 takes no second name of the type, and does not copy the first.
    if block is not None and trace.model_type == "phi3":
        raise RefusedError(
            "rope_scaling has no rope_type (KeyError); loaded by transformers 5 it is"
            " filled in"
        )


def find_original(settings: Settings) -> int:
    """Return the length that a scaling starts from: the longest context if no key gives
    it.
    """
    top = settings.trace.family.original_max_position_embeddings
    original = settings.trace.get(ORIGINAL, settings.read(ORIGINAL, top))
    if original is None:
        return settings.longest
    return require_whole(original, ORIGINAL)


@scaling_types.scaling_type("onnxruntime-genai", "yarn")
def make_onnx_yarn(settings: Settings) -> MadeScaling:
    trained = find_original(settings)
    factor = settings.number("factor")
    # attention_factor and truncate are not read. mscale without mscale_all_dim is the
    # factor on cos and sin itself.
    attention = scaling_types.yarn_attention(factor)
    mscale = settings.number("mscale", 0.0)
    if mscale > 0:
        attention = mscale
    if mscale > 0 and settings.number("mscale_all_dim", 0.0) > 0:
        attention = scaling_types.mscale_ratio(settings, factor)

    if settings.get("partial_rotary_factor", 1.0) != 1:
        raise RefusedError("yarn with a rotated share has a ramp for the whole head")
    check_ramp(settings, trained)
    return scaling_types.make_yarn(settings, factor, attention, trained, truncate=False)


def check_ramp(settings: Settings, trained: int) -> None:
    """Raise RefusedError for a ramp that is not inside the head: the builder asserts
    it.
    """
    pairs = reader.read_head_dim(settings.trace) / 2
    log_base = math.log(settings.number("rope_theta"))
    ends = []
    for name in ("beta_fast", "beta_slow"):
        rotations = settings.number(name, 0.0)
        if rotations <= 0:
            raise RefusedError(f"yarn without {name}, whose default of 0 divides")
        # The pair that completes this number of rotations within the trained length.
        ends.append(pairs * math.log(trained / (rotations * 2 * math.pi)) / log_base)
    if not 0 < ends[0] < ends[1] < pairs - 1:
        raise RefusedError(
            f"yarn's ramp from pair {ends[0]:.1f} to {ends[1]:.1f} is not inside the head"
        )


@scaling_types.scaling_type("onnxruntime-genai", "longrope")
def make_onnx_longrope(settings: Settings) -> MadeScaling:
    # The builder also asks for the type under its older name.
    settings.needs("type")
    trained = find_original(settings)
    ratio = settings.longest / trained
    attention = scaling_types.longrope_attention(ratio, trained)
    for name in ("short_mscale", "long_mscale"):
        own_attention = settings.number(name, 0.0)
        if own_attention > 0 and own_attention != attention:
            raise NotModelledError(f"{name}, a factor on cos and sin of one table")
    return scaling_types.make_longrope(settings.lists(), ratio, trained)


OnnxBuilder.rules = scaling_types.read_rules("onnxruntime-genai")
