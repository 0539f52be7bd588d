"""An encoding as what is to be done to a model, and doing it for as long as a context is read."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ropelab.errors import InputError
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.extended import LogN, SelfExtend
from ropelab.models.encoding.rope import Rope
from ropelab.models.released.rotary import holders
from ropelab.models.released.shipped import AsShipped
from ropelab.models.released.softmax import SoftmaxFactor


@dataclass(frozen=True)
class Exchange:
    """An encoding as what is to be done to a model.

    Attributes:
        plan: frequencies to put in; None: those of the checkpoint.
        sharpened_from: logits grow with ln n / ln L beyond this length L; None: they do not.
        far: distances are read by this one; None: by the model's own rotation.
        softmax: what scores are multiplied with where the model's code has such a factor.
    """

    plan: RopePlan | None = None
    sharpened_from: int | None = None
    far: SelfExtend | None = None
    softmax: float = 1.0

    @property
    def attends(self) -> bool:
        """Whether attention itself is changed."""
        return self.sharpened_from is not None or self.far is not None


def taken_apart(encoding: Encoding) -> Exchange:
    """What an encoding asks of a model.

    Raises:
        InputError: it asks for something that is not done here.
    """
    if isinstance(encoding, AsShipped):
        return Exchange()
    if isinstance(encoding, LogN):
        return replace(taken_apart(encoding.inner), sharpened_from=encoding.trained_len)
    if isinstance(encoding, SelfExtend):
        return Exchange(plan=encoding.rope.plan, far=encoding)
    if isinstance(encoding, Rope):
        return Exchange(plan=encoding.plan, softmax=encoding.softmax_factor)
    raise InputError(f"{encoding.name} is no way to read a model that was trained elsewhere")


class Positions:
    """The parts of a model that make its positions: as shipped, unless something is put in.

    Args:
        model: the causal language model.
        text: the configuration of its language part.
    """

    def __init__(self, model: Any, text: Any) -> None:
        self.holders = holders(model)
        self.softmax = SoftmaxFactor(model, text)

    @contextmanager
    def put_in(self, exchange: Exchange, length: int) -> Iterator[None]:
        """Do what an exchange says for a context of that length, and undo it at the end."""
        try:
            for holder in self.holders:
                if exchange.plan is None:
                    holder.ship(length)
                else:
                    still = RopePlan(0 * exchange.plan.inv_freq)
                    holder.exchange(still if exchange.far else exchange.plan, length)
            if exchange.plan is not None:
                self.softmax.exchange(exchange.softmax)
            yield
        finally:
            for holder in self.holders:
                holder.restore()
            self.softmax.restore()

    @property
    def longest(self) -> int | None:
        """The longest context that is defined as shipped, in tokens; None: any."""
        ends = [holder.longest for holder in self.holders if holder.longest]
        return min(ends) if ends else None

    @property
    def by_layer_type(self) -> bool:
        """Whether layers with a window have frequencies of their own."""
        return any(holder.by_layer_type for holder in self.holders)

    def signature(self, length: int) -> Hashable:
        """Equal for lengths that the checkpoint reads with the same frequencies."""
        return tuple(holder.signature(length) for holder in self.holders)

    def objection(self, geometry: Geometry) -> str:
        """Why no method can be put in, empty if one can."""
        said = (holder.objection(geometry) for holder in self.holders)
        return next(filter(None, said), "")
