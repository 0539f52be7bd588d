"""A sentence or a table row of a document whose numbers follow from tables."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SLOT = r"([^\s|]+?(?: ×\d+)?)"
"""What stands at a {}: no space, but for a method's factor."""


@dataclass(frozen=True)
class Entry:
    """A place in a text whose numbers follow from tables.

    Attributes:
        file: where it stands, from the root of the repository.
        text: what stands there, {} for what `values` gives; any white space matches any other.
        values: what the tables say, as it is printed.
    """

    file: str
    text: str
    values: Callable[[], Sequence[str]]

    @property
    def pattern(self) -> re.Pattern[str]:
        """A group for every {}; a full stop at the end is none before a digit."""
        literals = [r"\s+".join(map(re.escape, part.split(" "))) for part in self.text.split("{}")]
        return re.compile(SLOT.join(literals) + r"(?!\d)")

    def places(self, text: str) -> list[re.Match[str]]:
        """Where it stands."""
        return list(self.pattern.finditer(text))
