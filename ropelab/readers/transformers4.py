"""transformers 4, release by release: `rope_theta` and `rope_scaling` beside each other.

Its YaRN changed three times. Read from src/transformers/modeling_rope_utils.py and
configuration_utils.py, and the Llama, Phi-3, Gemma 3 and GPT-NeoX classes of 4.44.2,
4.48.3, 4.51.3, 4.55.4 and 4.57.1.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ropelab.readers import reader, scaling_types
from ropelab.readers.blocks import refuse_null_base
from ropelab.readers.families import TYPE_COPIES, is_unscalable, read_table
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.settings import Settings
from ropelab.readers.spec import RefusedError, require_number, require_whole
from ropelab.readers.trace import ORIGINAL, Trace
from ropelab.readers.transformers import Transformers, find_own_attention

# The beginnings of the model types whose classes take the scaling type `mrope`.
MROPE_TYPES = tuple(read_table("names")["mrope_types"]["transformers-4"])


def find_type(trace: Trace, block: Mapping[str, Any]) -> tuple[Any, str]:
    """Return the scaling type, and its path.

    RefusedError: the file has a block without a type, with which no class can be built.
    """
    family = trace.family
    names = ["rope_scaling.type", "rope_scaling.rope_type"]
    takes_type = family.name in TYPE_COPIES or "type" in family.block_keys
    if family.has_known_defaults and not takes_type:
        names.reverse()

    scaling_type, path = trace.first((*names, "rotary.type"), block.get("rope_type"))
    first, second = names
    if path == first and second.removeprefix("rope_scaling.") in block:
        won = first.removeprefix("rope_scaling.")
        trace.mark(second, "overridden", f"{won} wins in this class of transformers 4")

    is_given = trace.block("rope_scaling") is not None
    if scaling_type is None and is_given and not is_unscalable(family):
        raise RefusedError("rope_scaling has no rope_type")
    for key in family.type_keys.get(str(scaling_type), ()):
        if key not in block:
            raise RefusedError(f"'{family.name}' with '{scaling_type}' needs {key}")
    return scaling_type or "default", path


def stretch_base(settings: Settings) -> None:
    """Stretch the base if a key asks for it (configuration_zamba2.py:194 of 4.57.1)."""
    trace = settings.trace
    for key, factor in trace.family.stretched_by.items():
        if trace.get(key) is not True:
            continue
        head_dim = reader.read_head_dim(trace)
        stretch = factor ** (head_dim / (head_dim - 2))
        source = f"{settings.sources['rope_theta']}, stretched by {key}"
        settings.put("rope_theta", settings.number("rope_theta") * stretch, source)


def refuse_null_floats(trace: Trace) -> None:
    """Raise RefusedError for a null that the class would turn into a float
    (configuration_deepseek_v3.py:238 of 4.57.1).
    """
    for key in trace.family.float_keys:
        path = f"rope_scaling.{key}"
        if trace.has_null(path):
            raise RefusedError(f"{path} is null")


@dataclass
class Transformers4(Transformers):
    """One release, by its differences from other releases."""

    # The length that YaRN's ramp is made for, and its factor. maximum: they are
    # max_position_embeddings and `factor`. ratio: the original length, and the ratio of
    # both lengths. factor: the original length and `factor`.
    yarn_rule: Literal["maximum", "ratio", "factor"]
    # The tables of longrope. static: the long one at every length. short: the short one,
    # except in the class of Phi-3. switch: the length of the context chooses.
    longrope_rule: Literal["static", "short", "switch"]
    # True if YaRN reads the key truncate.
    truncate: bool = True
    # True if Phi-3 reads the key partial_rotary_factor.
    phi3_share: bool = True
    model_types: Collection[str] = ()
    reads_local_base = True
    unmultiplied_types = tuple(read_table("names")["unmultiplied_types"])
    refusal_of_model = "of that release the class of '{}' was not read"

    def __post_init__(self) -> None:
        rules = scaling_types.read_rules("transformers-4")
        # These two scalings differ from release to release.
        rules["yarn"] = replace(rules["yarn"], make=self.make_yarn)
        rules["longrope"] = replace(rules["longrope"], make=self.make_longrope)
        self.rules = scaling_types.COMMON_RULES | rules

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        # Base and share are beside rope_scaling; rope_parameters is not known to these
        # releases.
        family = trace.family
        block = trace.block("rope_scaling") or {}
        if not trace.has("rope_scaling"):
            # A block that is null counts as present, and means no scaling.
            block = family.rope_block
        settings = Settings(trace, block, "rope_scaling")

        scaling_type, path = find_type(trace, block)
        # Phi3Config._rope_scaling_adjustment renames both on loading.
        if family.name == "phi3" and scaling_type in ("su", "yarn"):
            scaling_type = "longrope"
        if scaling_type == "mrope" and family.name.startswith(MROPE_TYPES):
            scaling_type = "default"
        settings.put("rope_type", scaling_type, path)

        _, base_path = trace.first(family.base_keys)
        if not base_path:
            refuse_null_base(trace, family.base_keys)
        usual_source = f"default of the {family.name or 'model'} class"
        settings.put_first_found(
            "rope_theta", family.base_keys, family.base, usual_source
        )
        stretch_base(settings)
        refuse_null_floats(trace)

        for key in family.share_keys:
            if trace.has_null(key):
                # The code has `int(head_dim * getattr(config, key, 1.0))`.
                raise RefusedError(f"{key} is null")
        share, source = trace.first(family.share_keys, family.share or 1.0)
        share_by_width = reader.find_rotated_share(trace, reader.read_head_dim(trace))
        if share_by_width is not None:
            share = share_by_width
        settings.put("partial_rotary_factor", share, source)
        return {"all": settings}

    def find_width(self, settings: Settings, head_dim: int) -> int:
        # Until 4.48 the class of Phi-3 takes lists of longrope for the whole head only.
        rotates_whole = settings.trace.family.name == "phi3" and not self.phi3_share
        if rotates_whole and settings.get("rope_type") != "default":
            return reader.compute_rotated_width(head_dim, 1.0)

        width = reader.find_cut_width(settings.trace, head_dim)
        if width is not None:
            return width
        return super().find_width(settings, head_dim)

    @scaling_types.scaling_type("transformers-4", "yarn")
    def make_yarn(self, settings: Settings) -> MadeScaling:
        trained = settings.longest
        rule = self.yarn_rule
        if rule == "ratio" and ORIGINAL in settings.values:
            trained = settings.original()
            note = "max_position_embeddings / original wins"
            settings.mark("factor", "overridden", note)
            factor = settings.longest / trained
        else:
            factor = settings.number("factor")
            if rule == "factor" and settings.get(ORIGINAL):
                trained = settings.original()

        mscales = rule != "maximum"
        attention = scaling_types.find_attention(settings, factor, mscales=mscales)
        # The code has `config.rope_scaling.get(..) or 32`, so that 0 counts as missing.
        settings.drop_empty("beta_fast", "beta_slow")
        truncate = None if self.truncate else True
        return scaling_types.make_yarn(settings, factor, attention, trained, truncate)

    @scaling_types.scaling_type("transformers-4", "longrope")
    def make_longrope(self, settings: Settings) -> MadeScaling:
        is_static = self.longrope_rule == "static"
        attention = find_own_attention(settings)
        short, long = settings.lists()
        if is_static and attention is None:
            raise RefusedError(
                "longrope without attention_factor: its check compares None with 0"
            )

        # Only an original length at top level counts. PhiMoE also reads the original
        # length in the block.
        family = settings.trace.family
        original_in_block = None
        if family.attention_keys:
            original_in_block = settings.read(ORIGINAL)
        default = family.original_max_position_embeddings or original_in_block
        original = settings.trace.get(ORIGINAL, default)

        trained = settings.longest
        factor = settings.get("factor")
        if original is not None:
            trained = require_whole(original, ORIGINAL)
            factor = settings.longest / trained
        elif factor is None and (is_static or attention is None):
            raise RefusedError(
                "longrope without a factor and without a top-level original length"
            )
        else:
            # Reading the key marks it as used.
            settings.read("factor")
        if factor is None:
            factor = 1.0
        # A factor of 0 counts as missing.
        factor = require_number(factor, "factor") or 1.0

        has_switch = settings.trace.model_type == "phi3"
        is_short = self.longrope_rule == "short" and not has_switch
        if is_static and factor > 1:
            short = long
        elif is_static or is_short:
            long = short
        return scaling_types.make_longrope((short, long), factor, trained, attention)
