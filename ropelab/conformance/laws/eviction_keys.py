"""Name what an eviction did to keys: a rotation by some positions, or another map.

The rotation of each layer by some positions is known (`find_turns`), so that the keys
after an eviction can be compared with the rotated keys before it. Keys in front of the
gap that the eviction left should stay as they are; keys behind the gap should stay, or
be rotated by minus the number of dropped keys, which is called moving up.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ropelab.conformance.laws.eviction_trace import (
    EQUAL,
    EvictionTrace,
    are_equal,
    find_distance,
    list_ranges,
    match_tokens,
)
from ropelab.conformance.laws.forgetting import PREFILLED
from ropelab.conformance.laws.law import Case
from ropelab.conformance.laws.moved import find_turns
from ropelab.conformance.laws.rotation import Turn
from ropelab.conformance.laws.subject import TransformersSubject
from ropelab.readers import registry
from ropelab.readers.spec import RopeSpec

# The positions by which keys may have been rotated: up to the length of the prefix.
DISTANCES = range(-PREFILLED, PREFILLED + 1)
# The answer about keys of which nothing else is known.
NO_ROTATION = "are changed by no rotation of the layer's pairs"


def measure_moves(case: Case, trace: EvictionTrace) -> tuple[int, int] | None:
    """Return the positions by which keys in front of the gap and behind it are rotated.

    They are measured in the first layer that rotates. None: the cache cannot be read, or
    its keys are changed otherwise.
    """
    if not trace.after:
        return None
    for layer, turn in find_turns(case, DISTANCES).items():
        before = trace.before[layer]
        after = trace.after[layer]
        if before is None or after is None or turn is None:
            continue
        maps = Maps(case, layer, turn)
        kept_keys = before[turn.part][:, :, trace.keep]
        moved_keys = after[turn.part]
        in_front, behind = list_sides(trace)

        distance_in_front = maps.find_distance(
            kept_keys[:, :, in_front], moved_keys[:, :, in_front]
        )
        distance_behind = maps.find_distance(
            kept_keys[:, :, behind], moved_keys[:, :, behind]
        )
        if distance_in_front is None or distance_behind is None:
            return None
        return distance_in_front, distance_behind
    return None


def list_sides(trace: EvictionTrace) -> tuple[slice, slice]:
    """Return the slots in front of the gap and behind it."""
    sinks = trace.schedule.sinks
    return slice(sinks), slice(sinks, None)


def explain_keys(case: Case, trace: EvictionTrace) -> str:
    """Return in words what happened to keys and values; empty: they are right.

    The keys of each layer are compared with its keys before the first eviction.
    """
    # The mistake in each layer, and the positions by which its keys behind the gap are
    # rotated. The loop below first enters the number for keys in front of the gap, and
    # then replaces it.
    sentences = {}
    distances = {}
    for layer, turn in find_turns(case, DISTANCES).items():
        before = trace.before[layer]
        after = trace.after[layer]
        if before is None or after is None or turn is None:
            continue
        maps = Maps(case, layer, turn)
        says = ""
        # In a cache of latents the second part holds keys, and no part holds values.
        if turn.part == 0:
            _, values = before
            new_keys, new_values = after
            kept_values = values[:, :, trace.keep]
            says = explain_values(kept_values, new_values, maps, list_sides(trace))
            source = find_layer_of_values(trace, new_values)
            if says and source is not None:
                says = f"values are those of layer {source}"
            if says and are_equal(kept_values, new_keys):
                says = "keys and values are exchanged"

        kept_keys = before[turn.part][:, :, trace.keep]
        moved_keys = after[turn.part]
        in_front, behind = list_sides(trace)
        sides = (("in front of", in_front, 0), ("behind", behind, -trace.gap))
        for place, slots, right_distance in sides:
            keys = kept_keys[:, :, slots]
            if not keys.numel():
                continue
            moved = moved_keys[:, :, slots]
            distances[layer] = maps.find_distance(keys, moved)
            change = maps.describe_change(keys, moved, right_distance)
            if change and not says:
                says = f"keys {place} the gap {change}"
        if NO_ROTATION in says:
            other_source = maps.find_other_source(kept_keys, moved_keys)
            says = f"keys are {other_source}" if other_source else says
        sentences[layer] = says

    for layer, says in sentences.items():
        if says:
            is_in_all_layers = list(sentences.values()).count(says) == len(sentences)
            return says if is_in_all_layers else f"layer {layer}: {says}"
    return compare_layers(distances)


def compare_layers(distances: dict[int, int | None]) -> str:
    """Return in words two layers whose keys are rotated by different positions.

    ``distances``: the positions by which keys behind the gap are rotated, by layer.
    """
    first, *other_layers = distances
    for layer in other_layers:
        if distances[layer] != distances[first]:
            return (
                f"keys behind the gap are rotated by {distances[first]:+d} positions in"
                f" layer {first}, and by {distances[layer]:+d} in layer {layer}"
            )
    return ""


def explain_values(
    before: Tensor,
    after: Tensor,
    maps: "Maps",
    sides: Sequence[slice],
) -> str:
    """Return what happened to values in words; empty if they are as before.

    Args:
        before: the values of the slots that were to stay.
        after: the values of the slots that are left.
        maps: the rotation of the layer.
        sides: the slots in front of the gap and behind it.
    """
    if are_equal(before, after):
        return ""
    if None not in match_tokens(before, after):
        return "values are not those of their keys' tokens"
    if before.shape[-1] == maps.width:
        for slots in sides:
            distance = maps.find_distance(before[:, :, slots], after[:, :, slots])
            if distance:
                return "values are rotated, too"

    head_count = before.shape[1]
    for shift in range(1, head_count):
        if are_equal(before.roll(shift, dims=1), after):
            return "values are those of other heads"
    return "values are changed"


def find_layer_of_values(trace: EvictionTrace, values: Tensor) -> int | None:
    """Return the layer that had these values before; None: no layer had them."""
    for layer, entry in enumerate(trace.before):
        if entry is None:
            continue
        _, old_values = entry
        kept_values = old_values[:, :, trace.keep]
        if kept_values.shape == values.shape and are_equal(kept_values, values):
            return layer
    return None


class Maps:
    """The rotation of one layer, and maps that code applies in its place by mistake.

    A map is given by the rotated unit vectors, one for each distance:
    [distances, width, width].
    """

    def __init__(self, case: Case, layer: int, turn: Turn) -> None:
        self.rotated_units = turn.rotated_units
        self.width = turn.rotated_units.shape[-1]
        self.spec = find_spec(case, layer)
        # The features that rotate. The features of slow pairs move by less than can be
        # seen, so that a configuration tells more than the vectors.
        self.features = find_rotated_features(turn.rotated_units[-1])
        if self.spec is not None and self.spec.head_dim == self.width:
            self.features = torch.tensor(self.spec.rotated)

    def find_distance(self, before: Tensor, after: Tensor) -> int | None:
        """Return the positions by which all keys are rotated; None: no number fits.

        If there are no keys, the number is 0.
        """
        if not before.numel():
            return 0
        return find_distance(before, after, DISTANCES, self.rotated_units)

    def describe_change(
        self, before: Tensor, after: Tensor, right_distance: int
    ) -> str:
        """Return what happened to keys in words; empty: they stayed or were moved up.

        Args:
            before: keys [rows, heads, slots, head_dim].
            after: the same keys after the eviction.
            right_distance: the positions by which moving up rotates them; 0 in front
                of the gap.
        """
        distance = self.find_distance(before, after)
        if distance in (0, right_distance):
            return ""
        right = "where they stay as they are"
        if right_distance:
            right = f"where moving up takes {right_distance:+d}"
        if distance is not None:
            return f"are rotated by {distance:+d} positions, {right}"

        # The number of positions may differ from slot to slot, or from head to head.
        for axis, name in ((2, "slot by slot"), (1, "head by head")):
            distances = []
            for number in range(before.shape[axis]):
                part = before.narrow(axis, number, 1)
                moved = after.narrow(axis, number, 1)
                distances.append(self.find_distance(part, moved))
            if None not in distances:
                numbers = list_ranges(distances)
                return f"are rotated by {numbers} positions, {name}, {right}"
        return self.describe_map(before, after, right_distance)

    def find_other_source(self, before: Tensor, after: Tensor) -> str:
        """Return whose keys are in each slot, if not its own; empty: this is not known.

        Keys may have been rotated, slot by slot or head by head.

        Args:
            before: keys [rows, heads, slots, head_dim] of the slots that were to stay.
            after: the keys of the slots that are left.
        """
        for axis, words in (
            (2, "not in the slots of their values"),
            (1, "those of other heads"),
        ):
            count = after.shape[axis]
            # The slot or head that each key comes from.
            sources = []
            for place in range(count):
                key = after.narrow(axis, place, 1)
                # Its own key comes first.
                candidates = [place, *(each for each in range(count) if each != place)]
                for source in candidates:
                    old_key = before.narrow(axis, source, 1)
                    if self.find_distance(old_key, key) is not None:
                        sources.append(source)
                        break

            if len(sources) == count and sources != [*range(count)]:
                return words
        return ""

    def describe_map(self, before: Tensor, after: Tensor, right_distance: int) -> str:
        """Return in words which other map was applied."""
        for words, rotated_units in self.list_wrong_maps():
            for matrix in rotated_units:
                if are_equal(after, before.to(matrix.dtype) @ matrix):
                    return words

        all_features = range(self.width)
        other_features = [each for each in all_features if each not in self.features]
        if other_features and not are_equal(
            before[..., other_features], after[..., other_features]
        ):
            return "are changed in features that do not rotate"
        norm_after = after[..., self.features].norm()
        norm_before = before[..., self.features].norm()
        gain = float(norm_after / norm_before)
        if abs(gain - 1) > EQUAL:
            scaled = after.clone()
            scaled[..., self.features] /= gain
            if self.find_distance(before, scaled) is not None:
                return self.describe_gain(gain)
        return self.describe_pairs(before, after, right_distance)

    def describe_gain(self, gain: float) -> str:
        """Return what multiplies keys besides their rotation, in words."""
        says = f"are multiplied by {gain:.4g} besides being rotated"
        factor = 1.0 if self.spec is None else self.spec.attention_factor
        if abs(gain - factor) <= EQUAL:
            return f"{says}: the attention factor, which keys have already"
        if abs(gain * factor - 1) <= EQUAL:
            return f"{says}: the attention factor is taken from them"
        return says

    def describe_pairs(self, before: Tensor, after: Tensor, right_distance: int) -> str:
        """Return the first pair that is rotated by another angle, in words."""
        matrix = self.rotated_units[DISTANCES.index(right_distance)].to(before.dtype)
        pairs_before = self.pair_up(before)
        pairs_after = self.pair_up(after)
        right_pairs = self.pair_up(before @ matrix)
        # The angle of each pair, from all rows, heads and slots together.
        turned = (pairs_after * pairs_before.conj()).sum(dim=(0, 1, 2))
        right_turned = (right_pairs * pairs_before.conj()).sum(dim=(0, 1, 2))
        angles = turned.angle()
        right_angles = right_turned.angle()

        rotated = pairs_before * torch.polar(torch.ones_like(angles), angles)
        largest_difference = float((rotated - pairs_after).abs().max())
        if largest_difference > EQUAL * float(after.std()):
            return NO_ROTATION
        for pair, (angle, right) in enumerate(zip(angles, right_angles, strict=True)):
            if abs(float(angle - right)) > EQUAL:
                return (
                    f"are rotated with other frequencies: pair {pair} by"
                    f" {float(angle):+.3g} radians, where moving up takes"
                    f" {float(right):+.3g}"
                )
        return NO_ROTATION

    def pair_up(self, keys: Tensor) -> Tensor:
        """Return pairs as complex numbers [rows, heads, slots, pairs]."""
        layout = "half"
        if self.is_adjacent():
            layout = "adjacent"
        order = self.features[order_features(len(self.features), layout)]
        first, second = keys[..., order].chunk(2, dim=-1)
        return torch.complex(first.contiguous(), second.contiguous())

    def is_adjacent(self) -> bool:
        """Return True if the first feature that rotates mixes with its neighbour."""
        first = int(self.features[0])
        matrix_by_1 = self.rotated_units[DISTANCES.index(1)]
        components = matrix_by_1[first].abs()
        # The feature itself has the largest component, and is left out.
        components[first] = 0
        partner = int(components.argmax())
        return partner == first + 1 and len(self.features) > 2

    def list_wrong_maps(self) -> Iterator[tuple[str, Tensor]]:
        """Yield maps that are applied by mistake, with the words for each."""
        width = len(self.features)
        half = order_features(width, "half")
        adjacent = order_features(width, "adjacent")
        for right_order, other_order in ((half, adjacent), (adjacent, half)):
            # Where the other layout has a feature, the right one has `order`.
            order = self.features[right_order.argsort()[other_order]]
            rotated_units = self.rotated_units.clone()
            rows = self.features[:, None]
            rotated_units[:, rows, self.features] = self.rotated_units[
                :, order[:, None], order
            ]
            yield "are rotated in the pairs of the other layout", rotated_units
        words = (
            "have first features of pairs that were overwritten before the second ones"
            " were computed from them"
        )
        yield words, self.overwrite_first_features()

        first, second = self.order_pairs()
        # Whether the sign is wrong in the first or in the second feature cannot be told,
        # since one at a distance forwards is the other at the same distance backwards.
        one_sign = self.rotated_units.clone()
        one_sign[:, first, second] *= -1
        yield "have sin with the same sign in both features of a pair", one_sign

        for words, frequencies in self.list_frequencies():
            for layout in ("half", "adjacent"):
                features = torch.arange(2 * len(frequencies))
                yield words, self.rotate(frequencies, features, layout)

    def order_pairs(self) -> tuple[Tensor, Tensor]:
        """Return the first and the second features of all pairs."""
        layout = "adjacent" if self.is_adjacent() else "half"
        order = self.features[order_features(len(self.features), layout)]
        first, second = order.chunk(2)
        return first, second

    def overwrite_first_features(self) -> Tensor:
        """Return the map in which the rotated first features overwrite the second
        features.
        """
        first, second = self.order_pairs()
        cos = self.rotated_units[:, first, first]
        sin = self.rotated_units[:, first, second]
        rotated_units = self.rotated_units.clone()
        rotated_units[:, first, second] = cos * sin
        rotated_units[:, second, second] = cos - sin**2
        return rotated_units

    def list_frequencies(self) -> Iterator[tuple[str, Tensor]]:
        """Yield frequencies other than the layer's, with the words for each."""
        if self.spec is None:
            return
        pairs = len(self.features) // 2
        all_pairs = self.width // 2
        # The number of pairs that rotate, and the number that exponents divide by.
        for words, count, divisor in (
            ("are rotated with frequencies that have no scaling", pairs, pairs),
            ("are rotated as if all features of the head did", all_pairs, all_pairs),
            ("are rotated with the exponents of the whole head", pairs, all_pairs),
        ):
            exponents = torch.arange(count, dtype=torch.float64) / divisor
            yield words, self.spec.base**-exponents

    def rotate(self, frequencies: Tensor, features: Tensor, layout: str) -> Tensor:
        """Return the map that rotates some features with these frequencies."""
        order = features[order_features(len(features), layout)]
        pairs = len(frequencies)
        first = order[:pairs]
        second = order[pairs:]
        rotated_units = torch.eye(self.width, dtype=torch.float64)
        rotated_units = rotated_units.repeat(len(DISTANCES), 1, 1)
        angles = torch.tensor(DISTANCES, dtype=torch.float64)[:, None] * frequencies
        rotated_units[:, first, first] = angles.cos()
        rotated_units[:, second, second] = angles.cos()
        rotated_units[:, first, second] = angles.sin()
        rotated_units[:, second, first] = -angles.sin()
        return rotated_units.to(self.rotated_units.dtype)


def find_spec(case: Case, layer: int) -> RopeSpec | None:
    """Return the rotation that the configuration gives a layer; None: there is none."""
    if not isinstance(case.subject, TransformersSubject):
        return None
    text_config = case.subject.text_config
    reading = registry.read(
        registry.RUNTIMES[registry.REFERENCE], text_config.to_dict()
    )
    kinds = getattr(text_config, "layer_types", None)
    if not kinds:
        return reading.main_spec
    return reading.layers.get(kinds[layer], reading.main_spec)


def order_features(width: int, layout: str) -> Tensor:
    """Return the first features of all pairs, then the second features."""
    features = torch.arange(width)
    if layout == "half":
        return features
    return torch.cat([features[::2], features[1::2]])


def find_rotated_features(matrix: Tensor) -> Tensor:
    """Return the features that a rotation by one position changes."""
    unmoved = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    # Slow pairs move by little, so that the bound is lower than for equal keys.
    changes = (matrix - unmoved).abs().amax(dim=1)
    return (changes > EQUAL / 10).nonzero().flatten()
