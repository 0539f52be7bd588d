"""The extrapolation experiment: its grid, methods, tables, sentences and refusals."""

import math
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt

from ropelab.config import build
from ropelab.context import Context
from ropelab.errors import InputError
from ropelab.experiments.extrapolate import comparisons, grid, orderings, report
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.measure import Lengths, Texts, text_under
from ropelab.experiments.extrapolate.methods import parse_methods
from ropelab.experiments.extrapolate.models import finetuned, recalibrated, trainings
from ropelab.experiments.extrapolate.run import run
from ropelab.experiments.extrapolate.search import search
from ropelab.experiments.extrapolate.tables import clustered_proportion, retrieval_accuracy
from ropelab.figures.extrapolate import draw
from ropelab.figures.finetuned import against_zero_shot
from ropelab.lm.evaluation import token_losses
from ropelab.lm.model import LanguageModel, ModelSize
from ropelab.lm.training import make_optimizers, one_step
from ropelab.rope.frequencies import Geometry, turns
from ropelab.rope.scaling import LongRope

SMOKE = {
    "train_len": 64,
    "test_len": 256,
    "head_dim": 16,
    "text_steps": 4,
    "copy_steps": 4,
    "documents": 3,
    "sequences": 2,
    "device": "cpu",
}
GEOMETRY = Geometry(16, 10000.0, 64)


def config(**changes: object) -> ExtrapolateConfig:
    return build(ExtrapolateConfig, {**SMOKE, **changes})


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return dict(run(config(methods="unscaled,yarn"), Context()))


# Where is measured


@pytest.mark.parametrize(("train", "test"), [(2048, 8192), (64, 64), (512, 700), (64, 4096)])
def test_buckets_cover_every_position_once_and_part_at_the_trained_length(train, test):
    buckets = grid.buckets(train, test)
    assert buckets[0][0] == 0
    assert buckets[-1][1] == test
    assert all(before[1] == after[0] for before, after in pairwise(buckets))
    assert train in [end for _, end in buckets]


def test_the_grid_of_the_default_run():
    assert [end for _, end in grid.buckets(2048, 8192)] == [1024, 2048, 3072, 4096, 6144, 8192]
    assert grid.contexts(2048, 8192) == [512, 1024, 2048, 4096, 8192]
    assert grid.distances(2048, 8192) == [256, 512, 1024, 1536, 2048, 3072, 4096, 6144]
    assert grid.copy_length(1024, 8192) == 2048
    assert grid.copy_length(6144, 8192) == 8192


# Methods


def test_factors_default_to_the_reach_and_ntk_is_tried_at_twice_that():
    methods = parse_methods(["unscaled", "ntk", "yarn", "yarn(factor=8)", "yarn"], GEOMETRY, 256)
    found = [(method.name, method.factor) for method in methods]
    assert found == [("unscaled", 1), ("ntk", 4), ("ntk", 8), ("yarn", 4), ("yarn", 8)]


def test_methods_of_attention_are_read_with_their_knobs():
    texts = [
        "log_n",
        "log_n(inner=yarn(beta_fast=8))",
        "rerope",
        "self_extend",
        "self_extend(group=9)",
        "drope(sharpen=0.4)",
    ]
    methods = parse_methods(texts, GEOMETRY, 256)
    assert [(method.name, method.factor) for method in methods] == [
        ("log_n", 1),
        ("log_n(inner=yarn(beta_fast=8))", 4),
        ("rerope(window=32)", 1),
        ("self_extend(window=32, group=7)", 1),
        ("self_extend(window=32, group=9)", 1),
        ("drope(steps=160, sharpen=0.4)", 1),
    ]


def test_a_static_method_needs_one_pass_and_a_dynamic_one_a_pass_per_length():
    ends = [32, 64, 128, 256]
    (static,), (dynamic,) = (parse_methods([m], GEOMETRY, 256) for m in ("yarn", "dynamic_ntk"))
    assert [group for _, group in static.passes(ends)] == [ends]
    assert [group for _, group in dynamic.passes(ends)] == [[32, 64], [128], [256]]


def test_a_dynamic_method_is_measured_as_a_prompt_of_each_length_would_be_read():
    (dynamic,) = parse_methods(["dynamic_ntk"], GEOMETRY, 256)
    size = ModelSize(vocabulary=256, layers=1, width=16, heads=1, head_dim=16)
    model = LanguageModel(size, dynamic.encoding(64))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    texts = torch.randint(256, (2, 257), generator=generator)
    documents = Texts(texts, torch.ones(2, dtype=torch.float64))
    measured = text_under(
        model, dynamic, documents, Lengths(64, 256), advance=lambda *_, **__: None
    )
    for start, end in grid.buckets(64, 256):
        model.encoding = dynamic.encoding(end)
        expected = token_losses(model, texts[:, : end + 1])[:, start:].double().mean(dim=1)
        rows = measured["buckets"].query("bucket_end_tokens == @end")
        np.testing.assert_allclose(rows["nll_nats_per_byte"], expected, rtol=1e-5)


# Tables


def test_tables_have_their_columns_and_a_row_for_everything(tables):
    nll, copies = tables["text_nll"], tables["copy_accuracy"]
    assert list(nll.columns[:10]) == [
        "method",
        "factor",
        "seed",
        "arm",
        "bucket_start_tokens",
        "bucket_end_tokens",
        "documents",
        "nll_nats_per_byte",
        "ci_low",
        "ci_high",
    ]
    assert set(nll["method"]) == {"unscaled", "yarn", "sliding_window"}
    assert len(nll) == 3 * len(grid.buckets(64, 256))
    assert (nll["documents"] == 3).all()
    assert list(copies.columns[:10]) == [
        "method",
        "factor",
        "seed",
        "arm",
        "distance_tokens",
        "sequences",
        "trials",
        "accuracy",
        "ci_low",
        "ci_high",
    ]
    assert len(copies) == 2 * len(grid.distances(64, 256))


def test_intervals_hold_their_values(tables):
    for table, value in (("text_nll", "nll_nats_per_byte"), ("copy_accuracy", "accuracy")):
        rows = tables[table]
        assert (rows["ci_low"] <= rows[value]).all()
        assert (rows[value] <= rows["ci_high"]).all()


def test_within_the_trained_length_the_sliding_window_is_the_unscaled_model(tables):
    inside = tables["text_nll"].query("bucket_end_tokens <= 64")
    values = inside.pivot_table(
        index="bucket_end_tokens", columns="method", values="nll_nats_per_byte"
    )
    np.testing.assert_array_equal(values["unscaled"], values["sliding_window"])


def test_the_same_config_gives_the_same_tables(tables):
    again = run(config(methods="unscaled,yarn"), Context())
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, again[name], check_exact=True)


def test_a_changed_list_of_methods_trains_nothing_and_measures_only_what_is_new():
    lines: list[str] = []

    def progress(line: str, total: float | None = None):
        lines.append(line)
        return Context().progress(line, total)

    context = Context(progress=progress)
    run(config(tasks=("copy",), methods="unscaled"), context)
    assert lines == ["training copy model, seed 0", "copy, seed 0, unscaled"]
    lines.clear()
    run(config(tasks=("copy",), methods="unscaled,pi"), context)
    assert lines[-1:] == ["copy, seed 0, pi"]
    assert "copy, seed 0, unscaled" not in lines


def test_seeds_train_models_of_their_own():
    rows = run(config(tasks=("copy",), methods="unscaled", seeds="0,1"), Context())["copy_accuracy"]
    assert set(rows["seed"]) == {0, 1}


@pytest.mark.parametrize(("preset", "millions"), [("small", 1.13), ("base", 10.8), ("large", 121)])
def test_the_models_of_a_preset_have_its_size_and_read(preset, millions):
    (described,) = trainings(config(preset=preset, head_dim=64), "text")
    model = described.untrained(Context())
    assert model.parameter_count() / 1e6 == pytest.approx(millions, rel=0.01)
    tokens = torch.arange(65)[None]
    assert token_losses(model, tokens).mean() == pytest.approx(math.log(256), rel=1e-3)


def test_a_larger_preset_learns():
    (described,) = trainings(config(preset="base", head_dim=64), "copy")
    model = described.untrained(Context())
    recipe = replace(described.recipe, steps=3, window=64, tokens_per_step=256, warmup=1)
    optimizers = make_optimizers(model, recipe)
    losses = [one_step(model, optimizers, described.task.data(0), recipe, 0) for _ in range(3)]
    assert losses[2] < losses[0]


def test_recall_is_measured_on_the_model_that_copies():
    lines: list[str] = []

    def progress(line: str, total: float | None = None):
        lines.append(line)
        return Context().progress(line, total)

    changes = {"tasks": ("copy", "recall"), "methods": "unscaled", "copy_steps": 5}
    tables = run(config(**changes), Context(progress=progress))
    wanted = ["training copy model, seed 0", "copy, seed 0, unscaled", "recall, seed 0, unscaled"]
    assert list(dict.fromkeys(lines)) == wanted
    assert (tables["recall_accuracy"]["trials"] != tables["copy_accuracy"]["trials"]).all()


def test_all_arms_and_recall_on_one_run():
    arms = ("zero_shot", "finetuned", "ceiling")
    changes = {"arms": arms, "tasks": ("text", "recall"), "methods": "pi", "finetune_steps": 2}
    tables = run(config(**changes), Context())
    recall, text = tables["recall_accuracy"], tables["text_nll"]
    expected = {("pi", "zero_shot"), ("pi", "finetuned"), ("trained_at_test_len", "ceiling")}
    assert set(zip(recall["method"], recall["arm"], strict=True)) == expected
    window = ("sliding_window", "zero_shot")
    assert set(zip(text["method"], text["arm"], strict=True)) == {*expected, window}
    ends = text[text["bucket_end_tokens"] == 256].set_index("arm")["nll_nats_per_byte"]
    assert ends["finetuned"] < ends["zero_shot"].min()


@pytest.mark.parametrize("tasks", [("text",), ("copy",), ("recall",), ("text", "copy", "recall")])
@pytest.mark.parametrize(
    "arms", [("zero_shot",), ("finetuned",), ("ceiling",), ("finetuned", "ceiling")]
)
def test_every_choice_of_arms_and_tasks_is_answered_and_drawn(arms, tasks):
    changes = {"arms": arms, "tasks": tasks, "methods": "pi", "finetune_steps": 1}
    tables = run(config(**changes), Context())
    assert report.answer(tables)
    assert not report.summary(tables).empty
    figures = draw(tables)
    assert ("loss_by_position" in figures or "loss_by_position_finetuned" in figures) == (
        "text" in tasks
    )
    for task in ("copy", "recall"):
        assert any(name.startswith(task) for name in figures) == (task in tasks)
    plt.close("all")


def test_losses_beyond_the_edge_of_the_figure_are_written_there():
    losses = {"good": (1.2, 1.1), "mended": (2.4, 1.3), "bad": (2.7, 2.08)}
    table = pd.DataFrame(
        [
            {"arm": arm, "method": name, "factor": 1.0, "nll_nats_per_byte": value}
            for name, values in losses.items()
            for arm, value in zip(("zero_shot", "finetuned"), values, strict=True)
        ]
    ).assign(context_tokens=8192, seed=0)
    (axes,) = against_zero_shot({"last_window": table}).axes
    assert [text.get_text() for text in axes.texts] == ["2.40", "2.70 → 2.08"]


def test_what_is_trained_on_at_a_length_of_its_own_is_read_to_the_end():
    changes = {"arms": "finetuned", "tasks": "text", "methods": "pi(factor=2)"}
    longest, shorter = (
        run(config(**changes, finetune_steps=2, finetune_len=length), Context())["text_nll"]
        for length in (None, 128)
    )
    ends = shorter.query("arm == 'finetuned'")["bucket_end_tokens"]
    assert ends.max() == 256
    assert not longest["nll_nats_per_byte"].equals(shorter["nll_nats_per_byte"])


def test_drope_is_trained_on_at_its_own_length_once_whatever_its_temperature():
    methods = "unscaled,drope(steps=2),drope(steps=2, sharpen=0)"
    lines: list[str] = []

    def progress(line: str, total: float | None = None):
        lines.append(line)
        return Context().progress(line, total)

    changes = {"methods": methods, "tasks": ("copy",), "copy_steps": 60}
    table = run(config(**changes), Context(progress=progress))["copy_accuracy"]
    assert [line for line in lines if "fine-tuning" in line] == ["fine-tuning copy model, seed 0"]
    wide = table.pivot_table(index="distance_tokens", columns="method", values="accuracy")
    cool, sharp = wide["drope(steps=2, sharpen=0)"], wide["drope(steps=2, sharpen=0.1)"]
    assert (cool[cool.index <= 32] == sharp[sharp.index <= 32]).all()
    assert (wide["unscaled"] != cool).any()


def test_what_is_trained_on_under_drope_was_recalibrated_first():
    (base,) = trainings(config(), "copy")
    drope, plain = parse_methods(["drope(steps=2)", "pi"], GEOMETRY, 256)
    tuned = finetuned(base, drope, steps=3, length=256)
    assert tuned.start.key == recalibrated(base, drope).key
    assert tuned.start.recipe.window == 64
    assert finetuned(base, plain, steps=3, length=256).start is base


def test_an_interval_of_clusters_is_wider_when_clusters_differ():
    even = clustered_proportion(np.full(8, 50), np.full(8, 100))
    uneven = clustered_proportion(np.array([0, 100] * 4), np.full(8, 100))
    assert even.value == uneven.value == 0.5
    assert uneven.high - uneven.low > 5 * (even.high - even.low)
    independent = math.sqrt(0.25 / 800)
    assert even.high - even.low == pytest.approx(2 * 1.96 * independent, rel=0.02)


def test_certain_proportions_keep_an_interval():
    none = clustered_proportion(np.zeros(4), np.full(4, 100))
    assert (none.value, none.low) == (0, 0)
    assert 0.005 < none.high < 0.02


def test_accuracy_counts_all_sequences():
    copies = pd.DataFrame(
        {
            "method": "yarn",
            "factor": 4.0,
            "seed": 0,
            "arm": "zero_shot",
            "distance_tokens": [8, 8, 16, 16],
            "trials": [10, 10, 20, 20],
            "correct": [10, 5, 0, 0],
        }
    )
    assert retrieval_accuracy(copies)["accuracy"].tolist() == [0.75, 0.0]


# Comparisons and sentences


def by_seed(*seeds: dict[str, list[float]]) -> pd.DataFrame:
    """Values of methods by document, a table for each seed."""
    return pd.concat(dict(enumerate(map(pd.DataFrame, seeds))), names=["seed", "document"])


def test_a_verdict_names_the_better_one_for_losses_and_for_accuracies():
    values = by_seed({"low": [1.0, 1.1, 1.2], "high": [2.0, 2.1, 2.2], "same": [2.0, 2.2, 2.1]})
    for smaller_is_better, better in ((True, "low"), (False, "high")):
        metric = comparisons.Metric("m", 8, values, "document", smaller_is_better)
        table = comparisons.comparisons([metric]).set_index(["method_a", "method_b"])
        assert table.loc[("low", "high"), "verdict"] == better
        assert table.loc[("high", "same"), "verdict"] == "~"
        assert table.loc[("low", "high"), "difference"] == pytest.approx(-1.0)


def test_a_verdict_needs_all_seeds_on_one_side():
    far = {"a": [1.0, 1.1, 1.2], "b": [2.0, 2.11, 2.2]}
    near = {"a": [1.0, 1.1, 1.2], "b": [1.01, 1.1, 1.21]}
    other = {"a": [1.0, 1.1, 1.2], "b": [0.99, 1.1, 1.19]}
    for seeds, agreeing, better in (((far, near), 2, "a"), ((far, other), 1, "~")):
        metric = comparisons.Metric("m", 8, by_seed(*seeds), "document", smaller_is_better=True)
        row = comparisons.comparisons([metric]).iloc[0]
        assert (row["seeds"], row["seeds_agreeing"], row["verdict"]) == (2, agreeing, better)
        assert row["n"] == 3
        assert row["ci_high"] < 0


def test_every_stored_verdict_names_one_of_its_pair(tables):
    for row in tables["comparisons"].itertuples():
        assert row.verdict in (row.method_a, row.method_b, "~")


def test_the_answer_follows_from_the_tables():
    copies = pd.DataFrame(
        {
            "method": ["unscaled"] * 3 + ["yarn"] * 3,
            "factor": [1.0] * 3 + [4.0] * 3,
            "arm": "zero_shot",
            "distance_tokens": [512, 2048, 4096] * 2,
            "accuracy": [0.99, 0.1, 0.02, 0.99, 0.98, 0.95],
            "trained_len_tokens": 2048,
        }
    )
    assert report.answer({"copy_accuracy": copies}) == (
        "Copying from 4096 tokens back, 2 times the trained length: "
        "yarn ×4 gets 0.95 right, unscaled 0.02."
    )


def test_answer_and_summary_fit_a_real_run(tables):
    assert "sliding window of the trained length" in report.answer(tables)
    assert "Copying from 128 tokens back" in report.answer(tables)
    summary = report.summary(tables)
    assert list(summary["method"]) == ["unscaled", "yarn ×4", "sliding_window"]
    assert len(summary.columns) <= 7


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_len": 63}, r"test_len must be at least train_len \(64\), got 63"),
        ({"methods": "longrope", "arms": "finetuned"}, "has no finetuned arm"),
        ({"finetune_len": 300}, r"finetune_len must lie between train_len \(64\) and test_len"),
        ({"train_len": 32}, "train_len must be at least 64, got 32"),
        ({"methods": "yarm"}, "unknown method 'yarm'; did you mean 'yarn'"),
        ({"methods": "yarn(beta=3)"}, "unknown yarn knob 'beta'"),
        ({"methods": "rerop"}, "unknown method 'rerop'; did you mean 'rerope'"),
        ({"methods": "rerope(windw=3)"}, "unknown rerope knob 'windw'; did you mean 'window'"),
        (
            {"methods": "self_extend(group=0)"},
            "group must be a whole number of at least 1, not '0'",
        ),
        (
            {"methods": "drope(sharpen=much)"},
            "drope: sharpen must be a number of at least 0, not 'much'",
        ),
        ({"methods": ""}, "methods, tasks and arms must name at least one"),
        ({"head_dim": 15}, "head_dim must be even"),
        ({"head_dim": 0}, "head_dim must be greater than or equal to 2"),
        ({"base": 1}, "base must be greater than 1"),
        ({"base": "nan"}, "base must be a"),
        ({"documents": -1}, "documents must be greater than or equal to 1"),
        ({"tasks": ("texts",)}, "unknown tasks 'texts'; did you mean 'text'"),
        ({"preset": "smal"}, "unknown preset 'smal'; did you mean 'small'"),
        ({"trian_len": 64}, "unknown key 'trian_len'; did you mean 'train_len'"),
    ],
)
def test_bad_input_is_refused_in_one_line(changes, message):
    with pytest.raises(InputError, match=message) as refusal:
        config(**changes)
    assert "\n" not in str(refusal.value)


def test_a_bad_corpus_is_refused_before_anything_is_trained(tmp_path):
    (tmp_path / "short.txt").write_text("too short")
    for path, message in (
        (tmp_path / "nothing", "no corpus at"),
        (tmp_path / "short.txt", "no document of at least 65 bytes"),
    ):
        with pytest.raises(InputError, match=message):
            config(corpus=str(path)).inputs()
        with pytest.raises(InputError, match=message):
            run(config(corpus=str(path)), Context())


def test_ones_own_corpus_is_part_of_the_identity(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("some text " * 500)
    one = config(corpus=str(file), documents=2).inputs()
    file.write_text("other text " * 500)
    assert config(corpus=str(file), documents=2).inputs() != one
    assert config(tasks=("copy",)).inputs() == {}


# Orderings


def compared(*pairs: tuple[str, str, float, str]) -> pd.DataFrame:
    columns = ["method_a", "method_b", "difference", "verdict"]
    table = pd.DataFrame(list(pairs), columns=columns)
    return table.assign(metric="nll_short_context", at_tokens=64)


@pytest.mark.parametrize(
    ("difference", "verdict", "costs", "free"),
    [
        (-0.3, "first", "reproduced", "not reproduced"),
        (-0.01, "first", "reproduced", "reproduced"),
        (-0.3, "~", "within noise", "reproduced"),
        (0.3, "second", "not reproduced", "not reproduced"),
    ],
)
def test_orderings_are_decided_by_verdicts(difference, verdict, costs, free):
    pairs = [("unscaled", "yarn ×4"), ("unscaled", "dynamic_ntk ×4")]
    table = compared(
        *((a, b, difference, {"first": a, "second": b}.get(verdict, "~")) for a, b in pairs)
    )
    results = orderings.orderings(table, 64, 256, 256).set_index("ordering")["result"]
    assert results["static scaling costs something at short length"] == costs
    assert results["dynamic scaling costs nothing at short length"] == free


def test_orderings_do_not_depend_on_which_way_round_a_pair_was_compared():
    there = compared(("unscaled", "yarn ×4", -0.3, "unscaled"))
    back = compared(("yarn ×4", "unscaled", 0.3, "unscaled"))
    for table in (there, back):
        row = orderings.orderings(table, 64, 256, 256).iloc[0]
        assert (row["result"], row["measured"]) == ("reproduced", "unscaled > yarn ×4 (-0.300)")


def test_models_trained_on_are_looked_at_inside_and_just_outside_of_that_length():
    inside, outside = ["yarn", "ntk_by_parts", "pi", "ntk"], ["yarn", "ntk", "pi", "ntk_by_parts"]
    table = pd.DataFrame(
        [
            ("nll_bucket", at, f"{a} ×2 finetuned", f"{b} ×2 finetuned", -0.001)
            for at, order in ((128, inside), (192, outside), (256, inside))
            for a, b in combinations(order, 2)
        ],
        columns=["metric", "at_tokens", "method_a", "method_b", "difference"],
    )
    table["verdict"] = table["method_a"]
    found = orderings.orderings(table, 64, 256, 128).set_index("ordering")
    places = {"fine-tuned, inside the window": 128, "fine-tuned, just outside the window": 192}
    assert found["at_tokens"].to_dict() == places
    assert set(found["result"]) == {"reproduced"}
    assert orderings.orderings(table, 64, 256, 256).empty


def test_orderings_that_were_not_measured_are_left_out():
    assert orderings.orderings(compared(("pi ×4", "yarn ×4", 0.1, "yarn ×4")), 64, 256, 256).empty


# Searching


def test_the_search_finds_a_hidden_optimum_and_never_gets_worse():
    target = np.exp(np.linspace(0, np.log(6), 8))

    def distance(scaling: LongRope) -> float:
        return float(np.abs(np.log(np.array(scaling.long_factor) / target)).mean())

    found, best = search(GEOMETRY, 4.0, distance, budget=300)
    assert len(best) == 300
    assert best == sorted(best, reverse=True)
    assert distance(found) == best[-1] < 0.5 * best[3]
    assert list(found.long_factor) == sorted(found.long_factor)
    assert found.long_factor[0] >= 1
    assert found.long_factor[-1] <= 8 * (1 + 1e-12)


def test_beyond_the_critical_pair_means_that_pairs_with_a_whole_turn_are_kept():
    found, _ = search(GEOMETRY, 4.0, lambda s: -sum(s.long_factor), 50, beyond_critical=True)
    turning = turns(GEOMETRY.inv_freq, GEOMETRY.trained_len) >= 1
    factors = torch.tensor(found.long_factor)
    assert (factors[turning] == 1).all()
    assert (factors[~turning] > 1).any()


def test_longrope_is_searched_unless_its_factors_are_given():
    given = "longrope(long_factor=[1,1,1,1,2,2,4,4])"
    methods = parse_methods(["longrope(budget=7)", given], GEOMETRY, 256)
    assert [type(method).__name__ for method in methods] == ["Searched", "Scaled"]
    rows = run(config(tasks=("copy",), methods="longrope(budget=5)"), Context())["copy_accuracy"]
    assert set(rows["method"]) == {"longrope(budget=5)"}
