"""Find the model that a name stands for: a folder, or a factory of the user's code.

A folder without weights gets random weights. If the model is large, its sizes are made
smaller.
"""

import importlib
from pathlib import Path
from typing import Any

import torch

from ropelab.conformance.laws.kept import keep_tables
from ropelab.conformance.laws.subject import (
    Subject,
    TransformersSubject,
    make_subject,
)
from ropelab.models.released import loading
from ropelab.models.released.facts import head_dim
from ropelab.models.released.folder import WEIGHT_ENDINGS, list_files, locate
from ropelab.models.released.model import count_weights
from ropelab.runs.errors import InputError, describe_error
from ropelab.runs.estimate import write_size
from ropelab.runs.files import read_table_beside
from ropelab.runs.from_source import importing, refuse_other_folder
from ropelab.runs.machine import find_free_memory

# The most weights of a random model. A configuration with more is made smaller.
MOST_WEIGHTS = 10**7
# The largest sizes of a model that is made smaller, by the keys of its configuration.
REDUCED_SIZES: dict[str, int] = read_table_beside(__file__)["smaller"]
# The keys of token ids that a smaller vocabulary may not have.
SPECIAL_IDS = ("bos_token_id", "eos_token_id", "pad_token_id")


def find_subject(
    target: str,
    dtype: loading.ModelDtype = "auto",
    device: str = "cpu",
) -> Subject:
    """Return the model of a folder, of an id in the Hub's local cache, or of a factory.

    InputError: the model does not exist, cannot be loaded, or is not a language model.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("--device cuda: this machine has none; allowed here: cpu")
    _, colon, _ = target.partition(":")
    if colon and not Path(target).exists():
        refuse_options_of_folder(dtype, device)
        return ask_for_subject(target)

    folder = locate(Path(target))
    config = loading.read_configuration(folder, images=True)
    auto_class = find_auto_class(config)
    if any(path.name.endswith(WEIGHT_ENDINGS) for path in list_files(folder)):
        if "ImageText" in auto_class.__name__:
            raise InputError(
                f"{folder}: weights of a model of images and text are not loaded; give"
                " its config.json alone in a folder, or ropelab.doctor(model)"
            )
        if device == "cpu":
            check_memory(folder)
        model = loading.load(folder, device, dtype, None)
        return TransformersSubject(model, folder.name, is_borrowed=False)

    with loading.refusing("cannot build a model from", folder):
        stated = str(dtype)
        if dtype == "auto":
            stated = str(getattr(config, "dtype", None)).removeprefix("torch.")
        torch_dtype = getattr(torch, stated, torch.float32)
        model, is_smaller = make_random_model(config, torch_dtype)
        words = "random weights"
        if is_smaller:
            words = "random weights, sizes reduced"
        name = f"{folder.name} ({words})"
        return TransformersSubject(model.to(device), name, is_borrowed=False)


def refuse_options_of_folder(dtype: str, device: str) -> None:
    """Raise InputError for options that would change nothing: a model that somebody
    else's code has built has a number format and a device already.
    """
    given = {"--dtype": dtype != "auto", "--device": device != "cpu"}
    for option, is_given in given.items():
        if is_given:
            raise InputError(
                f"{option} is for a model's folder: code that builds its own model"
                " chooses that itself"
            )


def ask_for_subject(target: str) -> Subject:
    """Return the model that `package.module:factory` makes."""
    module, _, factory = target.partition(":")
    refuse_other_folder(module)
    try:
        with importing(module):
            make = getattr(importlib.import_module(module), factory)
        return make_subject(make(), target)
    # The user's code may raise anything.
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{target} gives no model: {type(error).__name__}: {describe_error(error)}"
        ) from None


def check_memory(folder: Path) -> None:
    """Raise InputError for weights that do not fit into memory in float64."""
    needed = 8 * count_weights(folder)
    free = find_free_memory()
    if needed > free:
        raise InputError(
            f"{folder} needs {write_size(needed)} for its weights in float64, and"
            f" {write_size(free)} are free; its config.json alone is given smaller random"
            " weights"
        )


def make_random_model(config: Any, dtype: torch.dtype) -> tuple[Any, bool]:
    """Return a model with random weights, and True if its sizes were made smaller.

    Weights are large enough that logits depend on positions. Norms differ between
    features, as in trained models.
    """
    auto_class = find_auto_class(config)
    with torch.device("meta"):
        skeleton = auto_class.from_config(config)
    weights = sum(parameter.numel() for parameter in skeleton.parameters())
    is_smaller = weights > MOST_WEIGHTS
    if is_smaller:
        config = reduce_sizes(config)

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        # Weights are drawn in float32, so that every format has the same weights,
        # rounded.
        model = auto_class.from_config(config, dtype=torch.float32)
        for name, parameter in model.named_parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim > 1:
                parameter.copy_(noise * 1.5 * parameter.shape[-1] ** -0.5)
            elif "norm" in name:
                parameter.add_(0.2 * noise)

    # Tables of frequencies stay in float32, as in a model that is loaded in a format.
    with keep_tables(model):
        model.to(dtype)
    return model.eval().requires_grad_(False), is_smaller


def find_auto_class(config: Any) -> Any:
    """Return the class that builds a model: of text, or of images and text."""
    transformers = loading.import_transformers()
    if type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
        return transformers.AutoModelForCausalLM
    return transformers.AutoModelForImageTextToText


def reduce_sizes(config: Any) -> Any:
    """Return a configuration with fewer and narrower layers, and the same positions."""
    text_config = config.get_text_config(decoder=True)
    narrow = reduce_text(text_config)
    if narrow is text_config or type(config) is type(text_config):
        return narrow

    # The encoder of a model of images and text is asked nothing, and made minimal.
    values = config.to_dict()
    values["text_config"] = narrow.to_dict()
    values["vision_config"] |= {
        "depth": 1,
        "num_heads": 2,
        "hidden_size": 64,
        "embed_dim": 64,
        "intermediate_size": 64,
        "out_hidden_size": narrow.hidden_size,
        "deepstack_visual_indexes": [],
    }
    if "qwen2_vl" in config.model_type:
        values["vision_config"]["hidden_size"] = narrow.hidden_size
    return type(config).from_dict(values)


def reduce_text(text_config: Any) -> Any:
    """Return the configuration of a language model with smaller sizes."""
    values = text_config.to_dict()
    layers = text_config.num_hidden_layers
    heads = text_config.num_attention_heads
    key_heads = getattr(text_config, "num_key_value_heads", None) or heads

    sizes = {"hidden_size": 2 * head_dim(text_config), "num_attention_heads": 2}
    for name, most in REDUCED_SIZES.items():
        if values.get(name):
            sizes[name] = min(most, values[name])
    if "num_key_value_heads" in values:
        sizes["num_key_value_heads"] = 2 if key_heads == heads else 1
    values |= sizes | dict.fromkeys(SPECIAL_IDS)

    for name, value in values.items():
        if isinstance(value, list) and len(value) == layers:
            values[name] = value[: values["num_hidden_layers"]]
    return type(text_config).from_dict(values)
