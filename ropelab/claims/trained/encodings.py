"""Encodings whose text losses at the trained length claims compare."""

PAIRS = (("learned", "sinusoidal"), ("deberta", "transformer_xl"), ("rope_values", "rope"))
