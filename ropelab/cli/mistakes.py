"""Common mistakes on the command line, and the command that was meant.

Typer reads the words that a user typed. If Typer cannot read them, `explain_mistake`
returns the problem and a command to type instead. mistakes.toml has other words for
commands and flags.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any

from ropelab.runs.errors import InputError
from ropelab.runs.files import read_table_beside
from ropelab.runs.spelling import (
    FORMAT_NAMES,
    quote_words,
    read_format,
    read_number,
    split_list,
)

# The suffixes of model files.
SUFFIXES = (".json", ".gguf")
# The flags that take a model file, the flags that take a length or a base, and the
# flags that take a method. If a value was typed without a flag, it gets the first of the
# flags for such values that the command has.
FLAGS_OF_FILES = ("--model", "--from")
FLAGS_OF_LENGTHS = ("--context", "--test-len", "--length", "--bases")
FLAGS_OF_METHODS = ("--methods", "--method", "--schemes")
# Flags that are dropped if the command does not have them. Such a command is quick
# anyway, or prints everything that it knows.
NEEDLESS = ("--quick", "--verbose", "-v")
# The least similarity at which a known word is suggested for a typed word, from 0 to 1,
# as difflib measures it. Equal words have 1.
LEAST_SIMILARITY = 0.75
# `commands` has, for other words, the command that is meant. `flags` has, for mistyped
# flags, the flags that may be meant, and `words` has more spellings of mistyped flags.
TABLES = read_table_beside(__file__)


def explain_mistake(words: Sequence[str], error: Any) -> str:
    """Return one line about words that Typer cannot read: the problem, and what to
    type.
    """
    problem = _extract_problem(error)
    command = words[0] if words else ""
    if command == "help":
        # `help audit` means `audit --help`.
        meant = ["ropelab", *words[1:2], "--help"]
    elif "No such command" in problem:
        meant = _correct_command(words, error)
    else:
        meant = _correct_words(words, problem, error)
    return f"{problem}; type: {quote_words(meant)}"


def _extract_problem(error: Any) -> str:
    """Return the sentence of Typer's error, without Typer's suggestions and with plain
    words for the words of pydantic.
    """
    text = error.format_message().rstrip(".")
    text = re.sub(r" \(Possible options?: .*\)$", "", text)
    text = re.sub(r"\. Did you mean .*\?$", "", text)
    value = re.fullmatch(r"Invalid value for '([^']+)'[^:]*: (Input .*)", text)
    if value is None:
        return text
    # A command without a config needs no pydantic.
    from ropelab.runs.config import translate_message

    flag = value[1].split(" / ")[0]
    return f"{flag} {translate_message(value[2])}"


def _correct_command(words: Sequence[str], error: Any) -> list[str]:
    """Return the words with the command that was meant. If that is unknown, return the
    command that lists all commands.
    """
    typed = words[0]
    names = list(getattr(error.ctx.command, "commands", ()))
    other_word = TABLES["commands"].get(typed.lower())
    similar = get_close_matches(typed.lower(), names, n=1, cutoff=LEAST_SIMILARITY)
    longer = [name for name in names if len(typed) > 2 and name.startswith(typed)]

    for name in (other_word, *longer, *similar):
        if name in names:
            return ["ropelab", name, *words[1:]]
    return ["ropelab", "--help"]


def _correct_words(words: Sequence[str], problem: str, error: Any) -> list[str]:
    """Return the words with the flags that were meant. If these are unknown, return the
    command that prints the help of the command.

    Some commands have repairs of their own, which are tried first.
    """
    command = words[0] if words else ""
    arguments = list(words[1:])
    options = _list_options(error)
    unknown = getattr(error, "option_name", "") if "No such option" in problem else ""

    if command == "audit":
        meant = _correct_audit(arguments)
    elif command == "emit":
        meant = _correct_emit(arguments, options)
    elif command == "vectors":
        meant = _correct_vectors(arguments, options)
    elif unknown:
        meant = _replace_flags(arguments, options)
    elif "unexpected extra argument" in problem:
        meant = _name_values(arguments, problem, options)
        file = _find_first(arguments, _is_model_file)
        if not meant and file:
            return ["ropelab", "audit", file]
    elif command == "compare" and arguments:
        meant = _add_second_run(arguments)
    else:
        meant = []

    # If the words did not change, or if a flag is unknown still, they would fail again. An
    # empty list means that no repair was found, unless a needless flag was the only word
    # and was dropped.
    is_changed = meant != arguments
    is_repaired = bool(meant) or unknown in NEEDLESS
    if is_changed and is_repaired and not _find_unknown(meant, options):
        return ["ropelab", command, *meant]
    if not command or command.startswith("-"):
        return ["ropelab", "--help"]
    return ["ropelab", command, "--help"]


def _list_options(error: Any) -> list[str]:
    """Return the flags of the command at which an error arose, long and short."""
    context = getattr(error, "ctx", None)
    if context is None:
        return []
    options: list[str] = []
    for parameter in context.command.params:
        for flag in (*parameter.opts, *parameter.secondary_opts):
            if flag.startswith("-"):
                options.append(flag)
    return options


def _find_unknown(arguments: Sequence[str], options: Sequence[str]) -> str:
    """Return the first flag that is none of the options; empty if all are options."""
    for word_before, word in pairwise(["", *arguments]):
        # What follows `>` is the shell's, and the value of --flags has flags of a server.
        if word == ">":
            return ""
        if word_before != "--flags" and _is_flag(word):
            flag = word.partition("=")[0]
            if flag not in options:
                return flag
    return ""


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not _is_number(word)


def _replace_flags(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words with each unknown flag replaced by the flag that was meant.

    A flag whose meaning is not known stays as it is.
    """
    meant = []
    flag = ""
    for word, next_word in pairwise([*arguments, ""]):
        name, equals, value = word.partition("=")
        if not _is_flag(word):
            meant.append(_write_format(flag, word))
            continue

        flag = name
        if name not in options:
            flag = find_meant_flag(name, options)
            if not flag and name in NEEDLESS:
                continue
            # A flag for one seed takes no list of them.
            is_list = "," in (value if equals else next_word)
            if not flag or (flag == "--seed" and is_list):
                flag = name
        meant.append(f"{flag}{equals}{_write_format(flag, value)}")
    return meant


def _write_format(flag: str, value: str) -> str:
    """Return the value of a flag; that of --formats in full, since it may be typed under a
    short name (bf16).
    """
    if flag == "--formats" and value.lower() in FORMAT_NAMES:
        return str(read_format(value))
    return value


def find_meant_flag(typed: str, options: Sequence[str]) -> str:
    """Return the one of the options that a mistyped flag means; empty if it means none
    of them.

    >>> find_meant_flag("--max-len", ["--max-minutes", "--train-len", "--test-len"])
    '--test-len'
    >>> find_meant_flag("--bas", ["--base", "--cast"]), find_meant_flag("--lr", ["--arms"])
    ('--base', '')
    """
    typed_flag = f"--{_bare(typed)}"
    if typed_flag in options:
        return typed_flag

    is_known = False
    for name, flags in TABLES["flags"].items():
        if _is_word_for(name, typed):
            is_known = True
            for flag in flags:
                if f"--{flag}" in options:
                    return f"--{flag}"
    # A known word that the command has no flag for means none that is spelt like it.
    if is_known:
        return ""

    is_long = len(typed_flag) > len("--ab")
    longer = [flag for flag in options if is_long and flag.startswith(typed_flag)]
    similar = get_close_matches(typed_flag, options, n=1, cutoff=LEAST_SIMILARITY)
    candidates = [*longer, *similar]
    return candidates[0] if candidates else ""


def _bare(flag: str) -> str:
    """Return the word of a flag: `max-len` of `--Max_Len`."""
    return flag.lstrip("-").lower().replace("_", "-")


def _is_word_for(name: str, typed: str) -> bool:
    """Return True if a typed flag is a flag of the tables (`name`), or a word for it."""
    return _bare(typed) in (name, *TABLES["words"].get(name, ()))


def _name_values(
    arguments: list[str], problem: str, options: Sequence[str]
) -> list[str]:
    """Return the words with a flag before each value that was typed without a flag.

    The list is empty if the flag of some value is unknown.
    """
    # The problem that Typer reports has the values without a flag in brackets.
    values_without_flag = re.sub(r"^.*\((.*)\)$", r"\1", problem).split()
    meant = []
    for word in arguments:
        if word not in values_without_flag:
            meant.append(word)
            continue

        values_without_flag.remove(word)
        flag = _find_flag(word, options)
        if not flag:
            return []
        meant += [flag, word]
    return meant


def _find_flag(value: str, options: Sequence[str]) -> str:
    """Return the flag that a value belongs to; empty if the flag is unknown."""
    # Only here, after a mistake, are the names of models and methods needed.
    from ropelab.math import methods
    from ropelab.math.models import is_known

    # The first value of a list shows what the list has. A text of nothing but commas has
    # no values.
    values = split_list(value)
    first_value = values[0] if values else value
    name = methods.resolve_alias(first_value.partition("(")[0])
    flags: Sequence[str] = ()
    if value.endswith(".toml"):
        flags = ("--config",)
    elif _is_model_file(value) or is_known(value):
        flags = FLAGS_OF_FILES
    elif value.lower() in (*FORMAT_NAMES, *FORMAT_NAMES.values()):
        flags = ("--formats", "--dtype")
    elif name in methods.FREQUENCY_METHODS or name in methods.MODEL_METHODS:
        flags = FLAGS_OF_METHODS
    elif _is_number(value):
        flags = FLAGS_OF_LENGTHS
    elif value.endswith(".html"):
        flags = ("--output",)
    elif name.isidentifier():
        flags = ("--encodings",)
    # The first of these flags that the command has is returned.
    return _find_first(flags, options.__contains__)


def _is_number(text: str) -> bool:
    try:
        read_number(text)
    except ValueError:
        return False
    return True


def _is_model_file(word: str) -> bool:
    return word.endswith(SUFFIXES) or Path(word, "config.json").is_file()


def _correct_audit(arguments: Sequence[str]) -> list[str]:
    """Return the words of audit with flags of a server in quotes, after --flags.

    audit prints to stdout. A flag for an output file becomes `--json > FILE`.
    """
    # The readers of configurations are slow to import, and only needed here.
    from ropelab.readers.flags import take_known

    for flag in ("-o", "--out", "--output"):
        if flag in arguments[:-1]:
            other_words, file = _take_value(arguments, flag)
            return [*other_words, "--json", ">", file]
    server_flags, meant = take_known(arguments)
    words_of_flags: list[str] = []
    for flag, value in server_flags:
        words_of_flags.append(flag)
        if value:
            words_of_flags.append(value)
    if words_of_flags:
        return [*meant, "--flags", shlex.join(words_of_flags)]
    return meant


def _correct_emit(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words of emit with a file after --from, and a length after --context.

    emit prints to stdout. A flag for an output file becomes `> FILE`. A factor becomes
    the trained length times the factor.
    """
    words = _split_values(arguments)
    for flag in ("-o", "--out", "--output"):
        if flag in words[:-1]:
            other_words, file = _take_value(words, flag)
            return [*_correct_emit(other_words, options), ">", file]

    factor = ""
    for word in words[:-1]:
        if _is_flag(word) and _is_word_for("factor", word):
            words, factor = _take_value(words, word)
            break

    words = ["--from" if word == "--config" else word for word in words]
    words = _replace_flags(words, options)
    meant = _place_file(words, "--from", _find_first(words, _is_named_file))

    context = "128k"
    loose_number = _find_loose_number(meant)
    if loose_number and not _has_flag(meant, "--context"):
        meant.remove(loose_number)
        context = loose_number
    if factor:
        if not _has_flag(meant, "--from", "--model"):
            meant += ["--from", "config.json"]
        context = _stretch_length(meant, factor)
    if meant and not _has_flag(meant, "--context"):
        meant += ["--context", context]
    return meant


def _split_values(arguments: Sequence[str]) -> list[str]:
    """Return the words with `--flag=value` as two words."""
    words = []
    for word in arguments:
        flag, equals, value = word.partition("=")
        if equals and _is_flag(word):
            words += [flag, value]
        else:
            words.append(word)
    return words


def _take_value(words: Sequence[str], flag: str) -> tuple[list[str], str]:
    """Return the words without a flag and its value, and the value."""
    index = words.index(flag)
    return [*words[:index], *words[index + 2 :]], words[index + 1]


def _find_loose_number(words: Sequence[str]) -> str:
    """Return the first number that does not follow a flag; empty if there is none."""
    for word_before, word in pairwise(["", *words]):
        if _is_number(word) and not word_before.startswith("-"):
            return word
    return ""


def _find_first(words: Sequence[str], test: Callable[[str], bool]) -> str:
    """Return the first word that passes a test; empty if no word does."""
    return next(filter(test, words), "")


def _has_flag(words: Sequence[str], *flags: str) -> bool:
    return any(word.startswith(flags) for word in words)


def _place_file(words: Sequence[str], flag: str, file: str) -> list[str]:
    """Return the words with a file moved behind its flag. They stay as they are if the
    file is empty, or the flag was typed.
    """
    meant = list(words)
    if not file or flag in meant:
        return meant
    meant.remove(file)
    return [flag, file, *meant]


def _is_named_file(word: str) -> bool:
    if word.startswith("-"):
        return False
    return word.endswith(SUFFIXES) or Path(word).exists()


def _stretch_length(words: Sequence[str], factor: str) -> str:
    """Return the trained length of a model times a factor; 128k if no model or no factor
    can be read.

    One of the words is the name of the model or its file.
    """
    from ropelab.math.models import find_model, is_known
    from ropelab.readers.model_file import read_model

    known = _find_first(words, is_known)
    model = find_model(known) if known else None
    file = _find_first(words, _is_named_file)
    if model is None and file:
        with suppress(InputError):
            model = read_model(file)
    if model is None or not _is_number(factor):
        return "128k"
    # The type of the result of `read_number` is unknown, but `float` reads its text.
    factor_value = float(str(read_number(factor)))
    return str(round(factor_value * model.trained_len))


# Flags of other commands, each with the flag that the command vectors has instead.
FLAGS_OF_VECTORS = {"-o": "--out", "--output": "--out", "--model": "--config"}


def _correct_vectors(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the words of vectors with flags that this command has; empty if no word is
    a model file.
    """
    file = _find_first(arguments, _is_model_file)
    if not file:
        return []
    words = _split_values(arguments)
    # A known model that is named beside a file is left out, since vectors reads files only.
    if "--config" in words and "--model" in words[:-1]:
        words, _ = _take_value(words, "--model")
    words = [FLAGS_OF_VECTORS.get(word, word) for word in words]
    words = _replace_flags(words, options)
    meant = _place_file(words, "--config", file)
    if "--out" not in meant:
        meant += ["--out", "vectors"]
    return meant


def _add_second_run(arguments: Sequence[str]) -> list[str]:
    """Return the run that was given, and another run from the same folder."""
    first = Path(arguments[0])
    for manifest in sorted(first.parent.glob("*/manifest.json")):
        if manifest.parent != first:
            return [*arguments, str(manifest.parent)]
    return [*arguments, "ANOTHER_RUN"]
