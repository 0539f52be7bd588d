"""Checks of the tables that compare encodings: trained and kept numbers, scores, work,
heads.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ropelab.claims.arrays import gaussian, largest, write_magnitude
from ropelab.claims.periods import census, rope_frequencies
from ropelab.claims.published import angle_errors
from ropelab.claims.record import Findings, claim
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.registry import Shape, make_encoding
from ropelab.runs.thresholds import ANGLE_RAD, ROUNDING, SLOW

# The small model on which encodings are compared.
LENGTH, LAYERS, HEADS, HEAD = 512, 4, 4, 32
WORK = (
    f"additions and multiplications of the scores of {LENGTH} tokens, plain attention"
    " is 1"
)
ATEN = torch.ops.aten
# Operations element by element on two tensors, or on one: torch's counter of matrix
# products takes them for free.
ON_TWO_TENSORS = (ATEN.mul, ATEN.add, ATEN.sub, ATEN.div)
ON_ONE_TENSOR = (ATEN.neg,)


def count_elements(*shapes: Any, out_shape: Sequence[int], **_: Any) -> int:
    """Count the operations of one call; torch gives shapes in the place of tensors.

    A tensor and a single number are not counted: that is the division of all scores by
    sqrt(head_dim), which some encodings apply to the queries and others to the scores.
    """
    for shape in shapes:
        if isinstance(shape, int | float):
            return 0
    return math.prod(out_shape)


COUNTED = dict.fromkeys((*ON_TWO_TENSORS, *ON_ONE_TENSOR), count_elements)


def encoding_for(name: str, length: int = LENGTH, seed: int = 0) -> Encoding:
    shape = Shape(
        layers=LAYERS,
        width=HEADS * HEAD,
        heads=HEADS,
        head_dim=HEAD,
        trained_len=length,
    )
    return make_encoding(name, shape, seed)


def trains(name: str, length: int = LENGTH) -> int:
    return sum(p.numel() for p in encoding_for(name, length).parameters())


def queries_and_keys(tokens: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw queries and keys of one layer, float32 [1, heads, tokens, head_dim]."""
    q, k = torch.from_numpy(gaussian(seed, 2, 1, HEADS, tokens, HEAD)).float()
    return q, k


def encode(
    encoding: Encoding, q: Tensor, k: Tensor, start: int = 0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the arguments of `scores` for a whole sequence."""
    positions = torch.arange(start, start + q.shape[-2])
    return (
        encoding.query(q, positions),
        encoding.key(k, positions),
        positions,
        positions,
    )


def biases(name: str, tokens: int) -> Tensor:
    """Return what an encoding makes of vectors that are 0 [heads, queries, keys]."""
    nothing = torch.zeros(1, HEADS, tokens, HEAD)
    positions = torch.arange(tokens)
    return encoding_for(name).scores(nothing, nothing, positions, positions)[0].detach()


@claim("parameter-column", "alibi-trainable")
def parameter_column(findings: Findings, said: Sequence[tuple[str, str]]) -> None:
    """Count what each encoding trains at one length and at twice that length."""
    findings.expected = ", ".join(f"{name} {growth}" for name, growth in said)
    for name, growth in said:
        short = trains(name)
        long = trains(name, 2 * LENGTH)
        # A table by position doubles. A table by distance does not: it is clipped.
        answers = {
            "none": short == long == 0,
            "some": short > 0,
            "with length": long == 2 * short > 0,
        }
        what = f"{name}, said to train: {growth}; trains"
        findings.part(what, f"{short:,}", answers[growth], short)


@claim("absolute-fixed")
def always_fixed(findings: Findings, fixed: str = "sinusoidal") -> None:
    first = trains(fixed)
    second = trains("learned")
    findings.part(
        f"trained numbers of the {fixed} encoding", f"{first:,}", first == 0, first
    )
    findings.limit("of a learned table", f"{second:,}", second == 0, second)


@claim("relative-trained")
def relative_are_trained(
    findings: Findings,
    tables: Sequence[str] = ("shaw", "t5"),
    others: Sequence[str] = ("alibi", "rope"),
) -> None:
    for name in tables:
        findings.part(
            f"trained numbers of {name}", f"{trains(name):,}", trains(name) > 0
        )
    for name in others:
        findings.limit(f"of {name}", f"{trains(name):,}", trains(name) > 0)


@claim("learned-stops")
def learned_stops(findings: Findings, name: str = "learned") -> None:
    encoding = encoding_for(name)
    stops = True
    with suppress(IndexError):
        encoding.embed(torch.zeros(1, 1, HEADS * HEAD), torch.tensor([LENGTH]))
        stops = False
    findings.part(
        f"at position {LENGTH} it has", "no vector" if stops else "a vector", stops
    )
    last = encoding.max_position
    findings.part("its last position", f"{last}", last == LENGTH - 1)


@claim("absolute-limited")
def length_is_limited(findings: Findings, far: int = 10**6) -> None:
    learned_stops(findings)
    codes = [
        encoding_for("sinusoidal").embed(torch.zeros(1, len(at), HEADS * HEAD), at)[0]
        for at in (torch.arange(LENGTH), torch.tensor([far]))
    ]
    nearest = float((codes[0] - codes[1]).norm(dim=-1).min())

    text = f"defined, and {nearest:.1f} away from all of the first {LENGTH}"
    findings.limit(
        f"code of position {far:,} by the sinusoidal formula",
        text,
        nearest == 0,
        nearest,
    )


@claim("relative-space")
def bias_matrix(findings: Findings) -> None:
    added = [biases("t5", tokens)[0] for tokens in (LENGTH, 2 * LENGTH)]
    full = [bias.numel() for bias in added]
    # Keys after the query are masked, so their biases need not be kept.
    distinct = [len(bias[torch.ones_like(bias).tril() > 0].unique()) for bias in added]
    what = f"scores that get a bias, {LENGTH} and {2 * LENGTH} tokens"
    text = f"{full[0]:,} and {full[1]:,} per head"
    findings.part(what, text, full[1] == 4 * full[0], full[1] / full[0])
    what = "different biases among them, which are all that has to be kept"
    text = f"{distinct[0]} and {distinct[1]}"
    findings.limit(what, text, distinct[1] >= 4 * distinct[0], distinct[0])


@claim("rope-space")
def rope_space(findings: Findings) -> None:
    short = trains("rope")
    long = trains("rope", 2 * LENGTH)
    tables = [2 * tokens * HEAD for tokens in (LENGTH, 2 * LENGTH)]
    what = "trained numbers at one length and at twice it"
    findings.part(what, f"{short} and {long}", short == long)
    what = (
        f"table entries that the printed code keeps for {LENGTH} and"
        f" {2 * LENGTH} tokens"
    )
    text = f"{tables[0]:,} and {tables[1]:,}"
    findings.limit(what, text, tables[0] == tables[1], tables[1] / tables[0])


@claim("alibi-stores-nothing")
def keeps_no_vectors(findings: Findings, name: str = "alibi") -> None:
    encodings = (encoding_for(name, length) for length in (LENGTH, 2 * LENGTH))
    short, long = (
        sum(x.numel() for x in (*e.parameters(), *e.buffers())) for e in encodings
    )
    what = f"numbers that {name} keeps for {LENGTH} and {2 * LENGTH} tokens"
    # One slope for each head is kept, which is less than a single vector.
    findings.part(what, f"{short} and {long}", short == long < HEADS * HEAD, short)


@claim("t5-costly", "rope-efficient", "transformer-xl-slow", bound=SLOW)
def work(findings: Findings, name: str, slow: bool, seed: int = 0) -> None:
    """Count what scores of LENGTH tokens take from queries and keys on, over plain
    attention.
    """
    counts = []
    for encoding in (encoding_for(name).for_layer(0), Encoding()):
        q_and_k = queries_and_keys(LENGTH, seed)
        with FlopCounterMode(display=False, custom_mapping=COUNTED) as counter:
            encoding.scores(*encode(encoding, *q_and_k))
        counts.append(counter.get_total_flops())

    ratio = counts[0] / counts[1]
    is_slow = ratio >= SLOW
    findings.part(WORK, f"{ratio:.3f}", is_slow == slow, ratio)
    if slow and not is_slow:
        # Many operations make it slow; few do not make it fast, as reading a bias for
        # each score takes time, too.
        findings.leave_open("the time depends on the machine, and was not asked")


@claim("transformer-xl-cache")
def cache_is_impossible(findings: Findings, seed: int = 0) -> None:
    """Decode token by token from cached keys and compare with the full pass."""
    encoding = encoding_for("transformer_xl").for_layer(0)
    tokens = 64
    apart = 0.0
    with torch.no_grad():
        q, k = queries_and_keys(tokens, seed)
        full = encoding.scores(*encode(encoding, q, k))
        # Each key is encoded alone when its token comes, as a cache has it.
        alone = [
            encoding.key(k[:, :, i : i + 1], torch.tensor([i])) for i in range(tokens)
        ]
        keys = torch.cat(alone, -2)
        for i in range(tokens):
            here = torch.tensor([i])
            query = encoding.query(q[:, :, i : i + 1], here)
            decoded = encoding.scores(
                query, keys[:, :, : i + 1], here, torch.arange(i + 1)
            )
            apart = max(apart, largest(decoded - full[:, :, i : i + 1, : i + 1]))

    findings.beyond(
        f"scores from cached keys against the full pass, {tokens} tokens",
        apart,
        ROUNDING,
    )


@claim("learned-not-relative", "t5-relative", "rope-relative")
def is_relative(findings: Findings, name: str, expected: bool, seed: int = 0) -> None:
    encoding = encoding_for(name)
    tokens = 16
    shift = 100
    x = torch.from_numpy(gaussian(seed, 1, tokens, HEADS * HEAD)).float()
    scores = []
    with torch.no_grad():
        for start in (0, shift):
            positions = torch.arange(start, start + tokens)
            q = (
                encoding.embed(x, positions)
                .unflatten(-1, (HEADS, HEAD))
                .transpose(1, 2)
            )
            layer = encoding.for_layer(0)
            # Above the diagonal an encoding may leave anything: those keys are masked.
            scores.append(layer.scores(*encode(layer, q, q, start)).tril())
    moved = largest(scores[1] - scores[0]) / largest(scores[0])

    what = f"change of scores when all positions move by {shift}, of the largest"
    findings.part(what, write_magnitude(moved), (moved < ROUNDING) == expected, moved)


@claim("alibi-sign")
def printed_sign(findings: Findings, slope: float = 0.25) -> None:
    bias = biases("alibi", 8)[0].tril()
    positions = torch.arange(8)
    signed = slope * (positions - positions[:, None]).tril()
    what = f"alpha = {slope} with distance = key position minus query position"
    findings.within(what, largest(bias - signed), 0, "{} from the bias")
    what = "the same with distances counted from 0 up"
    text = "far keys are preferred, {:.1f} from the bias"
    findings.within(what, largest(bias + signed), 0, text, "limit")


@claim("heads-unaffected")
def heads_unaffected(
    findings: Findings,
    methods: Sequence[str] = ("sinusoidal", "learned", "shaw", "rope", "alibi"),
    seed: int = 0,
) -> None:
    q, k = queries_and_keys(8, seed)
    plain = Encoding().scores(*encode(Encoding(), q, k)).tril()
    acting = []
    with torch.no_grad():
        for name in methods:
            encoding = encoding_for(name).for_layer(0)
            if (
                largest(encoding.scores(*encode(encoding, q, k)).tril() - plain)
                > ROUNDING
            ):
                acting.append(name)
    # The biases are those of the last query and the first key.
    different = len(biases("alibi", 8)[:, -1, 0].unique())

    what = f"methods of the page that act inside every head, of {len(methods)}"
    text = f"{len(acting)} ({', '.join(acting)})"
    findings.part(what, text, len(acting) < len(methods) / 2, len(acting))
    what = f"different biases that ALiBi gives {HEADS} heads at one distance"
    findings.limit(what, f"{different}", different == 1, different)


@claim("sinusoid-unstable", bound=ANGLE_RAD)
def unstable_or_coarse(findings: Findings, length: int = 1 << 20) -> None:
    error = angle_errors("float32", length).error_rad
    counted = census(rope_frequencies(64, 10000.0), "vector", length)
    shared = {fmt: one.adjacent_collisions for fmt, one in counted.items()}
    findings.beyond(
        f"worst angle error in float32 up to {length:,}", error, ANGLE_RAD, "{:.2g} rad"
    )
    shown = ", ".join(f"{count} in {fmt}" for fmt, count in shared.items())
    findings.limit("neighbours with the same code", shown, any(shared.values()))
