"""The first neighbours with equal codes against scalar float32, mpmath and
transformers.
"""

from itertools import pairwise
from pathlib import Path

import mpmath
import numpy as np
import pandas as pd
import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from ropelab.math.bounds.walls import (
    SEARCHED_POSITIONS,
    find_first_equal,
    find_first_wrong_step,
    find_proved_limit,
    make_chain,
    make_walls_table,
)
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.casts import PRESETS, CastPlan, parse_cast
from ropelab.math.numerics.chain import list_positions

REFERENCE = Path(__file__).parents[2] / "results" / "reference" / "claims"
FLOAT32 = PRESETS["float32"].plan


def product(position: int, base: float) -> np.float32:
    """Multiply as a kernel does: position * inv_freq of the slowest of 64 pairs."""
    power = np.float32(float(np.float32(base)) ** (126 / 128))
    return np.float32(np.float32(position) * (np.float32(1) / power))


def accumulated(position: int, base: float) -> np.float32:
    """Multiply theta up over 64 pairs, as ggml_rope_cache_init does."""
    scale, theta = np.float32(base ** (-2 / 128)), np.float32(position)
    for _ in range(63):
        theta = np.float32(theta * scale)
    return theta


def waves(angle: np.float32) -> tuple[np.float32, np.float32]:
    exact = mpmath.mpf(float(angle))
    return np.float32(mpmath.cos(exact)), np.float32(mpmath.sin(exact))


@pytest.mark.parametrize(
    ("code", "kernel"),
    [("float32", product), ("ggml", accumulated)],
    ids=["product", "ggml"],
)
@pytest.mark.parametrize("base", [1e4, 1e7])
def test_the_first_equal_neighbours_are_those_of_scalar_code(code, kernel, base):
    first = find_first_equal(PRESETS[code].plan, base, 128, SEARCHED_POSITIONS)
    assert first is not None
    found = [waves(kernel(m, base)) for m in range(first - 200, first + 2)]
    equal = [here == there for here, there in pairwise(found)]
    assert equal == [False] * 200 + [True]


def test_no_neighbour_is_lost_below_the_proof():
    # Coarse enough to visit every position: angles and tables of 8 and 11 bits.
    for name in ("bfloat16", "tf32"):
        plan = parse_cast(f"inv_freq=float32,angle={name},table={name}")
        proved = find_proved_limit(plan)
        assert proved == {"bfloat16": 32, "tf32": 256}[name]
        for base in np.geomspace(2, 1e12, 60):
            table = np.stack(
                make_chain(plan, float(base), 64).table(list_positions(0, proved + 1))
            )
            assert not (table[..., 1:] == table[..., :-1]).all(0).any(), base
    assert find_proved_limit(FLOAT32) == 2**21
    assert (
        find_proved_limit(PRESETS["ggml"].plan)
        == find_proved_limit(parse_cast("all=float16"))
        == 0
    )
    assert find_proved_limit(CastPlan()) > 2**40


def test_torch_loses_cosines_and_no_pair():
    config = LlamaConfig(head_dim=128, hidden_size=128, num_attention_heads=1)
    config.rope_parameters = {"rope_type": "default", "rope_theta": 1e7}
    positions = torch.arange(1_000_000, 1_002_001)[None]
    tables = LlamaRotaryEmbedding(config)(
        torch.zeros(1, dtype=torch.float32), positions
    )
    equal = [(table[0, 1:, 63] == table[0, :-1, 63]).numpy() for table in tables]
    assert equal[0].mean() == pytest.approx(0.72, abs=0.02)
    assert not (equal[0] & equal[1]).any()


def test_the_table_of_codes():
    table = make_walls_table(
        {"ours": FLOAT32, "half": parse_cast("all=float16")}, (1e4, 1e11), 64
    )
    half = table[table["code"] == "half"]
    # 1e11^(-62/64) is below half the smallest float16.
    assert half["first_equal_pair_position"].tolist()[1] == 0
    assert half["first_equal_code_position"].tolist() == [2048, 2048]
    ours = table[table["code"] == "ours"]
    assert (ours["first_equal_pair_position"] > ours["proved_below_position"]).all()
    assert ours["first_equal_code_position"].isna().all()
    positions = np.array([2047.0, 2048.0, 2049.0])
    cos, sin = make_chain(parse_cast("all=float16"), 1e4, 64).table(positions)
    assert (cos[:, 1] == cos[:, 2]).all() and (sin[:, 1] == sin[:, 2]).all()
    assert (cos[:, 0] != cos[:, 1]).any()
    assert pd.api.types.is_integer_dtype(table["first_equal_pair_position"])


def test_the_committed_table_is_what_is_computed():
    (path,) = REFERENCE.glob("claims-????????/tables/walls.csv")
    stored = pd.read_csv(path)
    assert stored["code"].unique().tolist() == list(PRESETS)
    # Codes that are quick to search; the others are float32, which scalar code checks
    # above.
    quick = ["transformers_to_bfloat16", "half_cache_float16", "tf32_matmul", "ggml"]
    plans = {name: PRESETS[name].plan for name in quick}
    found = make_walls_table(
        plans, [float(base) for base in stored["base"].unique()], 128
    )
    of_them = stored[stored["code"].isin(quick)].reset_index(drop=True)
    pd.testing.assert_frame_equal(found.astype(of_them.dtypes), of_them)


def test_angles_added_up_token_by_token_drift():
    first = find_first_wrong_step(1e4, 64, 0.01, 4096)
    assert first is not None
    assert find_first_wrong_step(1e4, 64, 0.01, first - 1) is None
    theta = inverse_frequencies(64, 1e4)
    angles, step = np.zeros(32, np.float32), theta.astype(np.float32)
    for m in range(1, first + 1):
        angles = angles + step
        assert (np.abs(angles - theta * m).max() > 0.01) == (m == first)
