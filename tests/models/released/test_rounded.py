"""Rounded rotations and keys in models of transformers, against Llama with its own code
changed.
"""

import pytest
import torch
from transformers.models.llama import modeling_llama

from ropelab.math.numerics.keys import Rounding, parse_keys, parse_rounding
from ropelab.models.encoding.rounded import RoundedRope
from ropelab.models.released import forward
from ropelab.models.released.model import ReleasedModel
from ropelab.models.released.positions import UNMODIFIED
from tests.models.released.architectures import ARCHITECTURES
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

LENGTH = 130


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A model behind our interface, its folder, and transformers' own."""
    shape = {"head_dim": 32, "hidden_size": 64}
    folder = saved(tmp_path_factory.mktemp("llama"), "llama", **shape)
    return ReleasedModel(folder), folder, untouched("llama", **shape)


def under(model: ReleasedModel, rounding: Rounding) -> torch.Tensor:
    model.encoding = RoundedRope(model.own_rotation(LENGTH), rounding, model.facts.base)
    return logits(model, tokens(LENGTH))


def test_a_plan_that_rounds_nothing_changes_nothing_but_float32_noise(llama):
    model, _, reference = llama
    expected = theirs(reference, tokens(LENGTH))
    assert apart(under(model, Rounding("exact")), expected) < 1e-4
    model.encoding = UNMODIFIED
    assert torch.equal(logits(model, tokens(LENGTH)), theirs(model.lm, tokens(LENGTH)))


@pytest.mark.parametrize(
    ("cast", "cos_sin", "angles"),
    [
        ("table:bfloat16", lambda x: x.bfloat16().float(), None),
        (
            "position:float8_e4m3fn",
            None,
            lambda at, f: at.to(torch.float8_e4m3fn).double() * f,
        ),
        ("angle:bfloat16", None, lambda at, f: (at.double() * f).bfloat16().double()),
        ("inv_freq:bfloat16", None, lambda at, f: at.double() * f.bfloat16().double()),
    ],
)
def test_a_cast_is_that_of_transformers_code_with_the_cast_written_into_it(
    llama, cast, cos_sin, angles, monkeypatch
):
    model, _, reference = llama

    def forward_with_cast(self, x, position_ids):
        inv_freq = 10000.0 ** -(torch.arange(0, 32, 2).double() / 32)
        at = position_ids[0].double()[:, None]
        angle = angles(at.float(), inv_freq) if angles else at * inv_freq
        emb = torch.cat((angle, angle), dim=-1)[None]
        cos, sin = emb.cos().float(), emb.sin().float()
        return (cos_sin(cos), cos_sin(sin)) if cos_sin else (cos, sin)

    exact = theirs(reference, tokens(LENGTH))
    monkeypatch.setattr(
        modeling_llama.LlamaRotaryEmbedding, "forward", forward_with_cast
    )
    expected = theirs(reference, tokens(LENGTH))
    monkeypatch.undo()
    assert apart(under(model, parse_rounding(cast)), expected) < 1e-4
    assert apart(expected, exact) > 1e-3


@pytest.mark.parametrize("name", ["q4_0", "q4_0(before)", "int4(channel)"])
def test_keys_are_rounded_as_if_transformers_stored_them_so(llama, name, monkeypatch):
    model, _, reference = llama
    keys, plain = parse_keys(name), modeling_llama.apply_rotary_pos_emb

    def stored(k):
        return torch.from_numpy(keys.store(k.double().numpy())).float()

    def rotated(q, k, cos, sin, **more):
        if keys.before:
            return plain(q, stored(k), cos, sin, **more)
        q, k = plain(q, k, cos, sin, **more)
        return q, stored(k)

    exact = theirs(reference, tokens(LENGTH))
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", rotated)
    expected = theirs(reference, tokens(LENGTH))
    monkeypatch.undo()
    # Noise of float32, which differs from processor to processor, moves now and then a key
    # across an edge of its grid: that changes logits by 0.02, a wrong rule by more than 1.
    assert apart(under(model, Rounding(name, keys=keys)), expected) < 0.1
    assert apart(expected, exact) > 1


def test_keys_are_moved_as_if_transformers_stored_and_rotated_them_again(
    llama, monkeypatch
):
    model, _, reference = llama
    keys, plain = parse_keys("q8_0(moved=3x7)"), modeling_llama.apply_rotary_pos_emb
    inv_freq = 10000.0 ** -(torch.arange(0, 32, 2).double() / 32)

    def turned(k, at):
        angles = (at[:, None] * inv_freq).repeat(1, 2)[None]
        k = plain(k, k, angles.cos().float(), angles.sin().float())[1]
        return torch.from_numpy(keys.store(k.double().numpy())).float()

    def rotated(q, k, cos, sin, **more):
        at = torch.arange(k.shape[2]).double()
        k = turned(k, at + 21)
        for _ in range(3):
            k = turned(k, torch.full_like(at, -7.0))
        return plain(q, q, cos, sin, **more)[0], k

    exact = theirs(reference, tokens(LENGTH))
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", rotated)
    expected = theirs(reference, tokens(LENGTH))
    monkeypatch.undo()
    # The grid of q8_0 is 16 times finer, and so is what a key at an edge changes.
    assert apart(under(model, Rounding("moved", keys=keys)), expected) < 0.01
    assert apart(expected, exact) > 0.2


@pytest.mark.parametrize("model_type", ["cohere", "glm", "deepseek_v3"])
def test_moved_keys_keep_to_the_pairs_of_the_model(model_type, tmp_path):
    model = ReleasedModel(saved(tmp_path, model_type, **ARCHITECTURES[model_type]))
    expected = logits(model, tokens(LENGTH))

    stored = under(model, Rounding("stored", keys=parse_keys("int8")))
    moved = under(model, Rounding("moved", keys=parse_keys("int8(moved=3x7)")))

    error = apart(stored, expected)
    assert 0 < error < apart(moved, expected) < 5 * error


@pytest.mark.parametrize("cast", ["half_cache_bfloat16", "position:float8_e4m3fn"])
def test_contexts_read_in_parts_are_rounded_alike(llama, cast, monkeypatch):
    model, *_ = llama
    whole = under(model, parse_rounding(cast))
    monkeypatch.setattr(forward, "LONGEST_PASS", 40)
    assert apart(under(model, parse_rounding(cast)), whole) < 1e-3


@pytest.mark.parametrize(
    "model_type", ["gemma", "gpt_neox", "cohere", "deepseek_v3", "glm"]
)
def test_other_architectures_are_taken_over_too(model_type, tmp_path):
    model = ReleasedModel(saved(tmp_path, model_type, **ARCHITECTURES[model_type]))
    expected = logits(model, tokens(LENGTH))
    assert apart(under(model, Rounding("exact")), expected) < 1e-3
    assert (
        apart(under(model, parse_rounding("position:float8_e4m3fn")), expected) > 1e-2
    )


def test_a_checkpoint_that_scales_keeps_its_scaling_under_a_cast(tmp_path):
    scaling = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": TRAINED,
    }
    changes = {
        "max_position_embeddings": 4 * TRAINED,
        "rope_parameters": {"rope_theta": 10000.0, **scaling},
    }
    model = ReleasedModel(saved(tmp_path, "llama", **changes))
    expected = logits(model, tokens(LENGTH))
    assert apart(under(model, Rounding("exact")), expected) < 1e-4
    model.encoding = rope(tmp_path, "unscaled", TRAINED)
    assert apart(logits(model, tokens(LENGTH)), expected) > 1e-2
