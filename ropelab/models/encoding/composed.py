"""Encodings that differ from layer to layer, in a notation of their own.

layers(rope, rope, rope, nope)  one for each layer; a model of more layers repeats them
every(4, nope)                  that one in every fourth layer, RoPE or a third argument
in others window(rope, 64)                only the last 64 tokens are seen, the token
itself among them log_scaled(nope)                queries times 1 + 0.1 ln(1 +
floor((position + 1) / trained length)) ssmax(nope)                     queries times s
ln(tokens seen), s learned for each head forget(rope)                    each token's
gates, read from the text, lower scores of all before rounded(rope, angle=bfloat16)
trained under a cast, a preset of `ropelab precision` or stages rope(base=500000,
share=0.25)   with parameters; `fast` is the share of pairs that rotate
"""

# NoPE layers: Llama 4, SmolLM3, RNoPE-SWA (arXiv:2501.18795). Temperature: Llama 4's
# floor_scale 8192 and attn_scale 0.1. Scalable softmax: Nakanishi 2025,
# arXiv:2501.19399. forget(nope): `fox`.

import math
from collections.abc import Callable

import torch
from torch import nn

from ropelab.math.methods import split_call
from ropelab.math.numerics.casts import EXACT
from ropelab.math.numerics.keys import Rounding, parse_rounding
from ropelab.models.encoding import base as hooks
from ropelab.models.encoding.base import (
    Around,
    Encoding,
    Heads,
    PerLayer,
    Positions,
    Scores,
)
from ropelab.models.encoding.from_input import Forget
from ropelab.models.encoding.registry import Shape, drawing_from, made, record_of
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.rounded import NATIVE, RoundedRope
from ropelab.runs.config import LARGEST
from ropelab.runs.errors import InputError
from ropelab.runs.files import table_beside
from ropelab.runs.spelling import read_number, read_plain_number

# Llama 4's attn_scale.
TEMPERATURE = 0.1
EXAMPLES = table_beside(__file__)


class Windowed(Around):
    """Nothing further back than the last `tokens` tokens is seen."""

    def __init__(self, inner: Encoding, tokens: int) -> None:
        super().__init__(inner)
        self.tokens, self.fused = tokens, False

    def scores(self, q: Heads, k: Heads, at_q: Positions, at_k: Positions) -> Scores:
        hidden = at_q[:, None] - at_k[None, :] >= self.tokens
        return super().scores(q, k, at_q, at_k).masked_fill(hidden, float("-inf"))


class LogScaled(Around):
    """Sharper attention by Llama 4's rule: it begins where the trained length ends."""

    def __init__(self, inner: Encoding, trained_len: int) -> None:
        super().__init__(inner)
        self.trained_len = trained_len

    def query(self, q: Heads, positions: Positions) -> Heads:
        scale = 1 + TEMPERATURE * ((positions + 1) // self.trained_len).float().log1p()
        return super().query(q, positions) * scale[:, None].to(q.dtype)


class ScalableSoftmax(Around):
    """Scores times s ln(n) for n tokens seen; s of each head is learned."""

    def __init__(self, inner: Encoding, heads: int, trained_len: int) -> None:
        super().__init__(inner)
        # It begins as ordinary attention at the trained length.
        self.s = nn.Parameter(torch.full((heads, 1, 1), 1 / math.log(trained_len)))

    def query(self, q: Heads, positions: Positions) -> Heads:
        scale = self.s * (positions + 1).float().log()[:, None]
        return super().query(q, positions) * scale.to(q.dtype)


def compose(text: str, shape: Shape, seed: int = 0) -> Encoding:
    """Return the encoding of a name or of the notation above; InputError if it cannot
    be read.
    """
    with drawing_from(seed):
        encoding = _read(text.strip(), shape)
        if isinstance(encoding, PerLayer) or "(" not in text:
            return encoding
        # A parameter of one's own in every layer.
        return PerLayer(_within(text, shape) for _ in range(shape.layers))


def _read(text: str, shape: Shape) -> Encoding:
    name, arguments = split_call(text)
    if name not in EXAMPLES:
        record_of(name)  # a wrong name first
        options: dict[str, float] = {}
        for argument in arguments:
            key, equal, value = (part.strip() for part in argument.partition("="))
            if not equal:
                raise InputError(
                    f"cannot read '{text}': write parameters as in rope(base=500000)"
                )
            if key in options:
                raise InputError(f"'{text}': {key} is given twice")
            options[key] = _number(text, value)
        return made(name, shape, options)
    example, least, most = EXAMPLES[name]
    if not least <= len(arguments) <= most:
        raise InputError(f"cannot read '{text}': write it as {example}")
    if name == "layers":
        return _layers(text, len(arguments), arguments.__getitem__, shape)
    if name == "every":
        each, last, other = [*arguments, "rope"][:3]
        count = _whole(text, each)
        return _layers(
            text, count, lambda number: last if number == count - 1 else other, shape
        )
    inner = _within(arguments[0], shape)
    if name == "rounded":
        return _rounded(text, inner, parse_rounding(arguments[1]))
    if name == "window":
        return Windowed(inner, _whole(text, arguments[1]))
    if name == "ssmax":
        return ScalableSoftmax(inner, shape.heads, shape.trained_len)
    if name == "forget":
        return Forget(inner, shape.width, shape.heads)
    return LogScaled(inner, shape.trained_len)


def _rounded(text: str, inner: Encoding, rounding: Rounding) -> Encoding:
    # What is rounded after the table lies between a loss and its gradients.
    after = {rounding.cast.rotation.name, rounding.cast.score.name} - {
        EXACT.name,
        *NATIVE,
    }
    if type(inner) is not Rope or not inner.plan.inv_freq[1:].any() or after:
        formats = ", ".join(NATIVE)
        raise InputError(
            f"'{text}' needs a rope that rotates, its products in one of {formats}"
        )
    return RoundedRope(
        inner, rounding, inner.plan.inv_freq[1] ** -inner.plan.inv_freq.size
    )


def _layers(text: str, count: int, of: Callable[[int], str], shape: Shape) -> PerLayer:
    if shape.layers % count:
        raise InputError(
            f"'{text}' is for {count} layers or a multiple, and the model has"
            f" {shape.layers} (--layers)"
        )
    return PerLayer(_within(of(n % count), shape) for n in range(shape.layers))


def _within(text: str, shape: Shape) -> Encoding:
    if split_call(text)[0] in ("layers", "every"):
        raise InputError(f"'{text}' is of several layers and stands for one")
    encoding = _read(text, shape).for_layer(0)
    if {type(part).embed for part in hooks.parts_of(encoding)} - {
        Encoding.embed,
        Around.embed,
    }:
        raise InputError(f"'{text}' acts on the embeddings, before any layer")
    return encoding


def _number(
    text: str, value: str, read: Callable[[object], object] = read_plain_number
) -> float:
    try:
        return float(read(value))  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"'{text}': {value!r} {error}") from None


def _whole(text: str, value: str) -> int:
    number = _number(text, value, read_number)
    if not (1 <= number <= LARGEST and number.is_integer()):
        raise InputError(f"'{text}' needs a whole number from 1 on, not {value!r}")
    return int(number)
