"""A configuration that remembers what each reader did with its keys."""

from collections.abc import Iterator, Mapping
from typing import Any

from ropelab.audit.runtimes.keys import concerns_rope
from ropelab.audit.runtimes.spec import KeyUse, Status

NESTS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multimodal configurations keep their language model."""

BLOCKS = ("rope_scaling", "rope_parameters")


class Trace:
    """The language model's part of a configuration, and the status of every key that was asked for.

    ``flags`` are settings from the command line of the runtime.
    """

    def __init__(self, config: Mapping[str, Any], flags: Mapping[str, Any] | None = None) -> None:
        self.whole = config
        self.prefix, self.text = language_part(config)
        self.flags = dict(flags or {})
        self._marks: dict[str, KeyUse] = {}

    @property
    def model_type(self) -> str:
        """The key `model_type` of the language part, else of the whole; may be empty."""
        kind = self.text.get("model_type") or self.whole.get("model_type") or ""
        return kind if isinstance(kind, str) else ""

    def has(self, path: str) -> bool:
        """Whether the key is there, null included."""
        return _at(self.text, path) is not _ABSENT

    def get(self, path: str, default: Any = None, status: Status = "used") -> Any:
        """The value at a dotted path; a present key gets the status."""
        value = _at(self.text, path)
        if value is _ABSENT:
            return default
        self.mark(path, status)
        return value

    def first(self, paths: tuple[str, ...], default: Any = None) -> tuple[Any, str]:
        """The value and the path of the first key that is there and not null."""
        for path in paths:
            value = self.get(path)
            if value is not None:
                return value, path
        return default, ""

    def block(self, name: str) -> Mapping[str, Any] | None:
        """A dict under that name, None where there is none; not a dict counts as none."""
        value = self.text.get(name)
        return value if isinstance(value, Mapping) else None

    def mark(self, path: str, status: Status, note: str = "") -> None:
        """Set the status of a key; a later mark wins."""
        self._marks[path] = KeyUse(f"{self.prefix}{path}", status, note)

    def uses(self) -> tuple[KeyUse, ...]:
        """Every key that concerns rotation, in the order of the file; unasked ones are ignored."""
        marked = [
            self._marks.get(path, KeyUse(f"{self.prefix}{path}", "ignored"))
            for path in rope_paths(self.text)
        ]
        return tuple(marked)


_ABSENT: Any = object()


def _at(text: Mapping[str, Any], path: str) -> Any:
    value: Any = text
    for part in path.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return _ABSENT
        value = value[part]
    return value


def language_part(config: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The dotted prefix and the dict of the language model inside a configuration."""
    for name in NESTS:
        inner = config.get(name)
        if isinstance(inner, Mapping) and inner:
            prefix, text = language_part(inner)
            return f"{name}.{prefix}", text
    return "", config


def rope_paths(text: Mapping[str, Any]) -> Iterator[str]:
    """Dotted paths of the keys that concern rotation, the contents of rope blocks included."""
    for name, value in text.items():
        if name in BLOCKS and isinstance(value, Mapping):
            yield from _inside(name, value)
        elif not isinstance(value, Mapping) and concerns_rope(name):
            yield name


def _inside(path: str, block: Mapping[str, Any]) -> Iterator[str]:
    for name, value in block.items():
        if isinstance(value, Mapping):
            yield from (f"{path}.{name}.{key}" for key in value)
        else:
            yield f"{path}.{name}"
