"""A causal language model from a folder: whole, unchanged, and no larger than its weights.

Weights that are missing would be drawn at random and measured like trained ones, and weights left
over mean that the folder holds another model than it says: both are refused.
"""

from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import torch

from ropelab.errors import InputError
from ropelab.models.released.facts import configuration
from ropelab.models.released.folder import weight_files
from ropelab.models.released.library import import_transformers, reason, refusing

ModelDtype = Literal["auto", "float32", "bfloat16", "float16"]
"""`auto`: the number format of the checkpoint."""
BUFFERS = 2**28
"""The most numbers in tables that are no weights (rotary tables, masks)."""
INCOMPLETE = {
    "mismatched_keys": "has weights of another shape than its configuration says",
    "missing_keys": "lacks weights of the model",
    "unexpected_keys": "has weights that its model has no place for",
}
"""What transformers reports of a loading, and what that means."""
SHOWN = 3
"""How many names of weights a message lists."""


def load(folder: Path, device: str, dtype: ModelDtype, device_map: str | None) -> Any:
    """The model in evaluation mode, without gradients.

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
