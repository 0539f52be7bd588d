"""`check FOLDER` on transformers' own rotary classes, which are right."""

from pathlib import Path

import pytest

from ropelab.audit.check import check
from ropelab.runs.errors import InputError
from tests.models.released.architectures import ARCHITECTURES
from tests.models.released.tiny import config

# Rotation by a function of the module, not by a class.
NO_CLASS = {"codegen", "gptj"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_no_class_of_transformers_is_accused(name: str, tmp_path: Path) -> None:
    config(name, **ARCHITECTURES[name]).save_pretrained(tmp_path)
    if name in NO_CLASS:
        with pytest.raises(InputError, match="no rotary embedding in"):
            check(str(tmp_path))
        return
    done = check(str(tmp_path))
    assert not done.wrong, done.answer
    assert "nearest to float32" in done.answer
    assert not check(str(tmp_path), dtype="bfloat16").wrong


def test_every_layer_type_is_looked_at(tmp_path: Path) -> None:
    config("gemma3_text", **ARCHITECTURES["gemma3_text"]).save_pretrained(tmp_path)
    assert "(sliding_attention, full_attention)" in check(str(tmp_path)).answer or (
        "(full_attention, sliding_attention)" in check(str(tmp_path)).answer
    )
