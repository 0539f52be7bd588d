"""Where a run's numbers differ from what was published: rows that a table's own verdict marks.

No verdict is made here. A table that compares with the literature has a column that says how the
comparison went; RECORDS says which column and which words mean disagreement.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from string import Formatter

import pandas as pd

from ropelab.show.page.shown import Shown
from ropelab.show.terminal import format_value


@dataclass(frozen=True)
class Record:
    """How a table tells that it disagrees.

    Attributes:
        table: its name.
        title: what its rows are.
        verdict: the column that says how the comparison went.
        words: the values of that column that mean disagreement.
        said: what was said, with the columns it names in braces.
        found: what was measured, likewise.
        source: the column that names where it was said, or the source itself.
    """

    table: str
    title: str
    verdict: str
    words: tuple[str, ...]
    said: str
    found: str
    source: str = "source"

    def columns(self) -> set[str]:
        """The columns that the table must have."""
        fields = Formatter().parse(self.said + self.found)
        return {self.verdict, *(name for _, name, _, _ in fields if name)}


@dataclass(frozen=True)
class Disagreement:
    """One statement, what was found instead, where it was said, and the run that shows it."""

    said: str
    found: str
    source: str
    run: Shown


WRONG = "Statements of papers and tutorials that are wrong as they are written"
NOT_HERE = "Statements that the small trained models here do not reproduce"
MEN = "Men et al. 2024, arXiv:2405.14591"
RECORDS = (
    Record("claims", WRONG, "verdict", ("wrong",), "{statement}", "{decided_by}: {decided_at}"),
    Record(
        "claims",
        NOT_HERE,
        "verdict",
        ("not reproduced here",),
        "{statement}",
        "{decided_by}: {decided_at}",
    ),
    Record(
        "literature", NOT_HERE, "verdict", ("not reproduced here",), "{statement}", "{measured}"
    ),
    Record(
        "orderings",
        "Published orderings of methods that did not reappear",
        "result",
        ("not reproduced",),
        "{ordering}: {published}",
        "{measured}",
    ),
    Record(
        "claimed_vs_measured",
        "Properties of encodings that were measured otherwise",
        "differs",
        ("yes",),
        "{encoding}, {about}: {claimed}",
        "{measured}",
    ),
    Record(
        "incidents",
        "Reported precision errors that come out differently",
        "verdict",
        ("differs",),
        "{meaning}: {reported}",
        "{ours}",
    ),
    Record(
        "published",
        "Published lower bounds on the base that are not tight",
        "verdict",
        ("loose",),
        "{context_tokens} tokens need a base of {paper_base}",
        "{exact_base} is enough",
        MEN,
    ),
    Record(
        "predictions",
        "Predictions of the base bound that did not come true",
        "agrees",
        ("no", "False"),
        "{task} with base {base}",
        "{verdict}",
        MEN,
    ),
)


def disagreements(runs: Sequence[Shown]) -> dict[str, list[Disagreement]]:
    """By title, every row that disagrees; a statement found in several runs stands once."""
    groups: dict[str, dict[str, Disagreement]] = {}
    for record, run in product(RECORDS, runs):
        table = run.tables.get(record.table)
        if table is not None and record.columns() <= set(table.columns):
            group = groups.setdefault(record.title, {})
            for one in _marked(record, table, run):
                group.setdefault(one.said, one)
    found = {title: list(group.values()) for title, group in groups.items() if group}
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def _marked(record: Record, table: pd.DataFrame, run: Shown) -> Iterator[Disagreement]:
    rows = table[table[record.verdict].astype(str).isin(record.words)]
    for _, row in rows.iterrows():
        source = row[record.source] if record.source in table.columns else record.source
        values = {str(name): format_value(value) for name, value in row.items()}
        said, found = record.said.format(**values), record.found.format(**values)
        yield Disagreement(said, found, str(source), run)
