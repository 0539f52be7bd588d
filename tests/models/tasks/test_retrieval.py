"""Retrieval: what looks where the answer stands is right everywhere, and what does not
is not.
"""

import pandas as pd
import pytest
import torch
from torch import nn

from ropelab.models.lm.corpus import STANDARD_LIBRARY, Corpus, CorpusRef, TextDocument
from ropelab.models.lm.source import KEY
from ropelab.models.tasks.grid import (
    RetrievalPlace,
    list_retrieval_contexts,
    list_retrieval_distances,
    pair_places,
)
from ropelab.models.tasks.modes import AsTrained, SlidingWindow
from ropelab.models.tasks.retrieval import GRAMS, TASKS, NgramBaseline, Retrieval
from ropelab.models.tasks.task import SEARCH_SEED
from ropelab.runs.cell import Context
from ropelab.runs.errors import InputError
from tests.models.tasks.certain import Certain, looking_back, matching
from tests.models.tasks.running import corpus_of, nothing

EVERYWHERE = pair_places(
    list_retrieval_distances(64, 256), list_retrieval_contexts(64, 256)
)


@pytest.fixture(scope="module")
def corpus(corpora) -> CorpusRef:
    return corpus_of(corpora[0])


def task(
    name: str, corpus: CorpusRef, *where: RetrievalPlace, sequences: int = 2
) -> Retrieval:
    return Retrieval(
        name=name, places=where or EVERYWHERE, sequences=sequences, corpus=corpus
    )


def measured(model: Certain, asked: Retrieval) -> pd.DataFrame:
    return asked.measure(model, AsTrained(), nothing)["trials"]


def accuracy(model: Certain, asked: Retrieval) -> float:
    found = measured(model, asked)
    return found["correct"].sum() / found["trials"].sum()


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize(
    "place", EVERYWHERE, ids=lambda place: f"{place.distance}@{place.context}"
)
def test_looking_exactly_as_far_back_finds_everything_and_one_token_beside_it_nothing(
    name, place, corpus
):
    asked = task(name, corpus, place, sequences=4)
    found = measured(looking_back(place.distance), asked)
    assert (found["correct"] == found["trials"]).all()
    assert (found["trials"] > 0).all()
    assert len(found) == 4
    beside = measured(looking_back(place.distance + 1), asked)
    assert beside["correct"].sum() < found["trials"].sum() / 3


def test_a_sliding_window_finds_what_lies_within_it_and_nothing_further_back(corpus):
    def looking_within(distance: int) -> Certain:
        """A model that repeats what stood so far back, as far as it is given that."""
        pad = nn.functional.pad
        return Certain(
            lambda tokens: pad(tokens, (distance, 0), value=-1)[:, :-distance]
        )

    place = RetrievalPlace(64, 256)
    for window, share in ((256, 1), (128, 1), (48, 0)):
        asked = task("copy", corpus, place)
        mode = SlidingWindow(AsTrained(), window)
        found = asked.measure(looking_within(64), mode, nothing)["trials"]
        assert (found["correct"] == share * found["trials"]).all()


def test_the_value_further_back_is_always_wrong(corpus):
    asked = task("most_recent", corpus, RetrievalPlace(64, 256))
    assert accuracy(looking_back(128), asked) == 0


@pytest.mark.parametrize("name", TASKS)
def test_matching_the_last_three_tokens_answers_all_and_the_last_one_little(
    name, corpus
):
    asked = task(name, corpus)
    three, one = (matching(n) for n in (KEY, 1))
    assert accuracy(three, asked) > 0.98
    assert accuracy(one, asked) < 0.7
    if name == "copy":
        assert accuracy(three, asked) == 1


@pytest.mark.parametrize("name", TASKS)
def test_without_a_model_the_same_is_counted_as_with_one_that_matches(name, corpus):
    asked = task(name, corpus)
    table = NgramBaseline(task=asked).tables(Context())["matched"]
    assert table["n_gram_tokens"].unique().tolist() == list(GRAMS)
    for n in GRAMS:
        rows = table[table["n_gram_tokens"] == n].drop(columns="n_gram_tokens")
        model = matching(n)
        pd.testing.assert_frame_equal(
            rows.reset_index(drop=True), measured(model, asked)
        )


def test_a_row_for_every_context_at_every_place_in_their_order(corpus):
    asked = task("associative_recall", corpus, sequences=3)
    table = measured(looking_back(1), asked)
    assert asked.windows == [(3, 64), (3, 128), (3, 256)]
    rows = table[["distance_tokens", "context_tokens"]].drop_duplicates()
    assert [tuple(row) for row in rows.to_numpy()] == list(EVERYWHERE)
    assert table["sequence"].tolist() == [0, 1, 2] * len(EVERYWHERE)


def test_what_is_hidden_in_stands_in_held_out_text_and_a_search_in_text_that_is_learned_from(
    corpus,
):
    asked = task("copy_in_text", corpus, RetrievalPlace(64, 256))
    held_out = corpus.documents(256, 2)[0]
    searched = corpus.windows(SEARCH_SEED, 256, 2)
    for seed, background in ((0, held_out), (SEARCH_SEED, searched)):
        trials = asked.trials(seed, 256, 2)
        same = trials.tokens == background
        # All but a stretch of 32 symbols, which are base64's, as letters are, and its
        # source.
        assert same[:, :160].all()
        assert same[:, 192:224].all()
        assert same[:, 224:].float().mean() < 0.2
    assert not torch.equal(held_out, searched)


@pytest.mark.parametrize("name", TASKS)
def test_a_search_is_for_less_loss(name, corpus):
    asked = task(name, corpus)
    knowing = matching(KEY)
    assert asked.search_loss(knowing, AsTrained()) < asked.search_loss(
        looking_back(1), AsTrained()
    )


def test_a_text_is_given_to_one_sequence_only() -> None:
    # A Python's library may have fewer texts than are asked for.
    texts = tuple(TextDocument(bytes([65 + n]) * 300) for n in range(12))
    few = CorpusRef("", 257, "few", "few")
    few.provide(Corpus(STANDARD_LIBRARY, (b"abcd" * 100,), texts, "few"))
    task("copy_in_text", few, RetrievalPlace(64, 256), sequences=12).check()
    with pytest.raises(InputError, match="copy_in_text has 12 texts for 13 sequences"):
        task("copy_in_text", few, RetrievalPlace(64, 256), sequences=13).check()
    task("copy", few, RetrievalPlace(64, 256), sequences=13).check()
