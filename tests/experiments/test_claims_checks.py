"""Every check decides: the verdict of each claim, and another one when an input changes."""

import pytest
from ropelab.experiments.claims.base_bound import PRINTED
from ropelab.experiments.claims.ledger import CLAIMS, find
from ropelab.experiments.claims.record import Verdict
from ropelab.experiments.claims.sinusoidal import Code

from ropelab.rope.frequencies import Geometry

HOLDS, CONDITION, WRONG, OPEN = Verdict

# id, verdict, changed inputs, verdict then
FLIPS = [
    ("order-blind", CONDITION, {"causal": True}, WRONG),
    ("same-output", WRONG, {"tokens": 1}, HOLDS),
    ("score-example", HOLDS, {"order": (0, 1, 2)}, WRONG),
    ("script-scores-scrambled", WRONG, {"width": 2}, HOLDS),
    ("script-positions-help", WRONG, {"width": 2}, HOLDS),
    # A shift of 1e9 is beyond what float64 angles resolve to 1e-10.
    ("relative-only", HOLDS, {"shifts": (10**9,)}, WRONG),
    ("relative-only", HOLDS, {"distance": 0, "base": 1.0000001, "shifts": (0,)}, HOLDS),
    ("scalar-factor", WRONG, {"distance": 0}, HOLDS),
    ("absolute-too", WRONG, {"positions": "added"}, HOLDS),
    ("either-direction", CONDITION, {"distance": 0}, HOLDS),
    ("script-equal-scores", WRONG, {"tokens": "same"}, HOLDS),
    ("three-forms", HOLDS, {"positions": ((10**12, 10**12 + 3),)}, WRONG),
    ("thirty-degrees", HOLDS, {"positions": ((5, 8), (3, 7))}, WRONG),
    ("relative-matrix-sign", WRONG, {"theta": 0.0}, HOLDS),
    ("clockwise", WRONG, {"theta": -0.5}, HOLDS),
    ("sparse-elementwise", HOLDS, {"last_pair": "as printed"}, WRONG),
    ("elementwise-as-printed", WRONG, {"last_pair": "as meant"}, HOLDS),
    ("rotate-half", CONDITION, {"head_dim": 2}, HOLDS),
    ("note-001-code", HOLDS, {"tables": "interleaved"}, WRONG),
    ("note-004-code", HOLDS, {"swap": "half"}, WRONG),
    ("worked-example", WRONG, {"digits": 3}, HOLDS),
    ("worked-example-matrix", WRONG, {"product": "row times matrix"}, CONDITION),
    ("base-frequency-formula", WRONG, {"f": 10000.0}, HOLDS),
    ("one-frequency-cos", HOLDS, {"format": "float64"}, WRONG),
    ("one-frequency-cos", HOLDS, {"period": 1000.0}, WRONG),
    ("one-frequency-neighbours", WRONG, {"format": "bfloat16"}, CONDITION),
    ("script-cos-step", WRONG, {"printed": 5.92e-11}, HOLDS),
    ("script-covers-everything", WRONG, {"period": 1_000_000.5}, HOLDS),
    ("fast-pair-separates", HOLDS, {"listed_degrees": 180.0}, WRONG),
    ("many-unique", HOLDS, {"base": 100.0, "length": 4096}, WRONG),
    ("minimind-periods", WRONG, {"printed": ((0, 6.3), (15, 4080), (31, 4080185))}, HOLDS),
    ("minimind-period-15", WRONG, {"base": 80_000.0}, WRONG),
    ("minimind-period-15", WRONG, {"base": 50_025.0}, HOLDS),
    ("position-1-code", WRONG, {"first": (0.5403, 0.7965, 0.9124)}, HOLDS),
    ("script-dimension-angles", WRONG, {"printed": ((10, 0, 213.0), (1000, 3, 210.0))}, HOLDS),
    ("knowledge-base-angles", HOLDS, {"base": 10000.0}, WRONG),
    ("script-two-periods", WRONG, {"periods": (10, 1000)}, HOLDS),
    ("script-three-periods", HOLDS, {"periods": (10, 100)}, WRONG),
    ("sinusoid-orthogonal", WRONG, {"spacing": "harmonic", "width": 64}, HOLDS),
    ("sinusoid-periodic", WRONG, {"width": 8}, HOLDS),
    ("period-needs-multiples", HOLDS, {"broken": Code(width=8)}, WRONG),
    ("exponential-spacing", HOLDS, {"tokens": 300}, WRONG),
    ("position-terms-absolute", CONDITION, {"shift": 0}, WRONG),
    ("decay-bound", CONDITION, {"head_dim": 2}, WRONG),
    ("decay-scores", CONDITION, {"head_dim": 2}, WRONG),
    ("parameter-column", HOLDS, {"said": (("learned", "none"),)}, WRONG),
    ("alibi-trainable", WRONG, {"said": (("kerple_log", "some"),)}, HOLDS),
    ("relative-table", WRONG, {"rows": 1023}, HOLDS),
    ("gpt-3-rope", WRONG, {"user": "2302.13971"}, HOLDS),
    ("gpt-4-rope", OPEN, {"user": "2307.09288"}, HOLDS),
    ("unseen-angles", HOLDS, {"geometry": Geometry(64, 10.0, 2048)}, WRONG),
    ("yarn-seen-angles", CONDITION, {"length": 2048}, WRONG),
    ("yarn-llama-2", CONDITION, {"claimed": 1_000_000}, WRONG),
    ("yarn-llama-2", CONDITION, {"finetuned": False}, HOLDS),
    ("yarn-code-llama", WRONG, {"base": 10000.0}, HOLDS),
    ("minimind-yarn-beta", WRONG, {"formula": "linear ramp"}, CONDITION),
    ("minimind-yarn-ramp", CONDITION, {"formula": "beta per pair"}, WRONG),
    ("yarn-one-ramp", WRONG, {"factor": 1.0}, HOLDS),
    ("float32-enough", CONDITION, {"preset": "half_cache_bfloat16", "longer": ()}, WRONG),
    ("float32-enough", CONDITION, {"longer": ()}, HOLDS),
    ("bfloat16-breaks", CONDITION, {"preset": "float32"}, WRONG),
    ("bfloat16-breaks", CONDITION, {"careful": "half_cache_bfloat16"}, HOLDS),
    ("critical-dimension", HOLDS, {"printed": 90}, WRONG),
    ("base-bound-table", WRONG, {"printed": PRINTED[:1]}, OPEN),
    ("base-bound-table-su", OPEN, {"printed": PRINTED[1:2]}, WRONG),
]

# Laws, and facts of the code itself: no input of theirs can make them false.
LAWS = {
    "sinusoid-shift": HOLDS,
    "four-terms": HOLDS,
    "one-rotation": HOLDS,
    "absolute-fixed": CONDITION,
    "learned-stops": HOLDS,
    "relative-space": CONDITION,
    "rope-space": CONDITION,
    "transformer-xl-cache": WRONG,
    "query-bias": WRONG,
    "ntk-ends": HOLDS,
}


@pytest.mark.parametrize(
    ("id_", "verdict", "given", "then"), FLIPS, ids=[f"{f[0]}-{i}" for i, f in enumerate(FLIPS)]
)
def test_the_verdict_follows_the_inputs(id_, verdict, given, then):
    claim = find(id_)
    assert claim.evidence().verdict == verdict
    assert claim.evidence(**given).verdict == then


@pytest.mark.parametrize(("id_", "verdict"), LAWS.items())
def test_laws(id_, verdict):
    claim = find(id_)
    assert claim.evidence().verdict == verdict
    if hasattr(claim.inputs, "seed"):
        assert claim.evidence(seed=5).verdict == verdict


def test_every_claim_that_is_not_trained_is_in_one_of_the_tables():
    computed = {claim.id for claim in CLAIMS if not claim.reads}
    assert computed <= {flip[0] for flip in FLIPS} | set(LAWS)
