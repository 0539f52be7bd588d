"""A small part of what `make stress` tries."""

import re
import subprocess
import sys

import pytest

from tests.stress.__main__ import IDEAS


@pytest.mark.skipif(sys.platform != "linux", reason="file operations are watched through /proc")
@pytest.mark.parametrize("idea", IDEAS)
def test_a_small_part_holds(idea):
    command = [sys.executable, "-m", "tests.stress", "--few", idea]
    done = subprocess.run(command, capture_output=True, text=True)
    tried, held = map(int, re.search(r"tried (\d+), held (\d+)", done.stdout).groups())
    assert done.returncode == 0, done.stdout + done.stderr
    assert tried == held > 5
