"""The parts of a transformers model that make its positions, patched for an encoding.

An encoding becomes a `Patch`: other frequencies, another attention, or both. `Positions`
patches the frequencies of a model and restores them. The attention of its layers is
patched in attention.py.

Frequencies are in rotary modules. A rotary module has a buffer `inv_freq`, or a buffer
for each layer type. Only the buffer of layers that attend to the whole context is
patched, since a layer with a window never sees an untrained distance. GPT-J and CodeGen
keep a table in each layer instead. DeepSeek's code has a factor on whole scores under
YaRN, which is replaced, too.
"""

import copy
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
from ropelab.models.encoding.extended import LogN, Remapped
from ropelab.models.encoding.rope import Rope, cos_sin
from ropelab.models.encoding.rounded import RoundedRope
from ropelab.models.released.facts import FULL, find_rope_parameters
from ropelab.runs.errors import InputError

# Rope types (keys of transformers) whose frequencies depend on the length of the context.
LENGTH_DEPENDENT_TYPES = ("dynamic", "longrope")
# Positions at which a module is tested for its cosines.
PROBED_POSITIONS = (0, 1, 5)
# The largest relative difference of equal frequencies, which a module holds in float32.
FREQUENCY_TOLERANCE = 1e-4
# The largest difference of equal cosines, which a module computes in float32.
COSINE_TOLERANCE = 1e-4


class UnmodifiedEncoding(Encoding):
    """Stands for the frequencies, factors and windows that a checkpoint came with."""

    name: ClassVar[str] = "unmodified"


UNMODIFIED = UnmodifiedEncoding()


@dataclass(frozen=True)
class PairLayout:
    """The features that rotate in queries and keys, as layers pass them to attention."""

    pairing: Pairing = "half"
    # True: the last features of a head rotate, as in latent attention. False: the first
    # features rotate.
    rotates_last: bool = False


@dataclass(frozen=True)
class Patch:
    """The changes of a model that an encoding stands for."""

    # The frequencies; None: the frequencies of the checkpoint.
    plan: RopePlan | None = None
    # The factor on scores, for models whose code has one (DeepSeek).
    softmax_factor: float = 1.0
    # The factor log n on scores; None: scores have no factor log n. The `inner`
    # encoding of this LogN is not used.
    log_n: LogN | None = None
    # An encoding that rotates queries and keys instead of the model's code; None: the
    # model's code rotates them.
    rotation: Remapped | RoundedRope | None = None
    # The features that `rotation` has to rotate.
    layout: PairLayout = PairLayout()

    @property
    def changes_attention(self) -> bool:
        return self.log_n is not None or self.rotation is not None


# The patch that changes nothing.
UNPATCHED = Patch()


def make_patch(encoding: Encoding) -> Patch:
    """Return the patch of an encoding.

    InputError: the encoding changes more than frequencies and attention.
    """
    if encoding is UNMODIFIED:
        return UNPATCHED
    if isinstance(encoding, LogN):
        log_n = LogN(Encoding(), encoding.trained_len)
        return replace(make_patch(encoding.inner), log_n=log_n)
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

    # The most positions that the module defines; None: any number.
    longest: int | None = None

    def __init__(self, module: Any) -> None:
        self.module = module
        # True if layers with windows have other frequencies than layers without.
        self.by_layer_type = not hasattr(module, "inv_freq")
        # The names of the module's attributes begin with the prefix.
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
        """The factor on cos and sin."""
        return float(getattr(self.module, f"{self.prefix}attention_scaling", 1.0))

    def set_original(self, length: int) -> None:
        """Set the checkpoint's frequencies for a context of that length."""
        # Frequencies that depend on the length are computed once, for the whole
        # context. If the context is passed in parts, transformers would compute the
        # frequencies of the first parts for a shorter context.
        if self.rope_type in LENGTH_DEPENDENT_TYPES:
            # transformers may write into the buffer, so it gets a copy.
            self.module._buffers[f"{self.prefix}inv_freq"] = self.inv_freq.clone()
            # A call at the last position makes the module compute the frequencies.
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

        # PhiMoE computes its frequencies in every pass by this function, and reads its
        # factors from the configuration unless the rope type there is `default`.
        if "rope_init_fn" in vars(self.module):
            self.module.rope_init_fn = lambda *_, **__: (
                inv_freq,
                plan.attention_factor,
            )
            config = copy.copy(self.module.config)
            config.rope_parameters = {**config.rope_parameters, "rope_type": "default"}
            self.module.config = config

    def _stop_updates(self) -> None:
        """Keep transformers from computing other frequencies for long inputs."""
        # transformers never computes new frequencies for the rope type `default`.
        if self.by_layer_type:
            self.module.rope_type = {**self.module.rope_type, FULL: "default"}
        else:
            self.module.rope_type = "default"

    def cosines(self, positions: list[int]) -> Tensor:
        """Return the module's cosines times its factor, with a row for each position."""
        count = len(positions)
        position_ids = torch.tensor([positions], device=self.inv_freq.device)
        x = torch.zeros(1, count, 1, device=position_ids.device)
        options = {}
        if self.by_layer_type:
            options["layer_type"] = FULL
        result = self.module(x, position_ids, **options)

        # Some modules return cos and sin, and other modules return complex numbers.
        cos: Tensor = result[0] if isinstance(result, tuple) else result
        if cos.is_complex():
            cos = cos.real
        return cos.reshape(count, -1)


class SineTables:
    """The tables of GPT-J and CodeGen, in which each layer holds sines and cosines.

    A table has a row for each position, with the sines of all pairs, then the cosines.
    All layers have equal tables. This class has the methods and attributes of
    `RotaryModule` that `Positions` uses.
    """

    by_layer_type = False
    rope_type = "default"
    attention_factor = 1.0

    def __init__(self, modules: list[Any]) -> None:
        self.modules = modules
        table: Tensor = modules[0].embed_positions
        self.longest, width = table.shape
        # At position 1 the angles are the frequencies. These angles are at most 1 rad,
        # so that the arcsine of their sines gives them back.
        self.inv_freq = table[1, : width // 2].asin()

    def set_original(self, length: int) -> None:
        """Do nothing: unpatched, the modules have the checkpoint's table."""

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
    """The rotary modules of a model, which can be patched and restored.

    `modules` is empty if the model does not rotate. Unmodified modules serve contexts
    of up to `longest` tokens (None: of any length). `by_layer_type` is True if layers
    with windows have other frequencies than layers without.
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

        # DeepSeek's factor on scores, as the first attention module has it.
        self.softmax_factor = 1.0
        # Each attention module of DeepSeek's code, with its scale of scores without the
        # factor.
        self.scales: list[tuple[Any, float]] = []
        for module in modules:
            factor = _read_softmax_factor(module, find_rope_parameters(text))
            if factor:
                is_first = not self.scales
                if is_first:
                    self.softmax_factor = factor
                self.scales.append((module, module.scaling / factor))

        # The state after loading of every module that a patch changes.
        patched_modules = [*rotary, *tables]
        patched_modules += [module for module, _ in self.scales]
        self.saved_states = []
        for module in patched_modules:
            attributes = dict(vars(module))
            buffers = dict(module._buffers)
            self.saved_states.append((module, attributes, buffers))

    @contextmanager
    def apply(self, patch: Patch, length: int) -> Iterator[None]:
        """Apply a patch for a context of `length` tokens; undo it after the block."""
        try:
            for module in self.modules:
                if patch.plan is None:
                    module.set_original(length)
                else:
                    plan = self._plan_for(module, patch, patch.plan)
                    module.patch(plan, length)

            if patch.plan is not None:
                for attention, scale in self.scales:
                    attention.scaling = scale * patch.softmax_factor
            yield
        finally:
            self._restore()

    @staticmethod
    def _plan_for(
        module: "RotaryModule | SineTables",
        patch: Patch,
        plan: RopePlan,
    ) -> RopePlan:
        """Return the plan for a module.

        If the patch rotates instead of the model's code, the frequencies are 0, so that
        the code rotates nothing. InputError: the module has another number of pairs.
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
        """Restore the state after loading, whatever has been computed since."""
        for module, attributes, buffers in self.saved_states:
            vars(module).clear()
            vars(module).update(attributes, _buffers=dict(buffers))

    def signature(self, length: int) -> Hashable:
        """Return the checkpoint's frequencies for a context of that length.

        Lengths with the same frequencies can share a pass.
        """
        with self.apply(UNPATCHED, length):
            return tuple(tuple(module.inv_freq.tolist()) for module in self.modules)

    def read_rotation(self, length: int) -> Rope:
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
        inv_freq = module.inv_freq.double().cpu().numpy()
        pairs = len(inv_freq)
        if pairs == 0:
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
            relative_differences = abs(inv_freq / geometry.inv_freq - 1)
            if relative_differences.max() > FREQUENCY_TOLERANCE:
                return f"its frequencies are not those of base {geometry.base:g}"
        if not self._follows_patches(module, pairs):
            return "its rotary module does not follow its frequencies"
        return ""

    def _follows_patches(self, module: "RotaryModule | SineTables", pairs: int) -> bool:
        """Return True if a module computes its cosines from patched frequencies."""
        # Some modules compute other frequencies in every pass.
        inv_freq = torch.linspace(1.0, 0.1, pairs, dtype=torch.float64)
        factor = 1.25
        module.patch(RopePlan(inv_freq.numpy(), factor), max(PROBED_POSITIONS) + 1)
        # [positions, columns]: a module may have one or several columns for each pair.
        cosines = module.cosines(list(PROBED_POSITIONS)).double().cpu()
        self._restore()

        # [positions, pairs]
        angles = torch.tensor(PROBED_POSITIONS)[:, None] * inv_freq
        expected = factor * torch.cos(angles)
        # Every column has to belong to a pair, and every pair has to have a column. All
        # columns are compared with all pairs, [positions, columns, pairs].
        differences = (cosines[:, :, None] - expected[:, None, :]).abs()
        is_equal = differences.amax(dim=0) < COSINE_TOLERANCE
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


def _read_softmax_factor(module: Any, rope: dict[str, Any]) -> float | None:
    """Return the factor on scores in an attention module of DeepSeek's code.

    The factor is 1 unless the checkpoint has YaRN. None: the module is not an attention
    module, or has other code.
    """
    code = sys.modules[type(module).__module__]
    compute_factor = getattr(code, "yarn_get_mscale", None)
    has_scale = isinstance(getattr(module, "scaling", None), float)
    if compute_factor is None or not has_scale:
        return None

    is_scaled = rope.get("rope_type", "default") != "default"
    mscale = rope.get("mscale_all_dim")
    if is_scaled and mscale and rope.get("factor"):
        return float(compute_factor(rope["factor"], mscale)) ** 2
    return 1.0
