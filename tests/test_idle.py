"""Options that have no effect on a run are named, since a user expects one."""

from pathlib import Path
from typing import Any

import pytest

from ropelab.experiments.evaluate import EvaluateConfig
from ropelab.lab import Lab
from ropelab.runs.cell import hash_cell, list_with_prerequisites
from tests.test_cli import call

__all__ = ["call"]  # a fixture

# An experiment with its values, and a field without effect on them.
IDLE: list[tuple[str, dict[str, Any], str, Any]] = [
    ("precision", {}, "explain_pair", 3),
    ("precision", {}, "model_dim", 256),
    ("precision", {"schemes": ["sinusoidal"]}, "period", 5e5),
    ("extrapolate", {}, "finetune_steps", 7),
    ("extrapolate", {}, "finetune_len", 4096),
    ("extrapolate", {}, "depths", [50]),
    ("extrapolate", {}, "offsets", [5]),
    ("extrapolate", {"tasks": ["copy"]}, "documents", 7),
    ("extrapolate", {"tasks": ["text"]}, "sequences", 5),
    ("encodings", {"tasks": ["text"]}, "sequences", 5),
    ("encodings", {"tasks": ["copy"]}, "documents", 5),
    ("spectrum", {"tasks": ["text"]}, "sequences", 5),
    ("spectrum", {"tasks": ["copy"]}, "documents", 4),
    ("base-empirical", {"tasks": ["copy"]}, "documents", 4),
    ("claims", {"id": "score-example"}, "seed", 5),
    ("claims", {"id": "score-example"}, "run", True),
    ("claims", {"id": "kvquant-before-rope"}, "run", True),
]
# The same fields where they have an effect.
USED: list[tuple[str, dict[str, Any], str, Any]] = [
    ("precision", {"schemes": ["sinusoidal"]}, "model_dim", 256),
    ("precision", {}, "period", 5e5),
    ("extrapolate", {"arms": ["finetuned"]}, "finetune_steps", 7),
    ("extrapolate", {"arms": ["finetuned"]}, "finetune_len", 4096),
    ("extrapolate", {"tasks": ["passkey"]}, "depths", [50]),
    ("extrapolate", {"casts": ["angle:bfloat16"]}, "offsets", [5]),
    ("extrapolate", {}, "documents", 7),
    ("extrapolate", {}, "sequences", 5),
]
# The same options of claims where they have an effect, which is no other cell: a seed is
# read by some of all claims, and runs are made before the claims are judged.
USED_BY_CLAIMS: list[tuple[dict[str, Any], str, Any]] = [
    ({}, "seed", 5),
    ({}, "run", True),
    ({"id": "base-bound-predicts"}, "run", True),
]


def plan_cells(experiment: str, values: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The hashes of the cells of a run, and the names of its idle fields."""
    plan = Lab().prepare(experiment, values)
    cells = list_with_prerequisites(plan.experiment.cells(plan.config))
    return {hash_cell(cell) for cell in cells.values()}, {
        *plan.config.list_idle_choices()
    }


@pytest.mark.parametrize(("experiment", "values", "field", "value"), IDLE)
def test_a_field_without_effect_is_named(
    experiment: str, values: dict[str, Any], field: str, value: Any
) -> None:
    cells, idle_fields = plan_cells(experiment, values)
    assert not idle_fields
    assert plan_cells(experiment, {**values, field: value}) == (cells, {field})


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory, corpora) -> dict[str, Any]:
    from tests.models.released.tiny import reader_of_bytes

    folder = reader_of_bytes(tmp_path_factory.mktemp("model"), bos=True)
    values = {"model": folder, "methods": [], "device": "cpu", "context": 64}
    return {**values, "corpus": corpora[0]}


@pytest.mark.parametrize(
    ("values", "idle"),
    [
        ({"tasks": ("copy", "most_recent")}, {"corpus", "packed"}),
        ({"tasks": ("copy", "copy_in_text")}, set()),
        ({"tasks": ("passkey",)}, set()),
        # Two casts are compared on documents, whatever the tasks.
        ({"tasks": ("copy",), "casts": ("float16",), "against": "float32"}, set()),
        # A single file is cut whether it is packed or not.
        ({"tasks": ("text",), "corpus": __file__}, {"packed"}),
    ],
)
def test_text_options_without_effect_on_evaluate_are_named(
    values: dict[str, Any], idle: set[str]
) -> None:
    given = {"corpus": str(Path(__file__).parent), "packed": True, **values}
    config = EvaluateConfig.model_construct(model="m", context=64, **given)
    assert {*config.list_idle_choices()} & {"corpus", "packed"} == idle


@pytest.mark.slow
def test_text_that_no_task_of_evaluate_reads_is_named(evaluated, corpora) -> None:
    drawn = {**evaluated, "tasks": ["copy", "most_recent"]}
    cells, idle_fields = plan_cells("evaluate", drawn)
    assert idle_fields == {"corpus"}
    other = {**drawn, "corpus": corpora[1], "packed": True}
    assert plan_cells("evaluate", other) == (cells, {"corpus", "packed"})


@pytest.mark.parametrize(("experiment", "values", "field", "value"), USED)
def test_a_field_with_an_effect_is_not_named(
    experiment: str, values: dict[str, Any], field: str, value: Any
) -> None:
    cells, _ = plan_cells(experiment, values)
    changed_cells, idle_fields = plan_cells(experiment, {**values, field: value})
    assert changed_cells != cells
    assert not idle_fields


def test_commands_and_files_say_which_fields_have_no_effect(call: Any) -> None:
    words = "precision --length 64 --long-lengths 64 --draws 2 --formats float16 -q"
    status, _, err = call(*words.split(), "--explain-pair", 3, "--no-figures")
    assert status == 0
    assert err == "--explain-pair has no effect: it is for --explain\n"

    # The axis of a grid has one value that is the default.
    file = Path("moved.toml")
    file.write_text('experiment = "extrapolate"\n[grid]\noffsets = [[0], [5]]\n')
    status, _, err = call("run", file, "--dry-run")
    assert status == 0
    assert err == "moved.toml: offsets has no effect: it is for --casts\n"

    # The fields of a stored run are all in its config.toml, with their defaults.
    (config,) = Path("results").glob("precision/*/config.toml")
    assert "explain_pair = 3" in config.read_text()
    config.write_text(config.read_text().replace("explain_pair = 3", ""))
    assert call("run", config, "--dry-run")[2] == ""


@pytest.mark.parametrize(("values", "field", "value"), USED_BY_CLAIMS)
def test_an_option_of_claims_with_an_effect_is_not_named(
    values: dict[str, Any], field: str, value: Any
) -> None:
    plan = Lab().prepare("claims", {**values, field: value})
    assert not plan.config.list_idle_choices()


@pytest.mark.parametrize("form", [(), ("--format", "sarif")])
def test_a_number_format_that_audit_does_not_show_is_named(
    form: tuple[str, ...], call: Any
) -> None:
    Path("config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2,'
        ' "max_position_embeddings": 512, "rope_theta": 10000.0}'
    )
    command = ("audit", "config.json", *form)
    assert "--dtype" not in call(*command)[2]
    assert "--dtype has no effect" in call(*command, "--dtype", "float16")[2]


def test_a_number_format_that_audit_shows_is_not_named(call: Any) -> None:
    Path("config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2,'
        ' "max_position_embeddings": 512, "rope_theta": 10000.0}'
    )
    for shows in ("--verbose", "--json"):
        said = call("audit", "config.json", "--dtype", "float16", shows)[2]
        assert "--dtype" not in said
