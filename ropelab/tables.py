"""Tables on disk: CSV at full precision that reads back the same, units from column names."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

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
    """The unit a column name ends in, None where it has none.

    >>> unit_of("nll_nats_per_byte"), unit_of("wavelength_tokens"), unit_of("accuracy")
    ('nats_per_byte', 'tokens', None)
    """
    return next((unit for unit in UNITS if column == unit or column.endswith(f"_{unit}")), None)


def in_longest_context(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a table of retrieval that were measured in its longest context."""
    return table[table["context_tokens"] == table["context_tokens"].max()]


def write_tables(tables: Tables, folder: Path) -> None:
    """Write each table as `<name>.csv`; floats as the shortest text that reads back the same."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(folder / f"{name}.csv", index=False, lineterminator="\n")


def read_tables(folder: Path) -> dict[str, pd.DataFrame]:
    """Read back what `write_tables` wrote; an empty cell is a missing value, nothing else is."""
    return {
        path.stem: pd.read_csv(path, keep_default_na=False, na_values=[""])
        for path in sorted(folder.glob("*.csv"))
    }


def sha256_of(path: Path) -> str:
    """The fingerprint of one file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
