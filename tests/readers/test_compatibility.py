"""The page of published models says what the readers read."""

import json
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from ropelab.audit.compatibility import (
    Line,
    PublishedConfig,
    TableCell,
    compare_model,
    compare_models,
    count_verdicts,
    describe_difference,
    judge,
    list_columns,
    read_published,
)
from ropelab.math.models import MODELS
from ropelab.readers import registry
from ropelab.readers.spec import RopeSpec
from tests.imports import loaded

compatibility_page = loaded(Path(__file__).parents[2] / "tools" / "compatibility.py")
PAGE = compatibility_page.PAGE
FILE = compatibility_page.PUBLISHED
write_page = compatibility_page.write_page
AUDIT_PAGE = PAGE.with_name("audit.md")


def line_of(config: dict[str, object]) -> Line:
    return compare_model(PublishedConfig("mine", "here", "2026-11-28", config))


LLAMA: dict[str, object] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}


def test_the_page_is_what_the_readers_read() -> None:
    assert PAGE.read_text(encoding="utf-8") == write_page(), "make compatibility"


def test_a_hundred_models_each_with_its_source_and_date() -> None:
    checked, models = read_published(FILE)
    assert len(models) >= 100
    assert len({model.name for model in models}) == len(models)
    for model in models:
        assert model.source
        assert date.fromisoformat(model.date) <= date.fromisoformat(checked)


def test_nothing_was_checked_in_the_future() -> None:
    checked, models = read_published(FILE)
    today = datetime.now(UTC).date()
    assert date.fromisoformat(checked) <= today
    assert max(date.fromisoformat(model.date) for model in models) <= today
    assert f"Checked on {checked} with" in PAGE.read_text(encoding="utf-8")


# As the models' own cards give them. The files have the number under three names, at the
# top or in the part of the language model.
LAYERS = {
    "ChatGLM3-6B": 28,
    "DeepSeek-V3": 61,
    "EXAONE-3-7.8B": 32,
    "Gemma-2-9B": 42,
    "openai/gpt-oss-20b": 24,
    "meta-llama/Llama-2-7b-hf": 32,
    "Llama-3.1-405B": 126,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 48,
    "Mixtral-8x7B": 32,
    "Qwen/Qwen2.5-7B-Instruct": 28,
    "Qwen/Qwen3-235B-A22B": 94,
    "Qwen/Qwen3-VL-2B-Instruct": 28,
}


# As the models' own cards and papers give them: base, rotated features, length, scaling.
ROTATIONS = {
    "DeepSeek-V3": "10000 | 64 | 163840 | yarn(factor=40, attention_factor=1)",
    "deepseek-ai/DeepSeek-V4-Pro": "160000 | 64 of 512 | 1048576 | yarn(factor=16,"
    " attention_factor=1)",
    "Gemma-2-9B": "10000 | 256 | 8192 | unscaled",
    "Llama-3.1-405B": "500000 | 128 | 131072 | llama3(factor=8)",
    "microsoft/phi-2": "10000 | 32 of 80 | 2048 | unscaled",
    "EleutherAI/pythia-6.9b": "10000 | 32 of 128 | 2048 | unscaled",
    "Qwen/Qwen3-235B-A22B": "1e6 | 128 | 40960 | unscaled",
}


def read_columns(*titles: str) -> dict[str, tuple[str, ...]]:
    """Return the cells of the page's rows in some columns, by the model of the row."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    (header,) = [row for row in rows if row[0] == "model"]
    columns = [header.index(title) for title in titles]
    found = {}
    for row in rows:
        if len(row) == len(header):
            found[row[0]] = tuple(row[column] for column in columns)
    return found


def test_the_column_of_layers() -> None:
    column = read_columns("layers")
    stated = {name: column[name] for name in LAYERS}
    assert stated == {name: (str(layers),) for name, layers in LAYERS.items()}


def test_the_columns_of_the_rotation() -> None:
    columns = read_columns("base", "width", "length", "scaling")
    stated = {name: " | ".join(columns[name]) for name in ROTATIONS}
    assert stated == ROTATIONS


def find_file(model: PublishedConfig) -> Path | None:
    """Return the whole file of a model beside the checkout; None: it is not there."""
    for parent in Path(__file__).parents:
        folder = parent / "shared" / "configs-real"
        _, _, name = model.source.rpartition("testdata/")
        for file in (f"ome_{name}", f"aic_{model.name.replace('/', '--')}.json"):
            if (folder / file).is_file():
                return folder / file
    return None


def test_kept_keys_are_those_of_the_files() -> None:
    _, models = read_published(FILE)
    files = {model.name: find_file(model) for model in models}
    if not any(files.values()):
        pytest.skip("no published configurations beside the checkout")
    assert sum(file is not None for file in files.values()) > 90
    for model in models:
        file = files[model.name]
        if file is None:
            continue
        whole = json.loads(file.read_text(encoding="utf-8"))
        for key, value in model.config.items():
            kept = {key: value}
            found = {key: whole[key]}
            if isinstance(value, dict):
                # Parts are kept without the keys that do not matter.
                kept, found = value, {name: whole[key][name] for name in value}
            assert kept == found, (model.name, key)


@pytest.mark.parametrize(
    "key", ["num_hidden_layers", "num_layers", "n_layers", "n_layer"]
)
def test_layers_have_one_of_four_names(key: str) -> None:
    config = {
        name: value for name, value in LLAMA.items() if name != "num_hidden_layers"
    }
    assert line_of({**config, key: 7}).layers == 7
    assert line_of(config).layers is None


def test_facts_alone_are_kept() -> None:
    """Nothing of a file but what its rotation depends on: no texts, ids or weights."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))["models"]
    keys = {key for row in kept for key in row["config"]}
    assert not {key for key in keys if "token" in key or "vocab" in key}


def test_every_runtime_has_one_column_and_transformers_4_its_newest() -> None:
    names = [runtime.name for runtime in list_columns()]
    assert names[0] == registry.REFERENCE
    older = [name for name in names if name.startswith("transformers-4")]
    assert older == ["transformers-4.57"]
    assert {*names} <= {*registry.RUNTIMES}


def test_a_runtime_that_applies_no_scaling_differs() -> None:
    """YaRN in llama.cpp and ExLlamaV3: the factor comes from the lengths there."""
    scaling = {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 4096,
    }
    line = line_of({**LLAMA, "rope_scaling": scaling})
    assert line.cells[registry.REFERENCE] == TableCell("own code", "run")
    assert line.cells["vllm"].verdict == "agrees"
    assert line.cells["exllamav3"].verdict == "differs"
    assert line.cells["exllamav3"].code == "E08"
    assert "x4" in line.cells["exllamav3"].words


def test_a_file_at_which_a_runtime_stops_is_refused() -> None:
    """Of Mixtral, newer transformers ask for a head_dim as soon as it is scaled."""
    line = line_of({**LLAMA, "model_type": "mixtral", **yarn(4.0)})
    assert line.cells["transformers-4.57"] == TableCell("refuses", "run", "E02")


def test_a_model_without_a_class_is_compared_with_nothing() -> None:
    _, models = read_published(FILE)
    line = compare_model(next(each for each in models if each.name == "ChatGLM3-6B"))
    assert line.spec is None
    assert line.cells["vllm"].verdict == "reads"
    assert line.cells[registry.REFERENCE].verdict == "not read"


@pytest.mark.parametrize("runtime", ["vllm", "sglang", "llama.cpp", "mlx-lm"])
def test_counts_add_up(runtime: str) -> None:
    lines = list(compare_models(read_published(FILE)[1]))
    known = [line for line in lines if line.spec is not None]
    assert sum(count_verdicts(lines, runtime).values()) == len(known)


def read_spec(**changes: object) -> RopeSpec:
    """Return the rotation of a Llama by its own class."""
    spec = line_of({**LLAMA, **changes}).spec
    assert spec is not None
    return spec


def yarn(factor: float) -> dict[str, object]:
    return {"rope_scaling": {"rope_type": "yarn", "factor": factor}}


def test_releases_of_the_page_are_those_that_audit_lists() -> None:
    audit = AUDIT_PAGE.read_text(encoding="utf-8")
    releases = dict(
        re.findall(r"^\| ([\w.+-]+) \| (\S+) \| \w+ \|", audit, re.MULTILINE)
    )
    page = PAGE.read_text(encoding="utf-8")
    for runtime in list_columns():
        assert runtime.version == releases[runtime.name]
        assert f"{runtime.name} {runtime.version}" in page


def test_no_runtime_is_left_out_but_older_releases() -> None:
    columns = {runtime.name for runtime in list_columns()}
    older = {f"transformers-{version}" for version in ("4.44", "4.48", "4.51", "4.55")}
    assert {*registry.RUNTIMES} - columns == older


def test_no_published_model_is_lost() -> None:
    _, models = read_published(FILE)
    assert len(models) >= 108


def test_facts_of_the_page_are_those_of_known_models() -> None:
    """Two lists of models were written apart: they agree where they have one model."""
    known = {}
    for each in MODELS.values():
        for name in (each.name, *each.also):
            known[name.lower()] = each
    compared = 0
    for line in compare_models(read_published(FILE)[1]):
        name = line.model.name.rpartition("/")[2].lower()
        model = known.get(name) or known.get(name.removeprefix("meta-"))
        if model is None or line.spec is None:
            continue
        compared += 1
        spec = line.spec
        facts = (spec.base, spec.rotary_dim)
        assert facts == (model.base, model.rotary_width), line.model.name
        # Known models may have the scaling that a model's page adds to its file.
        method = model.method.partition("(")[0]
        if method not in ("unscaled", "yarn"):
            assert spec.method.startswith(f"{method}("), line.model.name
    assert compared >= 10


@pytest.mark.parametrize(
    ("changes", "others", "code", "words"),
    [
        ({}, {}, "", ""),
        ({"rope_theta": 5e5}, {}, "E03", "base 500000, not 10000"),
        ({"head_dim": 64}, {}, "W06", "64 features, not 128"),
        ({}, yarn(4.0), "E08", "frequencies up to x4, from"),
        (yarn(4.0), {}, "W05", "frequencies up to x4, from"),
        (yarn(8.0), yarn(4.0), "W05", "frequencies up to x2, from"),
    ],
)
def test_a_difference_has_the_code_of_its_kind(
    changes: dict[str, object], others: dict[str, object], code: str, words: str
) -> None:
    got_code, got_words = describe_difference(read_spec(**changes), read_spec(**others))
    assert got_code == code
    assert words in got_words


def test_a_factor_on_the_logits_alone() -> None:
    scaling = {"rope_type": "yarn", "factor": 4.0, "attention_factor": 2.0}
    double = read_spec(rope_scaling=scaling)
    single = read_spec(rope_scaling={**scaling, "attention_factor": 1.0})
    assert describe_difference(double, single) == ("W04", "logits x4")


def test_frequencies_that_differ_only_far_away_are_seen() -> None:
    scaling = {"rope_type": "dynamic", "factor": 4.0}
    code, words = describe_difference(read_spec(), read_spec(rope_scaling=scaling))
    assert code == "E08"
    assert words.endswith(" of 8192")


def test_a_layer_type_behind_the_first_is_compared() -> None:
    _, models = read_published(FILE)
    gemma = next(each for each in models if each.name == "Gemma-3 (text)")
    own = registry.read(registry.RUNTIMES[registry.REFERENCE], gemma.config)
    reading = registry.read(registry.RUNTIMES["vllm"], gemma.config)
    assert judge(reading, own, []).verdict == "agrees"
    last = [*reading.layers][-1]
    other = read_spec(head_dim=256, rope_theta=5e5)
    changed = replace(reading, layers={**reading.layers, last: other})
    assert len(reading.layers) == 2
    assert judge(changed, own, []).verdict == "differs"


def test_layers_without_rotation_are_compared() -> None:
    """SGLang rotates all layers of a Llama 4 but every fourth, whatever the file says."""
    _, models = read_published(FILE)
    name = "meta-llama/Llama-4-Maverick-17B-128E-Instruct"
    config = next(each.config for each in models if each.name == name)
    text = {**config["text_config"], "no_rope_layers": [1] * 48}
    cells = line_of({**config, "text_config": text}).cells
    assert (cells["sglang"].verdict, cells["sglang"].code) == ("differs", "W16")


@pytest.mark.parametrize(
    ("model_type", "runtime", "evidence"),
    [
        ("llama", "vllm", "run"),
        ("arcee", "vllm", "by rule"),
        ("llama", "tensorrt-llm", "read"),
    ],
)
def test_each_cell_says_how_it_was_checked(
    model_type: str, runtime: str, evidence: str
) -> None:
    line = line_of({**LLAMA, "model_type": model_type})
    assert line.cells[runtime] == TableCell("agrees", evidence)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (TableCell("agrees", "run"), "=ʳ"),
        (TableCell("agrees", "run", is_partial=True), "=ʳ°"),
        (TableCell("own code", "by rule"), "=ᵏ"),
        (TableCell("refuses", "read", "E02"), "refusesˢ"),
        (TableCell("reads", "by rule"), "readsᵏ"),
        (TableCell("differs", "run", "W05", "by much"), "**W05** by muchʳ"),
        (TableCell("not read"), "-"),
    ],
)
def test_a_cell_in_words(cell: TableCell, text: str) -> None:
    assert compatibility_page.write_cell(cell) == text


def test_the_answer_counts_models_whose_own_code_was_read() -> None:
    line = line_of(LLAMA)
    verdicts = ("agrees", "agrees", "differs", "refuses", "not read")
    lines = []
    for verdict in verdicts:
        cells = dict.fromkeys(line.cells, TableCell(verdict))  # type: ignore[arg-type]
        lines.append(replace(line, cells=cells))
    lines.append(replace(line, spec=None))
    answer = compatibility_page.write_answer(lines)
    assert answer.startswith("Of 6 published models the own code of 5 was read;")
    assert "; vllm 1 of the 3 that it reads (and refuses 1);" in answer


def test_who_agrees_without_a_mark_was_looked_at_for_every_layer_type() -> None:
    _, models = read_published(FILE)
    for model in models:
        line = compare_model(model)
        own = registry.read(registry.RUNTIMES[registry.REFERENCE], model.config)
        for name, cell in line.cells.items():
            if cell.verdict != "agrees" or cell.is_partial:
                continue
            reading = registry.read(registry.RUNTIMES[name], model.config)
            assert reading.layers.keys() == own.layers.keys(), (model.name, name)
            if own.rotating is not None and not all(own.rotating):
                assert reading.rotating == own.rotating or reading.layer_rule


@pytest.mark.parametrize(
    ("model", "cells"),
    [
        # The indexer of sparse attention, axes of images, and layers without rotation.
        ("zai-org/GLM-5", ("=ᵏ", "=ᵏ", "=ʳ", "=ᵏ°", "=ˢ°")),
        ("Qwen/Qwen3-VL-2B-Instruct", ("=ᵏ°", "=ᵏ°", "=ʳ°", "=ᵏ°", "=ˢ°")),
        ("Llama-4-Scout", ("=ᵏ°", "=ᵏ", "=ʳ°", "=ᵏ", "=ˢ°")),
        ("Gemma-3 (text)", ("=ʳ", "=ᵏ", "=ʳ", "=ʳ", "=ˢ")),
    ],
)
def test_parts_that_nobody_looked_at_are_marked(
    model: str, cells: tuple[str, ...]
) -> None:
    columns = ("vllm", "sglang", "mlx-lm", "llama.cpp", "tensorrt-llm")
    assert read_columns(*columns)[model] == cells


GEMMA_4_BLOCK = {
    "full_attention": {
        "rope_type": "proportional",
        "rope_theta": 1e6,
        "partial_rotary_factor": 0.25,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
}
LAGUNA_BLOCK = {
    "full_attention": {
        "rope_type": "yarn",
        "rope_theta": 500000.0,
        "factor": 32.0,
        "attention_factor": 1.0,
        "original_max_position_embeddings": 4096,
        "partial_rotary_factor": 0.5,
    },
    "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
}


def read_in_tensorrt(
    model_type: str, architecture: str, block: dict[str, dict[str, object]]
) -> registry.Reading:
    """Return a model with a window in three of four layers as TensorRT-LLM reads it."""
    config: dict[str, object] = {
        **LLAMA,
        "model_type": model_type,
        "architectures": [architecture],
        "head_dim": 256,
        "global_head_dim": 512,
        "num_hidden_layers": 4,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "rope_parameters": block,
    }
    del config["rope_theta"]
    return registry.read(registry.RUNTIMES["tensorrt-llm"], config)


@pytest.mark.parametrize(
    ("model_type", "architecture", "block", "full_rotation"),
    [
        (
            "gemma4_text",
            "Gemma4ForCausalLM",
            GEMMA_4_BLOCK,
            ("proportional", 1e6, 512, 512, 1.0),
        ),
        (
            "laguna",
            "LagunaForCausalLM",
            LAGUNA_BLOCK,
            ("yarn", 500000.0, 128, 256, 1.0),
        ),
    ],
)
def test_tensorrt_has_tables_for_each_layer_type_in_classes_that_make_them(
    model_type: str,
    architecture: str,
    block: dict[str, dict[str, object]],
    full_rotation: tuple[object, ...],
) -> None:
    layers = read_in_tensorrt(model_type, architecture, block).layers
    rotations = {}
    for name, spec in layers.items():
        method = spec.method.partition("(")[0]
        sizes = (spec.rotary_dim, spec.head_dim)
        rotations[name] = (method, spec.base, *sizes, spec.attention_factor)
    assert rotations == {
        "full_attention": full_rotation,
        "sliding_attention": ("unscaled", 20000.0, 256, 256, 1.0),
    }


@pytest.mark.parametrize(
    ("model_type", "architecture", "full"),
    [
        ("gemma4_text", "Gemma4ForCausalLM", {"rope_type": "yarn", "factor": 4.0}),
        ("laguna", "LagunaForCausalLM", {"rope_type": "dynamic", "factor": 4.0}),
        (
            "laguna",
            "LagunaForCausalLM",
            {"rope_type": "yarn", "factor": 4.0, "truncate": False},
        ),
    ],
)
def test_tensorrts_own_tables_pass_over_other_scalings(
    model_type: str, architecture: str, full: dict[str, object]
) -> None:
    block = {
        **LAGUNA_BLOCK,
        "full_attention": {
            "rope_theta": 1e6,
            "original_max_position_embeddings": 4096,
            **full,
        },
    }
    reading = read_in_tensorrt(model_type, architecture, block)
    assert reading.outcome == "not modelled"
    assert "passes over" in reading.problem


@pytest.mark.parametrize("is_nested", [False, True])
def test_tensorrt_has_gemma_3s_base_of_layers_with_a_window(is_nested: bool) -> None:
    full = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}
    config: dict[str, object] = {
        **LLAMA,
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "head_dim": 256,
        "rope_theta": 1e6,
        "rope_local_base_freq": 20000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    if is_nested:
        for key in ("rope_theta", "rope_local_base_freq", "rope_scaling"):
            del config[key]
        sliding = {"rope_type": "default", "rope_theta": 20000.0}
        config["rope_parameters"] = {
            "full_attention": full,
            "sliding_attention": sliding,
        }
    layers = registry.read(registry.RUNTIMES["tensorrt-llm"], config).layers
    rotations = {name: (spec.base, spec.method) for name, spec in layers.items()}
    assert rotations == {
        "full_attention": (1e6, "pi(factor=8)"),
        "sliding_attention": (20000.0, "unscaled"),
    }
