"""Which scaling changes nothing in a runtime."""

import pytest

from ropelab.audit.causes import is_plain
from ropelab.math.scaling import LongRope
from ropelab.readers.spec import RopeSpec

ONES = LongRope(long_factor=(1.0,) * 32, factor=4.0)
# The factor on cos and sin that the method defines.
OF_METHOD = 1.0741


@pytest.mark.parametrize(
    ("applied", "expected"), [(1.0, True), (OF_METHOD, False), (1 / OF_METHOD, False)]
)
def test_the_factor_that_a_runtime_applies_decides(
    applied: float, expected: bool
) -> None:
    spec = RopeSpec(
        base=1e4,
        head_dim=64,
        rotary_dim=64,
        scaling=ONES,
        trained_len=8192,
        attention_factor=applied,
    )
    assert spec.plan(8192).attention_factor == pytest.approx(OF_METHOD, rel=1e-3)
    assert is_plain(spec) is expected
