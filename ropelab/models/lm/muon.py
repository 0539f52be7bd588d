"""Muon (Jordan et al. 2024): an orthogonal step for every matrix.

torch's Muon takes matrices one by one, always in bfloat16: on a CPU that emulates it
this costs more than the forward and backward pass. Here matrices of one shape (up to
transposition) share products.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

# The coefficients of x, x^3 and x^5 in one step. Jordan chose them for a steep start:
# five steps bring singular values from 0.004 to 1 to between 0.68 and 1.2, and exactly
# 1 is not needed.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
# A gradient of zeros stays zeros instead of becoming nan.
SMALLEST_NORM = 1e-7


def orthogonalise(
    matrices: Float[Tensor, "matrices rows columns"], dtype: torch.dtype
) -> Float[Tensor, "matrices rows columns"]:
    """Return about U V^T for each matrix U S V^T.

    Singular values become about 1. Wide matrices are the cheapest.
    """
    a, b, c = COEFFICIENTS
    x = matrices.to(dtype)
    # The Frobenius norm bounds the largest singular value: all start in [0, 1], where
    # the polynomial converges.
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x


class Muon(Optimizer):
    """Steps along the orthogonalised Nesterov momentum.

    They are lr * sqrt(max(1, rows / columns)) long. `weight_decay` is a share of lr
    (arXiv:1711.05101); Newton-Schulz products are in `dtype`.
    """

    def __init__(
        self,
        matrices: Iterable[Tensor],
        *,
        lr: float,
        weight_decay: float,
        dtype: torch.dtype,
        momentum: float = 0.95,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(matrices, defaults)
        self._dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for matrices in _group_by_shape(group["params"]):
                self._step_together(matrices, group)

    def _step_together(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        """Change matrices of one shape, up to transposition."""
        momentum = group["momentum"]
        updates = [self._update(matrix, momentum) for matrix in matrices]
        steps = orthogonalise(torch.stack(updates), self._dtype)
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])

        for matrix, step in zip(matrices, steps, strict=True):
            rows, columns = matrix.shape
            # Tall matrices get larger steps: outputs of all shapes then move about as
            # much.
            length = group["lr"] * max(1.0, rows / columns) ** 0.5
            matrix.add_(step.mT if rows > columns else step, alpha=-length)

    def _update(self, matrix: Tensor, momentum: float) -> Tensor:
        """Return the momentum of a matrix, transposed where it is tall."""
        state = self.state[matrix]
        gradient = matrix.grad
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        # Nesterov's momentum: one step ahead of the average.
        update = gradient.lerp(average, momentum)
        # Tall updates are transposed. Gram matrices of wide ones are the smaller ones.
        return update.mT if len(update) > update.shape[1] else update


def _group_by_shape(matrices: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    """Return the matrices with a gradient, by shape up to transposition."""
    by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
    for matrix in matrices:
        if matrix.grad is not None:
            by_shape[tuple(sorted(matrix.shape))].append(matrix)
    return by_shape.values()
