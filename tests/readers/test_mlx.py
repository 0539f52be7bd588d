"""The rows of MLX-LM's model files, against what these files built.

oracles/observe_mlx_files.py asked them: mlx-lm 0.32.2, 23 configurations each.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropelab.readers import registry
from ropelab.readers.mlx import ROWS

HERE = Path(__file__).parent
BUILT: dict[str, dict[str, list]] = json.loads((HERE / "mlx.json").read_text())
ASKED: dict[str, dict[str, Any]] = json.loads(
    (HERE / "oracles" / "mlx_files.json").read_text()
)
# Its blocks of layers were not written for the oracle.
NOT_BUILT = {"nemotron-nas"}
# Files of which a reader says that it does not compute them.
NOT_MODELLED = {
    ("bailing_moe_linear", "larger head"),
    ("qwen2_5_vl", "larger head"),
    ("qwen2_vl", "larger head"),
}
# Keys without which their model files stop, whatever else the oracle asked.
NEEDED: dict[str, dict[str, Any]] = {
    "exaone4": {"sliding_window_pattern": "LLLG"},
    "llama4_text": {"no_rope_layers": [1, 1, 1, 0, 1, 1]},
}
LAYERS = ["sliding_attention", "full_attention"] * 3


def read(kind: str, keys: dict[str, Any]) -> registry.Reading:
    config = {"model_type": kind, "layer_types": LAYERS, "v_head_dim": 64, **keys}
    config |= NEEDED.get(kind, {})
    if kind == "llama4":  # a whole with a file of its own
        text = {**config, "model_type": "llama4_text"}
        config = {"model_type": kind, "text_config": text}
    return registry.read(registry.RUNTIMES["mlx-lm"], config)


@pytest.mark.parametrize("kind", sorted(ROWS.keys() - NOT_BUILT))
def test_a_row_says_what_the_model_file_builds(kind: str) -> None:
    assert BUILT[kind]
    for name, rotations in BUILT[kind].items():
        if (kind, name) in NOT_MODELLED:
            continue
        reading = read(kind, ASKED[name])
        if kind == "mistral4" and name != "llama 4 in rope_parameters":
            # It is built, and stops at its first token.
            assert reading.outcome == "refused"
            continue
        assert reading.layers, f"{name}: {reading.problem}"

        own = []
        for spec in reading.layers.values():
            angles = spec.inv_freq(64)
            numbers = (angles[1], angles[-1], spec.attention_factor)
            rotation = [spec.pairing, spec.rotary_dim, *numbers]
            if rotation not in own:
                own.append(rotation)
        own.sort()
        assert [one[:2] for one in own] == [one[:2] for one in rotations], name
        for mine, built in zip(own, rotations, strict=True):
            np.testing.assert_allclose(mine[2:], built[2:], rtol=2e-5, err_msg=name)


@pytest.mark.parametrize("kind", sorted(ROWS.keys() - NOT_BUILT))
def test_where_the_model_file_stops_nothing_is_computed(kind: str) -> None:
    for name in ASKED.keys() - BUILT[kind].keys():
        # Granite's own layer types are attention and mamba.
        if (kind, name) == ("granitemoehybrid", "by layer type"):
            continue
        reading = read(kind, ASKED[name])
        assert reading.outcome in ("refused", "not modelled"), name


def test_a_file_that_was_not_read_is_not_modelled() -> None:
    reading = read("dbrx", ASKED["usual"])
    assert reading.outcome == "not modelled"
    assert "was not read" in reading.problem


@pytest.mark.parametrize(
    ("kind", "parallel"), [("qwen3_vl", "qwen3_vl_text"), ("gemma3", "gemma3_text")]
)
def test_a_language_part_goes_by_its_own_row(kind: str, parallel: str) -> None:
    text = {"model_type": parallel, **ASKED["yarn"]}
    whole = registry.read(
        registry.RUNTIMES["mlx-lm"], {"model_type": kind, "text_config": text}
    )
    assert whole.layers == read(parallel, ASKED["yarn"]).layers


@pytest.mark.parametrize(
    ("kind", "silent"), [("llama", "half"), ("qwen2", "half"), ("glm4", "interleaved")]
)
def test_a_key_pairs_features(kind: str, silent: str) -> None:
    """`rope_traditional` is handed on (mlx_lm/models/llama.py, qwen2.py, glm4.py)."""
    keys = ASKED["many keys"]
    pairings = {}
    for given in (True, False):
        reading = read(kind, {**keys, "rope_traditional": given})
        pairings[given] = reading.layers["all"].pairing
    assert pairings == {True: "interleaved", False: "half"}
    assert read(kind, keys).layers["all"].pairing == silent


def test_mistral_4_stops_without_its_factor_on_queries() -> None:
    """mlx_lm/models/mistral4.py looks at rope_parameters["llama_4_scaling_beta"]."""
    block = {"rope_theta": 1e4, "original_max_position_embeddings": 8192}
    keys = {**ASKED["many keys"], "rope_interleave": True}
    factor = {"llama_4_scaling_beta": 0.1}
    without = read("mistral4", {**keys, "rope_parameters": block})
    complete = read("mistral4", {**keys, "rope_parameters": block | factor})
    assert (without.outcome, complete.outcome) == ("refused", "read")
    assert read("mistral4", keys).outcome == "refused"


def test_mixtures_of_keys_are_read_as_initialize_rope_takes_them() -> None:
    """Derived from mlx_lm/models/rope_utils.py; refused where it raises."""
    keys = {"rope_theta": 5e5, **ASKED["usual"]}
    yarn = {"factor": 4.0, "original_max_position_embeddings": 2048}
    blocks: tuple[tuple[dict[str, Any], str], ...] = (
        ({"type": "default", "rope_type": "yarn", **yarn}, "unscaled"),
        ({"type": "", "rope_type": "linear", "factor": 2.0}, "pi(factor=2)"),
        ({"type": "mrope", "mrope_section": [16, 8, 8]}, "unscaled"),
        ({"type": "mrope", "mrope_section": [16, 16]}, "refused"),
        ({"type": "mrope"}, "refused"),
        ({"type": "linear"}, "refused"),
        ({"type": "su"}, "refused"),
        ({"rope_type": "ntk", "factor": 2.0}, "refused"),
        ({}, "unscaled"),
    )
    for block, wanted in blocks:
        reading = read("seed_oss", {**keys, "rope_scaling": block})
        got = reading.main_spec.method if reading.main_spec else reading.outcome
        assert got == wanted, block


KINDS_OF_LAYERS = ["full_attention", "sliding_attention"]


@pytest.mark.parametrize(
    ("kind", "lacking"),
    [(kind, "sliding_attention") for kind in ("gemma3n_text", "gpt_oss", "olmo3")]
    + [(kind, "full_attention") for kind in ("llama", "gpt_oss", "olmo3", "smollm3")],
)
def test_files_that_look_for_a_layer_stop_without_it(kind: str, lacking: str) -> None:
    """As 0.32.2 ran: ValueError, it is not in list."""
    keys = {**ASKED["many keys"], "rope_local_base_freq": 777.0}
    (other,) = {*KINDS_OF_LAYERS} - {lacking}
    assert read(kind, {**keys, "layer_types": [other] * 6}).outcome == "refused"
    assert read(kind, {**keys, "layer_types": KINDS_OF_LAYERS * 3}).layers


@pytest.mark.parametrize(
    "kind", ["lfm2", "granitemoehybrid", "exaone_moe", "qwen3_5_text"]
)
def test_a_base_of_null_in_the_block_stops_files_that_take_it(kind: str) -> None:
    """As 0.32.2 ran: '[rope] Neither base nor freqs has a value.'"""
    block = {"rope_type": "default", "rope_theta": None}
    assert (
        read(kind, {**ASKED["many keys"], "rope_parameters": block}).outcome
        == "refused"
    )


def test_olmo_hybrid_takes_its_base_from_the_block_alone() -> None:
    """As 0.32.2 ran: 10000 where the block has none, and no rotation where it is null."""
    keys = ASKED["many keys"]
    block: dict[str, Any] = {"rope_type": "default"}
    spec = read("olmo_hybrid", {**keys, "rope_parameters": block}).main_spec
    assert spec is not None
    assert spec.base == 1e4
    null = read(
        "olmo_hybrid", {**keys, "rope_parameters": {**block, "rope_theta": None}}
    )
    assert null.outcome == "not modelled"


def test_types_that_a_file_checks_by_their_newer_name() -> None:
    """mlx_lm/models/internlm3.py:41 looks at rope_type, rope_utils.py at type first."""
    block = {"type": "linear", "rope_type": "yarn", "factor": 4.0}
    keys = ASKED["many keys"]
    assert read("internlm3", {**keys, "rope_scaling": block}).outcome == "refused"
    # phimoe.py:50 asks whether its block is null.
    assert read("phimoe", {**keys, "rope_scaling": {}}).outcome == "refused"
    assert read("phimoe", {**keys, "rope_scaling": None}).layers


def test_gemma_4_unified_is_run_by_the_file_of_gemma_4() -> None:
    """mlx_lm/utils.py:59 remaps the type, and gemma4.py hands text_config on."""
    part = {"model_type": "gemma4_unified_text", "max_position_embeddings": 8192}
    config = {"model_type": "gemma4_unified", "text_config": part}
    layers = registry.read(registry.RUNTIMES["mlx-lm"], config).layers
    assert {name: (spec.base, spec.head_dim) for name, spec in layers.items()} == {
        "full_attention": (1e6, 512),
        "sliding_attention": (1e4, 256),
    }
