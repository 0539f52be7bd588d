"""Published configurations, where a folder of them lies beside the checkout: nothing is guessed."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropelab.audit.audited import audit
from ropelab.audit.document import from_json
from ropelab.audit.emit import emit
from ropelab.audit.observed import rotary_module
from ropelab.audit.runtimes import registry
from ropelab.runs.errors import InputError

FOLDER = next(
    (p / "shared" / "configs-real" for p in Path(__file__).parents if (p / "shared").is_dir()), None
)
FILES = sorted(FOLDER.glob("*.json")) if FOLDER else []
real = pytest.mark.skipif(not FILES, reason="no published configurations beside the checkout")


def merged(config: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    deep = {
        name: merged(config[name], value)
        if name in ("text_config", "llm_config") and isinstance(value, dict)
        else value
        for name, value in patch.items()
    }
    return {**config, **deep}


def scaled() -> list[Path]:
    """The files with a scaling of their own."""
    found = []
    for path in FILES:
        text = json.loads(path.read_text().replace("Infinity", "1e300"))
        text = text.get("text_config") or text
        block = text.get("rope_scaling") or text.get("rope_parameters") or {}
        kind = block.get("rope_type") or block.get("type") or "default"
        if kind not in ("default", "mrope"):
            found.append(path)
    return found


@real
@pytest.mark.parametrize("path", scaled(), ids=lambda path: path.stem)
def test_emit_keeps_the_files_own_method_in_transformers(path: Path, tmp_path: Path) -> None:
    """Read back with the real class: the patched file makes the tables of the file itself."""
    try:
        spec = registry.reference(str(path), json.loads(path.read_text()))
    except InputError as error:
        pytest.skip(str(error))
    done = emit(str(path), context=spec.length, target="hf5")
    assert done.replaced == ""
    config = json.loads(path.read_text())
    modules = []
    for name, content in (
        ("own", config),
        ("new", merged(config, json.loads(done.targets[0].text))),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(content))
        try:
            modules.append(rotary_module(folder))
        except InputError as error:
            pytest.skip(str(error))
    assert done.targets[0].lost == ()
    one, other = ({n: b.numpy() for n, b in m.named_buffers()} for m in modules)
    assert list(one) == list(other)
    for name, table in one.items():
        np.testing.assert_array_equal(table, other[name], err_msg=name)
    factors = [{n: v for n, v in vars(m).items() if "attention_scaling" in n} for m in modules]
    assert factors[0] == factors[1]


@real
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_reader_of_transformers_computes_what_its_class_does(
    path: Path, tmp_path: Path
) -> None:
    shutil.copy(path, tmp_path / "config.json")
    try:
        result = audit(str(path), runtime="transformers-5")
        module = rotary_module(tmp_path)
    except InputError as error:
        pytest.skip(str(error))
    for name, table in module.named_buffers():
        if "original" not in name:
            layer = name.removesuffix("inv_freq").removesuffix("_")
            spec = result.reference.layers.get(layer) or result.reference.main
            assert spec is not None
            np.testing.assert_allclose(spec.inv_freq(64), table.numpy(), rtol=2e-6, atol=1e-12)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "bert", "hidden_size": 768, "num_attention_heads": 12},
        {"model_type": "nemotron_h", "head_dim": 128, "rope_theta": 10000},
        {"model_type": "granitemoehybrid", "position_embedding_type": "nope", "head_dim": 64},
        {"model_type": "falcon", "alibi": True, "head_dim": 64},
    ],
)
def test_models_without_rotary_positions_are_said_to_have_none(config: dict[str, Any]) -> None:
    content = json.dumps({"max_position_embeddings": 512, **config, "limits": [0.0, float("inf")]})
    with pytest.raises(InputError, match="has no rotary positions"):
        from_json("a file", content.encode())


def test_a_release_reads_only_its_own_model_types() -> None:
    config = {"model_type": "qwen3", "head_dim": 128, "max_position_embeddings": 40960}
    found = {n: registry.read(r, config).outcome for n, r in registry.RUNTIMES.items()}
    assert found["transformers-4.48"] == "not modelled"
    assert found["transformers-4.51"] == found["transformers-5"] == "read"
    scout = {**config, "model_type": "llama4_text"}
    ones = {"low_freq_factor": 1.0, "high_freq_factor": 1.0, "factor": 16.0}
    ones["original_max_position_embeddings"] = 8192
    scout["rope_scaling"] = {"rope_type": "llama3", **ones}
    reading = registry.read(registry.RUNTIMES["transformers-5"], scout)
    assert reading.main is not None
    assert reading.main.pairing == "interleaved"
