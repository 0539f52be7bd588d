"""Claims decided by stored runs: small made-up runs, and numbers turned around."""

import math
import re
from dataclasses import replace
from itertools import combinations
from typing import Any

import pandas as pd
import pytest

from ropelab.claims.ledger import CLAIMS, find_claim, judge_run
from ropelab.claims.published.bases import PRINTED
from ropelab.claims.record import OUTCOMES, Findings, Kind, Verdict
from ropelab.claims.trained.deciding import describe_models, sort_largest_first
from ropelab.claims.trained.orders import compare_published_order
from ropelab.claims.trained.runs import EncodingsRun, MethodsRun
from ropelab.claims.trained.tally import Tally
from ropelab.experiments.base_empirical.retrieval import Outcome
from ropelab.lab import run
from ropelab.runs import thresholds
from ropelab.runs.cell import Stored
from ropelab.runs.labels import label_method
from ropelab.runs.stats import Interval
from tests.texts import FRAGMENT, mentions

HOLDS, CONDITION, WRONG = Verdict.REPRODUCED, Verdict.PARTLY, Verdict.NOT_REPRODUCED
OPEN = Verdict.UNDECIDED
AS_ARITHMETIC = dict(
    zip(OUTCOMES[Kind.TRAINED], OUTCOMES[Kind.ARITHMETIC], strict=True)
)
L, LONGER = 2048, 8192
YARN = "yarn(beta_fast=8)"
DISTANCES = (512, 1024, 2048, 4096, 6144)

# method, factor: loss after 8192 tokens, loss after 2048, copy accuracy by distance
PAPER_LIKE = {
    ("unscaled", 1.0): (2.46, 1.85, (0.98, 0.95, 0.14, 0.02, 0.01)),
    ("pi", 4.0): (2.32, 2.30, (0.03, 0.03, 0.02, 0.02, 0.02)),
    ("ntk", 4.0): (1.99, 1.86, (0.97, 0.95, 0.84, 0.64, 0.07)),
    ("ntk", 8.0): (1.95, 1.90, (0.98, 0.96, 0.91, 0.86, 0.70)),
    ("yarn", 4.0): (1.88, 1.88, (1.00, 0.99, 0.96, 0.99, 0.95)),
    ("sliding_window", 1.0): (1.84, 1.85, None),
}


def extrapolation(rows=PAPER_LIKE, noise=0.005, **config) -> Stored:
    """A stored run of the extrapolation lab in which differences above `noise` are told
    apart.
    """
    config = {
        "train_len": L,
        "test_len": LONGER,
        "seeds": [0],
        "documents": 50,
    } | config
    losses, copies, pairs = [], [], []
    for (method, factor), (far, near, accuracies) in rows.items():
        about = {"method": method, "factor": factor, "seed": 0, "arm": "zero_shot"}
        for context, loss in ((L, near), (LONGER, far)):
            ends = {"ci_low": loss - 0.005, "ci_high": loss + 0.005}
            losses.append(
                {**about, "context_tokens": context, "nll_nats_per_byte": loss, **ends}
            )
        for distance, accuracy in zip(DISTANCES, accuracies or (), strict=False):
            ends = {"ci_low": accuracy - 0.005, "ci_high": accuracy + 0.005}
            copies.append(
                {**about, "distance_tokens": distance, "accuracy": accuracy, **ends}
            )
    for a, b in combinations(rows, 2):
        pairs += _pairs(a, b, rows[a], rows[b], noise)
    columns = ["metric", "at_tokens", "method_a", "method_b", "difference", "verdict"]
    tables = {
        "last_window": pd.DataFrame(losses),
        "copy_accuracy": pd.DataFrame(copies),
        "comparisons": with_ends(pd.DataFrame(pairs, columns=columns), noise),
    }
    return Stored("extrapolate", config, tables, "somewhere")


def with_ends(table, noise):
    """The table with the intervals of its differences."""
    return table.assign(
        ci_low=table["difference"] - noise, ci_high=table["difference"] + noise
    )


def _pairs(a, b, of_a, of_b, noise):
    names = label_method(*a), label_method(*b)
    yield (
        "nll_last_window",
        LONGER,
        *names,
        of_a[0] - of_b[0],
        _better(of_a[0] - of_b[0], noise, names),
    )
    yield (
        "nll_short_context",
        L,
        *names,
        of_a[1] - of_b[1],
        _better(of_a[1] - of_b[1], noise, names),
    )
    if of_a[2] and of_b[2]:
        for distance, x, y in zip(DISTANCES, of_a[2], of_b[2], strict=True):
            yield (
                "copy_accuracy",
                distance,
                *names,
                x - y,
                _better(y - x, noise, names),
            )


def _better(difference, noise, names):
    """The smaller of two, or `~` where they are closer than the noise."""
    if abs(difference) <= noise:
        return "~"
    return names[0] if difference < 0 else names[1]


def changed(row, far=None, near=None, copying=None):
    old = PAPER_LIKE[row]
    new = (far or old[0], near or old[1], old[2] if copying is None else copying)
    return {**PAPER_LIKE, row: new}


WORKS = (0.99,) * 5
ON_TRAINED_LENGTHS = [
    ("plain-fails", {}, HOLDS),
    ("plain-fails", {"rows": changed(("unscaled", 1.0), copying=WORKS)}, WRONG),
    ("plain-fails", {"rows": changed(("unscaled", 1.0), far=1.80)}, WRONG),
    ("plain-fails", {"rows": changed(("unscaled", 1.0), far=1.841)}, OPEN),
    ("rope-extrapolates", {}, WRONG),
    (
        "rope-extrapolates",
        {"rows": changed(("unscaled", 1.0), 1.80, copying=WORKS)},
        HOLDS,
    ),
    ("yarn-extends", {}, HOLDS),
    (
        "yarn-extends",
        {"rows": changed(("yarn", 4.0), copying=(1.0, 1.0, 1.0, 0.99, 0.6))},
        CONDITION,
    ),
    (
        "yarn-extends",
        {"rows": changed(("yarn", 4.0), copying=(1.0, 1.0, 0.9, 0.5, 0.1))},
        WRONG,
    ),
    ("yarn-extends", {"rows": changed(("yarn", 4.0), far=2.60)}, HOLDS),
    ("yarn-extends-text", {}, HOLDS),
    ("yarn-extends-text", {"rows": changed(("yarn", 4.0), far=2.60)}, WRONG),
    ("yarn-extends-text", {"rows": changed(("yarn", 4.0), far=2.461)}, OPEN),
    ("yarn-beats-ntk", {}, CONDITION),
    ("yarn-beats-ntk", {"rows": changed(("yarn", 4.0), near=1.80)}, HOLDS),
    ("yarn-beats-ntk", {"rows": changed(("yarn", 4.0), far=2.10)}, WRONG),
    ("yarn-beats-ntk", {"rows": changed(("yarn", 4.0), far=1.991)}, OPEN),
    ("ntk-better-short", {}, HOLDS),
    ("ntk-better-short", {"rows": changed(("ntk", 4.0), near=1.95)}, WRONG),
    ("ntk-better-short", {"noise": 0.1}, OPEN),
    ("pi-fails-zero-shot", {}, CONDITION),
    ("pi-fails-zero-shot", {"rows": changed(("pi", 4.0), far=2.60)}, HOLDS),
    ("pi-fails-zero-shot", {"rows": changed(("pi", 4.0), copying=WORKS)}, WRONG),
    ("low-perplexity-enough", {}, HOLDS),
    (
        "low-perplexity-enough",
        {"rows": PAPER_LIKE | {("yarn", 4.0): (1.88, 1.88, None)}},
        OPEN,
    ),
    ("low-perplexity-enough", {"rows": changed(("unscaled", 1.0), far=1.88)}, WRONG),
    (
        "low-perplexity-enough",
        {"rows": changed(("unscaled", 1.0), far=1.90), "noise": 0.03},
        OPEN,
    ),
    (
        "low-perplexity-enough",
        {"rows": changed(("sliding_window", 1.0), copying=(0.9, 0.9, 0.1, 0.02, 0.02))},
        HOLDS,
    ),
    ("low-perplexity-enough", {"rows": changed(("pi", 4.0), far=1.90)}, CONDITION),
]


@pytest.mark.parametrize(("id_", "stored", "expected"), ON_TRAINED_LENGTHS)
def test_verdicts_on_scaling_follow_the_stored_numbers(id_, stored, expected):
    evidence = find_claim(id_).evidence(runs=(extrapolation(**stored),))
    assert evidence.verdict(Kind.TRAINED) == expected, evidence.measured
    assert_reason(evidence)


def test_text_just_beyond_the_trained_length_is_asked_where_it_was_measured():
    """YaRN ×4 may read worse from 2k to 4k and better after 8k: both are said."""
    stored = extrapolation()
    names = ("unscaled", "yarn ×4")
    # Inside the trained length, just beyond it, and far beyond it.
    rows = [
        ("nll_bucket", 2048, *names, 0.3, names[1]),
        ("nll_bucket", 3072, *names, -0.3, names[0]),
        ("nll_bucket", 4096, *names, -0.3, names[0]),
        ("nll_bucket", 8192, *names, 0.3, names[1]),
    ]
    old = stored.tables["comparisons"]
    columns = ["metric", "at_tokens", "method_a", "method_b", "difference", "verdict"]
    added = with_ends(pd.DataFrame(rows, columns=columns), 0.005)
    stored.tables["comparisons"] = pd.concat((old, added), ignore_index=True)

    evidence = find_claim("yarn-extends-text").evidence(runs=(stored,))
    found = evidence.find("text from 2048 to 4096 tokens")
    assert found.measured.startswith("better at 0, worse at 2 of 2 positions (3072: ")
    assert (found.role, found.agrees) == ("limit", False)
    assert evidence.verdict(Kind.TRAINED) == CONDITION


def assert_reason(evidence: Findings) -> None:
    """A finding that leaves a claim open says why, behind what was measured."""
    deciding = evidence.deciding
    if deciding.agrees is None and not deciding.missing:
        assert "; " in deciding.measured, deciding


# ALiBi keeps its loss, T5 nearly, RoPE and the sinusoids do not.
RISES = {"alibi": -0.01, "t5": 0.015, "rope": 0.5, "sinusoidal": 0.9, "nope": 0.3}
FAR_COPIES = {"alibi": 0.9, "t5": 0.6, "rope": 0.05, "sinusoidal": 0.02, "nope": 0.2}
FAR_COPIES |= {"transformer_xl": 0.9}
# RoPE whose pairs rotate fully within the trained length, or not at all, keeps neither.
FAST = "rope(fast=0.375)"
RISES[FAST], FAR_COPIES[FAST] = 0.3, 0.6
# Loss at the trained length, above RoPE's.
NEAR_LOSSES = {"sinusoidal": 0.1, "t5": -0.02, "transformer_xl": 0.0}


def with_worst(quality: pd.DataFrame) -> pd.DataFrame:
    """All seeds alike, and intervals of 0.01 to each side."""
    value = quality["value"]
    ends = {"ci_low": value - 0.01, "ci_high": value + 0.01}
    return quality.assign(worst_seed_value=value, **ends)


def encodings(
    rises=RISES, copies=FAR_COPIES, near=0.98, noise=0.004, unlearned=()
) -> Stored:
    """A stored run of the encodings lab; `unlearned` copy 0.1 inside the trained
    length.
    """
    growth, quality, pairs = [], [], []
    for name, rise in rises.items():
        growth.append(("text loss", 4, name, rise, rise - noise, rise + noise))
        quality += [("text loss", name, 1, 1.9), ("text loss", name, 4, 1.9 + rise)]
        inside = 0.1 if name in unlearned else near
        quality += [
            ("copy accuracy", name, 1, inside),
            ("copy accuracy", name, 4, copies[name]),
        ]
        if name != "rope":
            names = (name, "rope")
            loss = _better(rise - rises["rope"], noise, names)
            copied = _better(copies["rope"] - copies[name], noise, names)
            change = rise - rises["rope"]
            pairs.append(("text loss", 4, *names, loss, change - noise, change + noise))
            pairs.append(("copy accuracy", 4, *names, copied, math.nan, math.nan))
            near_loss = NEAR_LOSSES.get(name, 0.0)
            pairs.append(
                ("text loss", 1, *names, "~", near_loss - noise, near_loss + noise)
            )
    at = "times_trained_len"
    tables = {
        "extrapolation": pd.DataFrame(
            growth,
            columns=["metric", at, "encoding", "difference", "ci_low", "ci_high"],
        ),
        "quality": with_worst(
            pd.DataFrame(quality, columns=["metric", "encoding", at, "value"])
        ),
        "comparisons": pd.DataFrame(
            pairs,
            columns=[
                "metric",
                at,
                "encoding_a",
                "encoding_b",
                "verdict",
                "ci_low",
                "ci_high",
            ],
        ),
    }
    config = {"train_len": 512, "test_len": 2048, "seeds": [0, 1, 2], "documents": 50}
    return Stored("encodings", config, tables, "somewhere")


@pytest.mark.parametrize(
    ("id_", "stored", "expected"),
    [
        ("alibi-extrapolates", {}, HOLDS),
        ("alibi-extrapolates", {"copies": FAR_COPIES | {"alibi": 0.3}}, CONDITION),
        ("alibi-extrapolates", {"rises": RISES | {"alibi": 0.2}}, CONDITION),
        (
            "alibi-extrapolates",
            {"rises": RISES | {"alibi": 0.2}, "copies": FAR_COPIES | {"alibi": 0.3}},
            WRONG,
        ),
        ("alibi-extrapolates", {"rises": RISES | {"alibi": 0.021}}, HOLDS),
        (
            "alibi-extrapolates",
            {"rises": RISES | {"alibi": 0.021}, "copies": FAR_COPIES | {"alibi": 0.3}},
            OPEN,
        ),
        # What still copies is not refuted by its loss alone.
        ("fast-ones-extrapolate", {"copies": FAR_COPIES | {FAST: 0.95}}, CONDITION),
        # The whole interval of what it copies decides, not its middle.
        ("fast-ones-extrapolate", {"copies": FAR_COPIES | {FAST: 0.885}}, OPEN),
        ("alibi-extrapolates", {"copies": FAR_COPIES | {"alibi": 0.885}}, HOLDS),
        ("t5-extrapolates", {"copies": FAR_COPIES | {"t5": 0.95}}, HOLDS),
        ("sinusoidal-extrapolates", {}, WRONG),
        ("sinusoidal-extrapolates", {"rises": RISES | {"sinusoidal": 0.0}}, CONDITION),
        ("t5-extrapolates", {}, HOLDS),
        ("t5-extrapolates", {"rises": RISES | {"t5": 0.6}}, CONDITION),
        ("t5-extrapolates", {"copies": FAR_COPIES | {"t5": 0.4}}, CONDITION),
        (
            "t5-extrapolates",
            {"rises": RISES | {"t5": 0.6}, "copies": FAR_COPIES | {"t5": 0.4}},
            WRONG,
        ),
        ("fast-ones-extrapolate", {}, WRONG),
        ("fast-ones-extrapolate", {"rises": RISES | {FAST: 0.01}}, CONDITION),
        ("fast-ones-extrapolate", {"unlearned": (FAST,)}, OPEN),
        ("alibi-beats-others", {}, HOLDS),
        ("alibi-beats-others", {"rises": RISES | {"sinusoidal": -0.1}}, WRONG),
        ("alibi-beats-others", {"rises": RISES | {"t5": -0.005}}, OPEN),
        ("alibi-beats-others", {"unlearned": ("t5",)}, OPEN),
        ("relative-do-well", {"rises": RISES | {"transformer_xl": 0.1}}, HOLDS),
        (
            "relative-do-well",
            {"rises": RISES | {"transformer_xl": 0.1}, "noise": 0.2},
            OPEN,
        ),
        ("relative-do-well", {}, OPEN),
        ("rope-beats-sinusoidal", {}, HOLDS),
        ("rope-beats-sinusoidal", {"rises": RISES | {"sinusoidal": 0.2}}, WRONG),
        ("alibi-below-rope", {}, HOLDS),
        ("t5-below-rope", {}, HOLDS),
        ("t5-below-rope", {"rises": RISES | {"t5": 0.6}}, WRONG),
        ("rope-beats-sinusoidal", {}, HOLDS),
        ("rope-beats-sinusoidal", {"rises": RISES | {"sinusoidal": 0.4}}, WRONG),
        ("rope-beats-sinusoidal", {"rises": RISES | {"sinusoidal": 0.501}}, OPEN),
        ("copy-order", {}, HOLDS),
        ("copy-order", {"copies": FAR_COPIES | {"t5": 0.0}}, WRONG),
        ("copy-order", {"unlearned": ("nope",)}, HOLDS),
        ("copy-order", {"unlearned": ("t5",)}, OPEN),
        ("nope-copies-better", {}, HOLDS),
        ("nope-copies-better", {"copies": FAR_COPIES | {"nope": 0.0}}, WRONG),
        ("nope-copies-better", {"unlearned": ("nope",)}, OPEN),
        ("copy-order", {"near": 0.3}, OPEN),
    ],
)
def test_verdicts_on_encodings_follow_the_stored_numbers(id_, stored, expected):
    evidence = find_claim(id_).evidence(runs=(encodings(**stored),))
    assert evidence.verdict(Kind.TRAINED) == expected, evidence.measured
    assert_reason(evidence)


@pytest.mark.parametrize(
    ("id_", "words"),
    [
        (
            "t5-below-rope",
            "text loss of the last 128 of 2048 tokens (1.915 [1.905, 1.925] and 2.400"
            " [2.390, 2.410] nats per byte)",
        ),
        ("copy-order", "copy accuracy from 1024 tokens back in 2048 (0."),
        ("alibi-beats-others", "text loss of the last 128 of 2048 tokens"),
    ],
)
def test_a_comparison_says_what_was_measured_where(id_, words):
    evidence = find_claim(id_).evidence(runs=(encodings(),))
    assert all(words in part.what for part in evidence.parts), evidence.measured


@pytest.mark.parametrize(
    ("id_", "run"),
    [
        ("t5-below-rope", "encodings"),
        ("copy-order", "encodings"),
        ("yarn-extends-text", "extrapolation"),
        ("yarn-beats-ntk", "extrapolation"),
    ],
)
def test_both_levels_of_a_comparison_have_intervals(id_, run):
    runs = (encodings() if run == "encodings" else extrapolation(),)
    compared = find_claim(id_).evidence(runs=runs).parts
    level = r"[0-9.]+ \[[0-9.]+, [0-9.]+\]"
    levels = [part.what for part in compared if "(" in part.what]
    assert levels
    for what in levels:
        assert re.search(rf"\({level} and {level}( nats per byte)?\)", what)


def paired(
    mine: str, other: str, difference: float, noise=0.01, unlearned=()
) -> Stored:
    """A stored run of the encodings lab in which two text losses differ by so much."""
    names = (mine, other)
    row = (*names, difference, difference - noise, difference + noise)
    columns = ["encoding_a", "encoding_b", "difference", "ci_low", "ci_high", "verdict"]
    pair = pd.DataFrame([(*row, _better(difference, noise, names))], columns=columns)
    copied = [
        ("copy accuracy", name, 1, 0.1 if name in unlearned else 0.98)
        for name in {*names, "rope"}
    ]
    columns = ["metric", "encoding", "times_trained_len", "value"]
    tables = {
        "pairs": pair,
        "quality": with_worst(pd.DataFrame(copied, columns=columns)),
    }
    config = {"train_len": 512, "test_len": 2048, "seeds": [0, 1, 2], "documents": 50}
    return Stored("encodings", config, tables, "somewhere")


def test_one_seed_that_did_not_learn_leaves_open_what_the_mean_would_decide():
    run = encodings()
    quality = run.tables["quality"]
    near = (quality["encoding"] == "rope") & (quality["times_trained_len"] == 1)
    worst = quality["worst_seed_value"].mask(
        near & (quality["metric"] == "copy accuracy"), 0.1
    )
    mixed = replace(
        run, tables=run.tables | {"quality": quality.assign(worst_seed_value=worst)}
    )
    assert find_claim("copy-order").verdict(runs=(run,)) == HOLDS
    assert find_claim("copy-order").verdict(runs=(mixed,)) == OPEN


@pytest.mark.parametrize(
    ("id_", "pair"),
    [
        ("learned-worse", ("learned", "sinusoidal")),
        ("values-without-positions", ("rope_values", "rope")),
    ],
)
def test_a_higher_loss_is_decided_by_the_stored_pair(id_, pair):
    def verdict(difference, **more):
        first, second = pair
        return find_claim(id_).verdict(
            runs=(paired(first, second, difference, **more),)
        )

    assert verdict(0.2) == HOLDS
    assert verdict(-0.2) == WRONG
    assert verdict(0.2, noise=0.3) == OPEN
    # Copying is told, and decides nothing about a loss on text.
    assert verdict(0.2, unlearned=pair[:1]) == HOLDS
    assert find_claim(id_).verdict(runs=(paired("nope", "rope", 0.2),)) == OPEN


@pytest.mark.parametrize(
    ("difference", "expected"), [(-0.06, CONDITION), (0.06, HOLDS), (0.001, HOLDS)]
)
def test_values_turned_and_turned_back_are_asked_too(difference, expected):
    """In the reference they read text better than RoPE, by 0.064 nats per byte."""
    run = paired("rope_values", "rope", 0.2)
    names = ("rope_values_back", "rope")
    ends = {"ci_low": difference - 0.01, "ci_high": difference + 0.01}
    row = {"encoding_a": names[0], "encoding_b": names[1], "difference": difference}
    row |= {"metric": "text loss", "times_trained_len": 1, **ends}
    row["verdict"] = _better(difference, 0.01, names)
    whole = replace(run, tables=run.tables | {"comparisons": pd.DataFrame([row])})
    evidence = find_claim("values-without-positions").evidence(runs=(run, whole))
    assert evidence.verdict(Kind.TRAINED) == expected
    # The run that has both is preferred.
    asked = evidence.find(
        "turned back by the query's position (rope_values_back) against rope, text loss of"
        " the last 128 of 512 tokens"
    )
    assert f"{difference:+.3f} [" in asked.measured


def test_a_learned_table_is_compared_where_every_position_was_trained_as_often() -> (
    None
):
    grown = paired("learned", "sinusoidal", 0.2)
    grown.config["first_window"] = 16
    evidence = find_claim("learned-worse").evidence(runs=(grown,))
    assert evidence.verdict(Kind.TRAINED) == CONDITION
    assert evidence.deciding.what == "every position trained as often"
    assert mentions(evidence.deciding.measured, "no", "from 16", "512 tokens")

    # A run of whole windows decides before a larger one whose windows grew.
    whole = paired("learned", "sinusoidal", 0.1, unlearned=("sinusoidal",))
    whole.config["seeds"] = [0]
    for runs in ((whole,), (grown, whole)):
        evidence = find_claim("learned-worse").evidence(runs=runs)
        assert evidence.verdict(Kind.TRAINED) == HOLDS
        assert evidence.deciding.value == 0.1


def test_four_terms_must_gain_more_than_nothing():
    def verdict(difference, **more):
        run = paired("deberta", "transformer_xl", difference, **more)
        return find_claim("middle-terms-suffice").verdict(runs=(run,))

    assert verdict(0.0) == HOLDS
    assert verdict(-0.2) == HOLDS
    assert verdict(0.009) == HOLDS
    assert verdict(0.2) == WRONG
    assert verdict(0.02) == OPEN
    assert verdict(0.2, noise=0.3) == OPEN


def bases(law, contexts=5, head_dim=128, pairs=64) -> Stored:
    """A stored run of the base lab whose bounds follow a law."""
    lengths = [1024 * 2**i for i in range(contexts)]
    table = pd.DataFrame(
        {
            "context_tokens": lengths,
            "head_dim": head_dim,
            "rotating_pairs": pairs,
            "smallest_admissible_base": [law(n) for n in lengths],
        }
    )
    return Stored("base", {}, {"bound": table}, "somewhere")


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((), OPEN),
        ((bases(lambda n: 0.0424 * n**1.628),), HOLDS),
        ((bases(lambda n: 0.0424 * n**1.628, contexts=4),), OPEN),
        ((bases(lambda n: 0.0424 * n**1.628, head_dim=64, pairs=32),), OPEN),
        ((bases(lambda n: 0.0424 * n**1.628, pairs=32),), OPEN),
        ((bases(lambda n: 0.043 * n**1.64),), CONDITION),
        ((bases(lambda n: 0.0424 * n**1.4),), WRONG),
    ],
)
def test_the_fit_is_judged_by_stored_bounds(runs, expected):
    assert find_claim("base-bound-fit").verdict(runs=runs) == AS_ARITHMETIC[expected]


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (lambda n: dict(PRINTED["men"])[n], HOLDS),
        (lambda n: 0.995 * dict(PRINTED["men"])[n], HOLDS),
        (lambda n: 0.9 * dict(PRINTED["men"])[n], WRONG),
    ],
)
def test_exact_bounds_decide_whether_printed_bases_are_least(law, expected):
    runs = (bases(law, contexts=len(PRINTED["men"])),)
    assert find_claim("base-bound-table").verdict(runs=runs) == AS_ARITHMETIC[expected]


def predictions(*rows) -> Stored:
    """A stored run that trained under several bases: first failure, outcome, text,
    agrees.
    """
    names = ["first_failing_position_tokens", "outcome", "text_ci_high_nats_per_byte"]
    table = pd.DataFrame(rows, columns=[*names, "agrees"])
    table = table.assign(
        task="copy",
        base=30.0,
        accuracy=0.16,
        accuracy_ci_low=0.12,
        accuracy_ci_high=0.21,
        n=240,
    )
    config = {"seeds": [0], "train_len": 512}
    return Stored("base-empirical", config, {"predictions": table}, "somewhere")


REFERENCE = (math.nan, str(Outcome.REFERENCE), 0.0, None)
SUPERFICIAL = (100.0, str(Outcome.SUPERFICIAL), 0.01, True)
WORSE = (100.0, str(Outcome.FAILS_TOGETHER), 0.3, True)
RETRIEVES_WORSE = (100.0, str(Outcome.RETRIEVES_WORSE), 0.01, False)
PARTLY = (100.0, str(Outcome.PARTLY), 0.01, False)
RETRIEVES = (100.0, str(Outcome.RETRIEVES), 0.01, False)
ADMISSIBLE = (math.nan, str(Outcome.HOLDS), 0.01, True)
LOST = (math.nan, str(Outcome.WORSE_ANYWAY), 0.01, False)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((REFERENCE,), OPEN),
        ((REFERENCE, ADMISSIBLE), OPEN),
        ((REFERENCE, SUPERFICIAL, SUPERFICIAL, ADMISSIBLE), HOLDS),
        ((REFERENCE, SUPERFICIAL, WORSE), CONDITION),
        ((REFERENCE, SUPERFICIAL, LOST), CONDITION),
        ((REFERENCE, SUPERFICIAL, PARTLY), WRONG),
        ((REFERENCE, SUPERFICIAL, RETRIEVES), WRONG),
        ((REFERENCE, SUPERFICIAL, RETRIEVES_WORSE), WRONG),
    ],
)
def test_the_bound_is_judged_by_stored_trainings(rows, expected):
    assert find_claim("base-bound-predicts").verdict() == OPEN
    assert (
        find_claim("base-bound-predicts").verdict(runs=(predictions(*rows),))
        == expected
    )


def test_low_text_losses_are_counted_among_all_bases_below_the_bound():
    run = predictions(REFERENCE, SUPERFICIAL, RETRIEVES_WORSE)
    low = find_claim("base-bound-predicts").evidence(runs=(run,)).findings[1]
    assert low.measured == "2 of 2"


def test_recall_below_the_bound_is_told_with_its_interval():
    run = predictions(REFERENCE, SUPERFICIAL)
    failing = find_claim("base-bound-predicts").evidence(runs=(run,)).findings[0]
    assert "copy 30: 0.16 [0.12, 0.21]" in failing.measured


def test_intervals_of_methods_are_over_seeds():
    run = MethodsRun(extrapolation())
    (label, *_) = run.rows("last_window")["label"].unique()
    losses = run.losses_by_seed(label)
    assert run.loss(label) == pytest.approx(losses.mean())
    copies = run.copies_beyond_by_seed(label)
    assert run.copies_beyond(label) == pytest.approx(copies.mean())
    assert list(losses.index) == list(copies.index)


# Copied from 16 and from 64 back: by scheme, and by the band that is taken from the
# trained model.
COPIES = {
    ("unscaled", "none"): (0.97, 0.91),
    ("one(period=1e+06)", "none"): (0.08, 0.06),
    ("one(period=256)", "none"): (0.12, 0.12),
    ("without(band=slow)", "none"): (0.98, 0.92),
    ("unscaled", "fast"): (0.2, 0.1),
    ("unscaled", "slow"): (0.95, 0.90),
}


def frequencies(copies=COPIES, noise=0.03, resting=8, base=80.0, **changes) -> Stored:
    """A stored run of the frequencies lab in which differences above `noise` are told
    apart.
    """
    copies = copies | {tuple(name.split("/")): value for name, value in changes.items()}
    place = ["distance_tokens", "context_tokens"]
    learned: list[tuple] = []
    pairs: list[tuple] = []
    removed: list[tuple] = []
    for (scheme, band), values in copies.items():
        for distance, value, plain in zip(
            (16, 64), values, copies["unscaled", "none"], strict=True
        ):
            learned.append(("copy accuracy", scheme, band, distance, 128, value))
            who, reference = (scheme, "unscaled") if band == "none" else (band, "none")
            found = _better(plain - value, noise, (who, reference))
            change = value - plain
            interval = change, change - noise, change + noise
            row = ("copy accuracy", distance, 128, who, reference, *interval, found)
            if who != reference:
                (pairs if band == "none" else removed).append(row)
    ends = ["difference", "ci_low", "ci_high", "verdict"]
    single = [scheme.startswith("one") for scheme, _ in copies]
    tables = {
        "schemes": pd.DataFrame(
            {
                "scheme": [scheme for scheme, _ in copies],
                "frequencies": [1 if s else 16 for s in single],
                "rotating_pairs": [resting if s else 16 for s in single],
                "pairs": 16,
            }
        ).drop_duplicates(),
        "learned": pd.DataFrame(
            learned, columns=["metric", "scheme", "removed", *place, "value"]
        ),
        "comparisons": pd.DataFrame(
            pairs, columns=["metric", *place, "scheme_a", "scheme_b", *ends]
        ),
        "removed": pd.DataFrame(
            removed, columns=["metric", *place, "removed_a", "removed_b", *ends]
        ),
    }
    config = {"train_len": 128, "test_len": 512, "seeds": [0, 1], "documents": 50}
    config |= {"base": base, "head_dim": 32}
    return Stored("spectrum", config, tables, "somewhere")


NO_SLOW, ONE = "without(band=slow)/none", "one(period=1e+06)/none"


@pytest.mark.parametrize(
    ("id_", "changes", "expected"),
    [
        ("one-frequency-learned", {}, HOLDS),
        ("one-frequency-learned", {ONE: (0.96, 0.95)}, WRONG),
        ("one-frequency-learned", {ONE: (0.96, 0.5)}, OPEN),
        ("one-frequency-learned", {"noise": 1.0}, OPEN),
        # In every pair of features, too: none marks a position then.
        ("one-frequency-learned", {"resting": 16}, HOLDS),
        ("one-frequency-learned", {"one(period=256)/none": (0.96, 0.9)}, CONDITION),
        ("detail-and-whole", {}, WRONG),
        ("detail-and-whole", {"unscaled/slow": (0.95, 0.3)}, CONDITION),
        (
            "detail-and-whole",
            {"unscaled/slow": (0.95, 0.3), "unscaled/fast": (0.2, 0.9)},
            HOLDS,
        ),
        ("detail-and-whole", {"noise": 1.0}, OPEN),
        # At the usual base the slow third hardly rotates in 128 tokens.
        ("detail-and-whole", {"base": 1e4}, OPEN),
        ("slow-ones-mark-far", {"base": 1e4}, OPEN),
        ("slow-ones-mark-far", {}, WRONG),
        ("slow-ones-mark-far", {NO_SLOW: (0.97, 0.83)}, OPEN),
        ("slow-ones-mark-far", {NO_SLOW: (0.97, 0.4)}, HOLDS),
    ],
)
def test_verdicts_on_frequencies_follow_the_stored_numbers(id_, changes, expected):
    evidence = find_claim(id_).evidence(runs=(frequencies(**changes),))
    assert evidence.verdict(Kind.TRAINED) == expected, evidence.measured
    assert_reason(evidence)


def test_one_frequency_is_told_beside_many_that_turn_as_many_pairs():
    plain = frequencies()
    copies = {"spaced(n=8, pairs=8)/none": (0.6, 0.75)}
    controlled = frequencies(**copies)
    schemes = controlled.tables["schemes"].copy()
    is_control = schemes["scheme"] == "spaced(n=8, pairs=8)"
    schemes.loc[is_control, ["frequencies", "rotating_pairs"]] = [8, 8]
    controlled = replace(controlled, tables=controlled.tables | {"schemes": schemes})

    claim = find_claim("one-frequency-learned")
    told = claim.evidence(runs=(plain,)).measured
    assert "(period=1e+06) with 8 turning pairs against RoPE (unscaled)" in told
    assert "RoPE (unscaled) with 16 turning pairs: 0.06 against 0.91" in told
    assert "spaced" not in told
    evidence = claim.evidence(runs=(controlled,))
    control = "recall of spaced(n=8, pairs=8) with 8 turning pairs, from 64 tokens back"
    assert f"{control}: 0.75" in evidence.measured
    assert evidence.verdict(Kind.TRAINED) == HOLDS
    # Many frequencies that do no better with as many pairs put a condition on the claim.
    low = controlled.tables["learned"].copy()
    far = (low["scheme"] == "spaced(n=8, pairs=8)") & (low["distance_tokens"] == 64)
    low.loc[far, "value"] = 0.05
    alike = replace(controlled, tables=controlled.tables | {"learned": low})
    assert claim.verdict(runs=(alike,)) == CONDITION


def claims_of_labs():
    return [c for c in CLAIMS if c.reads in ("extrapolate", "encodings", "spectrum")]


@pytest.mark.parametrize("claim", claims_of_labs(), ids=lambda claim: claim.id)
def test_without_a_run_that_decides_a_claim_stays_open_and_says_why(claim):
    nothing = claim.evidence()
    assert nothing.verdict(claim.kind) == OPEN
    assert nothing.is_missing
    weak = {
        "extrapolate": extrapolation(changed(("unscaled", 1.0), copying=(0.3,) * 5))
    }
    weak["encodings"] = encodings(near=0.3)
    weak["spectrum"] = frequencies(**{"unscaled/none": (0.3, 0.3)})
    unlearned = claim.evidence(runs=(weak[claim.reads],))
    assert unlearned.verdict(claim.kind) == OPEN
    assert unlearned.is_missing


RUNS = {
    "extrapolate": extrapolation(),
    "encodings": encodings(),
    "spectrum": frequencies(),
}


def told_of(id_: str) -> str:
    claim = find_claim(id_)
    return claim.evidence(runs=(RUNS[claim.reads],)).measured


def test_what_trained_models_show_is_told_with_its_place_and_unit():
    assert "yarn ×4 at any distance (6144 tokens back): 0.95" in told_of("yarn-extends")
    assert "yarn ×4 from 4096 tokens back: 0.99" in told_of("yarn-extends")
    assert "pi ×4 at any distance (512 tokens back)" in told_of("pi-fails-zero-shot")
    said = told_of("rope-beats-sinusoidal")
    lost = "text loss of the last 128 of 2048 tokens"
    assert f"{lost} (2.800 [2.790, 2.810] and 2.400" in said
    copied = "copy accuracy from 1024 tokens back in 2048 (0.600 [0.590"
    assert copied in told_of("copy-order")
    assert f"alibi against t5, {lost}" in told_of("alibi-beats-others")
    near = "sinusoidal, text loss of the last 128 of 512 tokens"
    assert near in told_of("relative-do-well")
    said = told_of("t5-extrapolates")
    both = "copy accuracy from 256 tokens back in 512 and from 1024 tokens back in 2048"
    assert f"t5, {both}: 0.98" in said
    risen = "t5, rise of the text loss of the last 128 tokens, from 512 to 2048 tokens"
    assert risen in said
    one = "the best single one, one(period=256), from 64 tokens back: 0.12"
    assert one in told_of("one-frequency-learned")
    assert "on the last 512 of 8192 tokens" in told_of("plain-fails")
    assert "on the last 512 of 2048 tokens" in told_of("ntk-better-short")


@pytest.mark.parametrize("claim", claims_of_labs(), ids=lambda claim: claim.id)
def test_what_decides_can_be_read_without_the_finding_before_it(claim):
    for finding in claim.evidence(runs=(RUNS[claim.reads],)).findings:
        assert not FRAGMENT.match(finding.what), finding.what


def test_what_counts_as_copying_is_said_with_the_threshold_that_decides():
    works = ("yarn-extends", "rope-extrapolates")
    assert all(f"{thresholds.WORKS} of the" in find_claim(x).expected for x in works)
    fails = ("plain-fails", "pi-fails-zero-shot")
    assert all("fewer than half of the" in find_claim(x).expected for x in fails)
    assert thresholds.FAILS == 0.5


@pytest.mark.parametrize(
    ("claim", "left"),
    [(claim, left) for claim in claims_of_labs() for left in RUNS[claim.reads].tables],
    ids=lambda each: getattr(each, "id", each),
)
def test_a_run_without_one_of_its_tables_is_never_read_as_a_failure(claim, left):
    full = RUNS[claim.reads]
    tables = {name: table for name, table in full.tables.items() if name != left}
    partial = Stored(full.experiment, full.config, tables, full.path)
    assert claim.verdict(runs=(partial,)) in (OPEN, claim.verdict(runs=(full,)))


@pytest.mark.parametrize(
    "id_", ["sinusoidal-extrapolates", "t5-extrapolates", "t5-below-rope"]
)
def test_an_encoding_that_did_not_learn_decides_nothing(id_):
    learned = find_claim(id_).verdict(runs=(encodings(),))
    evidence = find_claim(id_).evidence(
        runs=(encodings(unlearned=("sinusoidal", "t5")),)
    )
    assert learned != OPEN
    assert evidence.verdict(Kind.TRAINED) == OPEN
    assert mentions(evidence.measured, "did not learn")


@pytest.mark.parametrize(
    "id_", ["sinusoidal-extrapolates", "t5-extrapolates", "t5-below-rope"]
)
def test_a_run_whose_models_learned_decides_before_a_larger_one(id_):
    claim, learned = find_claim(id_), encodings()
    weak = encodings(unlearned=("sinusoidal", "t5"))
    weak.config["seeds"] = [0, 1, 2, 3, 4]
    assert claim.evidence(runs=(weak, learned)) == claim.evidence(runs=(learned,))


def test_a_run_that_lacks_a_method_leaves_the_decision_to_one_that_has_it() -> None:
    rows = {row: values for row, values in PAPER_LIKE.items() if row[0] != "pi"}
    large, small = extrapolation(rows, seeds=[0, 1, 2]), extrapolation()
    claim = find_claim("pi-fails-zero-shot")
    assert claim.verdict(runs=(large,)) == OPEN
    assert claim.evidence(runs=(large, small)) == claim.evidence(runs=(small,))


def test_one_run_is_judged_by_the_claims_that_it_can_answer():
    run = extrapolation()
    table = judge_run("extrapolate", run.config, run.tables).set_index("id")
    assert set(table["evidence"]) == {Kind.TRAINED}
    assert table.loc["rope-extrapolates", "verdict"] == Verdict.NOT_REPRODUCED
    assert "order-zero-shot-2x" not in table.index  # tested at 4x
    assert judge_run(
        "encodings", encodings(near=0.3).config, encodings(near=0.3).tables
    ).empty


def test_models_are_described_by_size_seeds_and_length():
    shape = {"layers": 3, "width": 192, "heads": 1, "head_dim": 64}
    config = {**shape, "seeds": [0, 1, 2], "train_len": 2048}
    three = Stored("extrapolate", config, {}, "somewhere")
    assert mentions(
        describe_models(three), "1.1 M parameters", "3 seeds", "2048 tokens"
    )
    assert "version" not in describe_models(three)
    earlier = replace(three, earlier_version=4)
    assert mentions(describe_models(earlier), "1.1 M parameters", "version 4")

    config = {"preset": "small", "seeds": [0], "train_len": 64}
    one = describe_models(Stored("encodings", config, {}, "somewhere"))
    assert mentions(one, "about 1 M", "1 seed", "64 tokens")


def test_the_present_version_decides_before_an_earlier_one_with_more_seeds():
    run = extrapolation()
    present = replace(run, config={**run.config, "seeds": [0, 1]})
    more = {**run.config, "seeds": list(range(9))}
    earlier = replace(run, config=more, earlier_version=1)
    first, second = sort_largest_first(MethodsRun, [earlier, present])
    assert (first.earlier_version, second.earlier_version) == (None, 1)
    assert second.quality < first.quality


# Orderings


def ordered_run(
    *pairs, metric="nll_short_context", at=L, seeds=(0,), test_len=LONGER, **config
):
    """A stored run that compares pairs (a, b, difference, better) and whose models
    copy.
    """
    columns = ["method_a", "method_b", "difference", "verdict"]
    table = pd.DataFrame(list(pairs), columns=columns).assign(
        metric=metric, at_tokens=at
    )
    table = with_ends(table, config.pop("noise", 0.005))
    copies = pd.DataFrame(
        {
            "method": "unscaled",
            "factor": 1.0,
            "arm": "zero_shot",
            "distance_tokens": 64,
            "seed": [0],
        }
    ).assign(accuracy=config.pop("copies", 0.99))
    tables = {"comparisons": table, "copy_accuracy": copies}
    config = {"train_len": L, "test_len": test_len, "seeds": list(seeds)} | config
    return Stored("extrapolate", config, tables, "somewhere")


@pytest.mark.parametrize(
    ("difference", "noise", "better", "costs", "free"),
    [
        (-0.3, 0.1, "first", HOLDS, WRONG),
        (-0.01, 0.005, "first", OPEN, HOLDS),
        (-0.019, 0.005, "first", OPEN, OPEN),
        (-0.021, 0.005, "first", HOLDS, WRONG),
        (0.0, 0.005, "~", OPEN, HOLDS),
        (-0.3, 0.4, "~", OPEN, OPEN),
        (0.3, 0.1, "second", WRONG, WRONG),
        (0.01, 0.005, "second", OPEN, HOLDS),
    ],
)
def test_orderings_are_decided_by_verdicts_and_closeness(
    difference, noise, better, costs, free
):
    def verdict(id_: str, a: str, b: str, at: int = L, **inputs: Any) -> Verdict:
        row = (a, b, difference, {"first": a, "second": b}.get(better, "~"))
        metric = find_claim(id_).inputs["metric"]
        stored = ordered_run(row, noise=noise, metric=metric, at=at)
        return find_claim(id_).verdict(runs=(stored,), **inputs)

    assert verdict("static-costs-short", "unscaled", "yarn ×4") == costs
    assert verdict(*TEMPERATURE, at=LONGER, groups=EQUALS) == free


# A claim, its rows, and the groups that make it one about equals.
TEMPERATURE = (
    "yarn-temperature-finetuned",
    "yarn ×4 finetuned",
    "yarn(attention_factor=1) ×4 finetuned",
)
EQUALS = [["yarn", "yarn(attention_factor=1)"]]


@pytest.mark.parametrize(
    ("difference", "noise", "better", "costs", "free"),
    [
        # Significant and large; significant and small; equal; no difference shown.
        (-0.3, 0.1, "first", "better", "better"),
        (-0.019, 0.005, "first", "better", "better"),
        (-0.01, 0.005, "first", "better", "equal"),
        (0.0, 0.005, "~", "within the noise", "equal"),
        (-0.3, 0.4, "~", "within the noise", "within the noise"),
        (0.3, 0.1, "second", "worse", "worse"),
    ],
)
def test_equal_and_not_shown_to_differ_have_two_words(
    difference, noise, better, costs, free
):
    def word(id_: str, a: str, b: str, at: int = L, **inputs: Any) -> str:
        row = (a, b, difference, {"first": a, "second": b}.get(better, "~"))
        metric = find_claim(id_).inputs["metric"]
        stored = ordered_run(row, noise=noise, metric=metric, at=at)
        evidence = find_claim(id_).evidence(runs=(stored,), **inputs)
        assert_reason(evidence)
        return evidence.deciding.measured.split(" (")[0]

    assert word("static-costs-short", "unscaled", "yarn ×4") == costs
    assert word(*TEMPERATURE, at=LONGER, groups=EQUALS) == free


def test_a_row_that_fails_here_refutes_no_published_order() -> None:
    id_, a, b = TEMPERATURE
    equal = ordered_run((a, b, -0.9, a), metric="nll_bucket", at=LONGER)
    worse = ordered_run(("unscaled", "yarn ×4", 0.9, "yarn ×4"))
    better = ordered_run(("unscaled", "yarn ×4", -0.9, "unscaled"))
    equals = {"groups": EQUALS}
    for claim, inputs, stored, before, after in (
        (id_, equals, equal, WRONG, OPEN),
        ("static-costs-short", {}, worse, WRONG, OPEN),
        ("static-costs-short", {}, better, HOLDS, HOLDS),
    ):
        assert find_claim(claim).verdict(runs=(stored,), **inputs) == before
        stored.tables["comparisons"]["status"] = "a row fails"
        assert find_claim(claim).verdict(runs=(stored,), **inputs) == after


def test_runs_of_the_same_models_that_decide_differently_leave_open() -> None:
    pair = ("unscaled", "yarn ×4")
    one = ordered_run((*pair, -0.07, "unscaled"))
    beside_more = ordered_run((*pair, -0.07, "~"))
    claim = find_claim("static-costs-short")
    assert claim.verdict(runs=(one, one)) == HOLDS
    for runs in ((one, beside_more), (beside_more, one)):
        evidence = claim.evidence(runs=runs)
        assert evidence.verdict(Kind.TRAINED) == OPEN
        assert_reason(evidence)
        assert "better (-0.070" in evidence.measured
        assert "within the noise (-0.070" in evidence.measured
    # A run of more models decides alone.
    more = ordered_run((*pair, -0.07, "unscaled"), seeds=(0, 1, 2))
    assert claim.verdict(runs=(more, beside_more)) == HOLDS


def test_orderings_do_not_depend_on_which_way_round_a_pair_was_compared():
    there = ordered_run(("unscaled", "yarn ×4", -0.3, "unscaled"))
    back = ordered_run(("yarn ×4", "unscaled", 0.3, "unscaled"))
    told = [
        find_claim("static-costs-short").evidence(runs=(run,)).measured
        for run in (there, back)
    ]
    pair = "unscaled against yarn ×4"
    where = "loss (nats per byte) of the last 512 of 2048 tokens"
    result = "better (-0.300 [-0.305, -0.295])"
    assert told == [f"{pair}, {where}: {result}"] * 2


def test_orderings_need_models_that_learned_and_the_run_with_most_seeds_decides():
    one = ordered_run(("unscaled", "yarn ×4", -0.3, "unscaled"))
    three = ordered_run(("unscaled", "yarn ×4", 0.3, "yarn ×4"), seeds=(0, 1, 2))
    weak = ordered_run(("unscaled", "yarn ×4", -0.3, "unscaled"), copies=0.3)
    assert find_claim("static-costs-short").verdict(runs=(weak,)) == OPEN
    assert find_claim("static-costs-short").verdict(runs=(one, three)) == WRONG


def test_fine_tuned_models_are_looked_at_inside_and_just_outside_of_that_length():
    inside, outside = (
        ["yarn", "ntk_by_parts", "pi", "ntk"],
        ["yarn", "ntk", "pi", "ntk_by_parts"],
    )
    pairs = [
        (at, f"{a} ×2 finetuned", f"{b} ×2 finetuned", -0.03)
        for at, order in ((2 * L, inside), (3 * L, outside), (4 * L, inside))
        for a, b in combinations(order, 2)
    ]
    table = pd.DataFrame(
        pairs, columns=["at_tokens", "method_a", "method_b", "difference"]
    )
    ends = {
        "ci_low": table["difference"] - 0.001,
        "ci_high": table["difference"] + 0.001,
    }
    table = table.assign(metric="nll_bucket", verdict=table["method_a"], **ends)
    near = ordered_run(finetune_len=2 * L)
    near.tables["comparisons"] = table
    far = ordered_run(finetune_len=4 * L)
    far.tables["comparisons"] = table
    for id_ in ("order-finetuned-inside", "order-finetuned-outside"):
        assert find_claim(id_).verdict(runs=(near,)) == HOLDS
        assert find_claim(id_).verdict(runs=(far,)) == OPEN
    # A stretch of text is told with both of its ends.
    told = [
        find_claim(id_).evidence(runs=(near,)).measured
        for id_ in ("order-finetuned-inside", "order-finetuned-outside")
    ]
    assert f"text loss (nats per byte) of tokens 0 to {2 * L}" in told[0]
    assert f"text loss (nats per byte) of tokens {2 * L} to {3 * L}" in told[1]


Values = dict[str, Any]
SMALL: Values = {"train_len": 64, "test_len": 128, "steps": 2, "device": "cpu"}
SMALL |= {"documents": 3, "sequences": 2}
TINY: Values = {"train_len": 256, "steps": 2, "tokens_per_step": 128}
TINY |= {
    "width": 16,
    "head_dim": 8,
    "layers": 1,
    "documents": 3,
    "sequences": 2,
    "device": "cpu",
}
SMALLER: Values = {
    "layers": 1,
    "width": 16,
    "heads": 2,
    "head_dim": 8,
    "tokens_per_step": 128,
}


NOT_IN_SMALL_RUNS = {
    "du-indexing",
    "learned-worse",
    "middle-terms-suffice",
    "values-without-positions",
    "base-bound-fit",
    "base-bound-predicts",
    *(
        c.id
        for c in CLAIMS
        if c.decision.check is compare_published_order and c.id != "static-costs-short"
    ),
}


@pytest.fixture(scope="module")
def really_run(corpora, tiny_preset) -> dict[str, Stored]:
    """Runs of the labs themselves, too short to learn anything."""
    on: Values = {"corpus": corpora[0]}
    few: Values = {
        "methods": "unscaled,pi,ntk,yarn",
        "head_dim": 16,
        "tasks": "text,copy",
    }
    chosen: Values = {"encodings": f"nope,sinusoidal,t5,alibi,rope,{FAST}"}
    schemes: Values = {
        "schemes": "unscaled,one(period=1e6),without(band=slow)",
        "tasks": "copy",
    }
    made = {
        "extrapolate": run("extrapolate", **SMALL, **few, **on),
        "encodings": run("encodings", **SMALL, **SMALLER, **chosen, **on),
        "spectrum": run("spectrum", **SMALL, **SMALLER, **schemes, **on),
        "base": run("base", context="256, 512", windows_up_to=0),
        "base-empirical": run("base-empirical", **TINY, **on),
    }
    return {
        name: Stored(name, found.config.model_dump(mode="json"), dict(found.tables), "")
        for name, found in made.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "claim",
    [c for c in CLAIMS if c.reads not in ("", "precision", "evaluate")],
    ids=lambda claim: claim.id,
)
def test_the_tables_of_the_labs_can_be_read(claim, really_run, monkeypatch):
    runs = (really_run[claim.reads],)
    decided = claim.verdict(runs=runs) != OPEN
    assert decided == (claim.id == "base-bound-table")
    for module in ("deciding", "methods", "orders", "runs"):
        monkeypatch.setattr(f"ropelab.claims.trained.{module}.LEARNED", 0.0)
    evidence = claim.evidence(runs=runs)
    assert evidence.is_missing == (claim.id in NOT_IN_SMALL_RUNS), evidence.measured


def test_the_longest_run_with_most_seeds_decides():
    small = extrapolation(train_len=512, test_len=1024)
    seeds = extrapolation(seeds=[0, 1, 2])
    short_seeds = extrapolation(train_len=1024, test_len=2048, seeds=[0, 1])
    same_length = extrapolation(test_len=L)
    chosen = sort_largest_first(
        MethodsRun, (small, seeds, short_seeds, extrapolation(), same_length)
    )
    sizes = [(run.train_len, len(run.config["seeds"])) for run in chosen]
    assert sizes == [(L, 3), (1024, 2), (L, 1), (512, 1)]
    assert sort_largest_first(MethodsRun, (same_length,)) == []
    assert sort_largest_first(EncodingsRun, ()) == []


def test_fine_tuned_rows_do_not_decide_zero_shot_claims():
    plain = extrapolation()
    tuned = plain.tables["copy_accuracy"].assign(arm="finetuned", accuracy=1.0)
    tables = {
        **plain.tables,
        "copy_accuracy": pd.concat([tuned, plain.tables["copy_accuracy"]]),
    }
    mixed = MethodsRun(Stored("extrapolate", plain.config, tables, ""))
    distance, copied = mixed.measure_copying_at("unscaled", "twice")
    assert (distance, copied.value) == (4096, 0.02)
    assert mixed.find_label("ntk") == "ntk ×4"
    assert mixed.find_label("ntk", largest=True) == "ntk ×8"
    _, unknown = mixed.measure_copying_at("unknown", "twice")
    assert math.isnan(unknown.value)


def test_what_is_copied_is_judged_by_its_interval_over_the_seeds():
    plain = extrapolation()
    copies = plain.tables["copy_accuracy"]
    spread = [(0, -0.06), (1, 0.0), (2, 0.05)]
    seeds = [
        copies.assign(seed=s, accuracy=copies["accuracy"] + by) for s, by in spread
    ]
    tables = {**plain.tables, "copy_accuracy": pd.concat(seeds)}
    run = Stored("extrapolate", {**plain.config, "seeds": [0, 1, 2]}, tables, "")
    found = MethodsRun(run).measure_copying("yarn ×4", 4096)
    assert found.value == pytest.approx(0.99 - 0.01 / 3)
    assert found.n == 3
    assert found.low < 0.9 < found.value
    assert find_claim("yarn-extends").verdict(runs=(plain,)) == HOLDS
    assert find_claim("yarn-extends").verdict(runs=(run,)) == OPEN
    assert find_claim("plain-fails").verdict(runs=(run,)) == HOLDS


def test_copying_beyond_is_read_in_the_longest_context_and_learning_in_the_shortest():
    plain = extrapolation()
    short, long = (
        plain.tables["copy_accuracy"].assign(context_tokens=tokens, accuracy=accuracy)
        for tokens, accuracy in ((L, 0.95), (LONGER, 0.4))
    )
    both = {**plain.tables, "copy_accuracy": pd.concat([long, short])}
    run = MethodsRun(Stored("extrapolate", plain.config, both, ""))
    assert run.copies_within() == pytest.approx(0.95)
    assert run.copies_beyond("yarn ×4") == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("tally", "agrees", "text"),
    [
        (Tally(1, 0, 0), True, "better"),
        (Tally(0, 1, 0), False, "worse"),
        (Tally(0, 0, 1), None, "within the noise; no difference is shown"),
        (Tally(0, 0, 0), None, "not compared"),
        (
            Tally(1, 0, 0, Interval(-0.2, -0.3, -0.1, 1)),
            True,
            "better, -0.200 [-0.300, -0.100]",
        ),
        (
            Tally(1, 0, 1, differences=((64, Interval(0.5, 0.4, 0.6, 1)),)),
            True,
            "better at 1, worse at 0 of 2 distances (64: +0.500 [+0.400, +0.600])",
        ),
        (Tally(2, 1, 1), True, "better at 2, worse at 1 of 4 distances"),
        (Tally(1, 1, 0), False, "better at 1, worse at 1 of 2 distances"),
    ],
)
def test_tallies_in_words(tally, agrees, text):
    found = Findings("")
    tally.add_to(found, "a against b")
    tally.add_to(found, "", "nowhere worse")
    better, nowhere = found.findings
    assert (better.agrees, better.measured) == (agrees, text)
    # What was not compared is nowhere worse by no measurement.
    assert nowhere.agrees == (None if text == "not compared" else tally.worse == 0)


@pytest.mark.parametrize("id_", ["pi-fails-zero-shot", "rope-extrapolates"])
def test_a_comparison_that_a_run_lacks_neither_agrees_nor_puts_a_condition(
    id_: str,
) -> None:
    full = extrapolation(changed(("unscaled", 1.0), copying=WORKS))
    run = replace(
        full, tables=full.tables | {"comparisons": full.tables["comparisons"].iloc[:0]}
    )
    assert find_claim(id_).verdict(runs=(run,)) == OPEN


# method: shares right at 128 and 512 tokens, by place and by key
@pytest.mark.parametrize(
    ("shares", "verdict"),
    [
        # Places are lost where keys are kept, and no scaling brings them back.
        (
            {
                "unscaled": ((0.95, 0.27), (0.99, 0.98)),
                YARN: ((0.95, 0.28), (0.99, 0.98)),
            },
            HOLDS,
        ),
        (
            {
                "unscaled": ((0.95, 0.27), (0.99, 0.98)),
                YARN: ((0.95, 0.9), (0.99, 0.98)),
            },
            CONDITION,
        ),
        # The list is lost, not only the place in it.
        (
            {
                "unscaled": ((0.95, 0.27), (0.99, 0.2)),
                YARN: ((0.95, 0.3), (0.99, 0.98)),
            },
            CONDITION,
        ),
        (
            {
                "unscaled": ((0.95, 0.9), (0.99, 0.98)),
                YARN: ((0.95, 0.9), (0.99, 0.98)),
            },
            WRONG,
        ),
        # Who did not learn it decides nothing.
        (
            {
                "unscaled": ((0.4, 0.27), (0.99, 0.98)),
                YARN: ((0.4, 0.28), (0.99, 0.98)),
            },
            OPEN,
        ),
    ],
)
def test_places_are_lost_only_where_keys_are_kept(shares, verdict):
    names = ("indexing_accuracy", "keyed_accuracy")
    tables = {
        name: pd.DataFrame(
            {
                "method": method,
                "factor": factor,
                "arm": arm,
                "seed": seed,
                "context_tokens": context,
                "accuracy": shown + noise,
            }
            for method, tasks in shares.items()
            for context, right in zip((128, 512), tasks[task], strict=True)
            for seed, noise in enumerate((-0.01, 0, 0.01))
            # Other arms of the same methods decide nothing.
            # So does a factor beyond the smallest that covers the tested length.
            for factor, arm, shown in (
                (4.0, "zero_shot", right),
                (4.0, "finetuned", 1.0),
                (8.0, "zero_shot", 0.6),
            )
        )
        for task, name in enumerate(names)
    }
    config = {"train_len": 128, "test_len": 512, "seeds": [0, 1, 2]}
    lists = Stored("extrapolate", config, tables, "somewhere")
    claim = find_claim("du-indexing")
    assert claim.verdict(runs=(lists, extrapolation())) == verdict
    # A run of more seeds that was not asked for all of it does not decide.
    plain = {
        name: table[table["method"] == "unscaled"] for name, table in tables.items()
    }
    more = Stored(
        "extrapolate", {**config, "seeds": [0, 1, 2, 3, 4, 5]}, plain, "somewhere"
    )
    assert claim.verdict(runs=(more, lists)) == verdict
    # Runs without these tasks leave it open.
    assert claim.verdict(runs=(extrapolation(),)) == OPEN


@pytest.mark.parametrize(
    ("channel", "block", "verdict"),
    [
        (0.02, 0.02, HOLDS),
        (0.02, 0.0, HOLDS),
        (0.02, -0.02, CONDITION),
        (-0.02, 0.02, WRONG),
        (0.0, 0.02, OPEN),
    ],
)
def test_keys_before_rope_are_compared_by_document(channel, block, verdict):
    costs = {
        "int3(channel)": 0.5 + channel,
        "int3(channel, before)": 0.5,
        "q4_0": 0.5 + block,
        "q4_0(before)": 0.5,
    }
    # Documents differ by far more than formats do.
    rows = [
        {
            "name": f"{document}.py",
            "method": f"unmodified + {keys}",
            "factor": 1.0,
            "arm": "rounded",
            "nll_nats_per_byte": document
            + cost
            + ("before" in keys) * 0.001 * (-1) ** document,
        }
        for keys, cost in costs.items()
        for document in range(6)
    ]
    about = pd.DataFrame({"model_type": ["llama"], "layers": [30]})
    tables = {"text_by_document": pd.DataFrame(rows), "model": about}
    claim = find_claim("kvquant-before-rope")
    without = {**tables, "text_by_document": pd.DataFrame(rows[:6])}
    runs = (Stored("evaluate", {}, without, "a"), Stored("evaluate", {}, tables, "b"))
    evidence = claim.evidence(runs=runs)
    assert evidence.verdict(claim.kind) == verdict
    assert mentions(evidence.models, "llama", "30 layers", "released")
    # Six differences of deviation 0.001 sqrt(6 / 5); 2.571 is Student's for five
    # degrees.
    half = 2.571 * 0.001 / 5**0.5
    assert f"[{channel - half:+.4f}, {channel + half:+.4f}]" in evidence.measured
    assert claim.verdict(runs=runs[:1]) == OPEN


def test_a_run_with_one_method_at_two_factors_decides_nothing_about_keys():
    rows = [
        {"name": name, "method": "ntk", "factor": factor, "arm": "zero_shot"}
        for name in ("a.py", "b.py")
        for factor in (2.0, 4.0)
    ]
    documents = pd.DataFrame(rows).assign(nll_nats_per_byte=1.0)
    about = pd.DataFrame({"model_type": ["llama"], "layers": [30]})
    tables = {"text_by_document": documents, "model": about}
    claim = find_claim("kvquant-before-rope")
    evidence = claim.evidence(runs=(Stored("evaluate", {}, tables, "a"),))
    assert evidence.is_missing
