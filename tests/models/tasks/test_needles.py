"""Pass keys: they stand where they should, can be found, and are scored as decoding
would.
"""

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from ropelab.models.lm.corpus import CorpusRef
from ropelab.models.lm.lists import LISTS, insert_pieces
from ropelab.models.released.model import ReleasedModel
from ropelab.models.tasks.grid import RetrievalPlace
from ropelab.models.tasks.modes import AsTrained, Unmodified
from ropelab.models.tasks.needles import WORDINGS, Needles, evaluate_last
from ropelab.models.tasks.retrieval import TASKS, Retrieval
from ropelab.models.tasks.tokens import TokenText
from ropelab.runs.errors import InputError
from tests.models.released.tiny import reader_of_bytes, tokens
from tests.models.tasks.certain import looking_back, matching
from tests.models.tasks.running import corpus_of, nothing
from tests.texts import mentions

CONTEXT = 1600
VOCABULARY = 257


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return reader_of_bytes(tmp_path_factory.mktemp("model"), bos=True)


@pytest.fixture(scope="module")
def text(corpora, model) -> TokenText:
    return TokenText.of(corpora[0], model)


def needles(
    text: TokenText | CorpusRef,
    name: str = "passkey",
    contexts: tuple[int, ...] = (CONTEXT, 2000),
) -> Needles:
    depths = (0, 50, 100)
    sequences = 2 if name == "multiquery" else 6
    return Needles(
        name=name, corpus=text, contexts=contexts, depths=depths, sequences=sequences
    )


def spelled(text: TokenText, row: torch.Tensor) -> str:
    return str(text.tokenizer.decode(row.tolist()))


@pytest.mark.parametrize("name", WORDINGS)
def test_answers_stand_where_the_table_says_and_the_last_one_ends_the_row(name, text):
    asked = needles(text, name)
    for context in asked.contexts:
        for number in range(asked.rows):
            needle = asked.needle(context, number)
            row = needle.tokens[0]
            assert needle.tokens.shape == (1, context + 1)
            assert needle.answers[-1].start + needle.answers[-1].size == len(row)
            for answer in needle.answers:
                question = spelled(text, row[: answer.start]).splitlines()[-1]
                value = spelled(text, row[answer.start :][: answer.size])
                hidden = spelled(text, row[answer.start - answer.distance :])
                assert hidden.startswith("\nThe pass key")
                assert hidden.splitlines()[1].split(". Remember")[0].endswith(value)
                assert mentions(question, "What is", "pass key", "is")
                assert spelled(text, row).count(value) == 3


def test_one_key_is_at_each_depth_in_turn_and_several_are_at_all(text):
    one, several = needles(text), needles(text, "multiquery")
    assert (one.steps, several.steps) == (12, 4)
    assert [one.needle(CONTEXT, n).answers[0].depth for n in range(6)] == [
        0,
        50,
        100,
    ] * 2
    assert replace(one, sequences=2).rows == 3
    for number in range(2):
        answers = several.needle(CONTEXT, number).answers
        assert sorted(answer.depth for answer in answers) == [0, 50, 100]


def test_depths_go_from_the_beginning_of_the_text_to_its_end(text):
    rows = needles(text).measure(matching(7, VOCABULARY), Unmodified(), nothing)[
        "answers"
    ]
    far = (
        rows.query("context_tokens == 2000")
        .groupby("depth_percent")["distance_tokens"]
        .mean()
    )
    assert far[0] > far[50] > far[100]
    assert far[0] - far[50] == pytest.approx(far[50] - far[100], abs=2)


@pytest.mark.parametrize("name", WORDINGS)
def test_what_matches_the_question_finds_every_key_and_what_does_not_finds_none(
    name, text
):
    asked = needles(text, name)
    found = asked.measure(matching(7, VOCABULARY), Unmodified(), nothing)["answers"]
    assert (found["correct"] == 1).all()
    assert len(found) == 12
    lost = asked.measure(looking_back(1, VOCABULARY), Unmodified(), nothing)["answers"]
    assert (lost["correct"] == 0).all()
    assert (lost["log_probability_nats"] < found["log_probability_nats"]).all()


@pytest.mark.parametrize("name", LISTS)
def test_a_question_for_a_list_has_the_answer_that_the_list_gives(name, text):
    asked = needles(text, name)
    (answers,) = asked.measure(matching(7, VOCABULARY), Unmodified(), nothing).values()
    assert len(answers) == asked.rows * len(asked.contexts)
    for number in range(asked.rows):
        needle = asked.needle(CONTEXT, number)
        (answer,) = needle.answers
        row = spelled(text, needle.tokens[0, 1:])
        stated, index, again, value = re.findall(
            r"arr = [\[{](.*)[\]}]\n.*\nWhat is arr\[(\d)\]\? arr\[(\d)\] = (\d)$",
            row,
            re.DOTALL,
        )[0]
        assert index == again
        items = stated.split(", ")
        if name == "keyed":
            assert sorted(item[:3] for item in items) == ["0: ", "1: ", "2: ", "3: "]
            assert f"{index}: {value}" in items
        else:
            assert items[int(index)] == value and len({*items}) == 4
        assert answer.size == 1 and answer.depth == (0, 50, 100)[number % 3]
        assert spelled(
            text, needle.tokens[0, answer.start - answer.distance :]
        ).startswith("\narr = ")


def test_one_pass_scores_what_greedy_decoding_says_and_how_probable_the_answer_was(
    model,
):
    """The answer is taken from the model's own greedy text, then one token of it is
    changed.
    """
    ours = ReleasedModel(Path(model))
    ours.encoding = ours.encoding
    read = tokens(30, rows=1, vocabulary=VOCABULARY)
    with torch.inference_mode():
        for _ in range(5):
            said = ours.lm(read, use_cache=False).logits[:, -1].argmax(dim=-1)
            read = torch.cat([read, said[:, None]], dim=1)
        logits = ours.lm(read, use_cache=False).logits
    losses, right = evaluate_last(ours, read, 5)
    assert right.all()
    expected = cross_entropy(logits[0, -6:-1], read[0, -5:], reduction="none")
    torch.testing.assert_close(losses[0].float(), expected, rtol=1e-4, atol=1e-4)
    changed = read.clone()
    changed[0, -3] = (changed[0, -3] + 1) % VOCABULARY
    assert evaluate_last(ours, changed, 5)[1][0].tolist()[:3] == [True, True, False]


def test_what_is_hidden_is_put_in_at_its_depth_and_nothing_is_lost():
    filled, starts = insert_pieces(list(range(10)), [[-1, -2], [-3]], [50, 20])
    assert filled == [0, 1, -3, 2, 3, 4, -1, -2, 5, 6, 7, 8, 9]
    assert starts == [6, 2]
    assert insert_pieces([1, 2], [[-1]], [100]) == ([1, 2, -1], [2])


def test_a_context_that_is_mostly_question_is_refused(text):
    with pytest.raises(InputError, match="300 tokens are too few for passkey"):
        needles(text).needle(300, 0)


def test_every_field_is_in_the_key_and_the_name_is_the_kind(text):
    asked = needles(text)
    others: dict[str, Any] = {
        "contexts": (900,),
        "depths": (10,),
        "sequences": 7,
        "corpus": replace(text, bos="no"),
    }
    assert set(others) | {"name"} == {field.name for field in fields(Needles)}
    for name, value in others.items():
        assert replace(asked, **{name: value}).key != asked.key


def test_copying_is_of_ordinary_tokens_after_what_begins_a_text(text):
    place = RetrievalPlace(64, 256)
    asked = Retrieval(name="copy", places=(place,), sequences=3, corpus=text)
    batch = asked.trials(0, 256, 3).batch
    assert batch.tokens.shape == (3, 256)
    assert (batch.tokens[:, 0] == 256).all()
    assert batch.tokens[:, 1:].max() < 256
    found = asked.measure(looking_back(64, VOCABULARY), Unmodified(), nothing)["trials"]
    assert (found["correct"] == found["trials"]).all()
    beside = asked.measure(looking_back(65, VOCABULARY), Unmodified(), nothing)[
        "trials"
    ]
    assert beside["correct"].sum() < found["trials"].sum() / 3
    assert replace(asked, places=(RetrievalPlace(32, 256),)).key != asked.key
    assert replace(asked, sequences=4).key != asked.key
    assert replace(asked, corpus=replace(text, bos="no")).key != asked.key


@pytest.mark.parametrize("name", TASKS)
def test_every_retrieval_task_can_be_done_in_the_tokens_of_a_released_model(name, text):
    place = RetrievalPlace(64, 256)
    asked = Retrieval(name=name, places=(place,), sequences=3, corpus=text)
    batch = asked.trials(0, 256, 3).batch
    assert batch.tokens.shape == (3, 256)
    assert (batch.tokens[:, 0] == 256).all()
    assert not batch.scored[:, 0].any()
    found = asked.measure(looking_back(64, VOCABULARY), Unmodified(), nothing)["trials"]
    assert (found["correct"] == found["trials"]).all()
    beside = asked.measure(looking_back(65, VOCABULARY), Unmodified(), nothing)[
        "trials"
    ]
    assert beside["correct"].sum() < found["trials"].sum() / 3
    if name == "copy_in_text":
        documents = text.documents(256, 3)[0]
        assert torch.equal(batch.tokens[:, 1:160], documents[:, 1:160])


@pytest.mark.parametrize("name", WORDINGS)
def test_keys_can_be_hidden_in_bytes_for_a_model_trained_here(name, corpora):
    corpus = corpus_of(corpora[0], 1200)
    asked = needles(corpus, name, contexts=(1100,))
    needle = asked.needle(1100, 1)
    said = bytes(needle.tokens[0].tolist()).decode()
    for answer in needle.answers:
        value = said[answer.start :][: answer.size].strip()
        assert said.count(value) == 3
    found = asked.measure(matching(7), AsTrained(), nothing)["answers"]
    # Seven bytes before a digit do not always tell one name from another.
    assert found["correct"].mean() > (0.99 if name == "passkey" else 0.4)
    knowing, guessing = (
        asked.search_loss(m, AsTrained()) for m in (matching(7), looking_back(1))
    )
    assert knowing < guessing
    with pytest.raises(InputError, match="300 tokens are too few"):
        asked.needle(300, 0)
