"""How much sooner does `ropelab extrapolate` have its answer than the usual way?

Side by side on the same cores, in one process:

training     the copy model of ropelab against a transformers LlamaForCausalLM of the same size,
             trained with AdamW at the fixed length, to the same loss
evaluation   one causal pass over a text against the sliding evaluation with stride 256, per
             scored token
attention    queries and keys turned and attended to against torch's scaled_dot_product_attention

Numbers are ratios; the machine should be idle. A Llama that has not reached the loss after
PATIENCE times ropelab's time is reported with `>`.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM

from ropelab.context import Advance
from ropelab.encoding.rope import Rope
from ropelab.lm.evaluation import token_losses
from ropelab.lm.model import LanguageModel, ModelSize, fused_attention
from ropelab.lm.tasks import SYMBOLS, copy_batch
from ropelab.lm.training import Recipe, train
from ropelab.rope.frequencies import Geometry
from ropelab.rope.scaling import RopePlan

PATIENCE = 8
AVERAGED = 20
"""Steps over which a training loss is averaged before it is compared."""
STRIDE = 256


def main() -> None:
    """Print the three ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=512, help="trained length")
    parser.add_argument("--steps", type=int, default=500, help="steps of ropelab's training")
    parser.add_argument("--test-length", type=int, default=8192)
    given = parser.parse_args()
    print(training(given.length, given.steps))
    print(evaluation(given.length, given.test_length))
    print(attention(given.test_length))


def ropelab_model(length: int) -> LanguageModel:
    """The copy model of the preset `small`."""
    size = ModelSize(vocabulary=SYMBOLS, layers=2, width=128, heads=2, head_dim=64)
    plan = RopePlan(Geometry(64, 10000.0, length).inv_freq)
    return LanguageModel(size, Rope(plan, "interleaved"))


def llama(length: int) -> LlamaForCausalLM:
    """A Llama of the same depth, width and heads, with as many parameters as possible."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=SYMBOLS,
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=length,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
    return LlamaForCausalLM(config)


def training(length: int, steps: int) -> str:
    """Seconds until the averaged copy loss is as low as ropelab's at its end."""
    recipe = Recipe(steps=steps, window=length)
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        losses = train(
            ropelab_model(length), partial(copy_batch, 0), recipe, Path(folder), silently
        )
    ours = time.perf_counter() - start
    target = sum(losses[-AVERAGED:]) / AVERAGED
    theirs, reached = llama_seconds(length, target, PATIENCE * ours)
    sign = "" if reached else "> "
    return (
        f"training to a copy loss of {target:.3f} at length {length}: ropelab {ours:.0f} s, "
        f"Llama with AdamW {sign}{theirs:.0f} s, ratio {sign}{theirs / ours:.1f}"
    )


def llama_seconds(length: int, target: float, patience: float) -> tuple[float, bool]:
    """How long the Llama takes to an averaged loss of `target`, and whether it got there."""
    model = llama(length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.98), fused=True)
    start, losses = time.perf_counter(), []
    while (spent := time.perf_counter() - start) < patience:
        batch = copy_batch(0, len(losses), length, max(1, 8192 // length))
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(batch.tokens[:, :-1]).logits
        scored = batch.scored[:, 1:]
        loss = cross_entropy(logits[scored].float(), batch.tokens[:, 1:][scored])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        if len(losses) >= AVERAGED and sum(losses[-AVERAGED:]) / AVERAGED <= target:
            return time.perf_counter() - start, True
    return spent, False


def evaluation(length: int, test_length: int) -> str:
    """Time per scored token: one pass over a text against windows moved by STRIDE."""
    tokens = torch.randint(SYMBOLS, (1, test_length + 1))
    mine, theirs = ropelab_model(length), llama(test_length).eval()
    one_pass = seconds(lambda: token_losses(mine, tokens)) / test_length

    @torch.inference_mode()
    def window() -> torch.Tensor:
        labels = tokens[:, :-1].clone()
        labels[:, :-STRIDE] = -100
        return theirs(tokens[:, :-1], labels=labels).loss

    sliding = seconds(window) / STRIDE
    return (
        f"evaluation at length {test_length}: one pass {1e6 * one_pass:.0f} us per token, "
        f"sliding by {STRIDE} {1e6 * sliding:.0f} us per token, ratio {sliding / one_pass:.1f}"
    )


def attention(length: int) -> str:
    """Rate of turned attention as a share of torch's kernel alone, two heads of 64."""
    q, k, v = torch.randn(3, 1, 2, length, 64)
    positions = torch.arange(length)
    rope = Rope(RopePlan(Geometry(64, 10000.0, length).inv_freq), "interleaved")
    bare = seconds(lambda: scaled_dot_product_attention(q, k, v, is_causal=True))
    turned = seconds(lambda: fused_attention(rope.query(q, positions), rope.key(k, positions), v))
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
