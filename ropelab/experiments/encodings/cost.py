"""The cost of each encoding before anything is trained: parameters, work, memory and
times.

Work is counted in operations, so that the tables are the same on every machine. The work
of an encoding is compared with the work of NoPE, a model without positions. Times are
measured, too: in each round, an encoding and NoPE are timed one after the other. Times go
into the manifest of a run.
"""

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
from ropelab.models.lm.source import Batch, make_periodic_batch
from ropelab.models.lm.training import compute_batch_loss, make_optimizers, make_step
from ropelab.models.tasks.modes import find_defined_length
from ropelab.models.tasks.plans import make_model_size, make_recipe
from ropelab.runs.cell import Cell, Context, Resources
from ropelab.runs.own import find_sources

# The encoding that all others are compared with. It has no positions.
PLAIN = "nope"
# The lengths of two passes, in tokens, which show how memory grows.
MEMORY_LENGTHS = (1024, 2048)
# The number of rounds, in each of which an encoding and NoPE are timed. A busy machine
# then slows both.
ROUNDS = 5
# The number of tokens that are decoded between two readings of the clock.
DECODED = 16
# A ratio of times is kept if the middle half of the rounds spans at most this share of
# their median.
STEADY = 0.15
# A piece of work whose operations are counted, or whose time is measured.
Work = Callable[[], object]


def build_seeded_encoding(shape: Shape, name: str, seed: int = 0) -> Encoding:
    """Return the encoding as the models of the experiment have it."""
    # No model uses a fused kernel, although some encodings allow it: times then differ by
    # the work of the encodings, and short windows are trained faster.
    return disable_fused_kernel(compose(name, shape, seed))


def make_untrained(config: EncodingsConfig, name: str) -> LanguageModel:
    """Return a model with an encoding, as it is before training."""
    return LanguageModel(
        make_model_size(config), build_seeded_encoding(config.shape(), name)
    )


def measure_costs(config: EncodingsConfig) -> pd.DataFrame:
    """Return the table `cost`: a row per encoding, and a row per method of RoPE.

    The columns: facts about the encoding, its parameters, and its work divided by the
    work of NoPE. A method is trained as RoPE, and decodes by its own encoding.
    """
    trained_len = config.train_len
    plain_model = make_untrained(config, PLAIN)
    plain_training = count_training_flops(config, PLAIN)
    rows = []
    for row in list_rows(config):
        name = row.encoding_name
        encoding = row.tested_encoding(config)
        allows_fused = encoding.fused
        last_position = encoding.max_position
        defined = "everywhere"
        if last_position is not None:
            defined = f"to position {last_position}"

        training_ratio = count_training_flops(config, name) / plain_training
        length = find_defined_length(encoding, config.test_len)
        model = LanguageModel(make_model_size(config), disable_fused_kernel(encoding))
        decoding_flops = count_decoding_flops(model, length)
        decoding_ratio = decoding_flops / count_decoding_flops(plain_model, length)

        record = {
            "encoding": row.name,
            "label": row.label,
            "family": row.record.family,
            "source": row.source,
            "claim": row.claim,
            "defined": defined,
            "fused_kernel": allows_fused,
            "parameters": count_parameters(config, name, trained_len),
            "parameters_at_twice_the_length": count_parameters(
                config, name, 2 * trained_len
            ),
            "train_flops_ratio": training_ratio,
            "decode_flops_ratio": decoding_ratio,
        }
        rows.append(record)
    return pd.DataFrame(rows)


def count_parameters(config: EncodingsConfig, name: str, trained_len: int) -> int:
    """Count the parameters that the encoding adds to a model."""
    encoding = compose(name, config.shape(trained_len))
    return sum(parameter.numel() for parameter in encoding.parameters())


def count_training_flops(config: EncodingsConfig, name: str) -> int:
    """Count the operations to learn from one window of the trained length: the forward
    and the backward pass.
    """
    model = make_untrained(config, name)
    tokens = torch.zeros(1, config.train_len + 1, dtype=torch.long)
    batch = Batch(tokens, torch.ones_like(tokens, dtype=torch.bool))
    return count_flops(lambda: compute_batch_loss(model, batch).backward())


@torch.no_grad()
def count_decoding_flops(model: LanguageModel, context: int) -> int:
    """Count the operations for the last token of a context if all tokens before it are
    cached.
    """
    cache = Cache()
    token = torch.zeros(1, 1, dtype=torch.long)
    first_tokens = torch.zeros(1, context - 2, dtype=torch.long)
    model(first_tokens, cache)

    # Some encodings make tables for the first token that is decoded. These are not
    # counted.
    model(token, cache)
    return count_flops(lambda: model(token, cache))


def count_flops(work: Work) -> int:
    """Count the floating-point operations of all matrix products, two per
    multiply-add.
    """
    # On a CPU torch does not count fused attention, so models must not use it.
    with FlopCounterMode(display=False) as counter:
        work()
    return int(counter.get_total_flops())


def measure_memory(config: EncodingsConfig) -> pd.DataFrame:
    """Return the table `memory`: a row per encoding and length of a pass.

    ``kept_bytes``: what the encoding holds after the pass. ``largest_tensor_bytes``: the
    largest tensor of the pass.
    """
    rows = []
    for name in config.encodings:
        for length in MEMORY_LENGTHS:
            encoding = compose(name, config.shape(length))
            model = LanguageModel(make_model_size(config), encoding)
            tokens = torch.zeros(1, length, dtype=torch.long)
            with torch.no_grad(), LargestTensor() as largest:
                model.hidden_states(tokens)

            row = {
                "encoding": name,
                "length_tokens": length,
                "kept_bytes": count_kept_bytes(encoding),
                "largest_tensor_bytes": largest.bytes,
            }
            rows.append(row)
    return pd.DataFrame(rows)


class LargestTensor(TorchDispatchMode):
    """A context in which the size of the largest tensor that any operation makes is
    recorded as `bytes`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        # torch calls this method instead of each operation.
        results = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(results):
            if isinstance(leaf, Tensor):
                self.bytes = max(self.bytes, leaf.untyped_storage().nbytes())
        return results


def count_kept_bytes(owner: object) -> int:
    """Count the bytes of all tensors and arrays that an object holds, also inside its
    attributes, lists and dicts.
    """
    # Tensors that share their memory have one address, and are counted once.
    bytes_by_address: dict[int, int] = {}
    visited_ids: set[int] = set()
    unvisited = [owner]
    while unvisited:
        member = unvisited.pop()
        if id(member) in visited_ids:
            continue
        visited_ids.add(id(member))

        is_of_ropelab = type(member).__module__.startswith("ropelab.")
        if isinstance(member, Tensor):
            bytes_by_address[member.data_ptr()] = member.untyped_storage().nbytes()
        elif isinstance(member, np.ndarray):
            bytes_by_address[member.ctypes.data] = member.nbytes
        elif isinstance(member, dict):
            unvisited.extend(member.values())
        elif isinstance(member, tuple | list):
            unvisited.extend(member)
        elif isinstance(member, nn.Module) or is_of_ropelab:
            unvisited.extend(vars(member).values())
    return sum(bytes_by_address.values())


@dataclass(frozen=True)
class Timing:
    """The cell of measured times. It is computed while no other cell is computed, since
    other work at the same time would slow what is timed.
    """

    config: EncodingsConfig
    kind: ClassVar[str] = "encodings-times"
    version: ClassVar[int] = 1
    title: ClassVar[str] = "timing against nope"
    prerequisites: ClassVar[tuple[Cell, ...]] = ()
    resources: ClassVar[Resources] = Resources(exclusive=True, dtype="float32")

    @property
    def key(self) -> dict[str, Any]:
        """Everything that the times depend on. If it changes, the cell is computed
        again.
        """
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

        own_sources = find_sources(self.config.encodings)
        if own_sources:
            fields["own"] = own_sources
        return fields

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        """Return the table `times`: a row per encoding."""
        config = self.config
        rows = []
        with context.progress(self.title, len(config.encodings)) as advance:
            for name in config.encodings:
                rows.append(measure_times(config, name))
                advance(1)
        return {"times": pd.DataFrame(rows)}


def measure_times(config: EncodingsConfig, name: str) -> dict[str, Any]:
    """Measure a training step and the decoding of an encoding, each beside NoPE."""
    step_seconds, step_ratio = time_in_turns(
        prepare_training_step(config, name), prepare_training_step(config, PLAIN)
    )
    # A step has at least one row, however long.
    rows_per_step = max(1, config.tokens_per_step // config.train_len)
    tokens_per_step = rows_per_step * config.train_len

    # Decoding gets new models, since the optimizers of the trained models hold memory.
    model = make_untrained(config, name).to(config.device)
    plain_model = make_untrained(config, PLAIN).to(config.device)
    length = find_defined_length(model.encoding, config.test_len)
    decode_seconds, decode_ratio = time_in_turns(
        prepare_decoding(model, length), prepare_decoding(plain_model, length)
    )

    return {
        "encoding": name,
        "training_tokens_per_second": round(tokens_per_step / step_seconds, 1),
        "training_time_ratio": step_ratio,
        "decode_context_tokens": length,
        "decode_seconds": decode_seconds / DECODED,
        "decode_time_ratio": decode_ratio,
        "threads": torch.get_num_threads(),
    }


def prepare_training_step(config: EncodingsConfig, name: str) -> Work:
    """Return a function that makes one optimizer step at the full trained length."""
    model = make_untrained(config, name).to(config.device)
    recipe = make_recipe(config, config.first_window)
    optimizers = make_optimizers(model, recipe, config.dtype)
    # The windows of the last step have their full length.
    last_step = recipe.steps - 1

    def make_batch(step: int, window: int, rows: int) -> Batch:
        return make_periodic_batch(np.random.default_rng(step), window, rows)

    return lambda: make_step(
        model, optimizers, make_batch, recipe, last_step, config.dtype
    )


def prepare_decoding(model: LanguageModel, context: int) -> Work:
    """Return a function that decodes DECODED tokens, one by one, at the end of a context
    whose other tokens are cached.
    """
    device = model.head.weight.device
    token = torch.zeros(1, 1, dtype=torch.long, device=device)
    first_tokens = torch.zeros(1, context - DECODED, dtype=torch.long, device=device)
    full_cache = Cache()
    with torch.inference_mode():
        model(first_tokens, full_cache)

    @torch.inference_mode()
    def decode() -> None:
        # Decoding adds tokens to a cache, so that each round needs a copy.
        cache = Cache(full_cache.tokens, dict(full_cache.layers))
        for _ in range(DECODED):
            model(token, cache)

    return decode


def time_in_turns(work: Work, plain_work: Work) -> tuple[float, float | None]:
    """Return the median seconds of `work`, and the median ratio of these seconds to those
    of `plain_work` in the same round.

    The ratio is None if the rounds differ too much, as they do on a machine that is
    busy with other work.
    """
    # The first call of each is slower, and is not timed.
    work()
    plain_work()
    seconds: list[float] = []
    ratios: list[float] = []
    for _ in range(ROUNDS):
        work_seconds = _time(work)
        plain_seconds = _time(plain_work)
        seconds.append(work_seconds)
        ratios.append(work_seconds / plain_seconds)

    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    ratio = None
    if high - low <= STEADY * middle:
        ratio = round(middle, 2)
    return statistics.median(seconds), ratio


def _time(work: Work) -> float:
    """Return the seconds that the work takes, on an accelerator too."""
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        # The accelerator may still be computing.
        torch.cuda.synchronize()
    return time.perf_counter() - start
