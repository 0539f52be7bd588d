"""The ledger: verdicts from findings, finding claims, what a run, a report and a figure say."""

import dataclasses

import pandas as pd
import pytest
from ropelab.experiments.claims.ledger import CLAIMS, FAMILIES, find
from ropelab.experiments.claims.record import Evidence, Verdict, count_of, limit, part

from ropelab.config import build
from ropelab.context import Context, Stored
from ropelab.errors import InputError
from ropelab.experiments.claims import report
from ropelab.experiments.claims.config import ClaimsConfig
from ropelab.experiments.claims.run import changes, run
from ropelab.figures import claims as figures
from ropelab.figures.style import use_style


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return run(ClaimsConfig(), Context())


# The rule


@pytest.mark.parametrize(
    ("parts", "limits", "verdict"),
    [
        ([True], [], Verdict.HOLDS),
        ([True, True], [True, None], Verdict.HOLDS),
        ([True], [True, False], Verdict.CONDITION),
        ([True, False], [True], Verdict.WRONG),
        ([False, None], [], Verdict.WRONG),
        ([True, None], [False], Verdict.UNDECIDED),
        ([None], [], Verdict.UNDECIDED),
    ],
)
def test_the_verdict_follows_from_parts_and_limits(parts, limits, verdict):
    findings = (
        *(part("p", str(agrees), agrees) for agrees in parts),
        *(limit("l", str(agrees), agrees) for agrees in limits),
    )
    evidence = Evidence(expected="", findings=findings)
    assert evidence.verdict == verdict


def test_evidence_without_a_part_decides_nothing_and_says_so():
    with pytest.raises(ValueError, match="at least one part"):
        _ = Evidence(expected="", findings=(limit("l", "1", True),)).verdict


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


# The ledger


def test_ids_are_unique_and_readable():
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids)
    assert all(id_ == id_.lower() and not id_.isdecimal() and " " not in id_ for id_ in ids)


def test_every_claim_is_a_sentence_with_a_source_and_frozen_inputs():
    for claim in CLAIMS:
        assert claim.statement.endswith(".")
        assert claim.source
        assert dataclasses.is_dataclass(claim.inputs)
        with pytest.raises(dataclasses.FrozenInstanceError):
            claim.inputs.seed = 1


def test_no_family_is_left_out():
    assert len(CLAIMS) == sum(len(family.CLAIMS) for family in FAMILIES) >= 80


def test_claims_are_found_by_id_and_by_number():
    assert find("rotate-half").id == "rotate-half"
    assert find("1") is CLAIMS[0]
    assert find(str(len(CLAIMS))) is CLAIMS[-1]


@pytest.mark.parametrize("name", ["rotate-hlf", "0", "10000", "-1", "nothing like it"])
def test_an_unknown_claim_is_refused_with_what_is_allowed(name):
    with pytest.raises(InputError, match=f"unknown claim '{name}'.*1 to {len(CLAIMS)}"):
        build(ClaimsConfig, {"id": name})


def test_a_misspelt_claim_gets_near_matches():
    with pytest.raises(InputError, match="did you mean rotate-half"):
        find("rotate-hlf")


def test_a_number_and_an_id_are_the_same_config():
    number = [claim.id for claim in CLAIMS].index("rotate-half") + 1
    assert build(ClaimsConfig, {"id": str(number)}) == build(ClaimsConfig, {"id": "rotate-half"})


# The run


def test_every_claim_has_a_row_in_order(tables):
    claims = tables["claims"]
    assert list(claims["id"]) == [claim.id for claim in CLAIMS]
    assert list(claims["number"]) == list(range(1, len(CLAIMS) + 1))
    wanted = ["id", "source", "statement", "verdict", "measured", "expected", "command"]
    assert set(wanted) <= set(claims.columns)
    assert (claims[wanted].map(len) > 0).all().all()
    assert set(claims["verdict"]) <= {str(verdict) for verdict in Verdict}


def test_findings_repeat_the_verdict_of_each_claim(tables):
    for id_, findings in tables["findings"].groupby("id"):
        parts = findings[findings["role"] == "part"]["agrees"]
        verdict = tables["claims"].set_index("id").loc[id_, "verdict"]
        assert (verdict == "wrong") == ("no" in set(parts))


def test_without_stored_runs_only_claims_that_need_them_are_open(tables):
    claims = tables["claims"].set_index("id")["verdict"]
    open_ = {id_ for id_, verdict in claims.items() if verdict == Verdict.UNDECIDED}
    # A printed base can be refuted without the exact bound, but not confirmed.
    refuted = {"base-bound-table"}
    assert open_ == {claim.id for claim in CLAIMS if claim.reads} - refuted | {"gpt-4-rope"}


def test_a_run_is_deterministic(tables):
    again = run(ClaimsConfig(), Context())
    assert set(again) == set(tables)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, again[name], check_exact=True)


def test_verdicts_do_not_hang_on_one_draw(tables):
    other = run(ClaimsConfig(seed=7), Context())["claims"]
    assert list(other["verdict"]) == list(tables["claims"]["verdict"])


def test_one_claim_gives_its_own_rows_and_series():
    tables = run(ClaimsConfig(id="decay-scores"), Context())
    assert set(tables) == {"claims", "findings", "decay"}
    assert list(tables["claims"]["id"]) == ["decay-scores"]


def test_claims_that_read_runs_get_those_of_their_experiment():
    asked = []

    def stored(experiment: str) -> list[Stored]:
        asked.append(experiment)
        return []

    for claim in CLAIMS:
        given = changes(claim, ClaimsConfig(seed=3), Context(stored=stored))
        assert ("runs" in given) == bool(claim.reads)
        assert given.get("seed", 3) == 3
    assert set(asked) == set(ClaimsConfig().reads())


def test_run_asks_for_what_the_trained_claims_read():
    assert ClaimsConfig().requires() == ()
    assert {name for name, _ in ClaimsConfig(run=True).requires()} == set(ClaimsConfig().reads())


# The report


def test_the_answer_counts_verdicts(tables):
    counts = tables["claims"]["verdict"].value_counts()
    said = report.answer(tables)
    assert said.startswith(f"Of {len(CLAIMS)} claims, {counts['holds']} hold, ")
    assert f"{counts['wrong']} are wrong" in said


def test_the_answer_to_one_claim_quotes_it():
    said = report.answer(run(ClaimsConfig(id="script-two-periods"), Context()))
    assert "periods 10 and 100" in said
    assert "is wrong" in said
    assert "0 and 100 agree" in said


def test_the_summary_is_the_ledger_or_the_findings(tables):
    assert list(report.summary(tables)["id"]) == [claim.id for claim in CLAIMS]
    assert report.summary(tables)["measured"].map(len).max() <= report.WIDTH
    one = report.summary(run(ClaimsConfig(id="rotate-half"), Context()))
    assert list(one["agrees"]) == ["yes", "no", "no"]


# The figures


def test_figures_follow_the_tables(tables):
    with use_style():
        drawn = figures.draw(tables)
        one = figures.draw(run(ClaimsConfig(id="thirty-degrees"), Context()))
        none = figures.draw(run(ClaimsConfig(id="gpt-3-rope"), Context()))
    assert list(drawn) == ["ledger", *figures.EXPLAINED]
    assert list(one) == ["rotation"]
    assert none == {}


def test_the_ledger_figure_names_every_claim(tables):
    with use_style():
        figure = figures.ledger(tables["claims"])
    written = {text.get_text() for ax in figure.axes for text in ax.texts}
    assert {claim.id for claim in CLAIMS} <= written


def test_titles_say_what_the_tables_say(tables):
    with use_style():
        figure = figures.one_or_many(tables["resolution"])
        changed = tables["resolution"].assign(adjacent_collisions=0)
        other = figures.one_or_many(changed)
    assert "0% of neighbours lost in float32, 98.9% in bfloat16" in figure.axes[0].get_title("left")
    assert "0% in bfloat16" in other.axes[0].get_title("left")
