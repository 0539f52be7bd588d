"""A model given: as shipped beside the methods, what it cannot do, advice, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ropelab
from ropelab.errors import InputError
from ropelab.experiments.extrapolate import report
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.given import estimate
from ropelab.experiments.extrapolate.given import run as given_run
from ropelab.experiments.extrapolate.given.advice import advise, recommendation
from ropelab.experiments.extrapolate.given.config import GivenConfig
from ropelab.experiments.extrapolate.given.plan import cells
from ropelab.experiments.extrapolate.pairs import ABOUT, text_pairs
from ropelab.experiments.extrapolate.run import run
from ropelab.lab import Lab
from ropelab.models.released import passes
from ropelab.models.tasks import grid
from ropelab.models.tasks.tables import BUCKET, NLL, losses
from ropelab.runs.cell import Context, silent
from ropelab.runs.comparisons import compared
from ropelab.runs.config import build
from ropelab.show.figures.extrapolate import draw
from tests.models.released.tiny import REAL, reader_of_bytes


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    """A tiny random Llama whose tokens are bytes, trained at 64 as it says."""
    return reader_of_bytes(tmp_path_factory.mktemp("llama"), bos=True)


@pytest.fixture(scope="module")
def config(model, corpora):
    """Makes a config on a small corpus."""

    def made(**changes: object) -> GivenConfig:
        values = {"hf": model, "test_len": 256, "documents": 3, "sequences": 1, "device": "cpu"}
        values |= {"methods": "unscaled,yarn", "corpus": corpora[0], "tasks": "text,copy"}
        return build(GivenConfig, {**values, **changes})

    return made


@pytest.fixture(scope="module")
def tables(config) -> dict[str, pd.DataFrame]:
    return dict(run(config(), Context()))


# Tables


def test_as_shipped_comes_first_and_the_sliding_window_last(tables):
    methods = list(dict.fromkeys(tables["text_nll"]["method"]))
    assert methods == ["as_shipped", "unscaled", "yarn", "sliding_window"]
    assert len(tables["text_nll"]) == 4 * len(grid.buckets(64, 256))
    told = tables["model"].iloc[0]
    assert (told["train_len_tokens"], told["base"], told["dtype"]) == (64, 10000.0, "float32")


def test_as_shipped_is_unscaled_exactly_where_the_checkpoint_scales_nothing(tables):
    wide = tables["text_nll"].pivot(index="bucket_end_tokens", columns="method", values=NLL)
    np.testing.assert_allclose(wide["as_shipped"], wide["unscaled"], rtol=1e-6)
    inside = wide.index <= 64
    np.testing.assert_allclose(
        wide["as_shipped"][inside], wide["sliding_window"][inside], rtol=1e-6
    )
    assert not np.allclose(wide["as_shipped"][~inside], wide["yarn"][~inside], rtol=1e-3)


def test_a_checkpoint_that_scales_is_read_so_as_shipped_and_without_it_unscaled(
    config, tmp_path_factory
):
    scaling = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
    folder = reader_of_bytes(
        tmp_path_factory.mktemp("yarn"),
        max_position_embeddings=256,
        rope_parameters={"rope_theta": 10000.0, **scaling},
    )
    tables = run(config(hf=folder, tasks="text"), Context())
    wide = tables["text_nll"].pivot(index="bucket_end_tokens", columns="method", values=NLL)
    np.testing.assert_allclose(wide["as_shipped"], wide["yarn"], rtol=1e-5)
    assert not np.allclose(wide["as_shipped"], wide["unscaled"], rtol=1e-3)
    told = tables["model"].iloc[0]
    assert told[["train_len_tokens", "claimed_len_tokens", "rope_type"]].tolist() == [
        64,
        256,
        "yarn",
    ]


def test_what_a_random_model_cannot_copy_is_not_asked_of_methods(tables):
    copies = tables["copy_accuracy"]
    assert set(copies["method"]) == {"as_shipped"}
    assert set(copies["status"]) == {"undecidable"}
    assert set(copies["context_tokens"]) == {64}
    assert not tables["comparisons"]["metric"].str.startswith("copy").any()
    assert "Whether it copies is undecidable" in report.answer(tables)
    assert not any(name.startswith("copy") for name in draw(tables))


def test_what_it_can_do_is_asked_of_all_and_drawn_by_depth(config, monkeypatch, tmp_path_factory):
    longer = reader_of_bytes(tmp_path_factory.mktemp("longer"), max_position_embeddings=600)
    monkeypatch.setattr(given_run, "KNOWN", 0.0)
    asked = {"tasks": "copy,passkey", "methods": "pi", "depths": "0,100", "test_len": 700}
    tables = run(config(**asked, hf=longer, dtype="float32"), Context())
    keys = tables["passkey_accuracy"]
    assert len(keys) == 2 * 2 * 2 + 2
    assert set(keys["method"]) == {"as_shipped", "pi", "sliding_window"}
    assert (keys["status"] == "ok").all()
    assert (keys["log_probability_nats"] < 0).all()
    compared_by = set(tables["comparisons"]["metric"])
    assert compared_by == {"copy_accuracy", "passkey_accuracy", "passkey_log_probability"}
    assert {"passkey_depth_by_length", "copy_heatmap"} <= set(draw(tables))
    assert list(report.summary(tables)["method"]) == ["as_shipped", "pi ×1.16667", "sliding_window"]
    assert "finds the pass key" in report.answer(tables)


def test_a_second_corpus_in_the_same_results_folder_gives_its_own_numbers(
    config, corpora, tmp_path
):
    lab = Lab(results=tmp_path, figures=False)
    values = config(tasks="text", methods="pi").model_dump(mode="json")
    first, second, fresh = (
        (lab if shared else Lab()).carry_out(
            *lab.prepare("extrapolate", {**values, "corpus": corpus})
        )
        for shared, corpus in ((True, corpora[0]), (True, corpora[1]), (False, corpora[1]))
    )
    assert first.tables["text_nll"][NLL].tolist() != second.tables["text_nll"][NLL].tolist()
    assert second.tables["text_nll"][NLL].tolist() == fresh.tables["text_nll"][NLL].tolist()


def test_a_single_file_is_enough_and_lengths_are_tokens(config, corpora, tmp_path):
    file = tmp_path / "one.txt"
    file.write_text("".join(path.read_text() for path in sorted(Path(corpora[0]).iterdir())))
    tables = run(config(corpus=str(file), tasks="text"), Context())
    assert (tables["text_nll"]["documents"] == 3).all()
    said = report.answer(tables)
    assert "256 tokens" in said
    assert "256 bytes" not in said


def test_the_model_is_loaded_once_for_all_methods_and_tasks(config, monkeypatch):
    from ropelab.models.released import model as hf_model

    loads = []
    load = hf_model.load
    monkeypatch.setattr(hf_model, "load", lambda *a: loads.append(a) or load(*a))
    run(config(methods="pi,ntk", documents=2), Context())
    assert len(loads) <= 1


# Advice


def values(**rows: tuple[float, float]) -> pd.DataFrame:
    """Losses in two buckets, of ten documents that differ little; keyword: at the end of each."""
    random = np.random.default_rng(0)
    noise = random.normal(0, 0.3, 10)
    records = [
        (method, 1.0, 0, "zero_shot", document, start, end, value + noise[document] + own)
        for method, ends in rows.items()
        for (start, end), value in zip(((0, 64), (64, 256)), ends, strict=True)
        for document, own in enumerate(random.normal(0, 0.03, 10))
    ]
    columns = ["method", "factor", "seed", "arm", "document", *BUCKET, NLL]
    return pd.DataFrame(records, columns=columns)


def advised(config, **rows):
    """What is recommended where text has these losses."""
    measured = values(**rows)
    last = measured.rename(columns={"bucket_end_tokens": "context_tokens"})
    pairs = text_pairs(measured, last, short=[64], test_len=256)
    tables = {
        "text_nll": losses(measured, ["method", "factor", "seed", "arm", *BUCKET]),
        "last_window": losses(last, ["method", "factor", "seed", "arm", "context_tokens"]),
        "comparisons": compared(pairs, ABOUT),
    }
    tables = {name: table.assign(train_len_tokens=64) for name, table in tables.items()}
    return advise("text", config, tables), tables


@pytest.mark.parametrize(
    ("rows", "status", "best", "alike"),
    [
        ({"yarn": (2, 2.5), "sliding_window": (2, 2.8)}, "better", "yarn", ""),
        ({"yarn": (2, 2.5), "sliding_window": (2, 2.5)}, "better", "yarn", "sliding_window"),
        ({"yarn": (2, 2.5), "sliding_window": (2, 2.2)}, "better", "sliding_window", ""),
        ({"yarn": (2, 3.5), "sliding_window": (2, 3.5)}, "as_shipped", "as_shipped", ""),
        ({"yarn": (2, 2.965), "sliding_window": (2, 3.5)}, "open", "yarn", "as_shipped"),
    ],
)
def test_the_best_row_is_advised_if_it_is_told_from_the_model_as_shipped(
    rows, status, best, alike, config
):
    advice, _ = advised(config(methods="yarn(factor=1)"), as_shipped=(2.0, 3.0), **rows)
    found = {advice.best, *filter(None, advice.alike.split(", "))}
    assert advice.status == status
    assert found == {best, *filter(None, [alike])}
    if status == "better":
        assert advice.ci_low < advice.difference < advice.ci_high < 0


def test_the_advice_is_a_sentence_with_its_interval_its_cost_and_how_to_write_it_down(config):
    asked = config(methods="yarn(factor=1)", tasks="text")
    rows = {"as_shipped": (2.0, 3.0), "yarn": (2.1, 2.5), "sliding_window": (2.0, 2.8)}
    _, tables = advised(asked, **rows)
    tables["recommendation"] = recommendation(asked, tables)
    tables["model"] = given_run._model(asked)
    said = report.answer(tables)
    assert said.startswith("For 256 tokens: yarn reads text best, -0.4")
    assert " nats per byte against the model as shipped" in said
    assert "Where it is not needed yarn costs +0.1" in said
    assert f"ropelab emit --from {asked.hf} --context 256 --method yarn" in said


# Refusals and estimates


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_len": 128}, r"train_len follows from the model \(64\), leave it out"),
        ({"rope_theta": "5e5"}, r"base follows from the model \(10000\), leave it out"),
        ({"steps": 5}, "steps is about training, and what hf names is not trained"),
        ({"seeds": "0,1"}, "seeds is about training"),
        ({"preset": "base"}, "preset is about training"),
        ({"arms": "finetuned"}, "arms is about training"),
        ({"methods": "drope"}, "cannot be read by drope, which trains or searches"),
        ({"test_len": 32}, r"test_len must be at least the model's trained length \(64\), got 32"),
        ({"tasks": "hidden"}, "unknown tasks 'hidden'"),
        ({"depths": "0,101"}, "depths are percents, 0 to 100"),
        ({"dtype": "float61"}, "unknown dtype 'float61'; did you mean 'float16'"),
        ({"hf": "nowhere"}, "no readable nowhere/config.json"),
        ({"deps": 1}, "unknown key 'deps'; did you mean 'depths'"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_in_one_line(changes, message, config):
    with pytest.raises(InputError, match=message) as refusal:
        config(**changes)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["depths", "bos", "packed", "limit_memory", "device_map"])
def test_what_is_for_a_model_given_needs_one(name):
    with pytest.raises(InputError, match=f"{name} is for a model given by hf"):
        build(ExtrapolateConfig, {name: "1"})


def test_the_length_is_twice_the_models_and_its_number_format_the_checkpoints(model, config):
    asked = build(GivenConfig, {"hf": model})
    assert (asked.test_len, asked.dtype) == (128, "float32")
    assert build(GivenConfig, {"hf": model, "train_len": 64, "rope_theta": 1e4}) == asked
    assert set(config().inputs()) == {"corpus", "hf"}


def test_the_command_takes_both_kinds_of_models(model, corpora):
    asked = {"hf": model, "corpus": corpora[0], "documents": 2, "tasks": "text", "methods": "pi"}
    tables = ropelab.extrapolate(**asked, device="cpu").tables
    assert set(tables["text_nll"]["method"]) == {"as_shipped", "pi", "sliding_window"}
    assert "literature" not in tables


def test_more_memory_than_allowed_is_refused_before_anything_is_asked(config):
    with pytest.raises(InputError, match=r"needs about .*B, more than --limit-memory 0.0 MB"):
        run(config(limit_memory=1000, methods="pi", documents=2, bos="no"), Context())


def test_what_takes_long_is_told_and_more_than_a_day_is_refused(config, monkeypatch, capsys):
    slow = estimate.Cost(linear=1e-2, quadratic=0.0)
    monkeypatch.setattr(estimate, "measured_cost", lambda model: slow)
    monkeypatch.setattr("ropelab.runs.estimate.slowness", lambda: 2.0)
    monkeypatch.setattr(estimate, "slowness", lambda: 2.0)
    asked = config(methods="unscaled", tasks="text", documents=2)
    left = cells(asked, "text")
    seconds = slow.of(n for cell in left for n in estimate.lengths(cell))
    slow = estimate.Cost(linear=1e-2 * 720 / seconds, quadratic=0.0)
    estimate.prepare(asked, left, Context())
    assert capsys.readouterr().err.startswith("about 12 minutes, ")
    slow = estimate.Cost(linear=1e-2 * 2 * 86400 / seconds, quadratic=0.0)
    with pytest.raises(InputError, match="about 2 days, more than a day; --no-limits allows it"):
        estimate.prepare(asked, left, Context())
    estimate.prepare(asked, left, Context(limits=False))
    assert capsys.readouterr().err.startswith("about 2 days, ")


@pytest.mark.parametrize(
    ("task", "said"), [("passkey", "too few for passkey"), ("text", "has 0 documents")]
)
def test_too_little_text_or_room_is_refused_before_anything_is_asked(
    task, said, config, tmp_path, monkeypatch
):
    (tmp_path / "short.md").write_text("one small text")
    short = config(corpus=str(tmp_path), tasks=f"copy,{task}")
    monkeypatch.setattr(estimate, "measured_cost", lambda _: pytest.fail("the model was read"))
    with pytest.raises(InputError, match=said):
        run(short, Context(progress=silent))


def test_what_cannot_be_read_in_parts_is_planned_for_whole(config, monkeypatch):
    model = config().given().model()
    monkeypatch.setattr(passes, "LONGEST_PASS", 128)
    in_parts = estimate.memory(model, 4096)
    monkeypatch.setattr(model.passes, "in_parts", False)
    more = estimate.memory(model, 4096) - in_parts
    activations = (8 * 32 + 3 * 48) * 4 * (4096 - 128)
    assert more == pytest.approx(activations, abs=2**20)  # other memory may come and go


def test_where_and_whether_it_is_computed_does_not_name_the_run(config):
    kept = config(limit_memory="12GiB", device_map="auto").model_dump(mode="json")
    assert kept == config().model_dump(mode="json")


def test_the_passes_that_are_estimated_are_those_that_are_made(config, monkeypatch):
    asked = config(methods="unscaled,dynamic_ntk", tasks="text", documents=2)
    model = asked.given().model()
    for cell in cells(asked, "text"):
        read: list[int] = []
        hidden = type(model).hidden

        def noting(self, tokens, read=read, hidden=hidden):
            read.extend([tokens.shape[1]] * len(tokens))
            return hidden(self, tokens)

        monkeypatch.setattr(type(model), "hidden", noting)
        cell.tables(Context(progress=silent))
        monkeypatch.undo()
        assert sorted(read) == sorted(estimate.lengths(cell))


# A real model


@pytest.mark.skipif(not REAL, reason="there are no weights of stories260K on this machine")
def test_a_real_model_reads_stories_and_beyond_its_length_a_window_reads_best():
    tables = ropelab.extrapolate(
        hf=str(REAL / "stories260K-hf"),
        test_len=1024,
        corpus=str(REAL / "tinystories_sample.txt"),
        documents=1,
        tasks="text",
        methods="unscaled,pi",
        device="cpu",
    ).tables
    wide = tables["text_nll"].pivot(index="bucket_end_tokens", columns="method", values=NLL)
    last = wide.loc[1024]
    assert last["sliding_window"] < last["as_shipped"] < last["pi"]
    assert last["as_shipped"] == pytest.approx(last["unscaled"], abs=1e-5)
    assert wide["as_shipped"][256] < 0.8
    assert json.loads(tables["recommendation"].to_json(orient="records"))[0]["status"] == "open"
