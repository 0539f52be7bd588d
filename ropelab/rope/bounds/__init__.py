"""Lower bounds on the base: the exact one with a certificate, and the rules of thumb."""

from ropelab.rope.bounds.admissible import Walk, certified_from
from ropelab.rope.bounds.similarity import Fixed, Similarity
from ropelab.rope.bounds.survey import first_negative, lowest, scan

__all__ = ["Fixed", "Similarity", "Walk", "certified_from", "first_negative", "lowest", "scan"]
