"""A small part of what `make stress` tries; and its counts are those that the page tells."""

import csv
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stress.__main__ import IDEAS, TALLY

PAGE = Path(__file__).parents[2] / "docs" / "promises.md"


@pytest.mark.skipif(sys.platform != "linux", reason="file operations are watched through /proc")
@pytest.mark.parametrize("idea", IDEAS)
def test_a_small_part_holds(idea):
    command = [sys.executable, "-m", "tests.stress", "--few", idea]
    done = subprocess.run(command, capture_output=True, text=True)
    tried, held = map(int, re.search(r"tried (\d+), held (\d+)", done.stdout).groups())
    assert done.returncode == 0, done.stdout + done.stderr
    assert tried == held > 5


def test_the_page_tells_the_counts_that_were_kept():
    with TALLY.open() as file:
        counted = {row["idea"]: (row["tried"], row["held"]) for row in csv.DictReader(file)}
    rows = re.findall(
        r"^\| `(\w+)` \|.*\| ([\d,]+) \| ([\d,]+) \|$", PAGE.read_text(), re.MULTILINE
    )
    said = {idea: (tried.replace(",", ""), held.replace(",", "")) for idea, tried, held in rows}
    assert said == counted
    assert set(counted) == set(IDEAS)
