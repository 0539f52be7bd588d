"""The flags of the command line: flags that several commands share, and flags that are
made from the fields of a config.

The values of fields stay texts here. The config reads and checks them, and its errors are
the same as for a config file.
"""

import types
import typing
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from typer import Argument, Option

from ropelab.cli import panels
from ropelab.runs.errors import InputError
from ropelab.runs.spelling import ROTARY_SHARE, list_spellings, make_flag, write_plainly

# A command without a config needs no pydantic.
if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from ropelab.runs.config import Config


def _make_flag(
    default: Any, metavar: str | None, text: str, *names: str, **more: Any
) -> Any:
    """Return a field of `Options` with what Typer is told about its option.

    Without `names` the option is named after the field.
    """
    metadata = {"names": names, "metavar": metavar, "help": text, **more}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of the commands that make runs: a field is an option with its
    default.
    """

    config: Path | None = _make_flag(None, "FILE", "TOML file; flags override it.")  # noqa: RUF009
    results: Path = _make_flag(Path("results"), "DIR", "Folder in which runs are kept.")  # noqa: RUF009
    force: bool = _make_flag(False, None, "Run again what is already there.")
    no_limits: bool = _make_flag(
        False, None, "Allow runs estimated above one day or above free memory."
    )
    quick: bool = _make_flag(
        False, None, "Less of everything, under a minute; given flags stay."
    )
    max_minutes: float | None = _make_flag(
        None,
        "M",
        "Refuse work estimated longer, and stop after M minutes; finished parts are"
        " kept.",
        min=0.01,
    )
    redraw: bool = _make_flag(False, None, "Draw the figures of a stored run again.")
    format: str = _make_flag("png", "png,...", "Formats of the figures: png, pdf, svg.")
    style: str = _make_flag(
        "screen", "screen|paper", "Style of the figures; paper: 3.3 in, 8 pt."
    )
    figures: bool | None = _make_flag(
        None,
        None,
        "Draw figures  [default: yes, but not for --json]",
        "--figures/--no-figures",
    )
    quiet: bool = _make_flag(False, None, "No progress, no table.", "--quiet", "-q")
    json: bool = _make_flag(False, None, "One JSON document on stdout, nothing else.")
    workers: int | None = _make_flag(
        None,
        "N",
        "Processes that train and measure side by side  [default: as many as there are"
        " cores, and room in memory]",
        min=1,
    )
    engine: str = _make_flag(
        "local", "local|ray", "What runs them: this machine, or a Ray cluster."
    )
    address: str | None = _make_flag(
        None,
        "HOST:PORT",
        "The Ray cluster, or auto  [default: RAY_ADDRESS, else one of this machine"
        " alone]",
    )


# The options that say what a run shows and which files it leaves. All other options say
# how the run is made.
OF_OUTPUT = {"results", "redraw", "format", "style", "figures", "quiet", "json"}


def make_option(name: str) -> Any:
    """Return a field of Options as an option for Typer."""
    about = dict(Options.__dataclass_fields__[name].metadata)
    names = about.pop("names") or (make_flag(name),)
    if name == "quick":
        panel = panels.COMMON
    elif name in OF_OUTPUT:
        panel = panels.OUTPUT
    else:
        panel = panels.RUNNING
    return Option(*names, rich_help_panel=panel, **about)


Results = Annotated[Path, make_option("results")]
Json = Annotated[bool, make_option("json")]
# The options that only the command of an experiment has, which makes a single run.
OF_ONE_RUN = {"config", "figures", "json", "quick"}
# The options of experiments that compute with models, which takes long.
OF_MODELS = {"workers", "engine", "address", "quick", "max_minutes"}

# Other spellings of a flag.
ALSO = {"--methods": ("--method",)}
# The value of one field may be typed without its flag. Its argument has the name of the
# field, and its flag this prefix before it.
BARE = "flag_"


def add_shared_options(
    command: Callable[..., None], without: Set[str], own: Sequence[Parameter] = ()
) -> Callable[..., None]:
    """Return a command as Typer takes it, with the shared options after the command's
    own parameters.

    The command's own parameters are `own`, or else the parameters of its signature.
    Typer gives each option as an argument, and the command gets all of them as one
    object, `options`. The options named in `without` are left out.
    """
    if not own:
        own = [
            _make_parameter(parameter.name, parameter.annotation, parameter.default)
            for parameter in signature(command).parameters.values()
            if parameter.name != "options"
        ]
    kinds = typing.get_type_hints(Options)
    shared = []
    for option in fields(Options):
        if option.name not in without:
            kind: Any = Annotated[kinds[option.name], make_option(option.name)]
            shared.append(_make_parameter(option.name, kind, option.default))

    def call_command(**given: Any) -> None:
        values = {parameter.name: given.pop(parameter.name) for parameter in shared}
        command(**given, options=Options(**values))

    # Typer reads the parameters from these attributes.
    parameters = [*own, *shared]
    annotations = {parameter.name: parameter.annotation for parameter in parameters}
    call_command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call_command.__annotations__ = annotations
    call_command.__doc__ = command.__doc__
    return call_command


def list_field_parameters(config: "type[Config]") -> list[Parameter]:
    """Return the parameters that set the fields of a config, the commonest first.

    A config may have a field that is typed as an argument, without a flag (`argument`),
    and one that may be typed in both ways (`bare`).
    """
    # A command without a config needs no pydantic.
    from ropelab.runs.config import group_of

    others = list_spellings(config.model_fields)
    rest = [name for name in config.model_fields if name not in config.common_options]
    parameters = []
    for name in (*config.common_options, *rest):
        info = config.model_fields[name]
        if name in (config.argument, config.bare):
            # The argument may be left out, since a config file may have the field.
            word = config.argument_word
            argument = Argument(metavar=word, help=info.description)
            parameters.append(_make_parameter(name, Annotated[str | None, argument]))
        if name == config.argument:
            continue

        panel = panels.COMMON if name in config.common_options else str(group_of(info))
        flag = make_flag(name)
        other = others.get(name)
        also = f"  [also: {make_flag(other)}]" if other else ""
        parameter = BARE + name if name == config.bare else name
        help_text = _write_help(info) + also
        kind = _make_field_option(flag, info, help=help_text, rich_help_panel=panel)
        parameters.append(_make_parameter(parameter, kind))
        if other:
            # The other spelling is a separate flag, so that an error is raised if both
            # are typed. With two names of one flag the last would silently win.
            kind = _make_field_option(
                make_flag(other), info, rich_help_panel=panels.UNLISTED
            )
            parameters.append(_make_parameter(other, kind))

    if "rotary_dim" in config.model_fields:
        share = Option(
            make_flag(ROTARY_SHARE),
            metavar="X",
            help="rotary_dim as a share of head_dim",
            rich_help_panel=str(group_of(config.model_fields["rotary_dim"])),
        )
        parameters.append(_make_parameter(ROTARY_SHARE, Annotated[str | None, share]))
    return parameters


def read_fields(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields that flags and arguments set, as texts."""
    fields: dict[str, str] = {}
    for parameter, value in given.items():
        if value is None:
            continue
        name = parameter.removeprefix(BARE)
        if name in fields:
            raise InputError(f"{make_flag(name)} is given twice; give it once")
        # A flag that was typed several times has a list of values.
        fields[name] = ", ".join(value) if isinstance(value, list) else value
    return fields


def _make_parameter(name: str, kind: Any, default: Any = None) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _write_help(info: "FieldInfo") -> str:
    default = None if info.is_required() else info.default
    return f"{info.description}{write_default(default)}"


def _make_field_option(flag: str, info: "FieldInfo", **more: Any) -> Any:
    """Return a field as an option for Typer, with `more` about its help."""
    if info.annotation is bool:
        return Annotated[bool | None, Option(f"{flag}/--no-{flag[2:]}", **more)]
    value = choose_metavar(info.annotation)
    option = Option(flag, *ALSO.get(flag, ()), metavar=value, **more)
    if value.endswith(",..."):
        return Annotated[list[str] | None, option]
    return Annotated[str | None, option]


def write_default(default: object) -> str:
    """Return the end of a help text: the default.

    >>> write_default(1e6), write_default(("pi", "ntk")), write_default("")
    ('  [default: 1e6]', '  [default: pi, ntk]', '')
    """
    if isinstance(default, tuple):
        # The help may break a line at the blanks.
        text = ", ".join(map(str, default))
    elif isinstance(default, bool):
        text = "yes" if default else "no"
    elif default is None:
        text = ""
    else:
        text = write_plainly(default)
    return f"  [default: {text}]" if text else ""


def choose_metavar(kind: Any) -> str:
    """Return the placeholder of a flag's value, from the type of its field."""
    origin = typing.get_origin(kind)
    parts = typing.get_args(kind)
    if origin is Annotated:
        return choose_metavar(parts[0])
    if origin in (Union, types.UnionType):
        first_kind, *_ = [part for part in parts if part is not type(None)]
        return choose_metavar(first_kind)
    if origin is Literal:
        return "|".join(map(str, parts))
    if origin is tuple:
        return f"{choose_metavar(parts[0])},..."
    names = {"int": "N", "float": "X", "str": "NAME", "ByteSize": "SIZE"}
    return names.get(getattr(kind, "__name__", ""), "VALUE")
