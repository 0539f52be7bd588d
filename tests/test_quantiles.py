"""Student's t, against SciPy."""

import math

import pytest
from scipy import stats

from ropelab.runs.student import student_quantile, student_tail

FREEDOM = (1, 1.3, 2, 3, 4.7, 10, 49, 250, 3000, 1e5)


@pytest.mark.parametrize("freedom", FREEDOM)
@pytest.mark.parametrize("share", [0.6, 0.95, 0.975, 0.9995, 0.99999])
def test_quantiles_are_those_of_scipy(share: float, freedom: float) -> None:
    assert student_quantile(share, freedom) == pytest.approx(
        stats.t.ppf(share, freedom), rel=1e-9
    )


@pytest.mark.parametrize("freedom", FREEDOM)
@pytest.mark.parametrize("t", [0, 1e-6, 0.1, 1, 3, 30])
def test_tails_are_those_of_scipy(t: float, freedom: float) -> None:
    expected = float(stats.t.sf(t, freedom))
    assert student_tail(t, freedom) == pytest.approx(expected, rel=1e-9, abs=1e-280)


@pytest.mark.parametrize(
    ("t", "freedom"), [(1.0, 0.0), (1.0, math.nan), (math.nan, 3.0)]
)
def test_without_degrees_of_freedom_nothing_is_known(t: float, freedom: float) -> None:
    assert math.isnan(student_tail(t, freedom))
    assert math.isnan(student_quantile(0.975, freedom)) or freedom > 0
