"""README.md and docs/ say what the committed tables, the commands and the code say."""

import re

import pytest
from typer.testing import CliRunner

from ropelab.audit.runtimes.registry import RUNTIMES
from ropelab.cli.app import app
from ropelab.models.lm.source import Mixture
from tests.docs.entry import Entry
from tests.docs.notes import note_pages
from tests.docs.reference import ROOT
from tests.docs_numbers import CONSTANTS, entries, texts, updated

NUMBER = re.compile(r"\d[\d,]*\.\d+(?:e-?\d+)?|\d+e-?\d+|\d+(?=\s%)|\d+(?=\sof\s\d)")
"""Decimals, powers of ten, shares in percent: what a result looks like."""
CODE = re.compile(r"^```.*?^```|`[^`\n]+`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
"""Blocks of code, code in a line, targets of links."""
ELSEWHERE = {"docs/audit.md"}
"""Its numbers are compared with stored answers of runtimes in tests/runtimes/test_docs.py."""
LINKED = (*texts(), *note_pages(), "docs/sweeps.md", "docs/log.md", "CONTRIBUTING.md")
ENTRIES = entries()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda e: f"{e.file}: {e.text[:60]}")
def test_a_number_is_what_the_tables_say(entry):
    said = [list(match.groups()) for match in entry.places(texts()[entry.file])]
    assert said == [list(entry.values())], "`python -m tests.docs_numbers --write` mends it"


@pytest.mark.parametrize("file", sorted(set(texts()) - ELSEWHERE))
def test_every_number_is_checked_or_declared(file):
    text = texts()[file]
    covered = [match.span() for match in CODE.finditer(text)]
    covered += [m.span(g) for m in matches(file, text) for g in range(1, len(m.groups()) + 1)]
    for constant in CONSTANTS.get(file, ()):
        found = [m.span() for m in spaced(constant).finditer(text)]
        assert found, f"{constant!r} is declared for {file} and does not stand there"
        covered += found
    loose = [m for m in NUMBER.finditer(text) if not inside(m.span(), covered)]
    assert not [text[max(0, m.start() - 30) : m.end() + 20] for m in loose]


def matches(file, text):
    return [match for entry in ENTRIES if entry.file == file for match in entry.places(text)]


def spaced(constant):
    """Its words with any white space between them."""
    return re.compile(r"\s+".join(map(re.escape, constant.split())))


def inside(span, spans):
    return any(start <= span[0] and span[1] <= end for start, end in spans)


@pytest.mark.parametrize(("file", "text"), note_pages().items(), ids=note_pages())
def test_the_page_of_a_note_is_what_the_ledger_says(file, text):
    said = (ROOT / file).read_text()
    assert said == text, "`python -m tests.docs_numbers --write` mends it"


def test_a_number_that_is_off_is_found_and_mended():
    entry = Entry("README.md", "The loss is {} at {}.", lambda: ["1.25", "8k"])
    wrong = "So. The loss\nis 1.5 at 8k. Not 1.5 at all."
    assert [m.groups() for m in entry.places(wrong)] == [("1.5", "8k")]
    assert updated(wrong, entry) == "So. The loss\nis 1.25 at 8k. Not 1.5 at all."


def test_what_looks_like_a_result():
    text = "0.97 of 1,024.5 in 6.5e-7 or 1e6, 12 % and 7 of 11, not 8192 or 4 times"
    found = [match.group() for match in NUMBER.finditer(text)]
    assert found == ["0.97", "1,024.5", "6.5e-7", "1e6", "12", "7"]


@pytest.mark.parametrize("file", LINKED)
def test_links_lead_somewhere(file):
    path = ROOT / file
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("file", LINKED)
def test_files_that_are_named_exist(file):
    text = (ROOT / file).read_text()
    named = re.findall(r"`((?:ropelab|tests|benchmarks|configs)/[\w/.-]+)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]


def test_readme_names_every_command():
    commands = [c.name or c.callback.__name__ for c in app.registered_commands]
    text = (ROOT / "README.md").read_text()
    assert not [name for name in commands if f"`ropelab {name}" not in text]


def test_readme_counts_the_runtimes():
    assert f"do {len(RUNTIMES)} runtimes agree?" in texts()["README.md"]


def test_readme_shows_what_the_command_prints(tmp_path, monkeypatch):
    (shown,) = re.findall(r"```\n\$ ropelab (.*?)```", texts()["README.md"], re.DOTALL)
    command, _, output = shown.partition("\n")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [*command.split(), "--no-figures"])
    assert result.exit_code == 0
    assert lines(result.stdout) == lines(output)


def lines(text):
    """Without spaces at their ends, where columns are filled up."""
    return [line.rstrip() for line in text.strip().splitlines()]


def test_methods_states_the_shares_of_the_source():
    mixture, text = Mixture(), (ROOT / "docs/methods.md").read_text()
    for share, words in (
        (mixture.quotations, "a quotation"),
        (mixture.symbols, "random symbols"),
        (mixture.look_ups, "look-ups"),
    ):
        assert f"| {share:.2f} | {words}" in text
    assert f"{mixture.far} of them uniform" in text
    assert f"The first {mixture.periodic_steps} steps show periodic rows of" in text
