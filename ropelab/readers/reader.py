"""The reader that runtimes share: settings of a layer type in, a RopeSpec out.

A runtime is a subclass of `Reader`, which changes the steps that the runtime takes in
another way. The settings of a layer type are the keys of its rope block and others. A
scaling type, such as `yarn`, is a function that makes the scaling from the settings; the
keys that it needs and their defaults are in methods.toml.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from ropelab.math import scaling as scalings
from ropelab.readers import spec as values
from ropelab.readers.families import table
from ropelab.readers.spec import (
    MOST_FEATURES,
    NotModelledError,
    RefusedError,
    RopeSpec,
    number,
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
Made = tuple[scalings.Scaling, float, int]


Make = TypeVar("Make", bound=Callable[..., Any])

# The functions that make the scaling types, by table of methods.toml and type.
MAKERS: dict[tuple[str, str], Callable[..., Made]] = {}


def scaling_type(name: str, *kinds: str) -> Callable[[Make], Make]:
    """Let a function make these scaling types of a table of methods.toml."""

    def register(make: Make) -> Make:
        for kind in kinds:
            MAKERS[name, kind] = make
        return make

    return register


class Settings:
    """Values of one layer type by name, each with its source.

    A source is the path of a key, or says in words that the value is a default.
    """

    def __init__(
        self, trace: Trace, block: Mapping[str, Any] | None = None, at: str = ""
    ) -> None:
        self.trace = trace
        self.values: dict[str, Any] = dict(block or {})
        self.sources = {name: f"{at}.{name}" for name in self.values}
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

        Without one it is the default, whose source is ``source``.
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
        return tuple(values.numbers(self.read(name), name) for name in LISTS)

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

    make: Callable[[Settings], Made]
    needs: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def make_scaling(self, settings: Settings) -> Made:
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
    methods: Mapping[str, ScalingRule] = {}
    # The refusal of any other type.
    unknown = "unknown rope type '{}'"
    # The model types that are read; empty: all are.
    types: Collection[str] = ()
    # The reason why other model types are not read.
    other = ""
    # Keys of the longest context, and its default. None: one of the keys is required.
    lengths: tuple[str, ...] = (MAXIMUM, "n_positions")
    usual_longest: int | None = 2048
    # True if the default limits the length, too.
    allows_usual = True
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

        RefusedError, NotModelledError: see `spec`.
        """
        if self.types and trace.model_type not in self.types:
            raise NotModelledError(self.other.format(values.short(trace.model_type)))

        specs = {}
        for layer, settings in self.settings(trace).items():
            specs[layer] = self.spec(settings)
        local_key = trace.family.local_base_key
        if not (local_key and self.reads_local):
            return specs

        full = specs["all"]
        usual_base = trace.family.local_base
        if usual_base is None:
            usual_base = full.base
        given_base = trace.get(local_key, usual_base)

        # Layers with a sliding window have another base. They are not scaled, but for
        # those of ModernBERT.
        if trace.family.local_scaled:
            if given_base is None:
                given_base = full.base
            base = number(given_base, local_key)
            sliding = replace(full, base=base, base_source="")
        else:
            sliding = full.unscaled(number(given_base, local_key))
        return {"full_attention": full, "sliding_attention": sliding}

    def settings(self, trace: Trace) -> dict[str, Settings]:
        """Return the settings of each layer type."""
        raise NotImplementedError

    def spec(self, settings: Settings) -> RopeSpec:
        """Return the rotation of a layer type."""
        trace = settings.trace
        settings.longest = self.longest(trace)
        claimed, multiplied = self.limit_length(settings)
        head_dim = self.head_dim(trace)
        scaling, attention, trained = self.method(settings)
        stated = trace.family.max_position_embeddings or trace.first(self.lengths)[1]
        base = settings.number("rope_theta")
        width = self.width(settings, head_dim)

        return RopeSpec(
            base=base,
            head_dim=head_dim,
            rotary_dim=width,
            place=head_dim - width if trace.family.place == "last" else 0,
            backwards=trace.family.backwards,
            scaling=scaling,
            trained_len=trained,
            claimed_len=claimed,
            attention_factor=attention,
            softmax_factor=self.softmax_factor(settings),
            pairing=self.pairing(trace),
            base_source=settings.sources.get("rope_theta", ""),
            multiplied=multiplied,
            stated=bool(stated) or trained != settings.longest,
        ).check()

    def longest(self, trace: Trace) -> int:
        """Return the longest context."""
        keys = self.lengths
        usual = self.usual_longest
        # A class that has a maximum does not take n_positions for it (NomicBERT).
        if trace.family.max_position_embeddings:
            keys = self.lengths[:1]
            usual = trace.family.max_position_embeddings

        given, path = trace.first(keys, usual)
        if given is None:
            raise RefusedError(f"{MAXIMUM} is missing")
        return whole(given, path or MAXIMUM)

    def limit_length(self, settings: Settings) -> tuple[int | None, int]:
        """Return the length that the runtime allows, None without a limit.

        The second value is the length that the factor was multiplied with to give it; 0:
        it was not multiplied.
        """
        given = self.allows_usual or settings.trace.first(self.lengths)[1]
        return (settings.longest if given else None), 0

    def head_dim(self, trace: Trace) -> int:
        return head_dim_of(trace)

    def kind(self, settings: Settings) -> Any:
        """Return the scaling type. Of two keys, `type` is read and not `rope_type`."""
        return settings.read("type" if settings.get("type") else "rope_type", "default")

    def method(self, settings: Settings) -> Made:
        kind = self.kind(settings)
        if not isinstance(kind, str) or kind not in self.methods:
            raise RefusedError(self.unknown.format(kind))
        settings.values["rope_type"] = kind
        return self.methods[kind].make_scaling(settings)

    def width(self, settings: Settings, head_dim: int) -> int:
        return width_of(head_dim, settings.number("partial_rotary_factor", 1.0))

    def softmax_factor(self, settings: Settings) -> float:
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

    def pairing(self, trace: Trace) -> Any:
        family = trace.family
        if family.half_key and trace.has(family.half_key):
            if trace.get(family.half_key):
                return "half"
            return "interleaved"

        given = None
        if family.pairing_key:
            given = trace.get(family.pairing_key)

        if given is None:
            return family.pairing
        if family.interleaved_by:
            given = given in family.interleaved_by
        if given:
            return "interleaved"
        return "half"


def head_dim_of(trace: Trace, keys: tuple[str, ...] | None = None) -> int:
    """Return the features of a head.

    They are the value of the first key that is there, the default of the class, or
    hidden_size divided by the heads. Code that reads no key, `()`, has no default either.
    """
    family = trace.family
    given, source = trace.first(family.head_keys if keys is None else keys)

    if given is not None:
        for unread in ("hidden_size", "num_attention_heads"):
            if trace.has(unread):
                trace.mark(unread, "used", f"not for the head: {source} is given")
        width = whole(given, source)
    elif family.head_dim is not None and keys != () and not family.sized_by_heads:
        source = "class default"
        width = family.head_dim
    else:
        source = "hidden_size / num_attention_heads"
        hidden, _ = trace.first(("hidden_size", "n_embd", "dim"), family.hidden_size)
        names = ("num_attention_heads", "n_head", "n_heads")
        heads, _ = trace.first(names, family.num_attention_heads)
        if hidden is None or heads is None:
            raise RefusedError(
                "neither head_dim nor hidden_size and num_attention_heads are there"
            )
        width = whole(hidden, "hidden_size") * family.head_scale
        width //= whole(heads, "num_attention_heads")
        if width < 1:
            raise RefusedError("hidden_size is below num_attention_heads")

    if width > MOST_FEATURES:
        raise RefusedError(f"{source} of {width} features is more than any head has")
    return width


def widen_full_attention(
    trace: Trace, specs: dict[str, RopeSpec]
) -> dict[str, RopeSpec]:
    """Return the specs with Gemma 4's larger heads in the layers of full attention."""
    usual = trace.family.global_head_dim
    if usual is None or "full_attention" not in specs:
        return specs

    head_dim = whole(trace.get("global_head_dim", usual), "global_head_dim")
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
    over = magnitude(factor, settings.number("mscale", 1.0))
    return over / magnitude(factor, settings.number("mscale_all_dim", 0.0))


def find_attention(settings: Settings, factor: float, mscales: bool = True) -> float:
    """Return the factor on attention: by its key, by two mscales, or by the factor.

    ``mscales``: True if the runtime reads the mscales.
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


def longrope(
    tables: Sequence[tuple[float, ...]],
    factor: float,
    trained: int,
    attention: Any = None,
) -> Made:
    """Divide the frequency of each pair by a number, from one of two tables.

    The length of the context chooses the short table or the long one.
    """
    if attention is None:
        attention = longrope_attention(factor, trained)
    attention = number(attention, "attention_factor")
    short, long = tables

    scaling = scalings.LongRope(
        long_factor=long,
        short_factor=short,
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
def unscaled(settings: Settings) -> Made:
    return scalings.Unscaled(), 1.0, settings.longest


@scaling_type("common", "linear")
@scaling_type("exllamav3", "linear")
@scaling_type("tensorrt-llm", "linear")
@scaling_type("mlx-lm", "linear")
@scaling_type("onnxruntime-genai", "linear")
def linear(settings: Settings) -> Made:
    scaling = scalings.PositionInterpolation(factor=settings.number("factor"))
    return scaling, 1.0, settings.longest


@scaling_type("common", "dynamic")
@scaling_type("tgi", "dynamic")
def dynamic(settings: Settings) -> Made:
    if settings.trace.family.name.startswith("hunyuan") and settings.get("alpha"):
        return raise_base(settings)
    scaling = scalings.DynamicNtk(factor=settings.number("factor"))
    return scaling, 1.0, settings.longest


@scaling_type("tensorrt-llm", "dynamic")
def raise_base(settings: Settings) -> Made:
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
def llama3(settings: Settings) -> Made:
    bands = divisible({name: settings.number(name) for name in BANDS})
    return scalings.Llama3(**bands), 1.0, settings.original()


def divisible(bands: dict[str, float]) -> dict[str, float]:
    """Return the numbers of llama3; RefusedError: a length would be divided by 0."""
    for name in BANDS[1:]:
        if bands[name] == 0:
            raise RefusedError(f"{name} is 0, and a length is divided by it")
    return bands


def make_yarn(
    settings: Settings,
    factor: float,
    attention: float,
    trained: int | None = None,
    truncate: bool | None = None,
) -> Made:
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
def mscale_yarn(settings: Settings) -> Made:
    factor = settings.number("factor")
    return make_yarn(settings, factor, mscale_ratio(settings, factor), truncate=True)


def one_table(settings: Settings, name: str, trained: int) -> Made:
    """Use one of longrope's two tables at every length.

    Its factor is the ratio of the longest context to the trained length.
    """
    for key in LISTS:
        settings.mark(key, "used")

    table = values.numbers(settings.read(name), name)
    ratio = settings.longest / trained
    return longrope((table, table), ratio, trained)


@scaling_type("transformers-5", "proportional")
@scaling_type("servers", "proportional")
@scaling_type("exllamav3", "proportional")
@scaling_type("mlx-lm", "proportional")
def proportional(settings: Settings, factor: float | None = None) -> Made:
    if factor is None:
        factor = settings.number("factor", 1.0)
    if factor != 1:
        raise NotModelledError(f"proportional with a factor of {factor:g}")
    share = settings.number("partial_rotary_factor", 1.0)
    return scalings.Proportional(p=share), 1.0, settings.longest


def methods_of(name: str) -> dict[str, ScalingRule]:
    """Return a table of methods.toml with the functions that were registered for it."""
    methods = {}
    for kind, row in table("methods")[name].items():
        make = MAKERS[name, kind]
        if "fixed" in row:
            make = partial(make, **row["fixed"])
        needs = tuple(row.get("needs", ()))
        methods[kind] = ScalingRule(make, needs, row.get("defaults", {}))
    return methods


COMMON = methods_of("common")
