"""Which layers rotate: what transformers' own classes do, and what servers' files say."""

from typing import Any

import pytest
import torch
from transformers import AutoModel, DynamicCache
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.mllama import modeling_mllama
from transformers.models.mllama.configuration_mllama import MllamaTextConfig
from transformers.models.mllama.modeling_mllama import (
    MllamaTextModel,
    apply_rotary_pos_emb,
)

from ropelab.readers import registry
from ropelab.readers.layer_rules import LAYER_RULES
from ropelab.readers.layers import RULES

MIXED = (["sliding_attention"] * 2 + ["full_attention"]) * 2
FULL = ["full_attention"] * 6
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 6,
    "max_position_embeddings": 64,
    "vocab_size": 16,
    "sliding_window": 8,
}
EXPERTS = {
    "num_experts": 2,
    "num_experts_per_tok": 1,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "num_local_experts": 2,
}
THETAS = {"rope_theta": 1e4, "layer_rope_theta": [0, 1e4, 1e4, 0, 1e4, 1e4]}
# Model types with keys of their own. transformers' class is built for each.
BUILT: tuple[tuple[str, dict[str, Any]], ...] = (
    ("afmoe", EXPERTS | {"layer_types": MIXED}),
    ("afmoe", EXPERTS | {"global_attn_every_n_layers": 2}),
    ("beam", EXPERTS),
    ("cohere2", {"layer_types": MIXED}),
    ("cohere2", {"sliding_window_pattern": 3}),
    ("cohere2", {"sliding_window": None}),
    ("exaone4", {}),
    ("exaone4", {"layer_types": MIXED, "sliding_window_pattern": "LLG"}),
    ("exaone4", {"layer_types": MIXED, "sliding_window": None}),
    ("exaone4", {"layer_types": FULL}),
    ("exaone4", {"sliding_window": None}),
    ("exaone4", {"sliding_window_pattern": "LLG"}),
    ("exaone_moe", EXPERTS | {"layer_types": MIXED}),
    ("exaone_moe", EXPERTS | {"layer_types": FULL}),
    ("flint", EXPERTS | {"num_hidden_layers": 8}),
    ("granite_swa", {}),
    ("granite_swa", THETAS),
    ("granitemoe_swa", EXPERTS | THETAS),
    ("kolibri1", EXPERTS),
    ("llama4_text", EXPERTS | {"no_rope_layer_interval": 3}),
    ("muse_glimmer_text", {}),
    ("muse_glimmer_text", THETAS),
    ("muse_spark_text", EXPERTS | {"mlp_layer_types": ["dense"] * 6}),
    ("smollm3", {"pad_token_id": 0}),
    ("smollm3", {"pad_token_id": 0, "no_rope_layers": [1, 0] * 3}),
    ("granite", THETAS),
)
LETTERED = {"sliding_window_pattern": "LLG"}
HEADS = {"rope_scaling": None}
BLOCKS = [{"attention": {"no_op": layer % 2 == 1}} for layer in range(6)]
# Runtime, model type, its class, keys, and which layers rotate by the model file.
READ: tuple[tuple[str, str, str, dict[str, Any], str], ...] = (
    ("vllm", "afmoe", "Afmoe", {"layer_types": MIXED}, "110110"),
    ("vllm", "afmoe", "Afmoe", {}, "111011"),
    ("sglang", "afmoe", "Afmoe", {"layer_types": MIXED}, "110110"),
    ("sglang", "afmoe", "Afmoe", {}, "000000"),
    ("mlx-lm", "afmoe", "Afmoe", {"layer_types": MIXED}, "110110"),
    ("mlx-lm", "afmoe", "Afmoe", {}, "refused"),
    ("llama.cpp", "afmoe", "Afmoe", {"layer_types": MIXED}, "111011"),
    ("vllm", "cohere2", "Cohere2", {"layer_types": MIXED}, "110110"),
    ("sglang", "cohere2", "Cohere2", {"sliding_window": None}, "refused"),
    ("mlx-lm", "cohere2", "Cohere2", {"layer_types": MIXED}, "111011"),
    ("llama.cpp", "cohere2", "Cohere2", {"rotary_pct": 1.0}, "111011"),
    ("transformers-4.51", "cohere2", "Cohere2", {"layer_types": MIXED}, "111011"),
    ("vllm", "exaone4", "Exaone4", {"layer_types": MIXED}, "110110"),
    ("vllm", "exaone4", "Exaone4", {"layer_types": FULL}, "111111"),
    ("sglang", "exaone4", "Exaone4", {"layer_types": MIXED}, "refused"),
    ("sglang", "exaone4", "Exaone4", LETTERED | {"layer_types": FULL}, "110110"),
    ("mlx-lm", "exaone4", "Exaone4", LETTERED | HEADS, "110110"),
    ("mlx-lm", "exaone4", "Exaone4", HEADS, "refused"),
    ("llama.cpp", "exaone4", "Exaone4", {"layer_types": MIXED}, "111111"),
    ("vllm", "exaone_moe", "ExaoneMoe", {"layer_types": MIXED}, "110110"),
    ("sglang", "exaone_moe", "ExaoneMoe", {"layer_types": FULL}, "111111"),
    ("mlx-lm", "exaone_moe", "ExaoneMoe", {"layer_types": FULL}, "111111"),
    ("llama.cpp", "exaone_moe", "ExaoneMoe", {"layer_types": FULL}, "000000"),
    ("vllm", "flint", "Flint", {"layer_types": MIXED}, "111111"),
    ("vllm", "flint", "Flint", {"no_rope_layer_indices": [0, 5]}, "011110"),
    ("vllm", "granite_swa", "GraniteSWA", THETAS, "011011"),
    ("sglang", "granite_swa", "GraniteSWA", THETAS, "011011"),
    ("llama.cpp", "granite_swa", "GraniteSWA", THETAS, "111111"),
    ("vllm", "granite", "Granite", THETAS, "011011"),
    ("sglang", "granite", "Granite", THETAS, "111111"),
    ("sglang", "granite", "Granite", {"rope_theta": None}, "not modelled"),
    ("sglang", "granite_swa", "GraniteSWA", {"rope_theta": None}, "refused"),
    ("vllm", "llama4_text", "Llama4", {"no_rope_layers": [1, 0] * 3}, "101010"),
    ("mlx-lm", "llama4_text", "Llama4", {}, "refused"),
    ("vllm", "nemotron-nas", "DeciLM", {"block_configs": BLOCKS}, "101010"),
    ("sglang", "nemotron-nas", "DeciLM", {"block_configs": BLOCKS}, "101010"),
    ("mlx-lm", "nemotron-nas", "DeciLM", {"block_configs": BLOCKS}, "101010"),
    ("vllm", "step3p5", "Step3p5", {"use_rope_layers": [1, 0] * 3}, "101010"),
)


def rotate_by_class(kind: str, keys: dict[str, Any]) -> str:
    """Return which layers of a small model write other keys at another position."""
    try:
        config = CONFIG_MAPPING[kind].from_dict({"model_type": kind, **SIZES, **keys})
        torch.manual_seed(0)
        model = AutoModel.from_config(config).eval()
        keys_at = [write_keys(model, position) for position in (1, 40)]
    except (TypeError, ValueError, ZeroDivisionError):
        return "refused"

    moved = [not torch.allclose(*pair) for pair in zip(*keys_at, strict=True)]
    return "".join(str(int(each)) for each in moved)


def write_keys(model: Any, position: int) -> list[torch.Tensor]:
    """Return the keys of each layer for one token, which no position changes else."""
    cache: Any = DynamicCache()
    token = torch.ones(1, 1, dtype=torch.long)
    places = torch.full((1, 1), position)
    with torch.no_grad():
        model(token, position_ids=places, past_key_values=cache)
    return [layer.keys for layer in cache.layers]


def rotate_by_reader(runtime: str, config: dict[str, Any]) -> str:
    reading = registry.read(registry.RUNTIMES[runtime], config)
    if not reading.layers:
        return reading.outcome
    return "".join(str(int(each)) for each in reading.rotating or ())


@pytest.mark.filterwarnings("ignore")
def test_layers_rotate_as_in_the_classes_of_transformers() -> None:
    for kind, keys in BUILT:
        config = {"model_type": kind, **SIZES, **keys}
        built = rotate_by_class(kind, keys)
        assert rotate_by_reader("transformers-5", config) == built, (kind, keys)


def test_layers_rotate_as_the_model_files_of_other_runtimes_say() -> None:
    for runtime, kind, name, keys, rotating in READ:
        base = {"model_type": kind, "architectures": [f"{name}ForCausalLM"]}
        config = {"rope_theta": 1e4, **SIZES, **base, **keys}
        assert rotate_by_reader(runtime, config) == rotating, (runtime, kind, keys)


LOOKING: dict[str, tuple[dict[str, Any], str]] = {
    "listed": ({"cross_attention_layers": [1, 4]}, "101101"),
    "null": ({"cross_attention_layers": None}, "111011"),
    "silent": ({}, "111011"),
}


@pytest.mark.parametrize("given", LOOKING)
def test_layers_of_mllama_that_look_at_an_image_do_not_rotate(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, rotating = LOOKING[given]
    text = {**SIZES, **keys, "model_type": "mllama_text_model", "pad_token_id": 0}
    model = MllamaTextModel(MllamaTextConfig(**text)).eval()
    done: list[str] = []
    for layer in model.layers:
        layer.register_forward_pre_hook(lambda *_: done.append("0"))

    def rotate(*arguments: Any) -> Any:
        done[-1] = "1"
        return apply_rotary_pos_emb(*arguments)

    monkeypatch.setattr(modeling_mllama, "apply_rotary_pos_emb", rotate)
    image = torch.ones(1, 4, SIZES["hidden_size"])
    with torch.no_grad():
        model(torch.ones(1, 3, dtype=torch.long), cross_attention_states=image)
    assert "".join(done) == rotating

    base = {"rope_theta": 1e4, "rope_scaling": {"rope_type": "default"}}
    config = {
        "model_type": "mllama",
        "architectures": ["MllamaForConditionalGeneration"],
        "text_config": text | base,
    }
    for runtime in ("transformers-5", "sglang"):
        assert rotate_by_reader(runtime, config) == rotating


def test_every_rule_of_the_table_has_a_function() -> None:
    named = {rule for rules in RULES.values() for rule in rules}
    assert named == LAYER_RULES.keys()
    every = {
        name for rules in RULES.values() for names in rules.values() for name in names
    }
    assert every <= registry.RUNTIMES.keys()


def test_bases_of_layers_that_differ_are_not_computed() -> None:
    """A list with one base sets it; with two, no spec holds for all layers."""
    config = {"model_type": "granite_swa", **SIZES, "rope_theta": 1e4}
    runtime = registry.RUNTIMES["transformers-5"]
    one = registry.read(runtime, {**config, "layer_rope_theta": [0, 5e5] * 3})
    two = registry.read(runtime, {**config, "layer_rope_theta": [1e4, 5e5] * 3})
    none = registry.read(runtime, {**config, "layer_rope_theta": [0] * 6})
    short = registry.read(runtime, {**config, "layer_rope_theta": [1e4]})
    assert one.layers["all"].base == 5e5
    outcomes = [two.outcome, none.outcome, short.outcome]
    assert outcomes == ["not modelled", "not modelled", "refused"]
