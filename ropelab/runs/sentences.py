"""The text of answers: numbers as people type them, and sentences made of parts."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from ropelab.runs.stats import Interval


def write_number(number: float) -> str:
    """Write a number as people type it, in six digits, or exactly if it is whole.

    >>> write_number(3400000.0), write_number(27000.0), write_number(1000001.0), write_number(1e-8)
    ('3.4e6', '27000', '1000001', '1e-08')
    """
    short = f"{number:g}"
    is_whole = number % 1 == 0
    if is_whole and float(short) != number:
        return f"{number:.0f}"
    return short.replace("e+0", "e").replace("e+", "e")


def write_exactly(number: float) -> str:
    """Write a number as people type it, with all digits that reading it back takes.

    >>> write_exactly(3400000.0), write_exactly(51881.25)
    ('3.4e6', '51881.25')
    """
    text = write_number(number)
    return text if float(text) == number else repr(number)


def shorten_numbers(text: str) -> str:
    """Round the numbers in a text that have five or more digits after the point.

    >>> shorten_numbers("yarn(factor=1.9844961240310077, attention_factor=1.5)")
    'yarn(factor=1.984, attention_factor=1.5)'
    """
    return re.sub(r"\d+\.\d{5,}", lambda digits: f"{float(digits[0]):.4g}", text)


def write_count(number: int, noun: str) -> str:
    """Write a number with a noun, in the plural unless the number is 1.

    >>> write_count(1, "run"), write_count(3, "cell")
    ('1 run', '3 cells')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}s"


def join_sentences(parts: Iterable[str]) -> str:
    """Make a sentence of each part that is not empty.

    >>> join_sentences(["bfloat16 is enough", "", "it fails elsewhere"])
    'bfloat16 is enough. It fails elsewhere.'
    """
    sentences = []
    for part in parts:
        if not part:
            continue
        first_word = part.split()[0]
        # A name with digits, such as bfloat16, keeps its small letter.
        if not re.search("[0-9]", first_word):
            part = part[0].upper() + part[1:]
        sentences.append(f"{part}.")
    return " ".join(sentences)


def write_with_interval(value: float, low: float, high: float, form: str = "f") -> str:
    """Write a value and the ends of its interval, with as many decimals as the interval
    supports.

    If the ends are nan, words say that there is no interval, as with a single model that
    read a single text.

    With these decimals half the width of the interval has one significant digit, or two
    if the first is a 1. Values from 0.01 to 100, such as shares and losses, have two or
    three decimals, so that the cells of a column are alike. A percentage has none.

    Args:
        value: the value, inside the interval.
        low: the lower end.
        high: the upper end.
        form: "f" for a number, "+f" for a difference, whose numbers all have a sign, and
            "%" for a share as a percentage.

    >>> write_with_interval(0.951, 0.929, 0.973), write_with_interval(1.0731, 1.04, 1.11)
    ('0.95 [0.93, 0.97]', '1.07 [1.04, 1.11]')
    >>> write_with_interval(0.951, 0.929, 0.973, "%")
    '95% [93%, 97%]'
    >>> write_with_interval(0.051, -0.029, 0.131, "+f")
    '+0.05 [-0.03, +0.13]'
    >>> write_with_interval(0.951, math.nan, math.nan)
    '0.951 [no interval]'
    """
    # In a format the sign stands before the decimals, and the letter after them.
    sign, letter = form[:-1], form[-1]
    if math.isnan(low) or math.isnan(high):
        text = f"{value:.0%}" if letter == "%" else f"{value:{sign}.3g}"
        return f"{text} [no interval]"

    half_width = (high - low) / 2
    decimals = 3
    if half_width > 0:
        exponent = math.floor(math.log10(half_width))
        begins_with_one = half_width < 2 * 10.0**exponent
        decimals = (1 if begins_with_one else 0) - exponent
    # An end that is not 0 must not read as 0 if the interval excludes 0.
    nearest = min(abs(low), abs(high))
    excludes_zero = low * high > 0
    if excludes_zero and letter != "%":
        decimals = max(decimals, math.ceil(-math.log10(2 * nearest)))

    if letter == "%":
        decimals = 0
    elif 0.01 <= abs(value) < 100:
        decimals = min(max(decimals, 2), 3)
    else:
        decimals = min(max(decimals, 0), 6)
    spec = f"{sign}.{decimals}{letter}"
    return f"{value:{spec}} [{low:{spec}}, {high:{spec}}]"


def write_interval(interval: "Interval", form: str) -> str:
    """Write a value and the ends of its interval, all in one format.

    A value whose ends are nan has no interval, and is written alone.

    >>> from ropelab.runs.stats import Interval
    >>> write_interval(Interval(0.951, 0.929, 0.973, 5), ".0%")
    '95% [93%, 97%]'
    """
    if math.isnan(interval.low):
        return format(interval.value, form)
    ends = f"[{interval.low:{form}}, {interval.high:{form}}]"
    return f"{interval.value:{form}} {ends}"


def join_names(names: Sequence[str], last: str = "and") -> str:
    """Join names as in a sentence.

    >>> join_names(["pi"]), join_names(["pi", "ntk", "yarn"], "or")
    ('pi', 'pi, ntk or yarn')
    """
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {last} {names[-1]}"


def split_verdict(answer: str) -> tuple[str, str]:
    """Split an answer after its first sentence.

    >>> split_verdict("Base 3.4e6 works (Men et al. 2024). 1.5 is next.")
    ('Base 3.4e6 works (Men et al. 2024).', '1.5 is next.')
    >>> split_verdict("float32 does. bfloat16 does not.")
    ('float32 does.', 'bfloat16 does not.')
    """
    # A sentence may also begin with a name that has a small letter and digits, such as
    # bfloat16, because `join_sentences` does not change such names.
    start = r"(?=[A-Z\d(“]|[a-z]+\d)"
    first, *further = re.split(rf"(?<=\.)(?<! al\.)\s+{start}", answer, maxsplit=1)
    return first, "".join(further)


def split_sentences(text: str) -> list[str]:
    """Split a text after each of its sentences; a quotation stays whole.

    >>> split_sentences("Base 3.4e6 works (Men et al. 2024). 1.5 is next. It fails.")
    ['Base 3.4e6 works (Men et al. 2024).', '1.5 is next.', 'It fails.']
    >>> split_sentences("Said: “It works. It is quick.” It is not.")
    ['Said: “It works. It is quick.” It is not.']
    """
    sentences: list[str] = []
    remaining_text = text
    is_in_quotation = False
    while remaining_text:
        sentence, remaining_text = split_verdict(remaining_text)
        if is_in_quotation:
            sentences[-1] += f" {sentence}"
        else:
            sentences.append(sentence)
        last = sentences[-1]
        is_in_quotation = last.count("“") > last.count("”")
    return sentences


def add_scope(answer: str, scope: str) -> str:
    """Put the conditions of an answer into brackets at the end of its first sentence.

    >>> add_scope("It is precise enough. More follows.", "base 1e6")
    'It is precise enough (base 1e6). More follows.'
    """
    if not scope:
        return answer
    first, further_sentences = split_verdict(answer)
    return f"{first.removesuffix('.')} ({scope}). {further_sentences}".rstrip()


def explain_brackets(answer: str, over: str) -> str:
    """Say what the brackets in an answer are; empty if it has none.

    >>> explain_brackets("It copies 0.94 [0.91, 0.97].", "5 models")
    '[low, high]: 95 % over 5 models'
    >>> explain_brackets("It copies 0.94 [no interval].", "1 document")
    ''
    """
    has_intervals = re.search(r"\[[-+]?[0-9][^]]*, [-+]?[0-9][^]]*\]", answer)
    if not (over and has_intervals):
        return ""
    return f"[low, high]: 95 % over {over}"


def escape_unprintable(text: str) -> str:
    r"""Return a text on one line, with characters that cannot be printed as escapes.

    >>> escape_unprintable("two\nlines")
    'two\\nlines'
    """
    letters = []
    for letter in text:
        if not letter.isprintable():
            # `ascii` puts quotation marks around the escape.
            letter = ascii(letter)[1:-1]
        letters.append(letter)
    return "".join(letters)


def describe_casts_apart(
    table: "pd.DataFrame",
    column: str,
    describe: Callable[["pd.Series"], str],
    effect: str,
    most: int = 3,
) -> list[str]:
    """Describe each of the casts that have the largest values in a sentence, and then
    all remaining casts together in one sentence.

    Args:
        table: a row per cast.
        column: the column with the values by which casts are ordered. A cast without a
            value overflows, and comes first.
        describe: makes the sentence of a row.
        effect: the words after the number of the remaining casts, such as "with a lower
            mean KL". Their values stay in the table, where they have intervals.
        most: how many casts get a sentence each.
    """
    ordered = table.sort_values(
        column, ascending=False, na_position="first", kind="stable"
    )
    sentences = [describe(row) for _, row in ordered.head(most).iterrows()]
    further_casts = ordered.iloc[most:]
    if len(further_casts):
        sentences.append(f"{write_count(len(further_casts), 'more cast')} {effect}")
    return sentences
