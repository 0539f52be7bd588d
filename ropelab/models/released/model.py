"""A causal language model of transformers behind the interface that evaluation uses."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
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
from ropelab.models.encoding.rope import LogN, Rope, SelfExtend
from ropelab.models.lm.trained import LIBRARIES
from ropelab.models.released import loading, positions
from ropelab.models.released.facts import facts_of, layer_windows
from ropelab.models.released.folder import fingerprint_of, located, weight_bytes
from ropelab.models.released.forward import Head, ModelShape, upcast
from ropelab.models.released.loading import ModelDtype, load
from ropelab.models.released.positions import (
    UNMODIFIED,
    UNPATCHED,
    PairLayout,
    Patch,
    Positions,
)
from ropelab.runs.cell import Needs
from ropelab.runs.errors import InputError, MachineError
from ropelab.runs.estimate import size
from ropelab.runs.machine import available_memory, return_freed_memory

# Bytes of a number.
ELEMENTS = {"float32": 4, "bfloat16": 2, "float16": 2}
# Tokens and rows of a pass that capabilities are tested with.
PROBE, ROWS = 24, 4
# Times as far from float32 as one pass, parts are as good. Of SmolLM2-135M in bfloat16
# they are 0.9 to 1.15 times as far, over draws of as many tokens as here.
AS_NEAR = 1.5
# A part holds so many tokens that its mask of earlier ones stays below this (32 MiB).
SCORES_PER_PART = 2**25
LAYOUTS = [
    PairLayout(pairing, last) for last in (False, True) for pairing in get_args(Pairing)
]
# Errors of code that was not made for a test.
UNSUITED = (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)


class Capabilities:
    """Capabilities of a model, found by a few tokens."""

    # Architectures are many and change, so that nothing is looked up. Rounding to
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
        """Return the reason why the model cannot be evaluated at all, empty if it
        can.
        """
        tokens = self.tokens[:1]  # of all their logits at once
        theirs = self.model.lm(tokens, use_cache=False).logits.float()
        if not theirs.isfinite().all():
            return "its logits are not finite numbers"
        if not self._close(self.model.head(self.model.read(tokens)), theirs):
            return "this architecture changes its logits after the head"
        return ""

    @torch.inference_mode()
    def in_parts(self) -> bool:
        """Return True if reading in parts is as good as at once, and let the model do
        so.
        """
        whole, near = self.model.read(self.tokens), False
        self.model.in_parts = True
        with suppress(*UNSUITED):
            parts = self.model.read(self.tokens, longest=PROBE // 2)
            near = self._close(parts, whole)
            if not near and self.exact is not None:
                near = distance(parts, self.exact) <= AS_NEAR * distance(
                    whole, self.exact
                )
        self.model.in_parts = near
        return near

    @cached_property
    def exact(self) -> Tensor | None:
        """The result of float32; None where the model's code does not let weights be
        upcast.
        """
        with suppress(*UNSUITED), upcast(self.model.layers):
            found = self.model.read(self.tokens)
            return found if found.dtype == torch.float32 else None
        return None

    @cached_property
    def sharpens(self) -> bool:
        """True if layers call our attention, and sharpening by nothing changes
        nothing.
        """
        return self._same(UNPATCHED, Patch(sharper=LogN(Encoding(), 10**9)))

    @cached_property
    def layout(self) -> PairLayout | None:
        """The features that rotate, where rotation can be taken over; None where it
        cannot.
        """
        # all are near
        near = Patch(self.plan, taken=SelfExtend(Rope(self.plan), 2**40, 1))
        for layout in LAYOUTS:
            if self._same(Patch(self.plan), replace(near, layout=layout)):
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
        """Return True if two results differ by no more than the number format
        explains.
        """
        tolerance = 1e-3 if theirs.dtype == torch.float32 else 5e-2
        ours, theirs = ours.float(), theirs.float()
        return float((ours - theirs).abs().max()) <= tolerance * max(
            float(theirs.std()), 1e-6
        )


def distance(
    ours: Float[Tensor, "rows tokens width"], theirs: Float[Tensor, "rows tokens width"]
) -> float:
    """Return the mean over tokens of the root mean square difference over features."""
    return float((ours.float() - theirs.float()).square().mean(dim=-1).sqrt().mean())


class ReleasedModel:
    """A causal language model whose rotary frequencies can be patched.

    `model.encoding = Rope(...)` patches the frequencies, the attention factor and the
    softmax factor, `LogN` and `Remapped` encodings change attention as well;
    `UNMODIFIED`, which a model begins with, restores the checkpoint. Weights and
    windows never change, and rotary angles are float32. `closed` is the reason why no
    method can be patched in, if there is one; `in_parts` is True once reading long
    contexts in parts is known to work. InputError: no transformers, no readable folder,
    or an architecture without rotary frequencies or that cannot be taken apart.
    """

    def __init__(
        self,
        path: Path,
        device: str = "cpu",
        dtype: ModelDtype = "float32",
        device_map: str | None = None,
    ) -> None:
        self.path = path = located(path)
        # What evaluation needs of a model's size is its vocabulary.
        self.facts = self.size = facts_of(str(path))
        self.lm = load(path, device, dtype, device_map)
        self.text = self.lm.config.get_text_config(decoder=True)
        self.positions = Positions(self.lm, self.text)
        if not self.positions.modules:
            raise InputError(
                f"{path}: this architecture has no rotary frequencies to patch"
            )
        with loading.refusing("cannot take apart the model in", path):
            fused = self.lm.config._attn_implementation != "eager"
            self.shape = ModelShape.of(
                self.text, next(self.lm.parameters()).element_size(), fused
            )
            self.head = Head(self.lm)
            # In parts a GPU has too little to do; windows make masks of the whole
            # context.
            if (
                fused
                and device == "cuda"
                and not (device_map or layer_windows(self.text))
            ):
                self.shape = replace(self.shape, room=torch.cuda.mem_get_info()[0] // 2)
            self.layers = self.head.layers
            self.closed = self.positions.objection(self.facts.geometry())
            self.in_parts = False
            self.capabilities = Capabilities(self)
            if said := self.capabilities.objection():
                raise InputError(f"{path}: {said}")
            self.capabilities.in_parts()
        self.encoding = UNMODIFIED

    @property
    def encoding(self) -> Encoding:
        """The encoding that it is evaluated with; InputError for one that it does not
        take.
        """
        return self._encoding

    @encoding.setter
    def encoding(self, encoding: Encoding) -> None:
        patch, said = positions.patch_of(encoding), ""
        if patch.plan is not None and self.closed:
            said = self.closed
        elif patch.attends and not self.capabilities.sharpens:
            said = "its layers do not call transformers' attention interface"
        elif patch.taken is not None:
            if layout := self.capabilities.layout:
                patch = replace(patch, layout=layout)
            else:
                said = "its own rotation of queries and keys cannot be taken over"
        if said:
            raise InputError(
                f"{self.path}: {encoding.name} cannot be put in, because {said}"
            )
        self._encoding, self._patch = encoding, patch

    def unmodified_passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Set UNMODIFIED, and group rising lengths that one pass over the longest
        serves.
        """
        # Scaling that follows the length (dynamic NTK, LongRoPE) needs a pass for each.
        self.encoding = UNMODIFIED
        longest = self.positions.longest
        defined = [length for length in lengths if longest is None or length <= longest]
        for _, group in groupby(defined, self.positions.signature):
            yield list(group)

    def own_rotation(self, length: int) -> Rope:
        """Return the checkpoint's rotation of a context of that length."""
        if self.facts.rope_type == "default":  # in float64, not as the module stores it
            return Rope(RopePlan(self.facts.geometry().inv_freq))
        return self.positions.own(length)

    def hidden_states(
        self, tokens: Int[Tensor, "batch tokens"], *, last: int = 0
    ) -> Float[Tensor, "batch last width"]:
        """Return hidden states after all layers; InputError for more tokens than are
        defined.
        """
        longest = self.positions.longest if self._patch.plan is None else None
        if longest is not None and tokens.shape[1] > longest:
            raise InputError(
                f"{self.path}: unmodified it takes no more than {longest} tokens"
            )
        return self.read(tokens, self._patch)[:, -last:]

    def read(
        self, tokens: Tensor, patch: Patch = UNPATCHED, longest: int | None = None
    ) -> Tensor:
        """Return the last hidden states under a patch, at most `longest` tokens at
        once.

        RuntimeError: the patch changes attention, and the layers do not call the
        interface.
        """
        rows, length = tokens.shape
        shape = replace(self.shape, room=0) if patch.attends else self.shape
        most = longest or shape.longest(rows)
        attention = positions.Attention(patch, self.positions.by_layer_type)
        changed = (
            positions.attending(self.lm, attention) if patch.attends else nullcontext()
        )
        with self.positions.patched(patch, length), changed:
            if length <= most or not self.in_parts:
                whole: Tensor = self.layers(tokens, use_cache=False).last_hidden_state
                return whole
            from transformers import DynamicCache

            step = max(1, min(most // 2, SCORES_PER_PART // length, most**2 // length))
            cache, found = DynamicCache(config=self.text), torch.empty(0)
            for first in range(0, length, step):
                attention.first, part = first, slice(first, first + step)
                output = self.layers(
                    tokens[:, part], past_key_values=cache, use_cache=True
                )
                hidden = output.last_hidden_state
                if first == 0:
                    found = hidden.new_empty(rows, length, hidden.shape[-1])
                found[:, part] = hidden
                return_freed_memory()  # keys and values were copied into a longer table
            return found

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
        """Return the model, loaded once; MachineError if its folder is not what it
        was.
        """
        found = _loaded(self)
        # What is measured now would be kept as what the files were when the run was
        # asked for.
        if fingerprint_of(Path(self.path)) != self.fingerprint:
            raise MachineError(
                f"{self.path} has changed since this run began; start again"
            )
        return found

    def needs(self, windows: Sequence[tuple[int, int]]) -> Needs:
        """Estimate passes over rows of tokens, from the configuration and the size of
        the files.
        """
        shape, weights = self._shape, weight_count(Path(self.path))
        operations = sum(
            2
            * rows
            * length
            * (weights + shape.layers * shape.heads * shape.head_dim * length)
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
        """Bytes with the weights and the libraries, and those `added` by a pass if
        known.
        """
        added = added or self._shape.bytes_of_reading(length)
        return LIBRARIES + weight_count(Path(self.path)) * self._shape.element + added

    def check_memory(
        self, limit: int | None, length: int, added: int | None = None
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
        return ModelShape.of(text, ELEMENTS.get(self.dtype, 4))


def weight_count(path: Path) -> int:
    """Return the number of weights, from the size of their files in the checkpoint's
    format.
    """
    folder = located(path)
    return weight_bytes(folder) // ELEMENTS.get(loading.checkpoint_dtype(folder), 4)


@lru_cache(maxsize=1)
def _loaded(reference: ModelRef) -> ReleasedModel:
    path, device = Path(reference.path), reference.device
    return ReleasedModel(path, device, reference.dtype, reference.device_map)
