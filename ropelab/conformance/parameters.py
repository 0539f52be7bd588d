"""What the parameters of a rotary code take, by their names."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ropelab.readers.families import table


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
# The parameters of a function that names none.
UNNAMED_PARAMETERS = [
    inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY),
    inspect.Parameter("positions", inspect.Parameter.POSITIONAL_ONLY),
]


def guess_roles(function: Any) -> Iterator[dict[str, str]]:
    """Yield the role of each parameter that is given.

    There are several answers if the names do not tell.
    """
    parameters = list_parameters(function) or UNNAMED_PARAMETERS
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
