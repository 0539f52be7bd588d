"""Tell what each parameter of a rotary code takes, by its name.

The role of a parameter is what it is given: `vectors`, which are queries, keys or other
vectors to rotate; `positions`, the position of each; `offset`, one position for all;
`length`, the number of tokens; or tables: `cos`, `sin`, or `table`, which is cos + i sin.
Names that tell their role are listed in readers/names.toml.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ropelab.readers.families import read_table


def _read_roles(part: str) -> dict[str, str]:
    """Return the role of each name in a part of names.toml."""
    roles: dict[str, str] = {}
    for role, names in read_table("names")[part].items():
        roles |= dict.fromkeys(names.split(), role)
    return roles


ROLES = _read_roles("roles")
# The roles in codes that take the rows and columns of an image instead of positions.
GRID_ROLES = _read_roles("grid_roles")
# Roles that say at which positions the vectors are, and tables that say the same.
PLACES = ("positions", "offset", "length")
TABLES = ("cos", "sin", "table")
# A function that takes nothing but *args is treated as if it had these parameters.
UNNAMED_PARAMETERS = [
    inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY),
    inspect.Parameter("positions", inspect.Parameter.POSITIONAL_ONLY),
]


def guess_roles(function: Any) -> Iterator[dict[str, str]]:
    """Yield the role of each parameter that is to be given.

    If the names do not tell all roles, each assignment that is possible is yielded.
    """
    parameters = list_parameters(function) or UNNAMED_PARAMETERS
    roles = {name: ROLES.get(name.lower(), "") for name in list_required(parameters)}
    if not has_places(roles):
        # The parameter for positions may have a default.
        roles |= find_optional(parameters, PLACES)
    if "length" not in roles.values():
        # A scaling that depends on the length has to follow the length that it is given.
        roles |= find_optional(parameters, ("length",))

    unknown = [name for name, role in roles.items() if not role]
    with_vectors = roles | dict.fromkeys(unknown, "vectors")
    if has_places(roles):
        yield with_vectors
    elif len(roles) == 1:
        (name,) = roles
        yield {name: "positions"}
        yield {name: "length"}
    if len(roles) > 1:
        for name in reversed(unknown):
            yield with_vectors | {name: "positions"}


def has_places(roles: Mapping[str, str]) -> bool:
    """Return True if a parameter says where vectors are, by positions or tables."""
    return not {*PLACES, *TABLES}.isdisjoint(roles.values())


def find_optional(
    parameters: list[inspect.Parameter], roles: Sequence[str]
) -> dict[str, str]:
    """Return the first parameter whose role is among the given roles, with its role.

    Empty: no parameter's name shows one of these roles.
    """
    for role in roles:
        for parameter in parameters:
            if ROLES.get(parameter.name.lower()) == role:
                return {parameter.name: role}
    return {}


def list_parameters(function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function without *args and **kwargs."""
    # The call of a torch module takes what its `forward` takes.
    code = getattr(function, "forward", function)
    schema = getattr(code, "schema", None)
    if type(code).__module__.startswith("torch.") and schema is not None:
        return list_scripted(schema)

    parameters = []
    for parameter in inspect.signature(code).parameters.values():
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            parameters.append(parameter)
    return parameters


def list_scripted(schema: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function of TorchScript, which has no signature."""
    parameters = []
    for argument in schema.arguments:
        if argument.name == "self":
            continue
        default = inspect.Parameter.empty
        if argument.has_default_value():
            default = argument.default_value
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(argument.name, kind, default=default))
    return parameters


def list_required(parameters: list[inspect.Parameter]) -> list[str]:
    """Return the names of the parameters without a default."""
    required = []
    for parameter in parameters:
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return required
