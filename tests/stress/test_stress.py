"""A small part of what `make stress` tries; and its counts are those that the page
tells.
"""

import re
import subprocess
import sys

import pytest

from tests.stress.__main__ import IDEAS, PAGE, read_tally, told

pytestmark = pytest.mark.processes


@pytest.mark.skipif(
    sys.platform != "linux", reason="file operations are watched through /proc"
)
@pytest.mark.parametrize("idea", IDEAS)
def test_a_small_part_holds(idea):
    command = [sys.executable, "-m", "tests.stress", "--few", idea]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"tried (\d+), held (\d+)", done.stdout)
    assert found is not None, done.stdout
    tried, held = map(int, found.groups())
    assert tried == held > 1


def test_the_page_tells_the_counts_that_were_kept():
    counts, page = read_tally(), PAGE.read_text(encoding="utf-8")
    assert tuple(counts) == IDEAS
    assert told(page, counts) == page
    changed = told(page, {**counts, "kills": ("12345", "12344", counts["kills"][2])})
    assert "| 12,345 | 12,344 |\n" in changed
    assert len(set(changed.splitlines()) - set(page.splitlines())) == 1
    for idea in IDEAS:
        assert told(page, {idea: ("1", "1", "")}) != page
