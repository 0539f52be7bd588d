"""The laws of rotation, and two libraries."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rotary_embedding_torch import RotaryEmbedding, apply_rotary_emb
from torch import Tensor

from ropelab.math.frequencies import Geometry, inverse_frequencies
from ropelab.math.methods import parse_scaling
from ropelab.math.rotary import Pairing
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.rope import Rope, cos_sin, rotate
from ropelab.runs.errors import InputError

DIM = 16
PAIRINGS = st.sampled_from(["half", "interleaved"])
POSITIONS = st.integers(0, 4096)


def plan(base: float = 10000.0, dim: int = DIM) -> RopePlan:
    return RopePlan(inverse_frequencies(dim, base))


def vectors(tokens: int = 5, seed: int = 0, dim: int = DIM) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, tokens, dim, dtype=torch.float64, generator=generator)


def turned(x: Tensor, position: int, pairing: Pairing, sign: int = 1) -> Tensor:
    cos, sin = cos_sin(torch.tensor([position]), plan())
    return rotate(x, cos, sign * sin, pairing=pairing)


def pairs(x: Tensor, pairing: Pairing) -> Tensor:
    """Pairs on the last axis."""
    if pairing == "half":
        return torch.stack(x.chunk(2, dim=-1), dim=-1)
    return x.unflatten(-1, (-1, 2))


@given(POSITIONS, POSITIONS, PAIRINGS)
def test_turning_by_a_then_b_is_turning_by_their_sum(
    a: int, b: int, pairing: Pairing
) -> None:
    x = vectors()
    torch.testing.assert_close(
        turned(turned(x, a, pairing), b, pairing),
        turned(x, a + b, pairing),
        rtol=0,
        atol=1e-11,
    )


@given(POSITIONS, PAIRINGS)
def test_lengths_of_pairs_are_kept(position: int, pairing: Pairing) -> None:
    x = vectors()
    lengths = [
        pairs(y, pairing).norm(dim=-1) for y in (x, turned(x, position, pairing))
    ]
    torch.testing.assert_close(*lengths)


@given(POSITIONS, PAIRINGS)
def test_the_other_sign_turns_back(position: int, pairing: Pairing) -> None:
    x = vectors()
    back = turned(turned(x, position, pairing), position, pairing, sign=-1)
    torch.testing.assert_close(back, x)


@given(POSITIONS, POSITIONS, st.integers(0, 100_000), PAIRINGS)
def test_scores_depend_on_the_distance_only(
    query_at: int, key_at: int, shift: int, pairing: Pairing
) -> None:
    query, key = vectors(1, 1), vectors(1, 2)

    def score(moved: int) -> Tensor:
        q = turned(query, query_at + moved, pairing)
        return (q * turned(key, key_at + moved, pairing)).sum(-1)

    torch.testing.assert_close(score(shift), score(0), rtol=0, atol=1e-9)


@given(PAIRINGS)
def test_position_zero_changes_nothing(pairing: Pairing) -> None:
    x = vectors()
    assert torch.equal(turned(x, 0, pairing), x)


def test_the_pairings_differ_by_a_permutation_of_the_features() -> None:
    x = vectors()
    cos, sin = cos_sin(torch.arange(5), plan())
    regrouped = rotate(pairs(x, "interleaved").mT.flatten(-2), cos, sin, pairing="half")
    interleaved = rotate(x, cos, sin, pairing="interleaved")
    assert torch.equal(pairs(regrouped, "half"), pairs(interleaved, "interleaved"))


def test_complex_multiplication_says_the_same() -> None:
    x, positions = vectors(), torch.arange(5)
    angle = positions[:, None] * torch.from_numpy(plan().inv_freq)
    z = torch.view_as_complex(x.reshape(2, 5, -1, 2)) * torch.polar(
        torch.ones_like(angle), angle
    )
    found = rotate(x, *cos_sin(positions, plan()), pairing="interleaved")
    torch.testing.assert_close(found, torch.view_as_real(z).flatten(-2))


def test_rotary_embedding_torch_says_the_same() -> None:
    x = vectors(tokens=200)
    theirs = RotaryEmbedding(dim=DIM, theta=10000, cache_if_possible=False)
    angles = theirs(torch.arange(200, dtype=torch.float32)).double()
    found = rotate(x, *cos_sin(torch.arange(200), plan()), pairing="interleaved")
    torch.testing.assert_close(found, apply_rotary_emb(angles, x), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        "one(period=256)",
        "spaced(n=4)",
        "spaced(n=4, uniform=true)",
        "without(band=fast)",
    ],
)
def test_rotary_embedding_torch_says_the_same_of_chosen_frequencies(text: str) -> None:
    chosen = parse_scaling(text).plan(Geometry(DIM, 1e4, 128), 128)
    theirs = RotaryEmbedding(
        dim=DIM, custom_freqs=torch.from_numpy(chosen.inv_freq), cache_if_possible=False
    )
    x = vectors(tokens=200)
    angles = theirs(torch.arange(200, dtype=torch.float64))
    found = Rope(chosen, "interleaved").query(x[:, None], torch.arange(200))
    torch.testing.assert_close(
        found[:, 0], apply_rotary_emb(angles, x), rtol=0, atol=1e-5
    )


def test_the_tables_do_not_contain_the_attention_factor() -> None:
    positions = torch.arange(3)
    with_factor = RopePlan(plan().inv_freq, attention_factor=1.3)
    assert torch.equal(
        cos_sin(positions, with_factor)[0], cos_sin(positions, plan())[0]
    )


def test_tables_are_float64_and_promotion_decides() -> None:
    cos, sin = cos_sin(torch.arange(5), plan())
    assert cos.dtype == sin.dtype == torch.float64
    x = vectors().float()
    assert rotate(x, cos.float(), sin.float()).dtype == torch.float32
    assert rotate(x, cos, sin).dtype == torch.float64


def test_refuses_other_pairings() -> None:
    cos, sin = cos_sin(torch.arange(5), plan())
    with pytest.raises(InputError, match="allowed: half, interleaved"):
        rotate(vectors(), cos, sin, pairing="halves")  # type: ignore[arg-type]
