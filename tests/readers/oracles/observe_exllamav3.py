"""What ExLlamaV3 computes: `python observe_exllamav3.py WHEEL_FOLDER VERSION OUT`.

Its reading of the rope settings and its frequency code run as they are, as its Llama
architecture calls them (DeepSeek's where the head has a rotary part of its own).
"""

import importlib
import sys
from typing import Any

import common
import standins

from configs import lengths

ROOT, VERSION, OUT = sys.argv[1], sys.argv[2], sys.argv[3]
standins.install(
    ROOT,
    "exllamav3",
    ("exllamav3.util.rope", "exllamav3.util.file", "exllamav3.model.config"),
    {},
)
ROPE = importlib.import_module("exllamav3.util.rope")
CONFIG = importlib.import_module("exllamav3.model.config")
LIKE_LLAMA = [
    "llama",
    "qwen2",
    "qwen3",
    "mistral",
    "mixtral",
    "phi3",
    "olmo2",
    "granite",
    "deepseek_v2",
    "deepseek_v3",
]


def observe(config: dict) -> dict:
    if config["model_type"] not in LIKE_LLAMA:
        raise common.AbsentError("its own architecture file reads other keys")
    reader = type("Reader", (CONFIG.Config,), {"__init__": lambda self: None})()
    reader.config_dict = config
    heads = config["num_attention_heads"]
    reader.head_dim = config.get("head_dim") or config["hidden_size"] // heads
    settings = reader.read_rope_settings_default(ROPE.RopeStyle.NEOX, **family(config))
    rope = ROPE.RoPE("cpu", settings)
    table = common.entry(rope.inv_freq.double().tolist(), float(rope.attn_factor))
    return {
        "observed": {
            name: {"all": table} for name in ("short", "long")[: len(lengths(config))]
        }
    }


def family(config: dict) -> dict[str, Any]:
    if "qk_rope_head_dim" in config:
        return {
            "override_head_dim": config["qk_rope_head_dim"],
            "yarn_mscale_ratio": True,
        }
    return {}


common.main(f"exllamav3 {VERSION}", observe, OUT)
