"""The answer in words and the short table for the terminal, both from the tables alone."""

import math

import pandas as pd

from ropelab.math.bounds.published import Printed
from ropelab.runs.tables import Tables


def answer(tables: Tables) -> str:
    """What base the longest context needs, whether the given one does, and what the paper has."""
    bound = tables["bound"].iloc[-1]
    context = int(bound.context_tokens)
    if not bound.certified:
        return (
            f"No base is admissible for {context} tokens with a rotary_dim of {bound.rotary_dim}."
        )
    if bound.first_admissible_base <= 1:
        return f"Every base is admissible for {context} tokens: enough features do not turn."
    return " ".join([*_usable(tables, bound), *_given(tables), *_paper(tables)])


def summary(tables: Tables) -> pd.DataFrame:
    """The bound per context where several were asked about, else the theories for the one."""
    bound = tables["bound"]
    if len(bound) > 1:
        columns = [
            "context_tokens",
            "usable_base",
            "stable_base",
            "first_admissible_base",
            "status",
        ]
        return bound[columns]
    return tables["theories"][["theory", "kind", "base", "times_exact", "verdict"]].head(12)


def _usable(tables: Tables, bound: pd.Series) -> list[str]:
    """The base to use, what is known above it, and why not the first admissible one."""
    context, first = int(bound.context_tokens), f"{bound.first_admissible_base:.6g}"
    if math.isnan(bound.usable_base):
        return [f"{context} tokens need a base of at least {first}; where all work was not found."]
    usable = f"Use base {_typed(bound.usable_base)} for {context} tokens: it and every larger base"
    windows = tables["windows"][tables["windows"]["context_tokens"] == context]
    high = windows["high"].iloc[0]
    if math.isnan(high):
        return [f"{usable} work, by proof."]
    return [
        f"{usable} work, by proof.",
        f"(The first admissible base is {first}, but from {high:.6g} on bases fail again.)",
    ]


def _typed(base: float) -> str:
    """A base as people type it.

    >>> _typed(3.4e6), _typed(27000.0)
    ('3.4e6', '27000')
    """
    text = f"{base:.2e}" if base >= 1e6 else f"{base:g}"
    digits, _, power = text.partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}" if power else digits


def _given(tables: Tables) -> list[str]:
    given = tables["given_base"]
    if given.empty:
        return []
    last = given.iloc[-1]
    name = f"Base {last.base:g}"
    if last.method != "unscaled":
        name += f" with {last.method}"
    if last.admissible:
        return [f"{name} is admissible there."]
    return [f"{name} fails first at position {last.first_failing_position_tokens:.0f}."]


def _paper(tables: Tables) -> list[str]:
    table, exponent = tables["published"], tables["fits"].set_index("values")["exponent"]
    if len(table) < 3:
        return []
    same = "exact values of its contexts"
    own = exponent[same if same in exponent else "exact values"]
    loose = table[table.verdict == Printed.LOOSE]
    worst = loose.times_exact.max() if len(loose) else 1.0
    return [
        f"{len(loose)} of the paper's {len(table)} values here are loose, by up to {worst:.2g} "
        f"times; the exact ones grow as context^{own:.2f}, "
        f"the paper's as context^{exponent['paper values']:.2f}."
    ]
