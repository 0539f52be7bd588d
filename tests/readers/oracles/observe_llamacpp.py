"""What llama.cpp writes and turns: `python observe_llamacpp.py SITE SOURCE LIBRARIES
VERSION OUT`.

SITE holds the transformers version that the converter pins, SOURCE is the llama.cpp
tree inside the llama-cpp-python distribution. The converter's own model class reads a
folder with nothing but the configuration; its parameters and extra tensors are kept,
and what ggml's kernel makes of them. LIBRARIES is the folder of libggml-base.so and
libggml-cpu.so.
"""

import json
import logging
import sys
import tempfile
from pathlib import Path

SITE, SOURCE, LIBRARIES, VERSION, OUT = sys.argv[1:]
sys.path.insert(0, f"{SOURCE}/gguf-py")
sys.path.insert(0, SOURCE)
sys.path.insert(0, SITE)

import common  # noqa: E402
import ggml  # noqa: E402
import gguf  # noqa: E402
from conversion import get_model_class  # noqa: E402

KERNEL = ggml.Kernel(Path(LIBRARIES))
logging.disable(logging.CRITICAL)
CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "stablelm": "StableLmForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
    "phi": "PhiForCausalLM",
}
KEPT = ("context_length", "attention.key_length")
MORE = {
    "rms_norm_eps": 1e-6,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "hidden_act": "silu",
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "routed_scaling_factor": 1.0,
    "norm_topk_prob": True,
    "scoring_func": "sigmoid",
    "sliding_window": 1024,
    "layer_norm_eps": 1e-5,
    "use_parallel_residual": True,
    "partial_rotary_factor": None,
}


def observe(config: dict) -> dict:
    kind = config["model_type"]
    if kind not in CLASSES:
        raise common.AbsentError("not asked")
    more = {k: v for k, v in MORE.items() if v is not None}
    whole = {**more, **config, "architectures": [CLASSES[kind]]}
    if kind == "llama":
        whole.pop("num_local_experts", None)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(whole))
        model = get_model_class(CLASSES[kind])(
            Path(folder), gguf.LlamaFileType.ALL_F32, Path(folder) / "out.gguf"
        )
        model.set_gguf_parameters()
        tensors = {
            name: t.double().tolist() for name, t in model.generate_extra_tensors()
        }
    written = {**fields(model), **tensors}
    head = (
        config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    )
    return {"fields": written, "kernel": ggml.observed(KERNEL, written, head)}


def fields(model) -> dict:
    prefix = f"{gguf.MODEL_ARCH_NAMES[model.model_arch]}."
    (written,) = model.gguf_writer.kv_data
    named = {name.removeprefix(prefix): value.value for name, value in written.items()}
    return {n: v for n, v in named.items() if n.startswith("rope.") or n in KEPT}


common.main(f"llama.cpp {VERSION}", observe, OUT)
