"""The reader that runtimes share: settings of a layer type in, a RopeSpec out.

A runtime is a subclass of `Reader`, which changes the steps that the runtime takes in
another way; `make_spec` lists the steps. The settings of a layer type are the keys of its
rope block and others. A scaling type, such as `yarn`, has a function that makes the
scaling from the settings; the keys that it needs and their defaults are in methods.toml.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from ropelab.math import scaling as scalings
from ropelab.readers.families import table
from ropelab.readers.spec import (
    MOST_FEATURES,
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
    numbers,
    short,
    whole,
)
from ropelab.readers.trace import (
    BANDS,
    LISTS,
    MAXIMUM,
    MSCALES,
    ORIGINAL,
    Status,
    Trace,
)

# The usual bands of llama3.
KEPT = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
# Names under `type` and `rope_type` that differ and mean the same.
SAME_TYPES = (("su", "longrope"), ("mrope", "default"))

# A scaling, the factor on cos and sin, and the trained length.
MadeScaling = tuple[scalings.Scaling, float, int]
Maker = TypeVar("Maker", bound=Callable[..., Any])

# The functions that make the scaling types, by table of methods.toml and type.
MAKERS: dict[tuple[str, str], Callable[..., MadeScaling]] = {}


def scaling_type(table_name: str, *kinds: str) -> Callable[[Maker], Maker]:
    """Let a function make these scaling types of a table of methods.toml."""

    def register(maker: Maker) -> Maker:
        for kind in kinds:
            MAKERS[table_name, kind] = maker
        return maker

    return register


class Settings:
    """Values of one layer type by name, each with its source.

    A source is the path of a key, or says in words that the value is a default.
    """

    def __init__(
        self, trace: Trace, block: Mapping[str, Any] | None = None, where: str = ""
    ) -> None:
        """Start with the values of a rope block, whose path in the file is `where`."""
        self.trace = trace
        self.values: dict[str, Any] = dict(block or {})
        self.sources = {name: f"{where}.{name}" for name in self.values}
        # The layer type, where each has a dict.
        self.layer = ""
        # The longest context, and the defaults of the scaling type. The reader sets both
        # before the scaling is made.
        self.longest = 0
        self.defaults: Mapping[str, Any] = {}

    def put(self, name: str, value: Any, source: str) -> None:
        """Set a value."""
        self.values[name] = value
        self.sources[name] = source

    def put_first(
        self, name: str, keys: tuple[str, ...], default: Any, source: str
    ) -> None:
        """Set a value from the first key outside the block that is there.

        Without any it is the default, and `source` says so in words.
        """
        value, path = self.trace.first(keys, default)
        self.put(name, value, path or source)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or the default if it is missing. Its key gets no status."""
        return self.values.get(name, default)

    def read(self, name: str, default: Any = None) -> Any:
        """Return a value, or the default if it is missing.

        Its key counts as used, unless it has a status already.
        """
        self.trace.mark_unmarked(self.sources.get(name, ""))
        return self.values.get(name, self.defaults.get(name, default))

    def number(self, name: str, default: float | None = None) -> float:
        """Read a finite number; RefusedError: it is missing, or no such number."""
        value = self.read(name, default)
        if value is None:
            raise RefusedError(f"{name} is missing")
        return number(value, name)

    def original(self) -> int:
        """Read the original length."""
        return whole(self.read(ORIGINAL), "original length")

    def lists(self) -> tuple[tuple[float, ...], ...]:
        """Read the two tables of longrope, the short one first."""
        return tuple(numbers(self.read(name), name) for name in LISTS)

    def mark(self, name: str, status: Status, note: str = "") -> None:
        """Set the status of the key that a value comes from."""
        self.trace.mark(self.sources.get(name, ""), status, note)

    def drop_empty(self, *names: str) -> None:
        """Drop values of null or 0, which some runtimes take for missing ones."""
        for name in names:
            if not self.get(name):
                self.values.pop(name, None)

    def needs(self, *names: str) -> None:
        """Raise RefusedError unless every name has a value, which may be null."""
        missing = [name for name in names if name not in self.values]
        if missing:
            raise RefusedError(
                f"rope type '{self.get('rope_type')}' needs {', '.join(missing)}"
            )


@dataclass(frozen=True)
class ScalingRule:
    """One scaling type as a runtime reads it."""

    make: Callable[[Settings], MadeScaling]
    needs: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def make_scaling(self, settings: Settings) -> MadeScaling:
        settings.needs(*self.needs)
        settings.defaults = self.defaults
        made = self.make(settings)
        # What is read after the scaling has no such defaults.
        settings.defaults = {}
        return made


class Reader:
    """The steps from a configuration to a spec per layer type, as most runtimes take
    them.
    """

    # The scaling types by name.
    rules: Mapping[str, ScalingRule] = {}
    # The refusal of any other scaling type, which takes the place of the braces.
    refusal_of_type = "unknown rope type '{}'"
    # The model types that are read; empty: all are.
    model_types: Collection[str] = ()
    # The reason why other model types are not read; the braces stand for such a type.
    refusal_of_model = ""
    # Keys of the longest context, and its default. None: one of the keys is required.
    length_keys: tuple[str, ...] = (MAXIMUM, "n_positions")
    default_longest: int | None = 2048
    # True if the default limits the length of a file that has none of these keys.
    default_limits = True
    # True if DeepSeek's factor on scores also holds without a scaling.
    multiplies_unscaled = True
    # The model types without that factor.
    unmultiplied: tuple[str, ...] = ()
    # The scaling factor in it, where the block has none.
    usual_factor: float | None = None
    # True if a key gives the base of layers with a sliding window.
    reads_local = False

    def read(self, trace: Trace) -> dict[str, RopeSpec]:
        """Return the rotation of each layer type; a single one is called 'all'.

        RefusedError, NotModelledError: see `ropelab.readers.spec`.
        """
        if self.model_types and trace.model_type not in self.model_types:
            raise NotModelledError(
                self.refusal_of_model.format(short(trace.model_type))
            )

        specs = {}
        for layer, settings in self.read_settings(trace).items():
            specs[layer] = self.make_spec(settings)
        if not (trace.family.local_base_key and self.reads_local):
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
        # The order of these steps decides which of several errors is reported.
        trace = settings.trace
        settings.longest = self.find_longest(trace)
        claimed, multiplied = self.limit_length(settings)
        head_dim = self.find_head_dim(trace)
        scaling, attention, trained = self.make_scaling(settings)
        # A trained length that differs from the longest context was read from the block
        # of the scaling.
        is_stated = self.has_length(trace) or trained != settings.longest
        base = settings.number("rope_theta")
        width = self.find_width(settings, head_dim)

        first_feature = 0
        if trace.family.place == "last":
            first_feature = head_dim - width

        return RopeSpec(
            base=base,
            head_dim=head_dim,
            rotary_dim=width,
            place=first_feature,
            backwards=trace.family.backwards,
            scaling=scaling,
            trained_len=trained,
            claimed_len=claimed,
            attention_factor=attention,
            softmax_factor=self.find_softmax_factor(settings),
            pairing=self.find_pairing(trace),
            base_source=settings.sources.get("rope_theta", ""),
            multiplied=multiplied,
            stated=is_stated,
        ).check()

    def find_longest(self, trace: Trace) -> int:
        """Return the longest context."""
        keys = self.length_keys
        usual = self.default_longest
        # A class that has a maximum does not take n_positions for it (NomicBERT).
        if trace.family.max_position_embeddings:
            keys = self.length_keys[:1]
            usual = trace.family.max_position_embeddings

        longest, path = trace.first(keys, usual)
        if longest is None:
            raise RefusedError(f"{MAXIMUM} is missing")
        return whole(longest, path or MAXIMUM)

    def has_length(self, trace: Trace) -> bool:
        """Return True if the class or the file states the longest context."""
        # Keys are only looked at where the class states none, since they then count as
        # used.
        if trace.family.max_position_embeddings:
            return True
        _, length_key = trace.first(self.length_keys)
        return bool(length_key)

    def limit_length(self, settings: Settings) -> tuple[int | None, int]:
        """Return the length that the runtime allows, None without a limit.

        The second value is the length that the factor was multiplied with to give it; 0:
        it was not multiplied.
        """
        if self.default_limits:
            return settings.longest, 0
        _, length_key = settings.trace.first(self.length_keys)
        if length_key:
            return settings.longest, 0
        return None, 0

    def find_head_dim(self, trace: Trace) -> int:
        """Return the features of a head."""
        return head_dim_of(trace)

    def find_type(self, settings: Settings) -> Any:
        """Return the scaling type. Of two keys, `type` is read and not `rope_type`."""
        name = "rope_type"
        if settings.get("type"):
            name = "type"
        return settings.read(name, "default")

    def make_scaling(self, settings: Settings) -> MadeScaling:
        """Make the scaling by the rule of its type; RefusedError for an unknown type."""
        kind = self.find_type(settings)
        if not isinstance(kind, str) or kind not in self.rules:
            raise RefusedError(self.refusal_of_type.format(kind))
        settings.values["rope_type"] = kind
        return self.rules[kind].make_scaling(settings)

    def find_width(self, settings: Settings, head_dim: int) -> int:
        """Return the number of features that rotate."""
        return width_of(head_dim, settings.number("partial_rotary_factor", 1.0))

    def find_softmax_factor(self, settings: Settings) -> float:
        """Return DeepSeek's factor on whole scores, (0.1 mscale_all_dim ln(factor) +
        1)^2.
        """
        all_dim = settings.get("mscale_all_dim")
        family = settings.trace.family
        if not family.latent or not all_dim or family.name in self.unmultiplied:
            return 1.0
        if not self.multiplies_unscaled and settings.get("rope_type") == "default":
            return 1.0

        factor = settings.number("factor", self.usual_factor)
        return magnitude(factor, number(all_dim, "mscale_all_dim")) ** 2

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

    They are not scaled, but for those of ModernBERT. `full` is the rotation of the other
    layers.
    """
    family = trace.family
    usual_base = family.local_base
    if usual_base is None:
        usual_base = full.base
    base = trace.get(family.local_base_key, usual_base)

    if not family.local_scaled:
        return full.unscaled(number(base, family.local_base_key))
    # ModernBERT takes a base of null for a missing one.
    if base is None:
        base = full.base
    base = number(base, family.local_base_key)
    return replace(full, base=base, base_source="")


def head_dim_of(trace: Trace, keys: tuple[str, ...] | None = None) -> int:
    """Return the features of a head.

    They are the value of the first key that is there, the default of the class, or
    hidden_size divided by the heads. Code that reads no key, `()`, has no default either.
    """
    family = trace.family
    has_default = keys != () and not family.sized_by_heads
    if keys is None:
        keys = family.head_keys
    given, source = trace.first(keys)

    if given is not None:
        for unread in ("hidden_size", "num_attention_heads"):
            if trace.has(unread):
                trace.mark(unread, "used", f"not for the head: {source} is given")
        head_dim = whole(given, source)
    elif family.head_dim is not None and has_default:
        source = "class default"
        head_dim = family.head_dim
    else:
        source = "hidden_size / num_attention_heads"
        head_dim = divide_by_heads(trace)

    if head_dim > MOST_FEATURES:
        raise RefusedError(f"{source} of {head_dim} features is more than any head has")
    return head_dim


def divide_by_heads(trace: Trace) -> int:
    """Return hidden_size / num_attention_heads, where these keys have several names."""
    family = trace.family
    hidden, _ = trace.first(("hidden_size", "n_embd", "dim"), family.hidden_size)
    head_names = ("num_attention_heads", "n_head", "n_heads")
    heads, _ = trace.first(head_names, family.num_attention_heads)
    if hidden is None or heads is None:
        raise RefusedError(
            "neither head_dim nor hidden_size and num_attention_heads are there"
        )

    features = whole(hidden, "hidden_size") * family.head_scale
    head_dim = features // whole(heads, "num_attention_heads")
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

    head_dim = whole(trace.get("global_head_dim", default), "global_head_dim")
    full = specs["full_attention"]
    width = width_of(head_dim, full.rotary_dim / full.head_dim)
    wider = replace(full, head_dim=head_dim, rotary_dim=width).check()
    return {**specs, "full_attention": wider}


def share_of(trace: Trace, head_dim: int) -> float | None:
    """Return the rotated share of families that give the rotated width itself.

    None: the file does not give it, and the class has no width of its own.
    """
    family = trace.family
    key = family.width_key
    if not key:
        return None
    if trace.has(key):
        return whole(trace.get(key), key) / head_dim
    if family.usual_width:
        return family.usual_width / head_dim
    return None


def width_of(head_dim: int, share: float) -> int:
    """Return int(head_dim * share), as every runtime writes it."""
    width = int(head_dim * share)
    if width < 1 or width > head_dim:
        raise RefusedError(f"a rotated share of {share:g} of {head_dim} features")
    if width % 2:
        raise NotModelledError(f"an odd rotated width of {width}")
    return width


def magnitude(factor: float, mscale: float = 1.0) -> float:
    """Return the factor on attention, 0.1 mscale ln(factor) + 1; 1 for factors up to 1."""
    if factor <= 1:
        return 1.0
    return 0.1 * mscale * math.log(factor) + 1.0


def mscale_ratio(settings: Settings, factor: float) -> float:
    """Return the factor on attention of DeepSeek, the ratio of two magnitudes."""
    numerator = magnitude(factor, settings.number("mscale", 1.0))
    return numerator / magnitude(factor, settings.number("mscale_all_dim", 0.0))


def find_attention(settings: Settings, factor: float, mscales: bool = True) -> float:
    """Return the factor on attention: by its key, by two mscales, or by the factor.

    `mscales` is True if the runtime reads the mscales.
    """
    if settings.read("attention_factor") is not None:
        return settings.number("attention_factor")
    # Both have to be there and not 0, as by `if mscale and mscale_all_dim` in
    # transformers.
    if mscales and all(settings.get(name) for name in MSCALES):
        return mscale_ratio(settings, factor)
    return magnitude(factor)


def longrope_attention(factor: float, trained: float) -> float:
    """Return longrope's factor on attention, sqrt(1 + ln(factor) / ln(trained))."""
    if factor <= 1:
        return 1.0
    return math.sqrt(1 + math.log(factor) / math.log(trained))


def make_longrope(
    tables: Sequence[tuple[float, ...]],
    factor: float,
    trained: int,
    attention: Any = None,
) -> MadeScaling:
    """Divide the frequency of each pair by a number, from one of two tables.

    The length of the context chooses the short table or the long one.

    Args:
        tables: the short one and the long one, with a number for each pair.
        factor: the longest context divided by the trained length.
        trained: the trained length in tokens.
        attention: the factor on cos and sin; None: it follows from the factor.
    """
    if attention is None:
        attention = longrope_attention(factor, trained)
    attention = number(attention, "attention_factor")
    short_table, long_table = tables

    scaling = scalings.LongRope(
        long_factor=long_table,
        short_factor=short_table,
        factor=max(1.0, factor),
        attention_factor=attention,
    )
    return scaling, attention, trained


# The scaling types that several runtimes read alike. Those of one runtime are in its own
# file.


@scaling_type("common", "default")
@scaling_type("unscaled", "default", "mrope")
@scaling_type("transformers-4", "origin")
@scaling_type("servers", "mrope")
@scaling_type("unsloth", "dynamic")
@scaling_type("onnxruntime-genai", "default")
def make_unscaled(settings: Settings) -> MadeScaling:
    """Scale nothing."""
    return scalings.Unscaled(), 1.0, settings.longest


@scaling_type("common", "linear")
@scaling_type("exllamav3", "linear")
@scaling_type("tensorrt-llm", "linear")
@scaling_type("mlx-lm", "linear")
@scaling_type("onnxruntime-genai", "linear")
def make_linear(settings: Settings) -> MadeScaling:
    """Divide all positions by the factor."""
    scaling = scalings.PositionInterpolation(factor=settings.number("factor"))
    return scaling, 1.0, settings.longest


@scaling_type("common", "dynamic")
@scaling_type("tgi", "dynamic")
def make_dynamic(settings: Settings) -> MadeScaling:
    """Raise the base with the length of the context."""
    # Hunyuan's files have an alpha under this type.
    if settings.trace.family.name.startswith("hunyuan") and settings.get("alpha"):
        return raise_base(settings)
    scaling = scalings.DynamicNtk(factor=settings.number("factor"))
    return scaling, 1.0, settings.longest


@scaling_type("tensorrt-llm", "dynamic")
def raise_base(settings: Settings) -> MadeScaling:
    """Multiply the base by Hunyuan's alpha at every length. `factor` is not read."""
    scaling = scalings.NtkAware(factor=settings.number("alpha"))
    return scaling, 1.0, settings.longest


@scaling_type("transformers-5", "llama3")
@scaling_type("transformers-4", "llama3")
@scaling_type("exllamav3", "llama3")
@scaling_type("tensorrt-llm", "llama3")
@scaling_type("tgi", "llama3")
@scaling_type("mlx-lm", "llama3")
@scaling_type("megatron", "llama3")
@scaling_type("onnxruntime-genai", "llama3")
def make_llama3(settings: Settings) -> MadeScaling:
    """Divide low frequencies by the factor, with a ramp to the high ones."""
    bands = {name: settings.number(name) for name in BANDS}
    check_bands(bands)
    return scalings.Llama3(**bands), 1.0, settings.original()


def check_bands(bands: Mapping[str, float]) -> None:
    """Raise RefusedError for numbers of llama3 by which a length would be divided by
    0.
    """
    for name in ("low_freq_factor", "high_freq_factor"):
        if bands[name] == 0:
            raise RefusedError(f"{name} is 0, and a length is divided by it")


def make_yarn(
    settings: Settings,
    factor: float,
    attention: float,
    trained: int | None = None,
    truncate: bool | None = None,
) -> MadeScaling:
    """Return YaRN. What is None, and the betas, is read from the settings."""
    if truncate is None:
        truncate = bool(settings.read("truncate", True))

    scaling = scalings.Yarn(
        factor=factor,
        beta_fast=settings.number("beta_fast", 32),
        beta_slow=settings.number("beta_slow", 1),
        truncate=truncate,
        attention_factor=attention,
    )
    if trained is None:
        trained = settings.original()
    return scaling, attention, trained


@scaling_type("vllm", "deepseek_yarn")
@scaling_type("tensorrt-llm", "yarn")
@scaling_type("mlx-lm", "yarn", "deepseek_yarn", "telechat3-yarn")
def make_mscale_yarn(settings: Settings) -> MadeScaling:
    """Return YaRN with DeepSeek's factor on attention."""
    factor = settings.number("factor")
    return make_yarn(settings, factor, mscale_ratio(settings, factor), truncate=True)


def make_one_table(settings: Settings, name: str, trained: int) -> MadeScaling:
    """Use one of longrope's two tables at every length.

    Its factor is the ratio of the longest context to the trained length.
    """
    # Lengths choose the table, so that both keys count as used.
    for key in LISTS:
        settings.mark(key, "used")

    divisors = numbers(settings.read(name), name)
    ratio = settings.longest / trained
    return make_longrope((divisors, divisors), ratio, trained)


@scaling_type("transformers-5", "proportional")
@scaling_type("servers", "proportional")
@scaling_type("exllamav3", "proportional")
@scaling_type("mlx-lm", "proportional")
def make_proportional(settings: Settings, factor: float | None = None) -> MadeScaling:
    """Rotate a share of the pairs, by the frequencies of the whole head.

    The factor is None for a runtime that reads it from the file.
    """
    if factor is None:
        factor = settings.number("factor", 1.0)
    if factor != 1:
        raise NotModelledError(f"proportional with a factor of {factor:g}")

    share = settings.number("partial_rotary_factor", 1.0)
    return scalings.Proportional(p=share), 1.0, settings.longest


def read_rules(table_name: str) -> dict[str, ScalingRule]:
    """Return a table of methods.toml with the functions that were registered for it."""
    rules = {}
    for kind, row in table("methods")[table_name].items():
        make = MAKERS[table_name, kind]
        if "fixed" in row:
            make = partial(make, **row["fixed"])
        needs = tuple(row.get("needs", ()))
        rules[kind] = ScalingRule(make, needs, row.get("defaults", {}))
    return rules


COMMON_RULES = read_rules("common")
