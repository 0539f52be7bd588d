"""The matcher agrees with looking back token by token."""

import pytest
import torch

from ropelab.models.lm.matcher import NOTHING, predict_by_cache, predict_by_ngrams


def looked_up(row: list[int], n: int, place: int) -> int:
    """What followed the last n tokens before `place`, looking back one token at a
    time.
    """
    for earlier in range(place - 1, n - 1, -1):
        if row[earlier - n : earlier] == row[place - n : place]:
            return row[earlier]
    return NOTHING


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("vocabulary", [2, 5, 256])
def test_predictions_equal_looking_back(n: int, vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(n)
    tokens = torch.randint(vocabulary, (4, 120), generator=generator)
    found = predict_by_ngrams(tokens, n)
    for row, predicted in zip(tokens.tolist(), found.tolist(), strict=True):
        assert predicted == [looked_up(row, n, t) for t in range(len(row))]


def test_rows_do_not_know_of_each_other() -> None:
    tokens = torch.randint(3, (5, 60), generator=torch.Generator().manual_seed(0))
    together = predict_by_ngrams(tokens, 2)
    alone = torch.cat([predict_by_ngrams(row[None], 2) for row in tokens])
    assert torch.equal(together, alone)


def test_a_token_is_not_its_own_evidence() -> None:
    tokens = torch.randint(4, (2, 50), generator=torch.Generator().manual_seed(0))
    before = predict_by_ngrams(tokens, 1)
    changed = tokens.clone()
    changed[:, 30] = (changed[:, 30] + 1) % 4
    assert torch.equal(predict_by_ngrams(changed, 1)[:, :31], before[:, :31])


def test_short_rows_are_not_predicted() -> None:
    assert predict_by_ngrams(torch.tensor([[1, 1, 1]]), 3).tolist() == [[NOTHING] * 3]


@pytest.mark.parametrize("n", [0, 8])
def test_what_does_not_fit_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match=f"{n}-grams of 256 tokens"):
        predict_by_ngrams(torch.zeros(1, 20, dtype=torch.long), n)


def cached_by_definition(
    row: list[int], place: int, order: int, beyond: int, within: int | None = None
) -> tuple[float, int]:
    """Count the continuations of every context from scratch."""
    probability, longest = 1 / 4, 0
    for length in range(min(order, place) + 1):
        context = row[place - length : place]
        oldest = 0 if within is None else place - beyond - within
        ends = range(max(length, oldest), place - beyond)
        after = [row[end] for end in ends if row[end - length : end] == context]
        if not after:
            break
        new, longest = len(set(after)), length
        share = after.count(row[place]) / len(after)
        probability = (share * len(after) + new * probability) / (len(after) + new)
    return probability, longest


@pytest.mark.parametrize(
    ("order", "beyond", "within"),
    [
        (0, 0, None),
        (3, 0, None),
        (3, 5, None),
        (8, 60, None),
        (3, 0, 10),
        (0, 4, 7),
        (3, 0, 500),
    ],
)
def test_a_cache_counts_what_lies_further_back_and_backs_off(
    order: int, beyond: int, within: int | None
) -> None:
    row = torch.randint(4, (50,), generator=torch.Generator().manual_seed(0)).tolist()
    found = predict_by_cache(row, order, beyond, 4, within)
    wanted = [
        cached_by_definition(row, place, order, beyond, within)
        for place in range(1, len(row))
    ]
    assert [longest for _, longest in found] == [longest for _, longest in wanted]
    assert [p for p, _ in found] == pytest.approx([p for p, _ in wanted])
    # Over all tokens that could be next, probabilities add up to 1.
    ends = [
        predict_by_cache([*row, token], order, beyond, 4, within)[-1][0]
        for token in range(4)
    ]
    assert sum(ends) == pytest.approx(1)
