"""The ledger itself: ids, sources, quotations, questions, and finding claims."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from importlib import import_module
from importlib.resources import files
from inspect import signature
from pathlib import Path

import pytest

from ropelab.claims.committed import read_committed
from ropelab.claims.ledger import (
    ABSENT,
    CLAIMS,
    FAMILIES,
    QUESTIONS,
    SOURCES,
    cite,
    find_claim,
    select_claims,
)
from ropelab.claims.record import DECISIONS, Findings, Passage
from ropelab.claims.record import claim as decides
from ropelab.runs.errors import InputError
from tests.texts import mentions

NOTES = os.environ.get("ROPELAB_NOTES", "")
HAN = re.compile(r"[\u4e00-\u9fff]")
PASSAGES = [p for c in CLAIMS for p in c.passages] + [q.asked for q in QUESTIONS]


def test_ids_are_unique_and_readable():
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z][a-z0-9-]+", id_) for id_ in ids)


def test_every_claim_is_a_sentence_that_is_said_somewhere():
    for claim in CLAIMS:
        assert claim.statement.endswith("."), claim.id
        assert claim.passages, claim.id
        assert {passage.source for passage in claim.passages} <= set(SOURCES), claim.id


def test_every_file_of_claims_is_in_the_ledger_and_every_check_in_its_file():
    package = files("ropelab.claims")
    names = [file.name for file in package.iterdir()]
    records = {name.removesuffix(".toml") for name in names if name.endswith(".toml")}
    assert records - {"sources", "questions", "verdicts"} == set(FAMILIES)
    assert len(CLAIMS) >= 150


def test_every_record_has_its_check_and_every_check_its_record():
    decisions = {claim.id: claim.decision for claim in CLAIMS}
    assert set(decisions) == set(DECISIONS)
    for claim in CLAIMS:
        assert decisions[claim.id] is DECISIONS[claim.id]
        module = import_module(claim.decision.check.__module__)
        family = f"ropelab.claims.{claim.family}"
        assert module.__name__ == family or module.__name__.startswith(f"{family}.")
        # The decorated name of the module is the very function that is called.
        assert any(value is claim.decision.check for value in vars(module).values())
        takes = signature(claim.decision.check).parameters
        assert set(claim.inputs) <= set(takes), claim.id


def test_every_bound_that_a_sentence_names_is_given_and_no_other():
    for claim in CLAIMS:
        named = "{bound" in claim.expected
        assert named == (claim.decision.bound is not None), claim.id


@pytest.mark.processes
def test_the_list_of_claims_imports_no_check() -> None:
    code = (
        "import sys\n"
        "from ropelab.claims.ledger import CLAIMS, FAMILIES\n"
        "assert CLAIMS\n"
        "modules = {f'ropelab.claims.{name}' for name in FAMILIES}\n"
        "assert not modules & set(sys.modules)\n"
        "CLAIMS[0].decision\n"
        "assert len(modules & set(sys.modules)) == 1\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_claim_has_one_check():
    assert find_claim("rotate-half").decision
    with pytest.raises(ValueError, match="'rotate-half' has two checks"):
        decides("rotate-half")(lambda findings: None)


def test_every_source_is_cited_and_has_a_title():
    assert {passage.source for passage in PASSAGES} == set(SOURCES)
    assert all(source.title for source in SOURCES.values())


def test_links_are_those_of_the_papers():
    for key, source in SOURCES.items():
        assert not source.link or source.link.startswith("https://"), key
        if "arxiv.org" in source.link:
            year = int(source.link.rsplit("/", 1)[1][:2])
            assert source.year == 2000 + year, key


def test_a_note_is_quoted_where_it_is_cited_and_rendered_where_it_is_chinese():
    for passage in PASSAGES:
        if passage.source.isdecimal():
            assert passage.quote or passage.english, passage
            assert passage.section in SOURCES[passage.source].sections, passage
        if passage.quote:
            assert bool(passage.english) == bool(HAN.search(passage.quote)), passage


def shown(text: str) -> int:
    return len("".join(text.split()))


@pytest.mark.parametrize("note", [key for key in SOURCES if key.isdecimal()])
def test_less_than_15_percent_of_a_note_is_quoted(note: str) -> None:
    quotes = {passage.quote for passage in PASSAGES if passage.source == note}
    assert sum(map(shown, quotes)) < 0.15 * SOURCES[note].characters


@pytest.mark.skipif(
    not NOTES, reason="ROPELAB_NOTES names no folder with the notes' texts"
)
@pytest.mark.parametrize("note", [key for key in SOURCES if key.isdecimal()])
def test_less_than_15_percent_of_the_chinese_of_a_note_is_quoted(note: str) -> None:
    [file] = Path(NOTES).glob(f"{note}*")
    text = file.read_text(encoding="utf-8")
    assert shown(text) == SOURCES[note].characters
    quotes = {passage.quote for passage in PASSAGES if passage.source == note}
    assert sum(len(HAN.findall(x)) for x in quotes) < 0.15 * len(HAN.findall(text))


@cache  # the same claims stand in many passages and answers
def findings_of(id_: str) -> Findings:
    """What a claim has been shown by: the committed results, or its check."""
    return (
        read_committed()[id_] if find_claim(id_).reads else find_claim(id_).evidence()
    )


@pytest.mark.slow
def test_each_sentence_is_decided_by_findings_of_its_claim() -> None:
    asked = [(claim.id, passage.by) for claim in CLAIMS for passage in claim.passages]
    for question in QUESTIONS:
        asked += question.insertions
    for id_, by in asked:
        findings = findings_of(id_).findings
        assert any(by in finding.what for finding in findings), (id_, by)


@pytest.mark.skipif(
    not NOTES, reason="ROPELAB_NOTES names no folder with the notes' texts"
)
def test_quotations_are_in_the_notes():
    for passage in (p for p in PASSAGES if p.source.isdecimal()):
        [file] = Path(NOTES).glob(f"{passage.source}*")
        assert passage.quote in file.read_text(encoding="utf-8"), cite(passage)


def test_a_citation_names_author_year_and_section():
    assert cite(Passage("001", "§5.3")) == "Joye 2025, §5.3"
    assert cite(Passage("men", "table 2")) == "Men et al. 2024, table 2"
    assert cite(Passage("004")) == "“ROPE(旋转位置编码)简述”"


def test_claims_are_found_by_id_alone():
    assert find_claim("rotate-half").id == "rotate-half"
    with pytest.raises(InputError, match="unknown claim '1'"):
        find_claim("1")


@pytest.mark.parametrize("name", ["rotate-hlf", "0", "-1", "nothing like it"])
def test_an_unknown_claim_is_refused_with_what_is_allowed(name):
    with pytest.raises(
        InputError, match=f"unknown claim '{name}'.*`ropelab claims` lists"
    ):
        find_claim(name)


def test_misspelt_names_get_near_matches():
    with pytest.raises(InputError, match="did you mean rotate-half"):
        find_claim("rotate-hlf")


def test_a_source_has_its_claims():
    assert {claim.id for claim in select_claims("wang")} == {"bfloat16-breaks"}
    assert len(select_claims("001")) >= 35
    assert select_claims("nobody") == ()


ANSWERS = [pytest.param(q, id=f"{q.asked.source} {q.asked.section}") for q in QUESTIONS]


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_takes_the_numbers_of_the_findings_that_it_names(question):
    findings = {id_: findings_of(id_) for id_ in question.claims}
    assert findings
    answer = question.write_answer(findings)
    assert "{" not in answer
    for id_, words in question.insertions:
        assert words, id_
        assert findings[id_].find(words).measured in answer


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_does_not_depend_on_the_order_of_findings(question):
    findings = {id_: findings_of(id_) for id_ in question.claims}
    turned = {
        id_: replace(found, findings=found.findings[::-1])
        for id_, found in findings.items()
    }
    assert question.write_answer(turned) == question.write_answer(findings)


@pytest.mark.parametrize("question", ANSWERS)
def test_an_answer_changes_when_two_findings_are_exchanged(question):
    findings = {id_: findings_of(id_) for id_ in question.claims}
    answer = question.write_answer(findings)
    for id_, words in question.insertions:
        named = findings[id_].find(words)
        for other in findings[id_].findings:
            if other.measured == named.measured:
                continue
            swapped = {named.what: other.measured, other.what: named.measured}
            exchanged = [
                replace(one, measured=swapped.get(one.what, one.measured))
                for one in findings[id_].findings
            ]
            changed = {**findings, id_: replace(findings[id_], findings=exchanged)}
            assert question.write_answer(changed) != answer, (id_, words, other.what)


@pytest.mark.parametrize(
    ("schemes", "is_told"),
    [
        (["one(period=1e+06)"], False),
        (["one(period=1e+06, pairs=8)"], True),
        (["one(period=1e+06)", "one(period=1e+06, pairs=8)"], True),
    ],
)
def test_an_answer_is_written_whatever_schemes_a_run_has(schemes, is_told):
    (question,) = (q for q in QUESTIONS if "one-frequency-learned" in q.claims)
    findings = {id_: findings_of(id_) for id_ in question.claims}
    learned = Findings()
    for number, scheme in enumerate(schemes):
        what = f"recall of {scheme} against unscaled"
        learned.add_part(what, f"told {scheme} {number}", True, 0.0)
    answer = question.write_answer({**findings, "one-frequency-learned": learned})
    assert ("told one(period=1e+06, pairs=8)" in answer) is is_told
    assert (ABSENT in answer) is not is_told


def test_words_that_name_two_findings_or_none_are_refused():
    findings = find_claim("unseen-angles").evidence()
    assert findings.find("slower pairs").measured == "18 of 18"
    assert findings.find("full turn").measured == "14 of 14"
    for words in ("pairs", "", "no such words"):
        with pytest.raises(ValueError, match="findings have the words"):
            findings.find(words)


def test_the_note_is_told_how_many_slow_pairs_meet_new_angles():
    [question] = [q for q in QUESTIONS if "unseen-angles" in q.claims]
    findings = {id_: findings_of(id_) for id_ in question.claims}
    said = question.write_answer(findings)
    assert mentions(said, "18 of 18", "slow pairs")
    assert mentions(said, "14 of 14", "fast pairs")
