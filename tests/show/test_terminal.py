"""What is printed: rounded for reading only, readable at 80 columns, sparse in a
log.
"""

import math
import time
from io import BytesIO, StringIO, TextIOWrapper

import pandas as pd
import pytest
from rich.console import Console

from ropelab.runs.tables import EarlyTable
from ropelab.show import terminal
from ropelab.show.columns import split_word
from ropelab.show.verdicts import mark_verdict
from tests.texts import mentions


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.123456, "0.1235"),
        (1.0, "1"),
        (1e6, "1000000"),
        (6.2831853e-6, "6.283e-06"),
        (131072, "131072"),
        (math.nan, "-"),
        (math.inf, "inf"),
        (None, "-"),
        ("~", "~"),
        (True, "yes"),
    ],
)
def test_values_are_rounded_for_reading(value, text):
    assert terminal.format_value(value) == text


def test_a_table_fits_80_columns_and_keeps_its_cells(capsys):
    table = pd.DataFrame(
        {"method": ["yarn", "pi"], "accuracy": [0.98765, 0.5], "n": [50, 50]}
    )
    terminal.show_table(table, Console(width=80))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["method", "accuracy", "n"],
        ["yarn", "0.9877", "50"],
        ["pi", "0.5", "50"],
    ]
    assert max(map(len, lines)) <= 80


def test_names_between_colons_are_no_pictures(capsys):
    terminal.show_paragraph("rope:mag: within 0.01 rad")
    assert capsys.readouterr().out == "rope:mag: within 0.01 rad\n"


def test_plain_progress_speaks_at_the_start_and_then_sparsely(capsys, monkeypatch):
    now = iter(range(0, 10_000, 1))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    with terminal.PlainLines()("training", total=100) as advance:
        for _ in range(100):
            advance(1, note="loss 2.5")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "training ..."
    assert mentions(lines[1], "training: 3%", "2 minutes left", "loss 2.5")
    assert mentions(lines[2], "training: 33%", "1 minute left", "loss 2.5")
    assert len(lines) == 5


def test_plain_progress_tells_of_parts_only_when_they_last(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = terminal.PlainLines()
    with progress("20 measurements", total=20) as whole:
        for part in range(20):
            with progress(f"part {part}", total=200) as advance:
                for _ in range(200 if part == 7 else 2):
                    now[0] += 1
                    advance(1)
            whole(1, note=f"{part + 1} finished")
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("part")] == [
        f"part 7: {share}%, {left} left"
        for share, left in (
            (2, "3 minutes"),
            (16, "3 minutes"),
            (32, "2 minutes"),
            (46, "2 minutes"),
            (62, "1 minute"),
            (76, "47 seconds"),
            (92, "17 seconds"),
        )
    ]
    assert lines[0] == "20 measurements ..."
    assert len(lines) < 15


def test_plain_progress_prefers_the_time_left_that_it_is_told(capsys, monkeypatch):
    now = iter(range(0, 100, 10))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    with terminal.PlainLines()("3 models", total=3) as advance:
        advance(0.001, left=1380.0)
    line = capsys.readouterr().err.splitlines()[1]
    assert mentions(line, "3 models: 0%", "23 minutes left")


def test_a_first_bit_of_progress_promises_no_end(capsys, monkeypatch):
    now = iter(range(0, 100, 40))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    with terminal.PlainLines()("3 models", total=3) as advance:
        advance(0.001)
        advance(0.3)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1] == "3 models: 0%"
    assert mentions(lines[2], "3 models: 10%", "12 minutes left")
    assert len(lines) == 3


def test_a_bar_counts_down_the_time_left_that_it_is_told(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    bars = terminal.Bars()
    with bars("3 models", total=3) as advance:
        (task,) = bars._bars.tasks
        advance(0.001, left=1380.0)
        now[0] += 100.0
        assert terminal.TimeLeftColumn().render(task).plain == "0:21:20"
        now[0] += 9000.0
        assert terminal.TimeLeftColumn().render(task).plain == "0:00:00"


def test_bars_nest_and_stop(capsys):
    bars = terminal.Bars()
    with bars("outer", total=2) as outer, bars("inner", total=1) as inner:
        inner(1, note="x")
        outer(1)
    assert not bars._bars.live.is_started


WIDE = pd.DataFrame(
    {
        "method": ["yarn(beta_fast=16, beta_slow=2)", "pi"],
        "accuracy": [0.98765, 0.5],
        "wavelength_tokens": [131072, 1048576],
        "loss": [1.23456, 2.5],
        "source": ["a long sentence about where this can be read", "another one"],
    }
)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_table_folds_and_leaves_nothing_out(capsys, width):
    terminal.show_table(WIDE, Console(width=width))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    words = text.replace(":", " ").split()
    for name in WIDE.columns:
        assert set(name.split("_")) <= set(words)
        for value in WIDE[name]:
            cell = terminal.format_value(value)
            if name == "method":  # long names are broken behind `_` and `,`
                assert set(split_word(cell)) <= set(split_word(text))
            else:
                assert set(cell.split()) <= set(words)
    assert ("source: another one" in text) == (width < 80)


def test_sentences_stand_in_the_first_block_of_a_folded_table(capsys):
    """What a verdict rests on is not looked for under a further block."""
    why = "a sentence of a dozen words that no narrow line has any room for"
    table = pd.DataFrame(
        {
            "id": ["first-claim-with-a-name", "second"],
            "verdict": ["holds with a condition", "wrong"],
            "why": [why, why],
            "original": ["one-word-of-thirty-characters-", "another"],
        }
    )
    terminal.show_table(table, Console(width=60))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[0] == "first-claim-with-a-name"
    assert lines[2].strip().startswith("why: a sentence")
    second = next(n for n, line in enumerate(lines) if "original" in line)
    assert not any("why:" in line for line in lines[second:])


def test_a_second_block_begins_with_the_names_of_the_rows(capsys):
    table = pd.DataFrame({"task": ["copy", "copy"], "base": [30, 300]})
    for number in range(9):
        table[f"column_{number}"] = [0.5, 1.5]
    terminal.show_table(table, Console(width=40))
    first, *others = capsys.readouterr().out.split("\n\n")
    assert len(others) > 1
    for block in (first, *others):
        one, two = [line.split() for line in block.splitlines()][-2:]
        assert one[:2] == ["copy", "30"]
        assert two[:2] == ["copy", "300"]


LIST = pd.DataFrame(
    {
        "id": [f"row-{number}" for number in range(60)],
        "verdict": ["wrong", "holds"] * 30,
        "measured": ["seven words of what was measured here", "short"] * 30,
    }
)


@pytest.mark.parametrize(("width", "cut"), [(40, 30), (80, 0)])
def test_a_long_list_has_a_line_for_each_row(capsys, width, cut):
    terminal.show_table(LIST, Console(width=width))
    text = capsys.readouterr().out
    assert len(text.splitlines()) == 1 + len(LIST)
    assert text.count("…") == cut
    assert max(map(len, text.splitlines())) <= width


def in_terminal(table, **environ):
    """Return what a terminal gets, with its colours as codes."""
    file = StringIO()
    screen = Console(
        width=80,
        force_terminal=True,
        file=file,
        _environ={"TERM": "xterm", **environ},
    )
    terminal.show_table(table, screen, decisive=["measured"])
    return file.getvalue()


def test_a_terminal_shows_verdicts_with_sign_and_colour(monkeypatch, capsys):
    text = in_terminal(LIST[:2])
    assert "\x1b[31m✗ wrong" in text
    assert "\x1b[32m✓ holds" in text
    assert "\x1b[1mshort" in text

    uncoloured = in_terminal(LIST[:2], NO_COLOR="1")
    assert "✗ wrong" in uncoloured
    assert "[31m" not in uncoloured

    terminal.show_table(LIST[:2], terminal.make_console())
    assert "✗" not in (piped := capsys.readouterr().out)
    assert "\x1b" not in piped


def test_signs_are_letters_that_the_terminal_has(monkeypatch):
    monkeypatch.setattr("sys.stdout", TextIOWrapper(BytesIO(), encoding="ascii"))
    assert [mark_verdict(word) for word in ("holds", "wrong", "yarn")] == [
        "+ holds",
        "x wrong",
        "yarn",
    ]


@pytest.mark.parametrize("width", [40, 80, 160])
def test_no_word_is_cut(capsys: pytest.CaptureFixture[str], width: int) -> None:
    names = ["max_position_embeddings", "rope_scaling.original_max_position_embeddings"]
    table = pd.DataFrame(
        {
            "key": names,
            "runtimes": ["transformers-4.57, llama.cpp", "vllm"],
            "kept/ blended/ divided": ["24/16/24", "64/0/0"],
            "angle_error_rad": [0.1, 0.2],
        }
    )
    terminal.show_table(table, Console(width=width))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= width
    pieces = {"transformers-4.57,", "llama.cpp", "max_position_", "embeddings"}
    if width == 160:
        pieces = {*names, "transformers-4.57, llama.cpp"}
    assert all(piece in text for piece in pieces)


@pytest.mark.parametrize("width", [30, 80, 200])
def test_a_paragraph_hangs_and_breaks_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(terminal, "make_console", lambda: Console(width=width))
    said = (
        "E08 error: yarn is declared, but not applied by transformers-4.55, exllamav3"
    )
    terminal.show_paragraph(said, indent=2, hanging=4)
    first, *rest = capsys.readouterr().out.splitlines()
    assert max(map(len, (first, *rest))) <= width
    assert first.startswith("  E08")
    assert all(line.startswith("      ") and line[6] != " " for line in rest)
    assert " ".join((first, *rest)).split() == said.split()
    assert bool(rest) == (width < 2 + len(said))


def test_the_verdict_stands_before_the_table_and_the_rest_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rest = "Beyond, it fails. Then again. And so on."
    terminal.show_answer(f"It works (base 1e6). {rest}", WIDE)
    blocks = capsys.readouterr().out.split("\n\n")
    # Several sentences are a list, one is a paragraph.
    assert blocks[0] == "It works (base 1e6)."
    assert blocks[-1].splitlines() == [
        "- Beyond, it fails.",
        "- Then again.",
        "- And so on.",
    ]
    assert blocks[1].startswith("method")
    terminal.show_answer("It works. Beyond, it fails. Then again.", WIDE)
    assert capsys.readouterr().out.splitlines()[-1] == "Beyond, it fails. Then again."


def test_an_interval_stands_in_the_cell_of_its_value_and_is_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = pd.DataFrame(
        {
            "method": ["yarn", "pi"],
            "copy @64": [0.951, 0.0],
            "copy @64 ci_low": [0.929, math.nan],
            "copy @64 ci_high": [0.973, math.nan],
            "n": [5, 1],
        }
    )
    terminal.show_answer("YaRN copies.", table)
    said = capsys.readouterr().out
    assert mentions(said, "copy @64", "yarn", "0.95 [0.93, 0.97]", 5, "pi", 0, 1)
    assert mentions(said, "[low, high]", "95 %", "differences")
    assert "ci_low" not in said
    terminal.show_answer("YaRN copies.", WIDE)
    assert "95 %" not in capsys.readouterr().out


def test_the_times_of_a_bar_stay_whole_at_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    bars = terminal.Bars()
    bars._bars.get_time = time.monotonic
    console = Console(width=76, record=True, file=StringIO())
    with bars(
        "training 1100000 parameters for 1200 steps, seed 0, bfloat16", total=3
    ) as advance:
        advance(
            1, note="step 400 of 1200, loss 2.5, 1234 tokens per second", left=3725.0
        )
        console.print(bars._bars.get_renderable())
    text = console.export_text()
    assert "left 1:02:05" in text
    assert "0:00:00 left" in text
    assert len(text.splitlines()) == 1


def test_a_pipe_is_not_wrapped(capsys):
    terminal.show_answer("word " * 60, WIDE)
    terminal.show_more("more", WIDE)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == ("word " * 60).strip()
    assert sum("a long sentence about" in line for line in lines) == 2


def test_a_table_stands_above_the_bars_and_leaves_them_room() -> None:
    bars = terminal.Bars()
    bars._bars.live.console = Console(width=70, height=15, file=StringIO())
    table = pd.DataFrame({"method": [f"m{n}" for n in range(20)], "nll @8192": 1.5})
    console = Console(width=70, record=True, file=StringIO())
    with bars("3 models", total=3):
        bars.watch(EarlyTable(table, "means"))
        console.print(bars._bars.get_renderable())
    lines = [line.split() for line in console.export_text().splitlines()]
    words = [line[0] for line in lines if line]
    assert words[1:7] == ["method", "m0", "m1", "m2", "m3", "m4"]
    assert "m5" not in words
    assert mentions(" ".join(lines[-1]), "3 models")
