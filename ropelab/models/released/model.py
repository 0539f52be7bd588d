"""A causal language model of transformers behind the interface that evaluation uses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.extended import SelfExtend
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm.trained import LIBRARIES
from ropelab.models.released.attention import Attention
from ropelab.models.released.capabilities import Capabilities
from ropelab.models.released.facts import ModelShape, facts_of, shape_of
from ropelab.models.released.folder import fingerprint_of, located, weight_files
from ropelab.models.released.forward import Head, Passes, usual_pass
from ropelab.models.released.loading import ModelDtype, configuration, load, refusing
from ropelab.models.released.positions import UNMODIFIED, Patch, Positions, Unmodified, patch_of
from ropelab.runs.cell import Needs
from ropelab.runs.errors import InputError
from ropelab.runs.estimate import size

# Bytes of a number.
ELEMENTS = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Size:
    """The part of a model's shape that evaluation needs."""

    vocabulary: int


class ReleasedModel:
    """A causal language model whose rotary frequencies can be patched.

    As loaded it reads as shipped. `model.encoding = Rope(...)` patches the frequencies, the
    attention factor and the softmax factor, `LogN`, `ReRope` and `SelfExtend` change attention as
    well; `model.encoding = UNMODIFIED` puts back what the checkpoint has. The weights and the
    windows of layers never change.

    Args:
        path: the folder that `save_pretrained` wrote, or an id in the local cache of the Hub.
        device: where it computes, unless `device_map` spreads it.
        dtype: the number format of its weights; rotary angles are float32 in any.
    Attributes:
        facts: what its configuration says about positions.
        closed: why no method can be put in; empty where one can.
        tried: what else it lets be done.
    Raises:
        InputError: transformers is missing, the folder cannot be read, or the architecture has no
            rotary frequencies or cannot be taken apart.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        dtype: ModelDtype = "float32",
        device_map: str | None = None,
    ) -> None:
        self.path = path = located(path)
        self.facts = facts_of(str(path))
        self.size = Size(self.facts.vocabulary)
        self.lm = load(path, device, dtype, device_map)
        self.text = self.lm.config.get_text_config(decoder=True)
        self.positions = Positions(self.lm, self.text)
        if not self.positions.modules:
            raise InputError(f"{path}: this architecture has no rotary frequencies to exchange")
        with refusing("cannot take apart the model in", path):
            self._take_apart()
        self.encoding = UNMODIFIED

    def _take_apart(self) -> None:
        geometry = self.facts.geometry()
        self.head, self.passes = Head(self.lm), Passes(self.lm, self.text)
        self.closed = self.positions.objection(geometry)
        self.capabilities = Capabilities(
            self.lm,
            self.head,
            self.passes,
            self.positions,
            RopePlan(geometry.inv_freq),
            self.size.vocabulary,
        )
        if said := self.capabilities.objection():
            raise InputError(f"{self.path}: {said}")
        self.capabilities.in_parts()

    @property
    def encoding(self) -> Encoding:
        """The encoding last put in.

        Raises:
            InputError: when it is set to one that this model does not take.
        """
        return self._encoding

    @encoding.setter
    def encoding(self, encoding: Encoding) -> None:
        if isinstance(encoding, Unmodified):
            longest = self.positions.longest
            encoding = Unmodified(longest - 1 if longest else None)
        patch = patch_of(encoding)
        if said := self._objection_to(patch):
            raise InputError(f"{self.path}: {encoding.name} cannot be put in, because {said}")
        self._encoding, self._patch = encoding, patch

    def _objection_to(self, patch: Patch) -> str:
        if patch.plan is not None and self.closed:
            return self.closed
        if patch.attends and not self.capabilities.sharpens:
            return "its layers do not call transformers' attention interface"
        if patch.far is not None and self.capabilities.layout is None:
            return "its own rotation of queries and keys cannot be taken over"
        return ""

    def unmodified_passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Put UNMODIFIED in, and group rising lengths that one pass over the longest serves.

        A checkpoint whose scaling follows the length (dynamic NTK, LongRoPE) reads each context
        as one of its own length. Lengths beyond what the checkpoint is defined for are left out.
        """
        self.encoding = UNMODIFIED
        longest = self.positions.longest
        defined = [length for length in lengths if longest is None or length <= longest]
        for _, group in groupby(defined, self.positions.signature):
            yield list(group)

    def hidden(self, tokens: Int[Tensor, "batch tokens"]) -> Float[Tensor, "batch tokens width"]:
        """Last hidden states, which the head turns into logits.

        Raises:
            InputError: more tokens than the checkpoint is defined for as shipped.
        """
        last, length = self.encoding.max_position, tokens.shape[1]
        if last is not None and length > last + 1:
            raise InputError(f"{self.path}: as shipped it reads no more than {last + 1} tokens")
        with self.positions.patched(self._patch, length):
            return self.passes.read(tokens, self._attention())

    def _attention(self) -> Attention | None:
        """Return the attention of the patch; None for the layers' own."""
        patch, layout = self._patch, self.capabilities.layout if self._patch.far else None
        if not patch.attends:
            return None
        if patch.far is None or patch.plan is None or layout is None:
            return Attention(patch.sharpened_from)
        rope = Rope(patch.plan, layout.pairing)
        far = SelfExtend(rope, patch.far.window, patch.far.group)
        by_layer_type = self.positions.by_layer_type
        return Attention(patch.sharpened_from, far, by_layer_type, layout.last)

    def bytes_of_reading(self, length: int) -> int:
        """Bytes that a pass over a context adds to those of the weights."""
        return self.passes.bytes_of_reading(length)

    def free_bytes(self) -> int:
        """Bytes that are free where the model computes."""
        if self.head.weight.device.type == "cuda":
            return int(torch.cuda.mem_get_info()[0])
        return int(psutil.virtual_memory().available)


@dataclass(frozen=True)
class ModelRef:
    """A released model, small enough to be part of a cell's description.

    Attributes:
        path: its folder, or its id in the local cache of the Hub.
        fingerprint: of its files.
        dtype: the number format of its weights and products.
        device, device_map: where it computes; no part of what it computes.
    """

    path: str
    fingerprint: str
    dtype: ModelDtype = "auto"
    device: str = "cpu"
    device_map: str | None = None

    @classmethod
    def at(
        cls,
        path: str,
        dtype: ModelDtype = "auto",
        device: str = "cpu",
        device_map: str | None = None,
    ) -> "ModelRef":
        """Return the model as its files are now."""
        return cls(path, fingerprint_of(Path(path)), dtype, device, device_map)

    @property
    def key(self) -> dict[str, Any]:
        """Everything that identifies the model and its arithmetic."""
        return {"hf": self.fingerprint, "dtype": self.dtype}

    def model(self, *_: object) -> ReleasedModel:
        """Return the model, loaded once for all that a process asks of it."""
        return _loaded(self)

    def needs(self, windows: Sequence[tuple[int, int]]) -> Needs:
        """Estimate passes over rows of tokens, from the configuration and the size of the files."""
        shape, weights = self._shape, self._weights
        operations = sum(
            2 * rows * length * (weights + shape.layers * shape.heads * shape.head_dim * length)
            for rows, length in windows
        )
        return Needs(
            operations,
            memory_bytes=self.bytes_of_reading(max(length for _, length in windows)),
            dtype="bfloat16" if self.dtype == "bfloat16" else "float32",
            gpu=self.device == "cuda",
            alone=True,
        )

    def bytes_of_reading(self, length: int, added: int | None = None) -> int:
        """Bytes with the weights and the libraries.

        Args:
            added: by a pass, where that is known; else it is taken to be read in parts.
        """
        at_once = min(length, usual_pass(self._shape, self._element))
        pass_ = self._shape.bytes_of_reading(length, at_once, self._element)
        return LIBRARIES + self._weights * self._element + (added or pass_)

    def check_memory(self, limit: int | None, length: int, added: int | None = None) -> None:
        """Raise InputError where a context needs more bytes than a limit."""
        needed = self.bytes_of_reading(length, added)
        if limit is not None and needed > limit:
            raise InputError(
                f"reading {length} tokens needs about {size(needed)}, more than "
                f"--limit-memory {size(limit)}"
            )

    @property
    def _shape(self) -> ModelShape:
        return shape_of(configuration(Path(self.path)).get_text_config(decoder=True))

    @property
    def _element(self) -> int:
        return ELEMENTS.get(self.dtype, 4)

    @property
    def _weights(self) -> int:
        """The number of weights, from the size of their files in the checkpoint's format."""
        folder = located(Path(self.path))
        held = sum(path.stat().st_size for path in weight_files(folder))
        named = str(getattr(configuration(folder), "dtype", None)).removeprefix("torch.")
        return held // ELEMENTS.get(named, 4)


@lru_cache(maxsize=1)
def _loaded(reference: ModelRef) -> ReleasedModel:
    path, device = Path(reference.path), reference.device
    return ReleasedModel(path, device, reference.dtype, reference.device_map)
