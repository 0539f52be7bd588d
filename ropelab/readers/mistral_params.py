"""Mistral's params.json, in the words of a config.json."""

from collections.abc import Mapping
from typing import Any

from ropelab.readers.families import read_table

# The names of keys in a config.json by their names in a params.json: at the top, and in
# the block yarn.
KEY_NAMES: dict[str, str] = read_table("names")["params"]
YARN_NAMES: dict[str, str] = read_table("names")["params_yarn"]
# Keys that only a params.json from Meta has.
META_KEYS = frozenset(read_table("names")["meta"])
# The name under which the translation keeps the file itself.
OWN_PARAMS = "params.json"


def is_params(config: Mapping[str, Any]) -> bool:
    """Return True for the content of a params.json, from Mistral or from Meta."""
    return {"n_heads", "dim"} <= config.keys()


def translate_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a params.json under the names of a config.json, as vLLM does.

    The file itself is kept under `OWN_PARAMS`: llama.cpp's converter reads it as it is.
    """
    is_latent = has_latent_attention(params)
    left_out = {"yarn", "sliding_window"}
    if is_latent:
        left_out.add("head_dim")

    config = {}
    for key, value in params.items():
        if key not in left_out:
            config[KEY_NAMES.get(key, key)] = value
    config.setdefault("max_position_embeddings", 128000)
    config.setdefault("model_type", "deepseek_v3" if is_latent else "mistral")
    config[OWN_PARAMS] = dict(params)

    yarn = params.get("yarn")
    if isinstance(yarn, Mapping):
        config["rope_scaling"] = translate_yarn(yarn)
    return config


def change_params(
    config: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the params.json of a translation with other values of some keys.

    ``changes``: lengths, a base, and the whole block rope_scaling, as in a config.json.
    """
    own_names = {name: own for own, name in YARN_NAMES.items()}
    params = dict(config[OWN_PARAMS])
    for key, value in changes.items():
        if key != "rope_scaling":
            params[key] = value
            continue
        old_block = config.get(key, {})
        yarn = dict(params.get("yarn", {}))
        for name, number in value.items():
            if old_block.get(name) != number:
                yarn[own_names.get(name, name)] = number
        params["yarn"] = yarn
    return params


def has_latent_attention(params: Mapping[str, Any]) -> bool:
    """Return True for a model with latent attention, as Mistral Large 3."""
    moe = params.get("moe")
    if not moe:
        return bool(params.get("qk_nope_head_dim"))
    return isinstance(moe, Mapping) and bool(moe.get("num_shared_experts"))


def translate_yarn(yarn: Mapping[str, Any]) -> dict[str, Any]:
    """Return the yarn block of a params.json as a block rope_scaling."""
    block = {YARN_NAMES.get(key, key): value for key, value in yarn.items()}
    block.pop("apply_scale", None)
    block["rope_type"] = "yarn"
    block["mscale_all_dim"] = 1
    if yarn.get("apply_scale") is False:
        # Logits are not multiplied.
        block["attention_factor"] = 1.0
    return block
