"""RoPE that turns the values, too."""

from typing import ClassVar

from ropelab.math.rotary import Pairing
from ropelab.math.scaling.plan import RopePlan
from ropelab.models.encoding.base import KeyPositions, Keys, Queries, QueryPositions, Scores
from ropelab.models.encoding.rope import Rope


class RopeValues(Rope):
    """output_i = sum_j weight_ij R(j) v_j, or R(-i) times that.

    RoPE leaves values alone. Turned like the keys they carry absolute positions to the output;
    turned back by the position of the query they carry distances, R(j - i) v_j.

    Args:
        back: whether the output is turned back.
    """

    name: ClassVar[str] = "rope_values"
    fused: bool = False

    def __init__(self, plan: RopePlan, pairing: Pairing = "half", back: bool = False) -> None:
        super().__init__(plan, pairing)
        self.back = back

    def mix(
        self,
        weights: Scores,
        v: Keys,
        q_positions: QueryPositions,
        k_positions: KeyPositions,
    ) -> Queries:
        out = weights @ self.turned(v, k_positions)
        return self.turned(out, q_positions, sign=-1) if self.back else out
