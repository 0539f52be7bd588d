"""The ways in which a function may be meant: which value each parameter is given, in
which shape.

Shapes are written with a letter for each axis: n positions or vectors, d features of a
vector, a axes of a position (rows and columns of an image), and 1. A function that
takes tables is called with the tables of another function, the maker of its tables.
"""

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
from ropelab.conformance.observation import Positions
from ropelab.conformance.parameters import PLACES, ROLES, TABLES, guess_roles
from ropelab.runs.arrays import Float, Int
from ropelab.runs.errors import InputError

# Shapes of n vectors, and of the position of each.
VECTOR_SHAPES = ("nd", "n1d", "1n1d", "11nd")
POSITION_SHAPES = ("n", "1n")
# Shapes of n vectors for code that is given tables instead of positions. The last one is
# Megatron-LM's.
SHAPES_WITH_TABLES = (*VECTOR_SHAPES, "n11d")
# Shapes of one vector, for functions whose position is a whole number.
SINGLE_SHAPES = ("1d", "11d", "111d")
# Shapes of positions with several axes.
SHAPES_OF_AXES = ("an", "na", "a1n", "1na")


@dataclass(frozen=True)
class Way:
    """A function, and what its parameters are given."""

    function: Callable[..., Any]
    # The role of each parameter: see `parameters`.
    roles: Mapping[str, str]
    vector_shape: str
    # Empty: the position is a whole number, and one vector is given at a time.
    position_shape: str
    # Makes the tables that the function takes; None if it takes none.
    table_maker: "Way | None" = None
    # The number of axes of a position, where a function may take several. Positions of
    # text are equal on all axes.
    axis_count: int = 0
    # The only parameter whose vectors are not zeros; empty if all parameters get their
    # vectors.
    nonzero: str = ""

    def __str__(self) -> str:
        shapes = {"vectors": self.vector_shape, "positions": self.position_shape}
        words = []
        for name, role in self.roles.items():
            word = name
            if name not in ROLES:
                word += f" as {role}"
            shape = shapes.get(role)
            if shape:
                word += f" [{', '.join(shape)}]"
            words.append(word)

        type_name = type(self.function).__name__
        name = getattr(self.function, "__name__", type_name)
        call = f"{name}({', '.join(words)})"
        if self.table_maker:
            call += f", with tables from {self.table_maker}"
        return call

    @property
    def vector_names(self) -> list[str]:
        """The names of the parameters that are given vectors."""
        return [name for name, role in self.roles.items() if role == "vectors"]

    @property
    def takes_axes(self) -> bool:
        """True if the function or the maker of its tables takes several axes."""
        if "positions" in self.roles.values() and "a" in self.position_shape:
            return True
        return self.table_maker is not None and self.table_maker.takes_axes

    @property
    def takes_length(self) -> bool:
        """True if the function or the maker of its tables is given a length."""
        ways = [self]
        if self.table_maker:
            ways.append(self.table_maker)
        return any("length" in way.roles.values() for way in ways)

    def ask(
        self,
        vectors: Float[np.ndarray, "n d"],
        positions: Int[np.ndarray, "..."],
        length: int = 0,
    ) -> dict[str, np.ndarray]:
        """Return the parts of the answer as arrays with a row per position.

        Args:
            vectors: the vector at each position.
            positions: [n], or [axes, n] for a function that takes several axes.
            length: tokens in the context; up to the last position if 0.
        """
        end = length or int(positions.max()) + 1
        count = len(vectors)
        if count > 1 and not self.position_shape:
            return self._ask_one_by_one(vectors, positions, end)

        # Besides its columns an answer may have axes of size 1.
        expected_axes = [count] if count > 1 else []
        parts = {}
        for name, part in self.call(vectors, positions, end).items():
            array = to_numbers(part)
            axes = [size for size in array.shape[:-1] if size > 1]
            if axes != expected_axes:
                raise InputError(f"gives shape {array.shape} for {count} positions")
            parts[name] = array.reshape(count, -1)
        return split_complex_table(parts)

    def _ask_one_by_one(
        self,
        vectors: Float[np.ndarray, "n d"],
        positions: Positions,
        length: int,
    ) -> dict[str, np.ndarray]:
        """Ask a function that takes one vector at a time."""
        answers = []
        for vector, position in zip(vectors, positions, strict=True):
            answers.append(self.ask(vector[None], position[None], length))
        return join_rows(answers)

    def call(
        self,
        vectors: Float[np.ndarray, "n d"],
        positions: Int[np.ndarray, "..."],
        length: int = 0,
        whole: bool = False,
    ) -> dict[str, Any]:
        """Call the function; return the parts of its answer as they are, by name.

        With ``whole`` a single array is one table, whatever it holds.
        """
        values = self._make_values(vectors, positions, length)
        arguments = {}
        for name, role in self.roles.items():
            arguments[name] = values[role]
            if role == "vectors" and self.nonzero not in ("", name):
                arguments[name] = np.zeros_like(values[role])

        answer = call(self.function, arguments)
        if whole and not isinstance(answer, Mapping | tuple | list):
            parts = {"table": answer}
        else:
            parts = name_parts(answer, self.vector_names)
        if not self._gives_whole_tables(parts):
            return parts

        rows_of_parts = {}
        for name, whole_table in parts.items():
            rows = whole_table
            # Axes of size 1 may come before the axis of positions.
            if len(rows) == 1:
                rows = rows.reshape(-1, rows.shape[-1])
            rows_of_parts[name] = rows[positions]
        return rows_of_parts

    def _gives_whole_tables(self, parts: Mapping[str, Any]) -> bool:
        """Return True for tables of all positions, of which only a length is given."""
        takes_positions = not set(self.roles.values()) <= {"length", "vectors"}
        has_tables = "cos" in parts or "table" in parts
        return has_tables and not takes_positions

    def _make_values(
        self,
        vectors: Float[np.ndarray, "n d"],
        positions: Int[np.ndarray, "..."],
        length: int,
    ) -> dict[str, Any]:
        """Return what a parameter of each role is given."""
        count, width = vectors.shape
        sizes = {"n": count, "d": width, "1": 1}
        vector_sizes = [sizes[letter] for letter in self.vector_shape]

        last = int(positions.max())
        shaped_positions: Any = last
        if "a" in self.position_shape:
            shaped_positions = self._shape_axes(positions)
        elif self.position_shape:
            # The axes of a position, where it has several, stay in front.
            in_front = positions.shape[:-1]
            position_sizes = [sizes[letter] for letter in self.position_shape]
            shaped_positions = positions.reshape(*in_front, *position_sizes)
        values = {
            "vectors": vectors.reshape(vector_sizes),
            "positions": shaped_positions,
            "offset": last,
            "length": length or last + 1,
        }
        if self.table_maker:
            values |= self._make_tables(self.table_maker, positions, width)
        return values

    def _shape_axes(self, positions: Int[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
        """Return positions [n] or [axes, n] in a shape with an axis for their axes."""
        if positions.ndim == 1:
            positions = np.stack([positions] * self.axis_count)
        if self.position_shape.endswith("na"):
            positions = positions.T
        shape = list(positions.shape)
        if "1" in self.position_shape:
            shape.insert(self.position_shape.index("1"), 1)
        return positions.reshape(shape)

    def _make_tables(
        self,
        maker: "Way",
        positions: Int[np.ndarray, "..."],
        width: int,
    ) -> dict[str, Any]:
        """Return the tables that the function is given."""
        takes_positions = not set(PLACES).isdisjoint(self.roles.values())
        if takes_positions:
            # The function looks its positions up in a table of all positions.
            positions = np.arange(int(positions.max()) + 1)
        ones = np.ones((len(positions), width))
        return maker.call(ones, positions, whole="table" in self.roles.values())


def list_ways(
    function: Any,
    table_maker: Any = None,
    axis_count: int = 0,
) -> Iterator[Way]:
    """Yield every way in which the function may be meant, the likeliest first.

    Args:
        function: the user's code.
        table_maker: the function that makes its tables; None if it takes none.
        axis_count: the number of axes of a position, if it may have several.
    """
    makers: list[Way | None] = [None]
    if table_maker is not None:
        makers = [*list_ways(table_maker, axis_count=axis_count)]

    for roles in guess_roles(function):
        if list(roles.values()).count("vectors") > 2:
            continue

        other_roles = set(roles.values()) - {"vectors"}
        if table_maker is None and not other_roles.isdisjoint(TABLES):
            raise InputError(
                f"({', '.join(roles)}) takes tables: give a factory that returns"
                " (tables, f), a maker of tables and the code"
            )
        shapes = list_shapes(other_roles, axis_count)
        for (vector_shape, position_shape), maker in product(shapes, makers):
            yield Way(function, roles, vector_shape, position_shape, maker, axis_count)


def list_shapes(other_roles: set[str], axis_count: int = 0) -> list[tuple[str, str]]:
    """Return the shapes of vectors and positions to try.

    ``other_roles``: the roles of the parameters that are given no vectors.
    """
    single = [(shape, "") for shape in SINGLE_SHAPES]
    if "offset" in other_roles:
        return single
    if other_roles - {"length"} != {"positions"}:
        # No array of positions is given.
        return [(shape, "n") for shape in SHAPES_WITH_TABLES]
    shapes = [*product(VECTOR_SHAPES, POSITION_SHAPES), *single]
    if axis_count:
        shapes += product(VECTOR_SHAPES, SHAPES_OF_AXES)
    return shapes
