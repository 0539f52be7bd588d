"""The encodings experiment: its tables, meters, verdicts, sentences, figures and
refusals.
"""

from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch

from ropelab.experiments.encodings import (
    DESIGNS,
    EncodingsConfig,
    comparisons,
    cost,
    quality,
)
from ropelab.experiments.encodings.behaviour import measure_behaviour
from ropelab.experiments.encodings.cost import (
    PLAIN,
    LargestTensor,
    count_decoding_flops,
    count_flops,
    count_kept_bytes,
    count_parameters,
    make_untrained,
)
from ropelab.models.encoding.registry import ENCODINGS, FURTHER, make_encoding
from ropelab.runs.cell import Context, Values
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from ropelab.runs.store import make_records
from ropelab.show.figures.encodings import draw, draw_against_methods
from ropelab.show.figures.style import use_style
from tests.small import SMALL
from tests.texts import mentions

FEW = "nope,learned,t5,transformer_xl,rope"


def config(**changes: object) -> EncodingsConfig:
    return build(EncodingsConfig, {**SMALL, "encodings": FEW, **changes})


@pytest.fixture(scope="module")
def context() -> Context:
    return Context()


@pytest.fixture(scope="module")
def found(corpus: str, context: Context) -> dict[str, pd.DataFrame]:
    return quality.tables(config(corpus=corpus), Values(context))


def test_the_config_knows_every_encoding() -> None:
    compared = build(EncodingsConfig, {}).encodings
    assert {*FURTHER, *compared} == set(ENCODINGS)
    assert len(compared) == 14
    assert not set(FURTHER) & set(compared)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encodings": "ropee"}, "did you mean 'rope'"),
        ({"encodings": "design"}, "did you mean 'designs'"),
        ({"encodings": ""}, "at least one"),
        ({"tasks": "cpy"}, "did you mean 'copy'"),
        ({"train_len": 32}, "at least 64"),
        ({"train_len": 512, "test_len": 256}, "at least train_len"),
        ({"encodings": "rope_partial", "head_dim": 4}, "at least 8"),
        ({"corpus": "/proc/nowhere"}, "no corpus"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        config(**changes).inputs()
    assert "\n" not in str(error.value)


# Tables


def test_every_encoding_has_a_row_at_every_place(
    found: dict[str, pd.DataFrame],
) -> None:
    assert set(found) == {
        "cost", "memory", "behaviour", "text_nll", "last_window", "copy_accuracy", "quality",
        "comparisons", "extrapolation", "pairs",
    }  # fmt: skip
    for name, places in (
        ("text_nll", 6),
        ("last_window", 5),
        ("copy_accuracy", 4 + 6 + 8),
    ):
        assert found[name].groupby("encoding").size().to_dict() == dict.fromkeys(
            FEW.split(","), places
        )
    assert (found["quality"].groupby("encoding").size() == 6).all()
    assert (found["text_nll"]["train_len_tokens"] == 64).all()


def test_beyond_its_table_an_encoding_is_undefined_and_has_no_number(
    found: dict[str, pd.DataFrame],
) -> None:
    for name, value, end in (
        ("text_nll", "nll_nats_per_byte", "bucket_end_tokens"),
        ("last_window", "nll_nats_per_byte", "context_tokens"),
    ):
        rows = found[name][found[name]["encoding"] == "learned"]
        beyond = rows[end] > 64
        assert (rows["status"] == np.where(beyond, "undefined", "ok")).all()
        assert rows.loc[beyond, [value, "ci_low", "ci_high"]].isna().all(axis=None)
        assert rows.loc[~beyond, value].notna().all()
        assert (
            found[name][found[name]["encoding"] != "learned"]["status"] == "ok"
        ).all()
    copies = found["copy_accuracy"]
    rows = copies[copies["encoding"] == "learned"]
    beyond = rows["context_tokens"] > 64
    assert (rows["status"] == np.where(beyond, "undefined", "ok")).all()
    assert rows.loc[beyond, "accuracy"].isna().all()
    assert rows.loc[~beyond, "accuracy"].notna().all()
    assert (copies[copies["encoding"] != "learned"]["status"] == "ok").all()


@pytest.mark.slow
def test_the_same_config_gives_the_same_tables(
    found: dict[str, pd.DataFrame], corpus: str
) -> None:
    again = quality.tables(config(corpus=corpus, encodings="nope,rope"), Values())
    for name in ("text_nll", "copy_accuracy", "behaviour"):
        mine = found[name][found[name]["encoding"].isin(["nope", "rope"])].reset_index(
            drop=True
        )
        pd.testing.assert_frame_equal(again[name], mine, check_exact=True)


@pytest.mark.slow
def test_further_encodings_are_measured_and_those_with_a_table_stop_at_its_end(
    corpus: str,
) -> None:
    names = "tupe,learned_distance,rope_values_back"
    made = quality.tables(
        config(encodings=names, corpus=corpus, tasks="text"), Values()
    )["quality"]
    inside = made["times_trained_len"] == 1
    assert (made[inside]["status"] == "ok").all()
    stopped = made[~inside & (made["status"] == "undefined")]
    assert set(stopped["encoding"]) == {"tupe", "learned_distance"}


@pytest.mark.parametrize("name", FURTHER)
def test_training_changes_what_a_further_encoding_learns(
    name: str, corpus: str
) -> None:
    # Until its third step a model whose writers start at zero learns nothing of
    # positions.
    asked = quality.make_training(
        config(encodings=name, corpus=corpus, steps=4), name, 0
    )
    before = {k: v.clone() for k, v in asked.encoding().named_parameters()}
    model = asked.model(Context())
    after = dict(model.encoding.named_parameters())
    assert set(after) == set(before)
    assert all(not torch.equal(after[k], before[k]) for k in before)


@pytest.mark.slow
def test_another_encoding_trains_no_model_twice(corpus: str) -> None:
    lines = []

    def progress(line: str, total: float | None = None) -> Any:
        lines.append(line)
        return Context().progress(line, total)

    context = Context(progress=cast(Any, progress))
    for encodings in ("nope", "alibi,nope"):
        quality.tables(config(corpus=corpus, encodings=encodings), Values(context))
    trained = [line for line in lines if "training" in line]
    assert len(trained) == 2
    assert all(mentions(line, "a model", "seed 0") for line in trained)


def rows_of(
    values: dict[str, list[list[float]]], *metrics: str
) -> comparisons.ValuesByPlace:
    """Make rows from the values per unit of each seed, which only `sinusoidal` changes
    by place.
    """
    return {
        comparisons.MetricPlace(metric, encoding, times): pd.DataFrame(
            [
                (seed, unit, 0, value + times * (encoding == "sinusoidal"))
                for seed, row in enumerate(seeds)
                for unit, value in enumerate(row)
            ],
            columns=["seed", "unit", "trials", "value"],
        )
        for metric in metrics or ("text loss",)
        for encoding, seeds in values.items()
        for times in (1, 2, 4)
    }


def test_comparisons_name_the_smaller_loss_and_the_larger_accuracy() -> None:
    values = {"nope": [[1.0, 2.0, 3.0]], "rope": [[2.0, 3.0, 4.1]]}
    rows = rows_of(values, "text loss", "copy accuracy")
    by_metric = comparisons.compare_all_encodings(rows, config(encodings="nope,rope"))[
        "comparisons"
    ]
    assert by_metric.groupby("metric")["verdict"].unique().map(list).to_dict() == {
        "text loss": ["nope"],
        "copy accuracy": ["rope"],
    }
    assert (by_metric[["seeds", "n"]].to_numpy() == [1, 3]).all()


def test_pairs_of_the_literature_are_compared_at_the_trained_length() -> None:
    losses = [[1.0, 2.0, 3.0], [1.1, 2.2, 3.1]]
    higher = [[value + 0.2 for value in row] for row in losses]
    values = {"rope_values": higher, "rope": losses, "learned": losses}
    both = config(encodings="rope,rope_values,learned,nope")
    (row,) = comparisons.compare_all_encodings(rows_of(values), both)["pairs"].to_dict(
        "records"
    )
    assert (row["encoding_a"], row["encoding_b"]) == ("rope_values", "rope")
    assert row["verdict"] == "rope"
    assert row["difference"] == pytest.approx(0.2)
    assert (row["seeds"], row["n"]) == (2, 3)
    assert comparisons.compare_all_encodings(rows_of(values, "copy accuracy"), both)[
        "pairs"
    ].empty


def test_growth_against_the_trained_length() -> None:
    rows = rows_of({"nope": [[1.0, 2.0, 3.0]], "sinusoidal": [[1.0, 2.1, 3.0]]})
    grown = comparisons.compare_all_encodings(
        rows, config(encodings="nope,sinusoidal")
    )["extrapolation"]
    assert grown.set_index("encoding")["verdict"].to_dict() == {
        "nope": "~",
        "sinusoidal": "worse",
    }
    assert grown.set_index("encoding").loc["sinusoidal", "difference"] == pytest.approx(
        3.0
    )


# Meters and behaviour


def test_operations_of_a_product_are_two_per_multiply_add() -> None:
    a, b = torch.zeros(3, 5), torch.zeros(5, 7)
    assert count_flops(lambda: a @ b) == 2 * 3 * 5 * 7


def test_the_largest_tensor_is_seen_inside_a_computation() -> None:
    with LargestTensor() as largest:
        (torch.zeros(100, 1) + torch.zeros(1, 50)).sum()
    assert largest.bytes == 100 * 50 * 4


def test_kept_bytes_are_those_of_parameters_and_tables() -> None:
    shape = config().shape()
    assert count_kept_bytes(make_encoding("nope", shape)) == 0
    assert count_kept_bytes(make_encoding("learned", shape)) == 64 * 16 * 4
    rope = make_encoding("rope", shape)
    rope.query(torch.zeros(1, 1, 64, 8), torch.arange(64))
    assert count_kept_bytes(rope) == 2 * 64 * 4 * 4 + 4 * 8


def test_work_and_parameters_of_known_encodings() -> None:
    small = config()
    plain = count_decoding_flops(make_untrained(small, PLAIN), 64)
    assert count_decoding_flops(make_untrained(small, "alibi"), 64) == plain
    assert count_decoding_flops(make_untrained(small, "transformer_xl"), 64) > plain
    assert (
        count_parameters(small, "learned", 128)
        == 2 * count_parameters(small, "learned", 64)
        == 128 * 16
    )


def test_behaviour_of_models_with_random_weights() -> None:
    tokens = torch.randint(256, (2, 64), generator=torch.Generator().manual_seed(0))
    rows = {}
    for name in ("nope", "sinusoidal", "rope", "window(rope,8)"):
        model = make_untrained(config(), name)
        torch.manual_seed(0)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        rows[name] = measure_behaviour(model, tokens).iloc[0]
    for row in rows.values():
        assert row["cache_bytes_per_token"] == 2 * 2 * 2 * 8 * 4
        assert row["cache_logit_error"] < 1e-5
        assert row["cache_same_choice"] == 1
    # One causal layer without positions sees a set, two see an order.
    assert (
        rows["nope"]["order_first_layer"] < 1e-5 < 1e-2 < rows["nope"]["order_output"]
    )
    assert rows["rope"]["order_first_layer"] > 1e-2
    assert rows["window(rope,8)"]["moved_scores"] < 1e-5
    assert (
        rows["rope"]["moved_scores"] < 1e-5 < 1e-2 < rows["sinusoidal"]["moved_scores"]
    )


def test_times_stand_beside_the_tables_and_not_in_them(
    found: dict[str, pd.DataFrame], corpus: str, context: Context
) -> None:
    measured = quality.times(config(corpus=corpus), Values(context))["encodings"]
    rows = {row["encoding"]: row for row in make_records(measured)}
    assert list(rows) == FEW.split(",")
    assert rows["learned"]["decode_context_tokens"] == 64
    assert rows["rope"]["decode_context_tokens"] == 256
    for row in rows.values():
        assert row["training_tokens_per_second"] > 0
        assert row["training_time_ratio"] is None or row["training_time_ratio"] > 0
        assert row["decode_time_ratio"] is None or row["decode_time_ratio"] > 0
    assert not any(
        "second" in str(column) for table in found.values() for column in table
    )


def test_a_step_shorter_than_its_window_still_learns_from_one(
    monkeypatch: pytest.MonkeyPatch, corpus: str
) -> None:
    monkeypatch.setattr(cost, "time_in_turns", lambda work, plain: (2.0, 1.0))
    asked = config(
        corpus=corpus, encodings="nope", tokens_per_step=config().train_len // 2
    )
    measured = quality.times(asked, Values(Context()))["encodings"]
    assert measured["training_tokens_per_second"].tolist() == [asked.train_len / 2.0]


@pytest.mark.parametrize(("middle", "ratio"), [(23, 3), (29, None)])
def test_a_ratio_is_told_only_where_the_rounds_agree(
    monkeypatch: pytest.MonkeyPatch, middle: int, ratio: int | None
) -> None:
    clock = iter([0, 3, 10, 11, 20, middle, 30, 31, 40, 43, 50, 51])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    monkeypatch.setattr(cost, "ROUNDS", 3)
    assert cost.time_in_turns(lambda: None, lambda: None) == (3, ratio)


# Sentences and figures


def test_the_answer_names_no_winner_that_is_not_shown_to_be_one(
    found: dict[str, pd.DataFrame],
) -> None:
    judged = found["comparisons"]
    text = quality.answer({**found, "comparisons": judged.assign(verdict="~")})
    quality_of = found["quality"].query("metric == 'text loss'").set_index("encoding")
    far, near = (quality_of.query(f"times_trained_len == {n}")["value"] for n in (4, 1))
    losses = [f"{far['rope']:.3f} [", f"{near['rope']:.3f} ["]
    assert mentions(text, "no encoding", "better than RoPE", *losses)
    assert mentions(text, "none learned to copy")
    # Of two that are shown to be better, the one with the lower loss first.
    two = ["nope", "t5"]
    verdicts = judged["encoding_a"].where(judged["encoding_a"].isin(two), "~")
    text = quality.answer({**found, "comparisons": judged.assign(verdict=verdicts)})
    first, second = (
        f"{ENCODINGS[name].label} at {far[name]:.3f} ["
        for name in far[two].sort_values().index
    )
    assert mentions(text, first, second, "better than RoPE", f"{far['rope']:.3f}")


def copied(**shares: tuple[float, float]) -> pd.DataFrame:
    """Qualities of encodings that copy so much at 1x and at 4x, with every seed."""
    rows = [("copy accuracy", name, times, value, value - 0.1, value + 0.1, value, "ok")
            for name, values in shares.items()
            for times, value in zip((1, 4), values, strict=True)]  # fmt: skip
    columns = [
        "metric",
        "encoding",
        "times_trained_len",
        "value",
        "ci_low",
        "ci_high",
        "worst_seed_value",
        "status",
    ]
    return pd.DataFrame(rows, columns=columns)


def against_rope(table: pd.DataFrame, **verdicts: str) -> pd.DataFrame:
    rows = [("copy accuracy", times, name, "rope", "ok", verdict)
            for name, verdict in verdicts.items() for times in (1, 4)]  # fmt: skip
    columns = [
        "metric",
        "times_trained_len",
        "encoding_a",
        "encoding_b",
        "status",
        "verdict",
    ]
    return pd.DataFrame(rows, columns=columns).reindex(columns=table.columns)


@pytest.mark.parametrize(
    ("shares", "verdicts", "said"),
    [
        (
            {"nope": (0.5, 0.4), "t5": (0.9, 0.3), "rope": (1, 0.1)},
            {"nope": "nope", "t5": "t5"},
            (
                "of 2 that learned to copy with every seed "
                "T5 bias at 30% [20%, 40%] is shown to copy more than RoPE at 10% [0%, 20%]."
            ),
        ),
        (
            {"nope": (0.5, 0.4), "t5": (0.9, 0.3), "rope": (1, 0.1)},
            {"nope": "nope", "t5": "~"},
            (
                "of 2 that learned to copy with every seed "
                "none is shown to copy more than RoPE at 10% [0%, 20%]."
            ),
        ),
        (
            {"t5": (0.5, 0.4), "rope": (1, 0.1)},
            {"t5": "t5"},
            "only RoPE learned to copy with every seed.",
        ),
        (
            {"nope": (0.9, 0.2), "t5": (0.9, 0.3), "rope": (0.5, 0.1)},
            {"nope": "nope", "t5": "t5"},
            (
                "of 2 that learned to copy with every seed the shares copied are T5"
                " bias at 30% [20%, 40%] and none (NoPE) at 20% [10%, 30%]."
            ),
        ),
    ],
)
def test_only_encodings_that_learned_to_copy_can_copy_more(
    found: dict[str, pd.DataFrame],
    shares: dict[str, tuple[float, float]],
    verdicts: dict[str, str],
    said: str,
) -> None:
    table = copied(**shares)
    judged = comparisons.mark_unlearned(
        against_rope(found["comparisons"], **verdicts), table
    )
    text = quality.answer({**found, "quality": table, "comparisons": judged})
    assert mentions(text, "4x", said)


def test_the_only_one_that_learned_is_named_also_where_it_ends_with_its_table(
    found: dict[str, pd.DataFrame],
) -> None:
    table = copied(learned=(0.9, 0.9), rope=(0.5, 0.1)).drop(1)  # learned, at 4x
    judged = against_rope(found["comparisons"], learned="~")
    text = quality.answer({**found, "quality": table, "comparisons": judged})
    label = ENCODINGS["learned"].label
    assert mentions(text, "4x", "only", label, "with every seed")


def test_comparisons_of_copying_by_models_that_did_not_learn_say_so(
    found: dict[str, pd.DataFrame],
) -> None:
    table = copied(nope=(0.5, 0.4), t5=(0.9, 0.3), rope=(1, 0.1))
    judged = against_rope(found["comparisons"], nope="nope", t5="t5")
    marked = comparisons.mark_unlearned(judged, table)
    # Inside the trained length it is a result that one learned less.
    assert marked["status"].tolist() == ["ok", "did not learn", "ok", "ok"]
    alone = judged[["metric", "times_trained_len", "status"]].assign(
        encoding=judged["encoding_a"]
    )
    assert (
        comparisons.mark_unlearned(alone, table)["status"].tolist()
        == marked["status"].tolist()
    )
    # None of these models learned, and text is judged whatever they copy.
    stored = found["comparisons"]
    beyond = (stored["metric"] == "copy accuracy") & (stored["times_trained_len"] > 1)
    assert ((stored["status"] == "did not learn") == beyond).all() and beyond.any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encodings", "comparisons"),
    [
        ("learned", "There is nothing to compare."),
        ("tupe,learned_distance", "comparisons are significant"),
    ],
)
def test_where_all_encodings_end_with_their_tables_the_answer_says_so(
    corpus: str, encodings: str, comparisons: str
) -> None:
    only = quality.tables(config(corpus=corpus, encodings=encodings), Values())
    text = quality.answer(only)
    assert mentions(text, "No encoding", "beyond 1x", "at 1x")
    assert comparisons in text
    assert quality.summary(only)["text 4x"].isna().all()
    with use_style():
        title = draw(only)["copy_heatmap"].get_suptitle()
    assert mentions(title, "256 tokens")


def test_the_summary_has_a_row_per_encoding(found: dict[str, pd.DataFrame]) -> None:
    table = quality.summary(found)
    assert table["encoding"].tolist() == FEW.split(",")
    measured = []
    for name in ("text 1x", "text 4x", "copy 1x", "copy 4x"):
        measured += [name, f"{name} ci_low", f"{name} ci_high"]
    assert table.columns.tolist()[-12:] == measured
    assert table.set_index("encoding")["text 4x"].isna().to_dict()["learned"]


def test_designs_are_compared_by_one_word() -> None:
    asked = config(encodings="alibi,designs")
    assert asked.encodings == ("alibi", *DESIGNS)
    assert {"rope", "layers(rope,nope)"} < set(DESIGNS)


def test_one_task_alone_has_its_own_answer_and_figures(corpus: str) -> None:
    for task, other in (("copy", "text"), ("text", "copy")):
        only = quality.tables(
            config(corpus=corpus, encodings="nope", tasks=task), Values()
        )
        assert quality.answer(only)
        assert not any(
            str(column).startswith(other) for column in quality.summary(only)
        )
        with use_style():
            assert "cost_and_quality" in draw(only)


def test_figures_name_every_encoding(found: dict[str, pd.DataFrame]) -> None:
    with use_style():
        figures = draw(found)
    assert list(figures) == ["cost_and_quality", "loss_by_position", "copy_heatmap"]
    labels = {ENCODINGS[name].label for name in FEW.split(",")}
    rows = [
        tick.get_text().rstrip(" *~")
        for tick in figures["cost_and_quality"].axes[0].get_yticklabels()
    ]
    assert set(rows) == labels
    (legend,) = figures["loss_by_position"].legends
    # A sign behind a name says what the test of this encoding against RoPE decides.
    shown = [text.get_text().rstrip(" *~") for text in legend.get_texts()]
    assert sorted(shown) == sorted(labels)
    cells = [text.get_text() for text in figures["copy_heatmap"].axes[0].texts]
    assert cells.count("–") == 8


def test_with_one_seed_an_interval_is_about_the_documents(
    found: dict[str, pd.DataFrame],
) -> None:
    rows = found["quality"].query("status == 'ok' and metric == 'text loss'")
    assert (rows[["seeds", "n"]].to_numpy() == [1, 3]).all()
    assert (rows["ci_low"] < rows["value"]).all()


# Methods on models of RoPE


@pytest.fixture(scope="module")
def under_methods(corpus: str, context: Context) -> dict[str, pd.DataFrame]:
    asked = config(
        corpus=corpus,
        encodings="nope,rope",
        methods="unscaled,yarn(factor=2),rerope(window=16)",
        seeds="0,1",
    )
    return quality.tables(asked, Values(context))


@pytest.mark.slow
def test_an_unscaled_method_reads_as_the_encoding_that_was_trained(
    under_methods: dict[str, pd.DataFrame],
) -> None:
    for name in ("text_nll", "copy_accuracy", "quality"):
        table = under_methods[name]
        plain = table[table["encoding"] == "rope"].drop(columns="encoding")
        unscaled = table[table["encoding"] == "rope + unscaled"].drop(
            columns="encoding"
        )
        pd.testing.assert_frame_equal(
            plain.reset_index(drop=True), unscaled.reset_index(drop=True)
        )


def test_a_method_changes_the_model_in_the_layout_of_its_weights(
    corpus: str, context: Context
) -> None:
    """Position interpolation by 2 turns position 2p as plain RoPE turns p."""
    from ropelab.experiments.encodings.rows import list_rows
    from ropelab.models.encoding.registry import make_encoding
    from ropelab.models.encoding.rope import Rope

    asked = config(corpus=corpus, encodings="rope", methods="pi(factor=2)")
    [_, scaled] = list_rows(asked)
    subject = quality.make_training(asked, "rope", 0)
    model = subject.model(context)

    mode = scaled.mode(asked)
    [served] = list(mode.passes(model, [128]))
    assert served == [128]
    changed = model.encoding
    assert isinstance(changed, Rope)
    plain = make_encoding("rope", asked.shape())
    assert isinstance(plain, Rope)
    assert changed.pairing == plain.pairing
    heads = torch.randn(1, 2, 8, 8)
    positions = torch.arange(8)
    halved = plain.rotate_heads(heads, positions)
    by_method = changed.rotate_heads(heads, 2 * positions)
    torch.testing.assert_close(by_method, halved)


def test_every_design_is_compared_with_every_method_at_every_multiple(
    under_methods: dict[str, pd.DataFrame],
) -> None:
    table = under_methods["against_methods"]
    assert set(table["encoding_a"]) == {"nope"}
    assert set(table["encoding_b"]) == {
        "rope + unscaled", "rope + yarn ×2", "rope + rerope(window=16)",
    }  # fmt: skip
    # Two metrics at 1x, 2x and 4x.
    assert len(table) == 3 * 2 * 3


def test_methods_cost_what_they_add_when_tokens_are_decoded(
    under_methods: dict[str, pd.DataFrame],
) -> None:
    cost = under_methods["cost"].set_index("encoding")
    rope = cost.loc["rope"]
    rerope = cost.loc["rope + rerope(window=16)"]
    assert (cost["parameters"] == 0).all()
    assert rerope["train_flops_ratio"] == rope["train_flops_ratio"]
    assert rerope["decode_flops_ratio"] > rope["decode_flops_ratio"]
    assert cost.loc["rope + yarn ×2", "label"] == f"{rope['label']} + yarn ×2"


def test_a_model_that_learned_counts_as_one_under_every_method() -> None:
    rows = []
    for name, worst in (("rope", 0.9), ("rope + yarn ×4", 0.1), ("nope", 0.1)):
        rows.append(
            {
                "metric": comparisons.COPY,
                "encoding": name,
                "times_trained_len": 1,
                "worst_seed_value": worst,
            }
        )
    assert comparisons.find_learners(pd.DataFrame(rows)) == {"rope", "rope + yarn ×4"}


def test_the_answer_leads_with_the_best_design_beside_the_best_method(
    under_methods: dict[str, pd.DataFrame],
) -> None:
    first, *_ = quality.answer(under_methods).split(". ")
    assert mentions(first, "4x", "NoPE", "RoPE +")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encodings": "nope", "methods": "yarn"}, "rope"),
        ({"encodings": "rope", "methods": "yaarn"}, "did you mean 'yarn'"),
        ({"encodings": "rope", "methods": "longrope"}, "longrope"),
    ],
)
def test_methods_that_cannot_be_asked_are_refused(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        config(**changes)
    assert "\n" not in str(error.value)


def test_figures_show_methods_beside_encodings(
    under_methods: dict[str, pd.DataFrame],
) -> None:
    with use_style():
        figures = draw(under_methods)
    assert set(figures) == {
        "cost_and_quality", "loss_by_position", "copy_heatmap", "designs_and_methods",
        "designs_and_text",
    }  # fmt: skip


def plant_designs(verdict: str) -> dict[str, pd.DataFrame]:
    """Tables of a run with two designs and two methods, the first of each the best."""
    copies = {
        "rope": (0.95, 0.1),
        "rope(fast=0.375)": (0.95, 0.8),
        "layers(rope,nope)": (0.9, 0.5),
        "rope + ntk ×4": (0.95, 0.2),
        "rope + yarn ×4": (0.95, 0.6),
    }
    quality_rows = []
    for name, values in copies.items():
        for times, value in zip((1, 4), values, strict=True):
            quality_rows.append(
                (comparisons.COPY, name, times, value, value - 0.05, value)
            )
    columns = ["metric", "encoding", "times_trained_len", "value", "ci_low", "ci_high"]
    compared = []
    for design in ("layers(rope,nope)", "rope(fast=0.375)"):
        for method in ("rope + ntk ×4", "rope + yarn ×4"):
            compared.append((comparisons.COPY, 4, design, method, verdict, "ok"))
    names = ["metric", "times_trained_len", "encoding_a", "encoding_b", "verdict"]
    cost = pd.DataFrame({"encoding": list(copies), "label": list(copies)})
    return {
        "quality": pd.DataFrame(quality_rows, columns=columns).assign(seeds=5),
        "against_methods": pd.DataFrame(compared, columns=[*names, "status"]),
        "cost": cost,
    }


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (
            "rope(fast=0.375)",
            "At 4x the trained length designs copy up to 80%, methods 60%",
        ),
        ("~", "At 4x the best design and method are not shown to differ in copying"),
    ],
)
def test_designs_are_drawn_above_methods_the_best_of_each_first(
    verdict: str, said: str
) -> None:
    tables = plant_designs(verdict)
    with use_style():
        figure = draw_against_methods(tables, tables["cost"], comparisons.COPY)
    (ax,) = figure.axes
    rows = [tick.get_text() for tick in ax.get_yticklabels()]
    assert rows == [
        "rope(fast=0.375)", "layers(rope,nope)", "rope + yarn ×4", "rope + ntk ×4",
    ]  # fmt: skip
    assert said in figure.get_suptitle()
    drawn = [np.asarray(line.get_xdata()) for line in ax.lines]
    values = [x.tolist() for x in drawn if len(x) == len(rows)]
    assert values == [[0.95, 0.9, 0.95, 0.95], [0.8, 0.5, 0.6, 0.2]]
