"""Compare a rotary code with its configuration, and explain the difference.

The first of these that is wrong is the answer: numbers that are not finite, pairing, position 0,
rotated width, frequencies, factor on cos and sin, casts.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ropelab.audit.document import load
from ropelab.audit.observed import Observed, frequencies, observe
from ropelab.audit.result import Result, Rows
from ropelab.audit.runtimes import registry
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.casts import STAGES, CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.scaling import LongRope, Unscaled
from ropelab.runs.errors import InputError

Pairs = Float[np.ndarray, " pairs"]

# Relative: the part of a frequency that is lost where it is read from a table in bfloat16.
CLOSE = 2e-3
# As a share of the gain; 8-bit formats round a factor by less.
UNEVEN = 0.1
HALF_FORMATS = ("bfloat16", "float16", "tf32")
# Original lengths that may have been taken by mistake.
LENGTHS = tuple(2**k for k in range(9, 21))
# The stages that a table shows: position, inv_freq, angle, table.
CASTS = STAGES[:4]
# Positions at which errors show: small ones, and both sides of the ends of formats and tables.
PROBES = (
    *(0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 127, 255, 256, 257, 1023, 2047, 2048, 2049),
    *(4095, 4096, 4097, 8191, 16383, 32767, 65519, 65520, 131071),
)


@dataclass(frozen=True)
class Check(Result):
    """The answer, the advice, and the distance of each cast plan's tables from the observed."""

    answer: str
    wrong: bool
    fix: str = ""
    rows: Mapping[str, Rows] = field(default_factory=lambda: {"casts": ()})


@dataclass(frozen=True)
class Expected:
    """The rotation that a configuration asks for while ``length`` tokens are in the context."""

    spec: RopeSpec
    length: int
    others: Mapping[str, RopeSpec]  # as other runtimes read the same file

    @property
    def inv_freq(self) -> Pairs:
        return self.spec.inv_freq(self.length)


def check(
    target: str,
    *,
    config: str = "",
    length: int | None = None,
    dtype: str = "float32",
    tolerance: float = 0.01,
) -> Check:
    """Compare a rotary code with the configuration that it should follow.

    Args:
        target: `package.module:factory`, a model folder, or an .npz of tables.
        config: a config.json; a folder brings its own.
        length: tokens in the context, the claimed length if None.
        dtype: the format that a folder's module is asked for.
        tolerance: radians that a phase may be off.
    """
    if not 0 < tolerance < math.inf:
        raise InputError(f"tolerance must be a positive number of radians, not {tolerance:g}")
    source = config or target
    if not config and not Path(target).is_dir():
        raise InputError("which configuration should it follow? give --config FILE")
    document = load(source)
    if document.kind == "gguf":
        raise InputError("--config wants a config.json, not a GGUF file")
    spec = registry.reference(source, document.config)
    readings = {n: registry.read(r, document.config) for n, r in registry.RUNTIMES.items()}
    mains = {name: reading.main for name, reading in readings.items()}
    others = {n: s for n, s in mains.items() if s and s.rotary_dim == spec.rotary_dim}
    expected = Expected(spec, length or spec.length, others)
    # The ends of both lengths are looked at too.
    ends = (spec.trained_len - 1, spec.trained_len, spec.trained_len + 1, expected.length - 1)
    places = sorted({p for p in (*PROBES, *ends) if 0 <= p < expected.length})
    if 1 not in places:
        raise InputError(f"a length of {expected.length} leaves no position to look at")
    observed = observe(target, spec, np.array(places, dtype=np.int64), dtype)
    return diagnose(observed, expected, tolerance)


def diagnose(observed: Observed, expected: Expected, tolerance: float) -> Check:
    if not observed.finite:
        return Check("tables hold numbers that are not finite", True, "see how they are made")
    spec = expected.spec
    wanted = "half" if spec.pairing == "half" else "adjacent"
    if observed.partner not in ("unknown", wanted):
        fix = f"pair {'i and i + d/2' if wanted == 'half' else '2i and 2i + 1'}"
        return Check(f"{observed.partner} pairing instead of {wanted}", True, fix)
    if wrong := wrong_start(observed, expected.inv_freq):
        return Check(wrong[0], True, wrong[1])
    found = frequencies(observed)
    rows = casts(observed, expected) if len(found) == spec.rotary_dim // 2 else []
    tables = {"casts": rows}
    # A cast that fits explains frequencies that are off, but for float32, which is no mistake.
    explained = bool(rows) and rows[0]["mean_difference"] < 1e-3 and rows[0]["cast"] != "float32"
    wrong = None if explained else wrong_frequencies(found, expected)
    wrong = wrong or wrong_gain(observed.gain, spec.attention_factor) or uneven_gain(observed)
    if wrong:
        return Check(wrong[0], True, wrong[1], tables)

    off = np.arctan2(observed.sin, observed.cos) - expected.inv_freq * observed.positions[:, None]
    errors = np.abs((off + np.pi) % (2 * np.pi) - np.pi).max(axis=1)
    beyond = np.flatnonzero(~(errors <= tolerance))
    if not rows:
        answer = f"cos and sin times {spec.attention_factor:g} overflow float32"
        return Check(answer, True, "a smaller attention factor")
    best = rows[0]["cast"]
    if not beyond.size:
        within = f"within {tolerance:g} rad up to position {observed.positions.max()}"
        return Check(f"{within}; nearest to {best}", False, rows=tables)
    first = int(observed.positions[beyond].min())
    off_by = f"off by {errors.max():.3g} rad, more than {tolerance:g} rad from position {first}"
    fix = "form angles in float32 and round only the table"
    return Check(f"{best}: {off_by}", True, fix, tables)


def wrong_frequencies(found: Pairs, expected: Expected) -> tuple[str, str] | None:
    spec, right = expected.spec, expected.inv_freq
    if len(found) != len(right):
        answer = f"{2 * len(found)} features rotate instead of {spec.rotary_dim}"
        return answer, f"rotate {spec.rotary_dim} features"
    if near(found, right):
        return None
    for answer, frequency in explanations(expected):
        if len(frequency) == len(found) and near(found, frequency):
            return answer, "compare ropelab audit on the configuration"
    for name in HALF_FORMATS:
        rounded = round_to(right, FORMATS[name])
        if np.allclose(found, rounded, rtol=2e-4, atol=1e-12):
            return f"inv_freq is rounded to {name}", "keep inv_freq in float32"

    # A geometric ladder with another slope has two causes: the base, or the width in the exponent.
    if (found > 0).all() and len(found) > 2:
        slope = np.polyfit(np.arange(len(found)), np.log(found), 1)[0]
        if near(found, np.exp(slope * np.arange(len(found)))):
            width = -2 * math.log(spec.base) / slope
            even = round(width / 2) * 2
            if math.isclose(width, even, rel_tol=1e-3) and width > spec.rotary_dim:
                answer = f"the exponent divides by {round(width)} instead of {spec.rotary_dim}"
                return answer, f"divide by the rotated width, {spec.rotary_dim}"
            base = float(f"{math.exp(-slope * spec.rotary_dim / 2):.4g}")
            return f"base {base:g} instead of {spec.base:g}", f"base {spec.base:g}"
    # Memory that nobody wrote is mostly zeros, or in no order.
    if (np.abs(found) < 1e-30).mean() > 0.5 or (np.diff(found) > 0).mean() > 0.25:
        answer = "the frequencies are no ladder that a configuration makes: uninitialised memory?"
        return answer, "build inv_freq after the weights are on their device"
    off = np.flatnonzero(~np.isclose(found, right, rtol=CLOSE, atol=1e-12))
    ratio = np.abs(found[off] / np.where(right[off] == 0, np.nan, right[off]))
    times = f", by factors from {np.nanmin(ratio):.4g} to {np.nanmax(ratio):.4g}"
    which = f"{len(off)} of {len(right)} frequencies are wrong, pairs {off[0]} to {off[-1]}"
    return f"{which}{times}; no known mistake explains them", "compare inv_freq pair by pair"


def wrong_start(observed: Observed, right: Pairs) -> tuple[str, str] | None:
    """Name what rotates position 0, which should stay: swapped tables, or shifted positions."""
    first = int(observed.positions.argmin())
    angles = np.arctan2(observed.sin[first], observed.cos[first])
    if observed.positions[first] != 0 or np.abs(angles).max() < CLOSE or len(angles) != len(right):
        return None
    if np.allclose(angles, np.pi / 2, atol=CLOSE):
        return "cos and sin are swapped", "return cos, then sin"
    # Pairs that are slow enough show the shift before a whole rotation.
    shift = round(float(np.median(angles[right > 0] / right[right > 0])))
    apart = np.angle(np.exp(1j * (angles - shift * right)))
    if shift and np.abs(apart).max() < CLOSE:
        return f"positions are shifted by {shift}", "count positions from 0"
    return None


def explanations(expected: Expected) -> Iterator[tuple[str, Pairs]]:
    """Yield mistakes with the frequencies that they give, the likeliest first."""
    spec, length, right = expected.spec, expected.length, expected.inv_freq
    plain = inverse_frequencies(spec.rotary_dim, spec.base)
    if isinstance(spec.scaling, LongRope):
        for name in ("short", "long"):
            divisors = np.array(getattr(spec.scaling, f"{name}_factor"))
            yield f"the {name} table is used at {length} tokens", plain / divisors
    if not isinstance(spec.scaling, Unscaled):
        yield f"the scaling is not applied: {spec.method} is missing", plain
        yield "the factor is applied twice", right**2 / plain
    yield "the rotation has the wrong sign", -right
    yield "rotated twice: every angle is doubled", 2 * right
    for trained in LENGTHS:
        if trained != spec.trained_len:
            other = replace(spec, trained_len=trained)
            yield f"original length {trained} instead of {spec.trained_len}", other.inv_freq(length)
    for name, other in expected.others.items():
        yield f"rotates as {name} does ({other.method})", other.inv_freq(length)


def near(one: Pairs, other: Pairs) -> bool:
    return bool(np.allclose(one, other, rtol=CLOSE, atol=1e-12))


def wrong_gain(gain: float, wanted: float) -> tuple[str, str] | None:
    for value, problem in (
        (wanted, None),
        (wanted**2, (f"the attention factor {wanted:.6g} is applied twice", "apply it once")),
        (1.0, (f"the attention factor {wanted:.6g} is missing", "multiply cos and sin")),
    ):
        if math.isclose(gain, value, rel_tol=CLOSE):
            return problem
    answer = f"cos and sin are multiplied by {gain:.6g} instead of {wanted:.6g}"
    return answer, f"attention factor {wanted:.6g}"


def uneven_gain(observed: Observed) -> tuple[str, str] | None:
    """Return the place where cos and sin are multiplied by another factor than elsewhere."""
    factors = np.hypot(observed.cos, observed.sin) / observed.gain
    place, pair = np.unravel_index(np.abs(factors - 1).argmax(), factors.shape)
    if abs(factors[place, pair] - 1) <= UNEVEN:
        return None
    where = f"pair {pair} at position {observed.positions[place]}"
    answer = f"cos and sin of {where} are {factors[place, pair]:.3g} times those elsewhere"
    return answer, "one factor for all pairs and positions"


def casts(observed: Observed, expected: Expected) -> list[dict[str, Any]]:
    """Return a row per cast plan, nearest first: mean distance of its tables from the observed."""
    spec = expected.spec
    spectrum = Spectrum(expected.inv_freq, spec.base, spec.rotary_dim)
    positions = observed.positions.astype(np.float64)
    rows: list[dict[str, Any]] = []
    for name, plan in plans().items():
        angles = Chain(plan, spectrum).angles(positions).T
        # Every observed number is finite, so that no plan overflows (float16 does at 65520).
        if not np.isfinite(angles).all():
            continue
        cos, sin = (
            round_to(spec.attention_factor * f(angles), plan.table) for f in (np.cos, np.sin)
        )
        apart = float(np.abs(observed.cos - cos).mean() + np.abs(observed.sin - sin).mean())
        if math.isfinite(apart):
            rows.append({"cast": name, "mean_difference": apart})
    return sorted(rows, key=lambda row: row["mean_difference"])


def plans() -> dict[str, CastPlan]:
    """Return float32 throughout, and the same with one or two stages in a smaller format."""
    stages: dict[str, Any] = dict.fromkeys(CASTS, FORMATS["float32"])
    clean = CastPlan(**stages, frequencies="float32_pow")
    found = {"float32": clean}
    for name in HALF_FORMATS:
        rounded: dict[str, tuple[str, ...]] = {stage: (stage,) for stage in CASTS}
        rounded |= {f"{stage} and table": (stage, "table") for stage in CASTS[:-1]}
        for what, chosen in {**rounded, "everything": CASTS}.items():
            changes: dict[str, Any] = dict.fromkeys(chosen, FORMATS[name])
            found[f"{what} in {name}"] = replace(clean, **changes)
    return found
