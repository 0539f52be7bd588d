"""Trials: the answer stands exactly where it should, and nowhere else."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ropelab.models.lm.corpus import ALPHABET
from ropelab.models.lm.matcher import predict_by_ngrams
from ropelab.models.lm.source import CUE, KEY, RECORD
from ropelab.models.tasks import grid
from ropelab.models.tasks.geometry import stretch_length
from ropelab.models.tasks.retrieval import (
    TASKS,
    Trials,
    copy_trials,
    make_most_recent_trials,
    recall_trials,
)
from ropelab.runs.errors import InputError

SHORT = (128, [16, 32, 64, 96])
LONG = (1024, [64, 128, 256, 384, 512, 768])
TEXT = torch.randint(128, 256, (6, 2048), generator=torch.Generator().manual_seed(0))
"""Tokens of which none is a symbol."""


def size_of(length: int, distances: list[int]) -> int:
    return stretch_length(length, [(distance,) for distance in distances])


def asked(trials: Trials) -> Iterator[tuple[torch.Tensor, int, int]]:
    """Every row with each place that it asks for, and the distance there."""
    for row, distances in zip(trials.tokens, trials.distances, strict=True):
        for place in distances.nonzero()[:, 0].tolist():
            yield row, place, int(distances[place])


def occurrences(row: torch.Tensor, part: torch.Tensor) -> list[int]:
    """The places in a row at which a part of it begins."""
    windows = row.unfold(0, len(part), 1)
    return (windows == part).all(dim=1).nonzero()[:, 0].tolist()


@settings(max_examples=10)
@given(
    length=st.integers(160, 700),
    start=st.sampled_from((16, 24)),
    seed=st.integers(0, 10**6),
    hidden=st.booleans(),
)
def test_the_only_other_occurrence_of_a_symbol_is_its_distance_back(
    length, start, seed, hidden
):
    """A symbol and the cue before it: symbols alone recur, there are 64 of them."""
    distances = [start, 2 * start, 3 * start, 3 * length // 4]
    background = TEXT[:2, :length] if hidden else None
    trials = copy_trials(seed, distances, length, 2, background)
    for row, place, distance in asked(trials):
        part = row[place - CUE : place + 1]
        assert occurrences(row, part) == [place - CUE - distance, place - CUE]


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(("length", "distances"), [SHORT, LONG])
def test_every_row_asks_for_as_many_symbols_at_each_distance(name, length, distances):
    background = TEXT[:, :length] if name == "copy_in_text" else None
    trials = TASKS[name](0, distances, length, 6, background)
    assert trials.tokens.shape == trials.distances.shape == (6, length)
    assert trials.distances.unique().tolist() == [0, *distances]
    size = size_of(length, distances)
    expected = size - CUE if "copy" in name else -(-(size // RECORD) // 2)
    for distance in distances:
        counts = (trials.distances == distance).sum(dim=1).tolist()
        if name == "most_recent":
            # Stretches with two sources are shorter.
            assert 1 <= counts[0] <= expected
            assert counts == [counts[0]] * 6
        else:
            assert counts == [expected] * 6


@pytest.mark.parametrize(("length", "distances"), [SHORT, LONG])
def test_copies_and_records_stand_exactly_the_distance_back(length, distances):
    for row, place, distance in asked(copy_trials(0, distances, length, 4)):
        part = slice(place - CUE, place + 1)
        source = slice(part.start - distance, part.stop - distance)
        assert torch.equal(row[part], row[source])
    for row, place, distance in asked(recall_trials(0, distances, length, 4)):
        record = slice(place - KEY, place + 1)
        source = slice(record.start - distance, record.stop - distance)
        assert torch.equal(row[record], row[source])


def test_records_between_are_new():
    trials = recall_trials(0, LONG[1], LONG[0], 4)
    assert size_of(*LONG) > 2 * RECORD
    for row, place, distance in asked(trials):
        following = slice(place + 1, place + 1 + RECORD)
        source = slice(following.start - distance, following.stop - distance)
        assert not torch.equal(row[following], row[source])


def test_the_nearer_of_two_keys_is_asked_and_the_further_has_another_value():
    length, distances = LONG
    for row, place, distance in asked(make_most_recent_trials(0, distances, length, 4)):
        further = min(2 * distance, distance + (length - distance) // 2)
        key = row[place - KEY : place]
        for back in (distance, further):
            assert torch.equal(row[place - KEY - back : place - back], key)
        assert row[place - distance] == row[place]
        assert row[place - further] != row[place]


@pytest.mark.parametrize("hidden", [False, True])
def test_three_tokens_tell_where_to_look(hidden):
    length, distances = LONG
    background = TEXT[:, :length] if hidden else None
    for make in (copy_trials, recall_trials, make_most_recent_trials):
        trials = make(0, distances, length, 6, background)
        is_right = predict_by_ngrams(trials.tokens, KEY) == trials.tokens
        assert is_right[trials.distances > 0].float().mean() > 0.98


def test_one_token_does_not_tell_where_to_look():
    trials = copy_trials(0, LONG[1], LONG[0], 8)
    is_right = predict_by_ngrams(trials.tokens, 1) == trials.tokens
    assert is_right[trials.distances == 768].float().mean() < 0.05


def test_symbols_are_hidden_among_the_tokens_given():
    length, distances = LONG
    trials = copy_trials(0, distances, length, 6, TEXT[:, :length])
    is_symbol = trials.tokens < 128
    hidden = 2 * size_of(length, distances) * len(distances)
    assert is_symbol.sum(dim=1).tolist() == [hidden] * 6
    assert set(trials.tokens[is_symbol].tolist()) <= set(ALPHABET.tolist())
    assert torch.equal(trials.tokens[~is_symbol], TEXT[:, :length][~is_symbol])


@pytest.mark.parametrize("make", [copy_trials, recall_trials, make_most_recent_trials])
def test_trials_are_functions_of_their_arguments(make: Callable[..., Trials]):
    length, distances = LONG
    trials = make(0, distances, length, 3)
    for part, again in zip(trials, make(0, distances, length, 3), strict=True):
        assert torch.equal(part, again)
    assert not torch.equal(trials.tokens, make(1, distances, length, 3).tokens)
    # More contexts are further ones.
    assert torch.equal(trials.tokens, make(0, distances, length, 5).tokens[:3])


def test_the_distances_of_experiments_are_asked_in_every_context():
    distances = grid.list_retrieval_distances(2048, 8192)
    trials = copy_trials(0, distances, 8192, 1)
    # The last 256 tokens ask for all of them: the cue of the first is not scored.
    assert trials.batch.last_scored == 256 - CUE
    assert int(trials.batch.scored.sum()) == 8 * (32 - CUE)


@pytest.mark.parametrize(
    ("make", "length", "distances"),
    [
        (copy_trials, 600, [CUE]),
        (copy_trials, 600, [599]),
        (copy_trials, 64, [16, 17, 18, 32, 48]),
        (recall_trials, 600, [2]),
        (recall_trials, 600, [599]),
        (make_most_recent_trials, 64, [16, 20, 24, 28, 48]),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(make: Any, length, distances):
    with pytest.raises(InputError, match=f"{length} tokens do not hold") as error:
        make(0, distances, length, 1)
    assert "\n" not in str(error.value)


def test_a_background_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"background is \(6, 2048\), not \(6, 1024\)"):
        copy_trials(0, [500], 1024, 6, TEXT)
