"""The commonest mistakes of rotary codes, each as the rotation that it computes.

`ropelab vectors` writes what they compute, so that a test can name the mistake of an
engine.
"""

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
    right = expected.rotation
    width = spec.rotary_dim
    base = spec.base
    unscaled = inverse_frequencies(width, base)
    inv_freq = right.inv_freq

    other_pairing: Pairing = "half"
    says = "half pairing instead of adjacent"
    if spec.pairing == "half":
        other_pairing = "interleaved"
        says = "adjacent pairing instead of half"
    yield "pairing", says, replace(right, pairing=other_pairing)
    says = "the rotation has the wrong sign"
    yield "direction", says, replace(right, inv_freq=-inv_freq)
    for name in ("minus", "overwritten"):
        says, _, shape = SHAPES[name]
        yield name, says, replace(right, shape=shape)
    yield "shifted", "positions are shifted by 1", replace(right, shift=1)
    yield "swapped", "cos and sin are swapped", replace(right, swapped=True)
    says = "rotated twice: every angle is doubled"
    yield "twice", says, replace(right, inv_freq=2 * inv_freq)

    other_base = 10000.0 if base != 10000.0 else 500000.0
    inv_freq_of_other_base = replace(spec, base=other_base).inv_freq(expected.length)
    says = f"base {write_number(other_base)} instead of {write_number(base)}"
    yield "base", says, replace(right, inv_freq=inv_freq_of_other_base)
    rounded = round_to(inv_freq, FORMATS["bfloat16"])
    yield "frequencies", "inv_freq in bfloat16", replace(right, inv_freq=rounded)
    yield "angles", "angle in bfloat16", replace(right, angle_format="bfloat16")

    if isinstance(spec.scaling, Unscaled):
        says = f"the exponent divides by {2 * width} instead of {width}"
        yield "exponent", says, replace(right, inv_freq=np.sqrt(unscaled))
    elif not np.allclose(inv_freq, unscaled):
        says = f"the scaling is not applied: {spec.method} is missing"
        yield "unscaled", says, replace(right, inv_freq=unscaled)
        twice = replace(right, inv_freq=expected.scale(inv_freq))
        yield "scaled_twice", "the factor is applied twice", twice
    if spec.attention_factor != 1:
        says = f"the attention factor {spec.attention_factor:.6g} is missing"
        yield "factor", says, replace(right, factor=1.0)

    head = spec.head_dim
    if head > width:
        # By mistake the features at the other end of the head rotate.
        start = head - width if spec.place == 0 else 0
        says = (
            f"features {start} to {start + width - 1} rotate instead of"
            f" {spec.place} to {spec.rotated[-1]}"
        )
        yield "place", says, replace(right, start=start)
        says = f"{head} features rotate instead of {width}"
        of_head = inverse_frequencies(head, base)
        yield "whole_head", says, replace(right, inv_freq=of_head, start=0)
