"""Checks of Liu's bounds on the base (2026): which bases a context needs, and which a
number format allows.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from ropelab.claims.arrays import Array, frequencies, gaussian, max_abs, softmax
from ropelab.claims.periods import count_codes, make_rope_frequencies
from ropelab.claims.record import Findings, claim
from ropelab.claims.theories.common import (
    CONTEXT,
    HEAD,
    TOKENS,
    is_about,
    write_list,
)
from ropelab.math.bounds import rules
from ropelab.math.bounds.walls import (
    find_first_wrong_step,
    find_proved_limit,
    make_chain,
    make_walls_table,
)
from ropelab.math.numerics.casts import PRESETS, find_preset
from ropelab.math.numerics.chain import list_positions
from ropelab.math.numerics.formats import FORMATS
from ropelab.runs.arrays import Float
from ropelab.runs.thresholds import ANGLE_RAD, EXACT

# Qwen3.5: the rotated features of a head, the base, and the context as released.
ROTATED = 64
QWEN_3_5 = 1e7
NATIVE = 262144
# The plan of an implementation that rounds every stage to float32.
FLOAT32 = PRESETS["float32"].plan
# The step between float32 numbers just above 1.
EPSILON = FORMATS["float32"].epsilon


@claim("liu-aliasing", "liu-stability")
def check_bound(findings: Findings, bound: str, head_dim: int = HEAD) -> None:
    """Test a lower bound on the base, aliasing or stability: whether it is necessary, and
    whether it is sufficient.

    The bound is the base at which the slowest pair reaches a certain angle at the end of
    the context. The summaries print it for a slowest frequency of 1/base. The slowest
    frequency of a head of d features is base^(-(d-2)/d), which is larger: heads need a
    larger base, narrow heads most.
    """
    base = rules.aliasing_base(CONTEXT)
    allowed_angle = 2 * math.pi
    if bound == "stability":
        base = rules.stability_base(CONTEXT, 0.9, 1)
        allowed_angle = math.acos(0.9)

    slowest = float(frequencies(head_dim, base)[-1])
    share = CONTEXT * slowest / allowed_angle
    what = (
        f"angle of the slowest pair after {CONTEXT:,} tokens at the bound, base"
        f" {base:,.0f}, which a smaller base exceeds"
    )
    measured = f"{share:.3f} times {allowed_angle:.3f} rad (heads of {head_dim})"
    findings.add_part(what, measured, share >= 1, share)

    sufficient_base = (CONTEXT / allowed_angle) ** (head_dim / (head_dim - 2))
    what = (
        f"angle of the slowest pair after {CONTEXT:,} tokens at the bound, which must not be"
        f" above {allowed_angle:.3f} rad if the bound is to be enough"
    )
    measured = (
        f"{share:.3f} times that; heads of {head_dim} need a base of"
        f" {sufficient_base:,.0f}"
    )
    findings.add_limit(what, measured, share <= 1.01, share)


@claim("liu-ambiguous")
def count_shared_codes(
    findings: Findings, base: float = 1e4, head_dim: int = HEAD, fmt: str = "float32"
) -> None:
    """Count the positions that share a code, at a base below Liu's bound."""
    spectrum = make_rope_frequencies(head_dim, base)
    counts = count_codes(spectrum, "vector", CONTEXT, (fmt,))[fmt]
    shared = CONTEXT - counts.distinct

    bound = rules.aliasing_base(CONTEXT)
    what = (
        f"positions of {CONTEXT:,} without a code of their own at base {base:g} in {fmt},"
        f" heads of {head_dim}"
    )
    measured = f"{shared:,} (the bound is {bound:,.0f})"
    findings.add_part(what, measured, shared > 0, shared)


@claim("liu-depth")
def follow_score_through_layers(
    findings: Findings,
    layers: int = 32,
    values: Literal["plain", "turned", "turned back"] = "plain",
    kept: float = 0.9,
    models: int = 64,
) -> None:
    """Follow a score of the slowest pair through the layers of random models.

    Two tokens are equal. They are so far apart that in the first layer the rotation leaves
    the share `kept` of the score that they would have at distance 0. If a layer passes on
    the phases of the rotation, the two tokens are no longer equal in the next layers.

    Args:
        findings: the findings.
        layers: the number of layers.
        values: how a layer passes on the values that it reads: as they are (plain);
            rotated by the position of the key (turned); or rotated by the position of the
            key, and the output back by the position of the query (turned back).
        kept: the cosine of the angle between the two positions, in the slowest pair.
        models: the number of random models, over which the score is averaged.
    """
    # The two features of the slowest pair are a complex number, and a rotation is a factor
    # of absolute value 1. There is a factor for each of the two positions.
    turns = np.exp(1j * np.array([0.0, math.acos(kept)]))
    random_numbers = gaussian(0, layers + 1, 2, models, 2, 2)
    start = random_numbers[0, 0, :, 0]
    # All models have both tokens equal: [models, tokens, features].
    hidden = np.stack((start, start), axis=1)
    shares = []
    for weights in random_numbers[1:]:
        q_weights, v_weights = weights
        # Queries and keys have the same weights, so that a key can equal its query.
        query = _join_pair(hidden @ q_weights)
        rotated = query * turns  # [models, tokens]
        products = (rotated[:, :, None] * rotated[:, None].conj()).real
        lengths = np.abs(query)
        shares.append(products[:, 1, 0] / (lengths[:, 1] * lengths[:, 0]))

        value = _join_pair(hidden @ v_weights)
        if values != "plain":
            value = value * turns
        output = (softmax(products) @ value[:, :, None])[:, :, 0]
        if values == "turned back":
            output = output * turns.conj()
        hidden = hidden + np.stack((output.real, output.imag), axis=-1)
        # Each token gets a mean square of 1, as normalized layers have it.
        hidden /= np.sqrt((hidden**2).mean(axis=-1, keepdims=True))

    first_share = float(shares[0].mean())
    last_share = float(shares[-1].mean())
    what = (
        f"share of a score of the slowest pair that the rotation leaves in layer {layers},"
        f" where it leaves {first_share:.3g} in layer 1"
    )
    compounds = last_share < first_share - EXACT
    measured = f"{last_share:.3g}"
    if not compounds:
        measured += ": q and k alone are rotated, no phase is passed on"
    findings.add_part(what, measured, compounds, last_share)

    power = kept**layers
    what = f"the share that the bound has for layer {layers}, {kept:g}^{layers}"
    is_power = abs(last_share - power) <= 0.05
    findings.add_limit(what, f"{power:.3f}", is_power, power)


def _join_pair(
    features: Float[Array, "models tokens 2"],
) -> Float[Array, "models tokens"]:
    """Return the two features of a pair as a complex number."""
    return features[..., 0] + 1j * features[..., 1]


@claim("liu-ceiling")
def count_erased_neighbours(
    findings: Findings, base: float = QWEN_3_5, component: str = "cosine and sine"
) -> None:
    """Count the neighbours that the slowest pair does not distinguish in float32:
    neighbours with equal cosines, or with equal cosines and sines (`component`).
    """

    def measure_shares(
        head_dim: int, base: float, start: int, stop: int
    ) -> tuple[float, float]:
        """Return the shares of neighbours with equal cosines, and of those whose sines
        are equal, too.
        """
        slowest = slice(-1, None)
        chain = make_chain(FLOAT32, base, head_dim)
        # Both have one row, for the slowest pair.
        (cos,), (sin,) = chain.table(list_positions(start, stop), slowest)
        has_equal_cos = np.diff(cos) == 0
        has_equal_sin = np.diff(sin) == 0
        both = has_equal_cos & has_equal_sin
        return float(has_equal_cos.mean()), float(both.mean())

    first, last = 1_000_000, 1_002_000
    cosine_share, share = measure_shares(HEAD, base, first, last + 1)
    if component == "cosine":
        share = cosine_share

    what = (
        f"neighbours from {first:,} to {last:,} with one {component} in the slowest pair of"
        f" heads of {HEAD}, base {base:g}"
    )
    measured = (
        f"{share:.0%} (cosine alone {cosine_share:.0%}); below"
        f" {find_proved_limit(FLOAT32):,} none at any base"
    )
    findings.add_part(what, measured, share > 0.5, share)

    rows = []
    for head_dim in (64, 128, 256):
        for base_of_row in (1e6, 1e7, 1e8):
            cosine_share, _ = measure_shares(head_dim, base_of_row, 0, 1 << 20)
            rows.append((head_dim, base_of_row, cosine_share))
    columns = ["head_dim", "base", "equal_cosines_share"]
    findings.series["cosines"] = pd.DataFrame(rows, columns=columns)


@claim("wall-in-code")
def find_wall(findings: Findings, code: str = "float32") -> None:
    """Find the first position that the slowest pair of an implementation (`code`) stores
    as the next one (a wall), at several bases.
    """
    # The position of the wall neither always falls nor always rises as the base grows: it
    # is smallest at 1e8 among these bases.
    bases = (1e4, 1e7, 1e8, 1e11)
    plans = {name: preset.plan for name, preset in PRESETS.items()}
    table = make_walls_table(plans, bases, HEAD)
    positions = table[table["code"] == code]["first_equal_pair_position"]
    # A position is missing if no two positions are equal. It then counts as beyond every
    # whole number of float64.
    first_positions = positions.fillna(2**53).tolist()

    # All bases but the first are above 1/eps of float32, so above 1/eps of narrower
    # formats, too: the claim says that these have walls.
    at_small_base, *at_large_bases = first_positions
    has_wall = min(at_large_bases) < min(at_small_base, 1 << 20)
    what = (
        f"first position whose cos and sin {code} stores as those of the next, slowest pair"
        f" of heads of {HEAD}, bases 1e4, 1e7, 1e8, 1e11"
    )
    measured = write_list(first_positions, ",")
    findings.add_part(what, measured, has_wall, min(first_positions))

    rows = []
    for base in bases:
        rows.append((base, find_first_wrong_step(base, HEAD, ANGLE_RAD, TOKENS)))
    findings.series["walls"] = table
    columns = ["base", "first_wrong_position"]
    findings.series["accumulated"] = pd.DataFrame(rows, columns=columns)


@claim("liu-million")
def find_longest_context(
    findings: Findings,
    depths: Sequence[int] = (32, 1, 126),
    printed: float = 1e6,
    kept: float = 0.9,
    stricter: float = 0.95,
) -> None:
    """Find the context from which Liu's lower bound on the base is above his upper one,
    1/eps, for models of several depths.

    The bound keeps a cosine, for which the summaries name no value: `kept`, and as a limit
    `stricter`.
    """

    def find_limit(layers: int, cosine: float) -> float:
        # The lower bound grows in proportion to the context.
        bound_per_token = rules.stability_base(1, cosine, layers)
        return 1 / (EPSILON * bound_per_token)

    for layers in depths:
        limit = find_limit(layers, kept)
        what = f"tokens from which no base is between the bounds, layers: {layers}"
        findings.add_part(what, f"{limit:,.0f}", is_about(limit, printed), limit)

    layers = depths[0]
    limit = find_limit(layers, stricter)
    what = f"with {layers} layers and a cosine of {stricter:g} in the place of {kept:g}"
    findings.add_limit(what, f"{limit:,.0f}", is_about(limit, printed), limit)


@claim("float64-angles", bound=ANGLE_RAD)
def compare_angle_errors(
    findings: Findings,
    preset: str = "float32",
    base: float = QWEN_3_5,
    usual: float = 1e4,
) -> None:
    """Measure the largest angle error at a base and at the usual base.

    The error of an angle is its position times the rounding error of its frequency, which
    is of the same size at every base. Errors must therefore be compared with the errors at
    another base: in a long text, a fixed tolerance is exceeded at any base.
    """

    def find_largest_error(base: float, end: int) -> float:
        chain = make_chain(find_preset(preset).plan, base, ROTATED)
        return max_abs(chain.angle_errors(list_positions(end - TOKENS, end)))

    error = find_largest_error(base, NATIVE)
    usual_error = find_largest_error(usual, NATIVE)
    what = f"largest angle error of {preset} in the last {TOKENS} of {NATIVE:,} tokens"
    measured = f"{error:.4f} rad at base {base:g}, {usual_error:.4f} at base {usual:g}"
    findings.add_part(what, measured, error > usual_error, error)
    what = (
        f"largest angle error there at base {base:g}, wrong if above {ANGLE_RAD:g} rad"
    )
    findings.add_part(what, f"{error:.4f} rad", error > ANGLE_RAD, error)

    longer_context = 4 * NATIVE
    error = find_largest_error(base, longer_context)
    usual_error = find_largest_error(usual, longer_context)
    what = f"largest angle error of {preset} in the last {TOKENS} of {longer_context:,} tokens"
    measured = f"{error:.4f} rad at base {base:g}, {usual_error:.4f} at base {usual:g}"
    findings.add_limit(what, measured, min(error, usual_error) > ANGLE_RAD)


@claim("host-table-drift")
def compare_table_errors(
    findings: Findings, printed: Sequence[tuple[int, float]], base: float = QWEN_3_5
) -> None:
    """Compare printed errors of cos and sin in float32, by position, with the true
    errors.
    """
    chain = make_chain(FLOAT32, base, ROTATED)
    reproduced_count = 0
    for position, printed_error in printed:
        positions = np.array([float(position)])
        exact_angles = chain.spectrum.inv_freq[:, None] * positions
        cos, sin = chain.table(positions)
        cos_error = np.abs(cos - np.cos(exact_angles)).max()
        sin_error = np.abs(sin - np.sin(exact_angles)).max()
        error = max(cos_error, sin_error)
        if f"{error:.2e}" == f"{printed_error:.2e}":
            reproduced_count += 1

    what = "printed errors of cos and sin reproduced, to three digits"
    findings.add_count(what, reproduced_count, len(printed))
