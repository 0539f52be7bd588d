"""What a run of the claims experiment costs."""

from ropelab.claims.experiment.config import ClaimsConfig
from ropelab.runs.estimate import Estimate


def estimate(config: ClaimsConfig) -> Estimate:
    """The whole ledger took 3 s; runs that are made first say their own cost."""
    return Estimate(5.0, 0.6e9)
