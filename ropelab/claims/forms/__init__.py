"""Checks of claims about forms of the rotation, in files by their subject.

`rotation` has one pair, matrices and the elementwise form, `printed` code and formulas, and
`worked_example` a printed table of rotated vectors.
"""

# The checks of all claims of forms.toml are registered when this package is imported.
from ropelab.claims.forms import printed, rotation, worked_example

__all__ = ["printed", "rotation", "worked_example"]
