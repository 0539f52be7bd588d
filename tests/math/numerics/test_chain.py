"""A plan applied to frequencies, against the same arithmetic done by torch and
numpy.
"""

import mpmath
import numpy as np
import pytest
import torch

from ropelab.math.frequencies import Geometry
from ropelab.math.methods import parse_scaling
from ropelab.math.numerics.casts import PRESETS, CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum, list_positions
from ropelab.math.numerics.formats import FORMATS
from tests.math.numerics.scalar_rounding import round_scalar
from tests.math.numerics.spectra import rope

POSITIONS = np.array(
    [0, 1, 2, 255, 257, 1857, 2049, 15962, 65537, 131071, 10**7], dtype=np.float64
)


def test_the_exact_chain_is_the_definition_to_many_digits():
    chain = Chain(CastPlan(), rope(16, 1e4))
    cos, sin = chain.table(POSITIONS)
    with mpmath.workdps(40):
        for pair in range(8):
            theta = mpmath.mpf(10000) ** (-mpmath.mpf(2 * pair) / 16)
            for column, position in enumerate(POSITIONS.tolist()):
                angle = int(position) * theta
                assert abs(mpmath.cos(angle) - cos[pair, column].item()) < 1e-8
                assert abs(mpmath.sin(angle) - sin[pair, column].item()) < 1e-8


def test_float32_angles_are_those_of_torch_bit_for_bit():
    spectrum = rope()
    ours = Chain(parse_cast("all=float32"), spectrum).angles(POSITIONS)
    inv_freq, positions = map(torch.from_numpy, (spectrum.inv_freq, POSITIONS))
    theirs = inv_freq.float()[:, None] * positions.float()
    np.testing.assert_array_equal(ours, theirs.double())


def test_an_all_bfloat16_cache_is_that_of_torch_bit_for_bit():
    spectrum = rope()
    chain = Chain(parse_cast("all=bfloat16"), spectrum)
    inv_freq, positions = map(torch.from_numpy, (spectrum.inv_freq, POSITIONS))
    angles = inv_freq.bfloat16()[:, None] * positions.bfloat16()
    np.testing.assert_array_equal(chain.angles(POSITIONS), angles.double())
    cos, sin = chain.table(POSITIONS)
    np.testing.assert_array_equal(cos, angles.cos().double())
    np.testing.assert_array_equal(sin, angles.sin().double())


@pytest.mark.parametrize("name", ["tf32", "float16", "float8_e4m3fn"])
def test_angles_equal_the_scalar_specification(name):
    fmt, spectrum = FORMATS[name], rope(8, 500.0)
    ours = Chain(parse_cast(f"all={name}"), spectrum).angles(list_positions(0, 300))
    for pair, theta in enumerate(spectrum.inv_freq.tolist()):
        for m in range(300):
            product = round_scalar(float(m), fmt) * round_scalar(theta, fmt)
            np.testing.assert_equal(ours[pair, m].item(), round_scalar(product, fmt))


@pytest.mark.parametrize(("base", "rotary_dim"), [(1e4, 128), (1e6, 64), (5e5, 128)])
def test_float32_pow_is_within_two_last_places_of_torch(base, rotary_dim):
    plan = parse_cast("inv_freq=float32,frequencies=float32_pow")
    ours = Chain(plan, rope(rotary_dim, base)).inv_freq
    theirs = 1.0 / (
        base ** (torch.arange(0, rotary_dim, 2, dtype=torch.float) / rotary_dim)
    )
    places = np.abs(ours - theirs.numpy()) / np.spacing(theirs.numpy())
    assert places.max() <= 2
    assert (places == 0).mean() > 0.6


def test_the_recurrence_is_that_of_a_float32_loop():
    spectrum = rope(64, 1e6)
    ours = Chain(PRESETS["ggml"].plan, spectrum).angles(POSITIONS)
    scale = np.float32(1e6 ** (-2 / 64))
    theta = POSITIONS.astype(np.float32)
    for pair in range(32):
        np.testing.assert_array_equal(ours[pair], theta.astype(np.float64))
        theta = theta * scale


def test_the_recurrence_follows_a_scaling_method():
    plan = parse_scaling("yarn(factor=4)").plan(Geometry(64, 1e4, 4096), 16384)
    spectrum = Spectrum(plan.inv_freq, 1e4, 64)
    chain = Chain(PRESETS["ggml"].plan, spectrum)
    relative = chain.angle_errors(POSITIONS[1:]) / (
        spectrum.inv_freq[:, None] * POSITIONS[1:]
    )
    assert np.abs(relative).max() < 1e-5


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_angle_errors_are_stored_minus_exact(preset):
    chain = Chain(preset.plan, rope())
    direct = chain.angles(POSITIONS) - chain.spectrum.inv_freq[:, None] * POSITIONS
    errors = chain.angle_errors(POSITIONS)
    finite = np.isfinite(direct)
    np.testing.assert_array_equal(finite, np.isfinite(errors))
    np.testing.assert_allclose(errors[finite], direct[finite], rtol=0, atol=1e-8)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_no_error_exceeds_its_bound_and_bounds_grow(preset):
    chain = Chain(preset.plan, rope(64, 1e4))
    positions = list_positions(0, 3000)
    bounds = chain.error_bounds(positions)
    assert (np.abs(chain.angle_errors(positions)) <= bounds + 1e-15).all()
    assert (bounds[:, 1:] >= bounds[:, :-1]).all()


def test_the_bound_of_an_exact_recurrence_is_one_of_each_position():
    chain, positions = (
        Chain(parse_cast("angles=recurrence"), rope(64, 1e4)),
        list_positions(0, 3000),
    )
    bounds = chain.error_bounds(positions)
    assert bounds.shape == (32, 3000)
    assert (np.abs(chain.angle_errors(positions)) <= bounds + 1e-15).all()


def test_the_bound_of_the_recurrence_follows_a_scaling_method():
    plan = parse_scaling("yarn(factor=4)").plan(Geometry(64, 1e4, 4096), 16384)
    chain = Chain(PRESETS["ggml"].plan, Spectrum(plan.inv_freq, 1e4, 64))
    positions = list_positions(2**20, 2**20 + 3000)
    errors, bounds = (
        np.abs(chain.angle_errors(positions)),
        chain.error_bounds(positions),
    )
    assert (errors <= bounds).all()
    assert (errors.max(1)[1:] > bounds.max(1)[1:] / 50).all()


def test_the_pair_of_frequency_one_has_no_error_in_float32():
    chain = Chain(parse_cast("all=float32"), rope(128, 1e4))
    assert chain.angle_errors(list_positions(2**24 - 1000, 2**24 + 1))[0].any() == 0


def test_a_single_frequency_is_rounded_once_whatever_the_rules():
    spectrum = Spectrum(np.array([2 * np.pi / 1e6]))
    with_rules = parse_cast(
        "inv_freq=float32,frequencies=float32_pow,angles=recurrence"
    )
    plain = parse_cast("inv_freq=float32")
    np.testing.assert_array_equal(
        Chain(with_rules, spectrum).angles(POSITIONS),
        Chain(plain, spectrum).angles(POSITIONS),
    )
