"""Capabilities of a model, found by trying on a few tokens.

Architectures are many and change; whether the head gives the model's logits, whether reading in
parts is as good as at once, and which features rotate is not looked up but seen. Rounding to
bfloat16 or float16 hides what is seen, so it is tried in float32, or compared with it: the weights
of one layer at a time are upcast, so that no second model has to be held.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.extended import SelfExtend
from ropelab.models.encoding.rope import Rope
from ropelab.models.released.attention import Attention, Layout
from ropelab.models.released.forward import Head, Passes
from ropelab.models.released.positions import Patch, Positions

# Tokens of the passes that are tried, and rows of as many.
PROBE, ROWS = 24, 4
# Times as far from float32 as one pass, reading in parts is as good as one pass.  Of SmolLM2-135M
# in bfloat16 it is 0.9 to 1.15 times as far, over draws of as many tokens as here.
AS_NEAR = 1.5
LAYOUTS = (
    Layout("half"),
    Layout("interleaved"),
    Layout("half", last=True),
    Layout("interleaved", last=True),
)
# What code raises that was not made for what is tried.
UNSUITED = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


class Capabilities:
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
        """Return True if reading in parts is as good as at once, and tell the passes."""
        whole = self.passes.read(self.tokens)
        self.passes.in_parts = True
        try:
            parts = self.passes.read(self.tokens, longest=PROBE // 2)
            self.passes.in_parts = self._close(parts, whole) or self._as_near(parts, whole)
        except UNSUITED:
            self.passes.in_parts = False
        return self.passes.in_parts

    def _as_near(self, parts: Tensor, whole: Tensor) -> bool:
        """Return True if two results are about as far from that of float32."""
        if self.exact is None:
            return False
        return distance(parts, self.exact) <= AS_NEAR * distance(whole, self.exact)

    @cached_property
    def exact(self) -> Tensor | None:
        """The result of float32; None where the model's code does not let weights be upcast."""
        try:
            with upcast(self.passes.layers):
                found = self.passes.read(self.tokens)
        except UNSUITED:
            return None
        return found if found.dtype == torch.float32 else None

    @cached_property
    def sharpens(self) -> bool:
        """True if layers call our attention, and sharpening by nothing changes nothing."""
        return self._same(Patch(), Attention(10**9))

    @cached_property
    def layout(self) -> Layout | None:
        """The features that rotate, where rotation can be taken over; None where it cannot."""
        for layout in LAYOUTS:
            near = SelfExtend(Rope(self.plan, layout.pairing), window=2**40, group=1)
            attention = Attention(None, near, self.positions.by_layer_type, layout.last)
            if self._same(Patch(plan=self.plan), attention):
                return layout
        return None

    @torch.inference_mode()
    def _same(self, patch: Patch, attention: Attention) -> bool:
        """Return True if `attention` gives the result of the model's own attention."""
        try:
            with nullcontext() if self.exact is None else upcast(self.passes.layers):
                with self.positions.patched(patch, PROBE):
                    own = self.passes.read(self.tokens)
                with self.positions.patched(replace(patch, far=attention.far), PROBE):
                    changed = self.passes.read(self.tokens, attention)
        except UNSUITED:
            return False
        return attention.called and self._close(changed, own)

    def _close(self, ours: Tensor, theirs: Tensor) -> bool:
        """Return True if two results differ by no more than the number format explains."""
        tolerance = 1e-3 if theirs.dtype == torch.float32 else 5e-2
        ours, theirs = ours.float(), theirs.float()
        return float((ours - theirs).abs().max()) <= tolerance * max(float(theirs.std()), 1e-6)


@contextmanager
def upcast(layers: nn.Module) -> Iterator[None]:
    """Let everything compute in float32, with the weights as they are.

    Args:
        layers: what comes before the head.
    """
    parts = [_Upcast(unit) for unit in _units(layers)]
    handles = [handle for part in parts for handle in part.hooked()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _units(module: nn.Module) -> Iterator[nn.Module]:
    """Return the layers, and the modules beside them."""
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield from child
        elif any(isinstance(part, nn.ModuleList) for part in child.modules()):
            yield from _units(child)
        else:
            yield child


class _Upcast:
    """A part of a model whose weights are wider while it computes."""

    def __init__(self, unit: nn.Module) -> None:
        self.unit = unit
        self.own: list[tuple[nn.Module, str, nn.Parameter]] = []

    def hooked(self) -> list[Any]:
        """Register hooks; the caller removes them."""
        if isinstance(self.unit, nn.Embedding):  # a table may be larger than all layers
            return [self.unit.register_forward_hook(lambda _, __, out: out.float())]
        return [
            self.unit.register_forward_pre_hook(self._upcast),
            self.unit.register_forward_hook(self._restore, always_call=True),
        ]

    def _upcast(self, *_: object) -> None:
        self.own = [
            (module, name, parameter)
            for module in self.unit.modules()
            for name, parameter in module._parameters.items()
            if parameter is not None and parameter.is_floating_point()
        ]
        for module, name, parameter in self.own:
            module._parameters[name] = nn.Parameter(parameter.float(), requires_grad=False)

    def _restore(self, *_: object) -> None:
        for module, name, parameter in self.own:
            module._parameters[name] = parameter
        self.own = []


def distance(ours: Tensor, theirs: Tensor) -> float:
    """Return the mean over tokens of the distance of two results, root mean square over features.

    Args:
        ours, theirs: [rows, tokens, width].
    """
    return float((ours.float() - theirs.float()).square().mean(dim=-1).sqrt().mean())
