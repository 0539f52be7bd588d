"""The formats of stored keys: numbers, what shares a scale, and where RoPE acts.

    fp8_e4m3, fp8_e5m2   x / scale rounded to float8, the largest |x| at the format's largest value;
                         one scale per tensor, head or block (32 neighbouring features of a key)
    int8, int4, int3     2^b equal steps from the smallest to the largest; one range per token (and
                         head), channel (a feature over all tokens) or group (a feature over 32)
    q8_0, q4_0           llama.cpp's blocks of 32 features, in float32 with a float16 scale

`q4_0` rounds keys as they enter the dot product, `q4_0(before)` before they are
rotated, and with `hadamard` they are multiplied by a normalised Hadamard matrix while
they are stored. `moved=8x256` is a K-shift: 8 times keys are read, rotated back by 256
positions and stored again. The scales of tensors, heads and channels are those of all
keys at hand, as if they were calibrated on them.

`key_errors` are the effects on random keys, standard normal but for the offsets that
keys of real models have in a few features of slow pairs (arXiv:2503.01832): here in the
first feature of the slowest eighth of the pairs, the same in every key.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ropelab.math.numerics.casts import PRESETS, CastPlan, parse_cast, preset_named
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError, known
from ropelab.runs.spelling import read_format, split_list
from ropelab.runs.stats import mean_interval

BLOCK = 32
# Random keys, at drawn positions.
COUNT = 512
# The sets of keys that may share a scale, by number; the usual one is first.
SHARED: dict[str, tuple[str, ...]] = {
    "fp8_e4m3": ("tensor", "head", "block"),
    "fp8_e5m2": ("tensor", "head", "block"),
    "int8": ("token", "channel", "group"),
    "int4": ("token", "channel", "group"),
    "int3": ("token", "channel", "group"),
    "q8_0": ("block",),
    "q4_0": ("block",),
}
# The formats of numbers of 8 bits.
SATURATING = {
    "fp8_e4m3": FORMATS["float8_e4m3fn_saturating"],
    "fp8_e5m2": FORMATS["float8_e5m2_saturating"],
}
# The axes of [head, tokens, features] in such a set; blocks are features on an axis of
# their own.
AXES = {
    "tensor": (-3, -2, -1),
    "head": (-2, -1),
    "channel": (-2,),
    "token": (-1,),
}
# Times and tokens of K-shifts.
MOVED = re.compile(r"moved=([1-9]\d{0,3})x([1-9]\d{0,5})")

Keys = Float[np.ndarray, "*batch heads tokens width"]


@dataclass(frozen=True)
class KeyFormat:
    number: str
    shared: str
    # Rounded before RoPE; rotated by a Hadamard matrix.
    before: bool = False
    rotated: bool = False
    # Times that keys were moved back, each time by `step` positions.
    moves: int = 0
    step: int = 0

    @property
    def label(self) -> str:
        """The format as `parse_keys` reads it, without what is usual."""
        words = []
        if self.shared != SHARED[self.number][0]:
            words.append(self.shared)
        if self.before:
            words.append("before")
        if self.rotated:
            words.append("hadamard")
        if self.moves:
            words.append(f"moved={self.moves}x{self.step}")
        if not words:
            return self.number
        return f"{self.number}({', '.join(words)})"

    def check(self, width: int) -> None:
        """Raise InputError for heads of so many features that do not fit."""
        if self.shared == "block" and width % BLOCK:
            raise InputError(
                f"{self.label} has blocks of {BLOCK} features, heads have {width}"
            )

    def store(self, keys: Keys) -> Keys:
        """Return float64 keys as they are read back.

        InputError: heads of this width do not fit.
        """
        width = keys.shape[-1]
        self.check(width)
        if not self.rotated:
            return self._round_blocks(keys)

        # The largest power of two that divides the width.
        size = width & -width
        matrix = hadamard_matrix(size)
        rotated = keys.reshape(*keys.shape[:-1], -1, size) @ matrix
        stored = self._round_blocks(rotated.reshape(keys.shape))
        back = stored.reshape(rotated.shape) @ matrix.T
        return np.asarray(back.reshape(keys.shape))

    def _round_blocks(self, keys: Keys) -> Keys:
        if self.shared == "block":
            blocks = keys.reshape(*keys.shape[:-1], -1, BLOCK)
            rounded = self._round_with_scale(blocks, (-1,))
            return rounded.reshape(keys.shape)

        if self.shared == "group":
            tokens = keys.shape[-2]
            width = keys.shape[-1]
            # The last token again fills the last group: the range stays what it is.
            missing = -tokens % BLOCK
            last = np.repeat(keys[..., -1:, :], missing, axis=-2)
            filled = np.concatenate((keys, last), axis=-2)
            groups = filled.reshape(*keys.shape[:-2], -1, BLOCK, width)
            rounded = self._round_with_scale(groups, (-2,))
            return rounded.reshape(filled.shape)[..., :tokens, :]

        return self._round_with_scale(keys, AXES[self.shared])

    def _round_with_scale(
        self,
        x: Float[np.ndarray, "..."],
        axes: tuple[int, ...],
    ) -> np.ndarray:
        """Round with one scale along some axes."""
        if self.number.startswith("fp8"):
            fmt = SATURATING[self.number]
            largest = np.abs(x).max(axes, keepdims=True)
            scale = np.where(largest == 0, 1.0, largest / fmt.largest)
            return round_to(x / scale, fmt) * scale

        if self.number.startswith("int"):
            bits = int(self.number[3:])
            low = x.min(axes, keepdims=True)
            high = x.max(axes, keepdims=True)
            step = (high - low) / (2**bits - 1)
            step = np.where(high == low, 1.0, step)
            steps = np.rint((x - low) / step)
            return np.asarray(low + steps * step)

        singles = x.astype(np.float32)
        return _round_as_ggml(singles, self.number).astype(np.float64)


def hadamard_matrix(size: int) -> Float[np.ndarray, "size size"]:
    """Return the normalised Hadamard matrix of a power of two (Sylvester's)."""
    smallest = np.array([[1, 1], [1, -1]])
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.kron(smallest, matrix) / np.sqrt(2)
    return matrix


def _round_as_ggml(
    x: Float[np.ndarray, "... 32"],
    number: str,
) -> Float[np.ndarray, "... 32"]:
    """Round blocks as quantize_row_q8_0_ref and quantize_row_q4_0_ref do.

    They are in ggml-quants.c.
    """
    # The number of the largest size, with its sign.
    place = np.abs(x).argmax(-1)[..., None]
    extreme = np.take_along_axis(x, place, -1)
    if number == "q8_0":
        scale = np.abs(extreme) / np.float32(127)
    else:
        scale = extreme / np.float32(-8)
    # A block of zeros stays one.
    inverse = np.zeros_like(scale)
    np.divide(1, scale, out=inverse, where=scale != 0)
    product = x * inverse

    if number == "q8_0":
        # roundf rounds halves away from zero.
        size = np.abs(product)
        whole = np.floor(size)
        half = np.floor(2 * (size - whole))
        code = np.sign(product) * (whole + half)
    else:
        code = np.trunc(product + np.float32(8.5))
        code = np.minimum(code, 15) - 8

    stored_scale = scale.astype(np.float16).astype(np.float32)
    return np.asarray(code * stored_scale, dtype=np.float32)


def is_format_of_keys(text: str) -> bool:
    """Return True for words that `parse_keys` reads, or finds a mistake in."""
    number, _, _ = text.partition("(")
    return number.strip() in SHARED


def parse_keys(text: str) -> KeyFormat:
    """Read `q4_0`, `fp8_e4m3(head)` or `int4(channel, before, hadamard)`.

    >>> parse_keys("int4(before,channel)").label, parse_keys("int8(token)").label
    ('int4(channel, before)', 'int8')
    """
    number, bracket, inside = text.partition("(")
    number = known("format of keys", number.strip(), SHARED)
    inside, closed, more = inside.partition(")")
    if bool(bracket) != bool(closed) or more.strip():
        raise InputError(f"{text}: its brackets do not match")

    words = split_list(inside)
    shared = [word for word in words if word in SHARED[number]]
    allowed = (*SHARED[number], "before", "hadamard", "moved=8x256")
    moved = []
    for word in words:
        times_and_step = MOVED.fullmatch(word)
        if times_and_step:
            moved.append(times_and_step)
        else:
            known(f"word in {text}", word, allowed)

    if len(shared) > 1:
        raise InputError(
            f"{text}: keys share one kind of scale, not {' and '.join(shared)}"
        )
    repeated = [word for word in words if words.count(word) > 1]
    if repeated:
        raise InputError(f"{text}: {repeated[0]} is given twice")
    before = "before" in words
    # Keys that are stored before RoPE are not rotated back by a shift.
    if len(moved) > 1 or (moved and before):
        raise InputError(f"{text}: one moved=TIMESxTOKENS at most, and only after RoPE")

    moves = 0
    step = 0
    if moved:
        moves = int(moved[0][1])
        step = int(moved[0][2])
    return KeyFormat(
        number,
        shared=shared[0] if shared else SHARED[number][0],
        before=before,
        rotated="hadamard" in words,
        moves=moves,
        step=step,
    )


class Rounding(NamedTuple):
    """A rounding during an evaluation: of stages of the rotation, or of stored keys."""

    name: str  # as typed
    cast: CastPlan = CastPlan()
    keys: KeyFormat | None = None
    first: int = 0  # the position of the first token

    @property
    def label(self) -> str:
        return f"{self.name} from {self.first}" if self.first else self.name

    @property
    def key(self) -> dict[str, object]:
        """Everything that its effect depends on, json-able."""
        key: dict[str, object] = {"cast": self.cast.label}
        if self.keys:
            key["keys"] = self.keys.label
        if self.first:
            key["first"] = self.first
        return key

    @property
    def rounds(self) -> bool:
        return self.cast != CastPlan() or self.keys is not None


def parse_rounding(text: str) -> Rounding:
    """Read a preset, a format of all stages, or stages: `angle:tf32`,
    `position=bfloat16+table=float16`.
    """
    # Some presets have the names of formats.
    if text not in PRESETS and read_format(text) in FORMATS:
        return Rounding(text, parse_cast(text))
    is_preset = ":" not in text and "=" not in text
    if is_preset:
        return Rounding(text, preset_named(text).plan)

    stages = text.replace(":", "=").replace("+", ",")
    plan = parse_cast(stages)
    name = plan.label.replace(",", "+")
    return Rounding(name, plan)


class KeyErrors(NamedTuple):
    """Root mean square errors of stored keys, with the interval of that of a score."""

    # Over the deviation of the features.
    by_pair: Float[np.ndarray, " pairs"]
    # Scores of features without an offset have deviation 1.
    score: float
    score_low: float
    score_high: float


def key_errors(
    fmt: KeyFormat,
    spectrum: Spectrum,
    length: int,
    seed: int,
    offset: float = 0.0,
) -> KeyErrors:
    """Return the errors of keys at `length` positions.

    `offset` is in deviations of a feature.
    """
    random = np.random.default_rng(seed)
    pairs = spectrum.pairs
    key, query = random.standard_normal((2, COUNT, 2, pairs))
    slowest = max(1, pairs // 8)
    key[:, 0, -slowest:] += offset
    positions = np.floor(random.random(COUNT) * length)
    chain = Chain(CastPlan(), spectrum)

    def rotate(
        x: Float[np.ndarray, "n 2 pairs"],
        by: Float[np.ndarray, " n"],
    ) -> np.ndarray:
        cos, sin = chain.table(by)
        one = x[:, 0]
        two = x[:, 1]
        rotated_one = one * cos.T - two * sin.T
        rotated_two = one * sin.T + two * cos.T
        return np.stack((rotated_one, rotated_two), axis=1)

    def store(x: Float[np.ndarray, "n 2 pairs"]) -> Float[np.ndarray, "n 2 pairs"]:
        heads = x.reshape(1, COUNT, 2 * pairs)
        return fmt.store(heads).reshape(x.shape)

    exact = rotate(key, positions)
    if fmt.before:
        read = rotate(store(key), positions)
    else:
        first_positions = positions + fmt.moves * fmt.step
        read = store(rotate(key, first_positions))
        back = np.full(COUNT, -float(fmt.step))
        for _ in range(fmt.moves):
            read = store(rotate(read, back))
    error = read - exact

    # Queries of random directions: their own rotation changes nothing.
    products = (query * error).sum((1, 2))
    score = products / np.sqrt(2 * pairs)
    squared = mean_interval(score**2)

    squares = (error**2).mean((0, 1))
    by_pair = np.sqrt(squares)
    return KeyErrors(
        by_pair,
        score=float(np.sqrt(squared.value)),
        score_low=float(np.sqrt(max(0.0, squared.low))),
        score_high=float(np.sqrt(squared.high)),
    )
