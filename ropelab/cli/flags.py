"""The flags of the command line: those of several commands, and those made from a config's fields.

Values of fields stay text: the config reads and checks them, in the same words as those of a file.
"""

import types
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic import ByteSize
from pydantic.fields import FieldInfo

from ropelab.runs.config import PARTIAL, Config, spellings

Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="Folder in which runs are kept.")
]
Force = Annotated[bool, typer.Option("--force", help="Run again what is already there.")]
Redraw = Annotated[bool, typer.Option("--redraw", help="Draw the figures of a stored run again.")]
Figures = Annotated[
    bool | None,
    typer.Option("--figures/--no-figures", help="Draw figures  [default: yes, but not for --json]"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML file; flags override it.")
]
Formats = Annotated[
    str, typer.Option("--format", metavar="png,...", help="Formats of the figures: png, pdf, svg.")
]
Style = Annotated[
    str,
    typer.Option(
        "--style", metavar="screen|paper", help="Style of the figures; paper: 3.3 in, 8 pt."
    ),
]
WorkerCount = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        metavar="N",
        help="Processes that train and measure side by side  [default: as many as there are "
        "cores, and room in memory]",
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", metavar="local|ray", help="What runs them: this machine, or a Ray cluster."
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="The Ray cluster, or auto  [default: RAY_ADDRESS, else one of this machine alone]",
    ),
]
NoLimits = Annotated[
    bool,
    typer.Option(
        "--no-limits", help="Also work of more than a day, or of more memory than there is."
    ),
]
# Flags by name: the option, and what it is where it is not given.
Given = dict[str, tuple[Any, Any]]
COMMON: Given = {
    "config": (ConfigFile, None),
    "results": (Results, Path("results")),
    "force": (Force, False),
    "no_limits": (NoLimits, False),
    "redraw": (Redraw, False),
    "format": (Formats, "png"),
    "style": (Style, "screen"),
    "figures": (Figures, None),
    "quiet": (Quiet, False),
    "json": (Json, False),
}
# Further flags of experiments that train or measure models.
TRAINING: Given = {
    "workers": (WorkerCount, None),
    "engine": (EngineName, "local"),
    "address": (Address, None),
}

# Other spellings of a flag.
ALSO = {"methods": ("--method",)}


def common(config: type[Config]) -> Given:
    """Flags that are no fields of a config: those of all experiments, and those of trainings."""
    return COMMON | (TRAINING if "dtype" in config.model_fields else {})


def parameters(config: type[Config]) -> list[Parameter]:
    """Everything that the command of an experiment takes: fields of its config, then the rest."""
    fields, others = config.model_fields, spellings(config)
    made = [
        _parameter(
            name,
            _argument(field) if name == config.argument else _option(name, field, others.get(name)),
            None,
        )
        for name, field in fields.items()
    ]
    if "rotary_dim" in fields:
        made.append(_parameter(PARTIAL, _partial_option(), None))
    return made + [_parameter(name, kind, value) for name, (kind, value) in common(config).items()]


def _parameter(name: str, kind: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _partial_option() -> Any:
    text = "rotary_dim as a share of head_dim"
    return Annotated[str | None, typer.Option(flag_of(PARTIAL), metavar="X", help=text)]


def _argument(field: FieldInfo) -> Any:
    """The field that needs no flag; a config file may give it as well."""
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
    """The flag of a config field: `head_dim` is `--head-dim`."""
    return f"--{name.replace('_', '-')}"


def default_text(default: object) -> str:
    """The end of a help text that tells the default as a person would type it.

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
    """The placeholder of a flag's value, from the type of its field."""
    if get_origin(kind) is Annotated:
        return metavar(get_args(kind)[0])
    if get_origin(kind) in (Union, types.UnionType):
        return metavar(next(part for part in get_args(kind) if part is not type(None)))
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return f"{metavar(get_args(kind)[0])},..."
    return {int: "N", float: "X", str: "NAME", ByteSize: "SIZE"}.get(kind, "VALUE")
