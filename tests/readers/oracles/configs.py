"""The configurations that every runtime is asked about: random Llamas, and blocks that
are in use.

Seeded and made of plain values, so that every runtime's process makes the same list.
Lengths stay below 2^18 tokens: some runtimes build whole tables.
"""

import json
import random
from pathlib import Path
from typing import Any

SEED = 20260821
RANDOM = 320
BASES = (10000, 10000.0, 500000.0, 1000000.0, 150000, 1e7)
LENGTHS = (2048, 4096, 8192, 16384, 32768)
FACTORS = (1.0, 1.5, 2.0, 4, 4.0, 8.0, 16.0)
TYPES = ("default", "linear", "dynamic", "yarn", "yarn", "longrope", "llama3", "llama3")


def random_config(rng: random.Random) -> dict[str, Any]:
    """A Llama configuration with one rope block, spelled in one of the ways that are in
    use.
    """
    heads = rng.choice((2, 4))
    head_dim = rng.choice((16, 32, 64))
    config: dict[str, Any] = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": heads * head_dim,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "vocab_size": 128,
        "max_position_embeddings": rng.choice(LENGTHS),
    }
    if rng.random() < 0.3:
        config["head_dim"] = head_dim = rng.choice((16, 32, 64))
    if rng.random() < 0.1:
        config["partial_rotary_factor"] = 0.5
    base = rng.choice(BASES)
    block = random_block(rng, config, head_dim)
    style = rng.choice(("v4", "v4", "v5", "both"))
    if style in ("v4", "both") and rng.random() < 0.9:
        config["rope_theta"] = base
    if style in ("v5", "both"):
        config["rope_parameters"] = {
            **(block or {"rope_type": "default"}),
            "rope_theta": base,
        }
    if style in ("v4", "both"):
        config["rope_scaling"] = block
    return config


def random_block(
    rng: random.Random, config: dict[str, Any], head_dim: int
) -> dict | None:
    """The dict under rope_scaling: a type, its keys, now and then one too few or one
    too many.
    """
    kind = rng.choice(TYPES)
    if kind == "default":
        return rng.choice((None, {"rope_type": "default"}, {"type": "default"}))
    block: dict[str, Any] = {}
    spelling = rng.choice(("rope_type", "rope_type", "type", "both"))
    if spelling in ("rope_type", "both"):
        block["rope_type"] = kind
    if spelling in ("type", "both"):
        block["type"] = kind
    longest = config["max_position_embeddings"]
    if rng.random() < 0.9:
        block["factor"] = rng.choice(FACTORS)
    original = (
        longest if rng.random() < 0.4 else max(1024, longest // rng.choice((2, 4)))
    )
    if kind in ("yarn", "llama3", "longrope") and rng.random() < 0.8:
        block["original_max_position_embeddings"] = original
    if rng.random() < 0.15:
        config["original_max_position_embeddings"] = rng.choice((original, 1024))
    OPTIONS[kind](rng, block, head_dim)
    return block


def _yarn(rng: random.Random, block: dict[str, Any], head_dim: int) -> None:
    choices: dict[str, tuple] = {
        "attention_factor": (1.0, 1.25),
        "attn_factor": (0.8782488562869419,),
        "beta_fast": (16, 32.0, 64),
        "beta_slow": (1, 2.0),
        "mscale": (1.0, 0.707),
        "mscale_all_dim": (1.0, 0.707),
        "truncate": (True, False),
    }
    for key, values in choices.items():
        if rng.random() < 0.25:
            block[key] = rng.choice(values)


def _longrope(rng: random.Random, block: dict[str, Any], head_dim: int) -> None:
    pairs = head_dim // 2
    block["short_factor"] = [round(1 + rng.random() * 0.1, 3) for _ in range(pairs)]
    block["long_factor"] = [
        round(1 + 6 * (i / pairs) + rng.random(), 3) for i in range(pairs)
    ]
    if rng.random() < 0.3:
        block["attention_factor"] = 1.2
    if rng.random() < 0.5:
        block.pop("factor", None)


def _llama3(rng: random.Random, block: dict[str, Any], head_dim: int) -> None:
    if rng.random() < 0.9:
        block["low_freq_factor"] = rng.choice((1, 1.0, 2.0))
    if rng.random() < 0.9:
        block["high_freq_factor"] = rng.choice((4, 4.0, 8.0))


def _nothing(rng: random.Random, block: dict[str, Any], head_dim: int) -> None:
    if rng.random() < 0.1:
        block["alpha"] = 1000.0


OPTIONS = {
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "linear": _nothing,
    "dynamic": _nothing,
}


def all_configs() -> list[dict[str, Any]]:
    """Random ones first, then the real ones of real.json (rope fields of published
    models).
    """
    rng = random.Random(SEED)
    made = [random_config(rng) for _ in range(RANDOM)]
    real = json.loads((Path(__file__).parent / "real.json").read_text())
    return made + list(real.values())


def names() -> list[str]:
    """How each of all_configs is called."""
    real = json.loads((Path(__file__).parent / "real.json").read_text())
    return [f"random-{i:03d}" for i in range(RANDOM)] + list(real)


def lengths(config: dict[str, Any]) -> tuple[int, int]:
    """A prompt far inside the trained length, and a sequence twice the longest number
    given.
    """
    text = config.get("text_config") or config
    return 64, min(2 * int(text.get("max_position_embeddings", 4096)), 2**18)
