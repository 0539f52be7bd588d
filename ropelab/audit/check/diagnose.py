"""What explains the difference between what a code does and what it should do."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ropelab.audit.check.observed import Observed, frequencies
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.casts import STAGES, CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.scaling import LongRope

CLOSE = 2e-3
"""Relative: what a table in bfloat16 leaves of a frequency that is read from it."""

HALF_FORMATS = ("bfloat16", "float16", "tf32")
LENGTHS = tuple(2**k for k in range(9, 21))
CASTS = STAGES[:4]
"""The stages that a table shows: position, inv_freq, angle, table."""


@dataclass(frozen=True)
class Verdict:
    """One sentence, whether something is wrong, and how far a phase is off."""

    says: str
    wrong: bool
    fix: str = ""


def ladder(
    spec: RopeSpec, length: int, others: Mapping[str, RopeSpec]
) -> Iterator[tuple[str, Any]]:
    """Explanations of other frequencies, the likeliest first: a sentence and the frequencies."""
    right = spec.inv_freq(length)
    plain = inverse_frequencies(spec.rotary_dim, spec.base)
    if isinstance(spec.scaling, LongRope):
        for name, values in (
            ("short", spec.scaling.short_factor),
            ("long", spec.scaling.long_factor),
        ):
            yield f"the {name} table is used at {length} tokens", plain / np.array(values)
    if spec.scaling.name != "unscaled":
        yield f"the scaling is not applied: {spec.method} is missing", plain
        yield "the factor is applied twice", right**2 / plain
    yield "rotated twice: every angle is doubled", 2 * right
    for trained in LENGTHS:
        if trained != spec.trained_len:
            other = replace(spec, trained_len=trained)
            yield f"original length {trained} instead of {spec.trained_len}", other.inv_freq(length)
    for name, other in others.items():
        yield f"turns as {name} does ({other.method})", other.inv_freq(length)


def wrong_frequencies(
    found: Float[np.ndarray, " pairs"],
    spec: RopeSpec,
    length: int,
    others: Mapping[str, RopeSpec],
) -> Verdict | None:
    """The verdict on the frequencies, None where they are right."""
    right = spec.inv_freq(length)
    if len(found) != len(right):
        return Verdict(_width(found, spec), True, f"rotate {spec.rotary_dim} features")
    if near(found, right):
        return None
    for says, frequency in ladder(spec, length, others):
        if len(frequency) == len(found) and near(found, frequency):
            return Verdict(says, True, "compare ropelab audit on the configuration")
    return Verdict(*_free_fit(found, spec, length))


def near(one: Float[np.ndarray, " pairs"], other: Float[np.ndarray, " pairs"]) -> bool:
    """Equal up to what a rounded table leaves of a frequency."""
    return bool(np.allclose(one, other, rtol=CLOSE, atol=1e-12))


def _width(found: Float[np.ndarray, " pairs"], spec: RopeSpec) -> str:
    return f"{2 * len(found)} features turn instead of {spec.rotary_dim}"


def _free_fit(
    found: Float[np.ndarray, " pairs"], spec: RopeSpec, length: int
) -> tuple[str, bool, str]:
    """A geometric ladder with another slope, or no ladder at all."""
    for name in HALF_FORMATS:
        rounded = round_to(spec.inv_freq(length), FORMATS[name])
        if np.allclose(found, rounded, rtol=2e-4, atol=1e-12):
            return f"inv_freq is rounded to {name}", True, "keep inv_freq in float32"
    if (found > 0).all() and len(found) > 2:
        slope = np.polyfit(np.arange(len(found)), np.log(found), 1)[0]
        fitted = np.exp(slope * np.arange(len(found)))
        if near(found, fitted):
            return _slope(-slope, spec)
    says = "the frequencies are no ladder that a configuration makes: uninitialised memory?"
    return says, True, "build inv_freq after the weights are on their device"


def _slope(slope: float, spec: RopeSpec) -> tuple[str, bool, str]:
    """One number, two causes: the base, or the width in the exponent."""
    width = 2 * math.log(spec.base) / slope
    if math.isclose(width, round(width / 2) * 2, rel_tol=1e-3) and width > spec.rotary_dim:
        says = f"the exponent divides by {round(width)} instead of {spec.rotary_dim}"
        return says, True, f"divide by the rotated width, {spec.rotary_dim}"
    base = float(f"{math.exp(slope * spec.rotary_dim / 2):.4g}")
    return f"base {base:g} instead of {spec.base:g}", True, f"base {spec.base:g}"


def wrong_gain(gain: float, spec: RopeSpec) -> Verdict | None:
    """The verdict on the factor on cos and sin."""
    wanted = spec.attention_factor
    if math.isclose(gain, wanted, rel_tol=CLOSE):
        return None
    if math.isclose(gain, wanted**2, rel_tol=CLOSE):
        return Verdict(f"the attention factor {wanted:.6g} is applied twice", True, "apply it once")
    if math.isclose(gain, 1.0, rel_tol=CLOSE):
        return Verdict(
            f"the attention factor {wanted:.6g} is missing", True, "multiply cos and sin"
        )
    says = f"cos and sin are multiplied by {gain:.6g} instead of {wanted:.6g}"
    return Verdict(says, True, f"attention factor {wanted:.6g}")


def casts(observed: Observed, spec: RopeSpec, length: int) -> list[dict[str, Any]]:
    """A row per cast plan, nearest first: how far its tables are from the observed ones.

    A plan with a format that ends before the positions or the attention factor do (float16 at
    65520) is left out: what was observed is finite.
    """
    spectrum = Spectrum(spec.inv_freq(length), spec.base, spec.rotary_dim)
    positions = observed.positions.astype(np.float64)
    rows: list[dict[str, Any]] = []
    for name, plan in plans().items():
        angles = Chain(plan, spectrum).angles(positions).T
        if np.isfinite(angles).all():
            rows.append({"cast": name, "mean_difference": _apart(plan, angles, observed, spec)})
    rows = [row for row in rows if math.isfinite(row["mean_difference"])]
    return sorted(rows, key=lambda row: row["mean_difference"])


def _apart(
    plan: CastPlan, angles: Float[np.ndarray, "n pairs"], observed: Observed, spec: RopeSpec
) -> float:
    """How far cos and sin of these angles, times the attention factor, are from the observed."""
    gain = spec.attention_factor
    cos, sin = (round_to(gain * trig(angles), plan.table) for trig in (np.cos, np.sin))
    return float(np.abs(observed.cos - cos).mean() + np.abs(observed.sin - sin).mean())


def plans() -> dict[str, CastPlan]:
    """float32 throughout, and the same with one or two stages in a smaller format."""
    clean = CastPlan(
        position=FORMATS["float32"],
        inv_freq=FORMATS["float32"],
        angle=FORMATS["float32"],
        table=FORMATS["float32"],
        frequencies="float32_pow",
    )
    found = {"float32": clean}
    for name in HALF_FORMATS:
        fmt = FORMATS[name]
        for stage in CASTS:
            changes: dict[str, Any] = {stage: fmt}
            found[f"{stage} in {name}"] = replace(clean, **changes)
            if stage != "table":
                found[f"{stage} and table in {name}"] = replace(clean, **changes, table=fmt)
        everything: dict[str, Any] = dict.fromkeys(CASTS, fmt)
        found[f"everything in {name}"] = replace(clean, **everything)
    return found


def phase_errors(observed: Observed, spec: RopeSpec, length: int) -> Float[np.ndarray, " n"]:
    """The largest angle by which a pair is off, per position, in radians."""
    exact = spec.inv_freq(length) * observed.positions[:, None]
    off = np.arctan2(observed.sin, observed.cos) - exact
    return np.abs((off + np.pi) % (2 * np.pi) - np.pi).max(axis=1)


def wrong_cast(
    observed: Observed, spec: RopeSpec, length: int, tolerance: float
) -> tuple[Verdict, list[dict[str, Any]]]:
    """The verdict on formats: fine within the tolerance, else the stage that explains the error."""
    rows = casts(observed, spec, length)
    errors = phase_errors(observed, spec, length)
    beyond = np.flatnonzero(~(errors <= tolerance))
    best = rows[0]["cast"]
    if not beyond.size:
        says = f"within {tolerance:g} rad up to position {observed.positions.max()}"
        return Verdict(f"{says}; nearest to {best}", False), rows
    first = int(observed.positions[beyond].min())
    worst = f"off by {errors.max():.3g} rad, more than {tolerance:g} rad from position {first}"
    return Verdict(
        f"{best}: {worst}", True, "form angles in float32 and round only the table"
    ), rows


def diagnose(
    observed: Observed,
    spec: RopeSpec,
    length: int,
    others: Mapping[str, RopeSpec],
    tolerance: float,
) -> tuple[Verdict, list[dict[str, Any]]]:
    """The first thing that is wrong, in the order in which the stages follow each other."""
    if not observed.finite:
        return Verdict("tables hold numbers that are not finite", True, "see how they are made"), []
    if (wrong := wrong_pairing(observed, spec)) is not None:
        return wrong, []
    found = frequencies(observed)
    rows = casts(observed, spec, length) if len(found) == spec.rotary_dim // 2 else []
    explained = bool(rows) and rows[0]["mean_difference"] < 1e-3 and rows[0]["cast"] != "float32"
    if not explained and (bad := wrong_frequencies(found, spec, length, others)) is not None:
        return bad, rows
    if (bad := wrong_gain(observed.gain, spec)) is not None:
        return bad, rows
    return wrong_cast(observed, spec, length, tolerance)


def wrong_pairing(observed: Observed, spec: RopeSpec) -> Verdict | None:
    """The verdict on which features form a pair."""
    wanted = "half" if spec.pairing == "half" else "adjacent"
    if observed.partner in ("unknown", wanted):
        return None
    says = f"{observed.partner} pairing instead of {wanted}"
    return Verdict(says, True, f"pair {'i and i + d/2' if wanted == 'half' else '2i and 2i + 1'}")
