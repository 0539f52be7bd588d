"""A released model beyond its trained length: the figures of `extrapolate`."""

from ropelab.show.figures.extrapolate import draw

__all__ = ["draw"]
