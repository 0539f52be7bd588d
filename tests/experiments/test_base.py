"""The base experiment: its tables say what the mathematics says, and bad input gets one
line.
"""

import math
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib import pyplot as plt

from ropelab.experiments.base import BaseConfig
from ropelab.experiments.base.bound import (
    cells,
    list_lengths,
    make_similarity,
    round_up,
)
from ropelab.experiments.base.results import (
    answer,
    check,
    make_fits_table,
    suggest_command,
    summary,
)
from ropelab.experiments.base.results import tables as tables_of
from ropelab.experiments.base.theories import find_blind_base
from ropelab.lab import run as run_by_name
from ropelab.math.bounds import Similarity, find_first_negative
from ropelab.math.bounds.published import CONTEXTS, MEN, SU, judge
from ropelab.math.frequencies import Geometry
from ropelab.math.methods import parse_scaling
from ropelab.math.numerics.formats import format_named
from ropelab.runs.cell import Values, hash_cell
from ropelab.runs.config import build
from ropelab.runs.errors import InputError
from ropelab.show.figures.base import draw
from tests.texts import mentions


def config_of(**values: Any) -> BaseConfig:
    return build(BaseConfig, values)


def run(**values: Any) -> dict[str, pd.DataFrame]:
    return tables_of(config_of(**values), Values())


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return run(context=("1k", "2k", "4k"), base=1e4, train_len="1k")


def test_bound_has_the_columns_that_scripts_read(tables):
    assert list(tables["bound"].columns)[:5] == [
        "context_tokens",
        "head_dim",
        "rotary_dim",
        "rotating_pairs",
        "recommended_base",
    ]
    assert list(tables["windows"].columns) == ["context_tokens", "low", "high"]
    assert tables["bound"]["context_tokens"].tolist() == [1024, 2048, 4096]
    assert tables["bound"]["certified"].all()


def test_bound_is_that_of_the_literature(tables):
    first = tables["bound"]["smallest_admissible_base"].tolist()
    assert first == pytest.approx([4293.44, 11587.2, 26952.3], rel=1e-5)
    assert tables["bound"]["stable_base"].iloc[0] == pytest.approx(6018.28, abs=0.01)


def test_windows_end_in_one_without_end(tables):
    windows = tables["windows"]
    for context in (1024, 2048, 4096):
        part = windows[windows["context_tokens"] == context]
        assert part["high"].isna().tolist() == [False] * (len(part) - 1) + [True]
        assert (part["low"].to_numpy()[1:] > part["high"].to_numpy()[:-1]).all()


def test_the_given_base_is_judged(tables):
    given = tables["given_base"]
    assert given["admissible"].tolist() == [True, False, False]
    assert math.isnan(given["first_failing_position_tokens"].iloc[0])
    assert given["first_failing_position_tokens"].tolist()[1:] == [1707, 1707]
    assert given["lowest_sum"].iloc[0] > 0 > given["lowest_sum"].iloc[1]


def test_theories_are_judged_by_the_exact_bound(tables):
    table = tables["theories"]
    at_4k = table[table["context_tokens"] == 4096].set_index("theory")
    assert at_4k.loc["smallest admissible base", "verdict"] == "admissible"
    assert at_4k.loc["asymptote", "verdict"] == "below the bound"
    assert (
        at_4k.loc["every pair completes a rotation", "verdict"]
        == "contradicts the bound"
    )
    assert at_4k.loc["NTK-aware", "base"] == pytest.approx(1e4 * 4 ** (128 / 126))
    assert (table["source"] != "").all()
    at_1k = table[table["context_tokens"] == 1024]["theory"].tolist()
    assert "NTK-aware" not in at_1k  # nothing to extend inside the trained length


def test_theories_of_phase_modulation_are_judged_too():
    found = run(context=(4096,), windows_up_to=0, layers=8, coherence=0.5)["theories"]
    table = found.set_index("theory")
    assert table.loc["aliasing bound", "base"] == pytest.approx(4096 / (2 * math.pi))
    assert table.loc["DC stability, 1 layer", "base"] == pytest.approx(
        4096 / (math.pi / 3)
    )
    deep = 4096 / math.acos(0.5 ** (1 / 8))
    assert table.loc["DC stability, 8 layers", "base"] == pytest.approx(deep)
    assert table.loc["DC stability, 8 layers", "verdict"] == "below the bound"
    assumed = str(table.loc["DC stability, 8 layers", "assumes"])
    assert mentions(assumed, "cosine 0.5", "d to inf")
    assert table.loc["float32: base below 1/eps", "base"] == 2.0**23
    assert table.loc["float32: base below 1/eps", "verdict"] == "leaves room"
    # bfloat16 would allow bases below 128.
    assert table.loc["bfloat16: base below 1/eps", "verdict"] == "contradicts the bound"
    of_one = run(context=(64,), layers=1)["theories"]["theory"]
    assert (of_one.str.startswith("DC stability")).sum() == 1


def count_pairs_of_given_base(**values: Any) -> dict[str, int]:
    coverage = run(**values)["coverage"]
    (row,) = coverage[coverage["which"] == "given base"].to_dict("records")
    return {str(key): value for key, value in row.items() if "pairs" in str(key)}


@pytest.mark.parametrize(
    ("method", "fields", "head_dim"),
    [
        ("p_rope(p=0.5)", {"kept": 0.5}, 64),
        ("p_rope(p=0.25)", {"kept": 0.25}, 128),
        ("without(band=slow)", {"dropped": tuple(range(32, 48))}, 96),
    ],
)
def test_pairs_at_rest_are_counted_alike_by_method_and_by_field(
    method: str, fields: dict[str, Any], head_dim: int
) -> None:
    about: dict[str, Any] = {
        "base": 1e4,
        "head_dim": head_dim,
        "context": (512,),
        "train_len": 256,
    }
    by_method = count_pairs_of_given_base(**about, method=method)
    by_field = count_pairs_of_given_base(**about, **fields)
    assert by_field["pairs_not_rotating"] > 0
    assert by_method == by_field


def test_a_method_after_training_leaves_the_coverage(tables):
    plain = count_pairs_of_given_base(base=1e4, context=(512,))
    scaled = count_pairs_of_given_base(
        base=1e4, context=(512,), method="yarn(factor=4)"
    )
    assert scaled == plain


def test_coverage_counts_every_pair(tables):
    coverage = tables["coverage"]
    counts = coverage.filter(like="pairs_").sum(axis=1)
    assert (counts == 64).all()
    assert coverage["which"].tolist()[:2] == ["trained base", "given base"]


def test_published_values_at_1k_to_4k(tables):
    published = tables["published"]
    assert published["verdict"].tolist() == ["agrees", "loose", "agrees"]
    assert published["su_verdict"].tolist() == ["agrees"] * 3
    names = ["exact values", "recommended bases", "paper values", "printed fit"]
    assert tables["fits"]["values"].tolist() == names
    assert len(CONTEXTS) == len(MEN) == len(SU) == 11


def test_longer_contexts_than_the_paper_has_get_a_fit_of_their_own():
    rows = [(context, 128, 64, 2.0 * context) for context in (*CONTEXTS, 2**21)]
    names = ["context_tokens", "head_dim", "rotating_pairs", "smallest_admissible_base"]
    bound = pd.DataFrame(rows, columns=names)
    bound["recommended_base"] = 3.0 * bound["context_tokens"] ** 2
    table = judge(bound.head(3))
    assert table["context_tokens"].tolist() == [1024, 2048, 4096]
    fitted = make_fits_table(bound, table).set_index("values")
    assert fitted.loc["exact values", "contexts"] == 12
    assert fitted.loc["exact values of its contexts", "contexts"] == 3
    assert fitted.loc["exact values of its contexts", "exponent"] == pytest.approx(1)
    assert fitted.loc["recommended bases", "exponent"] == pytest.approx(2)
    assert fitted.loc["recommended bases", "standard_error"] == pytest.approx(
        0, abs=1e-12
    )


def test_bases_in_the_answer_are_as_people_type_them(tables):
    bound = tables["bound"].tail(1).assign(recommended_base=3.4e6)
    text = (
        "Base 3.4e6 and every larger one keep the sum of cosines at or above 0, by"
        " proof ("
    )
    assert answer({**tables, "bound": bound}).startswith(text)


def test_a_context_without_a_stable_base_hands_on_where_it_ended():
    bound = run(context=(32, 64), head_dim=4, train_len=32)["bound"]
    alone = run(context=64, head_dim=4, train_len=32)["bound"]
    assert bound["stable_base"].isna().all()
    first, same = (each["smallest_admissible_base"].iloc[-1] for each in (bound, alone))
    assert first == pytest.approx(same, rel=1e-10)


def test_answer_and_summary(tables):
    text = answer(tables)
    assert mentions(text, "Base 59000", "every larger one", 4096, 128)
    assert mentions(text, "smallest admissible base", 26952.4)
    assert mentions(text, "another question")
    assert mentions(text, "context^(1.64 ± 0.16)")
    assert mentions(text, "fails first", 1707)
    assert len(summary(tables)) == 3


def list_drawn(table: pd.DataFrame) -> list[str]:
    """The rows of the figure of theories, from the top."""
    (ax,) = draw({**run(context=(128,), windows_up_to=0), "theories": table})[
        "theories"
    ].axes
    return [label.get_text() for label in ax.get_yticklabels()]


def list_theories(*rows: tuple[str, str, float]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["theory", "kind", "base"])
    return table.assign(context_tokens=128)


def test_of_variants_of_a_theory_one_is_drawn():
    table = list_theories(
        ("recommended base", "at least", 300.0),
        ("stable base", "at least", 299.0),
        ("DC stability, 1 layer", "at least", 20.0),
        ("DC stability, 32 layers", "at least", 90.0),
        ("float16: base below 1/eps", "at most", 1024.0),
        ("bfloat16: base below 1/eps", "at most", 128.0),
        ("float32: slowest cosine moves", "at most", 60.0),
        ("float32: slowest cosine and sine moves", "at most", 60.0),
        ("small base 2T/pi", "small", 80.0),
        ("small base T/pi", "small", 40.0),
        ("NTK-aware", "use", 50.0),
        ("aliasing bound", "at least", math.nan),
    )
    assert list_drawn(table) == [
        "recommended base (computed here)",
        "slowest cosine ≥ 0.9, 32 layers (Liu 2026)",
        "NTK-aware (Peng 2023)",
        "bfloat16 tells cosines from 1 (Liu 2026)",
        "slowest cosine moves in float32",
        "small base (Liu 2023)",
    ]


@pytest.mark.parametrize(("allowed", "contradicts"), [(299.0, True), (301.0, False)])
def test_the_title_says_whether_theories_contradict_each_other(allowed, contradicts):
    tables = run(context=(128,), windows_up_to=0)
    tables["theories"] = list_theories(
        ("recommended base", "at least", 300.0),
        ("every pair completes a rotation", "at most", allowed),
    )
    title = draw(tables)["theories"].get_suptitle()
    assert ("No base" in title) == contradicts


def test_one_context_shows_the_theories():
    tables = run(context=(128,), train_base=1000, train_len=64)
    shown = summary(tables)
    assert "theory" in shown.columns
    assert len(shown) <= 12


def test_windows_are_searched_up_to_a_length_only():
    bound = run(context=(128, 256, 512), windows_up_to=128)["bound"]
    assert bound["status"].tolist() == ["all windows", *["first and last window"] * 2]
    everything = run(context=(128, 256, 512))["bound"]
    np.testing.assert_allclose(
        bound["stable_base"], everything["stable_base"], rtol=1e-9
    )
    assert bound["recommended_base"].tolist() == everything["recommended_base"].tolist()


def test_of_a_head_with_few_pairs_the_first_and_the_last_window_are_searched():
    tables = run(context=(128,), head_dim=12)
    assert tables["bound"]["status"].tolist() == ["first and last window"]
    assert tables["windows"]["high"].isna().tolist() == [False, True]
    assert "windows" not in draw(tables)
    plt.close("all")


def test_windows_without_a_stable_base_are_drawn():
    tables = run(context=(16,), head_dim=16)
    tables["bound"]["stable_base"] = math.nan
    assert "windows" in draw(tables)
    plt.close("all")


def test_no_base_serves_a_single_pair():
    tables = run(context=(64,), head_dim=2, train_len=32)
    assert tables["bound"]["status"].tolist() == ["no base is admissible"]
    assert "No base is admissible" in answer(tables)


def test_half_rotated_heads_take_every_base():
    tables = run(context=(32768,), head_dim=64, rotary_dim=32)
    assert tables["bound"]["smallest_admissible_base"].iloc[0] == 1
    assert tables["bound"]["stable_base"].iloc[0] == 1
    assert "Every base is admissible" in answer(tables)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (
            {"context": (2,), "head_dim": 64},
            "Every base is admissible for 2 tokens (heads of 64",
        ),
        ({"context": (64,), "head_dim": 2, "train_len": 32}, "No base is admissible"),
    ],
)
def test_a_base_that_is_given_is_judged_in_every_answer(values, says) -> None:
    fast = run(**values, base=10.0, method="one(period=2.5)")
    assert says in answer(fast)
    assert "do not rotate" not in answer(fast)
    assert mentions(answer(fast), "Base 10", "one(period=2.5)", "position 1.")
    assert suggest_command(config_of(**values), fast) == "ropelab base-empirical"


def test_a_model_fills_what_is_not_given():
    config = config_of(model="llama-3-8b")
    assert (config.base, config.train_base, config.train_len, config.context) == (
        5e5,
        5e5,
        8192,
        (8192,),
    )
    config = config_of(model="llama-3-8b", base=1e4, context=("2k",))
    assert (config.base, config.train_base, config.train_len, config.context) == (
        1e4,
        5e5,
        8192,
        (2048,),
    )
    assert make_similarity(config_of(model="gpt-neox-20b")) == Similarity.of_head(
        96, 24
    )


def test_the_extension_is_from_the_trained_length_to_the_tested_one():
    values = {"train_base": "500000", "train_len": "8k", "test_len": "16k"}
    assert build(BaseConfig, values).context == (16384,)
    theories = run(**values, windows_up_to=0)["theories"].set_index("theory")
    assert theories.loc["NTK-aware", "assumes"] == "500000 at 8192 tokens"
    assert theories.loc["NTK-aware", "base"] == pytest.approx(5e5 * 2 ** (128 / 126))


def test_a_usable_base_has_two_digits_and_all_above_it_work(tables):
    usable = tables["bound"]["recommended_base"].tolist()
    assert usable == [6100, 23000, 59000]
    for base, length in zip(usable, (1024, 2048, 4096), strict=True):
        for larger in np.geomspace(base, 100 * base, 40):
            assert find_first_negative(Similarity.of_head(128), larger, length) is None


def test_of_two_pairs_only_the_first_window_is_known():
    tables = run(context=(64,), head_dim=4, train_len=32)
    bound = tables["bound"].iloc[0]
    assert bound["status"] == "first window only"
    assert math.isnan(bound["stable_base"])
    assert math.isnan(bound["recommended_base"])
    assert mentions(answer(tables), "no stable base")


def test_the_usable_base_is_the_stable_one_rounded_up():
    bound = run(context=2**16, windows_up_to=0)["bound"].iloc[0]
    assert bound.stable_base == pytest.approx(14949413.9265, rel=1e-10)
    assert bound.recommended_base == round_up(bound.stable_base) == 1.5e7


# The most digits that every float64 gives back when it is written and read.
DIGITS_OF_FLOAT64 = 15


@given(st.floats(1.001, 1e300), st.integers(1, 17))
@example(base=6.813151601716114e299, digits=16)
def test_a_base_is_rounded_up_to_the_next_of_so_many_digits(base, digits):
    rounded = round_up(base, digits)
    assert rounded >= base
    if digits > DIGITS_OF_FLOAT64:
        # The float64 next to the decimal may be written as another decimal.
        assert rounded <= base * (1 + 10.0 ** (1 - digits)) + math.ulp(base)
        return
    # A number of so many digits, and the one below it is below the base.
    written = Decimal(f"{rounded:.{digits - 1}e}")
    assert float(written) == rounded >= base
    assert written.next_minus(Context(digits)) < Decimal(base)


@pytest.mark.slow
def test_a_scaling_method_is_judged_by_its_own_frequencies():
    values = {"model": "llama-3.1-8b", "windows_up_to": 0, "context": "32k"}
    scaled = run(**values)["given_base"].iloc[0]
    plain = run(**values, method="unscaled")["given_base"].iloc[0]
    assert (scaled["method"], plain["method"]) == ("llama3(factor=8)", "unscaled")
    inv_freq = (
        parse_scaling("llama3(factor=8)").plan(Geometry(128, 5e5, 8192), 32768).inv_freq
    )
    sums = np.cos(np.arange(32768.0)[:, None] * inv_freq).sum(1)
    assert scaled["lowest_sum"] == pytest.approx(sums.min(), abs=1e-4)
    assert scaled["admissible"] == (sums.min() >= 0)
    assert plain["first_failing_position_tokens"] == 18438


@pytest.mark.parametrize(("head_dim", "fails"), [(64, 18281), (80, 27128), (128, None)])
def test_the_base_for_heads_of_128_is_not_that_of_others(
    head_dim: int, fails: int | None
) -> None:
    assert find_first_negative(Similarity.of_head(head_dim), 3.4e6, 32768) == fails
    table = run(head_dim=head_dim, context="1k", windows_up_to=0)
    assert f"(1024 tokens, heads of {head_dim} features)." in answer(table)


def test_a_method_without_a_base_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"yarn\(factor=4\) is judged with a base: give one"
    ):
        check(config_of(method="yarn(factor=4)", context="4k"))


@pytest.mark.slow
def test_a_factor_that_is_not_given_comes_from_the_lengths() -> None:
    values: dict[str, Any] = {"base": 5e5, "method": "llama3", "context": "32k,64k"}
    found = run(**values, windows_up_to=0, train_len=8192)
    assert found["given_base"]["method"].tolist() == [
        "llama3(factor=4)",
        "llama3(factor=8)",
    ]
    assert found["given_base"]["factor_from"].tolist() == [
        "32768 / 8192 tokens",
        "65536 / 8192 tokens",
    ]
    assert mentions(answer(found), "llama3(factor=8)", "65536 / 8192 tokens")
    refused: tuple[dict[str, Any], ...] = ({}, {"train_len": "32k"})
    for more in refused:
        with pytest.raises(InputError, match="llama3 has no factor: write factor="):
            run_by_name("base", **values, **more)
    own = config_of(model="llama-3.1-8b", method="llama3")
    assert own.method == "llama3(factor=8)"


def test_the_search_climbs_through_halves():
    assert list_lengths((1024,)) == [64, 128, 256, 512, 1024]
    assert list_lengths((100, 48)) == [48, 50, 100]


def test_intermediate_contexts_do_not_change_the_bound():
    alone = run(context=700, head_dim=64, windows_up_to=0)["bound"]
    together = run(context=(300, 500, 700), head_dim=64, windows_up_to=500)["bound"]
    alone, together = (
        bound["smallest_admissible_base"].iloc[-1] for bound in (alone, together)
    )
    assert alone == pytest.approx(together, rel=1e-10)


def test_a_context_starts_from_the_one_before():
    first, second = cells(config_of(context=(300, 700)))
    assert (first.prerequisites, second.prerequisites) == ((), (first,))
    assert first.inputs["lengths"] == [37, 43, 75, 87, 150, 175, 300]
    assert second.inputs["lengths"] == [350, 700]
    (alone,) = cells(config_of(context=(300,)))
    assert hash_cell(alone) != hash_cell(first)  # it walks through other lengths
    assert hash_cell(cells(config_of(context=(256,)))[0]) == hash_cell(
        cells(config_of(context=(256, 512)))[0]
    )


def test_a_cell_depends_on_the_head_and_the_context_alone():
    others = {
        "model": "llama-3-8b", "base": 1e4, "method": "pi", "train_base": 1e5, "train_len": 8192,
        "test_len": 1024, "formats": ("float32",), "layers": 80, "coherence": 0.5,
    }  # fmt: skip
    plain = config_of(context=(512,), windows_up_to=1024)
    (cell,) = cells(plain)
    for name, value in others.items():
        assert hash_cell(cells(plain.replace(**{name: value}))[0]) == hash_cell(cell)
    own = {
        "context": (256,), "head_dim": 64, "rotary_dim": 64, "kept": 0.5, "dropped": (3,),
        "windows_up_to": 0,
    }  # fmt: skip
    names = {
        hash_cell(cells(plain.replace(**{name: value}))[0])
        for name, value in own.items()
    }
    assert len(names | {hash_cell(cell)}) == 1 + len(own)
    assert {*others, *own} == set(BaseConfig.model_fields)


def test_longer_contexts_need_more():
    sizes = [2**k for k in range(10, 20)]
    resources = [
        cells(config_of(context=(n,), windows_up_to=2**20))[0].resources for n in sizes
    ]
    assert sorted(resources, key=lambda each: each.seconds) == resources
    assert sorted(resources, key=lambda each: each.memory_bytes) == resources
    # A number is held for every token.
    more = resources[-1].memory_bytes - resources[-2].memory_bytes
    assert more >= 8 * (sizes[-1] - sizes[-2])


@pytest.mark.parametrize(
    ("values", "right"),
    [
        ({"head_dim": 32, "kept": 0.75}, (256 / math.tau) ** (32 / 22)),
        ({"head_dim": 32, "dropped": (13, 14, 15)}, (256 / math.tau) ** (32 / 24)),
        ({"head_dim": 32}, (256 / math.tau) ** (32 / 30)),
    ],
)
def test_pairs_that_stand_still_are_not_the_slowest(
    values: dict[str, Any], right: float
) -> None:
    theories = run(context=(256,), formats=("bfloat16",), **values)["theories"]
    bases = theories.set_index("theory")["base"]
    assert bases["every pair completes a rotation"] == pytest.approx(right)
    # The slowest cosine stops to move at a larger base if the slowest pairs stand still.
    whole = run(context=(256,), formats=("bfloat16",), head_dim=values["head_dim"])
    usual = whole["theories"].set_index("theory")["base"]
    key = "bfloat16: slowest cosine moves"
    assert (bases[key] > usual[key]) == (len(values) > 1)


def test_a_format_loses_the_cosine_before_the_sine():
    float32 = format_named("float32")
    cosine = find_blind_base("cosine", float32, 126 / 128, 4096)
    assert 1e5 < cosine < 1e7
    assert math.isnan(find_blind_base("cosine and sine", float32, 126 / 128, 4096))
    bfloat16 = format_named("bfloat16")
    assert find_blind_base("cosine", bfloat16, 126 / 128, 4096) < cosine


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"head_dim": 4, "context": "356"},
            "two pairs is searched up to 355 tokens only",
        ),
        ({"context": "1"}, "at least 2 tokens"),
        ({"context": ""}, "at least one value"),
        ({"context": "32q"}, "must be a number"),
        ({"head_dim": 7}, "even"),
        ({"head_dim": 0}, "greater than or equal to 2"),
        ({"rotary_dim": 256}, "rotary_dim 256 is wider than the head"),
        ({"base": 1}, "greater than 1"),
        ({"base": "nan"}, "must be a number"),
        ({"kept": 0}, "greater than 0"),
        ({"dropped": "64"}, "pairs are 0 to 63"),
        ({"train_base": 1}, "greater than 1"),
        ({"train_len": 6}, "greater than or equal to 7"),
        ({"test_len": 1}, "greater than or equal to 2"),
        ({"method": "yarm"}, "did you mean 'yarn'"),
        ({"formats": "float31"}, "did you mean 'float32'"),
        ({"model": "lama-2-7b"}, "did you mean 'llama-2-7b'"),
    ],
)
def test_bad_input_gets_one_line(values, message):
    with pytest.raises(InputError, match=message) as caught:
        run_by_name("base", **values)
    assert "\n" not in str(caught.value)


def test_the_smallest_base_in_the_answer_is_admissible(tables):
    bound = tables["bound"].assign(smallest_admissible_base=629978.2628, certified=True)
    window = {"context_tokens": 4096, "low": 629978.2628}
    wide, narrow = (
        pd.DataFrame([{**window, "high": high}]) for high in (630983.6, 629978.9)
    )
    # At 629978 the sum is negative.
    text = answer({**tables, "bound": bound, "windows": wide})
    assert mentions(text, "smallest admissible base", 629979, 630984)
    text = answer({**tables, "bound": bound, "windows": narrow})
    assert mentions(text, 629978.3, 629979)


@pytest.mark.parametrize(
    ("given", "said"), [(1000001.0, "1000001"), (123456.75, "123456.75")]
)
def test_the_base_in_the_answer_is_the_one_that_was_judged(given, said):
    assert f"Base {said} is" in answer(
        run(context=(64,), head_dim=8, train_len=32, base=given)
    )


@pytest.mark.parametrize(
    ("values", "verdicts"),
    [
        ({"context": (50,), "head_dim": 16, "rotary_dim": 6}, {"every base"}),
        ({"context": (3,), "head_dim": 4}, {"none found", "admissible"}),
        ({"context": (10,), "head_dim": 2}, {"no such base"}),
        # A search that ends at the largest number of float64 had "none found" here.
        ({"context": (2,), "head_dim": 2}, {"every base"}),
        ({"context": (2,), "head_dim": 4}, {"every base"}),
    ],
)
def test_the_verdict_on_a_base_is_that_of_the_answer(
    values: dict[str, Any], verdicts: set[str]
) -> None:
    # Each of the first two had "no such base" beside "Every base is admissible" and
    # beside a search that found none.
    theories = run(**values)["theories"]
    assert set(theories["verdict"][:3]) == verdicts
    # Where no base is admissible there are no windows with a gap between them.
    if math.isnan(theories["times_exact"].max()):
        assert set(theories["verdict"]) == {"no such base", "no admissible base"}
