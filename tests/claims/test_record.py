"""How verdicts follow from findings, and that the two kinds of evidence are never
mixed.
"""

import math
from typing import Any

import numpy as np
import pytest

from ropelab.claims.arrays import write_hits
from ropelab.claims.margins import margin_above, margin_below, margin_of_interval
from ropelab.claims.record import OUTCOMES, Findings, Kind, Verdict

PART = ("part", "a", "1", True)


def findings(*rows):
    found = Findings("")
    for row in rows:
        found.add(*row)
    return found


@pytest.mark.parametrize(
    ("parts", "limits", "outcome"),
    [
        ([True], [], 0),
        ([True, True], [True, None], 0),
        ([True], [True, False], 1),
        ([True, False], [True], 2),
        ([False, None], [], 2),
        ([True, None], [False], 3),
        ([None], [], 3),
    ],
)
@pytest.mark.parametrize("kind", Kind)
def test_the_verdict_follows_from_parts_and_limits(parts, limits, outcome, kind):
    found = findings(
        *(("part", "p", str(agrees), agrees) for agrees in parts),
        *(("limit", "l", str(agrees), agrees) for agrees in limits),
    )
    assert found.verdict(kind) == OUTCOMES[kind][outcome]


def test_trained_models_never_call_a_statement_wrong():
    assert not {Verdict.WRONG, Verdict.HOLDS, Verdict.CONDITION} & set(
        OUTCOMES[Kind.TRAINED]
    )
    assert not {Verdict.NOT_REPRODUCED, Verdict.REPRODUCED} & set(
        OUTCOMES[Kind.ARITHMETIC]
    )
    assert set(OUTCOMES[Kind.TRAINED]) | set(OUTCOMES[Kind.ARITHMETIC]) == set(Verdict)


def test_evidence_without_a_part_decides_nothing_and_says_so():
    with pytest.raises(ValueError, match="at least one part"):
        findings(("limit", "l", "1", True)).verdict(Kind.ARITHMETIC)


@pytest.mark.parametrize(
    ("rows", "deciding"),
    [
        ((PART, ("part", "b", "2", False), ("limit", "c", "3", False)), "b"),
        ((PART, ("limit", "c", "3", False), ("part", "b", "2", None)), "b"),
        ((PART, ("limit", "b", "2", True), ("limit", "c", "3", False)), "c"),
        ((("limit", "b", "2", True), PART), "a"),
    ],
)
def test_the_deciding_finding_is_the_one_the_verdict_rests_on(rows, deciding):
    assert findings(*rows).deciding.what == deciding


def test_where_a_claim_holds_the_part_closest_to_failing_decides():
    found = Findings("")
    found.add_part("no threshold", "all", True)
    found.add_at_most("far", 0.1, 1.0)
    found.add_at_most("close", 0.9, 1.0)
    found.add_above("farther", 100.0, 1.0)
    found.add_limit("a limit", "1", True)
    assert found.deciding.what == "close"
    assert found.select("far").deciding.what == "far"
    # A count that is complete is decided by no threshold.
    assert findings(PART, ("part", "b", "2", True)).deciding.what == "a"


@pytest.mark.parametrize(
    ("margin", "expected"),
    [
        (margin_below(0.5, 2.0), 0.75),
        (margin_below(2.0, 2.0), 0.0),
        (margin_below(0.0, 0.0), None),
        (margin_above(8.0, 2.0), 0.75),
        (margin_above(0.0, 2.0), None),
        (margin_of_interval(1.0, 3.0, 0.0), 0.5),
        (margin_of_interval(-3.0, -1.0, 0.0), 0.5),
        (margin_of_interval(-1.0, 3.0, 0.0), -1.0),
        (margin_of_interval(-1.0, 1.0, 0.0), None),
        (margin_of_interval(math.nan, math.nan, 0.0), None),
    ],
)
def test_a_margin_is_0_at_the_threshold_and_nears_1_far_from_it(margin, expected):
    assert margin == expected


def test_a_reason_takes_an_answer_back():
    found = findings(PART, ("part", "b", "2", True))
    found.leave_open("it was not asked")
    first, second = found.findings
    assert (first.agrees, second.agrees) == (True, None)
    assert second.measured == "2; it was not asked"


def test_a_run_that_meets_the_conditions_of_a_claim_is_preferred():
    unmet = findings(PART)
    unmet.add_unmet("windows of one length", "no", False)
    met = findings(("part", "a", "2", True), ("limit", "windows", "yes", True))
    best = Findings("")
    best.take_best([unmet, met], "a run")
    assert best.deciding.measured == "2"
    assert unmet.verdict(Kind.TRAINED) == Verdict.PARTLY


def test_a_sentence_has_the_verdict_of_its_own_findings() -> None:
    found = findings(PART, ("part", "b", "2", False), ("limit", "c", "3", False))
    one = Kind.ARITHMETIC
    assert found.verdict(one) == found.select("").verdict(one) == Verdict.WRONG
    assert found.select("a").verdict(one) == Verdict.HOLDS
    assert found.select("c").verdict(one) == Verdict.WRONG  # a limit alone is a part
    assert found.select("a").deciding.what == "a"
    assert found.select("no such finding") == found


def test_measured_holds_every_finding():
    assert findings(PART, ("limit", "b", "2", False)).measured == "a: 1; b: 2"
    assert [write_hits(k, 3) for k in (0, 2, 3)] == ["none of 3", "2 of 3", "all 3"]


def test_evidence_is_missing_only_if_no_part_could_be_measured():
    found = Findings("")
    found.add_missing("a")
    found.add_limit("c", "1", True)
    assert found.is_missing
    found.add_part("b", "inside the noise", None)
    assert not found.is_missing


@pytest.mark.parametrize("value", [0.1, 1e-10])
def test_a_number_against_a_bound_agrees_on_one_side_and_on_the_bound(value):
    found = Findings("")
    found.add_at_most("small", value, 0.1)
    found.add_above("large", value, 0.1, "{:.2f} apart", "limit")
    small, large = found.findings
    assert (small.agrees, small.role, small.value) == (True, "part", value)
    assert (large.agrees, large.role) == (False, "limit")
    assert (small.measured, large.measured) == (
        f"{value:.1e} apart",
        f"{value:.2f} apart",
    )


def test_a_count_agrees_where_it_is_complete():
    found = Findings("")
    found.add_count("some", 2, 3)
    found.add_count("all", 3, 3)
    assert [(f.measured, f.agrees) for f in found.findings] == [
        ("2 of 3", False),
        ("3 of 3", True),
    ]


def test_findings_come_back_from_text_as_they_were():
    found = Findings("what is expected", "two models")
    found.add_missing("a")
    found.add_part("1.00", "0", None, np.float64(0.1) + 0.2)
    count: Any = np.int64(3)
    found.add_limit("c", "1.00", bool(np.bool_(True)), count)
    assert Findings.from_json(found.to_json(), {}) == found
