"""The models that come with ropelab, which answer --quick without training."""

from collections.abc import Mapping
from typing import Any

from ropelab.models.lm.pretrained import list_pretrained
from ropelab.runs.sentences import write_count

# The fields of a config that decide which model is trained, with the values that the
# models that come with ropelab have.
PRETRAINED_VALUES: dict[str, Any] = {
    "train_len": 512,
    "base": 10000.0,
    "head_dim": 64,
    "preset": "small",
    "steps": None,
    "tokens_per_step": None,
    "heads": None,
    "corpus": "",
}


def describe_pretrained(typed_values: Mapping[str, Any]) -> str:
    """Say which models that come with ropelab can answer; empty if no model can.

    `typed_values` has the values of a config that are not the defaults.
    """
    # The models by the seeds that they were trained with.
    models = list_pretrained()
    for name, value in PRETRAINED_VALUES.items():
        if typed_values.get(name, value) != value:
            return ""
    seeds = typed_values.get("seeds", tuple(models))
    if not models or not set(seeds).issubset(models):
        return ""

    first_seed, *_ = seeds
    made = models[first_seed].made
    length = PRETRAINED_VALUES["train_len"]
    return (
        f"nothing is trained here: {write_count(len(seeds), 'model')} of the default size"
        f" came with ropelab, trained at {length} tokens on {made['day']} by"
        f" `{made['command']}`; without --quick your own are trained"
    )
