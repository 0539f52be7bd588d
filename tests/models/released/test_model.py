"""One's own model: read from disk, measured like ours, refused with one line."""

import json

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers import PreTrainedTokenizerFast as FastTokenizer

from ropelab.math.frequencies import Geometry
from ropelab.math.methods import parse_scaling
from ropelab.models.encoding.base import Encoding
from ropelab.models.encoding.rope import Rope
from ropelab.models.lm.evaluation import token_losses
from ropelab.models.released.folder import fingerprint_of
from ropelab.models.released.model import ReleasedModel
from ropelab.runs.errors import InputError

GEOMETRY = Geometry(8, 5000.0, 64)
SHAPE = {
    "vocab_size": 256,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}


def llama(**rope: object) -> LlamaForCausalLM:
    torch.manual_seed(0)
    parameters = {"rope_type": "default", "rope_theta": 5000.0, **rope}
    return LlamaForCausalLM(LlamaConfig(**SHAPE, rope_parameters=parameters)).eval()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A tiny Llama whose tokens are bytes."""
    folder = tmp_path_factory.mktemp("llama")
    llama().save_pretrained(folder)
    alphabet = {symbol: n for n, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    FastTokenizer(tokenizer_object=tokenizer).save_pretrained(folder)
    return folder


def rope(method: str) -> Rope:
    return Rope(parse_scaling(method, 4.0).plan(GEOMETRY, 256))


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        ("unscaled", {}),
        ("pi", {"rope_type": "linear", "factor": 4.0}),
        (
            "yarn",
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
        ),
    ],
)
def test_losses_are_those_of_transformers_with_the_same_scaling(saved, method, parameters):
    tokens = torch.randint(256, (2, 200), generator=torch.Generator().manual_seed(0))
    model = ReleasedModel(saved)
    model.encoding = rope(method)
    logits = llama(**parameters)(tokens[:, :-1]).logits
    expected = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), tokens[:, 1:], reduction="none"
    )
    torch.testing.assert_close(token_losses(model, tokens), expected, rtol=1e-4, atol=1e-4)


def test_an_encoding_that_no_checkpoint_has_is_refused(saved):
    with pytest.raises(InputError, match="Encoding is no way to read a model"):
        ReleasedModel(saved).encoding = Encoding()


def test_a_model_without_rotary_frequencies_is_refused(tmp_path):
    small = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11, "n_positions": 16}
    GPT2LMHeadModel(GPT2Config(**small)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no rotary frequencies"):
        ReleasedModel(tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **SHAPE}))
    with pytest.raises(InputError, match="no weights in"):
        ReleasedModel(tmp_path)


def test_the_fingerprint_follows_the_weights(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    one = fingerprint_of(tmp_path)
    file.write_bytes(b"two")
    assert fingerprint_of(tmp_path) != one
