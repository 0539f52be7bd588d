"""Runs in the shape in which lm-evaluation-harness 0.4 writes its results."""
