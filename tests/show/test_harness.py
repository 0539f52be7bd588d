"""What is written of a model given has the structure of the harness' files, and the
run's values.

The structure below is that of the files of lm-evaluation-harness 0.4.9.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from ropelab.runs.errors import InputError
from ropelab.show import export
from ropelab.show.drawn import write
from ropelab.show.harness import of_released_model
from ropelab.show.page.shown import find_runs

REFERENCE = Path(__file__).parents[2] / "results" / "reference" / "evaluate"


class Samples(BaseModel):
    """How many documents a task has, and how many were asked."""

    model_config = ConfigDict(strict=True, extra="forbid")
    original: int = Field(gt=0)
    effective: int = Field(gt=0)


class Metric(BaseModel):
    """What a configuration of a task says of a metric."""

    metric: str
    higher_is_better: bool | None


class Configured(BaseModel):
    """What the harness' tables and comparisons read of a task's configuration."""

    task: str
    output_type: str
    num_fewshot: int
    metric_list: list[Metric]
    differs: str = Field(min_length=50)


class Harness(BaseModel):
    """The parts of a results file that other programs read."""

    model_config = ConfigDict(strict=True, extra="forbid")
    results: dict[str, dict[str, float | str]]
    group_subtasks: dict[str, list[str]]
    configs: dict[str, Configured]
    versions: dict[str, str]
    n_shot: dict[str, int] = Field(alias="n-shot")
    higher_is_better: dict[str, dict[str, bool | None]]
    n_samples: dict[str, Samples] = Field(alias="n-samples")
    config: dict[str, object]
    git_hash: str | None
    date: float
    model_source: str
    model_name: str


def check(document):
    """Every task is in every part, and every metric has a standard error or says so."""
    read = TypeAdapter(Harness).validate_python(document)
    tasks = set(read.results)
    parts = (
        read.group_subtasks,
        read.configs,
        read.versions,
        read.n_shot,
        read.higher_is_better,
    )
    assert all(set(part) == tasks for part in (*parts, read.n_samples))
    for task, entry in read.results.items():
        names = {name.removesuffix(",none") for name in entry} - {"alias"}
        metrics = {name for name in names if not name.endswith("_stderr")}
        assert names == metrics | {f"{name}_stderr" for name in metrics}
        assert set(read.higher_is_better[task]) == metrics
        assert {each.metric for each in read.configs[task].metric_list} == metrics
        assert "ropelab" in str(entry["alias"])
        for name in metrics:
            assert isinstance(entry[f"{name},none"], float)
            error = entry[f"{name}_stderr,none"]
            assert error == "N/A" or (isinstance(error, float) and error >= 0)


@pytest.fixture(scope="module", params=["smollm2-passkey-*", "smollm2-????????"])
def run(request):
    """A stored run of a model given."""
    return find_runs(list(REFERENCE.glob(request.param)))[0]


def test_each_way_of_reading_is_a_file_of_the_structure(run, tmp_path):
    paths = write(export.as_files(run, run.tables, "lm-eval"), tmp_path)
    documents = [json.loads(path.read_text()) for path in paths]
    names = [document["model_name"] for document in documents]
    labels = ["unmodified", "unscaled", "pi ×2", "ntk ×4", "ntk_by_parts ×2", "yarn ×2"]
    assert names == [
        f"build/smollm2 ({label})" for label in [*labels, "llama3 ×2", "sliding_window"]
    ]
    for path, document in zip(paths, documents, strict=True):
        check(document)
        assert document["results"]
        assert path.parent.parent == tmp_path
        assert path.name.startswith("results_2026-")
    assert len({path.parent.name for path in paths}) == len(paths)


def test_several_files_are_not_printed(run):
    with pytest.raises(InputError, match="8 files here: give --output FOLDER"):
        export.text_of(run, run.tables, "lm-eval")


def test_a_run_of_models_that_the_harness_does_not_evaluate_is_refused():
    (base,) = find_runs(list(REFERENCE.parent.glob("base/base-941698ba")))
    with pytest.raises(InputError, match="those of base have no place"):
        export.text_of(base, base.tables, "lm-eval")


MANIFEST = {
    "experiment": "evaluate",
    "version": 4,
    "start": "2026-01-02T03:04:05+00:00",
    "config": {"model": "a/b", "dtype": "float32", "device": "cpu"},
}
KEYS = ["method", "depth_percent", "context_tokens", "sequences", "trials", "accuracy"]
FOUND = [
    ("yarn", 0, 64, 4, 4, 0.5),
    ("yarn", 100, 64, 4, 4, 1.0),
    ("yarn", 0, 128, 4, 4, 0.25),
    ("yarn", 100, 128, 4, 4, 0.25),
    ("pi", 0, 64, 4, 4, 0.0),
]


def evaluated(rows: Sequence[tuple[object, ...]], columns: list[str]) -> pd.DataFrame:
    """A table of methods at factor 2, as they are."""
    return pd.DataFrame(rows, columns=columns).assign(
        factor=2.0, arm="zero_shot", status="ok"
    )


def written(**tables):
    """The results of yarn, and what else is said, of tables of a model given."""
    found = of_released_model(MANIFEST, tables)
    document = found["a_b_yarn-x2/results_2026-01-02T03-04-05+00-00.json"]
    check(document)
    return document


def test_keys_found_are_shares_by_length_with_the_error_of_a_share():
    table = evaluated(FOUND, KEYS)
    one = written(passkey_accuracy=table)
    entry = one["results"]["niah_single_2"]
    assert (entry["64,none"], entry["128,none"]) == (0.75, 0.25)
    assert entry["64_stderr,none"] == pytest.approx(math.sqrt(0.75 * 0.25 / 7))
    assert one["n-samples"]["niah_single_2"] == {"original": 16, "effective": 16}
    several = written(multiquery_accuracy=table)
    assert several["results"]["niah_multiquery"]["64_stderr,none"] == "N/A"
    assert several["n-samples"]["niah_multiquery"] == {"original": 8, "effective": 8}


def test_text_is_one_number_over_all_positions():
    columns = [
        "method",
        "bucket_start_tokens",
        "bucket_end_tokens",
        "nll_nats_per_byte",
    ]
    rows = [
        ("yarn", 0, 64, 0.5),
        ("yarn", 64, 256, 0.9),
        ("pi", 0, 64, 3.0),
        ("pi", 64, 256, 3.0),
    ]
    table = evaluated(rows, columns).assign(documents=3)
    entry = written(text_nll=table)["results"]["ropelab_text"]
    assert entry["bits_per_byte,none"] == pytest.approx(0.8 / math.log(2))
    assert entry["byte_perplexity,none"] == pytest.approx(math.exp(0.8))


def test_what_the_harness_does_not_measure_is_refused():
    with pytest.raises(InputError, match="none but these tables: passkey_accuracy"):
        of_released_model(MANIFEST, {"comparisons": pd.DataFrame({"metric": ["nll"]})})
