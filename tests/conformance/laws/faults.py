"""Faults planted into a right model, each with the law, the trial and the words that
name it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama import modeling_llama

from tests.models.released.tiny import untouched

PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
Change = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Fault:
    """What is planted into which model, and the row that must be found."""

    name: str
    plant: Callable[[Any], None]
    law: str
    trial: str
    says: str = ""
    model: str = "llama"
    changes: tuple[tuple[str, Any], ...] = ()

    def make(self) -> Any:
        """The model with the fault."""
        model = untouched(self.model, **dict(self.changes))
        self.plant(model)
        return model


def around(module: Any, change: Change) -> None:
    """Let a module's forward see other arguments."""
    forward = module.forward

    def changed(*arguments: Any, **given: Any) -> Any:
        return forward(*arguments, **change(given))

    module.forward = changed


def seen(given: dict[str, Any]) -> int:
    """The number of tokens in the cache."""
    cache = given.get("past_key_values")
    return 0 if cache is None else int(cache.get_seq_length())


def own_positions(count: Callable[[int, int], Tensor]) -> Callable[[Any], None]:
    """Positions that the model makes itself while it has a cache, from tokens before
    and new.
    """

    def change(given: dict[str, Any]) -> dict[str, Any]:
        if given.get("position_ids") is None and seen(given):
            given["position_ids"] = count(seen(given), given["input_ids"].shape[1])[
                None
            ]
        return given

    return lambda model: around(model.model, change)


def masks(make: Callable[[Tensor], Tensor | None]) -> Callable[[Any], None]:
    """The mask of padding, changed."""

    def change(given: dict[str, Any]) -> dict[str, Any]:
        mask = given.get("attention_mask")
        return given | (
            {} if mask is None or mask.ndim != 2 else {"attention_mask": make(mask)}
        )

    return lambda model: around(model.model, change)


def positions(make: Callable[[Tensor], Tensor | None]) -> Callable[[Any], None]:
    """The positions that are given, changed."""

    def change(given: dict[str, Any]) -> dict[str, Any]:
        at = given.get("position_ids")
        return given | ({} if at is None else {"position_ids": make(at)})

    return lambda model: around(model.model, change)


def undetected(model: Any) -> None:
    """Packed rows are not looked for, as a mask is always there."""

    def change(given: dict[str, Any]) -> dict[str, Any]:
        if given.get("attention_mask") is None:
            length = seen(given) + given["input_ids"].shape[1]
            given["attention_mask"] = torch.ones(len(given["input_ids"]), length)
        return given

    around(model.model, change)


def angles(make: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any], None]:
    """Angles of layer 1 alone, from positions [rows, tokens, 1] and frequencies."""

    def plant(model: Any) -> None:
        rotary = model.model.rotary_emb

        def change(given: dict[str, Any]) -> dict[str, Any]:
            at = given["position_ids"][..., None].float()
            half = make(at, rotary.original_inv_freq.float())
            whole = torch.cat([half, half], dim=-1)
            dtype = given["position_embeddings"][0].dtype
            return given | {
                "position_embeddings": (whole.cos().to(dtype), whole.sin().to(dtype))
            }

        around(model.model.layers[1], change)

    return plant


def every_layer(make: Callable[[Any, Tensor], Tensor]) -> Callable[[Any], None]:
    """Angles of all layers, from the rotary module and positions [rows, tokens]."""

    def plant(model: Any) -> None:
        rotary = model.model.rotary_emb

        def forward(
            x: Tensor, at: Tensor | None = None, position_ids: Tensor | None = None
        ) -> Any:
            places = position_ids if at is None else at
            assert places is not None
            half = make(rotary, places)
            whole = torch.cat([half, half], dim=-1)
            return whole.cos().to(x.dtype), whole.sin().to(x.dtype)

        rotary.forward = forward

    return plant


def unmasked(model: Any) -> None:
    """Layer 1 sees padding."""
    around(model.model.layers[1], lambda given: given | {"attention_mask": None})


def adjacent(model: Any) -> None:
    """Layer 1 pairs neighbours."""
    layer = model.model.layers[1]
    forward = layer.forward

    def rotate(
        q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *_: Any, **__: Any
    ) -> Any:
        half = cos.shape[-1] // 2
        turn = torch.complex(*(t[:, None, :, :half] for t in (cos, sin)))
        pairs = (
            torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) for x in (q, k)
        )
        return tuple(torch.view_as_real(x * turn).flatten(-2) for x in pairs)

    def changed(*arguments: Any, **given: Any) -> Any:
        with swapped(modeling_llama, "apply_rotary_pos_emb", rotate):
            return forward(*arguments, **given)

    layer.forward = changed


@contextmanager
def swapped(module: Any, name: str, value: Any) -> Iterator[None]:
    """Another value under a name of a module."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


def absolute(model: Any) -> None:
    """Sines of positions are added to the embeddings."""
    layer = model.model.layers[0]
    forward = layer.forward

    def changed(hidden: Tensor, **given: Any) -> Any:
        return forward(hidden + given["position_ids"][..., None].float().sin(), **given)

    layer.forward = changed


def unrotated(model: Any) -> None:
    """The flag of layers without rotation, inverted."""
    for layer in model.model.layers:
        layer.self_attn.use_rope = not layer.self_attn.use_rope


def rounded(model: Any) -> None:
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.bfloat16().float()


def stale(model: Any) -> None:
    """Frequencies of a long text are kept for the next one."""
    model.model.rotary_emb.original_max_seq_len = 0


def permuted(model: Any) -> None:
    model.model.rotary_emb.mrope_section = [3, 6, 3]


def unsaved(model: Any) -> None:
    """A base that the configuration does not name."""
    model.model.rotary_emb.inv_freq.copy_(500.0 ** -(torch.arange(8) / 8))


def product(rotary: Any, at: Tensor) -> Tensor:
    """Angles by a product of matrices, which autocast rounds."""
    return at[..., None].float() @ rotary.inv_freq[None].float()


MROPE = {
    **PLAIN,
    "mrope_section": [6, 3, 3],
    "mrope_interleaved": True,
    "partial_rotary_factor": 1.0,
}
FAULTS = (
    Fault(
        "positions off by one after the cache",
        own_positions(lambda before, new: torch.arange(new) + before + 1),
        "cache",
        "token by token",
    ),
    Fault(
        "positions restart in every chunk",
        own_positions(lambda before, new: torch.arange(new)),
        "cache",
        "in chunks",
    ),
    Fault(
        "left padding ignored", masks(lambda mask: None), "padding", "left, mask alone"
    ),
    Fault(
        "mask inverted", masks(lambda mask: 1 - mask), "padding", "right, mask alone"
    ),
    Fault(
        "positions of another row",
        positions(lambda at: at[-1:]),
        "padding",
        "left, positions",
    ),
    Fault("mask ignored in one layer", unmasked, "padding", "left, positions"),
    Fault(
        "restart missing", positions(lambda at: None), "packing", "restarted, no mask"
    ),
    Fault("packed rows not detected", undetected, "packing", "restarted, no mask"),
    Fault("absolute positions added", absolute, "shift", "by 1", "absolute position"),
    Fault(
        "positions in bfloat16",
        every_layer(lambda r, at: at.bfloat16()[..., None].float() * r.inv_freq),
        "shift",
        "by 1,000",
        "smaller format",
    ),
    Fault(
        "base of one layer wrong",
        angles(lambda at, f: at * 20000.0 ** -(torch.arange(len(f)) / len(f))),
        "rotation",
        "with what",
        "layer 1: base 20000 instead of 10000",
    ),
    Fault(
        "rotation applied twice in one layer",
        angles(lambda at, f: 2 * at * f),
        "rotation",
        "with what",
        "layer 1: rotated twice",
    ),
    Fault(
        "scaling missing in one layer",
        angles(lambda at, f: 4 * at * f),
        "rotation",
        "with what",
        "layer 1: the scaling is not applied",
        changes=(("rope_parameters", {**PLAIN, "rope_type": "linear", "factor": 4.0}),),
    ),
    Fault(
        "half of the features in one layer",
        angles(lambda at, f: at * f * (torch.arange(len(f)) < len(f) // 2)),
        "rotation",
        "with what",
        "layer 1: ",
    ),
    Fault(
        "another pairing in one layer",
        adjacent,
        "rotation",
        "with what",
        "layer 1: adjacent",
    ),
    Fault(
        "the other direction in one layer",
        angles(lambda at, f: -at * f),
        "rotation",
        "with what",
        "layer 1: ",
    ),
    Fault(
        "the other direction in every layer",
        every_layer(lambda r, at: -at[..., None].float() * r.inv_freq),
        "rotation",
        "with what",
        "queries and keys turn the other way",
    ),
    Fault(
        "positions wrap at 32,768",
        every_layer(lambda r, at: (at % 32768)[..., None].float() * r.inv_freq),
        "shift",
        "by 32,744",
        "absolute position",
    ),
    Fault(
        "positions of 16 bits without a sign",
        every_layer(lambda r, at: (at % 65536)[..., None].float() * r.inv_freq),
        "shift",
        "by 65,512",
        "absolute position",
    ),
    Fault("inv_freq in bfloat16", rounded, "rotation", "with what", "bfloat16"),
    Fault(
        "NoPE flag inverted",
        unrotated,
        "rotation",
        "which layers",
        "layer 0 does not rotate, and should",
        "smollm3",
        (("no_rope_layers", [1, 0]),),
    ),
    Fault("base not in the configuration", unsaved, "state", "saved and loaded"),
    Fault(
        "angles under autocast",
        every_layer(product),
        "state",
        "under autocast",
        "bfloat16",
    ),
    Fault(
        "stale dynamic base",
        stale,
        "state",
        "short after long",
        changes=(
            ("rope_parameters", {**PLAIN, "rope_type": "dynamic", "factor": 4.0}),
        ),
    ),
    Fault(
        "sections permuted",
        permuted,
        "M-RoPE",
        "sections",
        "axis 0 moves pairs",
        "qwen3_5_text",
        (
            ("rope_parameters", MROPE),
            ("head_dim", 24),
            ("layer_types", ["full_attention", "full_attention"]),
        ),
    ),
)


class Kept(nn.Module):
    """One layer of rotated attention with a cache, whose keys can be moved: by the
    wrong sign?
    """

    vocabulary = 50

    def __init__(self, sign: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)
        self.maps, self.sign = nn.ModuleList(nn.Linear(16, 16) for _ in range(3)), sign

    def new_cache(self) -> dict[str, Tensor]:
        return {}

    def rotated(self, x: Tensor, at: Tensor) -> Tensor:
        angle = at[..., None].float() * 100.0 ** (
            -torch.arange(8, dtype=torch.float32) / 8
        )
        pairs = torch.complex(x[..., :8], x[..., 8:]) * torch.polar(
            torch.ones_like(angle), angle
        )
        return torch.cat([pairs.real, pairs.imag], dim=-1)

    def shift_keys(self, cache: dict[str, Tensor], by: int) -> None:
        cache["k"] = self.rotated(cache["k"], torch.tensor([self.sign * by]))

    def forward(
        self, tokens: Tensor, at: Tensor, mask: Tensor, cache: Any = None
    ) -> Tensor:
        x = self.embedding(tokens)
        q, k, v = (each(x) for each in self.maps)
        k = self.rotated(k, at)
        if cache is not None:
            if cache:
                k, v = (
                    torch.cat([cache["k"], k], dim=1),
                    torch.cat([cache["v"], v], dim=1),
                )
            cache |= {"k": k, "v": v}
        scores = self.rotated(q, at) @ k.mT
        return self.head(x + scores.masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v)
