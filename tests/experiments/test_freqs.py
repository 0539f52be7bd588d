"""The freqs experiment: its rows are the plan's, and bad input gets one line."""

import math
import shlex
from typing import Any

import pandas as pd
import pytest

from ropelab import experiments
from ropelab.experiments.freqs import FreqsConfig
from ropelab.experiments.freqs.pairs import (
    answer,
    cells,
    scale_head,
    suggest_command,
    summary,
    tables,
)
from ropelab.lab import run as run_by_name
from ropelab.math.methods import FREQUENCY_METHODS
from ropelab.math.models import MODELS
from ropelab.runs.cell import Values, hash_cell
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from tests.texts import mentions


def config_of(**values: Any) -> FreqsConfig:
    return build(FreqsConfig, values)


def tables_of(**values: Any) -> dict[str, pd.DataFrame]:
    return tables(config_of(**values), Values())


@pytest.fixture(scope="module")
def llama2() -> dict[str, pd.DataFrame]:
    return tables_of(method="yarn", factor=16)


def test_the_columns_that_scripts_read(llama2):
    pairs, scaling = llama2["pairs"], llama2["scaling"]
    assert {"pair", "inv_freq", "wavelength_tokens", "role", "scaled_inv_freq"} <= set(
        pairs
    )
    assert list(scaling.columns)[:6] == [
        "method",
        "factor",
        "attention_factor",
        "logit_multiplier",
        "ramp_low",
        "ramp_high",
    ]


def test_yarn_of_llama_2(llama2):
    counts = llama2["pairs"]["role"].value_counts()
    assert counts.to_dict() == {"kept": 21, "ramp": 25, "interpolated": 18}
    row = llama2["scaling"].iloc[0]
    assert (row["ramp_low"], row["ramp_high"]) == (20, 46)
    assert row["attention_factor"] == pytest.approx(1.277259, abs=1e-6)
    assert row["logit_multiplier"] == pytest.approx(1.277259**2, abs=1e-5)
    assert row["test_len_tokens"] == 65536


def test_rows_are_consistent(llama2):
    pairs = llama2["pairs"]
    assert len(pairs) == 64
    assert (pairs["wavelength_tokens"] * pairs["inv_freq"]).tolist() == pytest.approx(
        [2 * math.pi] * 64
    )
    assert (pairs["trained_rotations"] * 16).tolist() == pytest.approx(
        pairs["test_rotations"].tolist()
    )
    rebuilt = pairs["inv_freq"] * (pairs["weight"] + (1 - pairs["weight"]) / 16)
    assert rebuilt.tolist() == pytest.approx(pairs["scaled_inv_freq"].tolist())


def test_full_interpolation_meets_no_new_angle_and_none_meets_some():
    assert (tables_of(method="pi")["pairs"]["unseen"] == "none").all()
    unscaled = tables_of(method="unscaled")["pairs"]
    assert (unscaled["unseen"] == "new angles").tolist() == (
        unscaled["trained_rotations"] < 1
    ).tolist()


def test_dropped_pairs_have_no_wavelength():
    pairs = tables_of(method="p_rope(p=0.5)")["pairs"]
    assert pairs["role"].value_counts().to_dict() == {"kept": 32, "dropped": 32}
    assert pairs["scaled_wavelength_tokens"].isna().sum() == 32
    assert (pairs["unseen"] == "no rotation").sum() == 32


# The parameters of methods that have no default for all of them.
NEEDED = {"one": "(period=256)", "spaced": "(n=2)", "without": "(band=slow)"}


@pytest.mark.parametrize("name", sorted(set(FREQUENCY_METHODS) - {"longrope"}))
def test_every_method_gives_a_row_per_pair(name):
    found = tables_of(method=name + NEEDED.get(name, ""), head_dim=32)
    assert len(found["pairs"]) == 16
    assert found["scaling"]["method"].iloc[0].startswith(name)
    assert found["scaling"]["source"].iloc[0]


def test_both_yarn_ramps_by_their_own_names():
    coded, paper = (
        tables_of(method=name)["scaling"].iloc[0] for name in ("yarn", "yarn_paper")
    )
    assert (coded["ramp_low"], coded["ramp_high"]) == (20, 46)
    assert paper["ramp_low"] == pytest.approx(20.9445, abs=1e-4)
    assert paper["ramp_high"] == pytest.approx(45.0269, abs=1e-4)


def test_deepseek_shows_where_its_factor_went():
    row = tables_of(model="deepseek-v3")["scaling"].iloc[0]
    assert row["attention_factor"] == 1
    assert row["softmax_multiplier"] == pytest.approx((0.1 * math.log(40) + 1) ** 2)
    assert row["logit_multiplier"] == row["softmax_multiplier"]


def test_a_model_fills_what_is_not_given():
    config = config_of(model="llama-3.1-8b")
    assert (config.base, config.train_len, config.test_len) == (5e5, 8192, 131072)
    assert scale_head(config).scaling.label == "llama3(factor=8)"
    other = config_of(model="llama-3.1-8b", method="yarn(factor=2)")
    assert scale_head(other).scaling.label == "yarn(factor=2)"


def test_training_after_the_scaling_showed_the_angles_of_its_length() -> None:
    found = tables_of(model="llama-3.1-8b")
    said = answer(found)
    assert mentions(said, "llama3(factor=8)", "29 of 64 pairs", 131072, 8192)
    assert mentions(said, "none", 131072, "29 kept")
    assert (found["pairs"]["unseen_extended"] == "none").all()
    assert "unseen_extended" in summary(found)
    # Another scaling than that of its training, or a longer text.
    other = tables_of(model="llama-3.1-8b", method="llama3(factor=4)")
    assert "with this scaling" not in answer(other)
    pd.testing.assert_series_equal(
        other["pairs"]["unseen_extended"], other["pairs"]["unseen"], check_names=False
    )
    longer = tables_of(model="llama-3.1-8b", test_len="256k")["pairs"]
    assert 0 < (longer["unseen_extended"] == "new angles").sum() < 29


@pytest.mark.parametrize(
    "name", [name for name in MODELS if MODELS[name].method != "unscaled"]
)
def test_both_trained_lengths_are_known(name: str) -> None:
    model = MODELS[name]
    untrained = "untrained" in model.note or "not published" in model.note
    assert untrained == (model.extended_len is None)
    assert (
        untrained or model.trained_len < (model.extended_len or 0) <= model.promised_len
    )


def test_a_models_own_method_needs_no_parameters() -> None:
    assert config_of(model="llama-3.1-8b", method="llama3").method == "llama3(factor=8)"
    asked = config_of(model="llama-3.1-8b", method="llama3", test_len="32k")
    assert asked.method == "llama3"
    assert config_of(model="llama-3.1-8b", method="yarn").method == "yarn"


def test_an_attention_factor_given_by_hand_holds_at_factor_one():
    row = tables_of(method="yarn(attention_factor=0.6619)", factor=1)["scaling"].iloc[0]
    assert row["attention_factor"] == 0.6619


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_can_be_shown(name):
    found = tables_of(model=name)
    assert len(found["pairs"]) == MODELS[name].rotary_width // 2


def test_answer_and_summary(llama2):
    said = answer(llama2)
    assert mentions(said, "yarn(factor=16)", "none of 64 pairs", 65536, 4096)
    shown = summary(llama2)
    assert len(shown) == 12
    assert shown["pair"].iloc[[0, -1]].tolist() == [0, 63]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"head_dim": 3}, "even"),
        ({"base": 1}, "greater than 1"),
        ({"factor": 0.5}, "greater than or equal to 1"),
        ({"factor": "nan"}, "must be a number"),
        ({"rotary_dim": 256}, "rotary_dim 256 is above head_dim"),
        ({"method": "yarm"}, "did you mean 'yarn'"),
        ({"method": "yarn(beta=3)"}, "unknown yarn parameter"),
        ({"method": "longrope(long_factor=[1, 2])"}, "2 numbers for 64 pairs"),
        ({"train_len": 1}, "greater than or equal to 2"),
        ({"model": "llama-3.1-9b"}, "did you mean 'llama-3.1-8b'"),
    ],
)
def test_bad_input_gets_one_line(values, message):
    with pytest.raises(InputError, match=message) as caught:
        run_by_name("freqs", **values)
    assert "\n" not in str(caught.value)


# Positions with several axes


def test_sections_name_the_axis_of_every_pair():
    found = tables_of(model="qwen2-vl-7b")
    pairs = found["pairs"]
    assert list(pairs["axis"]) == ["time"] * 16 + ["height"] * 24 + ["width"] * 24
    plain = tables_of(base=1e6, train_len=32768, test_len=32768, method="unscaled")[
        "pairs"
    ]
    pd.testing.assert_frame_equal(pairs.drop(columns="axis"), plain)
    assert mentions(answer(found), "time", "16 pairs", "6.28 to 160", "height")
    assert "axis" in summary(found)
    assert "axis" not in summary({**found, "pairs": plain})


def test_axes_that_take_turns_name_the_axis_of_every_pair():
    pairs = tables_of(base=5e6, sections="24,20,20", layout="mrope_interleaved")[
        "pairs"
    ]
    assert list(pairs["axis"]) == ["time", "height", "width"] * 20 + ["time"] * 4
    plain = tables_of(base=5e6)["pairs"]
    pd.testing.assert_frame_equal(pairs.drop(columns="axis"), plain)


def test_axes_with_frequencies_of_their_own_are_heads_of_their_own():
    found = tables_of(
        base=1e4,
        sections="8,28,28",
        layout="axial",
        method="yarn",
        factor=4,
        train_len=64,
    )
    pairs = found["pairs"]
    assert list(pairs["pair"]) == list(range(64))
    for axis, width in (("time", 16), ("height", 56), ("width", 56)):
        alone = tables_of(
            base=1e4, head_dim=width, method="yarn", factor=4, train_len=64
        )["pairs"]
        mine = (
            pairs[pairs["axis"] == axis]
            .drop(columns=["pair", "axis"])
            .reset_index(drop=True)
        )
        pd.testing.assert_frame_equal(mine, alone.drop(columns="pair"))


def test_sections_that_do_not_fill_the_head_are_refused():
    with pytest.raises(InputError, match="up to 64 pairs, got 60"):
        run_by_name("freqs", sections="16,24,20")
    with pytest.raises(InputError, match="layout"):
        run_by_name("freqs", sections="16,24,24", layout="mropee")


def test_minimind_is_the_model_of_the_note():
    pairs = tables_of(model="minimind")["pairs"]
    assert len(pairs) == 32
    assert pairs["wavelength_tokens"].iloc[[0, 15, 31]].tolist() == pytest.approx(
        [6.283, 4080, 4080185], rel=1e-3
    )


# Cells


def test_a_cell_depends_on_every_field_but_the_name_of_the_model():
    changed = {
        "base": 1e6, "head_dim": 64, "rotary_dim": 32, "train_len": 2048, "extended_len": 16384,
        "test_len": 8192,
        "method": "pi", "factor": 8, "sections": (16, 24, 24), "layout": "axial",
    }  # fmt: skip
    configs = [config_of(), *(config_of(**{name: v}) for name, v in changed.items())]
    assert {"model", *changed} == set(FreqsConfig.model_fields)
    assert len({hash_cell(cells(config)[0]) for config in configs}) == len(configs)
    named = config_of(model="llama-2-7b")
    (one,), (other,) = cells(named), cells(named.replace(model=""))
    assert hash_cell(one) == hash_cell(other)


def test_wider_heads_need_more():
    (small,), (large,) = (cells(config_of(head_dim=width)) for width in (128, 2**20))
    assert small.resources.seconds < 1 < 10 < large.resources.seconds
    assert small.resources.memory_bytes < large.resources.memory_bytes


def test_the_next_command_is_about_the_same_head_and_training():
    values = {
        "base": 5e5,
        "rotary_dim": 64,
        "train_len": 2048,
        "method": "yarn",
        "factor": 4,
    }
    config = config_of(**values)
    command = shlex.split(suggest_command(config, tables(config, Values())))
    assert command[:2] == ["ropelab", "precision"]
    assert dict(zip(command[2::2], command[3::2], strict=True)) == {
        "--base": "500000",
        "--head-dim": "128",
        "--rotary-dim": "64",
        "--length": "8192",
        "--method": "yarn(factor=4)",
        "--train-len": "2048",
    }


@pytest.mark.parametrize("base", [51881.25, 1e6, 1000001.0, 123456789.125])
def test_the_next_command_is_about_the_same_base(base: float) -> None:
    config = config_of(base=base)
    words = shlex.split(suggest_command(config, tables(config, Values())))
    assert float(words[words.index("--base") + 1]) == base


def test_a_given_factor_says_the_length_also_beside_a_model() -> None:
    config = config_of(model="llama-2-7b", method="pi", factor=8)
    found = tables(config, Values())
    assert found["scaling"]["test_len_tokens"].item() == 32768
    assert suggest_command(config, found).endswith(
        "--context 32768 --method 'pi(factor=8)'"
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("freqs", {"model": "llama-3.1-8b", "method": "llama3", "train_len": 8192}),
        ("freqs", {"model": "llama-3.1-8b", "base": 500000}),
        ("freqs", {"model": "llama-3.2-1b", "rotary_dim": 32}),
        ("precision", {"method": "yarn", "train_len": 8192, "length": 20000}),
        ("base", {"context": 32768, "test_len": 65536}),
        ("base", {"context": 32768}),
    ],
)
def test_the_command_of_a_config_gives_that_config(
    name: str, values: dict[str, Any]
) -> None:
    face = experiments.load(name)
    config = build(face.config, values)
    words = shlex.split(config.command(name))[2:]
    names = [word.removeprefix("--").replace("-", "_") for word in words[::2]]
    again = build(face.config, dict(zip(names, words[1::2], strict=True)))
    face.check(again)
    assert again.model_dump() == config.model_dump()
