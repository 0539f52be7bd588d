"""What the committed tables say for every number in README.md and docs/.

    python -m tests.docs_numbers            where the texts differ from what the tables say now
    python -m tests.docs_numbers --write    put into the texts what the tables say

An entry is a sentence or a table row as it stands in a file, with {} where the tables decide, and a
function that gives what must stand there. `tests/test_docs.py` compares the two and asks that no
decimal number, share or power of ten stands in these files that neither an entry nor `CONSTANTS`
names. The pages of the notes, docs/notes, are written from the ledger as a whole.
"""

import sys

from tests.docs.arithmetic import base_entries, precision_entries
from tests.docs.bases import base_empirical_entries
from tests.docs.encodings import encodings_entries
from tests.docs.entry import Entry
from tests.docs.extrapolation import extrapolate_entries
from tests.docs.frequencies import frequencies_entries
from tests.docs.further import further_entries
from tests.docs.given import given_entries
from tests.docs.ledger import claims_entries
from tests.docs.notes import note_pages
from tests.docs.reference import ROOT

FILES = ("README.md", "docs/findings.md", "docs/methods.md", "docs/audit.md")
CONSTANTS = {
    "README.md": (
        "base 1e6",
        "Python 3.11",
        "more than 0.01 rad",
        "1.1 million parameters",
    ),
    "docs/findings.md": (
        "| one, period 6.2832 |",
        "more than 0.01 rad",
        "arXiv:2405.14591",
        "copy 0.8 of the symbols",
        "models of 1.1 million",
        "0.5 L",
        "0.75 L",
        "1.5 L",
        "false discovery rate of 5 %",
    ),
    "docs/methods.md": (
        "below 0.8 of it",
        "by more than 0.01 rad",
        "arXiv:2405.14591",
        "| 0.35 | a quotation",
        "| 0.30 | random symbols",
        "| 0.15 | look-ups",
        "0.3 of them uniform",
        "1.1 million parameters",
        "at most 5 %",
        "no window wider than 1e-11",
        "the 95 % intervals",
        # Of the simulation in benchmarks/bench_intervals.py.
        "| 3 | 6 | 0 | 0 | 0.997 | 0.949 | 0.955 |",
        "| 3 | 50 | 0.3 | 0.3 | 0.934 | 0.942 | 0.659 |",
        "| 3 | 50 | 1 | 0.3 | 0.947 | 0.953 | 0.249 |",
        "| 3 | 50 | 0.3 | 3 | 0.947 | 0.772 | 0.928 |",
        "| 5 | 50 | 0.3 | 0.3 | 0.946 | 0.942 | 0.673 |",
        "| 5 | 50 | 1 | 0.3 | 0.948 | 0.948 | 0.263 |",
        "| 5 | 50 | 0.3 | 3 | 0.951 | 0.589 | 0.941 |",
        "it is 0.934 to 0.997.",
        "true shares of 0.5 to 0.998: 0.970 to 0.992 with three seeds, 0.958 to 0.974 with five.",
    ),
}
"""Numbers that are no results of committed runs: constants, versions, what is typed, thresholds."""


def entries() -> list[Entry]:
    """All of them."""
    return [
        *precision_entries(),
        *base_entries(),
        *extrapolate_entries(),
        *further_entries(),
        *base_empirical_entries(),
        *encodings_entries(),
        *frequencies_entries(),
        *given_entries(),
        *claims_entries(),
    ]


def texts() -> dict[str, str]:
    """The files that are checked."""
    return {file: (ROOT / file).read_text() for file in FILES}


def updated(text: str, entry: Entry) -> str:
    """The text with what the tables say now at the places of one entry."""
    for match in reversed(entry.places(text)):
        for group, value in reversed(list(enumerate(entry.values(), start=1))):
            start, end = match.span(group)
            text = text[:start] + value + text[end:]
    return text


def main(write: bool) -> int:
    """Print what differs, or mend it; the number of entries that differ or are not found."""
    now, differing = texts(), 0
    for entry in entries():
        found = entry.places(now[entry.file])
        said = [list(match.groups()) for match in found]
        says = list(entry.values())
        if said == [says]:
            continue
        differing += 1
        print(f"{entry.file}: {entry.text}\n    text: {said or 'not found'}\n    now:  {says}")
        if write:
            now[entry.file] = updated(now[entry.file], entry)
    for file, text in note_pages().items():
        path = ROOT / file
        if not path.exists() or path.read_text() != text:
            differing += 1
            print(f"{file}: not what the ledger says now")
            now[file] = text
    if write:
        for file, text in now.items():
            (ROOT / file).parent.mkdir(exist_ok=True)
            (ROOT / file).write_text(text)
    print(f"{differing} of {len(entries())} entries and {len(note_pages())} pages differ")
    return differing


if __name__ == "__main__":
    sys.exit(bool(main("--write" in sys.argv[1:])))
