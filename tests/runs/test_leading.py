"""What leads is what comparisons show, in answers, titles, bold print and headlines."""

import math

import pandas as pd
import pytest

from ropelab.runs.leading import UNIFORM_LOSS, find_lead, find_leads
from ropelab.show.export import write_latex

NAMES = ("a", "b", "c")
ABOUT = {"metric": "nll_bucket"}


def compared(**verdicts: str) -> pd.DataFrame:
    """Comparisons of pairs such as `ab`, at one place."""
    rows = [
        {
            "metric": "nll_bucket",
            "at_tokens": 64,
            "context_tokens": 64,
            "method_a": pair[0],
            "method_b": pair[1],
            "verdict": verdict,
        }
        for pair, verdict in verdicts.items()
    ]
    return pd.DataFrame(rows)


def lead(values, pairs):
    return find_lead(
        dict(zip(NAMES, values, strict=True)), pairs, ABOUT, lower_is_better=True
    )


def test_the_best_mean_leads_with_those_that_it_is_not_shown_to_beat():
    found = lead([1.0, 1.1, 2.0], compared(ab="~", ac="a", bc="b"))
    assert (found.first, found.tied, found.beaten) == ("a", ("b",), 1)
    assert found.names == ("a", "b")


def test_nothing_leads_where_all_are_alike():
    found = lead([1.0, 1.1, 1.2], compared(ab="~", ac="~", bc="~"))
    assert not found.is_shown
    assert found.names == ()


def test_nothing_leads_that_was_not_compared_with_all_others():
    assert lead([1.0, 1.1, 1.2], compared(ab="a")).names == ()


@pytest.mark.parametrize("loss", [UNIFORM_LOSS, 6.9])
def test_models_that_read_no_better_than_guessing_are_not_ranked(loss):
    pairs = compared(ab="a", ac="a", bc="b")
    assert lead([loss, loss + 1, loss + 2], pairs) is None
    assert math.isclose(UNIFORM_LOSS, 5.545, abs_tol=1e-3)


def test_bold_is_what_leads_at_one_place():
    summary = pd.DataFrame(
        {"method": NAMES, "nll @64": [1.0, 1.1, 2.0], "nll @128": [1.0, 1.1, 2.0]}
    )
    pairs = compared(ab="~", ac="a", bc="b")
    leads = find_leads(summary, pairs)
    assert {name: found.names for name, found in leads.items()} == {
        "nll @64": ("a", "b")
    }

    summary.attrs["leaders"] = {"nll @64": leads["nll @64"].names}
    bold = [line for line in write_latex(summary).splitlines() if "textbf" in line]
    assert [line[0] for line in bold] == ["a", "b"]
    assert all(line.count("textbf") == 1 for line in bold)

    summary.attrs["leaders"] = {}
    assert "textbf" not in write_latex(summary)


def test_losses_of_the_last_tokens_are_led_by_comparisons_of_these_tokens():
    means = [1.0, 1.1, 2.0]
    summary = pd.DataFrame(
        {"method": NAMES, "last_nll @64": means, "last_nll @128": means}
    )
    buckets = compared(ab="~", ac="~", bc="~")
    short = compared(ab="a", ac="a", bc="b").assign(metric="nll_short_context")
    longest = compared(ab="~", ac="a", bc="b")
    longest = longest.assign(metric="nll_last_window", at_tokens=128)
    leads = find_leads(summary, pd.concat([buckets, short, longest]))
    assert {name: found.names for name, found in leads.items()} == {
        "last_nll @64": ("a",),
        "last_nll @128": ("a", "b"),
    }
    # The losses of buckets of positions are another question.
    assert find_leads(summary, buckets) == {}


def test_rows_without_comparisons_have_no_leader():
    summary = pd.DataFrame({"method": NAMES, "nll @64": [1.0, 1.1, 2.0]})
    assert find_leads(summary, pd.DataFrame()) == {}
