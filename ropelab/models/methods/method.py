"""Methods: ways to evaluate a model at a longer context than it was trained at.

A method makes an encoding (ropelab/models/encoding) for a model of some `Geometry`: its
rotary dimension, base and trained length. Most methods change the frequencies of RoPE
(`Scaled`). Others change attention, or weights.

Some methods depend on the length of the context (dynamic NTK, dynamic YaRN). They are
measured as a prompt of that length would be evaluated: all tokens have the encoding of
the full length, so that each length needs a separate pass through the model.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from ropelab.math.frequencies import Geometry
from ropelab.math.rotary import Pairing
from ropelab.math.scaling import Scaling, Unscaled
from ropelab.math.scaling.plan import Range, Ranges, TypedMethod, method
from ropelab.runs.errors import InputError

# Encodings are imported where one is made, since they need torch, which takes long to
# import. A list of methods needs none of them.
if TYPE_CHECKING:
    from ropelab.models.encoding.base import Encoding
    from ropelab.models.encoding.extended import Remapped
    from ropelab.models.encoding.rope import Rope

# The pairs of features that rotate in models trained here: neighbours. Weights that
# were trained with one pairing do not work with another pairing.
PAIRING: Pairing = "interleaved"

ActsOn = Literal["frequencies", "attention", "weights"]
# Parameters that are whole numbers of tokens, steps or tries. None stands for a parameter
# that was not given; `resolve` sets it from the model and the length.
COUNTS = ("window", "group", "chunk", "shift", "steps", "budget")


@dataclass(frozen=True, kw_only=True)
class Method(TypedMethod, ABC):
    """A method on a model. Its label is its name with its parameters.

    The label does not name the factor, which has a separate column in tables.
    """

    # The part of a model that the method changes. Weights of a released model are never
    # changed.
    acts_on: ClassVar[ActsOn] = "attention"
    ranges: ClassVar[Ranges] = dict.fromkeys(
        COUNTS, Range("a whole number of at least 1", lambda x: x >= 1)
    )

    @property
    def factor(self) -> float:
        """The factor by which the context is stretched; 1 for a method without a
        factor.
        """
        return 1.0

    def resolve(self, geometry: Geometry, test_len: int) -> Self:
        """Set the parameters that were not given, for a model and a tested length.

        InputError: the method does not fit the model or the length.
        """
        return self

    @abstractmethod
    def search(
        self,
        geometry: Geometry,
        loss_under: Callable[["FixedMethod"], float],
    ) -> "FixedMethod":
        """Return the method with its searched parameters.

        `loss_under` is the loss of a model under a method.
        """


@dataclass(frozen=True, kw_only=True)
class FixedMethod(Method):
    """A method that needs no search, so that a model can be fine-tuned under it."""

    @property
    def recalibration(self) -> int:
        """The number of training steps that are a part of the method; 0: none."""
        return 0

    def search(
        self,
        geometry: Geometry,
        loss_under: Callable[["FixedMethod"], float],
    ) -> "FixedMethod":
        return self

    @abstractmethod
    def encoding(self, geometry: Geometry, length: int) -> "Encoding":
        """Return the encoding for a context of `length` tokens."""

    def signature(self, geometry: Geometry, length: int) -> Hashable:
        """Return a value that is the same for two lengths with the same encoding."""
        # Unless a subclass says otherwise, all lengths have the same encoding.
        return None

    def passes(
        self,
        geometry: Geometry,
        lengths: Sequence[int],
    ) -> "Iterator[tuple[Encoding, list[int]]]":
        """Yield each encoding, with the lengths of context that share it.

        One pass over the longest of these lengths serves all lengths that share an
        encoding. `lengths` are in rising order.
        """
        groups = groupby(lengths, lambda length: self.signature(geometry, length))
        for _, group in groups:
            lengths_of_group = list(group)
            longest = lengths_of_group[-1]
            yield self.encoding(geometry, longest), lengths_of_group


@dataclass(frozen=True, kw_only=True)
class Scaled(FixedMethod):
    """Frequencies of RoPE that a scaling method changes, such as YaRN."""

    scaling: Scaling
    acts_on: ClassVar[ActsOn] = "frequencies"

    @property
    def label(self) -> str:
        if any(field.name == "factor" for field in fields(self.scaling)):
            return replace(self.scaling, factor=1.0).label  # type: ignore[call-arg]
        return self.scaling.label

    @property
    def factor(self) -> float:
        return float(getattr(self.scaling, "factor", 1.0))

    def resolve(self, geometry: Geometry, test_len: int) -> Self:
        # The plan is not used. The call raises InputError if the scaling does not fit.
        self.scaling.plan(geometry, test_len)
        return self

    def encoding(self, geometry: Geometry, length: int) -> "Rope":
        from ropelab.models.encoding.rope import Rope

        plan = self.scaling.plan(geometry, length)
        # A scaling without a factor on scores has None here.
        softmax_factor = self.scaling.softmax_factor or 1.0
        return Rope(plan, PAIRING, softmax_factor)

    def signature(self, geometry: Geometry, length: int) -> Hashable:
        plan = self.scaling.plan(geometry, length)
        return (*plan.inv_freq.tolist(), plan.attention_factor)


# RoPE as the model was trained with it.
UNSCALED = Scaled(scaling=Unscaled())


@method("log_n", "Su 2021, kexue.fm/archives/8823")
class SharpenedByLogN(FixedMethod):
    """Logits times max(1, ln n / ln L) for n tokens read, on top of method `inner`."""

    inner: FixedMethod = UNSCALED

    def __post_init__(self) -> None:
        # The user may have typed any method as `inner`. Python does not check the
        # annotation, so the type is checked here.
        inner: Method = self.inner
        if not isinstance(inner, FixedMethod):
            raise InputError(
                f"log_n: inner must need no search, which {inner.name} does"
            )

    @property
    def factor(self) -> float:
        return self.inner.factor

    def resolve(self, geometry: Geometry, test_len: int) -> Self:
        return replace(self, inner=self.inner.resolve(geometry, test_len))

    @property
    def recalibration(self) -> int:
        return self.inner.recalibration

    def encoding(self, geometry: Geometry, length: int) -> "Encoding":
        from ropelab.models.encoding.extended import LogN

        return LogN(self.inner.encoding(geometry, length), geometry.trained_len)

    def signature(self, geometry: Geometry, length: int) -> Hashable:
        return self.inner.signature(geometry, length)


@dataclass(frozen=True, kw_only=True)
class Remapping(FixedMethod):
    """A method that gives tokens that are far apart another distance than their own.

    Its encoding is a subclass of `Remapped` (ropelab/models/encoding/extended.py). The
    fields of the method are the `sizes` that this subclass takes.
    """

    def sizes(self, geometry: Geometry) -> tuple[int, ...]:
        """Return the whole numbers that the encoding takes as its `sizes`."""
        sizes = tuple(getattr(self, field.name) for field in fields(self))
        assert None not in sizes, "`resolve` was not called"
        return sizes

    @abstractmethod
    def encoding_class(self) -> "type[Remapped]":
        """Return the class of the method's encoding."""

    def encoding(self, geometry: Geometry, length: int) -> "Encoding":
        rope = UNSCALED.encoding(geometry, length)
        return self.encoding_class()(rope, *self.sizes(geometry))


@method("rerope", "Su 2023, kexue.fm/archives/9708")
class Rectified(Remapping):
    """Distances from `window` on (half the trained length) are all read as `window`."""

    window: int | None = None

    def encoding_class(self) -> "type[Remapped]":
        from ropelab.models.encoding.extended import ReRope

        return ReRope

    def resolve(self, geometry: Geometry, test_len: int) -> Self:
        return replace(self, window=self.window or geometry.trained_len // 2)


@method("self_extend", "Jin et al. 2024, arXiv:2401.01325")
class Grouped(Remapping):
    """Distances from `window` on in steps of `group`, all within the trained length.

    By default `window` is half the trained length L, and `group` the least that keeps
    all distances within L.
    """

    window: int | None = None
    group: int | None = None

    def encoding_class(self) -> "type[Remapped]":
        from ropelab.models.encoding.extended import SelfExtend

        return SelfExtend

    def resolve(self, geometry: Geometry, test_len: int) -> Self:
        window = self.window or geometry.trained_len // 2
        # Far distances get the rest of the trained length.
        far_distances = max(1, geometry.trained_len - window)
        least_group = max(1, math.ceil((test_len - window) / far_distances))
        return replace(self, window=window, group=self.group or least_group)


@method("dual_chunk", "An et al. 2024, arXiv:2402.17463")
class Chunked(Remapping):
    """Positions restart every `chunk` tokens, by default 3/4 of the trained length."""

    chunk: int | None = None

    def encoding_class(self) -> "type[Remapped]":
        from ropelab.models.encoding.extended import DualChunk

        return DualChunk

    def resolve(self, geometry: Geometry, test_len: int) -> Self:
        chunk = self.chunk or max(1, 3 * geometry.trained_len // 4)
        if chunk >= geometry.trained_len:
            raise InputError(
                "dual_chunk: chunk must be below the trained length"
                f" {geometry.trained_len}, not {chunk}"
            )
        return replace(self, chunk=chunk)

    def sizes(self, geometry: Geometry) -> tuple[int, ...]:
        return (*super().sizes(geometry), geometry.trained_len)


@method("string", "An et al. 2024, arXiv:2410.18745")
class ShiftedDown(Remapping):
    """Distances from `shift` on (a third of L) are shifted down to begin at `window`."""

    shift: int | None = None
    window: int | None = None

    def encoding_class(self) -> "type[Remapped]":
        from ropelab.models.encoding.extended import Shifted

        return Shifted

    def resolve(self, geometry: Geometry, test_len: int) -> Self:
        shift = self.shift or max(1, geometry.trained_len // 3)
        # The paper has a window of 128 for 131072 tokens. With a window as long as the
        # shift nothing would change, so a short shift gets a shorter window here.
        window = self.window or min(128, max(1, shift // 4))
        if window > shift:
            raise InputError(
                f"string: window {window} must not be longer than shift {shift}"
            )
        return replace(self, shift=shift, window=window)


@method("drope", "DroPE, arXiv:2512.12167")
class Unrotated(FixedMethod):
    """No rotations, `steps` of training without them, logits times 1 + `sharpen` ln s.

    s is the context over the trained length, at least 1.
    """

    # The default is for models that were trained in 1200 steps, such as the models of
    # the presets small and medium of `extrapolate`.
    steps: int = 160
    sharpen: float = 0.1
    acts_on: ClassVar[ActsOn] = "weights"
    ranges: ClassVar[Ranges] = {
        "sharpen": Range("at least 0", lambda x: 0 <= x < math.inf)
    }

    @property
    def recalibration(self) -> int:
        return self.steps

    def encoding(self, geometry: Geometry, length: int) -> "Encoding":
        from ropelab.models.encoding.extended import Dropped

        stretch = max(1.0, length / geometry.trained_len)
        return Dropped(1 + self.sharpen * math.log(stretch))

    def signature(self, geometry: Geometry, length: int) -> Hashable:
        if self.sharpen == 0:
            # The encoding does not depend on the length.
            return None
        return max(length, geometry.trained_len)
