"""Every number that a verdict depends on, in one place."""

EXACT = 1e-10
"""Equal in float64: angles up to 1e4 rad are known to 2e-12, and a score sums hundreds of them."""
SAME = 1e-9
"""Ratios of frequencies that differ by less are equal."""
ROUNDING = 1e-3
"""Relative differences of float32 results below this are rounding."""
FLOAT32_SCORES = 1e-4
"""Scores of float32 code on standard normal features that differ by less are equal."""

LEARNED = 0.8
"""Retrieval inside the trained length from which on a model has learned the task. Below it the
model decides nothing, whatever it does beyond that length."""
KNOWN = 0.5
"""Retrieval inside the trained length from which on a model given is asked for more beyond it: it
need not have been trained for the task."""
WORKS = 0.9
"""Retrieval from this accuracy on, or this share of that inside the trained length, works."""
FAILS = 0.5
"""Retrieval below this accuracy fails."""
MISSED = 0.1
"""Frequencies are missed where copying without them falls by this share of tokens or more, and not
where all of the interval lies above that."""
HARMLESS = 0.02
"""A text loss that rises by less, in nats per byte, is kept."""
CLOSE = 0.02
"""Smaller differences (nats per byte, or accuracy) count as equal where equality was published."""
LOW_LOSS = 0.05
"""A text loss within so many nats per byte of the reference is low: about a tenth of what
separates a trained small model from one that only knows which bytes are frequent."""
SLOW = 1.25
"""From this many times the multiplications of plain attention an encoding is slow."""
FIT = 0.25
"""A printed power law describes a bound that it misses by less than this share."""
ANGLE_RAD = 1e-2
"""An angle that is off by less is good enough."""
BROKEN = 0.1
"""A score that changes by more than this share under a shift is broken."""
