"""Lengths in tokens, as people type them."""

from typing import Annotated

from typer import Option

from ropelab.runs.errors import InputError

Length = Annotated[str | None, Option(metavar="N", help="Tokens in the context.")]


def read_tokens(text: str | None, flag: str = "--length") -> int | None:
    """Return the length in tokens that an option gives; None if it was not given.

    InputError: the text is not a number of tokens from 2 to 2^40.
    """
    from ropelab.readers.flags import read_option
    from ropelab.readers.spec import is_context

    if text is None:
        return None
    value = read_option(flag, text)
    if not is_context(value):
        raise InputError(
            f"{flag} must be a whole number of tokens from 2 to 2^40, got '{text}'"
        )
    return value
