"""Loading: number formats, no kernels, quiet, spread over devices, ids of the Hub, real
weights.
"""

import json
import os
import types

import huggingface_hub.constants
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from ropelab.math.methods import parse_scaling
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm.evaluation import compute_token_losses
from ropelab.models.released import forward
from ropelab.models.released import model as module
from ropelab.models.released.facts import read_facts
from ropelab.models.released.folder import hash_model_files
from ropelab.models.released.loading import load
from ropelab.models.released.model import ReleasedModel
from ropelab.models.released.positions import UNMODIFIED, make_patch
from ropelab.runs.errors import InputError
from tests.models.released.architectures import TWO_KINDS
from tests.models.released.tiny import (
    REAL,
    SHAPE,
    apart,
    logits,
    rope,
    saved,
    theirs,
    tokens,
    untouched,
)


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A Llama saved in bfloat16."""
    folder = tmp_path_factory.mktemp("half")
    untouched("llama").to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("dtype", "loaded"), [("auto", torch.bfloat16), ("float32", torch.float32)]
)
def test_weights_are_in_the_format_asked_for_and_angles_in_float32(half, dtype, loaded):
    model = ReleasedModel(half, dtype=dtype)
    own = AutoModelForCausalLM.from_pretrained(half, dtype=loaded).eval()
    assert {p.dtype for p in model.lm.parameters()} == {loaded}
    assert apart(logits(model, tokens(90)), theirs(own, tokens(90))) == 0
    model.encoding = rope(half, "pi", 256)
    with model.positions.apply(make_patch(model.encoding), 90):
        assert model.lm.model.rotary_emb.inv_freq.dtype == torch.float32


def test_weights_that_are_overwritten_after_loading_stay_as_they_were_loaded(tmp_path):
    model = ReleasedModel(saved(tmp_path, "llama"))
    weights = tmp_path / "model.safetensors"
    before, size = theirs(model.lm, tokens(20)), weights.stat().st_size
    with weights.open("r+b") as file:  # the same file, as `cp` writes it
        file.seek(size // 2)
        file.write(b"\x3c" * (size - size // 2))
    assert apart(theirs(model.lm, tokens(20)), before) == 0
    os.truncate(weights, 0)
    assert apart(theirs(model.lm, tokens(20)), before) == 0


def test_no_attention_or_expert_kernel_of_the_configuration_is_used(tmp_path):
    saved(tmp_path, "mixtral", num_local_experts=4)
    config = json.loads((tmp_path / "config.json").read_text())
    kernels = {
        "attn_implementation": "own/attention",
        "experts_implementation": "own/experts",
    }
    (tmp_path / "config.json").write_text(json.dumps({**config, **kernels}))
    model = ReleasedModel(tmp_path)
    assert model.lm.config._attn_implementation == "sdpa"
    assert "own" not in str(model.lm.config._experts_implementation)


def test_loading_and_reading_say_nothing(half, capfd):
    model = ReleasedModel(half)
    model.encoding = rope(half, "yarn", 256)
    model.hidden_states(tokens(200))
    assert capfd.readouterr() == ("", "")


def test_a_model_spread_over_devices_has_a_head_all_the_same(half, monkeypatch):
    """Spreading replaces `forward` of the whole model by one that is bound to it."""

    def spread(*arguments):
        lm = load(*arguments)
        lm.forward = types.MethodType(type(lm).forward, lm)
        return lm

    expected = logits(ReleasedModel(half), tokens(50))
    monkeypatch.setattr(module, "load", spread)
    assert torch.equal(logits(ReleasedModel(half), tokens(50)), expected)


def test_an_id_of_the_hub_is_looked_up_in_the_local_cache(half, tmp_path, monkeypatch):
    entry = tmp_path / "models--someone--llama"
    (entry / "refs").mkdir(parents=True)
    (entry / "refs" / "main").write_text("0123")
    (entry / "snapshots").mkdir()
    (entry / "snapshots" / "0123").symlink_to(half)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    assert read_facts("someone/llama") == read_facts(str(half))
    place = entry / "snapshots" / "0123"
    assert hash_model_files(place) == hash_model_files(half)
    with pytest.raises(InputError, match="no model of that name in the local cache"):
        read_facts("someone/else")


def test_the_language_part_of_a_model_of_images_is_read_as_it_reads(tmp_path):
    images = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    images |= {"num_attention_heads": 2, "image_size": 28, "patch_size": 14}
    own = untouched(
        "gemma3",
        text_config={**SHAPE, **TWO_KINDS},
        vision_config=images,
        mm_tokens_per_image=4,
    )
    own.save_pretrained(tmp_path)
    model = ReleasedModel(tmp_path)
    assert apart(logits(model, tokens(100)), theirs(own, tokens(100))) < 1e-5
    own.config.text_config.rope_parameters["full_attention"] |= {
        "rope_type": "linear",
        "factor": 4,
    }
    scaled = AutoModelForCausalLM.from_config(own.config).eval()
    scaled.load_state_dict(own.state_dict())
    model.encoding = rope(tmp_path, "pi", 256)
    assert apart(logits(model, tokens(100)), theirs(scaled, tokens(100))) < 1e-4


def test_scores_that_attention_makes_are_made_in_parts(tmp_path, monkeypatch):
    model = ReleasedModel(saved(tmp_path, "gemma2", sliding_window=24))
    assert model.lm.config._attn_implementation == "eager"
    whole = logits(model, tokens(150))
    made = []
    layer = model.lm.model.layers[0].self_attn
    layer.register_forward_hook(lambda _, inputs, out: made.append(out[1].numel()))
    monkeypatch.setattr(forward, "SCORES_AT_ONCE", 2**15)
    assert apart(logits(model, tokens(150)), whole) < 1e-5
    assert len(made) > 2
    assert max(made) <= 2**15


@pytest.mark.parametrize("model_type", ["gptj", "codegen"])
def test_tables_of_sines_are_made_for_any_length_and_method(model_type, tmp_path):
    shape = {"rotary_dim": 8, "head_dim": None}
    model = ReleasedModel(saved(tmp_path, model_type, **shape))
    longer = untouched(model_type, **shape, max_position_embeddings=200)
    model.encoding = rope(tmp_path, "unscaled", 200)
    assert apart(logits(model, tokens(200)), theirs(longer, tokens(200))) < 1e-4
    # Four times closer: the rows of the longer table at every fourth position.
    far = untouched(model_type, **shape, max_position_embeddings=800)
    for layer in far.transformer.h:
        angles = (
            torch.arange(800)[:, None] / 4 * 10000.0 ** -(torch.arange(0, 8, 2) / 8)
        )
        layer.attn.embed_positions = torch.cat([angles.sin(), angles.cos()], dim=1)
    model.encoding = rope(tmp_path, "pi", 200)
    assert apart(logits(model, tokens(200)), theirs(far, tokens(200))) < 1e-4
    model.encoding = UNMODIFIED
    assert apart(logits(model, tokens(60)), theirs(longer, tokens(60))) < 1e-5


@pytest.mark.skipif(
    not REAL, reason="there are no weights of stories260K on this machine"
)
def test_real_weights_have_the_losses_of_transformers():
    assert REAL
    folder = REAL / "stories260K-hf"
    own = AutoModelForCausalLM.from_pretrained(folder).eval()
    story = (
        (REAL / "tinystories_sample.txt").read_text().split("<|endoftext|>")[0][:3000]
    )
    ids = AutoTokenizer.from_pretrained(folder)(story, return_tensors="pt")[
        "input_ids"
    ][:, :513]
    model = ReleasedModel(folder)
    ours = compute_token_losses(model, ids)
    expected = cross_entropy(theirs(own, ids[:, :-1])[0], ids[0, 1:], reduction="none")
    torch.testing.assert_close(ours[0], expected, rtol=1e-4, atol=1e-4)
    assert 1.0 < float(ours.mean()) < 1.8
    facts = read_facts(str(folder))
    read = ids.repeat(1, 2)[:, :700]
    model.encoding = Rope(parse_scaling("yarn", 2.0).plan(facts.geometry(), 1024))
    scaled = AutoModelForCausalLM.from_pretrained(
        folder,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 2.0,
            "original_max_position_embeddings": 512,
        },
    )
    assert apart(logits(model, read), theirs(scaled.eval(), read)) < 1e-4
