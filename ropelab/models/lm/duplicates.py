"""Near-duplicates among documents: most of what they say stands in others already.

Documents are compared by their shingles, all runs of SHINGLE bytes (Broder 1997). Each is hashed,
and one in SAMPLED kept by its hash, so that a shingle is kept wherever it stands and the share of a
document's shingles that stand elsewhere is estimated without bias.
"""

from collections.abc import Sequence

import numpy as np

WORD = 8
SHINGLE = 4 * WORD
"""Bytes in a shingle: most of a line of code, so that idioms and imports are no duplicates."""
SAMPLED = 32
MOST_KNOWN = 0.5
"""A document is a near-duplicate when more than this share of its shingles was seen before."""
MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)
"""Odd numbers with no pattern in their bits, one for each word of a shingle."""


def sampled_shingles(text: bytes) -> set[int]:
    """The hashes of a sample of the shingles of a text; none where it is shorter than one."""
    count = len(text) - SHINGLE + 1
    if count < 1:
        return set()
    words = np.empty(len(text) - WORD + 1, np.uint64)
    for offset in range(WORD):
        whole = (len(text) - offset) // WORD
        words[offset::WORD] = np.frombuffer(text, "<u8", whole, offset)
    hashes = np.zeros(count, np.uint64)
    for number, multiplier in enumerate(MULTIPLIERS):
        hashes = (hashes ^ words[number * WORD : number * WORD + count]) * multiplier
        hashes ^= hashes >> np.uint64(32)
    # A product's highest bits depend on all bits of its factors, its lowest on their lowest alone.
    hashes *= MULTIPLIERS[0]
    return set(hashes[hashes < 2**64 // SAMPLED].tolist())


def without_near_duplicates(texts: Sequence[bytes]) -> list[bool]:
    """For every text in order, whether it is new: kept, given those that were kept before it."""
    seen: set[int] = set()
    new = []
    for text in texts:
        shingles = sampled_shingles(text)
        new.append(len(shingles & seen) <= MOST_KNOWN * len(shingles))
        if new[-1]:
            seen |= shingles
    return new
