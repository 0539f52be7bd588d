"""Every planted fault is found and named, and nothing is found where nothing was
planted.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from ropelab.conformance.laws.doctor import LAWS, examine
from ropelab.conformance.laws.law import Law
from ropelab.conformance.laws.rotation import ROTATION
from ropelab.conformance.laws.subject import Function, TransformersSubject
from tests.conformance.laws.faults import FAULTS, Fault, Kept
from tests.models.released.tiny import untouched


def broken(subject: Any, laws: Sequence[Law] = LAWS) -> dict[tuple[str, str], str]:
    """What each broken trial says."""
    trials, _ = examine(subject, laws)
    return {
        (row["law"], row["trial"]): row["says"]
        for row in trials
        if row["verdict"] == "broken"
    }


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_and_named_by_its_law(fault: Fault) -> None:
    laws = [law for law in LAWS if law.name == fault.law]
    found = broken(TransformersSubject(fault.make()), laws)
    assert fault.says in found[fault.law, fault.trial]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_found_and_named_among_all_laws(fault: Fault) -> None:
    found = broken(TransformersSubject(fault.make()))
    assert (fault.law, fault.trial) in found
    assert fault.says in found[fault.law, fault.trial]


# The dynamic base follows the length, which breaks laws by design.
RIGHT = {str((f.model, f.changes)): f for f in FAULTS if f.name != "stale dynamic base"}


@pytest.mark.slow
@pytest.mark.parametrize("fault", RIGHT.values(), ids=lambda fault: fault.name)
def test_nothing_is_found_in_the_same_model_without_it(fault: Fault) -> None:
    assert (
        broken(TransformersSubject(untouched(fault.model, **dict(fault.changes)))) == {}
    )


# With a base of 1e11, as models have it, the slowest pairs turn by less than 1e-5 within all
# positions that are read.
@pytest.mark.parametrize("base", [1e9, 1e11, 1e15])
def test_pairs_too_slow_to_show_are_no_fault(base: float) -> None:
    rope = {"rope_type": "default", "rope_theta": base}
    model = untouched("llama", rope_parameters=rope)
    assert broken(TransformersSubject(model), [ROTATION]) == {}

    # A faster pair that stands still is one.
    model.model.rotary_emb.inv_freq[2] = 0
    (says,) = broken(TransformersSubject(model), [ROTATION]).values()
    assert "1 of 8 pairs do not rotate" in says


def test_keys_shifted_by_the_wrong_sign_are_found() -> None:
    assert broken(Function(Kept(1))) == {}
    assert {law for law, _ in broken(Function(Kept(-1)))} == {"K-shift"}


def test_there_are_more_than_twenty() -> None:
    assert len({fault.name for fault in FAULTS}) >= 20
