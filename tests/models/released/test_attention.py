"""Methods of attention on a model of transformers, against Llama written out pair by
pair.
"""

import math

import pytest
import torch
from torch.nn.functional import rms_norm, silu

from ropelab.models.encoding.extended import (
    Dropped,
    DualChunk,
    LogN,
    ReRope,
    SelfExtend,
    Shifted,
)
from ropelab.models.released import forward
from ropelab.models.released.model import ReleasedModel
from ropelab.models.released.positions import UNMODIFIED
from ropelab.runs.errors import InputError
from tests.models.released.architectures import ARCHITECTURES, TWO_KINDS
from tests.models.released.tiny import (
    TRAINED,
    apart,
    logits,
    rope,
    saved,
    tokens,
    untouched,
)

WINDOW, GROUP, CHUNK = 20, 5, 24
LENGTH = 130
HEADS, WIDTH = 4, 16


def exact(i, j):
    return i - j


def rectified(i, j):
    return torch.minimum(i - j, torch.tensor(WINDOW))


def grouped(i, j):
    far = i // GROUP + WINDOW - WINDOW // GROUP - j // GROUP
    return torch.where(i - j < WINDOW, i - j, far)


def chunked(i, j):
    near, after = (
        i - j,
        torch.minimum(i % CHUNK + CHUNK, torch.tensor(TRAINED - 1)) - j % CHUNK,
    )
    apart = i // CHUNK - j // CHUNK
    far = TRAINED - 1 - j % CHUNK + 0 * i
    return torch.where(apart < 1, near, torch.where(apart == 1, after, far))


def shifted(i, j):
    return torch.where(i - j < WINDOW, i - j, i - j - WINDOW + GROUP)


def llama(model, read, distance, sharpened=False, window=10**6):
    """Logits of a Llama or Mistral whose scores are made from the distance of every
    pair.
    """
    at = torch.arange(read.shape[1])
    apart = distance(at[:, None], at[None, :])
    angles = apart[..., None] * 10000.0 ** -(torch.arange(0, WIDTH, 2) / WIDTH)
    turn = torch.polar(torch.ones_like(angles), angles)
    sharper = ((at + 1).clamp(max=window).log() / math.log(TRAINED)).clamp(min=1)
    seen = (at[None, :] <= at[:, None]) & (at[:, None] - at[None, :] < window)
    x = model.model.embed_tokens(read)[0]
    for layer in model.model.layers:
        a, y = (
            layer.self_attn,
            rms_norm(x, x.shape[1:], layer.input_layernorm.weight, 1e-6),
        )
        q, k, v = (
            p(y).unflatten(-1, (-1, WIDTH)) for p in (a.q_proj, a.k_proj, a.v_proj)
        )
        q, k = (
            torch.complex(z[..., : WIDTH // 2], z[..., WIDTH // 2 :]) for z in (q, k)
        )
        k, v = (z.repeat_interleave(HEADS // z.shape[1], dim=1) for z in (k, v))
        scores = torch.einsum("ihf,jhf,ijf->hij", q, k.conj(), turn).real / math.sqrt(
            WIDTH
        )
        scores = scores * sharper[:, None] if sharpened else scores
        weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
        x = x + a.o_proj(torch.einsum("hij,jhf->ihf", weights, v).flatten(1))
        y = rms_norm(x, x.shape[1:], layer.post_attention_layernorm.weight, 1e-6)
        x = x + layer.mlp.down_proj(silu(layer.mlp.gate_proj(y)) * layer.mlp.up_proj(y))
    return model.lm_head(rms_norm(x, x.shape[1:], model.model.norm.weight, 1e-6))[None]


@pytest.fixture(scope="module", params=[("llama", 10**6), ("mistral", 24)])
def given(request, tmp_path_factory):
    """A model behind our interface, its folder, transformers' own, and its window."""
    model_type, window = request.param
    changes = {"sliding_window": window} if model_type == "mistral" else {}
    folder = saved(tmp_path_factory.mktemp(model_type), model_type, **changes)
    return ReleasedModel(folder), folder, untouched(model_type, **changes), window


@pytest.mark.parametrize(
    ("make", "distance", "sharpened"),
    [
        (lambda r: LogN(r, TRAINED), exact, True),
        (lambda r: LogN(UNMODIFIED, TRAINED), exact, True),
        (lambda r: ReRope(r, WINDOW), rectified, False),
        (lambda r: SelfExtend(r, WINDOW, GROUP), grouped, False),
        (lambda r: LogN(SelfExtend(r, WINDOW, GROUP), TRAINED), grouped, True),
        (lambda r: DualChunk(r, CHUNK, TRAINED), chunked, False),
        (lambda r: Shifted(r, WINDOW, GROUP), shifted, False),
    ],
    ids=[
        *("log_n", "log_n unmodified", "rerope", "self_extend", "log_n self_extend"),
        *("dual_chunk", "string"),
    ],
)
def test_attention_is_that_of_the_written_out_model(
    given, make, distance, sharpened, monkeypatch
):
    model, folder, reference, window = given
    read = tokens(LENGTH, rows=1)
    model.encoding = make(rope(folder, "unscaled", TRAINED))
    with torch.inference_mode():
        expected = llama(reference, read, distance, sharpened, window)
        with monkeypatch.context() as patch:
            patch.setattr(forward, "LONGEST_PASS", 40)
            in_parts = logits(model, read)
        plain = llama(reference, read, exact, False, window)
    assert apart(logits(model, read), expected) < 1e-4
    assert apart(in_parts, expected) < 1e-4
    # in a window nothing is far, and fewer tokens are seen than were trained
    if window > LENGTH:
        assert apart(expected, plain) > 1e-2
    model.encoding = UNMODIFIED
    assert apart(logits(model, read), plain) < 1e-4


@pytest.mark.parametrize(
    "model_type",
    ["gemma", "gpt_neox", "cohere", "gemma3_text", "deepseek_v2", "deepseek_v3"],
)
def test_a_group_of_one_is_the_models_own_rotation(model_type, tmp_path):
    model = ReleasedModel(saved(tmp_path, model_type, **ARCHITECTURES[model_type]))
    own = rope(tmp_path, "unscaled", TRAINED)
    model.encoding = own
    expected = logits(model, tokens(LENGTH))
    model.encoding = SelfExtend(own, WINDOW, 1)
    assert apart(logits(model, tokens(LENGTH)), expected) < 1e-4
    model.encoding = SelfExtend(own, WINDOW, GROUP)
    assert apart(logits(model, tokens(LENGTH)), expected) > 1e-2


@pytest.mark.parametrize(
    ("model_type", "changes", "make", "message"),
    [
        (
            "gptj",
            {"rotary_dim": 8, "head_dim": None},
            LogN,
            "do not call transformers' attention",
        ),
        (
            "cohere2",
            TWO_KINDS,
            ReRope,
            "its own rotation of queries and keys cannot be taken over",
        ),
        ("llama", {}, lambda *_: Dropped(), "Dropped cannot be patched into a model"),
    ],
)
def test_what_cannot_be_put_in_is_refused(model_type, changes, make, message, tmp_path):
    model = ReleasedModel(saved(tmp_path, model_type, **changes))
    with pytest.raises(InputError, match=message):
        model.encoding = make(rope(tmp_path, "unscaled", TRAINED), WINDOW)
    assert model.encoding.name == "unmodified"
