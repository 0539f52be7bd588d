"""The time left is told from expected costs and corrected by what was measured."""

import pytest

from ropelab.runs import forecast
from ropelab.runs.forecast import BESIDE_SECONDS, TRUSTED_SECONDS, Forecast

HOUR = 3600.0


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    now = [1000.0]
    monkeypatch.setattr(forecast.time, "monotonic", lambda: now[0])
    return now


def expected(workers, seconds):
    """A forecast, and its cells in the order in which they are begun."""
    made = Forecast(workers)
    return made, [made.expect(each, (number,)) for number, each in enumerate(seconds)]


def test_before_anything_is_done_the_expectation_is_shared_among_the_workers(clock):
    for workers, left in ((1, 600.0), (2, 300.0), (3, 200.0), (9, 200.0)):
        made, parts = expected(workers, [200.0, 200.0, 100.0, 100.0])
        assert made.left(parts) == pytest.approx(left, rel=1e-3)


def test_the_longest_cell_ends_no_earlier_for_more_workers(clock):
    made, parts = expected(2, [900.0, 10.0, 10.0])
    assert made.left(parts) == pytest.approx(900.0, rel=1e-3)
    assert made.left(parts[1:]) == pytest.approx(20.0, rel=2e-2)


def test_cells_of_one_run_wait_for_more_urgent_ones_of_another(clock):
    made = Forecast(1)
    late = made.expect(10.0, (2.0,))
    made.expect(500.0, (1.0,))
    assert made.left([late]) == pytest.approx(510.0, rel=1e-3)


def test_a_slow_beginning_does_not_promise_days(clock):
    """Half a minute of loading for a first step of 200000."""
    made, parts = expected(2, [1380.0, 1380.0])
    for part in parts:
        made.begin(part)
    clock[0] += 30.0
    made.move(parts[0], 1 / 200_000)
    left = made.left(parts)
    assert left is not None
    assert 1380.0 < left < 1.6 * 1380.0


@pytest.mark.parametrize("slower", [0.25, 1.0, 3.0])
def test_what_cells_took_corrects_what_is_expected_of_others(clock, slower):
    made, parts = expected(1, [HOUR, HOUR, HOUR])
    for part in parts[:2]:
        made.begin(part)
        clock[0] += slower * HOUR
        made.end(part)
    assert made.left(parts) == pytest.approx(slower * HOUR, rel=TRUSTED_SECONDS / (slower * HOUR))


def test_a_cell_under_way_counts_by_what_is_done_of_it(clock):
    made, (part,) = expected(1, [HOUR])
    made.begin(part)
    clock[0] += HOUR
    made.move(part, 0.25)
    made.move(part, 1 / 3)
    assert part.left == pytest.approx(0.5)
    assert made.left([part]) == pytest.approx(HOUR, rel=0.05)


def test_short_work_follows_the_clock_soon(clock):
    """Expected to take two seconds, and takes twenty."""
    made, (part,) = expected(1, [2.0])
    made.begin(part)
    clock[0] += 10.0
    made.move(part, 0.5)
    assert made.left([part]) == pytest.approx(10.0, rel=0.2)


def test_many_cells_of_hardly_any_work_take_time_all_the_same(clock):
    made, parts = expected(2, [1e-4] * 100)
    assert made.left(parts) == pytest.approx(50 * BESIDE_SECONDS, rel=0.01)


def test_where_nothing_is_known_no_time_is_told(clock):
    made, parts = expected(2, [0.0, 0.0])
    assert made.left(parts) is None


def test_what_was_not_finished_is_forgotten_with_its_run(clock):
    made = Forecast(1)
    with pytest.raises(KeyboardInterrupt), made.of([HOUR, HOUR]) as parts:
        made.begin(parts[0])
        raise KeyboardInterrupt
    assert made.left([made.expect(5.0, (0,))]) == pytest.approx(5.0, rel=3e-2)
