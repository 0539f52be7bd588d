"""Which runtime rotates which published model as the model's own code does.

The configurations of published models, reduced to what their rotation depends on, are
in docs/templates/published.json; the model's own code is its class in transformers 5.
`make compatibility` writes docs/compatibility.md from this.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ropelab.audit.aspects import Aspect, list_aspects
from ropelab.audit.audit_case import (
    SHORT_LENGTH,
    AuditCase,
    have_equal_rotation,
    list_compared_lengths,
    measure_distance,
)
from ropelab.readers import registry
from ropelab.readers.document import Document
from ropelab.readers.flags import Flags
from ropelab.readers.registry import Reading
from ropelab.readers.runtime import Runtime
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import find_language_part
from ropelab.runs.sentences import shorten_numbers, write_number

# Releases that have no column, since a newer release of the same runtime has one.
RELEASES_WITHOUT_COLUMN = frozenset(
    f"transformers-4.{minor}" for minor in (44, 48, 51, 55)
)
# Keys of the number of layers.
LAYER_COUNTS = ("num_hidden_layers", "num_layers", "n_layers", "n_layer")
# What a runtime does with a model, compared with the model's own code. reads: it has a
# rotation, and there is no own code to compare it with. not read: what it does is not
# known here.
Verdict = Literal["own code", "agrees", "differs", "refuses", "reads", "not read"]
# How a reader was checked for a model type. run: its values were compared with the
# runtime's for that type. by rule: they were compared for other types. read: only the
# source was read.
Evidence = Literal["run", "by rule", "read", ""]


@dataclass(frozen=True)
class PublishedConfig:
    """A published model: the keys of its config.json that its rotation depends on."""

    name: str
    source: str
    # The day on which the source was read.
    date: str
    config: Mapping[str, Any]


@dataclass(frozen=True)
class TableCell:
    """What one runtime does with one model."""

    verdict: Verdict
    evidence: Evidence = ""
    # The code of a finding of `ropelab audit` (codes.toml has the title of each code), and
    # the size of the difference in words.
    code: str = ""
    words: str = ""
    # True if the runtime agrees, and what it does about some aspect was not looked at.
    is_partial: bool = False


@dataclass(frozen=True)
class Line:
    """A model with a cell for each runtime, by the name of the runtime."""

    model: PublishedConfig
    # The rotation of the model's own code; None if this code was not read.
    spec: RopeSpec | None
    layers: int | None
    cells: Mapping[str, TableCell]


@cache
def read_published(file: Path) -> tuple[str, tuple[PublishedConfig, ...]]:
    """Return the day of the check, and the published models of a file."""
    document = json.loads(file.read_text(encoding="utf-8"))
    models = tuple(PublishedConfig(**row) for row in document["models"])
    return document["checked"], models


def list_columns() -> list[Runtime]:
    """Return the runtimes that have a column, in the order of `registry.RUNTIMES`.

    The first of them is the model's own code.
    """
    columns = []
    for name, runtime in registry.RUNTIMES.items():
        if name not in RELEASES_WITHOUT_COLUMN:
            columns.append(runtime)
    return columns


def compare_models(models: Sequence[PublishedConfig]) -> Iterator[Line]:
    """Yield the line of each published model."""
    for model in models:
        yield compare_model(model)


def compare_model(model: PublishedConfig) -> Line:
    """Read a model with every runtime, and compare what each rotates."""
    runtimes = list_columns()
    readings = [registry.read(runtime, model.config) for runtime in runtimes]
    # The model's own code is its class in transformers 5.
    (own_reading,) = [
        each for each in readings if each.runtime.name == registry.REFERENCE
    ]
    aspects: Sequence[Aspect] = ()
    if own_reading.main_spec is not None:
        case = AuditCase(
            document=Document(model.name, "config", model.config),
            readings=readings,
            reference=own_reading,
            length=own_reading.main_spec.length,
            requested_length=None,
            requested_runtime="",
            flags=Flags(),
        )
        aspects = list_aspects(case)

    _, language_part = find_language_part(model.config)
    counts = [language_part[key] for key in LAYER_COUNTS if key in language_part]
    layers = counts[0] if counts else None
    cells = {}
    for reading in readings:
        cells[reading.runtime.name] = judge(reading, own_reading, aspects)
    return Line(model, own_reading.main_spec, layers, cells)


def judge(
    reading: Reading, own_reading: Reading, aspects: Sequence[Aspect]
) -> TableCell:
    """Compare what a runtime does with what the model's own code does."""
    if reading.outcome == "refused":
        return TableCell("refuses", find_evidence(reading), "E02")
    if reading.outcome != "read":
        return TableCell("not read")

    evidence = find_evidence(reading)
    if reading is own_reading:
        return TableCell("own code", evidence)
    if own_reading.main_spec is None:
        return TableCell("reads", evidence)
    for layer, spec in reading.layers.items():
        own_spec = own_reading.layers.get(layer) or own_reading.main_spec
        code, words = describe_difference(spec, own_spec)
        if code:
            return TableCell("differs", evidence, code, words)

    name = reading.runtime.name
    own_name = own_reading.runtime.name
    is_partial = False
    for aspect in aspects:
        words_of_own = aspect.words_by_runtime.get(own_name)
        words_of_runtime = aspect.words_by_runtime.get(name)
        is_known = words_of_own and words_of_runtime
        if is_known and words_of_own != words_of_runtime:
            return TableCell("differs", evidence, "W16", aspect.name)
        if words_of_own and not words_of_runtime:
            is_partial = True
    return TableCell("agrees", evidence, is_partial=is_partial)


def find_evidence(reading: Reading) -> Evidence:
    """Return how the reader was checked for the model's type."""
    runtime = reading.runtime
    if reading.model_type in runtime.compared_types:
        return "run"
    return "by rule" if runtime.compared_types else "read"


def describe_difference(spec: RopeSpec, other: RopeSpec) -> tuple[str, str]:
    """Return the code of a finding, and by how much a rotation differs.

    Both are empty for the same frequencies at `list_compared_lengths`, and the same
    factor on the logits.
    """
    if have_equal_rotation(spec, other):
        return "", ""
    if spec.rotary_dim != other.rotary_dim:
        return "W06", f"{spec.rotary_dim} features, not {other.rotary_dim}"
    if spec.base != other.base:
        return "E03", f"base {write_number(spec.base)}, not {write_number(other.base)}"

    for length in list_compared_lengths(other):
        ratio, position = measure_distance(spec, other, length)
        if position is None:
            continue
        code = "W05"
        if is_unscaled(spec, length) and not is_unscaled(other, length):
            # The runtime does not apply the scaling at all.
            code = "E08"
        # There is no ratio if no pair rotates in both rotations.
        largest_ratio = ratio or math.inf
        words = f"frequencies up to x{largest_ratio:.3g}, from {position}"
        # Short contexts rotate alike: the words name the length that does not.
        if length != SHORT_LENGTH:
            words += f" of {length}"
        return code, words

    multiplier = spec.logit_multiplier / other.logit_multiplier
    return "W04", f"logits x{multiplier:.4g}"


def is_unscaled(spec: RopeSpec, length: int) -> bool:
    """Return True if the scaling changes no frequency at a length."""
    unscaled = spec.geometry.inv_freq
    return bool(np.allclose(spec.inv_freq(length), unscaled, rtol=1e-9, atol=0))


def describe_scaling(spec: RopeSpec | None) -> str:
    """Return the name of a scaling, with numbers of few digits."""
    return "" if spec is None else shorten_numbers(spec.method)


def count_verdicts(lines: Sequence[Line], runtime: str) -> dict[Verdict, int]:
    """Count the verdicts on models whose own code was read."""
    counts: dict[Verdict, int] = {}
    for line in lines:
        if line.spec is not None:
            verdict = line.cells[runtime].verdict
            counts[verdict] = counts.get(verdict, 0) + 1
    return counts
