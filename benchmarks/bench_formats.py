"""What number format should this machine train in, and how far is a step from its peak?

For both number formats, one thread, side by side: the rate of a square product, and for
the model of `extrapolate` the tokens trained per second by window, the share of a step
that the optimizer takes, and the rate of a step as a share of the product's.

`ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2` in the
environment shows what a processor without wide vectors and matrix units would do.
"""

import argparse
import time
from collections.abc import Callable

import torch

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm.model import LanguageModel, ModelSize
from ropelab.models.lm.source import Batch
from ropelab.models.lm.training import (
    Recipe,
    compute_batch_loss,
    count_operations_per_token,
    make_optimizers,
)
from ropelab.runs.machine import DtypeName, computing_in, explain_dtype, resolve_dtype

SIZE = ModelSize(vocabulary=256, layers=3, width=192, heads=1, head_dim=64)
"""That of the preset `small`."""
WINDOWS = (64, 1024, 2048)
TOKENS = 4096
SIDE = 1024
"""Rows and columns of the product that stands for the machine's peak."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=3, help="steps of which the fastest counts"
    )
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print(
        torch.backends.cpu.get_cpu_capability(), "|", explain_dtype(resolved(), "cpu")
    )
    formats: tuple[DtypeName, ...] = ("float32", "bfloat16")
    for dtype in formats:
        peak = product_rate(dtype, rounds)
        print(f"{dtype}: a product of {SIDE} x {SIDE} at {peak / 1e9:.0f} GFLOP/s")
        for window in WINDOWS:
            print("  " + window_report(dtype, window, peak, rounds), flush=True)


def resolved() -> DtypeName:
    """What `--dtype auto` means here."""
    return resolve_dtype("auto", "cpu")


def product_rate(dtype: DtypeName, rounds: int) -> float:
    """Operations per second of a square product."""
    one = torch.randn(SIDE, SIDE).to(getattr(torch, dtype))
    return 2 * SIDE**3 / fastest(lambda: one @ one, rounds)


def window_report(dtype: DtypeName, window: int, peak: float, rounds: int) -> str:
    """For one window: tokens per second, the optimizer's share, and the share of the
    peak.
    """
    plan = RopePlan(Geometry(SIZE.head_dim, 10000.0, WINDOWS[-1]).inv_freq)
    model = LanguageModel(SIZE, Rope(plan, "interleaved"))
    optimizers = make_optimizers(model, Recipe(steps=1, window=window), dtype)
    batch = random_batch(window)

    def passes() -> None:
        with computing_in(dtype, "cpu"):
            loss = compute_batch_loss(model, batch)
        loss.backward()

    def update() -> None:
        for optimizer in optimizers:
            optimizer.step()

    forward_backward, optimizer = fastest(passes, rounds), fastest(update, rounds)
    step = forward_backward + optimizer
    share = count_operations_per_token(SIZE, window) * TOKENS / step / peak
    return (
        f"{window}: {TOKENS / step:,.0f} tokens/s, optimizer {optimizer / step:.0%}, "
        f"{share:.0%} of the product's rate"
    )


def random_batch(window: int) -> Batch:
    """Random tokens, all of them scored."""
    tokens = torch.randint(SIZE.vocabulary, (TOKENS // window, window))
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool))


def fastest(work: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of some repetitions, after one to warm up."""
    work()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
