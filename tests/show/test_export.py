"""Tables for other programs read back as what they were; evaluations are what was
measured.
"""

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import ropelab
from ropelab.claims.ledger import judge_run
from ropelab.runs.errors import InputError, check_known, find_unseen
from ropelab.runs.leading import find_leads
from ropelab.runs.metrics import flatten_summary
from ropelab.runs.store import make_records
from ropelab.show import export
from ropelab.show.drawn import write_for_user
from ropelab.show.page.shown import VERDICTS, find_runs

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
(FOLDER,) = (REFERENCE / "extrapolate").glob("extrapolate-????????")


@pytest.fixture(scope="module")
def run():
    """A stored run with several seeds."""
    return find_runs([FOLDER], judge_run)[0]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_read_back_the_same(run, tmp_path, kind):
    paths = write_for_user(export.encode_tables(run.tables, kind), tmp_path)
    read = pd.read_parquet if kind == "parquet" else pd.read_csv
    assert {path.stem for path in paths} == set(run.tables)
    for path in paths:
        pd.testing.assert_frame_equal(
            read(path), run.tables[path.stem], check_dtype=False
        )


@pytest.mark.parametrize("summary", [None, [], [{}], [{}, {}]])
def test_a_summary_without_entries_is_no_table(run, summary):
    # Without a judge the tables are the stored ones.
    shown = replace(run, manifest={**run.manifest, "summary": summary}, judge=None)
    assert set(export.choose_tables(shown, [])) == set(run.tables) - {VERDICTS}
    with pytest.raises(InputError, match="summary"):
        export.choose_tables(shown, ["summary"])


def test_latex_is_escaped_and_aligned(run):
    table = pd.DataFrame({"name": ["a_b & 50 %"], "value_tokens": [0.123456]})
    text = export.write_latex(table)
    assert "a\\_b \\& 50 \\%" in text
    assert "0.1235" in text
    assert "\\begin{tabular}{lr}" in text
    assert text.count("\\\\") == 2


def test_latex_has_a_caption_bold_leaders_and_intervals(run):
    text = export.encode_text(export.choose_tables(run, ["summary"]), "latex")
    assert text.startswith("\\begin{table}[t]\n\\caption{")
    assert run.manifest["answer"].split(". ")[0][:40].replace("_", "\\_") in text
    rows = [row.split(" & ") for row in text.splitlines() if row.endswith("\\\\")]
    summary = pd.DataFrame(run.manifest["summary"])
    leads = find_leads(summary, run.tables["comparisons"])
    assert leads
    for number, name in enumerate(summary.columns[1:], 1):
        bold = [row[0] for row in rows if "textbf" in row[number]]
        leading = leads[name].names if name in leads else ()
        assert len(bold) == len(leading)
    values = pd.DataFrame(
        {
            "method": ["a", "b"],
            "accuracy": [0.5, 0.75],
            "ci_low": [0.4, None],
            "ci_high": [0.6, None],
        }
    )
    text = export.write_latex(values)
    assert "a & 0.50 [0.40, 0.60] \\\\" in text
    assert "b & 0.75 \\\\" in text


def test_latex_has_every_interval_of_a_row():
    values = pd.DataFrame(
        {
            "cast": ["a"],
            "kl_nats_per_token": [0.5],
            "kl_ci_low": [0.4],
            "kl_ci_high": [0.6],
            "share_beyond": [0.25],
            "share_ci_low": [0.125],
            "share_ci_high": [0.375],
        }
    )
    text = export.write_latex(values)
    assert "a & 0.50 [0.40, 0.60] & 0.25 [0.12, 0.38] \\\\" in text
    assert "ci" not in text


# Texts that are commands, HTML, links or lines of their own where they are not escaped.
HOSTILE = [
    r"\input/etc/passwd \write18{ls} a~b c^d {x} & _ % # $x$",
    "<script>alert(1)</script>",
    "a | b\n# head\n\n[x](javascript:alert(1)) `c`",
    "abc\u202edcba \x1b[31m \x9b31m \u2028 \x85 c\r\nd",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_latex_has_no_commands_of_a_manifest(text):
    table = pd.DataFrame({text: [text], "value": [1.5]})
    latex = export.write_latex(table, f"The answer {text}")
    for command in (r"\input", r"\write", "a~b", "c^d"):
        assert command not in latex
    assert not find_unseen(latex)
    assert "\n\n" not in latex
    # A table with a caption has ten lines, and each is one of ropelab's own.
    assert latex.count("\n") == 10


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_has_no_html_links_or_lines_of_a_manifest(text):
    table = pd.DataFrame({text: [text], "value": [1.5]})
    markdown = export.encode_text({"one": table}, "markdown")
    lines = markdown.splitlines()
    assert len(lines) == 3
    assert {line.count("|") for line in lines} == {3}
    assert not find_unseen(markdown)
    plain = re.sub(r"\\.", "", markdown)
    assert not set("<>[]`") & set(plain)


def test_markdown_has_a_row_per_row(run):
    tables = export.choose_tables(run, ["literature"])
    lines = export.encode_text(tables, "markdown").splitlines()
    assert len(lines) == 2 + len(tables["literature"])
    assert all(line.count("|") == 8 for line in lines)


def test_what_is_not_there_is_refused(run):
    with pytest.raises(InputError, match="copy_accuracy"):
        export.choose_tables(run, ["copy_acuracy"])
    with pytest.raises(InputError, match="latex"):
        check_known("export format", "latx", export.ENDINGS)
    with pytest.raises(InputError, match="not text"):
        export.encode_text(run.tables, "parquet")


def test_metrics_are_flat_numbers():
    summary = [
        {"method": "yarn ×4", "loss": 1.5, "copy @64": None, "reached": True},
        {"method": "pi ×4", "loss": float("inf"), "copy @64": 0.25, "reached": False},
    ]
    assert flatten_summary(summary) == {"yarn ×4/loss": 1.5, "pi ×4/copy @64": 0.25}
    assert flatten_summary([{"context": 1024, "base": 4293.0}]) == {
        "context=1024/base": 4293.0
    }
    assert flatten_summary([]) == {}


def test_metrics_of_rows_with_the_same_words_are_not_mixed():
    # One task under two bases: the second, without a bound, is not given that of the
    # first.
    summary = [
        {"task": "copy", "base": 300.0, "bound": 102.0, "accuracy": 0.46},
        {"task": "copy", "base": 10000.0, "bound": None, "accuracy": 0.9},
    ]
    assert flatten_summary(summary) == {
        "copy/base=300.0/bound": 102.0,
        "copy/base=300.0/accuracy": 0.46,
        "copy/base=10000.0/accuracy": 0.9,
    }
    # A grid, whose first column is a number that several rows share.
    grid = [
        {"base": b, "method": m, "loss": b + len(m)}
        for b in (1, 2)
        for m in ("pi", "yarn")
    ]
    assert flatten_summary(grid)["base=1/pi/loss"] == 3
    assert len(flatten_summary(grid)) == 4


def test_every_stored_number_of_a_short_table_is_among_the_metrics():
    for path in sorted(REFERENCE.glob("*/*/manifest.json")):
        summary = json.loads(path.read_text())["summary"]
        metrics = json.loads((path.parent / "metrics.json").read_text())
        assert metrics == flatten_summary(summary), path


def test_every_run_keeps_its_metrics(tmp_path):
    run = ropelab.freqs(method="yarn(factor=4)", results=tmp_path)
    metrics = json.loads((run.folder / "metrics.json").read_text())
    assert metrics == flatten_summary(make_records(run.summary()))
    assert metrics
    assert set(find_runs([run.folder], judge_run)[0].tables) == set(run.tables)
