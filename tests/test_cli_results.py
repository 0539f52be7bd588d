"""The commands for what has been run: the page, the sliders, the exported tables, more
figures.
"""

import signal
from pathlib import Path

import pandas as pd
import pytest

from ropelab.cli import app as cli
from ropelab.runs.store import find_finished
from tests.texts import mentions

FREQS = ("freqs", "--head-dim", "8", "--quiet")


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Type a command in an empty folder; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def typed(*arguments):
        before = signal.getsignal(signal.SIGTERM)
        with pytest.raises(SystemExit) as stop:
            cli.main([str(a) for a in arguments])
        signal.signal(signal.SIGTERM, before)
        out, err = capsys.readouterr()
        return stop.value.code, out, err

    return typed


def only_run():
    """The folder of the one run there is."""
    (manifest,) = Path("results").glob("*/*/manifest.json")
    return manifest.parent


def test_run_writes_a_page_and_report_another(call):
    Path("toy.toml").write_text('experiment = "freqs"\nhead_dim = 8\n')
    status, out, _ = call("run", "toy.toml", "--quiet")
    assert (status, out.splitlines()[-1]) == (0, "page: results/index.html")
    whole = Path("results/index.html").read_text()
    assert whole.count('class="view run"') == 1
    assert call("report", only_run(), "-o", "one.html", "--title", "A & B")[0] == 0
    assert "<h1>A &amp; B</h1>" in Path("one.html").read_text()


def test_report_without_runs_is_one_line(call):
    status, out, err = call("report")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert mentions(err, "no finished run", "results")
    assert not Path("results").exists()


def test_explore_writes_one_page(call):
    assert call("explore", "-o", "x.html") == (0, "page: x.html\n", "")
    assert Path("x.html").read_text().startswith("<!doctype html>")


@pytest.mark.slow
@pytest.mark.pictures
def test_further_formats_and_the_paper_style_stand_beside_the_usual_figures(call):
    call(*FREQS)
    usual = {path.name: path.read_bytes() for path in only_run().glob("figures/*")}
    assert call(*FREQS, "--format", "pdf,svg", "--style", "paper")[0] == 0
    names = {path.name for path in only_run().glob("figures/*")}
    more = {
        f"{Path(name).stem}-paper.{kind}" for name in usual for kind in ("pdf", "svg")
    }
    assert names == {*usual, *more}
    assert all(
        (only_run() / "figures" / name).read_bytes() == usual[name] for name in usual
    )


@pytest.mark.parametrize("flags", [("--format", "jpeg"), ("--style", "poster")])
def test_unknown_formats_and_styles_are_refused_before_anything_is_computed(
    call, flags
):
    status, out, err = call(*FREQS, *flags)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert not Path("results").exists()


def test_export_names_tables_without_rows(call):
    call("base", "--context", "32", "--head-dim", "8", "--no-figures")
    folder = only_run()
    tables = {path.stem: pd.read_csv(path) for path in folder.glob("tables/*.csv")}
    empty = {name for name, table in tables.items() if table.empty}
    assert "given_base" in empty

    status, _, err = call("export", folder, "-o", "out")
    assert status == 0
    assert set(err.strip().partition(": ")[2].split(", ")) == empty
    assert empty.isdisjoint(path.stem for path in Path("out").iterdir())

    status, out, err = call("export", folder, "--table", "given_base")
    assert (status, out) == (2, "")
    assert mentions(err, "given_base", "no rows")
    assert call("export", folder, "--table", "bound")[2] == ""


def test_export_prints_or_writes(call):
    call(*FREQS)
    status, out, _ = call(
        "export", only_run(), "--table", "scaling", "--format", "markdown"
    )
    assert status == 0
    assert out.startswith("| method |")
    assert call("export", only_run(), "--format", "parquet", "-o", "out")[0] == 0
    assert {path.name for path in Path("out").iterdir()} >= {
        "pairs.parquet",
        "scaling.parquet",
    }
    assert call("export", only_run(), "--table", "scalings")[0] == 2
    assert call("export", only_run(), "--format", "parquet")[0] == 2
    assert call("export", only_run(), "--format", "lm-eval")[0] == 2


def test_what_was_asked_to_be_explained_is_printed(call):
    flags = (
        "--head-dim",
        "8",
        "--length",
        "64",
        "--schemes",
        "",
        "--preset",
        "float32",
    )
    status, out, _ = call("precision", *flags, "--explain", "33")
    assert status == 0
    assert "as asked with --explain" in out
    rows = out.split("as asked with --explain")[1]
    assert "angle error rad" in rows
    assert "float32" in rows


@pytest.mark.parametrize("output", ["folder", "file/page.html", "file/more/page.html"])
def test_an_output_that_cannot_be_is_bad_input(call, tmp_path, output):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    status, out, err = call("explore", "--output", output)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith(f"ropelab: cannot write {output}: ")


@pytest.mark.parametrize("output", ["/proc/x.html", "folder", "file/page.html"])
def test_a_page_that_cannot_be_written_is_refused_before_it_is_drawn(
    call, monkeypatch, output
):
    from ropelab.show.page import report

    assert call("freqs", "--head-dim", "16", "-q")[0] == 0
    Path("folder").mkdir()
    Path("file").touch()
    monkeypatch.setattr(report, "_collect_pictures", None)
    status, out, err = call("report", "-o", output)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"ropelab: cannot write {output}: ")


@pytest.mark.parametrize("command", ["export .", "compare . .", "report . -o x.html"])
@pytest.mark.parametrize("place", [".", "/"])
def test_the_working_folder_is_a_folder_without_runs(call, command, place):
    if list(find_finished(Path(place))):
        pytest.skip(f"somebody keeps runs of ropelab below {place}")
    status, out, err = call(*command.replace(" .", f" {place}").split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "no finished run" in err or "folders of two runs" in err


def test_work_is_shown_once_it_takes_longer_than_it_should():
    from contextlib import contextmanager
    from threading import Event

    from ropelab.show.terminal import DelayedProgress

    began = Event()
    steps = []

    @contextmanager
    def progress(description, total=None):
        steps.append(description)

        def advance(count=1, **about):
            steps.append(count)
            began.set()

        yield advance

    with DelayedProgress(progress, seconds=3600)("quick", 2) as advance:
        advance()
    assert steps == []

    with DelayedProgress(progress, seconds=0)("slow", 2) as advance:
        assert began.wait(60)
        advance(2)
    assert steps == ["slow", 0.0, 2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run toy.toml --explain --dry-run", "takes no other option"),
        ("run toy.toml --explain --shard 9/2", "takes no other option"),
        ("run toy.toml --explain --format bogus", "takes no other option"),
        ("run toy.toml --explain --index a.md", "takes no other option"),
        ("run toy.toml --dry-run --format bogus", "unknown figure format 'bogus'"),
        ("run toy.toml --dry-run --style bogus", "unknown figure style 'bogus'"),
        ("run toy.toml --dry-run --engine bogus", "unknown engine 'bogus'"),
        ("run toy.toml --dry-run --address a:1", "give --engine ray with it"),
        ("run toy.toml --shard 1/2 --format bogus", "unknown figure format 'bogus'"),
        ("run toy.toml --shard 1/2 --style bogus", "unknown figure style 'bogus'"),
        ("freqs --head-dim 8 --no-figures --format pdf", "--no-figures draws none"),
        ("freqs --head-dim 8 --no-figures --style paper", "--no-figures draws none"),
        ("freqs --head-dim 8 --no-figures --redraw", "--no-figures draws none"),
        ("report results/freqs --results other", "or --results, not both"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(call, words, says):
    Path("toy.toml").write_text('experiment = "freqs"\nhead_dim = 8\n')
    status, out, err = call(*words.split())
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert says in err
    assert not Path("results").exists()
