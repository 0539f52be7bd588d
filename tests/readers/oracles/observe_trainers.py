"""Ask trainers what they compute: `python observe_trainers.py NAME PLACES.. OUT.json`.

NAME and its places, all unpacked wheels: `torchtitan` its own; `unsloth` its own;
`megatron-bridge` its own, megatron-core's and a folder with transformers 4.57;
`axolotl` its own. Run where transformers is one that they pin. Weights are never made:
models exist on the meta device only.
"""

import ast
import contextlib
import importlib
import itertools
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import standins

HEAD = {"hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LISTS = {"short_factor": [1.0 + i / 8 for i in range(8)], "long_factor": [4.0] * 8}
BLOCKS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 4.0},
    YARN,
    {**YARN, "beta_fast": 16, "beta_slow": 2, "attention_factor": 1.5},
    {**YARN, "mscale": 0.707, "mscale_all_dim": 0.5},
    LLAMA3,
    {**LLAMA3, "low_freq_factor": 2.0, "original_max_position_embeddings": 4096},
    {
        "rope_type": "longrope",
        "factor": 4.0,
        "original_max_position_embeddings": 8192,
        **LISTS,
    },
)


class Anything(type):
    """A class with any attribute, where a module is only imported."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return anything(name)


def anything(name: str) -> Any:
    called = {
        "__init__": lambda self, *a, **k: None,
        "__call__": lambda self, *a, **k: a and a[0],
    }
    return Anything(name, (), called)


def mocked(*packages: str) -> None:
    standins.Mocked.__getattr__ = lambda self, name: (  # type: ignore[method-assign]
        vars(self).get(name) if name.startswith("__") else anything(name)
    )
    for package in packages:
        standins.install("", package, ("\0",), {package: {"__version__": "99.0"}})


def row_of(inv_freq: Any, factor: float = 1.0, **more: Any) -> dict[str, Any]:
    return {**more, "inv_freq": [float(f"{x:.9g}") for x in inv_freq], "factor": factor}


def torchtitan(place: str) -> tuple[str, list[dict[str, Any]]]:
    """Every flavour: frequencies from position 1 of its table, and its factor on
    scores.
    """
    sys.path.insert(0, place)
    mocked("spmd_types", "tyro", "triton", "fla")
    import torch

    rows = []
    for name in ("llama3", "qwen3", "qwen3_5", "deepseek_v3", "gpt_oss", "kimi_k2_7"):
        module = importlib.import_module(f"torchtitan.models.{name}")
        flavours = next(v for k, v in vars(module).items() if k.endswith("_configs"))
        for flavour, make in flavours.items():
            if any(word in flavour for word in ("debug", "moonlight", "VL")):
                continue  # the last two have the sizes of one another
            extra = (
                {"moe_comm_backend": "standard"}
                if "moe_comm" in str(signature(make))
                else {}
            )
            config = make(attn_backend="flex", **extra)
            layers = [
                layer.attention
                for layer in config.layers
                if hasattr(layer, "attention")
            ]
            attention = next(one for one in layers if one is not None)
            rope = attention.rope
            cache = shorten_value(rope).build().cache
            half = (
                cache[1, rope.dim : rope.dim + rope.dim // 2]
                if cache.is_floating_point()
                else 0
            )
            angles = torch.angle(cache[1]) if cache.is_complex() else torch.asin(half)
            # Angles of one radian at most, so both are whole.
            factor = 1.0
            if (
                "softmax_scale"
                in Path(sys.modules[type(attention).__module__].__file__).read_text()
            ):
                with torch.device("meta"):
                    scale = getattr(attention.build(), "softmax_scale", None)
                width = getattr(attention, "head_dim", None) or (
                    attention.qk_nope_head_dim + attention.qk_rope_head_dim
                )
                factor = scale * math.sqrt(width)
            heads = getattr(attention, "n_kv_heads", None) or attention.n_heads
            sizes = [config.dim, len(config.layers), heads]
            rows.append(
                row_of(angles.double(), factor, model=f"{name} {flavour}", sizes=sizes)
            )
    return "torchtitan 0.3.0", rows


def signature(function: Any) -> Any:
    import inspect

    return inspect.signature(function)


def shorten_value(rope: Any) -> Any:
    import dataclasses

    return dataclasses.replace(rope, max_seq_len=2)


def taken(path: Path, wanted: tuple[str, ...], own: dict[str, Any]) -> dict[str, Any]:
    """Those functions and classes of a file, without running the rest of it."""
    tree = ast.parse(path.read_text())
    parts = [node for node in tree.body if getattr(node, "name", "") in wanted]
    assert len(parts) == len(wanted), [part.name for part in parts]
    exec(compile(ast.Module(parts, []), str(path), "exec"), own)
    return own


def unsloth(place: str) -> tuple[str, list[dict[str, Any]]]:
    """Its rotary classes on a configuration of transformers, after its loader's own
    functions.
    """
    import torch
    import transformers

    models = Path(place) / "unsloth" / "models"
    own: dict[str, Any] = {"torch": torch, "math": math, "contextlib": contextlib}
    own |= {
        "DEVICE_COUNT": 1,
        "DEVICE_TYPE_TORCH": "cpu",
        "get_current_device": lambda: "cpu",
    }
    own["logger"] = SimpleNamespace(warning_once=lambda *words: None)
    names = ("_get_rope_theta", "_rope_scaling_as_dict", "_extended_rope_scaling")
    names += ("_llama3_inv_freq_from_config", "_vanilla_inv_freq_from_config")
    names += (
        "_compute_config_rope_inv_freq",
        "_PerDeviceRopeCache",
        "LlamaRotaryEmbedding",
    )
    taken(models / "llama.py", names, own)
    taken(models / "gemma.py", ("GemmaFixedRotaryEmbedding",), own)
    rows = []
    for kind, block, wanted in itertools.product(
        ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2"), BLOCKS, (0, 32768)
    ):
        file = {**HEAD, "model_type": kind, "rope_theta": 500000.0, "head_dim": 16}
        file |= {"rope_scaling": block} if block else {}
        config = transformers.CONFIG_MAPPING[kind](**json.loads(json.dumps(file)))
        # The lines of FastLlamaModel.from_pretrained about a longer max_seq_length.
        longest = config.max_position_embeddings
        if wanted > longest:
            scaling, _ = own["_extended_rope_scaling"](config, wanted / longest)
            if scaling is not None:
                config.rope_scaling = scaling
            config.max_position_embeddings = wanted
        name = "GemmaFixed" if kind.startswith("gemma") else "Llama"
        module = own[f"{name}RotaryEmbedding"](config=config)
        module.current_rope_size = 2
        cos, sin = module._set_cos_sin_cache(2, torch.device("cpu", 0), torch.float32)
        norm = float(torch.hypot(cos[1, 0], sin[1, 0]).double())
        angles = torch.atan2(sin[1, :8].double(), cos[1, :8].double())
        rows.append(
            row_of(angles, norm, config=file, flags=f"--max-seq-length {wanted}")
        )
        if not wanted:
            rows[-1]["flags"] = ""
    return f"unsloth 2026.10.9 with transformers {transformers.__version__}", rows


def megatron_bridge(*places: str) -> tuple[str, list[dict[str, Any]]]:
    """Its provider from a configuration, and the modules that GPTModel builds from a
    provider.
    """
    sys.path[:0] = [places[2], places[0], places[1]]
    mocked("transformer_engine", "omegaconf", "triton")
    import torch
    import transformers
    from megatron.bridge.models import deepseek, gpt_oss, llama, mistral, qwen
    from megatron.core.models.common.embeddings import (
        rotary_pos_embedding as write_plainly,
    )
    from megatron.core.models.common.embeddings import yarn_rotary_pos_embedding as yarn

    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment]
    bridges = {
        "llama": llama.llama_bridge.LlamaBridge,
        "qwen2": qwen.qwen2_bridge.Qwen2Bridge,
        "qwen3": qwen.qwen3_bridge.Qwen3Bridge,
        "qwen3_moe": qwen.qwen3_moe_bridge.Qwen3MoEBridge,
        "mistral": mistral.mistral_bridge.MistralBridge,
        "gpt_oss": gpt_oss.gpt_oss_bridge.GPTOSSBridge,
        "deepseek_v3": deepseek.deepseek_v3_bridge.DeepSeekV3Bridge,
    }
    rows = []
    for (kind, bridge), block in itertools.product(bridges.items(), BLOCKS):
        if kind == "deepseek_v3" and block and block["rope_type"] != "yarn":
            continue  # not mapped: a default factor of 40 stays
        file = {**HEAD, "model_type": kind, "rope_theta": 500000.0, "head_dim": 16}
        file |= {"rope_scaling": block, "torch_dtype": "bfloat16"}
        if kind == "deepseek_v3":
            file |= {"qk_rope_head_dim": 16}
        config = transformers.CONFIG_MAPPING[kind](**json.loads(json.dumps(file)))
        try:
            provider = bridge().provider_bridge(SimpleNamespace(config=config))
        except TypeError as error:
            rows.append({"config": file, "refused": str(error)})
            continue
        latent = kind == "deepseek_v3"
        width = provider.qk_pos_emb_head_dim if latent else provider.kv_channels
        width = width or provider.hidden_size // provider.num_attention_heads
        base, score = provider.rotary_base, 1.0
        if latent:  # the lines of MultiLatentAttention
            names = ("original_max_position_embeddings", "beta_fast", "beta_slow")
            names += ("mscale", "mscale_all_dim")
            given = {name: getattr(provider, name) for name in names}
            scale = provider.rotary_scaling_factor
            score = yarn._yarn_get_mscale(scale, provider.mscale_all_dim) ** 2
            module = yarn.YarnRotaryEmbedding(
                width,
                rotary_base=base,
                scaling_factor=scale,
                use_cpu_initialization=True,
                **given,
            )
            emb, factor = module.get_emb(2)
        elif provider.position_embedding_type == "yarn":  # those of GPTModel
            names = ("original_max_position_embeddings", "beta_fast", "beta_slow")
            names += ("mscale", "mscale_all_dim", "correction_range_round_to_int")
            given = {name: getattr(provider, f"yarn_{name}", None) for name in names}
            module = yarn.YarnRotaryEmbedding(
                width,
                rotary_base=base,
                scaling_factor=provider.yarn_rotary_scaling_factor,
                use_cpu_initialization=True,
                **given,
            )
            emb, factor = module.get_emb(2)
        else:
            module = write_plainly.RotaryEmbedding(
                width,
                provider.rotary_percent,
                seq_len_interpolation_factor=provider.seq_len_interpolation_factor,
                rotary_base=base,
                rope_scaling=provider.rope_scaling,
                rope_scaling_factor=provider.rope_scaling_factor,
                use_cpu_initialization=True,
            )
            emb = module.get_freqs_non_repeated(2)[:, None, None].repeat(1, 1, 1, 2)
            factor = 1.0
        if not latent:  # attention.py multiplies cos and sin by this for any embedding
            factor = yarn._yarn_get_concentration_factor_from_config(provider)
        angles = emb[1, 0, 0, : width // 2]
        rows.append(row_of(angles.double(), float(factor), config=file, score=score))
    return (
        "megatron-bridge 0.3.1 with megatron-core 0.16.1 and transformers 4.57.1",
        rows,
    )


def axolotl(place: str) -> tuple[str, list[dict[str, Any]]]:
    """Its load_model_config, and transformers' class from the result."""
    import transformers
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    own: dict[str, Any] = {
        "transformers": transformers,
        "check_model_config": lambda *a: None,
    }
    own |= {
        "DictDefault": Any,
        "PretrainedConfig": Any,
        "addict": SimpleNamespace(Dict=Any),
    }
    taken(Path(place) / "axolotl" / "loaders" / "utils.py", ("load_model_config",), own)
    linear = {"rope_type": "linear", "factor": 4.0}
    based = {**YARN, "rope_theta": 10000.0}
    overrides: tuple[dict[str, Any], ...] = (
        {"rope_theta": 1e6},
        {"rope_scaling": linear},
        {"rope_scaling": linear, "rope_theta": 1e6},
        {"rope_scaling": based},
        {"rope_parameters": based},
        {"rope_parameters": {"type": "yarn", "factor": 4.0, "rope_theta": 1e6}},
        {"rope_parameters": {"rope_theta": 1e6}},
        {"rope_scaling": None},
        {"max_position_embeddings": 32768},
        {
            "max_position_embeddings": 32768,
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e6},
        },
    )
    rows = []
    for block, changes in itertools.product((None, LLAMA3), overrides):
        file = {**HEAD, "model_type": "llama", "rope_theta": 500000.0, "head_dim": 16}
        file |= {"rope_scaling": block} if block else {}
        own["AutoConfig"] = SimpleNamespace(
            from_pretrained=lambda *a, given=file, **k: transformers.LlamaConfig(
                **json.loads(json.dumps(given))
            )
        )
        asked = dict.fromkeys(("cls_model_config", "revision_of_model", "num_labels"))
        cfg = SimpleNamespace(base_model_config="x", trust_remote_code=False, **asked)
        cfg.overrides_of_model_config = json.loads(json.dumps(changes))
        flags = f"--overrides-of-model-config '{json.dumps(changes)}'"
        try:
            module = LlamaRotaryEmbedding(own["load_model_config"](cfg))
        except (KeyError, TypeError) as error:
            rows.append({"config": file, "flags": flags, "refused": repr(error)[:80]})
            continue
        more = {"config": file, "flags": flags}
        rows.append(
            row_of(module.inv_freq.double(), float(module.attention_scaling), **more)
        )
    return f"axolotl 0.19.0 with transformers {transformers.__version__}", rows


def main(name: str, *places: str) -> None:
    version, rows = globals()[name.replace("-", "_")](*places[:-1])
    out = Path(places[-1])
    done = json.loads(out.read_text()) if out.exists() else {}
    done[name] = {"version": version, "rows": rows}
    out.write_text(json.dumps(done) + "\n")


main(*sys.argv[1:])
