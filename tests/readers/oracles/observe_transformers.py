"""What one transformers version computes: run as `python observe_transformers.py SITE
OUT`.

SITE is the folder that holds the version (put first on the path); the environment's own
if '-'. Frequencies are those in the rotary module of the model's own class after a
forward pass at each length, with the module's attention scaling; several modules or
layer types give several entries.
"""

import importlib
import inspect
import sys

if sys.argv[1] != "-":
    sys.path.insert(0, sys.argv[1])

import common
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from configs import lengths

transformers.logging.set_verbosity(50)


def build(config):
    """The configuration object of the model's class, and its rotary modules by layer
    type.
    """
    kind = config["model_type"]
    if kind not in CONFIG_MAPPING:
        raise common.AbsentError(f"no model type {kind}")
    built = CONFIG_MAPPING[kind].from_dict(dict(config))
    module = importlib.import_module(
        f"transformers.models.{folder(kind)}.modeling_{folder(kind)}"
    )
    return built, rotary_modules(built, module)


def folder(kind):
    return {"gemma3_text": "gemma3"}.get(kind, kind)


def rotary_modules(built, module):
    for name, value in vars(module).items():
        own = inspect.isclass(value) and value.__module__ == module.__name__
        if own and name.endswith("RotaryEmbedding") and name.count("Rotary") == 1:
            if "config" not in inspect.signature(value.__init__).parameters:
                raise common.AbsentError(
                    "the rotary module of this version takes no config"
                )
            return value(config=built)
    raise common.AbsentError("no rotary module")


def observe(config):
    _, rotary = build(config)
    result = {}
    for name, length in zip(("short", "long"), lengths(config), strict=True):
        result[name] = tables(rotary, length)
    return {"observed": result}


def tables(rotary, length):
    positions = torch.tensor([[0, length - 1]])
    types = getattr(rotary, "layer_types", None)
    if isinstance(getattr(rotary, "rope_type", None), dict):
        return {kind: layer(rotary, positions, kind) for kind in sorted(set(types))}
    rotary(torch.zeros(1), positions)
    return {"all": entry(rotary.inv_freq, getattr(rotary, "attention_scaling", 1.0))}


def layer(rotary, positions, kind):
    rotary(torch.zeros(1), positions, kind)
    scaling = getattr(rotary, f"{kind}_attention_scaling")
    return entry(getattr(rotary, f"{kind}_inv_freq"), scaling)


def entry(inv_freq, scaling):
    return common.entry(inv_freq.double().tolist(), float(scaling))


common.main(f"transformers {transformers.__version__}", observe, sys.argv[2])
