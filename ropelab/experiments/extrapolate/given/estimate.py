"""How long a run will take and how much memory, from passes over a few hundred tokens.

A pass over n tokens takes a n + b n^2 seconds: the linear part is weights, the quadratic one
attention. Both follow from two short passes of the model itself, on the machine as it is.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import psutil
import torch

from ropelab.errors import InputError
from ropelab.experiments.extrapolate.given.config import GivenConfig
from ropelab.experiments.extrapolate.given.plan import question
from ropelab.models.lm.evaluation import LOGITS_PER_CHUNK, token_losses
from ropelab.models.tasks.copying import Copying
from ropelab.models.tasks.given import AskedOfGiven
from ropelab.models.tasks.needles import Needles
from ropelab.models.tasks.readers import Reader, Sliding
from ropelab.models.tasks.text import Texts
from ropelab.runs.cell import Cell, Context
from ropelab.runs.estimate import Estimate, refuse_beyond, size, slowness, told
from ropelab.runs.notices import say

SHORT, LONGER = 256, 1024
"""Tokens of the passes that are timed."""


@dataclass(frozen=True)
class Cost:
    """Seconds of a pass over n tokens: linear * n + quadratic * n^2."""

    linear: float
    quadratic: float

    def of(self, lengths: Iterator[int]) -> float:
        """Seconds of passes over so many tokens each."""
        return sum(self.linear * n + self.quadratic * n * n for n in lengths)


def prepare(config: GivenConfig, cells: Sequence[Cell], context: Context) -> None:
    """Refuse what cannot be computed, and say how long the rest will take, if it is long.

    Raises:
        InputError: the corpus is too short, a pass needs more memory than there is or is allowed,
            a method cannot be put in, or it is more than a day.
    """
    check_text(config)
    left = [cell for cell in cells if isinstance(cell, AskedOfGiven)]
    model = left[0].subject.model()
    for cell in left:  # a method that the model does not take is refused when it is put in
        next(cell.reader.passes(model, [config.facts.train_len]), None)
    cost = measured_cost(model)
    needed = memory(model, config.test_len)
    if config.limit_memory is not None and needed > config.limit_memory:
        raise InputError(
            f"reading {config.test_len} tokens needs about {size(needed)}, more than "
            f"--limit-memory {size(config.limit_memory)}"
        )
    seconds = cost.of(n for cell in left for n in lengths(cell))
    here = seconds / slowness()  # measured on this machine, so not to be scaled to it again
    if context.limits:
        refuse_beyond(Estimate(here, needed - _taken(model)), 1, _free(model))
    if line := told(Estimate(here, needed)):
        say(line)


def check_text(config: GivenConfig) -> None:
    """Refuse a corpus that is too short for what any of the tasks asks."""
    for task in config.tasks:
        asked = question(config, task)
        if isinstance(asked, Texts):
            config.text().windows(asked.length + 1, asked.documents)
        elif isinstance(asked, Needles):
            for context in asked.contexts:
                asked.needle(context, 0)


def measured_cost(model: Any) -> Cost:
    """The cost of passes through a model, from two of them; the first one warms up."""
    times = [_seconds(model, n) for n in (SHORT, SHORT, LONGER)][1:]
    quadratic = (times[1] / LONGER - times[0] / SHORT) / (LONGER - SHORT)
    quadratic = max(0.0, quadratic)
    return Cost(times[1] / LONGER - quadratic * LONGER, quadratic)


def _seconds(model: Any, length: int) -> float:
    tokens = torch.arange(length + 1)[None] % model.size.vocabulary
    start = time.perf_counter()
    token_losses(model, tokens)
    return time.perf_counter() - start


def lengths(cell: AskedOfGiven) -> Iterator[int]:
    """How many tokens each pass of a cell reads."""
    asked = cell.trial
    if isinstance(asked, Texts):
        for _ in range(asked.documents):
            yield from _of_one_text(asked, cell.reader)
    elif isinstance(asked, Copying):
        for place in asked.places:
            yield from [_seen(place.context, cell.reader)] * asked.sequences
    elif isinstance(asked, Needles):
        for context in asked.contexts:
            seen = _seen(context, cell.reader)
            yield from [seen] * asked.rows


def _of_one_text(asked: Texts, reader: Reader) -> Iterator[int]:
    if isinstance(reader, Sliding):
        window = reader.window
        yield from [window] * (1 + -(-2 * max(0, asked.length - window) // window))
        return
    yield from (ends[-1] for ends in reader.passes(_Nobody(), [end for _, end in asked.buckets]))
    yield from (context for context in asked.contexts if context != asked.length)


def _seen(context: int, reader: Reader) -> int:
    """How many tokens are read to answer a question at the end of a context."""
    return reader.seen(torch.empty(1, context + 1)).shape[1] - 1


class _Nobody(SimpleNamespace):
    """A model that is only told with which encoding it would be read."""

    def shipped_passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """One pass, as of every model whose scaling does not follow the length."""
        yield list(lengths)


def memory(model: Any, length: int) -> int:
    """Bytes while a context is read: what is taken now, and what a pass of that length adds.

    Keys and values of all layers, the widest activations of one, and the scores of all heads where
    attention makes them at once.
    """
    text, each = model.text, next(model.lm.parameters()).element_size()
    heads = text.num_attention_heads
    head = getattr(text, "head_dim", None) or text.hidden_size // heads
    kept = 2 * (getattr(text, "num_key_value_heads", None) or heads) * head
    passes = model.passes
    at_once = min(length, passes.longest(1)) if passes.in_parts else length
    scores = heads * at_once * length * 4 if text._attn_implementation == "eager" else 0
    added = length * text.num_hidden_layers * kept + 2 * length * text.hidden_size
    wide = at_once * passes.bytes_per_token
    return _taken(model) + added * each + wide + scores + 4 * 4 * LOGITS_PER_CHUNK


def _taken(model: Any) -> int:
    """Bytes in use where the model computes."""
    if model.head.weight.device.type == "cuda":
        return int(torch.cuda.memory_allocated())
    return int(psutil.Process().memory_info().rss)


def _free(model: Any) -> int:
    """Bytes that can still be had where the model computes."""
    if model.head.weight.device.type == "cuda":
        return int(torch.cuda.mem_get_info()[0])
    return int(psutil.virtual_memory().available)
