"""Checks of claims about published methods and numbers, in files by their subject.

`scalings` has the frequencies of scaling methods, `dates` who was first and who uses what,
`precision` number formats, and `bases` the printed bounds on the base.
"""

# The checks of all claims of published.toml are registered when this package is imported.
from ropelab.claims.published import bases, dates, precision, scalings

__all__ = ["bases", "dates", "precision", "scalings"]
