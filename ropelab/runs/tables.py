"""The format of stored runs and cells: tables in a folder, and a JSON description with
the hashes of the tables.

Tables are CSV files. Their numbers read back exactly, and the names of columns end in
units. The description has a hash of its own entries, too. All hashes are verified when a
folder is read.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype, is_string_dtype
from pydantic import StringConstraints, TypeAdapter

from ropelab.runs.errors import MachineError
from ropelab.runs.files import read_regular
from ropelab.runs.folders import digest

Tables = Mapping[str, pd.DataFrame]

# The units. A column's unit is the end of its name. A column whose name does not end in
# one of these has pure numbers or text.
UNITS = (
    "nats_per_byte",
    "nats_per_token",
    "bytes_per_token",
    "per_second",
    "tokens",
    "rad",
    "turns",
    "ulp",
    "bytes",
    "seconds",
)
# This word takes the place of the unit of a column whose texts would be read back as
# numbers.
TEXT = "text"
# A pattern that all texts match which pandas reads as a number or a truth value: the text
# has no letter but the e of an exponent, or is one of these words. Some texts that match
# are not read as a number.
NUMBER_LIKE = re.compile(
    r"[^a-df-z]*|\W*(inf|infinity|nan|true|false)\W*", re.IGNORECASE
)
# The entry of a description that has the hash of all its other entries.
HASH = "sha256"
# The most bytes that the file of a description may have.
LARGEST_DESCRIPTION = 2**26


class EarlyTable(NamedTuple):
    """The short table of a run while its cells are computed, and a note that says what
    its numbers are.
    """

    table: pd.DataFrame
    note: str


class DamagedError(MachineError):
    """A stored file is missing, or its content is not what was written."""


@dataclass
class Table:
    """The entry of a table in a description: its number of rows, its columns with their
    units, and the hash of its file.
    """

    rows: int
    columns: dict[str, str | None]
    sha256: str


# The entries of tables by name. Names become the names of files, and the pattern keeps
# these files inside of the folder.
Entries = dict[Annotated[str, StringConstraints(pattern=r"^\w[\w-]*$")], Table]


@dataclass(frozen=True)
class Format:
    """A kind of stored folder."""

    # The name of the file of the description.
    file: str
    # The folder of the tables; "." if they are beside the description.
    inside: str
    # The entries that a description must have, `tables` among them.
    shape: TypeAdapter[Any]

    def write(
        self, folder: Path, tables: Tables, about: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write tables and description into a new folder; return the tables as read
        back.
        """
        tables_folder = folder / self.inside
        tables_folder.mkdir(parents=True, exist_ok=True)
        entries = {}
        for name, table in tables.items():
            content = _write_csv(table)
            (tables_folder / f"{name}.csv").write_bytes(content)
            entries[name] = {
                "rows": len(table),
                "columns": _describe_columns(table),
                "sha256": sha256(content).hexdigest(),
            }

        self.describe(folder / self.file, {**about, "tables": entries})
        return self.read(folder)

    def describe(self, path: Path, about: Mapping[str, Any]) -> None:
        """Write a description, with the hash of its entries."""
        # JSON turns tuples into lists, for example. The hash is computed from the
        # entries as they will be read back.
        plain = json.loads(json.dumps(about, allow_nan=False))
        text = json.dumps(
            {**plain, HASH: _hash_of(plain)}, indent=2, ensure_ascii=False
        )
        path.write_text(text + "\n", encoding="utf-8")

    def description(self, folder: Path) -> dict[str, Any] | None:
        """Return the description of a folder, or None if it has none.

        DamagedError: the description was changed, or cannot be read.
        """
        path = folder / self.file
        try:
            content = read_regular(path, LARGEST_DESCRIPTION)
            about = json.loads(content)
            self.shape.validate_json(content, strict=True)
            expected = _hash_of(about)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, RecursionError):
            raise DamagedError(f"{path} does not describe finished work") from None

        # A description without a hash of its entries is accepted. The hashes of the
        # tables are verified all the same.
        if about.get(HASH, expected) != expected:
            raise DamagedError(f"{path} is not what was written")
        return dict(about)

    def read(self, folder: Path) -> dict[str, pd.DataFrame]:
        """Return the tables of a folder; DamagedError if anything is missing or was
        changed.
        """
        about = self.description(folder)
        if about is None:
            raise DamagedError(f"{folder / self.file} is gone")
        return self.tables(folder, about)

    def tables(self, folder: Path, about: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
        """Read the tables of a folder, and verify all its files by `about`, which is the
        folder's description.

        An empty field of a CSV file is a missing value, and nothing else is: `nan` is a
        text. DamagedError: a file is missing or was changed.
        """
        # `files` has the hashes of files beside the tables. Only runs have this entry.
        for name, expected in about.get("files", {}).items():
            check_written(folder / name, expected)

        tables = {}
        for name, entry in sorted(about["tables"].items()):
            path = folder / self.inside / f"{name}.csv"
            content = check_written(path, entry["sha256"])
            try:
                tables[name] = _read_csv(content, entry["columns"])
            except ValueError as error:
                raise DamagedError(f"{path} is no table ({error})") from None
        return tables


def check_written(path: Path, expected: str) -> bytes:
    """Return the content of a file; DamagedError if it does not have the expected
    hash.
    """
    try:
        content = read_regular(path)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from None
    if sha256(content).hexdigest() != expected:
        raise DamagedError(f"{path} is not what was written")
    return content


def _hash_of(about: Mapping[str, Any]) -> str:
    return digest({key: value for key, value in about.items() if key != HASH})


def convert_to_stored(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return tables as they would be read back from disk. For example, a column of
    whole numbers with gaps becomes a column of floats.
    """
    return {
        name: _read_csv(_write_csv(table), _describe_columns(table))
        for name, table in sorted(tables.items())
    }


def _write_csv(table: pd.DataFrame) -> bytes:
    # pandas writes floats as the shortest text that reads back the same.
    return table.to_csv(index=False, lineterminator="\n").encode()


def _read_csv(content: bytes, columns: Mapping[str, str | None]) -> pd.DataFrame:
    types = {name: str for name, unit in columns.items() if unit == TEXT}
    return pd.read_csv(
        BytesIO(content), keep_default_na=False, na_values=[""], dtype=types
    )


def _describe_columns(table: pd.DataFrame) -> dict[str, str | None]:
    """Return the unit of each column, or TEXT for text that would be read back as
    numbers, such as 01 or 1e2.
    """
    columns = {str(column): find_unit(str(column)) for column in table.columns}
    # The different words of each column that may have to be marked as text.
    texts = {}
    for name in table:
        if is_numeric_dtype(table[name]):
            continue
        present = table[name].dropna()
        if is_string_dtype(present) and not present.empty:
            words = np.asarray(present.unique(), dtype=object)
            # The pattern is a hundred times as fast as letting pandas read the words. It
            # only selects the columns that pandas reads below.
            if any(NUMBER_LIKE.fullmatch(word) for word in words):
                texts[str(name)] = words
    if not texts:
        return columns

    # A column whose words become numbers when they are read back without a type gets the
    # mark TEXT. All columns are read at once, so shorter columns repeat their words.
    row_count = max(len(words) for words in texts.values())
    repeated = {name: np.resize(words, row_count) for name, words in texts.items()}
    read_table = _read_csv(_write_csv(pd.DataFrame(repeated)), {})
    for name in texts:
        if not is_string_dtype(read_table[name]):
            columns[name] = TEXT
    return columns


def find_unit(column: str) -> str | None:
    """Return the unit in which the name of a column ends, or None.

    >>> find_unit("nll_nats_per_byte"), find_unit("wavelength_tokens"), find_unit("accuracy")
    ('nats_per_byte', 'tokens', None)
    """
    for unit in UNITS:
        if column == unit or column.endswith(f"_{unit}"):
            return unit
    return None


def select_longest_context(table: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of a table of retrieval that have its longest context."""
    return table[table["context_tokens"] == table["context_tokens"].max()]


def write_markdown(
    table: pd.DataFrame, format_cell: Callable[[Any], str]
) -> Iterator[str]:
    """Yield the lines of a table in Markdown, with cells written by `format_cell`. An
    empty table has no lines.
    """
    if table.empty:
        return
    names = (str(name).replace("_", " ").replace("|", "&#124;") for name in table)
    yield f"| {' | '.join(names)} |"
    yield f"|{' --- |' * len(table.columns)}"
    for row in table.itertuples(index=False):
        cells = (format_cell(value).replace("|", "&#124;") for value in row)
        yield f"| {' | '.join(cells)} |"
