"""Muon (Jordan et al. 2024): an orthogonal step for every matrix, all matrices of a
shape at once.

torch's Muon takes matrices one by one, always in bfloat16: on a CPU that emulates it
this costs more than the forward and backward pass. Here matrices of one shape (up to
transposition) share products.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

# Of x, x^3 and x^5 in one step. Jordan chose them for a steep start: five steps bring
# singular values from 0.004 to 1 to between 0.68 and 1.2, and exactly 1 is not needed.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
# A gradient of zeros stays zeros instead of becoming nan.
SMALLEST_NORM = 1e-7


def orthogonalised(
    matrices: Float[Tensor, "matrices rows columns"], dtype: torch.dtype
) -> Float[Tensor, "matrices rows columns"]:
    """U V^T of each matrix U S V^T, its singular values about 1; cheapest for wide
    matrices.
    """
    a, b, c = COEFFICIENTS
    x = matrices.to(dtype)
    # The Frobenius norm bounds the largest singular value: all start in [0, 1], where
    # the polynomial converges.
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(
            x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a
        )
    return x


class Muon(Optimizer):
    """Steps of lr * sqrt(max(1, rows / columns)) along the orthogonalised Nesterov
    momentum.

    `weight_decay` is a share of lr (arXiv:1711.05101); Newton-Schulz products are in
    `dtype`.
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
        super().__init__(
            matrices, {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        )
        self._dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape[tuple(sorted(matrix.shape))].append(matrix)
            for matrices in by_shape.values():
                updates = [
                    self._update(matrix, group["momentum"]) for matrix in matrices
                ]
                steps = orthogonalised(torch.stack(updates), self._dtype)
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
                for matrix, update in zip(matrices, steps, strict=True):
                    rows, columns = matrix.shape
                    # Larger steps for tall matrices: outputs of all shapes then move
                    # about as much.
                    step = group["lr"] * max(1.0, rows / columns) ** 0.5
                    matrix.add_(update.mT if rows > columns else update, alpha=-step)

    def _update(self, matrix: Tensor, momentum: float) -> Tensor:
        state, gradient = self.state[matrix], matrix.grad
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        # Nesterov's momentum: one step ahead of the average.
        update = gradient.lerp(average, momentum)
        # Wide, so that the Gram matrices of the iteration are the small ones.
        return update.mT if len(update) > update.shape[1] else update
