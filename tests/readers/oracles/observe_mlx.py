"""What MLX-LM computes: `python observe_mlx.py SITE OUT`, on its CPU build.

The model file of the architecture reads the config; unit vectors are rotated by its
rope at position 1, and at the last position for the method that follows the length.
"""

import importlib
import sys

sys.path.insert(0, sys.argv[1])

import common
import mlx.core as mx
import numpy as np

from configs import lengths

mx.set_default_device(mx.cpu)
MODULES = [
    "llama",
    "qwen2",
    "qwen3",
    "mixtral",
    "gemma2",
    "phi3",
    "gpt_oss",
    "deepseek_v3",
    "glm",
    "stablelm",
    "olmo2",
]
FILES = {"mistral": "llama", **{name: name for name in MODULES}}


def observe(config):
    kind = FILES.get(config["model_type"])
    if kind is None:
        raise common.AbsentError("no model file to ask")
    module = importlib.import_module(f"mlx_lm.models.{kind}")
    rope = first_rope(module, config)
    names = zip(("short", "long"), lengths(config), strict=True)
    return {
        "observed": {
            name: {"all": table(rope, config, length)} for name, length in names
        }
    }


def first_rope(module, config):
    """The rope of one attention layer, built from the arguments that the file keeps."""
    args = module.ModelArgs.from_dict({**module_needs(module), **config})
    attention = next(
        getattr(module, name)
        for name in (
            "Attention",
            "AttentionBlock",
            "MixtralAttention",
            "DeepseekV3Attention",
            "GLMAttention",
        )
        if hasattr(module, name)
    )
    return attention(args).rope


def module_needs(module):
    """Sizes that matter to no rope."""
    import inspect

    needed = inspect.signature(module.ModelArgs).parameters.values()
    empty = inspect.Parameter.empty
    return {p.name: 1 for p in needed if p.default is empty and "rope" not in p.name}


def table(rope, config, length):
    """Pairs (1, 0) turned at position 1, in a sequence as long as asked where that
    matters.
    """
    width = getattr(rope, "dims", None) or getattr(rope, "dim", None)
    follows_length = type(rope).__name__ == "DynamicNTKScalingRoPE"
    first = (
        slice(0, width, 2)
        if getattr(rope, "traditional", False)
        else slice(0, width // 2)
    )
    second = (
        slice(1, width, 2)
        if getattr(rope, "traditional", False)
        else slice(width // 2, width)
    )
    x = np.zeros((1, 1, length if follows_length else 2, width), np.float32)
    x[..., first] = 1
    turned = np.array(rope(mx.array(x)))[0, 0, 1]
    return common.from_rotation(turned[first], turned[second])


import mlx_lm  # noqa: E402

common.main(f"mlx-lm {mlx_lm.__version__}", observe, sys.argv[2])
