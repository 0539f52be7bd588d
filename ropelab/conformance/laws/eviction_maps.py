"""The rotation of one layer's keys, and maps that code applies in its place by mistake."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ropelab.conformance.laws.eviction_trace import (
    EQUAL,
    LARGEST_ROUNDING,
    Segment,
    are_equal,
    find_distance,
    list_ranges,
)
from ropelab.conformance.laws.forgetting import PREFILLED
from ropelab.conformance.laws.law import Case
from ropelab.conformance.laws.rotation import Turn
from ropelab.conformance.laws.subject import TransformersSubject
from ropelab.readers import registry
from ropelab.readers.spec import RopeSpec

# The positions by which keys may have been rotated: up to the length of the prefix.
DISTANCES = range(-PREFILLED, PREFILLED + 1)
# The answer about keys of which nothing else is known.
NO_ROTATION = "are changed by no rotation of the layer's pairs"
ROUNDED = "something is rounded to fewer bits"


class Maps:
    """The rotation of one layer, and maps that code applies in its place by mistake.

    A map is given by the rotated unit vectors, one for each distance:
    [distances, width, width].
    """

    def __init__(self, case: Case, layer: int, turn: Turn) -> None:
        # The part of the cache that holds keys.
        self.part = turn.part
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

    def find_distances(
        self, before: Tensor, after: Tensor, axis: int
    ) -> list[int] | None:
        """Return the positions by which the keys of each head (axis 1) or slot (axis 2)
        are rotated; None: to some of them no number fits.
        """
        distances = []
        for place in range(before.shape[axis]):
            part = before.narrow(axis, place, 1)
            moved = after.narrow(axis, place, 1)
            distance = self.find_distance(part, moved)
            if distance is None:
                return None
            distances.append(distance)
        return distances

    def describe_change(self, before: Tensor, after: Tensor, segment: Segment) -> str:
        """Return what happened to keys in words; empty: all are rotated by one number of
        positions.

        Args:
            before: keys [rows, heads, slots, head_dim].
            after: the same keys after the change.
            segment: the slots of the keys.
        """
        if self.find_distance(before, after) is not None:
            return ""
        # The number of positions may differ from slot to slot, or from head to head.
        for axis, name in ((2, "slot by slot"), (1, "head by head")):
            distances = self.find_distances(before, after, axis)
            if distances is not None:
                numbers = list_ranges(distances)
                return f"are rotated by {numbers} positions, {name}, {segment.right}"
        return self.describe_map(before, after, segment.distance)

    def find_other_source(
        self, before: Tensor, after: Tensor, keep: Sequence[int]
    ) -> str:
        """Return whose keys are in each slot, if not its own; empty: this is not known.

        Keys may have been rotated, slot by slot or head by head.

        Args:
            before: keys [rows, heads, slots, head_dim], those that were dropped, too.
            after: the keys of the slots that are left.
            keep: the slots that were to stay.
        """
        sources = self.find_sources(before, after, axis=2, own=keep)
        if sources and sources != [*keep]:
            pairs = zip(keep, sources, strict=True)
            wrong = [(slot, source) for slot, source in pairs if slot != source]
            slots = list_ranges([slot for slot, _ in wrong])
            wrong_sources = list_ranges([source for _, source in wrong])
            return (
                f"not in the slots of their values: values of slots {slots} have keys of"
                f" slots {wrong_sources}"
            )
        heads = [*range(after.shape[1])]
        sources = self.find_sources(before[:, :, list(keep)], after, axis=1, own=heads)
        if sources and sources != heads:
            return "those of other heads"
        return ""

    def find_sources(
        self, before: Tensor, after: Tensor, axis: int, own: Sequence[int]
    ) -> list[int]:
        """Return the slots or heads before whose keys, rotated, are in each place; empty:
        the keys of some place are those of none.

        ``own``: the slot or head that each place should have its keys from.
        """
        sources: list[int] = []
        for place, expected in enumerate(own):
            # Its own key comes first.
            others = [each for each in range(before.shape[axis]) if each != expected]
            candidates = [expected, *others]
            source = self.find_source(before, after, axis, place, candidates)
            if source is None:
                return []
            sources.append(source)
        return sources

    def find_source(
        self,
        before: Tensor,
        after: Tensor,
        axis: int,
        place: int,
        candidates: Sequence[int],
    ) -> int | None:
        """Return the slot or head whose key, rotated, is in this place."""
        key = after.narrow(axis, place, 1)
        lengths = key.norm(dim=-1)
        for source in candidates:
            old_key = before.narrow(axis, source, 1)
            # A rotation keeps lengths, which are compared faster than all rotations.
            old_lengths = old_key.norm(dim=-1)
            is_longer = (old_lengths - lengths).abs() > EQUAL * key.std()
            if not is_longer.any() and self.find_slots(old_key, key):
                return source
        return None

    def find_slots(self, before: Tensor, after: Tensor) -> bool:
        """Return True if each slot's keys are rotated by any number of positions."""
        return self.find_distances(before, after, axis=2) is not None

    def describe_map(self, before: Tensor, after: Tensor, right_distance: int) -> str:
        """Return in words which other map was applied."""
        for words, rotated_units in self.list_wrong_maps():
            for matrix in rotated_units:
                if are_equal(after, before.to(matrix.dtype) @ matrix):
                    return words

        nearly = self.describe_rounding(before, after)
        all_features = range(self.width)
        other_features = [each for each in all_features if each not in self.features]
        if other_features and not are_equal(
            before[..., other_features], after[..., other_features]
        ):
            share = f"{len(self.features)} of {self.width} do"
            return nearly or f"are changed in features that do not rotate: {share}"

        norm_after = after[..., self.features].norm()
        norm_before = before[..., self.features].norm()
        gain = float(norm_after / norm_before)
        if abs(gain - 1) > EQUAL:
            scaled = after.clone()
            scaled[..., self.features] /= gain
            if self.find_distance(before, scaled) is not None:
                return self.describe_gain(gain)
        other_pairs = self.describe_pairs(before, after, right_distance)
        return nearly if nearly and other_pairs == NO_ROTATION else other_pairs

    def describe_rounding(self, before: Tensor, after: Tensor) -> str:
        """Return in words a rotation whose result is rounded; empty: there is none."""
        spread = float(after.std())
        errors = []
        for matrix in self.rotated_units:
            difference = (before.to(matrix.dtype) @ matrix - after).abs().max()
            errors.append(float(difference) / spread)
        least = min(errors)
        if least > LARGEST_ROUNDING:
            return ""
        distance = DISTANCES[errors.index(least)]
        rotated = f"are rotated by {distance:+d} positions"
        if not distance:
            rotated = "keep their rotation"
        return f"{rotated}, with errors of up to {least:.1%} of their spread: {ROUNDED}"

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
        wrong = ((angles - right_angles).abs() > EQUAL).nonzero().flatten().tolist()
        if not wrong:
            return NO_ROTATION
        known = self.name_angles(angles, right_angles, right_distance)
        pair = wrong[0]
        says = (
            f"are rotated with other frequencies: pair {pair} by"
            f" {float(angles[pair]):+.3g} radians"
        )
        if right_distance:
            says += f", where {right_distance:+d} positions take"
            says += f" {float(right_angles[pair]):+.3g}"
        return f"{says} ({known})" if known else says

    def name_angles(self, angles: Tensor, right_angles: Tensor, distance: int) -> str:
        """Return in words why pairs are rotated by these angles, if it is plain.

        ``distance``: the positions by which the right angles rotate.
        """
        still = (angles.abs() <= EQUAL).tolist()
        is_right = ((angles - right_angles).abs() <= EQUAL).tolist()
        pair_count = len(still)
        if all(same or zero for same, zero in zip(is_right, still, strict=True)):
            moved = [pair for pair in range(pair_count) if not still[pair]]
            if moved:
                return f"only pairs {list_ranges(moved)} of {pair_count} are rotated"
        if pair_count < 3 or not distance:
            return ""

        # Angles of a base are a geometric series. Whole turns are not seen, so that the
        # series follows from the two slowest pairs.
        ratio = float(angles[-1] / angles[-2])
        right_ratio = float(right_angles[-1] / right_angles[-2])
        if not 0 < ratio < 1:
            return ""
        series = angles[-1] * ratio ** -torch.arange(pair_count - 1, -1, -1).to(angles)
        turns = (series - angles) / (2 * math.pi)
        if float((turns - turns.round()).abs().max()) > EQUAL:
            return ""
        scale = float(series[0]) / distance
        words = []
        if abs(ratio / right_ratio - 1) > EQUAL:
            words.append(f"the base {ratio**-pair_count:,.0f}")
        if abs(scale - 1) > 0.01:
            words.append(f"positions multiplied by {scale:.3g}")
        return f"as with {' and '.join(words)}" if words else ""

    def pair_up(self, keys: Tensor) -> Tensor:
        """Return pairs as complex numbers [rows, heads, slots, pairs]."""
        first, second = self.order_pairs()
        return torch.complex(keys[..., first], keys[..., second])

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
        yield from self.list_mixed_layouts()
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

    def list_mixed_layouts(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the maps that take pairs from one layout, and cos and sin from the other.

        This happens where `rotate_half` and the tables come from two models.
        """
        own = self.order_pairs()
        other = self.order_pairs(is_other=True)
        first, second = own
        cos = self.rotated_units[:, first, first]
        sin = self.rotated_units[:, first, second]
        for words, pairs, order_of_tables in (
            (
                "are rotated in the pairs of the other layout, by cos and sin that are in"
                " the model's",
                other,
                own,
            ),
            (
                "are rotated by cos and sin in the order of the other layout, in the"
                " model's pairs",
                own,
                other,
            ),
        ):
            # The cosines and sines by features.
            cos_table = torch.zeros_like(self.rotated_units[:, 0])
            sin_table = torch.zeros_like(cos_table)
            for features in order_of_tables:
                cos_table[:, features] = cos
                sin_table[:, features] = sin
            first, second = pairs
            rotated_units = self.rotated_units.clone()
            rows = self.features[:, None]
            rotated_units[:, rows, self.features] = 0
            for features in pairs:
                rotated_units[:, features, features] = cos_table[:, features]
            rotated_units[:, first, second] = sin_table[:, second]
            rotated_units[:, second, first] = -sin_table[:, first]
            yield words, rotated_units

    def order_pairs(self, is_other: bool = False) -> tuple[Tensor, Tensor]:
        """Return the first and the second features of all pairs.

        ``is_other``: True asks for the pairs of the other layout.
        """
        layout = "adjacent" if self.is_adjacent() != is_other else "half"
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
