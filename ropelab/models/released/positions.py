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
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ropelab.math.frequencies import Geometry
from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.rope import LogN, Remapped, Rope, cos_sin
from ropelab.models.encoding.rounded import RoundedRope
from ropelab.models.lm.model import blocked_attention
from ropelab.models.released.facts import FULL, rope_parameters
from ropelab.runs.errors import InputError

# Rope types whose frequencies depend on the length of the context.
GROWING = ("dynamic", "longrope")
# Positions at which a module is asked for its cosines.
PROBED = (0, 1, 5)


class Unmodified(Encoding):
    """The checkpoint's own frequencies, scaling, softmax factor and windows: undoes
    every patch.
    """

    name: ClassVar[str] = "unmodified"


UNMODIFIED = Unmodified()


@dataclass(frozen=True)
class PairLayout:
    """The features of queries and keys that rotate, as a model's layers hand them to
    attention.
    """

    pairing: Pairing = "half"
    last: bool = False  # of a head (latent attention); else the first


@dataclass(frozen=True)
class Patch:
    """An encoding as changes of a model."""

    plan: RopePlan | None = None  # None: the checkpoint's frequencies
    softmax: float = 1.0  # factor on scores where the model's code has one
    sharper: LogN | None = None  # its factor on logits; what it is around is ignored
    # rotates instead of the model's own code
    taken: Remapped | RoundedRope | None = None
    layout: PairLayout = PairLayout()

    @property
    def attends(self) -> bool:
        return self.sharper is not None or self.taken is not None


UNPATCHED = Patch()


def patch_of(encoding: Encoding) -> Patch:
    """Return the patch of an encoding; InputError if it is more than frequencies and
    attention.
    """
    if encoding is UNMODIFIED:
        return UNPATCHED
    if isinstance(encoding, LogN):
        return replace(
            patch_of(encoding.inner), sharper=LogN(Encoding(), encoding.trained_len)
        )
    if isinstance(encoding, Remapped):
        return Patch(encoding.rope.plan, taken=encoding)
    if isinstance(encoding, RoundedRope):
        return Patch(encoding.plan, encoding.softmax_factor, taken=encoding)
    if isinstance(encoding, Rope):
        return Patch(encoding.plan, encoding.softmax_factor)
    raise InputError(
        f"{encoding.name} cannot be patched into a model that was trained elsewhere"
    )


class Frequencies:
    """A module with `inv_freq`, or with one `<layer type>_inv_freq` per layer type."""

    longest: int | None = None

    def __init__(self, module: Any) -> None:
        self.module = module
        self.by_layer_type = not hasattr(module, "inv_freq")
        self.prefix = f"{FULL}_" if self.by_layer_type else ""
        kinds = module.rope_type
        self.rope_type = str(
            kinds.get(FULL, "default") if self.by_layer_type else kinds
        )

    @property
    def inv_freq(self) -> Tensor:
        """Radians per token; empty if no layer attends to the whole context."""
        found: Tensor = self.module._buffers.get(
            f"{self.prefix}inv_freq", torch.empty(0)
        )
        return found

    @property
    def attention_factor(self) -> float:
        return float(getattr(self.module, f"{self.prefix}attention_scaling", 1.0))

    def set_original(self, length: int) -> None:
        # Those that follow the length are computed for the whole of it, once. In a pass
        # over all of it transformers does the same; in parts the first ones would be of
        # a shorter context.
        if self.rope_type in GROWING:
            # A copy, since transformers may write into it.
            self.module._buffers[f"{self.prefix}inv_freq"] = self.inv_freq.clone()
            self.cosines([length - 1])
            self._hold()

    def patch(self, plan: RopePlan, length: int) -> None:
        inv_freq = torch.from_numpy(plan.inv_freq).to(
            self.inv_freq.device, torch.float32
        )
        for name in ("inv_freq", "original_inv_freq"):
            self.module._buffers[f"{self.prefix}{name}"] = inv_freq
        setattr(self.module, f"{self.prefix}attention_scaling", plan.attention_factor)
        self._hold()
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

    def _hold(self) -> None:
        """Keep transformers from computing frequencies of its own for long inputs."""
        kinds = self.module.rope_type
        self.module.rope_type = (
            {**kinds, FULL: "default"} if self.by_layer_type else "default"
        )

    def cosines(self, positions: list[int]) -> Tensor:
        """Return the module's cosines at positions, times its factor, one row each."""
        at = torch.tensor([positions], device=self.inv_freq.device)
        x = torch.zeros(1, len(positions), 1, device=at.device)
        made = self.module(
            x, at, **({"layer_type": FULL} if self.by_layer_type else {})
        )
        cos: Tensor = made[0] if isinstance(made, tuple) else made
        return (cos.real if cos.is_complex() else cos).reshape(len(positions), -1)


class SineTables:
    """GPT-J's and CodeGen's: sines, then cosines, one row per position, the same in
    each layer.
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
    """The rotary modules of a model (none if it does not rotate), unmodified unless
    patched.

    Unmodified they hold for `longest` tokens (None: any), `by_layer_type` if windows
    have others.
    """

    def __init__(self, model: nn.Module, text: Any) -> None:
        own: list[Any] = list(model.modules())
        ropes = [module for module in own if hasattr(module, "rope_type")]
        rotary = [
            m for m in ropes if any(name.endswith("inv_freq") for name in m._buffers)
        ]
        rotating = [module for module in own if hasattr(module, "rotary_dim")]
        tables = [
            m
            for m in rotating
            if isinstance(getattr(m, "embed_positions", None), Tensor)
        ]
        self.modules: list[Frequencies | SineTables] = [
            Frequencies(each) for each in rotary
        ]
        self.modules += [SineTables(tables)] if tables else []
        self.longest = min((m.longest for m in self.modules if m.longest), default=None)
        self.by_layer_type = any(module.by_layer_type for module in self.modules)
        factors = [
            (module, _softmax_factor(module, rope_parameters(text))) for module in own
        ]
        self.unscaled = [
            (module, module.scaling / factor) for module, factor in factors if factor
        ]
        self.softmax_factor = next((factor for _, factor in factors if factor), 1.0)
        patched = (*rotary, *tables, *(module for module, _ in self.unscaled))
        self.saved = [
            (module, dict(vars(module)), dict(module._buffers)) for module in patched
        ]

    @contextmanager
    def patched(self, patch: Patch, length: int) -> Iterator[None]:
        """Apply a patch for a context of that length, and undo it at the end."""
        try:
            for module in self.modules:
                if patch.plan is None:
                    module.set_original(length)
                    continue
                wanted, pairs = patch.plan.inv_freq, len(module.inv_freq)
                if len(wanted) != pairs:
                    raise InputError(
                        f"the model rotates {pairs} feature pairs, not {len(wanted)}"
                    )
                module.patch(
                    RopePlan(0 * wanted) if patch.taken else patch.plan, length
                )
            if patch.plan is not None:
                for each, scaling in self.unscaled:
                    each.scaling = scaling * patch.softmax
            yield
        finally:
            self._restore()

    def _restore(self) -> None:
        """Return the state after loading, whatever has been computed since."""
        for module, attributes, buffers in self.saved:
            vars(module).clear()
            vars(module).update(attributes, _buffers=dict(buffers))

    def signature(self, length: int) -> Hashable:
        """Equal for lengths at which the checkpoint has the same frequencies."""
        with self.patched(UNPATCHED, length):
            return tuple(tuple(module.inv_freq.tolist()) for module in self.modules)

    def own(self, length: int) -> Rope:
        """Return the checkpoint's own rotation of a context of that length."""
        with self.patched(UNPATCHED, length):
            module = self.modules[0]
            plan = RopePlan(
                module.inv_freq.double().cpu().numpy(), module.attention_factor
            )
        return Rope(plan, softmax_factor=self.softmax_factor)

    def objection(self, geometry: Geometry) -> str:
        """Return the reason why no frequencies can be patched; empty if they can."""
        for module in self.modules:
            own = module.inv_freq.double().cpu().numpy()
            pairs = len(own)
            if not pairs:
                return (
                    "none of its layers rotates by frequencies that serve the whole"
                    " context"
                )
            if module.rope_type == "proportional":
                return "it rotates a selection of pairs of its own (proportional)"
            if pairs != geometry.pairs:
                return (
                    f"it rotates {pairs} pairs of features where its configuration"
                    f" names {geometry.pairs}"
                )
            if (
                module.rope_type == "default"
                and abs(own / geometry.inv_freq - 1).max() > 1e-4
            ):
                return f"its frequencies are not those of base {geometry.base:g}"
            # Some modules compute frequencies of their own in every pass.
            inv_freq = torch.linspace(1.0, 0.1, pairs, dtype=torch.float64)
            module.patch(RopePlan(inv_freq.numpy(), 1.25), max(PROBED) + 1)
            made = module.cosines(list(PROBED)).double().cpu()
            self._restore()
            wanted = 1.25 * torch.cos(torch.tensor(PROBED)[:, None] * inv_freq)
            equal = (made[:, :, None] - wanted[:, None, :]).abs().amax(dim=0) < 1e-4
            if (
                not (equal.any(dim=0).all() and equal.any(dim=1).all())
                or made.shape[1] % pairs
            ):
                return "its rotary module does not follow its frequencies"
        return ""


def _softmax_factor(module: Any, rope: dict[str, Any]) -> float | None:
    """Return the factor on scores of DeepSeek's code under YaRN; None in other code."""
    make = getattr(sys.modules[type(module).__module__], "yarn_get_mscale", None)
    if make is None or not isinstance(getattr(module, "scaling", None), float):
        return None
    share = rope.get("mscale_all_dim")
    scaled = (
        rope.get("rope_type", "default") != "default" and share and rope.get("factor")
    )
    return float(make(rope["factor"], share)) ** 2 if scaled else 1.0


class Attention:
    """Attention of a model's layers under a patch, from position `first` of a context
    on.

    `by_layer_type`: layers with a window keep their own rotation. `called` once a layer
    attended.
    """

    def __init__(self, patch: Patch, by_layer_type: bool) -> None:
        self.by_layer_type, self.last = by_layer_type, patch.layout.last
        self.first, self.called = 0, False
        self.sharper = patch.sharper
        # A copy that rotates the pairs of this model.
        self.taken, pairing = copy.copy(patch.taken), patch.layout.pairing
        if isinstance(self.taken, Remapped):
            self.taken = type(self.taken)(
                Rope(self.taken.rope.plan, pairing), *self.taken.sizes
            )
        elif self.taken is not None:
            self.taken.pairing = pairing

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
        """Return the attention of one layer; keys and values may have fewer heads than
        queries.
        """
        # `mask` [batch, 1, queries, keys] is True or 0 where a query may look; None: at
        # all before.
        self.called = True
        window = more.get("sliding_window") or getattr(module, "sliding_window", None)
        window = window if isinstance(window, int) and window > 0 else None
        if self.sharper is not None:
            # The factor follows the tokens that a query sees, no more than its window
            # has.
            at = torch.arange(self.first, self.first + q.shape[2], device=q.device)
            q = self.sharper.query(q, at.clamp(max=window - 1) if window else at)
        kind = getattr(module, "layer_type", None) or getattr(
            module, "attention_type", None
        )
        if not isinstance(kind, str):
            kind = "sliding_attention" if window else FULL
        if self.taken is None or (self.by_layer_type and kind != FULL):
            return original(module, q, k, v, mask, **more)
        if self.last:
            q, k = (x.roll(self.taken.rotary_dim, dims=-1) for x in (q, k))
        before = k.shape[2] - q.shape[2]
        at_k = torch.arange(
            self.first - before, self.first + q.shape[2], device=q.device
        )
        q, k = self.taken.query(q, at_k[before:]), self.taken.key(k, at_k)
        if self.taken.fused:
            return original(module, q, k, v, mask, **more)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        width, scaling = q.shape[-1], more.get("scaling")
        # scores() divides by sqrt(head_dim)
        q = q * ((scaling or width**-0.5) * width**0.5)
        masked = _Masked(
            self.taken, mask, more.get("softcap"), before, self.first - before
        )
        return blocked_attention(masked, q, k, v).transpose(1, 2).contiguous(), None


class _Masked(Encoding):
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
        self.encoding, self.mask, self.softcap = encoding, mask, softcap
        # The number of keys before the first query, and the position of the first key.
        self.before, self.first = before, first

    def scores(self, q: Tensor, k: Tensor, at_q: Tensor, at_k: Tensor) -> Tensor:
        scores = self.encoding.scores(
            q, k, at_q + self.first, at_k + self.first
        ).float()
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        if self.mask is None:
            return scores
        part = self.mask[:, :, at_q - self.before, : len(at_k)]
        return (
            scores.masked_fill(~part, -math.inf)
            if part.dtype == torch.bool
            else scores + part
        )


@contextmanager
def attending(model: Any, attention: Attention) -> Iterator[None]:
    """Let a model's layers attend by `attention` in the block; RuntimeError if none
    did.
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
