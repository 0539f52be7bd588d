"""A causal language model of transformers behind the interface that evaluation uses."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.extended import LogN, SelfExtend
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm.trained import LIBRARIES
from ropelab.models.released import loading, positions
from ropelab.models.released.facts import facts_of, layer_windows
from ropelab.models.released.folder import fingerprint_of, locate, weight_bytes
from ropelab.models.released.forward import Head, ModelShape, upcast
from ropelab.models.released.loading import ModelDtype, load
from ropelab.models.released.positions import (
    UNMODIFIED,
    UNPATCHED,
    PairLayout,
    Patch,
    PatchedAttention,
    Positions,
)
from ropelab.runs.cell import Resources
from ropelab.runs.errors import InputError, MachineError
from ropelab.runs.estimate import size
from ropelab.runs.machine import available_memory, return_freed_memory

# The bytes of a number, by format.
ELEMENTS = {"float32": 4, "bfloat16": 2, "float16": 2}
# The tokens of a row, and the rows, of the passes that test what a model can do.
PROBE = 24
ROWS = 4
# Parts are as good as one pass if they are at most so many times as far from float32.
# For SmolLM2-135M in bfloat16 they are 0.9 to 1.15 times as far, over draws of as many
# tokens as here.
AS_NEAR = 1.5
# A part holds so many tokens that its mask of earlier ones stays below this (32 MiB).
SCORES_PER_PART = 2**25
LAYOUTS = [
    PairLayout(pairing, last) for last in (False, True) for pairing in get_args(Pairing)
]
# Errors by which a model's code shows that it was not made for a test.
UNSUITED = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


class Capabilities:
    """Capabilities of a model, tested with a few tokens."""

    # Architectures are many and change, so that no list of them is kept. Rounding to
    # bfloat16 or float16 would hide results, so they are computed in float32, or
    # compared with it.
    def __init__(self, model: "ReleasedModel") -> None:
        self.model = model
        self.plan = RopePlan(model.facts.geometry().inv_freq)
        random = torch.Generator().manual_seed(0)
        tokens = torch.randint(model.size.vocabulary, (ROWS, PROBE), generator=random)
        self.tokens = tokens.to(model.head.weight.device)

    @torch.inference_mode()
    def objection(self) -> str:
        """Return the reason why the model cannot be evaluated; empty if it can."""
        # A single row is passed, since all logits of a pass are held at once.
        tokens = self.tokens[:1]
        theirs = self.model.lm(tokens, use_cache=False).logits.float()
        if not theirs.isfinite().all():
            return "its logits are not finite numbers"
        if not self._close(self.model.head(self.model.read(tokens)), theirs):
            return "this architecture changes its logits after the head"
        return ""

    @torch.inference_mode()
    def in_parts(self) -> bool:
        """Return True if contexts in parts are as good as one pass; then allow them."""
        whole = self.model.read(self.tokens)
        is_near = False
        self.model.in_parts = True
        with suppress(*UNSUITED):
            parts = self.model.read(self.tokens, longest=PROBE // 2)
            is_near = self._close(parts, whole)
            if not is_near and self.exact is not None:
                allowed = AS_NEAR * distance(whole, self.exact)
                is_near = distance(parts, self.exact) <= allowed
        self.model.in_parts = is_near
        return is_near

    @cached_property
    def exact(self) -> Tensor | None:
        """The result of float32; None where weights cannot be upcast."""
        with suppress(*UNSUITED), upcast(self.model.layers):
            result = self.model.read(self.tokens)
            if result.dtype == torch.float32:
                return result
        return None

    @cached_property
    def sharpens(self) -> bool:
        """True if layers call our attention, and a factor of 1 changes nothing."""
        without_effect = Patch(sharper=LogN(Encoding(), 10**9))
        return self._same(UNPATCHED, without_effect)

    @cached_property
    def layout(self) -> PairLayout | None:
        """The features that rotate; None if the rotation cannot be taken over."""
        # In a window of 2^40 tokens all distances are exact.
        without_effect = SelfExtend(Rope(self.plan), 2**40, 1)
        for layout in LAYOUTS:
            patch = Patch(self.plan, rotation=without_effect, layout=layout)
            if self._same(Patch(self.plan), patch):
                return layout
        return None

    @torch.inference_mode()
    def _same(self, own: Patch, other: Patch) -> bool:
        computing = nullcontext() if self.exact is None else upcast(self.model.layers)
        with suppress(*UNSUITED), computing:
            expected = self.model.read(self.tokens, own)
            return self._close(self.model.read(self.tokens, other), expected)
        return False

    def _close(self, ours: Tensor, theirs: Tensor) -> bool:
        """Return True if the number format explains the difference of two results."""
        tolerance = 1e-3 if theirs.dtype == torch.float32 else 5e-2
        spread = max(float(theirs.float().std()), 1e-6)
        difference = (ours.float() - theirs.float()).abs().max()
        return float(difference) <= tolerance * spread


def distance(
    ours: Float[Tensor, "rows tokens width"],
    theirs: Float[Tensor, "rows tokens width"],
) -> float:
    """Return the mean over tokens of the root mean square difference over features."""
    squares = (ours.float() - theirs.float()).square()
    return float(squares.mean(dim=-1).sqrt().mean())


class ReleasedModel:
    """A causal language model whose rotary frequencies can be patched.

    `model.encoding = Rope(...)` patches the frequencies, the attention factor and the
    softmax factor, `LogN` and `Remapped` encodings change attention as well;
    `UNMODIFIED`, which a model begins with, restores the checkpoint. Weights and
    windows never change, and rotary angles are float32. `closed` is the reason why no
    method can be patched in, if there is one; `in_parts` is True once it is known
    that long contexts can be passed in parts. InputError: no transformers, no readable folder,
    or an architecture without rotary frequencies or that cannot be taken apart.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        dtype: ModelDtype = "float32",
        device_map: str | None = None,
    ) -> None:
        path = locate(path)
        self.path = path
        self.facts = facts_of(str(path))
        # Evaluation needs only the vocabulary of a model's size.
        self.size = self.facts
        self.lm = load(path, device, dtype, device_map)
        self.text = self.lm.config.get_text_config(decoder=True)
        self.positions = Positions(self.lm, self.text)
        if not self.positions.modules:
            raise InputError(
                f"{path}: this architecture has no rotary frequencies to patch"
            )
        with loading.refusing("cannot take apart the model in", path):
            self.shape = self._measure_shape(device, device_map)
            self.head = Head(self.lm)
            self.layers = self.head.layers
            self.closed = self.positions.objection(self.facts.geometry())
            self.in_parts = False
            self.capabilities = Capabilities(self)
            objection = self.capabilities.objection()
            if objection:
                raise InputError(f"{path}: {objection}")
            self.capabilities.in_parts()
        self.encoding = UNMODIFIED

    def _measure_shape(self, device: str, device_map: str | None) -> ModelShape:
        """Return the sizes that memory follows from, with the room on a GPU."""
        is_fused = self.lm.config._attn_implementation != "eager"
        element = next(self.lm.parameters()).element_size()
        shape = ModelShape.read_config(self.text, element, is_fused)

        # A GPU has too little to do in parts; windows make masks of the whole context.
        on_one_gpu = device == "cuda" and not device_map
        if is_fused and on_one_gpu and not layer_windows(self.text):
            shape = replace(shape, room=torch.cuda.mem_get_info()[0] // 2)
        return shape

    @property
    def encoding(self) -> Encoding:
        """The encoding of its evaluation; setting one it does not take: InputError."""
        return self._encoding

    @encoding.setter
    def encoding(self, encoding: Encoding) -> None:
        patch = positions.patch_of(encoding)
        objection = self._objection_to(patch)
        if objection:
            raise InputError(
                f"{self.path}: {encoding.name} cannot be put in, because {objection}"
            )
        if patch.rotation is not None and self.capabilities.layout is not None:
            patch = replace(patch, layout=self.capabilities.layout)
        self._encoding = encoding
        self._patch = patch

    def _objection_to(self, patch: Patch) -> str:
        """Return the reason why a patch cannot be applied; empty if it can."""
        if patch.plan is not None and self.closed:
            return self.closed
        if patch.changes_attention and not self.capabilities.sharpens:
            return "its layers do not call transformers' attention interface"
        if patch.rotation is not None and self.capabilities.layout is None:
            return "its own rotation of queries and keys cannot be taken over"
        return ""

    def unmodified_passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Set UNMODIFIED, and yield rising lengths that one pass serves.

        The pass is over the longest of them.
        """
        # Scaling that follows the length (dynamic NTK, LongRoPE) needs a pass for each.
        self.encoding = UNMODIFIED
        longest = self.positions.longest
        defined = [length for length in lengths if longest is None or length <= longest]
        for _, group in groupby(defined, self.positions.signature):
            yield list(group)

    def own_rotation(self, length: int) -> Rope:
        """Return the checkpoint's rotation of a context of that length."""
        if self.facts.rope_type == "default":
            # This is float64, unlike what the module stores.
            return Rope(RopePlan(self.facts.geometry().inv_freq))
        return self.positions.own(length)

    def hidden_states(
        self,
        tokens: Int[Tensor, "batch tokens"],
        *,
        last: int = 0,
    ) -> Float[Tensor, "batch last width"]:
        """Return hidden states after all layers.

        InputError: there are more tokens than the checkpoint is defined for.
        """
        longest = self.positions.longest
        is_own = self._patch.plan is None
        if is_own and longest is not None and tokens.shape[1] > longest:
            raise InputError(
                f"{self.path}: unmodified it takes no more than {longest} tokens"
            )
        return self.read(tokens, self._patch)[:, -last:]

    def read(
        self,
        tokens: Tensor,
        patch: Patch = UNPATCHED,
        longest: int | None = None,
    ) -> Tensor:
        """Return hidden states under a patch, `longest` tokens of a row at once.

        RuntimeError: the patch changes attention, and the layers do not call the
        interface.
        """
        rows, length = tokens.shape
        shape = self.shape
        attention = PatchedAttention(patch, self.positions.by_layer_type)
        replacing: AbstractContextManager[None] = nullcontext()
        if patch.changes_attention:
            shape = replace(shape, room=0)
            replacing = positions.replacing_attention(self.lm, attention)
        most = longest or shape.longest(rows)

        with self.positions.apply(patch, length), replacing:
            if length > most and self.in_parts:
                return self._read_in_parts(tokens, attention, most)
            whole: Tensor = self.layers(tokens, use_cache=False).last_hidden_state
            return whole

    def _read_in_parts(
        self,
        tokens: Tensor,
        attention: PatchedAttention,
        most: int,
    ) -> Tensor:
        """Return hidden states, computed part by part with a cache."""
        from transformers import DynamicCache

        rows, length = tokens.shape
        step = max(1, min(most // 2, SCORES_PER_PART // length, most**2 // length))
        cache = DynamicCache(config=self.text)
        result = torch.empty(0)
        for first in range(0, length, step):
            attention.first = first
            part = slice(first, first + step)
            output = self.layers(tokens[:, part], past_key_values=cache, use_cache=True)
            hidden = output.last_hidden_state
            if first == 0:
                result = hidden.new_empty(rows, length, hidden.shape[-1])
            result[:, part] = hidden
            # Keys and values were copied into a longer table.
            return_freed_memory()
        return result

    def bytes_of_reading(self, length: int) -> int:
        return self.shape.bytes_of_reading(length, self.in_parts)

    def free_bytes(self) -> int:
        if self.head.weight.device.type == "cuda":
            return int(torch.cuda.mem_get_info()[0])
        return available_memory()


@dataclass(frozen=True)
class ModelRef:
    """A released model, small enough to be part of a cell's description."""

    path: str
    fingerprint: str
    dtype: ModelDtype = "auto"
    device: str = "cpu"
    device_map: str | None = None

    @property
    def key(self) -> dict[str, Any]:
        return {"hf": self.fingerprint, "dtype": self.dtype}

    def model(self, *_: object) -> ReleasedModel:
        """Return the model, loaded once; MachineError if its folder has changed."""
        model = _load_once(self)
        # The results of changed files would be kept under the fingerprint of the files
        # that the run was asked for.
        if fingerprint_of(Path(self.path)) != self.fingerprint:
            raise MachineError(
                f"{self.path} has changed since this run began; start again"
            )
        return model

    def resources(self, windows: Sequence[tuple[int, int]]) -> Resources:
        """Estimate passes over rows of tokens, from configuration and file sizes."""
        shape = self._shape
        weights = weight_count(Path(self.path))
        inner = shape.layers * shape.heads * shape.head_dim
        operations = 0
        for rows, length in windows:
            operations += 2 * rows * length * (weights + inner * length)
        longest = max(length for _, length in windows)
        return Resources(
            operations,
            memory_bytes=self.bytes_of_reading(longest),
            dtype="bfloat16" if self.dtype == "bfloat16" else "float32",
            gpu=self.device == "cuda",
            alone=True,
        )

    def bytes_of_reading(self, length: int, added: int | None = None) -> int:
        """Return the bytes of libraries, weights, and a pass; `added`, if known."""
        shape = self._shape
        weights = weight_count(Path(self.path)) * shape.element
        return LIBRARIES + weights + (added or shape.bytes_of_reading(length))

    def check_memory(
        self,
        limit: int | None,
        length: int,
        added: int | None = None,
    ) -> None:
        """Raise InputError where a context needs more bytes than a limit."""
        needed = self.bytes_of_reading(length, added)
        if limit is not None and needed > limit:
            raise InputError(
                f"reading {length} tokens needs about {size(needed)}, more than "
                f"--limit-memory {size(limit)}"
            )

    @property
    def _shape(self) -> ModelShape:
        text = loading.configuration(Path(self.path)).get_text_config(decoder=True)
        return ModelShape.read_config(text, ELEMENTS.get(self.dtype, 4))


def weight_count(path: Path) -> int:
    """Return the number of weights, from the size and the format of their files."""
    folder = locate(path)
    element = ELEMENTS.get(loading.checkpoint_dtype(folder), 4)
    return weight_bytes(folder) // element


@lru_cache(maxsize=1)
def _load_once(reference: ModelRef) -> ReleasedModel:
    return ReleasedModel(
        Path(reference.path), reference.device, reference.dtype, reference.device_map
    )
