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

from ropelab.conformance.check import diagnose
from ropelab.conformance.expected import PROBES, Expected
from ropelab.conformance.laws.law import Case, Comparison, Found, Law, Trial
from ropelab.conformance.laws.subject import TransformersSubject, UnaskedError
from ropelab.conformance.observed import recover_frequencies
from ropelab.conformance.rotations import Observed, observe_vectors
from ropelab.math.rotary import axis_of_pairs
from ropelab.readers import registry
from ropelab.readers.families import unrotated
from ropelab.readers.spec import RopeSpec

# Angles beyond are rounded by more than the tolerance, in radians, in float32.
LARGEST = 2**13
TOLERANCE = 0.01
# Of what does not move, relative to its size: float32 leaves less.
STILL = 1e-5
# Architectures whose layers rotate only under a window, as their configuration does not
# say.
WINDOWED_ONLY = ("cohere2", "exaone4", "exaone_moe")


@dataclass(frozen=True)
class Turn:
    """The rotation of one layer's cache."""

    part: int  # 0: its keys; 1: the second part of a cache of latents
    # Row j of an image is the j-th unit vector, rotated to a position [positions,
    # width, width].
    images: Tensor


def recover_turns(case: Case, positions: Tensor) -> dict[int, Turn | None]:
    """Return rotations by distances [positions] or [axes, positions], by layer; None:
    none.
    """
    # Some recurrent layers begin anew at position 0, so that no rotation starts there.
    start = torch.ones_like(positions[..., :1]) - min(0, int(positions.min()))
    sample = read_parts(case, start, 1)
    if not sample:
        raise UnaskedError("no layer keeps keys")
    all_parts = [part for parts in sample.values() for part in parts]
    widest = max(part.shape[-1] for part in all_parts)
    fewest = min(part.shape[1] for part in all_parts)

    at = torch.cat([start, start + positions], dim=-1)
    # Heads that share a key need more tokens.
    for count in dict.fromkeys([math.ceil(2 * widest / fewest), 2 * widest]):
        with suppress(np.linalg.LinAlgError):
            return {
                n: recover_turn(parts)
                for n, parts in read_parts(case, at, count).items()
            }
    raise UnaskedError("keys of different tokens are too alike to tell rotations from")


def recover_turn(parts: Sequence[Tensor]) -> Turn | None:
    for number, part in enumerate(parts):
        if (part - part[:1]).abs().max() > STILL * part.std():
            if torch.linalg.matrix_rank(part[0]) < part.shape[-1]:
                raise np.linalg.LinAlgError
            solved = torch.linalg.lstsq(part[:1].double(), part[1:].double()).solution
            return Turn(number, solved.to(part.dtype))
    return None


def read_parts(case: Case, positions: Tensor, count: int) -> dict[int, list[Tensor]]:
    """Return keys and values [positions, samples, width] of `count` tokens alone at
    positions.
    """
    random = torch.Generator().manual_seed(1)
    tokens = torch.randint(case.subject.vocabulary, (count,), generator=random)
    places = positions.shape[-1]
    cache = case.subject.new_cache()
    at = positions.repeat_interleave(count, dim=-1)[..., None]
    case.subject.read(tokens.repeat(places)[:, None], at, cache=cache)

    parts = {}
    for layer, entry in enumerate(case.subject.entries(cache)):
        if entry:
            parts[layer] = [part.reshape(places, -1, part.shape[-1]) for part in entry]
    return parts


def probe_turns(case: Case) -> tuple[dict[int, Turn | None], list[int]]:
    """Return the rotations to positions that show every kind of mistake, and these
    positions.
    """
    places = [p for p in PROBES if 0 < p < LARGEST]
    with suppress(IndexError, RuntimeError):  # tables end
        return recover_turns(case, torch.tensor(places)), places
    places = [p for p in places if p + 1 < (case.subject.across or LARGEST)]
    return recover_turns(case, torch.tensor(places)), places


def find_text_config(case: Case) -> Any:
    if not isinstance(case.subject, TransformersSubject):
        raise UnaskedError("it has no configuration to compare with")
    if why := unrotated(case.subject.text.to_dict()):
        raise UnaskedError(f"no RoPE: {why}")
    return case.subject.text


def list_rotating(text: Any) -> list[bool]:
    """Return for each layer whether the configuration, or its architecture, lets it
    rotate.
    """
    layers = text.num_hidden_layers
    if text.model_type in WINDOWED_ONLY and getattr(text, "sliding_window", None):
        return [kind == "sliding_attention" for kind in text.layer_types]
    flags = getattr(text, "no_rope_layers", None)
    if not flags:
        return [True] * layers
    return [bool(flag) for flag in flags]


def compare_layers(case: Case) -> Found:
    """Compare the layers that rotate with those that should."""
    wanted = list_rotating(find_text_config(case))
    turns, _ = probe_turns(case)
    wrong = [layer for layer, turn in turns.items() if bool(turn) != wanted[layer]]
    rotate = sum(map(bool, turns.values()))
    count = f"{rotate} of {len(wanted)} layers rotate"
    if not wrong:
        return Found("holds", count)
    first = wrong[0]
    says = "does not rotate, and should"
    if turns[first]:
        says = "rotates, and should not"
    return Found("broken", f"layer {first} {says}; {count}", layer=first)


def compare_frequencies(case: Case) -> Found:
    """Compare each layer's frequencies with those that the configuration asks for."""
    rows = case.layers = list_rotations(case)
    if not rows:
        raise UnaskedError("no layer rotates")
    kinds = set()
    for row in rows:
        if row["wrong"]:
            says = f"layer {row['layer']}: {row['says']}"
            return Found("broken", says, layer=row["layer"])
        width = f"{row['rotary_dim']} features"
        kinds.add(f"base {row['base']:g}, {width}, {row['pairing']}")
    return Found("holds", "; ".join(sorted(kinds)))


def list_rotations(case: Case) -> list[dict[str, Any]]:
    """Return a row per layer that rotates: its base, width, pairing, and what is wrong
    with it.
    """
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
    in_pairs = usual is not None and usual["pairing"] == "adjacent"
    spec = replace(
        spec,
        head_dim=width,
        rotary_dim=min(spec.rotary_dim, width),  # latents have narrow parts
        pairing="interleaved" if in_pairs else "half",
        attention_factor=1.0,  # two keys have it alike
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
    positions = np.array([0, *places], dtype=np.int64)
    after = np.concatenate([np.eye(spec.head_dim)[None], images.cpu().double().numpy()])
    # Features that no pair has are noise of the solution.
    after[np.abs(after) <= STILL] = 0.0
    return observe_vectors(np.eye(spec.head_dim), after, positions, spec)


def estimate_base(observed: Observed) -> float | None:
    """Return the base of frequencies that fall by one ratio from pair to pair."""
    if not observed.cos.size:
        return None
    frequencies = recover_frequencies(observed)
    moving = np.flatnonzero(frequencies > 0)
    if len(moving) < 2:
        return None
    slope = np.polyfit(moving, np.log(frequencies[moving]), 1)[0]
    return float(f"{np.exp(-slope * len(frequencies)):.4g}")


def compare_equal_ids(case: Case) -> Comparison:
    list_axes(case)
    at = case.make_positions(0)
    got = case.subject.read(case.tokens, at.expand(3, 1, -1))
    return Comparison(got, case.subject.read(case.tokens, at), exact=True)


def list_axes(case: Case) -> list[int]:
    """Return the axis that each pair should read."""
    rope = getattr(getattr(case.subject, "text", None), "rope_parameters", None) or {}
    counts = rope.get("mrope_section")
    if not counts:
        raise UnaskedError("its positions have one axis")
    if rope.get("mrope_interleaved"):
        return axis_of_pairs("mrope_interleaved", counts).tolist()
    return axis_of_pairs("mrope", counts).tolist()


def compare_axes(case: Case) -> Found:
    """Move one axis at a time, and compare the pairs that rotate with the configured
    sections.
    """
    wanted = list_axes(case)
    expected = []
    for axis in range(3):
        expected.append([pair for pair, reads in enumerate(wanted) if reads == axis])

    for layer, turn in recover_turns(case, torch.eye(3, dtype=torch.long)).items():
        if turn is None:
            continue
        still = torch.eye(turn.images.shape[-1], dtype=turn.images.dtype)
        moved = (turn.images - still).abs().amax(dim=1) > STILL
        for axis, row in enumerate(moved[:, : len(wanted)]):
            got = row.nonzero().flatten().tolist()
            if got != expected[axis]:
                says = (
                    f"layer {layer}: axis {axis} moves pairs {got}, not"
                    f" {expected[axis]}"
                )
                return Found("broken", says, layer=layer)
    return Found("holds", f"sections {[len(pairs) for pairs in expected]}")


ROTATION = Law(
    "rotation",
    "Do the layers rotate that should, with the configured frequencies?",
    (
        Trial("which layers", compare_layers, once=True),
        Trial("with what", compare_frequencies, once=True),
    ),
)
MROPE = Law(
    "M-RoPE",
    "Are equal ids plain RoPE, and sections realised as configured?",
    (
        Trial("equal ids", compare_equal_ids, once=True),
        Trial("sections", compare_axes, once=True),
    ),
)
