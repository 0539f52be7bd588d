"""Compare a rotary code with its configuration, and explain the difference.

The first of these that is wrong is the answer: numbers that are not finite, pairs and
their place, blocks that are no rotation, swapped tables, positions, rotated width,
frequencies, factor on cos and sin, casts.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ropelab.conformance import axes, axes_sheet, explained, rotations, stored
from ropelab.conformance.expected import (
    AXES_NOT_JUDGED,
    Expected,
    choose_layer,
    choose_positions,
    expect_config,
    expect_file,
)
from ropelab.conformance.frequencies import explain_frequencies
from ropelab.conformance.observed import (
    ask_module,
    build_rotary,
    has_layer_types,
    observe,
)
from ropelab.conformance.positions import explain_positions
from ropelab.conformance.prompts import Segment, read_segments
from ropelab.conformance.rotations import (
    Fault,
    Observed,
    Positions,
    Rotated,
    Table,
    Vectors,
    explain_blocks,
    observe_vectors,
)
from ropelab.conformance.vectors import ABOUT, bound_rotated, make_vectors
from ropelab.math.numerics.budget import KINDS
from ropelab.math.numerics.casts import STAGES, CastPlan
from ropelab.math.numerics.chain import Chain
from ropelab.math.numerics.formats import FORMATS, round_to
from ropelab.math.scaling import DynamicNtk, LongRope, Unscaled
from ropelab.readers.axes import VISION, read_prompt_rule
from ropelab.readers.document import load
from ropelab.readers.extra_rotations import EXTRA_ROTATIONS
from ropelab.readers.spec import RefusedError, RopeSpec, whole
from ropelab.runs.arrays import Bool
from ropelab.runs.errors import InputError
from ropelab.runs.files import MOST_BYTES, parse, read_regular
from ropelab.runs.rows import Result, Rows, group_pairs
from ropelab.runs.sentences import join_names

# The stages that a table shows: position, inv_freq, angle, table.
CASTS = STAGES[:4]
LARGE_ARGUMENTS = "sin and cos of large arguments"
REDUCE = "reduce angles by 2 pi in float64, or in three terms with fma"
Ask = Callable[[RopeSpec, Positions], dict[str, Observed]]
# The name of a part of an answer, what was seen of it, and what should be.
Part = tuple[str, Observed, Expected]


@dataclass(frozen=True)
class Check(Result):
    """The answer and the advice; a row per cast plan, by how near its tables are."""

    answer: str
    wrong: bool
    fix: str = ""
    # The user's function, with what it was given.
    called: str = ""
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
    is_folder = path.is_dir()
    is_arrays = path.suffix in stored.SUFFIXES and not is_folder
    if dtype != "float32" and not is_folder:
        raise InputError(
            "--dtype is for a model's folder: all else has numbers of its own"
        )
    beside_kit = is_arrays and (path.parent / ABOUT).is_file()
    if not (config or is_folder or beside_kit):
        raise InputError("which configuration should it follow? give --config FILE")

    if is_arrays:
        return check_arrays(path, config, length, tolerance, layer_type)
    layers = expect_file(config or target, length)
    main = choose_layer(layers, layer_type)
    if is_folder:
        return check_folder(path, layers, main, dtype, tolerance)

    def ask(spec: RopeSpec, positions: Positions) -> dict[str, Observed]:
        return observe(target, spec, positions)

    return judge_code(ask, main, tolerance)


def check_tolerance(tolerance: float) -> None:
    if not (isinstance(tolerance, Real) and 0 < tolerance < math.inf):
        raise InputError(
            f"tolerance must be a positive number of radians, not {tolerance!r}"
        )


def check_folder(
    folder: Path,
    layers: Mapping[str, Expected],
    main: Expected,
    dtype: str,
    tolerance: float,
) -> Check:
    """Judge transformers' own rotary class, built from the folder's config.json."""
    if main.is_of_images:
        return check_encoder(folder, main, dtype)
    module = build_rotary(folder)
    judged = {"": main}
    if has_layer_types(module):
        # The class makes tables for the layers; an indexer and compressed keys take
        # theirs from these.
        others = (*EXTRA_ROTATIONS, VISION)
        judged = {name: layers[name] for name in layers if name not in others}

    checks = {}
    for name, expected in judged.items():
        checks[name] = check_class(module, expected, dtype, tolerance, name)
    done = combine(checks)
    if VISION not in layers or done.wrong:
        return done

    of_images = check_encoder(folder, layers[VISION], dtype)
    answer = of_images.answer
    if not of_images.wrong:
        answer = f"{done.answer}; {answer}"
    return replace(done, answer=answer, wrong=of_images.wrong, fix=of_images.fix)


def check_class(
    module: Any,
    expected: Expected,
    dtype: str,
    tolerance: float,
    layer: str,
) -> Check:
    """Judge a rotary class of transformers, for layers of one type."""

    def ask(spec: RopeSpec, positions: np.ndarray) -> dict[str, Observed]:
        return {"": ask_module(module, spec, positions, dtype, layer)}

    positions = choose_positions(expected)
    observed = ask_module(module, expected.spec, positions, dtype, layer)
    done = diagnose(observed, expected, tolerance)
    if expected.spec.axes:
        return check_axes(done, ask, expected)
    return done


def check_encoder(folder: Path, expected: Expected, dtype: str) -> Check:
    """Judge transformers' rotary class of an encoder of images."""
    module = build_rotary(folder, vision=True)

    def ask(spec: RopeSpec, positions: np.ndarray) -> dict[str, Observed]:
        return {"": ask_module(module, spec, positions, dtype)}

    return check_images(ask, expected)


def judge_code(ask: Ask, expected: Expected, tolerance: float) -> Check:
    """Judge a code at its length, and at others.

    There its scaling is another, or must not be.
    """
    if expected.is_of_images:
        return check_images(ask, expected)
    positions = choose_positions(expected)
    parts = []
    for part, observed in ask(expected.spec, positions).items():
        parts.append((part, observed, limit_length(observed, expected)))
    done = judge_parts(parts, tolerance)

    if expected.spec.axes:
        done = check_axes(done, ask, expected)
    if done.wrong or isinstance(expected.spec.scaling, Unscaled):
        return done
    return judge_other_lengths(done, ask, expected, tolerance)


def judge_parts(parts: Iterable[Part], tolerance: float) -> Check:
    """Judge each part of an answer, as queries and keys, and combine what is said."""
    checks = {}
    for part, observed, expected in parts:
        checks[part] = diagnose(observed, expected, tolerance)
    return combine(checks)


def judge_other_lengths(
    done: Check,
    ask: Ask,
    expected: Expected,
    tolerance: float,
) -> Check:
    """Judge a code that is right at its length at the others that its scaling has."""
    by_length = isinstance(expected.spec.scaling, LongRope | DynamicNtk)
    # Whether it has had other frequencies at another length.
    follows = False
    unseen = ""
    for length in list_lengths(expected):
        parts = ask_at_length(length, ask, expected)
        is_told = False
        for _, observed, _ in parts:
            if judge(observed, expected, tolerance).wrong:
                follows = True
            if by_length and observed.told_length:
                is_told = True

        here = done
        if parts:
            here = judge_parts(parts, tolerance)
        if here.wrong and (follows or is_told):
            return replace(here, answer=f"{here.answer} ({length} tokens)")
        if by_length and (here.wrong or not parts):
            unseen = f"; no other frequencies were seen at {length} tokens"
    return replace(done, answer=done.answer + unseen)


def list_lengths(expected: Expected) -> list[int]:
    """Return further lengths at which a scaling shows, or must not."""
    spec = expected.spec
    start = spec.trained_len
    inside = start // 4 + 1
    if isinstance(spec.scaling, LongRope):
        lengths = {start - 1, start, start + 1}
    elif isinstance(spec.scaling, DynamicNtk):
        # No power of two, to which some codes round; common slips differ there.
        lengths = {inside, 13 * start // 10 + 1}
    else:
        lengths = {inside, max(expected.length, min(2 * start, spec.length))}
    return sorted(lengths - {expected.length, 1, 2, 3})


def check_axes(done: Check, ask: Ask, expected: Expected) -> Check:
    """Judge which axis of positions each pair reads, if the code takes several.

    Code that refuses them is not accused: it may merge axes elsewhere. Of a code that is
    wrong for text, too, the ladder of an axis may be the reason.
    """
    positions = axes.choose_positions(expected, is_grid=False)
    try:
        parts = ask(expected.spec, positions)
    # The user's code may raise anything.
    except Exception:
        return done

    explain = axes.explain_ladder if done.wrong else axes.explain_movement
    for part, observed in parts.items():
        fault = observed.fault
        if not fault:
            fault = explain(observed, expected, positions)
        if fault and not (observed.fault and done.wrong):
            return accuse(done, part, fault)
    if done.wrong or not parts:
        return done
    judged_too = done.answer.replace(f"; {AXES_NOT_JUDGED}", "")
    untold: set[int] = set()
    for observed in parts.values():
        untold.update(axes.find_untold_pairs(observed, expected, positions))
    exception = axes.describe_untold(sorted(untold), positions)
    answer = f"{judged_too}; axes of positions are right{exception}"
    return replace(done, answer=answer)


def accuse(done: Check, part: str, fault: Fault) -> Check:
    """Return an answer with what is wrong in a part, as queries or keys."""
    answer, fix = fault
    if part:
        answer = f"{part}: {answer}"
    return replace(done, answer=answer, wrong=True, fix=fix)


def check_images(ask: Ask, expected: Expected) -> Check:
    """Judge a code of an encoder of images, by rows and columns of patches.

    All patches of an image come first; code that takes positions has others, too.
    """
    spec = expected.spec
    grid = axes.choose_positions(expected, is_grid=True)
    done = judge_images(ask(spec, grid), expected, grid)
    if done.wrong or (spec.axes and spec.axes.centred):
        return done

    scattered = axes.choose_positions(expected, is_grid=False)
    try:
        parts = ask(spec, scattered)
    # A table may end before, or the code takes whole images alone.
    except Exception:
        return done
    if not parts:
        return done
    return judge_images(parts, expected, scattered)


def judge_images(
    parts: Mapping[str, Observed],
    expected: Expected,
    positions: np.ndarray,
) -> Check:
    spec = expected.spec
    assert spec.axes is not None
    names = " and ".join(spec.axes.names)
    right = f"{names} move their pairs at {positions.shape[1]} patches"
    checks = {}
    for part, observed in parts.items():
        is_finite = rotations.are_bounded(observed.cos)
        fault = observed.fault
        if not (is_finite and rotations.are_bounded(observed.sin)):
            fault = rotations.NOT_FINITE
        if not fault:
            fault = axes.explain_movement(observed, expected, positions)
        if fault:
            answer, fix = fault
            checks[part] = Check(answer, True, fix, called=observed.called)
        else:
            untold = axes.find_untold_pairs(observed, expected, positions)
            answer = right + axes.describe_untold(untold, positions)
            checks[part] = Check(answer, False, called=observed.called)
    return combine(checks)


def ask_at_length(length: int, ask: Ask, expected: Expected) -> list[Part]:
    """Return what a code does among so many tokens, and what it should.

    It is empty if the code stops.
    """
    positions = choose_positions(expected)
    last = length - 1
    inside = positions[positions < last]
    try:
        answers = ask(expected.spec, np.append(inside, last))
    # A table may end before.
    except Exception:
        return []

    parts: list[Part] = []
    for part, observed in answers.items():
        if observed.fault:
            return []
        # The last row only tells the code how many tokens there are.
        rows = Observed(
            observed.positions[:-1],
            observed.cos[:-1],
            observed.sin[:-1],
            called=observed.called,
            told_length=observed.told_length,
        )
        parts.append((part, rows, limit_length(observed, expected)))
    return parts


def limit_length(observed: Observed, expected: Expected) -> Expected:
    """Return what is expected of the tokens asked for, which a whole table limits."""
    return replace(expected, length=int(observed.positions[-1]) + 1)


def check_arrays(
    path: Path,
    config: str,
    length: int | None,
    tolerance: float,
    layer_type: str = "",
) -> Check:
    """Judge tables, or rotated queries and keys.

    They stand beside what `ropelab vectors` wrote, or alone.
    """
    if config:
        expected = choose_layer(expect_file(config, length), layer_type)
        whole = load(config, images=True).config
        prompt: list[Segment] = []
    else:
        expected, whole, prompt = expect_kit(path.parent / ABOUT, length)
    arrays = stored.read_arrays(path)

    checks = check_stored_axes(path, arrays, expected, whole, prompt)
    if any(part.endswith(axes_sheet.AT_AXES) for part in checks):
        expected = replace(expected, note="")
    if checks:
        of_axes = {*axes_sheet.take_axes(arrays), "positions"}
        if arrays.get("positions", np.empty(0)).ndim == 2:
            of_axes |= {*axes_sheet.PLAIN}
        arrays = {name: array for name, array in arrays.items() if name not in of_axes}
        if not {"cos", "sin", "q_rotated", "k_rotated"} & arrays.keys():
            return combine(checks)
    positions = None
    for name in list_rotated(path, arrays):
        before, after, positions = stored.read_rotated(path, arrays, name, expected)
        checks[name] = check_rotated(before, after, positions, expected, tolerance)

    if not checks or {"cos", "sin"} <= arrays.keys():
        if positions is not None:
            arrays = {**arrays, "positions": positions}
        tables = stored.read_tables(path, arrays, expected)
        part = "cos and sin" if checks else ""
        checks[part] = diagnose(tables, expected, tolerance)
    return combine(checks)


def check_stored_axes(
    path: Path,
    arrays: Mapping[str, np.ndarray],
    expected: Expected,
    config: Mapping[str, Any],
    prompt: Sequence[Segment],
) -> dict[str, Check]:
    """Judge what an engine wrote at positions of several axes, and position ids."""
    taken = axes_sheet.take_axes(arrays)
    has_names = any(name not in axes_sheet.PLAIN for name in taken.keys() & arrays)
    if not taken or (expected.spec.axes is None and not has_names):
        return {}
    if expected.spec.axes is None:
        raise InputError(
            f"{path} has positions of several axes, and the configuration has one, or"
            " nobody looked at which pairs they move"
        )

    rule = read_prompt_rule(config)
    vectors = make_vectors(expected.spec)
    found = axes_sheet.explain_stored(path, taken, expected, vectors, rule, prompt)
    checks = {}
    for part, (fault, answer) in found.items():
        checks[part] = Check(answer, False)
        if fault:
            answer, fix = fault
            checks[part] = Check(answer, True, fix)
    return checks


def expect_kit(
    about: Path,
    length: int | None,
) -> tuple[Expected, Mapping[str, Any], list[Segment]]:
    """Return what `ropelab vectors` wrote its files for.

    That is the rotation, the configuration, and the parts of a prompt, if it has one.
    """
    try:
        facts = parse(str(about), read_regular(about, MOST_BYTES), finite=False)
        length = length or whole(facts["length"], "length")
        layers = expect_config(str(about), facts["config"], length)
        prompt = read_segments(facts.get("prompt", ()))
        return layers[facts["layer_type"]], facts["config"], prompt
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RefusedError):
        raise InputError(
            f"{about} was not written by ropelab vectors: give --config"
        ) from None


def list_rotated(path: Path, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Return which of q and k a file has rotations of, q first."""
    names = set()
    for name in arrays:
        if name[:1] in "qkQK" and name.endswith("_rotated"):
            names.add(name)
    strange = names - {"q_rotated", "k_rotated"}
    if strange:
        raise InputError(
            f"{path}: {min(strange)} is not read, call it q_rotated or k_rotated"
        )
    return [name for name in ("q", "k") if f"{name}_rotated" in names]


def combine(checks: Mapping[str, Check]) -> Check:
    """Return one answer for queries and keys.

    It has only what is wrong, and equal answers once.
    """
    reported = {part: check for part, check in checks.items() if check.wrong}
    if not reported:
        mixed = explain_mixed_orders(checks)
        if mixed:
            return mixed
        reported = dict(checks)

    first = next(iter(reported.values()))
    named = [(check.answer, part) for part, check in reported.items() if part]
    answers = []
    for answer, parts in group_pairs(named).items():
        answers.append(f"{join_parts(parts)}: {answer}")
    if not answers:
        return first
    return replace(first, answer="; ".join(answers))


def join_parts(parts: Sequence[str]) -> str:
    """Return the names of parts, and once that they are at several axes."""
    ending = axes_sheet.AT_AXES
    if all(part.endswith(ending) for part in parts):
        return join_names([part.removesuffix(ending) for part in parts]) + ending
    return join_names(parts)


def explain_mixed_orders(checks: Mapping[str, Check]) -> Check | None:
    """Name queries and keys in different orders of features.

    No score of them is right.
    """
    halves: list[str] = []
    pairs: list[str] = []
    for part, check in checks.items():
        if part == "cos and sin":
            continue
        if rotations.LEFT_IN_HALVES in check.answer:
            halves.append(part)
        else:
            pairs.append(part)
    if not (halves and pairs):
        return None
    answer = (
        f"{halves[0]} comes back as halves and {pairs[-1]} as adjacent pairs: no score"
        " is right"
    )
    fix = "leave both in one order"
    return replace(checks[halves[0]], answer=answer, wrong=True, fix=fix)


def check_rotated(
    before: Vectors,
    after: Rotated,
    places: Positions,
    expected: Expected,
    tolerance: float,
) -> Check:
    """Judge rotated vectors by what honest codes lose, then by known mistakes.

    Args:
        before: [vectors, features], or such at each position.
        after: [positions, vectors, features].
        places: the positions.
        expected: what a right code computes.
        tolerance: radians that a phase may be off beyond what float32 loses.
    """
    spec = expected.spec
    bounds = {kind: bound_rotated(expected, kind, before, places) for kind in KINDS}
    right = expected.rotation.apply(before, places)
    orders = {"": after}
    if spec.pairing == "interleaved":
        halves = rotations.restore_pairs(after, spec)
        orders = {f"; {rotations.LEFT_IN_HALVES}": halves, "": after}

    # What follows the loops is said of the last order and the widest bound.
    for note, given in orders.items():
        errors_of_vectors = np.abs(given - right).max(axis=2)
        errors = errors_of_vectors.max(axis=1)
        errors = np.nan_to_num(errors, nan=math.inf)
        for kind, bound in bounds.items():
            worst = int((errors - bound).argmax())
            if (errors <= bound).all():
                most = (
                    f"{errors[worst]:.2g}, allowed {bound[worst]:.2g}, at position"
                    f" {places[worst]}"
                )
                answer = f"right, as an honest {kind} code loses as much ({most}){note}"
                return Check(answer, False)
    off = (
        f"off by {errors[worst]:.3g} at position {places[worst]}, where an honest"
        f" {kind} code loses {bound[worst]:.3g}; "
    )

    try:
        observed = observe_vectors(before, after, places, spec)
    # The vectors may be too few.
    except InputError as error:
        return Check(f"{off}{error}", True, "compare position by position")
    if observed.fault == rotations.NOT_PAIRED:
        wrong = (errors_of_vectors > bound[:, None]).any(axis=0)
        some_are_wrong = explain_some_vectors(before, after, wrong, expected)
        if some_are_wrong:
            return some_are_wrong
    if observed.fault is None and 1 not in places:
        answer = f"{off}without position 1 the mistake has no name"
        return Check(answer, True, "add position 1")

    done = diagnose(observed, expected, tolerance)
    if done.wrong:
        return done
    return replace(done, answer=off + done.answer, wrong=True)


def explain_some_vectors(
    before: Vectors,
    after: Rotated,
    wrong: Bool[np.ndarray, " vectors"],
    expected: Expected,
) -> Check | None:
    """Name the vectors (heads) that are wrong beside others that are right."""
    # A mistake in pairs shows in every vector, unless it has zeros there.
    rotated = before[..., expected.spec.rotated]
    is_dense = (rotated != 0).mean(axis=-1).min() > 0.5
    if wrong.all() or not is_dense:
        return None

    how = "rotated otherwise than the others, which are right"
    changes = np.abs((after - before)[:, wrong])
    if changes.max() <= rotations.STILL:
        how = "not rotated"
    numbers = [str(number) for number in np.flatnonzero(wrong)]
    vectors = "vector" if len(numbers) == 1 else "vectors"
    which = f"{vectors} {', '.join(numbers)} of {len(wrong)}"
    return Check(f"{which}: {how}", True, "rotate all heads alike")


def diagnose(observed: Observed, expected: Expected, tolerance: float) -> Check:
    """Name the first thing that is wrong, also at further positions."""
    done = judge(observed, expected, tolerance)
    if not done.wrong and observed.between is not None:
        fault = explained.explain_further(observed.between, expected, tolerance)
        if fault:
            answer, fix = fault
            done = replace(done, answer=answer, wrong=True, fix=fix)
    return replace(done, called=observed.called)


def judge(observed: Observed, expected: Expected, tolerance: float) -> Check:
    """Name the first thing that is wrong at the positions that are looked at."""
    is_finite = rotations.are_bounded(observed.cos)
    is_finite = is_finite and rotations.are_bounded(observed.sin)
    if not is_finite:
        return Check(
            "tables hold numbers that are not finite", True, "see how they are made"
        )
    fault = explain_shape(observed, expected)
    if fault:
        answer, fix = fault
        return Check(answer, True, fix)

    right_cos, _ = expected.rotation.tables(observed.positions)
    rows = []
    if observed.cos.shape == right_cos.shape:
        rows = compare_casts(observed, expected)
    fault = explain_numbers(observed, expected, rows)
    if fault:
        answer, fix = fault
        return Check(answer, True, fix, rows={"casts": rows})
    if not rows:
        answer = (
            f"cos and sin times {expected.spec.attention_factor:g} overflow float32"
        )
        return Check(answer, True, "a smaller attention factor")
    return judge_angles(observed, expected, tolerance, rows)


def explain_shape(observed: Observed, expected: Expected) -> Fault | None:
    """Name faults of pairs, blocks and tables, and of positions."""
    fault = observed.fault
    if fault == rotations.NOT_FINITE:
        # What it does before may tell why.
        drift = explained.explain_drift(observed)
        if drift:
            fault = (drift, explained.NO_DRIFT)
    if fault is None and observed.blocks is not None:
        right = expected.rotation.tables(observed.positions)
        fault = explain_blocks(observed.blocks, right)
    return (
        fault
        or explained.explain_tables(observed, expected)
        or explain_positions(observed, expected)
    )


def explain_numbers(
    observed: Observed,
    expected: Expected,
    rows: list[dict[str, Any]],
) -> Fault | None:
    """Name faults of factors and frequencies."""
    # Angles of tables with uneven factors say nothing.
    fault = explained.explain_uneven_gain(observed)
    if fault:
        return fault

    # A cast that fits explains frequencies that are off, but for float32, which is no
    # mistake.
    is_cast = False
    if rows:
        nearest = rows[0]
        fits = nearest["mean_difference"] < 1e-3
        is_cast = fits and nearest["cast"] != "float32"
    if not is_cast:
        fault = explain_frequencies(observed, expected)
    return fault or explained.explain_gain(observed.gain, expected.spec)


def judge_angles(
    observed: Observed,
    expected: Expected,
    tolerance: float,
    rows: list[dict[str, Any]],
) -> Check:
    """Compare angles with what float32 may lose, and name the stage that loses more."""
    angles = expected.inv_freq * observed.positions[:, None]
    off = np.arctan2(observed.sin, observed.cos) - angles
    errors = np.abs(explained.wrap_angles(off))
    honest = expected.budget().angles(observed.positions)
    is_within = (errors <= tolerance + honest).all(axis=1)
    beyond = np.flatnonzero(~is_within)
    if not beyond.size:
        largest = max(tolerance, float(errors.max()))
        within = f"within {largest:.2g} rad up to position {observed.positions.max()}"
        nearest = f"nearest to {rows[0]['cast']}"
        parts = (within, nearest, observed.note, expected.note)
        answer = "; ".join(part for part in parts if part)
        return Check(answer, False, rows={"casts": rows})

    first = int(observed.positions[beyond].min())
    worst = np.unravel_index((errors - honest).argmax(), errors.shape)
    stage, fix = name_stage(off, observed, expected, tolerance, rows)
    answer = (
        f"{stage}: off by {errors[worst]:.3g} rad, more than {tolerance:g} rad from"
        f" position {first}"
    )
    return Check(answer, True, fix, rows={"casts": rows})


def name_stage(
    off: Table,
    observed: Observed,
    expected: Expected,
    tolerance: float,
    rows: list[dict[str, Any]],
) -> Fault:
    """Return the stage that loses the angles, and what to do."""
    best = rows[0]["cast"]
    distances = {row["cast"]: row["mean_difference"] for row in rows}
    is_unexplained = distances[best] > distances["float32"] / 2
    # A table's format explains no error of an angle, unless it has 8 bits.
    is_table = best.startswith("table in ") and "float8" not in best
    period = ""
    if is_unexplained or is_table:
        period = explained.explain_period(off, observed, expected, tolerance)
    if period:
        return f"{LARGE_ARGUMENTS} ({period})", REDUCE
    if not is_unexplained:
        return best, "form angles in float32 and round only the table"
    if explained.are_summed(observed, expected, tolerance):
        answer = "angles are summed in float32 from token to token"
        return answer, "angle = position * inv_freq"
    return "no known rounding explains it", "compare angles position by position"


def compare_casts(observed: Observed, expected: Expected) -> list[dict[str, Any]]:
    """Return the mean distance of each cast plan's tables from the observed ones.

    There is a row per plan, the nearest first.
    """
    spectrum = expected.budget().spectrum
    gain = expected.spec.attention_factor
    positions = observed.positions.astype(np.float64)
    rows: list[dict[str, Any]] = []
    for name, plan in list_plans().items():
        angles = Chain(plan, spectrum).angles(positions).T
        # Every observed number is finite, so that no plan overflows (float16 does at
        # 65520).
        if not np.isfinite(angles).all():
            continue
        cos = round_to(gain * np.cos(angles), plan.table)
        sin = round_to(gain * np.sin(angles), plan.table)
        cos_difference = np.abs(observed.cos - cos).mean()
        sin_difference = np.abs(observed.sin - sin).mean()
        difference = float(cos_difference + sin_difference)
        if math.isfinite(difference):
            rows.append({"cast": name, "mean_difference": difference})
    return sorted(rows, key=lambda row: row["mean_difference"])


def list_plans() -> dict[str, CastPlan]:
    """Return float32 throughout, and the same with some stages in a smaller format."""
    stages: dict[str, Any] = dict.fromkeys(CASTS, FORMATS["float32"])
    clean = CastPlan(**stages, frequencies="float32_pow")
    plans = {"float32": clean}
    for name in ("float8_e4m3fn", "float8_e5m2"):
        plans[f"table in {name}"] = replace(clean, table=FORMATS[name])

    rounded: dict[str, tuple[str, ...]] = {stage: (stage,) for stage in CASTS}
    for stage in CASTS[:-1]:
        rounded[f"{stage} and table"] = (stage, "table")
    rounded["everything"] = CASTS

    for name in explained.HALF_FORMATS:
        for what, parts in rounded.items():
            changes: dict[str, Any] = dict.fromkeys(parts, FORMATS[name])
            plans[f"{what} in {name}"] = replace(clean, **changes)
    return plans
