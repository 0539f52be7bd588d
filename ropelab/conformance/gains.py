"""Wrong factors on cos and sin.

cos and sin are both multiplied by the attention factor of the configuration, which is 1
for most models. The factor that a code (an implementation under test) has is called its
gain.
"""

import math
from collections.abc import Iterator

import numpy as np

from ropelab.conformance.angles import CLOSE
from ropelab.conformance.observation import Fault, Observed
from ropelab.math import scaling
from ropelab.math.scaling.stretching import magnitude
from ropelab.readers.spec import RopeSpec

# The largest share by which the factor of one pair may differ from the factor of all
# others. Rounding to 8 bits changes a factor by less.
LARGEST_UNEVENNESS = 0.1
# The last position at which a drift of the factor is looked for.
FARTHEST = 4096
# The fewest positions up to there that show a drift.
FEWEST_POSITIONS = 4
# The fewest positions with a larger factor that show how it grows.
FEWEST_GROWN = 3
NO_DRIFT = "rotate without a factor that depends on the position"


def explain_gain(gain: float, spec: RopeSpec) -> Fault | None:
    """Name another factor on cos and sin than the attention factor."""
    right_gain = spec.attention_factor
    if math.isclose(gain, right_gain, rel_tol=CLOSE):
        return None
    if math.isclose(gain, right_gain**2, rel_tol=CLOSE):
        return (
            f"the attention factor {right_gain:.6g} is applied twice",
            "apply it once",
        )
    if math.isclose(gain, 1.0, rel_tol=CLOSE):
        answer = f"the attention factor {right_gain:.6g} is missing"
        return answer, "multiply cos and sin"

    # Some code applies the factor of attention scores to its vectors.
    score_factors = {
        "1 / sqrt(d)": spec.head_dim**-0.5,
        "the root of 1 / sqrt(d)": spec.head_dim**-0.25,
    }
    for name, factor in score_factors.items():
        if math.isclose(gain, right_gain * factor, rel_tol=CLOSE):
            answer = f"{name} is folded into the vectors"
            return answer, "leave it to attention, or divide by it before the check"
    answer = f"cos and sin are multiplied by {gain:.6g} instead of {right_gain:.6g}"
    # So many factors are tried that each has to be nearer than the factors above.
    for reason, factor in list_wrong_factors(spec):
        if math.isclose(gain, factor, rel_tol=CLOSE / 2):
            answer += f", {reason}"
            break
    return answer, f"attention factor {right_gain:.6g}"


def list_wrong_factors(spec: RopeSpec) -> Iterator[tuple[str, float]]:
    """Yield reasons for a wrong attention factor, each with the factor that it gives."""
    right_gain = spec.attention_factor
    if right_gain > 0 and right_gain != 1:
        yield "its root", math.sqrt(right_gain)
        yield "its inverse", 1 / right_gain
    method = spec.scaling
    if isinstance(method, scaling.Yarn) and method.factor > 1:
        yarn_factor = magnitude(method.factor)
        formula = f"0.1 ln({method.factor:g}) + 1"
        yield f"which is {formula}, YaRN's factor without mscale", yarn_factor
        yield f"the square of {formula}", yarn_factor**2
        yield f"{formula} with log10 for ln", 0.1 * math.log10(method.factor) + 1
        yield f"{formula} with log2 for ln", 0.1 * math.log2(method.factor) + 1
        yield f"{formula} without the 1", yarn_factor - 1
        yield "the root of the scaling's factor", math.sqrt(method.factor)
    if isinstance(method, scaling.LongRope):
        yield from list_longrope_factors(spec)


def list_longrope_factors(spec: RopeSpec) -> Iterator[tuple[str, float]]:
    """Yield slips in LongRoPE's factor, sqrt(1 + ln(scale) / ln(original length))."""
    original, claimed = spec.trained_len, spec.length
    if not 1 < original < claimed:
        return
    stretch = math.log(claimed / original)
    yield (
        f"with the logarithm of {claimed} tokens in place of {original}",
        math.sqrt(1 + stretch / math.log(claimed)),
    )
    yield "without the root", 1 + stretch / math.log(original)
    yield "without the 1", math.sqrt(stretch / math.log(original))
    yield (
        "with log2 over ln",
        math.sqrt(1 + stretch / math.log(2) / math.log(original)),
    )
    yield "which is YaRN's", magnitude(claimed / original)


def explain_uneven_gain(observed: Observed) -> Fault | None:
    """Name the pair and position at which the factor differs most from the gain."""
    if not observed.gain:
        return "most of cos and sin are zero", "see how they are made"
    answer = explain_drift(observed)
    if answer:
        return answer, NO_DRIFT

    growth = explain_growing_factor(observed)
    if growth is not None:
        return growth

    factors = np.hypot(observed.cos, observed.sin) / observed.gain
    deviations = np.abs(factors - 1)
    row, pair = np.unravel_index(deviations.argmax(), factors.shape)
    factor = factors[row, pair]
    if abs(factor - 1) <= LARGEST_UNEVENNESS:
        return None
    where = f"pair {pair} at position {observed.positions[row]}"
    answer = f"cos and sin of {where} are {factor:.3g} times as long as elsewhere"
    return answer, "both of one angle, and one factor for all pairs and positions"


def explain_growing_factor(observed: Observed) -> tuple[str, str] | None:
    """Name a factor that all pairs share and that grows with the position, and the fix.

    Some attention multiplies queries by the logarithm of their position, beyond the
    trained length (Qwen's log n, Llama 4's temperature). None: there is none.
    """
    order = np.argsort(observed.positions)
    positions = observed.positions[order]
    factors = np.hypot(observed.cos, observed.sin)[order]  # [positions, pairs]
    if not factors.size or not (np.isfinite(factors) & (factors > 0)).all():
        return None

    means = factors.mean(axis=1)
    is_shared = np.ptp(factors, axis=1).max() <= LARGEST_UNEVENNESS / 2 * means.min()
    is_rising = (np.diff(means) >= -LARGEST_UNEVENNESS / 10).all()
    growth = means / means[0]
    grown = np.flatnonzero(growth > 1 + LARGEST_UNEVENNESS / 10)
    if not (is_shared and is_rising and growth[-1] > 1 + LARGEST_UNEVENNESS):
        return None

    answer = (
        f"cos and sin of all pairs are {growth[-1]:.3g} times as long at position"
        f" {positions[-1]} as at {positions[0]}"
    )
    if len(grown) >= 2 and np.ptp(growth[grown]) < LARGEST_UNEVENNESS:
        # One value from some position on. A factor of a scaling holds everywhere.
        before, after = positions[grown[0] - 1], positions[grown[0]]
        answer += f": a step between positions {before} and {after}"
        return answer, "one factor for all positions"

    logarithms = np.log(positions[grown].astype(np.float64))
    if len(grown) >= FEWEST_GROWN:
        slope, start = np.polyfit(logarithms, growth[grown], 1)
        errors = growth[grown] - start - slope * logarithms
        if np.abs(errors).max() < LARGEST_UNEVENNESS:
            answer += ": a factor that grows with the logarithm of the position"
    return answer, "rotate alone, and multiply scores where attention does"


def explain_drift(observed: Observed) -> str:
    """Name factors that grow or fall exponentially with the position.

    In xPos each pair has a different rate. The factors need not be 1 at position 0:
    xPos may count from the middle of the context. Empty: the factors do not drift.
    """
    is_near = (observed.positions > 0) & (observed.positions <= FARTHEST)
    positions = observed.positions[is_near]
    factors = np.hypot(observed.cos, observed.sin)[is_near]
    if len(positions) < FEWEST_POSITIONS or not factors.size:
        return ""
    is_usable = np.isfinite(factors) & (factors > 0)
    if not is_usable.all():
        return ""

    # The logarithm of a pair's factor is a straight line: its slope is the rate.
    logarithms = np.log(factors)  # [positions, pairs]
    rate_of_pair, start_of_pair = np.polyfit(positions, logarithms, 1)
    lines = start_of_pair + positions[:, None] * rate_of_pair
    largest_error = np.abs(logarithms - lines).max()
    largest_growth = np.abs(rate_of_pair).max() * np.ptp(positions)
    is_steady = largest_error < 1e-2 * largest_growth
    is_visible = largest_growth > 0.1
    if not (is_steady and is_visible):
        return ""
    if (rate_of_pair > 0).all():
        return "cos and sin grow with the position, as xPos makes them"
    if (rate_of_pair < 0).all():
        return "cos and sin fall with the position, as xPos makes them"
    if (rate_of_pair > 0).any() and (rate_of_pair < 0).any():
        return (
            "some pairs grow with the position and others fall, as where the rotation of"
            " one token is rounded and multiplied again and again"
        )
    return ""
