"""Words of any length are read in a time that grows with their length, not with a power
of it.
"""

from collections.abc import Callable
from time import process_time

import pytest

from ropelab.math.methods import FREQUENCY_METHODS, make_method_error
from ropelab.readers.flags import SUFFIXED
from ropelab.runs.errors import InputError, say
from ropelab.runs.from_source import importing
from ropelab.runs.spelling import read_number, split_list

LONG = 1_000_000
# Seconds of the processor. Each of these words took a minute or more.
MOST_SECONDS = 2.0


def read_refused_number(word: str) -> None:
    with pytest.raises(ValueError, match="must be a number"):
        read_number(word)


def import_refused(word: str) -> None:
    with pytest.raises(InputError, match="inside at most"), importing(word):
        pass


@pytest.mark.parametrize(
    ("read", "word"),
    [
        (read_refused_number, "1" * LONG + "x"),
        (read_refused_number, "0" * LONG + "e5x"),
        (SUFFIXED.fullmatch, "1" * LONG + "x"),
        (split_list, "1" * LONG),
        (split_list, "(" * LONG),
        (lambda word: make_method_error(word, FREQUENCY_METHODS), "x" * 10_000),
        (import_refused, "a." * LONG),
    ],
)
def test_a_long_word_is_read_at_once(read: Callable[[str], object], word: str) -> None:
    before = process_time()
    read(word)
    assert process_time() - before < MOST_SECONDS


@pytest.mark.parametrize(
    ("text", "number"),
    [("5.", 5), ("1_0.5", 10.5), (".5", 0.5), ("1.5k", 1536), ("00012", 12)],
)
def test_numbers_are_read_as_before(text: str, number: float) -> None:
    assert read_number(text) == number


def test_a_long_word_is_said_again_in_parts(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"left out: {'a' * LONG}: no folder")
    line = capsys.readouterr().err
    assert len(line) < 5000
    assert line.startswith("left out: ")
    assert line.endswith(": no folder\n")
