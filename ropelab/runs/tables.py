"""Tables on disk: CSV at full precision that reads back the same, units from column names."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from ropelab.runs.errors import MachineError
from ropelab.runs.files import read_regular

Tables = Mapping[str, pd.DataFrame]

# A column's unit is the end of its name; one without any of these is a pure number or text.
UNITS = (
    "nats_per_byte",
    "nats_per_token",
    "bytes_per_token",
    "tokens",
    "rad",
    "turns",
    "ulp",
    "bytes",
    "seconds",
    "per_second",
)


def unit_of(column: str) -> str | None:
    """Return the unit that a column name ends in, None where it has none.

    >>> unit_of("nll_nats_per_byte"), unit_of("wavelength_tokens"), unit_of("accuracy")
    ('nats_per_byte', 'tokens', None)
    """
    return next((unit for unit in UNITS if column == unit or column.endswith(f"_{unit}")), None)


def in_longest_context(table: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of a table of retrieval that were measured in its longest context."""
    return table[table["context_tokens"] == table["context_tokens"].max()]


class DamagedError(MachineError):
    """Something that was stored is gone, or is not what was written."""


def write_tables(tables: Tables, folder: Path) -> dict[str, str]:
    """Write each table as `<name>.csv`; floats as the shortest text that reads back the same.

    Returns:
        The sha256 of each file, by the name of its table.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        (folder / f"{name}.csv").write_bytes(_as_csv(table))
    return {name: sha256_of(folder / f"{name}.csv") for name in tables}


def as_stored(tables: Tables) -> dict[str, pd.DataFrame]:
    """Return tables as they would be read back, in which whole numbers with gaps are floats."""
    return {name: _from_csv(_as_csv(tables[name])) for name in sorted(tables)}


def _as_csv(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False, lineterminator="\n").encode()


def _from_csv(content: bytes) -> pd.DataFrame:
    return pd.read_csv(BytesIO(content), keep_default_na=False, na_values=[""])


def read_tables(folder: Path, hashes: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """Read back what `write_tables` wrote; an empty cell is a missing value, nothing else is.

    Args:
        hashes: the sha256 of each table's file, as `write_tables` gave them.
    Raises:
        DamagedError: a file is not there, or is not the one that was written.
    """
    return {name: _read(folder / f"{name}.csv", hashes[name]) for name in sorted(hashes)}


def _read(path: Path, written: str) -> pd.DataFrame:
    try:
        content = read_regular(path)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read ({error.strerror})") from None
    if hashlib.sha256(content).hexdigest() != written:
        raise DamagedError(f"{path} is not what was written")
    try:
        return _from_csv(content)
    except ValueError as error:
        raise DamagedError(f"{path} is no table ({error})") from None


def as_markdown(table: pd.DataFrame, written: Callable[[Any], str]) -> Iterator[str]:
    """Yield a table as lines of Markdown, its values by `written`; nothing for an empty table."""
    if table.empty:
        return
    yield f"| {' | '.join(str(name).replace('_', ' ') for name in table.columns)} |"
    yield f"|{' --- |' * len(table.columns)}"
    for row in table.itertuples(index=False):
        cells = (written(value).replace("|", "&#124;") for value in row)
        yield f"| {' | '.join(cells)} |"


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
