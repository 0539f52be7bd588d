"""Claims about the angles of one slow frequency, and about the hands of a clock."""

import math
from functools import partial

import numpy as np
from jaxtyping import Float

from ropelab.claims.numbers import Array, frequencies, tiny
from ropelab.claims.record import Claim, Evidence, Passage, limit, part

PERIOD = 1_000_000.0
HEAD, BASE = 64, 1e6
MORE = "ropelab precision --period 1e6 --base 1e6"
HANDS = (60, 3600, 43200)
"""Seconds in which the three hands of a clock go round."""


def cos_of_neighbours(*, period: float = PERIOD, dtype: str = "float32") -> Evidence:
    """cos at positions 0 and 1, in float64 and in the format."""
    printed_cos, printed_difference = 0.999999999980261, 1.97e-11
    theta = 2 * math.pi / period
    cosine, difference = math.cos(theta), 2 * math.sin(theta / 2) ** 2
    stored = np.cos(np.array([0, theta])).astype(dtype)
    return Evidence(
        expected=f"{printed_cos:.15f}, {printed_difference:g}, and 1.0 twice",
        findings=(
            part("cos at 1", f"{cosine:.15f}", abs(cosine - printed_cos) < 1e-15, cosine),
            part(
                "cos at 0 minus cos at 1",
                f"{difference:.4e}",
                abs(difference - printed_difference) <= 0.005e-11,
                difference,
            ),
            part(
                f"the two in {dtype}",
                " and ".join(f"{float(value):.10g}" for value in stored),
                bool((stored == 1).all()),
            ),
        ),
    )


def degrees_of_one_step(*, period: float = PERIOD, printed: float = 0.00000628) -> Evidence:
    """The angle of one step, in degrees and in radians, against the printed degrees."""
    degrees, radians = 360 / period, 2 * math.pi / period
    return Evidence(
        expected=f"{printed:g} degrees",
        findings=(
            part(
                "angle of position 1",
                f"{degrees:g} degrees, which is {radians:.3g} radians",
                math.isclose(degrees, printed, rel_tol=0.01),
                degrees,
            ),
        ),
    )


def turn_comes_back(*, degrees_per_token: float = 1.0) -> Evidence:
    """The codes of positions 0 and 360."""
    angle = math.radians(360 * degrees_per_token)
    apart = math.hypot(math.cos(angle) - 1, math.sin(angle))
    text = f"{tiny(apart)} apart"
    return Evidence(
        expected="the same code",
        findings=(part("codes of positions 0 and 360", text, apart < 1e-9, apart),),
    )


def float32_precision(*, printed: float = 1e-7) -> Evidence:
    """The spacing of float32 next to 1, and next to the sine of one step."""
    at_one = float(np.spacing(np.float32(1)))
    sine = 2 * math.pi / PERIOD
    at_sine = float(np.spacing(np.float32(sine)))
    return Evidence(
        expected=f"about {printed:g} everywhere",
        findings=(
            part("step of float32 at 1", f"{at_one:.3g}", 0.5 < at_one / printed < 2, at_one),
            limit(
                f"step at {sine:.3g}, the sine at position 1",
                f"{at_sine:.1g}: the precision is relative",
                0.5 < at_sine / printed < 2,
                at_sine,
            ),
        ),
    )


def cos_step(*, position: int = 1, printed: float = 3.94e-11) -> Evidence:
    """cos(theta i) - cos(theta (i + 1)) without cancellation, against the printed number."""
    theta = 2 * math.pi / PERIOD
    step = 2 * math.sin(theta * (position + 0.5)) * math.sin(theta / 2)
    return Evidence(
        expected=f"{printed:g}, within one unit of its last digit",
        findings=(
            part(
                f"step of cos from position {position} to {position + 1}",
                f"{step:.3e} = {step / theta**2:.2f} theta^2",
                abs(step - printed) <= 0.01e-11,
                step,
            ),
        ),
    )


def covers_everything(*, period: float = PERIOD) -> Evidence:
    """The code one period away."""
    angle = round(period) * (2 * math.pi / period)
    apart = math.hypot(math.cos(angle) - 1, math.sin(angle))
    return Evidence(
        expected="codes that never come back",
        findings=(
            part(
                f"codes of positions 0 and {round(period)}",
                f"{tiny(apart)} apart",
                apart > 1e-9,
                apart,
            ),
        ),
    )


def clock_is_unique(*, hands: tuple[int, ...] = HANDS, until: int = 86400) -> Evidence:
    """The first second at which all hands are back where they started."""
    back = math.lcm(*hands)
    return Evidence(
        expected=f"no two of {until:,} seconds look alike",
        findings=(
            part(
                "all hands are back after",
                f"{back:,} s",
                back >= until,
                back,
            ),
        ),
    )


def hand_comes_back(*, hand: int = HANDS[0], said: int = 3600) -> Evidence:
    """When a hand is back: at the time said, and when first."""
    return Evidence(
        expected=f"back after {said:,} s, and not before",
        findings=(
            part(
                f"where it stands after {said:,} s",
                f"{said % hand} s past its start",
                said % hand == 0,
                said % hand,
            ),
            limit("when it is back for the first time", f"{hand:,} s", hand == said, hand),
        ),
    )


def clock_like_rope(*, periods: tuple[float, ...] | None = None) -> Evidence:
    """Are the periods of RoPE whole multiples of each other, as those of a clock are?"""
    chosen = np.array(periods or tuple(2 * math.pi / frequencies(HEAD, BASE)))
    whole, ratio = _whole_ratios(chosen)
    return Evidence(
        expected="each period is a whole multiple of the next shorter one",
        findings=(
            part(
                f"periods that are, of {len(chosen) - 1}",
                f"{whole} (each is {ratio:.4g} times the one before; a clock's are 60 and 12)",
                whole == len(chosen) - 1,
                whole,
            ),
        ),
    )


def _whole_ratios(periods: Float[Array, " n"]) -> tuple[int, float]:
    """How many neighbouring periods are whole multiples, and the first of the ratios."""
    ratios = periods[1:] / periods[:-1]
    return int((np.abs(ratios - ratios.round()) < 1e-9).sum()), float(ratios[0])


CLAIMS = (
    Claim(
        id="turn-comes-back",
        passages=(
            Passage(
                "001",
                "§5.1",
                286,
                "如果旋转360度会回到原点,那位置0和位置360不就无法区分了吗?",
                "if 360 degrees lead back to the start, can positions 0 and 360 not be told apart?",
            ),
        ),
        statement="At one degree per token, one frequency cannot tell position 360 from 0.",
        check=turn_comes_back,
        command="ropelab precision --period 360 --length 1000",
    ),
    Claim(
        id="one-frequency-degrees",
        passages=(Passage("001", "§5.2", 299, "position_1 → 0.00000628°"),),
        statement="With one turn in a million tokens position 1 stands at 0.00000628 degrees.",
        check=degrees_of_one_step,
        command=MORE,
    ),
    Claim(
        id="one-frequency-cos",
        passages=(
            Passage(
                "001",
                "§5.3",
                314,
                "位置1的 cos 值:0.999999999980261",
                "cos at position 1: 0.999999999980261",
            ),
            Passage("001", "§5.4", 329, "Δcos ≈ θ²/2 ≈ 2e-11"),
        ),
        statement="With one period of 1,000,000 tokens cos at 0 and 1 differ by 1.97e-11 "
        "(0.999999999980261), and in float32 both are 1.0.",
        check=cos_of_neighbours,
        command=MORE,
    ),
    Claim(
        id="float32-precision",
        passages=(
            Passage(
                "001", "§5.3", 319, "float32 的精度约 10^-7", "float32 is precise to about 1e-7"
            ),
        ),
        statement="float32 is precise to about 1e-7.",
        check=float32_precision,
    ),
    Claim(
        id="script-cos-step",
        passages=(Passage("rope_why_multi_frequency", "experiment 5"),),
        statement="The step of cos at position i is about theta^2 i in size, 3.94e-11 at "
        "position 1.",
        check=cos_step,
    ),
    Claim(
        id="script-covers-everything",
        passages=(Passage("rope_why_multi_frequency", "experiment 4"),),
        statement="In theory one very low frequency covers sequences of any length.",
        check=covers_everything,
    ),
    Claim(
        id="second-hand",
        passages=(
            Passage(
                "001",
                "§5.6",
                363,
                "但1小时后回到原点,无法区分",
                "but after an hour it is back at its start and cannot tell",
            ),
        ),
        statement="The second hand is back at its start after an hour.",
        check=hand_comes_back,
    ),
    Claim(
        id="clock-hour",
        passages=(
            Passage(
                "001",
                "§5.6",
                368,
                "配合秒针可区分 3600 秒",
                "together with the second hand it tells 3600 seconds apart",
            ),
        ),
        statement="Second and minute hand together tell 3600 seconds apart.",
        check=partial(clock_is_unique, hands=HANDS[:2], until=3600),
    ),
    Claim(
        id="clock-unique",
        passages=(
            Passage(
                "001",
                "§5.6",
                374,
                "三者组合 → 可以唯一标识任意时刻!",
                "the three together identify any moment uniquely!",
            ),
        ),
        statement="Second, minute and hour hand together identify any moment uniquely.",
        check=clock_is_unique,
    ),
    Claim(
        id="clock-like-rope",
        passages=(
            Passage(
                "001",
                "§5.6",
                374,
                "RoPE 的多频率机制与此完全一致",
                "RoPE's mechanism of many frequencies is exactly the same",
            ),
        ),
        statement="RoPE's frequencies work exactly as the hands of a clock do.",
        check=clock_like_rope,
        command="ropelab freqs --base 1e6 --head-dim 64",
    ),
)
