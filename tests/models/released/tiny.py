"""Tiny random models of many architectures, saved as real ones are."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers import PreTrainedTokenizerFast as FastTokenizer
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from ropelab.math.methods import parse_scaling
from ropelab.models.encoding.rope import Rope
from ropelab.models.released.facts import read_facts
from ropelab.models.released.model import ReleasedModel

PLACES = [folder / "shared" / "models" for folder in Path(__file__).resolve().parents]
REAL = next((place for place in PLACES if (place / "stories260K-hf").is_dir()), None)
"""Where somebody has put a real model of 260,032 parameters; None: nowhere."""
TRAINED = 64
VOCABULARY = 97
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": TRAINED,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}


def config(model_type: str, **changes: Any) -> Any:
    """A configuration of a tiny model, by transformers' name of its architecture."""
    values = {k: v for k, v in {**SHAPE, **changes}.items() if v is not None}
    # The classes write into the blocks that they are given, which tests share.
    return CONFIG_MAPPING[model_type](**deepcopy(values))


def untouched(model_type: str, **changes: Any) -> Any:
    """A random model as transformers builds it, with weights large enough for positions
    to tell.
    """
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config(model_type, **changes))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=1.5 * parameter.shape[-1] ** -0.5)
    return model.eval()


def saved(folder: Path, model_type: str, **changes: Any) -> Path:
    """The folder of such a model."""
    untouched(model_type, **changes).save_pretrained(folder)
    return folder


def rope(folder: Path, method: str, length: int, factor: float = 4.0) -> Rope:
    """The encoding of a scaling method for the model in a folder."""
    geometry = read_facts(str(folder)).geometry()
    return Rope(parse_scaling(method, factor).plan(geometry, length))


def tokens(length: int, rows: int = 2, vocabulary: int = VOCABULARY) -> Tensor:
    """Random tokens [rows, length]."""
    return torch.randint(
        vocabulary, (rows, length), generator=torch.Generator().manual_seed(1)
    )


@torch.inference_mode()
def logits(model: ReleasedModel, read: Tensor) -> Tensor:
    """Logits of a model behind our interface."""
    return model.head(model.hidden_states(read))


@torch.inference_mode()
def theirs(model: Any, read: Tensor) -> Tensor:
    """Logits of transformers' own forward pass."""
    found: Tensor = model(read, use_cache=False).logits
    return found


def apart(ours: Tensor, reference: Tensor) -> float:
    """The largest difference of two results over the spread of the second."""
    return float((ours - reference).abs().max() / reference.std())


def reader_of_bytes(folder: Path, bos: bool = False, **changes: Any) -> str:
    """The folder of a random Llama whose tokens are bytes; with `bos` texts begin with
    `<s>`.
    """
    saved(folder, "llama", vocab_size=256 + bos, **changes)
    write_byte_tokenizer(folder, bos)
    return str(folder)


def write_byte_tokenizer(folder: Path, bos: bool = False) -> None:
    """A tokenizer for which every byte is a token; with `bos` it begins texts with
    `<s>` (256).
    """
    alphabet = {
        symbol: n
        for n, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))
    }
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"bos_token": "<s>"} if bos else {}
    if bos:
        tokenizer.add_special_tokens(["<s>"])
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 256)]
        )
    FastTokenizer(tokenizer_object=tokenizer, **special).save_pretrained(folder)
