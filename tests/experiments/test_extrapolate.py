"""The extrapolation experiment: its grid, methods, tables, sentences and refusals."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt

from ropelab.config import build
from ropelab.context import Context
from ropelab.errors import InputError
from ropelab.experiments.extrapolate import report
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.plan import finetuned, recalibrated, trainings, trial
from ropelab.experiments.extrapolate.run import run
from ropelab.figures.extrapolate import draw
from ropelab.figures.finetuned import against_zero_shot
from ropelab.lm.evaluation import token_losses
from ropelab.lm.training import make_optimizers, one_step
from ropelab.methods.language import parse_methods
from ropelab.rope.frequencies import Geometry
from ropelab.trials import grid

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


def described_by(task: str, **changes: object):
    """The trainings of a task."""
    return trainings(config(**changes), trial(config(**changes), task))


@pytest.fixture(scope="module")
def shared() -> Context:
    """What one test trained another one need not train again."""
    return Context()


@pytest.fixture(scope="module")
def tables(shared) -> dict[str, pd.DataFrame]:
    return dict(run(config(methods="unscaled,yarn"), shared))


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
    assert list(copies.columns[:11]) == [
        "method",
        "factor",
        "seed",
        "arm",
        "distance_tokens",
        "context_tokens",
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


def test_seeds_train_models_of_their_own(shared):
    rows = run(config(tasks=("copy",), methods="unscaled", seeds="0,1"), shared)["copy_accuracy"]
    assert set(rows["seed"]) == {0, 1}


@pytest.mark.parametrize(("preset", "millions"), [("small", 1.13), ("base", 10.8), ("large", 121)])
def test_the_models_of_a_preset_have_its_size_and_read(preset, millions):
    (described,) = described_by("text", preset=preset, head_dim=64)
    model = described.untrained(Context())
    assert model.parameter_count() / 1e6 == pytest.approx(millions, rel=0.01)
    tokens = torch.arange(65)[None]
    assert token_losses(model, tokens).mean() == pytest.approx(math.log(256), rel=1e-3)


def test_a_larger_preset_learns():
    (described,) = described_by("copy", preset="base", head_dim=64)
    model = described.untrained(Context())
    recipe = replace(described.recipe, steps=3, window=64, tokens_per_step=256, warmup=1)
    optimizers = make_optimizers(model, recipe, "float32")
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


def test_all_arms_and_recall_on_one_run(shared):
    arms = ("zero_shot", "finetuned", "ceiling")
    changes = {"arms": arms, "tasks": ("text", "recall"), "methods": "pi", "finetune_steps": 2}
    tables = run(config(**changes), shared)
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
def test_every_choice_of_arms_and_tasks_is_answered_and_drawn(arms, tasks, shared):
    changes = {"arms": arms, "tasks": tasks, "methods": "pi", "finetune_steps": 1}
    tables = run(config(**changes), shared)
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
    ).assign(context_tokens=8192)
    (axes,) = against_zero_shot({"last_window": table}).axes
    assert [text.get_text() for text in axes.texts] == ["2.40", "2.70 → 2.08"]


def test_what_is_trained_on_at_a_length_of_its_own_is_read_to_the_end(shared):
    changes = {"arms": "finetuned", "tasks": "text", "methods": "pi(factor=2)"}
    longest, shorter = (
        run(config(**changes, finetune_steps=2, finetune_len=length), shared)["text_nll"]
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
    cool, sharp = wide["drope(steps=2, sharpen=0)"], wide["drope(steps=2)"]
    assert (cool[cool.index <= 32] == sharp[sharp.index <= 32]).all()
    assert (wide["unscaled"] != cool).any()


def test_what_is_trained_on_under_drope_was_recalibrated_first():
    (base,) = described_by("copy")
    drope, plain = parse_methods(["drope(steps=2)", "pi"], GEOMETRY, 256)
    tuned = finetuned(base, drope, GEOMETRY, steps=3, length=256)
    assert tuned.start.key == recalibrated(base, drope, GEOMETRY).key
    assert tuned.start.recipe.window == 64
    assert finetuned(base, plain, GEOMETRY, steps=3, length=256).start is base


def test_a_searched_method_is_measured_under_its_own_name(shared):
    rows = run(config(tasks=("copy",), methods="longrope_search(budget=5)"), shared)
    assert set(rows["copy_accuracy"]["method"]) == {"longrope_search(budget=5)"}


# Comparisons and sentences


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
            "train_len_tokens": 2048,
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
        ({"methods": "longrope_search", "arms": "finetuned"}, "has no finetuned arm"),
        ({"finetune_len": 300}, r"finetune_len must lie between train_len \(64\) and test_len"),
        ({"train_len": 32}, "train_len must be at least 64, got 32"),
        ({"methods": "yarm"}, "unknown method 'yarm'; did you mean 'yarn'"),
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
