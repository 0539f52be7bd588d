"""Compare a rotary code with its configuration, and explain the difference.

The first of these that is wrong is the answer: numbers that are not finite, pairs and
their place, blocks that are no rotation, swapped tables, positions, rotated width,
frequencies, factor on cos and sin, casts.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ropelab.conformance import explained, rotations, stored
from ropelab.conformance.expected import (
    AXES_NOT_JUDGED,
    INDEXER,
    Expected,
    choose_layer,
    choose_positions,
    expect_config,
    expect_file,
)
from ropelab.conformance.observed import (
    ask_module,
    build_rotary,
    has_layer_types,
    observe,
)
from ropelab.conformance.rotations import (
    Observed,
    Positions,
    Rotated,
    Vectors,
    explain_blocks,
    observe_vectors,
)
from ropelab.conformance.vectors import ABOUT, bound_rotated
from ropelab.math.numerics.budget import KINDS
from ropelab.math.numerics.casts import STAGES, CastPlan
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.rotary import axis_names
from ropelab.math.scaling import DynamicNtk, LongRope, Unscaled
from ropelab.readers.spec import RefusedError, RopeSpec, whole
from ropelab.runs.errors import InputError
from ropelab.runs.files import MOST_BYTES, parse, read_regular
from ropelab.runs.rows import Result, Rows, grouped

# The stages that a table shows: position, inv_freq, angle, table.
CASTS = STAGES[:4]
LARGE_ARGUMENTS = "sin and cos of large arguments"
REDUCE = "reduce angles by 2 pi in float64, or in three terms with fma"
Ask = Callable[[RopeSpec, Positions], dict[str, Observed]]


@dataclass(frozen=True)
class Check(Result):
    """The answer, the advice, and the distance of each cast plan's tables from the
    observed.
    """

    answer: str
    wrong: bool
    fix: str = ""
    called: str = ""  # the user's function, with what it was given
    rows: Mapping[str, Rows] = field(default_factory=lambda: {"casts": ()})


def check(
    target: str,
    *,
    config: str = "",
    length: int | None = None,
    dtype: str = "float32",
    tolerance: float = 0.01,
    layer_type: str = "",
) -> Check:
    """Compare a rotary code with the configuration that it should follow.

    Args:
        target: `package.module:factory`, a model folder, or a file of arrays.
        config: a config.json; a folder brings its own.
        length: tokens in the context, the claimed length if None.
        dtype: the format that a folder's module is asked for.
        tolerance: radians that a phase may be off beyond what float32 loses.
        layer_type: of a model with several rotations, as `full_attention` or
            `indexer`; by default the one that sees the whole context.
    """
    check_tolerance(tolerance)
    path = Path(target)
    if dtype != "float32" and not path.is_dir():
        raise InputError(
            "--dtype is for a model's folder: all else has numbers of its own"
        )
    arrays = path.suffix in stored.SUFFIXES and not path.is_dir()
    if not (config or path.is_dir() or (arrays and (path.parent / ABOUT).is_file())):
        raise InputError("which configuration should it follow? give --config FILE")
    if arrays:
        return check_arrays(path, config, length, tolerance, layer_type)
    layers = expect_file(config or target, length)
    main = choose_layer(layers, layer_type)
    if not path.is_dir():
        return judge_code(
            lambda spec, places: observe(target, spec, places), main, tolerance
        )
    module, done = build_rotary(path), {}
    # The class of a model makes tables, which the indexer takes from its layers.
    judged_layers = {"": main}
    if has_layer_types(module):
        judged_layers = {name: layers[name] for name in layers if name != INDEXER}
    for name, expected in judged_layers.items():
        observed = ask_module(
            module, expected.spec, choose_positions(expected), dtype, name
        )
        done[name] = diagnose(observed, expected, tolerance)
    return combine(done)


def check_tolerance(tolerance: float) -> None:
    if not (isinstance(tolerance, Real) and 0 < tolerance < math.inf):
        raise InputError(
            f"tolerance must be a positive number of radians, not {tolerance!r}"
        )


def judge_code(ask: Ask, expected: Expected, tolerance: float) -> Check:
    """Judge a code at its length, and at others, where its scaling is another or must
    not be.
    """
    spec, start, method = (
        expected.spec,
        expected.spec.trained_len,
        type(expected.spec.scaling),
    )
    found = ask(spec, choose_positions(expected))
    done = combine(
        {
            n: diagnose(one, shorten(one, expected), tolerance)
            for n, one in found.items()
        }
    )
    if not done.wrong and expected.sections:
        done = check_axes(done, ask, expected)
    if done.wrong or method is Unscaled:
        return done
    inside, beyond = start // 4 + 1, max(expected.length, min(2 * start, spec.length))
    # Dynamic scaling at no power of two, to which some codes round.
    others = {
        LongRope: {start - 1, start, start + 1},
        DynamicNtk: {inside, 13 * start // 10 + 1},
    }
    lengths = others.get(method, {inside, beyond}) - {expected.length, 1, 2, 3}
    # whether it has had other frequencies at another length
    follows, unseen = False, ""
    for length in sorted(lengths):
        rows = ask_at_length(length, ask, expected)
        follows |= any(
            judge(one, expected, tolerance).wrong for one, _ in rows.values()
        )
        here = combine(
            {n: diagnose(*each, tolerance) for n, each in rows.items()} or {"": done}
        )
        told = any(one.told_length for one, _ in rows.values())
        if here.wrong and (follows or (told and method in others)):
            return replace(here, answer=f"{here.answer} ({length} tokens)")
        if (here.wrong or not rows) and method in others:
            unseen = f"; no other frequencies were seen at {length} tokens"
    return replace(done, answer=done.answer + unseen)


def check_axes(done: Check, ask: Ask, expected: Expected) -> Check:
    """Judge which axis of positions each pair reads, if the code takes several.

    Code that refuses them is not accused: it may merge axes elsewhere.
    """
    names = axis_names(len(expected.sections))
    positions = np.random.default_rng(0).integers(1, 4096, (len(names), 64))
    observed: dict[str, Observed] = {}
    with suppress(Exception):
        observed = ask(expected.spec, positions)
    answers = {
        part: explained.explain_axes(one, expected, positions, names)
        for part, one in observed.items()
    }
    for part, fault in answers.items():
        if fault:
            answer = f"{part}: {fault[0]}" if part else fault[0]
            return replace(done, answer=answer, wrong=True, fix=fault[1])
    if answers:
        judged_too = done.answer.replace(f"; {AXES_NOT_JUDGED}", "")
        return replace(done, answer=f"{judged_too}; axes of positions are right")
    return done


def ask_at_length(
    length: int, ask: Ask, expected: Expected
) -> dict[str, tuple[Observed, Expected]]:
    """Return what a code does among so many tokens, and what it should; nothing if it
    stops.
    """
    places, found = choose_positions(expected), dict[str, Observed]()
    with suppress(Exception):  # a table may end before
        found = ask(expected.spec, np.append(places[places < length - 1], length - 1))
    faulty = any(one.fault for one in found.values())
    # The last row only tells the code how many tokens there are.
    return {
        n: (
            Observed(
                o.positions[:-1],
                o.cos[:-1],
                o.sin[:-1],
                called=o.called,
                told_length=o.told_length,
            ),
            shorten(o, expected),
        )
        for n, o in ({} if faulty else found).items()
    }


def shorten(observed: Observed, expected: Expected) -> Expected:
    """Return what is expected of the tokens asked for, which a whole table limits."""
    return replace(expected, length=int(observed.positions[-1]) + 1)


def check_arrays(
    path: Path,
    config: str,
    length: int | None,
    tolerance: float,
    layer_type: str = "",
) -> Check:
    """Judge tables, or rotated queries and keys, beside what `ropelab vectors` wrote or
    alone.
    """
    about = path.parent / ABOUT
    if config:
        layers = expect_file(config, length)
        expected = choose_layer(layers, layer_type)
    else:
        try:
            facts = parse(str(about), read_regular(about, MOST_BYTES), finite=False)
            length = length or whole(facts["length"], "length")
            expected = expect_config(str(about), facts["config"], length)[
                facts["layer_type"]
            ]
        except (OSError, KeyError, TypeError, ValueError, AttributeError, RefusedError):
            raise InputError(
                f"{about} was not written by ropelab vectors: give --config"
            ) from None
    arrays = stored.read_arrays(path)
    names = {
        name for name in arrays if name[:1] in "qkQK" and name.endswith("_rotated")
    }
    if strange := names - {"q_rotated", "k_rotated"}:
        raise InputError(
            f"{path}: {min(strange)} is not read, call it q_rotated or k_rotated"
        )
    given = sorted(name[0] for name in names)[::-1]  # q first
    found = {name: stored.read_rotated(path, arrays, name, expected) for name in given}
    done = {
        name: check_rotated(*one, expected, tolerance) for name, one in found.items()
    }
    if not found or {"cos", "sin"} <= arrays.keys():
        for *_, places in found.values():
            arrays = {**arrays, "positions": places}
        tables = diagnose(
            stored.read_tables(path, arrays, expected), expected, tolerance
        )
        done["cos and sin" if found else ""] = tables
    return combine(done)


def combine(done: Mapping[str, Check]) -> Check:
    """Return one answer for queries and keys: only what is wrong, and equal answers
    once.
    """
    wrong = {name: one for name, one in done.items() if one.wrong} or done
    # Scores do not see another order of features only if queries and keys share it.
    vectors = [name for name in done if name != "cos and sin"]
    left = {name: rotations.LEFT_IN_HALVES in done[name].answer for name in vectors}
    if wrong is done and len({*left.values()}) == 2:
        one, *_, other = sorted(left, key=lambda name: not left[name])
        answer = (
            f"{one} comes back as halves and {other} as adjacent pairs: no score is"
            " right"
        )
        return replace(
            done[one], answer=answer, wrong=True, fix="leave both in one order"
        )
    names = grouped((one.answer, name) for name, one in wrong.items() if name)
    says = "; ".join(f"{' and '.join(n)}: {answer}" for answer, n in names.items())
    first = next(iter(wrong.values()))
    return replace(first, answer=says or first.answer)


def check_rotated(
    before: Vectors,
    after: Rotated,
    places: Positions,
    expected: Expected,
    tolerance: float,
) -> Check:
    """Judge rotated vectors by what honest codes lose, then by the mistakes that
    explain them.
    """
    spec, right = expected.spec, expected.rotation.applied(before, places)
    bounds = {kind: bound_rotated(expected, kind, before, places) for kind in KINDS}
    orders = {"": after}
    if spec.pairing == "interleaved":
        orders = {
            f"; {rotations.LEFT_IN_HALVES}": rotations.restore_pairs(after, spec)
        } | orders
    for note, given in orders.items():
        apart = np.abs(given - right).max(axis=2)
        errors = np.nan_to_num(apart.max(axis=1), nan=math.inf)
        for kind, bound in bounds.items():
            at = int((errors - bound).argmax())
            if (errors <= bound).all():
                most = (
                    f"{errors[at]:.2g}, allowed {bound[at]:.2g}, at position"
                    f" {places[at]}"
                )
                return Check(
                    f"right, as an honest {kind} code loses as much ({most}){note}",
                    False,
                )
    off = f"off by {errors[at]:.3g} at position {places[at]}"
    off = f"{off}, where an honest {kind} code loses {bound[at]:.3g}; "
    try:
        observed = observe_vectors(before, after, places, spec)
    except InputError as error:  # of vectors that are too few
        return Check(f"{off}{error}", True, "compare position by position")
    wrong = np.flatnonzero((apart > bound[:, None]).any(axis=0))
    # A mistake in pairs shows in every vector, unless it has zeros there.
    dense = (before[..., spec.rotated] != 0).mean(axis=-1).min() > 0.5
    if observed.fault == rotations.NOT_PAIRED and len(wrong) < len(apart[0]) and dense:
        still = np.abs((after - before)[:, wrong]).max() <= rotations.STILL
        how = (
            "not rotated"
            if still
            else "rotated otherwise than the others, which are right"
        )
        which = (
            f"vector{'s' * (len(wrong) > 1)} {', '.join(map(str, wrong))} of"
            f" {len(apart[0])}"
        )
        return Check(f"{which}: {how}", True, "rotate all heads alike")
    if observed.fault is None and 1 not in places:
        return Check(
            f"{off}without position 1 the mistake has no name", True, "add position 1"
        )
    done = diagnose(observed, expected, tolerance)
    return done if done.wrong else replace(done, answer=off + done.answer, wrong=True)


def diagnose(observed: Observed, expected: Expected, tolerance: float) -> Check:
    done = judge(observed, expected, tolerance)
    if not done.wrong and observed.between is not None:
        fault = explained.explain_further(observed.between, expected, tolerance)
        done = (
            replace(done, answer=fault[0], wrong=True, fix=fault[1]) if fault else done
        )
    return replace(done, called=observed.called)


def judge(observed: Observed, expected: Expected, tolerance: float) -> Check:
    if not (
        rotations.are_bounded(observed.cos) and rotations.are_bounded(observed.sin)
    ):
        return Check(
            "tables hold numbers that are not finite", True, "see how they are made"
        )
    spec, wanted = expected.spec, expected.rotation.tables(observed.positions)
    blocks = observed.blocks
    drift = explained.explain_drift(observed)
    if observed.fault == rotations.NOT_FINITE and drift:
        return Check(drift, True, explained.NO_DRIFT)
    fault = observed.fault or (
        None if blocks is None else explain_blocks(blocks, wanted)
    )
    fault = fault or explained.explain_tables(observed, expected)
    if fault := fault or explained.explain_positions(observed, expected):
        return Check(fault[0], True, fault[1])
    rows = (
        compare_casts(observed, expected)
        if observed.cos.shape == wanted[0].shape
        else []
    )
    tables = {"casts": rows}
    # A cast that fits explains frequencies that are off, but for float32, which is no
    # mistake.
    cast = (
        bool(rows)
        and rows[0]["mean_difference"] < 1e-3
        and rows[0]["cast"] != "float32"
    )
    fault = explained.explain_uneven_gain(observed)  # angles of such tables say nothing
    fault = fault or (
        None if cast else explained.explain_frequencies(observed, expected)
    )
    if fault := fault or explained.explain_gain(observed.gain, spec):
        return Check(fault[0], True, fault[1], rows=tables)

    off = (
        np.arctan2(observed.sin, observed.cos)
        - expected.inv_freq * observed.positions[:, None]
    )
    errors, honest = (
        np.abs(explained.wrap_angles(off)),
        expected.budget().angles(observed.positions),
    )
    beyond = np.flatnonzero((~(errors <= tolerance + honest)).any(axis=1))
    if not rows:
        answer = f"cos and sin times {spec.attention_factor:g} overflow float32"
        return Check(answer, True, "a smaller attention factor")
    best = rows[0]["cast"]
    if not beyond.size:
        largest = max(tolerance, float(errors.max()))
        within = f"within {largest:.2g} rad up to position {observed.positions.max()}"
        parts = (within, f"nearest to {best}", observed.note, expected.note)
        return Check("; ".join(filter(None, parts)), False, rows=tables)
    first = int(observed.positions[beyond].min())
    worst = np.unravel_index((errors - honest).argmax(), errors.shape)
    off_by = (
        f"off by {errors[worst]:.3g} rad, more than {tolerance:g} rad from position"
        f" {first}"
    )
    fix = "form angles in float32 and round only the table"
    distances = {row["cast"]: row["mean_difference"] for row in rows}
    unexplained = distances[best] > distances["float32"] / 2
    # A table's format explains no error of an angle.
    if unexplained or (best.startswith("table in ") and "float8" not in best):
        if period := explained.explain_period(off, observed, expected, tolerance):
            best, fix = f"{LARGE_ARGUMENTS} ({period})", REDUCE
        elif unexplained and explained.are_summed(observed, expected, tolerance):
            best = "angles are summed in float32 from token to token"
            fix = "angle = position * inv_freq"
        elif unexplained:
            best = "no known rounding explains it"
            fix = "compare angles position by position"
    return Check(f"{best}: {off_by}", True, fix, rows=tables)


def compare_casts(observed: Observed, expected: Expected) -> list[dict[str, Any]]:
    """Return a row per cast plan, nearest first: mean distance of its tables from the
    observed.
    """
    spectrum, gain = expected.budget().spectrum, expected.spec.attention_factor
    rows: list[dict[str, Any]] = []
    for name, plan in list_plans().items():
        angles = Chain(plan, spectrum).angles(observed.positions.astype(np.float64)).T
        # Every observed number is finite, so that no plan overflows (float16 does at
        # 65520).
        if not np.isfinite(angles).all():
            continue
        cos, sin = (round_to(gain * f(angles), plan.table) for f in (np.cos, np.sin))
        apart = float(
            np.abs(observed.cos - cos).mean() + np.abs(observed.sin - sin).mean()
        )
        if math.isfinite(apart):
            rows.append({"cast": name, "mean_difference": apart})
    return sorted(rows, key=lambda row: row["mean_difference"])


def list_plans() -> dict[str, CastPlan]:
    """Return float32 throughout, and the same with one or two stages in a smaller
    format.
    """
    stages: dict[str, Any] = dict.fromkeys(CASTS, FORMATS["float32"])
    clean = CastPlan(**stages, frequencies="float32_pow")
    rounded: dict[str, tuple[str, ...]] = {stage: (stage,) for stage in CASTS}
    rounded |= {f"{stage} and table": (stage, "table") for stage in CASTS[:-1]}
    found = {"float32": clean}
    for name in ("float8_e4m3fn", "float8_e5m2"):
        found[f"table in {name}"] = replace(clean, table=FORMATS[name])
    for name, what in product(explained.HALF_FORMATS, [*rounded, "everything"]):
        changes: dict[str, Any] = dict.fromkeys(rounded.get(what, CASTS), FORMATS[name])
        found[f"{what} in {name}"] = replace(clean, **changes)
    return found
