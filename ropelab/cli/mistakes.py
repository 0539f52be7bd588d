"""Common mistakes on the command line, and the command that was meant.

Typer reads the words that a user typed. If it cannot, `explain_mistake` returns its
problem and a command to type instead. mistakes.toml has other words for commands and flags.
"""

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
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

SUFFIXES = (".json", ".gguf")
# The flags that take a model file, the flags that take a length or a base, and the
# flags that take a method. A value that was typed without a flag gets the first of
# these flags that the command has.
FLAGS_OF_FILES = ("--model", "--from")
FLAGS_OF_LENGTHS = ("--context", "--test-len", "--length", "--bases")
FLAGS_OF_METHODS = ("--methods", "--method", "--schemes")
# Flags that are dropped if the command has none like them. Such a command is quick
# anyway, or says all that it knows.
NEEDLESS = ("--quick", "--verbose", "-v")
# How similar a known word is to a typed one, at least; 1 is the same word.
CUTOFF = 0.75
# `commands` has the command that another word means, `flags` has the flags that a
# mistyped flag may mean, and `words` has more spellings of mistyped flags.
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
    """Return the sentence of Typer's error without its guesses and pydantic's words."""
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
    """Return the words with the command that was meant, or the command that lists all."""
    typed = words[0]
    names = list(getattr(error.ctx.command, "commands", ()))
    other_word = TABLES["commands"].get(typed.lower())
    similar = get_close_matches(typed.lower(), names, n=1, cutoff=CUTOFF)
    longer = [name for name in names if len(typed) > 2 and name.startswith(typed)]

    for name in (other_word, *longer, *similar):
        if name in names:
            return ["ropelab", name, *words[1:]]
    return ["ropelab", "--help"]


def _correct_words(words: Sequence[str], problem: str, error: Any) -> list[str]:
    """Return the words with the flags that were meant, or the help of the command.

    Some commands have special repairs, which come first.
    """
    command = words[0] if words else ""
    rest = list(words[1:])
    options = _list_options(error)
    unknown = getattr(error, "option_name", "") if "No such option" in problem else ""

    if command == "audit":
        meant = _correct_audit(rest)
    elif command == "emit":
        meant = _correct_emit(rest)
    elif command == "vectors":
        meant = _correct_vectors(rest)
    elif unknown:
        meant = _replace_flag(rest, unknown, options)
    elif "unexpected extra argument" in problem:
        meant = _name_values(rest, problem, options)
        file = _find_first(rest, _is_model_file)
        if not meant and file:
            return ["ropelab", "audit", file]
    elif command == "compare" and rest:
        meant = _add_second_run(rest)
    else:
        meant = []

    # Words that did not change would fail again. An empty list means that no repair was
    # found, unless a needless flag was the only word and was dropped.
    is_changed = meant != rest
    is_repaired = bool(meant) or unknown in NEEDLESS
    if is_changed and is_repaired:
        return ["ropelab", command, *meant]
    if not command or command.startswith("-"):
        return ["ropelab", "--help"]
    return ["ropelab", command, "--help"]


def _list_options(error: Any) -> list[str]:
    """Return the long flags of the command at which an error arose."""
    context = getattr(error, "ctx", None)
    if context is None:
        return []
    options: list[str] = []
    for parameter in context.command.params:
        options += [flag for flag in parameter.opts if flag.startswith("--")]
    return options


def _replace_flag(rest: list[str], typed: str, options: Sequence[str]) -> list[str]:
    """Return the words with the flag that was meant in the place of an unknown one."""
    flag = find_meant_flag(typed, options)
    if not flag:
        if typed in NEEDLESS:
            return [word for word in rest if word != typed]
        return rest

    meant = []
    for word in rest:
        name, equals, value = word.partition("=")
        if name == typed:
            meant.append(f"{flag}{equals}{value}")
        elif flag == "--formats" and word.lower() in FORMAT_NAMES:
            # The flag was typed by another name, and its value may be short: bf16.
            meant.append(str(read_format(word)))
        else:
            meant.append(word)
    return meant


def find_meant_flag(typed: str, options: Sequence[str]) -> str:
    """Return the flag among the options that a mistyped flag means; empty if it means
    none.

    >>> find_meant_flag("--max-len", ["--max-minutes", "--train-len", "--test-len"])
    '--test-len'
    >>> find_meant_flag("--bas", ["--base", "--cast"]), find_meant_flag("--lr", ["--arms"])
    ('--base', '')
    """
    word = typed.lstrip("-").lower().replace("_", "-")
    plain = f"--{word}"
    if plain in options:
        return plain

    for name, flags in TABLES["flags"].items():
        if word == name or word in TABLES["words"].get(name, ()):
            for flag in flags:
                if f"--{flag}" in options:
                    return f"--{flag}"

    longer = [flag for flag in options if len(word) > 2 and flag.startswith(plain)]
    similar = get_close_matches(plain, options, n=1, cutoff=CUTOFF)
    candidates = [*longer, *similar]
    return candidates[0] if candidates else ""


def _name_values(rest: list[str], problem: str, options: Sequence[str]) -> list[str]:
    """Return the words with a flag before each value that was typed without one.

    The list is empty if the flag of some value is unknown.
    """
    # Typer's problem has the values without a flag in brackets.
    extra = re.sub(r"^.*\((.*)\)$", r"\1", problem).split()
    meant = []
    for word in rest:
        if word not in extra:
            meant.append(word)
            continue

        extra.remove(word)
        flag = _find_flag(word, options)
        if not flag:
            return []
        meant += [flag, word]
    return meant


def _find_flag(value: str, options: Sequence[str]) -> str:
    """Return the flag that a value belongs to, empty if that is unknown."""
    # The names of models and methods are only needed here, after a mistake.
    from ropelab.math import methods
    from ropelab.math.models import is_known

    # The first part of a list shows the kind of the list. A text of nothing but commas
    # has no parts.
    parts = split_list(value)
    first = parts[0] if parts else value
    name = methods.resolve_alias(first.partition("(")[0])
    flags: Sequence[str] = ()
    if value.endswith(".toml"):
        flags = ("--config",)
    elif _is_model_file(value) or is_known(value):
        flags = FLAGS_OF_FILES
    elif value.lower() in (*FORMAT_NAMES, *FORMAT_NAMES.values()):
        flags = ("--formats", "--dtype")
    elif name in methods.FREQUENCIES or name in methods.ON_MODELS:
        flags = FLAGS_OF_METHODS
    elif _is_number(value):
        flags = FLAGS_OF_LENGTHS
    elif value.endswith(".html"):
        flags = ("--output",)
    elif name.isidentifier():
        flags = ("--encodings",)
    # The first of these flags that the command has.
    return _find_first(flags, options.__contains__)


def _is_number(text: str) -> bool:
    try:
        read_number(text)
    except ValueError:
        return False
    return True


def _is_model_file(word: str) -> bool:
    return word.endswith(SUFFIXES) or Path(word, "config.json").is_file()


def _correct_audit(rest: Sequence[str]) -> list[str]:
    """Return the words of audit with flags of a server in quotes, after --flags.

    audit prints to stdout. A flag for an output file becomes `--json > FILE`.
    """
    # The readers of configurations are slow to import, and only needed here.
    from ropelab.readers.flags import take_known

    for flag in ("-o", "--out", "--output"):
        if flag in rest[:-1]:
            place = rest.index(flag)
            others = [*rest[:place], *rest[place + 2 :]]
            return [*others, "--json", ">", rest[place + 1]]
    settings, meant = take_known(rest)
    flags: list[str] = []
    for flag, value in settings:
        flags.append(flag)
        if value:
            flags.append(value)
    if flags:
        return [*meant, "--flags", shlex.join(flags)]
    return meant


def _correct_emit(rest: Sequence[str]) -> list[str]:
    """Return the words of emit with a file after --from, and a length after --context.

    emit prints to stdout. A flag for an output file becomes `> FILE`. A factor becomes
    the length that it gives.
    """
    for flag in ("-o", "--out", "--output"):
        if flag in rest[:-1]:
            place = rest.index(flag)
            others = [*rest[:place], *rest[place + 2 :]]
            return [*_correct_emit(others), ">", rest[place + 1]]
    longest = r"^--(max-model-len|max-position-embeddings|length|test-len)"
    words = [re.sub(longest, "--context", word) for word in rest]
    meant = _place_file(words, "--from", _find_first(words, _is_named_file))

    context = "128k"
    loose = _find_loose_number(meant)
    if loose and not _has_flag(meant, "--context"):
        meant.remove(loose)
        context = loose
    if "--factor" in meant[:-1]:
        place = meant.index("--factor")
        factor = meant[place + 1]
        meant = [*meant[:place], *meant[place + 2 :]]
        if not _has_flag(meant, "--from", "--model"):
            meant += ["--from", "config.json"]
        context = _stretch_length(meant, factor)
    if meant and not _has_flag(meant, "--context"):
        meant += ["--context", context]
    return meant


def _find_loose_number(words: Sequence[str]) -> str:
    """Return the first number that follows no flag; empty if there is none."""
    # Each word is paired with the word before it.
    for before, word in zip(["", *words], words, strict=False):
        if _is_number(word) and not before.startswith("-"):
            return word
    return ""


def _find_first(words: Sequence[str], test: Callable[[str], bool]) -> str:
    """Return the first word that passes a test; empty if no word does."""
    return next(filter(test, words), "")


def _has_flag(words: Sequence[str], *flags: str) -> bool:
    return any(word.startswith(flags) for word in words)


def _place_file(words: Sequence[str], flag: str, file: str) -> list[str]:
    """Return the words with a file, if there is one, after its flag."""
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
    """Return the trained length of a model times a factor; 128k if no model is known.

    The model is named among the words, or is a file among them.
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


# Flags of other commands, with the flags that the command vectors has instead.
FLAGS_OF_VECTORS = {"-o": "--out", "--output": "--out", "--model": "--config"}


def _correct_vectors(rest: Sequence[str]) -> list[str]:
    """Return the words of vectors with its own flags; empty without a model file."""
    file = _find_first(rest, _is_model_file)
    if not file:
        return []
    words = [FLAGS_OF_VECTORS.get(word, word) for word in rest]
    meant = _place_file(words, "--config", file)
    if "--out" not in meant:
        meant += ["--out", "vectors"]
    return meant


def _add_second_run(rest: Sequence[str]) -> list[str]:
    """Return the run that was given, and another run from the same folder."""
    first = Path(rest[0])
    for manifest in sorted(first.parent.glob("*/manifest.json")):
        if manifest.parent != first:
            return [*rest, str(manifest.parent)]
    return [*rest, "ANOTHER_RUN"]
