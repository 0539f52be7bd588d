"""Facts about positions in a model's configuration, in the one form of transformers'
classes.
"""
# Keys in files differ between architectures and years; the loaded model is compared
# with them later.

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropelab.math.frequencies import Geometry
from ropelab.models.released.folder import located
from ropelab.models.released.loading import configuration, refusing
from ropelab.runs.errors import InputError, naming

FULL = "full_attention"
# Rope types whose parameters name the length that the model was trained at before.
SCALED = ("yarn", "llama3", "longrope")
# In every language model's configuration, however config.json spells them.
COUNTS = (
    *("max_position_embeddings", "num_attention_heads", "hidden_size", "vocab_size"),
    "num_hidden_layers",
)


@dataclass(frozen=True)
class ModelFacts:
    model_type: str
    train_len: int  # tokens, before any scaling in the checkpoint
    claimed_len: int  # tokens; the length in the configuration
    base: float  # unscaled, of the layers that attend to the whole context
    rotary_dim: int  # likewise
    rope_type: str  # the scaling in the checkpoint, `default` for none
    # tokens, of layers that do not attend to the whole context
    windows: tuple[int, ...]
    windowed_layers: int
    layers: int
    vocabulary: int

    def geometry(self) -> Geometry:
        """Return the trained geometry of the layers that attend to the whole
        context.
        """
        return Geometry(self.rotary_dim, self.base, self.train_len)


def facts_of(folder: str) -> ModelFacts:
    """Read a folder's configuration; InputError if it is none of a rotary language
    model.
    """
    place = located(Path(folder))
    path = place / "config.json"
    with refusing("no configuration of a language model in", path):
        text = configuration(place).get_text_config(decoder=True)
        with naming(str(path)):
            rope = rope_parameters(text)
            _check_rope(rope)
            for name in COUNTS:
                value = getattr(text, name, None)
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    said = (
                        f"names no {name}" if value is None else f"{name} is {value!r}"
                    )
                    raise InputError(f"{said}; it must be a whole number of at least 1")
            rope_type, claimed = (
                rope.get("rope_type", "default"),
                text.max_position_embeddings,
            )
            trained = (
                rope.get("original_max_position_embeddings")
                if rope_type in SCALED
                else None
            )
            windows = layer_windows(text)
            facts = ModelFacts(
                model_type=text.model_type,
                train_len=int(trained or claimed),
                claimed_len=claimed,
                base=float(rope.get("rope_theta") or 10000.0),
                rotary_dim=_rotary_dim(text, rope),
                rope_type=rope_type,
                windows=tuple(sorted(set(windows))),
                windowed_layers=len(windows),
                layers=text.num_hidden_layers,
                vocabulary=text.vocab_size,
            )
            facts.geometry()
            return facts


def rope_parameters(text: Any) -> dict[str, Any]:
    """Return the rotary parameters of the layers that attend to the whole context."""
    rope = getattr(text, "rope_parameters", None) or {}
    nested = {kind: part for kind, part in rope.items() if isinstance(part, dict)}
    return nested.get(FULL, {}) if nested else rope


def _check_rope(rope: dict[str, Any]) -> None:
    """Refuse a scaling that would be found out in the middle of a computation."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind, kinds = rope.get("rope_type", "default"), ("default", *ROPE_INIT_FUNCTIONS)
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
    # Gemma 4: its types of layers have different widths.
    return (
        text.per_layer_config[FULL]
        if getattr(text, "is_heterogeneous", False)
        else text
    )


def head_dim(text: Any) -> int:
    return int(
        getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    )


def _rotary_dim(text: Any, rope: dict[str, Any]) -> int:
    own = getattr(text, "rotary_dim", None)
    if own and not rope:
        return int(own)
    text = full_layers(text)
    head = getattr(text, "qk_rope_head_dim", None) or head_dim(text)
    return int(head * (rope.get("partial_rotary_factor") or 1.0))


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
    return [int(size) for kind in kinds if (size := sizes.get(kind)) and size > 0]
