"""The formats in which a KV cache stores keys, and the errors that they cause.

A format has a number type, a set of numbers that share one scale, and a place before or
after RoPE:

    fp8_e4m3, fp8_e5m2   x / scale is rounded to float8. The scale takes the largest |x| to
                         the largest value of float8. There is one scale per tensor, head
                         or block (32 neighbouring features of a key).
    int8, int4, int3     x is rounded to 2^b equal steps from the smallest to the largest
                         value. There is one range per token (and head), channel (a
                         feature over all tokens) or group (a feature over 32 tokens).
    q8_0, q4_0           These are llama.cpp's blocks of 32 features, computed in float32
                         with a float16 scale.

`q4_0` rounds keys after they are rotated by RoPE, `q4_0(before)` before they are. With
`hadamard` keys are multiplied by a normalised Hadamard matrix while they are stored.
`moved=8x256` is llama.cpp's K-shift: keys are read, rotated back by 256 positions and
stored again, 8 times. The scales of tensors, heads and channels are computed from all
keys at hand, as if they had been calibrated on these keys.

`key_errors` measures the effect on random keys. These keys are standard normal, with an
offset, as keys of real models have it in a few features of slow pairs
(arXiv:2503.01832). Here the first feature of each of the slowest eighth of the pairs
has the same offset in every key.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ropelab.math.numerics.casts import PRESETS, CastPlan, find_preset, parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError, check_known
from ropelab.runs.spelling import read_format, split_list
from ropelab.runs.stats import average_samples

# The number of features in a block, and of tokens in a group.
BLOCK = 32
# The number of random keys in `key_errors`.
RANDOM_KEYS = 512
# The sets of numbers that may share a scale, for each number type. The first set is the
# default.
SCALE_SETS: dict[str, tuple[str, ...]] = {
    "fp8_e4m3": ("tensor", "head", "block"),
    "fp8_e5m2": ("tensor", "head", "block"),
    "int8": ("token", "channel", "group"),
    "int4": ("token", "channel", "group"),
    "int3": ("token", "channel", "group"),
    "q8_0": ("block",),
    "q4_0": ("block",),
}
# The float8 formats. Numbers beyond the largest value become the largest value, as in
# KV caches.
FLOAT8_FORMATS = {
    "fp8_e4m3": FORMATS["float8_e4m3fn_saturating"],
    "fp8_e5m2": FORMATS["float8_e5m2_saturating"],
}
# The axes of keys [heads, tokens, features] along which numbers share a scale. Blocks
# and groups are not here: `_round_blocks` gives them a separate axis.
SCALE_AXES = {
    "tensor": (-3, -2, -1),
    "head": (-2, -1),
    "channel": (-2,),
    "token": (-1,),
}
# The notation of K-shifts: how many times keys are moved, and by how many tokens each
# time.
MOVED = re.compile(r"moved=([1-9]\d{0,3})x([1-9]\d{0,5})")

Keys = Float[np.ndarray, "*batch heads tokens width"]


@dataclass(frozen=True)
class KeyFormat:
    # The number type, a key of SCALE_SETS.
    number: str
    # The set of numbers that share a scale.
    shared: str
    # True if keys are rounded before RoPE rotates them.
    before: bool = False
    # True if keys are multiplied by a Hadamard matrix while they are stored.
    hadamard: bool = False
    # The number of K-shifts, and the positions by which each moves keys back.
    moves: int = 0
    step: int = 0

    @property
    def label(self) -> str:
        """The format as `parse_keys` reads it, without the defaults."""
        words = []
        if self.shared != SCALE_SETS[self.number][0]:
            words.append(self.shared)
        if self.before:
            words.append("before")
        if self.hadamard:
            words.append("hadamard")
        if self.moves:
            words.append(f"moved={self.moves}x{self.step}")
        if not words:
            return self.number
        return f"{self.number}({', '.join(words)})"

    def check(self, width: int) -> None:
        """Raise InputError if heads of `width` features cannot be cut into blocks."""
        if self.shared == "block" and width % BLOCK:
            raise InputError(
                f"{self.label} has blocks of {BLOCK} features, heads have {width}"
            )

    def store(self, keys: Keys) -> Keys:
        """Return float64 keys as they are read back after they were stored.

        InputError: heads of this width cannot be cut into blocks.
        """
        width = keys.shape[-1]
        self.check(width)
        if not self.hadamard:
            return self._round_blocks(keys)

        # The size of the matrix is the largest power of two that divides the width.
        size = width & -width
        matrix = hadamard_matrix(size)
        # [..., tokens, width / size, size]
        multiplied = keys.reshape(*keys.shape[:-1], -1, size) @ matrix
        stored = self._round_blocks(multiplied.reshape(keys.shape))
        # The inverse of an orthogonal matrix is its transpose.
        restored = stored.reshape(multiplied.shape) @ matrix.T
        return np.asarray(restored.reshape(keys.shape))

    def _round_blocks(self, keys: Keys) -> Keys:
        """Round keys in a shape in which numbers along known axes share a scale."""
        if self.shared == "block":
            # [..., tokens, blocks, features of a block]
            blocks = keys.reshape(*keys.shape[:-1], -1, BLOCK)
            rounded = self._round_with_scale(blocks, (-1,))
            return rounded.reshape(keys.shape)

        if self.shared == "group":
            tokens = keys.shape[-2]
            width = keys.shape[-1]
            # Copies of the last token fill the last group, whose smallest and largest
            # values stay as they are.
            missing_tokens = -tokens % BLOCK
            copies = np.repeat(keys[..., -1:, :], missing_tokens, axis=-2)
            filled = np.concatenate((keys, copies), axis=-2)
            # [..., groups, tokens of a group, width]
            groups = filled.reshape(*keys.shape[:-2], -1, BLOCK, width)
            rounded = self._round_with_scale(groups, (-2,))
            return rounded.reshape(filled.shape)[..., :tokens, :]

        return self._round_with_scale(keys, SCALE_AXES[self.shared])

    def _round_with_scale(
        self,
        x: Float[np.ndarray, "..."],
        axes: tuple[int, ...],
    ) -> np.ndarray:
        """Round numbers that share a scale along some axes."""
        if self.number.startswith("fp8"):
            fmt = FLOAT8_FORMATS[self.number]
            largest = np.abs(x).max(axes, keepdims=True)
            # The scale of a set of zeros is undefined, and any scale keeps its zeros.
            scale = np.where(largest == 0, 1.0, largest / fmt.largest)
            return round_to(x / scale, fmt) * scale

        if self.number.startswith("int"):
            bits = int(self.number.removeprefix("int"))
            low = x.min(axes, keepdims=True)
            high = x.max(axes, keepdims=True)
            step = (high - low) / (2**bits - 1)
            # A step of 0, between equal numbers, cannot be a divisor.
            step = np.where(high == low, 1.0, step)
            steps = np.rint((x - low) / step)
            return np.asarray(low + steps * step)

        singles = x.astype(np.float32)
        return _round_as_ggml(singles, self.number).astype(np.float64)


def hadamard_matrix(size: int) -> Float[np.ndarray, "size size"]:
    """Return Sylvester's Hadamard matrix for a power of two, divided by sqrt(size).

    H(1) = 1, and H(2 n) = [[H(n), H(n)], [H(n), -H(n)]].
    """
    smallest = np.array([[1, 1], [1, -1]])
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.kron(smallest, matrix) / np.sqrt(2)
    return matrix


def _round_as_ggml(
    x: Float[np.ndarray, "... 32"],
    number: str,
) -> Float[np.ndarray, "... 32"]:
    """Round blocks as ggml-quants.c does in quantize_row_q8_0_ref and
    quantize_row_q4_0_ref.
    """
    # The number farthest from 0 in each block, with its sign: [..., 1].
    place = np.abs(x).argmax(-1)[..., None]
    extreme = np.take_along_axis(x, place, -1)
    if number == "q8_0":
        scale = np.abs(extreme) / np.float32(127)
    else:
        # The codes -8 to 7 have no 8, so that the extreme number gets the code -8.
        scale = extreme / np.float32(-8)
    # A block of zeros has scale 0 and stays zero.
    inverse = np.zeros_like(scale)
    np.divide(1, scale, out=inverse, where=scale != 0)
    product = x * inverse

    if number == "q8_0":
        # C's roundf rounds halves away from zero, and NumPy's rint to even numbers.
        magnitude = np.abs(product)
        whole = np.floor(magnitude)
        # 1 if the rest is one half or more, else 0.
        carry = np.floor(2 * (magnitude - whole))
        code = np.sign(product) * (whole + carry)
    else:
        # The code is truncated as an unsigned number from 0 to 15, then shifted by 8.
        code = np.trunc(product + np.float32(8.5))
        code = np.minimum(code, 15) - 8

    stored_scale = scale.astype(np.float16).astype(np.float32)
    return np.asarray(code * stored_scale, dtype=np.float32)


def is_format_of_keys(text: str) -> bool:
    """Return True for a text that begins with a number type of keys.

    `parse_keys` then reads the text, or finds a mistake in its brackets.
    """
    number, _, _ = text.partition("(")
    return number.strip() in SCALE_SETS


def parse_keys(text: str) -> KeyFormat:
    """Read `q4_0`, `fp8_e4m3(head)` or `int4(channel, before, hadamard)`.

    >>> parse_keys("int4(before,channel)").label, parse_keys("int8(token)").label
    ('int4(channel, before)', 'int8')
    """
    number, opening, after_opening = text.partition("(")
    number = check_known("format of keys", number.strip(), SCALE_SETS)
    in_brackets, closing, after_brackets = after_opening.partition(")")
    if bool(opening) != bool(closing) or after_brackets.strip():
        raise InputError(f"{text}: its brackets do not match")

    words = split_list(in_brackets)
    shared = [word for word in words if word in SCALE_SETS[number]]
    allowed = (*SCALE_SETS[number], "before", "hadamard", "moved=8x256")
    shifts = []
    for word in words:
        shift = MOVED.fullmatch(word)
        if shift:
            shifts.append(shift)
        else:
            check_known(f"word in {text}", word, allowed)

    if len(shared) > 1:
        raise InputError(
            f"{text}: keys share one kind of scale, not {' and '.join(shared)}"
        )
    repeated = [word for word in words if words.count(word) > 1]
    if repeated:
        raise InputError(f"{text}: {repeated[0]} is given twice")
    before = "before" in words
    # Keys that are stored before RoPE are not rotated back by a shift.
    if len(shifts) > 1 or (shifts and before):
        raise InputError(f"{text}: one moved=TIMESxTOKENS at most, and only after RoPE")

    moves = 0
    step = 0
    for shift in shifts:
        moves = int(shift[1])
        step = int(shift[2])
    return KeyFormat(
        number,
        shared=shared[0] if shared else SCALE_SETS[number][0],
        before=before,
        hadamard="hadamard" in words,
        moves=moves,
        step=step,
    )


class Rounding(NamedTuple):
    """A rounding during an evaluation: of stages of the rotation, or of stored keys.

    A cast plan (`CastPlan`) has the number format of each stage of the rotation.
    """

    name: str  # as typed
    cast: CastPlan = CastPlan()
    keys: KeyFormat | None = None
    first: int = 0  # the position of the first token

    @property
    def label(self) -> str:
        return f"{self.name} from {self.first}" if self.first else self.name

    @property
    def key(self) -> dict[str, object]:
        """Everything that the effect of the rounding depends on, as JSON can hold it."""
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
        return Rounding(text, find_preset(text).plan)

    stages = text.replace(":", "=").replace("+", ",")
    plan = parse_cast(stages)
    name = plan.label.replace(",", "+")
    return Rounding(name, plan)


class KeyErrors(NamedTuple):
    """Root mean square errors that stored keys cause."""

    # The error of a feature of each pair, where features have deviation 1.
    by_pair: Float[np.ndarray, " pairs"]
    # The error of a score and its confidence interval. Scores have deviation 1.
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
    """Return the errors of random keys at drawn positions below `length`.

    A key has all features of the head, since a cache stores it whole. `offset` is added
    to the first feature of the slowest pairs, in deviations. Of a partly rotated head the
    slowest pairs are those that do not rotate.
    """
    random = np.random.default_rng(seed)
    pairs = spectrum.head_pairs
    # [keys, first and second feature of a pair, pairs]
    keys, queries = random.standard_normal((2, RANDOM_KEYS, 2, pairs))
    slow_pairs = max(1, pairs // 8)
    keys[:, 0, -slow_pairs:] += offset
    positions = np.floor(random.random(RANDOM_KEYS) * length)
    chain = Chain(CastPlan(), Spectrum(spectrum.head_frequencies))

    def rotate(
        vectors: Float[np.ndarray, "n 2 pairs"],
        by_positions: Float[np.ndarray, " n"],
    ) -> np.ndarray:
        cos, sin = chain.table(by_positions)  # [pairs, n]
        first = vectors[:, 0]
        second = vectors[:, 1]
        rotated_first = first * cos.T - second * sin.T
        rotated_second = first * sin.T + second * cos.T
        return np.stack((rotated_first, rotated_second), axis=1)

    def store(
        vectors: Float[np.ndarray, "n 2 pairs"],
    ) -> Float[np.ndarray, "n 2 pairs"]:
        one_head = vectors.reshape(1, RANDOM_KEYS, 2 * pairs)
        return fmt.store(one_head).reshape(vectors.shape)

    exact_keys = rotate(keys, positions)
    if fmt.before:
        read_back = rotate(store(keys), positions)
    else:
        # Keys are first stored at higher positions. The K-shifts then bring them down
        # to `positions`.
        first_positions = positions + fmt.moves * fmt.step
        read_back = store(rotate(keys, first_positions))
        one_step_back = np.full(RANDOM_KEYS, -float(fmt.step))
        for _ in range(fmt.moves):
            read_back = store(rotate(read_back, one_step_back))
    errors = read_back - exact_keys

    # Queries have random directions, so that their own rotation would change nothing.
    products = (queries * errors).sum((1, 2))
    score_errors = products / np.sqrt(2 * pairs)
    mean_square = average_samples(score_errors**2)

    squares = (errors**2).mean((0, 1))
    by_pair = np.sqrt(squares)
    return KeyErrors(
        by_pair,
        score=float(np.sqrt(mean_square.value)),
        # The interval of a mean square may reach below 0.
        score_low=float(np.sqrt(max(0.0, mean_square.low))),
        score_high=float(np.sqrt(mean_square.high)),
    )
