"""The answer in words and the short table for the terminal, both from the tables alone."""

import math
from collections.abc import Mapping

import pandas as pd

from ropelab.literature.arithmetic.base_bound import Printed

Tables = Mapping[str, pd.DataFrame]


def answer(tables: Tables) -> str:
    """What base the longest context needs, whether the given one does, and what the paper has."""
    bound = tables["bound"].iloc[-1]
    context = int(bound.context_tokens)
    if not bound.certified:
        return (
            f"No base is admissible for {context} tokens with {bound.rotary_dim} rotated features."
        )
    if bound.first_admissible_base <= 1:
        return f"Every base is admissible for {context} tokens: enough features do not turn."
    parts = [f"{context} tokens need a base of at least {bound.first_admissible_base:.6g}"]
    if not math.isnan(bound.stable_base):
        parts.append(f"every base from {bound.stable_base:.6g} on works")
    sentences = ["; ".join(parts) + ".", *_given(tables), *_paper(tables)]
    return " ".join(sentences)


def summary(tables: Tables) -> pd.DataFrame:
    """The bound per context where several were asked about, else the theories for the one."""
    bound = tables["bound"]
    if len(bound) > 1:
        return bound[["context_tokens", "first_admissible_base", "stable_base", "status"]]
    return tables["theories"][["theory", "kind", "base", "times_exact", "verdict"]].head(12)


def _given(tables: Tables) -> list[str]:
    given = tables["given_base"]
    if given.empty:
        return []
    last = given.iloc[-1]
    if last.admissible:
        return [f"Base {last.base:g} is admissible there."]
    return [f"Base {last.base:g} fails first at position {last.first_failing_position_tokens:.0f}."]


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
