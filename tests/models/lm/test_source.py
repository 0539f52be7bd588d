"""The mixture: what is scored has its reason in the same window."""

from typing import Any

import numpy as np
import pytest
import torch

from ropelab.models.lm.corpus import ALPHABET, Corpus, TextDocument, split_documents
from ropelab.models.lm.lists import hide_list
from ropelab.models.lm.matcher import predict_by_ngrams
from ropelab.models.lm.source import (
    CUE,
    KEY,
    LOOK_UPS,
    QUOTATION,
    RECORD,
    SYMBOLS,
    TEXT,
    Batch,
    Mixture,
    Stretches,
    draw_distances,
    draw_stretches,
    log_uniform,
    make_mixed_batch,
    make_periodic_batch,
    make_training_batch,
)

# Text without symbols, in which no run of three bytes occurs twice.
ROW = np.stack(
    [np.arange(8192) // 90 + 128, np.arange(8192) % 90 + 128], axis=1
).ravel()[:8192]
ALL = Mixture(periodic_steps=0)


def text_rows(rows: int, window: int) -> np.ndarray:
    return np.tile(ROW[:window], (rows, 1))


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def batch(mixture: Mixture, rows: int = 8, window: int = 512, seed: int = 0) -> Batch:
    return make_mixed_batch(mixture, generator(seed), text_rows(rows, window))


def stretches(
    mixture: Mixture, rows: int = 8, window: int = 512, seed: int = 0
) -> Stretches:
    """The stretches of `batch` with the same arguments."""
    return draw_stretches(mixture, generator(seed), rows, window)


@pytest.fixture(scope="module")
def learned() -> Corpus:
    texts = [
        generator(n).integers(128, 256, 3000, np.uint8).tobytes() for n in range(20)
    ]
    return split_documents("test", map(TextDocument, texts))


def test_without_other_kinds_it_is_text() -> None:
    only_text = batch(Mixture(quotations=0, symbols=0, look_ups=0))
    assert torch.equal(only_text.tokens, torch.from_numpy(text_rows(8, 512)))
    assert only_text.scored.all()


def test_text_goes_on_where_it_stopped() -> None:
    tokens, kind = batch(ALL).tokens.numpy(), stretches(ALL).kind
    for row, kinds in zip(tokens, kind, strict=True):
        text = row[kinds == TEXT]
        assert np.array_equal(text, ROW[: len(text)])


def test_quotations_are_copies_of_an_earlier_stretch() -> None:
    mixture = Mixture(look_ups=0)
    tokens, cut = batch(mixture).tokens.numpy(), stretches(mixture)
    quoted = 0
    for row in range(8):
        for number in np.unique(cut.number[row][cut.kind[row] == QUOTATION]):
            places = np.flatnonzero(cut.number[row] == number)
            start, end = places[0], places[-1] + 1
            copy = tokens[row, start:end]
            earlier = [
                tokens[row, s : s + len(copy)] for s in range(start - len(copy) + 1)
            ]
            assert any(np.array_equal(copy, there) for there in earlier)
            quoted += 1
    assert quoted > 10


def test_symbols_cues_and_keys_are_not_scored_and_the_rest_is() -> None:
    made, cut = batch(ALL, rows=32), stretches(ALL, rows=32)
    scored = made.scored.numpy()
    assert scored[cut.kind == TEXT].all()
    assert not scored[cut.kind == SYMBOLS].any()
    quoted = cut.kind == QUOTATION
    assert np.array_equal(scored[quoted], cut.place_in_stretch[quoted] >= CUE)
    assert not scored[
        (cut.kind == LOOK_UPS) & (cut.place_in_stretch % RECORD != KEY)
    ].any()


@pytest.mark.parametrize("far", [0.0, 1.0])
def test_every_value_follows_the_nearest_earlier_occurrence_of_its_key(
    far: float,
) -> None:
    mixture = Mixture(far=far, symbols=0.4, look_ups=0.2)
    made, cut = batch(mixture, rows=32), stretches(mixture, rows=32)
    values = (
        (cut.kind == LOOK_UPS)
        & (cut.place_in_stretch % RECORD == KEY)
        & made.scored.numpy()
    )
    assert values.sum() > 200
    found = predict_by_ngrams(made.tokens, KEY).numpy()
    assert np.array_equal(found[values], made.tokens.numpy()[values])


@pytest.mark.parametrize(
    ("contested", "low", "high"), [(0.0, 0.0, 0.02), (1.0, 0.7, 1.0)]
)
def test_contested_keys_also_stand_further_back_with_another_value(
    contested: float, low: float, high: float
) -> None:
    mixture = Mixture(quotations=0, symbols=0.5, look_ups=0.2, contested=contested)
    made, cut = batch(mixture, rows=32), stretches(mixture, rows=32)
    values = (
        (cut.kind == LOOK_UPS)
        & (cut.place_in_stretch % RECORD == KEY)
        & made.scored.numpy()
    )
    other = 0
    for row, place in np.argwhere(values):
        tokens = made.tokens[row].numpy()
        key = tokens[place - KEY : place]
        there = [
            tokens[s + KEY]
            for s in range(place - KEY)
            if np.array_equal(tokens[s : s + KEY], key)
        ]
        other += len(set(there)) > 1
    # Below 1: the older record may be asked to have several keys, and has the last of
    # them.
    assert low <= other / values.sum() <= high


def test_shares_are_kept() -> None:
    cut = stretches(ALL, rows=400, window=1024)
    later = (cut.start == np.arange(1024)) & (cut.start > 512)
    share = np.bincount(cut.kind[later], minlength=4) / later.sum()
    # From the middle on every quotation has room.
    wanted = {TEXT: 0.2, QUOTATION: 0.35, SYMBOLS: 0.3, LOOK_UPS: 0.15}
    assert share == pytest.approx([wanted[kind] for kind in range(4)], abs=0.03)


def test_lengths_are_within_their_bounds() -> None:
    cut = stretches(ALL, rows=200, window=256)
    assert cut.length.min() == ALL.shortest
    assert 100 < cut.length.max() <= 128


@pytest.mark.parametrize(("low", "high"), [(1, 1), (4, 24), (8, 1024)])
def test_log_uniform_reaches_both_ends_and_favours_neither_octave(
    low: int, high: int
) -> None:
    drawn = log_uniform((np.arange(200_000) + 0.5) / 200_000, low, high)
    assert (drawn.min(), drawn.max()) == (low, high)
    middle = int(np.sqrt(low * (high + 1)))
    assert (drawn < middle).mean() == pytest.approx(
        np.log(middle / low) / np.log((high + 1) / low), abs=1e-3
    )


def test_far_distances_are_uniform() -> None:
    share = (np.arange(1000) + 0.5) / 1000
    drawn = draw_distances(Mixture(far=1.0), share, share, 11, np.full(1000, 30))
    assert np.bincount(drawn).tolist() == [0] * 11 + [50] * 20


def test_training_begins_with_periodic_rows(learned: Corpus) -> None:
    mixture = Mixture()
    made = make_training_batch(mixture, learned, 0, mixture.periodic_steps - 1, 256, 2)
    assert made.tokens.shape == (
        2 * 256 // mixture.periodic_window,
        mixture.periodic_window,
    )
    for row, scored in zip(made.tokens, made.scored, strict=True):
        period = int((~scored).sum())
        assert RECORD <= period <= 3 * mixture.periodic_window // 4
        assert torch.equal(row[period:], row[:-period])
    after = make_training_batch(mixture, learned, 0, mixture.periodic_steps, 256, 2)
    assert after.tokens.shape == (2, 256)
    assert (after.tokens >= 128).any()


def test_periods_reach_from_a_record_to_most_of_the_row() -> None:
    periods = (~make_periodic_batch(generator(), 1024, 400).scored).sum(dim=1)
    assert periods.min() < 8
    assert periods.max() > 600


@pytest.mark.parametrize("step", [0, 500])
def test_batches_are_functions_of_their_arguments(learned: Corpus, step: int) -> None:
    one, again, another, later = (
        make_training_batch(Mixture(), learned, seed, at, 64, 4)
        for seed, at in ((1, step), (1, step), (2, step), (1, step + 1))
    )
    assert torch.equal(one.tokens, again.tokens)
    assert torch.equal(one.scored, again.scored)
    for other in (another, later):
        assert not torch.equal(one.tokens, other.tokens)


def test_only_text_of_the_training_half_is_learned_from(learned: Corpus) -> None:
    alphabet = set(ALPHABET.tolist())
    plain = Mixture(quotations=0, symbols=0, look_ups=0, periodic_steps=0)
    for row in make_training_batch(plain, learned, 0, 0, 256, 8).tokens.tolist():
        assert bytes(row) in b"|".join(learned.training)
    mixed = make_training_batch(Mixture(), learned, 0, 500, 256, 8).tokens.tolist()
    assert all(token in alphabet or token >= 128 for row in mixed for token in row)


@pytest.mark.parametrize(
    "shares", [{"quotations": -0.1}, {"symbols": 0.7, "quotations": 0.4}]
)
def test_shares_that_are_none_are_refused(shares: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="shares"):
        Mixture(**shares)


def test_a_row_with_a_list_scores_text_and_answers_only() -> None:
    kinds = set()
    for seed in range(40):
        tokens, scored = hide_list(generator(seed), ROW[:300])
        assert tokens.shape == scored.shape == (300,)
        # Text is above 127 here: what is below is the list and its questions.
        assert np.array_equal(tokens[tokens > 127], ROW[: (tokens > 127).sum()])
        assert scored[tokens > 127].all()
        stated, *asked = (
            bytes(tokens[tokens < 128].tolist()).decode().split("\narr ")[1:]
        )
        items = stated.removeprefix("= ").rstrip()
        keyed = len(items) == 8
        kinds.add(keyed)
        keys, letters = (items[::2], items[1::2]) if keyed else ("0123", items)
        found = dict(zip(keys, letters, strict=True))
        assert sorted(question[0] for question in asked) == ["0", "1", "2", "3"]
        assert all(found[question[0]] == question[1] for question in asked)
        answers = bytes(tokens[scored & (tokens < 128)].tolist()).decode()
        assert answers == "".join(question[1] for question in asked)
    assert kinds == {False, True}
    # As many questions as there is room for.
    short, _ = hide_list(generator(1), ROW[:32])
    assert (
        short.shape == (32,)
        and bytes(short[short < 128].tolist()).count(b"\narr ") == 3
    )


def test_only_the_share_of_rows_that_is_asked_for_has_lists(learned: Corpus) -> None:
    plain, mixed = (
        make_training_batch(
            Mixture(periodic_steps=0, lists=share), learned, 0, 0, 128, 400
        )
        for share in (0, 0.5)
    )
    changed = (plain.tokens != mixed.tokens).any(dim=1)
    assert 0.4 < changed.float().mean() < 0.6
    assert torch.equal(plain.scored[~changed], mixed.scored[~changed])


def test_models_without_lists_keep_their_keys() -> None:
    assert "lists" not in Mixture().key and Mixture(lists=0.5).key["lists"] == 0.5
    assert Mixture(far=0.1).key != Mixture().key
