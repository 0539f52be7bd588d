"""Targets of `ropelab check` that are broken, or that break: one line, and nothing on
stdout.
"""

import importlib
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from ropelab.conformance import stored, user_code
from ropelab.conformance.check import check
from ropelab.readers.spec import RopeSpec
from ropelab.runs.errors import InputError
from tests.conformance.test_check import LLAMA
from tests.test_cli import call
from tests.texts import mentions

__all__ = ["call"]  # a fixture

ANGLES = np.arange(64.0)[:, None] * 500000.0 ** (-np.arange(32) / 32)
COS, SIN = np.cos(ANGLES), np.sin(ANGLES)
NO_ARCHIVE = b"\x93NUMPY\x01\x00" + bytes(200)
WHOLE = "positions must be a list of whole numbers"


def header(shape: tuple[int, ...]) -> bytes:
    """The head of an array of that shape, without its numbers."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"cos": COS * 1j, "sin": SIN}, "cos holds complex128, not real numbers"),
        ({"cos": COS.astype(str), "sin": SIN}, "not real numbers"),
        ({"cos": COS.astype(object), "sin": SIN}, "cannot read t.npz"),
        ({"positions": np.arange(64) + 0.5, "cos": COS, "sin": SIN}, WHOLE),
        ({"positions": np.full(64, np.nan), "cos": COS, "sin": SIN}, WHOLE),
        ({"positions": np.arange(64) * 1e300, "cos": COS, "sin": SIN}, WHOLE),
        ({"positions": -np.arange(64), "cos": COS, "sin": SIN}, WHOLE),
        ({"positions": np.ones((8, 8)), "cos": COS, "sin": SIN}, WHOLE),
        ({"cos": np.float64(1), "sin": np.float64(0)}, "has no row for position 1"),
        ({"cos": COS}, "or inv_freq, it has cos"),
        ({"cos": COS, "sin": SIN[:, 1:]}, "for 64 positions"),
        ({"cos": COS[:, :0], "sin": SIN[:, :0]}, "have no columns"),
    ],
)
def test_tables_that_are_none_are_refused_in_one_line(here, arrays, sentence):
    np.savez("t.npz", **arrays)
    with pytest.raises(InputError, match=sentence) as caught:
        check("t.npz", config="config.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (pickle.dumps([1]), "cos holds .*, not real numbers"),
        (header((2**50,)), "cannot read t.npz: "),
        (header((2**30,)) + bytes(2**20), "cannot read t.npz: "),
    ],
)
def test_a_part_that_is_no_array_or_too_large_is_refused(here, part, sentence):
    with zipfile.ZipFile("t.npz", "w") as archive:
        archive.writestr("cos.npy", part)
    with pytest.raises(InputError, match=sentence):
        check("t.npz", config="config.json")


@pytest.mark.parametrize("shape", [(10**20,), (True, 4), (2**31, 2**31), (-1, 4)])
def test_a_shape_that_no_array_has_is_refused(
    here: Path, shape: tuple[int, ...]
) -> None:
    with zipfile.ZipFile("t.npz", "w") as archive:
        archive.writestr("cos.npy", header(shape) + bytes(64))
    with pytest.raises(InputError, match=r"cannot read t\.npz: cos") as caught:
        check("t.npz", config="config.json")
    assert "\n" not in str(caught.value)


def test_a_small_file_that_unpacks_to_gigabytes_is_refused_unread(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 3 * 2**30 // 8
    with zipfile.ZipFile("t.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cos.npy", header((size,)) + bytes(64))
    # The directory of the archive says what would come out.
    information = zipfile.ZipFile.infolist

    def declared(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
        parts = information(archive)
        for part in parts:
            part.file_size = 3 * 2**30 + 128
        return parts

    monkeypatch.setattr(zipfile.ZipFile, "infolist", declared)
    with pytest.raises(InputError, match=f"hold {size} numbers, and at most"):
        check("t.npz", config="config.json")


def test_tensors_that_are_too_many_are_refused_unread(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_file({"cos": COS, "sin": SIN}, "t.safetensors")
    monkeypatch.setattr(stored, "MOST_NUMBERS", COS.size)
    with pytest.raises(InputError, match=f"hold {2 * COS.size} numbers"):
        check("t.safetensors", config="config.json")


@pytest.mark.parametrize(
    "content", [NO_ARCHIVE, b"", b"text", b"PK\x03\x04" + bytes(100), b"PK\x05\x06"]
)
def test_a_file_that_is_no_archive_is_refused(here, content):
    (here / "t.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read t\.npz"):
        check("t.npz", config="config.json")


def test_a_file_that_is_not_there_is_said_so_once(here):
    with pytest.raises(
        InputError, match=r"^cannot read t\.npz: No such file or directory$"
    ):
        check("t.npz", config="config.json")


@pytest.mark.parametrize("factor", [np.nan, np.inf, 1e308])
def test_numbers_beyond_all_factors_are_said_to_be_wrong(here, factor):
    np.savez("t.npz", cos=np.full_like(COS, factor), sin=SIN)
    done = check("t.npz", config="config.json")
    assert done.wrong
    assert mentions(done.answer, "not finite")


CODE = """
import sys
import numpy as np

def raises(): raise ValueError("no \\x1b[2J\\nsecond line")
def leaves(): sys.exit(0)
def none(): return None
def nothing_asked(): return lambda: 1
def three(): return lambda a, b, c: 1
def number(): return lambda positions: 5
def one(): return lambda positions: (positions,)
def words(): return lambda positions: (np.array(["a"]), np.array(["b"]))
def recursive():
    def again(positions): return again(positions)
    return again
def loud():
    print("on stdout")
    return lambda positions: (np.cos(positions[:, None] * np.ones(32)),) * 2
constant = 3

INV = 500000.0 ** (-np.arange(0, 64, 2) / 64)
def shifted():
    def tables(positions):
        positions += 1
        angles = positions[:, None] * INV
        return np.cos(angles), np.sin(angles)
    return tables
def base_exception():
    class Odd(BaseException): pass
    raise Odd("odd")
def interrupts(): raise KeyboardInterrupt
def ends():
    import os
    os._exit(0)
def crashes():
    import os
    os.abort()
def breaks_python():
    import builtins
    builtins.isinstance = lambda *arguments: True
    return lambda positions: 1
def masked():
    def tables(positions):
        angles = positions[:, None] * INV
        cos = np.ma.masked_array(np.cos(angles), np.cos(angles) > 0.5)
        return cos, np.sin(angles)
    return tables
def imaginary():
    angles = lambda positions: positions[:, None] * INV
    return lambda positions: (np.cos(angles(positions)) + 1j, np.sin(angles(positions)) + 0j)
def complex_without_need():
    angles = lambda positions: positions[:, None] * INV
    return lambda positions: (np.cos(angles(positions)) + 0j, np.sin(angles(positions)) + 0j)
def fills_the_disk():
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, 16))
    return lambda positions: (np.cos(positions[:, None] * INV), np.sin(positions[:, None] * INV))
def boundless():
    return lambda positions: (np.broadcast_to(1.0, (len(positions), 10**12)),) * 2
def sleeps():
    import time
    time.sleep(600)
def forks():
    import os, time
    if not os.fork():
        sys.exit(0)
    return constant
"""


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        (
            "odd_rope:raises",
            "raised ValueError: no \\x1b[2J second line (odd_rope.py, line 5)",
        ),
        (
            "odd_rope:leaves",
            "odd_rope:leaves raised SystemExit: 0 (odd_rope.py, line 6)",
        ),
        ("odd_rope:none", "made a NoneType, which cannot be called"),
        ("odd_rope:nothing_asked", "raised TypeError"),
        (
            "odd_rope:three",
            "odd_rope:three answers with a int, not with a rotation of each",
        ),
        ("odd_rope:number", "answers with a int, not with cos and sin"),
        ("odd_rope:one", "answers with a tuple, not with cos and sin"),
        ("odd_rope:boundless", "x 1000000000000 numbers needs"),
        ("odd_rope:imaginary", "cos holds imaginary numbers"),
        ("odd_rope:words", "raised ValueError: could not convert string to float"),
        ("odd_rope:recursive", "raised RecursionError"),
        ("odd_rope:constant", "raised TypeError: 'int' object is not callable"),
        ("odd_rope:base_exception", "raised Odd: odd"),
        ("odd_rope:interrupts", "raised KeyboardInterrupt"),
        ("odd_rope:ends", "os._exit ends the process"),
        ("odd_rope:breaks_python", "ended with status 0, no answer"),
        ("odd_rope:crashes", "ended with status -6, no answer"),
        ("odd_rope:forks", "made a int, which cannot be called"),
        ("odd_rope:missing", "cannot load odd_rope:missing"),
        ("no_such_module:x", "cannot load no_such_module:x: No module named"),
        ("broken_rope:x", "broken_rope:x raised SyntaxError"),
        (":x", "raised ValueError: Empty module name"),
        ("..:x", "..:x raised TypeError"),
        ("nothing", "is not a folder, an .npz or a package.module:factory"),
    ],
)
def test_code_that_breaks_is_one_line(here, call, target, sentence):
    (here / "odd_rope.py").write_text(CODE)
    (here / "broken_rope.py").write_text("def x(:")
    status, out, err = call("check", target, "--config", here / "config.json")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("ropelab: ")
    assert sentence in err


def test_an_answer_that_cannot_be_written_is_no_fault_of_the_code(here, call) -> None:
    (here / "odd_rope.py").write_text(CODE)
    command = ["check", "odd_rope:fills_the_disk", "--config", here / "config.json"]
    status, out, err = call(*command)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert "disk" in err


def test_masked_numbers_are_none(here: Path, call: Callable[..., Any]) -> None:
    (here / "odd_rope.py").write_text(CODE)
    status, out, _ = call("check", "odd_rope:masked", "--config", here / "config.json")
    assert (status, "not finite" in out) == (3, True)


def test_complex_numbers_without_an_imaginary_part_are_real(here, call):
    (here / "odd_rope.py").write_text(CODE)
    status, out, _ = call(
        "check", "odd_rope:complex_without_need", "--config", here / "config.json"
    )
    assert status == 0
    assert "within 0.01 rad" in out


def test_code_that_changes_its_positions_is_wrong(
    here: Path, call: Callable[..., Any]
) -> None:
    (here / "odd_rope.py").write_text(CODE)
    status, out, _ = call("check", "odd_rope:shifted", "--config", here / "config.json")
    assert (status, "odd_rope:shifted: " in out) == (3, True)


def test_code_that_never_ends_is_one_line(
    here: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "odd_rope.py").write_text(CODE)
    monkeypatch.setattr(user_code, "LONGEST_SECONDS", 1)
    status, out, err = call(
        "check", "odd_rope:sleeps", "--config", here / "config.json"
    )
    # A progress line comes first where a second is over before.
    *progress, sentence = err.splitlines()
    assert (status, out) == (2, "")
    assert sentence == "ropelab: odd_rope:sleeps gave no answer within 1 seconds"
    assert all(line.startswith("checking") for line in progress)


def test_the_code_finds_what_this_process_finds(
    here: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The child unpickles a class from a folder that only this process has in its
    path.
    """
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    text = (
        "from ropelab.math.scaling import Unscaled\n\nclass Own(Unscaled):\n    pass\n"
    )
    (elsewhere / "own_scaling.py").write_text(text)
    (here / "odd_rope.py").write_text(CODE)
    monkeypatch.syspath_prepend(elsewhere)
    own = importlib.import_module("own_scaling").Own()
    spec = RopeSpec(base=1e4, head_dim=64, rotary_dim=64, scaling=own, trained_len=4096)
    done = user_code.ask_in_process("odd_rope:shifted", spec, np.arange(4))
    assert done[""].cos.shape == (4, 32)


def test_what_code_prints_does_not_get_between_the_answer(here, call):
    (here / "odd_rope.py").write_text(CODE)
    status, out, err = call(
        "check", "odd_rope:loud", "--config", here / "config.json", "--json"
    )
    assert status == 3
    assert json.loads(out)["wrong"] is True
    assert "on stdout" in err


DYNAMIC = {
    **LLAMA,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
}
GROWING = """
import numpy as np

def make(goes_back):
    longest = 4096

    def tables(positions):
        nonlocal longest
        length = int(np.max(positions)) + 1
        longest = length if goes_back else max(longest, length)
        base = 10000.0
        if longest > 4096:
            base *= (4 * longest / 4096 - 3) ** (64 / 62)
        angles = np.asarray(positions).reshape(-1, 1) * base ** (-np.arange(32) / 32)
        return np.cos(angles), np.sin(angles)

    return tables

def right():
    return make(True)

def never_back():
    return make(False)
"""


def test_code_that_keeps_the_base_of_the_longest_context_is_asked_again(here):
    (here / "config.json").write_text(json.dumps(DYNAMIC))
    (here / "growing.py").write_text(GROWING)
    assert not check("growing:right", config="config.json").wrong
    done = check("growing:never_back", config="config.json")
    assert done.wrong
    assert mentions(
        done.answer, "1025 tokens after 5325", "base 22570 instead of 10000"
    )


# Modules that note the length before they make a table in the format of their argument: a
# call with an array of NumPy would stop between the two.
NOTING = """
import torch

class Noting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.noted = 0

    def forward(self, x, position_ids):
        length = int(position_ids.max()) + 1
        if length > self.noted:
            self.noted = length
            angles = torch.outer(
                torch.arange(length).double(), 500000.0 ** (-torch.arange(32).double() / 32)
            )
            self.cos, self.sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        cos, sin = self.cos[position_ids], self.sin[position_ids]
        a, b = x[..., :32], x[..., 32:]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

def module():
    return Noting()

def function():
    noting = Noting()

    def rotate(x, position_ids):
        return noting(x, position_ids)

    return rotate
"""


@pytest.mark.parametrize("name", ["module", "function"])
def test_code_of_torch_is_given_no_arrays_of_numpy(here, name):
    (here / "noting.py").write_text(NOTING)
    done = check(f"noting:{name}", config="config.json", length=1024)
    assert not done.wrong
