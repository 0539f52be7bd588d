"""The four modes against rotated vectors of transformers and against sampling."""

import numpy as np
import pytest
import torch
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

from ropelab.claims.arrays import gaussian
from ropelab.claims.record import Findings
from ropelab.claims.theories import du
from ropelab.math.frequencies import inverse_frequencies


def test_scores_are_those_of_rotated_vectors():
    drawn = gaussian(3, du.DRAWS, 3, 128)[2]
    query, first, second = (torch.tensor(x)[None, None, None] for x in drawn)
    rope, null = (model[2] for model in du.compute_scores(5e5, 0.0, 3))
    for distance in (0, 7, 4000):
        angle = torch.tensor(distance * np.tile(inverse_frequencies(128, 5e5), 2))[
            None, None
        ]
        for key, scores in ((first, rope[0]), (second, rope[1])):
            # The key stays at 0 and the query moves.
            moved, _ = apply_rotary_pos_emb(query, key, angle.cos(), angle.sin())
            assert float((moved * key).sum()) == pytest.approx(
                scores[distance], abs=1e-9
            )
    assert null.shape == rope.shape
    assert null.mean(1) == pytest.approx(rope.mean(1), abs=rope.std() / 20)
    assert np.corrcoef(null[0], rope[0])[0, 1] == pytest.approx(0, abs=0.05)


def test_shared_keys_have_that_cosine_with_the_query():
    rope = du.compute_scores(1e4, 0.99, 1)[0][0]
    query = gaussian(1, du.DRAWS, 3, 128)[0, 0]
    assert rope[:, 0] == pytest.approx(np.full(2, 0.99 * float(query @ query)), rel=0.1)


def test_the_mean_without_rope_is_told_with_its_interval():
    """From the counts of each draw, by Student's distribution."""
    findings = Findings()
    sample = np.array([[50.0, 60, 70, 64], [40.0, 60, 50, 58]])
    du.compare_with_null(findings, "pairs", sample)
    null = sample[1]
    half = 3.182 * null.std(ddof=1) / 2
    (found,) = findings.findings
    ends = f"[{null.mean() - half:.0f}, {null.mean() + half:.0f}]"
    assert found.measured.startswith(f"{null.mean():.0f} {ends}, with RoPE +9 ")


def test_pairs_and_inversions_are_counted():
    values = np.array([[1.0, 2.0, 1.0, 1.0, 2.0, 0.0]])
    assert du.count_equal_pairs(values) == 3 + 1
    assert du.count_equal_pairs(np.vstack((values, [[5.0, 5, 5, 6, 5, 5]]))) == 1 + 1
    assert du.measure_far_wins(np.array([3.0, 1.0, 2.0, 0.0])) == 1 / 4
    numbers = gaussian(0, 200)
    naive = (numbers[100:, None] > numbers[None, :100]).mean()
    assert du.measure_far_wins(numbers) == pytest.approx(naive)


@pytest.mark.parametrize(("base", "distance"), [(1e4, 3), (1e4, 500), (5e5, 20_000)])
def test_the_chance_of_token_inversion_is_that_of_samples(base, distance):
    query, first, second = gaussian(7, 3, 20_000, 128)
    change = first - second
    whole = (query[:, :64] + 1j * query[:, 64:]).conj() * (
        change[:, :64] + 1j * change[:, 64:]
    )
    there = (whole * np.exp(1j * distance * inverse_frequencies(128, base))).real.sum(1)
    here = whole.real.sum(1)
    assert ((here > 0) != (there > 0)).mean() == pytest.approx(
        du.compute_token_inversion(base, distance), abs=0.012
    )


def test_a_key_equal_to_the_query_keeps_its_locality_in_short_contexts():
    theta = inverse_frequencies(128, 5e5)
    sums = [float(np.cos(m * theta).sum()) for m in range(256)]
    wins = np.mean([far > near for near in sums[:128] for far in sums[128:]])
    assert du.measure_aligned_inversion(5e5, 256) == pytest.approx(wins, abs=1e-3)
    assert wins < 0.2
