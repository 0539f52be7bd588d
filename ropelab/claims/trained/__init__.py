"""Checks of claims that trained models decide, by the stored runs of the experiments.

`runs` reads the tables of a run, `deciding` chooses the run that decides a claim, and
`tally` makes findings of comparisons. All other files have the checks, by their subject.
"""

# The checks of all claims of trained.toml are registered when this package is imported.
from ropelab.claims.trained import (
    bases,
    encodings,
    frequencies,
    methods,
    orders,
    released,
)

__all__ = ["bases", "encodings", "frequencies", "methods", "orders", "released"]
