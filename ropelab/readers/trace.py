"""A configuration that records the status of every key that a reader asks for.

Paths of keys have dots: `rope_parameters.factor` is the key `factor` in the dict
`rope_parameters`, which is called the rope block.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from ropelab.readers import families, keys
from ropelab.readers.family import Family
from ropelab.readers.served import USUAL, Served
from ropelab.readers.spec import RefusedError, shorten_value

Config = Mapping[str, Any]
# What a runtime does with a key. used: it reads the key as written. translated: it reads
# the value under another name or in another place. ignored: it does not read the key.
# overridden: another key is read in its place. refused: it stops because of the key.
Status = Literal["used", "translated", "ignored", "overridden", "refused"]

BLOCKS = keys.BLOCKS
# The parts of multimodal configurations that hold the language model.
LANGUAGE_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")

ORIGINAL = "original_max_position_embeddings"
MAXIMUM = "max_position_embeddings"
# Keys of llama3, of longrope, and of DeepSeek's factors on attention.
BANDS = ("factor", "low_freq_factor", "high_freq_factor")
LISTS = ("short_factor", "long_factor")
MSCALES = ("mscale", "mscale_all_dim")
# Scaling types that start from an original length.
TYPES_WITH_ORIGINAL = ("llama3", "yarn", "longrope")
# The note of a key that transformers 5 passes over.
OUTSIDE = "outside the dicts of the layer types"


@dataclass(frozen=True)
class KeyUse:
    """The use that a runtime makes of one key."""

    path: str
    status: Status
    note: str = ""


class Trace:
    """The language part of a configuration, and the status of each of its keys."""

    def __init__(
        self,
        config: Config,
        flags: Config | None = None,
        release: str = families.RELEASE,
        served: Served = USUAL,
    ) -> None:
        self.whole = config
        # The facts about a server's model file, if the runtime is a server.
        self.served = served
        # The release of transformers whose classes give what the file leaves out.
        self.release = release

        self.prefix, self.language_part = find_language_part(config)
        # A switch is a key that sets other keys if it is true.
        for key, values in self.family.switches.items():
            if self.language_part.get(key) is True:
                self.language_part = {**self.language_part, **values}
        self.flags = dict(flags or {})
        self._marks: dict[str, KeyUse] = {}

    @property
    def outer_type(self) -> str:
        """The model type of the whole; empty if it is missing or not a text."""
        outer = self.whole.get("model_type")
        return outer if isinstance(outer, str) else ""

    @property
    def model_type(self) -> str:
        """The model type of the language part, or of the whole if the part has none."""
        outer = self.outer_type
        model_type = self.language_part.get("model_type")
        renamed = families.RENAMED_TYPES.get(f"{outer}.{model_type}", model_type)
        model_type = renamed or outer
        return model_type if isinstance(model_type, str) else ""

    @cached_property
    def family(self) -> Family:
        """The keys that the class of the model type reads, and its defaults."""
        return families.find_family(
            self.model_type,
            self.release,
            self.outer_type,
            self.served.facts,
        )

    def has(self, path: str) -> bool:
        """Return True if the file has the key, even if its value is null."""
        return find_value(self.language_part, path) is not ABSENT

    def has_null(self, path: str) -> bool:
        """Return True if the key is null in the file; a null then counts as used."""
        is_null = find_value(self.language_part, path) is None
        if is_null:
            self.mark(path, "used")
        return is_null

    def get(self, path: str, default: Any = None, status: Status = "used") -> Any:
        """Return the value of a key, and set its status, or return the default."""
        value = find_value(self.language_part, path)
        if value is ABSENT:
            return default
        self.mark(path, status)
        return value

    def first(self, paths: tuple[str, ...], default: Any = None) -> tuple[Any, str]:
        """Return the value and the path of the first key that has a value other than
        null.

        After these keys, the class's aliases of the keys are tried. The default has an
        empty path.
        """
        known = self.family.aliases
        aliases = tuple(known[path] for path in paths if path in known)
        for path in paths + aliases:
            value = self.get(path)
            if value is not None:
                return value, path
        return default, ""

    def block(self, name: str) -> Mapping[str, Any] | None:
        """Return the dict of a name, None if there is none.

        RefusedError: the value is not a dict.
        """
        value = self.language_part.get(name)
        if value and not isinstance(value, Mapping):
            raise RefusedError(f"{name} must be a dict, not {shorten_value(value)}")
        return value if isinstance(value, Mapping) else None

    def mark(self, path: str, status: Status, note: str = "") -> None:
        """Set the status of a key; a later mark wins."""
        self._marks[path] = KeyUse(f"{self.prefix}{path}", status, note)

    def mark_unmarked(self, path: str) -> None:
        """Count a key as used unless it has a status already."""
        self._marks.setdefault(path, KeyUse(f"{self.prefix}{path}", "used"))

    def uses(self) -> tuple[KeyUse, ...]:
        """Return every key about rotation, in the order of the file.

        Keys without a status are ignored.
        """
        return tuple(
            self._marks.get(path, KeyUse(f"{self.prefix}{path}", "ignored"))
            for path in list_rope_paths(self.language_part)
        )


# The value of a key that a configuration does not have. None is the value null.
ABSENT: Any = object()


def find_value(config: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, or ABSENT."""
    value: Any = config
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return ABSENT
        value = value[part]
    return value


def find_language_part(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the path to the language model in a configuration, and its dict.

    The path ends with a dot. It is empty if the configuration describes the language
    model itself.
    """
    # The key where the class of this model type has its language part comes first.
    own_key = families.TEXT_KEYS.get(str(config.get("model_type")))
    names = [own_key, *LANGUAGE_PARTS] if own_key else LANGUAGE_PARTS
    for name in names:
        inner = config.get(name)
        if isinstance(inner, Mapping) and inner:
            prefix, language_part = find_language_part(inner)
            return f"{name}.{prefix}", language_part
    return "", config


def list_rope_paths(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of the keys about rotation, inside of rope blocks and outside."""
    for name, value in config.items():
        if name in BLOCKS and isinstance(value, Mapping):
            for key, inner in value.items():
                # A block may have a dict for each layer type.
                if isinstance(inner, Mapping):
                    yield from (f"{name}.{key}.{last}" for last in inner)
                else:
                    yield f"{name}.{key}"
        elif isinstance(value, Mapping):
            # No runtime reads a block whose name is misspelt.
            if keys.find_misspelt_key(name) in BLOCKS:
                yield name
        elif keys.is_about_rope(name):
            yield name


def find_rope_block(language_part: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the content of the first rope block that is a dict.

    Without one the content is empty.
    """
    for name in list_blocks(language_part):
        return name, language_part[name]
    return "rope_parameters", {}


def find_scaled_block(language_part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first rope block that is a dict or, if it has a dict for each layer type,
    that of the layers that see the whole context.
    """
    _, block = find_rope_block(language_part)
    inner = block.get("full_attention")
    return inner if isinstance(inner, Mapping) else block


def list_blocks(language_part: Mapping[str, Any]) -> list[str]:
    """Return the names of the rope blocks that are dicts with keys."""
    return [
        name
        for name in BLOCKS
        if isinstance(language_part.get(name), Mapping) and language_part[name]
    ]
