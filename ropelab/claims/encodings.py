"""Checks of claims that compare encodings of positions: the numbers that they train and
keep, their scores, their work, and heads.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).

Queries and keys are [1, heads, tokens, head_dim].
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ropelab.claims.arrays import gaussian, max_abs, write_zero
from ropelab.claims.periods import count_codes, make_rope_frequencies
from ropelab.claims.published.precision import find_worst_angle
from ropelab.claims.record import Findings, claim
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.models.encoding.relative import TransformerXL
from ropelab.runs.thresholds import ANGLE_RAD, ROUNDING, SLOW

# The small model in which encodings are compared: its trained length, layers, heads, and
# the features of a head.
LENGTH = 512
LAYERS = 4
HEADS = 4
HEAD = 32
# The words for the measure by which the work of encodings is compared.
WORK = (
    f"additions and multiplications of the scores of {LENGTH} tokens, {HEADS} heads of"
    f" {HEAD}, plain attention is 1"
)
ATEN = torch.ops.aten
# Operations on each element of two tensors, or of one. torch counts only matrix products;
# these are counted, too.
ON_TWO_TENSORS = (ATEN.mul, ATEN.add, ATEN.sub, ATEN.div)
ON_ONE_TENSOR = (ATEN.neg,)


def count_elements(*shapes: Any, out_shape: Sequence[int], **_: Any) -> int:
    """Count the operations of one call; torch gives shapes in the place of tensors.

    An operation on a tensor and a single number is not counted: it is the division by
    sqrt(head_dim), which some encodings apply to the queries and others to the scores.
    """
    for shape in shapes:
        if isinstance(shape, int | float):
            return 0
    return math.prod(out_shape)


# The operations that are counted besides matrix products, with the function that counts
# them.
COUNTED = dict.fromkeys((*ON_TWO_TENSORS, *ON_ONE_TENSOR), count_elements)


def make_small_encoding(name: str, length: int = LENGTH, seed: int = 0) -> Encoding:
    """Return an untrained encoding of a small model, for a trained length."""
    shape = Shape(
        layers=LAYERS,
        width=HEADS * HEAD,
        heads=HEADS,
        head_dim=HEAD,
        trained_len=length,
    )
    return make_encoding(name, shape, seed)


def count_trained(name: str, length: int = LENGTH) -> int:
    """Count the numbers that an encoding trains."""
    parameters = make_small_encoding(name, length).parameters()
    return sum(parameter.numel() for parameter in parameters)


def draw_queries_and_keys(tokens: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw queries and keys of one layer, float32 [1, heads, tokens, head_dim]."""
    q, k = torch.from_numpy(gaussian(seed, 2, 1, HEADS, tokens, HEAD)).float()
    return q, k


def encode(
    encoding: Encoding, q: Tensor, k: Tensor, start: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the arguments of `Encoding.scores` for a whole sequence: encoded queries and
    keys, and the positions of both.
    """
    positions = torch.arange(start, start + q.shape[-2])
    return (
        encoding.query(q, positions),
        encoding.key(k, positions),
        positions,
        positions,
    )


def read_biases(name: str, tokens: int) -> Tensor:
    """Return the biases of an encoding: its scores of queries and keys that are 0,
    [heads, queries, keys].
    """
    zeros = torch.zeros(1, HEADS, tokens, HEAD)
    positions = torch.arange(tokens)
    scores = make_small_encoding(name).scores(zeros, zeros, positions, positions)
    return scores[0].detach()


@claim("parameter-column", "alibi-trainable")
def compare_with_table(findings: Findings, said: Sequence[tuple[str, str]]) -> None:
    """Count what each encoding trains at one length and at twice that length.

    `said` has the names of encodings, each with what a table says that it trains: none,
    some, or with length (numbers that grow with the length).
    """
    findings.expected = ", ".join(f"{name} {growth}" for name, growth in said)
    for name, growth in said:
        count = count_trained(name)
        count_at_twice = count_trained(name, 2 * LENGTH)
        # A table with a row per position doubles with the length. A table of distances
        # does not, since far distances share a row.
        answers = {
            "none": count == count_at_twice == 0,
            "some": count > 0,
            "with length": count_at_twice == 2 * count > 0,
        }
        what = f"{name}, said to train: {growth}; trains"
        findings.add_part(what, f"{count:,}", answers[growth], count)


@claim("absolute-fixed")
def count_fixed(findings: Findings, fixed: str = "sinusoidal") -> None:
    """Count what a fixed encoding of absolute positions trains, and a learned one."""
    count = count_trained(fixed)
    what = f"trained numbers of the {fixed} encoding"
    findings.add_part(what, f"{count:,}", count == 0, count)
    count = count_trained("learned")
    what = "trained numbers of a learned table"
    findings.add_limit(what, f"{count:,}", count == 0, count)


@claim("relative-trained")
def count_relative(
    findings: Findings,
    tables: Sequence[str] = ("shaw", "t5"),
    others: Sequence[str] = ("alibi", "rope"),
) -> None:
    """Count the trained numbers of encodings of relative positions: of encodings that
    have tables, and of `others`, which have none.
    """
    for name in tables:
        count = count_trained(name)
        findings.add_part(f"trained numbers of {name}", f"{count:,}", count > 0)
    for name in others:
        count = count_trained(name)
        findings.add_limit(f"trained numbers of {name}", f"{count:,}", count > 0)


@claim("learned-stops")
def ask_beyond_end(findings: Findings, name: str = "learned") -> None:
    """Ask an encoding for the position after its trained length."""
    encoding = make_small_encoding(name)
    token = torch.zeros(1, 1, HEADS * HEAD)
    stops = True
    with suppress(IndexError):
        encoding.embed(token, torch.tensor([LENGTH]))
        stops = False
    measured = "no vector" if stops else "a vector"
    what = f"what a table of {LENGTH} positions has at position {LENGTH}"
    findings.add_part(what, measured, stops)

    last_position = encoding.max_position
    findings.add_part(
        f"last position of a table of {LENGTH}",
        f"{last_position}",
        last_position == LENGTH - 1,
    )


@claim("absolute-limited")
def ask_far_beyond_end(findings: Findings, far: int = 10**6) -> None:
    """Ask a learned and a sinusoidal encoding for positions beyond the trained length."""
    ask_beyond_end(findings)

    def make_codes(positions: Tensor) -> Tensor:
        """Return sinusoidal codes [positions, width]: what is added to zeros."""
        zeros = torch.zeros(1, len(positions), HEADS * HEAD)
        return make_small_encoding("sinusoidal").embed(zeros, positions)[0]

    first_codes = make_codes(torch.arange(LENGTH))
    far_code = make_codes(torch.tensor([far]))
    nearest = float((first_codes - far_code).norm(dim=-1).min())
    what = f"code of position {far:,} by the sinusoidal formula"
    measured = f"defined, and {nearest:.1f} away from all of the first {LENGTH}"
    findings.add_limit(what, measured, nearest == 0, nearest)


@claim("relative-space")
def count_biases_of_t5(findings: Findings) -> None:
    """Count the scores that get a bias of T5, and the different biases among them, at one
    length and at twice that length.
    """

    def count_biases(tokens: int) -> tuple[int, int]:
        bias = read_biases("t5", tokens)[0]  # [queries, keys] of the first head
        # Keys after the query are masked, so their biases need not be kept.
        is_visible = torch.ones_like(bias).tril() > 0
        return bias.numel(), len(bias[is_visible].unique())

    short, short_different = count_biases(LENGTH)
    long, long_different = count_biases(2 * LENGTH)
    # Twice the tokens have four times the pairs of a query and a key.
    what = f"scores that get a bias, {LENGTH} and {2 * LENGTH} tokens"
    measured = f"{short:,} and {long:,} per head"
    findings.add_part(what, measured, long == 4 * short, long / short)

    what = (
        f"different biases of the scores of {LENGTH} and {2 * LENGTH} tokens, which are all"
        " that has to be kept"
    )
    measured = f"{short_different} and {long_different}"
    grows_as_fast = long_different >= 4 * short_different
    findings.add_limit(what, measured, grows_as_fast, short_different)


@claim("rope-space")
def count_numbers_of_rope(findings: Findings) -> None:
    """Count what RoPE trains and keeps at one length and at twice that length."""
    count = count_trained("rope")
    count_at_twice = count_trained("rope", 2 * LENGTH)
    what = f"trained numbers for {LENGTH} and {2 * LENGTH} tokens"
    findings.add_part(what, f"{count} and {count_at_twice}", count == count_at_twice)

    # The printed code keeps a cos and a sin for each position and feature.
    short_table = 2 * LENGTH * HEAD
    long_table = 2 * (2 * LENGTH) * HEAD
    what = (
        f"table entries that the printed code keeps for {LENGTH} and"
        f" {2 * LENGTH} tokens"
    )
    measured = f"{short_table:,} and {long_table:,}"
    ratio = long_table / short_table
    findings.add_limit(what, measured, short_table == long_table, ratio)


@claim("alibi-stores-nothing")
def count_kept_numbers(findings: Findings, name: str = "alibi") -> None:
    """Count the numbers that an encoding keeps at one length and at twice that length."""

    def count_kept(length: int) -> int:
        encoding = make_small_encoding(name, length)
        tensors = (*encoding.parameters(), *encoding.buffers())
        return sum(tensor.numel() for tensor in tensors)

    count = count_kept(LENGTH)
    count_at_twice = count_kept(2 * LENGTH)
    # One slope for each head is kept, which is less than a single vector.
    keeps_no_vector = count < HEADS * HEAD
    what = f"numbers that {name} keeps for {LENGTH} and {2 * LENGTH} tokens"
    findings.add_part(
        what,
        f"{count} and {count_at_twice}",
        count == count_at_twice and keeps_no_vector,
        count,
    )


@claim("t5-costly", "rope-efficient", "transformer-xl-slow", bound=SLOW)
def compare_operations(
    findings: Findings, name: str, slow: bool, masked_too: bool = False
) -> None:
    """Count the operations from queries and keys to the scores of LENGTH tokens, divided
    by the operations of plain attention.

    Args:
        findings: the findings.
        name: the encoding.
        slow: True if the claim says that the encoding is slow.
        masked_too: True if the encoding computes scores of keys after the query, too. The
            operations are then also counted without these scores.
    """
    q, k = draw_queries_and_keys(LENGTH, seed=0)

    def count_operations(encoding: Encoding) -> float:
        with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter:
            encoding.scores(*encode(encoding, q, k))
        return counter.get_total_flops()

    encoding = make_small_encoding(name).for_layer(0)
    plain_operations = count_operations(Encoding())
    ratio = count_operations(encoding) / plain_operations
    is_slow = ratio >= SLOW
    findings.add_part(WORK, f"{ratio:.3f}", is_slow == slow, ratio)
    if slow and not is_slow:
        # Many operations make an encoding slow, but few operations do not make it fast:
        # reading a bias for each score takes time, too.
        findings.leave_open("the time depends on the machine, and was not asked")

    if masked_too and isinstance(encoding, TransformerXL):
        ratio = count_without_masked(encoding, q, k) / plain_operations
        what = f"{WORK}, without the distances of masked keys"
        findings.add_limit(what, f"{ratio:.2f}", (ratio >= SLOW) == slow, ratio)


def count_without_masked(encoding: TransformerXL, q: Tensor, k: Tensor) -> float:
    """Count the operations of Transformer-XL's scores with a row for each distance from a
    query back, and none for the keys after it.
    """
    with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter:
        content = (q + encoding.u) @ k.mT
        rows = encoding.project_rows(torch.arange(LENGTH))
        _ = content + (q + encoding.v) @ rows.mT
    return counter.get_total_flops()


@claim("transformer-xl-cache")
def compare_with_cached(findings: Findings, seed: int = 0) -> None:
    """Decode token by token from cached keys and compare with the full pass."""
    encoding = make_small_encoding("transformer_xl").for_layer(0)
    tokens = 64
    largest_difference = 0.0
    cached_keys: list[Tensor] = []
    with torch.no_grad():
        q, k = draw_queries_and_keys(tokens, seed)
        full_scores = encoding.scores(*encode(encoding, q, k))

        for token in range(tokens):
            position = torch.tensor([token])
            this_token = slice(token, token + 1)
            # Each key is encoded by itself, when its token comes.
            cached_keys.append(encoding.key(k[:, :, this_token], position))
            keys = torch.cat(cached_keys, dim=-2)
            query = encoding.query(q[:, :, this_token], position)

            positions_so_far = torch.arange(token + 1)
            scores = encoding.scores(query, keys, position, positions_so_far)
            difference = scores - full_scores[:, :, this_token, : token + 1]
            largest_difference = max(largest_difference, max_abs(difference))

    what = f"difference of scores from cached keys and the full pass, {tokens} tokens"
    findings.add_nonzero(what, largest_difference, ROUNDING)


@claim("learned-not-relative", "t5-relative", "rope-relative")
def compare_moved_scores(
    findings: Findings, name: str, expected: bool, seed: int = 0
) -> None:
    """Move all positions, and compare the scores of embedded tokens.

    `expected` is True if the claim says that scores depend only on distances.
    """
    encoding = make_small_encoding(name)
    tokens = 16
    shift = 100
    embeddings = torch.from_numpy(gaussian(seed, 1, tokens, HEADS * HEAD)).float()

    def compute_scores(start: int) -> Tensor:
        positions = torch.arange(start, start + tokens)
        embedded = encoding.embed(embeddings, positions)
        # The embedded tokens are the queries and the keys: [1, heads, tokens, head_dim].
        by_head = embedded.unflatten(-1, (HEADS, HEAD)).transpose(1, 2)
        layer = encoding.for_layer(0)
        scores = layer.scores(*encode(layer, by_head, by_head, start))
        # Above the diagonal an encoding may leave anything, since keys after the query are
        # masked.
        return scores.tril()

    with torch.no_grad():
        scores_at_start = compute_scores(0)
        moved_scores = compute_scores(shift)
    change = max_abs(moved_scores - scores_at_start) / max_abs(scores_at_start)

    what = f"change of scores when all positions move by {shift}"
    stays_equal = change < ROUNDING
    measured = write_zero(change, ROUNDING, "more than rounding")
    findings.add_part(what, measured, stays_equal == expected, change)


@claim("alibi-sign")
def compare_printed_bias(findings: Findings, slope: float = 0.25) -> None:
    """Compare the bias of ALiBi with a printed formula, for both signs of distances."""
    tokens = 8
    bias = read_biases("alibi", tokens)[0].tril()  # [queries, keys] of the first head
    positions = torch.arange(tokens)
    distances = positions - positions[:, None]
    printed_bias = slope * distances.tril()
    # The signs of the distance decide, so both findings say which ones they have.
    lead = (
        f"largest difference to ALiBi's bias, first of {HEADS} heads, {tokens} tokens,"
        f" alpha = {slope},"
    )
    what = f"{lead} distance = key position minus query position"
    findings.add_at_most(what, max_abs(bias - printed_bias), 0, "{}")

    what = f"{lead} distances counted from 0 up"
    template = "{:.1f}, and far keys are preferred"
    findings.add_at_most(what, max_abs(bias + printed_bias), 0, template, role="limit")


@claim("heads-unaffected")
def find_acting_encodings(
    findings: Findings,
    methods: Sequence[str] = ("sinusoidal", "learned", "shaw", "rope", "alibi"),
    seed: int = 0,
) -> None:
    """Find the encodings that change the scores inside heads, and count the biases that
    the heads of ALiBi have.
    """
    q, k = draw_queries_and_keys(8, seed)
    plain_scores = Encoding().scores(*encode(Encoding(), q, k)).tril()
    acting_names = []
    with torch.no_grad():
        for name in methods:
            encoding = make_small_encoding(name).for_layer(0)
            scores = encoding.scores(*encode(encoding, q, k)).tril()
            if max_abs(scores - plain_scores) > ROUNDING:
                acting_names.append(name)
    # The biases of all heads for the last query and the first key.
    biases_by_head = read_biases("alibi", 8)[:, -1, 0]
    different_biases = len(biases_by_head.unique())

    what = f"methods of the page that act inside every head, of {len(methods)}"
    count = len(acting_names)
    measured = f"{count} ({', '.join(acting_names)})"
    findings.add_part(what, measured, count < len(methods) / 2, count)
    what = f"different biases that ALiBi gives {HEADS} heads at one distance"
    findings.add_limit(
        what, f"{different_biases}", different_biases == 1, different_biases
    )


@claim("sinusoid-unstable", bound=ANGLE_RAD)
def measure_sinusoids(findings: Findings, length: int = 1 << 20) -> None:
    """Measure the angles of float32 at large positions, and count neighbours whose
    rounded codes are equal.
    """
    error = find_worst_angle("float32", length).error_rad
    worst = f"worst angle error in float32 up to {length:,}, d = 128"

    counts_by_format = count_codes(make_rope_frequencies(64, 10000.0), "vector", length)
    equal_neighbours = {}
    for fmt, counts in counts_by_format.items():
        equal_neighbours[fmt] = counts.adjacent_collisions
    measured = ", ".join(f"{count} in {fmt}" for fmt, count in equal_neighbours.items())
    has_equal = any(equal_neighbours.values())
    # The source says that either may happen: wrong angles or equal neighbours. One of the
    # two is enough.
    agrees = error > ANGLE_RAD or has_equal
    findings.add_part(worst, f"{error:.2g} rad", agrees, error)
    what = f"neighbours below {length:,} with the same code, d = 64"
    findings.add_limit(what, measured, True if has_equal else None)
