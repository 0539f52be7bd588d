"""The flags of the command line: those of several commands, and those made from a config's fields.

Values of fields stay text: the config reads and checks them, in the same words as those of a file.
"""

import types
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, fields
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from pydantic import ByteSize
from pydantic.fields import FieldInfo

from ropelab.runs.config import PARTIAL, Config, spellings

Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="Folder in which runs are kept.")
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the commands that make runs: a field is an option, with its default."""

    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="TOML file; flags override it.")
    ] = None
    results: Results = Path("results")
    force: Annotated[bool, typer.Option("--force", help="Run again what is already there.")] = False
    no_limits: Annotated[
        bool,
        typer.Option(
            "--no-limits", help="Allow runs estimated above one day or above free memory."
        ),
    ] = False
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Draw the figures of a stored run again.")
    ] = False
    format: Annotated[
        str,
        typer.Option("--format", metavar="png,...", help="Formats of the figures: png, pdf, svg."),
    ] = "png"
    style: Annotated[
        str,
        typer.Option(
            "--style", metavar="screen|paper", help="Style of the figures; paper: 3.3 in, 8 pt."
        ),
    ] = "screen"
    figures: Annotated[
        bool | None,
        typer.Option(
            "--figures/--no-figures", help="Draw figures  [default: yes, but not for --json]"
        ),
    ] = None
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")] = False
    json: Json = False
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            metavar="N",
            help="Processes that train and measure side by side  [default: as many as there are "
            "cores, and room in memory]",
        ),
    ] = None
    engine: Annotated[
        str,
        typer.Option(
            "--engine", metavar="local|ray", help="What runs them: this machine, or a Ray cluster."
        ),
    ] = "local"
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="HOST:PORT",
            help="The Ray cluster, or auto  [default: RAY_ADDRESS, else one of this machine alone]",
        ),
    ] = None


# Options of a single run, and those of work that pays to be computed side by side.
OF_ONE_RUN = {"config", "figures", "json"}
OF_MODELS = {"workers", "engine", "address"}

# Other spellings of a flag.
ALSO = {"methods": ("--method",)}


def taking_options(
    command: Callable[..., None], own: Sequence[Parameter], without: Set[str]
) -> Callable[..., None]:
    """Return a command for Typer: its own parameters, then those of `Options` as one argument.

    Args:
        without: names of options that the command does not take.
    """
    kinds = get_type_hints(Options, include_extras=True)
    shared = [
        _parameter(each.name, kinds[each.name], each.default)
        for each in fields(Options)
        if each.name not in without
    ]

    def typed(**given: Any) -> None:
        options = Options(**{each.name: given.pop(each.name) for each in shared})
        command(**given, options=options)

    parameters = [*own, *shared]
    typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    typed.__annotations__ = {each.name: each.annotation for each in parameters}
    typed.__doc__ = command.__doc__
    return typed


def of_fields(config: type[Config]) -> list[Parameter]:
    """Return the parameters that set the fields of a config."""
    others = spellings(config)
    made = [
        _parameter(
            name,
            _argument(field) if name == config.argument else _option(name, field, others.get(name)),
            None,
        )
        for name, field in config.model_fields.items()
    ]
    if "rotary_dim" in config.model_fields:
        text = "rotary_dim as a share of head_dim"
        share = typer.Option(flag_of(PARTIAL), metavar="X", help=text)
        made.append(_parameter(PARTIAL, Annotated[str | None, share], None))
    return made


def _parameter(name: str, kind: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _argument(field: FieldInfo) -> Any:
    """Make the argument that needs no flag; a config file may give it as well."""
    return Annotated[str | None, typer.Argument(metavar="MODEL", help=field.description)]


def _option(name: str, field: FieldInfo, theirs: str | None = None) -> Any:
    """One field as a Typer option, under its other spelling too.

    Values stay text: the config reads and checks them.
    """
    flag = flag_of(name)
    help_text = f"{field.description}{default_text(None if field.is_required() else field.default)}"
    if field.annotation is bool:
        return Annotated[bool | None, typer.Option(f"{flag}/--no-{flag[2:]}", help=help_text)]
    names = (flag, *([flag_of(theirs)] if theirs else []), *ALSO.get(name, ()))
    value = metavar(field.annotation)
    option = typer.Option(*names, metavar=value, help=help_text)
    if value.endswith(",..."):
        return Annotated[list[str] | None, option]
    return Annotated[str | None, option]


def flag_of(name: str) -> str:
    """Return the flag of a config field: `head_dim` is `--head-dim`."""
    return f"--{name.replace('_', '-')}"


def default_text(default: object) -> str:
    """Return the end of a help text: the default as it would be typed.

    >>> default_text(1e6), default_text(("pi", "ntk")), default_text("")
    ('  [default: 1e6]', '  [default: pi,ntk]', '')
    """
    if isinstance(default, tuple):
        text = ",".join(map(str, default))
    elif isinstance(default, bool):
        text = "yes" if default else "no"
    else:
        text = "" if default is None else str(default)
    if isinstance(default, float):
        text = f"{default:g}".replace("e+0", "e")
    return f"  [default: {text}]" if text else ""


def metavar(kind: Any) -> str:
    """Return the placeholder of a flag's value, from the type of its field."""
    if get_origin(kind) is Annotated:
        return metavar(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return metavar(next(part for part in get_args(kind) if part is not type(None)))
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"{metavar(get_args(kind)[0])},..."
    return {int: "N", float: "X", str: "NAME", ByteSize: "SIZE"}.get(kind, "VALUE")
