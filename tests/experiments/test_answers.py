"""What the committed runs of trained models say: numbers of models and texts have
intervals, in the answer and in the short table, at the width of a terminal.
"""

import io
import re
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from ropelab.experiments import Experiment, load
from ropelab.experiments.encodings.comparisons import COPY
from ropelab.plan import Plan
from ropelab.runs import store
from ropelab.runs.comparisons import MIXED
from ropelab.runs.tables import Tables
from ropelab.show import terminal
from ropelab.show.intervals import find_ends, find_intervals
from tests.experiments.test_rounded import REFERENCE
from tests.small import mostly_slow

# The experiments whose results are of trained models.
TRAINED = ["extrapolate", "encodings", "spectrum", "base-empirical", "evaluate"]
# All committed runs of these experiments: with and without casts, with many models and
# with one.
RUNS = []
for experiment_name in TRAINED:
    for run_folder in sorted((REFERENCE / experiment_name).iterdir()):
        RUNS.append(f"{experiment_name}/{run_folder.name}")
# The runs that `make test` asks: the default of each command, and runs of other kinds.
ASKED = re.compile(
    r"/(extrapolate|encodings|spectrum|base-empirical|extrapolate-window"
    r"|extrapolate-casts|smollm2-casts|smollm2-passkey|smollm2-text)-[0-9a-f]{8}$"
)
FEW = [name for name in RUNS if ASKED.search(name)]
# Numbers with a point that no model and no text stands behind: parameters in names,
# predictions of arithmetic, and multiples of a length.
EXACT = [
    r"\w+\([^()]*=[^()]*\)",
    r"×[0-9.]+",
    r"\(score spread [^)]*\)",
    r"[0-9.]+ times",
    r"rate of [0-9]+%",
    r"Arithmetic: .*",
]
# Columns of short tables that are no means over models and texts.
EXACT_COLUMNS = {
    "adds",
    "work",
    "frequencies",
    "base",
    "bound",
    "quarter_rotation",
    "maximum_distance",
    "fails_from",
}
NUMBER = r"[-+]?[0-9]+(?:\.[0-9]+)?%?"
WITH_INTERVAL = rf"{NUMBER} \[{NUMBER}, {NUMBER}\]"


def read_run(name: str) -> tuple[Experiment, dict[str, Any], Tables]:
    """Return the experiment, the config and the tables of a committed run."""
    (folder,) = [*REFERENCE.glob(name), *REFERENCE.glob(f"{name}-????????")]
    manifest = store.read_manifest(folder)
    assert manifest is not None
    tables = store.RUN.tables(folder, manifest)
    return load(manifest["experiment"]), manifest["config"], tables


@pytest.mark.parametrize("name", mostly_slow(RUNS, FEW))
def test_every_measured_number_in_an_answer_has_an_interval(name: str) -> None:
    experiment, _, tables = read_run(name)
    rest = experiment.answer(tables)
    for pattern in [*EXACT, WITH_INTERVAL]:
        rest = re.sub(pattern, "", rest)
    assert not re.findall(r"[0-9]+\.[0-9]+|[0-9]+%", rest), rest


@pytest.mark.parametrize("name", mostly_slow(RUNS, FEW))
def test_every_measured_column_of_a_short_table_has_intervals_and_fits(
    name: str,
) -> None:
    experiment, _, tables = read_run(name)
    summary = experiment.summary(tables)
    names = [str(column) for column in summary]
    measured = set(find_intervals(names))
    numbers = set(summary.select_dtypes("number").columns)
    assert numbers - find_ends(names) - EXACT_COLUMNS == measured

    console = Console(file=io.StringIO(), width=80, highlight=False, markup=False)
    terminal.show_table(summary, console, says_missing=True)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    # Nothing is cut: every value is there with its interval.
    values = sum(int(summary[column].notna().sum()) for column in measured)
    assert len(re.findall(WITH_INTERVAL, "\n".join(lines))) == values


@pytest.mark.parametrize(
    ("name", "over"),
    [
        ("extrapolate/extrapolate", "5 models"),
        ("extrapolate/extrapolate-window", "50 documents and 12 contexts"),
        (
            "extrapolate/extrapolate-casts",
            "5 models, of costs also over 20 documents and 12 contexts",
        ),
        ("encodings/encodings", "5 models, 50 documents and 24 contexts"),
        ("spectrum/spectrum", "5 models, 50 documents and 48 contexts"),
    ],
)
def test_the_first_sentence_says_what_the_brackets_are(name: str, over: str) -> None:
    experiment, values, tables = read_run(name)
    config = experiment.config.model_validate(values)
    answer = Plan(experiment, config).finish(tables).answer
    assert answer.count("[low, high]") == 1
    assert f"; [low, high]: 95 % over {over})." in answer


def test_a_number_without_an_interval_says_so_on_the_terminal() -> None:
    table = pd.DataFrame({"method": ["yarn"], "nll": [1.23456]})
    table = table.assign(**{"nll ci_low": None, "nll ci_high": None})
    console = Console(file=io.StringIO(), width=80)
    terminal.show_table(table, console, says_missing=True)
    assert isinstance(console.file, io.StringIO)
    assert "1.23 [no interval]" in console.file.getvalue()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "encodings/encodings",
            "RoPE has 1.93 [1.75, 2.11] if it reads only the last 128 tokens",
        ),
        # The best of methods that all fail is not praised.
        (
            "extrapolate/extrapolate-outside",
            "no method copies more than 0.113 [0.094, 0.133] (yarn ×2)",
        ),
        # The change of a share of five cases has an interval beyond 1.
        (
            "evaluate/smollm2-passkey",
            "llama3 ×2 finds 3 of 5, unmodified 0, too few cases for an interval",
        ),
        ("evaluate/smollm2-text", "nats per byte in tokens 8192 to 12288 against"),
        ("extrapolate/extrapolate", "In tokens 6144 to 8192 of text the best method"),
        # Not the same bases are too large and fail.
        (
            "base/base-published-5b7c425b",
            "7 are larger than the smallest admissible base, by up to 7.8 times, and 7"
            " fail inside their context, 6 of them larger",
        ),
        # The sum of cosines does not predict where retrieval ends, nor that it fails near by.
        (
            "base-empirical/base-empirical",
            "The bound predicts for 0 of 4 pairs of base and task where retrieval fails"
            " (a recall below half), and at 8 of 12 distances",
        ),
        ("base-empirical/base-empirical", "recall fails at 2 of 2 tested distances"),
    ],
)
def test_what_a_reader_mistook_is_said(name: str, said: str) -> None:
    experiment, _, tables = read_run(name)
    assert said in experiment.answer(tables)


def test_a_row_that_no_test_compares_is_named() -> None:
    """Its mean is better than that of the baseline, and its seeds are of two kinds."""
    experiment, _, tables = read_run("encodings/encodings-designs")
    comparisons = tables["comparisons"].copy()
    is_untested = (comparisons["encoding_a"] == "layers(rope,nope)") & (
        comparisons["metric"] == COPY
    )
    comparisons.loc[is_untested, ["status", "verdict"]] = [MIXED, "~"]
    said = experiment.answer({**tables, "comparisons": comparisons})
    assert "; layers(rope,nope) at " in said
    assert "is not tested, since their seeds are of two kinds" in said


def test_nothing_is_said_of_comparisons_of_which_none_is_tested() -> None:
    experiment, _, tables = read_run("spectrum/spectrum-search-lr-scale-2-197d4c4f")
    assert "significant" not in experiment.answer(tables)


def test_a_model_without_a_scaling_has_one_row() -> None:
    experiment, _, tables = read_run("evaluate/smollm2-text")
    methods = experiment.summary(tables)["method"].tolist()
    assert methods[0] == "unmodified"
    assert "unscaled" not in methods


@pytest.mark.parametrize("name", FEW)
def test_the_words_about_columns_are_about_columns_that_are_there(name: str) -> None:
    experiment, _, tables = read_run(name)
    columns = list(map(str, experiment.summary(tables)))
    for explained in experiment.explain_columns(tables):
        start = explained.removesuffix("N")
        assert any(column.startswith(start) for column in columns), explained
