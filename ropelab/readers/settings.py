"""The settings of a layer type: the keys of its rope block and further keys, by name."""

from collections.abc import Mapping
from typing import Any

from ropelab.readers.spec import (
    RefusedError,
    require_number,
    require_numbers,
    require_whole,
)
from ropelab.readers.trace import LISTS, ORIGINAL, Status, Trace


class Settings:
    """Values of one layer type by name, each with its source.

    A source is the path of a key, or says in words that the value is a default.
    """

    def __init__(
        self, trace: Trace, block: Mapping[str, Any] | None = None, where: str = ""
    ) -> None:
        """Start with the values of a rope block, whose path in the file is `where`."""
        self.trace = trace
        self.values: dict[str, Any] = dict(block or {})
        self.sources = {name: f"{where}.{name}" for name in self.values}
        # The layer type, if the file has a dict for each; else empty.
        self.layer = ""
        # The longest context, and the defaults of the scaling type. The reader sets both
        # before the scaling is made.
        self.longest = 0
        self.defaults: Mapping[str, Any] = {}

    def put(self, name: str, value: Any, source: str) -> None:
        """Set a value."""
        self.values[name] = value
        self.sources[name] = source

    def put_first_found(
        self, name: str, keys: tuple[str, ...], default: Any, source: str
    ) -> None:
        """Set a value from the first of some keys that the file has outside of the
        block.

        If the file has none of these keys, the value is the default, and `source` says
        so in words.
        """
        value, path = self.trace.first(keys, default)
        self.put(name, value, path or source)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or the default if it is missing. Its key gets no status."""
        return self.values.get(name, default)

    def read(self, name: str, default: Any = None) -> Any:
        """Return a value, or the default if it is missing.

        Its key counts as used, unless it has a status already.
        """
        self.trace.mark_unmarked(self.sources.get(name, ""))
        return self.values.get(name, self.defaults.get(name, default))

    def number(self, name: str, default: float | None = None) -> float:
        """Read a finite number; RefusedError: the value is missing, or is not a finite
        number.
        """
        value = self.read(name, default)
        if value is None:
            raise RefusedError(f"{name} is missing")
        return require_number(value, name)

    def original(self) -> int:
        """Read the original length in tokens, from which the scaling starts."""
        return require_whole(self.read(ORIGINAL), "original length")

    def lists(self) -> tuple[tuple[float, ...], ...]:
        """Read the two tables of longrope, the short one first."""
        return tuple(require_numbers(self.read(name), name) for name in LISTS)

    def mark(self, name: str, status: Status, note: str = "") -> None:
        """Set the status of the key that a value comes from."""
        self.trace.mark(self.sources.get(name, ""), status, note)

    def drop_empty(self, *names: str) -> None:
        """Drop values of null or 0, which some runtimes treat as missing."""
        for name in names:
            if not self.get(name):
                self.values.pop(name, None)

    def needs(self, *names: str) -> None:
        """Raise RefusedError unless every name has a value, which may be null."""
        missing = [name for name in names if name not in self.values]
        if missing:
            raise RefusedError(
                f"rope type '{self.get('rope_type')}' needs {', '.join(missing)}"
            )
