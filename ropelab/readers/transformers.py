"""transformers 5, which reads one dict of parameters, or one per layer type.

Older files are moved into `rope_parameters` first (`ropelab.readers.blocks`). Read from
src/transformers/modeling_rope_utils.py and configuration_utils.py, and the configuration
classes of 5.24.0.
"""

from collections.abc import Mapping
from typing import Any

from ropelab.readers import reader, scaling_types
from ropelab.readers.blocks import (
    fill_block,
    find_labels,
    mark_keys_outside_parts,
    read_layers,
    refuse_incomplete_layers,
)
from ropelab.readers.declared import check_values, check_window
from ropelab.readers.reader import Reader
from ropelab.readers.scaling_types import MadeScaling
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_whole,
)
from ropelab.readers.trace import ORIGINAL, TYPES_WITH_ORIGINAL, Trace

# Why the dicts of layer types do nothing in a class that has no layer types.
NO_LAYER_TYPES = "its class has no layer types, and reads the keys beside these dicts"
# The scalings that multiply the head_dim of the configuration, whatever it is
# (modeling_rope_utils.py:324, :415 and :548).
MULTIPLY_HEAD_DIM = ("dynamic", "yarn", "longrope")


class Transformers(Reader):
    """The common base of transformers 4 and 5, whose classes raise errors for some
    blocks.
    """

    def make_spec(self, settings: Settings) -> RopeSpec:
        spec = super().make_spec(settings)
        self.check_width(settings.trace, spec.rotary_dim)
        return spec

    def make_scaling(self, settings: Settings) -> MadeScaling:
        for name, value in settings.trace.family.constants.items():
            settings.mark(name, "ignored", "a constant of this class")
            settings.put(name, value, "constant of its class")

        refuse_by_class(settings)
        return super().make_scaling(settings)

    def check_width(self, trace: Trace, width: int) -> None:
        """Raise RefusedError if attention rotates another number of features."""
        refuse_by_rotated_part(trace, width)

    def find_type(self, settings: Settings) -> Any:
        if settings.get("rope_type") == "axial":
            raise RefusedError("rope type 'axial' needs a vision model")
        return settings.get("rope_type")


def refuse_by_class(settings: Settings) -> None:
    """Raise RefusedError for a block or a scaling type at which the class stops."""
    family = settings.trace.family
    block_keys = set(settings.trace.block("rope_scaling") or ())
    if family.needs_block and not block_keys:
        raise RefusedError(f"'{family.name}' needs a block rope_scaling")

    # Some classes of transformers 4 insist on certain keys and, if the older key `type` is
    # one of them, allow no others.
    required_keys = set(family.block_keys)
    is_incomplete = not required_keys <= block_keys
    has_others = "type" in required_keys and not block_keys <= required_keys
    if block_keys and (is_incomplete or has_others):
        raise RefusedError(
            f"'{family.name}' takes a block of {', '.join(family.block_keys)}"
        )

    scaling_type = settings.get("rope_type")
    if scaling_type in family.refuses and (block_keys or scaling_type != "default"):
        raise RefusedError(f"'{family.name}' takes no rope type '{scaling_type}'")

    head_dim, _ = settings.trace.first(family.head_keys)
    if head_dim is None and scaling_type in family.refuses_without_head_dim:
        raise RefusedError(f"'{family.name}' with '{scaling_type}' needs a head_dim")
    refuse_by_attention(settings.trace)


def refuse_by_attention(trace: Trace) -> None:
    """Raise RefusedError for tables that are not as wide as the heads they rotate.

    Some attention takes the size of its heads from other keys than the tables do. The
    class is built at any head_dim, and its first forward pass stops.
    """
    family = trace.family
    if family.attention_parts:
        sizes = family.attention_parts.items()
        attended = sum(
            require_whole(trace.get(key, default), key) for key, default in sizes
        )
        source = " + ".join(family.attention_parts)
    elif family.divides_for_attention:
        attended = reader.divide_by_heads(trace)
        source = "hidden_size / num_attention_heads"
    else:
        return

    head_dim = reader.read_head_dim(trace)
    if head_dim != attended:
        raise RefusedError(
            f"'{family.name}' has tables for heads of {head_dim} features, by head_dim, "
            f"and attention with {attended}, by {source}"
        )


def refuse_by_rotated_part(trace: Trace, width: int) -> None:
    """Raise RefusedError if the tables have another width than the part that rotates.

    In latent attention a separate key gives the width of this part. Without a scaling,
    the tables of Mistral 4 are as wide as the whole head. A share makes the tables of
    DeepSeek-V3 narrower.
    """
    family = trace.family
    key = "qk_rope_head_dim"
    if key not in family.attention_parts:
        return
    rotated = require_whole(trace.get(key, family.attention_parts[key]), key)
    if width != rotated:
        raise RefusedError(
            f"'{family.name}' has tables of {width} features, and attention with "
            f"{rotated} that rotate, by {key}"
        )


class Transformers5(Transformers):
    """transformers 5. Its settings are the values of the configuration after loading."""

    multiplies_unscaled_scores = False
    # True: dicts of layer types stop also where the class reads the keys beside them.
    stops_at_nested_block = False

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        check_values(trace)
        self.check_forward(trace)
        specs = reader.widen_full_attention(trace, super().read(trace))
        return drop_absent_layers(trace, specs)

    def make_scaling(self, settings: Settings) -> MadeScaling:
        trace = settings.trace
        # These scalings have `getattr(config, "head_dim", hidden_size // heads)`, which
        # takes a null for a size. Some classes replace the null on loading.
        multiplies_head_dim = settings.get("rope_type") in MULTIPLY_HEAD_DIM
        stops_at_null = trace.family.stops_at_null_head_dim and multiplies_head_dim
        if stops_at_null and trace.has_null("head_dim"):
            raise RefusedError("head_dim is null, which its scaling multiplies")
        return super().make_scaling(settings)

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        name = "rope_parameters"
        block = trace.block(name)
        scaling = trace.block("rope_scaling")
        if trace.family.layer_blocks:
            self.check_layers(trace)
            return read_layers(trace, block, scaling)

        # The class of Mistral 4 puts the share of its heads only into rope_parameters.
        share = "partial_rotary_factor"
        has_share = trace.has(share) or share in (scaling or {})
        if scaling and not has_share and trace.family.name == "mistral4":
            raise NotModelledError(
                "a rope_scaling, beside which its class has no share"
            )
        if scaling:
            for key in block or ():
                note = "rope_scaling replaces the whole dict"
                trace.mark(f"rope_parameters.{key}", "overridden", note)
            name = "rope_scaling"
            block = scaling

        # A block may have a dict for each layer type.
        labels = set(find_labels(trace))
        parts = {
            label: part
            for label, part in (block or {}).items()
            if label in labels and isinstance(part, Mapping)
        }

        # A null counts as the dict of a layer type, too.
        is_nested = not labels.isdisjoint(block or ())
        if is_nested and trace.family.has_known_defaults:
            # A class without a field layer_types gets this key after it has read the
            # block, where it takes no name for a layer type (modeling_rope_utils.py:772).
            family = trace.family
            takes_types = bool(family.layer_types) or "layer_types" in family.key_types
            if takes_types or self.stops_at_nested_block:
                raise RefusedError(
                    f"'{trace.family.name}' has one rotation, not one per layer type"
                )
            for label, part in parts.items():
                for key in part:
                    trace.mark(f"{name}.{label}.{key}", "ignored", NO_LAYER_TYPES)
            parts = {}
        if not parts:
            return {"all": fill_block(trace, name, block)}
        mark_keys_outside_parts(trace, name, block, parts)
        return {
            label: fill_block(trace, f"{name}.{label}", part, label)
            for label, part in parts.items()
        }

    def check_forward(self, trace: Trace) -> None:
        """Raise RefusedError for a file without what the first forward pass needs."""
        if trace.family.has_known_defaults:
            check_window(trace.language_part, trace.family.name)
        block = trace.block("rope_scaling") or trace.block("rope_parameters")
        share = "partial_rotary_factor"
        needs_share = trace.family.attends_by_share and share not in (block or ())
        if needs_share and trace.has_null(share):
            raise RefusedError(
                f"'{trace.family.name}' has tables for a share of null, and attention"
                " with none at all"
            )
        if block is None:
            # The block of the class has every key that is needed.
            return
        scaling_type = block.get("rope_type", block.get("type"))
        for key in trace.family.forward_keys:
            is_filled_in = key == ORIGINAL and scaling_type in TYPES_WITH_ORIGINAL
            if block.get(key) is None and not is_filled_in:
                raise RefusedError(
                    f"'{trace.family.name}' multiplies queries by a factor that needs"
                    f" {key}"
                )

    def check_layers(self, trace: Trace) -> None:
        """Raise RefusedError for dicts of layer types at which the class stops."""
        refuse_incomplete_layers(trace)

    def find_width(self, settings: Settings, head_dim: int) -> int:
        width = reader.find_cut_width(settings.trace, head_dim)
        if width is not None:
            return width

        family = settings.trace.family
        scaling_type = settings.get("rope_type")
        is_unscaled = scaling_type == "default"
        default_share = 1.0
        if is_unscaled and family.unscaled_share:
            default_share = family.unscaled_share

        # Most classes read no share in compute_default_rope_parameters, which is called if
        # there is no scaling.
        if is_unscaled and not family.reads_share_unscaled:
            note = "this class rotates the whole head when unscaled"
            settings.mark("partial_rotary_factor", "ignored", note)
            share = 1.0
        else:
            share = settings.number("partial_rotary_factor", default_share)

        if scaling_type == "proportional":
            # The scaling itself leaves all pairs beyond the share unrotated.
            return head_dim
        return reader.compute_rotated_width(head_dim, share)


def drop_absent_layers(trace: Trace, specs: dict[str, RopeSpec]) -> dict[str, RopeSpec]:
    """Return the specs of the layer types that are in the file's list of layers.

    The rotary class makes no table for other layer types. Without a list all specs stay.
    """
    types = trace.language_part.get("layer_types")
    if not isinstance(types, list):
        return specs
    present = {name: spec for name, spec in specs.items() if name in types}
    # Some rotations are not named after a type of layers.
    return present or specs


def load_block(language_part: Mapping[str, Any]) -> dict[str, Any]:
    """Return the block as transformers 5 fills it in, or one for each layer type."""
    blocks = {}
    for label, settings in Transformers5().read_settings(Trace(language_part)).items():
        blocks[label] = settings.values
    return blocks.get("all", blocks)


def choose_factor_or_ratio(settings: Settings, trained: int) -> float:
    """Return the factor of a scaling by its key, or else the longest context divided by
    the trained length.
    """
    factor = settings.read("factor")
    if factor is None:
        return settings.longest / trained
    return require_number(factor, "factor")


@scaling_types.scaling_type("transformers-5", "yarn")
def make_transformers_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN by the rules of transformers 5."""
    trained = settings.original()
    factor = choose_factor_or_ratio(settings, trained)
    attention = scaling_types.find_attention(settings, factor)

    # The code has `rope_parameters_dict.get(..) or 32`, so that 0 counts as missing.
    settings.drop_empty("beta_fast", "beta_slow")
    # truncate is read from the outer dict, so that inside a layer type's dict it does
    # nothing.
    truncate = None
    if settings.layer:
        settings.mark("truncate", "ignored", "read from the outer dict only")
        truncate = True
    return scaling_types.make_yarn(settings, factor, attention, trained, truncate)


def find_own_attention(settings: Settings) -> Any:
    """Return the factor on cos and sin that a file gives.

    The files of PhiMoE give one for each of longrope's tables.
    """
    keys = settings.trace.family.attention_keys
    factors = {settings.number(key) for key in keys}
    if len(factors) > 1:
        raise NotModelledError(f"{' and '.join(keys)} that differ")
    if factors:
        return factors.pop()
    return settings.read("attention_factor")


@scaling_types.scaling_type("transformers-5", "longrope")
@scaling_types.scaling_type("unsloth", "longrope")
def make_transformers_longrope(
    settings: Settings, switches: bool = True
) -> MadeScaling:
    """Return longrope by the rules of transformers 5.

    `switches` is False for a runtime that always uses the short table.
    """
    trained = settings.original()
    short, long = settings.lists()
    factor = choose_factor_or_ratio(settings, trained)
    attention = find_own_attention(settings)

    # PhiMoE's class asks for a table without a length, and so never gets the long one.
    if not switches or settings.trace.family.name == "phimoe":
        long = short
    return scaling_types.make_longrope((short, long), factor, trained, attention)


Transformers5.rules = scaling_types.COMMON_RULES | scaling_types.read_rules(
    "transformers-5"
)
