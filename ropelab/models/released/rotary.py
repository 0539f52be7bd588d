"""The parts of a model that hold rotary frequencies: exchanged for those of a plan, and restored.

A rotary module has a buffer `inv_freq`, or one per layer type, of which only that of the layers
that read the whole context is exchanged: a layer with a window never sees a distance that was not
trained. GPT-J and CodeGen keep a table of sines and cosines in each layer instead.
"""

import copy
from collections.abc import Hashable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ropelab.errors import InputError
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.rope import cos_sin
from ropelab.models.released.facts import FULL

GROWING = ("dynamic", "longrope")
"""Rope types whose frequencies depend on how long the context is."""
PROBED = (0, 1, 5)
"""Positions at which a module is asked for its cosines."""


class Holder(Protocol):
    """A part of a model that holds frequencies."""

    @property
    def pairs(self) -> int:
        """How many frequencies."""
        ...

    @property
    def longest(self) -> int | None:
        """The longest context that it serves as shipped; None: any."""
        ...

    @property
    def by_layer_type(self) -> bool:
        """Whether layers with a window have frequencies of their own."""
        ...

    def ship(self, length: int) -> None:
        """What the checkpoint has for a context of that length, held still while it is read."""
        ...

    def exchange(self, plan: RopePlan, length: int) -> None:
        """Frequencies and attention factor of a plan, for a context of up to that length."""
        ...

    def restore(self) -> None:
        """The state after loading, whatever has been put in since."""
        ...

    def signature(self, length: int) -> Hashable:
        """Equal for lengths that the checkpoint reads with the same frequencies."""
        ...

    def objection(self, geometry: Geometry) -> str:
        """Why its frequencies cannot be exchanged; empty if they can."""
        ...


class Frequencies:
    """A module with `inv_freq`, or with one `<layer type>_inv_freq` per layer type."""

    def __init__(self, module: Any) -> None:
        self.module = module
        self.layer_type = None if hasattr(module, "inv_freq") else FULL
        self.prefix = f"{self.layer_type}_" if self.layer_type else ""
        self.plain = {n: v for n, v in vars(module).items() if not n.startswith("_")}
        self.buffers = {n: b.clone() for n, b in module.named_buffers(recurse=False)}

    @property
    def pairs(self) -> int:
        shipped = self.buffers.get(f"{self.prefix}inv_freq")
        return 0 if shipped is None else len(shipped)

    @property
    def longest(self) -> int | None:
        return None

    @property
    def by_layer_type(self) -> bool:
        return self.layer_type is not None

    @property
    def rope_type(self) -> str:
        """How the checkpoint scales, `default` for not at all."""
        kinds = self.plain["rope_type"]
        return str(kinds.get(self.layer_type, "default") if self.layer_type else kinds)

    def restore(self) -> None:
        """The state after loading, whatever has been computed since."""
        for name in [n for n in vars(self.module) if not n.startswith("_")]:
            if name not in self.plain:
                delattr(self.module, name)
        vars(self.module).update(self.plain)
        for name in [n for n in self.module._buffers if n not in self.buffers]:
            del self.module._buffers[name]
        for name, buffer in self.buffers.items():
            self.module._buffers[name] = buffer.clone()

    def ship(self, length: int) -> None:
        """Frequencies that follow the length are computed for the whole of it, once.

        In a pass over all of it transformers does the same; read in parts, the first ones would
        otherwise be read as a shorter context.
        """
        self.restore()
        if self.rope_type in GROWING:
            self.cosines([length - 1])
            self._hold()

    def exchange(self, plan: RopePlan, length: int) -> None:
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
        self.ship(length)
        inv_freq = self.module._buffers[f"{self.prefix}inv_freq"]
        self.restore()
        return tuple(inv_freq.tolist())

    def cosines(self, positions: list[int]) -> Tensor:
        """What the module makes of positions: cosines times its factor, one row each."""
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
        """Whether cosines are those of the frequencies put in; some modules compute their own."""
        inv_freq = torch.linspace(1.0, 0.1, self.pairs, dtype=torch.float64)
        self.exchange(RopePlan(inv_freq.numpy(), 1.25), max(PROBED) + 1)
        made = self.cosines(list(PROBED)).double().cpu()
        self.restore()
        wanted = 1.25 * torch.cos(torch.tensor(PROBED)[:, None] * inv_freq)
        apart = (made[:, :, None] - wanted[:, None, :]).abs().amax(dim=0)
        matched = bool((apart.amin(dim=0) < 1e-4).all() and (apart.amin(dim=1) < 1e-4).all())
        return matched and made.shape[1] % self.pairs == 0


class SineTables:
    """GPT-J's and CodeGen's: sines, then cosines, one row per position, the same in each layer."""

    def __init__(self, modules: list[Any]) -> None:
        self.modules = modules
        self.tables = [module.embed_positions for module in modules]
        self.made: tuple[RopePlan, Tensor] | None = None

    @property
    def pairs(self) -> int:
        return self.tables[0].shape[1] // 2

    @property
    def longest(self) -> int | None:
        return len(self.tables[0])

    @property
    def by_layer_type(self) -> bool:
        return False

    def restore(self) -> None:
        """The tables after loading."""
        for module, table in zip(self.modules, self.tables, strict=True):
            module.embed_positions = table

    def ship(self, length: int) -> None:
        self.restore()

    def exchange(self, plan: RopePlan, length: int) -> None:
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

    def signature(self, length: int) -> Hashable:
        return None

    def objection(self, geometry: Geometry) -> str:
        if self.pairs != geometry.pairs:
            return f"it turns {self.pairs} pairs, not {geometry.pairs}"
        sines = torch.from_numpy(geometry.inv_freq).sin()
        same = torch.allclose(self.tables[0][1, : self.pairs].double().cpu(), sines, atol=1e-5)
        return "" if same else f"its sines are not those of base {geometry.base:g}"


def holders(model: nn.Module) -> list[Holder]:
    """The parts of a model that hold rotary frequencies; none in a model that does not rotate."""
    found: list[Holder] = [Frequencies(m) for m in model.modules() if _is_rotary(m)]
    tables = [m for m in model.modules() if _is_sine_table(m)]
    return [*found, SineTables(tables)] if tables else found


def _is_rotary(module: nn.Module) -> bool:
    buffers = [name for name, _ in module.named_buffers(recurse=False)]
    return hasattr(module, "rope_type") and any(name.endswith("inv_freq") for name in buffers)


def _is_sine_table(module: Any) -> bool:
    table = getattr(module, "embed_positions", None)
    return isinstance(table, Tensor) and table.ndim == 2 and hasattr(module, "rotary_dim")
