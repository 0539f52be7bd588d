"""The reader that runtimes share: settings of a layer type in, a RopeSpec out.

A runtime is a subclass of `Reader`, which changes the steps that the runtime takes in
another way; `make_spec` lists the steps. A `Trace` is a configuration that notes which of
its keys were read, and `trace.family` has the facts about the class of its model type.
The block is the dict of a configuration that has the scaling, such as rope_scaling.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ropelab.readers.scaling_types import MadeScaling, ScalingRule, yarn_attention
from ropelab.readers.settings import Settings
from ropelab.readers.spec import (
    FIRST_UNREADABLE_INTEGER,
    MOST_FEATURES,
    NotModelledError,
    RefusedError,
    RopeSpec,
    require_number,
    require_whole,
    shorten_value,
)
from ropelab.readers.trace import MAXIMUM, Trace


class Reader:
    """The steps from a configuration to a spec per layer type, as most runtimes take
    them.
    """

    # The scaling types by name.
    rules: Mapping[str, ScalingRule] = {}
    # The refusal of any other scaling type; the name of the type replaces the braces.
    refusal_of_type = "unknown rope type '{}'"
    # The model types that are read; empty: all are.
    model_types: Collection[str] = ()
    # The reason why other model types are not read; the braces stand for the model
    # type.
    refusal_of_model = ""
    # Keys of the longest context, and its default. None: one of the keys is required.
    length_keys: tuple[str, ...] = (MAXIMUM, "n_positions")
    default_longest: int | None = 2048
    # True if the default limits the length of a file that has none of the length keys.
    default_is_limit = True
    # True if DeepSeek's factor on scores (`find_softmax_factor`) also holds without a
    # scaling.
    multiplies_unscaled_scores = True
    # The model types of which no score is multiplied by DeepSeek's factor.
    unmultiplied_types: tuple[str, ...] = ()
    # The factor of the scaling from which DeepSeek's factor is computed, if the block
    # has none.
    usual_factor: float | None = None
    # True if the runtime reads the key for the base of layers with a sliding window.
    reads_local_base = False

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        """Return the rotation of each layer type; a single one is called 'all'.

        RefusedError, NotModelledError: see `ropelab.readers.spec`.
        """
        if self.model_types and trace.model_type not in self.model_types:
            raise NotModelledError(
                self.refusal_of_model.format(shorten_value(trace.model_type))
            )

        specs = {}
        for layer, settings in self.read_settings(trace).items():
            specs[layer] = self.make_spec(settings)
        if not (trace.family.local_base_key and self.reads_local_base):
            return specs

        # Layers with a sliding window have another base.
        full = specs["all"]
        sliding = find_sliding(trace, full)
        return {"full_attention": full, "sliding_attention": sliding}

    def read_settings(self, trace: Trace) -> dict[str, Settings]:
        """Return the settings of each layer type."""
        raise NotImplementedError

    def make_spec(self, settings: Settings) -> RopeSpec:
        """Return the rotation of a layer type."""
        # The order of the following steps decides which of several errors is reported.
        trace = settings.trace
        settings.longest = self.find_longest(trace)
        claimed, multiplied_len = self.limit_length(settings)
        head_dim = self.read_head_dim(trace)
        scaling, attention, trained = self.make_scaling(settings)
        # A trained length that differs from the longest context was read from the
        # block, which states it.
        states_trained_len = self.has_length(trace) or trained != settings.longest
        base = settings.number("rope_theta")
        is_integer = isinstance(settings.read("rope_theta"), int)
        if is_integer and base >= FIRST_UNREADABLE_INTEGER:
            raise NotModelledError(f"a base of {base:g}, written as a whole number")
        width = self.find_width(settings, head_dim)

        first_feature = 0
        if trace.family.rotated_end == "last":
            first_feature = head_dim - width

        return RopeSpec(
            base=base,
            head_dim=head_dim,
            rotary_dim=width,
            place=first_feature,
            backwards=trace.family.rotates_backwards,
            scaling=scaling,
            trained_len=trained,
            claimed_len=claimed,
            attention_factor=attention,
            softmax_factor=self.find_softmax_factor(settings),
            pairing=self.find_pairing(trace),
            base_source=settings.sources.get("rope_theta", ""),
            multiplied_len=multiplied_len,
            states_trained_len=states_trained_len,
        ).check()

    def find_longest(self, trace: Trace) -> int:
        """Return the longest context."""
        keys = self.length_keys
        default = self.default_longest
        # A class that has a maximum does not take n_positions for it (NomicBERT).
        if trace.family.max_position_embeddings:
            keys = self.length_keys[:1]
            default = trace.family.max_position_embeddings

        longest, path = trace.first(keys, default)
        if longest is None:
            raise RefusedError(f"{MAXIMUM} is missing")
        return require_whole(longest, path or MAXIMUM)

    def has_length(self, trace: Trace) -> bool:
        """Return True if the class or the file states the longest context."""
        # A key that is looked at counts as used, so that the keys are looked at only if
        # the class states no length.
        if trace.family.max_position_embeddings:
            return True
        _, length_key = trace.first(self.length_keys)
        return bool(length_key)

    def limit_length(self, settings: Settings) -> tuple[int | None, int]:
        """Return the length that the runtime allows, None without a limit.

        If that length is a product of the scaling factor and a shorter length, the
        second value is the shorter length. Otherwise it is 0.
        """
        if self.default_is_limit:
            return settings.longest, 0
        _, length_key = settings.trace.first(self.length_keys)
        if length_key:
            return settings.longest, 0
        return None, 0

    def read_head_dim(self, trace: Trace) -> int:
        """Return the features of a head."""
        return read_head_dim(trace)

    def find_type(self, settings: Settings) -> Any:
        """Return the scaling type. If a block has both keys, `type` is read."""
        name = "rope_type"
        if settings.get("type"):
            name = "type"
        return settings.read(name, "default")

    def make_scaling(self, settings: Settings) -> MadeScaling:
        """Make the scaling by the rule of its type; RefusedError for an unknown type."""
        scaling_type = self.find_type(settings)
        if not isinstance(scaling_type, str) or scaling_type not in self.rules:
            raise RefusedError(self.refusal_of_type.format(scaling_type))
        settings.values["rope_type"] = scaling_type
        return self.rules[scaling_type].make_scaling(settings)

    def find_width(self, settings: Settings, head_dim: int) -> int:
        """Return the number of features that rotate."""
        return compute_rotated_width(
            head_dim, settings.number("partial_rotary_factor", 1.0)
        )

    def find_softmax_factor(self, settings: Settings) -> float:
        """Return DeepSeek's factor on whole scores, (0.1 mscale_all_dim ln(factor) +
        1)^2.
        """
        all_dim = settings.get("mscale_all_dim")
        family = settings.trace.family
        if not family.latent or not all_dim or family.name in self.unmultiplied_types:
            return 1.0
        is_unscaled = settings.get("rope_type") == "default"
        if is_unscaled and not self.multiplies_unscaled_scores:
            return 1.0

        factor = settings.number("factor", self.usual_factor)
        return yarn_attention(factor, require_number(all_dim, "mscale_all_dim")) ** 2

    def find_pairing(self, trace: Trace) -> Any:
        """Return which features form a pair: `half` or `interleaved`."""
        family = trace.family
        if family.half_key and trace.has(family.half_key):
            if trace.get(family.half_key):
                return "half"
            return "interleaved"

        value = None
        if family.pairing_key:
            value = trace.get(family.pairing_key)
        if value is None:
            return family.pairing

        is_interleaved = bool(value)
        if family.interleaved_by:
            is_interleaved = value in family.interleaved_by
        return "interleaved" if is_interleaved else "half"


def find_sliding(trace: Trace, full: RopeSpec) -> RopeSpec:
    """Return the rotation of layers with a sliding window, whose base has its own key.

    Layers with a sliding window are not scaled, except ModernBERT's. `full` is the
    rotation of all other layers.
    """
    family = trace.family
    usual_base = family.local_base
    if usual_base is None:
        usual_base = full.base
    base = trace.get(family.local_base_key, usual_base)

    if not family.local_scaled:
        return full.unscaled(require_number(base, family.local_base_key))
    # ModernBERT takes a base of null for a missing one.
    if base is None:
        base = full.base
    base = require_number(base, family.local_base_key)
    return replace(full, base=base, base_source="")


def read_head_dim(trace: Trace, keys: tuple[str, ...] | None = None) -> int:
    """Return the features of a head.

    The number is the value of the first key that the file has, else the default of the
    class, else hidden_size divided by the number of heads. With `keys=()` the runtime
    reads no key, and the default of the class does not count either.
    """
    family = trace.family
    has_default = keys != () and not family.ignores_head_dim
    has_null = False
    if keys is None:
        keys = family.head_keys
        has_null = "head_dim" in keys and trace.has_null("head_dim")
    width, source = trace.first(keys)

    if has_null:
        # The class keeps the null, so that neither its default nor another key counts.
        # Its code has
        # `config.head_dim or config.hidden_size // config.num_attention_heads`.
        source = "hidden_size / num_attention_heads"
        head_dim = divide_by_heads(trace, scale=1)
    elif width is not None:
        for unread in ("hidden_size", "num_attention_heads"):
            if trace.has(unread):
                trace.mark(unread, "used", f"not for the head: {source} is given")
        head_dim = require_whole(width, source)
    elif family.head_dim is not None and has_default:
        source = "class default"
        head_dim = family.head_dim
    else:
        source = "hidden_size / num_attention_heads"
        head_dim = divide_by_heads(trace)

    if head_dim > MOST_FEATURES:
        raise RefusedError(f"{source} of {head_dim} features is more than any head has")
    return head_dim


def divide_by_heads(trace: Trace, scale: int | None = None) -> int:
    """Return hidden_size / num_attention_heads, by whichever names a file has for them.

    The result is multiplied by `scale`; None: by the scale that the class has.
    """
    family = trace.family
    if scale is None:
        scale = family.head_scale
    hidden, _ = trace.first(("hidden_size", "n_embd", "dim"), family.hidden_size)
    head_names = ("num_attention_heads", "n_head", "n_heads")
    heads, _ = trace.first(head_names, family.num_attention_heads)
    if hidden is None or heads is None:
        raise RefusedError(
            "neither head_dim nor hidden_size and num_attention_heads are there"
        )

    features = require_whole(hidden, "hidden_size") * scale
    head_dim = features // require_whole(heads, "num_attention_heads")
    if head_dim < 1:
        raise RefusedError("hidden_size is below num_attention_heads")
    return head_dim


def widen_full_attention(
    trace: Trace, specs: dict[str, RopeSpec]
) -> dict[str, RopeSpec]:
    """Return the specs with Gemma 4's larger heads in the layers of full attention."""
    default = trace.family.global_head_dim
    if default is None or "full_attention" not in specs:
        return specs

    head_dim = require_whole(trace.get("global_head_dim", default), "global_head_dim")
    full = specs["full_attention"]
    width = compute_rotated_width(head_dim, full.rotary_dim / full.head_dim)
    wider = replace(full, head_dim=head_dim, rotary_dim=width).check()
    return {**specs, "full_attention": wider}


def find_rotated_share(trace: Trace, head_dim: int) -> float | None:
    """Return the rotated share of a head where files give the rotated width instead.

    None: the file does not give the width, and the class has no default for it.
    """
    width = find_rotated_width(trace)
    return None if width is None else width / head_dim


def find_rotated_width(trace: Trace) -> int | None:
    """Return the rotated width of a head where files give it instead of the share.

    None: the file does not give it, and the class has no default for it.
    """
    family = trace.family
    key = family.width_key
    if not key:
        return None
    if trace.has(key):
        return require_whole(trace.get(key), key)
    return family.usual_width or None


def find_cut_width(trace: Trace, head_dim: int) -> int | None:
    """Return the rotated width of a head in a class that cuts it out by this width.

    None: the class multiplies a share, and does not read the width again.
    """
    if not trace.family.cuts_by_width:
        return None
    width = find_rotated_width(trace)
    return None if width is None else check_rotated_width(head_dim, width)


def compute_rotated_width(head_dim: int, share: float) -> int:
    """Return int(head_dim * share), as every runtime writes it that reads a share.

    If the share is a width divided by head_dim, the product may be below this width:
    int(98 * (64 / 98)) is 63.
    """
    return check_rotated_width(head_dim, int(head_dim * share))


def check_rotated_width(head_dim: int, width: int) -> int:
    """Return the rotated width of a head of which whole pairs rotate."""
    if width < 1 or width > head_dim:
        raise RefusedError(f"{width} rotated features in a head of {head_dim}")
    if width % 2:
        raise NotModelledError(f"an odd rotated width of {width}")
    return width
