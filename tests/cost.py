"""What each test costs in processor time, and which cost too much for `make test`.

The clock is not asked: it tells how busy the machine was. Time of the processes that a
test started counts too, once the test has waited for them.
"""

import resource
from collections import defaultdict
from collections.abc import Iterator

import pytest

# Seconds of processor time of one test, fixtures included, from which it is named.
TOO_MUCH = 3.0
SHOWN = 10
KEY = "processor_seconds"
# Tests may replace the function in the module.
usage_of = resource.getrusage


def seconds_used() -> float:
    """Return the processor time of this process and of those it has waited for."""
    own = usage_of(resource.RUSAGE_SELF)
    children = usage_of(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def measure(item: pytest.Item) -> Iterator[None]:
    """Note the cost of a phase at the test; a worker of xdist sends it on."""
    before = seconds_used()
    try:
        return (yield)
    finally:
        item.user_properties.append((KEY, seconds_used() - before))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from measure(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from measure(item))


def pytest_terminal_summary(terminalreporter) -> None:
    costs: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            # The report of the last phase has the notes of all of them.
            if getattr(report, "when", "") == "teardown":
                costs[report.nodeid] = sum(
                    value for key, value in report.user_properties if key == KEY
                )
    terminalreporter.section("processor time")
    terminalreporter.write_line(f"{sum(costs.values()):.0f} s in {len(costs)} tests")
    dearest = sorted(costs, key=lambda name: costs[name], reverse=True)
    for name in dearest[:SHOWN]:
        terminalreporter.write_line(f"{costs[name]:6.1f} s  {name}")
    if "not (slow" not in terminalreporter.config.option.markexpr:
        return
    for name in dearest:
        if costs[name] > TOO_MUCH:
            terminalreporter.write_line(
                f"above {TOO_MUCH:g} s, so it belongs in `make test-all` "
                f"(CONTRIBUTING.md): {name}"
            )
