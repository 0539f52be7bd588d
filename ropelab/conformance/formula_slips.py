"""Formulas of frequencies with one slip, and the frequencies that they give.

Plain frequencies are base^(-2i/d) for pair i of d features. A scaling method divides
some or all frequencies; in YaRN and Llama 3 a ramp from 0 to 1 over the pairs says how
much of the division each pair gets.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ropelab.conformance.angles import CLOSE
from ropelab.conformance.expected import Expected
from ropelab.conformance.usual import FACTORS, USUAL
from ropelab.math import scaling
from ropelab.math.frequencies import Frequencies
from ropelab.runs.sentences import join_names, write_number

# Scaling methods that divide by a factor.
BY_FACTOR = (
    scaling.Llama3,
    scaling.Yarn,
    scaling.DynamicNtk,
    scaling.PositionInterpolation,
)
# Original lengths and bases that models often have.
LENGTHS = USUAL["lengths"]
BASES = USUAL["bases"]
# Sizes of the blocks of tokens by which tables and caches grow.
BLOCKS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
# beta_fast and beta_slow of YaRN: the defaults, and the values of published models.
BETAS = ((32.0, 1.0), (1.0, 1.0), (64.0, 1.0), (16.0, 1.0), (32.0, 2.0))
# The sentence that names a mistake, and the frequencies that it gives.
Explanation = tuple[str, Frequencies]


def are_near(measured: Frequencies, formula: Frequencies) -> bool:
    """Return True for frequencies that are equal but for rounding."""
    return bool(np.allclose(measured, formula, rtol=CLOSE, atol=1e-12))


def list_explanations(
    expected: Expected, measured: Frequencies
) -> Iterator[Explanation]:
    """Yield mistakes with the frequencies that they give, the likeliest first.

    ``measured``: the frequencies of a code, from which its base is estimated.
    """
    spec = expected.spec
    right = expected.inv_freq
    unscaled = spec.geometry.inv_freq

    # Mistakes that only this method allows, and rotations of other layers.
    if isinstance(spec.scaling, scaling.Proportional):
        moving = 2 * np.count_nonzero(right)
        yield f"{spec.rotary_dim} features rotate instead of {moving}", unscaled
    if isinstance(spec.scaling, scaling.DynamicNtk):
        yield from list_dynamic_slips(expected)
    for layer_type, other in expected.layers.items():
        rotation = f"base {write_number(other.base)}, {other.method}"
        answer = f"rotates as {layer_type} layers should ({rotation})"
        yield answer, other.inv_freq(expected.length)
    if isinstance(spec.scaling, scaling.LongRope):
        yield from list_wrong_longrope_tables(expected)

    # Steps of the method that are left out, or made in another way.
    yield from list_omissions(expected)
    if isinstance(spec.scaling, scaling.Llama3 | scaling.Yarn):
        yield from list_ramp_slips(expected)

    # Other numbers in the right formula.
    yield from list_other_parameters(expected)
    yield from list_other_orders(right)
    yield from list_other_lengths(expected)
    yield from list_other_bases(expected)
    yield from list_other_exponents(expected)
    yield from list_recovered_base(expected, measured)

    for runtime, other in expected.by_runtime.items():
        answer = f"rotates as {runtime} does ({other.method})"
        yield answer, other.inv_freq(expected.length)


def list_wrong_longrope_tables(expected: Expected) -> Iterator[Explanation]:
    """Yield LongRoPE's other table, and tables that multiply instead of dividing."""
    unscaled = expected.spec.geometry.inv_freq
    # One of the two tables is right at this length, and never explains an error.
    for name in ("short", "long"):
        divisors = np.array(getattr(expected.spec.scaling, f"{name}_factor"))
        answer = f"the {name} table is used at {expected.length} tokens"
        yield answer, unscaled / divisors
        yield f"the {name} table multiplies the frequencies", unscaled * divisors
        yield f"the {name} table is in reverse order", unscaled / divisors[::-1]


def list_omissions(expected: Expected) -> Iterator[Explanation]:
    """Yield a scaling that is missing, applied twice, or made for the whole head.

    Where only a part of the head rotates, YaRN's ramp must be made for this part.
    """
    spec = expected.spec
    right = expected.inv_freq
    unscaled = spec.geometry.inv_freq

    if not isinstance(spec.scaling, scaling.Unscaled):
        answer = f"the scaling is not applied: {spec.method} is missing"
        if not are_near(right, unscaled):
            answer += explain_no_scaling(expected)
        yield answer, unscaled
        yield "the factor is applied twice", expected.scale(right)
        yield "the factor is applied twice", right**2 / unscaled

    head = spec.head_dim
    width = spec.rotary_dim
    if isinstance(spec.scaling, scaling.Yarn) and head != width:
        answer = f"the ramp's ends come from {head} features instead of {width}"
        yield answer, make_ramp_of_width(expected, head)


def explain_no_scaling(expected: Expected) -> str:
    """Return another reason why a code may scale no pair; empty if there is none."""
    spec = expected.spec
    unscaled = spec.geometry.inv_freq
    if isinstance(spec.scaling, scaling.Yarn):
        widths = [spec.head_dim]
        # The rest of a head of latents is beside the part that rotates, and often twice
        # as wide. Models with such heads and YaRN rotate adjacent pairs.
        if spec.pairing == "interleaved":
            widths.append(3 * spec.rotary_dim)
        for width in widths:
            if are_near(make_ramp_of_width(expected, width), unscaled):
                return f", or the ramp's ends come from {width} features"
    if isinstance(spec.scaling, scaling.DynamicNtk):
        trained = spec.trained_len
        if trained < expected.length < 2 * trained:
            return f", or {expected.length} / {trained} is rounded down to 1"
    return ""


def make_ramp_of_width(expected: Expected, width: int) -> Frequencies:
    """Return the frequencies if YaRN's ramp is made for this number of features."""
    spec = expected.spec
    head = max(width, spec.head_dim)
    wide = replace(spec, head_dim=head, rotary_dim=width)
    shares = wide.inv_freq(expected.length) / wide.geometry.inv_freq
    unscaled = spec.geometry.inv_freq
    return unscaled * shares[: len(unscaled)]


def list_ramp_slips(expected: Expected) -> Iterator[Explanation]:
    """Yield a ramp that is inverted, left out, or not blended as it should be."""
    method = expected.spec.scaling
    right = expected.inv_freq
    assert isinstance(method, scaling.Llama3 | scaling.Yarn)
    if method.factor == 1:
        # Every blend of equal frequencies is the same.
        return

    unscaled = expected.spec.geometry.inv_freq
    divided = unscaled / method.factor
    inverted = unscaled + divided - right
    # A likely reason.
    remark = ""
    if isinstance(method, scaling.Llama3):
        remark = ", as happens where low_freq_factor and high_freq_factor are exchanged"
    answer = "the ramp is inverted: fast pairs are divided, slow ones kept"
    yield answer + remark, inverted
    yield f"all pairs are divided by {method.factor:g}", divided

    is_kept = np.isclose(right, unscaled, rtol=CLOSE)
    is_divided = np.isclose(right, divided, rtol=CLOSE)
    is_in_ramp = ~(is_kept | is_divided)
    ramp_kept = np.where(is_in_ramp, unscaled, right)
    yield f"pairs in the ramp are kept{remark}", ramp_kept
    ramp_divided = np.where(is_in_ramp, divided, right)
    yield f"pairs in the ramp are divided{remark}", ramp_divided
    ramp_inverted = np.where(is_in_ramp, inverted, right)
    yield "pairs in the ramp are blended backwards", ramp_inverted

    # The share of each pair that is not divided.
    kept_share = np.clip((right - divided) / (unscaled - divided), 0, 1)
    multiplied = kept_share * unscaled + (1 - kept_share) * unscaled * method.factor
    answer = f"slow pairs are multiplied by {method.factor:g} instead of divided"
    yield answer, multiplied

    for words, curved in (
        ("smoothly, as 3 s^2 - 2 s^3", kept_share**2 * (3 - 2 * kept_share)),
        ("as a cosine", (1 - np.cos(math.pi * kept_share)) / 2),
        ("as a square", kept_share**2),
        ("as a square", 1 - (1 - kept_share) ** 2),
        ("as a square root", np.sqrt(kept_share)),
        ("as a square root", 1 - np.sqrt(1 - kept_share)),
    ):
        answer = f"the ramp rises {words}, and not as a straight line"
        yield answer, curved * unscaled + (1 - curved) * divided

    geometric = unscaled**kept_share * divided ** (1 - kept_share)
    yield "pairs in the ramp have the geometric mean of both frequencies", geometric
    harmonic = 1 / (kept_share / unscaled + (1 - kept_share) / divided)
    yield "pairs in the ramp have the harmonic mean of both frequencies", harmonic

    if isinstance(method, scaling.Llama3):
        wavelengths = math.tau / unscaled
        trained = expected.spec.trained_len
        longest = trained / method.low_freq_factor
        shortest = trained / method.high_freq_factor
        kept_share = np.clip((longest - wavelengths) / (longest - shortest), 0, 1)
        answer = "the ramp is linear in the wavelength instead of the frequency"
        yield answer, kept_share * unscaled + (1 - kept_share) * divided


def list_other_parameters(expected: Expected) -> Iterator[Explanation]:
    """Yield other factors, and YaRN's ramp with its ends rounded or not rounded."""
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
    """Yield frequencies in another order, or with some frequencies repeated."""
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
    """Yield other original lengths. One of them is 2 pi times the right length."""
    spec = expected.spec
    # A code that takes 1 / frequency for a wavelength has 2 pi times the length in effect.
    without_2_pi = round(math.tau * spec.trained_len)
    for trained in (spec.length, without_2_pi, *LENGTHS):
        answer = f"original length {trained} instead of {spec.trained_len}"
        if trained == without_2_pi:
            answer = "the ramp's wavelengths lack their 2 pi"
        yield answer, replace(spec, trained_len=trained).inv_freq(expected.length)


def list_other_bases(expected: Expected) -> Iterator[Explanation]:
    """Yield the bases that models often have."""
    for base in BASES:
        yield explain_base(expected, base)


def explain_base(expected: Expected, base: float) -> Explanation:
    """Return the mistake of having this base."""
    spec = expected.spec
    answer = f"base {write_number(base)} instead of {write_number(spec.base)}"
    return answer, replace(spec, base=base).inv_freq(expected.length)


def list_other_exponents(expected: Expected) -> Iterator[Explanation]:
    """Yield exponents that divide by another number of features."""
    spec = expected.spec
    right = expected.inv_freq
    head = spec.head_dim
    width = spec.rotary_dim
    unscaled = spec.geometry.inv_freq
    # Multiples of the head up to the widths of hidden states, and twice, half and two
    # less than the right number.
    divisors = [*range(head, 129 * head, head), 2 * width, width // 2]
    divisors.append(max(width - 2, 1))
    moving = 2 * np.count_nonzero(right)
    if moving < width:
        divisors.append(moving)

    # Where a part of a head rotates, the frequencies of the whole head may be cut at the
    # wrong end.
    if head > width and isinstance(spec.scaling, scaling.Unscaled):
        whole = spec.base ** (-np.arange(0, head, 2) / head)
        slowest = whole[-len(unscaled) :]
        yield f"the slowest of the {len(whole)} frequencies of the whole head", slowest

    for divisor in divisors:
        power = width / divisor
        if isinstance(spec.scaling, scaling.DynamicNtk):
            # Dynamic scaling is another base, so that exponents have the same effect.
            frequencies = right**power
        else:
            frequencies = expected.scale(unscaled**power)
        yield f"the exponent divides by {divisor} instead of {width}", frequencies


def list_recovered_base(
    expected: Expected, measured: Frequencies
) -> Iterator[Explanation]:
    """Yield the base that the frequency of pair 1 has.

    YaRN and Llama 3 do not change this pair, since it is fast.
    """
    if not isinstance(expected.spec.scaling, scaling.Llama3 | scaling.Yarn):
        return
    # The smaller of the first two frequencies belongs to pair 1: base^(-2/d).
    frequency = max(abs(measured[:2].min()), 1e-300)
    digits = -expected.spec.rotary_dim / 2 * math.log10(frequency)
    if 1 < digits < 12:
        base = float(f"{10**digits:.3g}")
        yield explain_base(expected, base)


def list_dynamic_slips(expected: Expected) -> Iterator[Explanation]:
    """Yield slips in the formula of dynamic scaling.

    The method multiplies the base by a stretch that depends on the length.
    """
    spec = expected.spec
    length = expected.length
    dynamic = spec.scaling
    geometry = spec.geometry
    assert isinstance(dynamic, scaling.DynamicNtk)
    stretch = dynamic.stretch(geometry, length)
    for rounded, reasons in list_rounded_lengths(expected).items():
        answer = f"dynamic scaling sees {rounded} tokens, the next {reasons}"
        yield answer, spec.inv_freq(rounded)
    for tokens in LENGTHS:
        if tokens > spec.trained_len and tokens != length:
            answer = f"dynamic scaling has these frequencies at {tokens} tokens"
            yield answer, spec.inv_freq(tokens)

    def use_base(base: float) -> Frequencies:
        """Return the frequencies of another base, without dynamic scaling."""
        unscaled = replace(spec, base=base, scaling=scaling.Unscaled())
        return unscaled.inv_freq(length)

    # Inside the trained length the formula has that length.
    ratio = max(length / spec.trained_len, 1.0)
    answer = "dynamic scaling lacks its - (factor - 1)"
    if ratio == 1:
        answer += f", or NTK-aware scaling by {dynamic.factor:g} is always applied"
    yield answer, use_base(scaling.ntk_base(geometry, dynamic.factor * ratio))

    if length > spec.trained_len:
        answer = "dynamic scaling does not read its factor"
        yield answer, use_base(scaling.ntk_base(geometry, ratio))
        answer = f"NTK-aware scaling by {dynamic.factor:g}, whatever the length is"
        yield answer, use_base(scaling.ntk_base(geometry, dynamic.factor))

        for words, exponent in list_wrong_exponents(spec.rotary_dim):
            answer = f"the base's exponent is {words} instead of d / (d - 2)"
            yield answer, use_base(spec.base * stretch**exponent)
        answer = "the base is multiplied without the exponent d / (d - 2)"
        yield answer, use_base(spec.base * stretch)

        answer = f"frequencies are divided by {ratio:.4g}, as many times as the context"
        yield f"{answer} is longer", geometry.inv_freq / ratio
        divisor = 1 + dynamic.factor * (ratio - 1)
        answer = f"frequencies are divided by {divisor:.4g} instead of another base"
        yield answer, geometry.inv_freq / divisor


def list_rounded_lengths(expected: Expected) -> dict[int, str]:
    """Return the lengths to which code may round a length up, with the reasons in words.

    Code that grows a table rounds up to a power of two, or to whole blocks of tokens.
    Several of these may give one length, which does not tell them apart.
    """
    length = expected.length
    blocks_by_length: dict[int, list[str]] = {}
    for block in sorted({expected.spec.trained_len, *BLOCKS}):
        rounded = -(-length // block) * block
        blocks_by_length.setdefault(rounded, []).append(str(block))
    reasons = {}
    for rounded, blocks in blocks_by_length.items():
        reasons[rounded] = f"multiple of {join_names(blocks, 'or')}"

    power = 1 << (length - 1).bit_length()
    reason = "power of two"
    if power in reasons:
        reason += f" or {reasons[power]}"
    reasons[power] = reason
    # A length that is rounded to itself changes nothing.
    reasons.pop(length, None)
    return reasons


def list_wrong_exponents(d: int) -> Iterator[tuple[str, float]]:
    """Yield what code may have for the exponent d / (d - 2), in words and as a number.

    ``d``: the number of features that rotate.
    """
    yield "d / (d - 1)", d / (d - 1)
    yield "(d - 2) / d", (d - 2) / d
    if d > 4:
        # The number of pairs in the place of the number of features.
        yield "d / 2 / (d / 2 - 2)", d / (d - 4)
