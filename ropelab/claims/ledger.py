"""All claims in order. To add one: a record in one of the files below."""

from difflib import get_close_matches

from ropelab.claims.arithmetic import (
    attention_order,
    base_bound,
    comparison,
    decay,
    elementwise,
    frequency_table,
    history,
    in_use,
    incidents,
    joining,
    listings,
    one_frequency,
    parameters,
    plane,
    published,
    rotation,
    scaling,
    score_terms,
    single_or_multi,
    sinusoidal,
    worked_example,
)
from ropelab.claims.record import Claim
from ropelab.claims.trained import base_bound as trained_bases
from ropelab.claims.trained import encodings, frequencies, orderings
from ropelab.claims.trained import scaling as trained_scaling
from ropelab.errors import InputError

FAMILIES = (
    attention_order,
    rotation,
    plane,
    elementwise,
    listings,
    worked_example,
    one_frequency,
    single_or_multi,
    frequency_table,
    sinusoidal,
    joining,
    score_terms,
    decay,
    parameters,
    comparison,
    scaling,
    history,
    in_use,
    published,
    incidents,
    base_bound,
    trained_bases,
    trained_scaling,
    orderings,
    encodings,
    frequencies,
)

CLAIMS: tuple[Claim, ...] = tuple(claim for family in FAMILIES for claim in family.CLAIMS)


def find(id_: str) -> Claim:
    """The claim with that id.

    Raises:
        InputError: there is none; the message names the nearest.
    """
    for claim in CLAIMS:
        if claim.id == id_:
            return claim
    near = get_close_matches(id_.lower(), [claim.id for claim in CLAIMS], n=3, cutoff=0.4)
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError(f"unknown claim '{id_}'; {guess}allowed: an id that `ropelab claims` lists")


def said_in(source: str) -> tuple[Claim, ...]:
    """The claims that a source makes, in order of the ledger."""
    return tuple(c for c in CLAIMS if source in {passage.source for passage in c.passages})
