"""The extrapolation experiment: its grid, methods, tables, sentences and refusals."""

import re
import shutil
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from ropelab.experiments import load
from ropelab.experiments.extrapolate import ExtrapolateConfig, results
from ropelab.experiments.extrapolate.rows import adapt, make_trainings
from ropelab.math.frequencies import Geometry
from ropelab.models.lm.trained import Training
from ropelab.models.methods.method import FixedMethod
from ropelab.models.methods.registry import parse_methods
from ropelab.models.tasks import grid
from ropelab.models.tasks.cells import Evaluation
from ropelab.models.tasks.tables import NLL, PLACE
from ropelab.runs.cell import Advance, Context, silent
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from ropelab.show.figures.extrapolate import draw
from ropelab.show.figures.extrapolate_loss import subtract_window, write_kinds_title
from ropelab.show.figures.extrapolate_tuned import draw_against_zero_shot
from tests.models.tasks.running import made
from tests.small import SMALL, mostly_slow
from tests.texts import mentions

SMOKE = {
    "train_len": 64,
    "test_len": 256,
    "head_dim": 16,
    "documents": 3,
    "sequences": 2,
    "device": "cpu",
}
GEOMETRY = Geometry(16, 10000.0, 64)


pytestmark = pytest.mark.usefixtures("tiny_preset")


@pytest.fixture(scope="module")
def config(corpora):
    """Makes a config on a small corpus."""

    def configured(**changes: object) -> ExtrapolateConfig:
        return build(ExtrapolateConfig, {**SMOKE, "corpus": corpora[0], **changes})

    return configured


@pytest.fixture(scope="module")
def context() -> Context:
    """What was trained for one test is there for the next."""
    return Context()


@pytest.fixture(scope="module")
def tables(config, context, tiny_preset) -> dict[str, pd.DataFrame]:
    return dict(made(results, config(methods="unscaled,yarn"), context))


def list_evaluations(config: ExtrapolateConfig) -> list[Evaluation]:
    return [cell for cell in results.cells(config) if isinstance(cell, Evaluation)]


def noting(lines: list[str]) -> Context:
    """A context without anything trained that writes down what it is told of single
    pieces.
    """

    def progress(
        description: str, total: float | None = None
    ) -> AbstractContextManager[Advance, bool | None]:
        if "measurement" not in description:  # how many pieces a phase has
            lines.append(description)
        return silent(description, total)

    return Context(progress=progress)


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
    assert len(nll) == 3 * len(grid.list_buckets(64, 256))
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
    places = grid.pair_places(
        grid.list_retrieval_distances(64, 256), grid.list_retrieval_contexts(64, 256)
    )
    longest = [place for place in places if place.context == 256]
    assert len(copies) == 2 * len(places) + len(longest)
    window = copies[copies["method"] == "sliding_window"]
    assert [tuple(place) for place in window[PLACE].to_numpy()] == longest
    for task in ("copy", "copy_in_text"):
        rows = tables[f"{task}_accuracy"]
        of_one = rows[rows["method"] == "yarn"]
        assert [tuple(place) for place in of_one[PLACE].to_numpy()] == list(places)


def test_losses_by_kind_and_by_document_add_up_to_those_at_the_end(tables, config):
    by_kind, by_document = tables["text_by_kind"], tables["text_by_document"]
    last = tables["last_window"]
    given = config()
    among = given.text.origins(257, given.documents)
    for label, rows in by_kind.groupby("method"):
        assert rows.set_index("kind")["documents"].to_dict() == Counter(
            o.kind for o in among
        )
        whole = last[(last["method"] == label) & (last["context_tokens"] == 256)]
        assert np.average(rows[NLL], weights=rows["documents"]) == pytest.approx(
            whole[NLL].item()
        )
        single = by_document[by_document["method"] == label]
        assert [*zip(single["name"], single["kind"], strict=True)] == [*among]
        assert single[NLL].mean() == pytest.approx(whole[NLL].item())
    assert set(by_kind["method"]) == {"unscaled", "yarn", "sliding_window"}
    assert {origin.kind for origin in among} == {"code", "prose"}


def test_what_context_is_worth_is_told_by_kind(tables):
    found, last = tables["context_by_kind"], tables["last_window"]
    assert set(found["method"]) == {"unscaled"}
    assert set(found["context_tokens"]) == {16, 32, 64}
    for context, rows in found.groupby("context_tokens"):
        whole = last[
            (last["method"] == "unscaled") & (last["context_tokens"] == context)
        ]
        assert np.average(rows[NLL], weights=rows["documents"]) == pytest.approx(
            whole[NLL].item()
        )
    plain = last[last["method"] == "unscaled"].set_index("context_tokens")[NLL]
    # Of 16 tokens all 16 are scored: nothing is before them.
    said = results.answer(tables)
    assert mentions(said, "with 48 tokens before them", "last 16", "unscaled model")
    losses = re.search(
        r"model (\S+) \[.*\] nats per byte, with no token before them (\S+) \[", said
    )
    assert losses is not None
    assert [float(loss) for loss in losses.groups()] == [
        pytest.approx(plain[64], abs=0.006),
        pytest.approx(plain[16], abs=0.006),
    ]


def test_documents_are_drawn_against_the_window(tables):
    above = subtract_window(tables["text_by_document"])
    unscaled = above[above["label"] == "unscaled"]
    assert len(unscaled) == 3
    last = tables["last_window"].query("context_tokens == 256").set_index("method")[NLL]
    gap = last["unscaled"] - last["sliding_window"]
    assert unscaled["above"].mean() == pytest.approx(gap)


def test_a_title_by_kind_counts_the_kinds_that_some_method_reads_better():
    def write(**values: tuple[float, ...]) -> str:
        rows = [
            ("yarn ×4", kind, above) for kind, all_ in values.items() for above in all_
        ]
        return write_kinds_title(pd.DataFrame(rows, columns=["label", "kind", "above"]))

    assert "Every method reads worse" in write(prose=(0.5, 0.51), code=(0.1, 0.11))
    assert "On 1 of 2 kinds" in write(prose=(0.5, 0.7), table=(-9.0,))
    # The interval of two far values reaches 0.
    assert "No kind of text is shown" in write(prose=(0.5, 0.7), code=(-0.9, 0.1))


def test_what_a_reader_without_a_model_finds_stands_beside(tables):
    found = tables["ngram_baseline"]
    wide = found.pivot_table(
        index=["task", *PLACE], columns="n_gram_tokens", values="accuracy"
    )
    places = grid.pair_places(
        grid.list_retrieval_distances(64, 256), grid.list_retrieval_contexts(64, 256)
    )
    assert len(wide) == 2 * len(places)
    assert (wide.loc["copy"][3] == 1).all()
    assert wide.loc["copy"][1].mean() < 0.7


def test_intervals_hold_their_values(tables):
    for table, value in (
        ("text_nll", "nll_nats_per_byte"),
        ("copy_accuracy", "accuracy"),
    ):
        rows = tables[table]
        assert (rows["ci_low"] <= rows[value]).all()
        assert (rows[value] <= rows["ci_high"]).all()


def test_within_the_trained_length_the_sliding_window_is_the_unscaled_model(tables):
    inside = tables["text_nll"].query("bucket_end_tokens <= 64")
    values = inside.pivot_table(
        index="bucket_end_tokens", columns="method", values="nll_nats_per_byte"
    )
    np.testing.assert_array_equal(values["unscaled"], values["sliding_window"])


@pytest.mark.slow
def test_the_same_config_gives_the_same_tables(tables, config):
    again = made(results, config(methods="unscaled,yarn"), Context())
    for name, table in tables.items():
        pd.testing.assert_frame_equal(table, again[name], check_exact=True)


def test_a_changed_list_of_methods_trains_nothing_and_measures_only_what_is_new(config):
    lines: list[str] = []
    context = noting(lines)
    made(results, config(tasks=("copy",), methods="unscaled"), context)
    measured = ["copy, seed 0, unscaled", "copy, seed 0, sliding_window"]
    assert mentions(lines[0], "training", "seed 0")
    assert lines[1:] == measured
    lines.clear()
    made(results, config(tasks=("copy",), methods="unscaled,pi"), context)
    assert mentions(lines[-1], "copy", "seed 0", "pi ×4")
    assert not set(measured) & set(lines)


def test_seeds_train_models_of_their_own(config, context):
    rows = made(
        results, config(tasks=("copy",), methods="unscaled", seeds="0,1"), context
    )["copy_accuracy"]
    assert set(rows["seed"]) == {0, 1}


def test_every_task_is_asked_of_the_same_model(config):
    lines: list[str] = []
    tasks = ("copy", "copy_in_text", "associative_recall", "most_recent")
    tables = made(results, config(tasks=tasks, methods="unscaled"), noting(lines))
    asked = [
        f"{task}, seed 0, {row}"
        for task in tasks
        for row in ("unscaled", "sliding_window")
    ]
    assert mentions(lines[0], "training", "seed 0")
    assert list(dict.fromkeys(lines))[1:] == asked
    trials = [tables[f"{task}_accuracy"]["trials"].tolist() for task in tasks[:3]]
    assert trials[0] == trials[1] != trials[2]


def test_all_arms_and_recall_on_one_run(config, context):
    arms = ("zero_shot", "finetuned", "ceiling")
    changes = {
        "arms": arms,
        "tasks": ("text", "associative_recall"),
        "methods": "pi",
        "finetune_steps": 2,
    }
    tables = made(results, config(**changes), context)
    recall, text = tables["associative_recall_accuracy"], tables["text_nll"]
    methods = {("pi", "zero_shot"), ("pi", "finetuned")}
    windows = {("sliding_window", "zero_shot"), ("sliding_window", "finetuned")}
    expected = {*methods, ("trained_at_test_len", "ceiling"), *windows}
    for table in (recall, text):
        assert set(zip(table["method"], table["arm"], strict=True)) == expected
    ends = text.query(
        "bucket_end_tokens == 256 and method != 'sliding_window'"
    ).set_index("arm")
    assert ends[NLL]["finetuned"] < ends[NLL]["zero_shot"]


def test_the_window_beside_fine_tuned_rows_was_trained_on_as_long(config, context):
    given = config(
        arms="zero_shot,finetuned", tasks="text", methods="unscaled", finetune_steps=3
    )
    tuned, window = (
        next(
            c.subject
            for c in list_evaluations(given)
            if (dict(c.labels)["method"], dict(c.labels)["arm"]) == row
        )
        for row in (("unscaled", "finetuned"), ("sliding_window", "finetuned"))
    )
    assert isinstance(tuned, Training) and isinstance(window, Training)
    assert (tuned.recipe.window, window.recipe.window) == (256, 64)
    assert tuned.recipe.steps == window.recipe.steps == 3
    assert tuned.recipe.tokens_per_step == window.recipe.tokens_per_step
    tables = made(results, given, context)
    cost = tables["cost"].set_index(["method", "arm"])["further_training_tokens"]
    assert (
        cost["unscaled", "finetuned"] == cost["sliding_window", "finetuned"] == 3 * 512
    )
    assert cost["sliding_window", "zero_shot"] == 0
    answer = results.answer(tables)
    losses = (
        tables["text_nll"]
        .query("bucket_end_tokens == 256")
        .set_index(["method", "arm"])[NLL]
    )
    best = "finetuned" if losses["unscaled"].idxmin() == "finetuned" else "zero_shot"
    kept = f"trained length ({losses['sliding_window', best]:.3f} ["
    assert mentions(answer, "sliding window", kept)
    assert {"loss_by_position_finetuned", "finetuned_against_zero_shot"} <= set(
        draw(tables)
    )
    plt.close("all")


def test_a_window_costs_less_attention_and_more_passes(tables):
    cost = tables["cost"].set_index("method")
    assert cost.loc["unscaled", "attended_positions"] == 257 / 2
    # Windows of 64 at 0, 32, ..., 192 are 7.
    assert cost.loc["sliding_window", "attended_positions"] == 7 * 64 / 256 * 65 / 2


@pytest.mark.slow
def test_a_cache_of_the_text_stands_beside_the_window(config, context):
    given = config(arms="zero_shot,cache", tasks="text,copy", methods="unscaled")
    tables = made(results, given, context)
    rows = tables["text_nll"].pivot_table(
        index="bucket_end_tokens", columns="method", values=NLL
    )
    far, everything = rows["sliding_window + far cache"], rows["sliding_window + cache"]
    assert set(tables["copy_accuracy"]["method"]) == {"unscaled", "sliding_window"}
    # A model that has learned nothing gains by counts of what it sees, too.
    assert (everything.loc[128:] < far.loc[128:]).all()
    near = rows["sliding_window + near cache"]
    assert (near.loc[128:] < rows.loc[128:, "sliding_window"]).all()
    assert (far.loc[128:] < rows.loc[128:, "sliding_window"]).all()
    assert (everything.loc[:64] == near.loc[:64]).all()
    assert tables["searched"]["chosen"].str.match(r"weight=0\.\d").all()
    assert f"lower its loss to {far[256]:.2f}" in results.answer(tables)
    pairs = tables["comparisons"]
    only = made(results, config(tasks="text", methods="unscaled"), context)[
        "comparisons"
    ]
    rates = [
        each.query(
            "method_a == 'unscaled' and method_b == 'sliding_window' and metric =="
            " 'nll_bucket'"
        )
        for each in (pairs, only)
    ]
    ours, theirs = (each["false_discovery_rate"] for each in rates)
    np.testing.assert_array_equal(ours, theirs)
    assert "loss_by_position" in draw(tables)
    plt.close("all")


ARMS = (("zero_shot",), ("finetuned",), ("ceiling",), ("finetuned", "ceiling"))
EACH_TASK = (("text",), ("copy",), ("associative_recall",))
ALL_TASKS = ("text", "copy", "associative_recall")
CHOICES = [(arms, tasks) for arms in ARMS for tasks in (*EACH_TASK, ALL_TASKS)]
# Each choice of arms and each of tasks is among them.
FEW_CHOICES = [
    (("zero_shot",), ("copy",)),
    (("finetuned",), ("text",)),
    (("ceiling",), ("associative_recall",)),
    (("finetuned", "ceiling"), ALL_TASKS),
]


@pytest.mark.slow
@pytest.mark.parametrize("choice", mostly_slow(CHOICES, FEW_CHOICES))
def test_every_choice_of_arms_and_tasks_is_answered_and_drawn(choice, config, context):
    arms, tasks = choice
    changes = {"arms": arms, "tasks": tasks, "methods": "pi", "finetune_steps": 1}
    tables = made(results, config(**changes), context)
    assert results.answer(tables)
    assert not results.summary(tables).empty
    figures = draw(tables)
    assert (
        "loss_by_position" in figures or "loss_by_position_finetuned" in figures
    ) == ("text" in tasks)
    for task in ("copy", "associative_recall"):
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
    (axes,) = draw_against_zero_shot({"last_window": table}).axes
    assert [text.get_text() for text in axes.texts] == ["2.40", "2.70 → 2.08"]


def test_what_is_trained_on_at_a_length_of_its_own_is_read_to_the_end(config, context):
    changes = {"arms": "finetuned", "tasks": "text", "methods": "pi(factor=2)"}
    longest, shorter = (
        made(
            results, config(**changes, finetune_steps=2, finetune_len=length), context
        )["text_nll"]
        for length in (None, 128)
    )
    ends = shorter.query("arm == 'finetuned'")["bucket_end_tokens"]
    assert ends.max() == 256
    assert not longest["nll_nats_per_byte"].equals(shorter["nll_nats_per_byte"])


def test_what_is_trained_on_reads_text_at_its_length_from_the_first_step(config):
    methods = "pi,drope(steps=2)"
    changes = {"methods": methods, "tasks": "text", "arms": "zero_shot,finetuned"}
    models = [each.subject for each in list_evaluations(config(**changes))]
    trained_on = [
        model for model in models if isinstance(model, Training) and model.start
    ]
    assert {model.recipe.window for model in trained_on} == {64, 256}
    for model in trained_on:
        length = model.recipe.window
        for step in range(model.recipe.steps):
            batch = model.batch(step, length, 1)
            assert batch.tokens.shape == (1, length)


def test_drope_is_trained_on_at_its_own_length_once_whatever_its_temperature(config):
    methods = "unscaled,drope(steps=2),drope(steps=2, sharpen=0)"
    lines: list[str] = []
    table = made(results, config(methods=methods, tasks=("text",)), noting(lines))[
        "text_nll"
    ]
    (tuned,) = (line for line in lines if "fine-tuning" in line)
    assert mentions(tuned, "seed 0")
    wide = table.pivot_table(index="bucket_end_tokens", columns="method", values=NLL)
    cool, sharp = wide["drope(steps=2, sharpen=0)"], wide["drope(steps=2)"]
    inside = cool.index <= 64
    assert (cool[inside] == sharp[inside]).all()
    assert (cool[~inside] != sharp[~inside]).all()
    assert (wide["unscaled"] != cool).all()


def test_what_is_trained_on_under_drope_was_recalibrated_first(config):
    given = config(finetune_steps=3)
    (base,) = make_trainings(given, GEOMETRY)
    drope, plain = parse_methods(["drope(steps=2)", "pi"], GEOMETRY, 256)
    assert isinstance(drope, FixedMethod) and isinstance(plain, FixedMethod)
    recalibrated = adapt(given, base, GEOMETRY, drope, "zero_shot")
    tuned = adapt(given, base, GEOMETRY, drope, "finetuned")
    assert tuned.start is not None
    assert tuned.start.key == recalibrated.key != base.key
    assert tuned.start.recipe.window == 64
    assert adapt(given, base, GEOMETRY, plain, "finetuned").start is base


def test_a_searched_method_is_measured_under_its_own_name_and_shown_apart(
    config, context
):
    changes = {"tasks": ("text", "copy"), "methods": "longrope_search(budget=5)"}
    tables = made(results, config(**changes), context)
    for table in (tables["copy_accuracy"], tables["text_nll"]):
        rows = set(zip(table["method"], table["arm"], strict=True))
        searched = ("longrope_search(budget=5)", "searched")
        assert rows == {searched, ("sliding_window", "zero_shot")}
    assert "longrope_search(budget=5) ×4 searched" in results.answer(tables)
    assert tables["searched"]["evaluations"].tolist() == [5, 5]


def test_a_named_longrope_gets_the_budget_of_all(config):
    methods = "unscaled,longrope_search(budget=5),longrope_search(beyond_critical=true)"
    given = config(tasks=("copy",), methods=methods, search=7)
    searched = list_evaluations(given)[1:-1]
    rows = [dict(each.labels) for each in searched]
    assert [row["method"] for row in rows] == [
        "longrope_search",
        "longrope_search(beyond_critical=true)",
    ]
    assert [
        (row["arm"], each.mode.evaluations)
        for row, each in zip(rows, searched, strict=True)
    ] == [("searched", 7)] * 2


@pytest.mark.slow
def test_every_method_with_knobs_is_searched_with_one_budget_and_shown_apart(
    config, context
):
    changes = {"tasks": ("copy",), "methods": "unscaled,pi,ntk,yarn", "search": 5}
    tables = made(results, config(**changes), context)
    copies, searched = tables["copy_accuracy"], tables["searched"]
    of_arm = copies[copies["arm"] == "searched"]
    assert list(dict.fromkeys(of_arm["method"])) == [
        "pi",
        "ntk",
        "yarn",
        "longrope_search",
    ]
    assert searched["method"].tolist() == ["pi", "ntk", "yarn", "longrope_search"]
    assert (searched["evaluations"] == 5).all()
    first, chosen = (
        searched["first_nll_nats_per_token"],
        searched["chosen_nll_nats_per_token"],
    )
    assert (chosen <= first).all()
    assert searched["chosen"].str.match(r"(pi|ntk|yarn|longrope)\(").all()
    figures = draw(tables)
    assert {"copy_by_distance", "copy_by_distance_searched"} <= set(figures)
    # A share is drawn from 0 to 1, whatever the values.
    low, high = figures["copy_by_distance"].axes[0].get_ylim()
    assert -0.1 < low < 0 < 1 < high < 1.1
    assert "searched" in results.answer(tables) or "no verdict" in results.answer(
        tables
    )
    plt.close("all")


# Comparisons and sentences


def test_every_stored_verdict_names_one_of_its_pair(tables):
    for row in tables["comparisons"].itertuples():
        assert row.verdict in (row.method_a, row.method_b, "~")


def copied(inside: float) -> pd.DataFrame:
    """Copying by two methods; unscaled reaches `inside` within the trained length."""
    plain = [
        (1024, 2048, inside),
        (1024, 8192, 0.3),
        (4096, 8192, 0.02),
        (6144, 8192, 0.01),
    ]
    yarn = [
        (1024, 2048, 0.1),
        (1024, 8192, 0.98),
        (4096, 8192, 0.95),
        (6144, 8192, 0.4),
    ]
    rows = [("unscaled", 1.0, *row) for row in plain] + [
        ("yarn", 4.0, *row) for row in yarn
    ]
    table = pd.DataFrame(rows, columns=["method", "factor", *PLACE, "accuracy"])
    accuracy = table["accuracy"]
    return table.assign(
        arm="zero_shot",
        seed=0,
        train_len_tokens=2048,
        ci_low=accuracy - 0.005,
        ci_high=accuracy + 0.005,
    )


def test_the_question_has_the_lengths_that_were_asked_for():
    question = load("extrapolate").question
    assert build(ExtrapolateConfig, {}).adapt_question(question) == question
    asked = build(ExtrapolateConfig, {"train_len": 64, "test_len": 256}).adapt_question(
        question
    )
    assert mentions(asked, "64 tokens", 256)


def told(verdict: str, task: str = "copy") -> pd.DataFrame:
    """The comparison of the two methods from 4096 tokens back."""
    row = (f"{task}_accuracy", 4096, 8192, "unscaled", "yarn ×4", "ok", verdict)
    columns = [
        "metric",
        "at_tokens",
        "context_tokens",
        "method_a",
        "method_b",
        "status",
        "verdict",
    ]
    return pd.DataFrame([row], columns=columns)


@pytest.mark.parametrize(("verdict", "is_best"), [("yarn ×4", True), ("~", False)])
def test_the_answer_follows_from_the_tables(verdict, is_best):
    said = results.answer({"copy_accuracy": copied(0.99), "comparisons": told(verdict)})
    assert "At 4096 tokens back" in said
    assert mentions(said, "yarn ×4", "best", "0.950 [0.945, 0.955]") is is_best
    assert mentions(said, "no method", "better") is not is_best
    assert "unscaled 0.020 [0.015, 0.025]" in said


@pytest.mark.parametrize(("inside", "learned"), [(0.79, False), (0.8, True)])
def test_of_what_was_not_learned_inside_the_trained_length_there_is_no_verdict(
    inside, learned
):
    said = results.answer(
        {
            "most_recent_accuracy": copied(inside),
            "comparisons": told("yarn ×4", "most_recent"),
        }
    )
    nothing = "No model distinguishes the nearer of two values inside 2048 tokens"
    assert said.startswith(nothing) is not learned
    assert ("yarn" in said) is learned


def test_answer_and_summary_fit_a_real_run(tables):
    said = results.answer(tables)
    assert mentions(said, "sliding window")
    assert mentions(said, "inside 64 tokens", "no verdict")
    assert mentions(said, "comparisons", "significant")
    summary = results.summary(tables)
    assert list(summary["method"]) == ["unscaled", "yarn ×4", "sliding_window"]
    measured = [name for name in summary.columns if " ci_" not in str(name)]
    assert len(measured) <= 7
    # Every number has its interval in the next two columns.
    for name in measured[1:]:
        low, high = (summary[f"{name} ci_{end}"] for end in ("low", "high"))
        assert (low <= summary[name]).all()
        assert (summary[name] <= high).all()
        assert (low < high).all()


# Refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_len": 63}, r"test_len must be at least train_len \(64\), got 63"),
        ({"methods": "longrope_search", "arms": "finetuned"}, "has no finetuned arm"),
        ({"arms": "finetuned", "search": 5}, "search is for the arm zero_shot"),
        ({"arms": "cache", "tasks": "copy"}, "cache is an arm of the task text"),
        (
            {"finetune_len": 300},
            r"finetune_len must lie between train_len \(64\) and test_len",
        ),
        ({"train_len": 32}, "train_len must be at least 64, got 32"),
        ({"methods": "yarm"}, "unknown method 'yarm'; did you mean 'yarn'"),
        ({"methods": ""}, "methods must have at least one value"),
        ({"head_dim": 15}, "head_dim must be even"),
        ({"head_dim": 0}, "head_dim must be greater than or equal to 2"),
        ({"base": 1}, "base must be greater than 1"),
        ({"base": "nan"}, "base must be a"),
        ({"documents": -1}, "documents must be greater than or equal to 1"),
        ({"tasks": ("texts",)}, "unknown task 'texts'; did you mean 'text'"),
        ({"preset": "smal"}, "unknown preset 'smal'; did you mean 'small'"),
        ({"trian_len": 64}, "unknown key 'trian_len'; did you mean 'train_len'"),
    ],
)
def test_bad_input_is_refused_in_one_line(changes, message, config):
    with pytest.raises(InputError, match=message) as refusal:
        config(**changes)
    assert "\n" not in str(refusal.value)


def test_a_bad_corpus_is_refused_before_anything_is_trained(tmp_path, config, context):
    (tmp_path / "short.txt").write_text("too short")
    for path, message in (
        (tmp_path / "nothing", "no corpus at"),
        (tmp_path / "short.txt", "no document of at least 65 bytes"),
    ):
        with pytest.raises(InputError, match=message):
            config(corpus=str(path)).inputs()
        with pytest.raises(InputError, match=message):
            made(results, config(corpus=str(path)), context)


def test_ones_own_corpus_is_part_of_the_identity(tmp_path, config):
    file = tmp_path / "text.txt"
    file.write_text("some text " * 500)
    one = config(corpus=str(file), documents=2).inputs()
    file.write_text("other text " * 500)
    assert config(corpus=str(file), documents=2).inputs() != one
    assert set(config(tasks=("copy",)).inputs()) == {"corpus", "documents"}


def test_pass_keys_are_asked_of_models_trained_here(config, context):
    asked = config(
        tasks="text,passkey", methods="pi", train_len=512, test_len=1024, depths="0,100"
    )
    results.check(asked)
    tables = made(results, asked, context)
    keys = tables["passkey_accuracy"]
    assert set(keys["method"]) == {"pi", "sliding_window"}
    assert set(keys["depth_percent"]) == {0, 100}
    assert mentions(results.answer(tables).lower(), "pass key", "512 tokens")
    assert "passkey @1024" in results.summary(tables)
    assert "passkey_depth_by_length" in draw(tables)
    with pytest.raises(InputError, match="64 tokens are too few for passkey"):
        results.check(config(tasks="passkey"))


def test_documents_that_moved_make_a_run_again(corpora, tmp_path):
    # The text is the same, and so are all cells; tables by kind and by document are
    # not.
    folder = Path(shutil.copytree(corpora[0], tmp_path / "text"))
    values = {**SMALL, "corpus": str(folder), "tasks": "text"}
    before = inputs_of(values)
    for number, path in enumerate(sorted(folder.iterdir())):
        there = folder / ("odd" if number % 2 else "even")
        there.mkdir(exist_ok=True)
        path.rename(there / path.name)
    after = inputs_of(values)
    assert before["corpus"] == after["corpus"]
    assert before != after


def inputs_of(values: dict[str, object]) -> dict[str, str]:
    given = {
        key: value
        for key, value in values.items()
        if key in ExtrapolateConfig.model_fields
    }
    return build(ExtrapolateConfig, given).inputs()


def test_a_recalibrated_model_is_known_by_all_parameters_of_a_method_of_ones_own(
    monkeypatch, config
):
    """The name of its encoding may not tell two of them apart."""
    given = config()
    (base,) = make_trainings(given, GEOMETRY)
    keys = []
    monkeypatch.setattr(
        "ropelab.experiments.extrapolate.rows.make_sources_key",
        lambda *owners: {"own": "a hash"},
    )
    for text in ("drope(steps=2)", "drope(steps=2, sharpen=0)"):
        (method,) = parse_methods([text], GEOMETRY, 256)
        assert isinstance(method, FixedMethod)
        model = adapt(given, base, GEOMETRY, method, "zero_shot")
        assert model.key["encoding"]["own"] == "a hash"
        assert model.key["encoding"]["method"] == method.label
        keys.append(model.key)
    assert keys[0] != keys[1]
