"""Near-duplicates among texts, such as a file and a copy of it with a few changes.

Two texts are near-duplicates if they share many shingles, sequences of bytes (Broder
1997). A shingle is most of a line of code, so that common idioms and imports make no
near-duplicate. It is read as four words.
"""

from collections.abc import Sequence

import numpy as np

# The number of bytes of a word.
WORD = 8
# The number of bytes of a shingle.
SHINGLE = 4 * WORD
# One shingle in this number is used. The hash of a shingle decides whether it is used,
# so that a shingle which several texts have is used in all of them or in none.
SAMPLING_RATIO = 32
# The largest share of shingles that a text may have in common with the texts before it.
# With a larger share it is a near-duplicate.
MOST_KNOWN_SHARE = 0.5
# Odd numbers with no pattern in their bits, one for each word of a shingle. They make
# the hash of a shingle.
MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93],
    np.uint64,
)


def sample_shingles(text: bytes) -> set[int]:
    """Return the hashes of a sample of the shingles of a text."""
    count = len(text) - SHINGLE + 1
    if count < 1:
        return set()

    # The word at every place of the text, as a number of 64 bits. For each offset the
    # text is read as words that do not overlap. They belong to every eighth place.
    words = np.empty(len(text) - WORD + 1, np.uint64)
    for offset in range(WORD):
        word_count = (len(text) - offset) // WORD
        words[offset::WORD] = np.frombuffer(text, "<u8", word_count, offset)

    # The hash of the shingle at every place is computed from its four words.
    hashes = np.zeros(count, np.uint64)
    for number, multiplier in enumerate(MULTIPLIERS):
        start = number * WORD
        hashes = (hashes ^ words[start : start + count]) * multiplier
        hashes ^= hashes >> np.uint64(32)
    # The comparison below looks at the highest bits of the hashes. The highest bits of
    # a product depend on all bits of its factors.
    hashes *= MULTIPLIERS[0]
    is_sampled = hashes < 2**64 // SAMPLING_RATIO
    return set(hashes[is_sampled].tolist())


def mark_new_texts(texts: Sequence[bytes]) -> list[bool]:
    """Return True for each text that is not a near-duplicate of a text before it.

    Texts that are near-duplicates do not count among the texts before.
    """
    known: set[int] = set()
    is_kept = []
    for text in texts:
        shingles = sample_shingles(text)
        known_shingles = len(shingles & known)
        is_new = known_shingles <= MOST_KNOWN_SHARE * len(shingles)
        if is_new:
            known |= shingles
        is_kept.append(is_new)
    return is_kept
