"""Codes whose positions have several axes: what moves each pair, and known mistakes.

Text has equal positions on all axes, so that it passes whichever pair reads which. Here
one axis moves at a time, then all by random numbers, and the tables that a code gave
are compared with those of every mistake below.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, permutations

import numpy as np

from ropelab.conformance.expected import Expected
from ropelab.conformance.explained import FACTORS, SAME_POSITION, USUAL
from ropelab.conformance.rotations import Fault, Observed, Pairs, Table
from ropelab.math.axes import Arrangement, Axes, Ladder, Positions, describe_pairs
from ropelab.math.frequencies import inverse_frequencies
from ropelab.readers.spec import RopeSpec
from ropelab.runs.arrays import Float
from ropelab.runs.sentences import join_names, write_number

Coordinates = Float[np.ndarray, "axes n"]
# Rows and columns of patches, both even, as encoders that merge 2 x 2 patches need.
GRID = (12, 28)
# Patches along a side of the blocks in which such encoders order patches.
BLOCK = 2
# Steps along one axis alone, from the first position, and the positions behind them.
STEPS = (1, 7, 61, 509)
START = (5, 3, 2)
RANDOM = 64
FARTHEST = 4096
# Tokens of the longest text in which slow pairs are looked at: codes may make a table of
# so many rows.
LONGEST = 2**18
# Radians per step by which a pair's measured movement may be off.
CLOSE = 1e-3
# A pair reads an axis if its tables are so many times nearer to those of that axis than
# the tables of the two axes are to each other.
CLEAR = 4
SHIFTS = (1.0, -1.0, 0.5, -0.5)
ARRANGEMENTS: dict[Arrangement, str] = {
    "runs": "come in runs of pairs",
    "turns": "take turns",
    "last behind": "take turns but for the last, which follows",
}


@dataclass(frozen=True)
class Movement:
    """What a code with one mistake computes."""

    answer: str
    fix: str
    axis_of_pair: Sequence[int]
    inv_freq: Pairs
    coordinates: Coordinates

    @property
    def angles(self) -> Table:
        return self.coordinates[list(self.axis_of_pair)].T * self.inv_freq


def choose_positions(expected: Expected, is_grid: bool) -> Positions:
    """Return positions [axes, n]: one axis moves at a time, then all.

    ``is_grid``: the patches of an image row by row instead.
    """
    spec = expected.spec
    axes = spec.axes
    assert axes is not None
    if is_grid:
        return np.indices(GRID).reshape(2, -1)

    # Encoders of images may have tables of the rows and columns that they were made
    # for. Texts go on to their claimed length, where the slowest pairs move.
    end = min(FARTHEST, spec.trained_len)
    farthest = end
    if axes.count == 3:
        end = FARTHEST
        farthest = max(end, min(expected.length, LONGEST))

    start = np.array(START[: axes.count])[:, None]
    columns = [start]
    for axis in range(axes.count):
        for step in list_steps(farthest):
            moved = start.copy()
            moved[axis] += step
            if moved.max() < farthest:
                columns.append(moved)
    random = np.random.default_rng(0)
    columns.append(random.integers(0, end, (axes.count, RANDOM)))
    return np.concatenate(columns, axis=1)


def list_steps(farthest: int) -> tuple[int, ...]:
    """Return the steps along one axis; the last leads to the end of the text."""
    last = farthest - 1 - max(START)
    if last <= STEPS[-1]:
        return STEPS
    return (*STEPS, last)


@dataclass(frozen=True)
class Reference:
    """What a right code computes at some positions, and how far off it may be."""

    spec: RopeSpec
    inv_freq: Pairs
    positions: Positions
    # The largest differences of cos and sin that float32 and small formats explain.
    allowed: Table

    @property
    def axes(self) -> Axes:
        axes = self.spec.axes
        assert axes is not None
        return axes

    @property
    def coordinates(self) -> Coordinates:
        return self.axes.coordinates(self.positions)

    @property
    def angles(self) -> Table:
        return self.axes.angles(self.positions, self.inv_freq)

    def is_like(self, observed: Observed, angles: Table) -> bool:
        """Return True for the cos and sin of these angles, rounded as tables may be."""
        if observed.cos.shape != angles.shape:
            return False
        differences = measure_differences(observed, angles, self.spec.attention_factor)
        return bool((differences <= self.allowed).all())


def make_reference(expected: Expected, positions: Positions) -> Reference:
    """Return what should be at these positions; far ones lose digits in float32."""
    axes = expected.spec.axes
    assert axes is not None
    budget = expected.budget()
    of_axes = [budget.angles(np.abs(row)) for row in axes.coordinates(positions)]
    lost = np.max(of_axes, axis=0)
    allowed = (SAME_POSITION + lost) * expected.spec.attention_factor
    return Reference(expected.spec, expected.inv_freq, positions, allowed)


def measure_differences(observed: Observed, angles: Table, factor: float) -> Table:
    """Return how far cos or sin, the farther one, is from that of these angles."""
    cos_difference = np.abs(observed.cos - factor * np.cos(angles))
    sin_difference = np.abs(observed.sin - factor * np.sin(angles))
    return np.maximum(cos_difference, sin_difference)


def explain_movement(
    observed: Observed,
    expected: Expected,
    positions: Positions,
) -> Fault | None:
    """Name pairs that move with another axis, or by other angles, than they should."""
    right = make_reference(expected, positions)
    columns = observed.cos.shape[1]
    if columns != len(right.inv_freq):
        answer = f"{columns} columns for {len(right.inv_freq)} pairs"
        return answer, "one column per pair, or each angle twice"

    for placed in list_right_orders(right):
        if right.is_like(observed, placed.angles):
            return explain_slow_pairs(observed, placed)
    for movement in list_movements(right):
        if right.is_like(observed, movement.angles):
            return movement.answer, movement.fix
    return describe_measured(observed, right)


def list_right_orders(right: Reference) -> Iterator[Reference]:
    """Yield the patches row by row, and in the blocks that an encoder merges."""
    yield right
    if right.axes.block > 1:
        blocks = order_in_blocks(right.positions, right.axes.block)
        yield replace(right, positions=blocks)


def explain_slow_pairs(observed: Observed, right: Reference) -> Fault | None:
    """Name pairs that differ too little to be far off, but follow another axis."""
    distances = measure_distances(observed, right)
    names = right.axes.names
    for pair, axis in enumerate(right.axes.axis_of_pair):
        nearest = int(distances[:, pair].argmin())
        apart = measure_separation(right, pair, axis, nearest)
        if nearest != axis and CLEAR * distances[nearest, pair] < apart:
            return describe_other_axis(right, pair, names[nearest])
    return None


def find_untold_pairs(
    observed: Observed,
    expected: Expected,
    positions: Positions,
) -> list[int]:
    """Return the pairs whose tables do not show which axis moves them.

    These turn so little at the positions that were looked at that the rounding of the
    tables hides it.
    """
    right = make_reference(expected, positions)
    for placed in list_right_orders(right):
        if right.is_like(observed, placed.angles):
            right = placed
    distances = measure_distances(observed, right)

    untold = []
    for pair, axis in enumerate(right.axes.axis_of_pair):
        others = {*range(right.axes.count)} - {axis}
        apart = min(measure_separation(right, pair, axis, other) for other in others)
        if CLEAR * distances[axis, pair] >= apart and right.inv_freq[pair]:
            untold.append(pair)
    return untold


def measure_distances(
    observed: Observed,
    right: Reference,
) -> Float[np.ndarray, "axes pairs"]:
    """Return how far each pair's tables are from those of each axis at most."""
    distances = []
    for coordinates in right.coordinates:
        angles = coordinates[:, None] * right.inv_freq
        factor = right.spec.attention_factor
        distances.append(measure_differences(observed, angles, factor).max(axis=0))
    return np.array(distances)


def measure_separation(right: Reference, pair: int, axis: int, other: int) -> float:
    """Return how far the tables of two axes are from each other at most, for a pair."""
    angles = right.coordinates[[axis, other]] * right.inv_freq[pair]
    cos_difference = np.abs(np.diff(np.cos(angles), axis=0)).max()
    sin_difference = np.abs(np.diff(np.sin(angles), axis=0)).max()
    return float(right.spec.attention_factor * max(cos_difference, sin_difference))


def explain_ladder(
    observed: Observed,
    expected: Expected,
    positions: Positions,
) -> Fault | None:
    """Name frequencies of another ladder alone, which equal positions show, too."""
    right = make_reference(expected, positions)
    for movement in list_ladders(right.spec, right.inv_freq, right.coordinates):
        if right.is_like(observed, movement.angles):
            return movement.answer, movement.fix
    return None


def list_movements(right: Reference) -> Iterator[Movement]:
    """Yield what codes with one mistake compute, the likeliest first."""
    spec = right.spec
    inv_freq = right.inv_freq
    yield from list_other_axes(spec, inv_freq, right.coordinates)
    yield from list_ladders(spec, inv_freq, right.coordinates)
    yield from list_other_positions(right.axes, inv_freq, right.positions)
    yield from list_numbered(spec, inv_freq, right.positions)
    yield from list_reordered(right.axes, inv_freq, right.positions)
    yield from list_bases(spec, right.coordinates)


def list_other_axes(
    spec: RopeSpec,
    inv_freq: Pairs,
    coordinates: Coordinates,
) -> Iterator[Movement]:
    """Yield pairs that read other axes: exchanged, in other sections, or arranged
    otherwise.
    """
    axes = spec.axes
    assert axes is not None
    fix = describe_pairs(axes.axis_of_pair, axes.names)
    for other, answer in list_other_orders(axes):
        # A pair keeps its frequency where all axes share one ladder.
        frequencies = inv_freq
        if axes.ladder != "head":
            frequencies = other.lay_out(spec.geometry.inv_freq, spec.base)
        yield Movement(answer, fix, other.axis_of_pair, frequencies, coordinates)

    for axis, name in enumerate(axes.names):
        answer = f"all pairs read the axis of {name}"
        everywhere = [axis] * len(inv_freq)
        yield Movement(answer, fix, everywhere, inv_freq, coordinates)


def list_other_orders(axes: Axes) -> Iterator[tuple[Axes, str]]:
    """Yield other arrangements, orders of axes and sections, with what differs.

    Those that differ in the fewest ways come first.
    """
    found: list[tuple[int, Axes, str]] = []
    numbers = range(len(axes.sections))
    for arrangement in ARRANGEMENTS:
        for order in permutations(axes.order):
            for places in permutations(numbers):
                sections = tuple(axes.sections[place] for place in places)
                other = replace(
                    axes,
                    arrangement=arrangement,
                    order=order,
                    sections=sections,
                )
                changes = list(describe_changes(axes, other))
                if changes and other.axis_of_pair != axes.axis_of_pair:
                    answer = f"axes of positions {' and '.join(changes)}"
                    found.append((len(changes), other, answer))
    seen: set[tuple[int, ...]] = set()
    for _, other, answer in sorted(found, key=lambda row: row[0]):
        # Of two axes, one of each pair takes its turn in two arrangements.
        if other.axis_of_pair not in seen:
            seen.add(other.axis_of_pair)
            yield other, answer


def describe_changes(axes: Axes, other: Axes) -> Iterator[str]:
    """Yield in words how the order of pairs differs from the right one."""
    if other.arrangement != axes.arrangement:
        got = ARRANGEMENTS[other.arrangement]
        wanted = ARRANGEMENTS[axes.arrangement]
        if axes.arrangement == "turns":
            yield f"{got} instead of taking turns"
        elif axes.arrangement == "runs":
            yield f"{got} instead of coming in runs of pairs"
        else:
            yield f"{got}, where they should {wanted}"

    if other.order != axes.order:
        # Of every axis: which one is read in its place.
        instead = dict(zip(axes.order, other.order, strict=True))
        moved = [axis for axis in sorted(instead) if instead[axis] != axis]
        names = ", ".join(axes.names[instead[axis]] for axis in sorted(instead))
        if len(moved) == 2:
            exchanged = " and ".join(axes.names[axis] for axis in moved)
            yield f"are read in the order {names}: {exchanged} are exchanged"
        else:
            yield f"are read in the order {names}"
    if other.sections != axes.sections:
        got_sections = list(other.sections)
        yield f"have sections {got_sections} instead of {list(axes.sections)}"


def list_ladders(
    spec: RopeSpec,
    inv_freq: Pairs,
    coordinates: Coordinates,
) -> Iterator[Movement]:
    """Yield frequencies of another ladder than the configured one."""
    axes = spec.axes
    assert axes is not None
    head = spec.geometry.inv_freq
    width = spec.rotary_dim
    fixes: dict[Ladder, str] = {
        "head": f"pair i has base^(-2i/{width}) on every axis",
        "section": "exponents over the features of one axis, from 0 on each",
        "alternating": "each axis has every second frequency of the whole head",
    }
    fix = fixes[axes.ladder]

    known: dict[Ladder, str] = {
        "section": "each axis has a ladder of its own, with exponents over its section,"
        " instead of over the whole head",
        "head": "the frequencies go on over the whole head, pair by pair, instead of"
        " starting again on each axis",
        "alternating": "each axis has every second frequency of the whole head",
    }
    for ladder, answer in known.items():
        if ladder != axes.ladder:
            other = replace(axes, ladder=ladder).lay_out(head, spec.base)
            yield Movement(answer, fix, axes.axis_of_pair, other, coordinates)
    for answer, frequencies in list_restarted(axes, head, spec):
        yield Movement(answer, fix, axes.axis_of_pair, frequencies, coordinates)

    backwards = inv_freq.copy()
    for axis in range(axes.count):
        pairs = axes.pairs_of(axis)
        backwards[pairs] = inv_freq[pairs][::-1]
    answer = "the frequencies of each axis are in reverse order"
    yield Movement(answer, fix, axes.axis_of_pair, backwards, coordinates)


def list_restarted(
    axes: Axes,
    head: Pairs,
    spec: RopeSpec,
) -> Iterator[tuple[str, Pairs]]:
    """Yield ladders that begin at frequency 1 on every axis."""
    width = spec.rotary_dim
    largest = max(len(axes.pairs_of(axis)) for axis in range(axes.count))

    def restart(ladder: Pairs) -> Pairs:
        frequencies = np.empty(width // 2)
        for axis in range(axes.count):
            pairs = axes.pairs_of(axis)
            frequencies[pairs] = ladder[: len(pairs)]
        return frequencies

    answer = (
        f"exponents divide by the {width} features of the whole head and start again at"
        " 0 on each axis"
    )
    yield answer, restart(head)
    steps = np.arange(largest, dtype=np.float64)
    for axis, name in enumerate(axes.names):
        features = 2 * len(axes.pairs_of(axis))
        if not features:
            continue
        ladder = spec.base ** (-2 * steps / features)
        answer = f"the ladder of {name}, over {features} features, is used for all axes"
        yield answer, restart(ladder)
        halved = spec.base ** (-2 * steps / (features / 2))
        answer = f"exponents divide by {features // 2} instead of {features} features"
        yield answer, restart(halved)

    if axes.ladder == "alternating":
        exchanged = np.empty(width // 2)
        for axis in range(axes.count):
            exchanged[axes.pairs_of(axis)] = head[(axis + 1) % axes.count :: axes.count]
        yield "the axes have each other's frequencies", exchanged


def list_subsets(count: int) -> Iterator[tuple[int, ...]]:
    """Yield all axes first, then fewer and fewer of them."""
    sizes = range(count, 0, -1)
    yield from chain.from_iterable(combinations(range(count), size) for size in sizes)


def list_other_positions(
    axes: Axes,
    inv_freq: Pairs,
    positions: Positions,
) -> Iterator[Movement]:
    """Yield positions that are shifted, centred, multiplied, or turned round."""
    right = axes.coordinates(positions)
    plain = positions.astype(np.float64)
    sizes = plain.max(axis=1, keepdims=True) + 1

    variants: list[tuple[str, str, Coordinates]] = []
    if axes.centred:
        variants += list_uncentred(plain, sizes)
    else:
        variants += list_centred(plain, sizes)
    variants += list_changed(right, plain, sizes, axes)

    for answer, fix, changed in variants:
        for subset in list_subsets(axes.count):
            coordinates = right.copy()
            coordinates[list(subset)] = changed[list(subset)]
            names = join_names([axes.names[axis] for axis in subset])
            words = f"positions of {names} {answer}"
            yield Movement(words, fix, axes.axis_of_pair, inv_freq, coordinates)


def list_centred(
    plain: Coordinates,
    sizes: Coordinates,
) -> list[tuple[str, str, Coordinates]]:
    """Return positions that are counted from a centre or as shares of an image."""
    fix = "count rows and columns from 0"
    centre = "are counted from the centre of the image"
    shares = "are shares of the image"
    between = (2 * plain + 1) / sizes - 1
    return [
        (centre, fix, plain - (sizes - 1) / 2),
        (centre, fix, plain - sizes / 2),
        (centre, fix, plain - sizes // 2),
        (f"{shares}, from 0 to 1", fix, plain / sizes),
        (f"{shares}, from 0 to 1", fix, plain / np.maximum(sizes - 1, 1)),
        (f"{shares}, from -1 to 1", fix, between),
        (f"{shares}, from -1 to 1, times 2 pi", fix, 2 * math.pi * between),
    ]


def list_uncentred(
    plain: Coordinates,
    sizes: Coordinates,
) -> list[tuple[str, str, Coordinates]]:
    """Return positions that do not run from -1 to 1, or lose their 2 pi."""
    fix = "2 pi ((2p + 1) / n - 1) for row or column p of n"
    turn = 2 * math.pi
    between = (2 * plain + 1) / sizes - 1
    longest = sizes.max()
    ends = np.maximum(sizes - 1, 1)
    return [
        ("are counted from 0 and not centred", fix, plain),
        ("are counted from 0 and not centred", fix, turn * plain),
        ("are counted from the centre, but not divided", fix, plain - (sizes - 1) / 2),
        ("are not multiplied by 2 pi", fix, between),
        ("are multiplied by pi instead of 2 pi", fix, math.pi * between),
        ("are off by half a patch", fix, turn * (2 * plain / sizes - 1)),
        ("are off by half a patch", fix, turn * (2 * (plain + 1) / sizes - 1)),
        ("run from corner to corner", fix, turn * (2 * plain / ends - 1)),
        ("run from 0 to 1, not from -1", fix, turn * (plain + 0.5) / sizes),
        (
            "are divided by the longer side of the image",
            fix,
            turn * ((2 * plain + 1 - sizes) / longest),
        ),
        (
            "are divided by the longer side of the image",
            fix,
            turn * ((2 * plain + 1) / longest - 1),
        ),
    ]


def list_changed(
    right: Coordinates,
    plain: Coordinates,
    sizes: Coordinates,
    axes: Axes,
) -> list[tuple[str, str, Coordinates]]:
    """Return positions that are shifted, multiplied, left out, or counted backwards."""
    variants = []
    for shift in SHIFTS:
        moved = right + shift
        if axes.centred:
            # A patch is a share of the image.
            moved = right + shift * (4 * math.pi / sizes)
        answer = f"are off by {shift:g}"
        variants.append((answer, "count from 0 in every image and text", moved))

    last = right.max(axis=1, keepdims=True) + right.min(axis=1, keepdims=True)
    if not axes.centred:
        last = sizes - 1
    variants.append(("are counted from the end", "count from 0", last - right))
    variants.append(("turn the wrong way", "one sign for all axes", -right))
    variants.append(("do not move any pair", "use every axis", 0 * right))
    for factor in sorted({*FACTORS, 14.0, 25.0, 50.0}):
        if factor <= 1:
            continue
        answer = f"are multiplied by {factor:g}"
        fix = "check patch size, merging and the rate of frames"
        variants.append((answer, fix, right * factor))
        variants.append((f"are divided by {factor:g}", fix, right / factor))
        if not axes.centred:
            variants.append((f"are p // {factor:g}", fix, plain // factor))
    return variants


def list_numbered(
    spec: RopeSpec,
    inv_freq: Pairs,
    positions: Positions,
) -> Iterator[Movement]:
    """Yield patches that are numbered one after another, as if they were text."""
    axes = spec.axes
    assert axes is not None
    sizes = positions.max(axis=1) + 1
    exact = positions.astype(np.float64)
    rows, columns = exact[-2:]
    numbers = {"row by row": rows * sizes[-1] + columns}
    numbers["column by column"] = columns * sizes[-2] + rows
    everywhere = [0] * len(inv_freq)
    for order, number in numbers.items():
        for frequencies in (inv_freq, spec.geometry.inv_freq):
            answer = f"all pairs read the number of the patch, {order}"
            fix = describe_pairs(axes.axis_of_pair, axes.names)
            yield Movement(answer, fix, everywhere, frequencies, number[None])


def order_in_blocks(positions: Positions, size: int) -> Positions:
    """Return the patches of a whole image in blocks of so many rows and columns.

    Other positions stay as they are.
    """
    rows, columns = (positions[-2:].max(axis=1) + 1).tolist()
    if positions.shape != (2, rows * columns):
        return positions
    patches = np.indices((rows, columns)).reshape(2, -1)
    is_image = np.array_equal(patches, positions)
    if not is_image or rows % size or columns % size:
        return positions
    blocks = patches.reshape(2, rows // size, size, columns // size, size)
    return blocks.swapaxes(2, 3).reshape(2, -1)


def list_reordered(
    axes: Axes,
    inv_freq: Pairs,
    positions: Positions,
) -> Iterator[Movement]:
    """Yield the patches of an image in another order."""
    by_columns = positions[:, np.lexsort(positions)]
    orders = {
        "column by column": by_columns,
        "in blocks of 2 x 2": order_in_blocks(positions, BLOCK),
    }
    for order, changed in orders.items():
        answer = f"the patches of an image come {order} instead of row by row"
        coordinates = axes.coordinates(changed)
        fix = "the last row of positions changes first"
        yield Movement(answer, fix, axes.axis_of_pair, inv_freq, coordinates)


def list_bases(spec: RopeSpec, coordinates: Coordinates) -> Iterator[Movement]:
    axes = spec.axes
    assert axes is not None
    for base in (*USUAL["bases"], 100.0, 1000.0):
        head = inverse_frequencies(spec.rotary_dim, base)
        answer = f"base {write_number(base)} instead of {write_number(spec.base)}"
        fix = f"base {write_number(spec.base)}"
        frequencies = axes.lay_out(head, base)
        yield Movement(answer, fix, axes.axis_of_pair, frequencies, coordinates)


def describe_measured(observed: Observed, right: Reference) -> Fault:
    """Say which axes move which pairs, from tokens that differ along one axis."""
    axes = right.axes
    seen = find_moving(observed, right.positions)
    wanted = np.zeros_like(seen)
    for pair, axis in enumerate(axes.axis_of_pair):
        wanted[axis, pair] = True
    # Slow pairs may not show within the steps that were asked for.
    is_visible = seen.any(axis=0)
    is_other = (seen != wanted).any(axis=0) & is_visible
    if is_other.any():
        pair = int(np.flatnonzero(is_other)[0])
        moving = [axes.names[axis] for axis in np.flatnonzero(seen[:, pair])]
        return describe_other_axis(right, pair, join_names(moving))

    factor = right.spec.attention_factor
    errors = measure_differences(observed, right.angles, factor)
    wrong = np.flatnonzero((errors > right.allowed).any(axis=0))
    first = int(wrong[0])
    place = int((errors - right.allowed)[:, first].argmax())
    where = ", ".join(str(number) for number in right.positions[:, place])
    name = axes.names[axes.axis_of_pair[first]]
    answer = (
        f"{len(wrong)} of {len(right.inv_freq)} pairs are rotated otherwise: pair"
        f" {first}, which reads {name}, is off by {errors[place, first]:.3g} at"
        f" ({where}); no known mistake explains it"
    )
    return answer, "compare cos and sin pair by pair"


def describe_other_axis(right: Reference, pair: int, moving: str) -> Fault:
    axes = right.axes
    wanted = axes.names[axes.axis_of_pair[pair]]
    answer = (
        "pairs read other axes of the position than configured:"
        f" pair {pair} moves with {moving}, not with {wanted}"
    )
    return answer, describe_pairs(axes.axis_of_pair, axes.names)


def describe_untold(pairs: Sequence[int], positions: Positions) -> str:
    """Return which pairs were not judged, by number, as words behind what is right."""
    if not pairs:
        return ""
    stretches: list[list[int]] = []
    for pair in pairs:
        if stretches and stretches[-1][-1] == pair - 1:
            stretches[-1].append(pair)
        else:
            stretches.append([pair])
    words = []
    for stretch in stretches:
        word = str(stretch[0])
        if len(stretch) > 1:
            word += f" to {stretch[-1]}"
        words.append(word)
    noun = "pair" if len(pairs) == 1 else "pairs"
    return (
        f", but for {noun} {join_names(words)}, which turn too little up to position"
        f" {positions.max()} to show which axis moves them"
    )


def find_moving(observed: Observed, positions: Positions) -> np.ndarray:
    """Return True [axes, pairs] where a step along one axis alone moves a pair."""
    columns = [tuple(column) for column in positions.T.tolist()]
    rows = {column: row for row, column in enumerate(columns)}
    tables = np.stack([observed.cos, observed.sin])
    moving = np.zeros((len(positions), observed.cos.shape[1]), dtype=bool)
    for column, row in rows.items():
        for axis in range(len(positions)):
            for step in list_steps(int(positions.max()) + 1):
                moved = (*column[:axis], column[axis] + step, *column[axis + 1 :])
                if moved in rows:
                    change = np.abs(tables[:, rows[moved]] - tables[:, row])
                    moving[axis] |= change.max(axis=0) > CLOSE
    return moving


def list_commonest(
    spec: RopeSpec,
    inv_freq: Pairs,
    positions: Positions,
) -> Iterator[tuple[str, Movement]]:
    """Yield the mistakes that kits of vectors hold, by name: few of each kind.

    No two have the same sentence or the same tables.
    """
    axes = spec.axes
    assert axes is not None
    coordinates = axes.coordinates(positions)
    kinds = {
        "order": (4, list_other_axes(spec, inv_freq, coordinates)),
        "ladder": (3, list_ladders(spec, inv_freq, coordinates)),
        "positions": (24, list_other_positions(axes, inv_freq, positions)),
    }
    # What is right, and all mistakes that have a name already.
    named = [axes.angles(positions, inv_freq)]
    sentences = set()
    for kind, (most, movements) in kinds.items():
        count = 0
        for movement in movements:
            angles = movement.angles
            if count == most:
                break
            is_known = any(are_alike(angles, others) for others in named)
            if not is_known and movement.answer not in sentences:
                count += 1
                yield f"{kind}_{count}", movement
            named.append(angles)
            sentences.add(movement.answer)


def are_alike(angles: Table, others: Table) -> bool:
    """Return True if no table tells these angles apart."""
    cos_error = np.abs(np.cos(angles) - np.cos(others)).max()
    sin_error = np.abs(np.sin(angles) - np.sin(others)).max()
    return bool(max(cos_error, sin_error) <= 2 * SAME_POSITION)
