"""Files that several tests of the audit begin from."""

from typing import Any

# Qwen 2.5 with 7 billion weights, as published: unscaled, for 32,768 tokens.
QWEN: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000.0,
}
# The block that Qwen's card asks for, without the length of training.
BARE_YARN: dict[str, Any] = {"type": "yarn", "factor": 4.0}
# The block as the card has it.
YARN: dict[str, Any] = {**BARE_YARN, "original_max_position_embeddings": 32768}
