"""Headers of GGUF files and of safetensors with other bytes, counts, sizes and numbers.

Each file is read as far as its header goes, or refused in one line.
"""

import contextlib
import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

from tests.readers.test_gguf import write
from tests.stress.arrays import ANY, COS, MODEL, SIN, check
from tests.stress.promise import Trial, type_command

FILES, FEW = 1_500, 20
"""Of GGUF; of safetensors a third of them."""
HEADER = 900
"""Bytes from the beginning in which most changes are made: keys, types and lengths."""
COUNTS = (
    0,
    1,
    2,
    9,
    2**16,
    2**16 + 1,
    2**31,
    2**32,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
NUMBERS = (float("nan"), float("inf"), -1.0, 0.0, -0.0, 1e-40, 3e38)
TYPES = (*range(14), 99)
COMMANDS = (
    ("audit", "model.gguf"),
    ("audit", "model.gguf", "--json"),
    ("audit", "model.gguf", "--verbose"),
    ("audit", "model.gguf", "right.gguf"),
    ("audit", "model.gguf", "--format", "sarif"),
    ("emit", "--from", "model.gguf", "--context", "200k"),
    ("vectors", "--config", "model.gguf", "--out", "kit"),
    ("check", "tables.npz", "--config", "model.gguf"),
)
Change = Callable[[bytes, random.Random], bytes]


def flip_bits(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        changed[chance.randrange(min(len(content), HEADER))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def take_out(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(min(len(content), HEADER))
    return content[:place] + content[place + chance.randint(1, 30) :]


def insert(content: bytes, chance: random.Random) -> bytes:
    place = chance.randrange(min(len(content), HEADER))
    return content[:place] + chance.randbytes(chance.randint(1, 30)) + content[place:]


def put(code: str, values: Sequence[float], places: Sequence[int] = ()) -> Change:
    """Return a change that writes one of some values at one of some places; none: at
    any.
    """

    def change(content: bytes, chance: random.Random) -> bytes:
        size = struct.calcsize(code)
        last = min(len(content), HEADER) - size
        place = chance.choice(places) if places else chance.randrange(24, last)
        raw = struct.pack(code, chance.choice(values))
        return content[:place] + raw + content[place + size :]

    return change


CHANGES: tuple[Change, ...] = (
    *(flip_bits, cut, take_out, insert, put("<Q", COUNTS), put("<Q", COUNTS, (8, 16))),
    *(put("<I", TYPES), put("<f", NUMBERS)),
)
"""The counts of tensors and of keys are at the bytes 8 and 16."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Files changed by chance; the same ones every time."""
    chance = random.Random(11)
    count = FEW if few else FILES
    with contextlib.chdir(folder):
        for content in make_models(chance, count):
            Path("model.gguf").write_bytes(content)
            yield give(chance.choice(COMMANDS))

        Path("config.json").write_text(json.dumps(MODEL))
        save_file({"cos": COS, "sin": SIN}, "tables.safetensors")
        right = Path("tables.safetensors").read_bytes()
        for number in range(count // 3):
            change = chance.choice((flip_bits, cut, take_out, insert, change_length))
            Path("tables.safetensors").write_bytes(change(right, chance))
            name = f"safetensors {number}: {change.__name__}"
            # What is beside the numbers may change without harm.
            yield check(name, "tables.safetensors", ANY)


def make_models(chance: random.Random, count: int) -> Iterator[bytes]:
    """Yield changed files of two models, one with a table of divisors."""
    right = Path("right.gguf")
    models = [write(right).read_bytes()]
    yarn = {
        "add_rope_scaling_type": gguf.RopeScalingType.YARN,
        "add_rope_scaling_factor": 4.0,
        "add_rope_scaling_orig_ctx_len": 32768,
    }
    models.append(write(Path("yarn.gguf"), divisors=False, **yarn).read_bytes())
    np.savez("tables.npz", cos=COS, sin=SIN)
    for _ in range(count):
        yield chance.choice(CHANGES)(chance.choice(models), chance)


def change_length(content: bytes, chance: random.Random) -> bytes:
    """Write another length of the header of safetensors."""
    (length,) = struct.unpack("<Q", content[:8])
    others = (0, 1, length - 1, length + 1, len(content), 2**31, 2**63, 2**64 - 1)
    return struct.pack("<Q", chance.choice(others)) + content[8:]


def give(line: tuple[str, ...]) -> Trial:
    """Type a command about a changed model."""
    return type_command(" ".join(line), ANY, *line)
