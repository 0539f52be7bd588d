"""The parts of a model that make its positions: patched for an encoding, and restored.

A rotary module has a buffer `inv_freq`, or one per layer type, of which only the one of
layers that attend to the whole context is patched: a window never sees an untrained
distance. GPT-J and CodeGen keep a table in each layer instead. DeepSeek's YaRN has a
factor on whole scores, which goes too.

Attention is patched through transformers' own interface. Sharper logits (log n)
multiply queries, which any architecture that calls it allows. Other distances for far
keys (ReRoPE, Self-Extend) and rounded rotations replace the model's own rotation, if
its pairs are known (`Capabilities`).
"""

import copy
import math
import sys
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ropelab.math.frequencies import Geometry
from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.extended import LogN, Remapped
from ropelab.models.encoding.rope import Rope, cos_sin
from ropelab.models.encoding.rounded import RoundedRope
from ropelab.models.lm.model import blocked_attention
from ropelab.models.released.facts import FULL, rope_parameters
from ropelab.runs.errors import InputError

# Rope types whose frequencies depend on the length of the context.
GROWING = ("dynamic", "longrope")
# Positions at which a module is asked for its cosines.
PROBED = (0, 1, 5)


class UnmodifiedEncoding(Encoding):
    """The checkpoint's own frequencies, scaling, softmax factor and windows.

    It undoes every patch.
    """

    name: ClassVar[str] = "unmodified"


UNMODIFIED = UnmodifiedEncoding()


@dataclass(frozen=True)
class PairLayout:
    """The features that rotate in queries and keys, as layers pass them to attention."""

    pairing: Pairing = "half"
    # True if the last features of a head rotate, as in latent attention; False if the
    # first do.
    last: bool = False


@dataclass(frozen=True)
class Patch:
    """An encoding as changes of a model."""

    # The frequencies; None for those of the checkpoint.
    plan: RopePlan | None = None
    # The factor on scores, for models whose code has one.
    softmax: float = 1.0
    # A factor on logits. Only the factor is applied, not the encoding inside `LogN`.
    sharper: LogN | None = None
    # An encoding that rotates instead of the model's code; None if that code rotates.
    rotation: Remapped | RoundedRope | None = None
    layout: PairLayout = PairLayout()

    @property
    def changes_attention(self) -> bool:
        return self.sharper is not None or self.rotation is not None


UNPATCHED = Patch()


def patch_of(encoding: Encoding) -> Patch:
    """Return the patch of an encoding.

    InputError: it changes more than frequencies and attention.
    """
    if encoding is UNMODIFIED:
        return UNPATCHED
    if isinstance(encoding, LogN):
        sharper = LogN(Encoding(), encoding.trained_len)
        return replace(patch_of(encoding.inner), sharper=sharper)
    if isinstance(encoding, Remapped):
        return Patch(encoding.rope.plan, rotation=encoding)
    if isinstance(encoding, RoundedRope):
        return Patch(encoding.plan, encoding.softmax_factor, rotation=encoding)
    if isinstance(encoding, Rope):
        return Patch(encoding.plan, encoding.softmax_factor)
    raise InputError(
        f"{encoding.name} cannot be patched into a model that was trained elsewhere"
    )


class RotaryModule:
    """A module with `inv_freq`, or with one `<layer type>_inv_freq` per layer type."""

    longest: int | None = None

    def __init__(self, module: Any) -> None:
        self.module = module
        self.by_layer_type = not hasattr(module, "inv_freq")
        if self.by_layer_type:
            self.prefix = f"{FULL}_"
            self.rope_type = str(module.rope_type.get(FULL, "default"))
        else:
            self.prefix = ""
            self.rope_type = str(module.rope_type)

    @property
    def inv_freq(self) -> Tensor:
        """Radians per token; empty if no layer attends to the whole context."""
        name = f"{self.prefix}inv_freq"
        inv_freq: Tensor = self.module._buffers.get(name, torch.empty(0))
        return inv_freq

    @property
    def attention_factor(self) -> float:
        return float(getattr(self.module, f"{self.prefix}attention_scaling", 1.0))

    def set_original(self, length: int) -> None:
        """Set the checkpoint's frequencies for a context of that length."""
        # Frequencies that follow the length are computed for the whole of it, once. In
        # a pass over all of it transformers does the same; in parts the first ones
        # would be of a shorter context.
        if self.rope_type in GROWING:
            # A copy, since transformers may write into it.
            self.module._buffers[f"{self.prefix}inv_freq"] = self.inv_freq.clone()
            self.cosines([length - 1])
            self._stop_updates()

    def patch(self, plan: RopePlan, length: int) -> None:
        """Replace the frequencies and the factor on cos and sin."""
        device = self.inv_freq.device
        inv_freq = torch.from_numpy(plan.inv_freq).to(device, torch.float32)
        for name in ("inv_freq", "original_inv_freq"):
            self.module._buffers[f"{self.prefix}{name}"] = inv_freq
        setattr(self.module, f"{self.prefix}attention_scaling", plan.attention_factor)
        self._stop_updates()

        # PhiMoE computes its frequencies in every pass, and takes factors from keys of
        # its own.
        if "rope_init_fn" in vars(self.module):
            self.module.rope_init_fn = lambda *_, **__: (
                inv_freq,
                plan.attention_factor,
            )
            config = copy.copy(self.module.config)
            config.rope_parameters = {**config.rope_parameters, "rope_type": "default"}
            self.module.config = config

    def _stop_updates(self) -> None:
        """Keep transformers from computing frequencies of its own for long inputs."""
        if self.by_layer_type:
            self.module.rope_type = {**self.module.rope_type, FULL: "default"}
        else:
            self.module.rope_type = "default"

    def cosines(self, positions: list[int]) -> Tensor:
        """Return the module's cosines at positions, times its factor, one row each."""
        count = len(positions)
        position_ids = torch.tensor([positions], device=self.inv_freq.device)
        x = torch.zeros(1, count, 1, device=position_ids.device)
        options = {}
        if self.by_layer_type:
            options["layer_type"] = FULL
        result = self.module(x, position_ids, **options)

        # Some modules return cos and sin, others complex numbers.
        cos: Tensor = result[0] if isinstance(result, tuple) else result
        if cos.is_complex():
            cos = cos.real
        return cos.reshape(count, -1)


class SineTables:
    """The tables of GPT-J and CodeGen, the same in each layer.

    A row per position holds the sines, then the cosines.
    """

    by_layer_type = False
    rope_type = "default"
    attention_factor = 1.0

    def __init__(self, modules: list[Any]) -> None:
        self.modules = modules
        table: Tensor = modules[0].embed_positions
        self.longest, width = table.shape
        # Frequencies are at most 1, so that their sines give them back.
        self.inv_freq = table[1, : width // 2].asin()

    def set_original(self, length: int) -> None:
        """Keep the checkpoint's table, which is in the modules."""

    def patch(self, plan: RopePlan, length: int) -> None:
        cos, sin = cos_sin(torch.arange(length), plan)
        table = torch.cat([sin, cos], dim=1) * plan.attention_factor
        table = table.to(self.inv_freq.device, torch.float32)
        for module in self.modules:
            module.embed_positions = table

    def cosines(self, positions: list[int]) -> Tensor:
        table: Tensor = self.modules[0].embed_positions
        return table[positions, len(self.inv_freq) :]


class Positions:
    """The rotary modules of a model (none if it does not rotate).

    They are unmodified unless patched. Unmodified they serve `longest` tokens (None:
    any); `by_layer_type` is True if layers with windows have others.
    """

    def __init__(self, model: nn.Module, text: Any) -> None:
        modules: list[Any] = list(model.modules())
        rotary = [module for module in modules if _is_rotary(module)]
        tables = [module for module in modules if _has_sine_table(module)]
        self.modules: list[RotaryModule | SineTables] = []
        for module in rotary:
            self.modules.append(RotaryModule(module))
        if tables:
            self.modules.append(SineTables(tables))

        limits = [module.longest for module in self.modules if module.longest]
        self.longest = min(limits, default=None)
        self.by_layer_type = any(module.by_layer_type for module in self.modules)

        # DeepSeek's factor on scores, and the modules without it.
        self.softmax_factor = 1.0
        self.unscaled: list[tuple[Any, float]] = []
        for module in modules:
            factor = _softmax_factor(module, rope_parameters(text))
            if factor:
                if not self.unscaled:
                    self.softmax_factor = factor
                self.unscaled.append((module, module.scaling / factor))

        changed = [*rotary, *tables]
        changed += [module for module, _ in self.unscaled]
        self.saved = []
        for module in changed:
            attributes = dict(vars(module))
            buffers = dict(module._buffers)
            self.saved.append((module, attributes, buffers))

    @contextmanager
    def apply(self, patch: Patch, length: int) -> Iterator[None]:
        """Apply a patch for a context of that length, and undo it at the end."""
        try:
            for module in self.modules:
                if patch.plan is None:
                    module.set_original(length)
                else:
                    plan = self._plan_for(module, patch, patch.plan)
                    module.patch(plan, length)

            if patch.plan is not None:
                for scaled, scaling in self.unscaled:
                    scaled.scaling = scaling * patch.softmax
            yield
        finally:
            self._restore()

    @staticmethod
    def _plan_for(
        module: "RotaryModule | SineTables",
        patch: Patch,
        plan: RopePlan,
    ) -> RopePlan:
        """Return the plan for a module; none rotates if the patch rotates instead.

        InputError: the module has another number of pairs.
        """
        pairs = len(module.inv_freq)
        if len(plan.inv_freq) != pairs:
            raise InputError(
                f"the model rotates {pairs} feature pairs, not {len(plan.inv_freq)}"
            )
        if patch.rotation is None:
            return plan
        return RopePlan(0 * plan.inv_freq)

    def _restore(self) -> None:
        """Return the state after loading, whatever has been computed since."""
        for module, attributes, buffers in self.saved:
            vars(module).clear()
            vars(module).update(attributes, _buffers=dict(buffers))

    def signature(self, length: int) -> Hashable:
        """Return a value that lengths share if they share the checkpoint's frequencies."""
        with self.apply(UNPATCHED, length):
            return tuple(tuple(module.inv_freq.tolist()) for module in self.modules)

    def own(self, length: int) -> Rope:
        """Return the checkpoint's own rotation of a context of that length."""
        with self.apply(UNPATCHED, length):
            module = self.modules[0]
            inv_freq = module.inv_freq.double().cpu().numpy()
            plan = RopePlan(inv_freq, module.attention_factor)
        return Rope(plan, softmax_factor=self.softmax_factor)

    def objection(self, geometry: Geometry) -> str:
        """Return the reason why no frequencies can be patched; empty if they can."""
        for module in self.modules:
            reason = self._objection_to(module, geometry)
            if reason:
                return reason
        return ""

    def _objection_to(
        self,
        module: "RotaryModule | SineTables",
        geometry: Geometry,
    ) -> str:
        own = module.inv_freq.double().cpu().numpy()
        pairs = len(own)
        if not pairs:
            return (
                "none of its layers rotates by frequencies that serve the whole context"
            )
        if module.rope_type == "proportional":
            return "it rotates a selection of pairs of its own (proportional)"
        if pairs != geometry.pairs:
            return (
                f"it rotates {pairs} pairs of features where its configuration names"
                f" {geometry.pairs}"
            )
        if module.rope_type == "default":
            differences = abs(own / geometry.inv_freq - 1)
            if differences.max() > 1e-4:
                return f"its frequencies are not those of base {geometry.base:g}"
        if not self._follows_patches(module, pairs):
            return "its rotary module does not follow its frequencies"
        return ""

    def _follows_patches(self, module: "RotaryModule | SineTables", pairs: int) -> bool:
        """Return True if a module's cosines are those of patched frequencies."""
        # Some modules compute frequencies of their own in every pass.
        inv_freq = torch.linspace(1.0, 0.1, pairs, dtype=torch.float64)
        module.patch(RopePlan(inv_freq.numpy(), 1.25), max(PROBED) + 1)
        cosines = module.cosines(list(PROBED)).double().cpu()
        self._restore()

        # Every column has to be that of a pair, and every pair has to have a column.
        angles = torch.tensor(PROBED)[:, None] * inv_freq
        expected = 1.25 * torch.cos(angles)
        differences = (cosines[:, :, None] - expected[:, None, :]).abs()
        is_equal = differences.amax(dim=0) < 1e-4
        pairs_have_columns = bool(is_equal.any(dim=0).all())
        columns_have_pairs = bool(is_equal.any(dim=1).all())
        is_multiple = cosines.shape[1] % pairs == 0
        return pairs_have_columns and columns_have_pairs and is_multiple


def _is_rotary(module: Any) -> bool:
    """Return True for a module of transformers that holds rotary frequencies."""
    if not hasattr(module, "rope_type"):
        return False
    return any(name.endswith("inv_freq") for name in module._buffers)


def _has_sine_table(module: Any) -> bool:
    """Return True for an attention layer of GPT-J or CodeGen."""
    if not hasattr(module, "rotary_dim"):
        return False
    return isinstance(getattr(module, "embed_positions", None), Tensor)


def _softmax_factor(module: Any, rope: dict[str, Any]) -> float | None:
    """Return the factor on scores of DeepSeek's code under YaRN; None in other code."""
    code = sys.modules[type(module).__module__]
    compute = getattr(code, "yarn_get_mscale", None)
    if compute is None or not isinstance(getattr(module, "scaling", None), float):
        return None

    is_scaled = rope.get("rope_type", "default") != "default"
    share = rope.get("mscale_all_dim")
    if not (is_scaled and share and rope.get("factor")):
        return 1.0
    return float(compute(rope["factor"], share)) ** 2


class PatchedAttention:
    """Attention of a model's layers under a patch.

    It begins at position `first` of a context. If `by_layer_type`, layers with a window
    keep their own rotation. `called` is True once a layer attended.
    """

    def __init__(self, patch: Patch, by_layer_type: bool) -> None:
        self.by_layer_type = by_layer_type
        self.rotates_last = patch.layout.last
        self.sharper = patch.sharper
        self.rotation = _with_pairing(patch.rotation, patch.layout.pairing)
        self.first = 0
        self.called = False

    def __call__(
        self,
        original: Any,
        module: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Any,
        **more: Any,
    ) -> Any:
        """Return the attention of one layer.

        Keys and values may have fewer heads than queries. `mask` [batch, 1, queries,
        keys] is True or 0 where a query may look; None: at all before.
        """
        self.called = True
        window = _window_of(module, more)
        if self.sharper is not None:
            # The factor follows the tokens that a query sees, no more than its window
            # has.
            q_positions = torch.arange(
                self.first, self.first + q.shape[2], device=q.device
            )
            if window:
                q_positions = q_positions.clamp(max=window - 1)
            q = self.sharper.query(q, q_positions)

        keeps_rotation = self.by_layer_type and _layer_type_of(module, window) != FULL
        if self.rotation is None or keeps_rotation:
            return original(module, q, k, v, mask, **more)

        if self.rotates_last:
            q = q.roll(self.rotation.rotary_dim, dims=-1)
            k = k.roll(self.rotation.rotary_dim, dims=-1)
        queries = q.shape[2]
        before = k.shape[2] - queries
        first_key = self.first - before
        k_positions = torch.arange(first_key, self.first + queries, device=q.device)
        q = self.rotation.query(q, k_positions[before:])
        k = self.rotation.key(k, k_positions)
        if self.rotation.fused:
            return original(module, q, k, v, mask, **more)

        heads_per_key = q.shape[1] // k.shape[1]
        k = k.repeat_interleave(heads_per_key, dim=1)
        v = v.repeat_interleave(heads_per_key, dim=1)
        # The scores of an encoding are divided by sqrt(head_dim) already.
        width = q.shape[-1]
        scaling = more.get("scaling") or width**-0.5
        q = q * (scaling * width**0.5)

        masked = _MaskedScores(
            self.rotation,
            mask,
            softcap=more.get("softcap"),
            before=before,
            first=first_key,
        )
        output = blocked_attention(masked, q, k, v)
        return output.transpose(1, 2).contiguous(), None


def _with_pairing(
    rotation: Remapped | RoundedRope | None,
    pairing: Pairing,
) -> Remapped | RoundedRope | None:
    """Return a rotation like another that rotates the pairs of a model."""
    if rotation is None:
        return None
    if isinstance(rotation, Remapped):
        rope = Rope(rotation.rope.plan, pairing)
        return type(rotation)(rope, *rotation.sizes)
    # The encoding is built anew, since it moves keys by a second rotation, which needs the
    # pairing, too.
    rope = Rope(rotation.plan, pairing, rotation.softmax_factor)
    return RoundedRope(rope, rotation.rounding, rotation.base)


def _window_of(module: Any, options: Mapping[str, Any]) -> int | None:
    """Return the window of a layer in tokens; None if it has none."""
    window = options.get("sliding_window") or getattr(module, "sliding_window", None)
    if isinstance(window, int) and window > 0:
        return window
    return None


def _layer_type_of(module: Any, window: int | None) -> str:
    for name in ("layer_type", "attention_type"):
        kind = getattr(module, name, None)
        if kind and isinstance(kind, str):
            return kind
    if window:
        return "sliding_attention"
    return FULL


class _MaskedScores(Encoding):
    """Scores of an encoding, capped and masked as a layer of the model does it."""

    def __init__(
        self,
        encoding: Encoding,
        mask: Any,
        softcap: float | None,
        before: int,
        first: int,
    ) -> None:
        super().__init__()
        self.encoding = encoding
        self.mask = mask
        self.softcap = softcap
        # The number of keys before the first query, and the position of the first key.
        self.before = before
        self.first = first

    def scores(
        self,
        q: Tensor,
        k: Tensor,
        q_positions: Tensor,
        k_positions: Tensor,
    ) -> Tensor:
        scores = self.encoding.scores(
            q, k, q_positions + self.first, k_positions + self.first
        )
        scores = scores.float()
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if self.mask is None:
            return scores
        mask = self.mask[:, :, q_positions - self.before, : len(k_positions)]
        if mask.dtype == torch.bool:
            return scores.masked_fill(~mask, -math.inf)
        return scores + mask


@contextmanager
def replacing_attention(model: Any, attention: PatchedAttention) -> Iterator[None]:
    """Let a model's layers attend by `attention` in the block.

    RuntimeError: none of them did.
    """
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = model.config._attn_implementation

    def attend(
        module: Any, q: Any, k: Any, v: Any, mask: Any = None, **more: Any
    ) -> Any:
        if before == "eager":
            original = sys.modules[type(module).__module__].eager_attention_forward
        else:
            original = ALL_ATTENTION_FUNCTIONS[before]
        return attention(original, module, q, k, v, mask, **more)

    name = f"ropelab_{before}"
    ALL_ATTENTION_FUNCTIONS.register(name, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(name, ALL_MASK_ATTENTION_FUNCTIONS[before])
    model.config._attn_implementation = name
    try:
        yield
    finally:
        model.config._attn_implementation = before
    if not attention.called:
        raise RuntimeError("the layers do not call transformers' attention interface")
