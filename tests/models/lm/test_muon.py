"""Muon: torch's own as the oracle, and the property it is named for."""

import pytest
import torch
from torch import nn

from ropelab.models.lm.muon import Muon, orthogonalise

SHAPES = [(12, 8), (8, 8), (32, 8), (8, 32), (12, 8)]
LR, DECAY = 0.02, 0.01


def matrices(seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]


def steps(
    optimizer: torch.optim.Optimizer, parameters: list[torch.Tensor], count: int = 5
) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize(
    ("dtype", "roundings"), [(torch.bfloat16, 2), (torch.float32, 4)]
)
def test_it_moves_as_torchs_own_which_always_computes_in_bfloat16(
    dtype: torch.dtype, roundings: int
) -> None:
    ours, theirs = matrices(), matrices()
    steps(Muon(ours, dtype=dtype, lr=LR, weight_decay=DECAY), ours)
    steps(torch.optim.Muon(theirs, lr=LR, weight_decay=DECAY), theirs)
    for one, other in zip(ours, theirs, strict=True):
        # bfloat16 has 8 bits: a step of 0.02 differs by its roundings, five steps by
        # five times it.
        torch.testing.assert_close(
            one, other, rtol=0, atol=5 * roundings * 0.02 * 2**-8
        )


def test_a_stack_is_orthogonalised_matrix_by_matrix() -> None:
    stack = torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(0))
    together = orthogonalise(stack, torch.float32)
    for matrix, result in zip(stack, together, strict=True):
        torch.testing.assert_close(
            orthogonalise(matrix[None], torch.float32)[0], result
        )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_directions_are_those_of_the_svd_and_singular_values_are_about_one(
    scale: float,
) -> None:
    stack = scale * torch.randn(4, 8, 20, generator=torch.Generator().manual_seed(0))
    u, _, v = torch.linalg.svd(stack, full_matrices=False)
    found = u.mT @ orthogonalise(stack, torch.float32) @ v.mT
    values = found.diagonal(dim1=1, dim2=2)
    assert values.min() > 0.6
    assert values.max() < 1.3
    torch.testing.assert_close(found, torch.diag_embed(values), rtol=0, atol=1e-5)


def test_a_matrix_without_a_gradient_stays() -> None:
    moved, still = matrices()[:2]
    before = still.detach().clone()
    moved.grad = torch.ones_like(moved)
    Muon([moved, still], dtype=torch.float32, lr=LR, weight_decay=DECAY).step()
    assert torch.equal(still, before)
