"""What the classes of model families fill in where a configuration is silent.

Read from the configuration classes of transformers 5.23.0 and, where they differed, 4.57.1; a test
compares the table with the classes of the version that is installed.
"""

from dataclasses import dataclass
from typing import Literal

BASES = {
    "apertus": 1.2e7,
    "bitnet": 5e5,
    "cohere": 5e5,
    "cwm": 1e6,
    "emu3": 1e6,
    "ernie4_5": 5e5,
    "ernie4_5_moe": 5e5,
    "flex_olmo": 5e5,
    "fuyu": 25000.0,
    "gemma3_text": 1e6,
    "gpt_oss": 150000.0,
    "helium": 1e5,
    "hy_v3": 11158840.0,
    "lfm2": 1e6,
    "lfm2_moe": 1e6,
    "llama4_text": 5e5,
    "longcat_flash": 1e7,
    "minimax": 1e6,
    "minimax_m2": 5e6,
    "mixtral": 1e6,
    "mllama_text_model": 5e5,
    "nomic_bert": 1000.0,
    "olmo3": 5e5,
    "phimoe": 1e6,
    "qwen2_vl_text": 1e6,
    "qwen2_5_vl_text": 1e6,
    "qwen3_vl_text": 5e5,
    "qwen3_vl_moe_text": 5e5,
    "smollm3": 2e6,
    "solar_open": 1e6,
}
"""Base of a family whose class default is not 10000, transformers 5."""

EARLIER_BASES = {
    "cohere": 10000.0,
    "olmo3": 10000.0,
    "persimmon": 25000.0,
    "qwen3_vl_text": 5e6,
    "qwen3_vl_moe_text": 5e6,
}
"""Where transformers 4.57 had another default."""

PARTIAL = {
    "fuyu": 0.5,
    "glm": 0.5,
    "glm4": 0.5,
    "glm4_moe": 0.5,
    "gpt_neox": 0.25,
    "nemotron": 0.5,
    "persimmon": 0.5,
    "phi": 0.5,
    "phi3": 1.0,
    "qwen3_next": 0.25,
    "qwen3_5_text": 0.25,
    "qwen3_5_moe_text": 0.25,
    "recurrent_gemma": 0.5,
    "stablelm": 0.25,
}
"""Rotated share that the class assumes. These classes rotate partially also without scaling."""

LATENT = frozenset(
    {"deepseek_v2", "deepseek_v3", "longcat_flash", "minicpm3", "youtu", "kimi_k2", "glm_moe_dsa"}
)
"""Families with latent attention, whose rotated part of a head has a size of its own."""

INTERLEAVED = frozenset({"cohere", "glm", "glm4", "gptj", "codegen", "ernie4_5", "helium"} | LATENT)
"""Families that pair neighbouring features."""


@dataclass(frozen=True)
class Family:
    """The facts of one family; ``local_base_key`` where sliding layers have a base of their own."""

    name: str
    base: float
    earlier_base: float
    partial: float | None
    latent: bool
    pairing: Literal["half", "interleaved"]
    base_keys: tuple[str, ...] = ("rope_theta",)
    partial_keys: tuple[str, ...] = ("partial_rotary_factor",)
    local_base_key: str = ""


def family_of(model_type: str) -> Family:
    """The family's facts; a family that is not listed has base 10000 and rotates everything."""
    if model_type not in BASES and f"{model_type}_text" in {**BASES, **PARTIAL}:
        model_type = f"{model_type}_text"
    neox = model_type == "gpt_neox"
    return Family(
        name=model_type,
        base=BASES.get(model_type, 10000.0),
        earlier_base=EARLIER_BASES.get(model_type, BASES.get(model_type, 10000.0)),
        partial=PARTIAL.get(model_type),
        latent=model_type in LATENT,
        pairing="interleaved" if model_type in INTERLEAVED else "half",
        base_keys=("rotary_emb_base",) if neox else ("rope_theta",),
        partial_keys=("rotary_pct",) if neox else ("partial_rotary_factor",),
        local_base_key="rope_local_base_freq" if model_type == "gemma3_text" else "",
    )
