"""Rotary geometry and scaling of well-known models, each from its published configuration.

``trained_len`` is the length of the training that fixed the frequencies (config key
``original_max_position_embeddings`` where there is one); ``context_len`` is what the configuration
promises. A family's members share a row where their rotary numbers are the same.

``source`` says where to read the numbers: first the model's repository on the Hugging Face Hub and
what its file says, then public code (a GitHub repository and its path; transformers is
huggingface/transformers), documentation or papers for what that file leaves to defaults.
"""

from dataclasses import dataclass
from typing import Any, Literal

from ropelab.errors import unknown_name

Layout = Literal["mrope", "mrope_interleaved", "axial"]
"""Sections of a head: runs of pairs (Qwen2-VL, arXiv:2409.12191), pairs in turns (Qwen3-VL), or an
axis after the other with frequencies of its own each (two-dimensional RoPE, FLUX's `axes_dim`)."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """What a model's configuration says about its rotary embedding.

    Attributes:
        sections: pairs that read each axis of a position (M-RoPE), in runs; empty for text.
    """

    name: str
    base: float
    head_dim: int
    trained_len: int
    source: str
    rotary_dim: int | None = None
    context_len: int | None = None
    method: str = "unscaled"
    sections: tuple[int, ...] = ()
    note: str = ""

    @property
    def rotated(self) -> int:
        """Rotated features of a head: all of them unless the configuration says otherwise."""
        return self.rotary_dim or self.head_dim

    @property
    def promised(self) -> int:
        """The context that the configuration promises."""
        return self.context_len or self.trained_len


K = 1024
_LLAMA3 = (
    "meta-llama/{}, config.json: rope_theta, rope_scaling, max_position_embeddings, "
    "hidden_size / num_attention_heads; meta-llama/llama-models models/llama3/model.py: {}"
)
_EIGHT = "scale_factor 8, old_context_len 8192"
_NOT_EIGHT = "scale_factor 8 for every model, which its issue 166 says is wrong for this one"


def _of_litgpt(
    name: str, repository: str, base: float, head_dim: int, length: int, **more: Any
) -> Model:
    """A row as litgpt states it; its length is the one that the configuration claims."""
    source = (
        f"{repository}, config.json, as Lightning-AI/litgpt 0.5.13 litgpt/config.py has it: "
        "rope_base, block_size, head_size or n_embd / n_head, rotary_percentage, rope_adjustments"
    )
    return Model(name=name, base=base, head_dim=head_dim, trained_len=length, source=source, **more)


_LENGTH = "the length is what the configuration claims"

_LITGPT = (
    _of_litgpt(
        "llama-3.3-70b",
        "meta-llama/Llama-3.3-70B-Instruct",
        5e5,
        128,
        8 * K,
        context_len=128 * K,
        method="llama3(factor=8)",
    ),
    _of_litgpt("mixtral-8x22b", "mistralai/Mixtral-8x22B-v0.1", 1e6, 128, 64 * K, note=_LENGTH),
    _of_litgpt("qwen2.5-math-7b", "Qwen/Qwen2.5-Math-7B", 1e4, 128, 4 * K, note=_LENGTH),
    _of_litgpt("qwen3-4b-2507", "Qwen/Qwen3-4B-Thinking-2507", 5e6, 128, 256 * K, note=_LENGTH),
    _of_litgpt(
        "qwen3-30b-a3b-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507", 1e7, 128, 256 * K, note=_LENGTH
    ),
    _of_litgpt(
        "gemma-3-27b",
        "google/gemma-3-27b-it",
        1e6,
        128,
        32 * K,
        context_len=128 * K,
        method="pi(factor=8)",
        note="global layers; local layers have base 10000, unscaled; trained length as gemma-3-4b",
    ),
    _of_litgpt("phi-1.5", "microsoft/phi-1_5", 1e4, 64, 2048, rotary_dim=32, note=_LENGTH),
    _of_litgpt("phi-4", "microsoft/phi-4", 250_000.0, 128, 16 * K, note=_LENGTH),
    _of_litgpt("phi-4-reasoning", "microsoft/Phi-4-reasoning", 5e5, 128, 32 * K, note=_LENGTH),
    _of_litgpt("olmo-2-7b", "allenai/OLMo-2-1124-7B", 5e5, 128, 4 * K, note=_LENGTH),
    _of_litgpt("smollm2-135m", "HuggingFaceTB/SmolLM2-135M", 1e5, 64, 8 * K, note=_LENGTH),
    _of_litgpt("smollm2-1.7b", "HuggingFaceTB/SmolLM2-1.7B", 130_000.0, 64, 8 * K, note=_LENGTH),
    _of_litgpt("falcon3-7b", "tiiuae/Falcon3-7B-Base", 1_000_042.0, 256, 32 * K, note=_LENGTH),
    _of_litgpt(
        "stablelm-3b", "stabilityai/stablelm-3b-4e1t", 1e4, 80, 4 * K, rotary_dim=20, note=_LENGTH
    ),
)

_KNOWN = (
    Model(
        name="gpt-j-6b",
        base=1e4,
        head_dim=256,
        rotary_dim=64,
        trained_len=2048,
        source="EleutherAI/gpt-j-6b, config.json: rotary_dim, n_embd / n_head, n_positions; "
        "kingoflolz/mesh-transformer-jax configs/6B_roto_256.json: pe_rotary_dims, seq, and "
        "mesh_transformer/layers.py: 10000 in fixed_pos_embedding, rotate_every_two",
        note="interleaved pairs",
    ),
    Model(
        name="gpt-neox-20b",
        base=1e4,
        head_dim=96,
        rotary_dim=24,
        trained_len=2048,
        source="EleutherAI/gpt-neox-20b, config.json: rotary_pct 0.25, rotary_emb_base, "
        "hidden_size 6144, 64 heads; EleutherAI/gpt-neox configs/20B.yml: rotary_pct, seq-length",
    ),
    Model(
        name="pythia-6.9b",
        base=1e4,
        head_dim=128,
        rotary_dim=32,
        trained_len=2048,
        source="EleutherAI/pythia-6.9b, config.json: rotary_pct 0.25, rotary_emb_base, "
        "hidden_size 4096, 32 heads; EleutherAI/pythia models/6.9B/pythia-6.9b.yml: rotary_pct, "
        "seq-length",
    ),
    Model(
        name="falcon-7b",
        base=1e4,
        head_dim=64,
        trained_len=2048,
        source="tiiuae/falcon-7b, config.json: hidden_size 4544, 71 heads, and neither base nor "
        "length: these are defaults of FalconConfig, transformers "
        "src/transformers/models/falcon/configuration_falcon.py",
    ),
    Model(
        name="llama-2-7b",
        base=1e4,
        head_dim=128,
        trained_len=4 * K,
        source="meta-llama/Llama-2-7b-hf, config.json: hidden_size 4096, 32 heads, "
        "max_position_embeddings; transformers "
        "src/transformers/models/llama/convert_llama_weights_to_hf.py: base 10000 by default, 4096 "
        "for version 2; meta-llama/llama-models models/llama2/MODEL_CARD.md: context length 4k; "
        "also 13b and 70b",
    ),
    Model(
        name="qwen2-vl-7b",
        base=1e6,
        head_dim=128,
        trained_len=32 * K,
        sections=(16, 24, 24),
        source="Qwen/Qwen2-VL-7B-Instruct, config.json: rope_theta, hidden_size 3584 / 28 heads, "
        "mrope_section of rope_scaling, max_position_embeddings; transformers "
        "src/transformers/models/qwen2_vl/modeling_qwen2_vl.py: sections of time, height, width",
        note=_LENGTH,
    ),
    Model(
        name="minimind",
        base=1e6,
        head_dim=64,
        trained_len=2048,
        context_len=32 * K,
        source="jingyaogong/MiniMind2-Small, config.json, as jingyaogong/minimind "
        "model/model_minimind.py has it: rope_theta, hidden_size 512 / 8 heads, "
        "max_position_embeddings, original_max_position_embeddings",
        note="YaRN of factor 16 only with inference_rope_scaling; wider ones have heads of 96",
    ),
    Model(
        name="code-llama-7b",
        base=1e6,
        head_dim=128,
        trained_len=16 * K,
        source="codellama/CodeLlama-7b-hf, config.json: rope_theta, max_position_embeddings; "
        "arXiv:2308.12950, section 2.4: sequences of 16,384 tokens",
    ),
    Model(
        name="llama-3-8b",
        base=5e5,
        head_dim=128,
        trained_len=8 * K,
        source="meta-llama/Meta-Llama-3-8B, config.json: rope_theta, max_position_embeddings; "
        "meta-llama/llama-models models/llama3/args.py: rope_theta, and "
        "models/llama3/MODEL_CARD.md: trained on sequences of 8,192; arXiv:2407.21783, section "
        "3.2: base 500,000; also 70B",
    ),
    Model(
        name="llama-3.1-8b",
        base=5e5,
        head_dim=128,
        trained_len=8 * K,
        context_len=128 * K,
        method="llama3(factor=8)",
        source=_LLAMA3.format("Llama-3.1-8B", _EIGHT) + "; also 70B and 405B",
    ),
    Model(
        name="llama-3.2-1b",
        base=5e5,
        head_dim=64,
        trained_len=8 * K,
        context_len=128 * K,
        method="llama3(factor=32)",
        source=_LLAMA3.format("Llama-3.2-1B", _NOT_EIGHT),
    ),
    Model(
        name="llama-3.2-3b",
        base=5e5,
        head_dim=128,
        trained_len=8 * K,
        context_len=128 * K,
        method="llama3(factor=32)",
        source=_LLAMA3.format("Llama-3.2-3B", _NOT_EIGHT),
    ),
    Model(
        name="mistral-7b-v0.1",
        base=1e4,
        head_dim=128,
        trained_len=8 * K,
        context_len=32 * K,
        source="mistralai/Mistral-7B-v0.1, config.json: rope_theta, sliding_window 4096, "
        "max_position_embeddings 32768; arXiv:2310.06825, table 1: context_len 8192; transformers "
        "docs/source/en/model_doc/mistral.md: trained with 8K",
        note="sliding window of 4096",
    ),
    Model(
        name="mistral-7b-v0.3",
        base=1e6,
        head_dim=128,
        trained_len=32 * K,
        source="mistralai/Mistral-7B-v0.3, config.json: rope_theta, max_position_embeddings, "
        "sliding_window null",
    ),
    Model(
        name="mixtral-8x7b",
        base=1e6,
        head_dim=128,
        trained_len=32 * K,
        source="mistralai/Mixtral-8x7B-v0.1, config.json: rope_theta, max_position_embeddings; "
        "arXiv:2401.04088, abstract (trained with a context of 32k) and table 1: context_len",
    ),
    Model(
        name="qwen2.5-7b",
        base=1e6,
        head_dim=128,
        trained_len=32 * K,
        context_len=128 * K,
        method="yarn(factor=4)",
        source="Qwen/Qwen2.5-7B-Instruct, config.json: rope_theta, hidden_size 3584, 28 heads, "
        "max_position_embeddings 32768; QwenLM/Qwen3, branch v2.5, "
        "docs/source/getting_started/concepts.md (trained with 32,768, 131,072 with YaRN) and "
        "docs/source/deployment/vllm.md: rope_scaling",
        note="YaRN is switched on by the user",
    ),
    Model(
        name="qwen3-8b",
        base=1e6,
        head_dim=128,
        trained_len=32 * K,
        context_len=128 * K,
        method="yarn(factor=4)",
        source="Qwen/Qwen3-8B, config.json: rope_theta, head_dim, max_position_embeddings 40960; "
        "QwenLM/Qwen3 docs/source/inference/transformers.md: pre-trained with 32,768, rope_scaling "
        "for 131,072",
        note="YaRN is switched on by the user; without it the configuration allows 40960",
    ),
    Model(
        name="gemma-2-9b",
        base=1e4,
        head_dim=256,
        trained_len=8 * K,
        source="google/gemma-2-9b, config.json: head_dim, rope_theta, max_position_embeddings; "
        "google/gemma_pytorch gemma/config.py: get_config_for_9b; also 2b (27b: head_dim 128)",
        note="every second layer has a sliding window of 4096",
    ),
    Model(
        name="gemma-3-4b",
        base=1e6,
        head_dim=256,
        trained_len=32 * K,
        context_len=128 * K,
        method="pi(factor=8)",
        source="google/gemma-3-4b-it, config.json: rope_scaling linear by 8; google/gemma_pytorch "
        "gemma/config.py: get_config_for_4b; transformers "
        "src/transformers/models/gemma3/convert_gemma3_weights.py: gemma3_4b; arXiv:2503.19786, "
        "section 5.3: trained with 32K, then 128K; also 12b (27b: head_dim 128)",
        note="global layers; local layers have base 10000, unscaled, window 1024",
    ),
    Model(
        name="phi-2",
        base=1e4,
        head_dim=80,
        rotary_dim=32,
        trained_len=2048,
        source="microsoft/phi-2, config.json: partial_rotary_factor 0.4, rope_theta, "
        "hidden_size 2560, 32 heads, max_position_embeddings",
    ),
    Model(
        name="phi-3-mini-4k",
        base=1e4,
        head_dim=96,
        trained_len=4 * K,
        source="microsoft/Phi-3-mini-4k-instruct, config.json: rope_theta, hidden_size 3072, "
        "32 heads, original_max_position_embeddings, sliding_window 2047",
        note="sliding window of 2047",
    ),
    Model(
        name="deepseek-v3",
        base=1e4,
        head_dim=192,
        rotary_dim=64,
        trained_len=4 * K,
        context_len=160 * K,
        method="yarn(factor=40, mscale=1, mscale_all_dim=1)",
        source="deepseek-ai/DeepSeek-V3, config.json: qk_nope_head_dim 128, qk_rope_head_dim 64, "
        "rope_theta, rope_scaling, max_position_embeddings 163840; its GitHub repository, "
        "inference/model.py: ModelArgs, MLA, apply_rotary_emb; arXiv:2412.19437, section 4.3: "
        "YaRN with s = 40 from 4K",
        note="the model code multiplies the softmax scale by (0.1 ln 40 + 1)^2; interleaved pairs; "
        "the model card promises 128K",
    ),
    Model(
        name="gpt-oss-20b",
        base=150_000.0,
        head_dim=64,
        trained_len=4 * K,
        context_len=128 * K,
        method="yarn(factor=32, truncate=false)",
        source="openai/gpt-oss-20b, config.json: rope_theta, rope_scaling, head_dim, "
        "max_position_embeddings; openai/gpt-oss gpt_oss/torch/model.py: ModelConfig; also 120b",
        note="every second layer has a sliding window of 128",
    ),
)

MODELS: dict[str, Model] = {model.name: model for model in (*_KNOWN, *_LITGPT)}


def model_named(name: str) -> Model:
    """The model of that name; InputError with the nearest name if there is none."""
    key = name.lower()
    if key not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[key]
