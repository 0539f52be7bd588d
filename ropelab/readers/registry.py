"""The runtimes by name, and the reading of one configuration as one runtime reads it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal

from ropelab.readers import families
from ropelab.readers.axes import add_axes
from ropelab.readers.families import RELEASE, RELEASES, read_table
from ropelab.readers.layer_rules import BASES_KEY
from ropelab.readers.layers import (
    choose_type,
    find_layer_base,
    find_rule,
    find_window,
    list_rotating,
)
from ropelab.readers.mistral_params import OWN_PARAMS
from ropelab.readers.runtime import Runtime
from ropelab.readers.served import CLASS_OF, find_served
from ropelab.readers.spec import NotModelledError, RefusedError, RopeSpec, shorten_value
from ropelab.readers.trace import KeyUse, Trace, find_language_part
from ropelab.readers.unmodelled import check_modelled
from ropelab.runs.errors import InputError, make_name_error
from ropelab.runs.sentences import escape_unprintable

# The most characters of the sentence that says why a runtime does not read a file.
LONGEST_PROBLEM = 300
# Runtimes whose reading of a params.json was never compared with the runtime itself.
RAN_WITHOUT_PARAMS = frozenset({"sglang"})


# The outcome of reading a configuration as a runtime does. refused: the runtime stops.
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
    # The use that the runtime makes of each key about rotation.
    keys: tuple[KeyUse, ...]
    outcome: Outcome
    # The reason for another outcome than `read`.
    problem: str
    model_type: str
    # The rule of layers.toml by which some layers do not rotate; empty: there is none.
    layer_rule: str = ""
    # For each layer of the model whether it rotates. None: all do, or it is not known.
    rotating: tuple[bool, ...] | None = None
    # The number of tokens that the rotating layers see, if all rotating layers have a
    # window.
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
    def main_layer(self) -> str:
        """The name of the layer type that sees the whole context; empty: there is none."""
        if "full_attention" in self.layers:
            return "full_attention"
        return next(iter(self.layers), "")

    @property
    def main_spec(self) -> RopeSpec | None:
        """The rotation of the layers that see the whole context; None: there is none."""
        return self.layers.get(self.main_layer)

    @property
    def explanation(self) -> str:
        """The problem in a sentence that names the runtime; empty: there is none."""
        release = f"{self.runtime.name} {self.runtime.version}"
        sentence = self.problem.replace("that release", release)
        if self.outcome == "refused":
            return f"refused by {release}: {sentence}"
        return sentence


def _read_group(group: str) -> dict[str, Runtime]:
    """Return the runtimes of a group of runtimes.toml, by their names."""
    rows = read_table("runtimes")[group]
    return {name: _make_runtime(name, row) for name, row in rows.items()}


def _make_runtime(name: str, row: Mapping[str, Any]) -> Runtime:
    """Return the runtime of a record of runtimes.toml.

    The record names its reader as `module` or as `module.Class`, both of this folder.
    """
    module, _, class_name = row["reader"].partition(".")
    reader: Any = import_module(f"{__package__}.{module}")
    if class_name:
        reader_class = getattr(reader, class_name)
        reader = reader_class(**row.get("options", {}))

    about = dict(row)
    about.pop("reader")
    about.pop("options", None)
    about["read"] = reader.read
    about["compared_types"] = frozenset(row.get("compared_types", "").split())
    without_class = row.get("types_without_class", "")
    about["types_without_class"] = frozenset(without_class.split())
    about["document_kinds"] = tuple(row.get("document_kinds", "config").split())
    return Runtime(name, **about)


RUNTIMES = _read_group("runtimes")
TRAINERS = _read_group("trainers")
EXPORTERS = _read_group("exporters")
# In the order in which a reference is chosen, if transformers 5 reads nothing.
EVERY_RUNTIME = RUNTIMES | TRAINERS | EXPORTERS
# The runtime with which all other runtimes are compared.
REFERENCE = "transformers-5"


def select_named(name: str, full_names: Iterable[str]) -> list[str]:
    """Return the names of runtimes that are a name, or begin with it up to a dash.

    >>> select_named("transformers", ["vllm", "transformers-5", "transformers-4.57"])
    ['transformers-5', 'transformers-4.57']
    """
    return [
        full_name
        for full_name in full_names
        if full_name == name or full_name.startswith(f"{name}-")
    ]


def choose_runtimes(
    names: Iterable[str], document_kind: str = "config"
) -> list[Runtime]:
    """Return the runtimes of these names that take a kind of documents.

    Without names, return all runtimes, but no trainers or exporters. InputError: a name
    is unknown, or no runtime of these names takes the kind.

    Args:
        names: names of runtimes, or the beginnings of names up to a dash:
            `transformers`.
        document_kind: the kind of the document, such as config or gguf.
    """
    named: dict[str, Runtime] = {}
    for name in names:
        matches = select_named(name, EVERY_RUNTIME)
        if not matches:
            raise make_name_error("runtime", name, EVERY_RUNTIME)
        named |= {match: EVERY_RUNTIME[match] for match in matches}

    candidates = named or RUNTIMES
    able = [
        runtime
        for runtime in candidates.values()
        if document_kind in runtime.document_kinds
    ]
    if not able:
        able_names = [
            name
            for name, runtime in EVERY_RUNTIME.items()
            if document_kind in runtime.document_kinds
        ]
        raise InputError(
            f"ropelab has no reader of {document_kind} files for {', '.join(named)},"
            f" only for {', '.join(able_names)}"
        )
    return able


def explain_missing_class(config: Mapping[str, Any]) -> str:
    """Return why a runtime finds no class by the model_type of a file.

    The result is empty if it finds one.
    """
    model_type = config.get("model_type")
    if not model_type:
        return "the class is found by model_type, which is missing"

    known_types = (
        families.TRANSFORMERS_TYPES | families.FAMILIES.keys() | families.ROTATED_TYPES
    )
    if str(model_type) in known_types or config.get("auto_map"):
        return ""

    # An unknown type may belong to a server's own class. The file then names no class
    # of transformers.
    architectures = config.get("architectures")
    if not isinstance(architectures, list):
        return ""
    # A type may have several architectures, with blanks between them.
    known_architectures = set(" ".join(CLASS_OF.values()).split())
    if not all(str(name) in known_architectures for name in architectures):
        return ""

    return (
        f"'{shorten_value(model_type)}' is no type of transformers, and no code of its own is named"
        " (auto_map)"
    )


def read(
    runtime: Runtime,
    config: Mapping[str, Any],
    flags: Mapping[str, Any] | None = None,
    missing_class: str = "",
) -> Reading:
    """Return a configuration as a runtime reads it.

    No error is raised: the outcome of the reading says what went wrong.

    Args:
        runtime: the runtime.
        config: the configuration.
        flags: the flags that the runtime is started with.
        missing_class: the reason why no class is found by its model_type; empty if one
            is found.
    """
    _, language_part = find_language_part(config)
    served = find_served(runtime.name, config, language_part)
    trace = Trace(config, flags, runtime.release, served)
    # These two names find the rule that says which layers rotate.
    classes = runtime.name_of_classes
    rule_type = choose_type(classes, trace.outer_type, trace.model_type)

    layers: dict[str, RopeSpec] = {}
    rotating = None
    window = None
    outcome: Outcome = "read"
    problem = ""
    try:
        check_class_is_found(runtime, config, missing_class)
        check_modelled(runtime, trace)
        specs = add_axes(config, runtime.read(trace), runtime.name)
        base = find_layer_base(rule_type, classes, language_part)
        if base is not None:
            specs = set_base_of_list(specs, trace, base)
        rotating = list_rotating(rule_type, classes, language_part)
        window = find_window(rule_type, classes, language_part)
        # A file with a problem has no rotations, so that they are set last.
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
    except (ArithmeticError, ValueError) as error:
        # A length of 1 or a factor of 1e300 ends here.
        outcome = "meaningless"
        problem = f"numbers out of range ({error})"

    model_type = trace.model_type
    # Under this name the file counts as one that was never compared with the runtime.
    if OWN_PARAMS in language_part and runtime.name in RAN_WITHOUT_PARAMS:
        model_type = OWN_PARAMS
    return Reading(
        runtime=runtime,
        layers=layers,
        keys=trace.uses(),
        outcome=outcome,
        # A file can hold names of any length.
        problem=escape_unprintable(problem[:LONGEST_PROBLEM]),
        model_type=model_type,
        layer_rule=find_rule(rule_type, classes),
        rotating=None if rotating is None else tuple(rotating),
        window=window,
    )


def check_class_is_found(
    runtime: Runtime, config: Mapping[str, Any], missing_class: str
) -> None:
    """Raise RefusedError if a runtime finds no class for a configuration.

    ``missing_class``: the reason why no class is found by the model_type; empty if one
    is found.
    """
    if missing_class and not runtime.needs_no_type:
        raise RefusedError(missing_class)
    outer_type = str(config.get("model_type"))
    if outer_type in runtime.types_without_class and not config.get("auto_map"):
        raise RefusedError(
            f"'{outer_type}' is not in the release of transformers that it asks for,"
            " and no code of its own is named (auto_map)"
        )


def set_base_of_list(
    specs: dict[str, RopeSpec], trace: Trace, base: float
) -> dict[str, RopeSpec]:
    """Return the rotations with another base: the only one in a list of the file that
    has a base for each layer.
    """
    trace.mark(BASES_KEY, "used")
    if trace.family.whole_base:
        base = float(int(base))

    changed = {}
    for layer, spec in specs.items():
        changed[layer] = replace(spec, base=base, base_source=BASES_KEY).check()
    return changed


def read_by_reference(name: str, config: Mapping[str, Any]) -> Reading:
    """Return a configuration as the reference reads it.

    If its release does not have the class of the model, this is the reading of the
    first runtime that computes a rotation. InputError: no runtime computes one.

    ``name``: the words at the start of an error, such as the name of the file.
    """
    reading = read(RUNTIMES[REFERENCE], config)
    # If the reference has the class, and the values of the file are the problem, the
    # reading of another runtime is no answer.
    if reading.main_spec is None and not has_reference_class(config):
        for runtime in choose_runtimes(()):
            other = read(runtime, config)
            # A runtime that finds a value without meaning has the class, and the search
            # ends. A runtime that passes over the value would be no answer.
            if other.outcome in ("read", "meaningless"):
                reading = other
                break
    if reading.main_spec is None:
        raise InputError(f"{name}: {reading.explanation}")
    return reading


def has_reference_class(config: Mapping[str, Any]) -> bool:
    """Return True if the release of the reference has the class of a configuration."""
    trace = Trace(config)
    types = {trace.model_type, trace.outer_type} - {""}
    return types <= RELEASES[RELEASE] and not trace.family.read_by


def read_main_rotation(name: str, config: Mapping[str, Any]) -> RopeSpec:
    """Return the rotation of `read_by_reference` in layers that see the whole context."""
    reading = read_by_reference(name, config)
    return reading.layers[reading.main_layer]
