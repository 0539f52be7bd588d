"""Folders that no model was saved in: each is a sound one, spoiled in one way."""

import json
import os
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

FILLING = b"0" * 2**17
"""So many bytes that the weights of the sound model could be in them."""
CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
SUBFOLDER = f"more/{WEIGHTS}"


Spoil = Callable[[Path], None]


class Planted:
    """Writes a file when it is unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (os.mkdir, (str(self.place),))


def text(name: str, content: str | bytes) -> Spoil:
    """A file with another content."""
    raw = content if isinstance(content, bytes) else content.encode()

    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(raw)

    return spoil


def changed(name: str, change: Callable[[Any], Any]) -> Spoil:
    """A JSON file with another content."""

    def spoil(folder: Path) -> None:
        content = json.loads((folder / name).read_text())
        change(content)
        (folder / name).write_text(json.dumps(content))

    return spoil


def values(**changes: object) -> Spoil:
    """config.json with other values; None removes a key."""

    def change(config: dict[str, object]) -> None:
        config.update(changes)
        for name in [name for name, value in config.items() if value is None]:
            del config[name]

    return changed(CONFIG, change)


def rope(**changes: object) -> Spoil:
    """config.json with other rotary parameters."""
    return values(
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, **changes}
    )


def instead(name: str, make: Callable[[Path], Any] = lambda _: None) -> Spoil:
    """Something that is no file in the place of one, or nothing."""

    def spoil(folder: Path) -> None:
        (folder / name).unlink()
        make(folder / name)

    return spoil


def cut(name: str) -> Spoil:
    """The first half of a file."""

    def spoil(folder: Path) -> None:
        raw = (folder / name).read_bytes()
        (folder / name).write_bytes(raw[: len(raw) // 2])

    return spoil


def tensors(change: Callable[[dict[str, torch.Tensor]], Any]) -> Spoil:
    """Other weights."""

    def spoil(folder: Path) -> None:
        state = load_file(folder / WEIGHTS)
        change(state)
        save_file(state, folder / WEIGHTS, metadata={"format": "pt"})

    return spoil


def filled(value: float) -> Spoil:
    """One weight matrix full of a value."""
    return tensors(lambda state: state["model.norm.weight"].fill_(value))


def pickled(content: bytes) -> Spoil:
    """Weights as a pickle."""

    def spoil(folder: Path) -> None:
        (folder / WEIGHTS).unlink()
        (folder / "pytorch_model.bin").write_bytes(content)

    return spoil


def planted(folder: Path) -> None:
    """Weights as a pickle that makes a folder."""
    harm = {"model.norm.weight": Planted(folder / "planted"), "more": FILLING}
    pickled(pickle.dumps(harm))(folder)


def index(content: object) -> Spoil:
    """An index of weights in the place of weights."""

    def spoil(folder: Path) -> None:
        (folder / WEIGHTS).rename(folder / "model-00001-of-00002.safetensors")
        (folder / f"{WEIGHTS}.index.json").write_text(json.dumps(content))

    return spoil


def moved(named: Spoil) -> Spoil:
    """Weights in a subfolder, whose name is in config.json."""

    def spoil(folder: Path) -> None:
        (folder / "more").mkdir()
        shutil.copy(folder / WEIGHTS, folder / SUBFOLDER)
        named(folder)

    return spoil


def another_config(**changes: object) -> Spoil:
    """A second configuration, which config.json names and transformers prefers."""

    def spoil(folder: Path) -> None:
        shutil.copy(folder / CONFIG, folder / "config.4.0.0.json")
        changed("config.4.0.0.json", lambda config: config.update(changes))(folder)
        values(configuration_files=["config.4.0.0.json"])(folder)

    return spoil


def beyond(content: Any) -> None:
    vocabulary = content["model"]["vocab"]
    for name in list(vocabulary):
        vocabulary[name] += 1000


HOSTILE: dict[str, Spoil] = {
    "no config": instead(CONFIG),
    "config is empty": text(CONFIG, ""),
    "config is a list": text(CONFIG, "[]"),
    "config is null": text(CONFIG, "null"),
    "config is an empty object": text(CONFIG, "{}"),
    "config is cut": cut(CONFIG),
    "config is bytes": text(CONFIG, bytes(range(256))),
    "config is too large": text(
        CONFIG, json.dumps({"model_type": "llama", "x": "y" * 2**20})
    ),
    "config is nested": text(CONFIG, '{"a":' * 20000 + "1" + "}" * 20000),
    "config has infinity": text(CONFIG, '{"model_type": "llama", "rope_theta": 1e999}'),
    "config is a pipe": instead(CONFIG, os.mkfifo),
    "config is a folder": instead(CONFIG, Path.mkdir),
    "config is endless": instead(CONFIG, lambda path: path.symlink_to("/dev/zero")),
    "config leads nowhere": instead(CONFIG, lambda path: path.symlink_to("nowhere")),
    "no architecture": values(model_type=None, architectures=None),
    "unknown architecture": values(model_type="llama17"),
    "code of its own": values(
        model_type="own",
        auto_map={"AutoConfig": "own.C", "AutoModelForCausalLM": "own.M"},
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
    "half of nothing rotated": rope(partial_rotary_factor=-1.0),
    "unknown activation": values(hidden_act="own"),
    "unknown number format": values(dtype="float3"),
    "quantized by what is not installed": values(
        quantization_config={"quant_method": "gptq"}
    ),
    "layer types for others": values(layer_types=["full_attention"] * 7),
    "no weights": instead(WEIGHTS),
    "weights are empty": text(WEIGHTS, b""),
    "weights are cut": cut(WEIGHTS),
    "weights are text": text(WEIGHTS, "weights" * 1000),
    "weights with an endless header": text(WEIGHTS, struct.pack("<Q", 2**60) + b"{}"),
    "weights are a folder": instead(WEIGHTS, Path.mkdir),
    "weights are a pipe": instead(WEIGHTS, os.mkfifo),
    "a weight is missing": tensors(
        lambda state: state.pop("model.layers.0.self_attn.q_proj.weight")
    ),
    "a weight too many": tensors(lambda state: state.update(more=torch.zeros(3))),
    "a weight of another shape": tensors(
        lambda state: state.update({"model.norm.weight": torch.zeros(5)})
    ),
    "weights are not numbers": filled(float("nan")),
    "weights are infinite": filled(float("inf")),
    "a pickle that runs code": planted,
    "a pickle is cut": pickled(b"\x80\x04\x95" + FILLING),
    "a pickle of something else": pickled(pickle.dumps([1, 2, 3, FILLING])),
    "an index that leads out": index(
        {"weight_map": {"model.norm.weight": "../other/w.bin"}}
    ),
    "an index to nothing": index(
        {"weight_map": {"model.norm.weight": "gone.safetensors"}}
    ),
    "an index is a list": index([]),
    "weights in a subfolder": moved(values(transformers_weights=SUBFOLDER)),
    "weights of a part in a subfolder": moved(
        values(text_config={"transformers_weights": SUBFOLDER})
    ),
    "weights in a subfolder, named by another configuration": moved(
        another_config(transformers_weights=SUBFOLDER)
    ),
    "a million layers in another configuration": another_config(
        num_hidden_layers=10**6
    ),
    "a tokenizer in a subfolder": text(
        "tokenizer_config.json",
        '{"fast_tokenizer_files": ["sub/tokenizer.4.0.0.json"]}',
    ),
    "an adapter of another model": text(
        "adapter_config.json",
        '{"peft_type": "LORA", "base_model_name_or_path": "../other"}',
    ),
    "how to generate is a list": text("generation_config.json", "[]"),
    "no tokenizer": instead(TOKENIZER),
    "a tokenizer's configuration is a list": text("tokenizer_config.json", "[]"),
    "a tokenizer with code of its own": text(
        "tokenizer_config.json",
        '{"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.T", "own.T"]}}',
    ),
    "tokenizer is a list": text(TOKENIZER, "[]"),
    "tokenizer is cut": cut(TOKENIZER),
    "tokenizer is a pipe": instead(TOKENIZER, os.mkfifo),
    "tokens that the model does not know": changed(TOKENIZER, beyond),
}
"""What is wrong, and how it is made so."""
