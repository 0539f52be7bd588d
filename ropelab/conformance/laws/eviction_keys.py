"""What an eviction did to each key: a rotation of its layer, or another map."""

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

# Keys may have moved by any number of positions that the prefix has.
DISTANCES = range(-PREFILLED, PREFILLED + 1)


def measure_moves(case: Case, trace: EvictionTrace) -> tuple[int, int] | None:
    """Return by how much keys in front of the gap and behind are rotated, measured.

    None: the cache cannot be read, or its keys are changed otherwise.
    """
    if not trace.after:
        return None
    for layer, turn in find_turns(case, DISTANCES).items():
        before = trace.before[layer]
        after = trace.after[layer]
        if before is None or after is None or turn is None:
            continue
        maps = Maps(case, layer, turn)
        stayed = before[turn.part][:, :, trace.keep]
        distances = []
        for slots in list_sides(trace):
            keys = stayed[:, :, slots]
            moved = after[turn.part][:, :, slots]
            distances.append(maps.find_distance(keys, moved))
        front, behind = distances
        if front is None or behind is None:
            return None
        return front, behind
    return None


def list_sides(trace: EvictionTrace) -> tuple[slice, slice]:
    """Return the slots in front of the gap and behind it."""
    sinks = trace.schedule.sinks
    return slice(sinks), slice(sinks, None)


def explain_keys(case: Case, trace: EvictionTrace) -> str:
    """Compare each layer's keys and values with those before the first eviction."""
    said = {}
    distances = {}
    for layer, turn in find_turns(case, DISTANCES).items():
        before = trace.before[layer]
        after = trace.after[layer]
        if before is None or after is None or turn is None:
            continue
        stayed = (before[0][:, :, trace.keep], before[1][:, :, trace.keep])
        maps = Maps(case, layer, turn)
        says = ""
        if turn.part == 0:
            says = explain_values(stayed[1], after[1], maps, list_sides(trace))
            source = find_layer_of_values(trace, after[1])
            if says and source is not None:
                says = f"values are those of layer {source}"
            if says and are_equal(stayed[1], after[0]):
                says = "keys and values are exchanged"
        for slots, place in zip(
            list_sides(trace), ("in front of", "behind"), strict=True
        ):
            keys = stayed[turn.part][:, :, slots]
            if not keys.numel():
                continue
            moved = after[turn.part][:, :, slots]
            distances[layer] = maps.find_distance(keys, moved)
            wanted = 0 if place == "in front of" else -trace.gap
            change = maps.describe_change(keys, moved, wanted)
            if change and not says:
                says = f"keys {place} the gap {change}"
        said[layer] = says

    for layer, says in said.items():
        if not says:
            continue
        is_shared = list(said.values()).count(says) == len(said)
        return says if is_shared else f"layer {layer}: {says}"
    return compare_layers(distances)


def compare_layers(distances: dict[int, int | None]) -> str:
    """Return the first layer whose keys behind the gap are rotated otherwise."""
    first, *others = distances
    for layer in others:
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
    """Return what happened to values in words; empty for nothing."""
    if are_equal(before, after):
        return ""
    if None not in match_tokens(before, after):
        return "values are not those of their keys' tokens"
    if before.shape[-1] == maps.width:
        for slots in sides:
            distance = maps.find_distance(before[:, :, slots], after[:, :, slots])
            if distance:
                return "values are rotated, too"
    return "values are changed"


def find_layer_of_values(trace: EvictionTrace, values: Tensor) -> int | None:
    """Return the layer that had these values before; None: no layer had them."""
    for layer, entry in enumerate(trace.before):
        if entry is None:
            continue
        stayed = entry[1][:, :, trace.keep]
        if stayed.shape == values.shape and are_equal(stayed, values):
            return layer
    return None


class Maps:
    """The rotation of one layer, and what is computed in its place by mistake."""

    def __init__(self, case: Case, layer: int, turn: Turn) -> None:
        self.images = turn.images
        self.width = turn.images.shape[-1]
        self.spec = find_spec(case, layer)
        self.features = find_rotated_features(turn.images[-1])
        # Slow pairs move by less than can be seen.
        if self.spec is not None and self.spec.head_dim == self.width:
            self.features = torch.tensor(self.spec.rotated)

    def find_distance(self, before: Tensor, after: Tensor) -> int | None:
        """Return the positions by which all keys are rotated; None: they are not.

        No keys are rotated by 0.
        """
        if not before.numel():
            return 0
        return find_distance(before, after, DISTANCES, self.images)

    def describe_change(self, before: Tensor, after: Tensor, wanted: int) -> str:
        """Return what happened to keys in words.

        Keys that stay as they are, or are moved up, need none.

        Args:
            before: keys [rows, heads, slots, head_dim].
            after: the same behind the eviction.
            wanted: the positions by which moving up rotates them.
        """
        distance = self.find_distance(before, after)
        if distance in (0, wanted):
            return ""
        would = "where they stay as they are"
        if wanted:
            would = f"where moving up takes {wanted:+d}"
        if distance is not None:
            return f"are rotated by {distance:+d} positions, {would}"

        for axis, name in ((2, "slot by slot"), (1, "head by head")):
            distances = []
            for number in range(before.shape[axis]):
                part = before.narrow(axis, number, 1)
                moved = after.narrow(axis, number, 1)
                distances.append(self.find_distance(part, moved))
            if None not in distances:
                words = list_ranges(distances)
                return f"are rotated by {words} positions, {name}, {would}"
        return self.describe_map(before, after, wanted)

    def describe_map(self, before: Tensor, after: Tensor, wanted: int) -> str:
        """Return which other map was applied, in words."""
        for words, images in self.list_mistakes():
            for image in images:
                if are_equal(after, before.to(image.dtype) @ image):
                    return words

        rest = [f for f in range(self.width) if f not in self.features]
        if rest and not are_equal(before[..., rest], after[..., rest]):
            return "are changed in features that do not rotate"
        gain = float(
            after[..., self.features].norm() / before[..., self.features].norm()
        )
        if abs(gain - 1) > EQUAL:
            scaled = after.clone()
            scaled[..., self.features] /= gain
            if self.find_distance(before, scaled) is not None:
                return self.describe_gain(gain)
        return self.describe_pairs(before, after, wanted)

    def describe_gain(self, gain: float) -> str:
        """Return what multiplies keys besides their rotation, in words."""
        says = f"are multiplied by {gain:.4g} besides being rotated"
        factor = 1.0 if self.spec is None else self.spec.attention_factor
        if abs(gain - factor) <= EQUAL:
            return f"{says}: the attention factor, which keys have already"
        if abs(gain * factor - 1) <= EQUAL:
            return f"{says}: the attention factor is taken from them"
        return says

    def describe_pairs(self, before: Tensor, after: Tensor, wanted: int) -> str:
        """Return the first pair that is rotated by another angle, in words."""
        image = self.images[DISTANCES.index(wanted)].to(before.dtype)
        right = self.pair_up(before @ image)
        turned = self.pair_up(after)
        unmoved = self.pair_up(before)
        angles = (turned * unmoved.conj()).sum(dim=(0, 1, 2)).angle()
        expected = (right * unmoved.conj()).sum(dim=(0, 1, 2)).angle()

        rotated = unmoved * torch.polar(torch.ones_like(angles), angles)
        spread = float(after.std())
        if float((rotated - turned).abs().max()) > EQUAL * spread:
            return "are changed by no rotation of the layer's pairs"
        for pair, (angle, other) in enumerate(zip(angles, expected, strict=True)):
            if abs(float(angle - other)) > EQUAL:
                return (
                    f"are rotated with other frequencies: pair {pair} by"
                    f" {float(angle):+.3g} radians, where moving up takes"
                    f" {float(other):+.3g}"
                )
        return "are changed by no rotation of the layer's pairs"

    def pair_up(self, keys: Tensor) -> Tensor:
        """Return pairs as complex numbers [rows, heads, slots, pairs]."""
        layout = "half"
        if self.is_adjacent():
            layout = "adjacent"
        order = self.features[order_features(len(self.features), layout)]
        first, second = keys[..., order].chunk(2, dim=-1)
        return torch.complex(first.contiguous(), second.contiguous())

    def is_adjacent(self) -> bool:
        """Return True if the first feature that rotates does so with its neighbour."""
        first = int(self.features[0])
        partners = self.images[DISTANCES.index(1)][first].abs()
        partners = partners.index_fill(0, self.features[:1], 0)
        return int(partners.argmax()) == first + 1 and len(self.features) > 2

    def list_mistakes(self) -> Iterator[tuple[str, Tensor]]:
        """List maps that are computed by mistake, one for each distance."""
        width = len(self.features)
        for first, second in ((0, 1), (1, 0)):
            orders = (order_features(width, "half"), order_features(width, "adjacent"))
            order = self.features[orders[first].argsort()[orders[second]]]
            images = self.images.clone()
            rows = self.features[:, None]
            images[:, rows, self.features] = self.images[:, order[:, None], order]
            yield "are rotated in the pairs of the other layout", images
        yield (
            "have first features of pairs that were overwritten before the second ones"
            " were computed from them",
            self.overwrite_first_features(),
        )

        for words, frequencies in self.list_frequencies():
            for layout in ("half", "adjacent"):
                features = torch.arange(2 * len(frequencies))
                yield words, self.rotate(frequencies, features, layout)

    def overwrite_first_features(self) -> Tensor:
        """Return images in which rotated first features make the second ones."""
        layout = "adjacent" if self.is_adjacent() else "half"
        order = self.features[order_features(len(self.features), layout)]
        first, second = order.chunk(2)
        cos = self.images[:, first, first]
        sin = self.images[:, first, second]
        images = self.images.clone()
        images[:, first, second] = cos * sin
        images[:, second, second] = cos - sin**2
        return images

    def list_frequencies(self) -> Iterator[tuple[str, Tensor]]:
        """List frequencies other than the layer's, in radians a position."""
        if self.spec is None:
            return
        pairs = len(self.features) // 2
        all_pairs = self.width // 2
        for words, count, size in (
            ("are rotated with frequencies that have no scaling", pairs, pairs),
            ("are rotated as if all features of the head did", all_pairs, all_pairs),
            ("are rotated with the exponents of the whole head", pairs, all_pairs),
        ):
            exponents = torch.arange(count, dtype=torch.float64) / size
            yield words, self.spec.base**-exponents

    def rotate(self, frequencies: Tensor, features: Tensor, layout: str) -> Tensor:
        """Return the images of unit vectors [distances, width, width]."""
        order = features[order_features(len(features), layout)]
        pairs = len(frequencies)
        first = order[:pairs]
        second = order[pairs:]
        images = torch.eye(self.width, dtype=torch.float64)
        images = images.repeat(len(DISTANCES), 1, 1)
        angles = torch.tensor(DISTANCES, dtype=torch.float64)[:, None] * frequencies
        images[:, first, first] = angles.cos()
        images[:, second, second] = angles.cos()
        images[:, first, second] = angles.sin()
        images[:, second, first] = -angles.sin()
        return images.to(self.images.dtype)


def find_spec(case: Case, layer: int) -> RopeSpec | None:
    """Return the rotation that the configuration gives a layer; None: there is none."""
    if not isinstance(case.subject, TransformersSubject):
        return None
    text = case.subject.text
    reading = registry.read(registry.RUNTIMES[registry.REFERENCE], text.to_dict())
    kinds = getattr(text, "layer_types", None)
    if not kinds:
        return reading.main
    return reading.layers.get(kinds[layer], reading.main)


def order_features(width: int, layout: str) -> Tensor:
    """Return the first features of all pairs, then the second ones."""
    features = torch.arange(width)
    if layout == "half":
        return features
    return torch.cat([features[::2], features[1::2]])


def find_rotated_features(image: Tensor) -> Tensor:
    """Return the features that a rotation by one position changes."""
    unmoved = torch.eye(len(image), dtype=image.dtype, device=image.device)
    # Slow pairs move by little; they lie between the features that move.
    changes = (image - unmoved).abs().amax(dim=1)
    return (changes > EQUAL / 10).nonzero().flatten()
