"""From values per document or sequence to means with intervals."""

import math

import numpy as np
import pandas as pd
import pytest

from ropelab.models.tasks.tables import average_losses, average_shares
from ropelab.runs.stats import average_crossed_shares


def test_accuracy_counts_all_sequences():
    counts = pd.DataFrame(
        {
            "method": "yarn",
            "distance_tokens": [8, 8, 16, 16],
            "trials": [10, 10, 20, 20],
            "correct": [10, 5, 0, 0],
        }
    )
    table = average_shares(counts, ["method", "distance_tokens"])
    assert table["accuracy"].tolist() == [0.75, 0.0]
    assert table[["sequences", "trials"]].to_numpy().tolist() == [[2, 20], [2, 40]]


def test_losses_are_means_over_documents():
    values = pd.DataFrame(
        {"seed": [0, 0, 1, 1], "nll_nats_per_byte": [1.0, 3.0, 2.0, 2.0]}
    )
    table = average_losses(values, ["seed"])
    assert table["nll_nats_per_byte"].tolist() == [2.0, 2.0]
    assert table["ci_low"][0] < 2 < table["ci_high"][0]


def test_an_interval_of_sequences_is_wider_when_they_differ():
    even = average_crossed_shares(np.full((1, 8), 0.5), 100)
    uneven = average_crossed_shares(np.array([[0.0, 1.0] * 4]), 100)
    assert even.value == uneven.value == 0.5
    assert uneven.high - uneven.low > 5 * (even.high - even.low)
    independent = math.sqrt(0.25 / 800)
    assert even.high - even.low == pytest.approx(2 * 1.96 * independent, rel=0.02)


def test_certain_proportions_keep_an_interval():
    none = average_crossed_shares(np.zeros((1, 4)), 100)
    assert (none.value, none.low) == (0, 0)
    assert 0.005 < none.high < 0.02
