"""Precision errors reported in issue trackers, with the printed numbers measured again."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

import numpy as np
import pandas as pd

from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.numerics.angle_errors import worst, wrapped
from ropelab.math.numerics.casts import CastPlan, parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum, span
from ropelab.math.numerics.encoding import PositionEncoding
from ropelab.math.numerics.formats import spacing
from ropelab.math.numerics.resolution import take_census


class Match(StrEnum):
    """Whether a printed number was measured again."""

    AGREES = "agrees"
    DIFFERS = "differs"


def agrees(printed: str, ours: float) -> bool:
    """Return True if ours rounds to a printed number, to within half of its last digit.

    >>> agrees("1045", 1044.6), agrees("1045.0", 1044.6)
    (True, False)
    """
    digits = Decimal(printed)
    unit = Decimal(1).scaleb(int(digits.as_tuple().exponent))
    return abs(Decimal(ours) - digits) <= unit / 2 * Decimal("1.001")


@dataclass(frozen=True)
class Incident:
    """A report: the casts and positions that it is about, and the numbers that it prints.

    printed: measure, its arguments (position, then pair), and the digits as printed.
    """

    source: str
    cast: str
    base: float
    rotary_dim: int
    offset: int
    length: int
    printed: tuple[tuple[str, tuple[int, ...], str], ...]

    @property
    def chain(self) -> Chain:
        """The frequencies under the casts of the report."""
        return Chain(parse_cast(self.cast), self.exact.spectrum)

    @property
    def exact(self) -> Chain:
        """The frequencies without any cast."""
        frequencies = inverse_frequencies(self.rotary_dim, self.base)
        return Chain(CastPlan(), Spectrum(frequencies, self.base, self.rotary_dim))

    @property
    def positions(self) -> np.ndarray:
        """The positions offset .. offset + length - 1."""
        return span(self.offset, self.offset + self.length)


_BFLOAT16 = "all=bfloat16,frequencies=float32_pow"
_MODALITIES = "https://github.com/Modalities/modalities/pull/462"
_INV_FREQ = "position=float32,inv_freq=bfloat16,angle=float32,table=bfloat16"

INCIDENTS = (
    # "qwen2: build RoPE cos/sin tables in fp32": positions and frequencies cast to bfloat16. The
    # neighbours of position 15962 are given as 15936 and 15968, 16 apart, with two cosines.
    Incident(
        "https://github.com/huggingface/candle/pull/3520", _BFLOAT16, 1e6, 128, 0, 32768,
        (
            ("stored_position", (15962,), "15936"),
            ("stored_position", (15968,), "15968"),
            ("position_step", (15962,), "16"),
            ("exact_cos", (15962, 0), "-0.547"),
            ("exact_cos", (15968, 0), "-0.882"),
        ),
    ),
    # "Ideogram4MRoPE breaks under torch.autocast: all image positions collapse": image tokens start
    # at position 65536 and the product runs in bfloat16; said to become 65536, up to 512 of them.
    Incident(
        "https://github.com/huggingface/diffusers/issues/13920", _BFLOAT16, 1e4, 128, 65536, 512,
        (
            ("position_step", (65536,), "512"),
            ("stored_position", (65792,), "65536"),
            ("stored_position", (65793,), "65536"),
            ("distinct_positions", (), "1"),
        ),
    ),
    # "RotaryEmbedding computation is wrong for certain position/feature pairs in reduced
    # precision": positions, frequencies, angles and tables all in the model's float16.
    Incident(
        "https://github.com/EleutherAI/gpt-neox/issues/1003",
        "all=float16,frequencies=float32_pow", 1e4, 32, 0, 2048,
        (
            ("exact_angle", (1857, 1), "1044.2678"),
            ("stored_angle", (1857, 1), "1045."),
            ("max_cos_error", (), "0.7819"),
        ),
    ),
    # "Fix RoPE precision for long context (>262K)" says that with float16 rotation adjacent
    # positions become identical there. They do not: the fast pairs keep them apart.
    Incident(
        "https://github.com/ml-explore/mlx-lm/pull/1076",
        "position=float32,inv_freq=float32,angle=float32,table=float16,rotation=float16,"
        "score=float16",
        1e7, 64, 262144, 131072,
        (("adjacent_collisions", (), "131071"),),
    ),
    # "Fix rotary frequency precision": inv_freq cast to bfloat16 before it is multiplied; the phase
    # of the tables at two lengths, and after the fix, with only the table in bfloat16.
    Incident(_MODALITIES, _INV_FREQ, 1e4, 128, 0, 512, (("max_phase_error", (), "6.2e-1"),)),
    Incident(_MODALITIES, _INV_FREQ, 1e4, 128, 0, 2048, (("max_phase_error", (), "2.5"),)),
    Incident(
        _MODALITIES,
        "position=float32,inv_freq=float32,angle=float32,frequencies=float32_pow,table=bfloat16",
        1e4, 128, 0, 4096,
        (("max_phase_error", (), "2.8e-3"),),
    ),
    # "Pin the float32 precision of the attention-plugin rotary table": inv_freq rounded to float32,
    # everything else exact; "about a milliradian at 32k".
    Incident(
        "https://github.com/NVIDIA/TensorRT-LLM/pull/18774",
        "inv_freq=float32", 1e4, 128, 0, 32768,
        (("max_angle_error", (), "1e-3"),),
    ),
    # "RoPE corruption due to TF32": angles by a float32 matmul that the GPU ran in TF32.
    Incident(
        "https://github.com/huggingface/transformers/issues/48428",
        "position=tf32,inv_freq=tf32,angle=float32,frequencies=float32_pow,"
        "table=bfloat16,rotation=bfloat16,score=bfloat16",
        1e6, 128, 0, 8192,
        (("stored_position", (2048,), "2048"), ("stored_position", (2049,), "2048")),
    ),
)  # fmt: skip


def _at(position: int) -> np.ndarray:
    return np.array([position], dtype=np.float64)


def _angle(chain: Chain, position: int, pair: int) -> float:
    return float(chain.angles(_at(position))[pair, 0])


def _census(of: Incident, count: str) -> int:
    encoding = PositionEncoding(of.chain, "vector", range(of.chain.spectrum.pairs))
    census = take_census(encoding, [of.chain.plan.table], of.offset, of.length)[0]
    return int(getattr(census, count))


def _max_cos_error(of: Incident) -> float:
    (ours, _), (exact, _) = of.chain.table(of.positions), of.exact.table(of.positions)
    return float(np.abs(ours - exact).max())


def _max_phase_error(of: Incident) -> float:
    cos, sin = of.chain.table(of.positions)
    return float(wrapped(np.arctan2(sin, cos) - of.exact.angles(of.positions)).max())


# measure -> meaning, and its value for an incident, a position and a pair
MEASURES: dict[str, tuple[str, Callable[..., float]]] = {
    "stored_position": (
        "the position as stored",
        lambda of, position: float(of.chain.positions(_at(position))[0]),
    ),
    "position_step": (
        "step of the position's format there",
        lambda of, position: float(spacing(_at(position), of.chain.plan.position)[0]),
    ),
    "stored_angle": ("the angle as stored, in radians", lambda of, *at: _angle(of.chain, *at)),
    "exact_angle": ("the angle in float64, in radians", lambda of, *at: _angle(of.exact, *at)),
    "exact_cos": ("the cosine in float64", lambda of, *at: float(np.cos(_angle(of.exact, *at)))),
    "distinct_positions": ("different codes in the range", lambda of: _census(of, "distinct")),
    "adjacent_collisions": (
        "neighbours with the same code",
        lambda of: _census(of, "adjacent_collisions"),
    ),
    "max_angle_error": (
        "largest angle error, in radians",
        lambda of: worst(of.chain, of.offset, of.length).error_rad,
    ),
    "max_phase_error": (
        "largest angle between a stored (cos, sin) and the exact one",
        _max_phase_error,
    ),
    "max_cos_error": ("largest error of a stored cos", _max_cos_error),
}


def incidents() -> pd.DataFrame:
    """Return a row per printed number, ours beside it; takes about 0.04 s."""
    rows = []
    for incident in INCIDENTS:
        for name, arguments, printed in incident.printed:
            meaning, measure = MEASURES[name]
            ours = measure(incident, *arguments)
            inside = f"({','.join(map(str, arguments))})" if arguments else ""
            rows.append(
                {
                    "source": incident.source,
                    "plan": incident.chain.plan.label,
                    "measure": f"{name}{inside}",
                    "meaning": meaning,
                    "reported": float(printed),
                    "ours": ours,
                    "verdict": str(Match.AGREES if agrees(printed, ours) else Match.DIFFERS),
                }
            )
    return pd.DataFrame(rows)
