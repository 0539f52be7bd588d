"""Claims decided by stored runs: small made-up runs, and numbers turned around."""

import math
from itertools import combinations

import pandas as pd
import pytest

from ropelab.context import Stored
from ropelab.experiments.claims.base_bound import PRINTED
from ropelab.experiments.claims.ledger import CLAIMS, find
from ropelab.experiments.claims.record import Verdict
from ropelab.experiments.claims.stored import Encodings, Methods, Tally, deciding
from ropelab.lab import run
from ropelab.labels import method_label

HOLDS, CONDITION, WRONG, OPEN = Verdict
L, LONGER = 2048, 8192
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
    """A stored run of the extrapolation lab in which differences above `noise` are told apart."""
    config = {"train_len": L, "test_len": LONGER, "seeds": [0], "documents": 50} | config
    losses, copies, pairs = [], [], []
    for (method, factor), (far, near, accuracies) in rows.items():
        about = {"method": method, "factor": factor, "seed": 0, "arm": "zero_shot"}
        for context, loss in ((L, near), (LONGER, far)):
            losses.append({**about, "context_tokens": context, "nll_nats_per_byte": loss})
        for distance, accuracy in zip(DISTANCES, accuracies or (), strict=False):
            copies.append({**about, "distance_tokens": distance, "accuracy": accuracy})
    for a, b in combinations(rows, 2):
        pairs += _pairs(a, b, rows[a], rows[b], noise)
    columns = ["metric", "at_tokens", "method_a", "method_b", "verdict"]
    tables = {
        "last_window": pd.DataFrame(losses),
        "copy_accuracy": pd.DataFrame(copies),
        "comparisons": pd.DataFrame(pairs, columns=columns),
    }
    return Stored("extrapolate", config, tables, "somewhere")


def _pairs(a, b, of_a, of_b, noise):
    names = method_label(*a), method_label(*b)
    yield ("nll_last_window", LONGER, *names, _better(of_a[0] - of_b[0], noise, names))
    yield ("nll_short_context", L, *names, _better(of_a[1] - of_b[1], noise, names))
    if of_a[2] and of_b[2]:
        for distance, x, y in zip(DISTANCES, of_a[2], of_b[2], strict=True):
            yield ("copy_accuracy", distance, *names, _better(y - x, noise, names))


def _better(difference, noise, names):
    return "~" if abs(difference) <= noise else names[difference > 0]


def changed(row, far=None, near=None, copying=None):
    old = PAPER_LIKE[row]
    new = (far or old[0], near or old[1], old[2] if copying is None else copying)
    return {**PAPER_LIKE, row: new}


def without_window(rows):
    return {row: values for row, values in rows.items() if row[0] != "sliding_window"}


WORKS = (0.99,) * 5
ON_TRAINED_LENGTHS = [
    ("plain-fails", {}, HOLDS),
    ("plain-fails", {"rows": changed(("unscaled", 1.0), copying=WORKS)}, WRONG),
    ("plain-fails", {"rows": changed(("unscaled", 1.0), far=1.80)}, WRONG),
    ("plain-fails", {"rows": changed(("unscaled", 1.0), far=1.841)}, OPEN),
    ("rope-extrapolates", {}, WRONG),
    ("rope-extrapolates", {"rows": changed(("unscaled", 1.0), 1.80, copying=WORKS)}, HOLDS),
    ("yarn-extends", {}, HOLDS),
    (
        "yarn-extends",
        {"rows": changed(("yarn", 4.0), copying=(1.0, 1.0, 1.0, 0.99, 0.6))},
        CONDITION,
    ),
    ("yarn-extends", {"rows": changed(("yarn", 4.0), copying=(1.0, 1.0, 0.9, 0.5, 0.1))}, WRONG),
    ("yarn-extends", {"rows": changed(("yarn", 4.0), far=2.60)}, WRONG),
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
    ("low-perplexity-enough", {}, WRONG),
    ("low-perplexity-enough", {"rows": without_window(PAPER_LIKE)}, HOLDS),
    (
        "low-perplexity-enough",
        {"rows": without_window(changed(("pi", 4.0), far=1.90))},
        CONDITION,
    ),
    ("extension-beats-window", {}, WRONG),
    ("extension-beats-window", {"rows": changed(("yarn", 4.0), far=1.80)}, HOLDS),
    ("extension-beats-window", {"noise": 0.1}, OPEN),
]


@pytest.mark.parametrize(("id_", "stored", "expected"), ON_TRAINED_LENGTHS)
def test_verdicts_on_scaling_follow_the_stored_numbers(id_, stored, expected):
    evidence = find(id_).evidence(runs=(extrapolation(**stored),))
    assert evidence.verdict == expected, evidence.measured


# ALiBi keeps its loss, T5 nearly, RoPE and the sinusoids do not.
RISES = {"alibi": -0.01, "t5": 0.015, "rope": 0.5, "sinusoidal": 0.9, "nope": 0.3}
FAR_COPIES = {"alibi": 0.9, "t5": 0.6, "rope": 0.05, "sinusoidal": 0.02, "nope": 0.2}


def encodings(rises=RISES, copies=FAR_COPIES, near=0.98, noise=0.004, unlearned=()) -> Stored:
    """A stored run of the encodings lab; `unlearned` copy 0.1 inside the trained length."""
    growth, quality, pairs = [], [], []
    for name, rise in rises.items():
        growth.append(("text loss", 4, name, rise, rise - noise, rise + noise))
        quality += [("text loss", name, 1, 1.9), ("text loss", name, 4, 1.9 + rise)]
        inside = 0.1 if name in unlearned else near
        quality += [("copy accuracy", name, 1, inside), ("copy accuracy", name, 4, copies[name])]
        if name != "rope":
            names = (name, "rope")
            loss = _better(rise - rises["rope"], noise, names)
            copied = _better(copies["rope"] - copies[name], noise, names)
            pairs += [("text loss", 4, *names, loss), ("copy accuracy", 4, *names, copied)]
            pairs.append(("text loss", 1, *names, "~"))
    at = "times_trained_len"
    tables = {
        "extrapolation": pd.DataFrame(
            growth, columns=["metric", at, "encoding", "difference", "ci_low", "ci_high"]
        ),
        "quality": pd.DataFrame(quality, columns=["metric", "encoding", at, "value"]),
        "comparisons": pd.DataFrame(
            pairs, columns=["metric", at, "encoding_a", "encoding_b", "verdict"]
        ),
    }
    config = {"train_len": 512, "test_len": 2048, "seeds": [0, 1, 2], "documents": 50}
    return Stored("encodings", config, tables, "somewhere")


@pytest.mark.parametrize(
    ("id_", "stored", "expected"),
    [
        ("alibi-extrapolates", {}, HOLDS),
        ("alibi-extrapolates", {"copies": FAR_COPIES | {"alibi": 0.3}}, CONDITION),
        ("alibi-extrapolates", {"rises": RISES | {"alibi": 0.2}}, WRONG),
        ("alibi-extrapolates", {"rises": RISES | {"alibi": 0.021}}, OPEN),
        ("sinusoidal-extrapolates", {}, WRONG),
        ("sinusoidal-extrapolates", {"rises": RISES | {"sinusoidal": 0.0}}, CONDITION),
        ("t5-extrapolates", {}, CONDITION),
        ("loss-order", {}, HOLDS),
        ("loss-order", {"rises": RISES | {"t5": 0.6}}, WRONG),
        ("loss-order", {"rises": RISES | {"sinusoidal": 0.4}}, WRONG),
        ("loss-order", {"rises": RISES | {"sinusoidal": 0.501}}, OPEN),
        ("copy-order", {}, HOLDS),
        ("copy-order", {"copies": FAR_COPIES | {"nope": 0.0}}, WRONG),
        ("copy-order", {"copies": FAR_COPIES | {"nope": 0.0}, "unlearned": ("nope",)}, OPEN),
        ("copy-order", {"unlearned": ("nope",)}, HOLDS),
        ("copy-order", {"near": 0.3}, OPEN),
    ],
)
def test_verdicts_on_encodings_follow_the_stored_numbers(id_, stored, expected):
    evidence = find(id_).evidence(runs=(encodings(**stored),))
    assert evidence.verdict == expected, evidence.measured


def bases(law, contexts=5, head_dim=128, pairs=64) -> Stored:
    """A stored run of the base lab whose bounds follow a law."""
    lengths = [1024 * 2**i for i in range(contexts)]
    table = pd.DataFrame(
        {
            "context_tokens": lengths,
            "head_dim": head_dim,
            "turning_pairs": pairs,
            "first_admissible_base": [law(n) for n in lengths],
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
    assert find("base-bound-fit").evidence(runs=runs).verdict == expected


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        (lambda n: dict(PRINTED)[n], HOLDS),
        (lambda n: 0.995 * dict(PRINTED)[n], HOLDS),
        (lambda n: 0.9 * dict(PRINTED)[n], WRONG),
    ],
)
def test_exact_bounds_decide_whether_printed_bases_are_least(law, expected):
    runs = (bases(law, contexts=len(PRINTED)),)
    assert find("base-bound-table").evidence(runs=runs).verdict == expected


def predictions(*rows) -> Stored:
    """A stored run that trained under several bases: first failure, change, verdict, agrees."""
    names = ["first_failing_position_tokens", "accuracy_ci_high", "verdict", "agrees"]
    table = pd.DataFrame(rows, columns=names)
    config = {"seeds": [0], "train_len": 512}
    return Stored("base-empirical", config, {"predictions": table}, "somewhere")


REFERENCE = (math.nan, 0.0, "reference", math.nan)
SUPERFICIAL = (100.0, -0.5, "superficial, as predicted", True)
WORSE = (100.0, -0.5, "worse in text and retrieval", True)
RETRIEVES = (100.0, 0.1, "retrieves where failure was predicted", False)
ADMISSIBLE = (math.nan, 0.1, "holds, as predicted", True)
LOST = (math.nan, -0.1, "worse although admissible", False)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((REFERENCE,), OPEN),
        ((REFERENCE, ADMISSIBLE), OPEN),
        ((REFERENCE, SUPERFICIAL, SUPERFICIAL, ADMISSIBLE), HOLDS),
        ((REFERENCE, SUPERFICIAL, WORSE), CONDITION),
        ((REFERENCE, SUPERFICIAL, LOST), CONDITION),
        ((REFERENCE, SUPERFICIAL, RETRIEVES), WRONG),
    ],
)
def test_the_bound_is_judged_by_stored_trainings(rows, expected):
    assert find("base-bound-predicts").evidence().verdict == OPEN
    assert find("base-bound-predicts").evidence(runs=(predictions(*rows),)).verdict == expected


def trained():
    return [claim for claim in CLAIMS if claim.reads in ("extrapolate", "encodings")]


@pytest.mark.parametrize("claim", trained(), ids=lambda claim: claim.id)
def test_without_a_run_that_decides_a_claim_stays_open_and_says_why(claim):
    nothing = claim.evidence()
    assert nothing.verdict == OPEN
    assert "none" in nothing.measured
    weak = {"extrapolate": extrapolation(changed(("unscaled", 1.0), copying=(0.3,) * 5))}
    weak["encodings"] = encodings(near=0.3)
    unlearned = claim.evidence(runs=(weak[claim.reads],))
    assert unlearned.verdict == OPEN
    assert "0.30, below 0.8" in unlearned.measured
    assert claim.command.startswith(f"ropelab {claim.reads} ")


@pytest.mark.parametrize("claim", trained(), ids=lambda claim: claim.id)
@pytest.mark.parametrize("left", ["copy_accuracy", "quality", "last_window", "comparisons"])
def test_a_run_without_one_of_its_tables_is_never_read_as_a_failure(claim, left):
    full = {"extrapolate": extrapolation(), "encodings": encodings()}[claim.reads]
    tables = {name: table for name, table in full.tables.items() if name != left}
    partial = Stored(full.experiment, full.config, tables, full.path)
    verdict_ = claim.evidence(runs=(partial,)).verdict
    if left in full.tables and verdict_ != OPEN:
        assert verdict_ == claim.evidence(runs=(full,)).verdict


SMALL = {"train_len": 64, "test_len": 128, "steps": 2, "device": "cpu"}
SMALL |= {"documents": 3, "sequences": 2}
TINY = {"train_len": 256, "steps": 2, "tokens_per_step": 128}
TINY |= {"width": 16, "head_dim": 8, "layers": 1, "documents": 3, "sequences": 2, "device": "cpu"}
SMALLER = {"layers": 1, "width": 16, "heads": 2, "head_dim": 8, "tokens_per_step": 128}


@pytest.fixture(scope="module")
def really_run(corpora, tiny_preset) -> dict[str, Stored]:
    """Runs of the labs themselves, too short to learn anything."""
    on = {"corpus": corpora[0]}
    few = {"methods": "unscaled,pi,ntk,yarn", "head_dim": 16, "tasks": "text,copy"}
    chosen = {"encodings": "nope,sinusoidal,t5,alibi,rope"}
    made = {
        "extrapolate": run("extrapolate", **SMALL, **few, **on),
        "encodings": run("encodings", **SMALL, **SMALLER, **chosen, **on),
        "base": run("base", context="256,512", windows_up_to=0),
        "base-empirical": run("base-empirical", **TINY, **on),
    }
    return {
        name: Stored(name, found.config.model_dump(mode="json"), dict(found.tables), "")
        for name, found in made.items()
    }


@pytest.mark.parametrize("claim", [c for c in CLAIMS if c.reads], ids=lambda claim: claim.id)
def test_the_tables_of_the_labs_can_be_read(claim, really_run):
    runs = (really_run[claim.reads],)
    if claim.id != "base-bound-table":
        assert claim.evidence(runs=runs).verdict == OPEN
    less = {"base": {}, "base-empirical": {}}.get(claim.reads, {"learned": 0.0})
    evidence = claim.evidence(runs=runs, **less)
    assert not {"not measured", "not compared"} & {f.measured for f in evidence.findings}
    assert not any("stored run" in finding.what for finding in evidence.findings)


def test_the_longest_run_with_most_seeds_decides():
    small = extrapolation(train_len=512, test_len=1024)
    seeds = extrapolation(seeds=[0, 1, 2])
    same_length = extrapolation(test_len=L)
    chosen = deciding(Methods, (small, seeds, extrapolation(), same_length))
    assert chosen is not None
    assert (chosen.train_len, chosen.seeds) == (L, 3)
    assert deciding(Methods, (same_length,)) is None
    assert deciding(Encodings, ()) is None


def test_fine_tuned_rows_do_not_decide_zero_shot_claims():
    plain = extrapolation()
    tuned = plain.tables["copy_accuracy"].assign(arm="finetuned", accuracy=1.0)
    tables = {**plain.tables, "copy_accuracy": pd.concat([tuned, plain.tables["copy_accuracy"]])}
    mixed = Methods(Stored("extrapolate", plain.config, tables, ""))
    assert mixed.copies_at_twice("unscaled") == 0.02
    assert mixed.label("ntk") == "ntk ×4"
    assert mixed.label("ntk", largest=True) == "ntk ×8"
    assert math.isnan(mixed.copies_at_twice("unknown"))


@pytest.mark.parametrize(
    ("tally", "agrees", "text"),
    [
        (Tally(1, 0, 0), True, "better"),
        (Tally(0, 1, 0), False, "worse"),
        (Tally(0, 0, 1), None, "within the noise"),
        (Tally(0, 0, 0), None, "not compared"),
        (Tally(2, 1, 1), True, "better at 2, worse at 1 of 4 distances"),
        (Tally(1, 1, 0), False, "better at 1, worse at 1 of 2 distances"),
    ],
)
def test_tallies_in_words(tally, agrees, text):
    finding = tally.mostly_better("a against b")
    assert (finding.agrees, finding.measured) == (agrees, text)
    assert tally.nowhere_worse("").agrees == (tally.worse == 0)
