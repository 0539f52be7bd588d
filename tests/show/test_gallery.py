"""The index shows every run: figure, answer, command, and links that exist."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from ropelab.restate import restate
from ropelab.show.gallery import write_index, write_table
from tests.show.made import NASTY, accuracies, claims, write_run
from tests.texts import mentions

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "results" / "reference"
PICTURE = r"!\[[^\]]*\]\(([^)]+\.png)\)"


@pytest.fixture
def results(tmp_path):
    """Two finished runs, one with two figures."""
    tables = {"copy_accuracy": accuracies(0.0)}
    packages = {"ropelab": "0.1.0", "torch": "2.0"}
    about = {"packages": packages, "question": "What is it?"}
    folder = write_run(
        tmp_path,
        "base-5e+05-00000001",
        tables,
        "ropelab toy --base 500000.0",
        figures=["figures/a.png", "figures/b.png"],
        seconds=11.4,
        measurements={"computed": 2, "reused": 5},
        **about,
    )
    (folder / "figures").mkdir()
    for name in "ab":
        (folder / "figures" / f"{name}.png").touch()
    write_run(
        tmp_path, "second-00000002", tables, "ropelab toy --base 700000.0", **about
    )
    return tmp_path


def test_the_index_shows_what_is_there(results):
    text = write_index(results).read_text()
    assert "It is base-5e+05-00000001." in text
    assert "`ropelab toy --base 700000.0`" in text
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(links) == 2 * 2 + 2
    assert all((results / link).exists() for link in links)
    assert "`make reference`" not in text


def test_the_entries_point_to_the_headings(results):
    text = write_index(results).read_text()
    anchors = re.findall(r"\(#([^)]+)\)", text)
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert anchors == [
        re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings
    ]


def test_an_unfinished_run_is_not_shown(results):
    (results / "toy/.half.new").mkdir(parents=True)
    (results / "toy/.half.new/manifest.json").write_text("{}")
    assert "half" not in write_index(results).read_text()


def test_the_index_says_what_was_measured_in_earlier_runs(results):
    text = write_index(results).read_text()
    assert mentions(text, "; 11 s", "5 of 7 measurements")


def test_only_figures_that_git_keeps_are_linked(results):
    kept = "toy/base-5e+05-00000001/figures/b.png"
    (results / ".gitignore").write_text(f"# a comment\n*.png\n!/{kept}\n")
    text = write_index(results).read_text()
    assert re.findall(PICTURE, text) == [kept]
    assert "`make reference` draws" in text


def test_the_figures_in_git_are_those_that_the_texts_show():
    shown = {
        (text.parent / link).resolve().relative_to(ROOT).as_posix()
        for text in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
        if "templates" not in text.parts
        for link in re.findall(PICTURE, text.read_text())
    }
    lines = (REFERENCE / ".gitignore").read_text().splitlines()
    excepted = {
        f"results/reference/{line[2:]}" for line in lines if line.startswith("!/")
    }
    assert excepted == {path for path in shown if path.startswith("results/")}
    assert len(excepted) <= 16
    assert all((ROOT / path).is_file() for path in excepted)
    listed = subprocess.run(
        ["git", "ls-files", "*.png"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0:
        assert set(listed.stdout.split()) <= shown


@pytest.mark.slow
def test_the_index_of_the_reference_says_what_the_tables_say(tmp_path: Path) -> None:
    kept = (REFERENCE / "README.md").read_bytes()
    copy = tmp_path / "reference"
    shutil.copytree(REFERENCE, copy, ignore=shutil.ignore_patterns("*.png", ".cells"))
    written = write_index(copy, "README.md", restate=restate)
    assert written.read_bytes() == kept, "make docs writes it"


def test_questions_are_asked_once_and_roundings_have_their_own() -> None:
    index, _, _ = (REFERENCE / "README.md").read_text().partition("\n## ")
    questions = re.findall(r"^\*\*(.*)\*\*$", index, re.MULTILINE)
    assert len(questions) == len(set(questions))
    for question in questions:
        listed = index.partition(f"**{question}**")[2].partition("\n**")[0]
        assert ("roundings cost" in listed) == ("what do roundings cost" in question)


def test_a_figure_that_explains_a_claim_has_a_caption(tmp_path: Path) -> None:
    figure = "figures/rotation.png"
    changes = {"experiment": "claims", "figures": [figure]}
    write_run(tmp_path, "a-1", {"claims": claims()}, "ropelab claims", **changes)
    text = write_index(tmp_path).read_text()
    assert "*Claim thirty-degrees: a pair of features turns by 30 degrees" in text


def test_a_figure_of_another_experiment_has_no_caption_of_a_claim(
    tmp_path: Path,
) -> None:
    changes = {"experiment": "precision", "figures": ["figures/resolution.png"]}
    write_run(tmp_path, "a-1", {"casts": claims()}, "ropelab precision", **changes)
    text = write_index(tmp_path).read_text()
    assert "figures/resolution.png" in text
    assert "Claim" not in text


def test_a_column_without_any_value_is_left_out(tmp_path: Path) -> None:
    summary = [{"method": "yarn", "copy": 0.5, "searched": None}]
    tables = {"claims": claims()}
    write_run(tmp_path, "a-1", tables, "ropelab claims", summary=summary)
    text = write_index(tmp_path).read_text()
    assert "| method | copy |" in text


def test_underscores_at_the_ends_of_a_column_leave_no_backslash() -> None:
    head, _, row = write_table([{"_nll_": "_a_"}])
    assert head.split() == ["|", "nll", "|"]
    assert row == r"| \_a\_ |"


def test_the_index_of_the_reference_links_what_is_there():
    links = re.findall(r"\]\(([^)#]+)\)", (REFERENCE / "README.md").read_text())
    assert all((REFERENCE / link).exists() for link in links)


def test_a_pipe_that_is_called_gitignore_is_not_waited_for(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        "a-1",
        {"claims": claims()},
        "ropelab claims",
        figures=["figures/x.png"],
    )
    os.mkfifo(tmp_path / ".gitignore")
    assert "](toy/a-1/figures/x.png)" in write_index(tmp_path).read_text()


def test_what_a_manifest_says_is_text_in_the_index(tmp_path: Path) -> None:
    said = f"{NASTY} [a](http://b) `c` *d* ~e~ _f_ | &lt; a_b\n# g"
    words = {
        "question": said,
        "answer": said,
        "cannot_show": said,
        "summary": [{said: said}],
    }
    write_run(
        tmp_path, "a-1", {"claims": claims()}, f"ropelab toy --name '{said}'", **words
    )
    text = write_index(tmp_path, title=said).read_text()
    blocks = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    tokens = [token for block in blocks for token in (block, *(block.children or ()))]
    assert {token.type for token in tokens}.isdisjoint(
        {"html_block", "html_inline", "em_open"}
    )
    links = {token.attrs["href"] for token in tokens if token.type == "link_open"}
    assert "http://b" not in links
    assert [token.content for token in tokens if token.type == "heading_open"] == [
        ""
    ] * 2
    plain = " ".join(said.split())
    inline = [
        "".join(t.content for t in b.children or ())
        for b in blocks
        if b.type == "inline"
    ]
    # The heading, the entry, question and answer, the limits, the head and the cell of
    # the table.
    assert sum(text.count(plain) for text in inline) == 7
    assert any(
        token.type == "code_inline" and plain in token.content for token in tokens
    )


@pytest.mark.parametrize("letter", ["\x1b[31m", "\x9b", "\u202e", "\u2028", "\x00"])
def test_control_characters_of_a_run_are_escapes_in_the_index(
    tmp_path: Path, letter: str
) -> None:
    words = {"title": f"a{letter}b", "answer": f"Yes{letter}.", "question": letter}
    write_run(tmp_path, "a-1", {"claims": claims()}, f"ropelab toy {letter}", **words)
    text = write_index(tmp_path).read_text()
    assert letter[0] not in text
    # A line separator is a space in Markdown.
    if not letter.isspace():
        assert ascii(letter[0])[1:-1] in text
