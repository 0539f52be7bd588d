"""The copy task: every scored token has its answer earlier in the row."""

import pytest
import torch

from ropelab.lm.tasks import (
    CUE,
    KEY,
    RECORD,
    SYMBOLS,
    copy_batch,
    copy_trials,
    recall_trials,
)


def test_scored_tokens_repeat_the_segment():
    batch = copy_batch(seed=0, step=3, window=64, rows=32)
    for row, scored in zip(batch.tokens, batch.scored, strict=True):
        period = int((~scored).sum())
        assert 4 <= period <= 48
        assert torch.equal(row[period:], row[:-period])


def test_batches_are_functions_of_seed_and_step():
    one, same = copy_batch(1, 2, 32, 4), copy_batch(1, 2, 32, 4)
    assert torch.equal(one.tokens, same.tokens)
    for other in (copy_batch(1, 3, 32, 4), copy_batch(2, 2, 32, 4)):
        assert not torch.equal(one.tokens, other.tokens)


def test_all_distances_are_practised():
    periods = (~copy_batch(0, 0, 1024, 400).scored).sum(dim=1)
    assert periods.min() < 8
    assert periods.max() > 600


def test_trials_copy_from_exactly_the_distance():
    trials = copy_trials(seed=0, distance=100, length=180, rows=3)
    assert torch.equal(trials.tokens[:, 100:], trials.tokens[:, :80])
    assert torch.equal(trials.scored[0].nonzero().flatten(), torch.arange(100 + CUE, 180))
    assert trials.tokens.max() < SYMBOLS


@pytest.mark.parametrize("length", [50, 51, 101])
def test_trials_need_room_for_one_repeat_only(length):
    with pytest.raises(ValueError, match="one repeat at distance 50"):
        copy_trials(0, 50, length, 1)


def test_look_ups_are_exactly_the_distance_back_and_no_copied_segment():
    trials = recall_trials(seed=0, distance=100, length=180, rows=2)
    for row, scored in zip(trials.tokens, trials.scored, strict=True):
        records = row.view(-1, RECORD).tolist()
        asked = scored.view(-1, RECORD)[:, KEY].nonzero().flatten().tolist()
        assert asked == list(range(25, 45, 2))
        for place in range(25, 45):
            assert (records[place] == records[place - 25]) == (place in asked)


def test_look_ups_need_room():
    with pytest.raises(ValueError, match="one look-up at distance 50"):
        recall_trials(0, 50, 50, 1)
