"""Answers as text: numbers as people type them, sentences from parts, the verdict
first.
"""

import re
from collections.abc import Iterable, Sequence


def typed(number: float) -> str:
    """Write a number as people type it; whole ones, as bases are, exactly.

    >>> typed(3400000.0), typed(27000.0), typed(1000001.0), typed(1e-8)
    ('3.4e6', '27000', '1000001', '1e-08')
    """
    short = f"{number:g}"
    if number % 1 == 0 and float(short) != number:
        return f"{number:.0f}"
    return short.replace("e+0", "e").replace("e+", "e")


def typed_exactly(number: float) -> str:
    """Write a number as people type it, with all digits that it takes to read it back.

    >>> typed_exactly(3400000.0), typed_exactly(51881.25)
    ('3.4e6', '51881.25')
    """
    text = typed(number)
    return text if float(text) == number else repr(number)


def shorten_numbers(text: str) -> str:
    """Round the long fractions in a text, whose last digits no one reads.

    >>> shorten_numbers("yarn(factor=1.9844961240310077, attention_factor=1.5)")
    'yarn(factor=1.984, attention_factor=1.5)'
    """
    return re.sub(r"\d+\.\d{5,}", lambda digits: f"{float(digits[0]):.4g}", text)


def count_of(number: int, what: str) -> str:
    """Write a number of things.

    >>> count_of(1, "run"), count_of(3, "cell")
    ('1 run', '3 cells')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def sentences_of(parts: Iterable[str]) -> str:
    """Make a sentence of each part that is not empty.

    >>> sentences_of(["bfloat16 is enough", "", "it fails elsewhere"])
    'bfloat16 is enough. It fails elsewhere.'
    """
    return " ".join(
        # A name with digits, such as bfloat16, is written as it is.
        f"{part if re.search('[0-9]', part.split()[0]) else part[0].upper() + part[1:]}."
        for part in filter(None, parts)
    )


def listed(names: Sequence[str], last: str = "and") -> str:
    """Join names as in a sentence.

    >>> listed(["pi"]), listed(["pi", "ntk", "yarn"], "or")
    ('pi', 'pi, ntk or yarn')
    """
    return f" {last} ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def verdict_and_rest(answer: str) -> tuple[str, str]:
    """Split an answer after its first sentence.

    >>> verdict_and_rest("Base 3.4e6 works (Men et al. 2024). 1.5 is next.")
    ('Base 3.4e6 works (Men et al. 2024).', '1.5 is next.')
    >>> verdict_and_rest("float32 does. bfloat16 does not.")
    ('float32 does.', 'bfloat16 does not.')
    """
    # A sentence may begin with a name that has digits, as `sentences_of` leaves them.
    start = r"(?=[A-Z\d(“]|[a-z]+\d)"
    first, *rest = re.split(rf"(?<=\.)(?<! al\.)\s+{start}", answer, maxsplit=1)
    return first, "".join(rest)


def with_scope(answer: str, scope: str) -> str:
    """Put the conditions of an answer into brackets at the end of its first sentence.

    >>> with_scope("It is precise enough. More follows.", "base 1e6")
    'It is precise enough (base 1e6). More follows.'
    """
    if not scope:
        return answer
    first, rest = verdict_and_rest(answer)
    return f"{first.removesuffix('.')} ({scope}). {rest}".rstrip()


def printable(text: str) -> str:
    r"""Return a text on one line, with characters that cannot be printed as escapes.

    >>> printable("two\nlines")
    'two\\nlines'
    """
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
