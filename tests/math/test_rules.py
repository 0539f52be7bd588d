"""Rules of thumb against the numbers their authors print."""

import math

import pytest
from scipy.special import sici

from ropelab.math.bounds import rules
from ropelab.math.bounds.published import men_fit
from ropelab.math.frequencies import Geometry, inverse_frequencies, wavelengths
from ropelab.runs.errors import InputError

LLAMA2 = Geometry(128, 1e4, 4096)
LLAMA3 = Geometry(128, 5e5, 8192)


def test_critical_dimensions():
    assert rules.critical_dimension(LLAMA2) == 92
    assert rules.critical_dimension(LLAMA3) == 70


@pytest.mark.parametrize(
    ("context", "base"), [(4096, 1e4), (8192, 26784), (16384, 71738)]
)
def test_critical_bases(context, base):
    assert rules.critical_base(LLAMA2, context) == pytest.approx(base, abs=0.5)


def test_the_logarithmic_rule_of_koboldcpp_is_the_critical_base():
    assert rules.critical_base(LLAMA3, 16384) == pytest.approx(1776948, abs=0.5)


def test_what_float64_does_not_hold_is_no_base():
    assert rules.critical_base(Geometry(128, 1e300, 512), 1024) == math.inf
    assert rules.stability_base(1024, 0.9, 2**53) == math.inf


def test_t_extra():
    assert rules.extrapolation_limit(LLAMA2, 5e5) == pytest.approx(78400, rel=1e-3)


def test_small_bases_turn_the_slowest_angle_by_half_pi_pi_and_two_pi():
    for base, angle in zip(
        rules.small_bases(LLAMA2), (math.pi / 2, math.pi, 2 * math.pi), strict=True
    ):
        assert 4096 / base == pytest.approx(angle)


def test_ntk_aware_is_the_base_inside_the_trained_length():
    assert rules.ntk_aware(LLAMA2, 1024) == 1e4
    assert rules.ntk_aware(LLAMA2, 8192) == pytest.approx(20221.26, abs=0.01)


def test_su_asymptote_is_the_first_zero_of_the_cosine_integral():
    assert sici(rules.CI_ZERO)[1] == pytest.approx(0, abs=1e-9)
    assert rules.su_asymptote(1000) == pytest.approx(1622.05, abs=0.01)


def test_one_rotation_base_gives_the_slowest_pair_the_wavelength_of_the_context():
    base = rules.one_rotation_base(62 / 64, 4096)
    assert wavelengths(inverse_frequencies(64, base))[-1].item() == pytest.approx(4096)
    assert rules.one_rotation_base(0.0, 4096) == math.inf


def test_men_fit():
    assert men_fit(1024) == pytest.approx(0.0424 * 1024**1.628)


def test_lengths_below_a_turn_are_refused():
    short = Geometry(64, 1e4, 6)
    with pytest.raises(InputError, match="more than 6 trained tokens"):
        rules.critical_dimension(short)
    with pytest.raises(InputError, match="more than 6 trained tokens"):
        rules.critical_base(short, 64)


def test_the_bounds_of_phase_modulation():
    # Slow oscillators of frequency 1/base, in degrees.
    def degrees(base):
        return math.degrees(131072 / base)

    assert degrees(rules.aliasing_base(131072)) == pytest.approx(360)
    for layers in (1, 32):
        turned = math.radians(degrees(rules.stability_base(131072, 0.9, layers)))
        assert math.cos(turned) ** layers == pytest.approx(0.9)


def test_heads_of_finite_width_need_more_than_the_aliasing_bound():
    # Secondary sources print (L/2pi)^(d/(d-2)), the base at which the slowest pair
    # rotates once.
    exact = rules.one_rotation_base(254 / 256, 2**20)
    assert exact == pytest.approx(rules.aliasing_base(2**20) ** (256 / 254))
    assert wavelengths(inverse_frequencies(256, exact))[-1] == pytest.approx(2**20)
