"""Every method by name: one parser wherever it is typed, and a table that says what it
is.
"""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields

import numpy as np
import pytest

import ropelab
from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.math.frequencies import Geometry, rotations
from ropelab.math.methods import ALIASES, FREQUENCY_METHODS, parse_scaling
from ropelab.math.scaling import LongRope, Scaling
from ropelab.models.encoding.rope import Rope
from ropelab.models.methods.method import FixedMethod, Method, Scaled
from ropelab.models.methods.registry import (
    METHODS,
    find_method_class,
    make_catalogue,
    parse_method,
    parse_methods,
    suggest_use,
)
from ropelab.models.methods.search import LongRopeSearch
from ropelab.runs.config import build
from ropelab.runs.errors import InputError

GEOMETRY = Geometry(16, 10000.0, 64)

# A row per method that is more than a change of frequencies: typed, as its label, its
# encoding.
MORE = [
    ("log_n", "log_n", "LogN"),
    ("log_n(inner=yarn(beta_fast=8))", "log_n(inner=yarn(beta_fast=8))", "LogN"),
    ("rerope", "rerope(window=32)", "ReRope"),
    ("self_extend", "self_extend(window=32, group=7)", "SelfExtend"),
    ("self_extend(group=9)", "self_extend(window=32, group=9)", "SelfExtend"),
    ("dual_chunk", "dual_chunk(chunk=48)", "DualChunk"),
    ("string", "string(shift=21, window=5)", "Shifted"),
    ("string(shift=32, window=8)", "string(shift=32, window=8)", "Shifted"),
    ("drope(sharpen=0.4)", "drope(sharpen=0.4)", "Dropped"),
]


def labels(*texts: str) -> list[tuple[str, float]]:
    return [
        (method.label, method.factor) for method in parse_methods(texts, GEOMETRY, 256)
    ]


def parsed(text: str) -> FixedMethod:
    (method,) = parse_methods([text], GEOMETRY, 256)
    assert isinstance(method, FixedMethod)
    return method


@pytest.mark.parametrize("name", METHODS)
def test_a_class_declares_what_the_registry_and_the_table_say(name: str) -> None:
    method = find_method_class(name)
    assert method.name == name
    assert method.source
    has_factor = "factor" in [knob.name for knob in fields(method)]
    assert has_factor == bool(method.factor_means)
    assert issubclass(method, Scaling) == (name in FREQUENCY_METHODS)
    assert has_factor or not method.default_factors


def test_the_table_lists_every_method_with_knobs_factor_source_and_place() -> None:
    table = ropelab.methods().set_index("method")
    assert list(table.index) == list(METHODS)
    assert table.loc["rerope", ["parameters", "acts_on", "usable_in"]].tolist() == [
        "window=...", "attention", "extrapolate, evaluate",
    ]  # fmt: skip
    assert table.loc["yarn", "parameters"].startswith(
        "factor=..., beta_fast=32, beta_slow=1"
    )
    assert table.loc["dynamic_ntk", "parameters"] == "factor=1"
    assert "freqs" in table.loc["yarn", "usable_in"]
    assert table.loc["drope", "usable_in"] == "extrapolate"
    assert set(", ".join(table["aliases"]).replace(",", " ").split()) == set(ALIASES)


@pytest.mark.parametrize(("text", "label", "encoding"), MORE)
def test_methods_of_attention_are_read_with_their_knobs(
    text: str, label: str, encoding: str
) -> None:
    method = parsed(text)
    assert method.label == label
    assert method.encoding(GEOMETRY, 256).name == encoding
    assert parse_method(method.label, 4.0).resolve(GEOMETRY, 256) == method


def test_factors_default_to_the_reach_and_ntk_is_tried_at_twice_that() -> None:
    found = labels(
        "unscaled", "ntk", "yarn", "yarn(factor=8)", "yarn", "log_n(inner=ntk)"
    )
    assert found == [
        ("unscaled", 1), ("ntk", 4), ("ntk", 8), ("yarn", 4), ("yarn", 8), ("log_n(inner=ntk)", 4),
    ]  # fmt: skip


def test_two_methods_that_tables_cannot_tell_apart_are_refused() -> None:
    with pytest.raises(InputError, match="two methods are yarn ×2 in tables"):
        labels("yarn(factor=2)", "yarn(factor=2.0000001)")


def test_dynamic_ntk_has_the_factor_of_its_source_unless_another_is_typed() -> None:
    assert labels("dynamic_ntk", "dynamic_ntk(factor=4)") == [
        ("dynamic_ntk", 1),
        ("dynamic_ntk", 4),
    ]
    encoding = parsed("dynamic_ntk").encoding(GEOMETRY, 192)
    assert isinstance(encoding, Rope)
    assert encoding.plan.stretch == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dual_chunk(chunk=64)", "chunk must be below the trained length 64, not 64"),
        ("string(window=30)", "window 30 must not be longer than shift 21"),
    ],
)
def test_sizes_that_do_not_fit_the_model_are_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parsed(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("yarm", "unknown method 'yarm'; did you mean 'yarn'"),
        ("rerop", "unknown method 'rerop'; did you mean 'rerope'"),
        ("yarn(beta=3)", "unknown yarn parameter 'beta'"),
        ("rerope(windw=3)", "unknown rerope parameter 'windw'; did you mean 'window'"),
        ("dual_chunk(chunk=0)", "chunk must be a whole number of at least 1, not 0"),
        ("self_extend(group=0)", "group must be a whole number of at least 1, not 0"),
        ("self_extend(group=1.5)", "group must be a whole number, not '1.5'"),
        ("drope(sharpen=much)", "drope: sharpen must be a number, not 'much'"),
        ("drope(sharpen=-1)", "drope: sharpen must be at least 0, not -1"),
        (
            "log_n(inner=longrope_search)",
            "inner must need no search, which longrope_search does",
        ),
        ("longrope", "needs long_factor.*longrope_search finds one"),
        ("longrope_search(budget=0)", "budget must be a whole number of at least 1"),
        ("longrope(long_factor=[1, 2])", "2 numbers for 8 pairs"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        parse_methods([text], GEOMETRY, 256)
    assert "\n" not in str(refusal.value)


def test_what_acts_on_attention_is_no_change_of_frequencies() -> None:
    with pytest.raises(InputError, match="rerope is not a change of frequencies alone"):
        parse_scaling("rerope")


def test_longrope_is_given_or_searched_by_name() -> None:
    given = "longrope(long_factor=[1,1,1,1,2,2,4,4])"
    methods = parse_methods(["longrope_search(budget=7)", given], GEOMETRY, 256)
    assert [type(method).__name__ for method in methods] == ["LongRopeSearch", "Scaled"]
    asked: list[FixedMethod] = []

    def loss_under(method: FixedMethod) -> float:
        asked.append(method)
        return float(len(asked))

    found = methods[0].search(GEOMETRY, loss_under)
    assert len(asked) == 7
    assert found == asked[0]


def test_a_static_method_needs_one_pass_and_a_dynamic_one_a_pass_per_length() -> None:
    ends = [32, 64, 128, 256]
    static, dynamic = parsed("yarn"), parsed("dynamic_ntk")
    assert [group for _, group in static.passes(GEOMETRY, ends)] == [ends]
    assert [group for _, group in dynamic.passes(GEOMETRY, ends)] == [
        [32, 64],
        [128],
        [256],
    ]


@pytest.mark.processes
def test_frequencies_are_read_without_torch() -> None:
    code = (
        "import sys; from ropelab.math.methods import parse_scaling\n"
        "parse_scaling('resonance(inner=yarn(factor=8))')\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Searching


def best_factors(
    loss: Callable[[LongRope], float], budget: int, beyond_critical: bool = False
) -> LongRope:
    def scaling_of(method: Method) -> LongRope:
        assert isinstance(method, Scaled)
        assert isinstance(method.scaling, LongRope)
        return method.scaling

    search = LongRopeSearch(factor=4.0, budget=budget, beyond_critical=beyond_critical)
    return scaling_of(search.search(GEOMETRY, lambda method: loss(scaling_of(method))))


def test_the_search_finds_a_hidden_optimum_and_never_gets_worse() -> None:
    target = np.exp(np.linspace(0, np.log(6), 8))

    def distance(scaling: LongRope) -> float:
        return float(np.abs(np.log(np.array(scaling.long_factor) / target)).mean())

    best = [distance(best_factors(distance, budget)) for budget in (4, 40, 300)]
    assert best == sorted(best, reverse=True)
    assert best[-1] < 0.5 * best[0]
    found = best_factors(distance, 300)
    assert list(found.long_factor) == sorted(found.long_factor)
    assert found.long_factor[0] >= 1
    assert found.long_factor[-1] <= 8 * (1 + 1e-12)


def test_beyond_the_critical_pair_means_that_pairs_with_a_whole_turn_are_kept() -> None:
    found = best_factors(lambda s: -sum(s.long_factor), 50, beyond_critical=True)
    turning = rotations(GEOMETRY.inv_freq, GEOMETRY.trained_len) >= 1
    factors = np.array(found.long_factor)
    assert (factors[turning] == 1).all()
    assert (factors[~turning] > 1).any()


def test_the_command_that_is_suggested_takes_the_method() -> None:
    suggested = {name: suggest_use(name) for name in make_catalogue()["method"]}
    assert suggested["yarn"] == "ropelab freqs --method yarn"
    assert suggested["log_n"] == "ropelab extrapolate --methods log_n,yarn --quick"
    needing = {name for name, command in suggested.items() if not command}
    assert needing == {"longrope", "one", "spaced", "without"}
    for name, command in suggested.items():
        if command.startswith("ropelab freqs"):
            ropelab.freqs(method=name)
        elif command:
            build(ExtrapolateConfig, {"methods": f"{name},yarn"})


def test_the_table_of_methods_has_whole_sentences() -> None:
    for sentence in make_catalogue()["does"]:
        assert sentence.endswith("."), sentence


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("yarn", [("yarn", 3.0)]),
        ("ntk", [("ntk", 3.0)]),
        ("yarn(factor=8)", [("yarn", 8.0)]),
        ("unscaled", [("unscaled", 1.0)]),
        ("log_n(inner=yarn)", [("log_n(inner=yarn)", 3.0)]),
    ],
)
def test_one_factor_is_that_of_all_methods_which_name_none(text, labels):
    geometry = Geometry(8, 1e4, 64)
    parsed = parse_methods([text], geometry, 256, factor=3.0)
    assert [(method.label, method.factor) for method in parsed] == labels
