"""Checks of claims of two theories of 2026, a file each: Liu's bounds on the base, and
Du et al.'s four modes of failure.

Only abstracts and other people's summaries of both papers were at hand.

A check measures something and adds the result to `findings`: as a part, without which the
claim does not hold, or as a limit, which puts a condition on it (see `Findings`).
"""

# The checks of all claims of theories.toml are registered when this package is imported.
from ropelab.claims.theories import du, liu

__all__ = ["du", "liu"]
