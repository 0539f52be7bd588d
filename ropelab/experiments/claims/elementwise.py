"""Claims about the rotation in code: sparse matrix, elementwise form, rotate_half."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ropelab.encoding.rotary import cos_sin, join_pairs, rotate, split_pairs
from ropelab.experiments.claims.randoms import gaussian, largest
from ropelab.experiments.claims.record import Claim, Evidence, limit, part, tiny
from ropelab.experiments.claims.rotation import EXACT
from ropelab.rope.frequencies import inverse_frequencies
from ropelab.rope.rotary import Pairing
from ropelab.rope.scaling import RopePlan


@dataclass(frozen=True, kw_only=True)
class Layout:
    """A head, a position, and how the rotation is written."""

    head_dim: int = 32
    base: float = 10000.0
    position: int = 1000
    distance: int = 3
    draws: int = 96
    seed: int = 0
    last_pair: Literal["as printed", "as meant"] = "as meant"

    def angles(self, position: int) -> Float[Tensor, "pairs"]:
        """The angle of every pair at a position."""
        return position * torch.from_numpy(inverse_frequencies(self.head_dim, self.base))

    def draw(self) -> tuple[Float[Tensor, "draws d"], Float[Tensor, "draws d"]]:
        """Queries and keys of independent standard normal features."""
        q, k = gaussian(self.seed, 2, self.draws, self.head_dim)
        return q, k


def block_diagonal(angles: Float[Tensor, "pairs"]) -> Float[Tensor, "d d"]:
    """The sparse matrix of the notes: a 2x2 rotation per pair of neighbouring features."""
    cos, sin = angles.cos(), angles.sin()
    blocks = torch.stack((torch.stack((cos, -sin), -1), torch.stack((sin, cos), -1)), -2)
    return torch.block_diag(*blocks)


def neighbours_swapped(x: Float[Tensor, "draws d"]) -> Float[Tensor, "draws d"]:
    """(-x2, x1, -x4, x3, ...), what the elementwise form multiplies with the sines."""
    first, second = split_pairs(x, "interleaved")
    return join_pairs(-second, first, "interleaved")


def halves_swapped(x: Float[Tensor, "draws d"]) -> Float[Tensor, "draws d"]:
    """(-x_second_half, x_first_half): `rotate_half`."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def elementwise_form(given: Layout) -> Evidence:
    """Compare the matrix product with x cos + swapped(x) sin, pair by pair."""
    x, angles = given.draw()[0], given.angles(given.position)
    swapped = neighbours_swapped(x)
    if given.last_pair == "as printed":
        swapped[:, -2:] = torch.stack((-x[:, -2], x[:, -1]), -1)
    doubled = angles.repeat_interleave(2)
    written = x * doubled.cos() + swapped * doubled.sin()
    off = (written - x @ block_diagonal(angles).T).abs().amax(0)
    wrong = int((off.view(-1, 2).amax(-1) > EXACT).sum())
    return Evidence(
        expected=f"agreement to {EXACT:g} in every pair",
        findings=(
            part(
                f"pairs that differ at position {given.position}",
                f"{wrong} of {len(angles)}, by up to {tiny(largest(off))}",
                wrong == 0,
                largest(off),
            ),
        ),
    )


def is_one_rotation(given: Layout) -> Evidence:
    """Lengths and orientation under the whole matrix: orthogonal, determinant 1."""
    matrix = block_diagonal(given.angles(given.position))
    off = largest(matrix @ matrix.T - torch.eye(given.head_dim, dtype=torch.float64))
    determinant = float(torch.linalg.det(matrix))
    return Evidence(
        expected="an orthogonal matrix of determinant 1",
        findings=(
            part("the matrix times its transpose", f"{tiny(off)} from 1", off <= EXACT, off),
            part(
                "determinant",
                f"{determinant:.12f}",
                abs(determinant - 1) <= EXACT,
                determinant,
            ),
        ),
    )


def rotate_half_equivalent(given: Layout) -> Evidence:
    """Scores of both pairings: after a fixed permutation, as they are, and with mixed tables."""
    q, k = given.draw()
    permutation = join_pairs(*split_pairs(torch.arange(given.head_dim), "interleaved"), "half")
    pairwise = _score(given, q, k, "interleaved", given.position)
    permuted = _score(given, q[:, permutation], k[:, permutation], "half", given.position)
    unpermuted = _score(given, q, k, "half", given.position)
    near, far = (_mixed_score(given, q, k, m) for m in (0, given.position))
    same, apart, moved = (
        largest(x) for x in (permuted - pairwise, unpermuted - pairwise, far - near)
    )
    return Evidence(
        expected="the same scores as rotating neighbouring features",
        findings=(
            part("features reordered once, scores", f"{tiny(same)} apart", same <= EXACT, same),
            limit("features as they are, scores", f"{apart:.1f} apart", apart <= EXACT, apart),
            limit(
                "rotate_half with tables for neighbouring features, "
                f"change of scores when both positions move by {given.position}",
                f"{moved:.1f}",
                moved <= EXACT,
                moved,
            ),
        ),
    )


def _score(given: Layout, q: Tensor, k: Tensor, pairing: Pairing, m: int) -> Float[Tensor, "draws"]:
    """Scores of q at m and k at m + distance."""
    plan = RopePlan(inverse_frequencies(given.head_dim, given.base))
    cos, sin = cos_sin(torch.tensor([m, m + given.distance]), plan)
    q, k = (
        rotate(x, cos[i : i + 1], sin[i : i + 1], pairing=pairing) for i, x in enumerate((q, k))
    )
    return (q * k).sum(-1)


def _mixed_score(given: Layout, q: Tensor, k: Tensor, m: int) -> Float[Tensor, "draws"]:
    """Scores with rotate_half, but with each cos and sin repeated for two neighbours."""
    turned = []
    for x, position in ((q, m), (k, m + given.distance)):
        angles = given.angles(position).repeat_interleave(2)
        turned.append(x * angles.cos() + halves_swapped(x) * angles.sin())
    return (turned[0] * turned[1]).sum(-1)


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Code printed in a note, in float32 as it runs there, on tensors of the printed shape."""

    shape: tuple[int, int, int, int] = (8, 12, 10, 32)
    base: float = 10000.0
    tables: Pairing = "interleaved"
    swap: Pairing = "interleaved"
    shift: int = 5
    seed: int = 0
    tolerance: float = 1e-4


def listing_is_relative(given: Listing) -> Evidence:
    """Give all positions the same q and k: equal distances must then score the same."""
    tokens, width = given.shape[-2:]
    q, k = gaussian(given.seed, 2, *given.shape[:-2], 1, width).float()
    q, k = (_listed(given, x.expand(given.shape)) for x in (q, k))
    scores = q @ k.transpose(-1, -2)
    reach = tokens - given.shift
    moved = largest(scores[..., :reach, :reach] - scores[..., given.shift :, given.shift :])
    return Evidence(
        expected=f"equal distances give equal scores within float32, {given.tolerance:g}",
        findings=(
            part(
                f"change of scores when both positions move by {given.shift}, "
                f"shape {tuple(scores.shape)}",
                tiny(moved),
                moved <= given.tolerance,
                moved,
            ),
        ),
    )


def _listed(given: Listing, x: Float[Tensor, "b h t d"]) -> Float[Tensor, "b h t d"]:
    """x cos + swapped(x) sin with the listing's tables and swap."""
    tokens, width = given.shape[-2:]
    inv_freq = torch.from_numpy(inverse_frequencies(width, given.base)).float()
    angles = torch.arange(tokens, dtype=torch.float32)[:, None] * inv_freq
    angles = join_pairs(angles, angles, given.tables)
    swapped = neighbours_swapped(x) if given.swap == "interleaved" else halves_swapped(x)
    return x * angles.cos() + swapped * angles.sin()


CLAIMS = (
    Claim(
        id="sparse-elementwise",
        source="note 000 (many dimensions); note 003 (RoPE); note 004 §2",
        statement="The product with the sparse block-diagonal matrix equals the elementwise form "
        "x cos + (-x2, x1, -x4, x3, ...) sin.",
        inputs=Layout(),
        check=elementwise_form,
    ),
    Claim(
        id="one-rotation",
        source="note 002 §3 (end)",
        statement="Rotating every pair by its own angle is one rotation of the whole vector, "
        "made of rotations in planes at right angles.",
        inputs=Layout(),
        check=is_one_rotation,
    ),
    Claim(
        id="elementwise-as-printed",
        source="note 003 (RoPE, the n-dimensional form)",
        statement="The elementwise form as printed, whose sine vector ends in (-x_(d-1), x_d), "
        "is the rotation.",
        inputs=Layout(last_pair="as printed"),
        check=elementwise_form,
    ),
    Claim(
        id="rotate-half",
        source="note 003 (RoPE, why rotate_half); note 001 §6.2",
        statement="rotate_half, which pairs the two halves of a head, is equivalent to rotating "
        "neighbouring features.",
        inputs=Layout(),
        check=rotate_half_equivalent,
    ),
    Claim(
        id="note-001-code",
        source="note 001 §6.1, §6.2",
        statement="The printed code, tables repeated as two halves with rotate_half, makes scores "
        "depend on the distance only.",
        inputs=Listing(base=1e6, tables="half", swap="half"),
        check=listing_is_relative,
    ),
    Claim(
        id="note-004-code",
        source="note 004 (code)",
        statement="The printed code, neighbouring tables with neighbouring swaps on shape "
        "(8, 12, 10, 32), makes scores depend on the distance only.",
        inputs=Listing(),
        check=listing_is_relative,
    ),
)
