"""Common mistakes on the command line, and the command that was meant."""

import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ropelab.runs.errors import InputError
from ropelab.runs.files import table_beside
from ropelab.runs.spelling import (
    FORMAT_NAMES,
    command_line,
    read_format,
    read_number,
    split_list,
)

SUFFIXES = (".json", ".gguf")
# The flags that take a model file, a length or base, and a method. A value without a flag
# is given the first of them that the command has.
FLAGS_OF_FILES = ("--model", "--from")
FLAGS_OF_LENGTHS = ("--context", "--test-len", "--length", "--bases")
FLAGS_OF_METHODS = ("--methods", "--method", "--schemes")
# These flags are dropped where a command has none like them: it is quick as it is, or
# says all that it knows already.
NEEDLESS = ("--quick", "--verbose", "-v")
# Similar words: 1 is the same word.
CUTOFF = 0.75
# `commands` has the command that another word means, `flags` the flags that a typed one
# may mean, and `words` more spellings of the typed ones.
TABLES = table_beside(__file__)


def explain(words: Sequence[str], error: Any) -> str:
    """Return one line about words that Typer cannot read: the problem, and what to
    type.
    """
    problem = _problem_of(error)
    command = words[0] if words else ""
    if command == "help":
        meant = ["ropelab", *words[1:2], "--help"]
    elif "No such command" in problem:
        meant = _with_command(words, error)
    else:
        meant = _correct_words(words, problem, error)
    return f"{problem}; type: {command_line(meant)}"


def _problem_of(error: Any) -> str:
    """Return Typer's sentence without its guesses and without pydantic's words."""
    text = error.format_message().rstrip(".")
    text = re.sub(r" \(Possible options?: .*\)$", "", text)
    text = re.sub(r"\. Did you mean .*\?$", "", text)
    value = re.fullmatch(r"Invalid value for '([^']+)'[^:]*: (Input .*)", text)
    if value is None:
        return text
    # A command without a config needs no pydantic.
    from ropelab.runs.config import plain_words

    flag = value[1].split(" / ")[0]
    return f"{flag} {plain_words(value[2])}"


def _with_command(words: Sequence[str], error: Any) -> list[str]:
    """Return the words with the command that was meant, else the list of all."""
    typed = words[0]
    names = list(getattr(error.ctx.command, "commands", ()))
    named = TABLES["commands"].get(typed.lower())
    near = get_close_matches(typed.lower(), names, n=1, cutoff=CUTOFF)
    start = [name for name in names if len(typed) > 2 and name.startswith(typed)]

    for name in (named, *start, *near):
        if name in names:
            return ["ropelab", name, *words[1:]]
    return ["ropelab", "--help"]


def _correct_words(words: Sequence[str], problem: str, error: Any) -> list[str]:
    """Return the words with the flags that were meant, else the help of the command."""
    command = words[0] if words else ""
    rest = list(words[1:])
    options = _options_of(error)
    unknown = getattr(error, "option_name", "") if "No such option" in problem else ""

    if command == "audit":
        meant = _for_audit(rest)
    elif command == "emit":
        meant = _for_emit(rest)
    elif command == "vectors":
        meant = _for_vectors(rest)
    elif unknown:
        meant = _replace_flag(rest, unknown, options)
    elif "unexpected extra argument" in problem:
        meant = _with_named_values(rest, problem, options)
        file = _first(rest, _is_model_file)
        if not meant and file:
            return ["ropelab", "audit", file]
    elif command == "compare" and rest:
        meant = _with_second_run(rest)
    else:
        meant = []

    # Words that did not change would fail again, and no words say that nothing was found
    # to type. A needless flag that stood alone leaves no words, and is mended by that.
    is_changed = meant != rest
    is_answer = bool(meant) or unknown in NEEDLESS
    if is_changed and is_answer:
        return ["ropelab", command, *meant]
    if not command or command.startswith("-"):
        return ["ropelab", "--help"]
    return ["ropelab", command, "--help"]


def _options_of(error: Any) -> list[str]:
    context = getattr(error, "ctx", None)
    if context is None:
        return []
    options: list[str] = []
    for parameter in context.command.params:
        options += [flag for flag in parameter.opts if flag.startswith("--")]
    return options


def _replace_flag(rest: list[str], typed: str, options: Sequence[str]) -> list[str]:
    """Return the words with another flag in the place of an unknown one."""
    flag = flag_meant(typed, options)
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


def flag_meant(typed: str, options: Sequence[str]) -> str:
    """Return the flag among some that another word means, empty if there is none.

    >>> flag_meant("--max-len", ["--max-minutes", "--train-len", "--test-len"])
    '--test-len'
    >>> flag_meant("--bas", ["--base", "--cast"]), flag_meant("--lr", ["--arms"])
    ('--base', '')
    """
    word = typed.lstrip("-").lower().replace("_", "-")
    same = f"--{word}"
    if same in options:
        return same

    for name, flags in TABLES["flags"].items():
        if word == name or word in TABLES["words"].get(name, ()):
            for flag in flags:
                if f"--{flag}" in options:
                    return f"--{flag}"

    longer = [flag for flag in options if len(word) > 2 and flag.startswith(same)]
    near = get_close_matches(same, options, n=1, cutoff=CUTOFF)
    similar = [*longer, *near]
    return similar[0] if similar else ""


def _with_named_values(
    rest: list[str], problem: str, options: Sequence[str]
) -> list[str]:
    """Return the words with a flag before each value that stands there without one."""
    extra = re.sub(r"^.*\((.*)\)$", r"\1", problem).split()
    meant = []
    for word in rest:
        if word not in extra:
            meant.append(word)
            continue

        extra.remove(word)
        flag = _flag_for(word, options)
        if not flag:
            return []
        meant += [flag, word]
    return meant


def _flag_for(value: str, options: Sequence[str]) -> str:
    """Return the flag that a value belongs to, empty if that is unknown."""
    # The names of models and methods are needed for a mistake alone.
    from ropelab.math import methods
    from ropelab.math.models import is_known

    # The first name of a list tells what all of it is; commas alone have no parts.
    parts = split_list(value)
    first = parts[0] if parts else value
    name = methods.canonical(first.partition("(")[0])
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
    return _first(flags, options.__contains__)


def _is_number(text: str) -> bool:
    try:
        read_number(text)
    except ValueError:
        return False
    return True


def _is_model_file(word: str) -> bool:
    return word.endswith(SUFFIXES) or Path(word, "config.json").is_file()


def _for_audit(rest: Sequence[str]) -> list[str]:
    """Return the words of audit with the flags of a server in quotes."""
    # The readers of configurations are not needed to start.
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


def _for_emit(rest: Sequence[str]) -> list[str]:
    """Return the words of emit: a file after its flag, and the length by our name.

    What it prints goes into a file by a redirection, not by a flag.
    """
    for flag in ("-o", "--out", "--output"):
        if flag in rest[:-1]:
            place = rest.index(flag)
            others = [*rest[:place], *rest[place + 2 :]]
            return [*_for_emit(others), ">", rest[place + 1]]
    longest = r"^--(max-model-len|max-position-embeddings|length|test-len)"
    words = [re.sub(longest, "--context", word) for word in rest]
    meant = _with_file(words, "--from", _first(words, _is_named_file))

    context = "128k"
    loose = _first_loose_number(meant)
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


def _first_loose_number(words: Sequence[str]) -> str:
    """Return the first number that follows no flag, empty without one."""
    for before, word in zip(["", *words], words, strict=False):
        if _is_number(word) and not before.startswith("-"):
            return word
    return ""


def _first(words: Sequence[str], test: Callable[[str], bool]) -> str:
    """Return the first word that passes a test, empty without one."""
    return next(filter(test, words), "")


def _has_flag(words: Sequence[str], *flags: str) -> bool:
    return any(word.startswith(flags) for word in words)


def _with_file(words: Sequence[str], flag: str, file: str) -> list[str]:
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
    """Return the trained length of a known model among some words times a factor, else
    128k.
    """
    from ropelab.math.models import is_known, model_named
    from ropelab.readers.model_file import model_of_file

    known = _first(words, is_known)
    model = model_named(known) if known else None
    file = _first(words, _is_named_file)
    if model is None and file:
        with suppress(InputError):
            model = model_of_file(file)
    if model is None or not _is_number(factor):
        return "128k"
    # `read_number` promises an object only; its text is one that `float` reads.
    factor_value = float(str(read_number(factor)))
    return str(round(factor_value * model.trained_len))


# Flags of other commands for what vectors reads and writes.
FLAGS_OF_VECTORS = {"-o": "--out", "--output": "--out", "--model": "--config"}


def _for_vectors(rest: Sequence[str]) -> list[str]:
    file = _first(rest, _is_model_file)
    if not file:
        return []  # without a file of its own there is nothing that can run
    words = [FLAGS_OF_VECTORS.get(word, word) for word in rest]
    meant = _with_file(words, "--config", file)
    if "--out" not in meant:
        meant += ["--out", "vectors"]
    return meant


def _with_second_run(rest: Sequence[str]) -> list[str]:
    """Return the run that was given and another one of its experiment."""
    first = Path(rest[0])
    for manifest in sorted(first.parent.glob("*/manifest.json")):
        if manifest.parent != first:
            return [*rest, str(manifest.parent)]
    return [*rest, "ANOTHER_RUN"]
