"""What implementations with one mistake compute at positions of several axes.

The pairs of a head are divided into sections, one for each axis of a position. The
ladder of an axis is the frequencies of its pairs, from the fastest to the slowest.
Mistakes here let pairs read another axis, or have another ladder; mistakes of the
positions themselves are in `axes_wrong_positions`.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations, product

import numpy as np

from ropelab.conformance.angles import TABLE_ERROR
from ropelab.conformance.axes_reference import Movement, Reference
from ropelab.conformance.axes_wrong_positions import (
    list_numbered,
    list_other_positions,
    list_reordered,
    list_subsets,
)
from ropelab.conformance.observation import Table
from ropelab.conformance.usual import USUAL
from ropelab.math.axes import Arrangement, Axes, Ladder, describe_pairs
from ropelab.math.frequencies import Frequencies, inverse_frequencies
from ropelab.runs.sentences import join_names, write_number

# The verb phrase for each arrangement, which ends the sentence `axes of positions ...`.
ARRANGEMENTS: dict[Arrangement, str] = {
    "runs": "come in runs of pairs",
    "turns": "take turns",
    "last behind": "take turns but for the last, which follows",
}


def list_movements(right: Reference) -> Iterator[Movement]:
    """Yield what codes with one mistake compute, the likeliest first."""
    yield from list_other_axes(right)
    yield from list_ladders(right)
    yield from list_other_positions(right)
    yield from list_numbered(right)
    yield from list_reordered(right)
    yield from list_bases(right)


def list_other_axes(right: Reference) -> Iterator[Movement]:
    """Yield pairs that read other axes than they should."""
    spec = right.spec
    axes = right.axes
    inv_freq = right.inv_freq
    coordinates = right.coordinates
    fix = describe_pairs(axes.axis_of_pair, axes.names)
    for other, answer in list_other_orders(axes):
        yield Movement(answer, fix, other.axis_of_pair, inv_freq, coordinates)
        # Where each axis has its own ladder, pairs may also take their frequencies from
        # the ladder of the wrong axis.
        if axes.ladder != "head":
            frequencies = other.lay_out(spec.geometry.inv_freq, spec.base)
            yield Movement(answer, fix, other.axis_of_pair, frequencies, coordinates)

    for answer, axis_of_pair in list_other_ends(axes):
        yield Movement(answer, fix, axis_of_pair, inv_freq, coordinates)

    for axis, name in enumerate(axes.names):
        answer = f"all pairs read the axis of {name}"
        axis_of_pair = [axis] * len(inv_freq)
        yield Movement(answer, fix, axis_of_pair, inv_freq, coordinates)

    # Text has one number on all axes, which each of these leaves as it is.
    merged = {
        "the largest": coordinates.max(axis=0),
        "the smallest": coordinates.min(axis=0),
        "the mean": coordinates.mean(axis=0),
    }
    for words, places in merged.items():
        answer = f"all pairs read {words} of the positions on all axes"
        first_axis = [0] * len(inv_freq)
        yield Movement(answer, fix, first_axis, inv_freq, places[None])


def list_other_ends(axes: Axes) -> Iterator[tuple[str, list[int]]]:
    """Yield axes that take turns over other pairs than they should."""
    axis_of_pair = [*axes.axis_of_pair]
    if axes.arrangement == "turns":
        count = len(axis_of_pair)
        order = [*dict.fromkeys(axes.order)]
        turns = [order[pair % len(order)] for pair in range(count)]
        yield "axes of positions take turns up to the last pair of the head", turns
    if axes.arrangement == "last behind":
        behind = axes.sections[-1]
        name = axes.names[axes.order[-1]]
        first = axis_of_pair[-behind:] + axis_of_pair[:-behind]
        yield f"pairs that read {name} come first instead of last", first


def list_other_orders(axes: Axes) -> Iterator[tuple[Axes, str]]:
    """Yield other arrangements, orders of axes and sections, with a sentence each.

    Mistakes that differ in the fewest ways come first.
    """
    # The number of ways in which axes differ, these axes, and the sentence.
    candidates: list[tuple[int, Axes, str]] = []
    for arrangement, order, sections in product(
        ARRANGEMENTS,
        permutations(axes.order),
        permutations(axes.sections),
    ):
        other = replace(
            axes,
            arrangement=arrangement,
            order=order,
            sections=sections,
        )
        changes = list(describe_changes(axes, other))
        if changes and other.axis_of_pair != axes.axis_of_pair:
            answer = f"axes of positions {' and '.join(changes)}"
            candidates.append((len(changes), other, answer))
    candidates.sort(key=lambda candidate: candidate[0])

    # Two arrangements may give the pairs the same axes. Then the first arrangement is
    # named.
    seen: set[tuple[int, ...]] = set()
    for _, other, answer in candidates:
        if other.axis_of_pair not in seen:
            seen.add(other.axis_of_pair)
            yield other, answer


def describe_changes(axes: Axes, other: Axes) -> Iterator[str]:
    """Yield in words how the order of pairs differs from the right order."""
    if other.arrangement != axes.arrangement:
        got = ARRANGEMENTS[other.arrangement]
        right_arrangement = ARRANGEMENTS[axes.arrangement]
        if axes.arrangement == "turns":
            yield f"{got} instead of taking turns"
        elif axes.arrangement == "runs":
            yield f"{got} instead of coming in runs of pairs"
        else:
            yield f"{got}, where they should {right_arrangement}"

    if other.order != axes.order:
        # The axis that is read in place of each axis.
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


def list_ladders(right: Reference) -> Iterator[Movement]:
    """Yield ladders that are not the configured one, and the ladder of each axis in
    reverse.
    """
    spec = right.spec
    axes = right.axes
    inv_freq = right.inv_freq
    coordinates = right.coordinates
    # The plain frequencies of all pairs of a head.
    head = spec.geometry.inv_freq
    width = spec.rotary_dim
    fixes: dict[Ladder, str] = {
        "head": f"pair i has base^(-2i/{width}) on every axis",
        "section": "exponents over the features of one axis, from 0 on each",
        "alternating": "each axis has every second frequency of the whole head",
    }
    fix = fixes[axes.ladder]

    answers: dict[Ladder, str] = {
        "section": "each axis has a ladder of its own, with exponents over its section,"
        " instead of over the whole head",
        "head": "the frequencies go on over the whole head, pair by pair, instead of"
        " starting again on each axis",
        "alternating": "each axis has every second frequency of the whole head",
    }
    for ladder, answer in answers.items():
        if ladder != axes.ladder:
            frequencies = replace(axes, ladder=ladder).lay_out(head, spec.base)
            yield Movement(answer, fix, axes.axis_of_pair, frequencies, coordinates)
    for answer, frequencies in list_restarted(right):
        yield Movement(answer, fix, axes.axis_of_pair, frequencies, coordinates)

    if axes.arrangement != "runs":
        pairs_by_axis = [axes.pairs_of(axis) for axis in dict.fromkeys(axes.order)]
        in_runs = inv_freq[np.concatenate(pairs_by_axis)]
        answer = "axes take turns, and their frequencies come in runs, axis by axis"
        yield Movement(answer, fix, axes.axis_of_pair, in_runs, coordinates)

        runs_of_axes = np.empty_like(inv_freq)
        runs_of_axes[np.concatenate(pairs_by_axis)] = inv_freq
        answer = "each axis has a run of the head's frequencies, although the axes take turns"
        yield Movement(answer, fix, axes.axis_of_pair, runs_of_axes, coordinates)

    for answer, frequencies in list_moved_ladders(right):
        yield Movement(answer, fix, axes.axis_of_pair, frequencies, coordinates)

    for subset in list_subsets(axes.count, axes.count):
        backwards = inv_freq.copy()
        for axis in subset:
            pairs = axes.pairs_of(axis)
            backwards[pairs] = inv_freq[pairs][::-1]
        names = join_names([axes.names[axis] for axis in subset])
        if len(subset) == axes.count:
            names = "each axis"
        answer = f"the frequencies of {names} are in reverse order"
        yield Movement(answer, fix, axes.axis_of_pair, backwards, coordinates)


def list_moved_ladders(right: Reference) -> Iterator[tuple[str, Frequencies]]:
    """Yield frequencies that some axes have from another part of the head's ladder."""
    axes = right.axes
    inv_freq = right.inv_freq
    head = right.spec.geometry.inv_freq
    pairs_by_axis = [axes.pairs_of(axis) for axis in range(axes.count)]
    used = [axis for axis in range(axes.count) if len(pairs_by_axis[axis])]

    for count in range(1, len(used)):
        for restarted in combinations(used, count):
            frequencies = inv_freq.copy()
            for axis in restarted:
                pairs = pairs_by_axis[axis]
                frequencies[pairs] = head[: len(pairs)]
            names = join_names([axes.names[axis] for axis in restarted])
            yield f"the frequencies of {names} start again at pair 0", frequencies

    for first, second in combinations(used, 2):
        pairs, others = pairs_by_axis[first], pairs_by_axis[second]
        if len(pairs) == len(others):
            frequencies = inv_freq.copy()
            frequencies[pairs] = inv_freq[others]
            frequencies[others] = inv_freq[pairs]
            names = f"{axes.names[first]} and {axes.names[second]}"
            yield f"{names} have each other's frequencies", frequencies

    if axes.arrangement == "runs":
        for order in permutations(used):
            frequencies = inv_freq.copy()
            in_order = np.concatenate([pairs_by_axis[axis] for axis in order])
            frequencies[in_order] = head[: len(in_order)]
            names = ", ".join(axes.names[axis] for axis in order)
            answer = f"the axes have frequencies as if they came in the order {names}"
            yield answer, frequencies


def list_restarted(right: Reference) -> Iterator[tuple[str, Frequencies]]:
    """Yield frequencies that start again from the fastest on every axis, or that belong
    to another axis.
    """
    spec = right.spec
    axes = right.axes
    # The plain frequencies of all pairs of a head.
    head = spec.geometry.inv_freq
    width = spec.rotary_dim
    most_pairs = max(len(axes.pairs_of(axis)) for axis in range(axes.count))

    def restart(ladder: Frequencies) -> Frequencies:
        """Return the frequencies of all pairs if each axis has the same ladder."""
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
    steps = np.arange(most_pairs, dtype=np.float64)
    for axis, name in enumerate(axes.names):
        features = 2 * len(axes.pairs_of(axis))
        if not features:
            continue
        ladder = spec.base ** (-2 * steps / features)
        answer = f"the ladder of {name}, over {features} features, is used for all axes"
        yield answer, restart(ladder)
        steep_ladder = spec.base ** (-2 * steps / (features / 2))
        answer = (
            f"exponents divide by {features // 2} instead of {features} features, or the"
            f" base is {write_number(spec.base**2)}"
        )
        yield answer, restart(steep_ladder)

    if axes.ladder == "alternating":
        # All axes have the same number of pairs, so that each axis can have the
        # frequencies of the next axis.
        exchanged = np.empty(width // 2)
        for axis in range(axes.count):
            next_axis = (axis + 1) % axes.count
            exchanged[axes.pairs_of(axis)] = head[next_axis :: axes.count]
        yield "the axes have each other's frequencies", exchanged


def list_bases(right: Reference) -> Iterator[Movement]:
    """Yield frequencies of other bases."""
    spec = right.spec
    axes = right.axes
    coordinates = right.coordinates
    for base in (*USUAL["bases"], 100.0, 1000.0):
        head = inverse_frequencies(spec.rotary_dim, base)
        answer = f"base {write_number(base)} instead of {write_number(spec.base)}"
        fix = f"base {write_number(spec.base)}"
        frequencies = axes.lay_out(head, base)
        yield Movement(answer, fix, axes.axis_of_pair, frequencies, coordinates)

        # Some axes may have the base of another class.
        for subset in list_subsets(axes.count, axes.count - 1):
            names = join_names([axes.names[axis] for axis in subset])
            is_other = np.isin(axes.axis_of_pair, subset)
            mixed = np.where(is_other, frequencies, right.inv_freq)
            yield Movement(
                f"{answer} for {names}", fix, axes.axis_of_pair, mixed, coordinates
            )


def list_commonest(right: Reference) -> Iterator[tuple[str, Movement]]:
    """Yield a few mistakes of each kind, with a name for each.

    `ropelab vectors` writes them for engines. No two have the same sentence or the same
    tables.
    """
    # The number of mistakes that are taken of each kind, and all mistakes of this kind.
    kinds = {
        "order": (4, list_other_axes(right)),
        "ladder": (3, list_ladders(right)),
        "positions": (24, list_other_positions(right)),
    }
    # The angles that are known already: the right angles, and the angles of all
    # mistakes so far.
    known_angles = [right.angles]
    known_sentences = set()

    for kind, (most, movements) in kinds.items():
        count = 0
        for movement in movements:
            angles = movement.angles
            if count == most:
                break
            is_known = any(are_alike(angles, known) for known in known_angles)
            if not is_known and movement.answer not in known_sentences:
                count += 1
                yield f"{kind}_{count}", movement
            known_angles.append(angles)
            known_sentences.add(movement.answer)


def are_alike(angles: Table, other_angles: Table) -> bool:
    """Return True if the tables of two sets of angles differ by no more than rounding
    may.
    """
    cos_difference = np.abs(np.cos(angles) - np.cos(other_angles)).max()
    sin_difference = np.abs(np.sin(angles) - np.sin(other_angles)).max()
    return bool(max(cos_difference, sin_difference) <= 2 * TABLE_ERROR)
