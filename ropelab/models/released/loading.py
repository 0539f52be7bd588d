"""A causal language model and its tokenizer, loaded by transformers: whole, unchanged, quietly.

Weights that are missing would be drawn at random and measured like trained ones, and weights left
over mean that the folder holds another model than it says: both are refused.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import torch

from ropelab.models.released.folder import checked_config, located, stamp, weight_files
from ropelab.runs.errors import InputError, RopelabError

# Characters of somebody else's error message that are passed on.
LONGEST_REASON = 240


def import_transformers() -> Any:
    """Import transformers, or raise an error that says how to install it."""
    try:
        import transformers
    except ImportError:
        raise InputError("released models need transformers: pip install 'ropelab[hf]'") from None
    return transformers


@contextmanager
def refusing(problem: str, path: Path | str) -> Iterator[None]:
    """Turn whatever transformers raises over a folder into one line.

    What it raises is no closed set: it follows from the files, and the files may hold anything.
    """
    try:
        with quiet():
            yield
    except RopelabError:
        raise
    except Exception as error:
        raise InputError(f"{problem} {path}: {reason(error)}") from None


@contextmanager
def quiet() -> Iterator[None]:
    """No bars, warnings or logs of transformers while the block runs."""
    import_transformers()
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def reason(error: Exception) -> str:
    """Return an exception's message in one line of printable characters; its type without one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = "".join(c for c in " ".join(lines) if c.isprintable()).rstrip(":")
    named = f"{type(error).__name__}: {said}" if isinstance(error, KeyError | IndexError) else said
    text = named or type(error).__name__
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."


# `auto`: the number format of the checkpoint.
ModelDtype = Literal["auto", "float32", "bfloat16", "float16"]
# The most numbers in tables that are no weights (rotary tables, masks).
BUFFERS = 2**28
# What transformers reports of a loading, and what that means.
INCOMPLETE = {
    "mismatched_keys": "has weights of another shape than its configuration says",
    "missing_keys": "lacks weights of the model",
    "unexpected_keys": "has weights that its model has no place for",
}
# How many names of weights a message lists.
SHOWN = 3


def configuration(folder: Path) -> Any:
    """Read transformers' configuration of a folder, or of an id in the Hub's local cache.

    Raises:
        InputError: there is none, or it is of no known architecture.
    """
    folder = located(folder)
    config = checked_config(folder)
    return _configuration(folder, stamp(folder), config.get("model_type"), "auto_map" in config)


@lru_cache(maxsize=4)
def _configuration(folder: Path, files: object, model_type: object, own_code: bool) -> Any:
    transformers = import_transformers()
    if isinstance(model_type, str) and model_type not in transformers.CONFIG_MAPPING:
        if own_code:
            raise InputError(f"{folder} needs the code in its folder, which is never run")
        version = transformers.__version__
        said = f"transformers {version} knows no architecture '{model_type[:40]}'"
        raise InputError(f"{folder}: {said}")
    with refusing("no configuration of a language model in", folder):
        config = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        if type(config) not in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
            raise InputError(f"{folder}: {model_type} is no causal language model in transformers")
        return config


def load(folder: Path, device: str, dtype: ModelDtype, device_map: str | None) -> Any:
    """Return the model in evaluation mode, without gradients.

    Args:
        device: where it is put, unless `device_map` spreads it ("auto": over all there is).
    Raises:
        InputError: the folder cannot be read as a causal language model, its weights are not all
            there or not all used, or it asks for more than they are.
    """
    transformers = import_transformers()
    config = configuration(folder)
    weights = sum(path.stat().st_size for path in weight_files(folder))
    with refusing("cannot load a causal language model from", folder):
        # A kernel named in the configuration would be fetched from elsewhere.
        config._experts_implementation = None
        attention = _checked_skeleton(transformers, config, folder, weights)
        try:
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                local_files_only=True,
                trust_remote_code=False,
                attn_implementation=attention,
                dtype="auto" if dtype == "auto" else getattr(torch, dtype),
                device_map=device_map,
                ignore_mismatched_sizes=True,  # they are refused below, by name
                output_loading_info=True,
            )
        except UnpicklingError:
            raise InputError(f"{folder}: a *.bin is damaged or not only weights") from None
    _check_complete(folder, info)
    model.eval().requires_grad_(False)
    return model if device_map else model.to(device)


def _checked_skeleton(transformers: Any, config: Any, folder: Path, weights: int) -> str:
    """Build the model without memory, compare its size, and say which attention it takes."""
    with torch.device("meta"):
        skeleton = transformers.AutoModelForCausalLM.from_config(
            config, trust_remote_code=False, attn_implementation="eager"
        )
    parameters = sum(parameter.numel() for parameter in skeleton.parameters())
    if parameters > 8 * weights:  # not even a bit for each
        raise InputError(
            f"{folder}: config.json describes {parameters:.3g} weights, which do not fit into the "
            f"{weights:,} bytes of its files"
        )
    buffers = sum(buffer.numel() for buffer in skeleton.buffers())
    if buffers > BUFFERS:
        raise InputError(f"{folder}: config.json asks for tables of {buffers:.3g} numbers")
    return "sdpa" if skeleton._supports_sdpa else "eager"


def _check_complete(folder: Path, info: dict[str, Any]) -> None:
    for kind, said in INCOMPLETE.items():
        names = sorted(str(key[0] if isinstance(key, tuple) else key) for key in info[kind])
        if names:
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            listed = reason(ValueError(", ".join(names[:SHOWN])))
            raise InputError(f"{folder} {said}: {listed}{more}")


def load_tokenizer(path: Path) -> Any:
    """Return the tokenizer of a model's folder, read once while its files stay the same.

    Raises:
        InputError: there is none.
    """
    path = located(path)
    checked_config(path)
    return _load_tokenizer(path, stamp(path))


@lru_cache(maxsize=2)
def _load_tokenizer(path: Path, files: object) -> Any:
    transformers = import_transformers()
    with refusing("no tokenizer in", path):
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            path, local_files_only=True, trust_remote_code=False
        )
        # Texts longer than the model are what is measured here, not a mistake to warn of.
        tokenizer.model_max_length = int(1e30)
        tokenizer("a text", add_special_tokens=False)
        return tokenizer


def first_token(tokenizer: Any, path: Path, bos: bool | None) -> list[int]:
    """Return the token that begins a text, if there is to be one.

    Raises:
        InputError: it is asked for, and the tokenizer has none.
    """
    known = tokenizer.bos_token_id
    if bos is None:
        bos = known is not None and tokenizer("a text")["input_ids"][:1] == [known]
    if bos and known is None:
        raise InputError(f"the tokenizer in {path} has no token that begins a text")
    return [known] if bos else []
