"""What follows from a config of the base experiment: the sum of cosines, and what is judged."""

from dataclasses import dataclass

from ropelab.errors import InputError
from ropelab.experiments.base.config import BaseConfig
from ropelab.math.bounds import Fixed, Similarity
from ropelab.math.frequencies import Geometry
from ropelab.math.methods import parse_scaling
from ropelab.math.numerics.formats import FloatFormat, format_named
from ropelab.math.scaling import Scaling

TWO_PAIRS_REACH = 355
"""355 is 113 pi and 3e-5: from there on cos(355) + cos(355 theta) >= 0 needs theta < 9e-8."""


@dataclass(frozen=True)
class Plan:
    """A head, the contexts asked about, a base to judge, and what a model was trained with."""

    head_dim: int
    similarity: Similarity
    contexts: tuple[int, ...]
    judged: Geometry | None
    scaling: Scaling
    trained: Geometry
    test_len: int | None
    formats: tuple[FloatFormat, ...]

    @property
    def rotary_dim(self) -> int:
        """Features that could turn; some of their pairs may have been dropped."""
        return self.trained.rotary_dim

    @property
    def turning(self) -> list[int]:
        """The pairs that turn, by number."""
        return [round(a * self.rotary_dim / 2) for a in self.similarity.exponents]

    def scaled(self, context: int) -> Fixed:
        """The sum of cosines of the judged base under its method at a context."""
        assert self.judged is not None
        inv_freq = self.scaling.plan(self.judged, context).inv_freq[self.turning]
        return Fixed(self.similarity.exponents, self.similarity.unrotated, tuple(inv_freq))


def plan(config: BaseConfig) -> Plan:
    """The plan of a config.

    Raises:
        InputError: a name does not exist, or values do not fit each other.
    """
    similarity = Similarity.of_head(config.head_dim, config.rotary_dim, config.kept, config.dropped)
    two_pairs = len(similarity.exponents) == 2 and not similarity.unrotated
    if two_pairs and max(config.context) > TWO_PAIRS_REACH:
        raise InputError(
            f"a head of two pairs is searched up to {TWO_PAIRS_REACH} tokens only: there the "
            "first pair is back at half a turn, and no base below 1e14 makes up for it"
        )
    rotary_dim = config.rotary_dim or config.head_dim
    found = Plan(
        head_dim=config.head_dim,
        similarity=similarity,
        contexts=config.context,
        judged=Geometry(rotary_dim, config.base, config.train_len) if config.base else None,
        scaling=parse_scaling(config.method),
        trained=Geometry(rotary_dim, config.train_base, config.train_len),
        test_len=config.test_len,
        formats=tuple(format_named(name) for name in config.formats),
    )
    if found.judged:
        found.scaling.plan(found.judged, max(config.context))
    return found
