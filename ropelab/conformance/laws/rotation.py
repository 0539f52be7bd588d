"""The rotation of each layer, recovered from cached keys, not believed.

In a text of one token attention returns that token's value wherever it stands, so that
hidden states do not depend on its position, and the key of each layer at one position
is that at another, rotated. Keys of many tokens give the linear map between the two.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropelab.conformance.diagnosis import diagnose
from ropelab.conformance.expected import PROBES, Expected
from ropelab.conformance.frequencies import recover_frequencies
from ropelab.conformance.laws.caches import UnaskedError
from ropelab.conformance.laws.law import Case, Law, Statement, Trial
from ropelab.conformance.laws.subject import TransformersSubject
from ropelab.conformance.observation import Observed
from ropelab.conformance.rotations import observe_vectors
from ropelab.readers import layers, registry
from ropelab.readers.families import unrotated
from ropelab.readers.spec import RopeSpec

# Angles beyond are rounded by more than the tolerance, in radians, in float32.
LARGEST = 2**13
TOLERANCE = 0.01
# What does not move changes by less than this, relative to its size, in float32.
STILL = 1e-5


@dataclass(frozen=True)
class Turn:
    """The rotation of one layer's cache."""

    part: int  # 0: its keys; 1: the second part of a cache of latents
    # Row j of an image is the j-th unit vector, rotated to a position [positions,
    # width, width].
    images: Tensor


def recover_turns(case: Case, positions: Tensor) -> dict[int, Turn | None]:
    """Return rotations by distances [positions] or [axes, positions], by layer.

    None: the layer does not rotate.
    """
    # Some recurrent layers begin anew at position 0, so that no rotation starts there.
    start = torch.ones_like(positions[..., :1]) - min(0, int(positions.min()))
    sample = read_parts(case, start, 1)
    if not sample:
        raise UnaskedError("no layer keeps keys")
    all_parts = [part for parts in sample.values() for part in parts]
    widest = max(part.shape[-1] for part in all_parts)
    fewest = min(part.shape[1] for part in all_parts)

    all_positions = torch.cat([start, start + positions], dim=-1)
    enough = 2 * widest
    # Heads that share a key need more tokens.
    for count in dict.fromkeys([math.ceil(enough / fewest), enough]):
        with suppress(np.linalg.LinAlgError):
            turns = {}
            for layer, parts in read_parts(case, all_positions, count).items():
                turns[layer] = recover_turn(parts)
            return turns
    raise UnaskedError("keys of different tokens are too alike to tell rotations from")


def recover_turn(parts: Sequence[Tensor]) -> Turn | None:
    """Return the rotation of the first part of a cache that moves; None: none does.

    LinAlgError: its tokens are too alike.
    """
    for number, part in enumerate(parts):
        moved = (part - part[:1]).abs().max()
        if moved <= STILL * part.std():
            continue
        if torch.linalg.matrix_rank(part[0]) < part.shape[-1]:
            raise np.linalg.LinAlgError
        before = part[:1].double()
        after = part[1:].double()
        images = torch.linalg.lstsq(before, after).solution
        return Turn(number, images.to(part.dtype))
    return None


def read_parts(case: Case, positions: Tensor, count: int) -> dict[int, list[Tensor]]:
    """Return keys and values [positions, samples, width] of `count` lone tokens."""
    random = torch.Generator().manual_seed(1)
    tokens = torch.randint(case.subject.vocabulary, (count,), generator=random)
    places = positions.shape[-1]

    # Each row has one token, at one position.
    rows = tokens.repeat(places)[:, None]
    positions_of_rows = positions.repeat_interleave(count, dim=-1)[..., None]
    cache = case.subject.new_cache()
    case.subject.read(rows, positions_of_rows, cache=cache)

    parts_by_layer = {}
    for layer, entry in enumerate(case.subject.entries(cache)):
        if entry:
            parts_by_layer[layer] = [
                part.reshape(places, -1, part.shape[-1]) for part in entry
            ]
    return parts_by_layer


def probe_turns(case: Case) -> tuple[dict[int, Turn | None], list[int]]:
    """Return rotations to positions that show every mistake, and these positions."""
    places = [place for place in PROBES if 0 < place < LARGEST]
    # Tables of the model may end before.
    with suppress(IndexError, RuntimeError):
        return recover_turns(case, torch.tensor(places)), places

    last = (case.subject.trained_length or LARGEST) - 1
    places = [place for place in places if place < last]
    return recover_turns(case, torch.tensor(places)), places


def find_text_config(case: Case) -> Any:
    if not isinstance(case.subject, TransformersSubject):
        raise UnaskedError("it has no configuration to compare with")
    reason = unrotated(case.subject.text.to_dict())
    if reason:
        raise UnaskedError(f"no RoPE: {reason}")
    return case.subject.text


def list_rotating(text: Any) -> list[bool]:
    """Return True for each layer that the configuration or architecture lets rotate."""
    rotating = layers.list_rotating(text.model_type, registry.REFERENCE, text.to_dict())
    return rotating or [True] * text.num_hidden_layers


def compare_layers(case: Case) -> Statement:
    """Compare the layers that rotate with those that should."""
    should_rotate = list_rotating(find_text_config(case))
    turns, _ = probe_turns(case)
    rotating = [layer for layer, turn in turns.items() if turn is not None]
    count = f"{len(rotating)} of {len(should_rotate)} layers rotate"

    for layer, turn in turns.items():
        if turn is None and should_rotate[layer]:
            says = f"layer {layer} does not rotate, and should; {count}"
            return Statement("broken", says, layer=layer)
        if turn is not None and not should_rotate[layer]:
            says = f"layer {layer} rotates, and should not; {count}"
            return Statement("broken", says, layer=layer)
    return Statement("holds", count)


def compare_frequencies(case: Case) -> Statement:
    """Compare each layer's frequencies with those that the configuration asks for."""
    case.layers = list_rotations(case)
    if not case.layers:
        raise UnaskedError("no layer rotates")

    kinds = set()
    for row in case.layers:
        if row["wrong"]:
            says = f"layer {row['layer']}: {row['says']}"
            return Statement("broken", says, layer=row["layer"])
        width = f"{row['rotary_dim']} features"
        kinds.add(f"base {row['base']:g}, {width}, {row['pairing']}")
    return Statement("holds", "; ".join(sorted(kinds)))


def list_rotations(case: Case) -> list[dict[str, Any]]:
    """Return a row per layer that rotates, as `judge_layer` makes it."""
    text = find_text_config(case)
    reading = registry.read(registry.RUNTIMES[registry.REFERENCE], text.to_dict())
    if reading.main is None:
        raise UnaskedError(f"its configuration is not read: {reading.problem}")
    kinds = getattr(text, "layer_types", None) or ["all"] * text.num_hidden_layers

    turns, places = probe_turns(case)
    rows: list[dict[str, Any]] = []
    for layer, turn in turns.items():
        if turn is None:
            continue
        spec = reading.layers.get(kinds[layer], reading.main)
        # The first layer stands for all in what no configuration says.
        usual = rows[0] if rows else None
        rows.append(judge_layer(layer, turn, places, spec, usual))
    return rows


def judge_layer(
    layer: int,
    turn: Turn,
    places: Sequence[int],
    spec: RopeSpec,
    usual: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the row of one layer: its base, width, pairing, and what is wrong.

    Weights decide which features form a pair and which way they turn, no configuration
    does: ``usual`` is the row of the first layer, which the others have to follow.
    """
    width = turn.images.shape[-1]
    is_adjacent = usual is not None and usual["pairing"] == "adjacent"
    spec = replace(
        spec,
        head_dim=width,
        # Latents have narrow parts.
        rotary_dim=min(spec.rotary_dim, width),
        pairing="interleaved" if is_adjacent else "half",
        # Both keys have the factor alike.
        attention_factor=1.0,
    )
    observed = observe_turn(turn.images, places, spec)
    if usual is None and observed.partner == "adjacent":
        spec = replace(spec, pairing="interleaved")
        observed = observe_turn(turn.images, places, spec)

    # Some codes let both queries and keys turn the other way.
    sign = 1
    if usual is not None:
        sign = usual["sign"]
    elif observed.sin.size and observed.sin[1, 0] < 0:
        sign = -1
    blocks = observed.blocks
    if blocks is not None:
        blocks = blocks * [[1, sign], [sign, 1]]
    observed = replace(observed, sin=observed.sin * sign, blocks=blocks)

    done = diagnose(observed, Expected(spec, max(places) + 2, {}), TOLERANCE)
    return {
        "layer": layer,
        "base": estimate_base(observed),
        "rotary_dim": 2 * observed.cos.shape[1],
        "pairing": observed.partner,
        "sign": sign,
        "wrong": done.wrong,
        "says": done.answer,
    }


def observe_turn(images: Tensor, places: Sequence[int], spec: RopeSpec) -> Observed:
    """Return the rotation of unit vectors at position 0 and at the places."""
    positions = np.array([0, *places], dtype=np.int64)
    unit_vectors = np.eye(spec.head_dim)
    rotated = images.cpu().double().numpy()
    after = np.concatenate([unit_vectors[None], rotated])
    # Features that no pair has are noise of the solution.
    after[np.abs(after) <= STILL] = 0.0
    return observe_vectors(unit_vectors, after, positions, spec)


def estimate_base(observed: Observed) -> float | None:
    """Return the base of frequencies that fall by one ratio from pair to pair."""
    if not observed.cos.size:
        return None
    frequencies = recover_frequencies(observed)
    moving = np.flatnonzero(frequencies > 0)
    if len(moving) < 2:
        return None

    logarithms = np.log(frequencies[moving])
    slope, _ = np.polyfit(moving, logarithms, 1)
    base = np.exp(-slope * len(frequencies))
    return float(f"{base:.4g}")


ROTATION = Law(
    "rotation",
    "Do the layers rotate that should, with the configured frequencies?",
    (
        Trial("which layers", compare_layers, once=True),
        Trial("with what", compare_frequencies, once=True),
    ),
)
