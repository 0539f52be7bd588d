"""Mistakes in frequencies: formulas with one slip, and what shows in the numbers."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from ropelab.conformance.blocks import FIRST, SECOND
from ropelab.conformance.expected import Expected
from ropelab.conformance.explained import (
    CLOSE,
    FACTORS,
    HALF_FORMATS,
    UNEVEN,
    USUAL,
    wrap_angles,
)
from ropelab.conformance.observation import Fault, Observed
from ropelab.conformance.observed import recover_frequencies
from ropelab.math import scaling
from ropelab.math.frequencies import Frequencies
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.readers.spec import RopeSpec
from ropelab.runs.sentences import write_number

BY_FACTOR = (
    scaling.Llama3,
    scaling.Yarn,
    scaling.DynamicNtk,
    scaling.PositionInterpolation,
)
LENGTHS = USUAL["lengths"]
BASES = USUAL["bases"]
# beta_fast and beta_slow of YaRN: the defaults, and those of published models.
BETAS = ((32.0, 1.0), (1.0, 1.0), (64.0, 1.0), (16.0, 1.0), (32.0, 2.0))
# A mistake, and the frequencies that it gives.
Explanation = tuple[str, Frequencies]


def are_near(one: Frequencies, other: Frequencies) -> bool:
    return bool(np.allclose(one, other, rtol=CLOSE, atol=1e-12))


def explain_frequencies(observed: Observed, expected: Expected) -> Fault | None:
    """Name what makes the frequencies others than expected, if they are."""
    spec = expected.spec
    right = expected.inv_freq
    ours = recover_frequencies(observed)
    if len(ours) != len(right):
        answer = f"{2 * len(ours)} features rotate instead of {spec.rotary_dim}"
        return answer, f"rotate {spec.rotary_dim} features"
    is_close = np.isclose(ours, right, rtol=CLOSE, atol=1e-12)
    off = np.flatnonzero(~is_close)
    if not len(off):
        return None

    if are_near(ours, -right):
        return "the rotation has the wrong sign", f"{FIRST} and {SECOND}"
    for answer, frequencies in list_explanations(expected, ours):
        if len(frequencies) == len(ours) and are_near(ours, frequencies):
            return answer, "compare ropelab audit on the configuration"

    if are_near(-ours[off], right[off]):
        answer = (
            f"{len(off)} of {len(right)} pairs rotate the wrong way, from pair"
            f" {off[0]} on"
        )
        return answer, "one sign for all pairs"
    return (
        explain_inverted(ours, right)
        or explain_rounded(ours, expected)
        or explain_chosen_tables(ours, observed, expected)
        or explain_ladder(ours, unscale_dynamic(expected))
        or explain_common_factor(ours, right)
        or explain_ramp(ours, spec)
        or describe_unexplained(ours, right)
    )


def explain_inverted(ours: Frequencies, right: Frequencies) -> Fault | None:
    """Name angles that are positions divided by the frequencies."""
    inverse = 1 / np.where(right == 0, 1.0, right)
    # Larger angles are rounded in float32, so that no turn of them is known.
    is_known = inverse < 1e3
    errors = np.abs(wrap_angles(ours - inverse))[is_known]
    if is_known.sum() < 3 or errors.max() > CLOSE:
        return None
    return "positions are divided by inv_freq", "multiply positions by base^(-2i/d)"


def explain_rounded(ours: Frequencies, expected: Expected) -> Fault | None:
    """Name frequencies that a small format rounded in one to three steps."""
    spec = expected.spec
    pairs = len(expected.inv_freq)
    steps = np.arange(pairs) / pairs
    exact = FORMATS["float64"]
    for name in HALF_FORMATS:
        choices = (exact, FORMATS[name])
        for of_exponent, of_power, of_inverse in product(choices, repeat=3):
            exponents = round_to(steps, of_exponent)
            powers = round_to(spec.base**exponents, of_power)
            rounded = round_to(1 / powers, of_inverse)
            if np.allclose(ours, expected.scale(rounded), rtol=2e-4, atol=1e-12):
                return f"inv_freq is rounded to {name}", "compute it in float32"
    return None


def explain_chosen_tables(
    ours: Frequencies,
    observed: Observed,
    expected: Expected,
) -> Fault | None:
    """Name tokens that choose frequencies each by its own position."""
    places = observed.positions
    start = expected.spec.trained_len
    if isinstance(expected.spec.scaling, scaling.LongRope):
        lengths = np.where(places < start, start, start + 1)
        answer = "each token's position chooses its table"
        fix = "one table for all tokens"
    elif isinstance(expected.spec.scaling, scaling.DynamicNtk):
        lengths = np.maximum(places + 1, start)
        answer = "each token's position chooses its base"
        fix = "one base for all tokens, by the number of tokens"
    else:
        return None

    cos = np.empty_like(observed.cos)
    sin = np.empty_like(observed.sin)
    for length in np.unique(lengths):
        rows = lengths == length
        of_length = replace(expected, length=int(length)).rotation
        cos[rows], sin[rows] = of_length.tables(places[rows])
    mixed = replace(observed, cos=cos, sin=sin)
    if are_near(ours, recover_frequencies(mixed)):
        return answer, fix
    return None


def unscale_dynamic(expected: Expected) -> RopeSpec:
    """Return dynamic scaling as another base, which it is at one length."""
    spec = expected.spec
    dynamic = spec.scaling
    beyond = expected.length > spec.trained_len
    if not (isinstance(dynamic, scaling.DynamicNtk) and beyond):
        return spec
    stretch = dynamic.stretch(spec.geometry, expected.length)
    base = scaling.ntk_base(spec.geometry, stretch)
    return replace(spec, base=base, scaling=scaling.Unscaled())


def describe_unexplained(ours: Frequencies, right: Frequencies) -> Fault:
    # Memory that nobody wrote is mostly zeros, or in no order.
    zeros = (np.abs(ours) < 1e-30).mean()
    rising = (np.diff(ours) > 0).mean()
    if zeros > 0.5 or 0.25 < rising < 0.75:
        answer = (
            "the frequencies are no ladder that a configuration makes: uninitialised"
            " memory?"
        )
        return answer, "build inv_freq after the weights are on their device"

    off = np.flatnonzero(~np.isclose(ours, right, rtol=CLOSE, atol=1e-12))
    ratio = ours[off] / np.where(right[off] == 0, np.nan, right[off])
    answer = (
        f"{len(off)} of {len(right)} frequencies are wrong, pairs {off[0]} to"
        f" {off[-1]}, by factors from {np.nanmin(ratio):.4g} to"
        f" {np.nanmax(ratio):.4g}; no known mistake explains them"
    )
    return answer, "compare inv_freq pair by pair"


def explain_ladder(ours: Frequencies, spec: RopeSpec) -> Fault | None:
    """Name the base, or the count, of frequencies that fall by one ratio."""
    if not (ours > 0).all() or len(ours) < 3:
        return None
    if are_near(ours, ours[:1]):
        answer = f"every pair turns by {ours[0]:.4g} rad per token"
        return answer, "base^(-2i/d), without a division of whole numbers"

    pairs = np.arange(len(ours))
    slope, start = np.polyfit(pairs, np.log(ours), 1)
    if not are_near(ours, np.exp(start + slope * pairs)):
        return None
    right_slope = -2 * math.log(spec.base) / spec.rotary_dim
    if abs(slope - right_slope) * len(ours) < CLOSE:
        first = start / slope
        if abs(first) > 0.5 and abs(first - round(first)) < CLOSE:
            answer = f"pairs are counted from {round(first)} instead of 0"
            return answer, "2i/d with i from 0"
        return None
    if abs(start) > CLOSE:
        return None
    return describe_base(math.exp(-slope * spec.rotary_dim / 2), spec)


def describe_base(base: float, spec: RopeSpec) -> Fault:
    """Name another base, in as many digits as tell it from the right one."""
    digits = (4, 7, 17)
    readable = (float(f"{base:.{count}g}") for count in digits)
    short = next(number for number in readable if number != spec.base)
    answer = f"base {write_number(short)} instead of {write_number(spec.base)}"
    fix = f"base {write_number(spec.base)}"

    width = spec.rotary_dim
    stretch = (base / spec.base) ** ((width - 2) / width)
    if isinstance(spec.scaling, scaling.DynamicNtk) and stretch > 1:
        tokens = spec.trained_len * (1 + (stretch - 1) / spec.scaling.factor)
        return f"{answer}, which dynamic scaling has at {tokens:.0f} tokens", fix
    factor = round(stretch)
    if 1 < factor <= max(FACTORS) and math.isclose(stretch, factor, rel_tol=CLOSE):
        answer += f", which NTK-aware scaling by {factor} gives"
    return answer, fix


def explain_common_factor(ours: Frequencies, right: Frequencies) -> Fault | None:
    """Name one factor on all frequencies; fast pairs show it up to whole rotations."""
    still = int((right <= 0).sum())
    order = np.argsort(right)[still:]
    if len(order) < 3:
        return None
    slow = order[: (len(order) + 1) // 2]
    factor = float(np.median(ours[slow] / right[slow]))
    if not factor or math.isclose(factor, 1, rel_tol=CLOSE):
        return None
    errors = np.abs(wrap_angles(ours - factor * right))
    if not are_near(ours[slow], factor * right[slow]) or errors.max() > CLOSE:
        return None

    for reason, value in USUAL["reasons"].items():
        if math.isclose(factor, value, rel_tol=CLOSE):
            return reason, "multiply positions by inv_freq once"
    answer = f"every angle is {factor:.4g} times what it should be"
    return answer, "angle = position * inv_freq"


def explain_ramp(ours: Frequencies, spec: RopeSpec) -> Fault | None:
    """Name other ends of YaRN's ramp.

    Between them the share that is divided grows evenly.
    """
    if not isinstance(spec.scaling, scaling.Yarn):
        return None
    pairs = np.arange(len(ours))
    kept = ours / spec.geometry.inv_freq
    share = (1 - kept) / (1 - 1 / spec.scaling.factor)
    inside = (share > UNEVEN / 2) & (share < 1 - UNEVEN / 2)
    if inside.sum() < 3:
        return None

    slope, start = np.polyfit(pairs[inside], share[inside], 1)
    line = start + slope * pairs
    if np.allclose(line, share, rtol=CLOSE, atol=2 * CLOSE):
        return "the ramp goes on beyond its ends", "clip it to 0 and 1"
    if not np.allclose(np.clip(line, 0, 1), share, atol=2 * CLOSE):
        return None
    low = -start / slope
    high = (1 - start) / slope
    return (
        f"the ramp runs from pair {low:.3g} to {high:.3g}",
        "its ends come from the betas, 2 pi, the base and the original length",
    )


def list_explanations(expected: Expected, ours: Frequencies) -> Iterator[Explanation]:
    """Yield mistakes with the frequencies that they give, the likeliest first."""
    spec = expected.spec
    right = expected.inv_freq
    plain = spec.geometry.inv_freq
    if isinstance(spec.scaling, scaling.Proportional):
        moving = 2 * np.count_nonzero(right)
        yield f"{spec.rotary_dim} features rotate instead of {moving}", plain
    if isinstance(spec.scaling, scaling.DynamicNtk):
        yield from list_dynamic_slips(expected)
    for name, other in expected.layers.items():
        rotation = f"base {write_number(other.base)}, {other.method}"
        answer = f"rotates as {name} layers should ({rotation})"
        yield answer, other.inv_freq(expected.length)
    if isinstance(spec.scaling, scaling.LongRope):
        yield from list_wrong_tables(expected)
    yield from list_omissions(expected)
    if isinstance(spec.scaling, scaling.Llama3 | scaling.Yarn):
        yield from list_ramp_slips(expected)
    yield from list_other_parameters(expected)
    yield from list_other_orders(right)
    yield from list_other_lengths(expected)
    yield from list_other_bases(expected)
    yield from list_other_exponents(expected)
    yield from list_recovered_base(expected, ours)
    for name, other in expected.others.items():
        answer = f"rotates as {name} does ({other.method})"
        yield answer, other.inv_freq(expected.length)


def list_wrong_tables(expected: Expected) -> Iterator[Explanation]:
    """Yield LongRoPE's other table, and tables that multiply instead of dividing."""
    plain = expected.spec.geometry.inv_freq
    for name in ("short", "long"):
        divisors = np.array(getattr(expected.spec.scaling, f"{name}_factor"))
        answer = f"the {name} table is used at {expected.length} tokens"
        yield answer, plain / divisors
        yield f"the {name} table multiplies the frequencies", plain * divisors


def list_omissions(expected: Expected) -> Iterator[Explanation]:
    """Yield a scaling that is missing, applied twice, or made for the whole head."""
    spec = expected.spec
    right = expected.inv_freq
    plain = spec.geometry.inv_freq
    head = spec.head_dim
    wide = right
    if isinstance(spec.scaling, scaling.Yarn):
        whole_head = replace(spec, rotary_dim=head)
        share = whole_head.inv_freq(expected.length) / whole_head.geometry.inv_freq
        wide = plain * share[: len(plain)]

    if not isinstance(spec.scaling, scaling.Unscaled):
        answer = f"the scaling is not applied: {spec.method} is missing"
        if are_near(wide, plain) and not are_near(right, plain):
            answer += f", or the ramp's ends come from {head} features"
        yield answer, plain
        yield "the factor is applied twice", expected.scale(right)
        yield "the factor is applied twice", right**2 / plain
    if head != spec.rotary_dim:
        width = spec.rotary_dim
        yield f"the ramp's ends come from {head} features instead of {width}", wide


def list_ramp_slips(expected: Expected) -> Iterator[Explanation]:
    """Yield a ramp that is inverted, left out, or not blended as it should be."""
    method = expected.spec.scaling
    right = expected.inv_freq
    assert isinstance(method, scaling.Llama3 | scaling.Yarn)
    plain = expected.spec.geometry.inv_freq
    divided = plain / method.factor
    inverted = plain + divided - right
    exchanged = ""
    if isinstance(method, scaling.Llama3):
        exchanged = (
            ", as happens where low_freq_factor and high_freq_factor are exchanged"
        )
    answer = "the ramp is inverted: fast pairs are divided, slow ones kept"
    yield answer + exchanged, inverted
    yield f"all pairs are divided by {method.factor:g}", divided

    is_kept = np.isclose(right, plain, rtol=CLOSE)
    is_divided = np.isclose(right, divided, rtol=CLOSE)
    ramp = ~(is_kept | is_divided)
    kept = np.where(ramp, plain, right)
    yield f"pairs in the ramp are kept{exchanged}", kept
    yield f"pairs in the ramp are divided{exchanged}", np.where(ramp, divided, right)
    backwards = np.where(ramp, inverted, right)
    yield "pairs in the ramp are blended backwards", backwards


def list_other_parameters(expected: Expected) -> Iterator[Explanation]:
    """Yield other factors, and YaRN's ends rounded the other way."""
    spec = expected.spec
    if isinstance(spec.scaling, BY_FACTOR):
        for factor in FACTORS:
            other = replace(spec, scaling=replace(spec.scaling, factor=factor))
            answer = f"factor {factor:g} instead of {spec.scaling.factor:g}"
            yield answer, other.inv_freq(expected.length)
    if isinstance(spec.scaling, scaling.Yarn):
        for fast, slow in BETAS:
            method = replace(spec.scaling, beta_fast=fast, beta_slow=slow)
            answer = (
                f"beta_fast {fast:g} and beta_slow {slow:g} instead of"
                f" {spec.scaling.beta_fast:g} and {spec.scaling.beta_slow:g}"
            )
            yield answer, replace(spec, scaling=method).inv_freq(expected.length)
        truncate = not spec.scaling.truncate
        other = replace(spec, scaling=replace(spec.scaling, truncate=truncate))
        answer = "the ramp's ends are not rounded to whole pairs"
        if truncate:
            answer = "the ramp's ends are rounded to whole pairs"
        yield answer, other.inv_freq(expected.length)


def list_other_orders(right: Frequencies) -> Iterator[Explanation]:
    """Yield frequencies in another order, or some of them repeatedly."""
    yield "the frequencies are in reverse order", right[::-1]
    half = right[: len(right) // 2]
    quarter = right[: len(right) // 4]
    second = right[::2]
    answer = "the first half of the frequencies is there twice"
    yield answer, np.tile(half, 2)
    yield answer, np.repeat(half, 2)
    answer = "the first quarter of the frequencies is there four times"
    yield answer, np.tile(quarter, 4)
    yield answer, np.repeat(quarter, 4)
    answer = "every second frequency is there twice"
    yield answer, np.tile(second, 2)
    yield answer, np.repeat(second, 2)


def list_other_lengths(expected: Expected) -> Iterator[Explanation]:
    """Yield other original lengths, 2 pi times the right one among them."""
    spec = expected.spec
    in_radians = round(math.tau * spec.trained_len)
    for trained in (spec.length, in_radians, *LENGTHS):
        answer = f"original length {trained} instead of {spec.trained_len}"
        if trained == in_radians:
            answer = "the ramp's wavelengths lack their 2 pi"
        yield answer, replace(spec, trained_len=trained).inv_freq(expected.length)


def explain_base(expected: Expected, base: float) -> Explanation:
    spec = expected.spec
    answer = f"base {write_number(base)} instead of {write_number(spec.base)}"
    return answer, replace(spec, base=base).inv_freq(expected.length)


def list_other_bases(expected: Expected) -> Iterator[Explanation]:
    for base in BASES:
        yield explain_base(expected, base)


def list_other_exponents(expected: Expected) -> Iterator[Explanation]:
    """Yield exponents that divide by another number of features."""
    spec = expected.spec
    right = expected.inv_freq
    head = spec.head_dim
    width = spec.rotary_dim
    plain = spec.geometry.inv_freq
    # Multiples of the head, as far as usual sizes of the hidden state, and slips of
    # the width.
    divisors = [*range(head, 129 * head, head), 2 * width, width // 2]
    divisors.append(max(width - 2, 1))
    moving = 2 * np.count_nonzero(right)
    if moving < width:
        divisors.append(moving)
    for divisor in divisors:
        power = width / divisor
        if isinstance(spec.scaling, scaling.DynamicNtk):
            # Its base is another one at each length.
            ladder = right**power
        else:
            ladder = expected.scale(plain**power)
        yield f"the exponent divides by {divisor} instead of {width}", ladder


def list_recovered_base(expected: Expected, ours: Frequencies) -> Iterator[Explanation]:
    """Yield the base that pair 1 has, which these two scalings leave alone."""
    if not isinstance(expected.spec.scaling, scaling.Llama3 | scaling.Yarn):
        return
    second = max(abs(ours[:2].min()), 1e-300)
    digits = -expected.spec.rotary_dim / 2 * math.log10(second)
    if 1 < digits < 12:
        base = float(f"{10**digits:.3g}")
        yield explain_base(expected, base)


def list_dynamic_slips(expected: Expected) -> Iterator[Explanation]:
    """Yield what slips in the formula of dynamic scaling give at this length."""
    spec = expected.spec
    length = expected.length
    dynamic = spec.scaling
    geometry = spec.geometry
    assert isinstance(dynamic, scaling.DynamicNtk)
    stretch = dynamic.stretch(geometry, length)
    rounded = 1 << (length - 1).bit_length()
    if rounded != length:
        answer = f"dynamic scaling sees {rounded} tokens, the next power of two"
        yield answer, spec.inv_freq(rounded)
    for tokens in LENGTHS:
        if tokens > spec.trained_len and tokens != length:
            answer = f"dynamic scaling has these frequencies at {tokens} tokens"
            yield answer, spec.inv_freq(tokens)
    if length > spec.trained_len:
        base = scaling.ntk_base(geometry, dynamic.factor * length / spec.trained_len)
        unscaled = replace(spec, base=base, scaling=scaling.Unscaled())
        yield "dynamic scaling lacks its - (factor - 1)", unscaled.inv_freq(length)
        answer = "the base is multiplied without the exponent d / (d - 2)"
        unscaled = replace(spec, base=spec.base * stretch, scaling=scaling.Unscaled())
        yield answer, unscaled.inv_freq(length)
        ratio = length / spec.trained_len
        answer = f"frequencies are divided by {ratio:.4g}, as many times as the context"
        yield f"{answer} is longer", geometry.inv_freq / ratio
        divided = 1 + dynamic.factor * (ratio - 1)
        answer = f"frequencies are divided by {divided:.4g} instead of another base"
        yield answer, geometry.inv_freq / divided
