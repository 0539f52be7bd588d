"""A released model: its losses are those of transformers, and what is no such model is
refused.
"""

import json
from typing import Any

import pytest
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

from ropelab.models.encoding.base import Encoding
from ropelab.models.lm.evaluation import compute_token_losses
from ropelab.models.released.model import ReleasedModel
from ropelab.runs.errors import InputError
from tests.models.released.tiny import (
    SHAPE,
    TRAINED,
    rope,
    saved,
    theirs,
    tokens,
    untouched,
)

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("llama"), "llama")


@pytest.mark.parametrize(
    ("method", "parameters"),
    [("unscaled", {}), ("pi", {"rope_type": "linear", "factor": 4.0}), ("yarn", YARN)],
)
def test_losses_are_those_of_transformers_with_the_same_scaling(
    folder, method, parameters
):
    read, model = tokens(200), ReleasedModel(folder)
    model.encoding = rope(folder, method, 256)
    scaling = {"rope_type": "default", "rope_theta": 10000.0, **parameters}
    logits = theirs(untouched("llama", rope_parameters=scaling), read[:, :-1])
    expected = cross_entropy(logits.transpose(1, 2), read[:, 1:], reduction="none")
    assert expected.std() > 0.1
    assert (compute_token_losses(model, read) - expected).abs().max() < 1e-3


def test_an_encoding_that_no_checkpoint_has_is_refused(folder):
    with pytest.raises(InputError, match="Encoding cannot be patched into a model"):
        ReleasedModel(folder).encoding = Encoding()


def test_a_model_without_rotary_frequencies_is_refused(tmp_path):
    small: dict[str, Any] = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11}
    GPT2LMHeadModel(GPT2Config(**small, n_positions=16)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no rotary frequencies"):
        ReleasedModel(tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **SHAPE}))
    with pytest.raises(InputError, match="no weights in"):
        ReleasedModel(tmp_path)
