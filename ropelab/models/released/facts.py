"""The facts about positions in the configuration of a released model.

The keys of config.json differ between architectures and years. transformers reads the
file into a configuration object, which has one form for all models. The facts are taken
from this object. When the model is loaded, it is compared with the facts
(`Positions.objection`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropelab.math.frequencies import Geometry
from ropelab.models.released.folder import locate
from ropelab.models.released.loading import read_configuration_once, refusing
from ropelab.runs.errors import InputError, naming

# The type, in transformers, of layers that attend to the whole context.
FULL = "full_attention"
# Rope types with a key for the length at which the model was trained before any scaling.
TYPES_WITH_TRAINED_LENGTH = ("yarn", "llama3", "longrope")
# The attributes of every language model's configuration object that are whole numbers
# of at least 1.
COUNTS = (
    "max_position_embeddings",
    "num_attention_heads",
    "hidden_size",
    "vocab_size",
    "num_hidden_layers",
)


@dataclass(frozen=True)
class ModelFacts:
    """The facts about positions in a model.

    Base and rotary_dim belong to the layers that attend to the whole context.
    """

    # The architecture, by the name that transformers has for it.
    model_type: str
    # The length in tokens that the model was trained at before any scaling in the
    # checkpoint.
    train_len: int
    # The length in tokens that the configuration claims.
    claimed_len: int
    # The base before any scaling.
    base: float
    # The features of a head from which a score comes, and those of them that rotate.
    head_dim: int
    rotary_dim: int
    # The name of the scaling in the checkpoint; `default` if there is none.
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


def read_facts(folder: str) -> ModelFacts:
    """Read the facts of the model in a folder.

    InputError: the folder has no configuration of a rotary language model.
    """
    located = locate(Path(folder))
    path = located / "config.json"
    with refusing("no configuration of a language model in", path):
        # The configuration of a model that also reads images contains another one, for
        # text.
        text = read_configuration_once(located).get_text_config(decoder=True)
        with naming(str(path)):
            rope = find_rope_parameters(text)
            _check_rope(rope)
            _check_counts(text)
            facts = _make_facts(text, rope)
            # The result is not used. The call raises InputError if the numbers make no
            # geometry.
            facts.geometry()
            return facts


def _make_facts(text: Any, rope: dict[str, Any]) -> ModelFacts:
    rope_type = rope.get("rope_type", "default")
    train_len = text.max_position_embeddings
    if rope_type in TYPES_WITH_TRAINED_LENGTH:
        train_len = rope.get("original_max_position_embeddings") or train_len
    windows = list_layer_windows(text)

    return ModelFacts(
        model_type=text.model_type,
        train_len=int(train_len),
        claimed_len=text.max_position_embeddings,
        base=float(rope.get("rope_theta") or 10000.0),
        head_dim=_find_head_dim(text),
        rotary_dim=_find_rotary_dim(text, rope),
        rope_type=rope_type,
        windows=tuple(sorted(set(windows))),
        windowed_layers=len(windows),
        layers=text.num_hidden_layers,
        vocabulary=text.vocab_size,
    )


def find_rope_parameters(text: Any) -> dict[str, Any]:
    """Return the rotary parameters of the layers that attend to the whole context."""
    rope = getattr(text, "rope_parameters", None) or {}
    # The parameters either hold for all layers, or are a dictionary for each layer
    # type.
    by_layer_type = {
        layer_type: parameters
        for layer_type, parameters in rope.items()
        if isinstance(parameters, dict)
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

    rope_type = rope.get("rope_type", "default")
    known_types = ("default", *ROPE_INIT_FUNCTIONS)
    if rope_type not in known_types:
        raise InputError(
            f"unknown rope_type {str(rope_type)[:40]!r}; allowed:"
            f" {', '.join(known_types)}"
        )
    for name in ("rope_theta", "factor"):
        value = rope.get(name)
        if value is not None and (not isinstance(value, int | float) or value <= 0):
            raise InputError(f"{name} must be a number above 0, not {value!r}"[:200])


def find_full_layers(text: Any) -> Any:
    """Return the configuration of the layers that attend to the whole context."""
    # The types of layers of Gemma 4 have different widths.
    if getattr(text, "is_heterogeneous", False):
        return text.per_layer_config[FULL]
    return text


def head_dim(text: Any) -> int:
    stated_dim = getattr(text, "head_dim", None)
    return int(stated_dim or text.hidden_size // text.num_attention_heads)


def _find_rotary_dim(text: Any, rope: dict[str, Any]) -> int:
    """Return the number of features of a head that rotate."""
    stated_dim = getattr(text, "rotary_dim", None)
    if stated_dim and not rope:
        # GPT-J and CodeGen state the number itself.
        return int(stated_dim)
    full_layers = find_full_layers(text)
    # In latent attention only a part of the head rotates. The width of this part has a
    # separate key.
    latent_dim = getattr(full_layers, "qk_rope_head_dim", None)
    rotary_head_dim = latent_dim or head_dim(full_layers)
    share = rope.get("partial_rotary_factor") or 1.0
    return int(rotary_head_dim * share)


def _find_head_dim(text: Any) -> int:
    """Return the number of features of a head, rotated or not."""
    full_layers = find_full_layers(text)
    # A head of latent attention has two parts, of which one rotates.
    rotated_part = getattr(full_layers, "qk_rope_head_dim", None)
    if rotated_part:
        other_part = getattr(full_layers, "qk_nope_head_dim", None) or 0
        return int(rotated_part) + int(other_part)
    return int(head_dim(full_layers))


def list_layer_windows(text: Any) -> list[int]:
    """Return the window of each layer that has one, in tokens."""
    # The window of each type of layer; None or a number below 1 for no window.
    sizes = {
        "sliding_attention": getattr(text, "sliding_window", None),
        "chunked_attention": getattr(text, "attention_chunk_size", None),
    }

    if getattr(text, "use_sliding_window", True) is False:
        sizes["sliding_attention"] = None

    layer_types = getattr(text, "layer_types", None)
    if layer_types is None:
        # If there is a window and no layer types, all layers have the window.
        layer_types = ["sliding_attention"] * int(text.num_hidden_layers)
    sizes_by_layer = [sizes.get(layer_type) for layer_type in layer_types]
    return [int(size) for size in sizes_by_layer if size and size > 0]
