"""Tables on disk read back as they were."""

import math

import numpy as np
import pandas as pd
import pytest

from ropelab.runs.tables import DamagedError, read_tables, unit_of, write_tables


def test_floats_read_back_bit_for_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-500, 500).clip(
        -300, 300
    )
    table = pd.DataFrame({"x": [*values, math.inf, -math.inf, 5e-324, 0.1 + 0.2]})
    back = read_tables(tmp_path, write_tables({"t": table}, tmp_path))["t"]
    pd.testing.assert_frame_equal(back, table, check_exact=True)


def test_text_numbers_and_missing_values_keep_their_meaning(tmp_path):
    table = pd.DataFrame(
        {
            "status": ["ok", "undefined", "nan", "None"],
            "tokens": [1, 2, 3, 4],
            "nll": [1.0, math.nan, 2.0, 3.0],
            "flag": [True, False, True, False],
        }
    )
    back = read_tables(tmp_path, write_tables({"t": table}, tmp_path))["t"]
    pd.testing.assert_frame_equal(back, table, check_exact=True, check_dtype=False)
    assert back["tokens"].dtype == np.int64
    assert back["flag"].dtype == bool


def test_the_same_table_is_the_same_bytes(tmp_path):
    table = pd.DataFrame({"x": np.linspace(0, 1, 7)})
    hashes = write_tables({"t": table}, tmp_path / "a")
    assert write_tables(read_tables(tmp_path / "a", hashes), tmp_path / "b") == hashes
    assert (tmp_path / "a/t.csv").read_bytes() == (tmp_path / "b/t.csv").read_bytes()


def test_an_empty_table_keeps_its_columns_and_one_without_columns_is_no_table(tmp_path):
    table = pd.DataFrame({"x": [], "status": []})
    back = read_tables(tmp_path, write_tables({"t": table}, tmp_path))["t"]
    assert list(back.columns) == ["x", "status"]
    with pytest.raises(DamagedError, match="is no table"):
        read_tables(tmp_path, write_tables({"t": pd.DataFrame()}, tmp_path))


@pytest.mark.parametrize("damage", ["a digit", "a cut", "empty", "gone", "a folder"])
def test_what_was_not_written_is_not_read(tmp_path, damage):
    hashes = write_tables({"t": pd.DataFrame({"x": [1.25, 2.5]})}, tmp_path)
    path = tmp_path / "t.csv"
    content = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    elif damage != "gone":
        changed = {"a digit": content.replace(b"1", b"2"), "a cut": content[:-2], "empty": b""}
        path.write_bytes(changed[damage])
    with pytest.raises(DamagedError, match=r"t\.csv"):
        read_tables(tmp_path, hashes)


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
    assert unit_of(column) == unit
