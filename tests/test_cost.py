"""The plugin that names tests which need too much processor time."""

import re
from types import SimpleNamespace

import pytest

from tests import cost

pytest_plugins = ["pytester"]

FILE = """
import time

def test_idle(): time.sleep(0.5)

def test_busy():
    end = time.process_time() + 0.4
    while time.process_time() < end: pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "1"])
def test_processor_time_is_shown_and_sleep_costs_nothing(pytester, workers):
    pytester.makepyfile(FILE)
    done = pytester.runpytest_subprocess("-p", "tests.cost", "-n", workers)
    shown = {
        name: float(seconds)
        for seconds, name in re.findall(r"([\d.]+) s  \S+::(\w+)", done.stdout.str())
    }
    assert shown["test_busy"] >= 0.4 > 0.2 > shown["test_idle"]


def test_what_costs_too_much_is_named_in_the_first_suite_alone():
    lines: list[str] = []
    reporter = SimpleNamespace(
        section=lines.append,
        write_line=lines.append,
        config=SimpleNamespace(option=SimpleNamespace(markexpr="not (slow or ray)")),
        stats={
            "passed": [
                SimpleNamespace(
                    when="teardown",
                    nodeid=name,
                    user_properties=[(cost.KEY, seconds), (cost.KEY, 1.0)],
                )
                for name, seconds in (("dear", 2.5), ("cheap", 1.0))
            ]
        },
    )
    cost.pytest_terminal_summary(reporter)
    assert [line.split()[-1] for line in lines if "above" in line] == ["dear"]

    lines.clear()
    reporter.config.option.markexpr = "not stress"
    cost.pytest_terminal_summary(reporter)
    assert not [line for line in lines if "above" in line]
