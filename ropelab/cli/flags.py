"""The flags of the command line: flags that several commands share, and flags that are
made from the fields of a config.

The values of fields stay texts here. The config reads and checks them, so a wrong value
gives the same error as in a config file.
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
    """Return a field of `Options`, with the facts about its option that Typer needs.

    `names` are the names of the option. If there are none, it is named after the field.
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


# The options that say what a command prints and which files it writes. All other options
# say how runs are made.
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
# The options that only experiments which compute with models have, since they take long.
OF_MODELS = {"workers", "engine", "address", "quick", "max_minutes"}

# Other spellings of a flag, by the flag.
OTHER_SPELLINGS = {"--methods": ("--method",)}
# One field of a config (`Config.bare`) may be typed both as an argument and with its flag.
# The parameter of the argument has the name of the field. The parameter of the flag has
# this prefix before the name.
PREFIX_OF_FLAG = "flag_"


def add_shared_options(
    command: Callable[..., None],
    without: Set[str],
    own_parameters: Sequence[Parameter] = (),
) -> Callable[..., None]:
    """Return a function for Typer that has the command's own parameters, and after them
    the shared options.

    Typer passes each shared option as an argument. The command gets them all as one
    object, `options`.

    Args:
        command: the command.
        without: the names of shared options that are left out.
        own_parameters: the command's own parameters; empty for the parameters of its
            signature.
    """
    if not own_parameters:
        own_parameters = [
            _make_parameter(parameter.name, parameter.annotation, parameter.default)
            for parameter in signature(command).parameters.values()
            if parameter.name != "options"
        ]
    types_of_options = typing.get_type_hints(Options)
    shared_parameters = []
    for option in fields(Options):
        if option.name not in without:
            option_type = types_of_options[option.name]
            annotation: Any = Annotated[option_type, make_option(option.name)]
            parameter = _make_parameter(option.name, annotation, option.default)
            shared_parameters.append(parameter)

    def call_command(**typed_values: Any) -> None:
        values = {}
        for parameter in shared_parameters:
            values[parameter.name] = typed_values.pop(parameter.name)
        command(**typed_values, options=Options(**values))

    # Typer reads the parameters from these attributes.
    parameters = [*own_parameters, *shared_parameters]
    annotations = {parameter.name: parameter.annotation for parameter in parameters}
    call_command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call_command.__annotations__ = annotations
    call_command.__doc__ = command.__doc__
    return call_command


def list_field_parameters(config: "type[Config]") -> list[Parameter]:
    """Return the parameters that set the fields of a config, the commonest first.

    A config may have one field that is typed without a flag (`argument`), and one field
    that may be typed with its flag or without it (`bare`).
    """
    # A command without a config needs no pydantic.
    from ropelab.runs.config import group_of

    other_names = list_spellings(config.model_fields)
    common = config.common_options
    less_common = [name for name in config.model_fields if name not in common]
    parameters = []
    for name in (*common, *less_common):
        info = config.model_fields[name]
        if name in (config.argument, config.bare):
            # The argument may be left out, since a config file may have the field.
            word = config.argument_word
            argument = Argument(metavar=word, help=info.description)
            parameters.append(_make_parameter(name, Annotated[str | None, argument]))
        if name == config.argument:
            continue

        panel = panels.COMMON if name in common else str(group_of(info))
        flag = make_flag(name)
        other_name = other_names.get(name)
        help_text = _write_help(info)
        if other_name:
            help_text += f"  [also: {make_flag(other_name)}]"
        parameter_name = PREFIX_OF_FLAG + name if name == config.bare else name
        annotation = _make_field_option(
            flag, info, help=help_text, rich_help_panel=panel
        )
        parameters.append(_make_parameter(parameter_name, annotation))
        if other_name:
            # The other name is a separate flag, so that an error is raised if both flags
            # are typed. If one flag had two names, the last value would silently win.
            annotation = _make_field_option(
                make_flag(other_name), info, rich_help_panel=panels.UNLISTED
            )
            parameters.append(_make_parameter(other_name, annotation))

    if "rotary_dim" in config.model_fields:
        share = Option(
            make_flag(ROTARY_SHARE),
            metavar="X",
            help="rotary_dim as a share of head_dim",
            rich_help_panel=str(group_of(config.model_fields["rotary_dim"])),
        )
        parameters.append(_make_parameter(ROTARY_SHARE, Annotated[str | None, share]))
    return parameters


def read_fields(typed_values: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of fields that flags and arguments set, as texts."""
    fields: dict[str, str] = {}
    for parameter, value in typed_values.items():
        if value is None:
            continue
        name = parameter.removeprefix(PREFIX_OF_FLAG)
        if name in fields:
            raise InputError(f"{make_flag(name)} is given twice; give it once")
        # A flag that was typed several times has a list of values.
        fields[name] = ", ".join(value) if isinstance(value, list) else value
    return fields


def _make_parameter(name: str, annotation: Any, default: Any = None) -> Parameter:
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _write_help(info: "FieldInfo") -> str:
    default = None if info.is_required() else info.default
    return f"{info.description}{write_default(default)}"


def _make_field_option(flag: str, info: "FieldInfo", **more: Any) -> Any:
    """Return a field as an option for Typer. `more` are further arguments of `Option`."""
    if info.annotation is bool:
        return Annotated[bool | None, Option(f"{flag}/--no-{flag[2:]}", **more)]
    metavar = choose_metavar(info.annotation)
    spellings = (flag, *OTHER_SPELLINGS.get(flag, ()))
    option = Option(*spellings, metavar=metavar, **more)
    # Lists have such a placeholder.
    if metavar.endswith(",..."):
        return Annotated[list[str] | None, option]
    return Annotated[str | None, option]


def write_default(default: object) -> str:
    """Return the end of a help text, which tells the default; empty without a default.

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


def choose_metavar(annotation: Any) -> str:
    """Return the placeholder of a flag's value, from the type of its field."""
    origin = typing.get_origin(annotation)
    parts = typing.get_args(annotation)
    if origin is Annotated:
        return choose_metavar(parts[0])
    if origin in (Union, types.UnionType):
        first_member, *_ = [part for part in parts if part is not type(None)]
        return choose_metavar(first_member)
    if origin is Literal:
        return "|".join(map(str, parts))
    if origin is tuple:
        return f"{choose_metavar(parts[0])},..."
    names = {"int": "N", "float": "X", "str": "NAME", "ByteSize": "SIZE"}
    return names.get(getattr(annotation, "__name__", ""), "VALUE")
