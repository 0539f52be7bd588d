"""Words of any length in each option and argument that takes text.

A command reads them in a time that grows with their length, not with a power of it: it
uses them, or refuses them in one line.
"""

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import typer

from ropelab.cli import app as cli
from tests.stress import mutations
from tests.stress.arrays import INV_FREQ, MODEL
from tests.stress.bench import NAME, told
from tests.stress.promise import Trial, find_unplain

LENGTH = 100_000
"""Letters of a word: Linux gives no longer ones to a program than 131,071."""
MOST_SECONDS = 10.0
"""Of the processor, for a command with one such word."""
PATTERNS = (
    *("a", "9", "0", ",", "(", ")", "[", " ", "=", '"', "-", "%", "*", "\\", "ä", "😀"),
    *("a=1,", "x:", "a/", "a.", "1_", "1k", "1e1", "a(", "--a ", "yarn(factor=2),"),
    *("image 2x2, ", "text 5,", '{"a":', "[1,", "\\u0041", "../"),
)
"""What is repeated. Patterns of regular expressions and parsers stumble over such words."""
SLOW = ("doctor", NAME)
"""Commands that read a model for seconds, whatever their options."""
PER_OPTION = 4
"""Patterns that are tried with an option; others with the next one."""
EVERY = 60
"""Of the small part each so many is tried."""

Commands = Mapping[str, tuple[str, ...]]


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Each option of each command with some of the patterns, in turn."""
    with contextlib.chdir(folder):
        words = prepare()
        cases = list(list_cases(words))
        with mutations.checked_only():
            for what, line in cases[:: EVERY if few else 1]:
                yield give(what, line)


def prepare() -> Commands:
    """Make a run, a model's file and arrays; return words that make commands whole."""
    Path("config.json").write_text(json.dumps(MODEL))
    Path("exp.toml").write_text('experiment = "freqs"\nhead_dim = 8\n')
    np.savez("tables.npz", inv_freq=INV_FREQ)
    told("freqs", "--head-dim", "8", "--quiet", "--no-figures")
    (run,) = map(str, Path("results/freqs").glob("head*"))
    return {
        "audit": ("config.json",),
        "emit": ("--from", "config.json", "--context", "200k"),
        "check": ("tables.npz", "--config", "config.json"),
        "vectors": ("--config", "config.json", "--out", "kit"),
        "export": (run,),
        "compare": (run, run),
        "run": ("exp.toml", "--dry-run"),
        "schema": ("audit",),
    }


def list_cases(words: Commands) -> Iterator[tuple[str, tuple[str, ...]]]:
    commands = getattr(typer.main.get_command(cli.make_application()), "commands", {})
    turn = 0
    for name, command in commands.items():
        if name in SLOW:
            continue
        for option in command.params:
            flags = [flag for flag in option.opts if flag.startswith("--")]
            if getattr(option, "is_flag", False):
                continue
            for _ in range(PER_OPTION):
                pattern = PATTERNS[turn % len(PATTERNS)]
                word = (pattern * LENGTH)[:LENGTH]
                turn += 1
                if flags:
                    line = (name, *words.get(name, ()), f"{flags[0]}={word}")
                    yield f"{name} {flags[0]}: {pattern}", line
                else:
                    yield f"{name}: {pattern}", (name, "--", word)


def give(what: str, line: tuple[str, ...]) -> Trial:
    """Type a command; it answers in time, or refuses the word in one line."""
    before = time.process_time()
    try:
        answer = told(*line)
    except Exception as failure:
        return Trial(what, f"{type(failure).__name__}: {str(failure)[:500]}")
    seconds = time.process_time() - before
    problems = [problem[:500] for problem in find_unplain(answer)]
    if seconds > MOST_SECONDS:
        problems.append(f"{seconds:.0f} s")
    return Trial(what, "; ".join(problems))
