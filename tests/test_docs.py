"""README.md and docs/ are what templates, committed tables, commands and code say."""

import json
import re
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from ropelab.claims.committed import COMMITTED_FILE, HERE
from ropelab.claims.ledger import CLAIMS
from ropelab.cli.app import make_application
from ropelab.models.lm.source import Mixture
from ropelab.readers.registry import RUNTIMES
from tests.imports import loaded

ROOT = Path(__file__).parents[1]
docs = loaded(ROOT / "tools" / "docs.py")
notes = loaded(ROOT / "tools" / "notes.py")

# Decimals, powers of ten, shares in percent: the shape of a result.
NUMBER = re.compile(r"\d[\d,]*\.\d+(?:e-?\d+)?|\d+e-?\d+|\d+(?=\s%)|\d+(?=\sof\s\d)")
# Expressions, blocks of code, code in a line, targets of links.
CODE = re.compile(
    r"\{\{.*?\}\}|\{%.*?%\}|^```.*?^```|`[^`\n]+`|\]\([^)]*\)", re.MULTILINE | re.DOTALL
)
# Numbers that are no results of committed runs: thresholds, versions, sizes, lengths in
# L.
CONSTANTS = {
    "README.md": (
        "base 1e6",
        "Python 3.11",
        "Qwen2.5",
        "intervals of 95 %",
        "1.6 %",
        "transformers 4.48",
        "transformers 4.44",
        # What a difference of the loss means.
        "0.03 more means that the true next byte gets 3 %",
        "with YaRN ×1.5 and",
    ),
    "commands.md": ("1.1 million parameters",),
    "findings.md": (
        "more than 0.01 rad",
        "arXiv:2405.14591",
        "arXiv:2602.10959",
        "arXiv:2605.15514",
        "models of 1.1 million",
        "an angle wrong by 0.01 rad",
        "base 1e6",
        "with 0.4, 1.1 and 4 million parameters",
        "intervals of 95 % or more",
        "0.4 to 4 million",
        "the last 512 of 2048",
        "0.5 L",
        "0.75 L",
        "1.5 L",
        "Qwen2.5's 1e6",
        # What the claims on theories ask.
        "at the bound for e = 0.9",
        "leaves 0.9 of a score in layer 1",
        "At base 1e7",
        "In the last 8192 of 262,144 tokens",
        "at base 1e7",
        "within 0.05 of 1/2",
        "by a little more than 0.05",
    ),
}
WRITTEN = tuple(docs.TARGETS.values())
(LEDGER,) = (ROOT / "results/reference/claims").glob("claims-????????")
NOTES = {
    f"docs/notes/{name}": text
    for name, text in notes.note_pages(LEDGER, ROOT / "docs/notes").items()
}
LINKED = (
    *WRITTEN,
    *NOTES,
    *(f"docs/{name}.md" for name in ("methods", "audit", "sweeps", "notebook")),
    "CONTRIBUTING.md",
)


@cache
def write_pages() -> dict[str, str]:
    """All pages by their file. Only the process that asks writes them, once."""
    return docs.rendered()


@pytest.mark.parametrize("file", WRITTEN)
def test_a_page_is_what_its_template_and_the_tables_say(file):
    assert (ROOT / file).read_text() == write_pages()[file], "`make docs` writes it"


@pytest.mark.parametrize("template", docs.TARGETS)
def test_no_result_is_typed(template):
    text = (docs.TEMPLATES / template).read_text()
    covered = [match.span() for match in CODE.finditer(text)]
    for constant in CONSTANTS.get(template, ()):
        found = [match.span() for match in re.finditer(re.escape(constant), text)]
        assert found, f"{constant!r} is declared for {template} and is not in it"
        covered += found
    loose = [
        m
        for m in NUMBER.finditer(text)
        if not any(inside(m.span(), c) for c in covered)
    ]
    assert not [text[max(0, m.start() - 30) : m.end() + 20] for m in loose]


def inside(span, outer):
    return outer[0] <= span[0] and span[1] <= outer[1]


def test_printed_bases_are_near_bases_that_hold():
    """Of 16384 and 32768 tokens no base with the printed digits holds, by proof."""
    assert docs.hold_as_rounded() == [2**12, 2**17, 2**18, 2**19, 2**20]
    assert docs.fails_at(6.4e5, 128, 32768) == "27,685"


def test_a_result_is_recognized():
    text = "0.97 of 1,024.5 in 6.5e-7 or 1e6, 12 % and 7 of 11, not 8192 or 4 times"
    found = [match.group() for match in NUMBER.finditer(text)]
    assert found == ["0.97", "1,024.5", "6.5e-7", "1e6", "12", "7"]


@pytest.mark.parametrize(("file", "text"), NOTES.items(), ids=NOTES)
def test_the_page_of_a_note_is_what_the_ledger_says(file, text):
    assert (ROOT / file).read_text() == text, "`make docs` writes it"


def test_the_findings_that_travel_with_the_package_are_the_committed_ones() -> None:
    stored = COMMITTED_FILE.read_text(encoding="utf-8")
    assert stored == notes.findings_to_ship(LEDGER), "`make docs` writes it"
    made = pd.read_csv(LEDGER / "tables" / "claims.csv")
    assert set(made["decided_from"]) == {HERE}


@pytest.mark.parametrize("file", LINKED)
def test_links_lead_somewhere(file):
    path = ROOT / file
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text())
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert not missing


def test_links_into_the_gallery_lead_to_sections():
    gallery = (ROOT / "results/reference/README.md").read_text()
    titles = re.findall(r"^## (.*)$", gallery, re.MULTILINE)
    anchors = {docs.write_anchor(title) for title in titles}
    text = (ROOT / "docs/findings.md").read_text()
    linked = re.findall(r"results/reference/README\.md#([^)]+)", text)
    assert len(linked) > 20
    assert set(linked) <= anchors


def test_findings_have_every_claim_on_theories():
    text = (ROOT / "docs/findings.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|", text, re.MULTILINE)
    asked = [claim.id for claim in CLAIMS if claim.family == "theories"]
    assert [name for name in rows if name in asked] == asked


@pytest.mark.parametrize("file", LINKED)
def test_files_that_are_named_exist(file):
    text = (ROOT / file).read_text()
    named = re.findall(r"`((?:ropelab|tests|benchmarks|configs)/[\w/.-]+)`", text)
    assert not [name for name in named if not (ROOT / name).exists()]


def test_contributing_names_files_where_they_are():
    """A file named without its folder is in a folder that its row names."""
    count = 0
    for row in (ROOT / "CONTRIBUTING.md").read_text().splitlines():
        names = re.findall(r"`([\w./-]+)`", row)
        paths = [ROOT / name for name in names if "/" in name]
        folders = [path if path.is_dir() else path.parent for path in paths]
        for name in names:
            if "/" in name or not folders or Path(name).suffix not in (".py", ".toml"):
                continue
            count += 1
            assert any((folder / name).exists() for folder in folders), name
    assert count > 10


@pytest.mark.parametrize("file", ["README.md", "docs/findings.md"])
def test_no_list_in_a_sentence_is_empty(file):
    prose = re.sub(r"```.*?```", "", (ROOT / file).read_text(), flags=re.DOTALL)
    assert not re.findall(r"\w+ [.,;:](?=\s)", prose)


INTERVAL = r"-?[\d.]+ \[(-?[\d.]+), (-?[\d.]+)\]"
# Words that stand before an interval with 0 in it, and words before one without.
UNDECIDED = rf"(?:not shown to differ|no \w+ is shown)[^.;()]{{0,60}}\({INTERVAL}"
DECIDED = (
    rf"(?:higher|lower|worse|better|more|less|leads)[^.;()\[]{{0,60}} by {INTERVAL}"
)


@pytest.mark.parametrize("file", ["README.md", "docs/findings.md"])
def test_what_is_shown_is_what_the_interval_shows(file):
    """The numbers come from tables and the words from a template, so they can part."""
    text = " ".join((ROOT / file).read_text().split())
    found = 0
    for words, contains_zero in ((UNDECIDED, True), (DECIDED, False)):
        for match in re.finditer(words, text):
            low, high = map(float, match.groups())
            assert (low <= 0 <= high) is contains_zero, match[0]
            found += 1
    assert found


def test_the_page_of_commands_names_every_command():
    commands = [command.name for command in make_application().registered_commands]
    assert len(commands) > 15
    text = (ROOT / "docs/commands.md").read_text()
    assert not [name for name in commands if f"`ropelab {name}" not in text]


def test_the_page_of_commands_counts_the_runtimes():
    assert f"do {len(RUNTIMES)} runtimes agree?" in write_pages()["docs/commands.md"]


QWEN = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "rope_theta": 1000000.0,
    "rope_scaling": {
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
        "type": "yarn",
    },
    "torch_dtype": "bfloat16",
}


def test_readme_shows_what_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (shown,) = re.findall(
        r"```\n\$ ropelab (.*?)\[...\]\n```", write_pages()["README.md"], re.DOTALL
    )
    command, _, output = shown.partition("\n")
    monkeypatch.chdir(tmp_path)
    Path("config.json").write_text(json.dumps(QWEN))
    # As wide as a terminal; a pipe is not wrapped.
    monkeypatch.setattr(
        "ropelab.show.terminal.make_console", lambda: Console(width=80, markup=False)
    )
    assert make_application()(command.split(), standalone_mode=False) == 3
    assert lines(capsys.readouterr().out)[: len(lines(output))] == lines(output)


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
    assert f"{mixture.periodic_steps} steps show periodic" in text


def test_no_committed_run_stores_verdicts():
    assert not sorted((ROOT / "results/reference").glob("*/*/tables/literature.csv"))
