"""The attention of a transformers model, patched for an encoding.

Attention is patched through an interface of transformers that most architectures call.
For a factor on scores (log n), queries are multiplied when they reach this interface.
Other distances for far keys (ReRoPE, Self-Extend) and rounded rotations replace the
model's own rotation, if `Capabilities` (ropelab/models/released/model.py) finds out
which features rotate.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from ropelab.math.rotary import Pairing
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.extended import Remapped
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.rounded import RoundedRope
from ropelab.models.lm.model import blocked_attention
from ropelab.models.released.facts import FULL
from ropelab.models.released.positions import Patch


class PatchedAttention:
    """The attention of a model's layers under a patch.

    If `by_layer_type` is True, layers with a window keep the model's rotation.
    """

    def __init__(self, patch: Patch, by_layer_type: bool) -> None:
        self.by_layer_type = by_layer_type
        self.rotates_last = patch.layout.rotates_last
        self.log_n = patch.log_n
        self.rotation = _change_pairing(patch.rotation, patch.layout.pairing)
        # The position of the first query. It is not 0 if a context is passed in parts.
        self.first_query = 0
        # True once a layer has called this attention.
        self.was_called = False

    def __call__(
        self,
        original: Any,
        module: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Any,
        **more: Any,
    ) -> Any:
        """Compute the attention of one layer.

        Args:
            original: the function that this attention replaces.
            module: the attention module of the layer.
            q: queries [batch, heads, queries, head_dim].
            k: keys; there may be fewer heads, and more keys than queries.
            v: values.
            mask: [batch, 1, queries, keys], True or 0 where a query may look; None: a
                query may look at its own key and all earlier keys.
            more: options of the interface of transformers.

        Returns:
            The output [batch, queries, heads, head_dim], and None in the place of the
            attention weights.
        """
        self.was_called = True
        queries = q.shape[2]
        stop = self.first_query + queries
        window = _find_window(module, more)
        if self.log_n is not None:
            # The factor follows from the number of tokens that a query sees, which is
            # at most the length of the window.
            q_positions = torch.arange(self.first_query, stop, device=q.device)
            if window is not None:
                q_positions = q_positions.clamp(max=window - 1)
            q = self.log_n.query(q, q_positions)

        keeps_rotation = self.by_layer_type and _find_layer_type(module, window) != FULL
        if self.rotation is None or keeps_rotation:
            return original(module, q, k, v, mask, **more)

        if self.rotates_last:
            # The encoding rotates the first features of a head. The features of queries
            # and of keys are rolled alike, which leaves the scores as they are.
            q = q.roll(self.rotation.rotary_dim, dims=-1)
            k = k.roll(self.rotation.rotary_dim, dims=-1)
        earlier_keys = k.shape[2] - queries
        first_key = self.first_query - earlier_keys
        k_positions = torch.arange(first_key, stop, device=q.device)
        q = self.rotation.query(q, k_positions[earlier_keys:])
        k = self.rotation.key(k, k_positions)
        if self.rotation.fused:
            return original(module, q, k, v, mask, **more)

        # Each head of queries gets a copy of the keys and values that it shares.
        heads_per_key = q.shape[1] // k.shape[1]
        k = k.repeat_interleave(heads_per_key, dim=1)
        v = v.repeat_interleave(heads_per_key, dim=1)
        # The encoding divides scores by sqrt(head_dim). The layer has another scale.
        width = q.shape[-1]
        scaling = more.get("scaling") or width**-0.5
        q = q * (scaling * width**0.5)

        masked_scores = _MaskedScores(
            self.rotation,
            mask,
            softcap=more.get("softcap"),
            earlier_keys=earlier_keys,
            first_key=first_key,
        )
        output = blocked_attention(masked_scores, q, k, v)
        return output.transpose(1, 2).contiguous(), None


def _change_pairing(
    rotation: Remapped | RoundedRope | None,
    pairing: Pairing,
) -> Remapped | RoundedRope | None:
    """Return a copy of an encoding that rotates other pairs of features."""
    if rotation is None:
        return None
    if isinstance(rotation, Remapped):
        rope = Rope(rotation.rope.plan, pairing)
        return type(rotation)(rope, *rotation.sizes)
    # A RoundedRope has a second rotation, which moves keys and needs the pairing, too.
    # So the encoding is built anew.
    rope = Rope(rotation.plan, pairing, rotation.softmax_factor)
    return RoundedRope(rope, rotation.rounding, rotation.base)


def _find_window(module: Any, options: Mapping[str, Any]) -> int | None:
    """Return the window of a layer in tokens; None if the layer has no window."""
    window = options.get("sliding_window") or getattr(module, "sliding_window", None)
    if isinstance(window, int) and window > 0:
        return window
    return None


def _find_layer_type(module: Any, window: int | None) -> str:
    """Return the type of a layer by the name that transformers has for it."""
    for name in ("layer_type", "attention_type"):
        layer_type = getattr(module, name, None)
        if layer_type and isinstance(layer_type, str):
            return layer_type
    # The module does not say its type.
    if window is not None:
        return "sliding_attention"
    return FULL


class _MaskedScores(Encoding):
    """Scores of an encoding, capped and masked as a layer of the model does it.

    `blocked_attention` counts positions from the first key that it is given, which is at
    the position `first_key` of the context.
    """

    def __init__(
        self,
        encoding: Encoding,
        mask: Any,
        softcap: float | None,
        earlier_keys: int,
        first_key: int,
    ) -> None:
        super().__init__()
        self.encoding = encoding
        self.mask = mask
        # The scores are kept between -softcap and softcap; None: the scores have no
        # limit.
        self.softcap = softcap

        # The number of keys before the first query.
        self.earlier_keys = earlier_keys
        self.first_key = first_key

    def scores(
        self,
        q: Tensor,
        k: Tensor,
        q_positions: Tensor,
        k_positions: Tensor,
    ) -> Tensor:
        scores = self.encoding.scores(
            q, k, q_positions + self.first_key, k_positions + self.first_key
        )
        scores = scores.float()
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if self.mask is None:
            return scores

        # The rows of the mask are the queries.
        rows = q_positions - self.earlier_keys
        mask = self.mask[:, :, rows, : len(k_positions)]
        if mask.dtype == torch.bool:
            return scores.masked_fill(~mask, -math.inf)
        return scores + mask


@contextmanager
def replacing_attention(model: Any, attention: PatchedAttention) -> Iterator[None]:
    """Let a model's layers call `attention` in the block.

    RuntimeError: no layer has called `attention`.
    """
    # transformers has tables of attention functions, and of functions that make masks for
    # them. A model's configuration names the entry that its layers use.
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    original_name = model.config._attn_implementation

    def attend(
        module: Any, q: Any, k: Any, v: Any, mask: Any = None, **more: Any
    ) -> Any:
        if original_name == "eager":
            # Each architecture has a function of this name in its file.
            original = sys.modules[type(module).__module__].eager_attention_forward
        else:
            original = ALL_ATTENTION_FUNCTIONS[original_name]
        return attention(original, module, q, k, v, mask, **more)

    name = f"ropelab_{original_name}"
    make_mask = ALL_MASK_ATTENTION_FUNCTIONS[original_name]
    ALL_ATTENTION_FUNCTIONS.register(name, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, make_mask)
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = original_name
    if not attention.was_called:
        raise RuntimeError("the layers do not call transformers' attention interface")
