"""Unmodified is what transformers makes of the untouched checkpoint, whatever was in
before.
"""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from ropelab.models.methods.method import Scaled
from ropelab.models.methods.registry import parse_methods
from ropelab.models.released import forward
from ropelab.models.released.model import ReleasedModel
from ropelab.models.released.positions import UNMODIFIED
from ropelab.runs.errors import InputError
from tests.models.released.architectures import DEEPSEEK
from tests.models.released.tiny import (
    TRAINED,
    apart,
    logits,
    rope,
    saved,
    theirs,
    tokens,
    untouched,
)

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "factor": 4.0,
    "original_max_position_embeddings": TRAINED,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": TRAINED,
}
CHECKPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama3": ("llama", {"rope_parameters": LLAMA3}),
    "yarn": ("qwen2", {"rope_parameters": YARN}),
    "dynamic": ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}),
    "longrope": (
        "phi3",
        {
            "rope_parameters": LONG,
            "original_max_position_embeddings": TRAINED,
            "head_dim": None,
        },
    ),
    "latent": (
        "deepseek_v3",
        {**DEEPSEEK, "rope_parameters": {**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}},
    ),
    "windows": ("mistral", {"sliding_window": 24}),
    "layer types": (
        "gemma3_text",
        {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"]},
    ),
}


@pytest.fixture(scope="module", params=CHECKPOINTS)
def checkpoint(request, tmp_path_factory):
    """A checkpoint, its folder, and transformers' own model of it."""
    model_type, changes = CHECKPOINTS[request.param]
    folder = saved(tmp_path_factory.mktemp("checkpoint"), model_type, **changes)
    return (
        ReleasedModel(folder),
        folder,
        AutoModelForCausalLM.from_pretrained(folder).eval(),
    )


@pytest.mark.parametrize("length", [40, 200, 100])
def test_unmodified_is_the_untouched_checkpoint(checkpoint, length):
    model, folder, _ = checkpoint
    model.encoding = rope(folder, "ntk", 256)
    moved = logits(model, tokens(length))
    model.encoding = UNMODIFIED
    fresh = AutoModelForCausalLM.from_pretrained(folder).eval()
    reference = theirs(fresh, tokens(length))
    assert apart(logits(model, tokens(length)), reference) < 1e-5
    assert apart(moved, reference) > 1e-3


def test_unscaled_is_the_checkpoint_without_its_scaling(checkpoint, tmp_path):
    model, folder, reference = checkpoint
    model.encoding = rope(folder, "unscaled", TRAINED)
    plain = reference.config
    text = plain.get_text_config(decoder=True)
    if "full_attention" not in text.rope_parameters:
        theta = text.rope_parameters["rope_theta"]
        text.rope_parameters = {"rope_type": "default", "rope_theta": theta}
    unscaled = AutoModelForCausalLM.from_config(plain).eval()
    unscaled.load_state_dict(reference.state_dict())
    assert apart(logits(model, tokens(200)), theirs(unscaled, tokens(200))) < 1e-4


def test_a_long_context_read_in_parts_is_read_as_one(checkpoint, monkeypatch):
    model, folder, _ = checkpoint
    read = tokens(200)
    for encoding in (UNMODIFIED, rope(folder, "yarn", 256)):
        model.encoding = encoding
        assert model.in_parts
        with torch.inference_mode(), monkeypatch.context() as patch:
            whole = model.hidden_states(read)
            patch.setattr(forward, "LONGEST_PASS", 64)
            parts = model.hidden_states(read)
        assert apart(parts, whole) < 1e-4


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("yarn", [[32, 64, 128, 256]]),
        ("dynamic", [[32, 64], [128], [256]]),
        ("longrope", [[32, 64], [128, 256]]),
    ],
)
def test_lengths_share_a_pass_where_the_checkpoint_reads_them_alike(
    name, groups, tmp_path
):
    model_type, changes = CHECKPOINTS[name]
    model = ReleasedModel(saved(tmp_path, model_type, **changes))
    assert list(model.unmodified_passes([32, 64, 128, 256])) == groups


def test_tables_of_sines_end_where_the_checkpoint_ends(tmp_path):
    model = ReleasedModel(saved(tmp_path, "gptj", rotary_dim=8, head_dim=None))
    assert list(model.unmodified_passes([32, 64, 128])) == [[32, 64]]
    with pytest.raises(InputError, match="unmodified it takes no more than 64 tokens"):
        model.hidden_states(tokens(65))
    model.encoding = rope(tmp_path, "pi", 128)
    assert model.hidden_states(tokens(128)).isfinite().all()


def test_a_method_for_another_geometry_is_refused(tmp_path):
    model = ReleasedModel(saved(tmp_path, "gpt_neox", rotary_pct=0.25))
    with pytest.raises(InputError, match="rotates 2 feature pairs, not 8"):
        model.encoding = rope(saved(tmp_path / "wider", "llama"), "pi", 128)
        model.hidden_states(tokens(80))


def test_yarn_with_deepseeks_factors_multiplies_scores_as_its_code_does(tmp_path):
    model = ReleasedModel(saved(tmp_path, "deepseek_v3", **DEEPSEEK))
    given = {**YARN, "mscale": 0.7, "mscale_all_dim": 1.0, "rope_theta": 10000.0}
    scaled = untouched("deepseek_v3", **DEEPSEEK, rope_parameters=given)
    geometry = model.facts.geometry()
    (method,) = parse_methods(
        ["yarn(factor=4, mscale=0.7, mscale_all_dim=1)"], geometry, 256
    )
    assert isinstance(method, Scaled)
    model.encoding = method.encoding(geometry, 256)
    reference = theirs(scaled, tokens(200))
    assert apart(logits(model, tokens(200)), reference) < 1e-4
    model.encoding = rope(tmp_path, "yarn(mscale=0.7, mscale_all_dim=1)", 256)
    assert apart(logits(model, tokens(200)), reference) > 1e-2
