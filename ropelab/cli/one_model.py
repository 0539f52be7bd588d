"""The commands that examine one model. They store nothing in the results folder."""

from collections.abc import Callable
from typing import Any

from typer import Typer

from ropelab.cli import panels
from ropelab.cli.audit import audit
from ropelab.cli.check import check, vectors
from ropelab.cli.doctor import doctor
from ropelab.cli.emit import emit

# What each exit status of a command means, for its help.
STATUS = {
    "audit": "0 clean, 3 findings at or above --fail-on, 2 no RoPE configuration",
    "emit": "0 fine, 3 a target loses something, or --method replaces, 2 invalid input",
    "check": "0 within the tolerance, 3 something is wrong, 2 it cannot be loaded",
    "vectors": "0 written, 2 no RoPE configuration, or DIR cannot be written",
    "doctor": "0 every law that can be asked holds, 3 one is broken, 2 no model",
}


def register(app: Typer) -> None:
    """Add the commands to the application, their docstrings as help."""
    commands: dict[Callable[..., Any], str] = {
        audit: panels.CONFIGURATIONS,
        emit: panels.CONFIGURATIONS,
        check: panels.CODE,
        vectors: panels.CODE,
        doctor: panels.CODE,
    }
    for command, panel in commands.items():
        name = command.__name__
        epilog = f"Exit status: {STATUS[name]}, 1 runtime error, 130 interrupted."
        panels.add_command(app, name, command, panel, epilog=epilog)
