"""The tables of an audit: keys, runtimes side by side, pairs, context, precision.

A runtime, such as vLLM, reads a configuration in its own way. One runtime is the
reference, and all other runtimes are compared with it. Tables are lists of rows here,
so that a command that prints JSON imports nothing heavy.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np

from ropelab.audit.audit_case import (
    MAIN,
    SLOWEST_FREQUENCY,
    TOLERANCE,
    AuditCase,
    measure_distance,
)
from ropelab.math.bounds.rules import one_rotation_base, su_asymptote
from ropelab.math.numerics.angle_errors import (
    find_first_wrong,
    find_worst,
    find_worst_table_error,
)
from ropelab.math.numerics.casts import PRESETS
from ropelab.math.numerics.chain import Chain, Spectrum, cut_into_octaves
from ropelab.math.numerics.formats import FORMATS, FloatFormat
from ropelab.math.scaling import LongRope, name_roles
from ropelab.readers.axes import VISION, read_vision
from ropelab.readers.extra_rotations import list_rotations
from ropelab.readers.keys import explain_key, find_nearest_key
from ropelab.readers.layers import FLAG_KEYS
from ropelab.readers.runtime import TRANSFORMERS_CHAIN
from ropelab.readers.spec import GAINS, SHAPE, RopeSpec, shorten_value
from ropelab.readers.trace import ABSENT, find_language_part, find_value
from ropelab.runs.errors import check_known
from ropelab.runs.rows import Rows, group_pairs

# The last position at which rounding errors are searched. Beyond it float32 has lost
# all angles.
LAST_SEARCHED_POSITION = 2**26
# The column `proof` of rotations other than the rotation of attention.
PROOF_OF_EXTRA_ROTATIONS = "read from source, not run"


def list_keys(case: AuditCase) -> Rows:
    """Return a row per key about rotation: its value, meaning and status by runtime."""
    # The uses of keys by all runtimes, each with the path of the key.
    uses = []
    for reading in case.readings:
        for use in reading.keys:
            uses.append((use.path, (reading.runtime.name, use)))

    rows = []
    for path, uses_of_key in group_pairs(uses).items():
        status = {name: use.status for name, use in uses_of_key}
        if path.split(".")[-1] in FLAG_KEYS:
            # These keys name layers and no angles, so that the readers of angles do not
            # know them.
            for reading in case.readings:
                if reading.layer_rule in ("flags", "flags_needed", "numbers"):
                    status[reading.runtime.name] = "used"
        notes = {name: use.note for name, use in uses_of_key if use.note}
        row = {
            "key": path,
            "value": describe_value(case.document.config, path),
            "does": describe_key(path),
            "status": status,
            "notes": notes,
        }
        rows.append(row)
    return rows


def describe_value(config: Mapping[str, Any], path: str) -> str:
    """Return the value at a path in a few words."""
    # A path has dots between its keys. A key of a GGUF file contains dots itself.
    if path in config:
        value = config[path]
    else:
        value = find_value(config, path)
    if value is ABSENT:
        return "from a flag"
    if isinstance(value, list | dict):
        return f"{type(value).__name__} of {len(value)}"
    return shorten_value(value)


def describe_key(path: str) -> str:
    """Return what a key does, or which key may be meant if it is not known."""
    meaning = explain_key(path)
    if meaning:
        return meaning
    close = find_nearest_key(path)
    if close:
        return f"not known; did you mean {close}?"
    return "not known"


def list_runtimes(case: AuditCase) -> Rows:
    """Return a row per runtime, layer type and rotation, with its distance from the
    reference.

    ``rotation`` is `main` for the queries and keys of attention. A row without `base` has
    a `problem`: the reason why the runtime computes no rotation.
    """
    rows: list[dict[str, Any]] = []
    _, language_part = find_language_part(case.document.config)
    extra_rotations = list_rotations(language_part)
    for reading in case.readings:
        about = {
            "runtime": reading.runtime.name,
            "version": reading.runtime.version,
            "proof": reading.runtime.describe_proof(reading.model_type),
            "outcome": reading.outcome,
        }
        if not reading.layers:
            missing = {"rotation": MAIN, "layers": "all", "problem": reading.problem}
            rows.append({**about, **missing})
            continue

        for layer, spec, reference_spec in case.list_layers(reading):
            row = describe_spec(spec, reference_spec, case.length)
            # A server may be started with less than it would allow.
            chosen = case.flags.lengths.get(reading.runtime.name)
            if chosen and spec.claimed_len:
                row["claimed_tokens"] = min(chosen, spec.claimed_len)
            rows.append({**about, "rotation": MAIN, "layers": layer, **row})

        for name in extra_rotations:
            rotation = case.read_rotation(reading, name)
            row = {
                **about,
                "rotation": name,
                "layers": "all",
                "proof": PROOF_OF_EXTRA_ROTATIONS,
            }
            row |= {"outcome": rotation.outcome, "problem": rotation.problem}
            if rotation.spec is not None:
                # If the reference does not have this rotation, the rotation is compared
                # with itself.
                reference_rotation = case.read_rotation(case.reference, name)
                compared_with = reference_rotation.spec or rotation.spec
                row |= describe_spec(rotation.spec, compared_with, case.length)
            rows.append(row)
    return rows


def describe_spec(spec: RopeSpec, other: RopeSpec, length: int) -> dict[str, Any]:
    """Return the columns of a rotation, with its distance from another rotation."""
    counts = name_roles(spec.plan(length), spec.geometry)
    ratio, position = measure_distance(spec, other, length)

    return {
        **{name: getattr(spec, name) for name in SHAPE},
        "trained_tokens": spec.trained_len,
        "claimed_tokens": spec.claimed_len,
        "pairs_kept": counts.count("kept"),
        "pairs_blended": counts.count("ramp"),
        "pairs_divided": counts.count("interpolated"),
        # A table of divisors may move some pairs in another way, and a scaling may stop
        # some.
        "pairs_otherwise": counts.count("moved") + counts.count("dropped"),
        **{name: getattr(spec, name) for name in GAINS},
        "largest_ratio": ratio,
        "first_off_tokens": position,
        "problem": "",
    }


def list_pairs(case: AuditCase) -> Rows:
    """Return a row per runtime, layer type and pair, with its frequency and the ratio
    to the frequency of the reference.
    """
    rows = []
    for reading in case.readings:
        for layer, spec, reference_spec in case.list_layers(reading):
            frequencies = spec.inv_freq(case.length).tolist()
            references = reference_spec.inv_freq(case.length).tolist()
            references = references[: len(frequencies)]
            # If the reference has fewer pairs, its frequency is None for the pairs that
            # it lacks.
            by_pair = zip_longest(frequencies, references)
            for pair, (frequency, of_reference) in enumerate(by_pair):
                # A pair that hardly rotates has no wavelength, and no ratio to it.
                wavelength = None
                if frequency > SLOWEST_FREQUENCY:
                    wavelength = 2 * math.pi / frequency
                ratio = None
                if of_reference is not None and of_reference > SLOWEST_FREQUENCY:
                    ratio = frequency / of_reference

                row = {
                    "runtime": reading.runtime.name,
                    "layers": layer,
                    "pair": pair,
                    "inv_freq": frequency,
                    "wavelength_tokens": wavelength,
                    "ratio": ratio,
                }
                rows.append(row)
    return rows


def list_axes(case: AuditCase) -> Rows:
    """Return a row per layer type and pair, with the axis of positions that moves it.

    A position may have several axes, such as time, height and width in a video. The
    layer types are the layer types of the reference and an encoder of images, if the
    model has one. The angle of a pair is ``inv_freq`` times ``rate`` times the distance
    of the position from ``origin``. Where positions are counted from the middle of an
    image, ``rate`` and ``origin`` are formulas in the number n of patches along the
    axis.
    """
    specs = dict(case.reference.layers)
    vision = read_vision(case.document.config)
    if vision is not None:
        specs[VISION] = vision

    rows = []
    for layer, spec in specs.items():
        axes = spec.axes
        if axes is None:
            continue
        frequencies = spec.inv_freq(case.length).tolist()
        for pair, (axis, inv_freq) in enumerate(
            zip(axes.axis_of_pair, frequencies, strict=True)
        ):
            row = {
                "layers": layer,
                "pair": pair,
                "axis": axes.names[axis],
                "inv_freq": inv_freq,
                "base": spec.base,
                "rate": "4 pi / n" if axes.centred else "1",
                "origin": "(n - 1) / 2" if axes.centred else "0",
            }
            rows.append(row)
    return rows


def list_contexts(case: AuditCase) -> Rows:
    """Return a row per layer type of the reference: lengths, turns, bounds on the base."""
    rows = []
    length = case.length
    for layer, spec in case.reference.layers.items():
        scaled = spec.inv_freq(length)
        rotating = scaled[scaled > 0]
        slowest_turns = 0.0
        if rotating.size:
            slowest_turns = float(rotating.min() * length / (2 * math.pi))

        # Pairs that complete no rotation within the trained length have unseen angles
        # beyond it.
        unscaled = np.asarray(spec.geometry.inv_freq, dtype=np.float64)
        unfinished = np.flatnonzero(unscaled * spec.trained_len < 2 * math.pi)
        slowest_exponent = 1 - 2 / spec.rotary_dim
        one_turn = one_rotation_base(slowest_exponent, length)
        row = {
            "layers": layer,
            "trained_tokens": spec.trained_len,
            "claimed_tokens": spec.claimed_len,
            "length_tokens": length,
            "slowest_turns": slowest_turns,
            "critical_pair": int(unfinished[0]) if unfinished.size else None,
            "smallest_factor": max(1.0, length / spec.trained_len),
            "base_asymptotic_bound": su_asymptote(length),
            # The bound is infinite for a single pair.
            "base_one_turn": one_turn if math.isfinite(one_turn) else None,
            "short_logit_multiplier": spec.logit_multiplier,
        }
        rows.append(row)
    return rows


def find_format(config: Mapping[str, Any], requested_name: str = "") -> FloatFormat:
    """Return the number format that is named, else the file's number format, else
    bfloat16.

    ``requested_name``: the name that the user gave, or empty.
    """
    if requested_name:
        return FORMATS[check_known("--dtype", requested_name, FORMATS)]

    _, language_part = find_language_part(config)
    for part in (language_part, config):
        for key in ("dtype", "torch_dtype"):
            value = part.get(key)
            if not isinstance(value, str):
                continue
            name = value.removeprefix("torch.")
            if name in FORMATS:
                return FORMATS[name]
    return FORMATS["bfloat16"]


def search_errors(case: AuditCase, dtype: FloatFormat) -> Rows:
    """Return a row per cast chain: its worst errors over all positions.

    A cast chain says which number format each step of the computation is rounded to.
    Several runtimes may have the same chain. `beyond_from_tokens` is the first position
    with an error above the tolerance.
    """
    last = min(case.length, LAST_SEARCHED_POSITION)
    specs = dict(case.specs)
    # The name of the cast chain of each runtime.
    presets = {each.runtime.name: each.runtime.chain for each in case.readings}
    if "sglang" in specs and isinstance(specs["sglang"].scaling, LongRope):
        # SGLang keeps the tables of longrope in the number format of the model.
        presets["sglang"] = TRANSFORMERS_CHAIN

    rows = []
    for preset, names in group_pairs((presets[name], name) for name in specs).items():
        # All runtimes of a chain are searched with the frequencies of the first.
        first_name, *_ = names
        spec = specs[first_name]
        spectrum = Spectrum(spec.inv_freq(case.length), spec.base, spec.rotary_dim)
        plan = PRESETS[preset].plan
        if preset == TRANSFORMERS_CHAIN:
            plan = replace(plan, table=dtype)
        chain = Chain(plan, spectrum)

        # The search is exact, though it leaves out positions whose errors are bounded by
        # less than the worst. The error is nan if an angle overflows: nan compares as
        # False, so that it is not precise.
        worst = find_worst(chain, 0, last)
        first_beyond = None
        is_precise = worst.error_rad <= TOLERANCE
        if not is_precise:
            by_octave = (
                find_worst(chain, start, stop - start)
                for start, stop in cut_into_octaves(0, last)
            )
            first_beyond = find_first_wrong(chain, by_octave, TOLERANCE)
        row = {
            "chain": preset,
            "runtimes": ", ".join(names),
            "length_tokens": last,
            "angle_error_rad": worst.error_rad,
            "tolerance_rad": TOLERANCE,
            "beyond_from_tokens": first_beyond,
            "table_format": chain.plan.table.name,
            "table_error": find_worst_table_error(chain, [worst]),
        }
        rows.append(row)
    return rows
