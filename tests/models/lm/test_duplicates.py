"""Near-duplicates: a sample of the shingles stands for all of them."""

import numpy as np
import pytest

from ropelab.models.lm.duplicates import (
    SAMPLING_RATIO,
    SHINGLE,
    mark_new_texts,
    sample_shingles,
)


def text(seed: int, length: int) -> bytes:
    return (
        np.random.default_rng(seed).integers(256, size=length, dtype=np.uint8).tobytes()
    )


def test_equal_shingles_have_equal_hashes_wherever_they_stand() -> None:
    inner = text(0, 5000)
    for before in range(9):
        assert sample_shingles(inner) <= sample_shingles(text(1, before) + inner)


def test_one_shingle_of_many_is_kept() -> None:
    count = 200_000
    kept = len(sample_shingles(text(0, count + SHINGLE - 1)))
    assert kept == pytest.approx(count / SAMPLING_RATIO, rel=0.03)


def test_every_byte_of_a_shingle_changes_its_hash() -> None:
    base = text(0, SHINGLE)
    seen = set()
    for place in range(SHINGLE):
        for value in range(256):
            seen |= sample_shingles(base[:place] + bytes([value]) + base[place + 1 :])
    different = SHINGLE * 255 + 1
    assert len(seen) == pytest.approx(different / SAMPLING_RATIO, rel=0.2)


@pytest.mark.parametrize(
    ("shared", "new"), [(0.0, True), (0.4, True), (0.6, False), (1.0, False)]
)
def test_a_document_is_new_unless_most_of_it_stood_before(
    shared: float, new: bool
) -> None:
    length = 20_000
    cut = int(shared * length)
    first, second = text(0, length), text(1, length)
    assert mark_new_texts([first, first[:cut] + second[cut:]]) == [True, new]


def test_a_document_put_together_from_several_others_is_not_new() -> None:
    parts = [text(seed, 5000) for seed in range(4)]
    assert mark_new_texts([*parts, b"".join(parts)]) == [True] * 4 + [False]


def test_short_texts_are_kept() -> None:
    assert mark_new_texts([b"", b"a", b"a" * (SHINGLE - 1)]) == [True] * 3
