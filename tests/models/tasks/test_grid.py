"""Where is measured."""

from itertools import pairwise

import pytest

from ropelab.models.tasks import grid


@pytest.mark.parametrize(
    ("train", "test"), [(2048, 8192), (64, 64), (512, 700), (64, 4096)]
)
def test_buckets_cover_every_position_once_and_part_at_the_trained_length(train, test):
    buckets = grid.list_buckets(train, test)
    assert buckets[0][0] == 0
    assert buckets[-1][1] == test
    assert all(before[1] == after[0] for before, after in pairwise(buckets))
    assert train in [end for _, end in buckets]


def test_the_grid_of_the_default_run():
    assert [end for _, end in grid.list_buckets(2048, 8192)] == [
        1024,
        2048,
        3072,
        4096,
        6144,
        8192,
    ]
    assert grid.list_context_lengths(2048, 8192) == [512, 1024, 2048, 4096, 8192]
    distances = grid.list_retrieval_distances(2048, 8192)
    assert distances == [256, 512, 1024, 1536, 2048, 3072, 4096, 6144]
    contexts = grid.list_retrieval_contexts(2048, 8192)
    assert contexts == [2048, 4096, 8192]
    places = grid.pair_places(distances, contexts)
    assert (places[0], places[-1]) == ((256, 2048), (6144, 8192))
    assert len(places) == 4 + 6 + 8


def test_the_grid_inside_the_trained_length():
    assert grid.list_inner_buckets(512) == [
        (0, 32),
        (32, 64),
        (64, 128),
        (128, 256),
        (256, 512),
    ]
    assert grid.list_inner_distances(512) == [16, 32, 64, 128, 256, 384]


@pytest.mark.parametrize(
    ("train", "test"), [(64, 64), (65, 256), (99, 100), (512, 700), (64, 500)]
)
def test_both_lengths_are_contexts(train, test):
    for contexts in (
        grid.list_context_lengths(train, test),
        grid.list_retrieval_contexts(train, test),
    ):
        assert {train, test} <= set(contexts)
        assert contexts == sorted(set(contexts))
    assert grid.list_retrieval_contexts(train, test)[0] == train


@pytest.mark.parametrize(
    ("train", "test"), [(64, 64), (65, 256), (512, 700), (64, 500)]
)
def test_every_place_leaves_a_quarter_of_the_context_and_half_of_each_is_among_them(
    train, test
):
    distances = grid.list_retrieval_distances(train, test)
    places = grid.pair_places(distances, grid.list_retrieval_contexts(train, test))
    for distance, context in places:
        assert distance in distances
        assert context - distance >= context / 4
    for context in {context for _, context in places}:
        far = [d for d in distances if d <= 3 * context / 4]
        assert [d for d, c in places if c == context] == far
    assert (train // 2, train) in places
    assert max(distances) in {d for d, c in places if c == test}
