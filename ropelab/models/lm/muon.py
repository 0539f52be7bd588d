"""Muon (Jordan et al. 2024), an optimizer that makes an orthogonal step of each matrix.

torch's Muon takes matrices one by one, and always in bfloat16. On a CPU that emulates
bfloat16 this costs more than the forward and backward pass. Here all matrices of one
shape are computed together, in any format. A transposed shape counts as the same shape.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

# The coefficients of x, x^3 and x^5 in one iteration, where x is a matrix and x^3
# stands for x x^T x. Jordan chose them so that small singular values grow fast: after
# five iterations, singular values that were between 0.004 and 1 are between 0.68 and
# 1.2. They need not be exactly 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
# The number of iterations.
ITERATIONS = 5
# The smallest number by which a matrix is divided. A matrix with a larger norm is
# divided by its norm. A gradient of zeros thus stays zero instead of becoming nan.
SMALLEST_NORM = 1e-7


def orthogonalise(
    matrices: Float[Tensor, "matrices rows columns"], dtype: torch.dtype
) -> Float[Tensor, "matrices rows columns"]:
    """Return about U V^T for each matrix U S V^T, where S are its singular values.

    The cost grows with the square of the rows, so matrices should be wide, not tall.
    """
    a, b, c = COEFFICIENTS
    x = matrices.to(dtype)
    # The Frobenius norm is at least the largest singular value. Divided by it, all
    # singular values are in [0, 1], where the iteration converges.
    norms = x.norm(dim=(1, 2), keepdim=True)
    x = x / norms.clamp(min=SMALLEST_NORM)
    for _ in range(ITERATIONS):
        # One iteration makes a x + (b G + c G^2) x with G = x x^T.
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x


class Muon(Optimizer):
    """Moves each matrix along its orthogonalised Nesterov momentum.

    The length of a step is lr * sqrt(max(1, rows / columns)). `weight_decay` is
    decoupled: a step takes the share lr * weight_decay away (arXiv:1711.05101). The
    products of `orthogonalise` are in `dtype`.
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
        """Change all matrices once.

        `closure` belongs to torch's interface of optimizers and is not used.
        """
        for group in self.param_groups:
            for matrices in _group_by_shape(group["params"]):
                self._step_together(matrices, group)

    def _step_together(self, matrices: list[Tensor], group: dict[str, Any]) -> None:
        """Change matrices of one shape, some of which may be transposed."""
        momentum = group["momentum"]
        updates = [self._update(matrix, momentum) for matrix in matrices]
        steps = orthogonalise(torch.stack(updates), self._dtype)
        torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])

        for matrix, step in zip(matrices, steps, strict=True):
            rows, columns = matrix.shape
            # Tall matrices get longer steps, so that the outputs of all matrices change
            # about equally.
            length = group["lr"] * max(1.0, rows / columns) ** 0.5
            is_tall = rows > columns
            if is_tall:
                step = step.mT
            matrix.add_(step, alpha=-length)

    def _update(self, matrix: Tensor, momentum: float) -> Tensor:
        """Return the Nesterov momentum of a matrix, transposed if the matrix is tall."""
        state = self.state[matrix]
        gradient = matrix.grad
        assert gradient is not None
        if not state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        # The average of the gradients so far, in which the present gradient has the
        # share 1 - momentum. Nesterov's momentum counts the present gradient once more.
        average = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        update = gradient.lerp(average, momentum)
        rows, columns = update.shape
        # `orthogonalise` is cheaper for wide matrices.
        return update.mT if rows > columns else update


def _group_by_shape(matrices: Iterable[Tensor]) -> Iterable[list[Tensor]]:
    """Return a list of matrices for each shape, without matrices that have no gradient.

    A transposed shape counts as the same shape.
    """
    by_shape: dict[tuple[int, ...], list[Tensor]] = defaultdict(list)
    for matrix in matrices:
        if matrix.grad is not None:
            by_shape[tuple(sorted(matrix.shape))].append(matrix)
    return by_shape.values()
