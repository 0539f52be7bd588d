"""What vLLM computes: `python observe_vllm.py WHEEL_FOLDER VERSION OUT SITE`.

SITE is a folder with the release of transformers that vLLM asks for.

Its config patch, its get_rope and its length rule run as they are; a Llama attention
layer's call is made from the same arguments (DeepSeek's where the head has a rotary
part of its own).
"""

import importlib
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

# Ahead of the environment's own transformers, which is newer than vLLM allows.
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
RUNNING = SimpleNamespace(model_config=SimpleNamespace(max_model_len=0))


class CustomOp(nn.Module):
    """The base class of operators, without its registry."""

    register = staticmethod(lambda name: lambda cls: cls)
    enabled = classmethod(lambda cls: False)

    def __init__(self, **_: Any):
        super().__init__()


AITER = SimpleNamespace(is_triton_rotary_embed_enabled=lambda: False)
standins.install(
    str(ROOT),
    "vllm",
    ("vllm.model_executor.layers.rotary_embedding",),
    {
        "vllm.model_executor.custom_op": {
            "CustomOp": CustomOp,
            "PluggableLayer": CustomOp,
        },
        "vllm.config": {"get_current_vllm_config": lambda: RUNNING},
        "vllm._aiter_ops": {"rocm_aiter_ops": AITER},
    },
)
rotary_embedding = importlib.import_module(
    "vllm.model_executor.layers.rotary_embedding"
)

LOGGER = SimpleNamespace(
    info=lambda *a: None, warning=lambda *a: None, warning_once=lambda *a: None
)


def getattr_iter(
    config: Any, names: list[str], default: Any, warn: bool = False
) -> Any:
    return next((getattr(config, n) for n in names if hasattr(config, n)), default)


sys.modules["vllm.config.utils"] = SimpleNamespace(getattr_iter=getattr_iter)
PATCH = standins.functions(
    ROOT / "vllm/transformers_utils/config.py",
    (
        "is_rope_parameters_nested",
        "patch_legacy_rope_type",
        "patch_rope_parameters",
        "iter_rope_parameters",
    ),
    {
        "__name__": "patches",
        "logger": LOGGER,
        "math": math,
        "ALLOWED_LAYER_TYPES": ("full_attention", "sliding_attention"),
    },
)
LENGTH = standins.functions(
    ROOT / "vllm/config/model.py",
    ("_get_and_verify_max_len",),
    {
        "__name__": "lengths",
        "iter_rope_parameters": PATCH["iter_rope_parameters"],
        "logger": LOGGER,
        "current_platform": SimpleNamespace(check_max_model_len=lambda n: n),
        "envs": SimpleNamespace(VLLM_ALLOW_LONG_MAX_MODEL_LEN=False),
    },
)
KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
)


def observe(config: dict) -> dict:
    built = CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    PATCH["patch_rope_parameters"](built)
    result = {
        n: layers(built, length)
        for n, length in zip(NAMES, lengths(config), strict=True)
    }
    return {"observed": result, "allowed": allowed(built)}


NAMES = ("short", "long")


def layers(built: Any, length: int) -> dict:
    parameters = built.rope_parameters
    if PATCH["is_rope_parameters_nested"](parameters):
        return {kind: table(built, part, length) for kind, part in parameters.items()}
    return {"all": table(built, parameters, length)}


def table(built: Any, parameters: dict, length: int) -> dict:
    RUNNING.model_config.max_model_len = length
    head_dim = (
        getattr(built, "head_dim", None)
        or built.hidden_size // built.num_attention_heads
    )
    parameters = dict(parameters)
    if mla := getattr(built, "qk_rope_head_dim", None):
        head_dim = mla
        if parameters["rope_type"] != "default":
            plain = parameters.get("attention_factor") == 1.0
            parameters["rope_type"] = (
                "deepseek_llama_scaling" if plain else "deepseek_yarn"
            )
    rotary_embedding._ROPE_DICT.clear()
    rope = rotary_embedding.get_rope(
        head_dim, built.max_position_embeddings, True, parameters, torch.float32
    )
    if hasattr(rope, "long_short_cos_sin_cache"):
        start = rope.original_max_position_embeddings if rope.use_long_rope else 0
        row = rope.long_short_cos_sin_cache[start + 1]
    else:
        row = rope.cos_sin_cache[1]
    cos, sin = row.double().chunk(2)
    return common.from_rotation(cos, sin)


def allowed(built: Any) -> int:
    given = {key: getattr(built, key, None) for key in KEYS}
    shortest = min(
        (value for value in given.values() if value is not None), default=2048
    )
    if model_max_length := getattr(built, "model_max_length", None):
        shortest = model_max_length
    arch = SimpleNamespace(
        derived_max_model_len_and_key=(shortest, "max_position_embeddings")
    )
    return LENGTH["_get_and_verify_max_len"](built, arch, None, None, False, None, None)


common.main(f"vllm {VERSION}", observe, OUT)
