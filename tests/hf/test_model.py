"""One's own model: read from disk, measured like ours, refused with one line."""

import json

import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers import PreTrainedTokenizerFast as FastTokenizer

from ropelab.config import build
from ropelab.context import Context
from ropelab.encoding.base import Encoding
from ropelab.encoding.rope import Rope
from ropelab.errors import InputError
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.experiments.extrapolate.run import run
from ropelab.hf.fingerprint import fingerprint_of
from ropelab.hf.model import HuggingFaceModel
from ropelab.lm.evaluation import token_losses
from ropelab.methods.language import parse_scaling
from ropelab.rope.frequencies import Geometry

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
    model = HuggingFaceModel(saved)
    model.encoding = rope(method)
    logits = llama(**parameters)(tokens[:, :-1]).logits
    expected = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), tokens[:, 1:], reduction="none"
    )
    torch.testing.assert_close(token_losses(model, tokens), expected, rtol=1e-4, atol=1e-4)


def test_the_experiment_measures_a_model_given(saved, corpora):
    values = {"hf": str(saved), "test_len": 256, "documents": 2, "sequences": 2, "device": "cpu"}
    values |= {"methods": "unscaled,yarn", "corpus": corpora[0]}
    config = build(ExtrapolateConfig, values)
    assert (config.train_len, config.base, config.head_dim) == (64, 5000.0, 8)
    assert set(config.inputs()) == {"corpus", "hf"}
    tables = run(config, Context())
    assert set(tables["text_nll"]["method"]) == {"unscaled", "yarn", "sliding_window"}
    assert tables["text_nll"]["nll_nats_per_byte"].between(4, 7).all()
    assert isinstance(tables["copy_accuracy"], pd.DataFrame)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_len": 128}, r"train_len follows from the model \(64\), leave it out"),
        ({"arms": "finetuned"}, "zero_shot only"),
        ({"methods": "rerope"}, "cannot be read by rerope"),
        ({"hf": "nowhere"}, "no readable nowhere/config.json; give a folder"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(saved, changes, message):
    with pytest.raises(InputError, match=message):
        build(ExtrapolateConfig, {"hf": str(saved), "test_len": 256, **changes})


def test_an_encoding_that_no_checkpoint_has_is_refused(saved):
    with pytest.raises(InputError, match="nope is no way to read a model"):
        HuggingFaceModel(saved).encoding = Encoding()


def test_a_model_without_rotary_frequencies_is_refused(tmp_path):
    small = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 11, "n_positions": 16}
    GPT2LMHeadModel(GPT2Config(**small)).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="no rotary frequencies"):
        HuggingFaceModel(tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **SHAPE}))
    with pytest.raises(InputError, match="no weights in"):
        HuggingFaceModel(tmp_path)


def test_the_fingerprint_follows_the_weights(tmp_path):
    file = tmp_path / "weights"
    file.write_bytes(b"one")
    one = fingerprint_of(tmp_path)
    file.write_bytes(b"two")
    assert fingerprint_of(tmp_path) != one
