"""The smallest models, which learn nothing and take no time, and commands of an
ordinary user.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest

SMALL = {
    "train_len": 64,
    "test_len": 256,
    "width": 16,
    "heads": 2,
    "head_dim": 8,
    "steps": 2,
    "tokens_per_step": 128,
    "documents": 3,
    "sequences": 2,
    "device": "cpu",
}


def mostly_slow(values: Iterable[Any], few: Iterable[Any]) -> list[Any]:
    """Return parameters of a test of which `make test` asks only a few."""
    few = set(few)
    marked = []
    for value in values:
        if value in few:
            marked.append(value)
        else:
            marked.append(pytest.param(value, marks=pytest.mark.slow))
    return marked


# Root is refused nothing; without these two capabilities it obeys the permissions of
# its files.
PERSON = ("setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search")


def as_person(*arguments: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process that permissions hold for; skip the test where there
    is none.
    """
    prefix = PERSON if os.geteuid() == 0 else ()
    if prefix and not shutil.which("setpriv"):
        pytest.skip("root without setpriv is refused nothing")
    command = [*prefix, sys.executable, "-m", "ropelab", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)
