"""Build the rotary classes of transformers, and ask them for cos and sin.

Most model types of transformers have a class whose name ends in `RotaryEmbedding`. It is
built from a configuration, and returns cos and sin for position ids.
"""

import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np

from ropelab.conformance.answers import name_parts, split_complex_table, to_numbers
from ropelab.conformance.observation import Observed, Positions
from ropelab.conformance.rotations import observe_tables
from ropelab.readers.axes import VISION_CONFIG
from ropelab.readers.document import load
from ropelab.readers.families import FACTS_OF_WHOLES
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import Trace, find_language_part
from ropelab.runs.errors import InputError, check_known, describe_error, require

# Endings of the names of rotary classes. DINOv3's class has the last ending.
ROTARY_CLASSES = ("RotaryEmbedding", "RopePositionEmbedding")


def ask_module(
    module: Any,
    spec: RopeSpec,
    positions: Positions,
    dtype: str,
    layer: str = "",
) -> Observed:
    """Ask a rotary class for cos and sin at positions [n], or [axes, n].

    Args:
        module: an instance of the class.
        spec: what it should rotate.
        positions: the positions to ask for.
        dtype: float32, bfloat16 or float16.
        layer: the type of the layers, for a class that has several.
    """
    import torch

    name = check_known("--dtype", dtype, ("float32", "bfloat16", "float16"))
    # Code of a model passes hidden states, of which the class takes the number format.
    values = torch.zeros(1, dtype=getattr(torch, name))
    arguments: list[Any] = [values, shape_positions(positions)]
    # DINOv3's class takes pixels instead of positions.
    if hasattr(module, "num_patches_h"):
        arguments = [make_image(module, positions, values)]
    if has_layer_types(module):
        arguments.append(layer)
    with torch.no_grad():
        try:
            answer = module(*arguments)
        # The configured sections of positions may not add up to the number of pairs.
        except RuntimeError as error:
            raise InputError(
                f"{type(module).__name__} stops: {describe_error(error)}"
            ) from None

    parts = name_parts(answer, [])
    numbers = {name: to_numbers(part) for name, part in parts.items()}
    tables = split_complex_table(numbers)
    cos = tables["cos"]
    sin = tables["sin"]
    # The classes of language models return a batch, here of one row.
    if cos.ndim == 3:
        cos = cos[0]
        sin = sin[0]
    # An `Observed` has one number for each position. If a position has several axes, it
    # is the number of the position in the list.
    order = positions
    if positions.ndim > 1:
        order = np.arange(positions.shape[-1])
    return observe_tables(order, cos, sin, spec)


def shape_positions(positions: Positions) -> Any:
    """Return position ids as rotary classes take them."""
    import torch

    if positions.ndim == 1:
        return torch.from_numpy(positions)[None]  # [1, n] for text
    if len(positions) == 2:
        return torch.from_numpy(positions.T.copy())  # [n, 2] for patches
    return torch.from_numpy(positions)[:, None]  # [3, 1, n] for text and images


def make_image(module: Any, positions: Positions, values: Any) -> Any:
    """Return the pixels of an image that has these rows and columns of patches."""
    rows, columns = (positions.max(axis=-1) + 1).tolist()
    size = module.config.patch_size
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return values.new_zeros(1, 3, rows * height, columns * width)


def has_layer_types(module: Any) -> bool:
    """Return True for a rotary class that is told the type of a layer."""
    kinds = getattr(module, "rope_type", None)
    # The dictionary of ESM's class is empty.
    return isinstance(kinds, dict) and bool(kinds)


def build_rotary(folder: Path, vision: bool = False) -> Any:
    """Return an instance of the rotary class, from the config.json in a folder.

    With ``vision`` it is the class of the encoder of images, not of the language model.
    """
    document = load(str(folder), images=True)
    if document.encoding:
        raise InputError(
            f"{document.name} is {document.encoding}, which transformers refuses: save"
            " it as UTF-8, without a byte order mark"
        )
    if document.kind != "config":
        raise InputError(
            f"{document.name} is no config.json: transformers builds no class from it"
        )
    config = document.config
    _, language_part = find_language_part(config)
    # The configuration class of the whole model is built if it fills in defaults of its
    # own in the part for text, or gives this part another type.
    has_defaults = str(config.get("model_type")) in FACTS_OF_WHOLES
    has_other_type = Trace(config).model_type != language_part.get("model_type")
    is_whole_built = vision or has_defaults or has_other_type
    built_part = config if is_whole_built else language_part

    require("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    model_type = str(built_part.get("model_type"))
    if model_type not in CONFIG_MAPPING:
        raise InputError(f"the installed transformers has no model type '{model_type}'")
    try:
        whole = CONFIG_MAPPING[model_type].from_dict(dict(built_part))
        made = whole.get_text_config()
        if vision:
            made = getattr(whole, VISION_CONFIG, whole)
        # Some encoders of images shift positions at random until `eval` is called.
        return find_rotary_class(type(made))(config=made).eval()
    except InputError:
        raise
    # The class, or what checks its fields, may raise anything.
    except Exception as error:
        problem = " ".join(describe_error(error).split())
        raise InputError(
            f"{model_type}'s class refuses the configuration: {problem}"
        ) from None


def find_rotary_class(config_class: Any) -> Any:
    """Return the rotary class of a configuration class's language model.

    A model type without its own code uses the code of another type. For example,
    InternLM3's models are Llamas.
    """
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    path = config_class.__module__.replace(".configuration_", ".modeling_")
    if not importlib.util.find_spec(path):
        model: Any = MODEL_MAPPING[config_class]
        return find_rotary_class(model.config_class)

    # The candidates are in the order of the file, where the class of the language model
    # comes first.
    module = importlib.import_module(path)
    candidates = []
    for value in vars(module).values():
        is_own = inspect.isclass(value) and value.__module__ == module.__name__
        if is_own and value.__name__.endswith(ROTARY_CLASSES):
            candidates.append(value)

    # A model of several parts has a rotary class for each. Its parameter `config` is
    # annotated with the configuration class of the part.
    for candidate in candidates:
        signature = inspect.signature(candidate.__init__)
        annotation = signature.parameters["config"].annotation
        name = str(getattr(annotation, "__name__", annotation))
        if config_class.__name__ in re.findall(r"\w+", name):
            return candidate
    for candidate in candidates:
        if not any(part in candidate.__name__ for part in ("Vision", "Audio")):
            return candidate
    raise InputError(f"no rotary embedding in {module.__name__}")
