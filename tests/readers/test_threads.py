"""Questions of public threads that no other test asks, each by its kind."""

import json
from pathlib import Path
from typing import Any

import pytest

import ropelab
from ropelab.audit.audited import audit
from ropelab.math.frequencies import Geometry
from ropelab.math.scaling import NtkAware
from ropelab.readers.document import Document, load
from ropelab.readers.registry import choose_runtimes
from ropelab.runs.errors import InputError
from tests.texts import mentions


def ask_precision(cast: str) -> Any:
    return ropelab.precision(
        base=500000.0,
        head_dim=64,
        length=2048,
        schemes=["rope"],
        formats=["float32"],
        cast=cast,
        explain=1000,
        explain_pair=1,
    )


def test_an_angle_in_bfloat16_is_off_by_two_fifths_at_position_1000() -> None:
    """Angles from 512 to 1024 are multiples of 4 in bfloat16 (mlir-air#1610)."""
    done = ask_precision("angle=bf16")
    exact, rounded = done.tables["explain"].itertuples()
    assert exact.angle_rad == pytest.approx(663.601238, abs=1e-6)
    assert rounded.angle_rad == 664.0
    assert rounded.angle_error_rad == pytest.approx(0.398762, abs=1e-6)
    cast = done.tables["casts"].query("kind == 'cast'").iloc[0]
    assert cast.first_position_over_tolerance == 7


@pytest.mark.slow
def test_tables_in_bfloat16_move_scores_a_hundred_times_less_than_angles() -> None:
    """A trainer with float32 in the kernel and a server with rounded tables
    (Automodel#3027): the tables alone are no reason for another answer.
    """
    spreads = {}
    for cast in ("angle=bf16", "table=bf16", "table=float32"):
        casts = ask_precision(cast).tables["casts"]
        spreads[cast] = casts.query("kind == 'cast'").iloc[0].score_spread
    assert spreads["table=float32"] < 1e-6
    assert 1e-3 < spreads["table=bf16"] < 3e-3
    assert spreads["angle=bf16"] > 100 * spreads["table=bf16"]


@pytest.mark.parametrize(("width", "factor"), [(16, 2.0), (56, 2.0), (56, 4.0)])
def test_ntk_of_one_axis_divides_its_own_slowest_pair(
    width: int, factor: float
) -> None:
    """An image model has an axis of 16 and two of 56 features (InvokeAI#8763): the
    exponent is that of each axis.
    """
    geometry = Geometry(width, 10000.0, 4096)
    scaled = NtkAware(factor=factor).plan(geometry, 8192).inv_freq
    ratios = geometry.inv_freq / scaled
    assert ratios[0] == 1.0
    assert ratios[-1] == pytest.approx(factor)
    one_step = factor ** (2 / (width - 2))
    assert ratios[1] == pytest.approx(one_step)


@pytest.mark.parametrize("name", ["openvino", "ort", "executorch"])
def test_a_runtime_that_was_not_read_is_named_in_one_line(name: str) -> None:
    with pytest.raises(InputError, match=f"unknown runtime '{name}'; allowed: "):
        choose_runtimes([name])


QWEN = {
    "model_type": "qwen2_5_vl",
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "text_config": {
        "model_type": "qwen2_5_vl_text",
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "max_position_embeddings": 128000,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    },
}
AXIAL = {
    "model_type": "qwen2_5_vl_vision",
    "hidden_size": 1280,
    "rope_parameters": {"rope_type": "axial", "rope_theta": 1e4},
}


def list_notes(config: dict[str, Any]) -> list[str]:
    done = audit(Document("config.json", "config", config), precision=False)
    return [finding.says for finding in done.findings if finding.code == "N04"]


@pytest.mark.parametrize("part", [AXIAL, {"hidden_size": 1280}])
def test_the_rotation_of_a_vision_part_is_read_where_its_class_was(
    part: dict[str, Any],
) -> None:
    """transformers#48105: a part with the type `axial`."""
    note, _ = list_notes({**QWEN, "vision_config": part})
    assert mentions(
        note,
        "rotation of the vision part",
        "pairs 0 to 19 height, 20 to 39 width",
        "base 10000",
        "in transformers-5; not looked at in transformers-4.57",
    )


def test_the_rotation_of_a_vision_part_is_said_not_to_be_looked_at() -> None:
    part = {**AXIAL, "model_type": "radio"}
    note, _ = list_notes({**QWEN, "vision_config": part})
    assert note.startswith("rotation of the vision part (radio): not looked at in ")
    assert "transformers-5" in note


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        (
            {"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 56, 56]},
            "a file of diffusers",
        ),
        (
            {"model_type": "dinov3_vit", "patch_size": 16, "rope_theta": 100.0},
            "a model of images",
        ),
    ],
)
def test_a_model_of_images_is_said_to_be_one(
    config: dict[str, Any], lines: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(InputError, match=lines):
        audit(load(str(path)), precision=False)
