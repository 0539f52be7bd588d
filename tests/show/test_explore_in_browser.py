"""The page of sliders computes what the package computes, and follows what is set on
it.
"""

import json
import math
import re
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ropelab.math.bounds import Similarity
from ropelab.math.frequencies import (
    Geometry,
    inverse_frequencies,
    rotations,
    wavelengths,
)
from ropelab.math.methods import FREQUENCY_METHODS, parse_scaling
from ropelab.math.numerics.casts import parse_cast
from ropelab.math.numerics.chain import Chain, Spectrum
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.show.page import explore
from ropelab.show.page.explore import NOT_HERE, TOLERANCE, write_explore
from tests.texts import mentions

pytestmark = pytest.mark.browser

PARAMETERS = {
    "pi": "factor={f}",
    "ntk": "factor={f}",
    "dynamic_ntk": "factor={f}",
    "ntk_by_parts": "factor={f}, alpha=1.5, beta=20",
    "yarn": "factor={f}, beta_fast=24, beta_slow=1.5",
    "yarn_paper": "factor={f}",
    "mrrope": "factor={f}, beta_fast=24, beta_slow=1.5",
    "llama3": "factor={f}, low_freq_factor=1, high_freq_factor=4",
    "proportional": "factor={f}, p=0.4",
    "p_rope": "p=0.6",
    "clipped": "n=5",
    "abf": "base=500000",
}
MORE = (
    "yarn(factor=4, truncate=false)",
    "yarn(factor=4, mscale=0.7, mscale_all_dim=1)",
    "yarn(factor=4, attention_factor=1)",
    "yarn_paper(factor=4, attention_factor=1.5)",
    "clipped",
    "clipped(n=1)",
    "yarn(factor=1)",
    "yarn(factor=1, attention_factor=1.5)",
    "yarn_paper(factor=1)",
    "yarn_paper(factor=1, attention_factor=1.5)",
    "yarn(factor=4, beta_fast=1, beta_slow=1)",
    "mrrope(factor=4, uniform=true)",
    "mrrope(factor=4, truncate=false)",
    "mrrope(factor=4, beta_fast=1, beta_slow=1)",
    "dynamic_yarn(beta_fast=2, beta_slow=2)",
    "llama3(factor=8, low_freq_factor=1, high_freq_factor=1)",
)
NAMES = sorted(set(FREQUENCY_METHODS) - NOT_HERE)


def vector(values):
    """Numbers as the package computes with them."""
    return np.array([float(value) for value in values])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """The page."""
    return write_explore(tmp_path_factory.mktemp("explore") / "explore.html")


@pytest.fixture(scope="module")
def page(browser, path):
    """The page, opened once for all computations."""
    context = browser.new_context(offline=True)
    opened = context.new_page()
    opened.goto(path.as_uri())
    yield opened
    context.close()


def parameters_of(method):
    """A method's parameters as the script takes them."""
    return {
        each.name: getattr(method, each.name)
        for each in fields(method)
        if each.name != "inner"
    }


def check_plan(page, text, geometry, length):
    method = parse_scaling(text)
    plan = method.plan(geometry, length)
    found = page.evaluate(
        "([geometry, name, parameters, length]) => planOf(geometry, name, parameters,"
        " length)",
        [
            {
                "rotaryDim": geometry.rotary_dim,
                "base": geometry.base,
                "trained": geometry.trained_len,
            },
            method.name,
            parameters_of(method),
            length,
        ],
    )
    assert np.allclose(found["theta"], plan.inv_freq, rtol=1e-11, atol=0)
    assert found["attention"] == pytest.approx(plan.attention_factor, rel=1e-13)


quick = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
bases = st.floats(50, 1e8)
widths = st.integers(2, 128).map(lambda pairs: 2 * pairs)


def test_the_page_has_every_method_but_those_of_lists(page):
    assert sorted(page.evaluate("Object.keys(METHODS)")) == NAMES
    options = page.locator("#set-method option").all_inner_texts()
    assert sorted(options) == NAMES


@quick
@given(bases, widths, st.integers(16, 100_000))
def test_wavelengths_and_rotations(page, base, width, length):
    inv_freq = inverse_frequencies(width, base)
    found = page.evaluate(
        "([d, base, n]) => { const t = frequencies(d, base);"
        " return [t, wavelengthsOf(t), rotationsOf(t, n)]; }",
        [width, base, length],
    )
    for mine, theirs in zip(
        found,
        (inv_freq, wavelengths(inv_freq), rotations(inv_freq, length)),
        strict=True,
    ):
        assert np.allclose(mine, theirs, rtol=1e-13, atol=0)


@pytest.mark.parametrize("name", NAMES)
@quick
@given(
    base=st.floats(1000, 1e7),
    width=st.integers(8, 64).map(lambda pairs: 2 * pairs),
    trained=st.integers(256, 10_000),
    factor=st.floats(1, 40),
    beyond=st.floats(0.5, 20),
)
def test_scaling_methods(page, name, base, width, trained, factor, beyond):
    parameters = PARAMETERS.get(name, "").format(f=factor)
    geometry = Geometry(width, base, trained)
    check_plan(
        page,
        f"{name}({parameters})" if parameters else name,
        geometry,
        int(trained * beyond),
    )


@pytest.mark.parametrize("text", MORE)
def test_scaling_methods_at_their_edges(page, text):
    check_plan(page, text, Geometry(128, 1e4, 4096), 16384)


@quick
@given(bases, widths, st.integers(0, 64), st.integers(0, 100_000))
def test_the_sum_of_cosines(page, base, width, unrotated, distance):
    found = page.evaluate(
        "([d, base, rest, m]) => sumOfCosines(frequencies(d, base), rest, m)",
        [width, base, unrotated, distance],
    )
    similarity = Similarity.of_head(width + 2 * unrotated, width)
    wanted = similarity.evaluate(np.array([float(distance)]), math.log(base))[0]
    assert found == pytest.approx(wanted, abs=1e-7)


@quick
@given(bases, widths, st.integers(0, 4096))
def test_the_bound_of_decay(page, base, width, distance):
    found = page.evaluate(
        "([d, b, m]) => decayBound(frequencies(d, b), m)", [width, base, distance]
    )
    waves = np.exp(1j * distance * np.asarray(inverse_frequencies(width, base)))
    assert found == pytest.approx(np.abs(np.cumsum(waves)).mean(), rel=1e-9)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_rounding_to_every_format(page, name):
    fmt = FORMATS[name]
    random = np.random.default_rng(0)
    spread = random.standard_normal(2000) * 2.0 ** random.integers(-40, 40, 2000)
    halfway = np.arange(-64, 64) * fmt.epsilon / 2 + 1
    edges = [
        0.0,
        -0.0,
        fmt.largest,
        fmt.largest * 1.01,
        math.ldexp(1.0, fmt.min_exponent),
    ]
    # Below the subnormals of float64 there is no number to round.
    shares = np.array([0.49, 0.5, 0.51, 1.5, 2.5] if name != "float64" else [1.0, 2.0])
    tiny = math.ldexp(fmt.epsilon, fmt.min_exponent) * shares
    values = np.concatenate([spread, halfway, edges, -np.array(edges), tiny])
    wanted = np.asarray(round_to(vector(values), fmt))
    found = page.evaluate(
        "([values, name]) => values.map((x) => String(roundTo(x,"
        " known.formats.find((one) => one.name === name))))",
        [values.tolist(), name],
    )
    found = np.array([float(text.replace("Infinity", "inf")) for text in found])
    assert np.array_equal(found, wanted, equal_nan=True)


@pytest.mark.parametrize("stage", ["position", "inv_freq", "angle"])
@pytest.mark.parametrize(
    "name", ["bfloat16", "float16", "tf32", "float32", "float8_e5m2"]
)
def test_angle_errors_by_stage(page, stage, name):
    inv_freq = inverse_frequencies(64, 1e4)
    positions = [0, 1, 7, 257, 1000, 4097, 30_001]
    errors = Chain(parse_cast(f"{stage}={name}"), Spectrum(inv_freq)).angle_errors(
        vector(positions)
    )
    wrapped = np.abs(np.remainder(np.asarray(errors) + np.pi, 2 * np.pi) - np.pi)
    found = page.evaluate(
        "([positions, stage, name]) => positions.map((m) =>"
        " worstAngleError(frequencies(64, 1e4), m, stage, known.formats.find((one) =>"
        " one.name === name)))",
        [positions, stage, name],
    )
    assert np.allclose(found, wrapped.max(0), rtol=1e-6, atol=1e-10)


def test_the_tolerance_is_that_of_the_precision_command():
    from ropelab import experiments

    assert (
        experiments.load("precision").config.model_fields["tolerance"].default
        == TOLERANCE
    )


def test_a_slider_moves_every_plot(visit, path):
    page = visit(path)
    before = [
        page.locator(f"#plot-{name} .series .line").first.get_attribute("d")
        for name in ("wavelengths", "sums")
    ]
    said = page.locator("#said").inner_text()
    page.locator("#slide-base").focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    after = [
        page.locator(f"#plot-{name} .series .line").first.get_attribute("d")
        for name in ("wavelengths", "sums")
    ]
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert page.locator("#said").inner_text() != said
    assert float(page.locator("#set-base").input_value()) > 10000


def test_a_method_brings_its_parameters_and_refuses_what_it_cannot_take(visit, path):
    page = visit(path)
    page.locator("#set-method").select_option("llama3")
    assert page.locator("#parameters input").count() == 3
    page.locator("#parameter-low_freq_factor").fill("9")
    page.locator("#parameter-low_freq_factor").press("Enter")
    said = page.locator("#said").inner_text()
    assert mentions(said, "low_freq_factor", "high_freq_factor")


@pytest.mark.parametrize(
    ("method", "low", "high", "allowed"),
    [
        ("yarn", "beta_slow", "beta_fast", True),
        ("llama3", "low_freq_factor", "high_freq_factor", True),
        ("yarn_paper", "alpha", "beta", False),
    ],
)
def test_a_ramp_may_be_a_step_where_the_package_allows_it(
    visit, path, method, low, high, allowed
):
    page = visit(path)
    page.locator("#set-method").select_option(method)
    page.locator(f"#parameter-{high}").fill("1")
    page.locator(f"#parameter-{high}").press("Enter")
    said = page.locator("#said").inner_text()
    assert ("in the trained length" in said) == allowed
    assert (f"{method} needs 0 < {low} < {high}" in said) != allowed


CONFIG = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}


def test_a_config_is_read(visit, path):
    page = visit(path)
    page.locator("#config").fill(json.dumps(CONFIG))
    page.get_by_role("button", name="Use it").click()
    said = page.locator("#config-said").inner_text()
    shape = "head_dim 128", "rotary_dim 128", "trained length 8192"
    assert mentions(said, *shape, "method llama3", "read as a Llama's")
    assert page.locator("#parameter-factor").input_value() == "8"
    assert page.locator("#set-target").input_value() == "131072"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Not read"),
        ("[]", "a config.json is an object"),
        ("{}", "no head_dim"),
        (
            '{"head_dim": 64, "rope_scaling": {"type": "<b>new</b>"}}',
            "rope type '<b>new</b>' is not",
        ),
        (
            json.dumps({**CONFIG, "model_type": "deepseek_v3"}),
            "files of type 'deepseek_v3' are not read",
        ),
        (
            '{"head_dim": 64, "rope_scaling": {"type": "toString"}}',
            "rope type 'toString' is not",
        ),
        (json.dumps({**CONFIG, "rope_theta": None}), "rope_theta is null"),
        (json.dumps({**CONFIG, "rope_theta": "1e6"}), 'rope_theta is "1e6"'),
        (json.dumps({**CONFIG, "qk_rope_head_dim": 64}), "qk_rope_head_dim is not"),
        (json.dumps({**CONFIG, "partial_rotary_factor": 0.5}), "may pass over"),
        (json.dumps({**CONFIG, "rope_parameters": {}}), "both rope_parameters and"),
        (
            json.dumps({"model_type": "qwen3", **CONFIG}),
            "no head_dim, which this class sets itself",
        ),
    ],
)
def test_a_config_that_cannot_be_read_says_why(visit, path, text, reason):
    page = visit(path)
    page.locator("#config").fill(text)
    page.get_by_role("button", name="Use it").click()
    assert reason in page.locator("#config-said").inner_text()


def test_the_phase_is_read_by_pointing(visit, path):
    page = visit(path)
    canvas = page.locator("#phases")
    canvas.scroll_into_view_if_needed()
    canvas.hover(position={"x": 40, "y": 1})
    said = page.locator("#phase-said").inner_text()
    assert said.startswith("pair 0, position ")
    position = int(said.split("position ")[1].split(":")[0])
    assert f"angle {position} rad" in said


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_runs_over_the_edge(visit, path, width):
    page = visit(path, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


SETTINGS = "() => ({ ...state, parameters: { ...state.parameters } })"


def test_a_model_is_set_by_name_and_its_address_brings_everything_back(visit, path):
    page = visit(path)
    page.locator("#set-model").select_option("llama-3.1-8b")
    said = page.locator("#said").inner_text()
    before = page.evaluate(SETTINGS)
    assert (before["base"], before["method"]) == (500000, "llama3")
    assert before["parameters"]["factor"] == 8
    page.wait_for_url(re.compile("llama3"))
    again = visit(path, page.evaluate("location.hash.slice(1)"))
    assert again.evaluate(SETTINGS) == before
    assert again.locator("#said").inner_text() == said
    # Another setting is no longer that model.
    again.locator("#set-trained").fill("4096")
    again.locator("#set-trained").press("Enter")
    assert again.locator("#set-model").input_value() == ""


@pytest.mark.parametrize(
    "part", ["base=x&method=constructor&head_dim=-1&.factor=z", "%", "plots"]
)
def test_an_address_that_means_nothing_leaves_the_defaults(visit, path, part):
    page = visit(path, part)
    found = page.evaluate(SETTINGS)
    assert (found["base"], found["method"], found["head_dim"]) == (10000, "yarn", 128)
    assert page.locator("#plot-errors .series").count() > 0


def test_the_controls_stay_in_sight_of_every_plot(visit, path):
    for width, control in ((1440, "#slide-base"), (390, "#panel summary")):
        page = visit(path, width=width)
        page.locator("#plot-errors").scroll_into_view_if_needed()
        box = page.locator(control).bounding_box()
        assert 0 <= box["y"] < 800
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_pasted_config_is_read_at_once(visit, path):
    page = visit(path, permissions=["clipboard-read", "clipboard-write"])
    page.evaluate("text => navigator.clipboard.writeText(text)", json.dumps(CONFIG))
    page.locator("#config").focus()
    page.keyboard.press("Control+V")
    page.get_by_text("method llama3").wait_for()
    # The published settings of Llama 3.1 are those of a known model.
    assert page.locator("#set-model").input_value().startswith("llama-3.1")


def test_methods_without_a_formula_break_nothing(visit, tmp_path, monkeypatch):
    known = explore.list_known()
    known["methods"] = {"newcomer": known["methods"].pop("yarn"), **known["methods"]}
    known["models"]["own"] = {**known["models"]["llama-2-7b"], "method": "newcomer"}
    monkeypatch.setattr(explore, "known", lambda: known)
    page = visit(write_explore(tmp_path / "explore.html"))
    options = page.locator("#set-method option").all_inner_texts()
    assert sorted(options) == [name for name in NAMES if name != "yarn"]
    assert page.locator("#plot-errors .series").count() > 0
