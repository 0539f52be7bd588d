"""How quickly is a long text read, beside transformers' own evaluation of the same
model?

A random Llama reads the same tokens by turns: as `ropelab evaluate` does (losses in
chunks of the vocabulary, long contexts in parts), and by transformers' forward pass
with labels. Where one side runs out of memory it says so. On CUDA the peak of memory
stands beside it.

    python benchmarks/bench_reading.py                                  # a small one, a minute
    python benchmarks/bench_reading.py --shape 7b --device cuda --tokens 32768 131072
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from random_llama import SMOLLM2_WIDTH, save

from ropelab.models.lm.evaluation import compute_token_losses
from ropelab.models.released.model import ReleasedModel

SHAPES = {
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024},
    "small": SMOLLM2_WIDTH | {"num_hidden_layers": 4, "vocab_size": 49_152},
    "7b": {"hidden_size": 4096, "intermediate_size": 11_008, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32_000},
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="a tiny model, one short text"
    )
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--tokens", type=int, nargs="+", default=[2048, 8192])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if asked.quick:
        asked.shape, asked.tokens, asked.rounds = "tiny", [256], 1
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder), SHAPES[asked.shape], "bfloat16", asked.device)
        model = ReleasedModel(Path(folder), device=asked.device, dtype="bfloat16")
    compare(model, 256, 1)  # neither side shall pay for what a first pass sets up
    print(
        f"{'tokens':>8} {'ropelab, tokens/s':>18} {'transformers':>13} {'ratio':>6} {'GiB':>12}"
    )
    for tokens in asked.tokens:
        print(compare(model, tokens, asked.rounds))


def compare(model: ReleasedModel, tokens: int, rounds: int) -> str:
    """Return a line: the best rate of either side, taken by turns, and the peaks of
    memory.
    """
    device = model.head.weight.device
    text = torch.randint(model.size.vocabulary, (1, tokens + 1), device=device)

    def as_here() -> float:
        return compute_token_losses(model, text).mean().item()

    def as_there() -> float:
        return float(model.lm(text, labels=text, use_cache=False).loss)

    taken = [(timed(as_here, device), timed(as_there, device)) for _ in range(rounds)]
    rates, peaks = [], []
    for side in zip(*taken, strict=True):
        seconds = min(each for each, _ in side)
        rates.append(tokens / seconds)
        peaks.append(max(peak for _, peak in side))
    memory = " / ".join(f"{peak / 2**30:.1f}" for peak in peaks) if any(peaks) else "-"
    ratio = rates[0] / rates[1]
    return f"{tokens:>8} {rates[0]:>18.0f} {rates[1]:>13.0f} {ratio:>6.2f} {memory:>12}"


def timed(read: Callable[[], float], device: torch.device) -> tuple[float, int]:
    """Seconds of one reading (infinite: no memory for it), and its peak in bytes on
    CUDA.
    """
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    try:
        with torch.inference_mode():
            read()
    except torch.OutOfMemoryError:
        return float("inf"), 0
    return time.perf_counter() - start, (
        torch.cuda.max_memory_allocated(device) if cuda else 0
    )


if __name__ == "__main__":
    main()
