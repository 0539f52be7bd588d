"""The commonest mistakes of rotary codes, each as the rotation that it computes."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ropelab.audit.expected import Pairs, Table
from ropelab.audit.rotations import SHAPES, Positions, Rotated, Shape, Vectors, layout
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.rotary import Pairing
from ropelab.math.scaling import Unscaled


@dataclass(frozen=True)
class Rotation:
    """A rotary code in float64, right or with one mistake."""

    inv_freq: Pairs
    factor: float
    pairing: Pairing
    start: int = 0  # first feature of the rotated block
    shift: int = 0  # of positions
    angle_format: str = "float64"
    swapped: bool = False  # cos and sin
    shape: Shape = field(default=lambda c, s: (c, -s, s, c))

    def tables(self, positions: Positions) -> tuple[Table, Table]:
        """Return cos and sin, the factor included."""
        angles = (positions + self.shift).astype(np.float64)[:, None] * self.inv_freq
        angles = round_to(angles, FORMATS[self.angle_format])
        cos, sin = self.factor * np.cos(angles), self.factor * np.sin(angles)
        return (sin, cos) if self.swapped else (cos, sin)

    def applied(self, vectors: Vectors, positions: Positions) -> Rotated:
        """Return the vectors rotated at each position."""
        first, second = layout(self.pairing, 2 * len(self.inv_freq), self.start)
        a, b, c, d = (part[:, None] for part in self.shape(*self.tables(positions)))
        result = np.repeat(vectors[None], len(positions), axis=0)
        x, y = vectors[:, first], vectors[:, second]
        result[:, :, first], result[:, :, second] = a * x + b * y, c * x + d * y
        return result


def right(spec: RopeSpec, length: int) -> Rotation:
    """Return the rotation that a configuration asks for while ``length`` tokens are in context."""
    return Rotation(spec.inv_freq(length), spec.attention_factor, spec.pairing)


def mistaken(spec: RopeSpec, length: int) -> Iterator[tuple[str, str, Rotation]]:
    """Yield name, sentence and rotation of each mistake that changes this configuration's."""
    good, width, base = right(spec, length), spec.rotary_dim, spec.base
    plain, theta = inverse_frequencies(width, base), good.inv_freq
    other: Pairing = "interleaved" if spec.pairing == "half" else "half"
    says = "{} pairing instead of {}".format(*("adjacent", "half")[:: 1 if other != "half" else -1])
    yield "pairing", says, replace(good, pairing=other)
    yield "direction", "the rotation has the wrong sign", replace(good, inv_freq=-theta)
    for name in ("minus", "overwritten"):
        says, _, shape = SHAPES[name]
        yield name, says, replace(good, shape=shape)
    yield "shifted", "positions are shifted by 1", replace(good, shift=1)
    yield "swapped", "cos and sin are swapped", replace(good, swapped=True)
    yield "twice", "rotated twice: every angle is doubled", replace(good, inv_freq=2 * theta)
    wrong = 10000.0 if base != 10000.0 else 500000.0
    rebased = replace(spec, base=wrong).inv_freq(length)
    yield "base", f"base {wrong:g} instead of {base:g}", replace(good, inv_freq=rebased)
    rounded = round_to(theta, FORMATS["bfloat16"])
    yield "frequencies", "inv_freq in bfloat16", replace(good, inv_freq=rounded)
    yield "angles", "angle in bfloat16", replace(good, angle_format="bfloat16")
    if isinstance(spec.scaling, Unscaled):
        says = f"the exponent divides by {2 * width} instead of {width}"
        yield "exponent", says, replace(good, inv_freq=np.sqrt(plain))
    elif not np.allclose(theta, plain):
        says = f"the scaling is not applied: {spec.method} is missing"
        yield "unscaled", says, replace(good, inv_freq=plain)
        yield (
            "scaled_twice",
            "the factor is applied twice",
            replace(good, inv_freq=theta**2 / plain),
        )
    if spec.attention_factor != 1:
        says = f"the attention factor {spec.attention_factor:.6g} is missing"
        yield "factor", says, replace(good, factor=1.0)
    if (head := spec.head_dim) > width:
        says = f"features {head - width} to {head - 1} rotate instead of 0 to {width - 1}"
        yield "place", says, replace(good, start=head - width)
        says = f"{head} features rotate instead of {width}"
        yield "whole_head", says, replace(good, inv_freq=inverse_frequencies(head, base))
