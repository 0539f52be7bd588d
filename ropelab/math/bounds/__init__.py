"""Lower bounds on the base of RoPE for a context: the exact bound, which is proved, and
rules of thumb.
"""

from ropelab.math.bounds.admissible import Walk, find_certified_u
from ropelab.math.bounds.similarity import FixedSimilarity, Similarity
from ropelab.math.bounds.survey import find_first_negative, find_lowest, scan

__all__ = [
    "FixedSimilarity",
    "Similarity",
    "Walk",
    "find_certified_u",
    "find_first_negative",
    "find_lowest",
    "scan",
]
