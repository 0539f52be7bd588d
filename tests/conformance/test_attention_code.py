"""Queries and keys as each class of transformers rotates them in its own attention."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AttentionInterface, AutoModel

from ropelab.conformance.check_rotated import check_rotated
from ropelab.conformance.expected import Expected, expect_config, find_main
from ropelab.conformance.pairs import restore_pairs
from tests.models.released.architectures import ARCHITECTURES
from tests.models.released.tiny import config as tiny

PLACES = torch.arange(33)[None]
# Their heads are wider than what rotates, which is not where the others have it.
PLACED: dict[str, dict[str, Any]] = {
    "mistral4": {
        "head_dim": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "q_lora_rank": 16,
        "kv_lora_rank": 16,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "first_k_dense_replace": 1,
        "num_key_value_heads": 4,
        "n_group": 1,
        "topk_group": 1,
    },
    "deepseek_v4": {
        "head_dim": 32,
        "layer_types": ["sliding_attention", "sliding_attention"],
        "partial_rotary_factor": 0.25,
        "q_lora_rank": 16,
        "o_lora_rank": 16,
        "o_groups": 2,
        "num_key_value_heads": 1,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "index_n_heads": 2,
        "index_head_dim": 16,
    },
}
# Attention that does not call the function a model is given.
OWN_FUNCTION = {"codegen", "gptj", "falcon", "gpt_neox_japanese"}
# In these, layers that see the whole context rotate nothing.
WINDOWED_ONLY = {"cohere2", "exaone4"}


class Spy:
    """An attention function that keeps the queries and keys that it is given."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, np.ndarray, np.ndarray]] = []

    def __call__(
        self, module: Any, query: Any, key: Any, value: Any, mask: Any, **given: Any
    ) -> Any:
        rows = [x[0].double().transpose(0, 1).numpy() for x in (query, key)]
        self.seen.append((module, *rows))
        groups = query.shape[1] // key.shape[1]
        mixed = value.repeat_interleave(groups, dim=1)
        return mixed.transpose(1, 2).contiguous(), None


def rotated_by(kind: str, sizes: dict[str, Any]) -> tuple[Any, Spy]:
    """Run a tiny model on one token many times, so that only positions differ."""
    spy = Spy()
    AttentionInterface.register("spy", spy)
    torch.manual_seed(0)
    made = tiny(kind, **sizes)
    model = AutoModel.from_config(made, attn_implementation="spy").eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and "embed" in name:
                parameter.normal_()
        model(torch.full_like(PLACES, 5), position_ids=PLACES, use_cache=False)
    return made, spy


def layer_type(made: Any, module: Any) -> str:
    kinds = getattr(made.get_text_config(), "layer_types", None)
    return kinds[module.layer_idx] if kinds else ""


def expected_of(layers: dict[str, Expected], module: Any, made: Any) -> Expected:
    # DeepSeek-V4 has names of its own.
    kind = getattr(module, "rope_layer_type", layer_type(made, module))
    return layers.get(kind) or layers[find_main(layers)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "kind", sorted({**ARCHITECTURES, **PLACED}.keys() - OWN_FUNCTION)
)
def test_attention_rotates_what_the_configuration_is_read_to_rotate(
    kind: str, tmp_path: Path
) -> None:
    made, spy = rotated_by(kind, {**ARCHITECTURES, **PLACED}[kind])
    made.save_pretrained(tmp_path)
    layers = expect_config(kind, made.to_dict(), None)
    assert spy.seen

    for module, *rotated in spy.seen:
        expected = expected_of(layers, module, made)
        spec = expected.spec
        for rows in rotated:
            # Latent attention: the part that rotates is the end of a head.
            heads = rows[..., rows.shape[-1] - spec.head_dim :]
            if getattr(made, "rope_interleave", False):  # it comes back as halves
                heads = restore_pairs(heads, spec)
            if kind in WINDOWED_ONLY and layer_type(made, module) == "full_attention":
                assert np.ptp(heads, axis=0).max() < 1e-5
                continue
            before = np.broadcast_to(heads[0] / spec.attention_factor, heads.shape)
            done = check_rotated(before, heads, PLACES[0].numpy(), expected, 0.01)
            assert not done.wrong, (module.layer_idx, spec, done.answer)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "first"), [("mistral4", 8), ("deepseek_v4", 24)])
def test_what_rotates_comes_last_in_these(kind: str, first: int) -> None:
    _, spy = rotated_by(kind, PLACED[kind])
    for _, query, key in spy.seen:
        for rows in (query, key):
            moved = np.abs(rows - rows[:1]).max(axis=(0, 1)) > 1e-4
            assert np.flatnonzero(moved).tolist() == list(range(first, first + 8))
