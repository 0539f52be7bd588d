"""The commands of the command line: help in panels, as plain text, and options that may
be given once only.

Typer stores the panel of a command or an option as its `rich_help_panel`. Rich would draw
panels as boxes, which leave too little of 80 columns to the text. Here panels are
sections with a heading.
"""

from collections.abc import Callable, Sequence
from inspect import getdoc
from typing import Any

from typer import Typer
from typer.core import TyperCommand, TyperGroup

from ropelab.runs.errors import InputError
from ropelab.runs.spelling import FieldGroup

# The commands that a newcomer types first. Each answers within seconds.
FIRST = (
    ("ropelab audit config.json", "What do 14 runtimes make of this model's file?"),
    ("ropelab precision --base 1e6", "Is float16 precise enough for positions?"),
    ("ropelab base --context 32768", "Which base does a context of 32k need?"),
)
# Panels of commands, in the order of the help.
MEASURE = "Measure"
CONFIGURATIONS = "Configurations"
CODE = "Code and models"
RESULTS = "Results"
NAMES = "Names that options take"
PANELS = (MEASURE, CONFIGURATIONS, CODE, RESULTS, NAMES)
# Panels of options. Fields of configs have separate panels (FieldGroup).
COMMON = "Most used"
OTHERS = "Options"
OUTPUT = "Output"
RUNNING = "Running"
# The panel of other names: options that only repeat an option under another name. It is
# not shown: help has the other name beside the first one, and a shell completes both.
UNLISTED = "Other names"
# Panels of options, in the order of the help.
OF_OPTIONS = ("Arguments", COMMON, OTHERS, *map(str, FieldGroup), OUTPUT, RUNNING)


def add_command(
    app: Typer,
    name: str,
    command: Callable[..., Any],
    panel: str,
    summary: str = "",
    epilog: str | None = None,
) -> None:
    """Add a command to the application.

    The list of all commands shows `summary`, or the first paragraph of the docstring.
    """
    text = getdoc(command) or ""
    first_paragraph = " ".join(text.partition("\n\n")[0].split())
    app.command(
        name,
        cls=Command,
        short_help=summary or first_paragraph,
        epilog=epilog,
        rich_help_panel=panel,
    )(command)


class Command(TyperCommand):
    """A command whose help lists its options in panels, and whose options are given once,
    unless they take lists.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Typer takes the last of several values, so that the others would be lost without
        # a word.
        if not ctx.resilient_parsing:
            _, _, order = self.make_parser(ctx).parse_args(args=[*args])
            self._refuse_repeated(order)
        return super().parse_args(ctx, args)

    def _refuse_repeated(self, order: Sequence[Any]) -> None:
        """Raise InputError for an option that is given twice. `order` has the parameters
        in the order in which they were typed.
        """
        for parameter in dict.fromkeys(order):
            is_option = parameter.param_type_name == "option"
            if not is_option or parameter.multiple or parameter.count:
                continue

            # A flag without an opposite says the same each time.
            is_same = parameter.is_flag and not parameter.secondary_opts
            if is_same or order.count(parameter) == 1:
                continue
            names = " or ".join((*parameter.opts, *parameter.secondary_opts))
            raise InputError(f"{names} is given twice; give it once")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {name: [] for name in OF_OPTIONS}
        *parameters, help_option = self.get_params(ctx)
        for parameter in parameters:
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            name, text = record
            if parameter.param_type_name == "argument":
                # Typer writes the type behind the name, as in `PATH <path>`. The type is
                # left out.
                panels["Arguments"].append((name.partition(" <")[0], text))
            else:
                panel = getattr(parameter, "rich_help_panel", None) or OTHERS
                if panel != UNLISTED:
                    panels[panel].append((name, text))

        # A command that makes no run has no options about running, and few others. Its
        # options of output are listed among them, without a panel of their own.
        makes_no_run = not panels[RUNNING]
        if makes_no_run:
            panels[OTHERS] += panels.pop(OUTPUT)
        used_panels = {panel: records for panel, records in panels.items() if records}
        *_, last_panel = used_panels
        help_record = help_option.get_help_record(ctx) or ("--help", "")
        used_panels[last_panel].append(help_record)

        for panel, records in used_panels.items():
            with formatter.section(panel):
                formatter.write_dl(records)


class Commands(TyperGroup):
    """The list of all commands: what to type first, then the commands in panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Type first"):
            formatter.write_dl(FIRST)
        self.format_commands(ctx, formatter)
        options = [parameter.get_help_record(ctx) for parameter in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([record for record in options if record is not None])

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        widest = max(map(len, self.commands))
        for panel in PANELS:
            rows = []
            for name, command in self.commands.items():
                if getattr(command, "rich_help_panel", None) == panel:
                    # Names are padded, so that the sentences of all panels begin in the
                    # same column.
                    rows.append((name.ljust(widest), command.get_short_help_str()))
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)
