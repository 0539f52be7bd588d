"""The ways of calling a rotary code: by the names of its parameters, else by trying.

Every way that the names leave open is tried at one position. Those that work must
agree.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ropelab.conformance import rotations
from ropelab.conformance.rotations import Observed, Positions, Vectors
from ropelab.readers.families import table
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Int
from ropelab.runs.errors import InputError

ROLES = {
    name: role
    for role, names in table("names")["roles"].items()
    for name in names.split()
}
PLACES = ("positions", "offset", "length")
TABLES = ("cos", "sin", "table")
# Axes of vectors and positions: n of d features, all n at positions of their own. The
# last are for one vector at a time, at a whole number.
ARRAYS = tuple(product(("nd", "n1d", "1n1d", "11nd"), ("n", "1n")))
SINGLE = (("1d", ""), ("11d", ""), ("111d", ""))
LONGEST = 2**18  # tokens of which a whole table is asked
# Further positions: all below the first number, and so many calls with so many of all.
DENSE = 1024
FURTHER = (2, 2048)
# Of a function that names none.
BARE = [
    inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
    for name in ("x", "positions")
]
ASK = "call the parameters x, q, k, positions, offset, seq_len, cos, sin"
EXCHANGED = ("another vector comes back in its place", "return each vector rotated")
UNUSED = (
    "the positions that are given are not used",
    "rotate each token by its position",
)


@dataclass(frozen=True)
class Way:
    """A function, the roles of its parameters, the axes of its arrays, and a maker of
    tables.
    """

    function: Callable[..., Any]
    roles: Mapping[str, str]
    shapes: tuple[str, str]
    tables: "Way | None" = None
    only: str = ""  # the parameter beside which all other vectors are zeros

    def __str__(self) -> str:
        axes = {"vectors": self.shapes[0], "positions": self.shapes[1]}
        words = []
        for name, role in self.roles.items():
            word = name
            if name not in ROLES:
                word += f" as {role}"
            if axes.get(role):
                word += f" [{', '.join(axes[role])}]"
            words.append(word)
        name = getattr(self.function, "__name__", type(self.function).__name__)
        call = f"{name}({', '.join(words)})"
        if self.tables:
            call += f", with tables from {self.tables}"
        return call

    @property
    def vectors(self) -> list[str]:
        """The parameters that are vectors."""
        return [name for name, role in self.roles.items() if role == "vectors"]

    @property
    def takes_length(self) -> bool:
        roles = {*self.roles.values()}
        if self.tables:
            roles |= {*self.tables.roles.values()}
        return "length" in roles

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

        # Whole tables, of which the rows of the positions are taken.
        by_length = {*self.roles.values()} <= {"length", "vectors"}
        if by_length and ("cos" in parts or "table" in parts):
            for name, table in parts.items():
                parts[name] = table.reshape(-1, table.shape[-1])[places]
        return parts

    def values(
        self,
        vectors: Vectors,
        places: Positions,
        length: int,
    ) -> dict[str, Any]:
        """Return what a parameter of each role is given."""
        sizes = {"n": len(vectors), "d": vectors.shape[1]}
        shape, shape_of_places = (
            tuple(sizes.get(axis, 1) for axis in axes) for axes in self.shapes
        )
        last = int(places.max())
        positions: Any = last
        if shape_of_places:
            # Several axes of positions come first.
            positions = places.reshape(*places.shape[:-1], *shape_of_places)
        values = {
            "vectors": vectors.reshape(shape),
            "positions": positions,
            "offset": last,
            "length": length or last + 1,
        }
        if self.tables:
            rows = places
            if {*PLACES} & {*self.roles.values()}:
                # Code that takes positions, too, looks them up in the whole table.
                rows = np.arange(last + 1)
            values |= self.tables.answer(np.ones((len(rows), vectors.shape[1])), rows)
        return values

    def rows(
        self,
        vectors: Vectors,
        places: Positions,
        length: int = 0,
    ) -> dict[str, np.ndarray]:
        """Return the parts as arrays with a row per position."""
        end = length or int(places.max()) + 1
        count = len(vectors)
        if count > 1 and not self.shapes[1]:
            return self.rows_one_by_one(vectors, places, end)

        parts = {}
        for name, part in self.answer(vectors, places, end).items():
            array = to_numbers(part)
            axes = [size for size in array.shape[:-1] if size > 1]
            wanted = [count] if count > 1 else []
            if axes != wanted:
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
    """Return the parts of an answer: cos and sin, cos + i sin as `table`, or rotated
    vectors.
    """
    if isinstance(answer, Mapping):
        parts = {str(name): part for name, part in answer.items()}
        if "cos" in parts:
            return {"cos": parts["cos"], "sin": parts["sin"]}
        return parts
    if isinstance(answer, tuple | list):
        names = vectors if len(vectors) > 1 else ["cos", "sin"]
        if len(answer) == len(names):
            return dict(zip(names, answer, strict=True))
    elif np.iscomplexobj(to_numbers(answer)):
        return {"table": answer}
    elif len(vectors) == 1:
        return {"": answer}

    wanted = "a rotation of each of them" if len(vectors) > 1 else "cos and sin"
    raise InputError(f"answers with a {type(answer).__name__}, not with {wanted}")


def split_complex_table(parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return parts with cos and sin in place of one table of cos + i sin."""
    table = parts.get("table")
    if table is None:
        return parts
    return {"cos": table.real, "sin": table.imag}


def list_parameters(function: Any) -> list[inspect.Parameter]:
    code = getattr(function, "forward", function)
    parameters = inspect.signature(code).parameters.values()
    return [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def list_required(parameters: list[inspect.Parameter]) -> list[str]:
    return [p.name for p in parameters if p.default is p.empty]


def guess_roles(function: Any) -> Iterator[dict[str, str]]:
    """Yield the role of each parameter that is given; several if the names do not
    tell.
    """
    parameters = list_parameters(function) or BARE
    roles = {name: ROLES.get(name.lower(), "") for name in list_required(parameters)}
    if not tells_places(roles):
        # A position may have a default.
        roles |= find_optional_place(parameters)

    unknown = [name for name, role in roles.items() if not role]
    if tells_places(roles):
        yield roles | dict.fromkeys(unknown, "vectors")
    elif len(roles) == 1:
        (name,) = roles
        yield {name: "positions"}
        yield {name: "length"}
    if len(roles) > 1:
        for name in reversed(unknown):
            yield roles | dict.fromkeys(unknown, "vectors") | {name: "positions"}


def tells_places(roles: Mapping[str, str]) -> bool:
    """Return True if a parameter says where vectors are, by positions or tables."""
    return not {*PLACES, *TABLES}.isdisjoint(roles.values())


def find_optional_place(parameters: list[inspect.Parameter]) -> dict[str, str]:
    for role in PLACES:
        for parameter in parameters:
            if ROLES.get(parameter.name) == role:
                return {parameter.name: role}
    return {}


def list_ways(function: Any, tables: Any = None) -> Iterator[Way]:
    """Yield every way in which the function may be meant, the likeliest first."""
    makers: list[Way | None] = [None]
    if tables is not None:
        makers = [*list_ways(tables)]

    for roles in guess_roles(function):
        if [*roles.values()].count("vectors") > 2:
            continue
        taken = {*roles.values()} - {"vectors"}
        if tables is None and not taken.isdisjoint(TABLES):
            raise InputError(
                f"({', '.join(roles)}) takes tables: give a factory that returns"
                " (tables, f), a maker of tables and the code"
            )
        for shapes, maker in product(list_shapes(taken), makers):
            yield Way(function, roles, shapes, maker)


def list_shapes(taken: set[str]) -> tuple[tuple[str, str], ...]:
    """Return the axes of vectors and positions to try, by the roles of the others."""
    if "offset" in taken:
        return SINGLE
    if taken - {"length"} == {"positions"}:
        return (*ARRAYS, *SINGLE)
    return ARRAYS[::2]


def ask_function(
    made: Any,
    name: str,
    spec: RopeSpec,
    positions: Positions,
) -> dict[str, Observed]:
    """Ask a function, or a maker of tables and a function that uses them, in the way
    that works.

    Args:
        made: the function, or both.
        name: the words that an error begins with.
        spec: what it should rotate.
        positions: [n], or [axes, n] of a code that takes several axes.
    """
    working, problem = try_ways(made, name, spec)
    if not working:
        raise problem or InputError(f"{name}: {ASK}")

    way, parts = working[0]
    if not are_alike(working):
        if not use_positions(working, spec):
            nothing = np.empty((len(positions), 0))
            unused = Observed(
                positions, nothing, nothing, fault=UNUSED, called=str(way)
            )
            return {"": unused}
        raise InputError(describe_difference(name, working))
    if positions.ndim > 1:
        return ask_axes(way, {*parts}, spec, positions)

    if way.takes_length:
        positions = positions[positions < LONGEST]
    observed = ask_at(way, [*parts], spec, positions)
    for part, seen in observed.items():
        observed[part] = replace(seen, called=str(way), told_length=way.takes_length)
    if any(seen.fault for seen in observed.values()):
        return observed
    return add_further(observed, way, spec, int(positions[-1]))


def try_ways(
    made: Any,
    name: str,
    spec: RopeSpec,
) -> tuple[list[Working], Exception | None]:
    """Return the ways that work at position 1 with what they give, and what stopped the
    first of the others.
    """
    *maker, code = made if isinstance(made, tuple) and len(made) == 2 else (made,)
    for function in (*maker, code):
        if not callable(function):
            kind = type(function).__name__
            raise InputError(f"{name} made a {kind}, which cannot be called")

    vectors = np.eye(spec.head_dim)
    ones = np.ones(spec.head_dim, np.int64)
    working: list[Working] = []
    problem: Exception | None = None
    for way in list_ways(code, *maker):
        try:
            working.append((way, way.rows(vectors, ones)))
        except InputError as error:
            problem = problem or InputError(f"{name} {error}")
        except Exception as error:  # the user's code may raise anything
            problem = problem or error
    return working, problem


def are_alike(working: Sequence[Working]) -> bool:
    _, parts = working[0]
    return all(agree(parts, others) for _, others in working[1:])


def use_positions(working: Sequence[Working], spec: RopeSpec) -> bool:
    """Return True if a way gives other answers at position 2 than at position 1."""
    vectors = np.eye(spec.head_dim)
    twos = np.full(spec.head_dim, 2)
    return not all(agree(parts, way.rows(vectors, twos)) for way, parts in working)


def describe_difference(name: str, working: Sequence[Working]) -> str:
    way, parts = working[0]
    other = next(other for other, others in working if not agree(parts, others))
    advice = ASK
    if {*way.roles} <= {*ROLES}:
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
        tables = way.rows(np.ones((len(positions), head)), positions)
        cos = tables["cos"]
        sin = tables["sin"]
        return {"": rotations.observe_tables(positions, cos, sin, spec)}

    observed = {}
    for part in parts:

        def rotate(x: Vectors, places: Positions, part: str = part) -> np.ndarray:
            return way.rows(x, places)[part]

        seen = rotations.observe_rotation(rotate, spec, positions)
        if part in way.roles and seen.fault is None:
            # Beside zeros its own vectors have to come back.
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


def ask_axes(
    way: Way,
    parts: set[str],
    spec: RopeSpec,
    positions: Int[np.ndarray, "axes n"],
) -> dict[str, Observed]:
    """Ask at positions of several axes, one vector of 1 and -1 at each."""
    count = positions.shape[-1]
    if not way.shapes[1]:
        raise InputError(f"{way} takes one position at a time")
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (count, spec.head_dim))
    rows = way.rows(signs, positions)
    order = np.arange(count)
    if {"cos", "sin"} <= parts:
        tables = rotations.observe_tables(order, rows["cos"], rows["sin"], spec)
        return {"": replace(tables, called=str(way))}
    observed = {}
    for part in sorted(parts):
        seen = rotations.observe_signs(signs, rows[part], order, spec, "")
        observed[part] = replace(seen, called=str(way))
    return observed


def ask_further(
    way: Way,
    width: int,
    last: int,
) -> tuple[Vectors, Positions, dict[str, np.ndarray]]:
    """Ask at further positions, always the same: vectors of 1 and -1, positions and
    answers.
    """
    # Calls of one size, each up to the end: neither what is kept by size nor what
    # depends on the largest position may differ.
    rng = np.random.default_rng(0)
    dense = np.arange(min(DENSE, last))
    random = rng.integers(0, last, np.prod(FURTHER) - DENSE)
    shuffled = rng.permutation(np.append(dense, random))
    calls = [np.append(places, last) for places in np.resize(shuffled, FURTHER)]

    signs = rng.choice([-1.0, 1.0], (len(calls), len(calls[0]), width))
    answers = [way.rows(*each) for each in zip(signs, calls, strict=True)]
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
    array = np.asarray(value)
    kind = np.complex128 if array.dtype.kind == "c" else np.float64
    return array.astype(kind)
