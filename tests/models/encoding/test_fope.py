"""FoPE where it equals RoPE, and what its weights are; its scores are in
test_encoding_formulas.
"""

import pytest
import torch
from torch import nn

from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.rope_variants import Fope

HEAD_DIM, HEADS, TOKENS = 6, 2, 200


def test_fope_without_weights_and_floor_is_rope() -> None:
    x, positions = torch.randn(3, HEADS, TOKENS, HEAD_DIM), torch.arange(TOKENS)
    without = Fope(HEAD_DIM, HEADS, trained_len=10**9, sigma=0)
    floor = Fope(HEAD_DIM, HEADS, trained_len=64, sigma=0)
    # 1 and 10000^(-1/3) = 0.046: only the first rotates 2 pi within 64 tokens.
    fast = Rope.build(HEAD_DIM, fast=1 / 3)
    for ours, rope in ((without, Rope.build(HEAD_DIM)), (floor, fast)):
        assert torch.equal(ours.query(x, positions), rope.query(x, positions))
        assert torch.equal(ours.key(x, positions), rope.key(x, positions))


def test_fope_mixes_only_what_rotates_and_learns_nothing() -> None:
    torch.manual_seed(0)
    wide = Fope(32, 4, trained_len=512)
    assert not list(wide.parameters())
    added = wide.weights - torch.eye(16)
    assert (added[..., 8:, :] == 0).all()
    assert (added[..., :8, 8:] == 0).all()
    noise = added[..., :8, :8]
    # Xavier's rule on [4 heads, 8, 8]: 0.3 sqrt(2 / (8 * 8 + 4 * 8)).
    theirs = nn.init.xavier_normal_(torch.empty(4, 8, 8), gain=0.3)
    assert noise.std().item() == pytest.approx(0.3 * (2 / 96) ** 0.5, rel=0.1)
    assert noise.std().item() == pytest.approx(theirs.std().item(), rel=0.2)
    layers = make_encoding(
        "fope",
        Shape(layers=2, width=12, heads=HEADS, head_dim=HEAD_DIM, trained_len=64),
    )
    one, other = (layers.for_layer(index).get_buffer("weights") for index in (0, 1))
    assert not torch.equal(one, other)
