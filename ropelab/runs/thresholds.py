"""Every number that a verdict depends on, in one place."""

# Two values computed in float64 count as equal if they differ by less than this. Angles
# up to 1e4 rad have an error of 2e-12, and a score is a sum over hundreds of angles.
EXACT = 1e-10
# Two ratios of frequencies count as equal if they differ by less than this.
SAME = 1e-9
# A relative difference of float32 results below this is due to rounding.
ROUNDING = 1e-3
# Two scores of float32 code on standard normal features count as equal if they differ by
# less than this.
FLOAT32_SCORES = 1e-4

# A small model with at least this accuracy of retrieval inside the trained length has
# learned the task. A model with a lower accuracy there decides nothing, whatever it does
# beyond the trained length.
LEARNED = 0.8
# A released model with at least this accuracy of retrieval inside the trained length is
# evaluated beyond it. The accuracy is lower than LEARNED, since a released model need not
# have been trained for the task.
KNOWN = 0.5
# Retrieval works with at least this accuracy, or with at least this share of the
# accuracy inside the trained length.
WORKS = 0.9
# Retrieval below this accuracy fails.
FAILS = 0.5
# Retrieval below this accuracy is guessing. Guessing a copied symbol succeeds with 0.02.
AT_CHANCE = 0.05
# A model is of no use if its text loss, in nats per byte, exceeds the lowest text loss
# of all models by more than this. For comparison: the whole context inside the trained
# length lowers the loss by a quarter of this number.
NO_USE = 1.0
# A released model with a loss above this, in nats per byte, hardly reads a text. On
# English text, predicting bytes by their frequency alone has a loss of 3, compressors
# (gzip) have 1.8, and small models about 1.
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
# the scores of random vectors (docs/findings.md: what casts cost a trained model). If
# rounding changed scores by up to UNNOTICED, models did not notice it: their mean loss
# rose by at most LOST nats per byte, in contexts of up to MEASURED tokens. Rounded inverse
# frequencies are another rotation, of which the change of scores says nothing: they cost
# up to LOST_BY_FREQUENCIES there, and LOST_FAR at 32768 tokens under YaRN.
UNNOTICED = 0.006
LOST = 0.002
MEASURED = 8192
LOST_BY_FREQUENCIES = 0.009
LOST_FAR = 0.15
# The change of scores, in the same unit, from which on every rounding that was tried cost
# small models something. Between, the cost of one of two roundings is shown.
NOTICED = 0.049

# A predicted change of scores below this, in the same unit, counts as 0, since the
# computation of the prediction is itself rounded.
LEAST_SCORE_ERROR = 1e-4

# Two casts give a token different probabilities if the logarithms of the probabilities
# differ by more than this, in nats. It is a ratio of 1 %, which already matters for the
# weights of reinforcement learning.
DIVERGED = 0.01

# An implementation of RoPE is broken if a shift of all positions changes a score by more
# than this share.
BROKEN = 0.1
