"""Every number that a verdict depends on, in one place."""

# Values computed in float64 that differ by less are equal. Angles up to 1e4 rad have an
# error of 2e-12, and a score is a sum over hundreds of angles.
EXACT = 1e-10
# Ratios of frequencies that differ by less are equal.
SAME = 1e-9
# A relative difference of float32 results below this is due to rounding.
ROUNDING = 1e-3
# Scores of float32 code on standard normal features that differ by less are equal.
FLOAT32_SCORES = 1e-4

# A small model with at least this accuracy of retrieval inside the trained length has
# learned the task. A model with less decides nothing, whatever it does beyond that
# length.
LEARNED = 0.8
# The same for a released model, which need not have been trained for the task: with at
# least this accuracy inside the trained length it is evaluated beyond it.
KNOWN = 0.5
# Retrieval works with at least this accuracy, or with at least this share of the
# accuracy inside the trained length.
WORKS = 0.9
# Retrieval below this accuracy fails.
FAILS = 0.5
# Retrieval below this accuracy is guessing. Guessing a copied symbol succeeds with 0.02.
AT_CHANCE = 0.05
# A model is of no use if its text loss, in nats per byte, exceeds the lowest text loss
# of all models by more than this. All the context inside the trained length lowers the
# loss by a quarter of it.
NO_USE = 1.0
# A released model with a higher loss, in nats per byte, hardly reads a text. Counts of
# single bytes of English have a loss of 3, compressors (gzip) 1.8, small models about 1.
HARDLY_READ = 2.0
# Seeds are taken to be of two kinds, some that learned the task and some that did not,
# if two neighbours in the order of their values differ by more than this (accuracy, or
# nats per byte).
TWO_KINDS = 0.5
# A model misses frequencies if, without them, its share of copied tokens falls by at
# least this much. It does not miss them if the interval of the change excludes such a
# fall.
MISSED = 0.1
# A text loss that rises by less than this, in nats per byte, does no harm.
HARMLESS = 0.02
# If a publication says that two results are equal, they are equal here if they differ by
# less than this (nats per byte, or accuracy).
CLOSE = 0.02
# A text loss is low if it is within this many nats per byte of the reference. That is
# about a tenth of the difference between a trained small model and one that only knows
# which bytes are frequent.
LOW_LOSS = 0.05
# An encoding is slow if it needs at least this many times the multiplications of plain
# attention.
SLOW = 1.25
# A printed power law describes a bound if it misses the bound by at most this share.
POWER_LAW_MISS = 0.25
# An angle that is wrong by less than this, in radians, is good enough.
ANGLE_RAD = 1e-2

# The effect of rounding is measured as the change of a score, in standard deviations of
# the scores of random vectors (docs/findings.md: what casts cost a trained model). No
# model noticed a rounding that changes scores by up to UNNOTICED: the loss rose by at
# most LOST nats per byte in up to MEASURED tokens. Rounded inverse frequencies cost up to
# LOST_FAR at 32768 tokens under YaRN.
UNNOTICED = 0.006
LOST = 0.003
MEASURED = 8192
LOST_FAR = 0.15
# The change of scores from which on all small models lost something.
NOTICED = 0.025

# Two casts give a token other probabilities if their logarithms are further apart, in
# nats: a ratio of 1 %, which reinforcement learning already sees in its weights.
DIVERGED = 0.01

# An implementation of RoPE is broken if a shift of all positions changes a score by more
# than this share.
BROKEN = 0.1
