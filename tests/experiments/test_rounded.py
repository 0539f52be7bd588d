"""Casts and stored keys in `evaluate` and `extrapolate`: rows, pairing, costs, words,
refusals.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ropelab.experiments.evaluate import EvaluateConfig
from ropelab.experiments.evaluate import results as evaluate
from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.experiments.extrapolate import results as extrapolate
from ropelab.models.tasks.cells import Evaluation
from ropelab.models.tasks.rounded import COLUMNS, describe_casts
from ropelab.models.tasks.tables import NLL
from ropelab.runs.cell import Context, hash_cell
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from ropelab.runs.thresholds import (
    LOST,
    LOST_BY_FREQUENCIES,
    LOST_FAR,
    MEASURED,
    NOTICED,
    UNNOTICED,
)
from ropelab.show.figures import rounded as cost_of_casts
from ropelab.show.figures.extrapolate import draw
from tests.models.released.tiny import reader_of_bytes
from tests.models.tasks.running import made
from tests.texts import mentions

ROUNDED = {
    "casts": "position:float8_e4m3fn,float64",
    "cache": "fp8_e4m3,int4(channel, before)",
}
REFERENCE = Path(__file__).parents[2] / "results" / "reference"
NAMES = ["position=float8_e4m3fn", "float64", "fp8_e4m3", "int4(channel, before)"]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return reader_of_bytes(tmp_path_factory.mktemp("llama"), bos=True, head_dim=32)


@pytest.fixture(scope="module")
def evaluated(model, corpora):
    def configured(**changes: object) -> EvaluateConfig:
        values = {"model": model, "documents": 3, "device": "cpu", "tasks": "text"}
        return build(EvaluateConfig, {**values, "corpus": corpora[0], **changes})

    return configured


@pytest.fixture(scope="module")
def extrapolated(corpora, tiny_preset):
    def configured(**changes: object) -> ExtrapolateConfig:
        values: dict[str, object] = {"train_len": 64, "test_len": 128, "head_dim": 32}
        values |= {
            "documents": 3,
            "sequences": 2,
            "device": "cpu",
            "tasks": "text,copy",
        }
        return build(ExtrapolateConfig, {**values, "corpus": corpora[0], **changes})

    return configured


@pytest.fixture(scope="module")
def tables(evaluated) -> dict[str, pd.DataFrame]:
    return made(evaluate, evaluated(**ROUNDED), Context())


@pytest.mark.slow
def test_a_plan_that_rounds_nothing_gives_the_same_numbers_bit_for_bit(tables):
    wide = tables["last_window"].pivot(
        index="context_tokens", columns="method", values=NLL
    )
    assert (wide["unmodified + float64"] == wide["unmodified"]).all()
    for name in (NAMES[0], NAMES[2], NAMES[3]):
        assert (wide[f"unmodified + {name}"] != wide["unmodified"]).all()


def test_cells_without_a_cast_and_configs_without_one_are_what_they_were(
    evaluated, extrapolated
):
    for body, config in ((evaluate, evaluated), (extrapolate, extrapolated)):
        same = {"methods": "unscaled,yarn"} | (
            {"context": 128} if body is evaluate else {}
        )
        plain, rounded = config(**same), config(**same, **ROUNDED)
        assert not {"casts", "cache", "offsets"} & set(plain.model_dump())
        names = [
            {hash_cell(cell) for cell in body.cells(each)} for each in (plain, rounded)
        ]
        assert names[0] < names[1]
    # Each offset is a cell of its own.
    one, two = (
        config(methods="yarn", casts="position:bfloat16", offsets=at)
        for at in ("0", "0,9")
    )
    counts = [
        len({hash_cell(cell) for cell in extrapolate.cells(each)})
        for each in (one, two)
    ]
    assert counts[1] == counts[0] + 2


def test_every_cast_is_compared_with_its_own_row_alone(tables):
    pairs = tables["comparisons"][["method_a", "method_b"]].drop_duplicates()
    assert {tuple(pair) for pair in pairs.to_numpy().tolist()} == {
        ("unmodified", f"unmodified + {name}") for name in NAMES
    }
    casts = tables["casts"]
    assert list(casts.columns) == COLUMNS
    assert casts["rounding"].drop_duplicates().tolist() == NAMES
    means = tables["last_window"].set_index(["context_tokens", "method"])[NLL]
    for row in casts[casts["metric"] == "nll_last_window"].to_dict("records"):
        length = row["context_tokens"]
        expected = (
            means[length, f"unmodified + {row['rounding']}"]
            - means[length, "unmodified"]
        )
        assert row["cost"] == pytest.approx(expected, abs=1e-12)
    exact = casts[casts["rounding"] == "float64"]
    assert (exact["score_error"] < 1e-12).all()
    assert (exact["cost"] == 0).all()
    assert (exact["verdict"] == "~").all()
    # Its four bits hold all positions up to 16.
    coarse = casts[(casts["rounding"] == NAMES[0]) & (casts["context_tokens"] > 16)]
    assert (coarse["score_error"] > 0.05).all()


def test_a_context_inside_the_trained_length_is_enough_for_casts(evaluated, tmp_path):
    assert evaluated(casts="table:bfloat16").context == 64
    longer = reader_of_bytes(tmp_path, head_dim=32, max_position_embeddings=256)
    inside = evaluated(model=longer, context=64, casts="table:bfloat16")
    assert (inside.methods, inside.train_len, inside.grid_len) == ((), 256, 64)
    tables = made(evaluate, inside, Context())
    assert set(tables["last_window"]["context_tokens"]) == {16, 32, 64}
    assert set(draw(tables)) >= {"cost_of_casts"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"casts": "angle:bfloat17"},
            "unknown format 'bfloat17'; did you mean 'bfloat16'",
        ),
        ({"casts": "angles"}, "unknown preset 'angles'"),
        ({"cache": "q5"}, "unknown format of keys 'q5'"),
        ({"cache": "int4(block)"}, r"unknown word in int4\(block\)"),
    ],
)
def test_unknown_casts_and_formats_are_refused_in_one_line(
    changes, message, evaluated, extrapolated
):
    for config in (evaluated, extrapolated):
        with pytest.raises(InputError, match=message):
            config(**changes)


def test_blocks_that_heads_do_not_hold_are_refused(corpora, tmp_path):
    narrow = reader_of_bytes(tmp_path, bos=True)
    values = {"model": narrow, "corpus": corpora[0], "documents": 3, "tasks": "text"}
    config = build(EvaluateConfig, {**values, "cache": "q4_0", "device": "cpu"})
    with pytest.raises(
        InputError, match="q4_0 has blocks of 32 features, heads have 16"
    ):
        made(evaluate, config, Context())


def test_they_are_refused_before_a_model_is_trained(extrapolated):
    with pytest.raises(
        InputError, match="q4_0 has blocks of 32 features, heads have 16"
    ):
        extrapolated(cache="int8,q4_0", head_dim=16)


@pytest.mark.slow
def test_a_model_trained_here_is_evaluated_under_casts_by_every_method_on_frequencies(
    extrapolated,
):
    config = extrapolated(methods="unscaled,yarn,log_n", **ROUNDED)
    tables = made(extrapolate, config, Context())
    casts = tables["casts"]
    assert set(casts["method"]) == {"unscaled", "yarn"}
    assert set(casts["rounding"]) == {*NAMES}
    assert {"nll_last_window", "copy_accuracy"} <= set(casts["metric"])
    # A cast is not the best method, whatever it does.
    said = extrapolate.answer(tables)
    assert not any(f"{name} + " in said for name in ("unscaled", "yarn ×2"))
    assert {"cost_of_casts", "copy_cost_of_casts"} <= set(draw(tables))
    exact = casts[(casts["rounding"] == "float64")]
    assert (exact["cost"] == 0).all()


def test_nothing_that_a_model_trained_here_gives_depends_on_where_exact_text_begins(
    extrapolated,
):
    config = extrapolated(
        methods="unscaled", casts="inv_freq:bfloat16", offsets="0,4096", tasks="text"
    )
    tables = made(extrapolate, config, Context())
    rows = tables["last_window"].pivot(
        index="context_tokens", columns="method", values=NLL
    )
    near, far = (
        rows[f"unscaled + inv_freq=bfloat16{end}"] for end in ("", " from 4096")
    )
    np.testing.assert_allclose(near, far, rtol=1e-4)


def test_an_answer_names_what_costs_and_from_which_error():
    rows = [
        (
            "unmodified",
            1.0,
            name,
            kind,
            "nll_last_window",
            2048,
            2048,
            0.1,
            error,
            cost,
            0.9 * cost,
            1.1 * cost,
            1,
            4,
            v,
        )
        for name, kind, error, cost, v in (
            ("table=bfloat16", "rotation", 0.002, 0.0, "~"),
            ("position=bfloat16", "rotation", 0.29, 0.412, "costs"),
            ("q4_0", "keys", 0.1, 0.03, "costs"),
            ("int4", "keys", 0.09, 0.02, "costs"),
            ("fp8_e5m2", "keys", 0.05, 0.01, "costs"),
            ("fp8_e4m3", "keys", 0.03, 0.004, "costs"),
        )
    ]
    (said,) = describe_casts(pd.DataFrame(rows, columns=COLUMNS), 2048)
    assert mentions(said, "2048 tokens", "5 of 6 roundings cost", "last 512 tokens")
    # A range of errors would say that a cost begins above it, which need not be so.
    assert "smallest score spread that costs has fp8_e4m3 (score spread 0.03)" in said
    free = "largest score spread without a shown cost has table=bfloat16"
    assert (
        f"{free} (score spread 0.002), 0.000 [0.000, 0.000] on only 4 documents" in said
    )
    assert mentions(said, "position=bfloat16 0.41 [0.37, 0.45]", "2 more cost less")
    assert mentions(said, "q4_0 0.030 [0.027, 0.033]", "int4 0.020 [0.018, 0.022]")
    errors = "spread 0.29)", "spread 0.1)", "spread 0.09)"
    assert mentions(said, *errors)


def test_the_thresholds_of_spreads_are_those_of_the_committed_run():
    (folder,) = REFERENCE.glob("extrapolate/extrapolate-casts-????????")
    casts = pd.read_csv(folder / "tables" / "casts.csv")
    text = casts[(casts["metric"] == "nll_last_window") & casts["score_error"].notna()]
    costs = text["verdict"] == "costs"
    small, large = text["score_error"] <= UNNOTICED, text["score_error"] >= NOTICED
    assert small.sum() > 3 and large.sum() > 3
    assert not costs[small].any() and costs[large].all()
    # Figures say that of two roundings between them one costs something.
    assert sorted(costs[~small & ~large]) == [False, True]
    # What `precision` says of the mean of the models that were measured.
    far = []
    for folder in REFERENCE.glob("[!.]*/*-casts-*"):
        casts = pd.read_csv(folder / "tables" / "casts.csv")
        is_text = casts["metric"].str.startswith("nll")
        free = casts[is_text & (casts["score_error"] <= UNNOTICED)]
        near = free[free["context_tokens"] <= MEASURED]
        by_frequencies = near["rounding"].str.contains("inv_freq")
        assert (near["cost"][by_frequencies] <= LOST_BY_FREQUENCIES).all()
        assert (near["cost"][~by_frequencies] <= LOST).all()
        is_last = free["metric"] == "nll_last_window"
        far.append(free[is_last & (free["context_tokens"] > MEASURED)])
    (beyond,) = pd.concat(far).round(2).to_dict("records")
    assert (beyond["rounding"], beyond["method"]) == ("inv_freq=bfloat16", "yarn")
    assert (beyond["context_tokens"], beyond["cost"]) == (32768, LOST_FAR)


@pytest.mark.parametrize(
    ("costly", "title"),
    [
        ((), "At 2048 tokens no rounding has a cost that can be distinguished"),
        (
            (0.3,),
            "At 2048 tokens no cost is shown up to a score spread of 0.1;\n"
            "every rounding from 0.3 on costs",
        ),
        ((0.0, 0.3), "1 of 3 roundings costs up to 0.2 nats per byte, 1 up to 0.01"),
        (
            (0.0, 0.1, 0.3),
            "1 of 3 roundings costs up to 0.2 nats per byte, 2 up to 0.02",
        ),
        (
            (0.1, 0.3),
            "At 2048 tokens no cost is shown up to a score spread of 0;\n"
            "every rounding from 0.1 on costs",
        ),
    ],
    ids=["nothing", "a threshold", "no threshold", "below all that is drawn", "most"],
)
def test_the_title_names_a_threshold_only_where_there_is_one(costly, title):
    about = ("unmodified", 1.0, "q8_0", "keys", "nll_last_window", 2048, 2048, 0.0)
    rows = [
        (
            *about,
            error,
            cost,
            cost - 0.01,
            cost + 0.01,
            1,
            20,
            "costs" if error in costly else "~",
        )
        for error, cost in ((0.0, 0.01), (0.1, 0.02), (0.3, 0.2))
    ]
    figure = cost_of_casts.draw(pd.DataFrame(rows, columns=COLUMNS))["cost_of_casts"]
    assert figure.get_suptitle() == title


def test_roundings_between_the_free_and_the_costly_are_left_out_of_the_title() -> None:
    about = ("unmodified", 1.0, "q8_0", "keys", "nll_last_window", 2048, 2048, 0.0)
    verdicts = {0.005: "~", 0.027: "costs", 0.029: "~", 0.05: "costs", 0.3: "costs"}
    rows = [
        (*about, error, error, error / 2, 2 * error, 1, 20, verdict)
        for error, verdict in verdicts.items()
    ]
    figure = cost_of_casts.draw(pd.DataFrame(rows, columns=COLUMNS))["cost_of_casts"]
    assert figure.get_suptitle() == (
        "At 2048 tokens no cost is shown up to a score spread of 0.005;\n"
        "every rounding from 0.05 on costs"
    )
    (ax,) = figure.axes
    edges = [line for line in ax.lines if line.get_linewidth() == 1]
    heights = [np.asarray(edge.get_ydata(), dtype=float).tolist() for edge in edges]
    assert [2.5, 2.5] in heights


def test_where_every_rounding_costs_something_no_threshold_is_named() -> None:
    about = ("unmodified", 1.0, "q8_0", "keys", "nll_last_window", 2048, 2048, 0.0)
    rows = [
        (*about, error, cost, cost / 2, cost * 2, 1, 20, "costs")
        for error, cost in ((0.1, 0.02), (0.3, 0.2))
    ]
    figure = cost_of_casts.draw(pd.DataFrame(rows, columns=COLUMNS))["cost_of_casts"]
    title = "1 of 2 roundings costs up to 0.2 nats per byte, 1 up to 0.02"
    assert figure.get_suptitle() == title


def test_each_rounding_has_a_row_with_its_name_and_error_and_is_hollow_without_a_cost():
    about = ("unscaled", 1.0)
    rest = ("nll_last_window", 2048, 2048, 0.0)
    roundings = (
        ("angle=bfloat16", "rotation", 0.35, 1.9, "costs"),
        ("q8_0", "keys", 0.0052, 0.0001, "~"),
        ("inv_freq=bfloat16", "rotation", 1e-16, 0.0, "~"),
    )
    rows = []
    for name, rounds, error, cost, verdict in roundings:
        numbers = (error, cost, cost - 0.01, cost + 0.01, 1, 20)
        rows.append((*about, name, rounds, *rest, *numbers, verdict))
    table = pd.DataFrame(rows, columns=COLUMNS)
    (ax,) = cost_of_casts.draw(table)["cost_of_casts"].axes

    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == ["inv_freq=bfloat16 (0)", "q8_0 (0.0052)", "angle=bfloat16 (0.35)"]
    places = {}
    for line in ax.get_lines():
        if line.get_marker() not in ("None", ""):
            is_hollow = line.get_markerfacecolor() == "white"
            costs = np.asarray(line.get_xdata(), dtype=float)
            rows_of_line = np.asarray(line.get_ydata(), dtype=float)
            for row, cost in zip(rows_of_line, costs, strict=True):
                places[row] = (cost, is_hollow)
    assert places == {0: (0.0, True), 1: (0.0001, True), 2: (1.9, False)}


def test_values_of_moved_keys_of_released_models_are_computed_anew(
    evaluated, extrapolated
):
    caches = "int8,int8(moved=3x7)"
    released = {}
    for cell in evaluate.cells(evaluated(cache=caches)):
        keys = cell.mode.key.get("rounding", {}).get("keys")
        released[keys] = cell.version - cell.task.version
    assert released == {None: 0, "int8": 0, "int8(moved=3x7)": 1}

    for own in extrapolate.cells(extrapolated(cache=caches)):
        if isinstance(own, Evaluation):
            assert own.version == own.task.version


def test_two_casts_are_drawn_by_place():
    """A line per cast, the farthest first; no line where predictions are the same."""
    table = pd.DataFrame(
        {
            "method": "unmodified",
            "factor": 1.0,
            "cast": ["angle=bfloat16"] * 2 + ["table=bfloat16"] * 2 + ["float32"] * 2,
            "against": "float32",
            "bucket_end_tokens": [128, 256] * 3,
            "kl_nats_per_token": [1e-3, 4e-3, 1e-2, 2e-2, 0.0, 0.0],
            "kl_ci_low": [0.0, 2e-3, 8e-3, 1e-2, 0.0, 0.0],
            "kl_ci_high": [2e-3, 6e-3, 2e-2, 3e-2, 0.0, 0.0],
        }
    )
    figure = cost_of_casts.draw_divergence(table)["divergence_by_place"]
    first, second = figure.axes[0].get_lines()
    assert [first.get_label(), second.get_label()] == [
        "table=bfloat16",
        "angle=bfloat16",
    ]
    np.testing.assert_array_equal(first.get_ydata(), [1e-2, 2e-2])
    np.testing.assert_array_equal(first.get_xdata(), [128, 256])
    assert cost_of_casts.draw_divergence(table[table["cast"] == "float32"]) == {}


def test_where_every_rounding_costs_the_answer_says_so_first():
    (folder,) = REFERENCE.glob("evaluate/smollm2-keys-????????")
    casts = pd.read_csv(folder / "tables" / "casts.csv")
    (said,) = describe_casts(casts, 8192)
    assert "at 2048 tokens: all 4 roundings cost, in nats per byte" in said
    assert "shown cost" not in said


def test_a_cost_at_an_error_of_zero_has_its_reason():
    (folder,) = REFERENCE.glob("evaluate/smollm2-casts-????????")
    casts = pd.read_csv(folder / "tables" / "casts.csv")
    said, *_ = describe_casts(casts, 8192)
    assert "inv_freq=bfloat16 (score spread 0), which changes angles alike" in said
