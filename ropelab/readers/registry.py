"""The runtimes by name, and reading one configuration with all of them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal

from ropelab.readers import families, mlx
from ropelab.readers.axes import add_axes
from ropelab.readers.families import RELEASE, RELEASES, read_table
from ropelab.readers.layers import (
    BASES_KEY,
    choose_type,
    find_layer_base,
    find_rule,
    find_window,
    list_rotating,
)
from ropelab.readers.reader import head_dim_of
from ropelab.readers.served import (
    CLASS_OF,
    LISTS,
    SERVED,
    find_served,
    list_architectures,
)
from ropelab.readers.spec import NotModelledError, RefusedError, RopeSpec, short
from ropelab.readers.trace import (
    ABSENT,
    BLOCKS,
    MAXIMUM,
    KeyUse,
    Trace,
    language_part,
    value_in,
)
from ropelab.runs.errors import InputError, unknown_name
from ropelab.runs.sentences import printable

# A cast chain says which number format each step of the computation is rounded to. That
# of transformers, vLLM and TGI has angles in float32, and cos and sin in the format of
# the model.
MODEL_FORMAT = "transformers_llama"
# The most characters of the reason why a runtime does not read a file.
LONGEST_PROBLEM = 300


@dataclass(frozen=True)
class Runtime:
    """One runtime at one version, with the evidence for its reader."""

    name: str
    version: str
    # What our reader was compared with. run: numbers that this version computed. parts:
    # what its converter wrote and its kernel rotated. read: nothing, the source alone was
    # read, which the file of the reader names.
    proof: Literal["run", "parts", "read"]
    read: Callable[[Trace], dict[str, RopeSpec]]
    # The model types of the comparison.
    compared: frozenset[str]
    # The kinds of documents that it reads, such as config and gguf.
    reads: tuple[str, ...]
    # Its cast chain, a preset of `precision`.
    chain: str = MODEL_FORMAT
    # The release of transformers whose classes give what a file leaves out.
    release: str = RELEASE
    # True if it finds the class of a model by a name or sizes, not by model_type.
    by_class: bool = False
    # True if the class of transformers runs where it has none of its own.
    backed: bool = False
    # True if it loads a file by transformers alone.
    classed: bool = False
    # Model types whose configuration class it finds in a file's auto_map alone.
    lacks: frozenset[str] = frozenset()

    @property
    def name_of_class(self) -> str:
        """The runtime whose classes it runs, where it has none of its own."""
        if not self.classed:
            return self.name
        release = ".".join(self.release.split(".")[:2])
        is_older = release.startswith("4.")
        return f"transformers-{release}" if is_older else "transformers-5"

    def stated(self, model_type: str) -> str:
        """Return in words how far the reader can be trusted for that model type."""
        if not self.compared:
            return "read from source, not run"
        if model_type not in self.compared:
            return "read from source, not run for this model"
        if self.proof == "parts":
            return "compared with what its converter wrote and its kernel rotated"
        return "compared with what it computed"


def is_listed(
    name: str, kinds: Iterable[str], architectures: Iterable[str] = ()
) -> bool:
    """Return True if a runtime has a class for a model, or its list is not known."""
    if name not in LISTS:
        return True

    # The language part of a model of several parts has a class of the whole's.
    types = set(kinds)
    for whole, part in families.CLASSES["texts"].items():
        if part in kinds and part.startswith(whole):
            types.add(whole)

    named = set(architectures)
    # Without a name it may be that of a model of text, or of one of text and images.
    if not named:
        named = set(list_architectures(types))
    return not LISTS[name].isdisjoint(types | named)


# What came of reading a configuration as a runtime does. refused: the runtime stops.
# not modelled: it does something that is not computed here. meaningless: no frequencies
# follow from a number in the file, such as a factor of 0, and it is not known what the
# runtime does.
Outcome = Literal["read", "refused", "not modelled", "meaningless"]


@dataclass(frozen=True, repr=False)
class Reading:
    """A configuration as one runtime reads it."""

    runtime: Runtime
    # The rotation of each layer type; empty unless the outcome is `read`.
    layers: Mapping[str, RopeSpec]
    # What the runtime does with each key about rotation.
    keys: tuple[KeyUse, ...]
    outcome: Outcome
    # The reason for another outcome than `read`.
    problem: str
    model_type: str
    # The rule of layers.toml by which some layers do not rotate; empty: there is none.
    layer_rule: str = ""
    # For each layer of the model whether it rotates. None: all do, or it is not known.
    rotating: tuple[bool, ...] | None = None
    # The tokens that the rotating layers see, where all of these have a window.
    window: int | None = None

    def __repr__(self) -> str:
        if self.outcome != "read":
            return f"<{self.runtime.name}: {self.outcome}, {self.problem}>"

        rotations = []
        for layer, spec in self.layers.items():
            rotations.append(
                f"{layer}: {spec.method}, base {spec.base:g}, {spec.rotary_dim} of"
                f" {spec.head_dim} features"
            )
        text = ", ".join(rotations)
        return f"<{self.runtime.name} {self.runtime.version}: {text}>"

    @property
    def main(self) -> RopeSpec | None:
        """The rotation of the layers that see the whole context; None: there is none."""
        return self.layers.get(self.label)

    @property
    def stopped(self) -> str:
        """The problem in a sentence that names the runtime."""
        release = f"{self.runtime.name} {self.runtime.version}"
        sentence = self.problem.replace("that release", release)
        if self.outcome == "refused":
            return f"refused by {release}: {sentence}"
        return sentence

    @property
    def label(self) -> str:
        """The name of the layer type that sees the whole context; empty: there is none."""
        if "full_attention" in self.layers:
            return "full_attention"
        return next(iter(self.layers), "")


def _make_runtime(name: str, row: Mapping[str, Any]) -> Runtime:
    """Return the runtime of a record of runtimes.toml.

    Its reader is a module of this room, or a class in one, `module.Class`.
    """
    file, _, kind = row["reader"].partition(".")
    reader: Any = import_module(f"{__package__}.{file}")
    if kind:
        reader = getattr(reader, kind)(**row.get("options", {}))

    about = dict(row)
    about.pop("reader")
    about.pop("options", None)
    about["read"] = reader.read
    about["compared"] = frozenset(row.get("compared", "").split())
    about["lacks"] = frozenset(row.get("lacks", "").split())
    about["reads"] = tuple(row.get("reads", "config").split())
    return Runtime(name, **about)


RUNTIMES, TRAINERS, EXPORTERS = (
    {
        name: _make_runtime(name, row)
        for name, row in read_table("runtimes")[group].items()
    }
    for group in ("runtimes", "trainers", "exporters")
)

# The runtime with which the others are compared.
REFERENCE = "transformers-5"


def choose_runtimes(names: Iterable[str], kind: str = "config") -> list[Runtime]:
    """Return the runtimes of these names or prefixes that read a kind of files.

    Without names these are all runtimes, but no trainers or exporters.
    """
    every = RUNTIMES | TRAINERS | EXPORTERS
    named: dict[str, Runtime] = {}
    for name in names:
        prefix = f"{name}-"
        fitting = {
            full_name: runtime
            for full_name, runtime in every.items()
            if full_name == name or full_name.startswith(prefix)
        }
        if not fitting:
            raise unknown_name("runtime", name, every)
        named |= fitting

    candidates = named or RUNTIMES
    able = [runtime for runtime in candidates.values() if kind in runtime.reads]
    if not able:
        only = [name for name, runtime in every.items() if kind in runtime.reads]
        raise InputError(
            f"{', '.join(named)} cannot read {kind} files, only {', '.join(only)} can"
        )
    return able


def explain_untyped(config: Mapping[str, Any]) -> str:
    """Return why no class is found by a configuration's model_type; empty: one is."""
    kind = config.get("model_type")
    if not kind:
        return "the class is found by model_type, which is missing"

    known_types = (
        families.TYPES_WITHOUT_ROW | families.FAMILIES.keys() | families.ROTATED_TYPES
    )
    if str(kind) in known_types or config.get("auto_map"):
        return ""

    # An unknown type may be that of a server's own class. Then the file names no class of
    # transformers.
    named = config.get("architectures")
    if not isinstance(named, list):
        return ""
    if not set(CLASS_OF.values()).issuperset(map(str, named)):
        return ""

    return (
        f"'{short(kind)}' is no type of transformers, and no code of its own is named"
        " (auto_map)"
    )


def read(
    runtime: Runtime,
    config: Mapping[str, Any],
    flags: Mapping[str, Any] | None = None,
    unfound: str = "",
) -> Reading:
    """Return a configuration as a runtime reads it.

    Args:
        runtime: the runtime.
        config: the configuration.
        flags: the flags that the runtime is started with.
        unfound: the reason why no class is found by its model_type; empty: one is.
    """
    _, text = language_part(config)
    outer_type = str(config.get("model_type"))
    served = find_served(runtime.name, config, text)
    trace = Trace(config, flags, runtime.release, served)
    # The runtime and the model type whose rule says which layers rotate.
    class_name = runtime.name_of_class
    kind = choose_type(class_name, outer_type, trace.model_type)

    layers: dict[str, RopeSpec] = {}
    rotating = None
    window = None
    outcome: Outcome = "read"
    problem = ""
    try:
        if unfound and not runtime.by_class:
            raise RefusedError(unfound)
        if outer_type in runtime.lacks and not config.get("auto_map"):
            raise RefusedError(
                f"'{outer_type}' is not in the release of transformers that it asks for,"
                " and no code of its own is named (auto_map)"
            )
        refuse_unread(runtime, trace)

        specs = add_axes(config, runtime.read(trace), runtime.name)
        layer_base = find_layer_base(kind, class_name, text)
        specs = set_layer_base(specs, trace, layer_base)
        rotating = list_rotating(kind, class_name, text)
        window = find_window(kind, class_name, text)
        layers = specs
    except RefusedError as error:
        outcome = "refused"
        problem = str(error)
    except NotModelledError as error:
        outcome = "not modelled"
        problem = str(error)
    except InputError as error:
        outcome = "meaningless"
        problem = str(error)
    # Such numbers are a length of 1, or a factor of 1e300.
    except (ArithmeticError, ValueError) as error:
        outcome = "meaningless"
        problem = f"numbers out of range ({error})"

    return Reading(
        runtime=runtime,
        layers=layers,
        keys=trace.uses(),
        outcome=outcome,
        # A file can hold names of any length.
        problem=printable(problem[:LONGEST_PROBLEM]),
        model_type=trace.model_type,
        layer_rule=find_rule(kind, class_name),
        rotating=None if rotating is None else tuple(rotating),
        window=window,
    )


def set_layer_base(
    specs: dict[str, RopeSpec], trace: Trace, base: float | None
) -> dict[str, RopeSpec]:
    """Return the specs with the base of a list of bases, one for each layer.

    None: the file has no such list, and they stay.
    """
    if base is None:
        return specs
    trace.mark(BASES_KEY, "used")
    if trace.family.whole_base:
        base = float(int(base))
    return {
        layer: replace(spec, base=base, base_source=BASES_KEY).check()
        for layer, spec in specs.items()
    }


def is_described(runtime: Runtime, trace: Trace) -> bool:
    """Return True if the code that gives a model type its rotation was read.

    That is its class in transformers, a row of families.toml, or, for a server, its
    model file; what a file of such a server leaves out is then a default that is not
    known.
    """
    name = trace.family.name
    if trace.family.has_known_defaults or name in families.FAMILIES:
        return True
    if runtime.name not in SERVED:
        return False

    for key in ("rope_theta", MAXIMUM):
        paths = (key, *(f"{block}.{key}" for block in BLOCKS))
        if all(value_in(trace.text, path) in (None, ABSENT) for path in paths):
            raise NotModelledError(
                f"the file has no {key}, and the default of the class of"
                f" '{short(name)}' was not read"
            )
    return True


def refuse_unread(runtime: Runtime, trace: Trace) -> None:
    """Raise NotModelledError for what no reader computes.

    These are model types that a release does not have, parts and classes whose code was
    not read, and some keys.
    """
    refuse_unread_key(runtime, trace)
    named = list_named(runtime, trace)

    outer_type = str(trace.whole.get("model_type") or "")
    kinds = [kind for kind in (outer_type, trace.model_type) if kind]
    # A GGUF file was converted already, and has the language model alone.
    if "attention.head_count" not in trace.text:
        refuse_missing_part(runtime, trace, named)
        refuse_unread_class(runtime, trace, kinds, named)

    # A release whose name is in read_by runs code that comes with the weights.
    if runtime.name in trace.family.read_by:
        return
    release = runtime.release if runtime.classed else runtime.version
    # Only the releases of transformers are listed.
    known_kinds = RELEASES.get(release, kinds)
    for kind in reversed(kinds):
        if kind not in known_kinds:
            raise NotModelledError(
                f"'{short(kind)}' is not in that release; the model's own code was not"
                " read"
            )


def refuse_unread_key(runtime: Runtime, trace: Trace) -> None:
    """Raise NotModelledError for a key of which a row says that it is not computed."""
    family = trace.family
    usual = family.unread_usual
    if family.unread_usual_from_heads:
        usual = head_dim_of(trace, ())

    # A family without such a key is not computed at all.
    value = "any"
    if family.unread_key:
        value = trace.get(family.unread_key)
    is_unread = value not in (None, usual)
    if family.unread_keys:
        is_unread = any(trace.text.get(key) is not None for key in family.unread_keys)
    if family.unread and is_unread:
        raise NotModelledError(f"'{family.name}' has {family.unread}")
    if family.read_by and runtime.name not in family.read_by:
        raise NotModelledError(f"the code of '{family.name}' was not read there")


def list_named(runtime: Runtime, trace: Trace) -> list[str]:
    """Return the architectures that a file names for a runtime."""
    places = [trace.whole]
    if runtime.name == "llama.cpp":
        # Its converter looks into the language part, too.
        places.append(trace.text)
    named = []
    for place in places:
        names = place.get("architectures")
        if isinstance(names, list):
            named += [name for name in names if isinstance(name, str)]
    return named


def refuse_missing_part(runtime: Runtime, trace: Trace, named: list[str]) -> None:
    """Raise NotModelledError for a model of several parts without its language model."""
    outer_type = str(trace.whole.get("model_type") or "")
    if outer_type not in families.CLASSES["texts"]:
        return

    part = families.TEXT_KEYS.get(outer_type)
    if part:
        has_part = trace.prefix.startswith(part)
    else:
        # Some classes read the keys of the language model outside of a part, too.
        read_flat = families.FLAT_ARCHITECTURES.get(runtime.name, ())
        is_flat_class = (
            trace.family.reads_text_keys or outer_type in families.CLASSES["flat"]
        )
        reads_flat = is_flat_class or not set(named).isdisjoint(read_flat)
        has_part = bool(trace.prefix) or reads_flat
    if not has_part:
        raise NotModelledError(
            f"'{outer_type}' has its language model in {part or 'text_config'}, which is"
            " missing"
        )


def refuse_unread_class(
    runtime: Runtime, trace: Trace, kinds: list[str], named: list[str]
) -> None:
    """Raise NotModelledError for code that a runtime lacks, or that was not read."""
    family = trace.family
    name = short(family.name)
    # Some of these rotate all the same (Jina v3).
    if family.name in families.UNROTATED_TYPES:
        raise NotModelledError(
            f"'{name}' rotates in code of its own, which was not read"
        )
    if family.name in families.FIXED_TYPES - families.FAMILIES.keys():
        raise NotModelledError(
            f"the class of '{name}' rotates by numbers in its code, and reads no"
            " rope_scaling"
        )
    has_own_file = runtime.name in SERVED and trace.served.facts
    if (
        family.name in families.TYPES_WITHOUT_ROW
        and not family.has_known_defaults
        and not has_own_file
    ):
        raise NotModelledError(f"the class of '{name}' was not read")

    if (kinds or named) and not is_listed(runtime.name, kinds[:1], named):
        missing = f"'{short([*kinds, *named][0])}' is not in that release"
        if runtime.backed:
            missing += "; where transformers has a class, that one runs"
        raise NotModelledError(missing)
    if trace.served.unread:
        raise NotModelledError(trace.served.unread)
    # Each of these model files was read for itself, whatever its type.
    if not family.name or (runtime.name == "mlx-lm" and trace.model_type in mlx.ROWS):
        return
    if not is_described(runtime, trace):
        raise NotModelledError(f"the class of '{name}' was not read")

    if family.has_known_defaults:
        return
    # Keys of a share or width that the class is not known to read.
    read_keys = {family.width_key, *family.share_keys, *family.sglang_share_keys}
    for key in sorted({"rotary_dim", "rotary_pct", "rope_pct"} - read_keys):
        if trace.text.get(key) not in (None, 1):
            raise NotModelledError(f"'{name}' has {key}, in code of its own")


def reading_of(name: str, config: Mapping[str, Any]) -> Reading:
    """Return a configuration as the reference reads it.

    If its release does not have the class of the model, it is the reading of the first
    runtime that computes a rotation. InputError: there is none.

    ``name``: the words that an error begins with.
    """
    trace = Trace(config)
    reading = read(RUNTIMES[REFERENCE], config)
    kinds = {trace.model_type, str(config.get("model_type") or "")}
    unknown_kinds = kinds - {"", *RELEASES[RELEASE]}

    # The others are no answer where its class exists and the values are the problem.
    if reading.main is None and (unknown_kinds or trace.family.read_by):
        for runtime in choose_runtimes(()):
            other = read(runtime, config)
            # A runtime that passes over a value without meaning is no answer either.
            if other.outcome in ("read", "meaningless"):
                reading = other
                break
    if reading.main is None:
        raise InputError(f"{name}: {reading.stopped}")
    return reading


def reference(name: str, config: Mapping[str, Any]) -> RopeSpec:
    """Return the main rotation of `reading_of`."""
    reading = reading_of(name, config)
    return reading.layers[reading.label]
