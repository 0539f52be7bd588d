"""Single tables by the names of their columns: numbers, drawings, disagreements, the
ledger.

All but the last are rows of joins.toml, which tests run against the committed
reference, so that a renamed column cannot silently empty a part of the page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from string import Formatter
from typing import Any, Literal

import pandas as pd
from pydantic.dataclasses import dataclass as checked

from ropelab.runs.files import table_beside
from ropelab.runs.leading import Lead, is_compared, leads_by_column
from ropelab.runs.sentences import typed
from ropelab.show.page.shown import Shown
from ropelab.show.terminal import format_value


@checked(frozen=True)
class View:
    """One way to draw a table: the columns along the axis, drawn, and making the lines;
    the rows.

    Several columns are drawn where they are compared with each other.
    """

    x: str
    y: tuple[str, ...]
    series: tuple[str, ...] = ()
    where: Mapping[str, Any] = field(default_factory=dict)

    def columns(self) -> set[str]:
        return {self.x, *self.y, *self.series, *self.where}


@dataclass(frozen=True)
class Record:
    """The rows of a table that disagree with something published: `verdict` says `word`
    there.

    The published statement and the measured one name columns in braces; the source is a
    column, or the source itself.
    """

    table: str
    title: str
    verdict: str
    word: str
    said: str
    found: str
    source: str = "source"

    def columns(self) -> set[str]:
        fields = Formatter().parse(self.said + self.found)
        return {self.verdict, *(name for _, name, _, _ in fields if name)}

    def rows(self, table: pd.DataFrame) -> pd.DataFrame:
        return table[table[self.verdict].astype(str) == self.word]


# Texts, each with whether it is the best of its column.
Rows = list[list[tuple[str, bool]]]


@dataclass(frozen=True)
class Number:
    """A number, the words behind it, and a small table: its head, its rows, what is
    best there.
    """

    value: str
    said: str
    figure: str
    head: list[str]
    rows: Rows


@checked(frozen=True)
class Headline:
    """The place of the number of an experiment's run; see joins.toml."""

    experiment: str
    column: str
    said: str
    table: str = ""
    where: Mapping[str, str] = field(default_factory=dict)
    best: Literal["first", "max", "min", "count"] = "first"
    percent: bool = False
    beside: Mapping[str, Literal["max", "min"]] = field(default_factory=dict)
    figure: str = ""

    def of(self, run: Shown) -> Number | None:
        """Find the number in a run; None if it has no such column or no such row."""
        summary = pd.DataFrame(run.manifest["summary"])
        table = run.tables.get(self.table, pd.DataFrame()) if self.table else summary
        column, rows = _last(table, self.column), table
        if column is None or not set(self.where) <= set(table):
            return None
        for name, value in self.where.items():
            rows = rows[rows[name].astype(str) == value]
        found = rows[column].dropna()
        ranked = self.best in ("max", "min")
        if found.empty or (ranked and not pd.api.types.is_numeric_dtype(found)):
            return None
        compared = run.tables.get("comparisons")
        leads = {}
        if compared is not None:
            leads = leads_by_column(table, compared)
            # A number is no headline where comparisons do not show who leads.
            if ranked and is_compared(column, compared) and column not in leads:
                return None
        at = getattr(found, f"idx{self.best}")() if ranked else found.index[0]
        words = {str(name): format_value(value) for name, value in rows.loc[at].items()}
        words |= {"at": column.removeprefix(self.column), "total": str(len(table))}
        value = self._written(len(found) if self.best == "count" else found[at])
        return Number(
            value,
            self.said.format(**words),
            self.figure,
            *self._beside(table, column, leads),
        )

    def _beside(
        self, table: pd.DataFrame, column: str, leads: Mapping[str, Lead]
    ) -> tuple[list[str], Rows]:
        """Return the head and rows of a small table: names, `column`, and those beside
        it.
        """
        goals = {_last(table, start): best for start, best in self.beside.items()}
        if not goals or None in goals:
            return [], []
        names = table.columns[0]
        bold = {name: lead.names for name, lead in leads.items()}
        shown = table[[names, column, *goals]]
        return [str(name) for name in shown], [
            [
                (
                    self._written(x) if name == column else format_value(x),
                    str(row[names]) in bold.get(str(name), ()),
                )
                for name, x in row.items()
            ]
            for row in shown.to_dict("records")
        ]

    def _written(self, value: Any) -> str:
        if isinstance(value, str) or pd.isna(value):
            return format_value(value)
        return f"{value:.0%}" if self.percent else typed(float(f"{value:.4g}"))


def _last(table: pd.DataFrame, start: str) -> str | None:
    """Return the last column whose name begins so."""
    return next(
        (str(name) for name in table.columns[::-1] if str(name).startswith(start)), None
    )


ROWS = table_beside(__file__)
# By table: how it is first drawn where its columns alone suggest something worse.
HINTS = {
    name: [View(**view) for view in views] for name, views in ROWS["hints"].items()
}
RECORDS = [Record(**row) for row in ROWS["records"]]
HEADLINES = [Headline(**row) for row in ROWS["headlines"]]
CAPTIONS: Mapping[str, str] = ROWS["captions"]
OPENS: Sequence[str] = ROWS["opens"]
PROVENANCE: Mapping[str, str] = ROWS["provenance"]
WORDS: Mapping[str, str] = ROWS["words"]
# Tables of ranges, of vectors and of single cases, which no point stands for.
UNDRAWN = {"windows", "rotation", "explain"}
# The columns without which a table `claims` is not a ledger, and those that say where.
LEDGER = {
    "id",
    "statement",
    "source",
    "verdict",
    "expected",
    "decided_by",
    "decided_at",
}
CITED = ("author", "year", "title", "place")


@dataclass(frozen=True)
class Disagreement:
    """One statement, the finding that disagrees, where it was said, and the run that
    shows it.
    """

    said: str
    found: str
    source: str
    run: Shown


def headline_of(run: Shown) -> Number | None:
    """Return the number of a run for its card, None if nothing is known of its
    experiment.
    """
    own = (row for row in HEADLINES if row.experiment == run.manifest["experiment"])
    return next(filter(None, (row.of(run) for row in own)), None)


def caption_of(figure: str) -> str:
    return CAPTIONS.get(figure.removesuffix("_searched").removesuffix("_finetuned"), "")


def disagreements(runs: Sequence[Shown]) -> dict[str, list[Disagreement]]:
    """Group by title all rows that disagree; a statement found in several runs is
    listed once.
    """
    groups: dict[str, dict[str, Disagreement]] = {}
    for record, run in product(RECORDS, runs):
        table = run.tables.get(record.table, pd.DataFrame())
        for row in (
            record.rows(table).to_dict("records")
            if record.columns() <= set(table)
            else ()
        ):
            values = {str(name): format_value(value) for name, value in row.items()}
            said, found = record.said.format(**values), record.found.format(**values)
            one = Disagreement(
                said, found, str(row.get(record.source, record.source)), run
            )
            groups.setdefault(record.title, {}).setdefault(said, one)
    found_in = {title: list(group.values()) for title, group in groups.items()}
    return dict(sorted(found_in.items(), key=lambda item: -len(item[1])))


def ledger_of(runs: Sequence[Shown]) -> Shown | None:
    """Return the newest run with a ledger, None if there is none."""
    found = [
        run for run in runs if set(run.tables.get("claims", pd.DataFrame())) >= LEDGER
    ]
    return max(found, key=lambda run: str(run.manifest.get("start", "")), default=None)


def notes_of(run: Shown) -> list[dict[str, Any]]:
    """Return the notes of a ledger, each with its sentences and the questions that it
    asks.
    """
    claims = {claim["id"]: claim for claim in texts_of(run, "claims")}
    notes: dict[str, dict[str, Any]] = {}
    for row in texts_of(run, "passages"):
        # Papers and code are cited, not read sentence by sentence.
        if row.get("source", "").isdecimal():
            # Keys of notes are digits: a reader of CSV takes them for numbers.
            key = row["source"].zfill(3)
            note = notes.setdefault(
                key, {**row, "key": key, "sentences": [], "questions": []}
            )
            # Rows say how their own sentence was decided; older ledgers only how the
            # claim was.
            note["sentences"].append({**claims[row["id"]], **row})
    for row in texts_of(run, "questions"):
        if note := notes.get(row.get("source", "").zfill(3), {}):
            note["questions"].append(row)
    return [notes[key] for key in sorted(notes)]


def texts_of(run: Shown, table: str) -> list[dict[str, str]]:
    """Return the rows of a table as texts, empty for missing values, with links that
    are safe.
    """
    if table not in run.tables:
        return []
    rows = run.tables[table].astype(object)
    texts = rows.where(rows.notna(), "").map(
        lambda x: f"{x:g}" if isinstance(x, float) else str(x)
    )
    if "link" in texts:
        # A link comes from a table that anybody may have written: no javascript: in the
        # page.
        texts["link"] = texts["link"].where(texts["link"].str.match("https?://"), "")
    return texts.to_dict(orient="records")  # type: ignore[return-value]
