"""A causal language model and its tokenizer, loaded whole and unchanged by transformers.

If weights are missing, transformers draws them at random, and if weights are left over,
it ignores them. Here both are errors.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, wraps
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import torch

from ropelab.models.released.folder import (
    count_weight_bytes,
    identify_files,
    locate,
    read_checked_config,
)
from ropelab.runs.errors import InputError, RopelabError

# `auto` stands for the number format of the checkpoint.
ModelDtype = Literal["auto", "float32", "bfloat16", "float16"]
# The most characters of an error message of transformers that are passed on.
LONGEST_REASON = 240
# The most numbers in the buffers of a model: tables that are not weights, such as
# rotary tables and masks.
MOST_TABLE_NUMBERS = 2**28
# Arguments of `from_pretrained`. With them nothing is downloaded, and no code that comes
# with a checkpoint is run.
ONLY_LOCAL_FILES = {"local_files_only": True, "trust_remote_code": False}
# transformers reports which weights do not match the model. Here are the keys of this
# report, and what is wrong with a folder if a key has entries.
MISMATCHES = {
    "mismatched_keys": "has weights of another shape than its configuration says",
    "missing_keys": "lacks weights of the model",
    "unexpected_keys": "has weights that its model has no place for",
}
# The number of weights that a message names.
NAMED_WEIGHTS = 3


def import_transformers() -> Any:
    """Import transformers, or raise an error that says how to install it."""
    try:
        import transformers
    except ImportError:
        raise InputError(
            "released models need transformers: pip install '.[hf]'"
        ) from None
    return transformers


@contextmanager
def refusing(problem: str, path: Path | str) -> Iterator[None]:
    """Turn any error of transformers in the block into an InputError of one line.

    The line begins with the problem and the path. transformers shows no progress bars,
    warnings or logs in the block.
    """
    import_transformers()
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    shows_bars = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except RopelabError:
        raise
    except Exception as error:
        # Every error is caught: the files may hold anything, and so cause any error.
        raise InputError(f"{problem} {path}: {describe_error(error)}") from None
    finally:
        logging.set_verbosity(verbosity)
        if shows_bars:
            logging.enable_progress_bar()


def describe_error(error: Exception) -> str:
    """Return the message of an exception in one line of printable characters.

    If the exception has no message, return the name of its type.
    """
    one_line = " ".join(str(error).split())
    message = "".join(letter for letter in one_line if letter.isprintable())
    message = message.rstrip(":")

    type_name = type(error).__name__
    if isinstance(error, KeyError | IndexError):
        # The message of these errors is a key or a number alone.
        message = f"{type_name}: {message}"
    if not message:
        message = type_name
    if len(message) > LONGEST_REASON:
        message = message[: LONGEST_REASON - 3] + "..."
    return message


def _read_once(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Decorate a function that reads a folder, so that it keeps its results.

    It reads a folder again only if a file in the folder has changed. The decorated
    function also takes an id in the Hub's local cache.
    """

    # `files` is not used here, but it is a part of the key of the cache. It identifies
    # the files of the folder, so that changed files are read again.
    @lru_cache(maxsize=4)
    def read_files(folder: Path, files: object) -> Any:
        return read(folder)

    @wraps(read)
    def read_if_changed(folder: Path) -> Any:
        folder = locate(folder)
        # The result is not used. The call raises an error for a file that is not safe.
        read_checked_config(folder)
        return read_files(folder, identify_files(folder))

    return read_if_changed


@_read_once
def read_configuration_once(folder: Path) -> Any:
    """Return the configuration of a causal language model, as transformers has it."""
    return read_configuration(folder)


def read_configuration(folder: Path, images: bool = False) -> Any:
    """Return the configuration of a language model, as transformers has it.

    If `images` is True, models that also read images are allowed. InputError:
    transformers does not know the model, or the model is not a language model.
    """
    transformers = import_transformers()
    raw_config = read_checked_config(folder)
    architecture = raw_config.get("model_type")
    known_architectures = transformers.CONFIG_MAPPING
    if isinstance(architecture, str) and architecture not in known_architectures:
        if "auto_map" in raw_config:
            raise InputError(
                f"{folder} needs the code in its folder, which is never run"
            )
        version = transformers.__version__
        raise InputError(
            f"{folder}: transformers {version} has no '{architecture[:40]}'"
        )

    with refusing("no configuration of a language model in", folder):
        config = transformers.AutoConfig.from_pretrained(folder, **ONLY_LOCAL_FILES)
        allowed_types = {*transformers.MODEL_FOR_CAUSAL_LM_MAPPING}
        if images:
            allowed_types |= {*transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING}
        if type(config) not in allowed_types:
            raise InputError(
                f"{folder}: {architecture} is no causal LM in transformers"
            )
        return config


def read_checkpoint_dtype(folder: Path) -> str:
    """Return the number format that the configuration names, such as bfloat16."""
    return str(getattr(read_configuration_once(folder), "dtype", None)).removeprefix(
        "torch."
    )


def load(
    folder: Path,
    device: str,
    dtype: ModelDtype,
    device_map: str | None,
) -> Any:
    """Return the model in evaluation mode, without gradients.

    The model is put on the `device`, unless a `device_map` spreads it over several
    devices. InputError: the model is not a causal language model, or its weights do not
    match its configuration.
    """
    transformers = import_transformers()
    config = read_configuration_once(folder)
    weight_bytes = count_weight_bytes(folder)
    with refusing("cannot load a causal language model from", folder):
        # This entry of a configuration may name a kernel, which transformers would
        # download.
        config._experts_implementation = None
        attention = _check_size(transformers, config, folder, weight_bytes)
        try:
            model, info = transformers.AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                **ONLY_LOCAL_FILES,
                attn_implementation=attention,
                dtype="auto" if dtype == "auto" else getattr(torch, dtype),
                device_map=device_map,
                # `_check_complete` refuses weights of another shape, and names them.
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        except UnpicklingError:
            raise InputError(
                f"{folder}: a *.bin is damaged or not only weights"
            ) from None
    _check_complete(folder, info)

    # transformers maps files into memory and reads weights when they are used. A file
    # that changes meanwhile would end the process (SIGBUS) or mix two models, so that all
    # weights are copied.
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()
    model.eval().requires_grad_(False)
    return model if device_map else model.to(device)


def _check_complete(folder: Path, info: Mapping[str, Any]) -> None:
    """Refuse weights that are missing, left over, or of another shape."""
    for report_key, problem in MISMATCHES.items():
        names = []
        for entry in info[report_key]:
            # A weight of another shape comes as (name, shape, shape).
            name = entry[0] if isinstance(entry, tuple) else entry
            names.append(str(name))

        names.sort()
        if names:
            # `describe_error` makes the names printable and not too long.
            listed = describe_error(ValueError(", ".join(names[:NAMED_WEIGHTS])))
            unnamed_count = len(names) - NAMED_WEIGHTS
            count_of_rest = ""
            if unnamed_count > 0:
                count_of_rest = f" and {unnamed_count} more"
            raise InputError(f"{folder} {problem}: {listed}{count_of_rest}")


def _check_size(
    transformers: Any,
    config: Any,
    folder: Path,
    weight_bytes: int,
) -> str:
    """Refuse a configuration whose model is larger than its files allow.

    Return transformers' name of the code that computes the attention of this model.
    """
    # On the device `meta` a model has shapes, but no numbers.
    with torch.device("meta"):
        skeleton = transformers.AutoModelForCausalLM.from_config(
            config, trust_remote_code=False, attn_implementation="eager"
        )

    parameters = sum(parameter.numel() for parameter in skeleton.parameters())
    # A weight takes at least one bit of the files.
    bits_of_files = 8 * weight_bytes
    if parameters > bits_of_files:
        raise InputError(
            f"{folder}: config.json describes {parameters:.3g} weights, which do not"
            f" fit into the {weight_bytes:,} bytes of its files"
        )

    buffers = sum(buffer.numel() for buffer in skeleton.buffers())
    if buffers > MOST_TABLE_NUMBERS:
        raise InputError(
            f"{folder}: config.json asks for tables of {buffers:.3g} numbers"
        )
    return "sdpa" if skeleton._supports_sdpa else "eager"


@_read_once
def load_tokenizer(path: Path) -> Any:
    """Return the tokenizer of a model; InputError if it has none."""
    with refusing("no tokenizer in", path):
        tokenizer = import_transformers().AutoTokenizer.from_pretrained(
            path, **ONLY_LOCAL_FILES
        )
        # Texts that are longer than the model allows are measured on purpose, and need no
        # warning.
        tokenizer.model_max_length = int(1e30)
        # The result is not used. A tokenizer that cannot tokenize raises an error here.
        tokenizer("a text", add_special_tokens=False)
        return tokenizer
