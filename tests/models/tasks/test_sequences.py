"""Trials: the answer stands exactly where it should, and nowhere else."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ropelab.models.lm.corpus import ALPHABET
from ropelab.models.lm.matcher import ngram_predictions
from ropelab.models.lm.source import CUE, KEY, RECORD, Batch
from ropelab.models.tasks.retrieval import HIDDEN, QUESTIONS, copy_trials, recall_trials

PLACES = [(64, 1024), (100, 1024), (256, 512), (700, 1024), (768, 1024), (900, 1024)]
TEXT = torch.randint(128, 256, (6, 2048), generator=torch.Generator().manual_seed(0))
"""Tokens of which none is a symbol."""


def before(tokens: torch.Tensor, scored: torch.Tensor, distance: int) -> torch.Tensor:
    """The tokens `distance` before the scored ones."""
    return torch.stack(
        [
            row[mark.nonzero()[:, 0] - distance]
            for row, mark in zip(tokens, scored, strict=True)
        ]
    )


def answers(trials: Batch) -> torch.Tensor:
    return trials.tokens[trials.scored].view(len(trials.tokens), -1)


@pytest.mark.parametrize(("distance", "length"), PLACES)
def test_copies_stand_exactly_the_distance_back(distance: int, length: int) -> None:
    trials = copy_trials(0, distance, length, rows=4)
    size = min(distance, length - distance, QUESTIONS)
    assert trials.tokens.shape == trials.scored.shape == (4, length)
    assert trials.scored.sum(dim=1).tolist() == [size - CUE] * 4
    assert torch.equal(
        trials.tokens[:, length - size :],
        trials.tokens[:, length - size - distance : length - distance],
    )
    assert set(trials.tokens.unique().tolist()) <= set(ALPHABET.tolist())


@pytest.mark.parametrize(("distance", "length"), PLACES)
def test_values_stand_exactly_the_distance_back(distance: int, length: int) -> None:
    trials = recall_trials(0, distance, length, rows=4)
    asked = min(distance, length - distance, QUESTIONS) // RECORD
    assert trials.scored.sum(dim=1).tolist() == [(asked + 1) // 2] * 4
    for shift in range(RECORD):
        moved = trials.scored.roll(-shift, dims=1)
        assert torch.equal(
            before(trials.tokens, moved, distance), before(trials.tokens, moved, 0)
        )


def test_records_between_are_new() -> None:
    trials = recall_trials(0, 256, 1024, rows=4)
    end, source = trials.tokens[:, -256:], trials.tokens[:, -512:-256]
    same = (end == source).view(4, -1, RECORD).all(dim=-1)
    assert same[:, ::2].all()
    assert not same[:, 1::2].any()


def test_the_nearer_of_two_keys_is_asked_and_the_further_has_another_value() -> None:
    trials = recall_trials(0, distance=128, further=300, length=1024, rows=4)
    for shift in range(1, RECORD):
        key = trials.scored.roll(-shift, dims=1)
        for back in (128, 300):
            assert torch.equal(
                before(trials.tokens, key, back), before(trials.tokens, key, 0)
            )
    assert torch.equal(before(trials.tokens, trials.scored, 128), answers(trials))
    assert (before(trials.tokens, trials.scored, 300) != answers(trials)).all()


@pytest.mark.parametrize("background", [None, TEXT[:, :1024]])
def test_three_tokens_tell_where_to_look(background: Any) -> None:
    for trials in (
        copy_trials(0, 200, 1024, 6, background),
        recall_trials(0, 200, 1024, 6, background),
        recall_trials(0, 200, 1024, 6, background, further=500),
    ):
        predicted = ngram_predictions(trials.tokens, KEY)[trials.scored]
        right = (predicted == trials.tokens[trials.scored]).float().mean()
        assert right > 0.98


def test_one_token_does_not_tell_where_to_look() -> None:
    trials = copy_trials(0, 700, 1024, rows=8)
    right = (
        (ngram_predictions(trials.tokens, 1) == trials.tokens)[trials.scored]
        .float()
        .mean()
    )
    assert right < 0.05


def test_symbols_are_hidden_among_the_tokens_given() -> None:
    trials = copy_trials(0, 500, 1024, 6, TEXT[:, :1024])
    symbols = trials.tokens < 128
    assert symbols.sum(dim=1).tolist() == [2 * HIDDEN] * 6
    assert torch.equal(trials.tokens[~symbols], TEXT[:, :1024][~symbols])
    assert (TEXT >= 128).all()


@pytest.mark.parametrize("make", [copy_trials, recall_trials])
def test_trials_are_functions_of_their_arguments(make: Callable[..., Batch]) -> None:
    one = make(0, 100, 512, 3).tokens
    assert torch.equal(one, make(0, 100, 512, 3).tokens)
    for other in (make(1, 100, 512, 3), make(0, 101, 512, 3)):
        assert not torch.equal(one, other.tokens)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="copy of 4 tokens nothing is left"):
        copy_trials(0, 596, 600, 1)
    with pytest.raises(
        ValueError, match=r"600 tokens do not hold a question .* 597 back"
    ):
        recall_trials(0, 597, 600, 1)
    with pytest.raises(ValueError, match="do not hold"):
        recall_trials(0, 2, 600, 1)
    with pytest.raises(ValueError, match="do not hold"):
        recall_trials(0, 100, 600, 1, further=100)
    with pytest.raises(ValueError, match=r"background is \(6, 2048\), not \(6, 1024\)"):
        copy_trials(0, 500, 1024, 6, TEXT)
    with pytest.raises(ValueError, match="copy of 4 tokens nothing is left"):
        copy_trials(0, CUE, 600, 1)
