"""Reported precision errors: each is measured again as printed, or its report was
wrong.
"""

import math

import pandas as pd
import pytest

from ropelab.math.numerics.incidents import INCIDENTS, is_rounded_to, measure_incidents

# A number that differs was wrong in the report.
WRONG = {
    "candle/pull/3520": {
        "stored_position(15968)": 16000,
        "position_step(15962)": 64,
        "exact_cos(15962,0)": math.cos(15962),
        "exact_cos(15968,0)": math.cos(15968),
    },
    "diffusers/issues/13920": {
        "stored_position(65793)": 66048,
        "distinct_positions": 2,
    },
    "mlx-lm/pull/1076": {"adjacent_collisions": 0},
}


@pytest.fixture(scope="module")
def measured() -> pd.DataFrame:
    return measure_incidents()


def test_nine_incidents_print_nineteen_numbers(measured):
    assert len(INCIDENTS) == 9
    assert len(measured) == 19
    assert measured["source"].str.startswith("https://github.com/").all()


@pytest.mark.parametrize(
    "source", sorted({incident["source"] for incident in INCIDENTS})
)
def test_an_incident_is_reproduced_or_its_report_corrected(source, measured):
    found = measured[measured["source"] == source].set_index("measure")
    wrong = found[found["verdict"] == "differs"]["ours"].to_dict()
    expected = next((each for name, each in WRONG.items() if source.endswith(name)), {})
    assert wrong == pytest.approx(expected)


@pytest.mark.parametrize(
    ("printed", "ours", "expected"),
    [
        ("1045", 1044.6, True),
        ("1045.0", 1044.6, False),
        ("2.8e-3", 0.00279, True),
        ("2.80e-3", 0.00279, False),
    ],
)
def test_a_printed_number_is_met_to_its_last_digit(printed, ours, expected):
    assert is_rounded_to(printed, ours) == expected
