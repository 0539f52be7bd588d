"""The report in a real browser: it opens without a complaint, and everything on it
works.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropelab.runs.stats import average_samples
from ropelab.show.page.report import write_report
from ropelab.show.page.shown import find_runs
from tests.show.made import NASTY, accuracies, write_run
from tests.texts import mentions

pytestmark = pytest.mark.browser

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
FIRST = "toy-00000001"
MOST_BYTES = 4_500_000
"""Of the page of the reference without figures, of which any number may be stored here."""

# Clicks every table of a run, and returns whether it is the one shown and its rows.
OPEN_EACH_TAB = """run => [...run.querySelectorAll(".tabs button")].map((_, number) => {
    const tab = () => run.querySelectorAll(".tabs button")[number];
    tab().click();
    const rows = run.querySelectorAll(".grid-holder tbody tr").length;
    return [tab().getAttribute("aria-pressed"), rows];
})"""


def cells(page, column, key=FIRST):
    """The texts of one column of a run's table."""
    table = f"#{key} .grid-holder table"
    names = page.locator(f"{table} th").evaluate_all(
        "all => all.map(th => th.dataset.column)"
    )
    place = names.index(column) + 1
    return page.locator(f"{table} tbody td:nth-child({place})").all_inner_texts()


def test_every_reference_run_and_table_opens(visit, tmp_path, monkeypatch):
    monkeypatch.setattr("ropelab.show.page.report._list_paths", lambda run: [])
    path = write_report(find_runs([REFERENCE]), tmp_path / "index.html")
    assert path.stat().st_size < MOST_BYTES
    page = visit(path)
    for key in page.locator("section.run").evaluate_all(
        "all => all.map(one => one.id)"
    ):
        page.evaluate("key => { location.hash = key; }", key)
        page.locator(f"#{key} .tabs button").first.wait_for()
        opened = page.locator(f"#{key}").evaluate(OPEN_EACH_TAB)
        assert opened and all(
            pressed == "true" and rows > 0 for pressed, rows in opened
        ), opened
        assert page.evaluate(
            "document.documentElement.scrollWidth <= window.innerWidth"
        )
    for part in ("compare", "claims", "overview"):
        page.evaluate("part => { location.hash = part; }", part)
        page.locator(f"#{part}.open").wait_for()


def test_a_run_opens_with_its_figures_each_with_its_finding(visit, tmp_path):
    (run,) = find_runs([*(REFERENCE / "freqs").iterdir()])
    page = visit(write_report([run], tmp_path / "index.html"), run.key)
    figures = page.locator(f"#{run.key} figure")
    caption = figures.first.locator("figcaption").inner_text()
    assert mentions(caption, "yarn(factor=4)", "24 kept", "16 ramp", "24 interpolated")
    page.wait_for_function(
        "[...document.querySelectorAll('.open img')].every(i => i.naturalWidth)"
    )
    assert figures.count() == 2
    order = "f => f.compareDocumentPosition(document.querySelector('.open .explorer'))"
    assert figures.last.evaluate(order) == 4
    # Asked for by its address, a figure takes the whole width.
    narrow = figures.last.bounding_box()["width"]
    page.evaluate("id => { location.hash = id; }", figures.last.get_attribute("id"))
    assert figures.last.bounding_box()["width"] > 1.5 * narrow
    page.evaluate("location.hash = 'overview'")
    page.wait_for_function("document.querySelector('.card img').naturalWidth > 0")
    assert page.locator(".card p.number b").inner_text() == "64"


def test_what_comes_from_a_run_stays_text(visit, report):
    page = visit(report, FIRST)
    assert page.locator(f"#{FIRST} h2").inner_text() == f"What is it for {NASTY}?"
    page.evaluate("location.hash = 'claims'")
    assert NASTY in page.locator("#claim-two .statement").inner_text()
    assert page.evaluate("window.pwned") is None


def test_an_injected_script_would_not_run(visit, report):
    page = visit(report, complaints=["Content Security Policy"])
    page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent ="
        " 'window.pwned = 3'; try { document.body.append(s); } catch {} }"
    )
    assert page.evaluate("window.pwned") is None
    policy = page.locator("meta[http-equiv]").get_attribute("content")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_a_column_sorts_both_ways_as_numbers(visit, report):
    page = visit(report, FIRST)
    header = page.locator(f"#{FIRST} th[data-column=distance_tokens]")
    for direction, ordered in (("ascending", False), ("descending", True)):
        header.locator("button").click()
        values = [int(text) for text in cells(page, "distance_tokens")]
        assert values == sorted(values, reverse=ordered)
        assert header.get_attribute("aria-sort") == direction


def test_rows_filter_by_words(visit, report):
    page = visit(report, FIRST)
    page.locator(f"#{FIRST} .bar input").fill("yarn 4096")
    assert cells(page, "method") == ["yarn"] * 3
    assert set(cells(page, "distance_tokens")) == {"4096"}
    assert "3 of 24 rows" in page.locator(f"#{FIRST} .bar output").inner_text()


def test_a_table_copies_as_csv_at_full_precision(visit, report):
    page = visit(report, FIRST, permissions=["clipboard-read", "clipboard-write"])
    page.locator(f"#{FIRST} .bar input").fill("unscaled 512")
    page.get_by_role("button", name="Copy as CSV").click()
    page.get_by_role("button", name="Copied").wait_for()
    header, *rows = page.evaluate("navigator.clipboard.readText()").splitlines()
    table = accuracies(0.0)
    assert header.split(",") == list(table.columns)
    wanted = table[(table.method == "unscaled") & (table.distance_tokens == 512)]
    assert [float(row.split(",")[6]) for row in rows] == wanted.accuracy.tolist()


def test_a_line_is_switched_off_and_on(visit, report):
    page = visit(report, FIRST)
    lines = page.locator(f"#{FIRST} svg .series")
    button = page.locator(f"#{FIRST} .legend button", has_text="yarn ×4")
    assert lines.count() == 2
    button.click()
    assert (lines.count(), button.get_attribute("aria-pressed")) == (1, "false")
    button.click()
    assert (lines.count(), button.get_attribute("aria-pressed")) == (2, "true")


def test_hovering_tells_mean_range_and_n(visit, report):
    page = visit(report, "toy-00000002")
    mark = page.locator("#toy-00000002 .series[data-line='1'] .mark").last
    mark.scroll_into_view_if_needed()
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    said = page.locator("#toy-00000002 .tip").inner_text()
    values = (
        accuracies(0.01).query("method == 'yarn' and distance_tokens == 4096").accuracy
    )
    assert "yarn ×4" in said
    assert f"accuracy: {values.mean():.4g}" in said
    bounds = f"{values.min():.4g}", f"{values.max():.4g}"
    assert mentions(said, "3 seeds", *bounds)
    assert "trials 100" in said


def test_one_seed_shows_its_own_interval(visit, report):
    page = visit(report, "toy-00000003")
    page.locator("#toy-00000003 svg[role=img]").focus()
    page.keyboard.press("ArrowRight")
    tip = page.locator("#toy-00000003 .tip").inner_text()
    assert mentions(tip, "95 %", "0.1 to 0.95")


def test_points_are_reached_by_keyboard(visit, report):
    page = visit(report, FIRST)
    page.locator(f"#{FIRST} svg[role=img]").focus()
    tip = page.locator(f"#{FIRST} .tip")
    page.keyboard.press("ArrowRight")
    assert "unscaled" in tip.inner_text()
    assert "256" in tip.inner_text()
    page.keyboard.press("ArrowRight")
    assert "512" in tip.inner_text()
    page.keyboard.press("ArrowDown")
    assert "yarn ×4" in tip.inner_text()
    page.keyboard.press("Escape")
    assert tip.is_hidden()


def test_the_page_is_usable_with_the_keyboard_alone(visit, report):
    page = visit(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(3):
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator("#compare.open").wait_for()


def test_axes_are_chosen_and_made_logarithmic(visit, report):
    page = visit(report, FIRST)
    explorer = page.locator(f"#{FIRST} .explorer")
    explorer.get_by_label("Up", exact=True).select_option("trials")
    assert "trials" in explorer.locator("svg[role=img]").get_attribute("aria-label")
    explorer.get_by_label("Along", exact=True).select_option("method")
    assert explorer.locator("svg .axes text", has_text="unscaled").count() == 1
    explorer.get_by_label("Up: logarithmic").check()
    assert explorer.get_by_label("Up: logarithmic").is_checked()


def test_comparing_pairs_by_seed(visit, report):
    page = visit(report, "compare")
    result = page.locator("#comparison table")
    result.wait_for()
    texts = result.locator("tbody tr").all_inner_texts()
    first, second = (
        accuracies(shift).query("method == 'yarn' and distance_tokens == 512").accuracy
        for shift in (0.0, 0.01)
    )
    wanted = average_samples(second.to_numpy() - first.to_numpy())
    row = next(text for text in texts if "yarn" in text and "\t512\t" in text).split(
        "\t"
    )
    found = [float(text) for text in row[5:8]]
    assert np.allclose(found, [wanted.value, wanted.low, wanted.high], rtol=1e-3)
    assert row[8:] == ["3", "higher"]
    equal = next(text for text in texts if "unscaled" in text).split("\t")
    assert equal[-1] == "equal"


def test_comparing_one_seed_gives_no_interval(visit, report):
    page = visit(report, "compare")
    boxes = page.locator("#comparison fieldset input")
    boxes.nth(2).check()
    boxes.nth(1).uncheck()
    row = page.locator("#comparison tbody tr").first.inner_text().split("\t")
    assert row[6:] == ["–", "–", "1", "equal"]


def test_claims_filter_by_verdict_evidence_and_words(visit, report):
    page = visit(report, "claims")
    shown = page.locator(".ledger > li:not([hidden])")
    page.get_by_label("Verdict").select_option("holds")
    assert shown.count() == 2
    page.get_by_label("Decided by").select_option("small trained models")
    assert shown.evaluate_all("all => all.map(one => one.id)") == ["claim-three"]
    page.get_by_label("Words").fill("turns")
    assert shown.count() == 0
    assert page.locator("#claim-filters output").inner_text() == "0 of 3 claims"


def test_the_literature_it_disagrees_with_is_counted_first_and_shown(visit, report):
    page = visit(report)
    page.get_by_text("1 finding disagrees with the literature").click()
    page.wait_for_function("location.hash === '#against'")
    assert page.locator("#overview.open .against li").first.is_visible()
    assert "It does not turn" in page.locator(".against li").first.inner_text()
    assert page.locator(".against").evaluate(
        "a => a.getBoundingClientRect().top < innerHeight"
    )


def luminance(color):
    """Relative luminance of `rgb(r, g, b)` (WCAG 2.2)."""
    numbers = color[color.index("(") + 1 : -1].split(",")[:3]
    channels = np.array([float(number) for number in numbers]) / 255
    linear = np.where(
        channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
    )
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one, other):
    """WCAG's contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


READ = """names => { const probe = document.body.appendChild(document.createElement('i'));
const found = names.map(name => { probe.style.color = `var(--${name})`;
return getComputedStyle(probe).color; }); probe.remove(); return found; }"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_have_the_contrast_of_wcag_aa(visit, report, scheme):
    page = visit(report, color_scheme=scheme)
    paper, raised = page.evaluate(READ, ["paper", "raised"])
    words = page.evaluate(READ, ["ink", "soft", "link", "good", "bad", "some"])
    lines = page.evaluate(READ, [f"c{number}" for number in range(8)])
    assert (luminance(paper) > 0.5) == (scheme == "light")
    assert (
        min(contrast(color, ground) for color in words for ground in (paper, raised))
        >= 4.5
    )
    assert min(contrast(color, paper) for color in lines) >= 3


def test_the_button_changes_the_colours(visit, report):
    page = visit(report, color_scheme="light")
    (before,) = page.evaluate(READ, ["paper"])
    for _ in range(2):
        page.locator("#theme").click()
    assert page.locator("#theme").inner_text() == "Colours: dark"
    assert page.evaluate(READ, ["paper"]) != [before]


def test_nothing_runs_over_the_edge_of_a_phone(visit, report):
    page = visit(report, width=360)
    parts = page.locator("section.view").evaluate_all("all => all.map(one => one.id)")
    assert len(parts) == 7
    for part in parts:
        page.evaluate("part => { location.hash = part; }", part)
        page.locator(f"[id='{part}'].open").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, part


def test_without_scripts_answers_and_short_tables_stay(visit, report):
    page = visit(report, java_script_enabled=False)
    assert page.locator(f"#{FIRST} .lead").is_visible()
    assert page.locator(f"#{FIRST} table.plain").is_visible()
    assert page.locator("#claims .statement").first.is_visible()
    assert page.locator("#theme").is_hidden()


def test_print_leaves_out_what_cannot_be_pressed(visit, report):
    page = visit(report, FIRST)
    page.emulate_media(media="print")
    assert page.locator("header.top").is_hidden()
    assert page.locator(f"#{FIRST} .controls").is_hidden()
    assert page.locator(f"#{FIRST} svg[role=img]").is_visible()


def test_a_claim_is_quoted_with_a_link_that_is_one(visit, report):
    page = visit(report, "claims")
    page.locator("#claim-two summary").click()
    quotes = page.locator("#claim-two blockquote")
    text = quotes.first.inner_text()
    assert mentions(text, "Es dreht sich nicht", "(it does not", "turn)")
    assert NASTY in quotes.last.inner_text()
    links = page.locator("#claim-two blockquote a")
    assert links.evaluate_all("all => all.map(a => a.href)") == [
        "https://example.org/x"
    ]
    assert page.evaluate("window.pwned") is None


def test_names_of_every_object_and_a_lone_percent_break_nothing(
    tmp_path: Path, visit: Callable[..., Any]
) -> None:
    table = accuracies(0).replace({"unscaled": "constructor", "yarn": "toString"})
    write_run(tmp_path, "a-1", {"copy_accuracy": table}, "ropelab toy")
    path = write_report(find_runs([tmp_path]), tmp_path / "index.html", draw=False)
    page = visit(path, "%")
    assert page.locator("#overview.open").count() == 1
    page = visit(path, "toy-1")
    assert page.locator("#toy-1 .explorer svg").count() > 0
