"""Known mistakes of rotary codes, found in the angles that they gave."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from ropelab.conformance.expected import Expected
from ropelab.conformance.observed import frequencies
from ropelab.conformance.rotations import SHEARED, Fault, Observed, Pairs, Table
from ropelab.math import scaling
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.numerics.reduction import REDUCTIONS, halved, reduction_errors
from ropelab.readers.spec import RopeSpec
from ropelab.runs.files import table_beside
from ropelab.runs.sentences import typed

BY_FACTOR = (
    scaling.Llama3,
    scaling.Yarn,
    scaling.DynamicNtk,
    scaling.PositionInterpolation,
)
# Relative: the part of a frequency that is lost where it is read from a table in
# bfloat16.
CLOSE = 2e-3
SAME_POSITION = 2e-2  # rad; tables in bfloat16 are off by less
ENOUGH_PAIRS = 8  # that fix a position: with fewer, another one may fit as well
UNEVEN = 0.1  # as a share of the gain; 8-bit formats round a factor by less
ENDS = "look at where the table ends and at what positions are counted from"
USUAL = table_beside(__file__)
HALF_FORMATS, LENGTHS = USUAL["formats"], USUAL["lengths"]
FACTORS, BASES = USUAL["factors"], USUAL["bases"]


def near(one: Pairs, other: Pairs) -> bool:
    return bool(np.allclose(one, other, rtol=CLOSE, atol=1e-12))


def wrapped(angles: Table) -> Table:
    """Return angles in [-pi, pi)."""
    return np.asarray((angles + np.pi) % (2 * np.pi) - np.pi)


def wrong_tables(observed: Observed, expected: Expected) -> Fault | None:
    """Name tables that are swapped or negated, or whose factors differ."""
    # By small positions, where all codes are precise.
    first, factor = observed.positions <= 4, expected.spec.attention_factor
    cos, sin = right = np.stack(expected.rotation.tables(observed.positions[first]))
    ours = np.stack([observed.cos[first], observed.sin[first]])
    if ours.shape != right.shape:
        return None
    known = {
        "cos and sin are swapped": (sin, cos),
        "cos and sin are negated": (-cos, -sin),
        "cos is negated": (-cos, sin),
        "sin holds cos": (cos, cos),
        "cos holds sin": (sin, sin),
    }
    for answer, tables in known.items():
        if np.abs(ours - tables).max() <= SHEARED * factor:
            return (
                answer,
                "check the signs" if "negated" in answer else "return cos, then sin",
            )
    times = (ours * right).sum(axis=(1, 2)) / (right**2).sum(axis=(1, 2))
    fits = np.abs(ours - times[:, None, None] * right).max() <= SAME_POSITION * factor
    if not fits or times.min() <= 0 or math.isclose(*times, rel_tol=SAME_POSITION):
        return None
    answer = "cos is multiplied by {:.4g}, sin by {:.4g}".format(*times * factor)
    return answer, f"both by {factor:.6g}"


def wrong_positions(observed: Observed, expected: Expected) -> Fault | None:
    """Name positions that are not used, shifted, rounded, or rotated as others are."""
    still = all((table == table[0]).all() for table in (observed.cos, observed.sin))
    if still and observed.sin.any():
        return "every position is rotated alike", "angle = position * inv_freq"
    order = np.argsort(observed.positions)
    # Farther on, an honest code in float32 has lost its angles.
    order = order[(expected.budget().angles(observed.positions[order]) < 1).all(axis=1)]
    positions = observed.positions[order]
    angles, right = np.arctan2(observed.sin, observed.cos)[order], expected.inv_freq
    if angles.shape[1] != len(right):
        return None
    # From slow pairs to fast ones, each known up to whole rotations by those before.
    found = positions.astype(np.float64)
    for pair in np.argsort(right)[(right <= 0).sum() :]:
        rotations = np.round((found * right[pair] - angles[:, pair]) / (2 * np.pi))
        found = (angles[:, pair] + 2 * np.pi * rotations) / right[pair]
    found = np.round(found)
    honest = SAME_POSITION + expected.budget().angles(np.maximum(found, 0))
    fits = (np.abs(wrapped(angles - found[:, None] * right)) < honest).all(axis=1)
    moved = found - positions
    later = moved[positions > 0]
    if fits.all() and later[0] and (later == later[0]).all():
        answer = f"positions are shifted by {later[0]:.0f}"
        return answer if moved[0] else f"{answer} from 1 on", "count positions from 0"
    for step in FACTORS if fits.all() else ():
        for how, by in (
            (f"p // {step:g}", 1),
            (f"rounded down to multiples of {step:g}", step),
        ):
            if np.array_equal(found, positions // step * by):
                return f"positions are {how}", "divide positions as real numbers"
    if fits.all() and found[0] > 0 and not np.ptp(found + positions):
        return (
            f"positions are counted back from {found[0]:.0f}",
            "count positions from 0",
        )
    # Too far off to be found so: where a table ends, its last row may stand for all
    # beyond.
    same = np.abs(wrapped(angles - angles[-1])).max(axis=1) < 1e-6
    end = int(same.argmax())
    if not fits.all() and end < len(same) - 2 and same[end:].all():
        return f"position {positions[end + 1]} is rotated as {positions[end]}", ENDS
    wrong = positions[moved != 0]
    # Where position 1 is right and a later one is not, a table ended or a counter did.
    if (
        len(right) < ENOUGH_PAIRS
        or not len(wrong)
        or not fits.all()
        or wrong[0] < 2 <= wrong[-1]
    ):
        return None
    answer = f"position {wrong[0]} is rotated as {found[moved != 0][0]:.0f}"
    for name in HALF_FORMATS:
        if np.array_equal(found, round_to(positions.astype(np.float64), FORMATS[name])):
            return (
                f"positions are rounded to {name}: {answer}",
                "keep positions in integers",
            )
    return answer, ENDS


def wrong_frequencies(observed: Observed, expected: Expected) -> Fault | None:
    spec, right, found = expected.spec, expected.inv_freq, frequencies(observed)
    if len(found) != len(right):
        answer = f"{2 * len(found)} features rotate instead of {spec.rotary_dim}"
        return answer, f"rotate {spec.rotary_dim} features"
    off = np.flatnonzero(~np.isclose(found, right, rtol=CLOSE, atol=1e-12))
    if not len(off):
        return None
    for answer, frequency in explanations(expected, found):
        if len(frequency) == len(found) and near(found, frequency):
            return answer, "compare ropelab audit on the configuration"
    if near(-found[off], right[off]):
        answer = (
            f"{len(off)} of {len(right)} pairs rotate the wrong way, from pair"
            f" {off[0]} on"
        )
        return answer, "one sign for all pairs"
    steps = np.arange(len(right)) / len(right)
    for name, *cuts in product(HALF_FORMATS, *[("float64", "")] * 3):
        exponent, power, inverse = (FORMATS[cut or name] for cut in cuts)
        rounded = round_to(
            1 / round_to(spec.base ** round_to(steps, exponent), power), inverse
        )
        if np.allclose(found, expected.scaled(rounded), rtol=2e-4, atol=1e-12):
            return f"inv_freq is rounded to {name}", "compute it in float32"
    if isinstance(spec.scaling, scaling.LongRope):
        # As if each token chose its table by its own position.
        places, start = observed.positions, spec.trained_len
        each = (
            replace(expected, length=n).rotation.tables(places)
            for n in (start, start + 1)
        )
        cos, sin = np.where((places < start)[:, None], *map(np.stack, each))
        if near(found, frequencies(replace(observed, cos=cos, sin=sin))):
            return "each token's position chooses its table", "one table for all tokens"
    if (
        isinstance(spec.scaling, scaling.DynamicNtk)
        and expected.length > spec.trained_len
    ):
        base = scaling.ntk_base(
            spec.geometry, spec.scaling.stretch(spec.geometry, expected.length)
        )
        spec = replace(spec, base=base, scaling=scaling.Unscaled())
    if (
        fault := wrong_ladder(found, spec)
        or common_factor(found, right)
        or wrong_ramp(found, spec)
    ):
        return fault
    # Memory that nobody wrote is mostly zeros, or in no order.
    if (np.abs(found) < 1e-30).mean() > 0.5 or 0.25 < (
        np.diff(found) > 0
    ).mean() < 0.75:
        answer = (
            "the frequencies are no ladder that a configuration makes: uninitialised"
            " memory?"
        )
        return answer, "build inv_freq after the weights are on their device"
    ratio = found[off] / np.where(right[off] == 0, np.nan, right[off])
    times = f", by factors from {np.nanmin(ratio):.4g} to {np.nanmax(ratio):.4g}"
    which = (
        f"{len(off)} of {len(right)} frequencies are wrong, pairs {off[0]} to {off[-1]}"
    )
    return (
        f"{which}{times}; no known mistake explains them",
        "compare inv_freq pair by pair",
    )


def wrong_ladder(found: Pairs, spec: RopeSpec) -> Fault | None:
    """Name the base, or the count, of frequencies that fall by one ratio from pair to
    pair.
    """
    if not (found > 0).all() or len(found) < 3:
        return None
    if near(found, found[:1]):
        answer = f"every pair turns by {found[0]:.4g} rad per token"
        return answer, "base^(-2i/d), without a division of whole numbers"
    slope, start = np.polyfit(np.arange(len(found)), np.log(found), 1)
    if not near(found, np.exp(start + slope * np.arange(len(found)))):
        return None
    if abs(slope + 2 * math.log(spec.base) / spec.rotary_dim) * len(found) < CLOSE:
        counted = start / slope
        if abs(counted) > 0.5 and abs(counted - round(counted)) < CLOSE:
            return (
                f"pairs are counted from {round(counted)} instead of 0",
                "2i/d with i from 0",
            )
        return None
    if abs(start) > CLOSE:
        return None
    base = math.exp(-slope * spec.rotary_dim / 2)
    short = next(s for n in (4, 7, 17) if (s := float(f"{base:.{n}g}")) != spec.base)
    answer, fix = (
        f"base {typed(short)} instead of {typed(spec.base)}",
        f"base {typed(spec.base)}",
    )
    stretch = (base / spec.base) ** ((spec.rotary_dim - 2) / spec.rotary_dim)
    if isinstance(spec.scaling, scaling.DynamicNtk) and stretch > 1:
        tokens = spec.trained_len * (1 + (stretch - 1) / spec.scaling.factor)
        return f"{answer}, which dynamic scaling has at {tokens:.0f} tokens", fix
    whole = round(stretch)
    if 1 < whole <= max(FACTORS) and math.isclose(stretch, whole, rel_tol=CLOSE):
        answer += f", which NTK-aware scaling by {whole} gives"
    return answer, fix


def common_factor(found: Pairs, right: Pairs) -> Fault | None:
    """Name one factor on all frequencies; fast pairs show it up to whole rotations."""
    if (right > 0).sum() < 3:
        return None
    order = np.argsort(right)[(right <= 0).sum() :]
    slow = order[: (len(order) + 1) // 2]
    factor = float(np.median(found[slow] / right[slow]))
    apart = np.abs(wrapped(found - factor * right)).max()
    fits = near(found[slow], factor * right[slow]) and apart <= CLOSE
    if not factor or math.isclose(factor, 1, rel_tol=CLOSE) or not fits:
        return None
    for reason, value in USUAL["reasons"].items():
        if math.isclose(factor, value, rel_tol=CLOSE):
            return reason, "multiply positions by inv_freq once"
    return (
        f"every angle is {factor:.4g} times what it should be",
        "angle = position * inv_freq",
    )


def wrong_ramp(found: Pairs, spec: RopeSpec) -> Fault | None:
    """Name other ends of YaRN's ramp, between which the share that is divided grows
    evenly.
    """
    if not isinstance(spec.scaling, scaling.Yarn):
        return None
    plain, pairs = spec.geometry.inv_freq, np.arange(len(found))
    share = (1 - found / plain) / (1 - 1 / spec.scaling.factor)
    inside = (share > UNEVEN / 2) & (share < 1 - UNEVEN / 2)
    if inside.sum() < 3:
        return None
    slope, start = np.polyfit(pairs[inside], share[inside], 1)
    line = start + slope * pairs
    if np.allclose(line, share, rtol=CLOSE, atol=2 * CLOSE):
        return "the ramp goes on beyond its ends", "clip it to 0 and 1"
    if not np.allclose(np.clip(line, 0, 1), share, atol=2 * CLOSE):
        return None
    answer = (
        f"the ramp runs from pair {-start / slope:.3g} to {(1 - start) / slope:.3g}"
    )
    return (
        answer,
        "its ends come from the betas, 2 pi, the base and the original length",
    )


def explanations(expected: Expected, found: Pairs) -> Iterator[tuple[str, Pairs]]:
    """Yield mistakes with the frequencies that they give, the likeliest first."""
    spec, length, right = expected.spec, expected.length, expected.inv_freq
    head, width, plain = spec.head_dim, spec.rotary_dim, spec.geometry.inv_freq
    for name, other in expected.layers.items():
        answer = (
            f"rotates as {name} layers should (base {typed(other.base)},"
            f" {other.method})"
        )
        yield answer, other.inv_freq(length)
    if isinstance(spec.scaling, scaling.LongRope):
        for name in ("short", "long"):
            divisors = np.array(getattr(spec.scaling, f"{name}_factor"))
            yield f"the {name} table is used at {length} tokens", plain / divisors
            yield f"the {name} table multiplies the frequencies", plain * divisors
    if not isinstance(spec.scaling, scaling.Unscaled):
        yield f"the scaling is not applied: {spec.method} is missing", plain
        for twice in (expected.scaled(right), right**2 / plain):
            yield "the factor is applied twice", twice
    if isinstance(spec.scaling, scaling.Llama3 | scaling.Yarn):
        divided = plain / spec.scaling.factor
        inverted = plain + divided - right
        yield "the ramp is inverted: fast pairs are divided, slow ones kept", inverted
        yield f"all pairs are divided by {spec.scaling.factor:g}", divided
        ramp = ~(
            np.isclose(right, plain, rtol=CLOSE)
            | np.isclose(right, divided, rtol=CLOSE)
        )
        for done, pairs in (
            ("kept", plain),
            ("divided", divided),
            ("blended backwards", inverted),
        ):
            yield f"pairs in the ramp are {done}", np.where(ramp, pairs, right)
    if isinstance(spec.scaling, BY_FACTOR):
        for factor in FACTORS:
            other = replace(spec, scaling=replace(spec.scaling, factor=factor))
            yield (
                f"factor {factor:g} instead of {spec.scaling.factor:g}",
                other.inv_freq(length),
            )
    if isinstance(spec.scaling, scaling.Yarn):
        other = replace(
            spec, scaling=replace(spec.scaling, truncate=not spec.scaling.truncate)
        )
        answer = (
            f"the ramp's ends are {'not ' * spec.scaling.truncate}rounded to whole"
            " pairs"
        )
        yield answer, other.inv_freq(length)
    yield "the rotation has the wrong sign", -right
    yield "the frequencies are in reverse order", right[::-1]
    turned = round(math.tau * spec.trained_len)
    for trained in (spec.length, turned, *LENGTHS):
        answer = f"original length {trained} instead of {spec.trained_len}"
        answer = (
            "the ramp's wavelengths lack their 2 pi" if trained == turned else answer
        )
        yield answer, replace(spec, trained_len=trained).inv_freq(length)
    yield (
        "positions are divided by inv_freq",
        wrapped(1 / np.where(right == 0, 1.0, right)),
    )

    def based(base: float) -> tuple[str, Pairs]:
        answer = f"base {typed(base)} instead of {typed(spec.base)}"
        return answer, replace(spec, base=base).inv_freq(length)

    yield from map(based, BASES)
    # Multiples of the head, as far as usual sizes of the hidden state, and slips of the
    # width.
    for divisor in (
        *range(head, 129 * head, head),
        2 * width,
        width // 2,
        max(width - 2, 1),
    ):
        power = width / divisor
        # another base at each length
        dynamic = isinstance(spec.scaling, scaling.DynamicNtk)
        ladder = right**power if dynamic else expected.scaled(plain**power)
        yield f"the exponent divides by {divisor} instead of {width}", ladder
    # Pair 1 is not scaled by these two, so that it has the base.
    digits = -width / 2 * math.log10(max(abs(found[:2].min()), 1e-300))
    if isinstance(spec.scaling, scaling.Llama3 | scaling.Yarn) and 1 < digits < 12:
        yield based(float(f"{10**digits:.3g}"))
    for name, other in expected.others.items():
        yield f"rotates as {name} does ({other.method})", other.inv_freq(length)


def wrong_between(
    observed: Observed, expected: Expected, tolerance: float
) -> Fault | None:
    """Name the first further position at which cos and sin are others."""
    if observed.fault:
        return observed.fault
    off, places = np.full(len(observed.positions), np.inf), observed.positions
    right = np.stack(expected.rotation.tables(places))
    if observed.cos.shape == right[0].shape:
        found = np.stack([observed.cos, observed.sin])
        off = np.abs(found - right).max(axis=(0, 2)) / expected.spec.attention_factor
    # A sum of both features of a pair in bfloat16 loses more than its table.
    honest = expected.budget().angles(places).max(axis=1)
    wrong = ~(off <= max(tolerance, SAME_POSITION) + honest)
    if not wrong.any():
        return None
    first, counts = (
        places[wrong].min(),
        [len(np.unique(p)) for p in (places[wrong], places)],
    )
    answer = "{} of {} further positions are rotated otherwise".format(*counts)
    where = f"cos or sin off by {off[places == first].max():.3g} at position {first}"
    return f"{answer}: {where}", "look for what is cached, clamped or interpolated"


def wrong_period(
    off: Table, observed: Observed, expected: Expected, tolerance: float
) -> str:
    """Return what shows in pairs whose angles are exact in float32; nothing if they are
    right.
    """
    exact = np.flatnonzero(expected.budget().exact_pairs)
    if not len(exact):
        return ""
    pair = exact[0]
    errors = wrapped(off[:, pair])
    angles = expected.inv_freq[pair] * observed.positions
    worst = int(np.abs(errors).argmax())
    if abs(errors[worst]) <= tolerance:
        return ""
    for terms, reduction in REDUCTIONS.items():
        for each in (reduction, halved(reduction), replace(reduction, fused=True)):
            lost = reduction_errors(angles, each)
            if np.abs(errors - lost).max() < abs(errors[worst]) / 4:
                return f"2 pi in {('one term', 'two terms', 'three terms')[terms - 1]}"
    far = angles > angles.max() / 64
    shares = errors[far] / angles[far]
    # A wrong period is lost again and again, evenly.
    if np.ptp(shares) < abs(shares.mean()) / 4:
        return f"2 pi is taken as {math.tau / (1 + shares.mean()):.7g}"
    return (
        f"pair {pair}, whose angle is exact, is off by {abs(errors[worst]):.3g} rad at"
        f" position {observed.positions[worst]}"
    )


def wrong_gain(gain: float, wanted: float) -> Fault | None:
    for value, problem in (
        (wanted, None),
        (
            wanted**2,
            (f"the attention factor {wanted:.6g} is applied twice", "apply it once"),
        ),
        (
            1.0,
            (f"the attention factor {wanted:.6g} is missing", "multiply cos and sin"),
        ),
    ):
        if math.isclose(gain, value, rel_tol=CLOSE):
            return problem
    answer = f"cos and sin are multiplied by {gain:.6g} instead of {wanted:.6g}"
    return answer, f"attention factor {wanted:.6g}"


def uneven_gain(observed: Observed) -> Fault | None:
    """Return the place where cos and sin are multiplied by another factor than
    elsewhere.
    """
    if not observed.gain:
        return "most of cos and sin are zero", "see how they are made"
    factors = np.hypot(observed.cos, observed.sin) / observed.gain
    place, pair = np.unravel_index(np.abs(factors - 1).argmax(), factors.shape)
    if abs(factors[place, pair] - 1) <= UNEVEN:
        return None
    where = f"pair {pair} at position {observed.positions[place]}"
    answer = (
        f"cos and sin of {where} are {factors[place, pair]:.3g} times as long as"
        " elsewhere"
    )
    return answer, "both of one angle, and one factor for all pairs and positions"
