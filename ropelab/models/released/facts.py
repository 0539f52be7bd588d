"""Facts about positions in a model's configuration, as its own configuration class reads it.

Names of keys differ between architectures and years (`rotary_pct`, `rope_theta` beside or inside
`rope_scaling`, layer types with a base each); transformers' classes bring them into one form, which
is read here. What the loaded model turns out to hold is compared with these facts later.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ropelab.models.lm.evaluation import LOGITS_PER_CHUNK
from ropelab.models.released.folder import located
from ropelab.models.released.loading import configuration, refusing
from ropelab.runs.errors import InputError

if TYPE_CHECKING:
    from ropelab.math.frequencies import Geometry

FULL = "full_attention"
# Rope types whose parameters name the length that the model was trained at before.
SCALED = ("yarn", "llama3", "longrope")

# What every language model's configuration names, however it is spelled in its config.json.
COUNTS = (
    "max_position_embeddings",
    "num_attention_heads",
    "hidden_size",
    "vocab_size",
    "num_hidden_layers",
)


@dataclass(frozen=True)
class ModelFacts:
    """One model's positions.

    Attributes:
        model_type: transformers' name of the architecture.
        train_len: the length before any scaling that the checkpoint ships with, in tokens.
        claimed_len: the length that the configuration names, in tokens.
        base, rotary_dim: of the unscaled frequencies, of the layers that read the whole context.
        rope_type: how the checkpoint scales them, `default` for not at all.
        windows: the windows of layers that do not read the whole context, in tokens.
        windowed_layers: how many such layers there are.
        layers: how many layers there are.
        vocabulary: how many different tokens there are.
    """

    model_type: str
    train_len: int
    claimed_len: int
    base: float
    rotary_dim: int
    rope_type: str
    windows: tuple[int, ...]
    windowed_layers: int
    layers: int
    vocabulary: int

    def geometry(self) -> "Geometry":
        """Return the trained geometry of the layers that read the whole context."""
        from ropelab.math.frequencies import Geometry

        return Geometry(self.rotary_dim, self.base, self.train_len)


@dataclass(frozen=True)
class ModelShape:
    """The sizes that the memory and the time of a pass follow from.

    Attributes:
        inner: the width inside of a layer's feed-forward part.
        kept: numbers of a token's keys and values in a layer.
    """

    layers: int
    width: int
    inner: int
    heads: int
    head_dim: int
    kept: int

    @property
    def activations(self) -> int:
        """Numbers of a token's activations in a layer."""
        return 8 * self.width + 3 * self.inner

    def bytes_of_reading(self, length: int, at_once: int, element: int, eager: bool = False) -> int:
        """Bytes that a pass adds to those of the weights.

        Keys and values of all layers, the widest activations of one, the logits of a chunk, and
        the scores of all heads where attention makes them at once.

        Args:
            at_once: of the `length` tokens so many are read at once.
            element: bytes of a number.
        """
        held = length * (self.layers * self.kept + 2 * self.width) + at_once * self.activations
        scores = 4 * self.heads * at_once * length if eager else 0
        return held * element + scores + 4 * 4 * LOGITS_PER_CHUNK


def shape_of(text: Any) -> ModelShape:
    """Return the sizes in a configuration of the language part of a model."""
    layers = text.num_hidden_layers
    if getattr(text, "is_heterogeneous", False):  # Gemma 4: layers of several widths
        text = text.per_layer_config[FULL]
    heads = text.num_attention_heads
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
    return ModelShape(
        layers=layers,
        width=text.hidden_size,
        inner=getattr(text, "intermediate_size", 0) or 0,
        heads=heads,
        head_dim=head_dim,
        kept=2 * (getattr(text, "num_key_value_heads", None) or heads) * head_dim,
    )


def facts_of(folder: str) -> ModelFacts:
    """Everything that a folder's configuration says about positions.

    Raises:
        InputError: there is no readable configuration of a language model with rotary positions.
    """
    place = located(Path(folder))
    path = place / "config.json"
    with refusing("no configuration of a language model in", path):
        return _from_text(path, configuration(place).get_text_config(decoder=True))


def _from_text(path: Path, text: Any) -> ModelFacts:
    rope = rope_parameters(text)
    _check_rope(path, rope)
    for name in COUNTS:
        _check_count(path, name, getattr(text, name, None))
    claimed: int = text.max_position_embeddings
    windowed = windowed_layers(text)
    facts = ModelFacts(
        model_type=text.model_type,
        train_len=trained_length(rope, claimed),
        claimed_len=claimed,
        base=float(rope.get("rope_theta") or 10000.0),
        rotary_dim=rotary_dim(text, rope),
        rope_type=rope.get("rope_type", "default"),
        windows=tuple(sorted(set(windowed))),
        windowed_layers=len(windowed),
        layers=text.num_hidden_layers,
        vocabulary=text.vocab_size,
    )
    try:
        facts.geometry()
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return facts


def rope_parameters(text: Any) -> dict[str, Any]:
    """Return the rotary parameters of the layers that read the whole context."""
    rope = getattr(text, "rope_parameters", None) or {}
    nested = {kind: part for kind, part in rope.items() if isinstance(part, dict)}
    return nested.get(FULL, {}) if nested else rope


def trained_length(rope: dict[str, Any], claimed: int) -> int:
    """Return the length before scaling: the one that the scaling names, else the claimed one."""
    if rope.get("rope_type") in SCALED:
        return int(rope.get("original_max_position_embeddings") or claimed)
    return claimed


def rotary_dim(text: Any, rope: dict[str, Any]) -> int:
    """Return the number of features of a head that rotate."""
    own = getattr(text, "rotary_dim", None)
    if own and not rope:
        return int(own)
    if getattr(text, "is_heterogeneous", False):
        text = text.per_layer_config[FULL]
    head = (
        getattr(text, "qk_rope_head_dim", None)
        or getattr(text, "head_dim", None)
        or text.hidden_size // text.num_attention_heads
    )
    return int(head * (rope.get("partial_rotary_factor") or 1.0))


def windowed_layers(text: Any) -> list[int]:
    """Return the window of each layer that has one, in tokens."""
    layers = int(text.num_hidden_layers)
    sizes = {
        "sliding_attention": getattr(text, "sliding_window", None),
        "chunked_attention": getattr(text, "attention_chunk_size", None),
    }
    if getattr(text, "use_sliding_window", True) is False:
        sizes["sliding_attention"] = None
    kinds = getattr(text, "layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention"] * layers
    return [int(size) for kind in kinds if (size := sizes.get(kind)) and size > 0]


def _check_count(path: Path, name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        said = "names no" if value is None else f"has {value!r} as its"
        raise InputError(f"{path} {said} {name}; it must be a whole number of at least 1")


def _check_rope(path: Path, rope: dict[str, Any]) -> None:
    """Refuse a scaling that would be found out in the middle of a computation."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = rope.get("rope_type", "default")
    if kind not in ("default", *ROPE_INIT_FUNCTIONS):
        allowed = ", ".join(("default", *ROPE_INIT_FUNCTIONS))
        raise InputError(f"{path}: unknown rope_type {str(kind)[:40]!r}; allowed: {allowed}")
    for name in ("rope_theta", "factor"):
        value = rope.get(name)
        if value is not None and (not isinstance(value, int | float) or value <= 0):
            raise InputError(f"{path}: {name} must be a number above 0, not {value!r}"[:300])
