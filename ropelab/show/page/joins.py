"""The parts of the page that come from single tables, found by the names of columns.

joins.toml says which number is the headline of a run, how a table is first drawn, and
which rows disagree with a publication. Tests apply it to the committed reference runs, so
that a renamed column cannot empty a part of the page unnoticed. The ledger, which is the
table of claims with their verdicts, is recognised by its columns.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import Formatter
from typing import Any, Literal

import pandas as pd
from pydantic.dataclasses import dataclass as checked

from ropelab.runs.files import read_table_beside
from ropelab.runs.leading import Lead, find_leads, is_compared
from ropelab.runs.sentences import write_number, write_with_interval
from ropelab.show.intervals import find_ends, find_intervals
from ropelab.show.page.shown import ShownRun
from ropelab.show.terminal import format_value


@checked(frozen=True)
class View:
    """One way to draw a table."""

    # The column along the axis.
    x: str
    # The columns that are drawn; several if they are compared with each other.
    y: tuple[str, ...]
    # The columns whose values make the lines.
    series: tuple[str, ...] = ()
    # The values that the drawn rows have, by column.
    where: Mapping[str, Any] = field(default_factory=dict)

    def columns(self) -> set[str]:
        return {self.x, *self.y, *self.series, *self.where}


@dataclass(frozen=True)
class DisagreeingRows:
    """How the rows of a table are found that disagree with a publication."""

    table: str
    # The heading of these disagreements on the page.
    title: str
    # The column of verdicts, and the word in it that means a disagreement.
    verdict: str
    word: str
    # The published and the measured statement, with names of columns in braces.
    said: str
    found: str
    # The name of the column with the publication. If the table has no such column, this
    # text is itself the publication.
    source: str = "source"

    def columns(self) -> set[str]:
        """Return the columns that the table has to have."""
        columns = {self.verdict}
        # `parse` yields a text and the name in the braces that follow the text, if any.
        for _, name, _, _ in Formatter().parse(self.said + self.found):
            if name:
                columns.add(name)
        return columns

    def select_rows(self, table: pd.DataFrame) -> pd.DataFrame:
        return table[table[self.verdict].astype(str) == self.word]


# The rows of a small table. A cell is a text, and True if the cell's row leads the column.
Rows = list[list[tuple[str, bool]]]


@dataclass(frozen=True)
class Number:
    """The number on the card of a run, with a small table."""

    # The number as text, and the words after it.
    value: str
    said: str
    # The name of the figure that shows the number.
    figure: str
    # The titles of the columns of the small table, and its rows. Both may be empty.
    head: list[str]
    rows: Rows


@checked(frozen=True)
class Headline:
    """Where in the tables of an experiment's runs the number on their card is found."""

    experiment: str
    # The beginning of the name of the column with the number. Of several columns the last
    # one counts.
    column: str
    # The words after the number, with names of columns in braces.
    said: str
    # The table with the number; empty for the summary of the run.
    table: str = ""
    # The values that the row with the number must have, by column.
    where: Mapping[str, str] = field(default_factory=dict)
    # The row with the number: the first row, or the row with the largest or smallest
    # value. With `count` the number is the number of rows.
    best: Literal["first", "max", "min", "count"] = "first"
    # True writes the number as a percentage.
    percent: bool = False
    # The beginnings of the names of further columns of the small table.
    beside: Mapping[str, Literal["max", "min"]] = field(default_factory=dict)
    # The name of the figure that shows the number.
    figure: str = ""

    def find_number(self, run: ShownRun) -> Number | None:
        """Find the number in a run; None if the run has no column or no row for it, or if
        comparisons do not show that its row leads.
        """
        table = self._choose_table(run)
        column = _find_last(table, self.column)
        if column is None or not set(self.where) <= set(table):
            return None
        rows = table
        for name, value in self.where.items():
            rows = rows[rows[name].astype(str) == value]
        values = rows[column].dropna()
        if values.empty:
            return None
        is_ranked = self.best in ("max", "min")
        if is_ranked and not pd.api.types.is_numeric_dtype(values):
            return None

        leads: Mapping[str, Lead] = {}
        comparisons = run.tables.get("comparisons")
        if comparisons is not None:
            leads = find_leads(table, comparisons)
            # The largest or smallest value is a headline only if comparisons show that
            # its row leads.
            if is_ranked and column not in leads and is_compared(column, comparisons):
                return None

        row = self._choose_row(values)
        words = {str(name): format_value(cell) for name, cell in rows.loc[row].items()}
        words["at"] = column.removeprefix(self.column)
        words["total"] = str(len(table))
        number = len(values) if self.best == "count" else values[row]
        head, small_rows = self._make_table(table, column, leads)
        said = self.said.format(**words)
        return Number(self._write(number), said, self.figure, head, small_rows)

    def _choose_table(self, run: ShownRun) -> pd.DataFrame:
        if not self.table:
            return pd.DataFrame(run.manifest["summary"])
        return run.tables.get(self.table, pd.DataFrame())

    def _choose_row(self, values: pd.Series) -> Any:
        """Return the index of the row with the number. For a count it is the first row,
        which only supplies words.
        """
        if self.best == "max":
            return values.idxmax()
        if self.best == "min":
            return values.idxmin()
        return values.index[0]

    def _make_table(
        self, table: pd.DataFrame, column: str, leads: Mapping[str, Lead]
    ) -> tuple[list[str], Rows]:
        """Return the titles and rows of the small table. Its columns are the names of
        rows, `column`, and the columns that `beside` names.

        Titles and rows are empty if `beside` is empty or names a column that the table
        does not have.
        """
        columns_beside = [_find_last(table, start) for start in self.beside]
        if not columns_beside or None in columns_beside:
            return [], []

        name_column = table.columns[0]
        shown_columns = [name_column, column, *columns_beside]
        intervals = find_intervals(list(map(str, table.columns)))
        rows = []
        for record in table.to_dict("records"):
            cells = []
            for name in shown_columns:
                text = self._write_cell(record, name, column, intervals)
                lead = leads.get(str(name))
                is_best = lead is not None and str(record[name_column]) in lead.names
                cells.append((text, is_best))
            rows.append(cells)
        return [str(name) for name in shown_columns], rows

    def _write_cell(
        self,
        record: Mapping[Any, Any],
        name: Any,
        column: str,
        intervals: Mapping[str, tuple[str, str]],
    ) -> str:
        """Write the value of a column, with its interval if it has one."""
        value = record[name]
        is_share = name == column and self.percent
        low, high = intervals.get(name, ("", ""))
        if low and not pd.isna([value, record[low], record[high]]).any():
            form = "%" if is_share else "f"
            return write_with_interval(value, record[low], record[high], form)
        return self._write(value) if name == column else format_value(value)

    def _write(self, value: Any) -> str:
        if isinstance(value, str) or pd.isna(value):
            return format_value(value)
        if self.percent:
            return f"{value:.0%}"
        return write_number(float(f"{value:.4g}"))


def _find_last(table: pd.DataFrame, start: str) -> str | None:
    """Return the last column whose name begins with `start`; None if none does.

    The ends of intervals do not count, although their names begin like the names of
    their values.
    """
    names = [str(name) for name in table.columns]
    ends = find_ends(names)
    for name in reversed(names):
        if name.startswith(start) and name not in ends:
            return name
    return None


ROWS = read_table_beside(__file__)


def _read_hints() -> dict[str, list[View]]:
    """Return how some tables are first drawn. For these tables the view that follows from
    their columns would be a poor one.
    """
    hints = {}
    for table, views in ROWS["hints"].items():
        hints[table] = [View(**view) for view in views]
    return hints


HINTS = _read_hints()
RECORDS = [DisagreeingRows(**row) for row in ROWS["records"]]
HEADLINES = [Headline(**row) for row in ROWS["headlines"]]
OPENS: Sequence[str] = ROWS["opens"]
ORDER: Sequence[str] = ROWS["order"]
QUOTED: Sequence[str] = ROWS["quoted"]
PROVENANCE: Mapping[str, str] = ROWS["provenance"]
WORDS: Mapping[str, str] = ROWS["words"]
# Tables of ranges, of vectors and of single cases, whose rows cannot be drawn as points.
UNDRAWN = {"windows", "rotation", "explain"}
# A table `claims` is a ledger if it has these columns.
LEDGER_COLUMNS = {
    "id",
    "statement",
    "source",
    "verdict",
    "expected",
    "decided_by",
    "decided_at",
}
# The columns with which a publication is cited on the page.
CITED = ("author", "year", "title", "place")


@dataclass(frozen=True)
class Disagreement:
    """A published statement, and the measured statement that disagrees with it."""

    said: str
    found: str
    # The publication.
    source: str
    # The run in which `found` was measured.
    run: ShownRun


def find_headline(run: ShownRun) -> Number | None:
    """Return the number on the card of a run; None if no headline of joins.toml fits the
    run.
    """
    for headline in HEADLINES:
        if headline.experiment == run.manifest["experiment"]:
            number = headline.find_number(run)
            if number:
                return number
    return None


def is_quoted(run: ShownRun) -> bool:
    """Return True for a run that README or the findings quote for its question."""
    folder = run.folder.name
    config, _, _ = folder.rpartition("-")
    return folder in QUOTED or config in QUOTED


def find_disagreements(runs: Sequence[ShownRun]) -> dict[str, list[Disagreement]]:
    """Group all rows that disagree by title, the largest group first.

    A statement with which several runs disagree is listed once.
    """
    groups: dict[str, dict[str, Disagreement]] = {}
    for record in RECORDS:
        for run in runs:
            for disagreement in _list_disagreements(record, run):
                group = groups.setdefault(record.title, {})
                group.setdefault(disagreement.said, disagreement)
    lists = {title: list(group.values()) for title, group in groups.items()}
    return dict(sorted(lists.items(), key=lambda item: -len(item[1])))


def _list_disagreements(record: DisagreeingRows, run: ShownRun) -> list[Disagreement]:
    """Return a disagreement for each row of a run that disagrees with a publication."""
    table = run.tables.get(record.table, pd.DataFrame())
    if not record.columns() <= set(table):
        return []
    disagreements = []
    for row in record.select_rows(table).to_dict("records"):
        values = {str(name): format_value(value) for name, value in row.items()}
        said = record.said.format(**values)
        found = record.found.format(**values)
        source = str(row.get(record.source, record.source))
        disagreements.append(Disagreement(said, found, source, run))
    return disagreements


def find_ledger(runs: Sequence[ShownRun]) -> ShownRun | None:
    """Return the newest run with a ledger, None if there is none."""
    runs_with_ledger = []
    for run in runs:
        if set(run.tables.get("claims", pd.DataFrame())) >= LEDGER_COLUMNS:
            runs_with_ledger.append(run)

    def read_start(run: ShownRun) -> str:
        return str(run.manifest.get("start", ""))

    return max(runs_with_ledger, key=read_start, default=None)


def read_notes(run: ShownRun) -> list[dict[str, Any]]:
    """Return the notes of a ledger, which are texts that claims quote: each note with its
    sentences and the questions that it asks.
    """
    claims = {claim["id"]: claim for claim in read_texts(run, "claims")}
    notes: dict[str, dict[str, Any]] = {}
    for row in read_texts(run, "passages"):
        # The key of a note is a number. All other sources are papers and code, which are
        # cited, not read sentence by sentence.
        if not row.get("source", "").isdecimal():
            continue
        # A key has three digits. pandas reads it from CSV as a number, without the
        # leading zeros.
        key = row["source"].zfill(3)
        if key not in notes:
            notes[key] = {**row, "key": key, "sentences": [], "questions": []}
        # A row says how its sentence was decided. In older ledgers it does not, and the
        # entries of the claim are used.
        sentence = {**claims[row["id"]], **row}
        notes[key]["sentences"].append(sentence)

    for row in read_texts(run, "questions"):
        key = row.get("source", "").zfill(3)
        if key in notes:
            notes[key]["questions"].append(row)
    return [notes[key] for key in sorted(notes)]


def read_texts(run: ShownRun, table: str) -> list[dict[str, str]]:
    """Return the rows of a table as texts. Missing values, and links that are not safe,
    become empty texts.
    """
    if table not in run.tables:
        return []
    rows = run.tables[table].astype(object)
    texts = rows.where(rows.notna(), "").map(_write_text)
    if "link" in texts:
        # Anybody may have written the table. Only links to the web are kept: a link that
        # begins with `javascript:` would run a script.
        is_safe = texts["link"].str.match("https?://")
        texts["link"] = texts["link"].where(is_safe, "")
    return texts.to_dict(orient="records")  # type: ignore[return-value]


def _write_text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
