"""Evictions from a cache: which positions code keeps, and mistakes by their names."""

from typing import Any

import pytest
import torch

from ropelab.conformance.laws.caches import UNREADABLE
from ropelab.conformance.laws.doctor import examine
from ropelab.conformance.laws.eviction import EVICTION
from ropelab.conformance.laws.eviction_keys import compare_layers
from ropelab.conformance.laws.eviction_trace import list_segments
from ropelab.conformance.laws.forgetting import ANEW, KEPT, MOVED
from ropelab.conformance.laws.law import Law
from ropelab.conformance.laws.moved import KSHIFT
from ropelab.conformance.laws.subject import Function, Subject, TransformersSubject
from tests.conformance.laws.evictions import FAMILIES
from tests.conformance.laws.forgetting_caches import (
    FORGETTING_CACHES,
    FORGETTING_MISTAKES,
    Forgetting,
)
from tests.conformance.laws.listed_caches import (
    Counting,
    Joining,
    Sealed,
    Split,
    Stacking,
)
from tests.conformance.laws.planted_evictions import FURTHER, MISTAKES, RIGHT
from tests.models.released.tiny import untouched
from tests.small import mostly_slow

OWN = ("own, front dropped", "own, middle dropped", "own, rolling")


def ask(subject: Subject, *names: str) -> dict[str, dict[str, Any]]:
    """Return the rows of some trials of the law, asked in float32 and float64."""
    trials = tuple(trial for trial in EVICTION.trials if trial.name in names)
    rows, _ = examine(subject, [Law(EVICTION.name, EVICTION.question, trials)])
    return {row["trial"]: row for row in rows}


ALL_MISTAKES = {mistake.name: mistake for mistake in (*MISTAKES, *FURTHER)}


# Most families differ from these in nothing that an eviction touches.
FEW = [name for name in RIGHT if not name.endswith(("llama", "qwen2", "qwen3", "phi"))]


@pytest.mark.parametrize("name", ["yarn", "glm"])
def test_classes_of_transformers_are_exact_in_float64(name: str) -> None:
    kind, changes = FAMILIES[name]
    trials = [trial.name for trial in EVICTION.trials]
    rows = ask(TransformersSubject(untouched(kind, **changes)), *trials)
    asked = {row["trial"]: row for row in rows.values() if row["float64"] is not None}
    for trial in ("positions kept", "moved up", "fragments joined"):
        assert asked[trial]["verdict"] in ("holds", "rounding only")
        assert asked[trial]["float64"] < 1e-12
    prices = [row["size"] for row in asked.values() if row["verdict"] == "cost"]
    assert len(prices) == 4
    assert min(prices) > 0.1
    assert (
        "counts new tokens from the number of cached keys"
        in (rows["left to the model"]["says"])
    )


def test_keys_that_are_joined_without_a_rotation_are_named() -> None:
    """Two stored fragments, as in MemTensor/MemOS#2315."""
    right = ask(Function(Joining()), "own, fragments joined")["own, fragments joined"]
    assert right["verdict"] == "holds"
    wrong = ask(Function(Stacking()), "own, fragments joined", "fragments joined")
    for row in wrong.values():
        assert row["verdict"] == "broken"
        assert "second fragment are joined without a rotation" in row["says"]


def test_a_shift_of_keys_that_rotates_nothing_is_named() -> None:
    trials, _ = examine(Function(Stacking()), [KSHIFT])
    assert {row["says"] for row in trials} == {
        "cached keys are moved without a rotation"
    }


def test_a_list_of_keys_is_dropped_and_rotated_without_methods() -> None:
    names = ("positions kept", "moved up", "fragments joined")
    for row in ask(Function(Split()), *names).values():
        assert row["verdict"] == "holds"


def test_a_closed_cache_without_methods_cannot_be_asked() -> None:
    rows = ask(Function(Sealed()), *OWN, "positions kept", "moved up")
    assert {row["verdict"] for row in rows.values()} == {"cannot be asked"}
    assert rows["moved up"]["says"] == UNREADABLE
    assert rows["own, rolling"]["says"] == (
        f"{UNREADABLE}, and it has no evict_keys(cache, keep)"
    )


@pytest.mark.parametrize("name", mostly_slow(RIGHT, FEW))
def test_right_code_is_not_accused(name: str) -> None:
    rows = ask(RIGHT[name](), *OWN)
    if name == "in another order":
        # Slots to be kept next would be those of other tokens.
        assert rows.pop("own, rolling")["verdict"] == "cannot be asked"
    assert {row["verdict"] for row in rows.values()} <= {"holds", "rounding only"}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("moved up, yarn", MOVED),
        ("kept, yarn", KEPT),
        ("sinks moved towards the others", MOVED),
        ("all keys moved alike", KEPT),
        ("computed anew", ANEW),
        ("a list, kept", KEPT),
        ("a closed cache, moved up", MOVED),
        ("rotated when they are read", MOVED),
    ],
)
def test_right_code_is_told_which_of_the_two_it_does(name: str, says: str) -> None:
    rows = ask(RIGHT[name](), "own, middle dropped")
    assert rows["own, middle dropped"]["says"] == says


@pytest.mark.parametrize("name", FORGETTING_CACHES)
def test_a_cache_that_forgets_by_itself_is_told_which_it_does(name: str) -> None:
    row = ask(FORGETTING_CACHES[name].make(), "own, by itself")["own, by itself"]
    assert row["verdict"] in ("holds", "rounding only")
    assert row["says"] == (MOVED if name == "moved up" else KEPT)


# The positions of keys behind 48 tokens.
ENDS = {
    "the count is that of keys": "0 to 3, 16 times 20",
    "moved up, and the count goes on": (
        "0 to 3, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46"
    ),
    "the newest key is not moved": "0 to 3, 5 to 20",
    "the newest key is not moved, dropped before": "0 to 3, 5 to 20",
}


def test_a_layer_of_a_forgetting_cache_that_is_not_moved_is_named() -> None:
    row = ask(Forgetting(layers=(0,)).make(), "own, by itself")["own, by itself"]
    assert row["verdict"] == "broken"
    assert row["says"] == (
        "when the first token is dropped, keys behind the gap are rotated by -1 positions"
        " in layer 0, and by +0 in layer 1"
    )


def test_all_layers_that_are_not_moved_are_named() -> None:
    segments = list_segments([0, 1, *range(10, 14)])
    says = compare_layers({0: [0, -8], 1: [0, 0], 2: [0, 0], 3: [0, -8]}, segments)
    assert says == (
        "keys behind the gap are rotated by -8 positions in layers 0, 3, and by +0 in"
        " layers 1 to 2"
    )


@pytest.mark.parametrize("name", FORGETTING_MISTAKES)
def test_a_cache_that_forgets_by_itself_is_told_its_positions(name: str) -> None:
    row = ask(FORGETTING_MISTAKES[name].make(), "own, by itself")["own, by itself"]
    assert row["verdict"] == "broken"
    assert row["says"] == (
        f"keys end at positions {ENDS[name]}, where kept they are at 0 to 3, 32 to 47,"
        " and moved up at 0 to 19"
    )


def test_code_that_gives_keys_positions_of_its_own_is_not_compared() -> None:
    rows = ask(Function(Counting()), *OWN, "positions kept")
    assert {row["verdict"] for row in rows.values()} <= {"cannot be asked", "holds"}


@pytest.mark.parametrize(
    "name", mostly_slow(ALL_MISTAKES, [mistake.name for mistake in MISTAKES])
)
def test_a_mistake_is_named(name: str) -> None:
    mistake = ALL_MISTAKES[name]
    row = ask(mistake.make(), mistake.trial)[mistake.trial]
    assert row["verdict"] == "broken"
    assert [words for words in mistake.says if words not in row["says"]] == []


def test_an_eviction_in_bfloat16_is_rounding() -> None:
    model = RIGHT["moved up, yarn"]().code.to(torch.bfloat16)
    row = ask(TransformersSubject(model), "own, rolling")["own, rolling"]
    assert row["verdict"] == "rounding only"
    assert 1e-3 < row["size"] < 0.5
