"""Tables on disk read back as they were."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from ropelab.runs.tables import DamagedError, Format, convert_to_stored, find_unit

FORMAT = Format("about.json", "tables", TypeAdapter(dict[str, Any]))


def write(folder: Path, table: pd.DataFrame) -> pd.DataFrame:
    """Write a folder with one table, and return that as read back."""
    return FORMAT.write(folder, {"t": table}, {})["t"]


def read(folder: Path) -> pd.DataFrame:
    about = FORMAT.description(folder)
    assert about is not None
    return FORMAT.tables(folder, about)["t"]


def test_floats_read_back_bit_for_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(
        -500, 500
    ).clip(-300, 300)
    table = pd.DataFrame({"x": [*values, math.inf, -math.inf, 5e-324, 0.1 + 0.2]})
    pd.testing.assert_frame_equal(write(tmp_path, table), table, check_exact=True)
    pd.testing.assert_frame_equal(read(tmp_path), table, check_exact=True)


def test_text_numbers_and_missing_values_keep_their_meaning(tmp_path):
    table = pd.DataFrame(
        {
            "status": ["ok", "undefined", "nan", "None"],
            "tokens": [1, 2, 3, 4],
            "nll": [1.0, math.nan, 2.0, 3.0],
            "flag": [True, False, True, False],
        }
    )
    back = write(tmp_path, table)
    pd.testing.assert_frame_equal(back, table, check_exact=True, check_dtype=False)
    assert back["tokens"].dtype == np.int64
    assert back["flag"].dtype == bool


def test_text_that_looks_like_numbers_stays_text(tmp_path):
    table = pd.DataFrame(
        {"kind": ["01", "1", "1e2", None], "name": ["True", "False"] * 2}
    )
    back = write(tmp_path, table)
    assert back["kind"].tolist()[:3] == ["01", "1", "1e2"]
    assert back["kind"].isna().tolist() == [False] * 3 + [True]
    assert back["name"].tolist() == ["True", "False"] * 2
    pd.testing.assert_frame_equal(convert_to_stored({"t": table})["t"], back)
    written = json.loads((tmp_path / "about.json").read_text())["tables"]["t"]
    assert written["columns"] == {"kind": "text", "name": "text"}


@given(
    st.lists(
        st.text("0123456789.eE+-_ nNaAiIfFtTyrRuUlLsSxXdDjJé", min_size=1)
        | st.sampled_from(
            ["-inf", "+Infinity", " nan", "TRUE", "False", "1e2", "1d5", "0x1p3"]
        ),
        min_size=1,
    )
)
def test_every_text_reads_back_as_the_text_that_it_was(words):
    table = pd.DataFrame({"kind": words})
    assert convert_to_stored({"t": table})["t"]["kind"].tolist() == words


def test_the_same_table_is_the_same_bytes(tmp_path):
    back = write(tmp_path / "a", pd.DataFrame({"x": np.linspace(0, 1, 7)}))
    write(tmp_path / "b", back)
    for name in ("about.json", "tables/t.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (
            tmp_path / "b" / name
        ).read_bytes()


def test_an_empty_table_keeps_its_columns_and_one_without_columns_is_no_table(tmp_path):
    back = write(tmp_path, pd.DataFrame({"x": [], "status": []}))
    assert list(back.columns) == ["x", "status"]
    with pytest.raises(DamagedError, match="is no table"):
        write(tmp_path, pd.DataFrame())


@pytest.mark.parametrize("file", ["tables/t.csv", "about.json"])
@pytest.mark.parametrize("damage", ["a digit", "a cut", "empty", "a folder", "gone"])
def test_what_was_not_written_is_not_read(tmp_path, file, damage):
    write(tmp_path, pd.DataFrame({"x": [1.25, 2.5]}))
    path = tmp_path / file
    content = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage != "gone":
        changed = {
            "a digit": content.replace(b"1", b"2"),
            "a cut": content[:-3],
            "empty": b"",
        }
        path.write_bytes(changed[damage])
    if (file, damage) == ("about.json", "gone"):
        assert FORMAT.description(tmp_path) is None
        return
    with pytest.raises(DamagedError, match=path.name):
        read(tmp_path)


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        ("nll_nats_per_byte", "nats_per_byte"),
        ("distance_tokens", "tokens"),
        ("max_angle_error_rad", "rad"),
        ("accuracy", None),
        ("tokenstream", None),
    ],
)
def test_units_come_from_column_names(column, unit):
    assert find_unit(column) == unit
