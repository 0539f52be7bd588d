"""Where a well-kept library has an encoding too, both give the same scores."""

import pytest
import torch
from rotary_embedding_torch import RotaryEmbedding
from torch import Tensor, nn
from transformers import (
    DebertaV2Config,
    LlamaConfig,
    T5Config,
    Wav2Vec2BertConfig,
    XLNetConfig,
)
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention
from transformers.models.deepseek_v2.modeling_deepseek_v2 import (
    apply_rotary_emb as turn_as_complex,
)
from transformers.models.gptj.modeling_gptj import (
    apply_rotary_pos_emb as turn_neighbours,
)
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)
from transformers.models.marian.modeling_marian import (
    MarianSinusoidalPositionalEmbedding,
)
from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import (
    Wav2Vec2BertSelfAttention,
    _apply_relative_key_position_encoding,
)
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

from ropelab.models.encoding.absolute import sinusoid
from ropelab.models.encoding.biases import T5, Alibi, slopes
from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.models.encoding.relative import Deberta, Shaw, TransformerXL
from ropelab.models.encoding.rope import Rope

HEADS, HEAD_DIM, TOKENS = 2, 8, 50
WIDTH = HEADS * HEAD_DIM
POSITIONS = torch.arange(TOKENS)
EARLIER = POSITIONS[None, :] <= POSITIONS[:, None]


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def heads(tokens: int = TOKENS) -> Tensor:
    return torch.randn(3, HEADS, tokens, HEAD_DIM)


def assert_same_earlier(got: Tensor, want: Tensor) -> None:
    """Equal where a causal model looks."""
    torch.testing.assert_close(
        got[..., EARLIER], want[..., EARLIER], rtol=1e-5, atol=1e-5
    )


def test_t5_buckets_of_every_distance() -> None:
    distance = torch.arange(8192)
    theirs = T5Attention._relative_position_bucket(-distance, bidirectional=False)
    assert torch.equal(T5.bucket(distance), theirs)
    assert T5.bucket(torch.tensor([112, 113, T5.FARTHEST, 8191])).tolist() == [
        30,
        31,
        31,
        31,
    ]


@torch.no_grad()
def test_t5_bias() -> None:
    config = T5Config(d_model=WIDTH, d_kv=HEAD_DIM, num_heads=HEADS, is_decoder=True)
    theirs = T5Attention(config, has_relative_attention_bias=True, layer_idx=0)
    ours = T5(HEADS, WIDTH)
    theirs.relative_attention_bias.weight.copy_(ours.table.T)
    q, k = heads(), heads()
    want = q @ k.mT / HEAD_DIM**0.5 + theirs.compute_bias(TOKENS, TOKENS)
    assert_same_earlier(ours.scores(q, k, POSITIONS, POSITIONS), want)


@pytest.mark.parametrize("number", [1, 2, 3, 6, 8, 12, 32, 71])
def test_alibi_slopes_of_bloom(number: int) -> None:
    theirs = build_alibi_tensor(torch.ones(1, 2), number, torch.float32)
    torch.testing.assert_close(slopes(number).float(), theirs[:, 0, 1])


@torch.no_grad()
def test_alibi_of_mpt_after_softmax() -> None:
    q, k = heads(), heads()
    want = q @ k.mT / HEAD_DIM**0.5 + build_mpt_alibi_tensor(HEADS, TOKENS)
    got = Alibi(HEADS).scores(q, k, POSITIONS, POSITIONS)
    # Theirs counts from the last key instead of the query: the same for a softmax.
    hidden = ~EARLIER
    assert_same_earlier(
        got.masked_fill(hidden, -torch.inf).softmax(-1),
        want.masked_fill(hidden, -torch.inf).softmax(-1),
    )


@torch.no_grad()
def test_transformer_xl_of_xlnet() -> None:
    ours = TransformerXL(WIDTH, HEADS, HEAD_DIM)
    nn.init.normal_(ours.u)
    nn.init.normal_(ours.v)
    theirs = XLNetRelativeAttention(
        XLNetConfig(d_model=WIDTH, n_head=HEADS, d_head=HEAD_DIM, dropout=0.0)
    ).eval()
    theirs.r_w_bias.copy_(ours.u[:, 0])
    theirs.r_r_bias.copy_(ours.v[:, 0])
    q, k, v = heads(), heads(), heads()
    # Theirs wants tokens first, and distances from `tokens` down to 1 - tokens.
    later, before = (
        ours.project_rows(torch.arange(TOKENS + 1)),
        ours.project_rows(-POSITIONS[1:]),
    )
    rows = torch.cat((later.flip(1), before), dim=1)
    q_, k_, v_, r_ = (
        x.permute(2, 0, 1, 3) for x in (q, k, v, rows[None].expand(3, -1, -1, -1))
    )
    hidden = (~EARLIER).float()[:, :, None, None]
    want = theirs.rel_attn_core(q_, k_, v_, r_, attn_mask=hidden).permute(1, 2, 0, 3)
    scores = ours.scores(q, k, POSITIONS, POSITIONS).masked_fill(~EARLIER, -torch.inf)
    torch.testing.assert_close(scores.softmax(-1) @ v, want, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_deberta_v2() -> None:
    rows = 20
    config = DebertaV2Config(
        hidden_size=WIDTH, num_attention_heads=HEADS, relative_attention=True,
        pos_att_type=["c2p", "p2c"], max_relative_positions=rows, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = DisentangledSelfAttention(config).eval()
    ours = Deberta(1, WIDTH, HEADS, HEAD_DIM, rows)
    for projection in (theirs.pos_key_proj, theirs.pos_query_proj):
        projection.bias.zero_()
    theirs.pos_key_proj.weight.copy_(ours.get_parameter("to_key.0.weight"))
    theirs.pos_query_proj.weight.copy_(ours.get_parameter("to_query.0.weight"))
    table = torch.cat((torch.randn(rows, WIDTH), ours.table.weight))
    q, k = heads(), heads()
    bias = theirs.disentangled_attention_bias(
        q.flatten(0, 1), k.flatten(0, 1), None, table, 3
    )
    want = q @ k.mT / (3 * HEAD_DIM) ** 0.5 + bias.unflatten(0, (3, HEADS))
    assert_same_earlier(ours.for_layer(0).scores(q, k, POSITIONS, POSITIONS), want)


@torch.no_grad()
def test_shaw_keys_of_wav2vec2_bert() -> None:
    config = Wav2Vec2BertConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, position_embeddings_type="relative_key",
        left_max_position_embeddings=Shaw.CLIP, right_max_position_embeddings=2,
    )  # fmt: skip
    theirs, ours = Wav2Vec2BertSelfAttention(config), Shaw(HEAD_DIM)
    theirs.distance_embedding.weight[: Shaw.CLIP + 1] = ours.keys.flip(0)
    q, k = heads(), heads()
    _, bias = _apply_relative_key_position_encoding(theirs, q, k)
    want = q @ k.mT / HEAD_DIM**0.5 + bias
    assert_same_earlier(ours.scores(q, k, POSITIONS, POSITIONS), want)


@torch.no_grad()
def test_sinusoid_of_marian() -> None:
    theirs = MarianSinusoidalPositionalEmbedding(TOKENS, WIDTH)
    table = theirs.create_weight()
    ours = sinusoid(POSITIONS, WIDTH).float()
    # Theirs has all sines before all cosines.
    torch.testing.assert_close(torch.cat((ours[:, ::2], ours[:, 1::2]), 1), table)


SHAPE = Shape(layers=1, width=WIDTH, heads=HEADS, head_dim=HEAD_DIM, trained_len=TOKENS)


@torch.no_grad()
def test_rope_of_llama() -> None:
    config = LlamaConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, head_dim=HEAD_DIM
    )
    q, k = heads(), heads()
    cos, sin = LlamaRotaryEmbedding(config)(q, POSITIONS[None])
    want_q, want_k = apply_rotary_pos_emb(q, k, cos, sin)
    ours = Rope.build(HEAD_DIM)
    torch.testing.assert_close(ours.query(q, POSITIONS), want_q)
    torch.testing.assert_close(ours.key(k, POSITIONS), want_k)


@torch.no_grad()
def test_interleaved_rope_of_gptj() -> None:
    q = heads()
    angle = POSITIONS[:, None] * 10000.0 ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    want = turn_neighbours(q.transpose(1, 2), angle.sin()[None], angle.cos()[None])
    got = Rope.build(HEAD_DIM, pairing="interleaved").query(q, POSITIONS)
    torch.testing.assert_close(got, want.transpose(1, 2))


@torch.no_grad()
def test_xpos_of_rotary_embedding_torch() -> None:
    q, k = heads(), heads()
    theirs = RotaryEmbedding(HEAD_DIM, use_xpos=True)
    # Theirs counts positions from the middle of the text, which a score does not
    # notice.
    want_q, want_k = theirs.rotate_queries_and_keys(q, k)
    ours = make_encoding("xpos", SHAPE)
    got = ours.query(q, POSITIONS) @ ours.key(k, POSITIONS).mT
    torch.testing.assert_close(got, want_q @ want_k.mT, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_the_rotary_part_of_deepseek_v2() -> None:
    q, k = heads(), heads()
    rotary = HEAD_DIM // 2
    angle = POSITIONS[:, None] * 10000.0 ** -(torch.arange(0, rotary, 2) / rotary)
    waves = torch.polar(torch.ones_like(angle), angle)[None]
    want_q, want_k = turn_as_complex(q[..., -rotary:], k[:, :1, :, -rotary:], waves)
    ours = make_encoding("mla", SHAPE)
    got_q, got_k = ours.query(q, POSITIONS), ours.key(k, POSITIONS)
    torch.testing.assert_close(got_q[..., -rotary:], want_q)
    torch.testing.assert_close(got_k[..., -rotary:], want_k.expand(-1, HEADS, -1, -1))
    torch.testing.assert_close(got_q[..., :-rotary], q[..., :-rotary])
    torch.testing.assert_close(got_k[..., :-rotary], k[..., :-rotary])
