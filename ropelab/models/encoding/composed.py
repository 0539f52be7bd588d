"""Encodings composed of others by a notation that users type, such as `every(4, nope)`.

rope(base=500000, share=0.25)
    an encoding with parameters: `share` of each head rotates, and with `fast` only that
    share of its pairs
layers(rope, rope, rope, nope)
    one encoding for each layer; a model of more layers repeats them
every(4, nope)
    the named encoding in every fourth layer; RoPE, or a third argument, in all other
    layers
window(rope, 64)
    a token sees only itself and the 63 tokens before it
log_scaled(nope)
    queries times 1 + 0.1 ln(1 + floor((position + 1) / trained length))
ssmax(nope)
    queries times s ln(n) for n tokens that a query sees; s is learned for each head
forget(rope)
    the gate of a token, computed from the text, lowers the scores of all tokens before
    it; forget(nope) is the encoding `fox`
rounded(rope, angle=bfloat16)
    RoPE with rounded stages, in training, too; the second argument is a preset of
    `ropelab precision`, or the formats of stages

`compose` parses a text and returns its encoding.
"""

# Layers without positions (NoPE): Llama 4, SmolLM3, RNoPE-SWA (arXiv:2501.18795).
# log_scaled: Llama 4's temperature, whose floor_scale is 8192, the trained length here.
# ssmax: scalable softmax, Nakanishi 2025, arXiv:2501.19399.

import math
from collections.abc import Sequence

import torch
from torch import nn

from ropelab.math.methods import split_call
from ropelab.math.numerics.casts import EXACT
from ropelab.math.numerics.keys import Rounding, parse_rounding
from ropelab.models.encoding.base import (
    Encoding,
    EncodingWrapper,
    Heads,
    PerLayer,
    Positions,
    Scores,
    list_nested_encodings,
)
from ropelab.models.encoding.from_input import Forget
from ropelab.models.encoding.registry import (
    Shape,
    build_encoding,
    drawing_from,
    find_record,
)
from ropelab.models.encoding.rope import Rope
from ropelab.models.encoding.rounded import NATIVE, RoundedRope
from ropelab.runs.config import LARGEST
from ropelab.runs.errors import InputError
from ropelab.runs.files import read_table_beside
from ropelab.runs.spelling import read_number, read_plain_number

# The factor 0.1 of `log_scaled`; attn_scale in the configuration of Llama 4.
TEMPERATURE = 0.1
# For each form of the notation an example for error messages, and the least and the
# greatest number of its arguments.
FORMS = read_table_beside(__file__)


class Windowed(EncodingWrapper):
    """Attention to the last `tokens` tokens only, the query's own among them."""

    def __init__(self, inner: Encoding, tokens: int) -> None:
        super().__init__(inner)
        self.tokens = tokens
        self.fused = False

    def scores(
        self,
        q: Heads,
        k: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        scores = super().scores(q, k, q_positions, k_positions)
        distance = q_positions[:, None] - k_positions[None, :]
        is_hidden = distance >= self.tokens
        return scores.masked_fill(is_hidden, float("-inf"))


class LogScaled(EncodingWrapper):
    """Llama 4's temperature: scores grow from the end of the trained length on."""

    def __init__(self, inner: Encoding, trained_len: int) -> None:
        super().__init__(inner)
        self.trained_len = trained_len

    def query(self, q: Heads, positions: Positions) -> Heads:
        trained_lengths = (positions + 1) // self.trained_len
        growth = trained_lengths.float().log1p()[:, None]
        scale = 1 + TEMPERATURE * growth
        return super().query(q, positions) * scale.to(q.dtype)


class ScalableSoftmax(EncodingWrapper):
    """Scores times s ln(n) for n tokens seen; s of each head is learned."""

    def __init__(self, inner: Encoding, heads: int, trained_len: int) -> None:
        super().__init__(inner)
        # With this s, the factor is 1 for a query that sees as many tokens as the trained
        # length.
        first_s = 1 / math.log(trained_len)
        self.s = nn.Parameter(torch.full((heads, 1, 1), first_s))

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
        is_plain_name = "(" not in text
        if isinstance(encoding, PerLayer) or is_plain_name:
            return encoding
        # The text is parsed again for each layer, so that no two layers share parameters.
        return PerLayer(_parse_for_layer(text, shape) for _ in range(shape.layers))


def _parse(text: str, shape: Shape) -> Encoding:
    name, arguments = split_call(text)
    if name not in FORMS:
        return _parse_named(text, shape)

    example, least, most = FORMS[name]
    if not least <= len(arguments) <= most:
        raise InputError(f"cannot read '{text}': write it as {example}")
    if name == "layers":
        return _build_layers(text, arguments, shape)
    if name == "every":
        return _build_every(text, arguments, shape)

    # All other forms change the encoding that is their first argument.
    inner = _parse_for_layer(arguments[0], shape)
    if name == "rounded":
        return _round(text, inner, parse_rounding(arguments[1]))
    if name == "window":
        return Windowed(inner, _parse_whole(text, arguments[1]))
    if name == "ssmax":
        return ScalableSoftmax(inner, shape.heads, shape.trained_len)
    if name == "forget":
        return Forget(inner, shape.width, shape.heads)
    assert name == "log_scaled"
    return LogScaled(inner, shape.trained_len)


def _parse_named(text: str, shape: Shape) -> Encoding:
    """Build an encoding from its name and parameters, such as rope(base=500000)."""
    name, arguments = split_call(text)
    # The name is checked first, so that a wrong name is reported before wrong
    # parameters.
    find_record(name)

    options: dict[str, float] = {}
    for argument in arguments:
        key, equals_sign, value = argument.partition("=")
        key = key.strip()
        if not equals_sign:
            raise InputError(
                f"cannot read '{text}': write parameters as in rope(base=500000)"
            )
        if key in options:
            raise InputError(f"'{text}': {key} is given twice")
        options[key] = _parse_number(text, value.strip())
    return build_encoding(name, shape, options)


def _build_every(text: str, arguments: Sequence[str], shape: Shape) -> PerLayer:
    """Build `every(count, encoding)` or `every(count, encoding, other_layers)`.

    In each group of `count` layers the last layer has the encoding. The layers before
    it have `other_layers`, or RoPE if `other_layers` is not given.
    """
    count = _parse_whole(text, arguments[0])
    _check_count(text, count, shape)
    last_of_group = arguments[1]
    other_layers = "rope"
    if len(arguments) > 2:
        other_layers = arguments[2]
    texts = [other_layers] * (count - 1)
    texts.append(last_of_group)
    return _build_layers(text, texts, shape)


def _build_layers(text: str, texts: Sequence[str], shape: Shape) -> PerLayer:
    """Build the encoding of each layer from its text.

    A model with more layers than there are texts repeats the texts.
    """
    count = len(texts)
    _check_count(text, count, shape)
    layers = []
    for layer in range(shape.layers):
        layers.append(_parse_for_layer(texts[layer % count], shape))
    return PerLayer(layers)


def _check_count(text: str, count: int, shape: Shape) -> None:
    """Raise InputError unless groups of `count` layers fill the model."""
    remaining_layers = shape.layers % count
    if remaining_layers:
        raise InputError(
            f"'{text}' is for {count} layers or a multiple, and the model has"
            f" {shape.layers} (--layers)"
        )


def _parse_for_layer(text: str, shape: Shape) -> Encoding:
    """Build an encoding for a single layer.

    InputError: the text describes several layers, or its encoding acts on the
    embeddings.
    """
    name, _ = split_call(text)
    if name in ("layers", "every"):
        raise InputError(f"'{text}' is of several layers and stands for one")

    # An encoding whose layers have parameters of their own is built for all layers; the
    # first of these encodings is used.
    encoding = _parse(text, shape).for_layer(0)
    for nested in list_nested_encodings(encoding):
        # The first of these does nothing, the second calls the inner encoding.
        inherited = (Encoding.embed, EncodingWrapper.embed)
        acts_on_embeddings = type(nested).embed not in inherited
        if acts_on_embeddings:
            raise InputError(f"'{text}' acts on the embeddings, before any layer")
    return encoding


def _round(text: str, inner: Encoding, rounding: Rounding) -> Encoding:
    """Build `rounded(inner, rounding)`."""
    # In training, gradients pass through the rotation and the scores. So torch itself
    # has to round them, and it can round only to the formats in NATIVE.
    formats = {rounding.cast.rotation.name, rounding.cast.score.name}
    is_trainable = formats <= {EXACT.name, *NATIVE}

    # The base is computed below from the second pair, which therefore must rotate.
    rotates = type(inner) is Rope and inner.plan.inv_freq[1:].any()
    if not (rotates and is_trainable):
        raise InputError(
            f"'{text}' needs a rope that rotates, its products in one of"
            f" {', '.join(NATIVE)}"
        )
    assert isinstance(inner, Rope)
    inv_freq = inner.plan.inv_freq

    # The frequency of the second of n pairs is base^(-1/n).
    base = inv_freq[1] ** -inv_freq.size
    return RoundedRope(inner, rounding, base)


def _parse_number(text: str, value: str) -> float:
    """Parse the value of a parameter; errors quote `text`, the whole encoding."""
    try:
        return float(read_plain_number(value))  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"'{text}': {value!r} {error}") from None


def _parse_whole(text: str, value: str) -> int:
    """Parse a number of layers or tokens; errors quote `text`, the whole encoding."""
    try:
        number = float(read_number(value))  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(f"'{text}': {value!r} {error}") from None
    if not (1 <= number <= LARGEST and number.is_integer()):
        raise InputError(f"'{text}' needs a whole number from 1 on, not {value!r}")
    return int(number)
