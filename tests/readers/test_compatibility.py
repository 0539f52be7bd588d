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
    stated = PAGE.read_text(encoding="utf-8")
    text = write_page()
    # The first line names the cells; the second has the words beside the table, too.
    assert list_differences(stated, text) == [], "make compatibility"
    assert stated == text, "make compatibility"


def read_table(text: str) -> dict[tuple[str, str], str]:
    """Return the cells of a page's table, by model and title of the column."""
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in text.splitlines()
        if line.startswith("| ")
    ]
    (header,) = [row for row in rows if row[0] == "model"]
    cells = {}
    for row in rows:
        if len(row) == len(header) and row is not header:
            for title, cell in zip(header, row, strict=True):
                cells[row[0], title] = cell
    return cells


def list_differences(stated: str, text: str) -> list[str]:
    """Name each cell of a page that is not as it should be."""
    cells = read_table(stated)
    wanted = read_table(text)
    differences = []
    for model, title in sorted(cells.keys() | wanted.keys()):
        cell = cells.get((model, title), "missing")
        should = wanted.get((model, title), "missing")
        if cell != should:
            differences.append(f"{model}, {title}: {cell!r} should be {should!r}")
    return differences


def test_a_cell_that_is_not_as_read_is_named() -> None:
    page = "| model | vllm |\n| --- | --- |\n| a | = |\n| b | = |\n"
    other = page.replace("| b | = |", "| b | reads |")
    assert list_differences(other, page) == ["b, vllm: 'reads' should be '='"]
    shorter = page.replace("| b | = |\n", "")
    assert "b, vllm: 'missing' should be '='" in list_differences(shorter, page)


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
    "meta-llama/Llama-3.3-70B-Instruct": "500000 | 128 | 131072 | llama3(factor=8)",
    "nvidia/Kimi-K2.5-NVFP4": "50000 | 64 | 262144 | yarn(factor=64,"
    " attention_factor=1)",
    "Qwen/Qwen3.5-35B-A3B": "1e7 | 64 of 256 | 262144 | unscaled",
    "zai-org/GLM-5.1": "1e6 | 64 | 202752 | unscaled",
    "zai-org/GLM-5.2": "8e6 | 64 | 1048576 | unscaled",
    "Qwen/Qwen3-235B-A22B": "1e6 | 128 | 40960 | unscaled",
}


def read_columns(*titles: str) -> dict[str, tuple[str, ...]]:
    """Return the cells of the page's rows in some columns, by the model of the row."""
    cells = read_table(PAGE.read_text(encoding="utf-8"))
    found = {}
    for model in dict.fromkeys(model for model, _ in cells):
        found[model] = tuple(cells[model, title] for title in titles)
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
    # A model's row is compared with the file of the source that the row names.
    files = []
    if "ai-dynamo/aiconfigurator" in model.source:
        files.append(f"aic_{model.name.replace('/', '--')}.json")
    if "sgl-project/ome pkg/hfutil/" in model.source:
        files.append(f"ome_{Path(model.source).name}")
    for parent in Path(__file__).parents:
        for file in files:
            path = parent / "shared" / "configs-real" / file
            if path.is_file():
                return path
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


# Every cell that is not 'agrees', 'reads' or 'not read', worked out from the sources of the
# releases and from the facts of the models, and not from the readers. Of a difference:
# code and words.
TRUNCATED = "W05 frequencies up to x1.76, from 46"
ONE_TABLE = "W05 frequencies up to x30, from 1"
REFUSES = "E02 "
DIFFERENT_CELLS = {
    # The converter has no field for truncate (llama.cpp, ollama); create_sinusoidal_
    # positions_yarn and YarnRoPE round the ends of the ramp to whole pairs.
    ("gpt-oss-120b", "llama.cpp"): TRUNCATED,
    ("gpt-oss-120b", "mlx-lm"): TRUNCATED,
    ("gpt-oss-120b", "ollama"): TRUNCATED,
    ("gpt-oss-120b", "tensorrt-llm"): TRUNCATED,
    ("openai/gpt-oss-20b", "llama.cpp"): TRUNCATED,
    ("openai/gpt-oss-20b", "mlx-lm"): TRUNCATED,
    ("openai/gpt-oss-20b", "ollama"): TRUNCATED,
    ("openai/gpt-oss-20b", "tensorrt-llm"): TRUNCATED,
    # layers/rotary.py passes at type linear.
    ("google/gemma-3-4b-it", "tgi"): "E08 frequencies up to x8, from 1",
    # kimi_k25.py has deepseek_v3.py's arguments, which know no rope_parameters.
    ("nvidia/Kimi-K2.7-Code-NVFP4", "mlx-lm"): "E08 frequencies up to x64, from 2",
    # minicpm3.py has a default of its own, and the file has no base.
    ("MiniCPM3-4B", "mlx-lm"): "E03 base 1e6, not 10000",
    # SuScaledRoPE and ExLlamaV3 take the long factors at every length, as do
    # TensorRT-LLM's tables.
    ("Phi-3", "mlx-lm"): ONE_TABLE,
    ("Phi-3", "exllamav3"): ONE_TABLE,
    ("Phi-3", "tensorrt-llm"): ONE_TABLE,
    # PhimoeRotaryEmbedding of transformers 5 calls its function without a length, so
    # that it has the short factors at every length.
    (
        "Phi-3.5-MoE",
        "transformers-4.57",
    ): "W05 frequencies up to x31.9, from 1 of 262144",
    ("Phi-3.5-MoE", "llama.cpp"): "W05 frequencies up to x31.9, from 1 of 262144",
    ("Phi-3.5-MoE", "mlx-lm"): "W05 frequencies up to x31.9, from 1",
    # architecture/deepseek_v3.py asserts n_group and topk_group of 1; theirs are 8 and 4.
    ("deepseek-ai/DeepSeek-R1", "exllamav3"): REFUSES,
    ("DeepSeek-V3", "exllamav3"): REFUSES,
    ("nvidia/DeepSeek-V3.1-NVFP4", "exllamav3"): REFUSES,
    # convert_phi3.go writes empty factors, whose shape llama.cpp refuses.
    ("microsoft/Phi-3-mini-4k-instruct", "ollama"): REFUSES,
}


def test_the_cells_that_differ_are_those_that_the_sources_give() -> None:
    found = {}
    for line in compare_models(read_published(FILE)[1]):
        for runtime, cell in line.cells.items():
            if cell.verdict in ("differs", "refuses"):
                found[line.model.name, runtime] = f"{cell.code} {cell.words}"
    assert found == DIFFERENT_CELLS


def find_model_of_row(name: str) -> str:
    """Return the name of a model without owner, number format and tuning."""
    short = name.rpartition("/")[2].lower().removesuffix(" (ome)")
    short = short.removeprefix("meta-")
    return re.sub(r"(-(nvfp4|fp8|bf16|static-pertensor|instruct|it))+$", "", short)


def test_rows_of_one_model_say_the_same() -> None:
    """Files of one model in several formats, or of several sources, rotate alike."""
    first: dict[str, tuple[str, object]] = {}
    compared = 0
    for line in compare_models(read_published(FILE)[1]):
        if line.spec is None:
            continue
        spec = line.spec
        verdicts = {name: each.verdict for name, each in line.cells.items()}
        rotation = (spec.base, spec.rotary_dim, spec.head_dim, spec.method)
        facts = (rotation, line.layers, verdicts)
        model = find_model_of_row(line.model.name)
        first_name, first_facts = first.setdefault(model, (line.model.name, facts))
        if first_name != line.model.name:
            compared += 1
            assert facts == first_facts, (line.model.name, first_name)
    assert compared >= 12


def test_every_qwen3_vl_has_the_sections_of_its_axes() -> None:
    """The published files have them; two collections of files have rows without."""
    for model in read_published(FILE)[1]:
        if model.config["model_type"] in ("qwen3_vl", "qwen3_vl_moe"):
            block = model.config["text_config"].get("rope_scaling", {})
            assert block.get("mrope_section") == [24, 20, 20], model.name


def test_exllama_stops_at_experts_in_groups() -> None:
    """architecture/deepseek_v3.py:57 of exllamav3 1.6.5; without the keys there is one."""
    _, models = read_published(FILE)
    config = next(each.config for each in models if each.name == "DeepSeek-V3")
    single = {**config, "n_group": 1, "topk_group": None}
    assert line_of({**config}).cells["exllamav3"].verdict == "refuses"
    assert line_of({**single, "topk_group": 4}).cells["exllamav3"].verdict == "refuses"
    assert line_of(single).cells["exllamav3"].verdict == "agrees"
    reading = registry.read(registry.RUNTIMES["exllamav3"], config)
    assert reading.problem == "n_group is 8, not 1"


@pytest.mark.parametrize("model_type", ["granite", "olmo2", "deepseek_v2"])
def test_types_without_a_file_in_exllama_are_not_read(model_type: str) -> None:
    """exllamav3/architecture of 1.6.5 has no file for them."""
    config = {**LLAMA, "model_type": model_type, "qk_rope_head_dim": 64}
    assert line_of(config).cells["exllamav3"].verdict == "not read"


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
    listed = Path(__file__).with_name("published_models.txt")
    once_there = listed.read_text(encoding="utf-8").splitlines()
    assert {*once_there} - {model.name for model in models} == set()
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
