"""The ways of calling a rotary code: by the names of its parameters, else by trying.

Every way that the names leave open is tried at one position. Those that work must
agree.
"""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
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
PLACES, TABLES = ("positions", "offset", "length"), ("cos", "sin", "table")
# Axes of vectors and positions: n of d features, all n at positions of their own. The
# last are for one vector at a time, at a whole number.
ARRAYS = tuple(product(("nd", "n1d", "1n1d", "11nd"), ("n", "1n")))
SINGLE = (("1d", ""), ("11d", ""), ("111d", ""))
LONGEST = 2**18  # tokens of which a whole table is asked
# Further positions: all below the first number, and so many calls with so many of all.
DENSE, FURTHER = 1024, (2, 2048)
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
            shape = f" [{', '.join(axes[role])}]" if axes.get(role) else ""
            words.append(f"{name}{'' if name in ROLES else ' as ' + role}{shape}")
        made = f", with tables from {self.tables}" if self.tables else ""
        name = getattr(self.function, "__name__", type(self.function).__name__)
        return f"{name}({', '.join(words)}){made}"

    def answer(
        self, vectors: Vectors, places: Positions, length: int = 0
    ) -> dict[str, Any]:
        """Return the parts of the function's answer by name, as it gives them."""
        last, roles = int(places.max()), self.roles
        sizes = {"n": len(vectors), "d": vectors.shape[1]}
        x, p = (tuple(sizes.get(axis, 1) for axis in shape) for shape in self.shapes)
        values: dict[str, Any] = {
            "vectors": vectors.reshape(x),
            "length": length or last + 1,
        }
        # Several axes of positions come first.
        axes = places.shape[:-1]
        values |= {"positions": places.reshape(*axes, *p) if p else last}
        values["offset"] = last
        if self.tables:
            # A code that takes positions, too, looks them up in the whole table.
            rows = np.arange(last + 1) if {*PLACES} & {*roles.values()} else places
            values |= self.tables.answer(np.ones((len(rows), vectors.shape[1])), rows)
        given = {name: values[role] for name, role in roles.items()}
        zero = [
            n
            for n, role in roles.items()
            if self.only not in ("", n) and role == "vectors"
        ]
        found = call(self.function, given | {name: np.zeros(x) for name in zero})
        parts = name_parts(
            found, [name for name, role in roles.items() if role == "vectors"]
        )
        if {*roles.values()} <= {"length", "vectors"} and not {
            "cos",
            "table",
        }.isdisjoint(parts):
            parts = {n: t.reshape(-1, t.shape[-1])[places] for n, t in parts.items()}
        return parts

    def rows(
        self, vectors: Vectors, places: Positions, length: int = 0
    ) -> dict[str, np.ndarray]:
        """Return the parts as arrays with a row per position."""
        end = length or int(places.max()) + 1
        if len(vectors) > 1 and not self.shapes[1]:
            each = [
                self.rows(x[None], p[None], end)
                for x, p in zip(vectors, places, strict=True)
            ]
            return {
                name: np.concatenate([one[name] for one in each]) for name in each[0]
            }
        found = {
            n: to_numbers(part) for n, part in self.answer(vectors, places, end).items()
        }
        for array in found.values():
            if [n for n in array.shape[:-1] if n > 1] != [len(vectors)] * (
                len(vectors) > 1
            ):
                raise InputError(
                    f"gives shape {array.shape} for {len(vectors)} positions"
                )
        return split_complex_table(
            {name: array.reshape(len(vectors), -1) for name, array in found.items()}
        )


def name_parts(answer: Any, vectors: list[str]) -> dict[str, Any]:
    """Return the parts of an answer: cos and sin, cos + i sin as `table`, or rotated
    vectors.
    """
    if isinstance(answer, Mapping):
        parts = {str(name): part for name, part in answer.items()}
        return (
            {name: parts[name] for name in ("cos", "sin")} if "cos" in parts else parts
        )
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
    return parts if table is None else {"cos": table.real, "sin": table.imag}


def list_parameters(function: Any) -> list[inspect.Parameter]:
    found = inspect.signature(
        getattr(function, "forward", function)
    ).parameters.values()
    return [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def list_required(parameters: list[inspect.Parameter]) -> list[str]:
    return [p.name for p in parameters if p.default is p.empty]


def guess_roles(function: Any, tables: bool) -> Iterator[dict[str, str]]:
    """Yield the role of each parameter that is given; several if the names do not
    tell.
    """
    parameters = list_parameters(function) or BARE
    roles = {name: ROLES.get(name.lower(), "") for name in list_required(parameters)}
    if not {*PLACES, *TABLES} & {*roles.values()}:
        given = (
            (role, p.name)
            for role in PLACES
            for p in parameters
            if ROLES.get(p.name) == role
        )
        roles |= {name: place for place, name in [*given][:1]}
    unknown = [name for name, role in roles.items() if not role]
    if {*PLACES, *TABLES} & {*roles.values()}:
        yield roles | dict.fromkeys(unknown, "vectors")
    elif len(roles) == 1:
        yield from (
            {name: place} for name in roles for place in ("positions", "length")
        )
    for name in reversed(unknown if len(roles) > 1 else []):
        yield roles | dict.fromkeys(unknown, "vectors") | {name: "positions"}


def list_ways(function: Any, tables: Any = None) -> Iterator[Way]:
    """Yield every way in which the function may be meant, the likeliest first."""
    makers: list[Way | None] = [None] if tables is None else [*list_ways(tables)]
    for roles in guess_roles(function, tables is not None):
        taken = {*roles.values()} - {"vectors"}
        if [*roles.values()].count("vectors") > 2:
            continue
        if tables is None and {*TABLES} & taken:
            wanted = (
                "a factory that returns (tables, f), a maker of tables and the code"
            )
            raise InputError(f"({', '.join(roles)}) takes tables: give {wanted}")
        shapes = (
            (*ARRAYS, *SINGLE) if taken - {"length"} == {"positions"} else ARRAYS[::2]
        )
        for shape, maker in product(SINGLE if "offset" in taken else shapes, makers):
            yield Way(function, roles, shape, maker)


def ask_function(
    made: Any, name: str, spec: RopeSpec, positions: Positions
) -> dict[str, Observed]:
    """Ask a function, or a maker of tables and a function that uses them, in the way
    that works.
    """
    *maker, code = made if isinstance(made, tuple) and len(made) == 2 else (made,)
    for one in (*maker, code):
        if not callable(one):
            raise InputError(
                f"{name} made a {type(one).__name__}, which cannot be called"
            )
    head, works = spec.head_dim, list[tuple[Way, dict[str, np.ndarray]]]()
    problem: Exception | None = None
    for way in list_ways(code, *maker):
        try:
            works.append((way, way.rows(np.eye(head), np.ones(head, np.int64))))
        except Exception as error:
            told = isinstance(error, InputError)
            problem = problem or (InputError(f"{name} {error}") if told else error)
    if not works:
        raise problem or InputError(f"{name}: {ASK}")
    way, parts = works[0]
    for other, theirs in works[1:]:
        if not agree(parts, theirs):
            if all(
                agree(rows, w.rows(np.eye(head), np.full(head, 2))) for w, rows in works
            ):
                none = np.empty((len(positions), 0))
                return {
                    "": Observed(positions, none, none, fault=UNUSED, called=str(way))
                }
            ask = "take but one of them" if {*way.roles} <= {*ROLES} else ASK
            raise InputError(f"{name}: {way} and {other} both work and differ: {ask}")
    if positions.ndim > 1:
        return ask_axes(way, {*parts}, spec, positions)
    told = "length" in {*way.roles.values(), *(way.tables or way).roles.values()}
    if told:
        positions = positions[positions < LONGEST]
    if tables := {"cos", "sin"} <= {*parts}:
        table = way.rows(np.ones((len(positions), head)), positions)
        found = {
            "": rotations.observe_tables(positions, table["cos"], table["sin"], spec)
        }
    else:
        rotate = {n: lambda x, p, n=n: way.rows(x, p)[n] for n in parts}
        found = {
            n: rotations.observe_rotation(rotate[n], spec, positions) for n in parts
        }
        for n in {*parts} & {*way.roles}:
            alone = replace(way, only=n).rows(np.eye(head), np.ones(head, np.int64))[n]
            if found[n].fault is None and not alone.any():
                found[n] = replace(found[n], fault=EXCHANGED)
    result = {
        part: replace(observed, called=str(way), told_length=told)
        for part, observed in found.items()
    }
    if any(observed.fault for observed in found.values()):
        return result
    signs, places, rows = ask_further(way, head, int(positions[-1]))
    if tables:
        more = {"": rotations.observe_tables(places, rows["cos"], rows["sin"], spec)}
    else:
        more = {
            n: rotations.observe_signs(signs, rows[n], places, spec, found[n].note)
            for n in parts
        }
    return {
        part: replace(observed, between=more[part]) for part, observed in result.items()
    }


def ask_axes(
    way: Way, parts: set[str], spec: RopeSpec, positions: Int[np.ndarray, "axes n"]
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
    way: Way, width: int, last: int
) -> tuple[Vectors, Positions, dict[str, np.ndarray]]:
    """Ask at further positions, always the same: vectors of 1 and -1, positions and
    answers.
    """
    # Calls of one size, each up to the end: neither what is kept by size nor what
    # depends on the largest position may differ.
    rng = np.random.default_rng(0)
    places = np.append(
        np.arange(min(DENSE, last)), rng.integers(0, last, np.prod(FURTHER) - DENSE)
    )
    asked = [
        np.append(call, last) for call in np.resize(rng.permutation(places), FURTHER)
    ]
    signs = rng.choice([-1.0, 1.0], (len(asked), len(asked[0]), width))
    found = [way.rows(*each) for each in zip(signs, asked, strict=True)]
    rows = {name: np.concatenate([one[name] for one in found]) for name in found[0]}
    return signs.reshape(-1, width), np.concatenate(asked), rows


def agree(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(
        part.shape == other[n].shape
        and np.allclose(part, other[n], atol=1e-3, equal_nan=True)
        for n, part in one.items()
    )


def call(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call with float32 arrays; code that refuses them is given torch tensors."""
    signature = inspect.Signature(list_parameters(function) or BARE)

    def called(convert: Callable[[np.ndarray], Any]) -> Any:
        # Copies, as the code may change what it is given.
        values = dict(given)
        for name, v in given.items():
            if isinstance(v, np.ndarray):
                values[name] = convert(
                    v.astype(np.float32 if v.dtype == np.float64 else v.dtype)
                )
        bound = inspect.BoundArguments(signature, values)
        return function(*bound.args, **bound.kwargs)

    try:
        return called(lambda array: array)
    except (TypeError, AttributeError):
        if "torch" not in sys.modules:
            raise
    import torch

    with torch.no_grad():
        return called(torch.from_numpy)


def to_numbers(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value if value.is_complex() else value.double()).numpy()
    array = np.asarray(value)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
