"""The angles by which queries and keys are turned, as cosines and sines.

Convention: at position m a pair (x1, x2) becomes
``(x1 cos(m theta) - x2 sin(m theta), x1 sin(m theta) + x2 cos(m theta))``, which is multiplication
of x1 + i x2 by exp(+i m theta) (arXiv:2104.09864, eq. 13 and 34). Some codebases turn the other
way; scores are the same as long as queries and keys turn the same way.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float, Shaped

from ropelab.math.scaling.plan import RopePlan

Pairing = Literal["half", "interleaved"]
"""Which features form a pair: i and i + d/2 ("half": GPT-NeoX, Llama in Hugging Face layout), or
2 i and 2 i + 1 ("interleaved": the paper, GPT-J, Llama as released by Meta)."""


def cos_sin(
    positions: Shaped[np.ndarray, " tokens"], plan: RopePlan
) -> tuple[Float[np.ndarray, "tokens pairs"], Float[np.ndarray, "tokens pairs"]]:
    """cos(m theta_i) and sin(m theta_i) in float64 for every position m and pair i.

    ``plan.attention_factor`` is NOT in these tables: whoever rotates applies it once, by name.
    Integer positions are exact here up to 2^53; the angle's relative error is about 2^-52.
    """
    angle = positions.astype(np.float64)[:, None] * plan.inv_freq
    return np.cos(angle), np.sin(angle)
