"""Files that are written into a folder of the user's, and which of them are ours."""

import pytest

from ropelab.runs.errors import InputError
from ropelab.runs.folders import replace_file
from ropelab.show import drawn


def test_a_write_that_was_interrupted_is_made_again(tmp_path, monkeypatch):
    first = {"a.csv": b"1", "b.csv": b"2"}
    second = {"a.csv": b"3", "b.csv": b"4"}
    drawn.write_for_user(first, tmp_path)

    def end_at_the_second_file(path):
        if path.name == "b.csv":
            raise KeyboardInterrupt
        return replace_file(path)

    monkeypatch.setattr(drawn, "replace_file", end_at_the_second_file)
    with pytest.raises(KeyboardInterrupt):
        drawn.write_for_user(second, tmp_path)
    assert (tmp_path / "a.csv").read_bytes() == b"3"
    assert (tmp_path / "b.csv").read_bytes() == b"2"

    monkeypatch.setattr(drawn, "replace_file", replace_file)
    drawn.write_for_user(second, tmp_path)
    assert (tmp_path / "a.csv").read_bytes() == b"3"
    assert (tmp_path / "b.csv").read_bytes() == b"4"


def test_a_file_of_the_users_stays_whatever_was_written_before(tmp_path):
    drawn.write_for_user({"a.csv": b"1"}, tmp_path)
    (tmp_path / "a.csv").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"a\.csv"):
        drawn.write_for_user({"a.csv": b"2"}, tmp_path)
    assert (tmp_path / "a.csv").read_bytes() == b"mine"
    # What was there before the last write is no file of ours any more.
    (tmp_path / "b.csv").write_bytes(b"1")
    with pytest.raises(InputError, match=r"b\.csv"):
        drawn.write_for_user({"b.csv": b"2"}, tmp_path)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InputError, match="cannot write"):
        drawn.write_for_user({"a.csv": b"1"}, tmp_path / "file" / "below")
