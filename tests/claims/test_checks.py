"""Every check decides: the verdict of each claim, and another one when an input
changes.
"""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from ropelab.claims.forms import SHAPE
from ropelab.claims.ledger import CLAIMS, find_claim
from ropelab.claims.published.bases import PRINTED
from ropelab.claims.record import Kind, Verdict

HOLDS, CONDITION, WRONG, OPEN = (
    Verdict.HOLDS,
    Verdict.CONDITION,
    Verdict.WRONG,
    Verdict.UNDECIDED,
)

LLAMA, ROFORMER = ("Touvron", "2302.13971"), ("Su et al.", "2104.09864")

LARGE = [("GPT-3", "2005.14165", "learned"), ("BLOOM", "2211.05100", "ALiBi")]

# id, verdict, changed inputs, verdict then
FLIPS = [
    ("order-blind", CONDITION, {"causal": True}, WRONG),
    ("scaled-scores", HOLDS, {"scaled": False}, WRONG),
    ("segments-reach-further", CONDITION, {"cached": False}, WRONG),
    ("large-models-use", CONDITION, {"published": LARGE[:1]}, WRONG),
    ("large-models-use", CONDITION, {"published": LARGE[1:]}, HOLDS),
    ("same-output", WRONG, {"tokens": 1}, HOLDS),
    ("score-example", HOLDS, {"order": (0, 1, 2)}, WRONG),
    ("script-scores-scrambled", WRONG, {"width": 2}, HOLDS),
    ("script-positions-help", WRONG, {"width": 2}, HOLDS),
    # A shift of 1e9 is beyond what float64 angles resolve to 1e-10.
    ("relative-only", HOLDS, {"shifts": (10**9,)}, WRONG),
    ("rotation-factor", CONDITION, {"distance": 0}, HOLDS),
    ("absolute-too", CONDITION, {"positions": "added"}, HOLDS),
    ("absolute-too", CONDITION, {"causal": False}, WRONG),
    ("values-left-alone", HOLDS, {"shift": 0}, WRONG),
    ("either-direction", CONDITION, {"distance": 0}, HOLDS),
    ("script-equal-scores", WRONG, {"tokens": "same"}, HOLDS),
    ("three-forms", HOLDS, {"positions": (10**12, 10**12 + 3)}, WRONG),
    ("thirty-degrees", HOLDS, {"positions": ((5, 8), (3, 7))}, WRONG),
    ("relative-matrix-sign", WRONG, {"theta": 0.0}, HOLDS),
    ("clockwise", WRONG, {"theta": -0.5}, HOLDS),
    ("counterclockwise", HOLDS, {"theta": -0.5}, WRONG),
    ("sparse-elementwise", HOLDS, {"last_pair": "as printed"}, WRONG),
    ("elementwise-as-printed", WRONG, {"last_pair": "as meant"}, HOLDS),
    ("rotate-half", CONDITION, {"head_dim": 2}, HOLDS),
    ("note-001-code", HOLDS, {"tables": "interleaved"}, WRONG),
    ("note-004-code", HOLDS, {"swap": "half"}, WRONG),
    ("worked-example", CONDITION, {"digits": 3}, HOLDS),
    ("worked-example-matrix", WRONG, {"product": "row times matrix"}, CONDITION),
    ("base-frequency-formula", WRONG, {"f": 10000.0}, HOLDS),
    ("one-frequency-cos", HOLDS, {"dtype": "float64"}, WRONG),
    ("one-frequency-cos", HOLDS, {"period": 1000.0}, WRONG),
    ("one-frequency-neighbours", WRONG, {"format_": "bfloat16"}, CONDITION),
    ("script-cos-step", CONDITION, {"printed": 5.92e-11}, WRONG),
    ("script-covers-everything", WRONG, {"period": 1_000_000.5}, HOLDS),
    ("one-frequency-signal", HOLDS, {"period": 100.0}, WRONG),
    ("fast-pair-separates", HOLDS, {"printed_degrees": 180.0}, WRONG),
    ("many-unique", HOLDS, {"base": 100.0, "length": 4096}, WRONG),
    ("slow-pairs-unique", CONDITION, {"first": 0}, HOLDS),
    (
        "minimind-periods",
        WRONG,
        {"printed": ((0, 6.3), (15, 4080), (31, 4080185))},
        HOLDS,
    ),
    ("minimind-period-15", WRONG, {"base": 80_000.0}, WRONG),
    ("minimind-period-15", WRONG, {"base": 50_025.0}, HOLDS),
    ("position-1-code", WRONG, {"first": (0.5403, 0.7965, 0.9124)}, HOLDS),
    (
        "script-dimension-angles",
        WRONG,
        {"printed": ((10, 0, 213.0), (1000, 3, 210.0))},
        HOLDS,
    ),
    ("knowledge-base-angles", HOLDS, {"base": 10000.0}, WRONG),
    ("script-two-periods", WRONG, {"periods": (10, 1000)}, HOLDS),
    ("script-three-periods", HOLDS, {"periods": (10, 100)}, WRONG),
    ("sinusoid-orthogonal", WRONG, {"spacing": "harmonic", "width": 64}, HOLDS),
    ("sinusoid-periodic", WRONG, {"width": 8}, HOLDS),
    ("period-needs-multiples", HOLDS, {"broken_width": 8}, WRONG),
    ("exponential-spacing", HOLDS, {"tokens": 300}, WRONG),
    ("position-terms-absolute", CONDITION, {"shift": 0}, WRONG),
    ("decay-bound", CONDITION, {"head_dim": 2}, WRONG),
    ("decay-scores", CONDITION, {"head_dim": 2}, WRONG),
    ("parameter-column", HOLDS, {"said": (("learned", "none"),)}, WRONG),
    ("parameter-column", HOLDS, {"said": (("alibi", "some"),)}, WRONG),
    ("alibi-trainable", WRONG, {"said": (("kerple_log", "some"),)}, HOLDS),
    ("relative-table", CONDITION, {"rows": 1023}, HOLDS),
    ("relative-table", CONDITION, {"rows": 1022}, WRONG),
    ("gpt-3-rope", WRONG, {"user": "2302.13971"}, HOLDS),
    ("gpt-4-rope", OPEN, {"user": "2307.09288"}, HOLDS),
    ("unseen-angles", HOLDS, {"geometry": (64, 10.0, 2048)}, WRONG),
    ("yarn-seen-angles", CONDITION, {"length": 2048}, WRONG),
    ("yarn-llama-2", CONDITION, {"claimed": 1_000_000}, WRONG),
    ("yarn-llama-2", CONDITION, {"finetuned": False}, HOLDS),
    ("yarn-code-llama", WRONG, {"base": 10000.0}, HOLDS),
    ("yarn-code-llama", WRONG, {"base": 10000.0, "said": (4, 32)}, WRONG),
    ("minimind-yarn-beta", WRONG, {"formula": "linear ramp"}, CONDITION),
    ("minimind-yarn-ramp", CONDITION, {"formula": "beta per pair"}, WRONG),
    ("yarn-one-ramp", WRONG, {"factor": 1.0}, HOLDS),
    (
        "float32-enough",
        CONDITION,
        {"preset": "half_cache_bfloat16", "longer": ()},
        WRONG,
    ),
    ("float32-enough", CONDITION, {"longer": ()}, HOLDS),
    ("bfloat16-breaks", CONDITION, {"preset": "float32"}, WRONG),
    ("bfloat16-breaks", CONDITION, {"careful": "half_cache_bfloat16"}, HOLDS),
    ("critical-dimension", HOLDS, {"printed": 90}, WRONG),
    ("base-bound-table", WRONG, {"printed": PRINTED["men"][:1]}, OPEN),
    ("base-bound-table-su", OPEN, {"printed": PRINTED["men"][1:2]}, WRONG),
    ("dense-product", HOLDS, {"head_dim": 2}, WRONG),
    ("note-001-attention", WRONG, {"shape": SHAPE[-2:]}, HOLDS),
    ("note-004-mask", CONDITION, {"filling": -6e4}, HOLDS),
    ("note-004-mask", CONDITION, {"filling": -1.0}, WRONG),
    ("squeeze-unsqueeze", WRONG, {"batch": 0, "tokens": 1}, WRONG),
    ("t5-listing", WRONG, {"tokens": 1}, HOLDS),
    ("rope-in-embeddings", WRONG, {"name": "sinusoidal"}, CONDITION),
    ("vector-on-score", WRONG, {"width": 1}, HOLDS),
    ("sinusoid-index", WRONG, {"index": "i"}, HOLDS),
    ("turn-comes-back", HOLDS, {"degrees_per_token": 0.5}, WRONG),
    ("one-frequency-degrees", WRONG, {"printed": 0.00036}, HOLDS),
    ("one-frequency-unique", CONDITION, {"period": 100.0}, HOLDS),
    ("float32-precision", CONDITION, {"printed": 1e-9}, WRONG),
    ("clock-unique", WRONG, {"until": 43200}, HOLDS),
    ("clock-like-rope", WRONG, {"periods": (60.0, 3600.0, 43200.0)}, HOLDS),
    ("angle-falls", HOLDS, {"base": 1 + 2.0**-52}, WRONG),
    ("sinusoid-shift", HOLDS, {"turnings": ["counterclockwise"]}, WRONG),
    ("sinusoid-shift-standard", CONDITION, {"turnings": ["clockwise"]}, HOLDS),
    ("sinusoid-shift-standard", CONDITION, {"shift": 0}, HOLDS),
    ("softmax-as-printed", WRONG, {"inside": False}, HOLDS),
    ("unrotated-query", WRONG, {"theta": 0.0}, HOLDS),
    ("bias-of-vectors", WRONG, {"width": 1}, HOLDS),
    ("index-range", WRONG, {"said": 15}, HOLDS),
    ("one-frequency-formats", CONDITION, {"format_": "float32"}, WRONG),
    ("calendar-like-rope", CONDITION, {"periods": (1.0, 28.0, 336.0)}, HOLDS),
    ("calendar-like-rope", CONDITION, {"periods": (28.0, 1.0)}, WRONG),
    ("yarn-dynamic", WRONG, {"method": "dynamic_yarn"}, HOLDS),
    ("dynamic-free-short", HOLDS, {"method": "yarn(factor=4)"}, WRONG),
    (
        "third-generation",
        CONDITION,
        {"said": [["RoPE with Llama", 2022, LLAMA, ROFORMER]]},
        WRONG,
    ),
    ("alibi-year", CONDITION, {"said": 2021}, HOLDS),
    ("alibi-year", CONDITION, {"said": 2023}, WRONG),
    ("transformer-xl-slow", HOLDS, {"name": "rope"}, OPEN),
    ("uniform-geometric", WRONG, {"spacing": "exponential"}, HOLDS),
    ("relative-trained", CONDITION, {"others": ("kerple_log",)}, HOLDS),
    ("relative-trained", CONDITION, {"tables": ("alibi",)}, WRONG),
    ("absolute-fixed", CONDITION, {"fixed": "learned"}, WRONG),
    ("learned-stops", HOLDS, {"name": "sinusoidal"}, WRONG),
    ("learned-not-relative", HOLDS, {"name": "rope"}, WRONG),
    ("t5-relative", HOLDS, {"name": "learned"}, WRONG),
    ("rope-relative", HOLDS, {"name": "sinusoidal"}, WRONG),
    ("t5-costly", OPEN, {"name": "transformer_xl"}, HOLDS),
    ("rope-efficient", HOLDS, {"name": "transformer_xl"}, WRONG),
    ("alibi-stores-nothing", HOLDS, {"name": "learned"}, WRONG),
    ("alibi-sign", CONDITION, {"slope": 0.5}, WRONG),
    (
        "heads-unaffected",
        WRONG,
        {"methods": ("sinusoidal", "learned", "nope")},
        CONDITION,
    ),
    ("sinusoid-unstable", CONDITION, {"length": 4096}, WRONG),
    (
        "three-generations",
        CONDITION,
        {"said": [["RoPE", 2021, ROFORMER, ROFORMER]]},
        HOLDS,
    ),
    ("shaw-earliest", CONDITION, {"paper": ("a later one", "2201.00001")}, WRONG),
    ("deberta-year", WRONG, {"said": 2020}, HOLDS),
    ("absolute-limited", CONDITION, {"far": 7}, HOLDS),
    ("base-bound-table-su", OPEN, {"printed": PRINTED["men"]}, WRONG),
    ("base-10000", CONDITION, {"base": 10.0}, WRONG),
    ("base-10000", CONDITION, {"base": 5e5}, HOLDS),
    ("multiplication-stronger", CONDITION, {"sizes": (0.02,)}, WRONG),
    ("multiplication-stronger", CONDITION, {"sizes": (1.0,)}, HOLDS),
    ("rope-multiplies", CONDITION, {"position": 0}, HOLDS),
    ("code-coefficients", CONDITION, {"encoding": "learned"}, WRONG),
    ("code-coefficients", CONDITION, {"tokens": 2048}, HOLDS),
    ("only-at-the-product", WRONG, {"name": "t5"}, HOLDS),
    ("polynomial-distance", CONDITION, {"degree": 0}, WRONG),
    ("scores-without-order", WRONG, {"tokens": 1}, HOLDS),
    ("second-hand", CONDITION, {"hand": 3600}, HOLDS),
    ("second-hand", CONDITION, {"said": 90}, WRONG),
    ("clock-hour", HOLDS, {"until": 7200}, WRONG),
    ("note-003-code", HOLDS, {"swap": "interleaved"}, WRONG),
    ("rotate-half-words", CONDITION, {"vector": (1.0, -1.0)}, HOLDS),
    ("deberta-as-noted", HOLDS, {"printed": "from key to query"}, WRONG),
    ("deberta-distance", WRONG, {"printed": "from query to key"}, HOLDS),
    ("llama-rope", HOLDS, {"models": ("gpt-3",)}, OPEN),
    # The printed bounds are enough for infinitely wide heads.
    ("liu-aliasing", CONDITION, {"head_dim": 1 << 14}, HOLDS),
    ("liu-stability", CONDITION, {"head_dim": 1 << 14}, HOLDS),
    ("liu-ambiguous", WRONG, {"head_dim": 2, "fmt": "bfloat16"}, HOLDS),
    ("liu-depth", WRONG, {"carried": True}, HOLDS),
    ("liu-ceiling", WRONG, {"component": "cosine"}, HOLDS),
    ("liu-ceiling", WRONG, {"component": "cosine", "base": 1e6}, WRONG),
    # Its slowest frequency is stored as 0 at the largest base.
    ("wall-in-code", WRONG, {"code": "half_cache_float16"}, HOLDS),
    ("wall-in-code", WRONG, {"code": "ggml"}, HOLDS),
    ("liu-million", CONDITION, {"layers": 1}, WRONG),
    ("float64-angles", WRONG, {"preset": "half_cache_bfloat16"}, HOLDS),
    ("host-table-drift", HOLDS, {"base": 1e4}, WRONG),
    ("du-position-inversion", CONDITION, {"base": 5e5}, WRONG),
    ("du-position-aliasing", CONDITION, {"fmt": "float32"}, WRONG),
    ("du-invariant-attention", OPEN, {"printed": 64}, CONDITION),
    ("du-token-inversion", CONDITION, {"said": 100.0}, WRONG),
    ("du-token-inversion-20k", HOLDS, {"base": 1e7}, WRONG),
    ("du-token-aliasing", CONDITION, {"shared": 0.999}, WRONG),
    # Keys that nearly are the query.
    ("du-token-aliasing", CONDITION, {"shared": 0.99}, HOLDS),
    ("du-trade-off", CONDITION, {"bases": (1e7, 1e4)}, WRONG),
]

# Laws, and facts of the code itself: no input of theirs can make them false.
LAWS = {
    "sinusoid-smooth": CONDITION,
    "concatenation-wider": CONDITION,
    "four-terms": HOLDS,
    "one-rotation": HOLDS,
    "relative-space": CONDITION,
    "rope-space": CONDITION,
    "transformer-xl-cache": WRONG,
    "query-bias": CONDITION,
    "rotate-half-efficient": OPEN,
    "ntk-ends": HOLDS,
}


@pytest.mark.parametrize(
    ("id_", "verdict", "given", "then"),
    FLIPS,
    ids=[f"{f[0]}-{i}" for i, f in enumerate(FLIPS)],
)
def test_the_verdict_follows_the_inputs(id_, verdict, given, then):
    claim = find_claim(id_)
    assert claim.verdict() == verdict
    assert claim.verdict(**given) == then


@pytest.mark.parametrize(("id_", "verdict"), LAWS.items())
def test_laws(id_, verdict):
    claim = find_claim(id_)
    other = {"seed": 5} if claim.takes_seed else {}
    assert claim.verdict() == claim.verdict(**other) == verdict


def test_every_claim_that_needs_no_run_is_in_one_of_the_tables():
    computed = {
        c.id for c in CLAIMS if c.kind is Kind.ARITHMETIC and c.reads in ("", "base")
    }
    # tests/math/numerics
    reported = {id for id in computed if id.startswith("reported-")}
    assert computed - reported <= {flip[0] for flip in FLIPS} | set(LAWS) | {
        "base-bound-fit"
    }


def findings_of(id_: str) -> dict[str, str]:
    return {f.what: f.measured for f in find_claim(id_).evidence().findings}


def test_the_work_of_a_bias_is_one_addition_a_score():
    """By hand: a score is 64 operations. T5 adds one; RoPE three for each feature."""
    for id_, more in (("t5-costly", 1), ("rope-efficient", 3 * 2 * 32 / 512)):
        (finding,) = find_claim(id_).evidence().findings
        assert finding.value == pytest.approx(1 + more / 64, abs=1e-4)


def test_every_kind_of_encoding_in_the_column_of_parameters_is_asked():
    asked = {what.split(",")[0] for what in findings_of("parameter-column")}
    assert asked >= {"shaw", "transformer_xl", "t5", "deberta"}


@pytest.mark.parametrize("id_", ["liu-aliasing", "liu-stability"])
def test_the_width_at_which_a_printed_bound_is_enough_is_told(id_):
    _, limit = find_claim(id_).evidence().findings
    base = {"liu-aliasing": 24_428, "liu-stability": 354_835}[id_]
    allowed = {"liu-aliasing": 2 * np.pi, "liu-stability": np.arccos(0.9)}[id_]
    assert 131072 * base ** (-126 / 128) == pytest.approx(allowed, rel=1e-5)
    assert f"{base:,}" in limit.measured


def test_undivided_scores_grow_as_the_root_of_the_width():
    measured = [*findings_of("scaled-scores").values()]
    assert measured[:2] == ["1, 1, 1, 1", "4, 8, 16, 32"]


def test_the_sum_of_cosines_is_that_of_the_heads_that_read_so_far():
    """Directly: 725 and 1,707 are where the sums of 32 and of 64 cosines turn negative."""
    firsts = []
    for head in (64, 128):
        inv_freq = 1e4 ** (-np.arange(0, head, 2) / head)
        sums = np.cos(np.outer(np.arange(4096), inv_freq)).sum(1)
        firsts.append(f"{int(np.argmax(sums < 0)):,} tokens")
    assert [*findings_of("base-10000").values()] == firsts


def test_first_equal_neighbours_do_not_grow_with_the_base():
    (measured,) = findings_of("wall-in-code").values()
    assert measured == "8,867,482, 15,547,300, 4,691,765, 16,434,823"


def test_a_base_that_works_is_rounded_up():
    """Base 11,587 fails at 1788; 11,587.3 does not in 2,048 tokens."""
    run = SimpleNamespace(
        tables={
            "bound": pd.DataFrame(
                {
                    "context_tokens": [2048],
                    "head_dim": [128],
                    "rotating_pairs": [64],
                    "smallest_admissible_base": [11587.24],
                }
            )
        }
    )
    printed = PRINTED["men"][1:2]
    runs = cast(Any, (run,))
    found = find_claim("base-bound-table").evidence(runs=runs, printed=printed)
    (finding,) = found.findings
    assert "(2048: 11,587.3 works below 16000)" in finding.measured
    assert "all contexts exactly" in finding.what


def test_neighbours_with_one_cosine_are_those_of_the_slowest_pair_in_float32():
    """Directly, in NumPy's own float32: the cosine alone, then cosine and sine."""
    positions = np.arange(1_000_000, 1_002_001).astype(np.float32)
    inv_freq = np.float32(1e7 ** (-63 / 64))
    angles = (positions * inv_freq).astype(np.float64)
    cosines = np.cos(angles).astype(np.float32)
    sines = np.sin(angles).astype(np.float32)
    same_cosine = np.diff(cosines) == 0
    same_both = same_cosine & (np.diff(sines) == 0)
    assert same_cosine.mean() != (np.diff(sines) == 0).mean()

    first, *_ = findings_of("liu-ceiling").values()
    assert first.startswith(
        f"{same_both.mean():.0%} (cosine alone {same_cosine.mean():.0%})"
    )
