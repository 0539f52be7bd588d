"""Facts about positions in a model's configuration.

Keys in files differ between architectures and years, so that the classes of
transformers are asked, which have one form. The loaded model is compared with the facts
later.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropelab.math.frequencies import Geometry
from ropelab.models.released.folder import locate
from ropelab.models.released.loading import configuration, refusing
from ropelab.runs.errors import InputError, naming

FULL = "full_attention"
# Rope types whose parameters name the length that the model was trained at before.
SCALED = ("yarn", "llama3", "longrope")
# Keys of every language model's configuration, however config.json spells them.
COUNTS = (
    "max_position_embeddings",
    "num_attention_heads",
    "hidden_size",
    "vocab_size",
    "num_hidden_layers",
)


@dataclass(frozen=True)
class ModelFacts:
    """The facts; base and rotary_dim are of layers that attend to the whole context."""

    model_type: str
    # The length in tokens that the model was trained at before any scaling in the
    # checkpoint.
    train_len: int
    # The length in tokens that the configuration claims.
    claimed_len: int
    # The base before any scaling.
    base: float
    rotary_dim: int
    # The scaling in the checkpoint; `default` if there is none.
    rope_type: str
    # The window lengths, in tokens, of the layers that do not attend to the whole
    # context.
    windows: tuple[int, ...]
    windowed_layers: int
    layers: int
    vocabulary: int

    def geometry(self) -> Geometry:
        """Return the trained geometry of layers that attend to the whole context."""
        return Geometry(self.rotary_dim, self.base, self.train_len)


def facts_of(folder: str) -> ModelFacts:
    """Read the facts of a folder.

    InputError: it has no configuration of a rotary language model.
    """
    place = locate(Path(folder))
    path = place / "config.json"
    with refusing("no configuration of a language model in", path):
        text = configuration(place).get_text_config(decoder=True)
        with naming(str(path)):
            rope = rope_parameters(text)
            _check_rope(rope)
            _check_counts(text)
            facts = _make_facts(text, rope)
            # This call raises the InputError if the numbers make no geometry.
            facts.geometry()
            return facts


def _make_facts(text: Any, rope: dict[str, Any]) -> ModelFacts:
    rope_type = rope.get("rope_type", "default")
    train_len = text.max_position_embeddings
    if rope_type in SCALED:
        train_len = rope.get("original_max_position_embeddings") or train_len
    windows = layer_windows(text)

    return ModelFacts(
        model_type=text.model_type,
        train_len=int(train_len),
        claimed_len=text.max_position_embeddings,
        base=float(rope.get("rope_theta") or 10000.0),
        rotary_dim=_rotary_dim(text, rope),
        rope_type=rope_type,
        windows=tuple(sorted(set(windows))),
        windowed_layers=len(windows),
        layers=text.num_hidden_layers,
        vocabulary=text.vocab_size,
    )


def rope_parameters(text: Any) -> dict[str, Any]:
    """Return the rotary parameters of the layers that attend to the whole context."""
    rope = getattr(text, "rope_parameters", None) or {}
    by_layer_type = {
        kind: part for kind, part in rope.items() if isinstance(part, dict)
    }
    if by_layer_type:
        return by_layer_type.get(FULL, {})
    return rope


def _check_counts(text: Any) -> None:
    for name in COUNTS:
        value = getattr(text, name, None)
        if value is None:
            raise InputError(
                f"names no {name}; it must be a whole number of at least 1"
            )
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(
                f"{name} is {value!r}; it must be a whole number of at least 1"
            )


def _check_rope(rope: dict[str, Any]) -> None:
    """Refuse a scaling that would only fail in the middle of a computation."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = rope.get("rope_type", "default")
    kinds = ("default", *ROPE_INIT_FUNCTIONS)
    if kind not in kinds:
        raise InputError(
            f"unknown rope_type {str(kind)[:40]!r}; allowed: {', '.join(kinds)}"
        )
    for name in ("rope_theta", "factor"):
        value = rope.get(name)
        if value is not None and (not isinstance(value, int | float) or value <= 0):
            raise InputError(f"{name} must be a number above 0, not {value!r}"[:200])


def full_layers(text: Any) -> Any:
    """Return the configuration of the layers that attend to the whole context."""
    # The types of layers of Gemma 4 have different widths.
    if getattr(text, "is_heterogeneous", False):
        return text.per_layer_config[FULL]
    return text


def head_dim(text: Any) -> int:
    own = getattr(text, "head_dim", None)
    return int(own or text.hidden_size // text.num_attention_heads)


def _rotary_dim(text: Any, rope: dict[str, Any]) -> int:
    own = getattr(text, "rotary_dim", None)
    if own and not rope:
        return int(own)
    text = full_layers(text)
    rotary_head_dim = getattr(text, "qk_rope_head_dim", None) or head_dim(text)
    share = rope.get("partial_rotary_factor") or 1.0
    return int(rotary_head_dim * share)


def layer_windows(text: Any) -> list[int]:
    """Return the window of each layer that has one, in tokens."""
    sizes = {
        "sliding_attention": getattr(text, "sliding_window", None),
        "chunked_attention": getattr(text, "attention_chunk_size", None),
    }
    if getattr(text, "use_sliding_window", True) is False:
        sizes["sliding_attention"] = None
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention"] * int(text.num_hidden_layers)
    sizes_by_layer = [sizes.get(kind) for kind in kinds]
    return [int(size) for size in sizes_by_layer if size and size > 0]
