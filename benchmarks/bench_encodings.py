"""What every encoding costs in time, against the model without positions in the same run.

A training step (forward, backward, optimizer) and decoding one token from a full cache are timed in
turns with NoPE, so that both see the same machine, and the ratio of the medians is printed. Beside
them stand the matrix products that `ropelab encodings` counts, which are the same everywhere.

    python benchmarks/bench_encodings.py [--train-len 512] [--test-len 2048] [--rounds 7]
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch

from ropelab.config import build
from ropelab.encodings.registry import ENCODINGS, make_encoding
from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.experiments.encodings.cost import PLAIN, costs
from ropelab.experiments.encodings.models import recipe_of, size_of
from ropelab.experiments.encodings.quality import defined_length
from ropelab.lm.model import Cache, LanguageModel
from ropelab.lm.tasks import SYMBOLS, Batch, copy_batch
from ropelab.lm.training import make_optimizers, one_step

DECODED = 16
"""Tokens decoded between two readings of the clock."""
Work = Callable[[], object]


def training_step(config: EncodingsConfig, name: str) -> Work:
    """One optimizer step on a batch at the full trained length."""
    model, recipe = model_with(config, name), recipe_of(config, "copy")
    optimizers, last = make_optimizers(model, recipe), recipe.steps - 1

    def data(step: int, window: int, rows: int) -> Batch:
        return copy_batch(0, step, window, rows)

    return lambda: one_step(model, optimizers, data, recipe, last)


def decoding(config: EncodingsConfig, name: str, context: int) -> Work:
    """A few tokens, one by one, at the end of a context whose keys and values are cached."""
    model = model_with(config, name)
    with torch.inference_mode():
        full = Cache()
        model(torch.zeros(1, context - DECODED, dtype=torch.long), full)

    @torch.inference_mode()
    def work() -> None:
        cache = Cache(full.tokens, dict(full.layers))
        for _ in range(DECODED):
            model(torch.zeros(1, 1, dtype=torch.long), cache)

    return work


def model_with(config: EncodingsConfig, name: str) -> LanguageModel:
    """The model of the copy task with that encoding, untrained: times do not depend on weights."""
    return LanguageModel(size_of(config, SYMBOLS), make_encoding(name, config.shape()))


def ratio(mine: Work, plain: Work, rounds: int) -> tuple[float, float]:
    """Median seconds of `mine`, and how many times those of `plain`, measured in turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for work in (mine, plain):
        work()
    for _ in range(rounds):
        for work, seconds in zip((mine, plain), times, strict=True):
            start = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - start)
    first, second = map(statistics.median, times)
    return first, first / second


def main() -> None:
    """Print a row per encoding."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train-len", type=int, default=512)
    parser.add_argument("--test-len", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    lengths = {"train_len": arguments.train_len, "test_len": arguments.test_len}
    config = build(EncodingsConfig, {**lengths, "tasks": ("copy",)})
    counted = costs(config).set_index("encoding")
    tokens = config.tokens_per_step // config.train_len * config.train_len
    print(
        f"{config.layers} layers, width {config.width}, {config.heads} heads; training windows of "
        f"{config.train_len}, decoding at {config.test_len} tokens; {torch.get_num_threads()} "
        "threads; ratios to nope, medians in turns"
    )
    print(
        f"{'encoding':<17}{'tokens/s':>9}{'train time':>12}{'(products)':>12}"
        f"{'ms/token':>10}{'decode time':>13}{'(products)':>12}"
    )
    for name in ENCODINGS:
        step, slower = ratio(
            training_step(config, name), training_step(config, PLAIN), arguments.rounds
        )
        context = defined_length(make_encoding(name, config.shape()), config.test_len)
        token, longer = ratio(
            decoding(config, name, context), decoding(config, PLAIN, context), arguments.rounds
        )
        train, decode = counted.loc[name, ["train_flops_ratio", "decode_flops_ratio"]]
        at = "" if context == config.test_len else f"  (at {context} tokens)"
        print(
            f"{name:<17}{tokens / step:>9,.0f}{slower:>12.2f}{train:>12.2f}"
            f"{1e3 * token / DECODED:>10.2f}{longer:>13.2f}{decode:>12.2f}{at}",
            flush=True,
        )


if __name__ == "__main__":
    main()
