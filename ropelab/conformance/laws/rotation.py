"""The rotation of each layer, recovered from cached keys, not believed.

In a text of one token attention returns that token's value wherever it stands, so that
hidden states do not depend on its position, and the key of each layer at one position
is that at another, rotated. Keys of many tokens give the linear map between the two.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropelab.conformance.check import diagnose
from ropelab.conformance.expected import PROBES, Expected
from ropelab.conformance.laws.law import Case, Found, Law, Pair, Trial
from ropelab.conformance.laws.subject import Transformers, UnaskedError
from ropelab.conformance.observed import recover_frequencies
from ropelab.conformance.rotations import Observed, observe_vectors
from ropelab.math.rotary import axis_of_pairs
from ropelab.readers import registry
from ropelab.readers.families import unrotated
from ropelab.readers.spec import RopeSpec

# Angles beyond are rounded by more than the tolerance, in radians, in float32.
LARGEST, TOLERANCE = 2**13, 0.01
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
    widest = max(part.shape[-1] for parts in sample.values() for part in parts)
    fewest = min(part.shape[1] for parts in sample.values() for part in parts)
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
    places, cache = positions.shape[-1], case.subject.new_cache()
    at = positions.repeat_interleave(count, dim=-1)[..., None]
    case.subject.read(tokens.repeat(places)[:, None], at, cache=cache)
    return {
        n: [part.reshape(places, -1, part.shape[-1]) for part in entry]
        for n, entry in enumerate(case.subject.entries(cache))
        if entry
    }


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
    if not isinstance(case.subject, Transformers):
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
    return [
        bool(flag) for flag in getattr(text, "no_rope_layers", None) or [1] * layers
    ]


def compare_layers(case: Case) -> Found:
    """Compare the layers that rotate with those that should."""
    wanted, (found, _) = list_rotating(find_text_config(case)), probe_turns(case)
    wrong = [layer for layer, turn in found.items() if bool(turn) != wanted[layer]]
    count = f"{sum(map(bool, found.values()))} of {len(wanted)} layers rotate"
    if not wrong:
        return Found("holds", count)
    says = (
        "rotates, and should not" if found[wrong[0]] else "does not rotate, and should"
    )
    return Found("broken", f"layer {wrong[0]} {says}; {count}", layer=wrong[0])


def compare_frequencies(case: Case) -> Found:
    """Compare each layer's frequencies with those that the configuration asks for."""
    rows = case.layers = list_rotations(case)
    if not rows:
        raise UnaskedError("no layer rotates")
    if wrong := [row for row in rows if row["wrong"]]:
        says = f"layer {wrong[0]['layer']}: {wrong[0]['says']}"
        return Found("broken", says, layer=wrong[0]["layer"])
    kinds = {
        f"base {r['base']:g}, {r['rotary_dim']} features, {r['pairing']}" for r in rows
    }
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
    found, places = probe_turns(case)
    rows: list[dict[str, Any]] = []
    for layer, turn in found.items():
        if turn is None:
            continue
        # Weights decide which features form a pair and which way they turn, no
        # configuration does: the first layer stands for all.
        usual, width = rows[0]["pairing"] if rows else "", turn.images.shape[-1]
        spec = reading.layers.get(kinds[layer], reading.main)
        spec = replace(
            spec,
            head_dim=width,
            rotary_dim=min(spec.rotary_dim, width),  # latents have narrow parts
            pairing="interleaved" if usual == "adjacent" else "half",
            attention_factor=1.0,  # two keys have it alike
        )
        observed = observe_turn(turn.images, places, spec)
        if not rows and observed.partner == "adjacent":
            spec = replace(spec, pairing="interleaved")
            observed = observe_turn(turn.images, places, spec)
        # Some codes let both queries and keys turn the other way.
        other = observed.sin.size and observed.sin[1, 0] < 0
        sign = rows[0]["sign"] if rows else -1 if other else 1
        observed = replace(
            observed,
            sin=observed.sin * sign,
            blocks=(
                None
                if observed.blocks is None
                else observed.blocks * [[1, sign], [sign, 1]]
            ),
        )
        done = diagnose(observed, Expected(spec, max(places) + 2, {}), TOLERANCE)
        row = {
            "layer": layer,
            "base": estimate_base(observed),
            "rotary_dim": 2 * observed.cos.shape[1],
        }
        row |= {
            "pairing": observed.partner,
            "sign": sign,
            "wrong": done.wrong,
            "says": done.answer,
        }
        rows.append(row)
    return rows


def observe_turn(images: Tensor, places: Sequence[int], spec: RopeSpec) -> Observed:
    positions = np.array([0, *places], dtype=np.int64)
    after = np.concatenate([np.eye(spec.head_dim)[None], images.cpu().double().numpy()])
    # Features that no pair has are noise of the solution.
    after[np.abs(after) <= STILL] = 0.0
    return observe_vectors(np.eye(spec.head_dim), after, positions, spec)


def estimate_base(observed: Observed) -> float | None:
    """Return the base of frequencies that fall by one ratio from pair to pair."""
    found = recover_frequencies(observed) if observed.cos.size else np.empty(0)
    moving = np.flatnonzero(found > 0)
    if len(moving) < 2:
        return None
    slope = np.polyfit(moving, np.log(found[moving]), 1)[0]
    return float(f"{np.exp(-slope * len(found)):.4g}")


def compare_equal_ids(case: Case) -> Pair:
    list_axes(case)
    at = case.at(0)
    got = case.subject.read(case.tokens, at.expand(3, 1, -1))
    return Pair(got, case.subject.read(case.tokens, at), exact=True)


def list_axes(case: Case) -> list[int]:
    """Return the axis that each pair should read."""
    rope = getattr(getattr(case.subject, "text", None), "rope_parameters", None) or {}
    if not (counts := rope.get("mrope_section")):
        raise UnaskedError("its positions have one axis")
    alternating = rope.get("mrope_interleaved")
    return axis_of_pairs(
        "mrope_interleaved" if alternating else "mrope", counts
    ).tolist()


def compare_axes(case: Case) -> Found:
    """Move one axis at a time, and compare the pairs that rotate with the configured
    sections.
    """
    wanted = list_axes(case)
    for layer, turn in recover_turns(case, torch.eye(3, dtype=torch.long)).items():
        if turn is None:
            continue
        still = torch.eye(turn.images.shape[-1], dtype=turn.images.dtype)
        moved = ((turn.images - still).abs().amax(dim=1) > STILL)[:, : len(wanted)]
        got = [row.nonzero().flatten().tolist() for row in moved]
        expected = [[n for n, axis in enumerate(wanted) if axis == a] for a in range(3)]
        if got != expected:
            axis = next(a for a in range(3) if got[a] != expected[a])
            says = (
                f"layer {layer}: axis {axis} moves pairs {got[axis]}, not"
                f" {expected[axis]}"
            )
            return Found("broken", says, layer=layer)
    return Found("holds", f"sections {[wanted.count(a) for a in range(3)]}")


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
