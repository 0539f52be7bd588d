"""Where is measured."""

from itertools import pairwise

import pytest

from ropelab.trials import grid


@pytest.mark.parametrize(("train", "test"), [(2048, 8192), (64, 64), (512, 700), (64, 4096)])
def test_buckets_cover_every_position_once_and_part_at_the_trained_length(train, test):
    buckets = grid.buckets(train, test)
    assert buckets[0][0] == 0
    assert buckets[-1][1] == test
    assert all(before[1] == after[0] for before, after in pairwise(buckets))
    assert train in [end for _, end in buckets]


def test_the_grid_of_the_default_run():
    assert [end for _, end in grid.buckets(2048, 8192)] == [1024, 2048, 3072, 4096, 6144, 8192]
    assert grid.contexts(2048, 8192) == [512, 1024, 2048, 4096, 8192]
    distances = grid.distances(2048, 8192)
    assert distances == [256, 512, 1024, 1536, 2048, 3072, 4096, 6144]
    places = grid.places(distances, 8192)
    assert (places[2], places[-1]) == ((1024, 2048), (6144, 8192))


def test_the_grid_inside_the_trained_length():
    assert grid.inner_buckets(512) == [(0, 32), (32, 64), (64, 128), (128, 256), (256, 512)]
    assert grid.inner_distances(512) == [16, 32, 64, 128, 256, 384]
