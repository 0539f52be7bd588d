"""What a model lets be done to it, found by trying on a few tokens.

Architectures are many and change; whether the head gives the model's logits, whether reading in
parts gives the same as at once, and which features are turned is not looked up but seen.
"""

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ropelab.encoding.extended import SelfExtend
from ropelab.encoding.rope import Rope
from ropelab.hf.attention import Attention, Layout
from ropelab.hf.exchange import Exchange, Positions
from ropelab.hf.head import Head
from ropelab.hf.passes import Passes
from ropelab.rope.scaling.plan import RopePlan

PROBE = 24
"""Tokens of the passes that are tried."""
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
        self.tokens = (torch.arange(PROBE, device=head.weight.device)[None] * 7 + 1) % vocabulary

    @torch.inference_mode()
    def objection(self) -> str:
        """Why the model cannot be read at all, empty if it can."""
        theirs = self.model(self.tokens, use_cache=False).logits.float()
        if not theirs.isfinite().all():
            return "its logits are not finite numbers"
        if not self._close(self.head(self.passes.read(self.tokens)), theirs):
            return "this architecture changes its logits after the head"
        return ""

    @torch.inference_mode()
    def in_parts(self) -> bool:
        """Whether reading in parts gives what reading at once gives; the passes know it then."""
        whole = self.passes.read(self.tokens)
        self.passes.in_parts = True
        try:
            parts = self.passes.read(self.tokens, longest=PROBE // 2)
            self.passes.in_parts = self._close(parts, whole)
        except UNSUITED:
            self.passes.in_parts = False
        return self.passes.in_parts

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
            with self.positions.put_in(exchange, PROBE):
                own = self.passes.read(self.tokens)
            with self.positions.put_in(replace(exchange, far=attention.far), PROBE):
                changed = self.passes.read(self.tokens, attention)
        except UNSUITED:
            return False
        return attention.called and self._close(changed, own)

    def _close(self, ours: Tensor, theirs: Tensor) -> bool:
        """Whether two results differ by no more than the number format explains."""
        tolerance = 1e-3 if self.model.dtype == torch.float32 else 5e-2
        ours, theirs = ours.float(), theirs.float()
        return float((ours - theirs).abs().max()) <= tolerance * max(float(theirs.std()), 1e-6)
