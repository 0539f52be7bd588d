"""A folder that no model was saved in is refused in one line, and nothing in it is
run.
"""

import shutil

import pytest

from ropelab.models.released.facts import read_facts
from ropelab.models.released.folder import hash_model_files
from ropelab.models.released.model import ReleasedModel
from ropelab.models.tasks.tokens import TokenText
from ropelab.runs.errors import InputError
from tests.models.released.hostile import HOSTILE
from tests.models.released.tiny import rope, saved, write_byte_tokenizer


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A folder in which nothing is wrong."""
    folder = saved(tmp_path_factory.mktemp("sound"), "llama", vocab_size=256)
    write_byte_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A text of two pieces of 16 bytes."""
    file = tmp_path_factory.mktemp("corpus") / "words.txt"
    file.write_text("some words that are longer than two times sixteen bytes")
    return str(file)


def measured(folder, corpus):
    """Everything that a run does with a folder."""
    read_facts(str(folder))
    hash_model_files(folder)
    tokens = TokenText.of(corpus, str(folder)).documents(16, 2)[0]
    model = ReleasedModel(folder)
    unmodified = model.head(model.hidden_states(tokens))
    model.encoding = rope(folder, "pi", 256)
    return unmodified, model.head(model.hidden_states(tokens))


def test_a_sound_folder_is_measured(sound, corpus):
    for logits in measured(sound, corpus):
        assert logits.shape == (2, 16, 256)
        assert logits.isfinite().all()


@pytest.mark.parametrize("wrong", HOSTILE)
def test_a_hostile_folder_is_refused_in_one_line(wrong, sound, corpus, tmp_path, capfd):
    folder = shutil.copytree(sound, tmp_path / "hostile")
    HOSTILE[wrong](folder)
    with pytest.raises(InputError) as refusal:
        measured(folder, corpus)
    message = str(refusal.value)
    assert message.isprintable(), message
    assert len(message) < 500
    assert "hostile" in message
    assert not (folder / "planted").exists()
    assert capfd.readouterr() == ("", "")
