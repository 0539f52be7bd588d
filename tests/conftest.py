"""What holds for all tests: the same examples each time, no time limits, no pictures left open.

`make test` must not depend on luck, so property tests draw the same examples on every run;
`make stress` (the profile `hunt`) draws new and more ones, for those who look for failures.
"""

import sys

import pytest
from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("hunt", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _close_pictures():
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")
