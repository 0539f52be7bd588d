"""The places of questions in a context: every distance, nothing overlaps, always the
same.
"""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ropelab.models.tasks import grid
from ropelab.models.tasks.geometry import (
    LONGEST_STRETCH,
    PlacedQuestion,
    place_questions,
    stretch_length,
)
from ropelab.runs.errors import InputError


def placed(
    length: int, distances: list[int], seed: int = 0, size: int = 0
) -> list[PlacedQuestion]:
    sources = [(distance,) for distance in distances]
    size = size or stretch_length(length, sources)
    return place_questions(np.random.default_rng(seed), length, sources, size)


def firsts(questions: list[PlacedQuestion]) -> list[int]:
    """The first places of all stretches, rising."""
    starts = [question.start for question in questions]
    for question in questions:
        starts += question.sources
    return sorted(starts)


@settings(max_examples=40)
@given(
    length=st.integers(64, 1024),
    shares=st.lists(st.floats(1 / 16, 3 / 4), min_size=1, max_size=5, unique=True),
    further=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_each_distance_is_asked_once_and_no_stretch_meets_another(
    length, shares, further, seed
):
    distances = sorted({int(share * length) for share in shares})
    sources: list[tuple[int, ...]] = [(distance,) for distance in distances]
    if further:
        sources = [(d, d + (length - d) // 2) for d in distances]
    size = stretch_length(length, sources)
    assume(size > 0)
    try:
        questions = place_questions(np.random.default_rng(seed), length, sources, size)
    except InputError:
        assume(False)

    assert sorted(question.distance for question in questions) == distances
    by_distance = {distances[0]: distances for distances in sources}
    for question in questions:
        backs = by_distance[question.distance]
        assert question.sources == tuple(question.start - back for back in backs)
    starts = firsts(questions)
    assert starts[0] >= 0
    assert starts[-1] + size <= length
    assert all(b - a >= size for a, b in pairwise(starts))
    # The last question of the context comes first.
    assert all(a.start > b.start for a, b in pairwise(questions))


@pytest.mark.parametrize("train", [64, 100, 128, 256, 512, 700, 2048])
@pytest.mark.parametrize("times", [1, 1.5, 4, 8])
def test_every_grid_of_the_experiments_fits(train, times):
    test = int(times * train)
    distances = grid.list_retrieval_distances(train, test)
    places = grid.pair_places(distances, grid.list_retrieval_contexts(train, test))
    for context in {place.context for place in places}:
        here = [distance for distance, length in places if length == context]
        for seed in range(3):
            assert len(placed(context, here, seed)) == len(here)


@pytest.mark.parametrize("train", [256, 512, 4096])
def test_every_grid_inside_the_trained_length_fits(train):
    for seed in range(3):
        assert len(placed(train, grid.list_inner_distances(train), seed)) == 6


def test_where_distances_are_long_questions_fill_the_end_behind_all_sources():
    distances = grid.list_retrieval_distances(2048, 8192)
    for seed in range(5):
        questions = placed(8192, distances, seed)
        starts = [question.start for question in questions]
        assert starts == [8192 - LONGEST_STRETCH * number for number in range(1, 9)]
        assert max(max(question.sources) for question in questions) < starts[-1]


def test_in_a_short_context_a_source_may_stand_between_two_questions():
    between = 0
    for seed in range(10):
        questions = placed(128, [16, 32, 64, 96], seed)
        first = questions[-1].start
        between += any(question.sources[0] > first for question in questions)
    assert between


def test_the_order_is_random_and_a_function_of_the_seed():
    distances = grid.list_retrieval_distances(2048, 8192)
    orders = set()
    for seed in range(8):
        questions = placed(8192, distances, seed)
        assert questions == placed(8192, distances, seed)
        orders.add(tuple(question.distance for question in questions))
    assert len(orders) == 8


@pytest.mark.parametrize(
    ("length", "distances", "further", "size"),
    [
        (8192, [256, 6144], 0, 32),
        (128, [16, 32, 64, 96], 0, 8),
        (512, [16, 384], 0, 8),
        (256, [8, 16, 32, 64, 128, 192], 0, 8),
        # half of 40
        (1024, [40, 700], 0, 20),
        # never more than the nearest distance
        (1024, [4, 700], 0, 4),
        # nor than is left before the farthest source
        (64, [48], 0, 16),
        # three quarters of the context at most
        (64, [8, 16, 32, 48], 0, 6),
        # but 6 where they fit
        (63, [8, 16, 32, 48], 0, 6),
        (128, [16, 32, 64, 96], 8, 6),
        (256, [64, 128, 192], 32, 10),
    ],
)
def test_stretches_are_short_where_distances_are(length, distances, further, size):
    sources: list[tuple[int, ...]] = [(distance,) for distance in distances]
    if further:
        sources = [(distance, distance + further) for distance in distances]
    assert stretch_length(length, sources) == size


def test_what_does_not_fit_is_refused_in_a_line():
    with pytest.raises(
        InputError, match="64 tokens do not hold 32, 33 and 48 as distances of"
    ) as error:
        placed(64, [32, 33, 48], size=16)
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="64 tokens do not hold 80 as distances"):
        placed(64, [80], size=8)
