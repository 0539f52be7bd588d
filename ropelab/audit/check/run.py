"""Load the target, look at it where errors show, and say what is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from ropelab.audit.check import targets
from ropelab.audit.check.diagnose import Verdict, diagnose
from ropelab.audit.runtimes import registry
from ropelab.audit.runtimes.document import load
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.errors import InputError

PROBES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 127, 255, 256, 257, 1023, 2047, 2048, 2049)
FURTHER = (4095, 4096, 4097, 8191, 16383, 32767, 65519, 65520, 131071)


@dataclass(frozen=True)
class Question:
    """A target, the configuration it should follow, and how exactly.

    target: `package.module:factory`, a model folder, or an .npz of tables. config: a config.json;
    a folder brings its own. length: tokens in the context, the claimed length if None. dtype: what
    a folder's module is asked to return.
    """

    target: str
    config: str = ""
    length: int | None = None
    dtype: str = "float32"
    tolerance: float = 0.01


@dataclass(frozen=True)
class Outcome:
    """The verdict, and how near every cast plan comes to what was seen."""

    target: str
    verdict: Verdict
    casts: list[dict[str, Any]]
    positions: tuple[int, ...]


def check(question: Question) -> Outcome:
    """What the target does, held against its configuration.

    Raises:
        InputError: the target or its configuration cannot be loaded.
    """
    spec, others = expected(question)
    length = question.length or spec.claimed_len or spec.trained_len
    positions = probes(spec, length)
    observed = targets.observe(question.target, spec, positions, question.dtype)
    verdict, casts = diagnose(observed, spec, length, others, question.tolerance)
    return Outcome(question.target, verdict, casts, tuple(observed.positions.tolist()))


def expected(question: Question) -> tuple[RopeSpec, Mapping[str, RopeSpec]]:
    """The reference's reading of the configuration, and what other runtimes would turn."""
    source = question.config or question.target
    if not question.config and not Path(question.target).is_dir():
        raise InputError("which configuration should it follow? give --config FILE")
    document = load(source)
    if document.kind == "gguf":
        raise InputError("--config wants a config.json, not a GGUF file")
    readings = {n: registry.read(r, document.config) for n, r in registry.RUNTIMES.items()}
    main = readings[registry.REFERENCE].main
    if main is None:
        raise InputError(f"{source}: {readings[registry.REFERENCE].problem}")
    others = {name: r.main for name, r in readings.items() if r.main is not None}
    return main, {n: s for n, s in others.items() if s.rotary_dim == main.rotary_dim}


def probes(spec: RopeSpec, length: int) -> Int[np.ndarray, " n"]:
    """Positions at which errors show: small ones, powers of two, and the ends of the lengths."""
    ends = (spec.trained_len - 1, spec.trained_len, spec.trained_len + 1, length - 1)
    places = sorted({p for p in (*PROBES, *FURTHER, *ends) if 0 <= p < length})
    if 1 not in places:
        raise InputError(f"a length of {length} leaves no position to look at")
    return np.array(places, dtype=np.int64)
