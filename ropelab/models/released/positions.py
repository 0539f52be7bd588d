"""The modules of a model that make its positions: patched for an encoding, and restored.

A rotary module has a buffer `inv_freq`, or one per layer type, of which only that of the layers
that read the whole context is patched: a layer with a window never sees a distance that was not
trained. GPT-J and CodeGen keep a table of sines and cosines in each layer instead. DeepSeek's YaRN
also has a factor on whole scores, which goes when its frequencies go.
"""

import copy
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.extended import LogN, SelfExtend
from ropelab.models.encoding.rope import Rope, cos_sin
from ropelab.models.released.facts import FULL, rope_parameters
from ropelab.runs.errors import InputError


class Unmodified(Encoding):
    """Whatever the checkpoint does: its frequencies, scaling, softmax factor and windows.

    Args:
        max_position: the last position for which it is defined; None means any.
    """

    name: ClassVar[str] = "unmodified"

    def __init__(self, max_position: int | None = None) -> None:
        super().__init__()
        self.max_position = max_position


# `model.encoding = UNMODIFIED` undoes every patch.
UNMODIFIED = Unmodified()


class SoftmaxFactor:
    """A factor on whole scores that DeepSeek's code takes from the parameters of YaRN."""

    def __init__(self, model: nn.Module, text: Any) -> None:
        self.factor = softmax_factor(rope_parameters(text))
        modules: list[Any] = [module for module in model.modules() if _has_factor(module)]
        self.shipped = [(module, float(module.scaling)) for module in modules]

    def patch(self, factor: float) -> None:
        """Another factor in the place of the checkpoint's."""
        for module, scaling in self.shipped:
            module.scaling = scaling / self.factor * factor

    def restore(self) -> None:
        """Return the factor of the checkpoint."""
        for module, scaling in self.shipped:
            module.scaling = scaling


def softmax_factor(rope: dict[str, Any]) -> float:
    """Return the factor on scores in DeepSeek's code (mscale_all_dim of YaRN), 1 without it."""
    share, factor = rope.get("mscale_all_dim"), rope.get("factor")
    if rope.get("rope_type", "default") == "default" or not share or not factor or factor <= 1:
        return 1.0
    return float(0.1 * share * math.log(factor) + 1) ** 2


def _has_factor(module: Any) -> bool:
    """Return True if the code of a module's architecture multiplies scores for YaRN."""
    code = sys.modules[type(module).__module__]
    return hasattr(code, "yarn_get_mscale") and isinstance(getattr(module, "scaling", None), float)


# Rope types whose frequencies depend on the length of the context.
GROWING = ("dynamic", "longrope")
# Positions at which a module is asked for its cosines.
PROBED = (0, 1, 5)


class RotaryModule(ABC):
    """A part of a model that has rotary frequencies.

    Attributes:
        pairs: how many frequencies.
        longest: the longest context that it serves unmodified; None: any.
        by_layer_type: whether layers with a window have frequencies of their own.
    """

    longest: int | None = None
    by_layer_type: bool = False
    pairs: int

    @abstractmethod
    def set_original(self, length: int) -> None:
        """Set the checkpoint's frequencies for a context, fixed while it is read."""

    @abstractmethod
    def patch(self, plan: RopePlan, length: int) -> None:
        """Set frequencies and attention factor of a plan, for a context of up to that length."""

    @abstractmethod
    def restore(self) -> None:
        """Set the state after loading."""

    def signature(self, length: int) -> Hashable:
        """Equal for lengths that the checkpoint reads with the same frequencies."""
        return None

    @abstractmethod
    def objection(self, geometry: Geometry) -> str:
        """Return the reason why its frequencies cannot be patched; empty if they can."""


class Frequencies(RotaryModule):
    """A module with `inv_freq`, or with one `<layer type>_inv_freq` per layer type."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.layer_type = None if hasattr(module, "inv_freq") else FULL
        self.prefix = f"{self.layer_type}_" if self.layer_type else ""
        self.plain = {n: v for n, v in vars(module).items() if not n.startswith("_")}
        self.buffers = {n: b.clone() for n, b in module.named_buffers(recurse=False)}
        self.pairs = len(self.buffers.get(f"{self.prefix}inv_freq", ()))
        self.by_layer_type = self.layer_type is not None

    @property
    def rope_type(self) -> str:
        """The scaling of the checkpoint, `default` for none."""
        kinds = self.plain["rope_type"]
        return str(kinds.get(self.layer_type, "default") if self.layer_type else kinds)

    def restore(self) -> None:
        """Return the state after loading, whatever has been computed since."""
        for name in [n for n in vars(self.module) if not n.startswith("_")]:
            if name not in self.plain:
                delattr(self.module, name)
        vars(self.module).update(self.plain)
        for name in [n for n in self.module._buffers if n not in self.buffers]:
            del self.module._buffers[name]
        for name, buffer in self.buffers.items():
            self.module._buffers[name] = buffer.clone()

    def set_original(self, length: int) -> None:
        """Frequencies that follow the length are computed for the whole of it, once.

        In a pass over all of it transformers does the same; read in parts, the first ones would
        otherwise be read as a shorter context.
        """
        self.restore()
        if self.rope_type in GROWING:
            self.cosines([length - 1])
            self._hold()

    def patch(self, plan: RopePlan, length: int) -> None:
        self.restore()
        shipped = self.buffers[f"{self.prefix}inv_freq"]
        if len(plan.inv_freq) != len(shipped):
            raise InputError(
                f"the model turns {len(shipped)} pairs of features, not {len(plan.inv_freq)}"
            )
        inv_freq = torch.from_numpy(plan.inv_freq).to(shipped.device, torch.float32)
        for name in ("inv_freq", "original_inv_freq"):
            self.module._buffers[f"{self.prefix}{name}"] = inv_freq
        setattr(self.module, f"{self.prefix}attention_scaling", plan.attention_factor)
        self._hold()
        if "rope_init_fn" in self.plain:
            self._compute_anew(inv_freq, plan.attention_factor)

    def _hold(self) -> None:
        """Keep transformers from computing frequencies of its own for long inputs."""
        kinds = self.plain["rope_type"]
        held = {**kinds, self.layer_type: "default"} if self.layer_type else "default"
        self.module.rope_type = held

    def _compute_anew(self, inv_freq: Tensor, factor: float) -> None:
        """PhiMoE computes its frequencies in every pass, and takes factors from its own keys."""

        def computed(*_: object, **__: object) -> tuple[Tensor, float]:
            return inv_freq, factor

        self.module.rope_init_fn = computed
        config = copy.copy(self.module.config)
        config.rope_parameters = {**config.rope_parameters, "rope_type": "default"}
        self.module.config = config

    def signature(self, length: int) -> Hashable:
        if self.rope_type not in GROWING:
            return None
        self.set_original(length)
        inv_freq = self.module._buffers[f"{self.prefix}inv_freq"]
        self.restore()
        return tuple(inv_freq.tolist())

    def cosines(self, positions: list[int]) -> Tensor:
        """Return the module's cosines at positions, times its factor, one row each."""
        at = torch.tensor([positions], device=self.buffers[f"{self.prefix}inv_freq"].device)
        x = torch.zeros(1, len(positions), 1, device=at.device)
        more = {"layer_type": self.layer_type} if self.layer_type else {}
        made = self.module(x, at, **more)
        cos = made[0] if isinstance(made, tuple) else made
        return (cos.real if cos.is_complex() else cos).reshape(len(positions), -1)

    def objection(self, geometry: Geometry) -> str:
        if not self.pairs:
            return "none of its layers rotates by frequencies that serve the whole context"
        if self.rope_type == "proportional":
            return "it turns a selection of pairs of its own (proportional)"
        if self.pairs != geometry.pairs:
            return (
                f"it turns {self.pairs} pairs of features where its configuration names "
                f"{geometry.pairs}"
            )
        shipped = self.buffers[f"{self.prefix}inv_freq"].double().cpu().numpy()
        if self.rope_type == "default" and abs(shipped / geometry.inv_freq - 1).max() > 1e-4:
            return f"its frequencies are not those of base {geometry.base:g}"
        return "" if self._follows() else "its rotary module does not follow its frequencies"

    def _follows(self) -> bool:
        """Return True if cosines follow patched frequencies; some modules compute their own."""
        inv_freq = torch.linspace(1.0, 0.1, self.pairs, dtype=torch.float64)
        self.patch(RopePlan(inv_freq.numpy(), 1.25), max(PROBED) + 1)
        made = self.cosines(list(PROBED)).double().cpu()
        self.restore()
        wanted = 1.25 * torch.cos(torch.tensor(PROBED)[:, None] * inv_freq)
        apart = (made[:, :, None] - wanted[:, None, :]).abs().amax(dim=0)
        matched = bool((apart.amin(dim=0) < 1e-4).all() and (apart.amin(dim=1) < 1e-4).all())
        return matched and made.shape[1] % self.pairs == 0


class SineTables(RotaryModule):
    """GPT-J's and CodeGen's: sines, then cosines, one row per position, the same in each layer."""

    def __init__(self, modules: list[Any]) -> None:
        self.modules = modules
        self.tables = [module.embed_positions for module in modules]
        self.made: tuple[RopePlan, Tensor] | None = None
        self.longest, width = self.tables[0].shape
        self.pairs = width // 2

    def restore(self) -> None:
        """Return the tables after loading."""
        for module, table in zip(self.modules, self.tables, strict=True):
            module.embed_positions = table

    def set_original(self, length: int) -> None:
        self.restore()

    def patch(self, plan: RopePlan, length: int) -> None:
        if len(plan.inv_freq) != self.pairs:
            raise InputError(f"the model turns {self.pairs} pairs, not {len(plan.inv_freq)}")
        table = self._table(plan, length)
        for module in self.modules:
            module.embed_positions = table

    def _table(self, plan: RopePlan, length: int) -> Tensor:
        if self.made is None or self.made[0] is not plan or len(self.made[1]) < length:
            shipped = self.tables[0]
            cos, sin = cos_sin(torch.arange(length), plan)
            table = torch.cat([sin, cos], dim=1) * plan.attention_factor
            self.made = plan, table.to(shipped.device, torch.float32)
        return self.made[1]

    def objection(self, geometry: Geometry) -> str:
        if self.pairs != geometry.pairs:
            return f"it turns {self.pairs} pairs, not {geometry.pairs}"
        sines = torch.from_numpy(geometry.inv_freq).sin()
        same = torch.allclose(self.tables[0][1, : self.pairs].double().cpu(), sines, atol=1e-5)
        return "" if same else f"its sines are not those of base {geometry.base:g}"


def rotary_modules(model: nn.Module) -> list[RotaryModule]:
    """Return the modules that hold rotary frequencies; none in a model that does not rotate."""
    found: list[RotaryModule] = [Frequencies(m) for m in model.modules() if _is_rotary(m)]
    tables = [m for m in model.modules() if _is_sine_table(m)]
    return [*found, SineTables(tables)] if tables else found


def _is_rotary(module: nn.Module) -> bool:
    buffers = [name for name, _ in module.named_buffers(recurse=False)]
    return hasattr(module, "rope_type") and any(name.endswith("inv_freq") for name in buffers)


def _is_sine_table(module: Any) -> bool:
    table = getattr(module, "embed_positions", None)
    return isinstance(table, Tensor) and table.ndim == 2 and hasattr(module, "rotary_dim")


@dataclass(frozen=True)
class Patch:
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
        """True if attention itself is changed."""
        return self.sharpened_from is not None or self.far is not None


def patch_of(encoding: Encoding) -> Patch:
    """Return the patch that makes a model read with an encoding.

    Raises:
        InputError: it asks for something that is not done here.
    """
    if isinstance(encoding, Unmodified):
        return Patch()
    if isinstance(encoding, LogN):
        return replace(patch_of(encoding.inner), sharpened_from=encoding.trained_len)
    if isinstance(encoding, SelfExtend):
        return Patch(plan=encoding.rope.plan, far=encoding)
    if isinstance(encoding, Rope):
        return Patch(plan=encoding.plan, softmax=encoding.softmax_factor)
    raise InputError(f"{encoding.name} is no way to read a model that was trained elsewhere")


class Positions:
    """The parts of a model that make its positions: as shipped, unless something is put in.

    Args:
        model: the causal language model.
        text: the configuration of its language part.
    """

    def __init__(self, model: Any, text: Any) -> None:
        self.modules = rotary_modules(model)
        self.softmax = SoftmaxFactor(model, text)

    @contextmanager
    def patched(self, patch: Patch, length: int) -> Iterator[None]:
        """Apply a patch for a context of that length, and undo it at the end."""
        try:
            for module in self.modules:
                if patch.plan is None:
                    module.set_original(length)
                else:
                    still = RopePlan(0 * patch.plan.inv_freq)
                    module.patch(still if patch.far else patch.plan, length)
            if patch.plan is not None:
                self.softmax.patch(patch.softmax)
            yield
        finally:
            for module in self.modules:
                module.restore()
            self.softmax.restore()

    @property
    def longest(self) -> int | None:
        """The longest context that is defined as shipped, in tokens; None: any."""
        ends = [module.longest for module in self.modules if module.longest]
        return min(ends) if ends else None

    @property
    def by_layer_type(self) -> bool:
        """True if layers with a window have frequencies of their own."""
        return any(module.by_layer_type for module in self.modules)

    def signature(self, length: int) -> Hashable:
        """Equal for lengths that the checkpoint reads with the same frequencies."""
        return tuple(module.signature(length) for module in self.modules)

    def objection(self, geometry: Geometry) -> str:
        """Why no method can be put in, empty if one can."""
        said = (module.objection(geometry) for module in self.modules)
        return next(filter(None, said), "")
