"""transformers, quiet, and with its errors in one line."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ropelab.errors import InputError, RopelabError

LONGEST_REASON = 240
"""Characters of somebody else's error message that are passed on."""


def import_transformers() -> Any:
    """transformers, or an error that says how to install it."""
    try:
        import transformers
    except ImportError:
        raise InputError("released models need transformers: pip install 'ropelab[hf]'") from None
    return transformers


@contextmanager
def refusing(problem: str, path: Path | str) -> Iterator[None]:
    """Turn whatever transformers raises over a folder into one line.

    What it raises is no closed set: it follows from the files, and the files may hold anything.
    """
    try:
        with quiet():
            yield
    except RopelabError:
        raise
    except Exception as error:
        raise InputError(f"{problem} {path}: {reason(error)}") from None


@contextmanager
def quiet() -> Iterator[None]:
    """No bars, warnings or logs of transformers while the block runs."""
    import_transformers()
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def reason(error: Exception) -> str:
    """What an exception says, in one line of printable characters; its type if it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = "".join(c for c in " ".join(lines) if c.isprintable()).rstrip(":")
    named = f"{type(error).__name__}: {said}" if isinstance(error, KeyError | IndexError) else said
    text = named or type(error).__name__
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."
