"""Checks of scaling methods: unseen angles, YaRN and NTK, who was first, and code in use."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ropelab.claims.arrays import Array, frequencies
from ropelab.claims.record import Findings
from ropelab.math.frequencies import Geometry
from ropelab.math.models import MODELS
from ropelab.math.scaling import NtkAware, Yarn, YarnPaper
from ropelab.runs.thresholds import SAME

# rotary_dim, base, trained length
Shape = tuple[int, float, int]
MINIMIND: Shape = (64, 1e6, 2048)
LLAMA_2: Shape = (128, 1e4, 4096)
# Even the slowest pair rotates more than once within the trained length.
MANY_TURNS: Shape = (64, 1e4, 131072)
ROPE = "2104.09864"


def turns(inv_freq: ArrayLike, length: float) -> Float[Array, " pairs"]:
    """Full rotations of every pair within `length` tokens."""
    return np.asarray(inv_freq) * (length / (2 * math.pi))


def unseen(geometry: Geometry, inv_freq: ArrayLike, length: float) -> Float[Array, " pairs"]:
    """Share of the circle that a pair meets within `length` but not within the trained length."""
    seen = turns(geometry.inv_freq, geometry.trained_len).clip(max=1)
    return (turns(inv_freq, length).clip(max=1) - seen).clip(min=0)


def largest_ratio(a: ArrayLike, b: ArrayLike) -> float:
    """Return the ratio of two sets of frequencies in their worst pair, at least 1."""
    return math.exp(float(np.abs(np.log(np.asarray(a) / np.asarray(b))).max()))


def slow_pairs_meet_new_angles(
    found: Findings, geometry: Shape = MINIMIND, length: int = 8192
) -> None:
    """Count pairs that meet angles which training never showed them."""
    model = Geometry(*geometry)
    new = unseen(model, model.inv_freq, length)
    fast = turns(model.inv_freq, model.trained_len) >= 1
    fine, hit = int((new[fast] <= SAME).sum()), int((new[~fast] > SAME).sum())
    quick, slow = int(fast.sum()), int((~fast).sum())
    what = (
        f"pairs with a full turn in {model.trained_len} tokens that meet no new angle at {length}"
    )
    found.part(what, f"{fine} of {quick}", fine == quick > 0, fine)
    found.part("slower pairs that meet new angles", f"{hit} of {slow}", hit == slow > 0, hit)


def yarn_brings_angles_back(
    found: Findings, geometry: Shape = MINIMIND, length: int = 8192, beta_fast: float = 32.0
) -> None:
    """Count the same after YaRN, the fast pairs that it changed, and its effect on logits."""
    model = Geometry(*geometry)
    plan = Yarn(factor=length / model.trained_len, beta_fast=beta_fast).plan(model, length)
    inv_freq, scaled = np.asarray(model.inv_freq), np.asarray(plan.inv_freq)
    before, after = (int((unseen(model, x, length) > SAME).sum()) for x in (inv_freq, scaled))
    fast = turns(inv_freq, model.trained_len) >= beta_fast
    changed = int(((scaled / inv_freq)[fast] < 1 - SAME).sum())
    text = f"{before} before, {after} after"
    found.part(f"pairs that meet new angles at {length}", text, after == 0 < before, after)
    what = f"pairs with {beta_fast:g} turns or more in training that YaRN changes"
    found.part(what, f"{changed} of {int(fast.sum())}", changed == 0, changed)
    logits = plan.logit_multiplier
    what = "every logit, also of the pairs that are kept, is multiplied by"
    found.limit(what, f"{logits:.4f}", abs(logits - 1) <= SAME, logits)


def ramps_agree(found: Findings, geometry: Shape = LLAMA_2, factor: float = 16.0) -> None:
    model = Geometry(*geometry)
    paper = np.asarray(YarnPaper(factor=factor).plan(model, 0).inv_freq)
    coded = np.asarray(Yarn(factor=factor).plan(model, 0).inv_freq)
    ratio, apart = coded / paper, largest_ratio(coded, paper)
    pair = int(np.abs(np.log(ratio)).argmax())
    differing = int((np.abs(ratio - 1) > SAME).sum())
    what = f"factor {factor:g}, pairs whose frequencies differ"
    text = f"{differing} of {len(ratio)}, pair {pair} by {apart:.2f} times"
    found.part(what, text, differing == 0, apart)


def ntk_keeps_the_ends(found: Findings, geometry: Shape = LLAMA_2, factor: float = 16.0) -> None:
    model = Geometry(*geometry)
    ratio = np.asarray(model.inv_freq) / np.asarray(NtkAware(factor=factor).plan(model, 0).inv_freq)
    found.expected = f"1 and {factor:g}"
    for name, divided, wanted in (("first", ratio[0], 1.0), ("last", ratio[-1], factor)):
        by, right = float(divided), abs(float(divided) / wanted - 1) <= SAME
        found.part(f"{name} pair divided by", f"{by:.12g}", right, by)


# Who was first, and who uses what, decided by dated publications


def month(arxiv: str) -> str:
    """Year and month in which an arXiv number begins.

    >>> month("2104.09864")
    '2021-04'
    """
    return f"20{arxiv[:2]}-{arxiv[2:4]}"


def generations(found: Findings, said: Sequence[tuple[str, int, tuple[str, str]]]) -> None:
    """Compare the year given for each kind with the first paper on it, a name and arXiv number."""
    found.expected = ", ".join(f"{what} {year}" for what, year, _ in said)
    for what, said_year, (name, arxiv) in said:
        year = int(month(arxiv)[:4])
        text = f"{name}, {month(arxiv)}"
        found.part(f"{what}, said to begin in {said_year}", text, year == said_year, year)


def is_earliest(
    found: Findings,
    paper: tuple[str, str],
    others: Sequence[tuple[str, str]],
    outside: tuple[str, str],
) -> None:
    """Compare a paper's date with the others on relative positions, and with one on attention.

    Each is a name and an arXiv number.
    """
    earliest = all(float(paper[1]) < float(number) for _, number in others)
    shown = ", ".join(f"{name} {month(number)}" for name, number in others)
    found.part(f"{paper[0]} {month(paper[1])}, the others", shown, earliest)
    found.limit(outside[0], month(outside[1]), float(paper[1]) < float(outside[1]))


def year_of(found: Findings, name: str, arxiv: str, said: int) -> None:
    year = int(month(arxiv)[:4])
    found.expected = str(said)
    found.part(f"{name}, arXiv:{arxiv}", month(arxiv), year == said, year)


def is_configured(found: Findings, models: Sequence[str]) -> None:
    """Look for a rotary base in the models' published configurations."""
    known = {name: MODELS.get(name) for name in models}
    shown = "; ".join(
        f"{name}: base {model.base:g}, {model.rotated} of {model.head_dim} features"
        for name, model in known.items()
        if model
    )
    found.part("what the configurations say", shown or "nothing", all(known.values()) or None)


def could_use(found: Findings, name: str, user: str, used: str = ROPE) -> None:
    """Refute that a model uses a method published after it; no `user`: the model is unpublished."""
    if user:
        text = f"{month(user)} (arXiv:{user}), RoPE in {month(used)}"
        found.part(f"{name}'s paper appeared in", text, float(user) >= float(used))
    else:
        found.part(f"{name}'s architecture", "not published", None)


# YaRN in use


def released_lengths(
    found: Findings,
    trained: int = 4096,
    claimed: int = 32768,
    released: Sequence[int] = (8192, 32768, 65536, 131072),
    finetuned: bool = True,
) -> None:
    """Compare the claimed length with the released ones (jquesnelle/yarn, README)."""
    found.expected = f"{claimed} among the released lengths, without fine-tuning"
    what = f"YaRN models released for the {trained}-token model"
    shown = ", ".join(str(length) for length in released)
    found.part(what, shown, claimed in released, max(released))
    text = "no, all were fine-tuned" if finetuned else "yes"
    found.limit("reached without fine-tuning", text, not finetuned)


def made_by_yarn(found: Findings, original: Shape = LLAMA_2, base: float = 1e6) -> None:
    """Look for a factor from 1 to 256 with which YaRN would give the published frequencies."""
    model = Geometry(*original)
    published = frequencies(model.rotary_dim, base)
    # Quarter octaves are fine enough: with any factor some pair is off several times.
    off = {
        factor: largest_ratio(published, Yarn(factor=factor).plan(model, 0).inv_freq)
        for factor in (2 ** (k / 4) for k in range(33))
    }
    best = min(off, key=off.__getitem__)
    what = f"base {base:g} against the nearest YaRN of base {model.base:g} (factor {best:.3g})"
    found.within(what, off[best], 1.01, "frequencies up to {:.1f} times apart")


Formula = Literal["beta per pair", "linear ramp"]


def minimind_frequencies(
    formula: Formula, geometry: Geometry, factor: float, beta_fast: float
) -> Float[Array, " pairs"]:
    """The frequencies that MiniMind's code gives, by one of its two formulas."""
    inv_freq = np.asarray(geometry.inv_freq)
    if formula == "beta per pair":
        # (b s - b + 1)/(b s) with b from 1 to beta_fast, for pairs that rotate fully; else 1/s.
        beta = np.linspace(1, beta_fast, geometry.pairs)
        within = turns(inv_freq, geometry.trained_len) >= 1
        return inv_freq * np.where(within, (beta * factor - beta + 1) / (beta * factor), 1 / factor)
    # YaRN's ramp with its end held at the last pair instead of the last feature.
    low, high = Yarn(factor=factor, beta_fast=beta_fast).ramp_range(geometry)
    high = min(high, geometry.pairs - 1)
    ramp = ((np.arange(geometry.pairs) - low) / max(high - low, 0.001)).clip(0, 1)
    return inv_freq * (1 - ramp + ramp / factor)


def minimind_is_yarn(
    found: Findings,
    formula: Formula,
    geometry: Shape,
    factor: float,
    beta_fast: float,
    other: Shape = MANY_TURNS,
) -> None:
    """Compare frequencies with implemented YaRN, as released and elsewhere, and the logits."""

    def apart(of: Geometry) -> tuple[str, bool, float]:
        yarn = Yarn(factor=factor, beta_fast=beta_fast).plan(of, 0)
        ratio = largest_ratio(minimind_frequencies(formula, of, factor, beta_fast), yarn.inv_freq)
        same = ratio <= 1 + SAME
        return "equal" if same else f"up to {ratio:.2f} times apart", same, ratio

    model, elsewhere = Geometry(*geometry), Geometry(*other)
    found.part(f"frequencies as shipped (factor {factor:g})", *apart(model))
    what = f"frequencies with base {elsewhere.base:g}, trained length {elsewhere.trained_len}"
    found.limit(what, *apart(elsewhere))
    # MiniMind applies no attention factor.
    yarn = Yarn(factor=factor).plan(model, 0).attention_factor
    found.limit("attention factor", f"1, YaRN's is {yarn:.4f}", abs(1 - yarn) <= SAME, yarn)
