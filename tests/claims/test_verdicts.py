"""What a run of the ledger gives, and what the report and the figures make of it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.cells import cell_len
from rich.console import Console

from ropelab.claims import answer, committed, verdicts
from ropelab.claims.experiment import ClaimsConfig
from ropelab.claims.ledger import CLAIMS, SOURCES, find_claim
from ropelab.claims.published import precision
from ropelab.claims.record import Findings, Kind, Verdict
from ropelab.runs import builtin
from ropelab.runs.cell import Context, Stored, Values, hash_cell
from ropelab.runs.config import build, read_toml
from ropelab.runs.errors import InputError
from ropelab.runs.files import read_table_beside
from ropelab.show.captions import find_caption
from ropelab.show.figures import claims as figures
from ropelab.show.figures.style import use_style
from ropelab.show.terminal import show_table
from tests.panels import check_panels
from tests.texts import mentions


def run(config: ClaimsConfig, **values) -> dict[str, pd.DataFrame]:
    return verdicts.tables(config, Values(**values))


SPLIT = (("low", "long dependencies"), ("high", "local detail"))


@pytest.fixture(scope="module")
def asked() -> list[str]:
    """The experiments whose stored runs the whole ledger asked for."""
    return []


@pytest.fixture(scope="module")
def computed() -> Context:
    """Where the checks of the ledger are kept: each is computed once."""
    return Context()


@pytest.fixture(scope="module")
def tables(asked: list[str], computed: Context) -> dict[str, pd.DataFrame]:
    """The tables of the whole ledger, where no experiment has a stored run."""

    def stored(experiment: str) -> list[Stored]:
        asked.append(experiment)
        return []

    return run(ClaimsConfig(), context=computed, find_stored_runs=stored)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"id": "rotate-hlf"}, "unknown claim 'rotate-hlf'; did you mean rotate-half"),
        ({"source": "yarm"}, "unknown source 'yarm'; did you mean 'yarn'"),
        ({"id": "rotate-half", "source": "001"}, "give id or source, not both"),
    ],
)
def test_bad_input_gets_one_line(values, message):
    with pytest.raises(InputError, match=message):
        build(ClaimsConfig, values)


@pytest.mark.parametrize("source", SOURCES)
def test_every_check_of_a_source_finds_what_decides_it(source, computed):
    """Source by source, which together compute the ledger for the tests below."""
    for cell in verdicts.cells(ClaimsConfig(source=source)):
        cell_tables = dict(Values(context=computed)[cell])
        (evidence,) = cell_tables.pop("evidence")["evidence"]
        findings = Findings.from_json(evidence, cell_tables)
        assert findings.expected
        assert findings.findings
        # Nothing is undecided that has an answer to each of its parts.
        is_open = any(finding.agrees is None for finding in findings.findings)
        kind = find_claim(cell.key["claim"]).kind
        assert is_open or findings.verdict(kind) != Verdict.UNDECIDED


def test_every_claim_has_a_row_in_order(tables):
    claims = tables["claims"]
    assert list(claims["id"]) == [claim.id for claim in CLAIMS]
    wanted = ["id", "source", "statement", "verdict", "measured", "expected", "command"]
    assert set(wanted) <= set(claims.columns)
    assert (claims[wanted].map(len) > 0).all().all()
    assert list(claims["evidence"]) == [claim.kind for claim in CLAIMS]


def test_findings_repeat_the_verdict_of_each_claim(tables):
    against = {Verdict.WRONG, Verdict.NOT_REPRODUCED}
    for id_, findings in tables["findings"].groupby("id"):
        parts = findings[findings["role"] == "part"]["agrees"]
        verdict = tables["claims"].set_index("id").loc[id_, "verdict"]
        assert (verdict in against) == ("no" in set(parts))


def test_without_stored_runs_the_committed_verdicts_are_given_and_said_to_be_so(tables):
    claims = tables["claims"].set_index("id")
    elsewhere = claims["decided_from"] == committed.COMMITTED
    assert set(claims.index[elsewhere]) == {claim.id for claim in CLAIMS if claim.reads}
    assert set(claims.loc[elsewhere, "verdict"]) > {
        Verdict.REPRODUCED,
        Verdict.NOT_REPRODUCED,
    }
    for id_, found in committed.read_committed().items():
        if not find_claim(id_).reads:
            continue
        assert claims.loc[id_, "verdict"] == found.verdict(find_claim(id_).kind)
        assert claims.loc[id_, "measured"] == found.measured
    said = verdicts.answer(tables)
    assert mentions(said, "No run", f"{elsewhere.sum()} statements")
    assert mentions(said, "`ropelab claims --run`")
    one = verdicts.answer(run(ClaimsConfig(id="yarn-extends")))
    assert mentions(one, "committed results", "`ropelab run reference/extrapolate`")


@pytest.mark.slow
def test_without_torch_committed_findings_decide_and_are_those_of_the_checks(
    tables, monkeypatch
):
    closed = {claim.id for claim in CLAIMS if claim.needs_torch}
    made = tables["claims"].set_index("id").loc[sorted(closed)]
    assert set(made["decided_from"]) == {committed.HERE}
    monkeypatch.setattr(committed, "is_installed", lambda package: False)
    config = ClaimsConfig()
    asked = {cell.key["claim"] for cell in verdicts.cells(config)}
    assert asked.isdisjoint(closed)
    without = run(config)
    claims = without["claims"].set_index("id")
    assert (
        set(claims.index[claims["decided_from"] == committed.WITHOUT_TORCH]) == closed
    )
    # The last places of float32 differ between machines.
    here, stored = (
        found[["verdict", "measured", "expected"]].replace(
            r"\d\.\de-0[6-9]", "rounding", regex=True
        )
        for found in (made, claims.loc[made.index])
    )
    pd.testing.assert_frame_equal(stored, here)
    assert f"{len(closed)} of arithmetic need torch" in verdicts.answer(without)


def test_only_numbers_that_another_seed_changes_are_called_random():
    said = "another --seed gives other digits"
    for id_ in ("t5-relative", "decay-scores", "same-output", "scaled-scores"):
        assert said not in verdicts.answer(run(ClaimsConfig(id=id_)))
    drawn = run(ClaimsConfig(id="bfloat16-breaks"))
    assert said in verdicts.answer(drawn)
    assert set(drawn["findings"]["draws"]) == {precision.DRAWS}
    # A run of an earlier version does not say what was drawn.
    older = drawn | {"findings": drawn["findings"].drop(columns="draws")}
    assert said not in verdicts.answer(older)


def test_a_run_that_is_stored_decides_before_the_committed_results(tables):
    claim = find_claim("base-bound-table")
    bound = pd.DataFrame(
        {
            "context_tokens": [1024],
            "head_dim": 128,
            "rotating_pairs": 64,
            "smallest_admissible_base": [5.0],
        }
    )
    stored = [Stored("base", {}, {"bound": bound}, "")]
    own = run(ClaimsConfig(id=claim.id), find_stored_runs=lambda _: stored)[
        "claims"
    ].iloc[0]
    assert own["decided_from"] == committed.HERE
    assert own["measured"] != tables["claims"].set_index("id").loc[claim.id, "measured"]


def test_a_sentence_of_a_claim_of_several_has_its_own_verdict(tables):
    passages = tables["passages"].set_index("english")
    low, high = (f"{name} parts catch {what}" for name, what in SPLIT)
    assert passages.loc[low, "verdict"] == Verdict.NOT_REPRODUCED
    assert passages.loc[high, "verdict"] == Verdict.PARTLY
    assert "fast third" in passages.loc[high, "decided_by"]
    page = answer.page(tables).set_index("english")
    assert page.loc[high, "verdict"] == Verdict.PARTLY
    said = verdicts.answer(run(ClaimsConfig(id="detail-and-whole")))
    assert f"({high}) (this sentence: {Verdict.PARTLY})" in said


@pytest.mark.slow
def test_a_run_is_deterministic(tables):
    again = run(ClaimsConfig())
    assert set(again) == set(tables)
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, again[name], check_exact=True)


@pytest.mark.slow
def test_verdicts_do_not_hang_on_one_draw(tables):
    other = run(ClaimsConfig(seed=7))
    assert list(other["claims"]["verdict"]) == list(tables["claims"]["verdict"])
    here, there = tables["findings"], other["findings"]
    is_drawn = here["draws"].notna()
    changed = here["measured"] != there["measured"]
    assert set(here.loc[changed & ~is_drawn, "id"]) == set()
    count = here.loc[is_drawn, "id"].nunique()
    assert f"{count} claims measure means of random draws" in verdicts.answer(tables)


def test_one_claim_gives_its_own_rows_and_series():
    tables = run(ClaimsConfig(id="decay-scores"))
    assert set(tables) == {"claims", "findings", "passages", "decay"}
    assert list(tables["claims"]["id"]) == ["decay-scores"]


def test_one_source_gives_its_sentences_in_the_order_of_the_text():
    tables = run(ClaimsConfig(source="002"))
    passages = tables["passages"]
    assert set(passages["source"]) == {"002"}
    order = SOURCES["002"].sections
    places = [order.index(place) for place in passages["place"]]
    assert places == sorted(places)
    page = answer.page(tables)
    quoted = passages["quote"] != ""
    assert list(page["sentence"]) == list(
        passages["quote"].where(quoted, passages["english"])
    )
    assert list(page["english"]) == list(passages["english"].where(quoted, ""))
    assert set(page["verdict"]) <= {str(verdict) for verdict in Verdict}
    assert verdicts.answer(tables).startswith("“旋转位置编码”: of ")


def test_a_page_counts_the_sentences_that_it_lists():
    tables = run(ClaimsConfig(source="003"))
    listed = verdicts.summary(tables)
    counted = re.findall(r"[Oo]f (\d+) sentences", verdicts.answer(tables))
    assert sum(map(int, counted)) == len(listed) > len(tables["claims"])


def test_a_narrow_terminal_keeps_id_verdict_and_why(capsys):
    listed = verdicts.summary(run(ClaimsConfig(source="001")))
    show_table(listed, Console(width=80))
    out = capsys.readouterr().out
    head = out.splitlines()[0].split()
    assert head[:2] == ["id", "verdict"]
    assert out.count("why: ") == len(listed)
    assert max(map(cell_len, out.splitlines())) <= 80
    for id_ in listed["id"]:
        assert id_ in out


def test_a_page_has_quotations_and_statements_where_there_are_none():
    tables = run(ClaimsConfig(source="kazemnejad"))
    assert set(tables) == {"claims", "findings", "passages"}
    several = run(ClaimsConfig(source="rope_basics"))
    page = answer.page(several)
    assert list(page["sentence"]) == list(several["passages"]["quote"])
    assert list(page["section"]) == list(several["passages"]["place"])
    several["passages"]["quote"] = ""
    several["passages"]["english"] = ""
    page = answer.page(several)
    assert list(page["sentence"]) == list(several["claims"]["statement"])


def test_a_page_answers_the_questions_that_its_note_asks():
    tables = run(ClaimsConfig(source="001"))
    assert len(tables["questions"]) == 6
    said = verdicts.answer(tables)
    for text in tables["questions"]["answer"]:
        assert text in said


def test_claims_that_read_runs_get_those_of_their_experiment_and_the_others_are_cells(
    tables, asked
):
    assert sorted(asked) == sorted({claim.reads for claim in CLAIMS if claim.reads})
    assert set(asked) == set(ClaimsConfig().list_read_experiments())
    cells = verdicts.cells(ClaimsConfig(seed=3))
    assert {cell.key["claim"] for cell in cells} == {
        c.id for c in CLAIMS if not c.reads
    }
    for cell in cells:
        assert cell.key["inputs"].get("seed", 3) == 3
        json.dumps(cell.key)


def test_a_cell_of_a_claim_is_the_same_in_every_run_that_needs_it():
    def names(**values):
        return {hash_cell(cell) for cell in verdicts.cells(ClaimsConfig(**values))}

    assert len(names(id="bfloat16-breaks")) == 1
    assert names(id="bfloat16-breaks") < names()
    assert not names(id="bfloat16-breaks") & names(seed=1)
    assert names(id="three-forms") < names(seed=1)  # it draws nothing


def test_run_asks_for_what_the_trained_claims_read():
    assert ClaimsConfig().list_required_runs() == ()
    asked = {name for name, _ in ClaimsConfig(run=True).list_required_runs()}
    # A released model is nobody's to make.
    read = {claim.reads for claim in CLAIMS if claim.reads}
    assert asked == read - {"evaluate"}
    assert read == {*ClaimsConfig().list_read_experiments()}


def test_run_makes_the_run_of_the_config_that_a_claim_names():
    one = ClaimsConfig(run=True, id="one-frequency-learned").list_required_runs()
    [(name, values)] = one
    assert name == "spectrum"
    assert "one(period=1e6, pairs=8)" in values["schemes"]
    assert len(values["seeds"]) == 5
    assert ClaimsConfig(run=True, id="kvquant-before-rope").list_required_runs() == ()
    assert ClaimsConfig(run=True, id="rotate-half").list_required_runs() == ()
    of_note = ClaimsConfig(run=True, source="003").list_required_runs()
    assert {name for name, _ in of_note} == {"encodings", "extrapolate", "spectrum"}


@pytest.mark.parametrize("claim", [c for c in CLAIMS if c.reads], ids=lambda c: c.id)
def test_a_claim_that_reads_runs_names_a_config_of_that_experiment(claim):
    experiment, values = read_toml(builtin.find_config(Path("configs", claim.config)))
    assert experiment == claim.reads
    assert "grid" not in values
    assert claim.command == f"ropelab run {claim.config}"


# The report


def test_the_answer_counts_the_two_kinds_apart(tables):
    claims = tables["claims"]
    said = verdicts.answer(tables)
    for kind, negative in (
        (Kind.ARITHMETIC, Verdict.WRONG),
        (Kind.TRAINED, Verdict.NOT_REPRODUCED),
    ):
        mine = claims[claims["evidence"] == kind]
        assert f"Of {len(mine)} statements {answer.WORDS['about'][kind]}" in said
        count = (mine["verdict"] == negative).sum()
        singular, plural = answer.WORDS["counted"][negative]
        assert f"{count} {singular if count == 1 else plural}" in said


def test_one_claim_prints_quotations_as_quotations_and_our_words_as_ours():
    said = verdicts.answer(run(ClaimsConfig(id="sinusoid-smooth")))
    assert said.startswith("Holds with a condition: The sinusoidal code")
    assert "(sinusoid-smooth, in our words)." in said
    assert "“Positional Embedding”" in said
    assert mentions(said, "“编码向量的变化是平滑连续的”", "(the code vector")
    unquoted = verdicts.answer(run(ClaimsConfig(id="script-two-periods")))
    assert mentions(unquoted, "Said in", "rope_multi_frequency.py", "Joye 2025")
    assert unquoted.startswith("Wrong: ")
    assert "0 and 100 agree" in unquoted


def test_what_is_read_back_from_a_file_is_told_in_the_same_words(tmp_path):
    tables = run(ClaimsConfig(id="low-perplexity-enough"))
    for name, table in tables.items():
        table.to_csv(tmp_path / name, index=False)
    read = {name: pd.read_csv(tmp_path / name) for name in tables}
    assert verdicts.answer(read) == verdicts.answer(tables)


def test_the_summary_is_the_ledger_or_the_findings(tables):
    assert list(verdicts.summary(tables)["id"]) == [claim.id for claim in CLAIMS]
    measured = tables["claims"].set_index("id")["decided_at"]
    shown = verdicts.summary(tables).set_index("id")["measured"]
    assert shown.to_dict() == measured.to_dict()
    one = verdicts.summary(run(ClaimsConfig(id="rotate-half")))
    assert list(one["agrees"]) == ["yes", "no", "no"]


# The figures


def test_figures_follow_the_tables(tables):
    with use_style():
        drawn = figures.draw(tables)
        one = figures.draw(run(ClaimsConfig(id="thirty-degrees")))
        none = figures.draw(run(ClaimsConfig(id="gpt-3-rope")))
        note = figures.draw(run(ClaimsConfig(source="004")))
    assert list(drawn) == ["ledger", *figures.EXPLANATIONS]
    assert list(one) == ["rotation"]
    assert none == {}
    assert list(note) == ["ledger"]


def test_each_table_that_explains_a_claim_has_its_function(tables):
    functions = {
        "permutation": figures.draw_permutation,
        "rotation": figures.draw_rotation,
        "resolution": figures.draw_resolution,
        "decay": figures.draw_decay,
        "worked_example": figures.draw_worked_example,
        "sinusoid_code": figures.draw_sinusoid_code,
        "sinusoid_shift": figures.draw_sinusoid_shift,
        "sinusoid_sum": figures.draw_sinusoid_sum,
        "sinusoid_distance": figures.draw_sinusoid_distance,
    }
    assert list(figures.EXPLANATIONS) == list(functions)
    for name, draw in functions.items():
        assert figures.EXPLANATIONS[name] is draw
        assert name in tables
        assert find_caption(name, "claims")


def test_the_ledger_figure_names_every_claim_under_its_kind(tables):
    with use_style():
        figure = figures.draw_ledger(tables["claims"])
    for panel, kind in zip(figure.subfigs, Kind, strict=True):
        written = {text.get_text() for ax in panel.axes for text in ax.texts}
        assert {claim.id for claim in CLAIMS if claim.kind is kind} <= written
        assert ("wrong" in panel.get_suptitle()) == (kind is Kind.ARITHMETIC)


def test_titles_say_what_the_tables_say(tables):
    with use_style():
        figure = figures.draw_resolution(tables["resolution"])
        changed = tables["resolution"].assign(adjacent_collisions=0)
        other = figures.draw_resolution(changed)
    title = figure.axes[0].get_title("left")
    assert mentions(title, "bfloat16", "98.9%", "0% with 32 frequencies")
    changed_title = other.axes[0].get_title("left")
    assert mentions(changed_title, "0% with 32 frequencies")
    assert "98.9%" not in changed_title


def test_titles_of_the_sinusoidal_code_say_what_the_tables_say(tables):
    summed, product, turned = (
        tables[name] for name in ("sinusoid_sum", "sinusoid_distance", "sinusoid_shift")
    )
    later = summed["start"] == "period"
    same = summed.assign(value=summed["value"].where(~later, 0.0))
    same["value"] = same.groupby(["spacing", "position_tokens"])["value"].transform(
        "sum"
    )
    code_of_x_and_delta = turned[["x", "y"]].iloc[1]
    right = turned.copy()
    right.loc[2, ["x", "y"]] = code_of_x_and_delta
    with use_style():
        figure = figures.draw_sinusoid_sum(summed)
        assert "does not" in figure.get_suptitle()
        figure.draw_without_rendering()
        check_panels(figure)
        assert "does not" not in figures.draw_sinusoid_sum(same).get_suptitle()
        assert "comes back" in figures.draw_sinusoid_distance(product).axes[
            0
        ].get_title("left")
        low = figures.draw_sinusoid_distance(product.assign(value=0.5))
        assert "comes back" not in low.axes[0].get_title("left")
        assert "back by" in figures.draw_sinusoid_shift(turned).axes[0].get_title(
            "left"
        )
        assert "where it belongs" in figures.draw_sinusoid_shift(right).axes[
            0
        ].get_title("left")


def test_the_series_of_the_code_are_the_code(tables):
    grid = tables["sinusoid_code"].pivot(index="position_tokens", columns="feature")[
        "value"
    ]
    assert grid.shape == (64, 32)
    assert grid.loc[3, 4] == pytest.approx(np.sin(3 / 10000 ** (4 / 32)))
    assert grid.loc[3, 5] == pytest.approx(np.cos(3 / 10000 ** (4 / 32)))
    product = tables["sinusoid_distance"].set_index(["spacing", "distance_tokens"])[
        "value"
    ]
    assert product["harmonic", 512] == pytest.approx(1)
    angles = 7 / 10000.0 ** (np.arange(0, 512, 2) / 512)
    assert product["exponential", 7] == pytest.approx(np.cos(angles).mean())


def test_a_stored_run_does_not_fit_another_ledger(monkeypatch):
    ledger = ClaimsConfig().inputs()["ledger"]
    assert ledger == ClaimsConfig(id="three-forms").inputs()["ledger"]

    def with_one_more(file: str, name: str) -> dict[str, Any]:
        return read_table_beside(file, name) | (
            {"claim": []} if name == "scores" else {}
        )

    monkeypatch.setattr("ropelab.claims.experiment.read_table_beside", with_one_more)
    assert ClaimsConfig().inputs()["ledger"] != ledger


def test_a_run_that_lacks_what_arithmetic_needs_decides_nothing():
    """A run of `base` for other contexts has no exact bounds for the printed bases."""
    claim = find_claim("base-bound-table-su")
    row = {"head_dim": 128, "rotating_pairs": 64, "context_tokens": 1000}
    bound = pd.DataFrame([{**row, "smallest_admissible_base": 1000.0}])
    run_of_base = Stored("base", {}, {"bound": bound}, path="")
    here = claim.evidence(runs=(run_of_base,))
    assert here.verdict(claim.kind) is Verdict.UNDECIDED
    decided = verdicts._decide_by_runs(claim, (run_of_base,))
    assert decided.origin == committed.COMMITTED
    assert decided.findings.verdict(claim.kind) is Verdict.HOLDS
