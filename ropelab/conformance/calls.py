"""Ask a rotary code at positions: by the names of its parameters, else by trying.

Every way that the names leave open is tried at one position. Those that work must
agree.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ropelab.conformance.answers import agree, join_rows
from ropelab.conformance.calls_of_axes import WRAP, ask_axes
from ropelab.conformance.calls_of_images import ask_grid, find_grid
from ropelab.conformance.observation import Observed, Positions, Vectors
from ropelab.conformance.parameters import ROLES
from ropelab.conformance.rotations import (
    observe_rotation,
    observe_signs,
    observe_tables,
)
from ropelab.conformance.ways import Way, list_ways
from ropelab.readers.spec import RopeSpec
from ropelab.runs.errors import InputError

# Tokens of the longest table that is asked for as a whole.
LONGEST_TABLE = 2**18
# Further positions: all below the first number, and so many calls with so many of all.
DENSE = 1024
FURTHER = (2, 2048)
ASK = "call the parameters x, q, k, positions, offset, seq_len, cos, sin"
EXCHANGED = ("another vector comes back in its place", "return each vector rotated")
UNUSED = (
    "the positions that are given are not used",
    "rotate each token by its position",
)
# A way with what it gives.
Working = tuple[Way, dict[str, np.ndarray]]


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
    if not give_equal_answers(working):
        if use_positions(working, spec):
            raise InputError(describe_difference(name, working))
        order = np.arange(positions.shape[-1])
        nothing = np.empty((len(order), 0))
        return {"": Observed(order, nothing, nothing, fault=UNUSED, called=called)}
    if positions.ndim > 1:
        return ask_axes(choose_way(working), set(parts), name, spec, positions)

    if way.takes_length:
        positions = positions[positions < LONGEST_TABLE]
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


def give_equal_answers(working: Sequence[Working]) -> bool:
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


def choose_way(working: Sequence[Working]) -> Way:
    """Return the first way that gives positions of several axes, else the first."""
    for way, _ in working:
        if way.takes_axes:
            return way
    return working[0][0]


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
        return {"": observe_tables(positions, cos, sin, spec)}

    observed = {}
    for part in parts:

        def rotate(x: Vectors, places: Positions, part: str = part) -> np.ndarray:
            return way.rows(x, places)[part]

        seen = observe_rotation(rotate, spec, positions)
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
            more = observe_tables(places, rows["cos"], rows["sin"], spec)
        else:
            more = observe_signs(signs, rows[part], places, spec, seen.note)
        complete[part] = replace(seen, between=more)
    return complete


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
