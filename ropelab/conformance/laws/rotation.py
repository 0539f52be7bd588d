"""The law of rotation: each layer rotates as configured.

The rotation of a layer is recovered from its cached keys, whatever its configuration
says. In a text of one token, attention returns the value of this token at any position,
so that the hidden states do not depend on the position, and the key of each layer at
one position is the key at another, rotated. The keys of many texts of one token give
the linear map between the keys at two positions.
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
from ropelab.conformance.laws.caches import CannotAskError
from ropelab.conformance.laws.law import Case, Law, Statement, Trial
from ropelab.conformance.laws.subject import TransformersSubject
from ropelab.conformance.observation import Observed
from ropelab.conformance.rotations import observe_vectors
from ropelab.readers import layers, registry
from ropelab.readers.families import explain_unrotated
from ropelab.readers.spec import RopeSpec

# The largest error of an angle, in radians, that counts as right.
TOLERANCE = 0.01
# The position below which rounding in float32 moves angles by less than the tolerance.
FIRST_ROUNDED_POSITION = 2**13
# The largest change of keys in float32, as a share of their spread, that is no
# rotation.
STILL = 1e-5
# The largest angle, in radians, that may be lost among these changes. With a base of 1e11
# the slowest pairs turn by less within all positions that are read.
FAINTEST = 10 * STILL


@dataclass(frozen=True)
class Turn:
    """The rotation of one layer's keys to some positions."""

    # The part of the cache that holds the keys: 0, or 1 in a cache of latents.
    part: int
    # [positions, width, width]. Row j of a matrix is the unit vector j, rotated to the
    # position.
    rotated_units: Tensor


def recover_turns(case: Case, positions: Tensor) -> dict[int, Turn | None]:
    """Return the rotation of each layer; None for a layer that does not rotate.

    ``positions``: the distances to rotate by, [positions] or [axes, positions].
    """
    # Rotations start at position 1 or later, since some recurrent layers begin anew at
    # position 0.
    start = torch.ones_like(positions[..., :1]) - min(0, int(positions.min()))
    sample = read_parts(case, start, 1)
    if not sample:
        raise CannotAskError("no layer keeps keys")
    all_parts = [part for parts in sample.values() for part in parts]
    widest = max(part.shape[-1] for part in all_parts)
    fewest = min(part.shape[1] for part in all_parts)

    all_positions = torch.cat([start, start + positions], dim=-1)
    # A map of w features follows from w independent keys. Twice as many are read, since
    # some may be alike. Each token usually gives a key for each head. If heads share
    # their keys, as many tokens as keys are needed.
    enough = 2 * widest
    for count in dict.fromkeys([math.ceil(enough / fewest), enough]):
        with suppress(np.linalg.LinAlgError):
            turns = {}
            for layer, parts in read_parts(case, all_positions, count).items():
                turns[layer] = recover_turn(parts)
            return turns
    raise CannotAskError(
        "keys of different tokens are too alike to tell rotations from"
    )


def recover_turn(parts: Sequence[Tensor]) -> Turn | None:
    """Return the rotation of the first part of a cache that moves; None: none moves.

    LinAlgError: the tokens are too alike to tell a rotation.

    ``parts``: keys and values [positions, samples, width]; the keys at the first
    position are rotated to all other positions.
    """
    for number, part in enumerate(parts):
        moved = (part - part[:1]).abs().max()
        if moved <= STILL * part.std():
            continue
        if torch.linalg.matrix_rank(part[0]) < part.shape[-1]:
            raise np.linalg.LinAlgError
        # The least squares solution is the matrix that takes all keys at the first
        # position to the keys at another position.
        before = part[:1].double()
        after = part[1:].double()
        rotated_units = torch.linalg.lstsq(before, after).solution
        return Turn(number, rotated_units.to(part.dtype))
    return None


def read_parts(case: Case, positions: Tensor, count: int) -> dict[int, list[Tensor]]:
    """Return the keys and values of texts of one token, by layer.

    Each has the shape [positions, samples, width]; samples are tokens and their heads.

    Args:
        case: the model.
        positions: [positions] or [axes, positions].
        count: the number of tokens that are read at each position.
    """
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
    positions = [each for each in PROBES if 0 < each < FIRST_ROUNDED_POSITION]
    # The tables of the model may end before the last of these positions.
    with suppress(IndexError, RuntimeError):
        return recover_turns(case, torch.tensor(positions)), positions

    last = (case.subject.trained_length or FIRST_ROUNDED_POSITION) - 1
    positions = [each for each in positions if each < last]
    return recover_turns(case, torch.tensor(positions)), positions


def find_text_config(case: Case) -> Any:
    """Return the configuration of the language model; CannotAskError: it has no RoPE."""
    if not isinstance(case.subject, TransformersSubject):
        raise CannotAskError("it has no configuration to compare with")
    reason = explain_unrotated(case.subject.text_config.to_dict())
    if reason:
        raise CannotAskError(f"no RoPE: {reason}")
    return case.subject.text_config


def list_rotating(text_config: Any) -> list[bool]:
    """Return True for each layer that the configuration or architecture lets rotate."""
    rotating = layers.list_rotating(
        text_config.model_type, registry.REFERENCE, text_config.to_dict()
    )
    return rotating or [True] * text_config.num_hidden_layers


def compare_layers(case: Case) -> Statement:
    """Find whether the right layers rotate, and no others."""
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
    """Find whether each layer has the frequencies that the configuration asks for."""
    case.layers = list_rotations(case)
    if not case.layers:
        raise CannotAskError("no layer rotates")

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
    text_config = find_text_config(case)
    reading = registry.read(
        registry.RUNTIMES[registry.REFERENCE], text_config.to_dict()
    )
    if reading.main_spec is None:
        raise CannotAskError(f"its configuration is not read: {reading.problem}")
    kinds = (
        getattr(text_config, "layer_types", None)
        or ["all"] * text_config.num_hidden_layers
    )

    is_of_transformers = type(text_config).__module__.startswith("transformers.models.")
    turns, positions = probe_turns(case)
    rows: list[dict[str, Any]] = []
    for layer, turn in turns.items():
        if turn is None:
            continue
        spec = reading.layers.get(kinds[layer], reading.main_spec)
        first_row = rows[0] if rows else None
        row = judge_layer(layer, turn, positions, spec, first_row)
        if is_of_transformers and not row["wrong"]:
            row |= explain_convention(row, spec)
        rows.append(row)
    return rows


def explain_convention(row: Mapping[str, Any], spec: RopeSpec) -> dict[str, Any]:
    """Return what is wrong with the pairs and their direction; empty if nothing is.

    The weights of a class of transformers are made for its own pairs and direction. Of
    other code the weights decide, which nobody knows here.

    Args:
        row: the row of a layer.
        spec: the rotation of the class.
    """
    if row["sign"] < 0:
        says = "queries and keys turn the other way than the weights are made for"
        return {"wrong": True, "says": says}
    # The reverse is no fault: some classes put adjacent pairs into halves.
    if row["pairing"] == "adjacent" and spec.pairing == "half":
        says = "adjacent features form pairs, and the weights are made for halves"
        return {"wrong": True, "says": says}
    return {}


def judge_layer(
    layer: int,
    turn: Turn,
    positions: Sequence[int],
    spec: RopeSpec,
    first_row: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the row of one layer: its base, width, pairing, and what is wrong.

    Which features form a pair, and which way pairs turn, follows from the weights. All
    layers have to do the same as the first layer.

    Args:
        layer: the number of the layer.
        turn: its rotation to the positions.
        positions: the positions.
        spec: the rotation that the configuration gives it.
        first_row: the row of the first layer; None for the first layer itself.
    """
    width = turn.rotated_units.shape[-1]
    is_adjacent = first_row is not None and first_row["pairing"] == "adjacent"
    spec = replace(
        spec,
        head_dim=width,
        # In a cache of latents the part that rotates may be narrower than the head.
        rotary_dim=min(spec.rotary_dim, width),
        pairing="interleaved" if is_adjacent else "half",
        # Keys before and after a rotation have the same attention factor, so that it
        # does not show.
        attention_factor=1.0,
    )
    observed = observe_turn(turn.rotated_units, positions, spec)
    if first_row is None and observed.partner == "adjacent":
        spec = replace(spec, pairing="interleaved")
        observed = observe_turn(turn.rotated_units, positions, spec)

    # In some models both queries and keys rotate in the opposite direction. The sine of
    # the first pair at the first position after 0 shows it.
    sign = 1
    if first_row is not None:
        sign = first_row["sign"]
    elif observed.sin.size and observed.sin[1, 0] < 0:
        sign = -1
    blocks = observed.blocks
    if blocks is not None:
        blocks = blocks * [[1, sign], [sign, 1]]
    observed = replace(observed, sin=observed.sin * sign, blocks=blocks)

    expected = Expected(spec, max(positions) + 2, by_runtime={})
    result = diagnose(fill_faint_pairs(observed, expected), expected, TOLERANCE)
    return {
        "layer": layer,
        "base": estimate_base(observed),
        "rotary_dim": 2 * observed.cos.shape[1],
        "pairing": observed.partner,
        "sign": sign,
        "wrong": result.wrong,
        "says": result.answer,
    }


def observe_turn(
    rotated_units: Tensor, positions: Sequence[int], spec: RopeSpec
) -> Observed:
    """Read cos and sin off unit vectors at position 0 and at all other positions."""
    all_positions = np.array([0, *positions], dtype=np.int64)
    unit_vectors = np.eye(spec.head_dim)
    rotated = rotated_units.cpu().double().numpy()
    after = np.concatenate([unit_vectors[None], rotated])
    # Components as small as this are errors of the least squares.
    after[np.abs(after) <= STILL] = 0.0
    return observe_vectors(unit_vectors, after, all_positions, spec, faintest=FAINTEST)


def fill_faint_pairs(observed: Observed, expected: Expected) -> Observed:
    """Return what was seen, with the right numbers for pairs that should be too slow to
    show, and do not show.
    """
    right_cos, right_sin = expected.rotation.tables(observed.positions)
    if observed.cos.shape != right_cos.shape:
        return observed

    largest_sines = np.maximum(np.abs(observed.sin), np.abs(right_sin)).max(axis=0)
    angles = np.abs(expected.inv_freq) * observed.positions.max()
    is_faint = (angles <= FAINTEST) & (largest_sines <= FAINTEST)
    cos = np.where(is_faint, right_cos, observed.cos)
    sin = np.where(is_faint, right_sin, observed.sin)
    blocks = observed.blocks
    if blocks is not None:
        right_blocks = np.stack(
            [np.stack([cos, -sin], axis=-1), np.stack([sin, cos], axis=-1)], axis=-2
        )
        blocks = np.where(is_faint[:, None, None], right_blocks, blocks)
    return replace(observed, cos=cos, sin=sin, blocks=blocks)


def estimate_base(observed: Observed) -> float | None:
    """Return the base of frequencies that fall by one ratio from pair to pair.

    None: fewer than two pairs rotate.
    """
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
