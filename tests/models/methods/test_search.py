"""Searching parameters: the same budget for every method, and never an end worse than
the start.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ropelab.math.frequencies import Geometry
from ropelab.math.methods import FREQUENCY_METHODS, parse_scaling
from ropelab.math.scaling import Scaling
from ropelab.models.methods.method import Method, Scaled
from ropelab.models.methods.search import SPREAD, Searched, has_parameters
from ropelab.runs.errors import InputError

GEOMETRY = Geometry(64, 10000.0, 2048)
METHODS_WITHOUT_NEEDS = set(FREQUENCY_METHODS) - {
    "longrope",
    "one",
    "spaced",
    "without",
}
SEARCHED = [
    "pi",
    "ntk",
    "dynamic_ntk",
    "ntk_by_parts",
    "yarn",
    "yarn_paper",
    "llama3",
    "abf",
]


def scaling_of(method: Method) -> Scaling:
    assert isinstance(method, Scaled)
    return method.scaling


def best_parameters(
    published: Scaling, loss: Callable[[Any], float], budget: int
) -> Any:
    search = Searched(inner=published, budget=budget)
    return scaling_of(search.search(GEOMETRY, lambda method: loss(scaling_of(method))))


def towards(goal: str) -> Callable[[Scaling], float]:
    """A loss that is lowest at the frequencies of a method."""
    wanted = parse_scaling(goal).plan(GEOMETRY, 8192)

    def loss(scaling: Scaling) -> float:
        plan = scaling.plan(GEOMETRY, 8192)
        apart = np.abs(np.log(plan.inv_freq / wanted.inv_freq)).sum()
        return float(
            apart + abs(np.log(plan.attention_factor / wanted.attention_factor))
        )

    return loss


@pytest.mark.parametrize("name", SEARCHED)
def test_as_many_settings_are_tried_as_the_budget_says_the_published_one_first(
    name: str,
) -> None:
    published = parse_scaling(name, factor=4)
    tried: list[Scaling] = []

    def loss(scaling: Scaling) -> float:
        tried.append(scaling)
        return float(len(tried))

    assert best_parameters(published, loss, 12) == published
    assert len(tried) == 12
    assert tried[0] == published
    assert len(set(tried)) == 12


@pytest.mark.parametrize(
    ("start", "goal"),
    [
        ("pi", "pi(factor=2.5)"),
        ("ntk", "ntk(factor=9)"),
        ("yarn", "yarn(factor=5, beta_fast=20, beta_slow=2, attention_factor=1.3)"),
        ("llama3", "llama3(factor=8, high_freq_factor=6)"),
    ],
)
def test_a_search_comes_nearer_to_what_is_best(start: str, goal: str) -> None:
    published, loss = parse_scaling(start, factor=4), towards(goal)
    few, many = (loss(best_parameters(published, loss, budget)) for budget in (8, 200))
    assert many <= few <= loss(published)
    assert many < 0.3 * loss(published)


def test_parameters_stay_within_their_spread_and_in_order() -> None:
    published = parse_scaling("yarn", factor=4)
    tried: list[Any] = []

    def equal(scaling: Any) -> float:
        tried.append(scaling)
        return 0.0

    best_parameters(published, equal, 100)
    for scaling in tried:
        assert 1 <= scaling.factor <= 4 * SPREAD["factor"]
        assert 0 < scaling.beta_slow < scaling.beta_fast <= 32 * SPREAD["beta_fast"]
    factors = [scaling.attention_factor for scaling in tried[1:]]
    computed = published.plan(GEOMETRY, 2048).attention_factor
    assert computed / 1.5 <= min(factors) < max(factors) <= computed * 1.5


def test_which_methods_have_parameters() -> None:
    found = {
        name for name in METHODS_WITHOUT_NEEDS if has_parameters(parse_scaling(name))
    }
    assert found >= {*SEARCHED, "dynamic_yarn"}
    assert "unscaled" not in found


def test_the_budget_is_a_whole_number_of_at_least_one() -> None:
    with pytest.raises(InputError, match="budget must be a whole number of at least 1"):
        Searched(inner=parse_scaling("pi"), budget=0)
