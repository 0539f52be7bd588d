"""The worst table error against a visit to every position and pair."""

import math

import numpy as np
import pytest

from ropelab.math.numerics.angle_errors import (
    TABLE_SHORTFALL,
    find_worst_by_octave,
    find_worst_table_error,
)
from ropelab.math.numerics.casts import PRESETS, STAGES, CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum, list_positions
from ropelab.math.numerics.formats import FORMATS
from tests.math.numerics.spectra import rope

PLANS = {
    **{
        f"{s}={f}": parse_cast(f"{s}={f}")
        for s in STAGES[:4]
        for f in list(FORMATS)[1:]
    },
    **{f"all {name}": parse_cast(f"all={name}") for name in FORMATS},
    **{name: preset.plan for name, preset in PRESETS.items()},
    "table=float16": parse_cast("table=float16"),
}


def searched(plan: CastPlan, spectrum: Spectrum, offset: int, length: int) -> float:
    octaves = find_worst_by_octave(Chain(plan.phase, spectrum), offset, length)
    return find_worst_table_error(Chain(plan.storage, spectrum), octaves)


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize(
    ("offset", "length"), [(0, 5000), (65530, 4000), (1_000_003, 2500)]
)
def test_the_search_finds_what_a_visit_to_everything_finds(name, offset, length):
    spectrum = rope(32)
    positions = list_positions(offset, offset + length)
    both = zip(
        *(Chain(p, spectrum).table(positions) for p in (PLANS[name], CastPlan())),
        strict=True,
    )
    with np.errstate(invalid="ignore"):
        everywhere = max(float(np.abs(ours - exact).max()) for ours, exact in both)
    found = searched(PLANS[name], spectrum, offset, length)
    if math.isnan(everywhere):
        assert math.isnan(found)
    else:
        assert found <= everywhere <= found * (1 + TABLE_SHORTFALL) + 1e-15


def test_without_rounding_nothing_is_off():
    assert searched(CastPlan(), rope(32), 0, 100_000) == 0


@pytest.mark.parametrize("scale", [1e-30, 1e-9, 1e-4])
@pytest.mark.parametrize(
    "name", ["ggml", "transformers_llama", "all bfloat16", "table=float16"]
)
def test_frequencies_near_zero_are_found_by_few_cosines(name, scale, monkeypatch):
    """Their cosines round to 1 and their errors are tiny, which the bounds must
    know.
    """
    slow = Spectrum(rope(32).inv_freq * scale, None, None)
    positions = list_positions(0, 5000)
    both = zip(
        *(Chain(p, slow).table(positions) for p in (PLANS[name], CastPlan())),
        strict=True,
    )
    everywhere = max(float(np.abs(ours - exact).max()) for ours, exact in both)
    found = searched(PLANS[name], slow, 0, 5000)
    assert found <= everywhere <= found * (1 + TABLE_SHORTFALL) + 1e-15
    computed = counted(monkeypatch)
    searched(PLANS[name], slow, 0, 1 << 18)
    assert sum(computed) < 0.3 * (1 << 18) * 16


@pytest.mark.parametrize("fmt", ["float32", "float16", "bfloat16", "float8_e5m2"])
def test_rounding_a_table_alone_costs_half_a_last_place_below_one(fmt):
    half = FORMATS[fmt].epsilon / 4
    assert (
        (1 - TABLE_SHORTFALL) * half
        <= searched(parse_cast(f"table={fmt}"), rope(32), 0, 1 << 20)
        <= half
    )


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of cosines of every call from now on."""
    computed: list[int] = []
    table = Chain.table

    def counting(self, positions, pairs=slice(None)):
        computed.append(positions.size * np.size(np.arange(self.spectrum.pairs)[pairs]))
        return table(self, positions, pairs)

    monkeypatch.setattr(Chain, "table", counting)
    return computed


def test_few_cosines_are_computed(monkeypatch):
    computed = counted(monkeypatch)
    searched(PRESETS["transformers_llama"].plan, rope(64), 0, 1 << 17)
    assert sum(computed) < 0.1 * (1 << 17) * 32
