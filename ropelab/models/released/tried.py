"""What a model lets be done to it, found by trying on a few tokens.

Architectures are many and change; whether the head gives the model's logits, whether reading in
parts is as good as at once, and which features are turned is not looked up but seen. Rounding to
bfloat16 or float16 hides what is seen, so it is tried in float32, or compared with it.
"""

from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.extended import SelfExtend
from ropelab.models.encoding.rope import Rope
from ropelab.models.released.attention import Attention, Layout
from ropelab.models.released.exchange import Exchange, Positions
from ropelab.models.released.head import Head
from ropelab.models.released.passes import Passes
from ropelab.models.released.widened import distance, widened

PROBE, ROWS = 24, 4
"""Tokens of the passes that are tried, and rows of as many."""
AS_NEAR = 1.5
"""Times as far from float32 as one pass, reading in parts is as good as one pass.

Of SmolLM2-135M in bfloat16 it is 0.9 to 1.15 times as far, over draws of as many tokens as here.
"""
LAYOUTS = (
    Layout("half"),
    Layout("interleaved"),
    Layout("half", last=True),
    Layout("interleaved", last=True),
)
UNSUITED = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""What code raises that was not made for what is tried."""


class Tried:
    """Trials of one model.

    Args:
        plan: its own frequencies without scaling.
        vocabulary: how many different tokens it knows.
    """

    def __init__(
        self,
        model: Any,
        head: Head,
        passes: Passes,
        positions: Positions,
        plan: RopePlan,
        vocabulary: int,
    ) -> None:
        self.model, self.head, self.passes, self.positions = model, head, passes, positions
        self.plan = plan
        random = torch.Generator().manual_seed(0)
        tokens = torch.randint(vocabulary, (ROWS, PROBE), generator=random)
        self.tokens = tokens.to(head.weight.device)

    @torch.inference_mode()
    def objection(self) -> str:
        """Why the model cannot be read at all, empty if it can."""
        tokens = self.tokens[:1]  # of all their logits at once
        theirs = self.model(tokens, use_cache=False).logits.float()
        if not theirs.isfinite().all():
            return "its logits are not finite numbers"
        if not self._close(self.head(self.passes.read(tokens)), theirs):
            return "this architecture changes its logits after the head"
        return ""

    @torch.inference_mode()
    def in_parts(self) -> bool:
        """Whether reading in parts is as good as reading at once; the passes know it then."""
        whole = self.passes.read(self.tokens)
        self.passes.in_parts = True
        try:
            parts = self.passes.read(self.tokens, longest=PROBE // 2)
            self.passes.in_parts = self._close(parts, whole) or self._as_near(parts, whole)
        except UNSUITED:
            self.passes.in_parts = False
        return self.passes.in_parts

    def _as_near(self, parts: Tensor, whole: Tensor) -> bool:
        """Whether two results are about as far from what float32 gives."""
        if self.exact is None:
            return False
        return distance(parts, self.exact) <= AS_NEAR * distance(whole, self.exact)

    @cached_property
    def exact(self) -> Tensor | None:
        """What float32 gives; None where the model's code does not let weights be widened."""
        try:
            with widened(self.passes.layers):
                found = self.passes.read(self.tokens)
        except UNSUITED:
            return None
        return found if found.dtype == torch.float32 else None

    @cached_property
    def sharpens(self) -> bool:
        """Whether layers call our attention, and sharpening by nothing changes nothing."""
        return self._same(Exchange(), Attention(10**9))

    @cached_property
    def layout(self) -> Layout | None:
        """Which features are turned where rotation can be taken over; None where it cannot."""
        for layout in LAYOUTS:
            near = SelfExtend(Rope(self.plan, layout.pairing), window=2**40, group=1)
            attention = Attention(None, near, self.positions.by_layer_type, layout.last)
            if self._same(Exchange(plan=self.plan), attention):
                return layout
        return None

    @torch.inference_mode()
    def _same(self, exchange: Exchange, attention: Attention) -> bool:
        """Whether reading an exchange by `attention` gives what the model's own attention gives."""
        try:
            with nullcontext() if self.exact is None else widened(self.passes.layers):
                with self.positions.put_in(exchange, PROBE):
                    own = self.passes.read(self.tokens)
                with self.positions.put_in(replace(exchange, far=attention.far), PROBE):
                    changed = self.passes.read(self.tokens, attention)
        except UNSUITED:
            return False
        return attention.called and self._close(changed, own)

    def _close(self, ours: Tensor, theirs: Tensor) -> bool:
        """Whether two results differ by no more than the number format explains."""
        tolerance = 1e-3 if theirs.dtype == torch.float32 else 5e-2
        ours, theirs = ours.float(), theirs.float()
        return float((ours - theirs).abs().max()) <= tolerance * max(float(theirs.std()), 1e-6)
