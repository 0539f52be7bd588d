"""Folders that no model was saved in: each is a sound one, spoiled in one way."""

import json
import os
import pickle
import struct
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

FILLING = b"0" * 2**17
"""So many bytes that the weights of the sound model could be in them."""
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"


class Planted:
    """Writes a file when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (os.mkdir, (str(self.place),))


def text(name, content):
    """A file with another content."""

    def spoil(folder):
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    return spoil


def values(**changes):
    """config.json with other values; None removes a key."""

    def spoil(folder):
        config = json.loads((folder / CONFIG).read_text())
        config |= changes
        kept = {key: value for key, value in config.items() if value is not None}
        (folder / CONFIG).write_text(json.dumps(kept))

    return spoil


def rope(**changes):
    """config.json with other rotary parameters."""
    return values(rope_parameters={"rope_type": "default", "rope_theta": 10000.0, **changes})


def gone(name):
    """A folder without a file."""
    return lambda folder: (folder / name).unlink()


def instead(name, make):
    """Something that is no file in the place of one."""

    def spoil(folder):
        (folder / name).unlink()
        make(folder / name)

    return spoil


def cut(name, share):
    """A file cut short."""

    def spoil(folder):
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[: int(len(raw) * share)])

    return spoil


def tensors(change):
    """Other weights."""

    def spoil(folder):
        state = load_file(folder / WEIGHTS)
        change(state)
        save_file(state, folder / WEIGHTS, metadata={"format": "pt"})

    return spoil


def filled(value):
    """One weight matrix full of a value."""
    return tensors(lambda state: state["model.norm.weight"].fill_(value))


def reshaped(state):
    state["model.norm.weight"] = torch.zeros(5)


def in_whole_numbers(state):
    state["model.norm.weight"] = torch.ones(32, dtype=torch.int64)


def pickled(content):
    """Weights as a pickle."""

    def spoil(folder):
        (folder / WEIGHTS).unlink()
        raw = content(folder) if callable(content) else content
        (folder / "pytorch_model.bin").write_bytes(raw)

    return spoil


def planted(folder):
    return pickle.dumps({"model.norm.weight": Planted(folder / "planted"), "more": FILLING})


def index(content):
    """An index of weights in the place of weights."""

    def spoil(folder):
        (folder / WEIGHTS).rename(folder / "model-00001-of-00002.safetensors")
        (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(content))

    return spoil


def tokenizer(change):
    """Another tokenizer."""

    def spoil(folder):
        content = json.loads((folder / TOKENIZER).read_text())
        change(content)
        (folder / TOKENIZER).write_text(json.dumps(content))

    return spoil


def beyond(content):
    vocabulary = content["model"]["vocab"]
    for name in list(vocabulary):
        vocabulary[name] += 1000


HOSTILE = {
    "no config": gone(CONFIG),
    "config is empty": text(CONFIG, ""),
    "config is a list": text(CONFIG, "[]"),
    "config is null": text(CONFIG, "null"),
    "config is an empty object": text(CONFIG, "{}"),
    "config is cut": cut(CONFIG, 0.5),
    "config is bytes": text(CONFIG, bytes(range(256))),
    "config is too large": text(CONFIG, json.dumps({"model_type": "llama", "x": "y" * 2**20})),
    "config is nested": text(CONFIG, '{"a":' * 20000 + "1" + "}" * 20000),
    "config has infinity": text(CONFIG, '{"model_type": "llama", "rope_theta": 1e999}'),
    "config is a pipe": instead(CONFIG, os.mkfifo),
    "config is a folder": instead(CONFIG, Path.mkdir),
    "config is endless": instead(CONFIG, lambda path: path.symlink_to("/dev/zero")),
    "config leads nowhere": instead(CONFIG, lambda path: path.symlink_to("nowhere")),
    "no architecture": values(model_type=None, architectures=None),
    "unknown architecture": values(model_type="llama17"),
    "code of its own": values(
        model_type="own", auto_map={"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"}
    ),
    "an encoder": values(model_type="bert"),
    "a model of images": values(model_type="vit"),
    "no layers": values(num_hidden_layers=0),
    "fewer layers than none": values(num_hidden_layers=-1),
    "a million layers": values(num_hidden_layers=10**6),
    "two and a half layers": values(num_hidden_layers=2.5),
    "layers in words": values(num_hidden_layers="two"),
    "one layer more": values(num_hidden_layers=3),
    "one layer less": values(num_hidden_layers=1),
    "no width": values(hidden_size=0),
    "negative width": values(hidden_size=-32),
    "an endless width": values(hidden_size=2**39),
    "a wide middle": values(intermediate_size=2**30),
    "no heads": values(num_attention_heads=0),
    "keys of three heads": values(num_key_value_heads=3),
    "an odd head": values(head_dim=7),
    "a negative head": values(head_dim=-16),
    "no vocabulary": values(vocab_size=0),
    "a larger vocabulary": values(vocab_size=10**9),
    "a smaller vocabulary": values(vocab_size=5),
    "no length": values(max_position_embeddings=0),
    "length in words": values(max_position_embeddings="long"),
    "an endless length": values(max_position_embeddings=10**30),
    "base 0": rope(rope_theta=0),
    "base 1": rope(rope_theta=1),
    "base in words": rope(rope_theta="large"),
    "scaling is a list": values(rope_parameters=[1, 2]),
    "unknown scaling": rope(rope_type="own"),
    "scaling without a factor": rope(rope_type="linear"),
    "scaling by nothing": rope(rope_type="linear", factor=0),
    "scaling in words": rope(rope_type="yarn", factor="four"),
    "half of nothing turned": rope(partial_rotary_factor=-1.0),
    "unknown activation": values(hidden_act="own"),
    "unknown number format": values(dtype="float3"),
    "quantized by what is not installed": values(quantization_config={"quant_method": "gptq"}),
    "layer types for others": values(layer_types=["full_attention"] * 7),
    "no weights": gone(WEIGHTS),
    "weights are empty": text(WEIGHTS, b""),
    "weights are cut": cut(WEIGHTS, 0.5),
    "weights are text": text(WEIGHTS, "weights" * 1000),
    "weights with an endless header": text(WEIGHTS, struct.pack("<Q", 2**60) + b"{}"),
    "weights are a folder": instead(WEIGHTS, Path.mkdir),
    "weights are a pipe": instead(WEIGHTS, os.mkfifo),
    "a weight is missing": tensors(
        lambda state: state.pop("model.layers.0.self_attn.q_proj.weight")
    ),
    "a weight too many": tensors(lambda state: state.update(more=torch.zeros(3))),
    "a weight of another shape": tensors(reshaped),
    "weights are not numbers": filled(float("nan")),
    "weights are infinite": filled(float("inf")),
    "a pickle that runs code": pickled(planted),
    "a pickle is cut": pickled(b"\x80\x04\x95" + FILLING),
    "a pickle of something else": pickled(pickle.dumps([1, 2, 3, FILLING])),
    "an index that leads out": index({"weight_map": {"model.norm.weight": "../other/w.bin"}}),
    "an index to nothing": index({"weight_map": {"model.norm.weight": "gone.safetensors"}}),
    "an index is a list": index([]),
    "an adapter of another model": text(
        "adapter_config.json", '{"peft_type": "LORA", "base_model_name_or_path": "../other"}'
    ),
    "how to generate is a list": text("generation_config.json", "[]"),
    "no tokenizer": gone(TOKENIZER),
    "a tokenizer's configuration is a list": text("tokenizer_config.json", "[]"),
    "a tokenizer with code of its own": text(
        "tokenizer_config.json",
        '{"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.T", "own.T"]}}',
    ),
    "tokenizer is a list": text(TOKENIZER, "[]"),
    "tokenizer is cut": cut(TOKENIZER, 0.5),
    "tokenizer is a pipe": instead(TOKENIZER, os.mkfifo),
    "tokens that the model does not know": tokenizer(beyond),
}
"""What is wrong, and how it is made so."""
