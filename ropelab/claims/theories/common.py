"""What the checks of both theories share: the model that is their example, and how
numbers are compared and written.
"""

from collections.abc import Sequence

# Both papers have Llama 3.1 8B as their example: the features of its heads, its base,
# and its context.
HEAD = 128
LLAMA_3_1 = 5e5
CONTEXT = 131072
# The number of positions at which Du et al. count their modes of failure. For Liu's bounds,
# the number of positions at the end of a context at which angles are compared.
TOKENS = 8192


def is_about(value: float, printed: float) -> bool:
    """Return True if neither number is more than twice as large as the other."""
    return printed / 2 <= value <= printed * 2


def write_list(values: Sequence[float], form: str = ",.0f") -> str:
    """Write numbers with commas between them, all in one format."""
    return ", ".join(format(value, form) for value in values)
