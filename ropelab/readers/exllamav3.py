"""ExLlamaV3, which reads config.json itself, for one layer type.

Read from exllamav3 1.6.5: exllamav3/util/rope.py, model/config.py and architecture/*.py.

`settings.read` marks the key of a value as used, and `settings.get` does not. `trace.get`
reads a key beside the block of the scaling.
"""

from typing import Any

from ropelab.readers import reader, scaling_types
from ropelab.readers.families import read_table
from ropelab.readers.reader import Reader
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    RefusedError,
    RopeSpec,
    require_whole,
    shorten_value,
)
from ropelab.readers.trace import MAXIMUM, MSCALES, ORIGINAL, Trace


class Exllama(Reader):
    """ExLlamaV3: transformers' older formulas, one table for all lengths."""

    model_types = frozenset(read_table("names")["exllama"])
    refusal_of_model = "the architecture file for '{}' was not read"
    # `Reader` explains these values. A file without a maximum gets 2048 tokens from there;
    # only YaRN stops without one.
    length_keys = (MAXIMUM,)
    default_is_limit = False
    multiplies_unscaled_scores = False

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        if trace.family.name == "deepseek_v3":
            require_one_group(trace)
        return super().read(trace)

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        where = "rope_parameters"
        if trace.block("rope_scaling") is not None:
            where = "rope_scaling"
        settings = Settings(trace, trace.block(where), where)
        for name, default in (("rope_theta", 10000.0), ("partial_rotary_factor", 1.0)):
            keys = (name, f"rope_parameters.{name}")
            settings.put_first_found(name, keys, default, "default of model/config.py")
        return {"all": settings}

    def find_type(self, settings: Settings) -> Any:
        name = "type"
        if "rope_type" in settings.values:
            name = "rope_type"
        scaling_type = settings.read(name)
        # A type of null means no scaling.
        return "default" if scaling_type is None else scaling_type

    def find_width(self, settings: Settings, head_dim: int) -> int:
        width = settings.trace.get("rotary_dim")
        if width is not None:
            return require_whole(width, "rotary_dim")
        if settings.get("rope_type") == "proportional":
            return head_dim
        return reader.compute_rotated_width(
            head_dim, settings.number("partial_rotary_factor")
        )

    def find_pairing(self, trace: Trace) -> Any:
        # Neighbouring features form a pair only in latent attention, whatever the
        # model.
        return "interleaved" if trace.family.latent else "half"


def require_one_group(trace: Trace) -> None:
    """Raise RefusedError for experts in groups, as architecture/deepseek_v3.py stops."""
    for key in ("n_group", "topk_group"):
        groups = trace.get(key)
        if groups not in (None, 1):
            trace.mark(key, "refused")
            raise RefusedError(f"{key} is {shorten_value(groups)}, not 1")


@scaling_types.scaling_type("exllamav3", "yarn")
def make_exllama_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN by ExLlamaV3's rules."""
    if settings.trace.get(MAXIMUM) is None:
        raise RefusedError(f"yarn without {MAXIMUM}")

    if settings.get(ORIGINAL) is None:
        trained = settings.longest
        factor = settings.number("factor")
    else:
        trained = settings.original()
        factor = settings.longest / trained
        settings.mark("factor", "overridden", "max / original wins")

    if settings.read("attention_factor") is not None:
        attention = settings.number("attention_factor")
    elif settings.trace.family.latent and all(settings.get(name) for name in MSCALES):
        # The keys of mscale are read only for latent attention.
        attention = scaling_types.mscale_ratio(settings, factor)
    elif settings.get("llama_4_scaling_beta"):
        attention = 1.0
    else:
        attention = scaling_types.yarn_attention(factor)
    return scaling_types.make_yarn(settings, factor, attention, trained)


@scaling_types.scaling_type("exllamav3", "longrope", "su")
def choose_table_by_lengths(settings: Settings) -> MadeScaling:
    """Return longrope with the table that the lengths in the file choose."""
    original = settings.read(ORIGINAL)
    if original is None:
        original = settings.trace.get(ORIGINAL)
    if original is None:
        raise RefusedError(f"longrope without {ORIGINAL}")

    # The table is chosen once, not by the length of a prompt.
    trained = require_whole(original, ORIGINAL)
    name = "long_factor" if settings.longest > trained else "short_factor"
    return scaling_types.make_one_table(settings, name, trained)


# `read_rules` looks up the functions above, so that it is called after them.
Exllama.rules = scaling_types.read_rules("unscaled") | scaling_types.read_rules(
    "exllamav3"
)
