"""transformers' rope functions, over random valid parameters, as the oracle.

Each is compared twice. With its float32 steps widened to float64 the formulas must
agree to rounding: that decides whether the mathematics is the same. As shipped, it
computes in float32, and the differences are its own: an exponent rounded to float32 is
off by up to half a unit, which a power multiplies by ln(base); a blend whose weight is
off by a unit of 1 is off by a unit of the kept frequency, which is ``factor`` units of
the interpolated one.
"""

import math
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, modeling_rope_utils

from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import (
    DynamicNtk,
    Llama3,
    LongRope,
    PositionInterpolation,
    Proportional,
    Scaling,
    Yarn,
)

ULP = 2.0**-23
HEAD_DIMS = st.integers(4, 64).map(lambda pairs: 2 * pairs)
BASES = st.floats(1000, 1e8)
LENGTHS = st.sampled_from([512, 2048, 4096, 8192, 32768])
FACTORS = st.floats(1, 64)


class WideTorch:
    """torch, with float64 in the place of float32."""

    float = float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def theirs(
    geometry: Geometry, rope_type: str, length: int | None, wide: bool, **values: Any
) -> tuple[torch.Tensor, float]:
    parameters = {"rope_type": rope_type, "rope_theta": geometry.base, **values}
    if rope_type in ("yarn", "longrope", "llama3"):
        parameters["original_max_position_embeddings"] = geometry.trained_len
    config = LlamaConfig(
        hidden_size=2 * geometry.rotary_dim,
        num_attention_heads=2,
        head_dim=geometry.rotary_dim,
        max_position_embeddings=geometry.trained_len,
        rope_parameters=parameters,
    )
    with mock.patch.object(
        modeling_rope_utils, "torch", WideTorch() if wide else torch
    ):
        return modeling_rope_utils.ROPE_INIT_FUNCTIONS[rope_type](
            config, "cpu", seq_len=length
        )


def compare(
    scaling: Scaling,
    geometry: Geometry,
    rope_type: str,
    length: int | None = None,
    slack: float = 0.0,
    wide: float = 1e-12,
    base: float = 0.0,
    **values: Any,
) -> None:
    """Ours against theirs: relative difference ``wide`` in float64, and a few units as
    shipped.
    """
    plan = scaling.plan(geometry, length or geometry.trained_len)
    shipped = (2 + slack + 0.5 * math.log(base or geometry.base)) * ULP
    for double, allowed in ((True, wide), (False, shipped)):
        inv_freq, factor = theirs(geometry, rope_type, length, double, **values)
        np.testing.assert_allclose(
            plan.inv_freq, inv_freq.double(), rtol=allowed, atol=0
        )
        assert factor == pytest.approx(plan.attention_factor, rel=1e-12)


@given(HEAD_DIMS, BASES, LENGTHS, FACTORS)
@settings(max_examples=40)
def test_linear(dim, base, length, factor):
    scaling = PositionInterpolation(factor=factor)
    compare(scaling, Geometry(dim, base, length), "linear", factor=factor)


@given(HEAD_DIMS, BASES, LENGTHS, FACTORS, st.floats(0.1, 16))
@settings(max_examples=60)
def test_dynamic(dim, base, trained, factor, longer):
    geometry, length = Geometry(dim, base, trained), max(1, int(longer * trained))
    scaling = DynamicNtk(factor=factor)
    effective = base * scaling.stretch(geometry, length) ** (dim / (dim - 2))
    compare(scaling, geometry, "dynamic", length, base=effective, factor=factor)


def yarn_slack(scaling: Yarn, geometry: Geometry) -> float:
    """Units that their float32 ramp may add.

    The weight is 1 - (i - low) / width: half a unit each for low as float32, the
    difference, the width, the quotient and 1 minus it; the first is relative to low,
    which may be many widths.
    """
    low, high = scaling.ramp_range(geometry)
    return 1 + scaling.factor * (2 + low / (2 * (high - low or 0.001)))


@given(
    HEAD_DIMS,
    BASES,
    LENGTHS,
    FACTORS.filter(lambda factor: factor > 1),
    st.floats(4, 64),
    st.floats(0.25, 3),
    st.booleans(),
    st.sampled_from(
        [{}, {"attention_factor": 0.9}, {"mscale": 0.707, "mscale_all_dim": 1.0}]
    ),
)
@settings(max_examples=150)
def test_yarn(dim, base, length, factor, fast, slow, truncate, attention):
    values = {
        "factor": factor,
        "beta_fast": fast,
        "beta_slow": slow,
        "truncate": truncate,
    }
    scaling = Yarn(**values, **attention)
    geometry = Geometry(dim, base, length)
    slack = yarn_slack(scaling, geometry)
    compare(scaling, geometry, "yarn", slack=slack, wide=1e-10, **values, **attention)


def test_yarn_where_the_ramp_is_narrow_and_far_from_the_first_pair():
    """Found by chance: 2.127e-6 apart, where a bound without the width allowed
    2.081e-6.
    """
    values: dict[str, Any] = {
        "factor": 11.0,
        "beta_fast": 6.795999757606965,
        "beta_slow": 1.9,
    }
    values["truncate"] = False
    scaling, geometry = Yarn(**values), Geometry(102, 1000.0, 4096)
    slack = yarn_slack(scaling, geometry)
    compare(scaling, geometry, "yarn", slack=slack, wide=1e-10, **values)


@given(HEAD_DIMS, BASES, LENGTHS, FACTORS, st.floats(0.5, 2), st.floats(2.5, 8))
@settings(max_examples=80)
def test_llama3(dim, base, length, factor, low, high):
    values = {"factor": factor, "low_freq_factor": low, "high_freq_factor": high}
    # The weight is a difference of turns below ``high``: its own error, over the ramp's
    # width.
    weight = high * (2 + 0.5 * math.log(base)) / (high - low)
    compare(
        Llama3(**values),
        Geometry(dim, base, length),
        "llama3",
        slack=weight * factor,
        **values,
    )


@given(
    HEAD_DIMS, BASES, LENGTHS, FACTORS, st.booleans(), st.randoms(use_true_random=False)
)
@settings(max_examples=60)
def test_longrope(dim, base, trained, factor, long, random):
    geometry = Geometry(dim, base, trained)
    long_factor = tuple(random.uniform(1, 64) for _ in range(geometry.pairs))
    short_factor = tuple(random.uniform(1, 2) for _ in range(geometry.pairs))
    values = {
        "long_factor": long_factor,
        "short_factor": short_factor,
        "factor": factor,
    }
    length = 2 * trained if long else trained
    # Its exponents go through .float(), which stays float32 here too.
    exponent = (2 + 0.5 * math.log(base)) * ULP
    compare(
        LongRope(**values),
        geometry,
        "longrope",
        length,
        slack=1,
        wide=exponent,
        **values,
    )


@given(HEAD_DIMS, BASES, FACTORS, st.floats(0.05, 1))
@settings(max_examples=60)
def test_proportional(dim, base, factor, p):
    geometry = Geometry(dim, base, 4096)
    scaling = Proportional(p=p, factor=factor)
    compare(scaling, geometry, "proportional", factor=factor, partial_rotary_factor=p)


def test_all_types_that_transformers_knows_are_compared():
    compared = {"linear", "dynamic", "yarn", "longrope", "llama3", "proportional"}
    assert set(modeling_rope_utils.ROPE_INIT_FUNCTIONS) == compared
