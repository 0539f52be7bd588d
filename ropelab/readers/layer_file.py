"""The facts of a file about its layers: their number, and the kind of attention of
each.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ropelab.readers.families import read_table
from ropelab.readers.spec import RefusedError

# The most layers of a model. A larger number in a file is taken for a mistake.
MOST_LAYERS = 4096
# The types of layers as files name them: with a sliding window, and without.
SLIDING = "sliding_attention"
FULL = "full_attention"


@dataclass(frozen=True)
class LayerDefaults:
    """The defaults of the class of a model type, for files that say nothing about
    layers.

    A row of the table `usual` in layers.toml.
    """

    # The tokens of a sliding window. None: no layer has a window.
    window_tokens: int | None = None
    # Which layers see the whole context: a name of `has_full_attention`. Empty: it is not
    # known.
    full_pattern: str = ""
    # The number n for patterns in which every n-th layer is of another kind, and its key
    # in a file (empty: a file cannot change it).
    period: int | None = None
    period_key: str = ""
    # True if the class raises an error for a pattern that is not a number, once it has
    # to use the pattern.
    needs_number: bool = False
    # True if layers that see the whole context have base 0 in the class's list of bases.
    full_has_no_base: bool = False
    # The key of a list that says for each layer whether it rotates. Empty: the class
    # reads no list.
    flags_key: str = ""
    # The key of a list with the numbers of the layers that do not rotate.
    unrotated_key: str = ""
    # Their numbers where a file has no such list, or null.
    unrotated: tuple[int, ...] = ()


DEFAULTS: dict[str, LayerDefaults] = {
    model_type: LayerDefaults(**row)
    for model_type, row in read_table("layers")["usual"].items()
}
NO_DEFAULTS = LayerDefaults()


@dataclass(frozen=True)
class LayerFile:
    """The facts of a file about its layers, and the defaults of its class where the
    file is silent.
    """

    # The language part of the configuration.
    language_part: Mapping[str, Any]
    # The number of layers.
    count: int
    defaults: LayerDefaults

    @property
    def window(self) -> Any:
        """The tokens of a sliding window, as the file has them; None if it says null."""
        return self.language_part.get("sliding_window", self.defaults.window_tokens)

    @property
    def listed_types(self) -> list[Any] | None:
        """The types of the layers, if the file lists them."""
        types = self.language_part.get("layer_types")
        return types if isinstance(types, list) else None

    @property
    def period(self) -> Any:
        """The number n of a pattern in which every n-th layer differs, as it is given."""
        return self.language_part.get(self.defaults.period_key, self.defaults.period)


def count_layers(language_part: Mapping[str, Any]) -> int | None:
    """Return the number of layers of a configuration or GGUF file, None without one."""
    count = language_part.get("num_hidden_layers", language_part.get("block_count"))
    if isinstance(count, int) and 1 <= count <= MOST_LAYERS:
        return count
    return None


def list_types(file: LayerFile) -> list[Any] | None:
    """Return the type of attention of each layer, None where it is not known.

    The file lists them, or else the class makes the list. RefusedError: the class stops
    at the pattern of the file.
    """
    if file.listed_types is not None:
        return file.listed_types
    if not file.defaults.full_pattern:
        return None

    period = file.period
    if file.defaults.needs_number:
        period = check_number_pattern(file)
    has_period = file.defaults.period is not None
    if has_period and (type(period) is not int or period < 1):
        return None

    types = []
    for layer in range(file.count):
        is_full = has_full_attention(file, layer, period)
        types.append(FULL if is_full else SLIDING)
    return types


def has_full_attention(file: LayerFile, layer: int, period: int) -> bool:
    """Return True for a layer that sees the whole context by the pattern of its class.

    Args:
        file: the file, with the name of the pattern.
        layer: the number of the layer, from 0.
        period: the number n of a pattern in which every n-th layer sees the whole
            context.
    """
    last = file.count - 1
    match file.defaults.full_pattern:
        case "ends":
            # The last layer of each group of n.
            return (layer + 1) % period == 0
        case "starts":
            # The first layer of each group of n.
            return layer % period == 0
        case "from last":
            # The last layer of the model, and every n-th before it.
            return (last - layer) % period == 0
        case "flint":
            # The first two layers, then every fourth, and the last layer of the model.
            return layer < 2 or layer % 4 == 1 or layer == last
        case "beam":
            # The last layer of each group of six, and the last layer of the model.
            return (layer + 1) % 6 == 0 or layer == last
        case pattern:
            raise LookupError(f"layers.toml has an unknown pattern: {pattern}")


def check_number_pattern(file: LayerFile) -> int:
    """Return the pattern of EXAONE's class as a number; RefusedError for any other.

    The class computes `(i + 1) % sliding_window_pattern` if the file has no layer_types,
    with 0 for a window of null.
    """
    pattern = file.period
    if file.window is None:
        pattern = 0
    if type(pattern) is not int or pattern == 0:
        raise RefusedError(
            "without layer_types its class needs a number as sliding_window_pattern,"
            " and a window"
        )
    return pattern
