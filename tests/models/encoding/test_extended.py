"""Log-n and methods that remap distances against double loops written from their
formulas.
"""

import math

import pytest
import torch

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.extended import (
    Dropped,
    DualChunk,
    LogN,
    ReRope,
    SelfExtend,
    Shifted,
)
from ropelab.models.encoding.rope import Rope

TOKENS, WIDTH, TRAINED = 40, 8, 16


def rope() -> Rope:
    return Rope(RopePlan(Geometry(WIDTH, 10000.0, TRAINED).inv_freq), "interleaved")


def queries_and_keys() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 2, TOKENS, WIDTH, generator=generator)
    return q, k


def all_scores(encoding: Encoding) -> torch.Tensor:
    """Scores of all pairs through the hooks."""
    q, k = queries_and_keys()
    at = torch.arange(TOKENS)
    return encoding.scores(encoding.query(q, at), encoding.key(k, at), at, at)


def score_at_distance(i: int, j: int, distance: int) -> torch.Tensor:
    """The rotary score of query i and key j as if they were `distance` apart."""
    q, k = queries_and_keys()
    turned = rope().query(q[:, :, i : i + 1], torch.tensor([distance]))
    return (turned[:, :, 0] * k[:, :, j]).sum(-1) / math.sqrt(WIDTH)


def self_extended(i: int, j: int, window: int, group: int) -> int:
    if i - j < window:
        return i - j
    return i // group + window - window // group - j // group


@pytest.mark.parametrize(("window", "group"), [(8, 4), (5, 3), (16, 1)])
def test_self_extend_equals_its_double_loop(window: int, group: int) -> None:
    scores = all_scores(SelfExtend(rope(), window, group))
    for i in range(TOKENS):
        for j in range(i + 1):
            expected = score_at_distance(i, j, self_extended(i, j, window, group))
            torch.testing.assert_close(
                scores[:, :, i, j], expected, rtol=1e-4, atol=1e-5
            )


def test_rerope_equals_its_double_loop() -> None:
    scores = all_scores(ReRope(rope(), 8))
    for i in range(TOKENS):
        for j in range(i + 1):
            expected = score_at_distance(i, j, min(i - j, 8))
            torch.testing.assert_close(
                scores[:, :, i, j], expected, rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize(("chunk", "trained"), [(12, 16), (3, 16), (15, 16), (5, 7)])
def test_dual_chunks_equal_their_double_loop(chunk: int, trained: int) -> None:
    scores = all_scores(DualChunk(rope(), chunk, trained))
    for i in range(TOKENS):
        for j in range(i + 1):
            # The paper's three tables of positions of queries, written out.
            inside = list(range(chunk))
            after = [min(chunk + p, trained - 1) for p in range(chunk)]
            of_query = (
                (inside, after)[i // chunk - j // chunk]
                if i // chunk - j // chunk < 2
                else []
            )
            place = of_query[i % chunk] if of_query else trained - 1
            distance = place - j % chunk
            assert 0 <= distance < trained
            expected = score_at_distance(i, j, distance)
            torch.testing.assert_close(
                scores[:, :, i, j], expected, rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize(("shift", "window"), [(6, 2), (13, 13), (30, 4)])
def test_string_equals_its_double_loop(shift: int, window: int) -> None:
    scores = all_scores(Shifted(rope(), shift, window))
    for i in range(TOKENS):
        for j in range(i + 1):
            distance = i - j if i - j < shift else i - j - shift + window
            expected = score_at_distance(i, j, distance)
            torch.testing.assert_close(
                scores[:, :, i, j], expected, rtol=1e-4, atol=1e-5
            )


def test_groups_of_one_and_a_window_over_everything_are_plain_rope() -> None:
    causal = torch.ones(TOKENS, TOKENS).tril().bool()
    plain = all_scores(rope())[..., causal]
    for same in (
        SelfExtend(rope(), 8, 1),
        SelfExtend(rope(), TOKENS, 4),
        ReRope(rope(), TOKENS),
    ):
        torch.testing.assert_close(
            all_scores(same)[..., causal], plain, rtol=1e-4, atol=1e-5
        )


def test_log_n_multiplies_logits_beyond_the_trained_length_only() -> None:
    sharpened, plain = all_scores(LogN(rope(), TRAINED)), all_scores(rope())
    for i in range(TOKENS):
        factor = max(1.0, math.log(i + 1) / math.log(TRAINED))
        torch.testing.assert_close(
            sharpened[:, :, i], plain[:, :, i] * factor, rtol=1e-4, atol=1e-5
        )


def test_dropped_positions_leave_only_the_content_and_the_temperature() -> None:
    q, k = queries_and_keys()
    for i, j in ((0, 0), (39, 3)):
        want = 1.7 * (q[:, :, i] * k[:, :, j]).sum(-1) / math.sqrt(WIDTH)
        torch.testing.assert_close(all_scores(Dropped(1.7))[:, :, i, j], want)
