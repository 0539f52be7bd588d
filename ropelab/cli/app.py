"""The command line: its commands, and `main`, which reads the words that were typed.

An experiment is a command, and its flags are made from the fields of its config. Nothing
slow is imported here: pandas, torch and matplotlib are loaded when a command needs them.
"""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from inspect import getdoc
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer import Argument, Option

import ropelab
from ropelab import experiments
from ropelab.cli import flags, one_model, panels, results
from ropelab.cli.flags import Options
from ropelab.cli.mistakes import explain_mistake
from ropelab.cli.outcome import COMPLETION, nothing_but_documents, run_for_status
from ropelab.experiments import Experiment
from ropelab.runs.errors import InputError, needing_packages
from ropelab.runs.files import check_name

# The commands of ropelab.cli.results, each with its panel in the help.
RESULT_COMMANDS: dict[Callable[..., Any], str] = {
    results.report: panels.RESULTS,
    results.explore: panels.RESULTS,
    results.export: panels.RESULTS,
    results.compare: panels.RESULTS,
    results.methods: panels.NAMES,
    results.models: panels.NAMES,
    results.schema: panels.RESULTS,
}
# The name of the index that `run` writes.
INDEX = "index.md"
# Options whose value may be empty: they are texts, or lists that may have no entry.
MAY_BE_EMPTY = (
    "--title",
    "--flags",
    "--methods",
    "--schemes",
    "--components",
    "--formats",
    "--preset",
    "--cache",
    "--casts",
    "--bands",
    "--axis-lengths",
    "--dropped",
    "--sections",
    "--long-lengths",
    "--channels",
)


def make_application(word: str | None = None) -> typer.Typer:
    """Return the command line.

    If `word` names a command, the command line has only this command. For any other
    word, such as a misspelt name, it has all commands without their flags, so that their
    names can be listed. For None it has all commands with their flags.
    """
    # Many commands take less time than making the flags of all experiments, so only the
    # flags that are needed are made.
    app = typer.Typer(
        name="ropelab",
        cls=panels.Commands,
        help="A laboratory for rotary position embeddings: precision, base, scaling, "
        "extrapolation.",
        invoke_without_command=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Exit status: 0 fine, 1 runtime error, 2 invalid input, 130 interrupted, "
        "143 terminated; 3 findings (audit, emit, check, doctor).",
    )
    app.callback()(_top)
    # `run` makes the runs of several files. It has no options that are only for a single
    # run.
    run_files = flags.add_shared_options(run, without=flags.OF_ONE_RUN)
    panels.add_command(app, "run", run_files, panels.MEASURE)
    one_model.register(app)
    for command, panel in RESULT_COMMANDS.items():
        panels.add_command(app, command.__name__, command, panel)

    run_command, *other_commands = app.registered_commands
    if word in experiments.NAMES:
        app.registered_commands = []
        _add_command(app, experiments.load(word))
        return app
    commands = (run_command, *other_commands)
    matching = [command for command in commands if command.name == word]
    if matching:
        app.registered_commands = matching
        return app

    # The experiments follow `run` in the help.
    app.registered_commands = [run_command]
    for name, about in experiments.read_records().items():
        if word is None:
            _add_command(app, experiments.load(name))
        else:
            panels.add_command(
                app, name, _without_flags, panels.MEASURE, about["question"]
            )
    app.registered_commands += other_commands
    if word is not None:
        for command_info in commands:
            command_info.help = getdoc(command_info.callback)
            command_info.callback = _without_flags
    return app


def _without_flags() -> None:
    """Take the place of a command that is only listed, so that it has no flags."""


def _add_command(app: typer.Typer, experiment: Experiment) -> None:
    """Add the command of an experiment, with a flag for each field of its config."""
    # The config of an experiment that computes with models has their number format.
    has_models = "dtype" in experiment.config.model_fields
    left_out = flags.OF_MODELS
    if has_models:
        left_out = set()

    def command(*, options: Options, **typed_values: Any) -> None:
        from ropelab.cli.runs import run_one

        fields = flags.read_fields(typed_values)
        if not has_models:
            # Arithmetic is computed by this process itself.
            options = replace(options, workers=1)
        run_one(experiment, fields, options)

    parameters = flags.list_field_parameters(experiment.config)
    typer_command = flags.add_shared_options(command, left_out, parameters)
    help_text = f"{experiment.question}\n\nCannot show: {experiment.cannot_show}"
    typer_command.__doc__ = help_text
    panels.add_command(app, experiment.name, typer_command, panels.MEASURE)


def run(
    paths: Annotated[
        list[Path] | None,
        Argument(
            metavar="PATH",
            help="TOML files, folders of them, or names of those that come with ropelab; without "
            "any these are listed.",
        ),
    ] = None,
    index: Annotated[str, Option(metavar="NAME", help="The index in DIR.")] = INDEX,
    dry_run: Annotated[
        bool, Option("--dry-run", help="List what is to do, and its cost.")
    ] = False,
    shard: Annotated[
        str,
        Option(
            "--shard",
            metavar="I/N",
            help="Compute the I-th of N shares; a run without it then makes the tables.",
        ),
    ] = "",
    explain: Annotated[
        bool, Option("--explain", help="Say what the files ask and set; run nothing.")
    ] = False,
    *,
    options: Options,
) -> None:
    """Run config files and parameter grids, and write an index and a page of all runs.

    A file asks for one run, or for many: [grid] has a list for each of some keys, and
    every combination is a run; each table [[case]] is a run. Such a file ends in one
    table and one figure of all its runs. Finished runs are reused.
    """
    has_options = dry_run or shard or index != INDEX or options != Options()
    if not paths:
        if explain or has_options:
            raise InputError(
                "run needs the names or paths of configs with these options; type"
                " `ropelab run` alone for the list of names, or: ropelab run configs"
            )
        results.list_configs()
        return
    if explain:
        if has_options:
            raise InputError("--explain runs nothing, and takes no other option")
        results.explain_configs(paths)
        return
    from ropelab.cli import runs

    if dry_run:
        runs.list_files(paths, index, shard, options)
    elif shard:
        runs.compute_share(paths, index, shard, options)
    else:
        runs.run_files(paths, index, options)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"ropelab {ropelab.__version__}")
        raise typer.Exit


def _top(
    context: typer.Context,
    version: Annotated[
        bool,
        Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _refuse_empty(word_before: str, word: str) -> None:
    """Raise InputError for an empty word, and for `--flag=` without a value.

    A shell writes an empty word for a variable that is not set. As a path it would mean
    the working folder, and as the value of a flag the default.
    """
    flag, equals, value = word.partition("=")
    has_no_value = word.startswith("--") and equals and not value
    if has_no_value and flag not in MAY_BE_EMPTY:
        raise InputError(f"{flag} is empty; give it a value, or leave it out")
    if word or word_before in MAY_BE_EMPTY:
        return
    if word_before.startswith("--") or word_before == "-o":
        raise InputError(f"{word_before} is empty; give it a value, or leave it out")
    raise InputError(f"the argument after '{word_before}' is empty")


def _refuse_flags_as_values(app: typer.Typer, name: str, words: Sequence[str]) -> None:
    """Raise InputError for an option that would take the next option for its value.

    A shell leaves out a variable that is not set and not quoted. The flag before the
    variable then has no value.
    """
    # Each pair is two neighbouring words that look like options.
    pairs = [
        (first, second)
        for first, second in pairwise(words)
        if first.startswith("-") and second.startswith("--")
    ]
    if not pairs:
        return

    commands = getattr(typer.main.get_command(app), "commands", {})
    if name not in commands:
        return
    known_options = set()
    options_with_value = set()
    for parameter in commands[name].params:
        options = [word for word in parameter.opts if word.startswith("-")]
        known_options.update(options)
        if not getattr(parameter, "is_flag", False):
            options_with_value.update(options)
    for first, second in pairs:
        if first in options_with_value and second in known_options:
            raise InputError(
                f"{first} has no value before {second}; give it one, or leave it out"
            )


def choose_output(words: Sequence[str]) -> AbstractContextManager[None]:
    """Return a context in which stdout is for one document if --json was typed, and
    otherwise a context that changes nothing.
    """
    if "--json" in words:
        return nothing_but_documents()
    return nullcontext()


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: errors are one line on stderr, never a
    traceback.
    """
    words = sys.argv[1:] if arguments is None else arguments

    def command() -> Any:
        for word_before, word in pairwise(("ropelab", *words)):
            check_name(word)
            _refuse_empty(word_before, word)
        # The command is the first word that is not a flag.
        name = next((word for word in words if not word.startswith("-")), "")
        # A shell that completes a word needs all commands with their flags.
        is_completion = COMPLETION in os.environ
        app = make_application(None if is_completion else name)

        _refuse_flags_as_values(app, name, words)
        try:
            with needing_packages(), choose_output(words):
                return app(words, prog_name="ropelab", standalone_mode=False)
        except typer.TyperException as error:
            if error.exit_code != InputError.exit_status:
                raise
            raise InputError(explain_mistake(words, error)) from None

    sys.exit(run_for_status(command))
