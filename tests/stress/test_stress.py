"""A small part of what `make stress` tries; and its counts are those that the page
tells.
"""

import re
import subprocess
import sys
from collections.abc import Mapping

import pytest

from tests.stress.__main__ import IDEAS, PAGE, read_tally, told

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def outputs() -> Mapping[str, str]:
    """What a small part of each idea printed, all of them tried in one process.

    A process of its own takes seconds to import what all of them need.
    """
    command = [sys.executable, "-m", "tests.stress", "--few"]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = re.findall(r"((?:^  .*\n)*^(\w+): tried .*)\n", done.stdout, re.MULTILINE)
    outputs = {idea: printed for printed, idea in lines}

    # An idea that ends the process prints nothing, and neither do those after it.
    for idea in IDEAS:
        outputs.setdefault(idea, done.stdout + done.stderr)
    return outputs


@pytest.mark.skipif(
    sys.platform != "linux", reason="file operations are watched through /proc"
)
@pytest.mark.parametrize("idea", IDEAS)
def test_a_small_part_holds(idea, outputs):
    found = re.search(rf"^{idea}: tried (\d+), held (\d+)", outputs[idea], re.MULTILINE)
    assert found is not None, outputs[idea]
    tried, held = map(int, found.groups())
    assert tried == held > 1, outputs[idea]


def test_the_page_tells_the_counts_that_were_kept():
    counts, page = read_tally(), PAGE.read_text(encoding="utf-8")
    assert tuple(counts) == IDEAS
    assert told(page, counts) == page
    changed = told(page, {**counts, "kills": ("12345", "12344", counts["kills"][2])})
    assert "| 12,345 | 12,344 |\n" in changed
    assert len(set(changed.splitlines()) - set(page.splitlines())) == 1
    for idea in IDEAS:
        assert told(page, {idea: ("1", "1", "")}) != page
