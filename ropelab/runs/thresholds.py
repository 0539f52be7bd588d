"""Every number that a verdict depends on, in one place."""

# Equal in float64: angles up to 1e4 rad are known to 2e-12, and a score sums hundreds
# of them.
EXACT = 1e-10
# Ratios of frequencies that differ by less are equal.
SAME = 1e-9
# Relative differences of float32 results below this are rounding.
ROUNDING = 1e-3
# Scores of float32 code on standard normal features that differ by less are equal.
FLOAT32_SCORES = 1e-4

# Retrieval inside the trained length from which on a model has learned the task. Below
# it the model decides nothing, whatever it does beyond that length.
LEARNED = 0.8
# Retrieval inside the trained length from which on a model given is asked for more
# beyond it: it need not have been trained for the task.
KNOWN = 0.5
# Retrieval from this accuracy on, or this share of that inside the trained length,
# works.
WORKS = 0.9
# Retrieval below this accuracy fails.
FAILS = 0.5
# Retrieval below this accuracy is guessing: copied symbols are guessed with 0.02.
AT_CHANCE = 0.05
# A text loss so many nats per byte above the best row is that of a model that is of no
# use: all the context inside the trained length is worth a quarter of it.
NO_USE = 1.0
# A released model with a higher loss, in nats per byte, hardly reads a text: counts of
# single bytes of English need 3, compressors (gzip) 1.8, small models about 1.
HARDLY_READ = 2.0
# Seeds are of two kinds where neighbours in their order differ by more (accuracy, or
# nats per byte): some learned the task, others did not.
TWO_KINDS = 0.5
# Frequencies are missed where copying without them falls by this share of tokens or
# more, and not where all of the interval lies above that.
MISSED = 0.1
# A text loss that rises by less, in nats per byte, is kept.
HARMLESS = 0.02
# Smaller differences (nats per byte, or accuracy) count as equal where equality was
# published.
CLOSE = 0.02
# A text loss within so many nats per byte of the reference is low: about a tenth of
# what separates a trained small model from one that only knows which bytes are
# frequent.
LOW_LOSS = 0.05
# From this many times the multiplications of plain attention an encoding is slow.
SLOW = 1.25
# A printed power law describes a bound that it misses by less than this share.
FIT = 0.25
# An angle that is off by less is good enough.
ANGLE_RAD = 1e-2
# Scores of random vectors have deviation 1. A rounding that moves one by up to
# UNNOTICED cost no model more than LOST nats per byte in up to MEASURED tokens, of
# inv_freq LOST_FAR in 32768 under YaRN; from NOTICED on all small models lost something
# (docs/findings.md: what casts cost a trained model).
UNNOTICED, NOTICED, LOST, MEASURED, LOST_FAR = 0.006, 0.025, 0.003, 8192, 0.15
# A score that changes by more than this share under a shift is broken.
BROKEN = 0.1
