"""Name what a change of a cache did to keys and values.

The rotation of each layer by some positions is known (`find_turns`), so that the keys
after an eviction or a join can be compared with the rotated keys before it. Values
should stay as they are. Keys in front of a gap should stay, too; keys behind a gap should
stay, or be rotated by minus the number of dropped keys, which is called moving up. Keys of
the second of two joined texts should be rotated by the length of the first.
"""

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ropelab.conformance.laws.eviction_maps import (
    DISTANCES,
    ROUNDED,
    Maps,
)
from ropelab.conformance.laws.eviction_trace import (
    LARGEST_ROUNDING,
    Change,
    Segment,
    are_equal,
    list_ranges,
)
from ropelab.conformance.laws.law import Case
from ropelab.conformance.laws.moved import find_turns

# One number of positions for each segment.
Moves = tuple[int, ...]
# The least difference, as a share of the spread, that float32 does not explain.
LEAST_ERROR = 2e-5


def explain_change(case: Case, change: Change) -> str:
    """Return in words what is wrong with keys or values; empty: all values stayed, and
    the keys of each segment are rotated by one number of positions in all layers.
    """
    says = explain_layers(case, change)
    return says or compare_layers(measure_layers(case, change), change.segments)


def explain_layers(case: Case, change: Change) -> str:
    """Return in words what is wrong in a layer, or in all; empty: all values stayed, and
    the keys of each segment are rotated by one number of positions.
    """
    turns = find_turns(case, DISTANCES)
    # The mistake in each layer.
    sentences = {}
    for layer, turn in turns.items():
        before = change.before[layer]
        after = change.after[layer]
        if before is None or after is None:
            continue
        if turn is None:
            sentences[layer] = explain_unrotated(before, after, change)
        else:
            sentences[layer] = explain_layer(change, layer, Maps(case, layer, turn))

    for layer, says in sentences.items():
        if says:
            # Errors may differ in size from layer to layer.
            kinds = [re.sub(r"[\d.]+%", "", each) for each in sentences.values()]
            is_in_all_layers = len(set(kinds)) == 1
            return says if is_in_all_layers else f"layer {layer}: {says}"
    return ""


def explain_unrotated(
    before: tuple[Tensor, Tensor], after: tuple[Tensor, Tensor], change: Change
) -> str:
    """Return what happened in a layer whose keys have no rotation in the cache."""
    for name, old, new in zip(("keys", "values"), before, after, strict=True):
        kept = old[:, :, change.keep]
        if kept.shape == new.shape and not are_equal(kept, new):
            return f"{name} are changed, and this layer caches keys without a rotation"
    return ""


def explain_layer(change: Change, layer: int, maps: Maps) -> str:
    """Return in words what happened to keys and values of a layer that rotates."""
    before = change.before[layer]
    after = change.after[layer]
    assert before is not None and after is not None
    kept_keys = before[maps.part][:, :, change.keep]
    new_keys = after[maps.part]
    # In a cache of latents the second part holds keys, and no part holds values.
    if maps.part == 0:
        _, values = before
        _, new_values = after
        kept_values = values[:, :, change.keep]
        says = explain_values(kept_values, new_values, maps, change)
        if says:
            source = find_layer_of_values(change, new_values)
            if source is not None:
                return f"values are those of layer {source}"
            if are_equal(kept_values, new_keys):
                return "keys and values are exchanged"
            return says

    for segment in change.segments:
        keys = kept_keys[:, :, segment.slots]
        moved = new_keys[:, :, segment.slots]
        if not keys.numel():
            continue
        says = maps.describe_change(keys, moved, segment)
        if not says:
            continue
        if "slot by slot" in says:
            known = name_slots(maps, kept_keys, new_keys, change.positions)
            return f"keys {segment.where} {says}{known}"
        if "head by head" not in says:
            other_source = maps.find_other_source(
                before[maps.part], new_keys, change.keep
            )
            if other_source:
                return f"keys are {other_source}"
            source = find_layer_of_keys(change, layer, maps)
            if source is not None:
                return f"keys are those of layer {source}"
        if is_in_all_segments(change.segments, kept_keys, new_keys, maps, says):
            return f"all keys {says}"
        return f"keys {segment.where} {says}"
    return ""


def is_in_all_segments(
    segments: Sequence[Segment], before: Tensor, after: Tensor, maps: Maps, says: str
) -> bool:
    """Return True if the same happened to the keys of several segments, and no other."""
    count = 0
    for segment in segments:
        keys = before[:, :, segment.slots]
        if not keys.numel():
            continue
        if maps.describe_change(keys, after[:, :, segment.slots], segment) != says:
            return False
        count += 1
    return count > 1


def name_slots(
    maps: Maps, before: Tensor, after: Tensor, positions: Sequence[int]
) -> str:
    """Return in words why keys are rotated slot by slot, if it is plain.

    ``positions``: the positions of the keys before, as far as they are known.
    """
    distances = maps.find_distances(before, after, axis=2)
    if distances is None:
        return ""
    if distances == [-position for position in positions]:
        return " (all keys are rotated back to position 0, and not forwards)"
    if distances == [*range(len(distances))]:
        return " (all keys are rotated to new places without being rotated back)"
    return ""


def find_layer_of_keys(change: Change, layer: int, maps: Maps) -> int | None:
    """Return another layer whose keys, rotated, are now in this one."""
    after = change.after[layer]
    assert after is not None
    new_keys = after[maps.part]
    for source, entry in enumerate(change.before):
        if entry is None or source == layer:
            continue
        old_keys = entry[maps.part][:, :, change.keep]
        if old_keys.shape == new_keys.shape and maps.find_slots(old_keys, new_keys):
            return source
    return None


def find_layer_of_values(change: Change, values: Tensor) -> int | None:
    """Return the layer that had these values before; None: no layer had them."""
    for layer, entry in enumerate(change.before):
        if entry is None:
            continue
        _, old_values = entry
        kept_values = old_values[:, :, change.keep]
        if kept_values.shape == values.shape and are_equal(kept_values, values):
            return layer
    return None


def measure_layers(case: Case, change: Change) -> dict[int, list[int | None]]:
    """Return the positions by which the keys of each segment are rotated, by layer.

    Layers that do not rotate are left out.
    """
    distances: dict[int, list[int | None]] = {}
    for layer, turn in find_turns(case, DISTANCES).items():
        before = change.before[layer]
        after = change.after[layer]
        if before is None or after is None or turn is None:
            continue
        maps = Maps(case, layer, turn)
        kept_keys = before[turn.part][:, :, change.keep]
        new_keys = after[turn.part]
        distances[layer] = []
        for segment in change.segments:
            distance = maps.find_distance(
                kept_keys[:, :, segment.slots], new_keys[:, :, segment.slots]
            )
            distances[layer].append(distance)
    return distances


def measure_moves(case: Case, change: Change) -> Moves | None:
    """Return the positions by which the keys of each segment are rotated.

    None: no layer rotates, layers differ, or keys are changed otherwise.
    """
    by_layer = list(measure_layers(case, change).values())
    if not by_layer or any(distances != by_layer[0] for distances in by_layer):
        return None
    moves = [distance for distance in by_layer[0] if distance is not None]
    return tuple(moves) if len(moves) == len(change.segments) else None


def are_moved_rightly(moves: Moves, segments: Sequence[Segment]) -> bool:
    """Return True if keys stay as they are, or are moved up.

    All may be moved alike besides, since only differences of positions count.
    """
    moved_up = [
        by - segment.distance for by, segment in zip(moves, segments, strict=True)
    ]
    return len(set(moves)) == 1 or len(set(moved_up)) == 1


def compare_layers(
    distances: dict[int, list[int | None]], segments: Sequence[Segment]
) -> str:
    """Return in words the layers whose keys are rotated by different positions."""
    # The last segments move most, and are looked at first.
    for number in reversed(range(len(segments))):
        layers_by_distance: dict[int, list[int]] = {}
        for layer, by_segment in distances.items():
            distance = by_segment[number]
            if distance is not None:
                layers_by_distance.setdefault(distance, []).append(layer)
        if len(layers_by_distance) < 2:
            continue
        parts: list[str] = []
        for distance, layers in layers_by_distance.items():
            unit = "" if parts else " positions"
            noun = "layer" if len(layers) == 1 else "layers"
            parts.append(f"by {distance:+d}{unit} in {noun} {list_ranges(layers)}")
        return f"keys {segments[number].where} are rotated {', and '.join(parts)}"
    return ""


def explain_values(before: Tensor, after: Tensor, maps: Maps, change: Change) -> str:
    """Return what happened to values in words; empty if they are as before.

    Args:
        before: the values of the slots that were to stay.
        after: the values of the slots that are left.
        maps: the rotation of the layer.
        change: the slots that should have stayed alike.
    """
    if before.shape != after.shape:
        return f"values have the shape {list(after.shape)}, not {list(before.shape)}"
    if are_equal(before, after):
        return ""
    wrong = []
    for segment in change.segments:
        if not are_equal(before[:, :, segment.slots], after[:, :, segment.slots]):
            wrong.append(segment)
    where = ""
    if len(wrong) == 1 and len(change.segments) > 1:
        where = f", {wrong[0].where}"

    has_rotated = False
    if before.shape[-1] == maps.width:
        for segment in wrong:
            slots = segment.slots
            has_rotated |= maps.find_slots(before[:, :, slots], after[:, :, slots])
    if has_rotated:
        return f"values are rotated, too{where}"
    if are_exchanged(before, after, axis=2):
        return "values are not those of their keys' tokens"
    for segment in wrong:
        slots = segment.slots
        if are_exchanged(before[:, :, slots], after[:, :, slots], axis=1):
            return f"values are those of other heads{where}"

    error = float((before - after).abs().max() / before.std())
    if error <= LARGEST_ROUNDING:
        return f"values have errors of up to {error:.1%} of their spread: {ROUNDED}"
    gain = float((before * after).sum() / before.square().sum())
    if abs(gain) > LEAST_ERROR and are_equal(before, after / gain):
        return f"values are multiplied by {gain:.4g}"
    return f"values are changed{where}"


def are_exchanged(before: Tensor, after: Tensor, axis: int) -> bool:
    """Return True if each head (axis 1) or slot (axis 2) has the values of some head or
    slot before.
    """
    other_axes = [each for each in range(before.ndim) if each != axis]
    for place in range(after.shape[axis]):
        part = after.narrow(axis, place, 1)
        differences = (before - part).abs().amax(dim=other_axes)
        if float(differences.min()) > LEAST_ERROR * float(before.std()):
            return False
    return True


def describe_errors(case: Case, change: Change, moves: Moves) -> str:
    """Return in words small errors of keys that are rotated rightly, or of values."""
    largest = {"keys": 0.0, "values": 0.0}
    for layer, turn in find_turns(case, DISTANCES).items():
        before: Any = change.before[layer]
        after: Any = change.after[layer]
        if before is None or after is None or turn is None:
            continue
        for segment, distance in zip(change.segments, moves, strict=True):
            matrix = turn.rotated_units[DISTANCES.index(distance)]
            kept = [part[:, :, change.keep][:, :, segment.slots] for part in before]
            new = [part[:, :, segment.slots] for part in after]
            kept[turn.part] = kept[turn.part].to(matrix.dtype) @ matrix
            names = ("keys", "values") if turn.part == 0 else ("values", "keys")
            for name, old_part, new_part in zip(names, kept, new, strict=True):
                if old_part.numel():
                    error = (old_part - new_part).abs().max() / torch.std(old_part)
                    largest[name] = max(largest[name], float(error))
    for name, error in largest.items():
        if error > LEAST_ERROR:
            return (
                f"{name} have errors of up to {error:.2%} of their spread behind a right"
                f" rotation: {ROUNDED}"
            )
    return ""
