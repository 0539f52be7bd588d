"""The commonest mistakes of rotary codes, each as the rotation that it computes."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ropelab.conformance.blocks import SHAPES
from ropelab.conformance.expected import Expected, Rotation
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.rotary import Pairing
from ropelab.math.scaling import Unscaled
from ropelab.runs.sentences import write_number


def list_mistakes(expected: Expected) -> Iterator[tuple[str, str, Rotation]]:
    """Yield name, sentence and rotation of each mistake.

    Mistakes that do not change the rotation of this configuration are left out.
    """
    spec = expected.spec
    good = expected.rotation
    width = spec.rotary_dim
    base = spec.base
    plain = inverse_frequencies(width, base)
    theta = good.inv_freq

    other: Pairing = "half"
    says = "half pairing instead of adjacent"
    if spec.pairing == "half":
        other = "interleaved"
        says = "adjacent pairing instead of half"
    yield "pairing", says, replace(good, pairing=other)
    yield "direction", "the rotation has the wrong sign", replace(good, inv_freq=-theta)
    for name in ("minus", "overwritten"):
        says, _, shape = SHAPES[name]
        yield name, says, replace(good, shape=shape)
    yield "shifted", "positions are shifted by 1", replace(good, shift=1)
    yield "swapped", "cos and sin are swapped", replace(good, swapped=True)
    says = "rotated twice: every angle is doubled"
    yield "twice", says, replace(good, inv_freq=2 * theta)

    wrong = 10000.0 if base != 10000.0 else 500000.0
    rebased = replace(spec, base=wrong).inv_freq(expected.length)
    says = f"base {write_number(wrong)} instead of {write_number(base)}"
    yield "base", says, replace(good, inv_freq=rebased)
    rounded = round_to(theta, FORMATS["bfloat16"])
    yield "frequencies", "inv_freq in bfloat16", replace(good, inv_freq=rounded)
    yield "angles", "angle in bfloat16", replace(good, angle_format="bfloat16")

    if isinstance(spec.scaling, Unscaled):
        says = f"the exponent divides by {2 * width} instead of {width}"
        yield "exponent", says, replace(good, inv_freq=np.sqrt(plain))
    elif not np.allclose(theta, plain):
        says = f"the scaling is not applied: {spec.method} is missing"
        yield "unscaled", says, replace(good, inv_freq=plain)
        twice = replace(good, inv_freq=expected.scale(theta))
        yield "scaled_twice", "the factor is applied twice", twice
    if spec.attention_factor != 1:
        says = f"the attention factor {spec.attention_factor:.6g} is missing"
        yield "factor", says, replace(good, factor=1.0)

    head = spec.head_dim
    if head > width:
        # The block at the other end of the head.
        start = head - width if spec.place == 0 else 0
        says = (
            f"features {start} to {start + width - 1} rotate instead of"
            f" {spec.place} to {spec.rotated[-1]}"
        )
        yield "place", says, replace(good, start=start)
        says = f"{head} features rotate instead of {width}"
        whole = replace(good, inv_freq=inverse_frequencies(head, base), start=0)
        yield "whole_head", says, whole
