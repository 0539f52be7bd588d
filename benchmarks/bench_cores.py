"""What do several cores bring to the training of one model, and what do they change?

A step of the model of `extrapolate`, by window: as a whole on one thread, the batch in
parts on one core and on several, and as a whole on torch's own threads, in turns in one
run. Ratios are to the first; the weights after a few steps are compared byte for byte.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

import torch

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm import training
from ropelab.models.lm.model import LanguageModel, ModelSize
from ropelab.models.lm.source import Batch
from ropelab.models.lm.training import Recipe, make_optimizers, make_step

SIZE = ModelSize(vocabulary=256, layers=3, width=192, heads=1, head_dim=64)
"""That of the preset `small`."""
WINDOWS = (64, 512, 1024, 2048)


def main() -> None:
    """Print a line per window."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--rounds", type=int, default=7, help="steps of which the median counts"
    )
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    cores = options.cores
    with (
        ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as one,
        ThreadPoolExecutor(
            cores, initializer=torch.set_num_threads, initargs=(1,)
        ) as several,
    ):
        for window in WINDOWS:
            ways = {
                "whole, one thread": Way(window, None, parts=1),
                "parts, one core": Way(window, one),
                f"parts, {cores} cores": Way(window, several),
                f"whole, torch's {cores} threads": Way(
                    window, None, parts=1, threads=cores
                ),
            }
            taken: dict[str, list[float]] = {name: [] for name in ways}
            for way in ways.values():
                # tables and the state of optimizers are made in the first one
                way.step()
            for _ in range(options.rounds):
                for name, way in ways.items():
                    taken[name].append(way.step())
            first = statistics.median(taken["whole, one thread"])
            ratios = ", ".join(
                f"{name} {first / statistics.median(times):.2f}"
                for name, times in taken.items()
            )
            weights = [way.weights() for way in ways.values()]
            same = "the same" if torch.equal(weights[1], weights[2]) else "DIFFERENT"
            print(
                f"{window}: {first * 1e3:.0f} ms; times as fast: {ratios};"
                f" {same} bytes",
                flush=True,
            )


class Way:
    """A model, and one way to make its steps."""

    def __init__(
        self,
        window: int,
        pool: Executor | None,
        parts: int = training.PARTS,
        threads: int = 1,
    ) -> None:
        plan = RopePlan(Geometry(SIZE.head_dim, 10000.0, WINDOWS[-1]).inv_freq)
        self.model = LanguageModel(SIZE, Rope(plan, "interleaved"))
        recipe = Recipe(steps=100, window=window, first_window=window)
        optimizers = make_optimizers(self.model, recipe, "float32")
        self.parts, self.threads = parts, threads
        self._step: Callable[[], float] = partial(
            make_step, self.model, optimizers, random_batch, recipe, 50, "float32", pool
        )

    def step(self) -> float:
        """Make one step and return its seconds."""
        torch.set_num_threads(self.threads)
        training.PARTS = self.parts
        start = time.perf_counter()
        self._step()
        return time.perf_counter() - start

    def weights(self) -> torch.Tensor:
        return torch.cat(
            [weight.detach().flatten() for weight in self.model.parameters()]
        )


def random_batch(step: int, window: int, rows: int) -> Batch:
    """Random tokens, all of them scored."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(SIZE.vocabulary, (rows, window), generator=generator)
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool))


if __name__ == "__main__":
    main()
