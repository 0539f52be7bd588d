"""Encodings that differ from layer to layer, in a notation of their own.

layers(rope, rope, rope, nope)
    one for each layer; a model of more layers repeats them
every(4, nope)
    the named encoding in every fourth layer; RoPE, or a third argument, in the others
window(rope, 64)
    only the last 64 tokens are seen, the token itself among them
log_scaled(nope)
    queries times 1 + 0.1 ln(1 + floor((position + 1) / trained length))
ssmax(nope)
    queries times s ln(tokens seen), s learned for each head
forget(rope)
    gates of each token, computed from the text, lower scores of all tokens before it
rounded(rope, angle=bfloat16)
    trained under a cast, a preset of `ropelab precision` or stages
rope(base=500000, share=0.25)
    with parameters; `fast` is the share of pairs that rotate
"""

# NoPE layers: Llama 4, SmolLM3, RNoPE-SWA (arXiv:2501.18795). Temperature: Llama 4's
# floor_scale 8192 and attn_scale 0.1. Scalable softmax: Nakanishi 2025,
# arXiv:2501.19399. forget(nope): `fox`.

import math
from collections.abc import Sequence

import torch
from torch import nn

from ropelab.math.methods import split_call
from ropelab.math.numerics.casts import EXACT
from ropelab.math.numerics.keys import Rounding, parse_rounding
from ropelab.models.encoding.base import (
    Around,
    Encoding,
    Heads,
    PerLayer,
    Positions,
    Scores,
    list_parts,
)
from ropelab.models.encoding.from_input import Forget
from ropelab.models.encoding.registry import (
    Shape,
    build_encoding,
    drawing_from,
    record_of,
)
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.rounded import NATIVE, RoundedRope
from ropelab.runs.config import LARGEST
from ropelab.runs.errors import InputError
from ropelab.runs.files import table_beside
from ropelab.runs.spelling import read_number, read_plain_number

# Llama 4's attn_scale.
TEMPERATURE = 0.1
# How each form of the notation is written, and its least and greatest number of
# arguments.
EXAMPLES = table_beside(__file__)


class Windowed(Around):
    """Attention to the last `tokens` tokens only."""

    def __init__(self, inner: Encoding, tokens: int) -> None:
        super().__init__(inner)
        self.tokens = tokens
        self.fused = False

    def scores(
        self,
        q: Heads,
        k: Heads,
        at_q: Positions,
        at_k: Positions,
    ) -> Scores:
        scores = super().scores(q, k, at_q, at_k)
        distance = at_q[:, None] - at_k[None, :]
        is_hidden = distance >= self.tokens
        return scores.masked_fill(is_hidden, float("-inf"))


class LogScaled(Around):
    """Sharper attention by Llama 4's rule: it begins where the trained length ends."""

    def __init__(self, inner: Encoding, trained_len: int) -> None:
        super().__init__(inner)
        self.trained_len = trained_len

    def query(self, q: Heads, positions: Positions) -> Heads:
        trained_lengths = (positions + 1) // self.trained_len
        growth = trained_lengths.float().log1p()[:, None]
        scale = 1 + TEMPERATURE * growth
        return super().query(q, positions) * scale.to(q.dtype)


class ScalableSoftmax(Around):
    """Scores times s ln(n) for n tokens seen; s of each head is learned."""

    def __init__(self, inner: Encoding, heads: int, trained_len: int) -> None:
        super().__init__(inner)
        # With this s, attention over as many tokens as the trained length starts as
        # ordinary attention.
        start = 1 / math.log(trained_len)
        self.s = nn.Parameter(torch.full((heads, 1, 1), start))

    def query(self, q: Heads, positions: Positions) -> Heads:
        seen = positions + 1
        scale = self.s * seen.float().log()[:, None]
        return super().query(q, positions) * scale.to(q.dtype)


def compose(text: str, shape: Shape, seed: int = 0) -> Encoding:
    """Return the encoding of a name or of the notation above.

    Its parameters are drawn from `seed` only. InputError: it cannot be parsed.
    """
    with drawing_from(seed):
        encoding = _parse(text.strip(), shape)
        if isinstance(encoding, PerLayer) or "(" not in text:
            return encoding
        # Every layer gets parameters of its own.
        return PerLayer(_parse_for_layer(text, shape) for _ in range(shape.layers))


def _parse(text: str, shape: Shape) -> Encoding:
    name, arguments = split_call(text)
    if name not in EXAMPLES:
        return _parse_named(text, shape)

    example, least, most = EXAMPLES[name]
    if not least <= len(arguments) <= most:
        raise InputError(f"cannot read '{text}': write it as {example}")
    if name == "layers":
        return _build_layers(text, arguments, shape)
    if name == "every":
        return _build_every(text, arguments, shape)

    inner = _parse_for_layer(arguments[0], shape)
    if name == "rounded":
        return _round(text, inner, parse_rounding(arguments[1]))
    if name == "window":
        return Windowed(inner, _parse_whole(text, arguments[1]))
    if name == "ssmax":
        return ScalableSoftmax(inner, shape.heads, shape.trained_len)
    if name == "forget":
        return Forget(inner, shape.width, shape.heads)
    return LogScaled(inner, shape.trained_len)


def _parse_named(text: str, shape: Shape) -> Encoding:
    """Build one encoding of a record, or of one's own, with its parameters."""
    name, arguments = split_call(text)
    # A wrong name is reported before wrong parameters.
    record_of(name)

    options: dict[str, float] = {}
    for argument in arguments:
        key, equal, value = (part.strip() for part in argument.partition("="))
        if not equal:
            raise InputError(
                f"cannot read '{text}': write parameters as in rope(base=500000)"
            )
        if key in options:
            raise InputError(f"'{text}': {key} is given twice")
        options[key] = _parse_number(text, value)
    return build_encoding(name, shape, options)


def _build_every(text: str, arguments: Sequence[str], shape: Shape) -> PerLayer:
    """Build `every(count, encoding)`: the encoding in each last of `count` layers, and
    RoPE, or a third argument, in those before.
    """
    count = _parse_whole(text, arguments[0])
    _check_count(text, count, shape)
    others = "rope"
    if len(arguments) > 2:
        others = arguments[2]
    texts = [others] * (count - 1)
    texts.append(arguments[1])
    return _build_layers(text, texts, shape)


def _build_layers(text: str, texts: Sequence[str], shape: Shape) -> PerLayer:
    """Build the encoding of each layer; a model of more layers repeats the texts."""
    count = len(texts)
    _check_count(text, count, shape)
    layers = []
    for layer in range(shape.layers):
        layers.append(_parse_for_layer(texts[layer % count], shape))
    return PerLayer(layers)


def _check_count(text: str, count: int, shape: Shape) -> None:
    if shape.layers % count:
        raise InputError(
            f"'{text}' is for {count} layers or a multiple, and the model has"
            f" {shape.layers} (--layers)"
        )


def _parse_for_layer(text: str, shape: Shape) -> Encoding:
    """Build an encoding that stands in one layer; InputError if it cannot."""
    name, _ = split_call(text)
    if name in ("layers", "every"):
        raise InputError(f"'{text}' is of several layers and stands for one")

    encoding = _parse(text, shape).for_layer(0)
    for part in list_parts(encoding):
        if type(part).embed not in (Encoding.embed, Around.embed):
            raise InputError(f"'{text}' acts on the embeddings, before any layer")
    return encoding


def _round(text: str, inner: Encoding, rounding: Rounding) -> Encoding:
    # Gradients pass through products and scores, so that torch has to round these. It
    # has few formats.
    formats = {rounding.cast.rotation.name, rounding.cast.score.name}
    trainable = formats <= {EXACT.name, *NATIVE}
    rotates = type(inner) is Rope and inner.plan.inv_freq[1:].any()
    if not (rotates and trainable):
        raise InputError(
            f"'{text}' needs a rope that rotates, its products in one of"
            f" {', '.join(NATIVE)}"
        )
    assert isinstance(inner, Rope)
    inv_freq = inner.plan.inv_freq
    base = inv_freq[1] ** -inv_freq.size
    return RoundedRope(inner, rounding, base)


def _parse_number(text: str, value: str) -> float:
    try:
        return float(read_plain_number(value))  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"'{text}': {value!r} {error}") from None


def _parse_whole(text: str, value: str) -> int:
    try:
        number = float(read_number(value))  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"'{text}': {value!r} {error}") from None
    if not (1 <= number <= LARGEST and number.is_integer()):
        raise InputError(f"'{text}' needs a whole number from 1 on, not {value!r}")
    return int(number)
