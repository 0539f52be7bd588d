"""Known mistakes of rotary codes, found in the angles that they gave."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product

import numpy as np

from ropelab.conformance.expected import Expected
from ropelab.conformance.observed import recover_frequencies
from ropelab.conformance.rotations import (
    SHEARED,
    Fault,
    Observed,
    Pairs,
    Positions,
    Table,
)
from ropelab.math import scaling
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.numerics.reduction import REDUCTIONS, halved, reduction_errors
from ropelab.math.rotary import axis_of_pairs
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Int
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
NO_DRIFT = "rotate without a factor that depends on the position"
LONGEST_SUM = 2**18  # tokens, whose float32 sums are formed one by one
USUAL = table_beside(__file__)
HALF_FORMATS, LENGTHS = USUAL["formats"], USUAL["lengths"]
FACTORS, BASES = USUAL["factors"], USUAL["bases"]


def are_near(one: Pairs, other: Pairs) -> bool:
    return bool(np.allclose(one, other, rtol=CLOSE, atol=1e-12))


def wrap_angles(angles: Table) -> Table:
    """Return angles in [-pi, pi)."""
    return np.asarray((angles + np.pi) % (2 * np.pi) - np.pi)


def explain_tables(observed: Observed, expected: Expected) -> Fault | None:
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
    known |= dict(list_mixed_tables(cos, sin))
    for answer, tables in known.items():
        if np.abs(ours - tables).max() <= SHEARED * factor:
            fix = "return cos, then sin"
            if "negated" in answer:
                fix = "check the signs"
            elif "table" in answer:
                fix = "write and read the table in one order"
            return answer, fix
    times = (ours * right).sum(axis=(1, 2)) / (right**2).sum(axis=(1, 2))
    fits = np.abs(ours - times[:, None, None] * right).max() <= SAME_POSITION * factor
    if not fits or times.min() <= 0 or math.isclose(*times, rel_tol=SAME_POSITION):
        return None
    answer = "cos is multiplied by {:.4g}, sin by {:.4g}".format(*times * factor)
    return answer, f"both by {factor:.6g}"


def list_mixed_tables(
    cos: Table, sin: Table
) -> Iterator[tuple[str, tuple[Table, Table]]]:
    """Yield cos and sin as a code has them that reads a table in another order."""
    for names, one, other in (("sin and cos", sin, cos), ("cos and sin", cos, sin)):
        alternating = np.stack([one, other], axis=-1).reshape(len(cos), -1)
        first, second = np.split(alternating, 2, axis=1)
        tables = (second, first) if one is sin else (first, second)
        yield f"a table in which {names} alternate is cut into halves", tables
        joined = np.concatenate([one, other], axis=1)
        first, second = joined[:, ::2], joined[:, 1::2]
        tables = (second, first) if one is sin else (first, second)
        yield f"a table of {names} in halves is read alternately", tables


def explain_positions(observed: Observed, expected: Expected) -> Fault | None:
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
    if shift := find_broken_shift(found - positions, angles, positions, right):
        return f"positions are shifted by {shift:g}", "count positions from 0"
    found = np.round(found)
    honest = SAME_POSITION + expected.budget().angles(np.maximum(found, 0))
    fits = (np.abs(wrap_angles(angles - found[:, None] * right)) < honest).all(axis=1)
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
    if fits.all() and (answer := explain_small_integers(positions, found)):
        return answer, "keep positions in 32 bits or more"
    if fits.all() and (answer := explain_groups(positions, found)):
        return answer, "give each token its own position"
    if fits.all() and found[0] > 0 and not np.ptp(found + positions):
        return (
            f"positions are counted back from {found[0]:.0f}",
            "count positions from 0",
        )
    # Too far off to be found so: where a table ends, its last row may stand for all
    # beyond.
    same = np.abs(wrap_angles(angles - angles[-1])).max(axis=1) < 1e-6
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


def find_broken_shift(
    moved: Pairs, angles: Table, positions: Positions, right: Pairs
) -> float:
    """Return a shift by a fraction that all positions have alike, or 0."""
    later = moved[positions > 0]
    shift = round(float(np.median(later)), 2)
    if shift == round(shift) or np.abs(later - shift).max() > SAME_POSITION:
        return 0.0
    off = wrap_angles(angles - (positions + shift)[:, None] * right)
    # Far positions are left to the casts.
    near_by = positions < 4096
    return shift if np.abs(off[near_by]).max() < SAME_POSITION else 0.0


def explain_small_integers(positions: Positions, found: Pairs) -> str:
    """Name positions that a small integer does not hold."""
    changed = np.flatnonzero(found != positions)
    for bits in (8, 16):
        size = 2**bits
        unsigned = positions % size
        signed = (positions + size // 2) % size - size // 2
        for kind, held in ((f"int{bits}", signed), (f"uint{bits}", unsigned)):
            if len(changed) and np.array_equal(found, held):
                first = changed[0]
                return (
                    f"positions are held in {kind}: position {positions[first]} is"
                    f" rotated as {found[first]:.0f}"
                )
    return ""


def explain_groups(positions: Positions, found: Pairs) -> str:
    """Name positions that are divided from some position on, as Self-Extend does."""
    changed = np.flatnonzero(found != positions)
    if len(changed) < 3 or changed[0] < 2:
        return ""
    far = changed[-1]
    for group in (2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 64):
        begins = found[far] - positions[far] // group
        rest = found[changed] - positions[changed] // group
        window = begins * group / (group - 1)
        if begins == 0 and not np.ptp(rest):
            return (
                f"positions are divided by {group} from {positions[changed[0]]} on at"
                " the latest"
            )
        if begins > 0 and not np.ptp(rest) and positions[far] > window:
            return (
                f"positions are divided by {group} from about {window:.0f} on, as"
                " Self-Extend does"
            )
    return ""


def explain_frequencies(observed: Observed, expected: Expected) -> Fault | None:
    spec, right, found = expected.spec, expected.inv_freq, recover_frequencies(observed)
    if len(found) != len(right):
        answer = f"{2 * len(found)} features rotate instead of {spec.rotary_dim}"
        return answer, f"rotate {spec.rotary_dim} features"
    off = np.flatnonzero(~np.isclose(found, right, rtol=CLOSE, atol=1e-12))
    if not len(off):
        return None
    for answer, frequency in list_explanations(expected, found):
        if len(frequency) == len(found) and are_near(found, frequency):
            return answer, "compare ropelab audit on the configuration"
    if are_near(-found[off], right[off]):
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
        if np.allclose(found, expected.scale(rounded), rtol=2e-4, atol=1e-12):
            return f"inv_freq is rounded to {name}", "compute it in float32"
    if isinstance(spec.scaling, scaling.LongRope):
        # As if each token chose its table by its own position.
        places, start = observed.positions, spec.trained_len
        each = (
            replace(expected, length=n).rotation.tables(places)
            for n in (start, start + 1)
        )
        cos, sin = np.where((places < start)[:, None], *map(np.stack, each))
        if are_near(found, recover_frequencies(replace(observed, cos=cos, sin=sin))):
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
        fault := explain_ladder(found, spec)
        or explain_common_factor(found, right)
        or explain_ramp(found, spec)
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


def explain_ladder(found: Pairs, spec: RopeSpec) -> Fault | None:
    """Name the base, or the count, of frequencies that fall by one ratio from pair to
    pair.
    """
    if not (found > 0).all() or len(found) < 3:
        return None
    if are_near(found, found[:1]):
        answer = f"every pair turns by {found[0]:.4g} rad per token"
        return answer, "base^(-2i/d), without a division of whole numbers"
    slope, start = np.polyfit(np.arange(len(found)), np.log(found), 1)
    if not are_near(found, np.exp(start + slope * np.arange(len(found)))):
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


def explain_common_factor(found: Pairs, right: Pairs) -> Fault | None:
    """Name one factor on all frequencies; fast pairs show it up to whole rotations."""
    if (right > 0).sum() < 3:
        return None
    order = np.argsort(right)[(right <= 0).sum() :]
    slow = order[: (len(order) + 1) // 2]
    factor = float(np.median(found[slow] / right[slow]))
    apart = np.abs(wrap_angles(found - factor * right)).max()
    fits = are_near(found[slow], factor * right[slow]) and apart <= CLOSE
    if not factor or math.isclose(factor, 1, rel_tol=CLOSE) or not fits:
        return None
    for reason, value in USUAL["reasons"].items():
        if math.isclose(factor, value, rel_tol=CLOSE):
            return reason, "multiply positions by inv_freq once"
    return (
        f"every angle is {factor:.4g} times what it should be",
        "angle = position * inv_freq",
    )


def explain_ramp(found: Pairs, spec: RopeSpec) -> Fault | None:
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


def list_explanations(expected: Expected, found: Pairs) -> Iterator[tuple[str, Pairs]]:
    """Yield mistakes with the frequencies that they give, the likeliest first."""
    spec, length, right = expected.spec, expected.length, expected.inv_freq
    head, width, plain = spec.head_dim, spec.rotary_dim, spec.geometry.inv_freq
    moving = 2 * int((right != 0).sum())
    wide = right
    if isinstance(spec.scaling, scaling.Yarn):
        whole_head = replace(spec, rotary_dim=head)
        share = whole_head.inv_freq(length) / whole_head.geometry.inv_freq
        wide = plain * share[: len(plain)]
    if isinstance(spec.scaling, scaling.Proportional):
        yield f"{width} features rotate instead of {moving}", plain
    if isinstance(spec.scaling, scaling.DynamicNtk):
        yield from list_dynamic_slips(expected)
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
        answer = f"the scaling is not applied: {spec.method} is missing"
        if are_near(wide, plain) and not are_near(right, plain):
            answer += f", or the ramp's ends come from {head} features"
        yield answer, plain
        for twice in (expected.scale(right), right**2 / plain):
            yield "the factor is applied twice", twice
    if head != width:
        answer = f"the ramp's ends come from {head} features instead of {width}"
        yield answer, wide
    if isinstance(spec.scaling, scaling.Llama3 | scaling.Yarn):
        divided = plain / spec.scaling.factor
        inverted = plain + divided - right
        exchanged = ""
        if isinstance(spec.scaling, scaling.Llama3):
            exchanged = (
                ", as happens where low_freq_factor and high_freq_factor are exchanged"
            )
        answer = "the ramp is inverted: fast pairs are divided, slow ones kept"
        yield answer + exchanged, inverted
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
            answer = f"pairs in the ramp are {done}"
            if done != "blended backwards":
                answer += exchanged
            yield answer, np.where(ramp, pairs, right)
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
    half = right[: len(right) // 2]
    for twice in (np.tile(half, 2), np.repeat(half, 2)):
        yield "the first half of the frequencies is there twice", twice
    quarter = right[: len(right) // 4]
    for four_times in (np.tile(quarter, 4), np.repeat(quarter, 4)):
        yield "the first quarter of the frequencies is there four times", four_times
    for twice in (np.tile(right[::2], 2), np.repeat(right[::2], 2)):
        yield "every second frequency is there twice", twice
    turned = round(math.tau * spec.trained_len)
    for trained in (spec.length, turned, *LENGTHS):
        answer = f"original length {trained} instead of {spec.trained_len}"
        answer = (
            "the ramp's wavelengths lack their 2 pi" if trained == turned else answer
        )
        yield answer, replace(spec, trained_len=trained).inv_freq(length)
    yield (
        "positions are divided by inv_freq",
        wrap_angles(1 / np.where(right == 0, 1.0, right)),
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
        *([moving] if moving < width else []),
    ):
        power = width / divisor
        # another base at each length
        dynamic = isinstance(spec.scaling, scaling.DynamicNtk)
        ladder = right**power if dynamic else expected.scale(plain**power)
        yield f"the exponent divides by {divisor} instead of {width}", ladder
    # Pair 1 is not scaled by these two, so that it has the base.
    digits = -width / 2 * math.log10(max(abs(found[:2].min()), 1e-300))
    if isinstance(spec.scaling, scaling.Llama3 | scaling.Yarn) and 1 < digits < 12:
        yield based(float(f"{10**digits:.3g}"))
    for name, other in expected.others.items():
        yield f"rotates as {name} does ({other.method})", other.inv_freq(length)


def list_dynamic_slips(expected: Expected) -> Iterator[tuple[str, Pairs]]:
    """Yield what slips in the formula of dynamic scaling give at this length."""
    spec, length = expected.spec, expected.length
    dynamic, geometry = spec.scaling, spec.geometry
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


def explain_axes(
    observed: Observed,
    expected: Expected,
    positions: Int[np.ndarray, "axes n"],
    names: Sequence[str],
) -> Fault | None:
    """Name pairs that read another axis of the position than they should."""
    inv_freq, factor = expected.inv_freq, expected.spec.attention_factor
    wanted = axis_of_pairs(expected.axis_layout, expected.sections)
    fix = f"pairs read {describe_axes(wanted, names)}"

    def reads(axes: Int[np.ndarray, " pairs"]) -> bool:
        angles = positions[axes].T * inv_freq
        if observed.cos.shape != angles.shape:
            return False
        off = np.abs(observed.cos - factor * np.cos(angles)).max()
        off = max(off, np.abs(observed.sin - factor * np.sin(angles)).max())
        return bool(off <= SAME_POSITION * factor)

    if reads(wanted):
        return None
    runs = axis_of_pairs("mrope", expected.sections)
    turns = axis_of_pairs("mrope_interleaved", expected.sections)
    if reads(runs):
        return "axes of positions come in runs of pairs instead of taking turns", fix
    if reads(turns):
        return "axes of positions take turns instead of coming in runs of pairs", fix
    for axis, name in enumerate(names):
        if reads(np.full_like(wanted, axis)):
            return f"all pairs read the axis of {name}", fix
    for order in permutations(range(len(names))):
        if reads(np.array(order)[wanted]):
            swapped = ", ".join(names[axis] for axis in order)
            return f"axes of positions are read in the order {swapped}", fix
    return "pairs read other axes of the position than configured", fix


def describe_axes(axes: Int[np.ndarray, " pairs"], names: Sequence[str]) -> str:
    """Return the axes that the first pairs and the last one read, in words.

    >>> words_of(np.array([0, 1, 2, 0]), ("time", "height", "width"))
    'time, height, width, ..., time'
    """
    first = [names[axis] for axis in axes[:3]]
    return ", ".join([*first, "...", names[axes[-1]]])


def explain_further(
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


def explain_period(
    off: Table, observed: Observed, expected: Expected, tolerance: float
) -> str:
    """Return what shows in pairs whose angles are exact in float32; nothing if they are
    right.
    """
    exact = np.flatnonzero(expected.budget().exact_pairs)
    if not len(exact):
        return ""
    pair = exact[0]
    errors = wrap_angles(off[:, pair])
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


def explain_gain(gain: float, spec: RopeSpec) -> Fault | None:
    wanted = spec.attention_factor
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
    for power, where in ((0.5, "1 / sqrt(d)"), (0.25, "the root of 1 / sqrt(d)")):
        if math.isclose(gain, wanted * spec.head_dim**-power, rel_tol=CLOSE):
            answer = f"{where} is folded into the vectors"
            return answer, "leave it to attention, or divide by it before the check"
    answer = f"cos and sin are multiplied by {gain:.6g} instead of {wanted:.6g}"
    return answer, f"attention factor {wanted:.6g}"


def explain_drift(observed: Observed) -> str:
    """Name factors that grow or fall by one share per token, each pair by its own."""
    near_by = (observed.positions > 0) & (observed.positions <= 4096)
    places = observed.positions[near_by]
    factors = np.hypot(observed.cos, observed.sin)[near_by]
    if len(places) < 4 or not factors.size or not (factors > 0).all():
        return ""
    rates = np.log(factors) / places[:, None]
    rate = np.median(rates, axis=0)
    steady = np.abs(rates - rate).max() < 1e-2 * np.abs(rate).max()
    one_way = (rate > 0).all() or (rate < 0).all()
    if not (steady and one_way and np.abs(rate).max() * places.max() > 0.1):
        return ""
    does = "grow" if rate[0] > 0 else "fall"
    return f"cos and sin {does} with the position, as xPos makes them"


def explain_uneven_gain(observed: Observed) -> Fault | None:
    """Return the place where cos and sin are multiplied by another factor than
    elsewhere.
    """
    if not observed.gain:
        return "most of cos and sin are zero", "see how they are made"
    if answer := explain_drift(observed):
        return answer, NO_DRIFT
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


def are_summed(observed: Observed, expected: Expected, tolerance: float) -> bool:
    """Return True for angles that are sums of float32 frequencies over the tokens."""
    near_by = observed.positions < LONGEST_SUM
    places = observed.positions[near_by]
    if not places.max() > 1000:
        return False
    steps = np.broadcast_to(
        expected.inv_freq.astype(np.float32), (places.max(), len(expected.inv_freq))
    )
    sums = np.cumsum(steps, axis=0, dtype=np.float32)
    sums = np.vstack([np.zeros_like(sums[:1]), sums]).astype(np.float64)
    angles = np.arctan2(observed.sin, observed.cos)[near_by]
    return bool(np.abs(wrap_angles(angles - sums[places])).max() <= tolerance)
