"""Call the user's rotary function at given positions, and return what it computes.

A way of calling a function is a choice of what each parameter is given, and in which
shape. The names of parameters decide most of this. Every way that agrees with the names
(`ways`) is tried at position 1, and all ways that work must give the same answer. The
first of these ways is then used for all positions. If positions have several axes, the
first way that takes several axes is preferred.

The answer of a function has parts, such as the rotated queries and the rotated keys, or
tables of cos and sin. A function may need tables that another function makes, the maker
of its tables.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from ropelab.conformance.answers import agree, join_rows
from ropelab.conformance.calls_of_axes import WRAP, ask_axes
from ropelab.conformance.calls_of_images import ask_grid, find_grid
from ropelab.conformance.observation import Fault, Observed, Positions
from ropelab.conformance.parameters import ROLES, TABLES
from ropelab.conformance.rotations import (
    observe_rotation,
    observe_signs,
    observe_tables,
)
from ropelab.conformance.ways import Way, list_ways
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Float
from ropelab.runs.errors import InputError

# The most rows of a table that is asked of a function that makes tables of a given
# length.
LONGEST_TABLE = 2**18
# After the usual positions a function is asked at many more, in FURTHER_CALLS calls of
# FURTHER_POSITIONS each: at all positions below FURTHER_DENSE, and at random larger
# ones.
FURTHER_DENSE = 1024
FURTHER_CALLS = 2
FURTHER_POSITIONS = 2048
RENAME = "call the parameters x, q, k, positions, offset, seq_len, cos, sin"
# Two faults, each with the advice to the user.
EXCHANGED: Fault = (
    "another vector comes back in its place",
    "return each vector rotated",
)
UNUSED: Fault = (
    "the positions that are given are not used",
    "rotate each token by its position",
)
# A way of calling a function that works, and the parts of its answer at position 1.
Working = tuple[Way, dict[str, np.ndarray]]


def ask_function(
    code: Any,
    name: str,
    spec: RopeSpec,
    positions: Positions,
) -> dict[str, Observed]:
    """Call a function in a way that works; return what is observed of each part of its
    answer.

    Args:
        code: the function; or a pair of the maker of its tables and the function.
        name: the words that an error begins with.
        spec: the rotation that the function should compute.
        positions: [n], or [axes, n] for a function that takes several axes.
    """
    function = code
    table_maker = None
    if isinstance(code, tuple) and len(code) == 2:
        table_maker, function = code
        check_callable(name, table_maker)

    try:
        return find_and_ask(function, table_maker, name, spec, positions)
    except InputError as error:
        # Errors of single calls do not begin with the name. A function that works at
        # position 1 may, for example, answer other positions in another shape.
        text = str(error)
        if text.startswith(name):
            raise
        raise InputError(f"{name} {text}") from None


def find_and_ask(
    function: Any,
    table_maker: Any,
    name: str,
    spec: RopeSpec,
    positions: Positions,
) -> dict[str, Observed]:
    """Do the work of `ask_function`. Its errors may lack the name at their beginning.

    ``table_maker``: the maker of the tables of the function; None if it takes none.
    """
    if table_maker is None:
        grid = find_grid(function, spec)
        if grid is not None:
            return ask_grid(grid, name, spec, positions)

    working, problem = try_ways(function, table_maker, name, spec)
    if not working:
        raise_problem(problem, name, spec)

    working = drop_other_widths(working, spec)
    if not give_equal_answers(working) and use_positions(working, spec):
        working = drop_mixed_tokens(working, spec)
    way, parts = choose_way(working, spec)
    called = str(way)
    if not give_equal_answers(working):
        if use_positions(working, spec):
            raise InputError(describe_difference(name, working, spec))
        order = np.arange(positions.shape[-1])
        no_columns = np.empty((len(order), 0))
        unused = Observed(order, no_columns, no_columns, fault=UNUSED, called=called)
        # The fault is that of the whole answer. An answer without several parts is
        # entered under the empty name.
        return {"": unused}
    if positions.ndim > 1:
        way, parts = choose_way(prefer_axes(working), spec)
        return ask_axes(way, set(parts), name, spec, positions)

    if way.takes_length:
        positions = positions[positions < LONGEST_TABLE]
    observed_parts = {}
    for part, observed in ask_at(way, list(parts), spec, positions).items():
        observed_parts[part] = replace(
            observed, called=called, told_length=way.takes_length
        )
    if any(observed.fault for observed in observed_parts.values()):
        return observed_parts
    last = int(positions[-1])
    return add_further(observed_parts, way, spec, last)


def try_ways(
    function: Any,
    table_maker: Any,
    name: str,
    spec: RopeSpec,
) -> tuple[list[Working], Exception | None]:
    """Return the ways that work at position 1, and the error of the first way that does
    not work.
    """
    check_callable(name, function)

    arguments = choose_first_arguments(spec)
    working: list[Working] = []
    problem: Exception | None = None
    axis_count = spec.axes.count if spec.axes else 0
    for way in list_ways(function, table_maker, axis_count):
        try:
            working.append((way, way.ask(*arguments)))
        except InputError as error:
            problem = problem or InputError(f"{name} {error}")
        # The user's code may raise anything.
        except Exception as error:
            problem = problem or error

    with_axes = [(way, parts) for way, parts in working if way.takes_axes]
    if spec.has_patches and with_axes:
        # The position of a patch is its row and its column. Ways that give a single
        # number per patch are not meant, even if they work.
        working = with_axes
    with_arrays = [(way, parts) for way, parts in working if way.position_shape]
    if spec.axes and with_arrays:
        # A function of several axes may accept a single number and take it for the
        # position on one axis. Ways that give an array are meant.
        working = with_arrays
    return working, problem


def choose_first_arguments(
    spec: RopeSpec,
) -> tuple[Float[np.ndarray, "n d"], Positions]:
    """Return all unit vectors, each at position 1, which one call rotates."""
    return np.eye(spec.head_dim), np.ones(spec.head_dim, np.int64)


def check_callable(name: str, function: Any) -> None:
    if inspect.iscoroutine(function):
        # Python would warn that nobody waited for it.
        function.close()
    if not callable(function):
        type_name = type(function).__name__
        raise InputError(f"{name} made a {type_name}, which cannot be called")


def raise_problem(problem: Exception | None, name: str, spec: RopeSpec) -> NoReturn:
    """Say why a function cannot be called, and for encoders of images how it could be."""
    if problem is None:
        raise InputError(f"{name}: {RENAME}")
    if not spec.has_patches:
        raise problem
    reason = str(problem)
    if not isinstance(problem, InputError):
        reason = f"{name} raised {type(problem).__name__}: {problem}"
    raise InputError(f"{reason}; {WRAP}") from problem


def give_equal_answers(working: Sequence[Working]) -> bool:
    (_, first_parts), *other_ways = working
    return all(agree(first_parts, parts) for _, parts in other_ways)


def use_positions(working: Sequence[Working], spec: RopeSpec) -> bool:
    """Return True if a way gives other answers at position 2 than at position 1."""
    unit_vectors = np.eye(spec.head_dim)
    positions = np.full(spec.head_dim, 2)
    for way, parts_at_1 in working:
        parts_at_2 = way.ask(unit_vectors, positions)
        if not agree(parts_at_1, parts_at_2):
            return True
    return False


def describe_difference(name: str, working: Sequence[Working], spec: RopeSpec) -> str:
    """Name two ways that give different answers, and what to do."""
    (first_way, first_parts), *other_ways = working
    different = [way for way, parts in other_ways if not agree(first_parts, parts)]
    # A description has the shapes of the arguments that the function takes. Two ways with
    # the same description, such as those of a function that takes only a length, give it
    # the same arguments.
    is_same_call = str(different[0]) == str(first_way)
    if is_same_call or changes_when_called(first_way, first_parts, spec):
        return f"{name}: {first_way} gives other numbers when it is called again"

    advice = RENAME
    if first_way.roles.keys() <= ROLES.keys():
        # All parameters have names that say their role, so that renaming is no help.
        # The function accepts two shapes and computes different results for them.
        advice = "take but one of them"
    return f"{name}: {first_way} and {different[0]} both work and differ: {advice}"


def changes_when_called(
    way: Way, parts: Mapping[str, np.ndarray], spec: RopeSpec
) -> bool:
    """Return True if a way gives other numbers than before for the same arguments."""
    try:
        again = way.ask(*choose_first_arguments(spec))
    # The user's code may raise anything.
    except Exception:
        return False
    return not agree(parts, again)


def drop_other_widths(working: Sequence[Working], spec: RopeSpec) -> list[Working]:
    """Return the ways whose rotated vectors have as many features as before.

    Code may repeat its vectors if it is given them in a shape that it is not meant for.
    If no way keeps the number of features, all ways are returned.
    """
    right_width = []
    for way, parts in working:
        vectors = [part for name, part in parts.items() if name not in TABLES]
        if all(part.shape[1] == spec.head_dim for part in vectors):
            right_width.append((way, parts))
    return right_width or [*working]


def drop_mixed_tokens(working: Sequence[Working], spec: RopeSpec) -> list[Working]:
    """Return the ways in which each token keeps its own vector.

    Code that counts features in `x[:, i]` accepts other shapes, too, and then takes
    tokens for features. In such a way vectors in another order give other answers. All
    ways are returned if the first of them, which has the plainest shapes, mixes tokens.
    """
    unit_vectors = np.eye(spec.head_dim)
    positions = np.ones(spec.head_dim, np.int64)
    order = np.random.default_rng(0).permutation(spec.head_dim)

    apart = []
    for working_way in working:
        way, parts = working_way
        try:
            shuffled = way.ask(unit_vectors[order], positions)
        # The user's code may raise anything.
        except Exception:
            continue

        rotated = {name: part for name, part in parts.items() if name not in TABLES}
        expected = {name: part[order] for name, part in rotated.items()}
        answered = {name: part for name, part in shuffled.items() if name in rotated}
        if agree(expected, answered):
            apart.append(working_way)

    is_first_apart = bool(apart) and apart[0] is working[0]
    return apart if is_first_apart else [*working]


def prefer_axes(working: Sequence[Working]) -> Sequence[Working]:
    """Return the ways that give positions of several axes, or all if none does."""
    return [(way, parts) for way, parts in working if way.takes_axes] or working


def choose_way(working: Sequence[Working], spec: RopeSpec) -> Working:
    """Return the first way in which each token is rotated by its own position, else the
    first way.

    Where all positions are equal, code may work in a shape that it is not meant for: it
    may take the positions of the first tokens for all.
    """
    if len(working) == 1:
        return working[0]

    unit_vectors = np.eye(spec.head_dim)
    positions = 1 + np.arange(spec.head_dim) % 2
    is_at_1 = positions == 1
    for way, parts in working:
        try:
            mixed = way.ask(unit_vectors, positions)
        # The user's code may raise anything.
        except Exception:
            continue
        if mixed.keys() != parts.keys():
            continue
        mixed_at_1 = {name: part[is_at_1] for name, part in mixed.items()}
        parts_at_1 = {name: part[is_at_1] for name, part in parts.items()}
        if agree(mixed_at_1, parts_at_1):
            return way, parts
    return working[0]


def ask_at(
    way: Way,
    parts: Sequence[str],
    spec: RopeSpec,
    positions: Positions,
) -> dict[str, Observed]:
    """Ask for tables, or for rotated unit vectors, at the positions.

    ``parts``: the names of the parts of the function's answer.
    """
    width = spec.head_dim
    if "cos" in parts:
        # A function that returns tables may take vectors, too, and uses only their size.
        vectors = np.ones((len(positions), width))
        tables = way.ask(vectors, positions)
        return {"": observe_tables(positions, tables["cos"], tables["sin"], spec)}

    observed_parts = {}
    for part in parts:

        def rotate(
            vectors: np.ndarray, positions: Positions, part: str = part
        ) -> np.ndarray:
            return way.ask(vectors, positions)[part]

        observed = observe_rotation(rotate, spec, positions)
        if part in way.roles and observed.fault is None:
            # A part has the name of the parameter whose vectors it should rotate. All
            # other parameters are given zeros here. If the part is zero then, it rotates
            # the vectors of another parameter.
            single_way = replace(way, nonzero=part)
            answer = single_way.ask(np.eye(width), np.ones(width, np.int64))
            if not answer[part].any():
                observed = replace(observed, fault=EXCHANGED)
        observed_parts[part] = observed
    return observed_parts


def add_further(
    observed_parts: dict[str, Observed],
    way: Way,
    spec: RopeSpec,
    last: int,
) -> dict[str, Observed]:
    """Add to each part the results of the function at positions up to the last
    position.
    """
    signs, positions, rows = ask_further(way, spec.head_dim, last)
    complete = {}
    for part, observed in observed_parts.items():
        if {"cos", "sin"} <= rows.keys():
            further = observe_tables(positions, rows["cos"], rows["sin"], spec)
        else:
            further = observe_signs(signs, rows[part], positions, spec, observed.note)
        complete[part] = replace(observed, further=further)
    return complete


def ask_further(
    way: Way,
    width: int,
    last: int,
) -> tuple[np.ndarray, Positions, dict[str, np.ndarray]]:
    """Ask at many positions up to the last position, with one vector of 1 and -1 at
    each.

    Returns the vectors [n, width], the positions [n], and the parts of the answers.
    """
    random = np.random.default_rng(0)
    dense = np.arange(min(FURTHER_DENSE, last))
    size = FURTHER_CALLS * FURTHER_POSITIONS
    sparse = random.integers(0, last, size - FURTHER_DENSE)
    shuffled = random.permutation(np.append(dense, sparse))
    # Every call has the same number of positions and ends with the last position. Code
    # may keep tables by the size of a call, or choose one by the largest position.
    calls = []
    for positions in np.resize(shuffled, (FURTHER_CALLS, FURTHER_POSITIONS)):
        calls.append(np.append(positions, last))

    signs = random.choice([-1.0, 1.0], (FURTHER_CALLS, FURTHER_POSITIONS + 1, width))
    answers = []
    for signs_of_call, positions in zip(signs, calls, strict=True):
        answers.append(way.ask(signs_of_call, positions))
    return signs.reshape(-1, width), np.concatenate(calls), join_rows(answers)
