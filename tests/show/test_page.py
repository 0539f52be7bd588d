"""What the page is made of: the choice of axes, the rows that disagree, one file or
none.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import copytree, rmtree

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import ropelab
from ropelab.claims.ledger import judge_run
from ropelab.runs.errors import InputError
from ropelab.runs.leading import find_leads
from ropelab.runs.store import RUN
from ropelab.show.captions import find_caption
from ropelab.show.drawn import draw_figures, find_draw
from ropelab.show.intervals import find_intervals
from ropelab.show.page import shown, views
from ropelab.show.page.document import encode_data, write_page
from ropelab.show.page.joins import (
    CITED,
    HEADLINES,
    HINTS,
    LEDGER_COLUMNS,
    OPENS,
    PROVENANCE,
    RECORDS,
    UNDRAWN,
    View,
    find_disagreements,
    find_headline,
    read_notes,
)
from ropelab.show.page.report import _draw_panels, _rank, write_report
from ropelab.show.page.shown import ShownRun, find_runs
from ropelab.show.page.views import (
    FIXED,
    OUTCOMES,
    add_labels,
    choose_view,
    describe_table,
    find_kinds,
)
from tests.show.made import NASTY, accuracies, claims, write_run
from tests.texts import mentions

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


def test_columns_are_told_apart():
    kinds = find_kinds(accuracies(0.0))
    assert kinds["distance_tokens"] == "key"
    assert kinds["accuracy"] == "measure"
    assert kinds["seed"] == "repeat"
    assert kinds["trials"] == "count"
    assert kinds["ci_low"] == kinds["ci_high"] == "interval"
    assert kinds["train_len_tokens"] == "setting"


def with_kinds(table):
    table = add_labels(table)
    return table, find_kinds(table)


def test_a_table_without_a_hint_is_drawn_over_its_tokens():
    table = accuracies(0.0).rename(
        columns={"distance_tokens": "maximum_distance_tokens"}
    )
    wanted = View("maximum_distance_tokens", ("accuracy",), ("label",))
    assert choose_view("something_new", *with_kinds(table)) == wanted


def test_rows_that_differ_in_more_than_the_axes_are_narrowed_to_one_kind():
    table = pd.concat(
        [accuracies(0.0).assign(task=task) for task in ("copy", "associative_recall")]
    )
    view = View("distance_tokens", ("accuracy",), ("label",))
    assert choose_view("copy_accuracy", *with_kinds(accuracies(0.0))) == view
    narrowed = replace(view, where={"task": "copy"})
    assert choose_view("copy_accuracy", *with_kinds(table)) == narrowed


def test_a_table_of_words_is_not_drawn():
    assert (
        choose_view("findings", *with_kinds(claims()[["statement", "source"]])) is None
    )


@cache
def read_reference(path: Path) -> pd.DataFrame:
    """Read a committed table once for all tests, none of which may change it."""
    return pd.read_csv(path)


@pytest.fixture(scope="module")
def reference_runs() -> list[ShownRun]:
    """The committed runs, each of which is read and verified whole."""
    return find_runs([REFERENCE])


@pytest.mark.parametrize(
    "path", sorted(REFERENCE.glob("*/*/tables/*.csv")), ids=lambda p: p.stem
)
def test_every_reference_view_names_columns_that_are_there(path):
    table, kinds = with_kinds(read_reference(path).copy())
    view = choose_view(path.stem, table, kinds)
    assert view is None or view.columns() <= set(table.columns)


@pytest.fixture(scope="module")
def reference():
    """The committed tables by name, and what is made of them when they are shown."""
    found: dict[str, list[pd.DataFrame]] = {}
    for path in sorted(REFERENCE.glob("*/*/tables/*.csv")):
        found.setdefault(path.stem, []).append(read_reference(path))
    # Verdicts are not stored: runs are judged when they are shown.
    runs = find_runs(sorted(REFERENCE.glob("encodings/*")), judge_run)
    found["literature"] = [run.verdicts for run in runs]
    return found


@pytest.mark.parametrize(
    ("name", "view"), [(name, view) for name, views in HINTS.items() for view in views]
)
def test_every_hint_finds_its_columns_and_its_rows_in_the_reference(
    reference, name, view
):
    fitting = [
        table for table in reference[name] if view.columns() <= set(table.columns)
    ]
    assert fitting
    for column, value in view.where.items():
        assert any(
            (table[column].astype(str) == str(value)).any() for table in fitting
        ), column


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: f"{r.table}-{r.word}")
def test_every_record_of_disagreement_finds_rows_in_the_reference(reference, record):
    fitting = [t for t in reference[record.table] if record.columns() <= set(t.columns)]
    assert any(len(record.select_rows(table)) for table in fitting)
    assert (
        all(record.source in table for table in fitting) or not record.source.islower()
    )


def test_every_other_column_that_the_page_knows_by_name_is_in_the_reference(reference):
    assert set(reference) >= {*UNDRAWN, *OPENS}
    assert all(set(table) >= LEDGER_COLUMNS for table in reference["claims"])
    assert all(set(table) >= set(CITED) for table in reference["passages"])
    columns = {
        name for tables in reference.values() for table in tables for name in table
    }
    assert columns >= {*FIXED, *OUTCOMES, "method", "factor", "arm"}


def test_every_fact_of_the_provenance_is_in_the_manifests_of_the_reference(
    reference_runs,
):
    assert all(set(run.manifest) >= set(PROVENANCE) for run in reference_runs)
    assert {key for run in reference_runs for key in run.manifest["config"]} >= set(
        shown.FIXED
    )


@pytest.mark.slow
def test_every_headline_finds_its_number_in_the_reference(reference_runs):
    found = set()
    for run in reference_runs:
        if find_headline(run) is None:
            # Comparisons do not show who leads, so that no number stands alone.
            assert "comparisons" in run.tables, run.key
            continue
        own = [row for row in HEADLINES if row.experiment == run.manifest["experiment"]]
        found.add(next(row.said for row in own if row.find_number(run)))
    # What the reference does not decide is no headline of it.
    assert {row.column for row in HEADLINES if row.said not in found} <= {
        "last_nll @",
        "passkey @",
    }


def test_the_number_of_a_card_is_the_best_of_its_table():
    (run,) = find_runs([*REFERENCE.glob("extrapolate/extrapolate-8290c660")])
    number = find_headline(run)
    assert number is not None
    table = run.tables["copy_accuracy"].query(
        "distance_tokens == 6144 and context_tokens == 8192"
    )
    shares = add_labels(table).groupby("label")["accuracy"].mean()
    assert number.value == f"{shares.max():.0%}"
    assert f"6144 tokens back with {shares.idxmax()}" in number.said
    # All that are not significantly different from the best are bold.
    leads = find_leads(pd.DataFrame(run.manifest["summary"]), run.tables["comparisons"])
    for place, column in ((1, "copy @6144"), (2, "nll @8192")):
        bold = [row[0][0] for row in number.rows if row[place][1]]
        assert set(bold) == set(leads[column].names)
    assert leads["copy @6144"].first == shares.idxmax()


def test_every_figure_of_the_reference_has_a_caption(reference_runs):
    missing = set()
    for run in reference_runs:
        for figure in run.manifest["figures"]:
            name = Path(figure).stem
            if not find_caption(name, run.manifest["experiment"]):
                missing.add(name)
    # As figures of earlier versions were called.
    assert {name.split("_")[0] for name in missing} <= {"hidden", "recall"}


def drawn_of(
    experiment: str, name: str
) -> tuple[list[Axes], Mapping[str, pd.DataFrame]]:
    """The panels of a figure of the first committed run that has it, and the run's
    tables.
    """
    runs = find_runs([*REFERENCE.glob(f"{experiment}/*")])
    run = next(run for run in runs if f"figures/{name}.png" in run.manifest["figures"])
    tables = run.stored_tables
    return draw_figures(find_draw(experiment), tables)[name].axes, tables


def test_captions_name_the_lines_that_are_drawn() -> None:
    panels, _ = drawn_of("base-empirical", "retrieval_and_text")
    lines = [line for ax in panels for line in ax.lines]
    vertical = [line for line in lines if len(np.unique(line.get_xdata())) == 1]
    assert len(vertical) == 2
    assert "vertical" in find_caption("retrieval_and_text")
    assert "hollow" not in find_caption("retrieval_and_text")
    panels, _ = drawn_of("claims", "sinusoid_code")
    assert "features, the lower rows" in find_caption("sinusoid_code", "claims")
    assert (
        sum(str(line.get_label()).startswith("feature ") for line in panels[1].lines)
        == 4
    )


def ends_of_the_first_band(panels: list[Axes]) -> set[float]:
    return {
        *np.asarray(panels[0].collections[0].get_paths()[0].vertices)[:, 1].tolist()
    }


def test_captions_name_the_bands_that_are_drawn() -> None:
    panels, tables = drawn_of("spectrum", "bands")
    first = tables["learned"].query("metric == 'copy accuracy'").iloc[0]
    assert {first["ci_low"], first["ci_high"]} <= ends_of_the_first_band(panels)
    assert "95 % intervals" in find_caption("bands")
    assert "95 % intervals" in find_caption("one_or_many")
    panels, tables = drawn_of("encodings", "loss_by_position")
    losses = tables["text_nll"]
    near = losses[losses["bucket_end_tokens"] == losses["bucket_end_tokens"].min()]
    seeds = near.groupby("encoding")["nll_nats_per_byte"].agg(["min", "max"])
    band = ends_of_the_first_band(panels)
    assert any(
        low < high and {low, high} <= band for low, high in seeds.to_numpy().tolist()
    )
    assert "range of the seeds" in find_caption("loss_by_position")


@pytest.mark.slow
def test_disagreements_of_the_reference_reach_the_page(tmp_path):
    folders = [*REFERENCE.glob("base-empirical/*"), *REFERENCE.glob("encodings/*")]
    runs = find_runs(folders, judge_run)
    found = find_disagreements(runs)
    titles = {record.table: record.title for record in RECORDS}
    assert set(found) == {titles["predictions"], titles["literature"]}
    assert any("copy with base 30" in one.said for one in found[titles["predictions"]])
    page = write_report(runs, tmp_path / "page.html", draw=False).read_text()
    assert "disagrees with the literature" in page
    assert titles["predictions"] in page


@pytest.mark.parametrize("draw", [True, False])
def test_figures_that_are_not_stored_are_drawn_for_the_page(tmp_path, capsys, draw):
    folder = copytree(
        next((REFERENCE / "freqs").iterdir()), tmp_path / "freqs" / "a-00000001"
    )
    rmtree(folder / "figures", ignore_errors=True)
    (run,) = find_runs([folder])
    text = write_report([run], tmp_path / "page.html", draw=draw).read_text()
    # One of them also on the card of the question.
    assert text.count("<img") == (3 if draw else 0)
    assert ("left out: 2 figures" in capsys.readouterr().err) != draw


def test_figures_are_drawn_although_a_table_is_empty(tmp_path, capsys):
    run = ropelab.base(context="256", head_dim=16, results=tmp_path)
    assert run.tables["published"].empty
    text = write_report(find_runs([tmp_path]), tmp_path / "page.html").read_text()
    assert "left out" not in capsys.readouterr().err
    # Findings are text beside the figures only if these were drawn for the page.
    assert "Bases whose sum of cosines stays ≥ 0 (filled)" in text


def test_the_notes_are_read_sentence_by_sentence_in_the_page(tmp_path):
    (ledger,) = find_runs(sorted((REFERENCE / "claims").glob("*")))
    notes = read_notes(ledger)
    assert [note["key"] for note in notes] == ["000", "001", "002", "003", "004"]
    cited = ledger.tables["passages"]["source"].astype(str).str.isdecimal().sum()
    assert sum(len(note["sentences"]) for note in notes) == cited
    page = write_report([ledger], tmp_path / "page.html", draw=False).read_text()
    for note in notes:
        assert f'id="note-{note["key"]}"' in page
        assert all(f'href="#claim-{row["id"]}"' in page for row in note["sentences"])
    asked = [question for note in notes for question in note["questions"]]
    assert len(asked) == len(ledger.tables["questions"])


def test_a_ledger_without_passages_has_no_notes(tmp_path):
    folder = write_run(tmp_path, "a-00000001", {"claims": claims()}, "ropelab claims")
    assert read_notes(*find_runs([folder])) == []


def test_bounds_belong_to_the_column_before_them():
    names = [
        "value",
        "ci_low",
        "ci_high",
        "text",
        "text_ci_low_rad",
        "text_ci_high_rad",
    ]
    assert find_intervals(names) == {
        "value": ("ci_low", "ci_high"),
        "text": ("text_ci_low_rad", "text_ci_high_rad"),
    }


def test_tables_reach_the_script_whole():
    table = pd.DataFrame(
        {"a": [1.5, float("nan"), float("inf")], "b": ["x", None, "x"]}
    )
    told = json.loads(encode_data(describe_table("t", table)))
    assert told["columns"][0]["values"] == [1.5, None, "inf"]
    assert (told["columns"][1]["words"], told["columns"][1]["codes"]) == (
        ["x"],
        [0, -1, 0],
    )


def test_data_cannot_end_its_element():
    text = encode_data({"name": "</script><!--" + NASTY})
    assert "<" not in text
    assert json.loads(text)["name"].startswith("</script>")


def test_the_policy_names_the_script_that_is_there(report):
    text = report.read_text()
    (script,) = re.findall(r"<script>(.*)</script>", text, re.DOTALL)
    code = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src &#39;sha256-{code}&#39;" in text
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_settings_are_the_flags_of_the_command():
    manifest = {"command": "ropelab toy --name 'a b' --no-slow --fast --seeds 0,1"}
    assert ShownRun(Path(), manifest).settings == [
        ("name", "a b"),
        ("slow", "no"),
        ("fast", "yes"),
        ("seeds", "0, 1"),
    ]


def test_disagreements_are_the_rows_a_table_marks(tmp_path):
    write_run(tmp_path, "one-1", {"claims": claims()}, "ropelab claims")
    write_run(tmp_path, "two-2", {"claims": claims()}, "ropelab claims --seed 1")
    ((title, rows),) = find_disagreements(find_runs([tmp_path])).items()
    assert "wrong" in title
    assert [row.found for row in rows] == ["turns: 0"]


def test_a_table_without_the_columns_is_passed_over(tmp_path):
    tables = {"claims": claims().drop(columns="decided_at")}
    write_run(tmp_path, "one-1", tables, "ropelab claims")
    assert find_disagreements(find_runs([tmp_path])) == {}
    assert (
        "What disagrees"
        not in write_report(find_runs([tmp_path]), tmp_path / "i").read_text()
    )


def test_a_run_is_found_by_its_folder_once(results):
    folder = results / "toy" / "first-00000001"
    assert [run.folder for run in find_runs([folder, folder])] == [folder]
    assert len(find_runs([results])) == 4


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(InputError, match="no finished run in"):
        find_runs([tmp_path])


def test_a_foreign_manifest_is_left_out_aloud(tmp_path, capsys):
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "x" / "y" / "manifest.json").write_text('{"experiment": "x"}')
    with pytest.raises(InputError):
        find_runs([tmp_path])
    assert "left out" in capsys.readouterr().err


def test_a_failed_page_leaves_the_old_one(tmp_path):
    path = tmp_path / "index.html"
    path.write_text("old")
    with pytest.raises(Exception, match="undefined"):
        write_page(path, "report.html.j2", ())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_choices_are_written_as_the_script_writes_them():
    table = pd.DataFrame(
        {
            "at_tokens": [1, 2, 1, 2],
            "value": [0.1, 0.2, 0.3, 0.4],
            "fused": [True, True, False, False],
        }
    )
    told = describe_table("t", table)
    assert told["view"]["series"] == ("fused",)
    assert told["columns"][2]["words"] == ["yes", "no"]
    narrowed = pd.concat([table.assign(factor=factor) for factor in (4.0, 8.0)])
    assert describe_table("t", narrowed)["view"]["where"] == {"factor": "4"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "tables" / "claims.csv").write_text(""),
        lambda folder: (folder / "tables" / "claims.csv").write_bytes(
            b"\xff\xfe,\n1,2,3\n"
        ),
        lambda folder: (folder / "tables" / "claims.csv").unlink(),
        lambda folder: (folder / "manifest.json").write_text("[]"),
        lambda folder: _change(folder, command="ropelab 'unclosed"),
        lambda folder: _change(folder, command=5),
        lambda folder: _change(folder, title=5),
        lambda folder: _change(folder, times="x"),
        lambda folder: _change(folder, measurements="x"),
        lambda folder: _change(folder, tables=None),
        lambda folder: _type_over(folder, "It is ", "It was "),
    ],
)
def test_a_damaged_run_is_left_out_and_the_others_shown(tmp_path, capsys, spoil):
    write_run(tmp_path, "whole-1", {"claims": claims()}, "ropelab claims")
    spoil(write_run(tmp_path, "spoilt-2", {"claims": claims()}, "ropelab claims"))
    assert [run.folder.name for run in find_runs([tmp_path])] == ["whole-1"]
    assert capsys.readouterr().err.count("left out") == 1


def _change(folder, **changes):
    path = folder / "manifest.json"
    RUN.describe(path, json.loads(path.read_text()) | changes)


def _type_over(folder, old, new):
    path = folder / "manifest.json"
    path.write_text(path.read_text().replace(old, new))


def test_a_run_given_twice_is_once_in_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for results in ("one", "two"):
        write_run(tmp_path / results, "a-1", {"claims": claims()}, "ropelab claims")
    found = find_runs([tmp_path / "one", tmp_path / "two"])
    assert [run.folder.parts[-3] for run in found] == ["one"]
    assert mentions(capsys.readouterr().err, "a-1:", "the same run")


def test_a_cut_picture_is_left_out_aloud(tmp_path, capsys):
    run = write_run(
        tmp_path,
        "a-1",
        {"claims": claims()},
        "ropelab claims",
        figures=["figures/cut.png"],
    )
    (run / "figures").mkdir()
    (run / "figures/cut.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    text = write_report(find_runs([tmp_path]), tmp_path / "index.html").read_text()
    assert "<img" not in text.split("<script")[0]
    assert "cut.png" in capsys.readouterr().err


@pytest.mark.parametrize("experiment", ["style", "nothing", "claims", "freqs"])
def test_figures_that_cannot_be_drawn_are_left_out_and_all_else_is_shown(
    tmp_path, capsys, experiment
):
    """A stored run may name anything as its experiment, and have any tables."""
    tables = {"pairs": accuracies(0.0), "claims": accuracies(0.0)}
    changes = {"experiment": experiment, "figures": ["figures/one.png"]}
    write_run(tmp_path, "other-00000009", tables, f"ropelab {experiment}", **changes)
    page = write_report(find_runs([tmp_path]), tmp_path / "index.html").read_text()
    assert "It is other-00000009." in page
    assert "left out: figures of " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lengths", "along"), [((512, 1024), "context_tokens"), ((512,), "method")]
)
def test_a_view_is_drawn_along_its_series_only_if_its_axis_has_one_place(
    monkeypatch, lengths, along
):
    """A single place makes no line: the methods are then compared with each other."""
    rows = [
        {"method": method, "context_tokens": tokens, "accuracy": 0.25 * tokens / 512}
        for method in ("yarn", "pi", "ntk", "unscaled")
        for tokens in lengths
    ]
    table, kinds = with_kinds(pd.DataFrame(rows))
    hint = View("context_tokens", ("accuracy",), ("method",))
    monkeypatch.setattr(views, "_find_hint", lambda name, kinds: hint)
    view = choose_view("made_up", table, kinds)
    assert view is not None
    assert view.x == along


def test_a_question_leads_with_the_run_that_readme_quotes(
    reference_runs: list[ShownRun],
) -> None:
    template = (REFERENCE.parents[1] / "docs/templates/README.md").read_text()
    # Of several runs of an experiment the first that is quoted leads.
    quoted: dict[str, str] = {}
    for experiment, name in re.findall(r'run\("([\w-]+)/([\w-]+)"\)', template):
        quoted.setdefault(experiment, name)
    ranked = sorted(reference_runs, key=lambda run: _rank(run, True))
    firsts: dict[str, ShownRun] = {}
    for run in ranked:
        firsts.setdefault(run.manifest["experiment"], run)
    assert quoted
    for experiment, name in quoted.items():
        assert firsts[experiment].folder.name.startswith(name), experiment
    assert next(iter(firsts)) == "precision"


def test_panels_beside_each_other_are_pictures_of_their_own() -> None:
    figure = Figure(figsize=(12, 4), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    panels[0].set_ylabel("the share")
    for number, panel in enumerate(panels):
        panel.plot([0, 1], [0, number])
        panel.set_title(f"panel {number}", loc="left")
    figure.suptitle("What is it?")
    pictures = _draw_panels("shares", figure)
    assert [picture.name for picture in pictures] == ["shares", "shares-2", "shares-3"]
    assert pictures[1].title == "What is it?: panel 1"
    assert {picture.figure for picture in pictures} == {"shares"}
    for number, picture in enumerate(pictures):
        assert "the share" in picture.content
        others = {f"panel {other}" for other in range(3)} - {f"panel {number}"}
        assert not any(other in picture.content for other in others)
    two = Figure(layout="constrained")
    two.subplots(1, 2)
    assert len(_draw_panels("two", two)) == 1
