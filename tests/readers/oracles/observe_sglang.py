"""What SGLang computes: `python observe_sglang.py WHEEL_FOLDER VERSION OUT SITE`.

SITE is a folder with the release of transformers that SGLang pins.

Its get_rope, its reading of the rope keys and its length rule run as they are; the call
is a Llama attention layer's (DeepSeek's where the head has a rotary part of its own).
"""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Ahead of the environment's own transformers, whose configurations lose the share.
sys.path.insert(0, sys.argv[4])

import common
import standins
import torch
import transformers
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from configs import lengths

transformers.logging.set_verbosity(50)
ROOT, VERSION, OUT = Path(sys.argv[1]), sys.argv[2], sys.argv[3]


def no(*_: Any) -> bool:
    return False


LIKE_LLAMA = [
    "llama",
    "qwen2",
    "qwen3",
    "mistral",
    "mixtral",
    "phi3",
    "olmo2",
    "granite",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
]


# Of these types, those whose model file takes a rotated share.
WITH_SHARE = ["llama", "mistral", "phi3"]


class Operator(nn.Module):
    """The base class of operators, without its registry."""

    def __init__(self, *_: Any, **__: Any):
        super().__init__()


FLAG = SimpleNamespace(get=lambda: True)
standins.install(
    str(ROOT),
    "sglang",
    ("sglang.srt.layers.rotary_embedding",),
    {
        "sglang.kernels.fused_op": {"BaseFusedOp": Operator},
        "sglang.srt.environ": {"envs": SimpleNamespace(SGLANG_ROPE_CACHE_FP32=FLAG)},
        "sglang.srt.runtime_context": {
            "publish_role": lambda: None,
            "get_exec": lambda: None,
        },
        "sglang.srt.utils": {
            **{
                f"is_{name}": no
                for name in ("cuda", "hip", "npu", "xpu", "musa", "mps")
            },
            "is_cpu": lambda: True,
            "get_bool_env_var": no,
            "cpu_has_amx_support": no,
            "get_device": lambda: "cpu",
        },
    },
)
from sglang.srt.layers.rotary_embedding import factory  # noqa: E402

COMMON = standins.functions(
    ROOT / "sglang/srt/utils/hf_transformers/common.py",
    ("get_rope_config", "get_context_length", "CONTEXT_LENGTH_KEYS"),
    {"__name__": "common"},
)


def observe(config: dict) -> dict:
    if config["model_type"] not in LIKE_LLAMA:
        raise common.AbsentError("its own model file reads other keys")
    built = CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    names = ("short", "long")
    result = {
        n: layers(built, length)
        for n, length in zip(names, lengths(config), strict=True)
    }
    return {"observed": result, "allowed": COMMON["get_context_length"](built)}


def layers(built: Any, length: int) -> dict:
    base, parameters = COMMON["get_rope_config"](built)
    if set(parameters) & {"full_attention", "sliding_attention"}:
        return {
            k: table(built, p["rope_theta"], p, length) for k, p in parameters.items()
        }
    return {"all": table(built, base, parameters, length)}


def table(built: Any, base: float, parameters: dict, length: int) -> dict:
    head_dim = (
        getattr(built, "head_dim", None)
        or built.hidden_size // built.num_attention_heads
    )
    rotary_dim = head_dim
    if built.model_type in WITH_SHARE:
        rotary_dim = int(getattr(built, "partial_rotary_factor", 1) * head_dim)
    parameters = dict(parameters)
    if original := getattr(built, "original_max_position_embeddings", None):
        parameters["original_max_position_embeddings"] = original
    if mla := getattr(built, "qk_rope_head_dim", None):
        head_dim = rotary_dim = mla
        if parameters["rope_type"] != "default":
            parameters["rope_type"] = "deepseek_yarn"
    factory._ROPE_DICT.clear()
    rope = factory.get_rope(
        head_dim,
        rotary_dim,
        built.max_position_embeddings,
        base,
        True,
        parameters,
        torch.float32,
    )
    row = chosen_row(rope, length)
    cos, sin = row.double().chunk(2)
    return common.from_rotation(cos, sin)


def chosen_row(rope: Any, length: int) -> torch.Tensor:
    if not hasattr(rope, "long_short_cos_sin_cache"):
        return rope.cos_sin_cache[1]
    long = length - 1 > rope.original_max_position_embeddings
    return rope.long_short_cos_sin_cache[
        rope.original_max_position_embeddings * long + 1
    ]


common.main(f"sglang {VERSION}", observe, OUT)
