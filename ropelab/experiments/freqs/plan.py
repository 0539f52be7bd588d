"""What follows from a config of the freqs experiment: the geometry, the method, the frequencies."""

from dataclasses import dataclass

from ropelab.errors import InputError
from ropelab.experiments.freqs.config import FreqsConfig
from ropelab.math.frequencies import Geometry
from ropelab.math.methods import parse_scaling
from ropelab.math.rotary import axis_names, axis_of_pairs
from ropelab.math.scaling import RopePlan, Scaling
from ropelab.runs.config import LARGEST


@dataclass(frozen=True)
class Plan:
    """A geometry under a method at one length in tokens.

    Attributes:
        geometry: of the whole head, or of the first axis where each has frequencies of its own.
        scaled: what the method makes of that geometry.
        parts: every geometry of the head with its scaled frequencies; one, unless axial.
        axes: the axis that each pair of the head reads; empty for text.
    """

    geometry: Geometry
    scaling: Scaling
    test_len: int
    scaled: RopePlan
    parts: tuple[tuple[Geometry, RopePlan], ...]
    axes: tuple[str, ...]


def plan(config: FreqsConfig) -> Plan:
    """The plan of a config.

    Raises:
        InputError: there is no such method, or it does not fit the geometry.
    """
    widths = [config.rotary_dim or config.head_dim]
    if config.sections and config.layout == "axial":
        widths = [2 * pairs for pairs in config.sections]
    geometries = [Geometry(width, config.base, config.train_len) for width in widths]
    scaling = parse_scaling(config.method, config.factor)
    reach = getattr(scaling, "factor", config.factor) if scaling.default_factors else config.factor
    wanted = config.test_len or reach * config.train_len
    if not wanted <= LARGEST:
        raise InputError(f"{wanted:.4g} tokens are more than 2^53, where float64 is still exact")
    test_len = round(wanted)
    parts = tuple((geometry, scaling.plan(geometry, test_len)) for geometry in geometries)
    names = axis_names(len(config.sections))
    axes = tuple(names[i] for i in axis_of_pairs(config.layout, config.sections).tolist())
    geometry, scaled = parts[0]
    return Plan(geometry, scaling, test_len, scaled, parts, axes)
