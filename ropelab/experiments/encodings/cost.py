"""The cost of each encoding before anything is trained: parameters, work, memory and
times.
"""
# Work is counted in operations, relative to no positions: a table must be the same on
# every machine. Measured times are for the manifest.

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from ropelab.experiments.encodings import EncodingsConfig
from ropelab.experiments.encodings.rows import list_rows
from ropelab.models.encoding.base import Encoding, disable_fused_kernel
from ropelab.models.encoding.composed import compose
from ropelab.models.encoding.registry import Shape
from ropelab.models.lm.model import Cache, LanguageModel
from ropelab.models.lm.source import Batch, periodic_batch
from ropelab.models.lm.training import batch_loss, make_optimizers, make_step
from ropelab.models.tasks.modes import defined_length
from ropelab.models.tasks.plans import model_size, recipe_of
from ropelab.runs.cell import Cell, Context, Resources
from ropelab.runs.own import find_sources

PLAIN = "nope"
# The tokens of two passes, from which the growth of memory follows.
MEMORY_LENGTHS = (1024, 2048)
# The number of turns that each encoding takes with NoPE. Both thus see the same machine.
ROUNDS = 5
# The tokens that are decoded between two readings of the clock.
DECODED = 16
# Largest spread of the middle half of the rounds, as a share of their median.
STEADY = 0.15
Work = Callable[[], object]


def encoding_of(shape: Shape, name: str, seed: int = 0) -> Encoding:
    """Return the encoding as the models of the experiment carry it."""
    # Separate products for all, also where a fused kernel is allowed: times then differ
    # by the work of the encodings, and short windows are trained faster.
    return disable_fused_kernel(compose(name, shape, seed))


def untrained(config: EncodingsConfig, name: str) -> LanguageModel:
    return LanguageModel(model_size(config), encoding_of(config.shape(), name))


def costs(config: EncodingsConfig) -> pd.DataFrame:
    """Return a row per encoding: its record, parameters, and work against none at
    all; then a row per method, trained as RoPE and decoding by the method.
    """
    rows = []
    for tested in list_rows(config):
        name = tested.trained
        record = tested.record
        encoding = tested.tested_encoding(config)
        fused = encoding.fused
        last = encoding.max_position
        defined = "everywhere" if last is None else f"to position {last}"

        trained_len = config.train_len
        training = train_flops(config, name) / train_flops(config, PLAIN)
        limit = defined_length(encoding, config.test_len)
        decoding = count_decoding(
            LanguageModel(model_size(config), disable_fused_kernel(encoding)), limit
        )
        plain_decoding = decode_flops(config, PLAIN, limit)

        row = {
            "encoding": tested.name,
            "label": tested.label,
            "family": record.family,
            "source": tested.source,
            "claim": tested.claim,
            "defined": defined,
            "fused_kernel": fused,
            "parameters": parameters(config, name, trained_len),
            "parameters_at_twice_the_length": parameters(config, name, 2 * trained_len),
            "train_flops_ratio": training,
            "decode_flops_ratio": decoding / plain_decoding,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def parameters(config: EncodingsConfig, name: str, trained_len: int) -> int:
    """Count the numbers that the encoding adds to those that are trained."""
    encoding = compose(name, config.shape(trained_len))
    return sum(parameter.numel() for parameter in encoding.parameters())


def train_flops(config: EncodingsConfig, name: str) -> int:
    """Count the operations to learn from one window of the trained length, both
    ways.
    """
    model = untrained(config, name)
    tokens = torch.zeros(1, config.train_len + 1, dtype=torch.long)
    batch = Batch(tokens, torch.ones_like(tokens, dtype=torch.bool))
    return flops_of(lambda: batch_loss(model, batch).backward())


def decode_flops(config: EncodingsConfig, name: str, context: int) -> int:
    """Count the operations for one more token under an encoding (`count_decoding`)."""
    return count_decoding(untrained(config, name), context)


@torch.no_grad()
def count_decoding(model: LanguageModel, context: int) -> int:
    """Count the operations for one more token when all others of `context` are
    cached.
    """
    cache = Cache()
    one = torch.zeros(1, 1, dtype=torch.long)
    model(torch.zeros(1, context - 2, dtype=torch.long), cache)

    # Tables that are kept while decoding are made here, and not counted.
    model(one, cache)
    return flops_of(lambda: model(one, cache))


def flops_of(work: Work) -> int:
    """Count the floating-point operations of all matrix products, two per
    multiply-add.
    """
    # torch does not count fused attention on a CPU: call attention unfused.
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def memory(config: EncodingsConfig) -> pd.DataFrame:
    """Return the bytes that a pass keeps for positions, and of its largest tensor, by
    length.
    """
    rows = []
    for name in config.encodings:
        for length in MEMORY_LENGTHS:
            encoding = compose(name, config.shape(length))
            model = LanguageModel(model_size(config), encoding)
            with torch.no_grad(), LargestTensor() as largest:
                model.hidden_states(torch.zeros(1, length, dtype=torch.long))
            rows.append(
                {
                    "encoding": name,
                    "length_tokens": length,
                    "kept_bytes": kept_bytes(encoding),
                    "largest_tensor_bytes": largest.bytes,
                }
            )
    return pd.DataFrame(rows)


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation made: `bytes`."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return result


def kept_bytes(owner: object) -> int:
    """Count the bytes of tensors and arrays in an object: modules, tables and
    attributes.
    """
    sizes: dict[int, int] = {}
    seen: set[int] = set()
    waiting = [owner]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))

        is_own = type(thing).__module__.startswith("ropelab.")
        if isinstance(thing, Tensor):
            sizes[thing.data_ptr()] = thing.untyped_storage().nbytes()
        elif isinstance(thing, np.ndarray):
            sizes[thing.ctypes.data] = thing.nbytes
        elif isinstance(thing, dict):
            waiting.extend(thing.values())
        elif isinstance(thing, tuple | list):
            waiting.extend(thing)
        elif isinstance(thing, nn.Module) or is_own:
            waiting.extend(vars(thing).values())
    return sum(sizes.values())


@dataclass(frozen=True)
class Timing:
    """Times as a cell: computed alone, since anything beside it would be timed too."""

    config: EncodingsConfig
    kind: ClassVar[str] = "encodings-times"
    version: ClassVar[int] = 1
    title: ClassVar[str] = "timing against nope"
    starts: ClassVar[tuple[Cell, ...]] = ()
    resources: ClassVar[Resources] = Resources(alone=True, dtype="float32")

    @property
    def key(self) -> dict[str, Any]:
        names = {
            "encodings",
            "train_len",
            "test_len",
            "dtype",
            "device",
            "layers",
            "width",
            "heads",
            "head_dim",
            "tokens_per_step",
            "first_window",
        }
        fields = self.config.model_dump(mode="json", include=names)
        own = find_sources(self.config.encodings)
        if own:
            fields["own"] = own
        return fields

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """Return `times`: throughput and time per decoded token of each encoding and of
        NoPE.
        """
        config = self.config
        rows = []
        with context.progress(self.title, len(config.encodings)) as advance:
            for name in config.encodings:
                rows.append(measure_times(config, name))
                advance(1)
        return {"times": pd.DataFrame(rows)}


def measure_times(config: EncodingsConfig, name: str) -> dict[str, Any]:
    """Measure a training step and the decoding of an encoding, in turns with NoPE."""
    # A step has one row at least, however long.
    rows_per_step = max(1, config.tokens_per_step // config.train_len)
    tokens_per_step = rows_per_step * config.train_len
    step, slower = in_turns(training_step(config, name), training_step(config, PLAIN))

    # New models: those have moved, and their optimizers hold memory.
    model = untrained(config, name).to(config.device)
    plain = untrained(config, PLAIN).to(config.device)
    length = defined_length(model.encoding, config.test_len)
    token, longer = in_turns(decoding(model, length), decoding(plain, length))

    return {
        "encoding": name,
        "training_tokens_per_second": round(tokens_per_step / step, 1),
        "training_time_ratio": slower,
        "decode_context_tokens": length,
        "decode_seconds": token / DECODED,
        "decode_time_ratio": longer,
        "threads": torch.get_num_threads(),
    }


def training_step(config: EncodingsConfig, name: str) -> Work:
    """Return one optimizer step on rows of symbols at the full trained length."""
    model = untrained(config, name).to(config.device)
    recipe = recipe_of(config, config.first_window)
    optimizers = make_optimizers(model, recipe, config.dtype)

    def data(step: int, window: int, rows: int) -> Batch:
        return periodic_batch(np.random.default_rng(step), window, rows)

    return lambda: make_step(
        model, optimizers, data, recipe, recipe.steps - 1, config.dtype
    )


def decoding(model: LanguageModel, context: int) -> Work:
    """Return the decoding of DECODED tokens, one by one, at the end of a cached
    context.
    """
    full = Cache()
    device = model.head.weight.device
    with torch.inference_mode():
        model(torch.zeros(1, context - DECODED, dtype=torch.long, device=device), full)

    @torch.inference_mode()
    def work() -> None:
        cache = Cache(full.tokens, dict(full.layers))
        for _ in range(DECODED):
            model(torch.zeros(1, 1, dtype=torch.long, device=device), cache)

    return work


def in_turns(mine: Work, plain: Work) -> tuple[float, float | None]:
    """Return the median seconds of `mine`, and the ratio to those of `plain`, measured
    in turns.
    """
    # The ratio is the median over rounds; None where the middle half is further apart
    # than STEADY, as on a machine that does something else too.
    mine()
    plain()
    seconds: list[float] = []
    ratios: list[float] = []
    for _ in range(ROUNDS):
        own_seconds = _clock(mine)
        plain_seconds = _clock(plain)
        seconds.append(own_seconds)
        ratios.append(own_seconds / plain_seconds)

    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    ratio = None
    if high - low <= STEADY * middle:
        ratio = round(middle, 2)
    return statistics.median(seconds), ratio


def _clock(work: Work) -> float:
    """Return the seconds that the work takes, on an accelerator too."""
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start
