"""What a text says to its reader, whatever the words."""

import re

# How a finding begins that needs the one before it. A finding is read alone where it
# decides: on the page of a note, and in a list.
FRAGMENT = re.compile(r"(of|on|and|its|that|those|the same|what that|with the same)\b")


def mentions(text: str, *values: object) -> bool:
    """Tell whether the values stand in a text, each whole, in this order.

    A number is not found inside a longer one, nor a name inside another.

    >>> mentions("base 10000, not 500000", 10000, "not 500000")
    True
    >>> mentions("base 10000, not 500000", 500000, 10000)
    False
    >>> mentions("base 10000.5", 10000), mentions("base 210000", 10000)
    (False, False)
    """
    place = 0
    for value in values:
        pattern = re.escape(str(value))
        if re.match(r"\w", str(value)):
            pattern = r"(?<![\w.])" + pattern
        if re.search(r"\w$", str(value)):
            pattern += r"(?!\w|\.\d)"

        match = re.compile(pattern).search(text, place)
        if match is None:
            return False
        place = match.end()
    return True
