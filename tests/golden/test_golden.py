"""The wording of answers, once per command; all other tests assert codes and numbers.

    make golden    write the files anew; their diff shows what users will read

A file of this folder holds what one command prints at 80 columns, and to errors, for
the lines that stand under its name in `commands.toml`.
"""

import io
import json
import os
import re
import tomllib
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from ropelab.cli.app import main

HERE = Path(__file__).parent
COMMANDS = tomllib.loads((HERE / "commands.toml").read_text(encoding="utf-8"))
FILES: dict[str, Any] = COMMANDS.pop("files")
# Times, versions of packages and places differ from machine to machine.
PASSING = (
    (re.compile(r"\b\d+(\.\d+)? (milli)?seconds?\b"), "SOME seconds"),
    (re.compile(r"\b(\d+ minutes?|\d+ cores?)\b"), "SOME amount"),
    (re.compile(re.escape(str(HERE.parents[1]))), "CHECKOUT"),
)


def answer_to(line: str) -> str:
    """Return what a command line prints, where it prints it, and its status."""
    out, errors = io.StringIO(), io.StringIO()
    status: Any = 0
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            main(line.split())
        except SystemExit as stop:
            status = stop.code
    text = f"$ ropelab {line}\n{out.getvalue()}"
    if errors.getvalue():
        text += f"-- to standard error --\n{errors.getvalue()}"
    text += f"-- status {status} --\n"
    for pattern, instead in PASSING:
        text = pattern.sub(instead, text)
    return "\n".join(row.rstrip() for row in text.splitlines()) + "\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_answers_are_worded_as_reviewed(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name, content in FILES.items():
        Path(name).write_text(json.dumps(content))

    answers = "\n".join(answer_to(line) for line in COMMANDS[command]["lines"])

    golden = HERE / f"{command}.txt"
    if "ROPELAB_WRITE_GOLDEN" in os.environ:
        golden.write_text(answers, encoding="utf-8")
    assert answers == golden.read_text(encoding="utf-8")


def test_every_file_has_its_command():
    assert {path.stem for path in HERE.glob("*.txt")} == set(COMMANDS)
