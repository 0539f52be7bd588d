"""A released model: unmodified beside the methods, what it cannot do, advice,
refusals.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import ropelab
from ropelab.cli import app as cli
from ropelab.experiments import load
from ropelab.experiments.evaluate import EvaluateConfig, results
from ropelab.experiments.evaluate.recommendation import (
    _write_command,
    make_recommendation,
)
from ropelab.experiments.evaluate.results import make_model_table
from ropelab.lab import Lab
from ropelab.models.released import forward, loading
from ropelab.models.released.forward import LONGEST_PASS
from ropelab.models.tasks import cells, grid
from ropelab.models.tasks.tables import BUCKET, NLL, average_losses, compare_rows
from ropelab.models.tasks.task import Texts
from ropelab.plan import Plan
from ropelab.runs.cell import Context
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from ropelab.runs.labels import label_method
from ropelab.runs.tables import EarlyTable
from ropelab.show.figures.extrapolate import draw
from tests.models.released.tiny import REAL, reader_of_bytes
from tests.models.tasks.running import made
from tests.texts import mentions


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A tiny random Llama whose tokens are bytes, trained at 64 as it says."""
    return reader_of_bytes(tmp_path_factory.mktemp("llama"), bos=True)


@pytest.fixture(scope="module")
def config(model, corpora):
    """Makes a config on a small corpus."""

    def configured(**changes: object) -> EvaluateConfig:
        values = {
            "model": model,
            "context": 256,
            "documents": 3,
            "sequences": 1,
            "device": "cpu",
        }
        values |= {
            "methods": "unscaled,yarn",
            "corpus": corpora[0],
            "tasks": "text,copy",
        }
        # None: what the config itself takes.
        given = {
            name: value
            for name, value in {**values, **changes}.items()
            if value is not None
        }
        return build(EvaluateConfig, given)

    return configured


@pytest.fixture(scope="module")
def tables(config) -> dict[str, pd.DataFrame]:
    return made(results, config(), Context())


# Tables


def test_unmodified_comes_first_and_the_sliding_window_last(tables):
    methods = list(dict.fromkeys(tables["text_nll"]["method"]))
    assert methods == ["unmodified", "unscaled", "yarn", "sliding_window"]
    assert len(tables["text_nll"]) == 4 * len(grid.list_buckets(64, 256))
    told = tables["model"].iloc[0]
    assert (told["train_len_tokens"], told["base"], told["dtype"]) == (
        64,
        10000.0,
        "float32",
    )


def test_unmodified_is_unscaled_exactly_where_the_checkpoint_scales_nothing(tables):
    wide = tables["text_nll"].pivot(
        index="bucket_end_tokens", columns="method", values=NLL
    )
    np.testing.assert_allclose(wide["unmodified"], wide["unscaled"], rtol=1e-6)
    inside = wide.index <= 64
    np.testing.assert_allclose(
        wide["unmodified"][inside], wide["sliding_window"][inside], rtol=1e-6
    )
    assert not np.allclose(
        wide["unmodified"][~inside], wide["yarn"][~inside], rtol=1e-3
    )


def test_a_checkpoint_that_scales_does_so_unmodified_and_not_when_unscaled(
    config, tmp_path_factory
):
    scaling = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    folder = reader_of_bytes(
        tmp_path_factory.mktemp("yarn"),
        max_position_embeddings=256,
        rope_parameters={"rope_theta": 10000.0, **scaling},
    )
    tables = made(results, config(model=folder, tasks="text"), Context())
    wide = tables["text_nll"].pivot(
        index="bucket_end_tokens", columns="method", values=NLL
    )
    np.testing.assert_allclose(wide["unmodified"], wide["yarn"], rtol=1e-5)
    assert not np.allclose(wide["unmodified"], wide["unscaled"], rtol=1e-3)
    told = tables["model"].iloc[0]
    assert told[["train_len_tokens", "claimed_len_tokens", "rope_type"]].tolist() == [
        64,
        256,
        "yarn",
    ]


def test_somebody_who_watches_sees_the_table_fill(config, tmp_path):
    seen: list[EarlyTable] = []
    lab = Lab(results=tmp_path, figures=False, watch=seen.append)
    run = lab.run(Plan(load("evaluate"), config(tasks="text")))
    methods = list(run.tables["last_window"]["method"].unique())
    counts = [len(early_table.table) for early_table in seen]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1] == len(methods)
    last = seen[-1].table.set_index("method")["loss in 256"]
    final = run.summary().set_index("method")["last_nll @256"]
    pd.testing.assert_series_equal(last[final.index], final, check_names=False)
    lab.run(Plan(load("evaluate"), config(tasks="text")))
    assert len(seen) == len(counts)


def list_measured(summary: pd.DataFrame) -> list[str]:
    """Return the columns of a short table, without those of intervals."""
    return [str(name) for name in summary.columns if " ci_" not in str(name)]


def test_a_length_that_was_not_read_has_no_column(tables):
    short = dict(tables)
    for name in ("last_window", "text_nll"):
        short[name] = tables[name].assign(train_len_tokens=512)
    columns = list_measured(results.summary(short))
    assert [name for name in columns if name.startswith("last_nll")] == [
        "last_nll @256"
    ]
    assert "tax_and_gain" in draw(tables)
    assert "tax_and_gain" not in draw(short)
    columns = list_measured(results.summary(tables))
    assert [name for name in columns if name.startswith("last_nll")] == [
        "last_nll @64", "last_nll @256",
    ]  # fmt: skip


@pytest.mark.parametrize(("grid_len", "longest"), [(64, 256), (150, 300), (8192, 9000)])
def test_the_words_for_the_last_tokens_name_their_number(tables, grid_len, longest):
    contexts = grid.list_context_lengths(grid_len, longest)
    losses = pd.DataFrame({"context_tokens": contexts, "train_len_tokens": 512})
    explained = results.explain_columns({**tables, "last_window": losses})
    last_tokens = grid.choose_last_window(grid_len)
    assert f"the same last {last_tokens} tokens" in explained["last_nll @N"]


def test_what_a_random_model_cannot_copy_is_not_asked_of_methods(tables):
    copies = tables["copy_accuracy"]
    assert set(copies["method"]) == {"unmodified"}
    assert set(copies["status"]) == {"undecidable"}
    assert set(copies["context_tokens"]) == {64}
    assert not tables["comparisons"]["metric"].str.startswith("copy").any()
    less = (
        "copies in fewer than half of the cases inside 64 tokens, so nothing is decided"
        " beyond"
    )
    assert less in results.answer(tables)
    assert not any(name.startswith("copy") for name in draw(tables))
    # A context below the trained length is asked for copies in a half of it.
    asked = {**tables, "copy_accuracy": copies.assign(context_tokens=32)}
    assert less.replace("64", "32") in results.answer(asked)


def test_what_it_can_do_is_asked_of_all_and_drawn_by_depth(
    config, monkeypatch, tmp_path_factory
):
    longer = reader_of_bytes(
        tmp_path_factory.mktemp("longer"), max_position_embeddings=600
    )
    monkeypatch.setattr(cells, "KNOWN", 0.0)
    asked = {
        "tasks": "copy,passkey",
        "methods": "pi",
        "depths": "0,100",
        "context": 700,
    }
    tables = made(results, config(**asked, model=longer, dtype="float32"), Context())
    keys = tables["passkey_accuracy"]
    assert len(keys) == 2 * 2 * 2 + 2
    assert set(keys["method"]) == {"unmodified", "pi", "sliding_window"}
    assert (keys["status"] == "ok").all()
    assert (keys["log_probability_nats"] < 0).all()
    compared_by = set(tables["comparisons"]["metric"])
    assert compared_by == {
        "copy_accuracy",
        "passkey_accuracy",
        "passkey_log_probability",
    }
    assert {"passkey_depth_by_length", "copy_heatmap"} <= set(draw(tables))
    assert list(results.summary(tables)["method"]) == [
        "unmodified",
        "pi ×1.16667",
        "sliding_window",
    ]
    assert "finds the pass key" in results.answer(tables)


@pytest.mark.slow
def test_a_second_corpus_in_the_same_results_folder_gives_its_own_numbers(
    config, corpora, tmp_path
):
    lab = Lab(results=tmp_path, figures=False)
    values = config(tasks="text", methods="pi").model_dump(mode="json")
    first, second, fresh = (
        (lab if shared else Lab()).run(
            lab.prepare("evaluate", {**values, "corpus": corpus})
        )
        for shared, corpus in (
            (True, corpora[0]),
            (True, corpora[1]),
            (False, corpora[1]),
        )
    )
    assert (
        first.tables["text_nll"][NLL].tolist()
        != second.tables["text_nll"][NLL].tolist()
    )
    assert (
        second.tables["text_nll"][NLL].tolist()
        == fresh.tables["text_nll"][NLL].tolist()
    )


def test_a_single_file_is_enough_and_lengths_are_tokens(config, corpora, tmp_path):
    file = tmp_path / "one.txt"
    file.write_text(
        "".join(path.read_text() for path in sorted(Path(corpora[0]).iterdir()))
    )
    tables = made(results, config(corpus=str(file), tasks="text"), Context())
    assert (tables["text_nll"]["documents"] == 3).all()
    said = results.answer(tables)
    assert "256 tokens" in said
    assert "256 bytes" not in said


@pytest.mark.slow
def test_more_documents_read_only_the_new_ones(config, monkeypatch):
    context, read = Context(), list[int | None]()
    two = made(results, config(tasks="text", documents=2), context)
    measure = Texts.measure

    def noted(task: Texts, *rest: Any) -> dict[str, pd.DataFrame]:
        read.append(task.only)
        return measure(task, *rest)

    monkeypatch.setattr(Texts, "measure", noted)
    three = made(results, config(tasks="text", documents=3), context)
    assert set(read) == {2}
    assert len(read) == 3  # unmodified, which is unscaled, YaRN and the window
    by_document = [
        tables["text_by_document"].set_index(["name", "method"])
        for tables in (two, three)
    ]
    common = by_document[1].loc[by_document[0].index]
    pd.testing.assert_frame_equal(common, by_document[0])
    at_once = made(results, config(tasks="text", documents=3), Context())
    pd.testing.assert_frame_equal(at_once["text_nll"], three["text_nll"])


def test_the_model_is_loaded_once_for_all_methods_and_tasks(config, monkeypatch):
    loads: list[tuple[Any, ...]] = []

    def counted(*arguments: Any) -> Any:
        loads.append(arguments)
        return loading.load(*arguments)

    monkeypatch.setattr("ropelab.models.released.model.load", counted)
    made(results, config(methods="pi,ntk", documents=2), Context())
    assert len(loads) <= 1


@pytest.mark.slow
def test_what_every_model_trained_here_is_asked_can_be_asked_of_it_too(
    config, monkeypatch
):
    monkeypatch.setattr(cells, "KNOWN", 0.0)
    tables = made(
        results,
        config(tasks="copy_in_text,associative_recall,most_recent", methods="pi"),
        Context(),
    )
    for task in ("copy_in_text", "associative_recall", "most_recent"):
        assert set(tables[f"{task}_accuracy"]["method"]) == {
            "unmodified",
            "pi",
            "sliding_window",
        }
    assert {
        f"{task}_heatmap"
        for task in ("copy_in_text", "associative_recall", "most_recent")
    } <= set(draw(tables))
    assert "looks up keys" in results.answer(tables)


def test_at_its_trained_length_a_probe_is_all_of_the_task_unmodified(
    tmp_path_factory, config
):
    folder = reader_of_bytes(
        tmp_path_factory.mktemp("longer"), max_position_embeddings=600
    )
    asked = config(
        model=folder, context=600, tasks="passkey", methods="pi", depths="0,100"
    )
    tables = made(results, asked, Context())
    assert set(tables["passkey_accuracy"]["status"]) == {"undecidable"}
    assert set(tables["passkey_accuracy"]["method"]) == {"unmodified"}

    # Without any method the probe is the only row.
    tables = made(results, asked.replace(methods=()), Context())
    assert set(tables["passkey_accuracy"]["status"]) == {"undecidable"}
    assert list(tables["recommendation"]["status"]) == ["undecidable"]


@pytest.mark.parametrize("context", [128, 256])
def test_up_to_its_trained_length_methods_are_drawn_without_a_sliding_window(
    tmp_path_factory, config, context
):
    folder = reader_of_bytes(
        tmp_path_factory.mktemp("trained"), max_position_embeddings=256
    )
    asked = config(model=folder, context=context, methods="pi(factor=2)", tasks="text")
    tables = made(results, asked, Context())
    figures = draw(tables)
    assert "loss_by_context" in figures
    assert "loss_by_position" not in figures
    said = results.answer(tables)
    assert said.startswith(f"At {context} tokens ")


def test_one_row_is_not_called_the_best(config):
    asked = config(context=64, tasks="text", methods=())
    tables = made(results, asked, Context())
    said = results.answer(tables)
    assert mentions(said, "64 tokens", "unmodified", "text")
    assert "best" not in said


# Advice


def values(**rows: tuple[float, float]) -> pd.DataFrame:
    """Losses in two buckets, of ten documents that differ little; keyword: at the end
    of each.
    """
    random = np.random.default_rng(0)
    noise = random.normal(0, 0.3, 10)
    records = [
        (
            method,
            1.0,
            0,
            "zero_shot",
            document,
            start,
            end,
            value + noise[document] + own,
        )
        for method, ends in rows.items()
        for (start, end), value in zip(((0, 64), (64, 256)), ends, strict=True)
        for document, own in enumerate(random.normal(0, 0.03, 10))
    ]
    columns = ["method", "factor", "seed", "arm", "document", *BUCKET, NLL]
    return pd.DataFrame(records, columns=columns)


def advised(
    config: EvaluateConfig, **rows: tuple[float, float]
) -> tuple[pd.Series, dict[str, pd.DataFrame]]:
    """What is recommended where text, or one document of it, has these losses."""
    measured = values(**rows)
    if config.documents == 1:
        measured = measured[measured["document"] == 0]
    last = measured.rename(columns={"bucket_end_tokens": "context_tokens"})
    text = {"text": {"buckets": measured, "last_window": last}}
    tables = {
        "text_nll": average_losses(
            measured, ["method", "factor", "seed", "arm", *BUCKET]
        ),
        "last_window": average_losses(
            last, ["method", "factor", "seed", "arm", "context_tokens"]
        ),
        "comparisons": compare_rows(text, [64], 256),
    }
    tables = {name: table.assign(train_len_tokens=64) for name, table in tables.items()}
    return make_recommendation(config, tables).iloc[0], tables


@pytest.mark.parametrize(
    ("rows", "status", "best", "not_significant"),
    [
        ({"yarn": (2, 2.5), "sliding_window": (2, 2.8)}, "better", "yarn", ""),
        (
            {"yarn": (2, 2.5), "sliding_window": (2, 2.5)},
            "better",
            "yarn",
            "sliding_window",
        ),
        (
            {"yarn": (2, 2.5), "sliding_window": (2, 2.2)},
            "better",
            "sliding_window",
            "",
        ),
        (
            {"yarn": (2, 3.5), "sliding_window": (2, 3.5)},
            "unmodified",
            "unmodified",
            "",
        ),
        (
            {"yarn": (2, 2.965), "sliding_window": (2, 3.5)},
            "open",
            "yarn",
            "unmodified",
        ),
    ],
)
def test_the_best_row_is_advised_if_it_is_distinguishable_from_unmodified(
    rows, status, best, not_significant, config
):
    advice, _ = advised(
        config(methods="yarn(factor=1)", tasks="text"), unmodified=(2.0, 3.0), **rows
    )
    found = {advice.best, *filter(None, advice.not_significant.split(", "))}
    assert advice.status == status
    assert found == {best, *filter(None, [not_significant])}
    if status == "better":
        assert advice.ci_low < advice.difference < advice.ci_high < 0


def test_the_advice_is_a_sentence_with_its_interval_its_cost_and_how_to_write_it_down(
    config,
):
    asked = config(methods="yarn(factor=1)", tasks="text")
    rows = {"unmodified": (2.0, 3.0), "yarn": (2.1, 2.5), "sliding_window": (2.0, 2.8)}
    _, tables = advised(asked, **rows)
    tables["recommendation"] = make_recommendation(asked, tables)
    tables["model"] = make_model_table(asked)
    said = results.answer(tables)
    assert mentions(said, "256 tokens", "yarn", "best")
    assert ", -0.47 [-0.50, -0.44] nats" in said
    assert mentions(said, "tokens 64 to 256", "unmodified")
    assert "yarn costs most at 64 tokens: 0.117 [0.098, 0.136] nats" in said
    emitted = f"ropelab emit --from {asked.model} --context 256 --method yarn"
    assert results.suggest_command(asked, tables) == emitted


def test_the_advice_from_one_document_has_no_interval(config):
    asked = config(methods="yarn(factor=1)", tasks="text", documents=1)
    _, tables = advised(asked, unmodified=(2.0, 3.0), yarn=(2.1, 2.5))
    tables["recommendation"] = make_recommendation(asked, tables)
    tables["model"] = make_model_table(asked)
    assert mentions(results.answer(tables), "-0.534 [no interval] nats", "64 to 256")
    assert asked.scope.endswith(", 1 document")


def test_the_advised_command_has_the_factor_in_full(config):
    asked = config(context=255, methods="yarn(beta_fast=8)", tasks="text")
    label = label_method("yarn(beta_fast=8)", 255 / 64)
    assert "'yarn(factor=3.984375, beta_fast=8)'" in _write_command(label, asked)


# Refusals and estimates


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_len": 128}, "unknown key 'train_len'"),
        ({"seeds": "0,1"}, "unknown key 'seeds'"),
        ({"model": ""}, "name a model: its folder, or its id"),
        (
            {"methods": "drope"},
            "cannot be evaluated under drope, which trains or searches",
        ),
        ({"context": 32}, "context must be at least 64, got 32"),
        ({"context": "long", "methods": None}, "context must be a number such as 4096"),
        ({"context": [256], "methods": None}, "context must be a whole number"),
        (
            {"tasks": "copy_in_txt"},
            "unknown task 'copy_in_txt'; did you mean 'copy_in_text'",
        ),
        ({"depths": "0,101"}, "depths are percents, 0 to 100"),
        ({"dtype": "float61"}, "unknown dtype 'float61'; did you mean 'float16'"),
        ({"model": "nowhere"}, "no readable nowhere/config.json"),
        ({"deps": 1}, "unknown key 'deps'; did you mean 'depths'"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_in_one_line(changes, message, config):
    with pytest.raises(InputError, match=message) as refusal:
        config(**changes)
    assert "\n" not in str(refusal.value)


def test_the_length_is_twice_the_models_and_its_number_format_the_checkpoints(
    model, config
):
    asked = build(EvaluateConfig, {"model": model})
    assert (asked.context, asked.dtype) == (128, "float32")
    assert set(config().inputs()) == {"corpus", "documents", "model"}


def test_the_command_names_the_model_without_a_flag(model, corpora, tmp_path, capsys):
    asked = [
        model,
        "--corpus",
        corpora[0],
        "--documents",
        "2",
        "--tasks",
        "text",
        "--json",
    ]
    with pytest.raises(SystemExit) as stop:
        cli.main(["evaluate", *asked, "--method", "pi", "--results", str(tmp_path)])
    document = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0
    rows = document["tables"]["text_nll"]
    assert {row["method"] for row in rows} == {"unmodified", "pi", "sliding_window"}
    assert "literature" not in document["tables"]
    manifest = json.loads((Path(document["run"]) / "manifest.json").read_text())
    assert manifest["command"].startswith(f"ropelab evaluate {model} --context 128")


def test_more_memory_than_allowed_is_refused_before_the_model_is_loaded(config):
    with pytest.raises(
        InputError, match=r"needs about .*B, more than --limit-memory 0.0 MB"
    ):
        results.check(config(limit_memory=1000, methods="pi", documents=2, bos="no"))


def test_what_only_loading_shows_to_need_too_much_memory_is_refused_then(
    config, monkeypatch
):
    asked = config(methods="pi", tasks="text", documents=2)
    (checked,) = results.cells(asked)[0].prerequisites
    model = asked.reference().model()
    monkeypatch.setattr(type(model), "free_bytes", lambda self: 1000)
    with pytest.raises(
        InputError, match=r"1.* free; --no-limits allows it|0.0 MB are free"
    ):
        checked.tables(Context())
    checked.tables(Context(limits=False))


def test_a_method_that_the_model_does_not_take_is_refused_before_anything_is_measured(
    config,
):
    asked = config(methods="pi", tasks="text", documents=2)
    (checked,) = results.cells(asked)[0].prerequisites
    model = asked.reference().model()
    closed, model.objection_to_plans = model.objection_to_plans, "it says so"
    try:
        with pytest.raises(InputError, match="cannot be put in, because it says so"):
            checked.tables(Context())
    finally:
        model.objection_to_plans = closed


@pytest.mark.parametrize(
    ("task", "said"), [("passkey", "too few for passkey"), ("text", "has 0 documents")]
)
def test_too_little_text_or_room_is_refused_before_anything_is_asked(
    task, said, config, tmp_path
):
    (tmp_path / "short.md").write_text("one small text")
    short = config(corpus=str(tmp_path), tasks=f"copy,{task}")
    with pytest.raises(InputError, match=said):
        results.check(short)


def test_what_cannot_be_read_in_parts_is_planned_for_whole(config, monkeypatch):
    model = config().reference().model()
    monkeypatch.setattr(forward, "LONGEST_PASS", 128)
    in_parts = model.estimate_pass_bytes(4096)
    monkeypatch.setattr(model, "in_parts", False)
    more = model.estimate_pass_bytes(4096) - in_parts
    activations = (8 * 32 + 3 * 48) * 4 * (4096 - 128)
    assert more == pytest.approx(activations, abs=2**20)  # other memory may come and go


def test_on_a_gpu_contexts_are_read_at_once_where_there_is_room_and_keep_no_keys(
    config,
):
    shape = config().reference().model().shape
    far = 2**20
    roomy = replace(shape, gpu_bytes=far * shape.activation_bytes)
    assert (shape.find_longest_pass(), roomy.find_longest_pass()) == (LONGEST_PASS, far)
    assert roomy.find_longest_pass(rows=2) == far // 2
    keys = far * shape.layers * shape.cached_features * shape.element_bytes
    activations = (far - LONGEST_PASS) * shape.activation_bytes
    assert (
        roomy.estimate_pass_bytes(far)
        == shape.estimate_pass_bytes(far) - keys + activations
    )
    assert roomy.estimate_pass_bytes(2 * far) > roomy.estimate_pass_bytes(far) + keys


def test_where_and_whether_it_is_computed_does_not_name_the_run(config):
    kept = config(limit_memory="12GiB", device_map="auto").model_dump(mode="json")
    assert kept == config().model_dump(mode="json")


# A real model


@pytest.mark.skipif(
    REAL is None, reason="there are no weights of stories260K on this machine"
)
def test_a_real_model_reads_stories_and_beyond_its_length_a_window_reads_best():
    assert REAL is not None
    tables = ropelab.evaluate(
        model=str(REAL / "stories260K-hf"),
        context=1024,
        corpus=str(REAL / "tinystories_sample.txt"),
        documents=1,
        tasks="text",
        methods="unscaled,pi",
        device="cpu",
    ).tables
    wide = tables["text_nll"].pivot(
        index="bucket_end_tokens", columns="method", values=NLL
    )
    last = wide.loc[1024]
    assert last["sliding_window"] < last["unmodified"] < last["pi"]
    assert last["unmodified"] == pytest.approx(last["unscaled"], abs=1e-5)
    assert wide["unmodified"][256] < 0.8
    assert (
        json.loads(tables["recommendation"].to_json(orient="records"))[0]["status"]
        == "open"
    )
