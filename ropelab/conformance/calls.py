"""The ways of calling a rotary code: by the names of its parameters, else by trying.

Every way that the names leave open is tried at one position. Those that work must
agree.
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NoReturn

import numpy as np

from ropelab.conformance import rotations
from ropelab.conformance.rotations import Observed, Positions, Vectors
from ropelab.readers.families import table
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Int
from ropelab.runs.errors import InputError


def _read_roles() -> dict[str, str]:
    roles: dict[str, str] = {}
    for role, names in table("names")["roles"].items():
        roles |= dict.fromkeys(names.split(), role)
    return roles


ROLES = _read_roles()
# Parameters of codes that make the tables of an image by its rows and columns.
GRID_ROLES = {
    name: role
    for role, names in table("names")["grid_roles"].items()
    for name in names.split()
}
PLACES = ("positions", "offset", "length")
TABLES = ("cos", "sin", "table")
# Axes of vectors and positions: n of d features, all n at positions of their own. The
# last are for one vector at a time, at a whole number.
ARRAYS = tuple(product(("nd", "n1d", "1n1d", "11nd"), ("n", "1n")))
SINGLE = (("1d", ""), ("11d", ""), ("111d", ""))
# Axes of positions that have a number per axis a of an image or clip.
SEVERAL = ("an", "na", "a1n", "1na")
# Tokens of the longest table that is asked for as a whole.
LONGEST = 2**18
# Further positions: all below the first number, and so many calls with so many of all.
DENSE = 1024
FURTHER = (2, 2048)
# The parameters of a function that names none.
BARE = [
    inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY),
    inspect.Parameter("positions", inspect.Parameter.POSITIONAL_ONLY),
]
ASK = "call the parameters x, q, k, positions, offset, seq_len, cos, sin"
WRAP = (
    "wrap it as f(height, width) that returns cos and sin of all patches of an image,"
    " row by row"
)
# Pixels along a side of a patch that an encoder may cut its images into.
PATCH_SIZES = (16, 14, 32, 28, 8, 12, 20, 24, 10, 4, 2, 1)
EXCHANGED = ("another vector comes back in its place", "return each vector rotated")
UNUSED = (
    "the positions that are given are not used",
    "rotate each token by its position",
)


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


# A way with what it gives.
Working = tuple[Way, dict[str, np.ndarray]]


def join_rows(answers: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Put the rows of several calls one behind another."""
    joined = {}
    for name in answers[0]:
        joined[name] = np.concatenate([answer[name] for answer in answers])
    return joined


def name_parts(answer: Any, vectors: list[str]) -> dict[str, Any]:
    """Return the parts of an answer by name.

    They are cos and sin, cos + i sin as `table`, or rotated vectors.
    """
    if isinstance(answer, Mapping):
        parts = {str(name): part for name, part in answer.items()}
        if "cos" in parts:
            return {"cos": parts["cos"], "sin": parts["sin"]}
        return parts

    names = ["cos", "sin"]
    expected = "cos and sin"
    if len(vectors) > 1:
        names = vectors
        expected = "a rotation of each of them"

    if isinstance(answer, tuple | list):
        if len(answer) == len(names):
            return dict(zip(names, answer, strict=True))
    elif np.iscomplexobj(to_numbers(answer)):
        return {"table": answer}
    elif len(vectors) == 1:
        return {"": answer}
    raise InputError(f"answers with a {type(answer).__name__}, not with {expected}")


def split_complex_table(parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return parts with cos and sin in place of one table of cos + i sin."""
    table = parts.get("table")
    if table is None:
        return parts
    return {"cos": table.real, "sin": table.imag}


def list_parameters(function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function without *args and **kwargs."""
    code = getattr(function, "forward", function)
    parameters = []
    for parameter in inspect.signature(code).parameters.values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            parameters.append(parameter)
    return parameters


def list_required(parameters: list[inspect.Parameter]) -> list[str]:
    """Return the names of the parameters without a default."""
    return [each.name for each in parameters if each.default is each.empty]


def guess_roles(function: Any) -> Iterator[dict[str, str]]:
    """Yield the role of each parameter that is given.

    There are several answers if the names do not tell.
    """
    parameters = list_parameters(function) or BARE
    roles = {name: ROLES.get(name.lower(), "") for name in list_required(parameters)}
    if not tells_places(roles):
        # A position may have a default.
        roles |= find_optional_place(parameters)
    if "length" not in roles.values():
        # A scaling by length may take it or leave it; given, it has to count.
        roles |= find_optional(parameters, ("length",))

    unknown = [name for name, role in roles.items() if not role]
    with_vectors = roles | dict.fromkeys(unknown, "vectors")
    if tells_places(roles):
        yield with_vectors
    elif len(roles) == 1:
        (name,) = roles
        yield {name: "positions"}
        yield {name: "length"}
    if len(roles) > 1:
        for name in reversed(unknown):
            yield with_vectors | {name: "positions"}


def tells_places(roles: Mapping[str, str]) -> bool:
    """Return True if a parameter says where vectors are, by positions or tables."""
    return not {*PLACES, *TABLES}.isdisjoint(roles.values())


def find_optional_place(parameters: list[inspect.Parameter]) -> dict[str, str]:
    return find_optional(parameters, PLACES)


def find_optional(
    parameters: list[inspect.Parameter], roles: Sequence[str]
) -> dict[str, str]:
    """Return the first parameter that has one of some roles, by its name."""
    for role in roles:
        for parameter in parameters:
            if ROLES.get(parameter.name) == role:
                return {parameter.name: role}
    return {}


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


def ask_function(
    made: Any,
    name: str,
    spec: RopeSpec,
    positions: Positions,
) -> dict[str, Observed]:
    """Ask a function in the way that works.

    Args:
        made: the function, or a maker of tables and the function that uses them.
        name: the words that an error begins with.
        spec: what it should rotate.
        positions: [n], or [axes, n] of a code that takes several axes.
    """
    grid = find_grid(made, spec)
    if grid is not None:
        return ask_grid(grid, name, spec, positions)
    working, problem = try_ways(made, name, spec)
    if not working:
        raise_problem(problem, name, spec)

    way, parts = working[0]
    called = str(way)
    if not are_alike(working):
        if use_positions(working, spec):
            raise InputError(describe_difference(name, working))
        order = np.arange(positions.shape[-1])
        nothing = np.empty((len(order), 0))
        return {"": Observed(order, nothing, nothing, fault=UNUSED, called=called)}
    if positions.ndim > 1:
        return ask_axes(choose_way(working), set(parts), name, spec, positions)

    if way.takes_length:
        positions = positions[positions < LONGEST]
    observed = {}
    for part, seen in ask_at(way, list(parts), spec, positions).items():
        observed[part] = replace(seen, called=called, told_length=way.takes_length)
    if any(seen.fault for seen in observed.values()):
        return observed
    return add_further(observed, way, spec, int(positions[-1]))


def try_ways(
    made: Any,
    name: str,
    spec: RopeSpec,
) -> tuple[list[Working], Exception | None]:
    """Return the ways that work at position 1 with what they give.

    The second value is what stopped the first of the others.
    """
    maker: Any = None
    code = made
    if isinstance(made, tuple) and len(made) == 2:
        maker, code = made
        check_callable(name, maker)
    check_callable(name, code)

    vectors = np.eye(spec.head_dim)
    ones = np.ones(spec.head_dim, np.int64)
    working: list[Working] = []
    problem: Exception | None = None
    axes = spec.axes.count if spec.axes else 0
    for way in list_ways(code, maker, axes):
        try:
            working.append((way, way.rows(vectors, ones)))
        except InputError as error:
            problem = problem or InputError(f"{name} {error}")
        # The user's code may raise anything.
        except Exception as error:
            problem = problem or error
    with_axes = [row for row in working if row[0].takes_axes]
    if spec.has_patches and with_axes:
        # A patch has no position of one number.
        working = with_axes
    return working, problem


def check_callable(name: str, function: Any) -> None:
    if not callable(function):
        kind = type(function).__name__
        raise InputError(f"{name} made a {kind}, which cannot be called")


def are_alike(working: Sequence[Working]) -> bool:
    _, parts = working[0]
    return all(agree(parts, others) for _, others in working[1:])


def use_positions(working: Sequence[Working], spec: RopeSpec) -> bool:
    """Return True if a way gives other answers at position 2 than at position 1."""
    vectors = np.eye(spec.head_dim)
    twos = np.full(spec.head_dim, 2)
    for way, at_1 in working:
        at_2 = way.rows(vectors, twos)
        if not agree(at_1, at_2):
            return True
    return False


def describe_difference(name: str, working: Sequence[Working]) -> str:
    way, parts = working[0]
    other = next(other for other, others in working if not agree(parts, others))
    advice = ASK
    if way.roles.keys() <= ROLES.keys():
        advice = "take but one of them"
    return f"{name}: {way} and {other} both work and differ: {advice}"


def ask_at(
    way: Way,
    parts: Sequence[str],
    spec: RopeSpec,
    positions: Positions,
) -> dict[str, Observed]:
    """Ask for tables, or for rotated unit vectors, at the positions."""
    head = spec.head_dim
    if "cos" in parts:
        ones = np.ones((len(positions), head))
        tables = way.rows(ones, positions)
        cos = tables["cos"]
        sin = tables["sin"]
        return {"": rotations.observe_tables(positions, cos, sin, spec)}

    observed = {}
    for part in parts:

        def rotate(x: Vectors, places: Positions, part: str = part) -> np.ndarray:
            return way.rows(x, places)[part]

        seen = rotations.observe_rotation(rotate, spec, positions)
        if part in way.roles and seen.fault is None:
            # Its own vectors have to come back, also beside zeros.
            alone = replace(way, only=part)
            rows = alone.rows(np.eye(head), np.ones(head, np.int64))
            if not rows[part].any():
                seen = replace(seen, fault=EXCHANGED)
        observed[part] = seen
    return observed


def add_further(
    observed: dict[str, Observed],
    way: Way,
    spec: RopeSpec,
    last: int,
) -> dict[str, Observed]:
    """Add to each part what the function does at further positions."""
    signs, places, rows = ask_further(way, spec.head_dim, last)
    complete = {}
    for part, seen in observed.items():
        if {"cos", "sin"} <= rows.keys():
            more = rotations.observe_tables(places, rows["cos"], rows["sin"], spec)
        else:
            more = rotations.observe_signs(signs, rows[part], places, spec, seen.note)
        complete[part] = replace(seen, between=more)
    return complete


def choose_way(working: Sequence[Working]) -> Way:
    """Return the first way that gives positions of several axes, else the first."""
    for way, _ in working:
        if way.takes_axes:
            return way
    return working[0][0]


def raise_problem(problem: Exception | None, name: str, spec: RopeSpec) -> NoReturn:
    """Say why a function cannot be called, and for encoders of images how it could be."""
    if problem is None:
        raise InputError(f"{name}: {ASK}")
    if not spec.has_patches:
        raise problem
    reason = str(problem)
    if not isinstance(problem, InputError):
        reason = f"{name} raised {type(problem).__name__}: {problem}"
    raise InputError(f"{reason}; {WRAP}") from problem


def ask_axes(
    way: Way,
    parts: set[str],
    name: str,
    spec: RopeSpec,
    positions: Int[np.ndarray, "axes n"],
) -> dict[str, Observed]:
    """Ask at positions of several axes, one vector of 1 and -1 at each."""
    _, axes_of_positions = way.shapes
    if not axes_of_positions:
        raise InputError(f"{way} takes one position at a time")

    called = str(way)
    places = positions
    if spec.has_patches and not way.takes_axes:
        # Pixtral's code had one number per patch: row * side + column.
        side = spec.trained_len
        if positions.max() >= side:
            raise InputError(f"{name} takes numbers of patches, {side} a row; {WRAP}")
        rows, columns = positions
        places = rows * side + columns
        called += f", as row * {side} + column"

    signs = make_signs(positions.shape[-1], spec.head_dim)
    try:
        rows_of_parts = way.rows(signs, places)
    except InputError as error:
        advice = f"; {WRAP}" if spec.has_patches else ""
        raise InputError(f"{name} {error}{advice}") from None
    return observe_axes(rows_of_parts, parts, signs, spec, called)


def make_signs(count: int, width: int) -> Vectors:
    """Return vectors of 1 and -1, always the same."""
    return np.random.default_rng(0).choice([-1.0, 1.0], (count, width))


def observe_axes(
    rows: Mapping[str, np.ndarray],
    parts: set[str],
    signs: Vectors,
    spec: RopeSpec,
    called: str,
) -> dict[str, Observed]:
    """Return the tables, or those by which vectors were rotated, by the part."""
    order = np.arange(len(signs))
    if {"cos", "sin"} <= parts:
        tables = rotations.observe_tables(order, rows["cos"], rows["sin"], spec)
        return {"": replace(tables, called=called)}

    observed = {}
    for part in sorted(parts):
        seen = rotations.observe_pairs_of_axes(signs, rows[part], order, spec)
        observed[part] = replace(seen, called=called)
    return observed


@dataclass(frozen=True)
class GridCode:
    """A function of the rows and columns of an image, by the role of its parameters."""

    function: Callable[..., Any]
    roles: Mapping[str, str]

    def __str__(self) -> str:
        type_name = type(self.function).__name__
        name = getattr(self.function, "__name__", type_name)
        return f"{name}({', '.join(self.roles)})"


def find_grid(made: Any, spec: RopeSpec) -> GridCode | None:
    """Return a function that takes a whole image instead of positions, if it is one.

    It is given rows and columns, grid_thw, or pixels.
    """
    if not spec.has_patches or not callable(made):
        return None
    roles = {}
    for name in list_required(list_parameters(made)):
        roles[name] = GRID_ROLES.get(name.lower(), "") or ROLES.get(name.lower(), "")
    of_image = sorted(role for role in roles.values() if role != "vectors")
    if of_image in (["height", "width"], ["grid"], ["image"]):
        return GridCode(made, roles)
    return None


def ask_grid(
    grid: GridCode,
    name: str,
    spec: RopeSpec,
    positions: Int[np.ndarray, "axes n"],
) -> dict[str, Observed]:
    """Ask for all patches of an image, which come row by row."""
    rows, columns = (positions.max(axis=-1) + 1).tolist()
    patches = np.indices((rows, columns)).reshape(2, -1)
    if not np.array_equal(patches, positions):
        raise InputError(f"{name} takes the rows and columns of a whole image")

    signs = make_signs(rows * columns, spec.head_dim)
    values: dict[str, Any] = {
        "height": rows,
        "width": columns,
        "grid": np.array([[1, rows, columns]]),
        "vectors": signs,
    }
    if "image" in grid.roles.values():
        parts = ask_with_pixels(grid, name, values)
    else:
        parts = call_grid(grid, values)
    for array in parts.values():
        if array.size % (rows * columns):
            raise InputError(
                f"{name} gives shape {array.shape} for {rows} x {columns} patches;"
                f" {WRAP}"
            )

    by_patch = {}
    for part, array in parts.items():
        by_patch[part] = array.reshape(rows * columns, -1)
    by_patch = split_complex_table(by_patch)
    return observe_axes(by_patch, set(by_patch), signs, spec, str(grid))


def ask_with_pixels(
    grid: GridCode,
    name: str,
    values: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """Return the parts for an image of so many patches, whose size is tried out."""
    rows = values["height"]
    columns = values["width"]
    problem = ""
    for size in PATCH_SIZES:
        image = np.zeros((1, 3, rows * size, columns * size))
        try:
            parts = call_grid(grid, {**values, "image": image})
        # The code may refuse sizes that are no multiples of its patches.
        except Exception as error:
            problem = f"raised {type(error).__name__}: {error}"
            continue
        shapes = [array.shape for array in parts.values()]
        if all(math.prod(shape[:-1]) == rows * columns for shape in shapes):
            return parts
        problem = f"gives shape {shapes[0]} for an image of {image.shape[2:]} pixels"
    raise InputError(f"{name} {problem}; {WRAP}")


def call_grid(grid: GridCode, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the parts of an answer; angles alone count as their cos and sin."""
    given = {parameter: values[role] for parameter, role in grid.roles.items()}
    vectors = [key for key, role in grid.roles.items() if role == "vectors"]
    answer = call(grid.function, given)
    is_array = hasattr(answer, "shape")
    if is_array and not vectors and not np.iscomplexobj(to_numbers(answer)):
        angles = to_numbers(answer)
        return {"cos": np.cos(angles), "sin": np.sin(angles)}
    return {
        part: to_numbers(each) for part, each in name_parts(answer, vectors).items()
    }


def ask_further(
    way: Way,
    width: int,
    last: int,
) -> tuple[Vectors, Positions, dict[str, np.ndarray]]:
    """Ask at further positions, always the same.

    Returns vectors of 1 and -1, positions and answers.
    """
    # Calls of one size, each up to the end: neither what is kept by size nor what
    # depends on the largest position may differ.
    random = np.random.default_rng(0)
    dense = np.arange(min(DENSE, last))
    sparse = random.integers(0, last, np.prod(FURTHER) - DENSE)
    shuffled = random.permutation(np.append(dense, sparse))
    calls = [np.append(places, last) for places in np.resize(shuffled, FURTHER)]

    signs = random.choice([-1.0, 1.0], (len(calls), len(calls[0]), width))
    answers = []
    for signs_of_call, places in zip(signs, calls, strict=True):
        answers.append(way.rows(signs_of_call, places))
    return signs.reshape(-1, width), np.concatenate(calls), join_rows(answers)


def agree(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    if one.keys() != other.keys():
        return False
    for name, part in one.items():
        if part.shape != other[name].shape:
            return False
        if not np.allclose(part, other[name], atol=1e-3, equal_nan=True):
            return False
    return True


def call(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call with float32 arrays; code that refuses them is given torch tensors."""
    signature = inspect.Signature(list_parameters(function) or BARE)

    def call_with(convert: Callable[[np.ndarray], Any]) -> Any:
        # Copies, as the code may change what it is given.
        values = dict(given)
        for name, value in given.items():
            if isinstance(value, np.ndarray):
                kind = np.float32 if value.dtype == np.float64 else value.dtype
                values[name] = convert(value.astype(kind))

        arguments = inspect.BoundArguments(signature, values)
        return function(*arguments.args, **arguments.kwargs)

    try:
        return call_with(lambda array: array)
    except (TypeError, AttributeError):
        if "torch" not in sys.modules:
            raise
    import torch

    with torch.no_grad():
        return call_with(torch.from_numpy)


def to_numbers(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if not value.is_complex():
            value = value.double()
        value = value.numpy()
    if isinstance(value, np.ma.MaskedArray):
        # NumPy would return the numbers below the mask.
        value = np.where(value.mask, np.nan, value.data)
    array = np.asarray(value)
    kind = np.complex128 if array.dtype.kind == "c" else np.float64
    return array.astype(kind)
