"""Random Llamas in the Hugging Face format: shapes of models as people have them, no
weights.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

SMOLLM2_WIDTH = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
}
"""Of SmolLM2-135M, but for its layers and vocabulary."""


def save(folder: Path, shape: dict[str, Any], dtype: str, device: str = "cpu") -> None:
    """Write a random model of that shape, made on that device: on a CPU a large one
    takes minutes.

    `shape` is in LlamaConfig's terms, `dtype` a format of torch by name.
    """
    torch.manual_seed(0)
    config = LlamaConfig(**shape, max_position_embeddings=8192, dtype=dtype)
    with torch.device(device):
        LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(folder)
