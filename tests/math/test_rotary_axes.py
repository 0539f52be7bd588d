"""Which axis a pair reads: the layouts of transformers and of FLUX, and text as a
special case.
"""

import numpy as np
import pytest
import torch
from transformers import Qwen2VLTextConfig, Qwen3VLTextConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLTextRotaryEmbedding

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.models import Layout
from ropelab.math.rotary import find_axis_of_pairs

POSITIONS = np.random.default_rng(0).integers(0, 100, (3, 7))
"""Time, height and width of seven tokens."""


def angles(
    layout: Layout, sections: tuple[int, ...], positions: np.ndarray = POSITIONS
) -> np.ndarray:
    """Of every token and pair, for shared frequencies."""
    inv_freq = np.asarray(inverse_frequencies(2 * sum(sections), 10000.0))
    return positions[find_axis_of_pairs(layout, sections)].T * inv_freq


@pytest.mark.parametrize(
    ("config", "module", "layout", "sections"),
    [
        (Qwen2VLTextConfig, Qwen2VLRotaryEmbedding, "mrope", (16, 24, 24)),
        (Qwen2VLTextConfig, Qwen2VLRotaryEmbedding, "mrope", (2, 5, 9)),
        (
            Qwen3VLTextConfig,
            Qwen3VLTextRotaryEmbedding,
            "mrope_interleaved",
            (24, 20, 20),
        ),
        (
            Qwen3VLTextConfig,
            Qwen3VLTextRotaryEmbedding,
            "mrope_interleaved",
            (11, 11, 10),
        ),
    ],
)
def test_layouts_of_transformers(config, module, layout, sections):
    pairs = sum(sections)
    rope = {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "mrope_section": list(sections),
    }
    of_model = config(
        hidden_size=2 * pairs,
        num_attention_heads=1,
        head_dim=2 * pairs,
        rope_parameters=rope,
    )
    positions = torch.from_numpy(POSITIONS)[:, None]
    cos, _ = module(of_model)(torch.zeros(1), positions)
    ours = np.cos(angles(layout, sections))
    np.testing.assert_allclose(cos[0, :, :pairs].numpy(), ours, atol=1e-4)
    np.testing.assert_allclose(cos[0, :, pairs:].numpy(), ours, atol=1e-4)


@pytest.mark.parametrize("layout", ["mrope", "mrope_interleaved"])
def test_text_is_plain_rope(layout):
    text = np.tile(np.arange(7), (3, 1))
    plain = np.arange(7)[:, None] * np.asarray(inverse_frequencies(32, 10000.0))
    np.testing.assert_array_equal(angles(layout, (4, 6, 6), text), plain)


def test_every_axis_gets_as_many_pairs_as_its_section_says():
    for layout in ("mrope", "axial"):
        assert np.bincount(find_axis_of_pairs(layout, (8, 28, 28))).tolist() == [
            8,
            28,
            28,
        ]
    assert np.bincount(
        find_axis_of_pairs("mrope_interleaved", (24, 20, 20))
    ).tolist() == [
        24,
        20,
        20,
    ]
    assert find_axis_of_pairs("mrope", ()).tolist() == []
