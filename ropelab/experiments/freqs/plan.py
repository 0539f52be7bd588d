"""What follows from a config of the freqs experiment: the geometry, the method, the frequencies."""

from dataclasses import dataclass

from ropelab.config import LARGEST
from ropelab.errors import InputError
from ropelab.experiments.freqs.config import FreqsConfig
from ropelab.methods.language import parse_scaling
from ropelab.rope.frequencies import Geometry
from ropelab.rope.scaling import RopePlan, Scaling


@dataclass(frozen=True)
class Plan:
    """A geometry under a method at one length in tokens."""

    geometry: Geometry
    scaling: Scaling
    test_len: int
    scaled: RopePlan


def plan(config: FreqsConfig) -> Plan:
    """The plan of a config.

    Raises:
        InputError: there is no such method, or it does not fit the geometry.
    """
    geometry = Geometry(config.rotary_dim or config.head_dim, config.base, config.train_len)
    scaling = parse_scaling(config.method, config.factor)
    reach = getattr(scaling, "factor", config.factor) if scaling.factors_tried else config.factor
    wanted = config.test_len or reach * config.train_len
    if not wanted <= LARGEST:
        raise InputError(f"{wanted:.4g} tokens are more than 2^53, where float64 is still exact")
    test_len = round(wanted)
    return Plan(geometry, scaling, test_len, scaling.plan(geometry, test_len))
