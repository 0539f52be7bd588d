"""The arithmetic behind the claims against other arithmetic: mpmath, transformers,
numpy.
"""

import cmath
import math
from functools import partial

import mpmath
import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.deberta.modeling_deberta import build_relative_position
from transformers.models.llama.modeling_llama import (
    LlamaRotaryEmbedding,
    apply_rotary_pos_emb,
)

from ropelab.claims import arrays, attention, scores
from ropelab.claims.arrays import frequencies, gaussian
from ropelab.claims.forms import worked_example
from ropelab.claims.ledger import find_claim
from ropelab.claims.published import scalings
from ropelab.claims.sinusoids import encode_positions, space_frequencies
from ropelab.math.frequencies import Geometry, inverse_frequencies
from ropelab.math.rotary import cos_sin
from ropelab.math.scaling import RopePlan
from ropelab.models.encoding.rope import rotate


@pytest.fixture(autouse=True)
def fifty_digits():
    with mpmath.workdps(50):
        yield


def value(id_: str, finding: int = 0) -> float:
    """The number behind a finding of a claim at its default inputs."""
    found = find_claim(id_).evidence().findings[finding].value
    assert found is not None
    return found


# mpmath


def test_the_cosine_of_one_step():
    theta = 2 * mpmath.pi / 1_000_000
    assert value("one-frequency-cos", 0) == float(mpmath.cos(theta))
    assert math.isclose(
        value("one-frequency-cos", 1), float(1 - mpmath.cos(theta)), rel_tol=1e-13
    )


def test_the_step_of_the_cosine_at_position_one():
    theta = 2 * mpmath.pi / 1_000_000
    # The first is the mean of the two others.
    for finding, (start, end) in enumerate(((0, 2), (0, 1), (1, 2))):
        exact = mpmath.cos(start * theta) - mpmath.cos(end * theta)
        step = value("script-cos-step", finding) * (end - start)
        assert math.isclose(step, float(exact), rel_tol=1e-12)


def test_periods():
    for finding, index in enumerate((0, 15, 31)):
        exact = 2 * mpmath.pi * mpmath.power(10, mpmath.mpf(6 * 2 * index) / 64)
        assert math.isclose(
            value("minimind-periods", finding), float(exact), rel_tol=1e-14
        )


def test_angles_of_the_script():
    for finding, (position, pair) in enumerate(((10, 0), (1000, 3))):
        turned = mpmath.degrees(
            position * mpmath.power(10, -mpmath.mpf(6 * 2 * pair) / 64)
        )
        assert math.isclose(
            value("script-dimension-angles", finding), float(turned % 360)
        )


def test_the_worked_example_cell_by_cell():
    rotated = worked_example.rotate_example()
    for m, vector in enumerate(worked_example.VECTORS):
        for pair in range(2):
            x, y = vector[2 * pair : 2 * pair + 2].tolist()
            turned = mpmath.mpc(x, y) * mpmath.expjpi(
                m * mpmath.mpf(100) ** -pair / mpmath.pi
            )
            got = rotated[m, 2 * pair : 2 * pair + 2]
            np.testing.assert_allclose(
                got, [float(turned.real), float(turned.imag)], atol=1e-15
            )


def test_the_bound_curve_by_its_definition():
    for m, got in enumerate(scores.compute_bound_curve(16, farthest=40).tolist()):
        waves = [
            mpmath.expj(m * mpmath.mpf(10000) ** (-mpmath.mpf(2 * i) / 16))
            for i in range(8)
        ]
        exact = mpmath.fsum(abs(mpmath.fsum(waves[: j + 1])) for j in range(8)) / 8
        assert math.isclose(got, float(exact), rel_tol=1e-12)


# ropelab's own rotation, and numpy's complex numbers


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_pairs_are_turned_as_models_turn_them(pairing):
    x, positions = gaussian(0, 5, 8), np.arange(5)
    tables = cos_sin(positions, RopePlan(inverse_frequencies(8, 100.0)))
    model = rotate(
        torch.from_numpy(x), *map(torch.from_numpy, tables), pairing=pairing
    ).numpy()
    ours = arrays.rotate(x, positions[:, None] * frequencies(8, 100.0), pairing)
    np.testing.assert_allclose(ours, model, atol=1e-14)


def test_rotated_scores_are_real_parts_of_complex_products():
    q, k = gaussian(0, 2, 5, 64)
    q_pairs, k_pairs = (x[:, :32] + 1j * x[:, 32:] for x in (q, k))
    waves = np.exp(1j * 7 * 10000.0 ** (-np.arange(0, 64, 2) / 64))
    exact = (q_pairs * np.conj(k_pairs * waves)).sum(-1).real
    np.testing.assert_allclose(attention.compute_scores(q, k, 3, 10), exact, rtol=1e-12)


def test_random_scores_are_as_large_at_every_distance():
    q, k = gaussian(0, 2, 20_000, 8)
    sizes = []
    for distance in (0, 5, 3000):
        turned = attention.compute_scores(q, k, 0, distance)
        sizes.append(np.sqrt(np.square(turned).mean()))
    assert sizes == pytest.approx([np.sqrt(8)] * 3, rel=0.03)
    curve = scores.compute_independent_curve(8)
    np.testing.assert_allclose(curve, 1, rtol=1e-12)


def test_the_block_diagonal_matrix_is_the_product_of_plane_rotations():
    angles = frequencies(6, 100.0) * 9
    matrix = arrays.rotation_matrix(angles)
    for i, angle in enumerate(angles.tolist()):
        block = matrix[2 * i : 2 * i + 2, 2 * i : 2 * i + 2]
        assert block @ [1, 1j] == pytest.approx(
            cmath.exp(-1j * angle) * np.array([1, 1j])
        )
    assert np.count_nonzero(matrix) == 12


def test_sinusoids_by_the_formula_of_the_transformer():
    codes = encode_positions([0, 1, 50], frequencies(6, 10000.0))
    for row, pos in enumerate((0, 1, 50)):
        for i in range(3):
            angle = pos / 10000 ** (2 * i / 6)
            assert codes[row, 2 * i] == pytest.approx(math.sin(angle), abs=1e-13)
            assert codes[row, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-13)


def test_the_causal_mask_against_torch():
    q, k, v = torch.randn(3, 7, 4, dtype=torch.float64)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    ours = attention.compute_attention(q.numpy(), k.numpy(), v.numpy(), causal=True)
    np.testing.assert_allclose(ours, expected.numpy(), rtol=1e-10)


# transformers


def test_rotate_half_is_that_of_transformers():
    q = gaussian(0, 4, 16)
    config = LlamaConfig(
        hidden_size=16, num_attention_heads=1, head_dim=16, max_position_embeddings=64
    )
    theirs_q = torch.from_numpy(q).float()[None, None]
    cos, sin = LlamaRotaryEmbedding(config)(theirs_q, torch.arange(4)[None])
    theirs, _ = apply_rotary_pos_emb(theirs_q, theirs_q, cos, sin)
    angles = np.arange(4)[:, None] * np.tile(frequencies(16, 10000.0), 2)
    ours = q * np.cos(angles) + arrays.swap_pairs(q, "half") * np.sin(angles)
    np.testing.assert_allclose(theirs[0, 0].numpy(), ours, atol=1e-5)


def test_the_position_to_content_term_is_gathered_as_transformers_gathers_it():
    tokens, span = 5, 4
    relative = build_relative_position(torch.zeros(tokens, 1), torch.zeros(tokens, 1))[
        0
    ]
    keys_by_row = torch.from_numpy(gaussian(0, tokens, 2 * span))
    index = torch.clamp(-relative + span, 0, 2 * span - 1)
    theirs = torch.gather(keys_by_row, -1, index).T
    i, j = np.arange(tokens)[:, None], np.arange(tokens)
    same = keys_by_row.numpy()[j, np.clip(i - j + span, 0, 2 * span - 1)]
    np.testing.assert_array_equal(theirs.numpy(), same)


@pytest.mark.parametrize("geometry", [Geometry(96, 1e6, 2048), scalings.MANY_ROTATIONS])
def test_yarn_that_minimind_is_compared_with_is_that_of_transformers(geometry):
    config = LlamaConfig(
        hidden_size=geometry.rotary_dim,
        num_attention_heads=1,
        head_dim=geometry.rotary_dim,
        max_position_embeddings=16 * geometry.trained_len,
        rope_parameters={
            "rope_type": "yarn",
            "rope_theta": geometry.base,
            "factor": 16.0,
            "original_max_position_embeddings": geometry.trained_len,
        },
    )
    theirs, factor = ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))
    ours = scalings.compute_minimind("linear ramp", geometry, 16.0, 32.0)
    check = partial(find_claim("minimind-yarn-ramp").evidence, geometry=tuple(geometry))
    assert scalings.find_largest_ratio(theirs.numpy(), ours) == pytest.approx(
        check().findings[0].value, rel=1e-5
    )
    assert factor == pytest.approx(check().findings[2].value)


def minimind_october_2025(dim, base, length, factor, beta_fast):
    """The formula with a beta per pair, one pair at a time."""
    pairs = dim // 2
    freqs = [base ** (-2 * i / dim) for i in range(pairs)]
    critical = next((i for i in range(pairs) if 2 * math.pi / freqs[i] > length), pairs)
    for i in range(pairs):
        beta = 1 + (beta_fast - 1) * i / max(pairs - 1, 1)
        slow = (beta * factor - beta + 1) / (beta * factor)
        freqs[i] *= slow if i < critical else 1 / factor
    return freqs


def minimind_since_december_2025(dim, base, length, factor, beta_fast):
    """The formula with a linear ramp, one pair at a time."""
    pairs = dim // 2

    def pair_of(beta):
        return dim * math.log(length / (beta * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(pair_of(beta_fast)), 0)
    high = min(math.ceil(pair_of(1)), pairs - 1)
    ramp = [min(max((i - low) / max(high - low, 0.001), 0), 1) for i in range(pairs)]
    return [base ** (-2 * i / dim) * (1 - r + r / factor) for i, r in enumerate(ramp)]


@pytest.mark.parametrize("geometry", [Geometry(64, 1e6, 2048), scalings.MANY_ROTATIONS])
@pytest.mark.parametrize(
    ("formula", "oracle"),
    [
        ("beta per pair", minimind_october_2025),
        ("linear ramp", minimind_since_december_2025),
    ],
)
def test_minimind_formulas_against_loops(formula, oracle, geometry):
    ours = scalings.compute_minimind(formula, geometry, 8.0, 16.0)
    loop = oracle(geometry.rotary_dim, geometry.base, geometry.trained_len, 8.0, 16.0)
    np.testing.assert_allclose(ours, loop, rtol=1e-12)


def test_each_layer_reads_one_segment_further_back() -> None:
    layers = 3
    segment = 8
    assert value("segments-reach-further") == (layers + 1) * segment - 1


def test_harmonic_waves_have_one_to_half_of_the_width_periods_in_the_length():
    omega = space_frequencies("harmonic", 8, 100)
    periods = omega * 100 / (2 * math.pi)
    assert periods.tolist() == pytest.approx([1, 2, 3, 4])
    # Their codes are the real Fourier transform of single positions.
    code = encode_positions(np.arange(100), omega)
    spectrum = np.abs(np.fft.rfft(code, axis=0)).sum(axis=1)
    assert np.flatnonzero(spectrum > 1e-6).tolist() == [1, 2, 3, 4]
