"""What `emit` and `base` quote of trained models."""

import json
import re

import pytest

from ropelab.cli import observed
from ropelab.cli.app import main


def call(*arguments):
    """The exit status of the command line."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def write_config(folder):
    path = folder / "config.json"
    fields = {
        "model_type": "llama",
        "hidden_size": 256,
        "num_attention_heads": 4,
        "max_position_embeddings": 2048,
        "rope_theta": 10000.0,
    }
    path.write_text(json.dumps(fields))
    return path


@pytest.mark.parametrize(
    ("factor", "nearest"), [(1.5, 2), (2.7, 2), (3, 4), (4, 4), (64, 4)]
)
def test_the_nearest_factor_is_described(factor, nearest):
    assert f"yarn ×{nearest} " in observed.describe_scaling("yarn", factor)


def test_the_numbers_are_those_of_the_row():
    rows = observed.read_observations("scaling")
    row = next(row for row in rows if (row["method"], row["factor"]) == ("pi", 4))
    text = observed.describe_scaling("pi", 4.0)
    assert row["text_cost"] in text
    assert f"{row['recall']} of the symbols" in text
    assert f"unscaled {row['recall_unscaled']};" in text
    assert "95 % over models" in text
    assert f"{row['models']} small models" in text


def test_every_drawn_number_that_is_quoted_has_an_interval():
    number = r"-?[0-9.]+%?"
    has_interval = rf"{number} \[{number}, {number}\]"
    for row in observed.read_observations("scaling"):
        for name in ("recall", "recall_unscaled", "text_cost"):
            assert re.fullmatch(has_interval, row[name])
    for row in observed.read_observations("base"):
        assert re.fullmatch(has_interval, row["text_cost"])


def test_a_method_that_was_not_measured_has_no_observation():
    assert observed.describe_scaling("longrope", 4.0) == ""


def test_every_base_below_the_bound_is_described():
    text = observed.describe_bases()
    for row in observed.read_observations("base"):
        assert f"base {row['base']:g}" in text
        assert f"{row['recalled_to_tokens']} and {row['fails_from_tokens']}" in text


@pytest.mark.parametrize(("context", "is_observed"), [("8192", True), ("2048", False)])
def test_emit_observes_only_what_it_changes(tmp_path, capsys, context, is_observed):
    path = write_config(tmp_path)
    assert call("emit", "--from", path, "--context", context) == 0
    printed = capsys.readouterr()
    assert ("observed in 5 small models" in printed.err) == is_observed
    # Only the text to paste is on standard output.
    json.loads(printed.out)


def test_base_observes_below_its_answer(capsys):
    assert call("base", "--context", 64) == 0
    assert "Observed in 5 small models" in capsys.readouterr().out
    assert call("base", "--context", 64, "--json") == 0
    assert "small models" not in capsys.readouterr().out
