"""Published configurations, where a folder of them lies beside the checkout: nothing is guessed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropelab.audit.emit import emit
from ropelab.audit.observed import rotary_module
from ropelab.audit.runtimes import registry
from ropelab.runs.errors import InputError

FOLDER = next(
    (p / "shared" / "configs-real" for p in Path(__file__).parents if (p / "shared").is_dir()), None
)
FILES = sorted(FOLDER.glob("*.json")) if FOLDER else []
pytestmark = pytest.mark.skipif(not FILES, reason="no published configurations beside the checkout")


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


@pytest.mark.parametrize("path", scaled(), ids=lambda path: path.stem)
def test_emit_keeps_the_files_own_method_in_transformers(path: Path, tmp_path: Path) -> None:
    """Read back with the real class: the patched file makes the tables of the file itself."""
    try:
        spec = registry.reference(str(path), json.loads(path.read_text()))
    except InputError as error:
        pytest.skip(str(error))
    done = emit(str(path), context=spec.length, target="hf5")
    assert done.replaced == ""
    assert done.targets[0].lost == ()
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
    one, other = ({n: b.numpy() for n, b in m.named_buffers()} for m in modules)
    assert list(one) == list(other)
    for name, table in one.items():
        np.testing.assert_array_equal(table, other[name], err_msg=name)
    factors = [{n: v for n, v in vars(m).items() if "attention_scaling" in n} for m in modules]
    assert factors[0] == factors[1]
