"""The frequencies experiment: schemes, tables, bands, sentences, figures and
refusals.
"""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ropelab.experiments.spectrum import SCHEMES, SpectrumConfig
from ropelab.experiments.spectrum import schemes as body
from ropelab.experiments.spectrum.schemes import COPY, MOST_RECENT, TEXT, make_encoding
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm.trained import Training
from ropelab.runs.cell import Values
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from ropelab.runs.store import make_records
from ropelab.show.figures.spectrum import draw, name_scheme
from ropelab.show.figures.style import use_style
from tests.small import SMALL
from tests.texts import mentions

SMOKE = {**SMALL, "test_len": 128, "draws": 20, "seeds": "0,1"}
FEW = (
    "unscaled,one(period=1e6),spaced(n=2),spaced(n=4,"
    " uniform=true),without(band=fast),p_rope(p=0)"
)
LABELS = [
    "unscaled", "one(period=1e+06)", "spaced(n=2)", "spaced(n=4, uniform=true)",
    "without(band=fast)", "p_rope(p=0)",
]  # fmt: skip


def config(**changes: object) -> SpectrumConfig:
    return build(SpectrumConfig, {**SMOKE, "schemes": FEW, **changes})


@pytest.fixture(scope="module")
def found(corpus: str) -> dict[str, pd.DataFrame]:
    return body.tables(config(corpus=corpus), Values())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schemes": ""}, "schemes must have at least one value"),
        ({"schemes": "onee(period=3)"}, "did you mean 'one'"),
        ({"schemes": "one"}, "one needs period="),
        ({"schemes": "spaced(n=5)"}, "at most 4, the number of pairs, not 5"),
        ({"schemes": "rerope"}, "not a change of frequencies alone"),
        ({"bands": "fats"}, "did you mean 'fast'"),
        ({"tasks": "cpy"}, "did you mean 'copy'"),
        ({"tasks": ""}, "tasks must have at least one value"),
        ({"head_dim": 4}, "at least 6"),
        ({"train_len": 32}, "at least 64"),
        ({"corpus": "/proc/nowhere"}, "no corpus"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message) as error:
        config(**changes).inputs()
    assert "\n" not in str(error.value)


def test_the_schemes_of_the_reference_can_be_read() -> None:
    parsed = build(SpectrumConfig, {}).parsed_schemes()
    assert len(parsed) == len(SCHEMES)


# What is trained and asked


def test_a_model_is_trained_with_its_scheme_and_the_first_is_read_without_each_band(
    corpus: str,
) -> None:
    wanted = config(corpus=corpus, tasks="copy", seeds="0")
    cells = body.cells(wanted)
    assert [dict(cell.labels)["scheme"] for cell in cells] == [
        *LABELS,
        *["unscaled"] * 3,
    ]
    for cell, label in zip(cells, LABELS, strict=False):
        plan = wanted.parsed_schemes()[label].plan(wanted.geometry(), 64)
        assert isinstance(cell.subject, Training)
        trained = cell.subject.encoding()
        assert isinstance(trained, Rope)
        assert np.array_equal(trained.plan.inv_freq, plan.inv_freq)
        assert not trained.fused
    first, bands = cells[0], cells[len(LABELS) :]
    assert [dict(cell.labels)["removed"] for cell in bands] == [
        "fast",
        "middle",
        "slow",
    ]
    assert all(cell.subject.key == first.subject.key for cell in bands)
    assert len({str(cell.mode.key) for cell in (first, *bands)}) == 4


def test_both_learning_rates_are_scaled_and_configs_without_a_scale_are_what_they_were(
    corpus: str,
) -> None:
    plain, doubled = (
        config(corpus=corpus, tasks="copy", lr_scale=scale) for scale in (1, 2)
    )
    of_plain, of_doubled = (body.cells(each)[0].subject for each in (plain, doubled))
    assert isinstance(of_plain, Training)
    assert isinstance(of_doubled, Training)
    assert of_plain.recipe == replace(
        of_doubled.recipe, matrix_rate=0.02, other_rate=6e-3
    )
    assert (of_doubled.recipe.matrix_rate, of_doubled.recipe.other_rate) == (
        0.04,
        0.012,
    )
    assert of_plain.key != of_doubled.key
    assert "lr_scale" not in plain.model_dump()
    assert doubled.model_dump()["lr_scale"] == 2


def test_removing_a_band_takes_its_pairs_and_no_others(corpus: str) -> None:
    wanted = config(corpus=corpus, tasks="copy", seeds="0")
    inv_freq = wanted.geometry().inv_freq
    model = Model()
    gone = []
    for cell in body.cells(wanted)[len(LABELS) :]:
        cell.mode.prepare(model, [64])
        changed = model.encoding.plan.inv_freq != inv_freq
        assert (model.encoding.plan.inv_freq[changed] == 0).all()
        gone.append(changed)
    assert np.array_equal(sum(np.array(gone).astype(int)), np.ones(4))


class Model:
    """What a mode changes."""

    encoding: Any = None


def test_cells_of_one_seed_come_together(corpus: str) -> None:
    seeds = [
        str(dict(cell.labels)["seed"]) for cell in body.cells(config(corpus=corpus))
    ]
    assert seeds == sorted(seeds)


def test_the_encoding_does_not_depend_on_the_order_of_schemes() -> None:
    one = config(schemes="one(period=64)")
    scheme = one.parsed_schemes()["one(period=64)"]
    encoding = make_encoding(scheme, one.geometry())
    assert isinstance(encoding, Rope)
    assert (encoding.plan.inv_freq == 2 * np.pi / 64).all()


# Tables


def test_every_scheme_has_a_row_at_every_place(found: dict[str, pd.DataFrame]) -> None:
    assert set(found) == {
        "schemes",
        "representable",
        "learned",
        "comparisons",
        "removed",
    }
    learned = found["learned"]
    kept = learned[learned["removed"] == "none"]
    places = {TEXT: 4, COPY: 4 + 6, MOST_RECENT: 4 + 6}
    for metric, count in places.items():
        rows = kept[kept["metric"] == metric]
        assert rows.groupby("scheme").size().to_dict() == dict.fromkeys(LABELS, count)
    assert (learned["seeds"] == 2).all()
    assert set(learned.loc[learned["metric"] == TEXT, "n"]) == {3}
    assert learned.loc[learned["metric"] == TEXT, "distance_tokens"].isna().all()
    assert len(found["comparisons"]) == (len(LABELS) - 1) * sum(places.values())
    assert len(found["removed"]) == 3 * sum(places.values())
    json.dumps(
        {name: make_records(table) for name, table in found.items()}, allow_nan=False
    )


def test_arithmetic_and_training_share_no_table(found: dict[str, pd.DataFrame]) -> None:
    for name in ("schemes", "representable"):
        assert "seeds" not in found[name]
    for name in ("learned", "comparisons", "removed"):
        assert not {"score_step", "frequencies"} & set(found[name])


def test_the_schemes_are_counted(found: dict[str, pd.DataFrame]) -> None:
    table = found["schemes"].set_index("scheme")
    assert table["frequencies"].tolist() == [4, 1, 2, 4, 3, 0]
    assert table["rotating_pairs"].tolist() == [4, 4, 4, 4, 3, 0]
    assert table["period_tokens"].tolist()[1] == 1_000_000
    assert table["longest_period_tokens"].isna().tolist() == [False] * 5 + [True]


@pytest.mark.slow
def test_the_same_config_gives_the_same_tables(
    found: dict[str, pd.DataFrame], corpus: str
) -> None:
    again = body.tables(config(corpus=corpus), Values())
    for name, table in found.items():
        pd.testing.assert_frame_equal(again[name], table, check_exact=True)


def test_untrained_models_are_alike(found: dict[str, pd.DataFrame]) -> None:
    same = found["removed"]
    assert (same["verdict"] == "~").all()


# Sentences and figures


def test_the_answer_keeps_the_two_kinds_of_evidence_apart(
    found: dict[str, pd.DataFrame],
) -> None:
    text = body.answer(found)
    arithmetic, trained = text.index("Arithmetic: "), text.index("Trained: ")
    assert trained < text.index("inside the trained length") < arithmetic
    assert arithmetic < text.index("score of random vectors changes")
    assert text.startswith("Trained: ")
    assert text.count(". ") == 2


def learned(values: dict[tuple[str, str], tuple[float, float]]) -> pd.DataFrame:
    """A table of copying from 8 and from 48 back, made up."""
    rows = [
        (
            COPY,
            scheme,
            removed,
            distance,
            64,
            2,
            4,
            value,
            value - 0.01,
            value + 0.01,
            64,
        )
        for (scheme, removed), both in values.items()
        for distance, value in zip((8, 48), both, strict=True)
    ]
    columns = [
        "metric",
        "scheme",
        "removed",
        "distance_tokens",
        "context_tokens",
        "seeds",
        "n",
    ]
    return pd.DataFrame(
        rows, columns=[*columns, "value", "ci_low", "ci_high", "train_len_tokens"]
    )


def test_the_answer_names_the_best_scheme_of_each_number_of_frequencies(
    found: dict[str, pd.DataFrame],
) -> None:
    made = learned(
        {
            ("unscaled", "none"): (0.9, 0.7),
            ("spaced(n=4, uniform=true)", "none"): (1, 1),
        }
    )
    trained = body.answer({**found, "learned": made}).split("Trained: ")[1]
    trained = trained.split("Arithmetic: ")[0]
    # From half of the trained length back, or the distance below it that was measured.
    assert "at 8 tokens back" in trained
    assert "100% [99%, 101%] with 4 frequencies (spaced(n=4, uniform=true))" in trained
    assert "unscaled" not in trained


def test_the_summary_has_a_row_per_scheme_and_band(
    found: dict[str, pd.DataFrame],
) -> None:
    table = body.summary(found)
    assert table["scheme"].tolist() == [*LABELS, *["unscaled"] * 3]
    measured = [
        "copy near",
        "copy far",
        "copy in 128",
        "most_recent",
        "text",
        "text at 128",
    ]
    columns = ["scheme", "removed", "frequencies"]
    for name in measured:
        columns += [name, f"{name} ci_low", f"{name} ci_high"]
    assert table.columns.tolist() == columns
    assert table.notna().all(axis=None)


def test_one_task_alone_has_its_own_answer(corpus: str) -> None:
    for task in ("copy", "text", "most_recent"):
        wanted = config(corpus=corpus, tasks=task, schemes="unscaled", seeds="0")
        only = body.tables(wanted, Values())
        assert body.answer(only)
        with use_style():
            assert bool(draw(only)) == (task == "copy")


def test_the_answer_names_the_largest_number_of_frequencies() -> None:
    """Sixteen are less than twice ten, and still the scheme that is asked about."""
    names = ["without(band=middle)", "without(band=slow)", "unscaled"]
    numbers = [10, 11, 16]
    schemes = pd.DataFrame(
        {
            "scheme": names,
            "frequencies": numbers,
            "rotating_pairs": numbers,
            "pairs": 16,
            "longest_period_tokens": 1000.0,
        }
    )
    learned = pd.DataFrame(
        {
            "scheme": names,
            "metric": COPY,
            "removed": body.NOTHING_REMOVED,
            "context_tokens": 64,
            "train_len_tokens": 64,
            "distance_tokens": 32,
            "value": [0.76, 0.7, 0.42],
            "ci_low": [0.74, 0.68, 0.4],
            "ci_high": [0.78, 0.72, 0.44],
        }
    )
    said = body._describe_copying({"schemes": schemes, "learned": learned})
    many = "76% [74%, 78%] with 10 frequencies (without(band=middle))"
    last = "42% [40%, 44%] with 16 frequencies (unscaled)"
    assert f"{many} and {last}; 1 number between is in the table." in said
    assert "without(band=slow)" not in said
    # The best scheme is named, though its number is less than doubled.
    better = learned.assign(value=[0.76, 0.8, 0.42])
    said = body._describe_copying({"schemes": schemes, "learned": better})
    assert "80% [68%, 72%] with 11 frequencies (without(band=slow))" in said


def test_figures_name_every_scheme_but_those_without_a_band(
    found: dict[str, pd.DataFrame],
) -> None:
    with use_style():
        figures = draw(found)
    assert list(figures) == ["one_or_many", "representable", "bands"]
    rows = [
        tick.get_text() for tick in figures["one_or_many"].axes[0].get_yticklabels()
    ]
    assert rows == [
        "none",
        "1, period 1,000,000",
        "2, equal ratios",
        "4, equal steps",
        "4, RoPE",
    ]
    assert len(figures["one_or_many"].axes) == 1
    lines = figures["representable"].axes[0].texts
    named = " ".join(text.get_text() for text in lines)
    assert mentions(named, "lost in\nfloat32", "lost in\nbfloat16")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            (0.95, 0.9),
            "At 48 back 4 frequencies of RoPE recall 90%, the best single one 5%;\n"
            "more at 8 back, too (*)",
        ),
        ((0.1, 0.1), "by the number of frequencies"),
    ],
)
def test_the_title_is_a_finding_only_where_it_is_one(
    found: dict[str, pd.DataFrame], values: tuple[float, float], said: str
) -> None:
    made = learned(
        {("unscaled", "none"): values, ("one(period=1e+06)", "none"): (0.1, 0.05)}
    )
    with use_style():
        figure = draw({**found, "learned": made})["one_or_many"]
    assert said in figure.axes[0].get_title(loc="left")


def test_schemes_with_pairs_at_rest_stand_above_those_that_rotate_all(
    found: dict[str, pd.DataFrame],
) -> None:
    schemes = found["schemes"]
    is_single = schemes["frequencies"] == 1
    rotating = schemes["rotating_pairs"].mask(is_single, 2)
    with use_style():
        figures = draw({**found, "schemes": schemes.assign(rotating_pairs=rotating)})
    (ax,) = figures["one_or_many"].axes
    notes = [text.get_text() for text in ax.texts]
    assert notes[-1] == "all pairs rotate"
    assert notes[0].endswith(" pairs rotate")


@pytest.mark.parametrize(
    ("slow", "said"),
    [
        ((0.9, 0.1), "the slow third costs most"),
        ((0.9, 0.9), "Without the fast third recall at 8 back falls from 95% to 10%"),
    ],
)
def test_the_title_of_the_bands_names_what_is_missed(
    found: dict[str, pd.DataFrame], slow: tuple[float, float], said: str
) -> None:
    made = learned(
        {
            ("unscaled", "none"): (0.95, 0.95),
            ("unscaled", "fast"): (0.1, 0.6),
            ("unscaled", "middle"): (0.9, 0.9),
            ("unscaled", "slow"): slow,
            ("one(period=1e+06)", "none"): (0.1, 0.1),
        }
    )
    with use_style():
        figure = draw({**found, "learned": made})["bands"]
    assert said in figure.get_suptitle()


def test_one_frequency_is_called_by_its_period() -> None:
    row = pd.Series(
        {"frequencies": 1, "longest_period_tokens": 256.0, "scheme": "one(period=256)"}
    )
    assert name_scheme(row) == "1, period 256"
    # How many pairs rotate stands beside the rows, and not in their names.
    few = {"scheme": "one(period=256, pairs=8)", "rotating_pairs": 8, "pairs": 16}
    assert name_scheme(pd.Series({**row, **few})) == "1, period 256"


@pytest.mark.parametrize(
    ("schemes", "said"),
    [
        (
            "one(period=32)",
            "With one(period=32) all pairs of a head rotate: none is left",
        ),
        ("one(period=32, pairs=2)", None),
        ("one(period=512)", None),
        ("p_rope(p=0)", None),
    ],
)
def test_the_answer_names_schemes_without_a_channel_free_of_position(
    schemes: str, said: str | None
) -> None:
    made = {
        "schemes": body.make_schemes_table(config(schemes=schemes)),
        "learned": learned({(schemes, "none"): (1, 1)}),
    }
    found = body._name_fully_rotated(made)
    assert found.startswith(said) if said else found == ""
