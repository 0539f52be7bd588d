"""The fingerprint of a model follows every byte of its files."""

import os
import time
import tracemalloc
from pathlib import Path

import pytest

from ropelab.models.released import folder as model_folder
from ropelab.models.released.folder import hash_model_files
from ropelab.models.released.model import ModelRef
from ropelab.runs.errors import InputError, MachineError
from tests.models.released.tiny import saved

SIZE = 3 * 2**20


@pytest.fixture
def folder(tmp_path):
    """Weights of 3 MiB that were written long ago."""
    (tmp_path / "model.safetensors").write_bytes(os.urandom(SIZE))
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


@pytest.mark.parametrize("place", [0, SIZE // 2, SIZE - 1])
def test_a_changed_byte_changes_it_wherever_it_is(folder, place):
    before = hash_model_files(folder)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    assert hash_model_files(folder) != before


def test_names_count_and_subfolders_do_not(folder):
    before = hash_model_files(folder)
    (folder / "more").mkdir()
    (folder / "more" / "file").write_text("more")
    assert hash_model_files(folder) == before
    (folder / "config.json").rename(folder / "generation_config.json")
    assert hash_model_files(folder) != before


def test_a_file_is_read_again_only_when_it_may_have_changed(folder, monkeypatch):
    read: list[str] = []
    whole = model_folder._hash

    def noted(path: Path) -> bytes:
        read.append(path.name)
        return whole(path)

    monkeypatch.setattr(model_folder, "_hash", noted)
    now = time.time_ns()
    hash_model_files(folder)
    hash_model_files(folder)
    # too new to be sure of
    assert sorted(read) == ["config.json"] * 2 + ["model.safetensors"] * 2
    monkeypatch.setattr(time, "time_ns", lambda: now + 10**11)
    for _ in range(3):
        hash_model_files(folder)
    assert sorted(read[4:]) == ["config.json", "model.safetensors"]
    (folder / "config.json").write_text("[]")
    hash_model_files(folder)
    assert read[6:] == ["config.json"]


def test_what_is_no_file_is_refused(folder):
    os.mkfifo(folder / "tokenizer.json")
    with pytest.raises(InputError, match=r"tokenizer\.json is not a plain file"):
        hash_model_files(folder)


def test_large_files_are_read_in_small_blocks(tmp_path):
    for number in range(8):
        with (tmp_path / f"model-{number}.safetensors").open("wb") as file:
            file.truncate(16 * SIZE)
    hash_model_files(tmp_path)
    tracemalloc.start()
    try:
        hash_model_files(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < SIZE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("loaded", [False, True])
def test_another_model_in_the_folder_is_not_measured_as_the_first(tmp_path, loaded):
    """Weights are trained on and saved again while earlier runs of the same command
    take time.
    """
    folder = saved(tmp_path / "model", "llama")
    reference = ModelRef(str(folder), hash_model_files(folder))
    if loaded:
        reference.model()
    file = folder / "model.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.unlink()
    file.write_bytes(raw)
    with pytest.raises(MachineError, match="has changed since this run began"):
        reference.model()
