"""The search for the worst angle against a visit to every position, and against known
numbers.
"""

import math

import numpy as np
import pytest

from ropelab.math.numerics.angle_errors import (
    HOPELESS_RAD,
    find_first_wrong,
    find_worst,
    find_worst_by_octave,
    wrap_angle,
)
from ropelab.math.numerics.casts import PRESETS, STAGES, parse_cast
from ropelab.math.numerics.chain import Chain, list_positions
from ropelab.math.numerics.formats import FORMATS
from tests.math.numerics.spectra import rope

PLANS = {
    **{
        f"{s}={f}": parse_cast(f"{s}={f}")
        for s in STAGES[:3]
        for f in list(FORMATS)[1:]
    },
    **{f"all {name}": parse_cast(f"all={name}") for name in list(FORMATS)[1:]},
    **{name: preset.plan for name, preset in PRESETS.items()},
}


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize(
    ("offset", "length"), [(0, 5000), (65530, 4000), (1_000_003, 2500)]
)
def test_the_search_finds_what_a_visit_to_everything_finds(name, offset, length):
    chain = Chain(PLANS[name], rope(32))
    everything_ = wrap_angle(
        chain.angle_errors(list_positions(offset, offset + length))
    )
    for found in find_worst_by_octave(chain, offset, length):
        part = everything_[:, found.start - offset : found.stop - offset]
        at_place = part[found.pair, found.position - found.start].item()
        if found.overflows:
            assert not np.isfinite(part).all()
            assert not math.isfinite(at_place)
            assert np.isfinite(part[:, : found.position - found.start]).all()
        elif part.max() > HOPELESS_RAD:
            assert found.error_rad == pytest.approx(at_place, abs=1e-9)
            assert found.error_rad > HOPELESS_RAD or found.error_rad == part.max()
        else:
            assert found.error_rad == pytest.approx(part.max().item(), abs=1e-15)
            assert found.error_rad == pytest.approx(at_place, abs=1e-15)


@pytest.mark.parametrize("name", PLANS)
def test_the_first_bad_position_is_the_first(name):
    chain = Chain(PLANS[name], rope(32, 1e4))
    errors = wrap_angle(chain.angle_errors(list_positions(0, 5000))).max(0)
    for tolerance in (1e-6, 1e-2, 1.0):
        bad = np.flatnonzero(~(errors <= tolerance))
        expected = int(bad[0]) if bad.size else None
        assert (
            find_first_wrong(chain, find_worst_by_octave(chain, 0, 5000), tolerance)
            == expected
        )


@pytest.mark.parametrize(
    ("length", "expected"), [(2**17, 7.8e-3), (2**20, 6.2e-2), (10_000_000, 0.8)]
)
def test_known_phase_errors_of_the_float32_chain(length, expected):
    found = find_worst(Chain(parse_cast("all=float32"), rope(128, 1e4)), 0, length)
    assert found.error_rad == pytest.approx(expected, rel=0.01)
    assert found.pair == 1


def test_the_worst_octave_is_the_worst_of_the_range():
    chain = Chain(parse_cast("inv_freq=float32,angle=float32"), rope())
    octaves = find_worst_by_octave(chain, 100, 50_000)
    assert [found.start for found in octaves][:2] == [100, 128]
    assert octaves[-1].stop == 50_100
    assert max(f.error_rad for f in octaves) == find_worst(chain, 100, 50_000).error_rad


def test_float16_positions_overflow_where_the_format_ends():
    found = find_worst(Chain(parse_cast("position=float16"), rope()), 0, 131072)
    assert found.overflows
    assert found.position == 65520


def test_wrapping_gives_the_distance_on_the_circle():
    angles = np.linspace(-50, 50, 1001)
    expected = np.arccos(np.cos(angles))
    np.testing.assert_allclose(wrap_angle(angles.copy()), expected, atol=1e-7)
