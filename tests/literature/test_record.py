"""How verdicts follow from findings, and that the two kinds of evidence are never mixed."""

import pytest

from ropelab.claims.numbers import count_of
from ropelab.claims.record import OUTCOMES, Evidence, Kind, Verdict, limit, missing, part


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
    findings = (
        *(part("p", str(agrees), agrees) for agrees in parts),
        *(limit("l", str(agrees), agrees) for agrees in limits),
    )
    assert Evidence(expected="", findings=findings).verdict(kind) == OUTCOMES[kind][outcome]


def test_trained_models_never_call_a_statement_wrong():
    assert not {Verdict.WRONG, Verdict.HOLDS, Verdict.CONDITION} & set(OUTCOMES[Kind.TRAINED])
    assert not {Verdict.NOT_REPRODUCED, Verdict.REPRODUCED} & set(OUTCOMES[Kind.ARITHMETIC])
    assert set(OUTCOMES[Kind.TRAINED]) | set(OUTCOMES[Kind.ARITHMETIC]) == set(Verdict)


def test_evidence_without_a_part_decides_nothing_and_says_so():
    with pytest.raises(ValueError, match="at least one part"):
        Evidence(expected="", findings=(limit("l", "1", True),)).verdict(Kind.ARITHMETIC)


@pytest.mark.parametrize(
    ("findings", "deciding"),
    [
        ((part("a", "1", True), part("b", "2", False), limit("c", "3", False)), "b"),
        ((part("a", "1", True), limit("c", "3", False), part("b", "2", None)), "b"),
        ((part("a", "1", True), limit("b", "2", True), limit("c", "3", False)), "c"),
        ((limit("b", "2", True), part("a", "1", True)), "a"),
    ],
)
def test_the_deciding_finding_is_the_one_the_verdict_rests_on(findings, deciding):
    assert Evidence(expected="", findings=findings).deciding.what == deciding


def test_measured_holds_every_finding():
    evidence = Evidence(expected="", findings=(part("a", "1", True), limit("b", "2", False)))
    assert evidence.measured == "a: 1; b: 2"
    assert [count_of(k, 3) for k in (0, 2, 3)] == ["none of 3", "2 of 3", "all 3"]


def test_evidence_is_missing_only_if_no_part_could_be_measured():
    nothing, something = missing("a"), part("b", "inside the noise", None)
    assert Evidence(expected="", findings=(nothing, limit("c", "1", True))).is_missing
    assert not Evidence(expected="", findings=(nothing, something)).is_missing
