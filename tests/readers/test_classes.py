"""Every rotary class of the installed transformers against the reader, and the table
behind it.
"""

import importlib
import importlib.util
import json
import re
import warnings
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ropelab.conformance.rotary_classes import build_rotary, find_rotary_class
from ropelab.readers import registry
from ropelab.readers.families import CLASSES, RELEASES, find_family
from tests.conformance.test_attention_code import PLACED
from tests.models.released.architectures import ARCHITECTURES
from tests.models.released.tiny import SHAPE
from tests.models.released.tiny import config as tiny_config
from tests.small import mostly_slow

TOOL = Path(__file__).parents[2] / "tools" / "class_defaults.py"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
PLAIN = {"rope_type": "default", "rope_theta": 54321.0}
LLAMA3 = {
    **YARN,
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
# Each leaves out what the one before it gives, so that every default is asked for.
FILES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "base": {"rope_theta": 54321.0, "max_position_embeddings": 4096},
    "sizes": {"hidden_size": 1024, "num_attention_heads": 16},
    "head": {"head_dim": 96, "qk_rope_head_dim": 32},
    "latent": {"qk_rope_head_dim": 32, "rope_interleave": False},
    "share": {"partial_rotary_factor": 0.5, "rope_theta": 54321},
    "width": {"rotary_dim": 32},
    "yarn": {
        "rope_scaling": YARN,
        "rope_theta": 54321.0,
        "max_position_embeddings": 8192,
    },
    "yarn of 5": {
        "rope_parameters": {**YARN, "rope_theta": 54321.0, "truncate": False}
    },
    "share beside yarn": {
        "rope_scaling": YARN,
        "rope_theta": 54321.0,
        "partial_rotary_factor": 0.5,
    },
    "share beside yarn of 5": {
        "rope_parameters": {**YARN, "rope_theta": 54321.0},
        "partial_rotary_factor": 0.5,
    },
    "sizes and yarn": {
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "rope_parameters": {**YARN, "rope_theta": 54321.0},
    },
    "yarn and share": {"rope_parameters": {**YARN, "partial_rotary_factor": 0.5}},
    "llama3": {"rope_scaling": LLAMA3, "original_max_position_embeddings": 2048},
    "no base": {"rope_theta": None},
    "no dict": {"rope_scaling": "yarn"},
    "alpha": {"rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}},
    "linear": {"rope_scaling": {"type": "linear", "factor": 2.0}},
    "axes": {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
    "axes alone": {"rope_scaling": {"rope_type": "mrope"}},
    "default": {"rope_parameters": {"rope_type": "default", "rope_theta": 54321.0}},
    "head null": {"head_dim": None},
    "head null beside yarn": {"head_dim": None, "rope_scaling": YARN},
    "head null beside linear": {
        "head_dim": None,
        "rope_scaling": {"type": "linear", "factor": 2.0},
    },
    "share null": {"partial_rotary_factor": None, "rope_theta": 54321.0},
    "share null in the block": {
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 54321.0,
            "partial_rotary_factor": None,
        }
    },
    "pct null": {"rotary_pct": None},
    "original null": {"rope_scaling": YARN, "original_max_position_embeddings": None},
    "scaling null": {"rope_scaling": None},
    "all null": {"rope_scaling": None, "rope_parameters": None},
    "two shares": {
        "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.25},
        "partial_rotary_factor": 0.5,
    },
    "empty block": {"rope_parameters": {}, "rope_theta": 54321.0},
    "proportional": {"rope_parameters": {**PLAIN, "rope_type": "proportional"}},
    "one layer": {"rope_parameters": {"full_attention": PLAIN}, "rope_theta": 777.0},
    "a layer without a base": {
        "rope_parameters": {
            "full_attention": PLAIN,
            "sliding_attention": {"rope_type": "default"},
        }
    },
    "no full layers": {
        "rope_parameters": {"full_attention": None, "sliding_attention": PLAIN}
    },
    "no sliding layers": {
        "rope_parameters": {"full_attention": PLAIN, "sliding_attention": None}
    },
    "by layer": {
        "rope_parameters": {
            "full_attention": {**YARN, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        }
    },
}
# Pairs in another order than by frequency.
ORDERED = {"ernie4_5_vl_moe_text"}
# Files at which these classes stop or err for other reasons than the keys about
# rotation.
EXCEPT = {
    "ernie4_5_vl_moe_text": {"sizes", "head"},  # its sections do not fit
    "falcon": {
        "head",
        "head null",
        "head null beside yarn",
        "head null beside linear",
    },  # a property that cannot be set
    # Its default sizes have a head of 73 features, an odd number.
    "qwen3_omni_moe_text": {"yarn and share", "proportional"},
    "csm_depth_decoder_model": {"alpha"},  # a length of 33, above which dynamic scales
    "neomme": {"no base"},  # takes null for none
    "ultrabert": {"no base"},  # a list of bases, which no reader computes
    "mistral4": {
        "yarn",
        "llama3",
        "linear",
        "alpha",
        "head null beside linear",
    },  # tables twice as wide as what attention rotates
}


def built(kind: str, keys: dict[str, Any]) -> Any:
    """transformers' rotary class of such a file; None if it refuses the file."""
    config_class = CONFIG_MAPPING[kind]
    try:
        config = config_class.from_dict(json.loads(json.dumps(keys)))
        return find_rotary_class(config_class)(config=config.get_text_config())
    except Exception:  # whatever stops transformers
        return None


def stops_at_positions(module: Any) -> bool:
    """Whether a class of several axes stops when it is called."""
    try:
        module(torch.zeros(1, 1, 1), torch.zeros(3, 1, 1, dtype=torch.long))
    except Exception:  # whatever stops transformers
        return True
    return False


def tables(module: Any) -> Iterator[tuple[str, np.ndarray, float]]:
    """Layer types with their frequencies and the factor on cos and sin."""
    for name, buffer in module.named_buffers():
        if name.endswith("inv_freq") and "original" not in name:
            prefix = name.removesuffix("inv_freq")
            factor = getattr(module, f"{prefix}attention_scaling", None)
            yield (
                prefix.removesuffix("_") or "all",
                buffer.double().numpy(),
                factor or 1.0,
            )


def compare(kind: str, keys: dict[str, Any]) -> str:
    """The difference between the class and the reader in words, or nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = built(kind, keys)
    reading = registry.read(
        registry.RUNTIMES["transformers-5"], {"model_type": kind, **keys}
    )
    if module is None:
        return (
            ""
            if not reading.layers
            else f"read as {reading.main_spec}, transformers refuses"
        )
    if "odd rotated width" in reading.problem:
        # transformers rotates one feature more
        width = int(reading.problem.split()[-1])
        return (
            ""
            if all(2 * len(table) == width + 1 for _, table, _ in tables(module))
            else "odd"
        )
    # Only its first forward pass stops: the next test runs it.
    if re.search("and attention with|multiplies queries", reading.problem):
        return ""
    if reading.problem.startswith("sections ") and stops_at_positions(module):
        return ""
    if not reading.layers:
        return f"{reading.outcome}: {reading.problem}"
    for layer, table, factor in tables(module):
        spec = reading.layers.get(layer) or reading.layers.get("all")
        if spec is None:
            return f"no layers {layer}, only {', '.join(reading.layers)}"
        own = spec.inv_freq(64)
        if own.shape != table.shape:
            return f"{layer}: {len(own)} pairs, not {len(table)}"
        if kind in ORDERED:
            own, table = np.sort(own), np.sort(table)
        if not np.allclose(own, table, rtol=2e-6, atol=1e-12):
            return (
                f"{layer}: frequencies {own[:3]} of base {spec.base}, not {table[:3]}"
            )
        if abs(spec.attention_factor - factor) > 1e-6:
            return f"{layer}: factor {spec.attention_factor}, not {factor}"
    return ""


# DBRX: its published files keep the base where transformers' class does not look.
ASKED_BY_HAND = {
    "esmc",
    "granite4_vision_text",
    "kyutai_speech_to_text",
    "mimi",
    "moshi",
}
OWN = [
    kind
    for kind in sorted({*CLASSES["classes"], *ASKED_BY_HAND})
    if "transformers-5" in (find_family(kind).read_by or ("transformers-5",))
    and kind in CONFIG_MAPPING  # of the installed release, which may be an older one
]


# Models of several parts take seconds each to build.
QUICK = [kind for kind in OWN if "omni" not in kind]


@pytest.mark.parametrize("kind", mostly_slow(OWN, QUICK))
def test_the_reader_computes_what_the_class_does(kind: str) -> None:
    files = {
        name: keys for name, keys in FILES.items() if name not in EXCEPT.get(kind, ())
    }
    found = {name: compare(kind, keys) for name, keys in files.items()}
    assert {name: problem for name, problem in found.items() if problem} == {}


HEADS = {kind: keys for kind, keys in ARCHITECTURES.items() if kind in OWN} | {
    kind: {} for kind in ("modernbert", "mistral4", "youtu")
}
SECTIONS = {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1]}}
HEADS |= dict.fromkeys(("glm4v_text", "qwen2_vl_text", "qwen2_5_vl_text"), SECTIONS)


def compare_forward(kind: str, keys: dict[str, Any]) -> None:
    """Assert that the reader refuses a tiny model that transformers cannot run."""
    stops = False
    try:
        built = tiny_config(kind, **keys)
        if None in keys.values():
            # Of a tiny configuration what is null is left out.
            values = {
                key: v for key, v in {**SHAPE, **keys}.items() if key in keys or v
            }
            built = CONFIG_MAPPING[kind].from_dict(deepcopy(values))
        model = AutoModel.from_config(built).eval()
        with torch.inference_mode():
            model(input_ids=torch.arange(2, 9)[None])
    except Exception:  # whatever stops transformers
        stops = True

    config = {"model_type": kind, **SHAPE, **keys}
    reading = registry.read(registry.RUNTIMES["transformers-5"], config)
    assert stops == (not reading.layers), reading.problem


@pytest.mark.parametrize("kind", mostly_slow(HEADS, ("deepseek_v3", "llama", "olmoe")))
@pytest.mark.parametrize("given", [8, 24])
def test_a_head_dim_at_which_attention_stops_is_refused(kind: str, given: int) -> None:
    """Heads have 32 / 4 features by their sizes, and 8 that rotate if attention is
    latent.
    """
    compare_forward(kind, {**HEADS[kind], "head_dim": given})


MISTRAL4 = PLACED["mistral4"]
UNSCALED = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
DEEPSEEK = {**ARCHITECTURES["deepseek_v3"], "head_dim": 8}


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("mistral4", MISTRAL4),
        ("mistral4", {**MISTRAL4, **UNSCALED}),
        ("deepseek_v3", DEEPSEEK),
        ("deepseek_v3", {**DEEPSEEK, **FILES["share beside yarn of 5"]}),
        ("deepseek_v3", {**DEEPSEEK, **FILES["yarn and share"]}),
    ],
)
def test_tables_of_another_width_than_rotates_are_refused(
    kind: str, keys: dict[str, Any]
) -> None:
    compare_forward(kind, keys)


# The attention of these classes takes the share from the block.
SHARED = ("persimmon", "phi", "stablelm", "nemotron")


@pytest.mark.parametrize("kind", SHARED)
def test_attention_that_needs_a_share_stops_at_null(kind: str) -> None:
    compare_forward(kind, {"partial_rotary_factor": None})


FACTOR = {"llama_4_scaling_beta": 0.1}
LENGTH = {"original_max_position_embeddings": 64}


@pytest.mark.parametrize(
    "block",
    [
        YARN,
        {**YARN, **FACTOR},
        PLAIN,
        {**PLAIN, **FACTOR},
        {**PLAIN, **FACTOR, **LENGTH},
        {},
    ],
)
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        ("ministral3", ARCHITECTURES["ministral3"]),
        ("mistral4", {**MISTRAL4, "partial_rotary_factor": 0.5}),
    ],
)
def test_a_block_without_the_factor_on_queries_is_refused(
    kind: str, keys: dict[str, Any], block: dict[str, Any]
) -> None:
    compare_forward(kind, {**keys, "rope_parameters": block})


@pytest.mark.parametrize("release", ["4.57", "4.48"])
@pytest.mark.parametrize("kind", ["llama", "glm"])
def test_transformers_4_stops_at_a_share_of_null(kind: str, release: str) -> None:
    """It multiplies by it (modeling_rope_utils.py:126 in 4.57.1)."""
    runtime = registry.RUNTIMES[f"transformers-{release}"]
    config = {"model_type": kind, **SIZES, "partial_rotary_factor": None}
    assert registry.read(runtime, config).outcome == "refused"


def test_servers_rotate_the_whole_head_at_a_share_of_null() -> None:
    """The class of transformers then fills in none, and get_rope takes 1."""
    config = {
        "model_type": "glm4",
        "architectures": ["Glm4ForCausalLM"],
        **SIZES,
        "partial_rotary_factor": None,
    }
    reading = registry.read(registry.RUNTIMES["vllm"], config)
    assert reading.layers["all"].rotary_dim == 128
    llamacpp = registry.read(registry.RUNTIMES["llama.cpp"], config)
    # Its converter has the share of the class instead (conversion/glm.py:26).
    assert llamacpp.layers["all"].rotary_dim == 64


def test_releases_differ_in_where_the_size_of_a_head_is_read() -> None:
    """By hand: 4.57.1's granitemoe and phimoe divide the sizes for attention
    (modeling_granitemoe.py, modeling_phimoe.py: `self.hidden_size // self.num_heads`),
    and its Chameleon and Idefics hand that size to their tables, too.
    """
    keys = {**SIZES, "head_dim": 64, "rope_theta": 10000.0}
    older = registry.RUNTIMES["transformers-4.57"]
    newer = registry.RUNTIMES["transformers-5"]
    for kind in ("granitemoe", "phimoe"):
        config = {"model_type": kind, **keys}
        assert registry.read(older, config).outcome == "refused"
        assert registry.read(newer, config).layers["all"].rotary_dim == 64
    for kind in ("chameleon", "idefics"):
        config = {"model_type": kind, **keys}
        assert registry.read(older, config).layers["all"].rotary_dim == 128
        assert registry.read(newer, config).outcome == "refused"


@pytest.mark.parametrize("server", ["vllm", "sglang"])
def test_servers_do_not_read_the_head_dim_of_latent_attention(server: str) -> None:
    config = {"model_type": "deepseek_v3", **SIZES, "head_dim": 128}
    reading = registry.read(registry.RUNTIMES[server], config)
    assert reading.layers["all"].rotary_dim == 64


# What JSON can hold in the place of a whole number, a flag or a list of names.
ODD: tuple[Any, ...] = (64.0, "64", None, True, [])


@pytest.mark.parametrize("kind", [kind for kind in OWN if kind in CLASSES["classes"]])
def test_values_of_another_type_are_refused_as_the_class_refuses_them(
    kind: str,
) -> None:
    for key, types in find_family(kind).key_types.items():
        for value in ODD:
            try:
                CONFIG_MAPPING[kind].from_dict({key: value})
                refused = ""
            except Exception as error:
                refused = type(error).__name__
            config = {"model_type": kind, key: value}
            reading = registry.read(registry.RUNTIMES["transformers-5"], config)
            by_type = (
                reading.outcome == "refused" and "must be of type" in reading.problem
            )
            if by_type or (types and refused == "StrictDataclassFieldValidationError"):
                assert reading.outcome == "refused", (
                    f"{config}: {refused}, {reading.problem}"
                )
                assert refused, f"{config}: {reading.problem}"


@pytest.mark.parametrize("kind", ["llama", "stablelm", "phi3"])
@pytest.mark.parametrize("release", ["4.57", "4.44"])
def test_a_share_of_null_stops_transformers_4(kind: str, release: str) -> None:
    """Its code has int(head_dim * partial_rotary_factor) (modeling_rope_utils.py:126)."""
    keys = {"model_type": kind, "partial_rotary_factor": None}
    reading = registry.read(registry.RUNTIMES[f"transformers-{release}"], keys)
    assert not reading.layers


@pytest.mark.slow
def test_the_table_is_what_the_installed_classes_say() -> None:
    spec = importlib.util.spec_from_file_location("class_defaults", TOOL)
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    installed = json.loads(tool.document([]))
    if transformers.__version__ == CLASSES["release"]:
        assert installed == CLASSES
    for kind, row in installed["classes"].items():
        assert CLASSES["classes"][kind] == row


def test_the_table_has_most_classes_and_no_type_that_a_release_lacks() -> None:
    assert len(CLASSES["classes"]) > 150
    for release, rows in CLASSES["older"].items():
        assert set(rows) <= RELEASES[release]


# Published files that say otherwise what their text is than transformers' own classes
# do.
SIZES = {
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "max_position_embeddings": 131072,
}
LATENT = {**SIZES, "qk_rope_head_dim": 64, "rope_theta": 50000.0}


@pytest.mark.parametrize(
    ("outer", "text"),
    [
        (
            "exaone4_5",
            {"model_type": "exaone4_5_text", **SIZES, "rope_scaling": LLAMA3},
        ),
        ("kimi_k25", {"model_type": "kimi_k2", **LATENT}),
    ],
)
def test_a_text_type_that_its_whole_renames_is_read(
    outer: str, text: dict[str, Any], tmp_path: Path
) -> None:
    config = {"model_type": outer, "text_config": text}
    (tmp_path / "config.json").write_text(json.dumps(config))
    reading = registry.read(registry.RUNTIMES["transformers-5"], config)
    assert reading.main_spec is not None, reading.problem
    ((_, table, _),) = tables(build_rotary(tmp_path))
    np.testing.assert_allclose(reading.main_spec.inv_freq(64), table, rtol=2e-6)


# What the classes of transformers 5.24.0 computed of the types that 5.23 lacks, of
# FILES: pairs, the second and the last frequency, and the factor on cos and sin by
# layer type; null where they stop. exaone, sarvam_mla and sarvam_moe run the models of
# Llama, DeepSeek-V3 and GLM-4 MoE.
LATER: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "transformers-5.24.json").read_text()
)


@pytest.mark.parametrize("kind", LATER)
def test_types_of_a_later_release_are_read_as_its_classes_compute(kind: str) -> None:
    for name, wanted in LATER[kind].items():
        config = {"model_type": kind, **FILES[name]}
        reading = registry.read(registry.RUNTIMES["transformers-5"], config)
        if wanted is None:
            assert not reading.layers, name
            continue
        assert reading.layers, f"{name}: {reading.problem}"
        for layer, (pairs, second, last, factor) in wanted.items():
            spec = reading.layers.get(layer) or reading.layers["all"]
            own = spec.inv_freq(64)
            assert len(own) == pairs, name
            numbers = [own[1], own[-1], spec.attention_factor]
            np.testing.assert_allclose(numbers, [second, last, factor], rtol=2e-6)


@pytest.mark.parametrize("kind", ["esmc", "kyutai_speech_to_text", "mimi"])
def test_heads_of_sound_and_proteins_follow_the_sizes(kind: str) -> None:
    """Their usual heads have 64 features, which is hidden_size / num_attention_heads."""
    assert compare(kind, {"hidden_size": 2048, "num_attention_heads": 16}) == ""
    assert compare(kind, {}) == ""


def test_deepseeks_name_of_yarn_is_yarn_in_sarvams_class() -> None:
    block = {**YARN, "type": "deepseek_yarn", "mscale": 1.0, "mscale_all_dim": 1.0}
    del block["rope_type"]
    config = {"model_type": "sarvam_mla", "rope_scaling": block}
    spec = registry.read(registry.RUNTIMES["transformers-5"], config).layers["all"]
    assert spec.method.startswith("yarn(factor=4")
    assert spec.rotary_dim == 64


CONFIGURATION = """
class MadeUpTextConfig:
    pass
"""
MODELING = """
class MadeUpVisionRotaryEmbedding:
    def __init__(self, config): ...

class MadeUpAudioRotaryEmbedding:
    def __init__(self, config): ...

class MadeUpRotaryEmbedding:
    def __init__(self, config): ...
"""


def test_the_rotary_class_of_a_model_is_not_that_of_its_images_or_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No annotation names the configuration: the names of the classes decide."""
    package = tmp_path / "made_up"
    package.mkdir()
    (package / "configuration_made_up.py").write_text(CONFIGURATION)
    (package / "modeling_made_up.py").write_text(MODELING)
    monkeypatch.syspath_prepend(tmp_path)
    configuration = importlib.import_module("made_up.configuration_made_up")
    found = find_rotary_class(configuration.MadeUpTextConfig)
    assert found.__name__ == "MadeUpRotaryEmbedding"
