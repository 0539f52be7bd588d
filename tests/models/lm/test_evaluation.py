"""Evaluation: one pass gives what token by token gives; a known model gives known
numbers.
"""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropelab.models.encoding.base import Encoding
from ropelab.models.lm import evaluation
from ropelab.models.lm.evaluation import (
    compute_sliding_losses,
    compute_token_losses,
    find_correct,
)
from ropelab.models.lm.model import FeedForward, LanguageModel
from ropelab.models.lm.source import Batch
from tests.models.lm.test_model import SIZE, random_model, rope, tokens


def test_one_pass_equals_one_prediction_at_a_time() -> None:
    model, texts = random_model(rope()), tokens(3, 10)
    losses = compute_token_losses(model, texts)
    for at in range(9):
        logits = model(texts[:, : at + 1])[:, -1]
        single = cross_entropy(logits, texts[:, at + 1], reduction="none")
        torch.testing.assert_close(losses[:, at], single, rtol=1e-4, atol=1e-5)


def test_blocks_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = random_model(rope()), tokens(5, 12)
    whole, last = (
        compute_token_losses(model, texts),
        compute_token_losses(model, texts, last=4),
    )
    torch.testing.assert_close(whole[:, -4:], last, rtol=1e-5, atol=1e-6)
    monkeypatch.setattr(evaluation, "TOKENS_PER_PASS", 1)
    monkeypatch.setattr(evaluation, "LOGITS_PER_CHUNK", 1)
    torch.testing.assert_close(
        compute_token_losses(model, texts), whole, rtol=1e-5, atol=1e-6
    )


def test_a_uniform_model_scores_the_logarithm_of_its_vocabulary() -> None:
    model = LanguageModel(SIZE, Encoding())
    losses = compute_token_losses(model, tokens(2, 20))
    assert losses.mean().item() == pytest.approx(math.log(SIZE.vocabulary), abs=1e-6)


@pytest.mark.parametrize(("window", "stride"), [(6, 2), (6, 6), (6, 1), (5, 3)])
def test_sliding_window_equals_truncating_by_hand(window: int, stride: int) -> None:
    model, texts = random_model(rope()), tokens(2, 18)
    losses = compute_sliding_losses(model, texts, window, stride)
    inside = compute_token_losses(model, texts[:, : window + 1])
    torch.testing.assert_close(losses[:, :window], inside, rtol=1e-5, atol=1e-6)
    for at in range(window, 17):
        seen = [
            texts[:, at + 1 - n : at + 2]
            for n in range(window - stride + 1, window + 1)
        ]
        options = [compute_token_losses(model, piece, last=1)[:, 0] for piece in seen]
        assert any(
            torch.allclose(losses[:, at], o, rtol=1e-4, atol=1e-5) for o in options
        )


def test_a_short_text_needs_no_sliding() -> None:
    model, texts = random_model(rope()), tokens(2, 6)
    assert torch.equal(
        compute_sliding_losses(model, texts, 5, 2), compute_token_losses(model, texts)
    )


def test_correct_marks_the_most_probable_token() -> None:
    model, texts = random_model(rope()), tokens(3, 9)
    guesses = model(texts).argmax(dim=-1)
    scored = (torch.arange(9) >= 5).expand(3, 9)
    expected = guesses[:, 4:-1] == texts[:, 5:]
    assert torch.equal(find_correct(model, Batch(texts, scored)), expected)


@pytest.mark.parametrize(("window", "stride"), [(6, 3), (8, 4), (7, 2), (40, 20)])
def test_what_a_sliding_window_gets_right_follows_from_its_windows(
    window: int, stride: int
) -> None:
    model, texts = random_model(rope()), tokens(3, 19)
    # a hit, and chances of more
    texts[0, 15:] = model(texts[:1, 15 - window : 15])[0, -1].argmax()
    scored = (torch.arange(19) >= 12).expand(3, 19)
    found = find_correct(model, Batch(texts, scored), window, stride)
    assert found.shape == (3, 7)
    for at in range(11, 18):
        seen = [
            texts[:, max(0, at + 1 - n) : at + 1]
            for n in range(window - stride + 1, window + 1)
        ]
        options = [
            model(piece)[:, -1].argmax(dim=-1) == texts[:, at + 1] for piece in seen
        ]
        assert any(torch.equal(found[:, at - 11], option) for option in options)


def test_windows_without_a_scored_token_are_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, texts = random_model(rope()), tokens(2, 33)
    read: list[torch.Tensor] = []
    hidden = model.hidden_states

    def recorded(block: torch.Tensor, last: int) -> torch.Tensor:
        read.append(block)
        return hidden(block, last=last)

    monkeypatch.setattr(model, "hidden_states", recorded)
    scored = (torch.arange(33) >= 30).expand(2, 33)
    find_correct(model, Batch(texts, scored), 8, 4)
    assert [block.shape[1] for block in read] == [8]
    assert torch.equal(read[0], texts[:, 24:32])


@pytest.mark.parametrize("window", [None, 16])
def test_the_final_layer_passes_on_no_more_than_the_scored_tokens(
    window: int | None,
) -> None:
    model, texts = random_model(rope()), tokens(2, 33)
    passed: list[int] = []
    for part in model.modules():
        if isinstance(part, FeedForward):
            part.register_forward_pre_hook(lambda _, x: passed.append(x[0].shape[1]))
    scored = (torch.arange(33) >= 30).expand(2, 33)
    found = find_correct(model, Batch(texts, scored), window, 8)
    assert passed == [window or 32, 3]
    whole = model(texts[:, -1 - (window or 32) : -1]).argmax(dim=-1)[:, -3:]
    assert torch.equal(found, whole == texts[:, 30:])


def test_memory_for_logits_does_not_grow_with_length_or_vocabulary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, texts = random_model(rope()), tokens(2, 60)
    made: list[int] = []
    head = model.head.forward

    def recorded(x: torch.Tensor) -> torch.Tensor:
        made.append(x.shape[:-1].numel() * SIZE.vocabulary)
        return head(x)

    monkeypatch.setattr(model.head, "forward", recorded)
    batch = Batch(texts, torch.ones_like(texts, dtype=torch.bool))
    whole = compute_token_losses(model, texts), find_correct(model, batch)
    largest = max(made)
    made.clear()
    monkeypatch.setattr(evaluation, "LOGITS_PER_CHUNK", 4 * 2 * SIZE.vocabulary)
    torch.testing.assert_close(compute_token_losses(model, texts), whole[0])
    assert torch.equal(find_correct(model, batch), whole[1])
    assert max(made) == 4 * 2 * SIZE.vocabulary < largest
