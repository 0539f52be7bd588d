"""All claims in the order of the ledger. To add one: a record in one of the files below."""

from difflib import get_close_matches

from ropelab.errors import InputError
from ropelab.experiments.claims import (
    attention_order,
    base_bound,
    comparison,
    decay,
    elementwise,
    frequency_table,
    in_use,
    plane,
    published,
    rotation,
    scaling,
    single_or_multi,
    sinusoidal,
    trained,
    trained_encodings,
    worked_example,
)
from ropelab.experiments.claims.record import Claim

FAMILIES = (
    attention_order,
    rotation,
    plane,
    elementwise,
    worked_example,
    single_or_multi,
    frequency_table,
    sinusoidal,
    decay,
    comparison,
    scaling,
    in_use,
    published,
    base_bound,
    trained,
    trained_encodings,
)

CLAIMS: tuple[Claim, ...] = tuple(claim for family in FAMILIES for claim in family.CLAIMS)


def find(name: str) -> Claim:
    """The claim with that id, or with that number in the ledger, counted from 1.

    Raises:
        InputError: there is none; the message names the nearest id.
    """
    if name.isdecimal() and 1 <= int(name) <= len(CLAIMS):
        return CLAIMS[int(name) - 1]
    for claim in CLAIMS:
        if claim.id == name:
            return claim
    near = get_close_matches(name.lower(), [claim.id for claim in CLAIMS], n=3, cutoff=0.4)
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    raise InputError(
        f"unknown claim '{name}'; {guess}allowed: a number from 1 to {len(CLAIMS)}, "
        "or an id that `ropelab claims` lists"
    )
