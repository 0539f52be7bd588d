"""Common mistakes on the command line, and the command that was meant."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ropelab.runs.errors import ALSO_CALLED

SUFFIXES = (".json", ".gguf")


def advice(words: Sequence[str], problem: str) -> str:
    """Return what to type instead of some words that end in a problem.

    >>> advice(["help", "base"], ""), advice(["emit", "qwen.json"], "Missing option '--context'.")
    ('ropelab base --help', 'ropelab emit --from qwen.json --context 128k')
    """
    command, *rest = words or ("",)
    if command == "help":
        return shlex.join(["ropelab", *rest[:1], "--help"])
    values = (word for word in rest if not word.startswith("-"))
    file = next((v for v in values if v.endswith(SUFFIXES) or Path(v).exists()), "")
    meant: list[str] = []
    if command == "audit":
        # The readers of configurations are not needed to start.
        from ropelab.readers.flags import taken

        # Flags of a server go into quotes.
        found, meant = taken(rest)
        if flags := [word for flag in found for word in flag if word]:
            meant = [*meant, "--flags", shlex.join(flags)]
    elif command == "emit":
        # The file has a flag, and so has the length, under our name.
        longest = r"^--(max-model-len|max-position-embeddings)"
        meant = [re.sub(longest, "--context", word) for word in rest]
        if file and "--from" not in meant:
            meant = ["--from", file, *(word for word in meant if word != file)]
        if meant and not any(word.startswith("--context") for word in meant):
            meant += ["--context", "128k"]
    elif command == "precision" and "--dtype" in rest:
        meant = [ALSO_CALLED.get(word, word) for word in rest]
        meant[meant.index("--dtype")] = "--formats"
    elif command in ("freqs", "precision", "base") and file:
        # The values of a file are not those of one command: audit reads them all.
        command, meant = "audit", [file]
    if not meant or [command, *meant] == list(words):
        known = (
            command and not command.startswith("-") and "such command" not in problem
        )
        return shlex.join(["ropelab", *([command] if known else []), "--help"])
    return shlex.join(["ropelab", command, *meant])
