"""The tables of an audit: keys, runtimes side by side, pairs."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ropelab.audit.runtimes.document import Document
from ropelab.audit.runtimes.families import meaning, near
from ropelab.audit.runtimes.registry import Reading
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.math.scaling import roles

Rows = list[dict[str, Any]]

OFF = 0.01
"""Radians by which a phase may differ before two runtimes count as different."""


def runtimes(readings: Sequence[Reading], reference: Reading, length: int) -> Rows:
    """A row per runtime and layer type; one with a problem has a single row."""
    rows: Rows = []
    for reading in readings:
        about = {
            "runtime": reading.runtime.name,
            "version": reading.runtime.version,
            "proof": reading.runtime.stated(reading.model_type),
            "outcome": reading.outcome,
        }
        if not reading.layers:
            rows.append({**about, "layers": "all", "problem": reading.problem})
        for layer, spec in reading.layers.items():
            other = reference.layers.get(layer) or reference.main
            rows.append({**about, "layers": layer, **numbers(spec, other, length)})
    return rows


def numbers(spec: RopeSpec, other: RopeSpec | None, length: int) -> dict[str, Any]:
    """What one spec amounts to at that length, and how far it is from the reference."""
    plan = spec.plan(length)
    counts = roles(plan, spec.geometry)
    ratio, position = distance(spec, other or spec, length)
    return {
        "base": spec.base,
        "rotary_dim": spec.rotary_dim,
        "head_dim": spec.head_dim,
        "pairing": spec.pairing,
        "method": spec.method,
        "trained_tokens": spec.trained_len,
        "claimed_tokens": spec.claimed_len,
        "pairs_kept": counts.count("kept"),
        "pairs_blended": counts.count("ramp"),
        "pairs_divided": counts.count("interpolated"),
        "attention_factor": spec.attention_factor,
        "softmax_factor": spec.softmax_factor,
        "logit_multiplier": spec.logit_multiplier,
        "largest_ratio": ratio,
        "first_off_tokens": position,
        "problem": "",
    }


def distance(spec: RopeSpec, other: RopeSpec, length: int) -> tuple[float | None, int | None]:
    """The largest ratio of two frequencies, and the first position with a phase off by OFF.

    None for the ratio where the widths differ; None for the position where none is off.
    """
    ours, theirs = spec.inv_freq(length), other.inv_freq(length)
    if ours.shape != theirs.shape:
        return None, 1
    apart = float(np.abs(ours - theirs).max())
    # Another order of operations changes the last places, which means nothing.
    same = np.allclose(ours, theirs, rtol=1e-9, atol=0)
    turning = (ours > 0) & (theirs > 0)
    logs = np.abs(np.log(ours[turning] / theirs[turning]))
    largest = 1.0 if same else float(np.exp(logs.max())) if logs.size else math.inf
    return largest, None if same else math.ceil(OFF / apart)


def keys(document: Document, readings: Sequence[Reading]) -> Rows:
    """A row per key that concerns rotation: what it does, and its status in every runtime."""
    statuses: dict[str, dict[str, str]] = {}
    notes: dict[str, str] = {}
    for reading in readings:
        for use in reading.keys:
            statuses.setdefault(use.path, {})[reading.runtime.name] = use.status
            notes.setdefault(use.path, use.note)
    return [
        {
            "key": path,
            "value": shown(value_at(document.config, path)),
            "does": meaning(path) or unknown(path),
            "status": status,
            "note": notes[path],
        }
        for path, status in statuses.items()
    ]


def unknown(path: str) -> str:
    """What to say of a key that no reader knows."""
    close = near(path)
    return f"not known; did you mean {close}?" if close else "not known"


def value_at(config: Any, path: str) -> Any:
    """The value at a dotted path."""
    if path in config:
        return config[path]
    for part in path.split("."):
        if part not in config:
            return "from a flag"
        config = config[part]
    return config


def shown(value: Any) -> str:
    """A value in at most 40 characters."""
    if isinstance(value, list):
        return f"list of {len(value)}"
    if isinstance(value, dict):
        return f"dict of {len(value)}"
    text = repr(value) if isinstance(value, int | float) or value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def pairs(readings: Sequence[Reading], reference: Reading, length: int) -> Rows:
    """A row per runtime, layer type and pair: frequency, wavelength, ratio to the reference."""
    rows: Rows = []
    for reading in readings:
        for layer, spec in reading.layers.items():
            other = reference.layers.get(layer) or reference.main or spec
            theirs = other.inv_freq(length)
            for pair, value in enumerate(spec.inv_freq(length).tolist()):
                ratio = value / theirs[pair] if pair < len(theirs) and theirs[pair] else None
                rows.append(
                    {
                        "runtime": reading.runtime.name,
                        "layers": layer,
                        "pair": pair,
                        "inv_freq": value,
                        "wavelength_tokens": 2 * math.pi / value if value else None,
                        "ratio": None if ratio is None else float(ratio),
                    }
                )
    return rows


def sentence(document: Document, readings: Sequence[Reading], reference: Reading) -> str:
    """What the file says, up to which length, and whether the runtimes agree."""
    spec = reference.main
    assert spec is not None
    claimed = f", claims {spec.claimed_len}" if spec.claimed_len else ""
    kind = document.config.get("model_type") or document.kind
    return (
        f"{document.name} ({kind}) turns {spec.rotary_dim} of {spec.head_dim} features with base "
        f"{spec.base:g}, {spec.method}, from {spec.trained_len} tokens{claimed}; "
        f"{agreement(readings, reference)}"
    )


def agreement(readings: Sequence[Reading], reference: Reading) -> str:
    """How many runtimes compute the same as the reference."""
    read = [reading for reading in readings if reading.main is not None]
    same = sum(agrees(reading, reference) for reading in read)
    stopped = [r.runtime.name for r in readings if r.outcome == "refused"]
    tail = f"; refused by {', '.join(stopped)}" if stopped else ""
    if same == len(read):
        return f"all {same} runtimes that read it agree{tail}"
    named = reference.runtime.name
    return f"{same} of {len(read)} runtimes compute what {named} computes{tail}"


def agrees(reading: Reading, reference: Reading) -> bool:
    """Same frequencies inside and far beyond the trained length, same factor on the logits."""
    ours, theirs = reading.main, reference.main
    if ours is None or theirs is None or ours.rotary_dim != theirs.rotary_dim:
        return False
    lengths = (64, 2 * max(theirs.trained_len, theirs.claimed_len or 0))
    equal = all(distance(ours, theirs, length)[1] is None for length in lengths)
    return equal and math.isclose(ours.logit_multiplier, theirs.logit_multiplier, rel_tol=1e-9)
