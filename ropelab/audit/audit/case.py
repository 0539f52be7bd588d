"""What the rules of an audit look at, and what they find."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ropelab.audit.runtimes.document import Document
from ropelab.audit.runtimes.registry import Reading
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.audit.runtimes.trace import language_part

Level = Literal["error", "warn", "note"]
LEVELS: tuple[Level, ...] = ("error", "warn", "note")


@dataclass(frozen=True)
class Finding:
    """One finding: a stable code, its level, a sentence, and what to type instead."""

    code: str
    level: Level
    says: str
    do: str = ""

    def row(self) -> dict[str, Any]:
        """The finding as a row of a table."""
        return asdict(self)


@dataclass(frozen=True)
class Case:
    """What the rules look at. ``asked``: the length the user gave, if any."""

    document: Document
    readings: Sequence[Reading]
    reference: Reading
    length: int
    asked: int | None

    @property
    def spec(self) -> RopeSpec:
        """The reference's main layer type."""
        assert self.reference.main is not None
        return self.reference.main

    @property
    def block(self) -> dict[str, Any]:
        """The flat scaling block of the file, empty where there is none."""
        _, text = language_part(self.document.config)
        for name in ("rope_scaling", "rope_parameters"):
            if isinstance(text.get(name), dict) and text[name]:
                return dict(text[name])
        return {}

    @property
    def read(self) -> list[Reading]:
        """The runtimes that read the file."""
        return [reading for reading in self.readings if reading.main is not None]


def grouped(case: Case, value: Callable[[RopeSpec], Any]) -> list[tuple[Any, list[Reading]]]:
    """The runtimes that read the file, grouped by something of their main spec."""
    groups: dict[Any, list[Reading]] = {}
    for reading in case.read:
        if reading.main is not None:
            groups.setdefault(value(reading.main), []).append(reading)
    return list(groups.items())


def names(readings: Sequence[Reading]) -> str:
    """Runtimes in a sentence."""
    return ", ".join(reading.runtime.name for reading in readings)
