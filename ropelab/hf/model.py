"""A causal language model of transformers behind the interface that evaluation uses."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ropelab.encoding.base import Encoding
from ropelab.encoding.extended import SelfExtend
from ropelab.encoding.rope import Rope
from ropelab.errors import InputError
from ropelab.hf.attention import PAIRINGS, Attention, Exchange, attending, taken_apart
from ropelab.hf.facts import facts_of
from ropelab.hf.folder import located
from ropelab.hf.head import Head, layers_name
from ropelab.hf.library import refusing
from ropelab.hf.load import ModelDtype, load
from ropelab.hf.rotary import SoftmaxFactor, holders
from ropelab.hf.shipped import AS_SHIPPED, AsShipped
from ropelab.rope.rotary import Pairing
from ropelab.rope.scaling.plan import RopePlan

LONGEST_PASS = 8192
"""Tokens that are read at once; longer contexts are read in parts, whose keys are kept."""
SCORES_PER_PART = 2**25
"""A part holds so many tokens that its mask of earlier ones stays below this (32 MiB)."""
SCORES_AT_ONCE = 2**28
"""Where attention makes all its scores (no fused kernel), no more of them at once (1 GiB)."""
PROBE = 24
"""Tokens of the passes that show whether a model can be served."""


@dataclass(frozen=True)
class Size:
    """What evaluation needs to know of a model's shape."""

    vocabulary: int


class HuggingFaceModel:
    """A causal language model whose rotary frequencies can be exchanged.

    As loaded it reads as shipped. `model.encoding = Rope(...)` exchanges the frequencies, the
    attention factor and the softmax factor, `LogN`, `ReRope` and `SelfExtend` change attention as
    well; `model.encoding = AS_SHIPPED` puts back what the checkpoint has. The weights and the
    windows of layers never change.

    Args:
        path: the folder that `save_pretrained` wrote, or an id in the local cache of the Hub.
        device: where it computes, unless `device_map` spreads it.
        dtype: the number format of its weights; rotary angles are float32 in any.
    Raises:
        InputError: transformers is missing, the folder cannot be read, or the architecture has no
            rotary frequencies or cannot be taken apart.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        dtype: ModelDtype = "float32",
        device_map: str | None = None,
    ) -> None:
        self.path = path = located(path)
        self.facts = facts_of(str(path))
        self.lm = load(path, device, dtype, device_map)
        self.text = self.lm.config.get_text_config(decoder=True)
        self.rotary = holders(self.lm)
        self.softmax = SoftmaxFactor(self.lm, self.text)
        if not self.rotary:
            raise InputError(f"{path}: this architecture has no rotary frequencies to exchange")
        self._encoding: Encoding = AS_SHIPPED
        self._exchange = Exchange()
        with refusing("cannot take apart the model in", path):
            self.head, self.layers = Head(self.lm), getattr(self.lm, layers_name(self.lm))
            self.size = Size(self.facts.vocabulary)
            self.closed = self._objection()
            self._check_passes()
        self.encoding = AS_SHIPPED

    @property
    def encoding(self) -> Encoding:
        """The encoding last put in."""
        return self._encoding

    @encoding.setter
    def encoding(self, encoding: Encoding) -> None:
        if isinstance(encoding, AsShipped):
            ends = [holder.longest for holder in self.rotary if holder.longest]
            self._encoding, self._exchange = AsShipped(min(ends) - 1 if ends else None), Exchange()
            return
        exchange = taken_apart(encoding)
        if self.closed and exchange.plan is not None:
            raise InputError(f"{self.path}: no method can be put in, because {self.closed}")
        if exchange.attends and (said := self._objection_to(exchange)):
            raise InputError(f"{self.path}: {encoding.name} cannot be put in, because {said}")
        self._encoding, self._exchange = encoding, exchange

    def shipped_passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Put AS_SHIPPED in, and group rising lengths that one pass over the longest serves.

        A checkpoint whose scaling follows the length (dynamic NTK, LongRoPE) reads each context
        as one of its own length. Lengths beyond what the checkpoint is defined for are left out.
        """
        self.encoding = AS_SHIPPED
        last = self.encoding.max_position
        defined = [length for length in lengths if last is None or length <= last + 1]
        for _, group in groupby(defined, self._signature):
            yield list(group)

    def hidden(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens width"]:
        """What the head turns into logits."""
        self._put_in(tokens.shape[1])
        try:
            return self._attended(tokens, self.longest_pass(len(tokens)))
        finally:
            self._restore()

    def longest_pass(self, rows: int) -> int:
        """How many tokens of each of so many rows are read at once."""
        if self.lm.config._attn_implementation != "eager":
            return LONGEST_PASS
        scores = SCORES_AT_ONCE // (rows * self.text.num_attention_heads)
        return min(LONGEST_PASS, max(PROBE, math.isqrt(scores)))

    def _signature(self, length: int) -> tuple[object, ...]:
        return tuple(holder.signature(length) for holder in self.rotary)

    def _put_in(self, length: int) -> None:
        last = self._encoding.max_position
        if last is not None and length > last + 1:
            raise InputError(f"{self.path}: as shipped it reads no more than {last + 1} tokens")
        plan, far = self._exchange.plan, self._exchange.far
        for holder in self.rotary:
            if plan is None:
                holder.ship(length)
            elif far is None:
                holder.exchange(plan, length)
            else:
                holder.exchange(RopePlan(0 * plan.inv_freq), length)
        if plan is not None:
            self.softmax.exchange()

    def _restore(self) -> None:
        for holder in self.rotary:
            holder.restore()
        self.softmax.restore()

    def _attended(self, tokens: Tensor, longest: int) -> Tensor:
        """`_read` with whatever is to be changed about attention."""
        exchange = self._exchange
        if not exchange.attends:
            return self._read(tokens, longest)
        far = None
        if exchange.far is not None:
            assert self.pairing is not None and exchange.plan is not None
            rope = Rope(exchange.plan, self.pairing)
            far = SelfExtend(rope, exchange.far.window, exchange.far.group)
        attention = Attention(exchange.sharpened_from, far, self._by_layer_type)
        with attending(self.lm, attention):
            return self._read(tokens, longest, attention)

    def _read(self, tokens: Tensor, longest: int, attention: Attention | None = None) -> Tensor:
        """Last hidden states of one pass, or of parts whose keys and values are kept."""
        length = tokens.shape[1]
        if length <= longest or not self.in_parts:
            return self._last(tokens, use_cache=False)
        from transformers import DynamicCache

        cache = DynamicCache(config=self.text)
        size = max(1, min(longest // 2, SCORES_PER_PART // length, longest * longest // length))
        parts = []
        for first in range(0, length, size):
            if attention is not None:
                attention.first = first
            part = tokens[:, first : first + size]
            parts.append(self._last(part, past_key_values=cache, use_cache=True))
        return torch.cat(parts, dim=1)

    def _last(self, tokens: Tensor, **more: object) -> Tensor:
        hidden: Tensor = self.layers(tokens, **more).last_hidden_state
        return hidden

    @property
    def _by_layer_type(self) -> bool:
        return any(getattr(holder, "layer_type", None) for holder in self.rotary)

    def _objection_to(self, exchange: Exchange) -> str:
        """Why attention cannot be changed, empty if it can."""
        if not self.sharpens:
            return "its layers do not call transformers' attention interface"
        if exchange.far is not None and self.pairing is None:
            return "what its layers rotate is not the beginning of queries and keys as they attend"
        return ""

    @cached_property
    def sharpens(self) -> bool:
        """Whether layers call our attention, and sharpening by nothing changes nothing."""
        return self._same_as_own(Attention(10**9, None, False), AS_SHIPPED)

    @cached_property
    def pairing(self) -> Pairing | None:
        """Which features form a pair where rotation can be taken over; None where it cannot."""
        plan = RopePlan(self.facts.geometry().inv_freq)
        for pairing in PAIRINGS:
            near = SelfExtend(Rope(plan, pairing), window=2**40, group=1)
            if self._same_as_own(Attention(None, near, self._by_layer_type), Rope(plan)):
                return pairing
        return None

    @torch.inference_mode()
    def _same_as_own(self, attention: Attention, encoding: Encoding) -> bool:
        """Whether reading by `attention` gives what `encoding` gives without it."""
        before, tokens = (self._encoding, self._exchange), self._probe()
        try:
            self.encoding = encoding
            own = self.hidden(tokens)
            self._exchange = replace(self._exchange, far=attention.far)
            self._put_in(PROBE)
            with attending(self.lm, attention):
                changed = self._last(tokens, use_cache=False)
        except (AttributeError, KeyError, IndexError, RuntimeError, TypeError, ValueError):
            return False
        finally:
            self._restore()
            self._encoding, self._exchange = before
        return attention.called and close(changed.float(), own.float(), self.lm.dtype)

    def _probe(self) -> Tensor:
        tokens = torch.arange(PROBE, device=self.head.weight.device)[None] * 7 + 1
        return tokens % self.size.vocabulary

    def _objection(self) -> str:
        """Why no method can be put in, empty if one can."""
        geometry = self.facts.geometry()
        return next((said for h in self.rotary if (said := h.objection(geometry))), "")

    @torch.inference_mode()
    def _check_passes(self) -> None:
        """Refuse models whose logits are not ours; see whether parts give the same as a whole."""
        tokens = self._probe()
        self.in_parts = False
        whole = self.hidden(tokens)
        ours, theirs = self.head(whole).float(), self.lm(tokens, use_cache=False).logits.float()
        if not theirs.isfinite().all():
            raise InputError(f"{self.path}: its logits are not finite numbers")
        if not close(ours, theirs, self.lm.dtype):
            raise InputError(f"{self.path}: this architecture changes its logits after the head")
        self.in_parts = True
        try:
            parts = self._read(tokens, PROBE // 2)
        except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
            self.in_parts = False
        else:
            self.in_parts = close(parts.float(), whole.float(), self.lm.dtype)


def close(ours: Tensor, theirs: Tensor, dtype: torch.dtype) -> bool:
    """Whether two results differ by no more than a number format explains."""
    tolerance = 1e-3 if dtype == torch.float32 else 5e-2
    spread = float(theirs.std()) or 1.0
    return float((ours - theirs).abs().max()) <= tolerance * max(spread, 1e-6)
