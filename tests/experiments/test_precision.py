"""The precision experiment: its tables, its answer, real incidents, and a live
implementation.
"""

import json
import math
import re
from fractions import Fraction
from functools import cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib import pyplot as plt
from PIL import Image

import ropelab
from ropelab.experiments import load
from ropelab.experiments.precision import PrecisionConfig, stages
from ropelab.experiments.precision import results as body
from ropelab.experiments.precision.encodings import make_encoding_cells
from ropelab.experiments.precision.neighbours import state_limits
from ropelab.experiments.precision.plans import STAGE_FORMATS, list_entries
from ropelab.experiments.precision.summary import choose_formats
from ropelab.lab import Lab
from ropelab.math.frequencies import inverse_frequencies
from ropelab.math.models import MODELS
from ropelab.math.numerics.angle_errors import wrap_angle
from ropelab.math.numerics.casts import PRESETS, CastPlan
from ropelab.math.numerics.chain import Chain, Spectrum, list_positions
from ropelab.math.numerics.reduction import REDUCTIONS, reduction_errors
from ropelab.plan import Plan
from ropelab.runs.cell import Values, hash_cell
from ropelab.runs.config import build, read_toml
from ropelab.runs.errors import InputError
from ropelab.runs.store import make_records
from ropelab.runs.tables import EarlyTable
from ropelab.show.drawn import encode_figures
from ropelab.show.figures.precision import draw
from ropelab.show.figures.style import use_style
from tests.texts import mentions

CONFIGS = Path(__file__).parents[2] / "configs"
ROPE_128 = Spectrum(inverse_frequencies(128, 1e4), 1e4, 128)
# cos and sin of every pair and position.
Stored = tuple[np.ndarray, np.ndarray]
SMALL: dict[str, Any] = {
    "length": 2048,
    "long_lengths": (4096,),
    "samples": 64,
    "draws": 4,
}


def config_of(**values: Any) -> PrecisionConfig:
    return build(PrecisionConfig, SMALL | values)


@cache
def shared() -> Values:
    """Cells that every test here may use once one has computed them."""
    return Values()


def tables_of(**values: Any) -> dict[str, pd.DataFrame]:
    return body.tables(config_of(**values), shared())


@pytest.fixture(scope="module")
def small() -> dict[str, pd.DataFrame]:
    return tables_of(explain=1857)


def test_the_tables_have_the_promised_columns(small):
    promised = {
        "resolution": (
            "scheme format component positions distinct_codes adjacent_collisions "
            "first_collision_position resolved_from_tokens period_tokens"
            " median_step_ulp status"
        ),
        "neighbours": "encoding scheme component format equal_neighbours",
        "limits": (
            "scheme format longest_kept_period_tokens losing_period_tokens"
            " first_losing_pair losing_pairs score_step weight_change status"
        ),
        "spread": "kind name stage format distance_tokens score_spread ci_low ci_high",
        "casts": (
            "plan length offset max_angle_error_rad max_table_error worst_position"
            " worst_pair first_position_over_tolerance distinct_positions"
            " rms_score_error score_spread spread_ci_low spread_ci_high"
            " grows_with_position status"
        ),
        "pairs": (
            "pair wavelength_tokens period_tokens format angle_step_rad"
            " exceeds_tolerance equal_neighbours"
        ),
        "collisions": (
            "scheme format component position_start position_end adjacent_collisions"
        ),
        "growth": "stage format position_end max_angle_error_rad",
        "scores": (
            "scheme format alignment delta_tokens median_step_ulp unchanged_fraction"
        ),
        "score_margin": (
            "scheme vectors format score_step rounding step_to_rounding "
            "unchanged_fraction weight_change status"
        ),
        "reductions": (
            "terms offset length max_error_rad worst_position exceeds_tolerance positions"
            " status"
        ),
        "drift": "plan alignment shift_tokens rms_score_change ci_low ci_high",
        "explain": "format what position step_tokens angle_rad cos",
    }
    assert set(small) == set(promised)
    for name, columns in promised.items():
        assert set(columns.split()) <= set(small[name].columns), name


def test_all_tables_are_json_without_nan_or_infinity(small):
    records = {name: make_records(table) for name, table in small.items()}
    # A nan or an infinity would be a ValueError here.
    text = json.dumps(records, allow_nan=False)
    assert json.loads(text) == records


def test_the_same_config_gives_the_same_tables(small):
    again = body.tables(config_of(explain=1857), Values())
    for name, table in small.items():
        pd.testing.assert_frame_equal(table, again[name], check_exact=True)


def test_every_stage_is_rounded_in_every_format(small):
    stages = small["casts"].query("kind == 'stage'")
    assert len(stages) == 36
    before_the_cosine = stages["stage"].isin(["position", "inv_freq", "angle"])
    assert (stages.loc[~before_the_cosine, "max_angle_error_rad"] == 0).all()
    assert not stages.loc[~before_the_cosine, "grows_with_position"].any()


@pytest.mark.slow
def test_one_frequency_at_a_million_tokens_is_claim_seven():
    rows = tables_of(length=131072, components=["cos", "pair"], schemes=["single"])[
        "resolution"
    ]
    found = rows.set_index(["format", "component"]).to_dict("index")
    assert math.cos(0) - math.cos(2 * math.pi / 1e6) == pytest.approx(
        1.97e-11, rel=0.01
    )
    cos_alone = found["float32", "cos"]
    assert cos_alone["first_collision_position"] == 0  # both are 1.0
    assert cos_alone["adjacent_collisions"] == 755
    assert found["float32", "pair"]["distinct_codes"] == 131072
    for name in ("float16", "bfloat16"):
        assert found[name, "pair"]["adjacent_collisions"] > 0.9 * 131072


@pytest.mark.slow
def test_many_frequencies_keep_every_position_apart_even_in_bfloat16():
    rows = tables_of(length=131072, components=["vector"], schemes=["rope"])[
        "resolution"
    ]
    assert (rows["distinct_codes"] == 131072).all()


def test_the_periods_of_claim_eight_and_the_encoding_of_claim_nine():
    pairs = tables_of(schemes=["rope"])["pairs"].query("format == 'float64'")
    periods = pairs.set_index("pair")["wavelength_tokens"]
    assert periods[0] == pytest.approx(6.283, rel=1e-3)
    assert periods[15] == pytest.approx(4.08e3, rel=1e-2)  # the note says 6,283
    assert periods[31] == pytest.approx(4.08e6, rel=1e-2)  # the note says 6,283,185
    cosines = [math.cos(theta) for theta in pairs["inv_freq_rad"]]
    assert cosines[0] == pytest.approx(0.5403, abs=5e-5)
    assert cosines[1] == pytest.approx(0.7965, abs=5e-5)  # the note says 0.9997
    assert cosines[2] == pytest.approx(0.9124, abs=5e-5)  # the note says 0.9999


@pytest.fixture(scope="module")
def million() -> dict[str, pd.DataFrame]:
    return tables_of(length=131072, long_lengths=[2**20])


@pytest.mark.slow
def test_the_answer_begins_with_one_frequency_and_many(million):
    said = body.answer(million).split(". ")
    assert mentions(said[0], "Many frequencies", "float32")
    assert mentions(said[0], "period 1e6", "float32 alone")
    assert mentions(said[0], "6e-06", "0.23")
    assert any(mentions(part, "float32", "position 310899") for part in said)
    casts = [part for part in said if part.startswith("bfloat16 is precise enough")]
    (cast,) = casts
    assert mentions(cast, "unless angle or position", "inv_freq")
    assert any(mentions(part, "angle (0.60)", "position (0.58)") for part in said)
    near = body.answer(tables_of(length=4, components=[]))
    assert mentions(near, "bfloat16", "at every stage", "With only")


def test_large_numbers_of_a_sentence_are_written_out() -> None:
    said = body.answer(tables_of(length=2, head_dim=2))
    assert "gets 160 % more weight" in said
    far = body.answer(tables_of(length=64, head_dim=16, offset=10**9))
    assert "is off by up to 60 rad" in far
    assert not re.search(r"\de\+\d", said + far)


@pytest.mark.slow
def test_the_short_table_compares_one_frequency_with_many(million):
    shown = body.summary(million).set_index("neighbours_that_look_equal").round(1)
    assert shown.to_dict("index") == {
        "one frequency, cos": {"float32 %": 0.6, "float16 %": 99.5, "bfloat16 %": 99.9},
        "one frequency, cos and sin": {
            "float32 %": 0,
            "float16 %": 93.5,
            "bfloat16 %": 98.9,
        },
        "RoPE, all 32 pairs": {"float32 %": 0, "float16 %": 0, "bfloat16 %": 0},
        "RoPE, one score": {"float32 %": 0, "float16 %": 0.2, "bfloat16 %": 1.2},
    }


@pytest.mark.slow
def test_the_first_question_is_answered_before_any_cast_is_measured(tmp_path):
    seen: list[EarlyTable] = []
    lab = Lab(results=tmp_path, figures=False, watch=seen.append)
    run = lab.run(Plan(load("precision"), config_of()))
    with_both_schemes = [early_table.table for early_table in seen][1]
    pd.testing.assert_frame_equal(with_both_schemes, run.summary())


def test_the_limits_of_one_frequency_and_of_pairs_are_bracketed():
    """Casts are not asked about: they take most of the time of a whole run."""
    cells = make_encoding_cells(config_of(length=131072))
    parts = [shared()[cell] for cell in cells]
    tables = {name: pd.concat(part[name] for part in parts) for name in parts[0]}
    limits = tables["limits"].set_index(["scheme", "format"])
    kept = limits["longest_kept_period_tokens"]["single"]
    lost = limits["losing_period_tokens"]["single"]
    assert kept.round().dropna().to_dict() == {"float16": 9230, "bfloat16": 1155}
    assert ((lost / kept).dropna() < 1.01).all()
    first = limits["first_losing_pair"]["rope"].dropna()
    assert first.to_dict() == {"float16": 17, "bfloat16": 13}
    assert limits["losing_pairs"]["rope"]["float32"] == 0
    pairs = tables["pairs"].query("scheme == 'rope' and format == 'bfloat16'")
    assert (pairs["equal_neighbours"] > 0).tolist() == [False] * 13 + [True] * 19
    rows = tables["resolution"].query("scheme == 'single' and format == 'float32'")
    assert rows.set_index("component")["resolved_from_tokens"]["cos"] == 39


def test_the_period_changes_the_short_table():
    shares = []
    for period in (1e6, 1e3):
        shown = body.summary(tables_of(schemes=["single"], period=period))
        names = shown["neighbours_that_look_equal"]
        rows = shown[names == "one frequency, cos and sin"]
        shares.append(float(rows["bfloat16 %"].iloc[0]))
    slow, fast = shares
    assert slow > 50
    assert fast == 0


def test_formats_and_schemes_change_what_is_shown():
    tables = tables_of(formats=["float16"], schemes=["single"])
    assert body.summary(tables).columns[1:].tolist() == ["float16 %"]
    stages = body.make_further_tables(tables)["casts"]
    assert stages.columns[1:].tolist() == ["float16 score_spread", "float16 wrong_from"]
    assert "bfloat16" not in body.answer(tables)
    assert set(tables["casts"].query("kind == 'stage'")["format"]) == {"float16"}
    many = body.summary(tables_of(schemes=["rope"]))
    assert many["neighbours_that_look_equal"].str.startswith("RoPE").all()
    assert list(body.make_further_tables(tables_of(schemes=[]))) == ["reductions"]
    assert "only_this_is_rounded" in body.summary(tables_of(schemes=[]))


@pytest.mark.slow
def test_the_second_table_has_a_row_per_stage(million) -> None:
    shown = body.make_further_tables(million)["casts"].set_index("only_this_is_rounded")
    assert len(shown) == 6
    assert shown["bfloat16 wrong_from"].to_dict() == {
        "position": "257",
        "inv_freq": "11",
        "angle": "7",
        "cos and sin": "never",
        "rotation": "never",
        "q, k and score": "never",
    }
    assert shown["float16 wrong_from"].tolist()[:3] == ["2049", "120", "52"]
    assert shown.loc["angle", "float16 score_spread"] == "overflow from 65520"
    assert shown["bfloat16 score_spread"].to_dict() == {
        "position": "0.58",
        "inv_freq": "0",
        "angle": "0.60",
        "cos and sin": "0.0019",
        "rotation": "0.003",
        "q, k and score": "0.003",
    }


def test_the_scope_says_how_frequencies_are_scaled():
    assert "scaled" not in config_of().scope
    given = config_of(method="yarn(factor=4)").scope
    assert "frequencies scaled by yarn(factor=4)" in given
    derived = config_of(method="yarn", train_len=512).scope
    assert "frequencies scaled by yarn(factor=4)" in derived


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "pythia-6.9b", "deepseek-v3", "qwen2.5-7b"]
)
def test_a_known_model_fills_in_what_was_not_given(name: str) -> None:
    model = MODELS[name]
    config = build(PrecisionConfig, {"model": name})
    assert (config.base, config.head_dim) == (model.base, model.head_dim)
    assert config.rotated == model.rotary_width
    assert (config.length, config.method) == (model.promised_len, model.method)
    assert config.command("precision") == f"ropelab precision --model {name}"
    # It is a name for these values: the run is the same.
    values = config.model_dump()
    assert "model" not in values
    assert build(PrecisionConfig, values).model_dump() == values
    assert build(PrecisionConfig, {"model": name, "length": 512}).length == 512


def test_an_implementation_gets_the_stage_to_fix():
    tables = tables_of(schemes=[], preset=["positions_bfloat16"])
    said = body.answer(tables)
    assert mentions(said, "position alone", "positions_bfloat16")
    repairs = tables["casts"].query("kind == 'repair'")
    assert repairs[repairs["score_spread"] < 0.006]["stage"].tolist() == ["position"]
    assert body.summary(tables)["fix_first"].tolist() == ["position"]


@pytest.mark.slow
def test_of_several_implementations_those_that_lose_places_come_first():
    presets = ["torchtitan", "positions_bfloat16", "transformers_to_bfloat16"]
    said = body.answer(tables_of(schemes=[], preset=presets))
    assert mentions(said, "places", "positions_bfloat16 (0.31)")
    two = "torchtitan", "transformers_to_bfloat16"
    assert mentions(said, *two, "distance alone")
    # A rounded frequency is another rotation, and the same one everywhere.
    assert mentions(said, "float64", "transformers_to_bfloat16 (from 11)")
    # No wall in the base: what makes neighbours equal is the position's format.
    assert said.endswith(" positions_bfloat16 (from 256).")
    said = body.answer(tables_of(schemes=[], preset=["torchtitan"]))
    assert said.endswith(" in none of the implementations.")
    assert "in every pair" not in body.answer(
        tables_of(schemes=[], cast="angle=bfloat16")
    )


def test_where_no_single_stage_is_to_blame_the_one_that_helps_most_is_named():
    said = body.answer(tables_of(schemes=[], preset=["half_cache_bfloat16"]))
    assert "No single fix" in said
    assert "first (then 0." in said


def test_a_scaling_method_changes_the_frequencies_that_are_judged():
    plain, scaled = (
        tables_of(schemes=["rope"], components=["pair"], method=method)["pairs"]
        for method in ("unscaled", "pi(factor=4)")
    )
    ratio = plain["inv_freq_rad"] / scaled["inv_freq_rad"]
    assert ratio.to_numpy() == pytest.approx(4)


def test_a_factor_that_is_not_given_comes_from_the_lengths() -> None:
    values = {
        "schemes": ["rope"],
        "components": ["pair"],
        "train_len": 1024,
        "length": 4096,
    }
    derived, given = (tables_of(**values, method=m) for m in ("yarn", "yarn(factor=4)"))
    pd.testing.assert_frame_equal(derived["pairs"], given["pairs"])
    assert set(derived["casts"]["method"]) == {"yarn(factor=4)"}
    assert set(derived["casts"]["factor_from"]) == {"4096 / 1024 tokens"}
    said = "The factor of yarn(factor=4) is 4096 / 1024 tokens."
    assert body.answer(derived).endswith(said)
    assert "The factor of" not in body.answer(given)


def test_explaining_a_position_shows_what_is_stored_instead():
    rows = tables_of(explain=15962)["explain"].set_index(["format", "what"])
    assert rows.loc[("bfloat16", "stored"), "position"] == 15936
    assert rows.loc[("bfloat16", "above"), "position"] == 16000
    assert rows.loc[("bfloat16", "stored"), "step_tokens"] == 64
    assert rows.loc[("float32", "stored"), "position"] == 15962
    assert rows.loc[("bfloat16", "stored"), "cos"] == pytest.approx(math.cos(15936))


def test_explaining_a_position_follows_the_casts_that_were_asked_for():
    tables = tables_of(
        explain=1000, explain_pair=1, base=5e5, cast="angle=bfloat16", schemes=[]
    )
    rows = tables["explain"].set_index("cast")
    assert rows.loc["float64", "angle_rad"] == pytest.approx(663.6, abs=0.05)
    assert rows.loc["angle=bfloat16", "angle_rad"] == 664
    assert rows.loc["angle=bfloat16", "cos"] == pytest.approx(math.cos(664))
    overflow = tables_of(explain=70000, cast="position=float16", schemes=[])["explain"]
    assert overflow["status"].tolist() == ["ok", "overflow"]


def test_explaining_a_scheme_explains_its_own_pair():
    rows = tables_of(explain=1, schemes=["single"])["explain"]
    assert rows["angle_rad"].iloc[0] == pytest.approx(2 * math.pi / 1e6)
    with pytest.raises(InputError, match="explain_pair is 1, not below 1"):
        body.check(config_of(explain=1, explain_pair=1, schemes=["single"]))
    sines = tables_of(explain=1, explain_pair=200, schemes=["sinusoidal"])["explain"]
    assert sines["angle_rad"].iloc[0] == pytest.approx(1e4 ** (-400 / 512))


EVERY_FIGURE = [
    "resolution",
    "score_spread",
    "per_stage_rounding",
    "collisions",
    "angle_error",
    "score_drift",
]
NO_LADDER = ["angle_error", "resolution", "score_spread", "collisions", "score_drift"]
OF_CODES = ("resolution", "collisions")


ASKED: list[tuple[dict[str, Any], list[str]]] = [
    ({}, EVERY_FIGURE),
    ({"components": []}, [name for name in EVERY_FIGURE if name not in OF_CODES]),
    ({"components": ["vector"]}, EVERY_FIGURE),
    ({"schemes": [], "preset": ["float64"]}, ["score_drift"]),
    ({"schemes": [], "cast": "inv_freq=float64"}, ["score_drift"]),
    # With a single distance and place nothing varies.
    (
        {"length": 2, "schemes": ["sinusoidal"]},
        [name for name in EVERY_FIGURE if name != "score_spread"],
    ),
    ({"method": "p_rope(p=0.25)", "preset": ["ggml"]}, NO_LADDER),
    # So far away all positions are stored as one number, or exactly.
    (
        {"offset": 2**40, "preset": ["all"]},
        [name for name in NO_LADDER if name != "score_spread"],
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("values", "figures"), ASKED)
def test_whatever_was_asked_gets_its_figures_and_an_answer(values, figures):
    tables = tables_of(**({"length": 600} | values))
    with use_style():
        drawn = draw(tables)
    plt.close("all")
    assert list(drawn) == figures
    assert body.answer(tables).endswith(".")
    assert 1 <= len(body.summary(tables)) <= 12


@pytest.mark.slow
@pytest.mark.parametrize(("values", "figures"), ASKED)
def test_the_figures_of_whatever_was_asked_are_rendered(values, figures):
    tables = tables_of(**({"length": 600} | values))
    with use_style():
        drawn = draw(tables)
    pictures = encode_figures(drawn)
    plt.close("all")
    assert [*pictures] == [f"{name}.png" for name in figures]
    for content in pictures.values():
        with Image.open(BytesIO(content)) as picture:
            pixels = np.asarray(picture.convert("L"))
        assert pixels.min() < pixels.max()


def test_a_scheme_without_any_of_the_components_is_said():
    hint = (
        "One frequency has no vector beside its pair: --components pair shows its"
        " encoding."
    )
    for components, expected in (
        (["vector"], True),
        (["vector", "cos"], False),
        ([], False),
    ):
        tables = tables_of(length=600, components=components)
        assert (hint in body.answer(tables)) == expected


def test_an_offset_looks_at_those_positions_only():
    rows = tables_of(offset=65536, length=257, preset=["half_cache_bfloat16"])["casts"]
    assert rows["worst_position"].between(65536, 65792).all()
    assert rows["distinct_positions"].iloc[0] == 1


def test_a_single_draw_has_no_interval_and_is_drawn():
    tables = tables_of(length=64, long_lengths=(), samples=1, draws=1)
    assert tables["drift"]["ci_low"].isna().all()
    assert "score_drift" in draw(tables)
    plt.close("all")


def test_tf32_positions_are_wrong_for_half_of_8192():
    stored = Chain(PRESETS["tf32_matmul"].plan, ROPE_128).positions(
        list_positions(0, 8192)
    )
    assert (stored != list_positions(0, 8192)).sum() == 4096


@pytest.mark.parametrize(
    "path", sorted(CONFIGS.rglob("precision*.toml")), ids=lambda p: p.stem
)
def test_the_stored_configs_are_valid(path):
    name, values = read_toml(path)
    assert name == "precision"
    config = build(PrecisionConfig, values)
    body.check(config)
    assert config.length >= 2048


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "p_rope(p=0)"}, "no pair of 64 features rotates under p_rope"),
        ({"head_dim": 63}, "must be even"),
        ({"head_dim": 0}, "greater than or equal to 2"),
        ({"base": 1}, "base must be greater than 1"),
        ({"base": "nan"}, "base must be a number"),
        ({"period": -5}, "period must be greater than or equal to 0.000000001"),
        ({"period": 0}, "period must be greater than or equal to 0.000000001"),
        ({"length": 1}, "length must be greater than or equal to 2"),
        ({"offset": -1}, "offset must be greater than or equal to 0"),
        ({"tolerance": 4}, "tolerance must be less than 3.14"),
        ({"rotary_dim": 128}, "rotary_dim 128 is above head_dim 64"),
        ({"formats": "bfloat61"}, "unknown format 'bfloat61'; did you mean 'bfloat16'"),
        ({"components": "vectro"}, "unknown component 'vectro'; did you mean 'vector'"),
        ({"schemes": "singel"}, "unknown scheme 'singel'; did you mean 'single'"),
        (
            {"preset": "nanochatt"},
            "unknown preset 'nanochatt'; did you mean 'nanochat'",
        ),
        ({"cast": "angel=tf32"}, "unknown stage 'angel'; did you mean 'angle'"),
        (
            {"method": "yarn"},
            "yarn has no factor: write factor=... among its parameters, or give",
        ),
        (
            {"method": "resonance(inner=pi)", "train_len": "128k"},
            "a train_len below 131072 tokens",
        ),
        ({"method": "yarm(factor=4)"}, "unknown method 'yarm'; did you mean 'yarn'"),
        (
            {"schemes": "single", "components": "vector,score"},
            (
                "single frequency has no vector beside its pair.*give components cos,"
                " sin or pair"
            ),
        ),
        ({"explain_pair": 32}, "explain_pair is 32, not below 32"),
        ({"offset": 2**53}, "must stay below 2"),
        ({"bases": 3}, "unknown key 'bases'; did you mean 'base'"),
    ],
)
def test_bad_input_gets_one_clear_line(values, message):
    with pytest.raises(InputError, match=message) as caught:
        body.check(build(PrecisionConfig, values))
    assert "\n" not in str(caught.value)


def live_tables(module: Any, positions: torch.Tensor) -> Stored:
    """cos and sin as transformers' own module hands them to a bfloat16 model."""
    cos, sin = module(torch.empty(1, dtype=torch.bfloat16), positions[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half].T.double().numpy(), sin[0, :, :half].T.double().numpy()


def errors(tables: Stored, exact: Stored) -> tuple[float, float]:
    """The largest error of a stored cos or sin, and the largest angle to the exact
    (cos, sin).
    """
    angles = np.arctan2(tables[1], tables[0]) - np.arctan2(exact[1], exact[0])
    return float(np.abs(np.stack(tables) - np.stack(exact)).max()), float(
        wrap_angle(angles).max()
    )


@pytest.mark.parametrize(
    ("cast", "preset", "at_least", "at_most"),
    [
        (False, "transformers_llama", 2e-3, 4e-3),
        (True, "transformers_to_bfloat16", 3.1, math.pi),
    ],
)
def test_transformers_does_live_what_its_preset_predicts(
    cast, preset, at_least, at_most
):
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(
        head_dim=128, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}
    )
    module = llama.LlamaRotaryEmbedding(config)
    if cast:
        module.to(torch.bfloat16)
    measured = live_tables(module, torch.arange(16384))

    predicted = Chain(PRESETS[preset].plan, ROPE_128).table(list_positions(0, 16384))
    # Equal but for entries whose float32 frequency or cosine is on the edge of a
    # rounding.
    for ours, theirs in zip(predicted, measured, strict=True):
        assert (ours == theirs).mean() > 0.999
    exact = Chain(CastPlan(), ROPE_128).table(list_positions(0, 16384))
    assert at_least < errors(measured, exact)[1] < at_most
    assert errors(measured, exact) == pytest.approx(errors(predicted, exact), rel=0.01)


def test_encodings_that_come_back_are_counted_in_exact_arithmetic():
    rows = tables_of(period=360, schemes=["single"], length=1000)["resolution"]
    counted = rows.set_index(["component", "format"])
    for component, codes, first in (
        ("pair", 360, 360),
        ("cos", 181, 181),
        ("sin", 181, 91),
    ):
        for name in ("float64", "float32"):
            assert counted.loc[(component, name), "distinct_codes"] == codes
            assert counted.loc[(component, name), "period_tokens"] == first
    noise = rows["status"].str.match(
        r"comes back; rounding in float64 tells \d+ more apart"
    )
    assert noise.tolist() == (rows["format"] == "float64").tolist()
    assert rows["status"].str.startswith("comes back").all()
    half = tables_of(period=64.5, schemes=["single"], length=1000)["resolution"]
    whole = half[(half["component"] == "pair") & (half["format"] == "float64")]
    assert whole[["distinct_codes", "period_tokens"]].to_numpy().tolist() == [
        [129, 129]
    ]


def test_encodings_that_do_not_come_back_say_so():
    short = tables_of(period=1e6, schemes=["single"], length=1000)
    assert not short["resolution"]["status"].str.startswith("comes back").any()
    assert short["resolution"]["period_tokens"].isna().all()
    assert set(short["pairs"]["period_tokens"]) == {1_000_000}
    rope = tables_of(schemes=["rope"], length=1000)
    assert rope["pairs"]["period_tokens"].isna().all()


def test_the_margin_shows_where_no_score_changes():
    margin = tables_of(period=1e6, schemes=["single", "rope"])["score_margin"]
    assert set(margin["vectors"]) == {"aligned at 0", "aligned", "random", "largest"}
    at_zero = margin[
        (margin["vectors"] == "aligned at 0") & (margin["format"] == "float32")
    ]
    assert at_zero.set_index("scheme")["status"].to_dict() == {
        "single": "every score stays equal",
        "rope": "above the rounding",
    }


def test_the_answer_names_the_position_that_comes_back():
    text = body.answer(tables_of(period=360, length=1000, schemes=["single", "rope"]))
    assert mentions(text, "Position 360", "position 0")
    assert mentions(text, "360 distinct", "1000 positions")
    slow = body.answer(tables_of(period=1e6, schemes=["single"]))
    assert not mentions(slow, "position 0", "again")


CHANGES: dict[str, Any] = {
    "base": 1e4,
    "rotary_dim": 32,
    "method": "pi(factor=4)",
    "period": 360.0,
    "length": 1024,
    "offset": 7,
    "components": ("cos",),
    "formats": ("float16",),
    "tolerance": 0.1,
    "samples": 32,
    "draws": 3,
    "seed": 1,
    "preset": ("ggml",),
    "cast": "angle=tf32",
    "schemes": ("rope",),
    "long_lengths": (8192,),
}


@pytest.mark.parametrize("field", CHANGES)
def test_a_field_that_changes_a_table_changes_the_key_of_its_cells(field):
    names = [
        sorted(map(hash_cell, body.cells(config_of(**changed))))
        for changed in [dict[str, Any](), {field: CHANGES[field]}]
    ]
    assert names[0] != names[1]


def test_implementations_with_equal_angles_share_a_cell():
    config = config_of(schemes=(), preset=("nanochat", "transformers_llama"))
    kinds = [cell.kind for cell in body.cells(config)]
    # The presets, and each without its rounded position, inv_freq, angle or rule of
    # frequencies.
    assert kinds == [
        *["precision-casts"] * 5,
        "precision-drift",
        "precision-reductions",
    ]


def test_a_recurrence_that_rounds_nothing_has_errors_of_float64_alone() -> None:
    config = config_of(cast="angles=recurrence", length=20000, schemes=[], draws=2)
    casts = body.tables(config, Values())["casts"]
    assert (casts["max_angle_error_rad"] < 1e-8).all()


def test_keys_that_do_not_fit_a_head_are_refused_before_anything_is_computed() -> None:
    with pytest.raises(
        InputError, match="q8_0 has blocks of 32 features, heads have 80"
    ):
        body.check(config_of(head_dim=80, cache="q8_0"))


def test_formats_of_stored_keys_are_predicted_by_pair() -> None:
    # So far that the slowest pair rotates too.
    far = {"schemes": [], "base": 1e4, "offset": 10**6}
    plain = config_of(**far)
    config = config_of(**far, cache="int4(channel),int4(channel, before),q8_0")
    assert "cache" not in plain.model_dump()
    kinds = [[cell.kind for cell in body.cells(each)] for each in (plain, config)]
    assert kinds[1] == [*kinds[0], "precision-keys"]
    tables = body.tables(config, Values())
    keys = tables["keys"]
    assert len(keys) == 3 * 2 * 32
    by = keys.groupby(["keys", "offset_deviations"])
    score, slowest = by["score_error"].first(), by["key_error"].last()
    # An offset stays in its channel unless it was rotated: then the range of all its
    # pair grows.
    assert slowest["int4(channel)", 20] > 3 * slowest["int4(channel, before)", 20]
    assert score["q8_0", 0] < 0.01 < score["int4(channel)", 0]
    assert "int4(channel) 0.1" in body.answer(tables)
    with pytest.raises(InputError, match="unknown format of keys 'q5'"):
        body.check(config_of(cache="q5"))


@pytest.mark.parametrize(
    ("errors", "grows"),
    [
        ([], False),
        ([0.0, 1.0, 2.0], False),
        ([1.0, 2.5], True),
        ([1.0, math.nan], True),
    ],
)
def test_errors_grow_from_twice_those_of_the_first_octave(errors, grows) -> None:
    octaves = [SimpleNamespace(error_rad=error) for error in errors]
    assert stages._has_growing_errors(cast(Any, octaves)) is grows


def test_sines_of_large_arguments_lose_by_the_terms_of_two_pi():
    """Directly: a float32 loop that takes off whole periods, against float64."""
    tables = tables_of(
        schemes=[], cast="angle=float32", length=131072, long_lengths=(1048576,)
    )
    found = tables["reductions"]
    lost = found.set_index(["terms", "length"])["max_error_rad"]
    period = np.float32(2 * math.pi)
    angles = np.arange(131072, dtype=np.float32)
    turns = np.rint(angles * np.float32(1 / float(period)))
    left = (angles - turns * period).astype(np.float64)
    exact = angles.astype(np.float64) - 2 * math.pi * turns.astype(np.float64)
    assert lost[1, 131072] == pytest.approx(np.abs(left - exact).max(), rel=1e-4)

    # Two numbers are exact to 2^16 periods, in float32 code without fma.
    assert lost[2, 131072] < 1e-5 < 1e-2 < lost[2, 1048576]
    wrong = found.set_index(["terms", "length"])["exceeds_tolerance"]
    assert not wrong[1, 131072]
    assert wrong[1, 1048576]


def test_a_format_by_itself_is_the_cast_of_all_stages():
    casts = tables_of(cast="bf16", schemes=[])["casts"]
    assert set(casts["name"]) == {"all=bfloat16"}
    same = tables_of(cast="all=bfloat16", schemes=[])["casts"]
    pd.testing.assert_frame_equal(casts, same)


def test_the_longest_kept_period_is_rounded_down():
    limits = pd.DataFrame(
        {
            "scheme": ["single"],
            "format": ["bfloat16"],
            "longest_kept_period_tokens": [1154.9],
            "first_losing_pair": [None],
        }
    )
    (said,) = state_limits({"limits": limits})
    assert "1154 tokens" in said


def test_the_largest_loss_is_that_of_every_position():
    tables = tables_of(
        schemes=[], cast="angle=float32", length=4096, long_lengths=(1000001,)
    )
    angles = np.arange(1000001, dtype=np.float32)
    for terms, reduction in REDUCTIONS.items():
        every = np.abs(reduction_errors(angles, reduction))
        found = tables["reductions"]
        row = found[(found["terms"] == terms) & (found["length"] == 1000001)]
        assert row["max_error_rad"].item() == every.max()
        assert row["worst_position"].item() == every.argmax()
        assert row["status"].item() == "every position"


@pytest.mark.parametrize("period", [1, 0.5, 2, 0.4, 3, 1.5, 7, 0.75])
def test_neighbours_that_are_equal_without_rounding_are_counted(period: float) -> None:
    # Sines of whole turns differ in float64 and float32: by errors of 1e-16.
    start, length = 2047, 61
    tables = tables_of(
        period=period,
        length=length,
        offset=start,
        schemes=("single",),
        components=("cos", "sin", "pair"),
    )

    # The angles as fractions of a turn, or those of their mirror images.
    turns = [Fraction(start + m) / Fraction(str(period)) % 1 for m in range(length)]
    exact = {
        "cos": [min(turn, 1 - turn) for turn in turns],
        "sin": [min(turn, (Fraction(1, 2) - turn) % 1) for turn in turns],
        "pair": turns,
    }
    counts = {
        name: sum(a == b for a, b in pairwise(values)) for name, values in exact.items()
    }
    resolution = tables["resolution"]
    for row in resolution[resolution["format"] != "float64"].to_dict("records"):
        if row["format"] == "float32" or counts[row["component"]] == length - 1:
            assert row["adjacent_collisions"] == counts[row["component"]], row
        assert row["adjacent_collisions"] >= counts[row["component"]], row

    collisions = tables["collisions"]
    sums = collisions.groupby(["format", "component"])["adjacent_collisions"].sum()
    whole = resolution.set_index(["format", "component"])["adjacent_collisions"]
    assert sums.to_dict() == whole.to_dict()
    keeps = tables["pairs"]["equal_neighbours"].unique().tolist()
    assert keeps == [float(counts["pair"] > 0)]


def test_frequencies_of_fewer_bits_than_were_measured_are_not_called_precise_enough():
    answer = ropelab.precision(formats="float8_e4m3fn", length=64, schemes="").answer
    assert "another rotation, with which no model was measured" in answer
    assert "inv_freq rounded, scores" not in answer
    measured = ropelab.precision(formats="bfloat16", length=64, schemes="").answer
    assert "no model was measured" not in measured


# One rotation, written as a partly rotated head and as a method with frequencies of 0:
# 1e16^(-2i/256) is 1e4^(-2i/64).
PARTLY_ROTATED: dict[str, Any] = {"head_dim": 256, "rotary_dim": 64, "base": 1e4}
WITH_ZEROS: dict[str, Any] = {
    "head_dim": 256,
    "method": "p_rope(p=0.25)",
    "base": 1e16,
}
# The columns whose unit is the deviation of a score, by table.
OF_SCORES = {
    "casts": ["rms_score_error", "score_spread", "spread_ci_low", "spread_ci_high"],
    "spread": ["score_spread"],
    "limits": ["score_step", "weight_change"],
    "score_margin": ["score_step", "rounding", "unchanged_fraction"],
    "scores": ["median_step_ulp", "unchanged_fraction"],
    "drift": ["rms_score_change"],
    "neighbours": ["equal_neighbours"],
}


def test_unrotated_features_count_in_scores_however_the_rotation_is_written() -> None:
    values: dict[str, Any] = {"length": 64, "formats": "bfloat16", "schemes": "rope"}
    partly = tables_of(**values, **PARTLY_ROTATED)
    with_zeros = tables_of(**values, **WITH_ZEROS)
    for name, columns in OF_SCORES.items():
        # Sums in another order may be rounded to another bfloat16.
        np.testing.assert_allclose(
            partly[name][columns], with_zeros[name][columns], rtol=1e-3, atol=1e-9
        )

    # The rotated part alone has a quarter of the features, and twice these values.
    alone = tables_of(**values, head_dim=64, base=1e4, components="")
    angle = "name == 'angle=bfloat16'"
    spreads = [
        tables["casts"].query(angle)["score_spread"].item()
        for tables in (alone, partly)
    ]
    assert spreads[0] == pytest.approx(2 * spreads[1])
    steps = [tables["limits"]["score_step"].iloc[0] for tables in (alone, partly)]
    assert steps[0] == pytest.approx(2 * steps[1])


def test_the_step_of_a_partly_rotated_head_is_that_of_drawn_vectors() -> None:
    values: dict[str, Any] = {"length": 64, "formats": "bfloat16", "schemes": "rope"}
    values |= {"components": "", "cast": "angle=bfloat16"}
    step = tables_of(**values, **PARTLY_ROTATED)["limits"]
    random = np.random.default_rng(0)
    queries, keys = random.standard_normal((2, 4000, 256))
    theta = 1e4 ** (-np.arange(0, 64, 2) / 64)

    def score(distance: int) -> np.ndarray:
        first, second = queries[:, :32], queries[:, 32:64]
        cos, sin = np.cos(distance * theta), np.sin(distance * theta)
        rotated = [first * cos - second * sin, first * sin + second * cos]
        whole = np.concatenate((*rotated, queries[:, 64:]), axis=1)
        return (whole * keys).sum(1) / 16

    assert score(9).std() == pytest.approx(1, rel=0.05)
    drawn = math.sqrt(((score(9) - score(8)) ** 2).mean())
    assert step["score_step"].iloc[0] == pytest.approx(drawn, rel=0.05)


def test_stored_keys_of_a_partly_rotated_head_are_whole_keys() -> None:
    values: dict[str, Any] = {"length": 64, "schemes": "", "cast": "angle=bfloat16"}
    values |= {"cache": "q8_0"}
    partly = tables_of(**values, **PARTLY_ROTATED)["keys"]
    with_zeros = tables_of(**values, **WITH_ZEROS)["keys"]
    pd.testing.assert_frame_equal(partly, with_zeros)
    # 24 rotated features have no blocks of 32, but the head of 96 that is stored has.
    body.check(config_of(**values, head_dim=96, rotary_dim=24))


def test_old_cells_of_partly_rotated_heads_alone_are_not_reused() -> None:
    values: dict[str, Any] = {"cast": "angle=bfloat16", "against": "float32"}
    values |= {"cache": "q8_0", "schemes": ""}
    whole, partly = (
        {cell.kind: cell.version for cell in body.cells(config_of(**values, **head))}
        for head in ({"rotary_dim": 64}, {"rotary_dim": 32})
    )
    raised = {kind for kind in whole if partly[kind] != whole[kind]}
    of_scores = {"precision-casts", "precision-drift", "precision-against"}
    assert raised == of_scores | {"precision-keys"}
    # Of the encodings only those of RoPE depend on the head.
    versions = [
        [cell.version for cell in make_encoding_cells(config_of(rotary_dim=width))]
        for width in (64, 32)
    ]
    assert versions == [[5, 5], [5, 6]]


@pytest.mark.parametrize(
    "formats",
    ["float32,float16,bfloat16", "bf16,fp32,fp16", ["float16", "float32", "bfloat16"]],
)
def test_formats_that_are_typed_are_the_only_ones_in_any_order(formats: Any) -> None:
    config = config_of(formats=formats)
    stages_of_run = [entry for entry in list_entries(config) if entry.kind == "stage"]
    assert len(stages_of_run) == 3 * 6
    assert {entry.format for entry in stages_of_run} == set(config.formats)
    assert set(config.formats) == {"float32", "float16", "bfloat16"}


def test_every_format_that_is_typed_is_judged_alike_in_any_order() -> None:
    orders = ("float32,float16,bfloat16", "bfloat16,float16,float32")
    verdicts = []
    for formats in orders:
        values: dict[str, Any] = {"formats": formats, "length": 512, "schemes": ""}
        tables = tables_of(**values)
        verdicts.append(body.answer(tables))
        # The short table shows them in the order in which they were typed.
        short = body.summary(tables)
        spreads = [f"{name} score_spread" for name in formats.split(",")]
        assert list(short.columns[1:4]) == spreads
    assert verdicts[0] == verdicts[1]
    assert mentions(verdicts[0], "float32 is precise enough", "at every stage")
    for name in ("float16", "bfloat16"):
        assert f"{name} is precise enough for RoPE unless" in verdicts[0]
        assert f"to {name} makes a score vary" in verdicts[0]


def test_six_formats_that_are_typed_are_judged_and_shown_all() -> None:
    values: dict[str, Any] = {"formats": STAGE_FORMATS, "length": 64, "schemes": ""}
    tables = tables_of(**values)
    assert choose_formats(tables) == list(STAGE_FORMATS)
    text = body.answer(tables)
    for name in STAGE_FORMATS:
        verdict = re.compile(
            rf"\b{name} is (not )?precise enough for RoPE", re.IGNORECASE
        )
        assert verdict.search(text), name


def test_without_formats_one_is_judged_and_a_stored_run_is_read_as_it_was() -> None:
    untyped = config_of()
    assert untyped == config_of(formats=["float32", "float16", "bfloat16"])
    assert not untyped.only_formats
    assert "only_formats" not in untyped.model_dump(mode="json")
    rounded = {entry.format for entry in list_entries(untyped)}
    assert rounded == set(STAGE_FORMATS)

    # A typed run has another name, and asks for itself again.
    typed = config_of(formats="float32,float16,bfloat16")
    assert typed.model_dump(mode="json")["only_formats"]
    assert config_of(**typed.model_dump(exclude_none=True)) == typed
    named = body.suggest_command(typed, {})
    assert "--preset all" in named
    assert "--only-formats" not in named
