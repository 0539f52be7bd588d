"""The ways in which a function may be meant: what each parameter is given, in which shape."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ropelab.conformance.answers import (
    call,
    join_rows,
    name_parts,
    split_complex_table,
    to_numbers,
)
from ropelab.conformance.observation import Positions, Vectors
from ropelab.conformance.parameters import PLACES, ROLES, TABLES, guess_roles
from ropelab.runs.arrays import Int
from ropelab.runs.errors import InputError

# Axes of vectors and positions: n of d features, all n at positions of their own. The
# last are for one vector at a time, at a whole number.
ARRAYS = tuple(product(("nd", "n1d", "1n1d", "11nd"), ("n", "1n")))
SINGLE = (("1d", ""), ("11d", ""), ("111d", ""))
# Axes of positions that have a number per axis a of an image or clip.
SEVERAL = ("an", "na", "a1n", "1na")


@dataclass(frozen=True)
class Way:
    """A function and what its parameters are given."""

    function: Callable[..., Any]
    # The role of each parameter, and the axes of vectors and positions.
    roles: Mapping[str, str]
    shapes: tuple[str, str]
    # A maker of the tables that the function takes.
    tables: "Way | None" = None
    # The parameter beside which all other vectors are zeros.
    only: str = ""
    # The axes that positions are given, where they are given several; text has equal
    # positions on all of them.
    axes: int = 0

    def __str__(self) -> str:
        axes_of_vectors, axes_of_positions = self.shapes
        axes = {"vectors": axes_of_vectors, "positions": axes_of_positions}
        words = []
        for name, role in self.roles.items():
            word = name
            if name not in ROLES:
                word += f" as {role}"
            if axes.get(role):
                word += f" [{', '.join(axes[role])}]"
            words.append(word)

        type_name = type(self.function).__name__
        name = getattr(self.function, "__name__", type_name)
        call = f"{name}({', '.join(words)})"
        if self.tables:
            call += f", with tables from {self.tables}"
        return call

    @property
    def vectors(self) -> list[str]:
        """The parameters that are vectors."""
        return [name for name, role in self.roles.items() if role == "vectors"]

    @property
    def takes_axes(self) -> bool:
        """True if positions, its own or those of its tables, have an axis of axes."""
        _, axes_of_positions = self.shapes
        if "positions" in self.roles.values() and "a" in axes_of_positions:
            return True
        return self.tables is not None and self.tables.takes_axes

    @property
    def takes_length(self) -> bool:
        ways = [self]
        if self.tables:
            ways.append(self.tables)
        return any("length" in way.roles.values() for way in ways)

    def answer(
        self,
        vectors: Vectors,
        places: Positions,
        length: int = 0,
    ) -> dict[str, Any]:
        """Return the parts of the function's answer by name, as it gives them."""
        values = self.values(vectors, places, length)
        given = {}
        for name, role in self.roles.items():
            given[name] = values[role]
            if role == "vectors" and self.only not in ("", name):
                given[name] = np.zeros_like(values[role])

        parts = name_parts(call(self.function, given), self.vectors)
        if not self._gives_whole_tables(parts):
            return parts

        # The rows of the positions are taken of them.
        rows_of_parts = {}
        for name, whole in parts.items():
            rows = whole.reshape(-1, whole.shape[-1])
            rows_of_parts[name] = rows[places]
        return rows_of_parts

    def _gives_whole_tables(self, parts: Mapping[str, Any]) -> bool:
        takes_places = not set(self.roles.values()) <= {"length", "vectors"}
        has_tables = "cos" in parts or "table" in parts
        return has_tables and not takes_places

    def values(
        self,
        vectors: Vectors,
        places: Positions,
        length: int,
    ) -> dict[str, Any]:
        """Return what a parameter of each role is given."""
        count, width = vectors.shape
        sizes = {"n": count, "d": width, "1": 1, "a": self.axes}
        axes_of_vectors, axes_of_positions = self.shapes
        shape_of_vectors = [sizes[axis] for axis in axes_of_vectors]
        shape_of_positions = [sizes[axis] for axis in axes_of_positions]

        last = int(places.max())
        positions: Any = last
        if "a" in axes_of_positions:
            positions = self._shape_axes(places)
        elif shape_of_positions:
            # Several axes of positions come first.
            positions = places.reshape(*places.shape[:-1], *shape_of_positions)
        values = {
            "vectors": vectors.reshape(shape_of_vectors),
            "positions": positions,
            "offset": last,
            "length": length or last + 1,
        }
        if self.tables:
            values |= self._ask_for_tables(self.tables, places, width)
        return values

    def _shape_axes(self, places: Positions) -> Int[np.ndarray, "..."]:
        """Return positions with an axis of axes where this way has it."""
        _, axes_of_positions = self.shapes
        if places.ndim == 1:
            places = np.stack([places] * self.axes)
        if axes_of_positions.endswith("na"):
            places = places.T
        shape = list(places.shape)
        if "1" in axes_of_positions:
            shape.insert(axes_of_positions.index("1"), 1)
        return places.reshape(shape)

    def _ask_for_tables(
        self,
        maker: "Way",
        places: Positions,
        width: int,
    ) -> dict[str, Any]:
        takes_places = not set(PLACES).isdisjoint(self.roles.values())
        if takes_places:
            # Code that takes positions, too, looks them up in the whole table.
            places = np.arange(int(places.max()) + 1)
        ones = np.ones((len(places), width))
        return maker.answer(ones, places)

    def rows(
        self,
        vectors: Vectors,
        places: Positions,
        length: int = 0,
    ) -> dict[str, np.ndarray]:
        """Return the parts as arrays with a row per position."""
        end = length or int(places.max()) + 1
        count = len(vectors)
        _, axes_of_positions = self.shapes
        if count > 1 and not axes_of_positions:
            return self.rows_one_by_one(vectors, places, end)

        expected_axes = []
        if count > 1:
            expected_axes.append(count)
        parts = {}
        for name, part in self.answer(vectors, places, end).items():
            array = to_numbers(part)
            axes = [size for size in array.shape[:-1] if size > 1]
            if axes != expected_axes:
                raise InputError(f"gives shape {array.shape} for {count} positions")
            parts[name] = array.reshape(count, -1)
        return split_complex_table(parts)

    def rows_one_by_one(
        self,
        vectors: Vectors,
        places: Positions,
        length: int,
    ) -> dict[str, np.ndarray]:
        """Return the rows of a function that takes one vector at a time."""
        answers = []
        for vector, place in zip(vectors, places, strict=True):
            answers.append(self.rows(vector[None], place[None], length))
        return join_rows(answers)


def list_ways(function: Any, tables: Any = None, axes: int = 0) -> Iterator[Way]:
    """Yield every way in which the function may be meant, the likeliest first.

    ``axes``: those of a position, if it may have several.
    """
    makers: list[Way | None] = [None]
    if tables is not None:
        makers = [*list_ways(tables, axes=axes)]

    for roles in guess_roles(function):
        if list(roles.values()).count("vectors") > 2:
            continue

        taken = set(roles.values()) - {"vectors"}
        if tables is None and not taken.isdisjoint(TABLES):
            raise InputError(
                f"({', '.join(roles)}) takes tables: give a factory that returns"
                " (tables, f), a maker of tables and the code"
            )
        for shapes, maker in product(list_shapes(taken, axes), makers):
            yield Way(function, roles, shapes, maker, axes=axes)


def list_shapes(taken: set[str], axes: int = 0) -> tuple[tuple[str, str], ...]:
    """Return the axes of vectors and positions to try, by the roles of the others."""
    if "offset" in taken:
        return SINGLE
    if taken - {"length"} == {"positions"}:
        if axes:
            vectors = dict.fromkeys(shape for shape, _ in ARRAYS)
            return (*ARRAYS, *SINGLE, *product(vectors, SEVERAL))
        return (*ARRAYS, *SINGLE)
    return ARRAYS[::2]
