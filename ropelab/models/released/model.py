"""A causal language model of transformers behind the interface that evaluation uses.

`ReleasedModel` is the loaded model, whose positions can be patched. `Capabilities` are
tests of what its architecture allows. `ModelRef` is a description of a model that can be
a part of a cell, and is loaded when the cell is computed.
"""

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
from ropelab.models.lm.model import start_of_last
from ropelab.models.lm.trained import LIBRARY_BYTES
from ropelab.models.released import loading
from ropelab.models.released.attention import PatchedAttention, replacing_attention
from ropelab.models.released.facts import list_layer_windows, read_facts
from ropelab.models.released.folder import count_weight_bytes, hash_model_files, locate
from ropelab.models.released.forward import Head, ModelShape, upcast
from ropelab.models.released.loading import ModelDtype, load
from ropelab.models.released.positions import (
    UNMODIFIED,
    UNPATCHED,
    PairLayout,
    Patch,
    Positions,
    make_patch,
)
from ropelab.runs.cell import Resources
from ropelab.runs.errors import InputError, MachineError
from ropelab.runs.estimate import write_size
from ropelab.runs.machine import find_free_memory, return_freed_memory

# The bytes of a number in each format.
ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# The number of rows, and of tokens in a row, with which capabilities are tested.
TESTED_ROWS = 4
TESTED_TOKENS = 24
# The largest error of passes in parts, as a multiple of the error of one pass, with
# which a model may pass contexts in parts. Errors are differences from results in
# float32. For SmolLM2-135M in bfloat16 the multiple is 0.9 to 1.15, over draws of
# TESTED_ROWS rows of TESTED_TOKENS tokens.
LARGEST_ERROR_RATIO = 1.5
# The most numbers in the mask of a part of a context (32 MiB). A mask has a number for
# each token of the part and each token so far.
SCORES_PER_PART = 2**25
# The layouts that are tried: the first or the last features of a head, in either
# pairing.
LAYOUTS = [
    PairLayout(pairing, last) for last in (False, True) for pairing in get_args(Pairing)
]
# Errors by which a model's code shows that it was not made for a test.
UNSUITED_ERRORS = (
    AttributeError,
    IndexError,
    KeyError,
    RuntimeError,
    TypeError,
    ValueError,
)


class Capabilities:
    """The uses that a model allows, tested with a few tokens.

    No list of architectures is kept, since there are many and they change.
    """

    # Differences would be lost in the rounding to bfloat16 or float16. So the results of
    # tests are computed in float32, or compared with it.
    def __init__(self, model: "ReleasedModel") -> None:
        self.model = model
        self.plan = RopePlan(model.facts.geometry().inv_freq)
        random = torch.Generator().manual_seed(0)
        shape = (TESTED_ROWS, TESTED_TOKENS)
        tokens = torch.randint(model.size.vocabulary, shape, generator=random)
        self.tokens = tokens.to(model.head.weight.device)

    @torch.inference_mode()
    def objection(self) -> str:
        """Return the reason why the model cannot be evaluated; empty if it can."""
        # A single row is passed, since all logits of a pass are in memory at once.
        tokens = self.tokens[:1]
        their_logits = self.model.lm(tokens, use_cache=False).logits.float()
        if not their_logits.isfinite().all():
            return "its logits are not finite numbers"
        our_logits = self.model.head(self.model.pass_tokens(tokens))
        if not self._is_close(our_logits, their_logits):
            return "this architecture changes its logits after the head"
        return ""

    @torch.inference_mode()
    def allow_parts(self) -> None:
        """Let the model pass contexts in parts if that is as good as one pass."""
        of_one_pass = self.model.pass_tokens(self.tokens)
        is_near = False
        self.model.in_parts = True
        with suppress(*UNSUITED_ERRORS):
            of_parts = self.model.pass_tokens(self.tokens, longest=TESTED_TOKENS // 2)
            is_near = self._is_close(of_parts, of_one_pass)
            if not is_near and self.exact_result is not None:
                error_of_one_pass = measure_distance(of_one_pass, self.exact_result)
                largest_error = LARGEST_ERROR_RATIO * error_of_one_pass
                error_of_parts = measure_distance(of_parts, self.exact_result)
                is_near = error_of_parts <= largest_error
        self.model.in_parts = is_near

    @cached_property
    def exact_result(self) -> Tensor | None:
        """The hidden states in float32; None if weights cannot be upcast."""
        with suppress(*UNSUITED_ERRORS), upcast(self.model.layers):
            result = self.model.pass_tokens(self.tokens)
            if result.dtype == torch.float32:
                return result
        return None

    @cached_property
    def calls_attention(self) -> bool:
        """True if the layers call an attention that is patched in."""
        # With a trained length of 10^9 tokens the factor log n is 1 for these few
        # tokens, so that the result must equal the result of the unpatched model.
        without_effect = Patch(log_n=LogN(Encoding(), 10**9))
        return self._have_same_result(UNPATCHED, without_effect)

    @cached_property
    def layout(self) -> PairLayout | None:
        """The features that rotate; None if no encoding can take over the rotation."""
        # With a window of 2^40 tokens no distance is replaced, so that with the right
        # layout the result must equal the result of the model's own rotation.
        without_effect = SelfExtend(Rope(self.plan), 2**40, 1)
        for layout in LAYOUTS:
            patch = Patch(self.plan, rotation=without_effect, layout=layout)
            if self._have_same_result(Patch(self.plan), patch):
                return layout
        return None

    @torch.inference_mode()
    def _have_same_result(self, patch: Patch, other: Patch) -> bool:
        computing: AbstractContextManager[None] = nullcontext()
        if self.exact_result is not None:
            computing = upcast(self.model.layers)
        with suppress(*UNSUITED_ERRORS), computing:
            expected = self.model.pass_tokens(self.tokens, patch)
            result = self.model.pass_tokens(self.tokens, other)
            return self._is_close(result, expected)
        # One of the UNSUITED_ERRORS was raised.
        return False

    def _is_close(self, result: Tensor, expected: Tensor) -> bool:
        """Return True if the number format explains the difference of two results."""
        # The largest difference, as a share of the standard deviation of the numbers.
        tolerance = 1e-3 if expected.dtype == torch.float32 else 5e-2
        deviation = max(float(expected.float().std()), 1e-6)
        difference = (result.float() - expected.float()).abs().max()
        return float(difference) <= tolerance * deviation


def measure_distance(
    result: Float[Tensor, "rows tokens width"],
    expected: Float[Tensor, "rows tokens width"],
) -> float:
    """Return the mean over tokens of the root mean square difference over features."""
    squares = (result.float() - expected.float()).square()
    return float(squares.mean(dim=-1).sqrt().mean())


class ReleasedModel:
    """A causal language model whose positions can be patched.

    A model begins with the encoding `UNMODIFIED`, which stands for the checkpoint as it
    came. `model.encoding = Rope(...)` patches the frequencies, and the factors on
    queries, keys and scores. `LogN` and `Remapped` encodings change attention as well.
    Weights and windows never change, and angles are float32.

    InputError: transformers is not installed, the folder cannot be read, the
    architecture has no rotary frequencies, or it cannot be taken apart into layers and
    head.
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
        self.facts = read_facts(str(path))

        # Of a model's size, evaluation needs only the vocabulary, which the facts have.
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
            # The reason why no frequencies can be patched; empty if they can.
            self.objection_to_plans = self.positions.objection(self.facts.geometry())
            # True if long contexts are passed in parts.
            self.in_parts = False
            self.capabilities = Capabilities(self)
            objection = self.capabilities.objection()
            if objection:
                raise InputError(f"{path}: {objection}")
            self.capabilities.allow_parts()
        self.encoding = UNMODIFIED

    def _measure_shape(self, device: str, device_map: str | None) -> ModelShape:
        """Return the sizes that memory follows from, and the memory of a GPU."""
        is_fused = self.lm.config._attn_implementation != "eager"
        element_bytes = next(self.lm.parameters()).element_size()
        shape = ModelShape.read_config(self.text, element_bytes, is_fused)

        # Parts are too small to keep a GPU busy, so that longer passes are allowed on a
        # GPU, in half of its free memory. Models with windows get no longer passes,
        # since they make masks of the whole context.
        on_one_gpu = device == "cuda" and not device_map
        if is_fused and on_one_gpu and not list_layer_windows(self.text):
            free_bytes, _ = torch.cuda.mem_get_info()
            shape = replace(shape, gpu_bytes=free_bytes // 2)
        return shape

    @property
    def encoding(self) -> Encoding:
        """The encoding under which the model is evaluated.

        InputError, when it is set: the model cannot have this encoding.
        """
        return self._encoding

    @encoding.setter
    def encoding(self, encoding: Encoding) -> None:
        patch = make_patch(encoding)
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
        if patch.plan is not None and self.objection_to_plans:
            return self.objection_to_plans
        if patch.changes_attention and not self.capabilities.calls_attention:
            return "its layers do not call transformers' attention interface"
        if patch.rotation is not None and self.capabilities.layout is None:
            return "its own rotation of queries and keys cannot be taken over"
        return ""

    def unmodified_passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Set the encoding UNMODIFIED, and yield the lengths that each pass serves.

        `lengths` are in rising order, and a pass is over the longest length that it
        serves. Lengths for which the checkpoint is not defined are left out.
        """
        # If the scaling depends on the length (dynamic NTK, LongRoPE), each length
        # needs a separate pass.
        self.encoding = UNMODIFIED
        defined_lengths = list(lengths)
        longest = self.positions.longest
        if longest is not None:
            defined_lengths = [length for length in lengths if length <= longest]
        for _, group in groupby(defined_lengths, self.positions.signature):
            yield list(group)

    def own_rotation(self, length: int) -> Rope:
        """Return the checkpoint's rotation of a context of that length."""
        if self.facts.rope_type == "default":
            # The frequencies of the facts are in float64, the frequencies of the module in
            # float32.
            return Rope(RopePlan(self.facts.geometry().inv_freq))
        return self.positions.read_rotation(length)

    def hidden_states(
        self,
        tokens: Int[Tensor, "batch tokens"],
        *,
        last: int | None = None,
    ) -> Float[Tensor, "batch last width"]:
        """Return the hidden states of the `last` tokens (None: of all) after all layers.

        InputError: there are more tokens than the checkpoint is defined for.
        """
        longest = self.positions.longest
        length = tokens.shape[1]
        is_unmodified = self._patch.plan is None
        if is_unmodified and longest is not None and length > longest:
            raise InputError(
                f"{self.path}: unmodified it takes no more than {longest} tokens"
            )
        hidden = self.pass_tokens(tokens, self._patch)
        return hidden[:, start_of_last(length, last) :]

    def pass_tokens(
        self,
        tokens: Tensor,
        patch: Patch = UNPATCHED,
        longest: int | None = None,
    ) -> Tensor:
        """Return the hidden states of all tokens under a patch.

        Rows of more than `longest` tokens (None: as many as the memory allows) are
        passed in parts, if `in_parts` is True. RuntimeError: the patch changes attention,
        and the layers do not call transformers' attention interface.
        """
        rows, length = tokens.shape
        shape = self.shape
        attention = PatchedAttention(patch, self.positions.by_layer_type)
        replacing: AbstractContextManager[None] = nullcontext()
        if patch.changes_attention:
            # Longer passes on a GPU are only for fused attention.
            shape = replace(shape, gpu_bytes=0)
            replacing = replacing_attention(self.lm, attention)
        if longest is None:
            longest = shape.find_longest_pass(rows)

        with self.positions.apply(patch, length), replacing:
            if length > longest and self.in_parts:
                return self._pass_in_parts(tokens, attention, longest)
            hidden: Tensor = self.layers(tokens, use_cache=False).last_hidden_state
            return hidden

    def _pass_in_parts(
        self,
        tokens: Tensor,
        attention: PatchedAttention,
        longest: int,
    ) -> Tensor:
        """Return hidden states, computed part by part with a cache."""
        from transformers import DynamicCache

        rows, length = tokens.shape
        # Three limits of the tokens of a part: half of the longest pass, the size of
        # the mask, and the number of scores that a pass of `longest` tokens has.
        limits = (longest // 2, SCORES_PER_PART // length, longest**2 // length)
        step = max(1, min(limits))
        cache = DynamicCache(config=self.text)
        result = torch.empty(0)
        for start in range(0, length, step):
            attention.first_query = start
            part = slice(start, start + step)
            output = self.layers(tokens[:, part], past_key_values=cache, use_cache=True)
            hidden = output.last_hidden_state
            if start == 0:
                result = hidden.new_empty(rows, length, hidden.shape[-1])
            result[:, part] = hidden
            # The cache has copied keys and values into longer tables and freed the old
            # tables.
            return_freed_memory()
        return result

    def estimate_pass_bytes(self, length: int) -> int:
        """Return the bytes that a pass over a context takes in addition to the weights."""
        return self.shape.estimate_pass_bytes(length, self.in_parts)

    def free_bytes(self) -> int:
        """Return the free memory of the device on which the model is."""
        if self.head.weight.device.type == "cuda":
            free_bytes, _ = torch.cuda.mem_get_info()
            return int(free_bytes)
        return find_free_memory()


@dataclass(frozen=True)
class ModelRef:
    """A description of a released model, small enough to be a part of a cell."""

    # The folder of the model, or its id in the Hub's local cache.
    path: str
    # The hash of all files of the folder.
    fingerprint: str
    dtype: ModelDtype = "auto"
    device: str = "cpu"
    # How the model is spread over devices, as transformers takes it; None: not spread.
    device_map: str | None = None

    @property
    def key(self) -> dict[str, Any]:
        """The facts that results of the model depend on."""
        return {"hf": self.fingerprint, "dtype": self.dtype}

    def model(self, *_: object) -> ReleasedModel:
        """Return the model, loaded once; MachineError if its folder has changed.

        A cell passes its context, as it does for a model that is trained here. The
        context is not used.
        """
        model = _load_once(self)
        # Results of changed files would be stored under the fingerprint of the files that
        # the run was asked for.
        if hash_model_files(Path(self.path)) != self.fingerprint:
            raise MachineError(
                f"{self.path} has changed since this run began; start again"
            )
        return model

    def resources(self, windows: Sequence[tuple[int, int]]) -> Resources:
        """Estimate passes over rows of tokens, from configuration and file sizes.

        `windows` has the number of rows, and of tokens in a row, of each pass.
        """
        shape = self._shape
        weights = count_weights(Path(self.path))

        # A token needs 2 operations for each weight, and 4 for each feature of attention
        # and each token before it, which are half of the context on average.
        features = shape.layers * shape.heads * shape.head_dim
        operations = 0
        for rows, length in windows:
            operations += 2 * rows * length * (weights + features * length)

        longest = max(length for _, length in windows)
        return Resources(
            operations,
            memory_bytes=self.estimate_pass_bytes(longest),
            dtype="bfloat16" if self.dtype == "bfloat16" else "float32",
            gpu=self.device == "cuda",
            exclusive=True,
        )

    def estimate_pass_bytes(self, length: int, pass_bytes: int | None = None) -> int:
        """Return the bytes of libraries, weights, and a pass over a context.

        `pass_bytes` is the number of bytes of the pass, if it is known; None: it is
        estimated.
        """
        shape = self._shape
        weight_bytes = count_weights(Path(self.path)) * shape.element_bytes
        if pass_bytes is None:
            pass_bytes = shape.estimate_pass_bytes(length)
        return LIBRARY_BYTES + weight_bytes + pass_bytes

    def check_memory(
        self,
        limit: int | None,
        length: int,
        pass_bytes: int | None = None,
    ) -> None:
        """Raise InputError if a context needs more bytes than a limit (None: no limit)."""
        needed = self.estimate_pass_bytes(length, pass_bytes)
        if limit is not None and needed > limit:
            raise InputError(
                f"reading {length} tokens needs about {write_size(needed)}, more than "
                f"--limit-memory {write_size(limit)}"
            )

    @property
    def _shape(self) -> ModelShape:
        text = loading.read_configuration_once(Path(self.path)).get_text_config(
            decoder=True
        )
        # The format `auto` is not known before loading, and counts as float32.
        return ModelShape.read_config(text, ELEMENT_BYTES.get(self.dtype, 4))


def count_weights(path: Path) -> int:
    """Return the number of weights, from the size and the format of their files."""
    folder = locate(path)
    element_bytes = ELEMENT_BYTES.get(loading.read_checkpoint_dtype(folder), 4)
    return count_weight_bytes(folder) // element_bytes


@lru_cache(maxsize=1)
def _load_once(reference: ModelRef) -> ReleasedModel:
    return ReleasedModel(
        Path(reference.path), reference.device, reference.dtype, reference.device_map
    )
