"""How much sooner does `ropelab extrapolate` have its answer than the usual way?

Side by side on the same cores, in one process:

training     the model of ropelab against a transformers LlamaForCausalLM of the same
depth and
             width, trained with AdamW at the fixed length, to the same loss on the same mixture
             of text, quotations, symbols and look-ups
evaluation   one causal pass over a text against the sliding evaluation with stride 256,
per
             scored token
attention    queries and keys turned and attended to against torch's
scaled_dot_product_attention

Numbers are ratios; the machine should be idle. A Llama that has not reached the loss
after PATIENCE times ropelab's time is reported with `>`. It gets the better of two
learning rates: both are tried, and the faster one counts.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm.corpus import VOCABULARY, read_corpus
from ropelab.models.lm.evaluation import compute_token_losses
from ropelab.models.lm.model import LanguageModel, ModelSize, fused_attention
from ropelab.models.lm.source import Batch, Mixture, make_training_batch
from ropelab.models.lm.training import Recipe, train
from ropelab.runs.cell import Advance
from ropelab.runs.machine import computing_in, explain_dtype, resolve_dtype

PATIENCE = 6
RATES = (1e-3, 3e-3)
"""Learning rates of the Llama."""
DTYPE = resolve_dtype("auto", "cpu")
"""Both sides compute in what suits this machine."""
AVERAGED = 20
"""Steps over which a training loss is averaged before it is compared."""
STRIDE = 256


SIZE = ModelSize(vocabulary=VOCABULARY, layers=3, width=192, heads=1, head_dim=64)
"""That of the preset `small`."""


@dataclass(frozen=True)
class Lesson:
    """What is learned, and in how many steps of ropelab's.

    Attributes:
        batches: of ropelab's training, which begins with periodic rows.
        mixed: of the mixture alone, which the Llama is trained on from its first step.
    """

    batches: Callable[..., Batch]
    mixed: Callable[..., Batch]
    steps: int


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=512, help="trained length")
    parser.add_argument(
        "--steps", type=int, default=500, help="training steps of ropelab's model"
    )
    parser.add_argument("--test-length", type=int, default=8192)
    given = parser.parse_args()
    least = Mixture().periodic_steps + AVERAGED
    if given.steps < least:
        parser.error(
            f"--steps must be at least {least}: training begins with periodic rows"
        )
    corpus = read_corpus(None, given.length + 1)
    source, mixed = (
        partial(make_training_batch, mixture, corpus, 0)
        for mixture in (Mixture(), Mixture(periodic_steps=0))
    )
    lesson = Lesson(source, mixed, given.steps)
    print(explain_dtype(DTYPE, "cpu"))
    print(training(lesson, given.length), flush=True)
    print(evaluation(given.length, given.test_length), flush=True)
    print(attention(given.test_length), flush=True)


def ropelab_model(length: int) -> LanguageModel:
    """The model of the preset `small`."""
    plan = RopePlan(Geometry(SIZE.head_dim, 10000.0, length).inv_freq)
    return LanguageModel(SIZE, Rope(plan, "interleaved"))


def llama(length: int) -> LlamaForCausalLM:
    """A Llama of the same depth and width, its feed-forward part with as many
    parameters.

    It has a head of 64 for every 64 features, as is usual.
    """
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=SIZE.vocabulary,
        hidden_size=SIZE.width,
        intermediate_size=SIZE.width * 8 // 3,
        num_hidden_layers=SIZE.layers,
        num_attention_heads=SIZE.width // SIZE.head_dim,
        num_key_value_heads=SIZE.width // SIZE.head_dim,
        max_position_embeddings=length,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def training(lesson: Lesson, length: int) -> str:
    """Seconds until the averaged loss is as low as ropelab's at its end."""
    recipe = Recipe(steps=lesson.steps, window=length)
    model = ropelab_model(length)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        losses = train(model, lesson.batches, recipe, Path(folder), silently, DTYPE)
    ours = time.perf_counter() - start
    target = sum(losses[-AVERAGED:]) / AVERAGED
    tries = [
        llama_seconds(lesson, length, target, PATIENCE * ours, rate) for rate in RATES
    ]
    theirs, loss = min(tries, key=lambda found: (max(found[1], target), found[0]))
    sign, stopped = ("", "") if loss <= target else ("> ", f" (stopped at {loss:.3f})")
    return (
        f"training to a loss of {target:.3f} at length {length}: ropelab "
        f"{ours:.0f} s, Llama with AdamW {sign}{theirs:.0f} s{stopped}, "
        f"ratio {sign}{theirs / ours:.1f}"
    )


def llama_seconds(
    lesson: Lesson, length: int, target: float, patience: float, rate: float
) -> tuple[float, float]:
    """How long the Llama takes to an averaged loss of `target`, and the loss when it
    stopped.
    """
    model = llama(length)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=rate, betas=(0.9, 0.98), fused=True
    )
    start, losses = time.perf_counter(), []
    while time.perf_counter() - start < patience:
        batch = lesson.mixed(
            step=len(losses), window=length, rows=max(1, 8192 // length)
        )
        with computing_in(DTYPE, "cpu"):
            logits = model(batch.tokens[:, :-1]).logits
        scored = batch.scored[:, 1:]
        loss = cross_entropy(logits[scored].float(), batch.tokens[:, 1:][scored])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if len(losses) >= AVERAGED and sum(losses[-AVERAGED:]) / AVERAGED <= target:
            break
    last = losses[-AVERAGED:]
    return time.perf_counter() - start, sum(last) / len(last)


def evaluation(length: int, test_length: int) -> str:
    """Time per scored token: one pass over a text against windows moved by STRIDE."""
    tokens = torch.randint(SIZE.vocabulary, (1, test_length + 1))
    mine, theirs = ropelab_model(length), llama(test_length).eval()
    one_pass = seconds(lambda: compute_token_losses(mine, tokens)) / test_length

    @torch.inference_mode()
    def window() -> torch.Tensor:
        labels = tokens[:, :-1].clone()
        labels[:, :-STRIDE] = -100
        return theirs(tokens[:, :-1], labels=labels).loss

    sliding = seconds(window) / STRIDE
    return (
        f"evaluation at length {test_length}: one pass {1e6 * one_pass:.0f} us per"
        f" token, sliding by {STRIDE} {1e6 * sliding:.0f} us per token, ratio"
        f" {sliding / one_pass:.1f}"
    )


def attention(length: int) -> str:
    """Rate of turned attention as a share of torch's kernel alone, two heads of 64."""
    q, k, v = torch.randn(3, 1, 2, length, 64)
    positions = torch.arange(length)
    rope = Rope(RopePlan(Geometry(64, 10000.0, length).inv_freq), "interleaved")
    bare = seconds(lambda: scaled_dot_product_attention(q, k, v, is_causal=True))
    turned = seconds(
        lambda: fused_attention(rope.query(q, positions), rope.key(k, positions), v)
    )
    return f"attention at length {length}: {bare / turned:.0%} of the kernel's own rate"


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The fastest of some repetitions, after one to warm up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


@contextmanager
def silently(total: float) -> Iterator[Advance]:
    """Progress that shows nothing."""

    def advance(steps: float = 1, *, note: str = "") -> None:
        """Report nothing."""

    yield advance


if __name__ == "__main__":
    main()
