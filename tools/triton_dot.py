"""One product of float32 matrices as Triton makes it by default: on NVIDIA's GPUs in
TF32.
"""

import triton
import triton.language as tl
from torch import Tensor

TERMS = 16
"""The fewest that `tl.dot` takes."""


@triton.jit
def kernel(
    a, b, out, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr, TERMS: tl.constexpr
):
    rows, terms = tl.arange(0, ROWS), tl.arange(0, TERMS)
    at = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    here = at < columns
    left = tl.load(a + rows[:, None] * TERMS + terms[None, :])
    right = tl.load(
        b + terms[:, None] * columns + at[None, :], mask=here[None, :], other=0.0
    )
    tl.store(
        out + rows[:, None] * columns + at[None, :],
        tl.dot(left, right),
        mask=here[None, :],
    )


def product(a: Tensor, b: Tensor) -> Tensor:
    """Return `a` [64, k] times `b` [k, n], k up to 16."""
    rows, columns = a.shape[0], b.shape[1]
    left, right = a.new_zeros(rows, TERMS), b.new_zeros(TERMS, columns)
    left[:, : a.shape[1]], right[: b.shape[0]] = a, b
    out = a.new_empty(rows, columns)
    kernel[(triton.cdiv(columns, 64),)](left, right, out, columns, rows, 64, TERMS)
    return out
