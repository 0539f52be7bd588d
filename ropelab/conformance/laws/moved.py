"""Laws of cached keys that are rotated to new positions, and of a model's state."""

import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ropelab.conformance.laws.cached import PREFILLED
from ropelab.conformance.laws.law import TOKENS, Case, Comparison, Found, Law, Trial
from ropelab.conformance.laws.rotation import recover_turns
from ropelab.conformance.laws.subject import (
    Function,
    Tokens,
    TransformersSubject,
    UnaskedError,
)
from ropelab.models.released.loading import refusing
from ropelab.models.released.positions import Positions, RotaryModule, SineTables

DROPPED = 8
FAR = 1000
# Bytes; a larger model is not written to disk to be read again.
MOST_SAVED = 2**30
# A frequency that is off by no more was rounded to bfloat16, and so was its sine.
HALF = 2.0**-7


def compare_moved(case: Case, by: int, times: int = 1) -> Comparison:
    """Move the keys of a prefix, read on, and compare with the prefix read there."""
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    for _ in range(times):
        move_keys(case, cache, by)
    return continue_text(case, cache, case.tokens, by * times)


def move_keys(case: Case, cache: Any, by: int) -> None:
    """Rotate cached keys to positions further on, by the model's own code or by its
    rotation.
    """
    subject = case.subject
    if isinstance(subject, Function):
        if not hasattr(subject.function, "shift_keys"):
            raise UnaskedError("it has no shift_keys(cache, by)")
        subject.function.shift_keys(cache["held"], by)
        return
    narrow = case.dtype in (torch.bfloat16, torch.float16)
    with subject.computing(torch.float32) if narrow else nullcontext():
        turns = recover_turns(case, torch.tensor([by]))

    entries = subject.entries(cache)
    for layer, turn in turns.items():
        entry = entries[layer]
        if turn is None or entry is None:
            continue
        image = turn.images[0]
        parts = list(entry)
        rotated = entry[turn.part].to(image.dtype) @ image
        parts[turn.part] = rotated.to(entry[0].dtype)
        subject.set_entry(cache, layer, (parts[0], parts[1]))


def compare_dropped(case: Case) -> Comparison:
    """Forget the first tokens of a cache, move the rest back, and compare with a text
    without.
    """
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    for layer, (keys, values) in enumerate(list_whole_entries(case, cache, PREFILLED)):
        rest = (keys[:, :, DROPPED:], values[:, :, DROPPED:])
        case.subject.set_entry(cache, layer, rest)
    move_keys(case, cache, -DROPPED)
    return continue_text(case, cache, case.tokens[:, DROPPED:])


def compare_reused(case: Case) -> Comparison:
    """Put keys of a block that was read alone behind others, and compare with one
    pass.
    """
    cache = fill_cache(case, case.tokens[:, :DROPPED])
    block = fill_cache(case, case.tokens[:, DROPPED:PREFILLED])
    before = list_whole_entries(case, cache, DROPPED)
    move_keys(case, block, DROPPED)
    after = list_whole_entries(case, block, PREFILLED - DROPPED)

    for layer, (first, second) in enumerate(zip(before, after, strict=True)):
        keys = torch.cat([first[0], second[0]], dim=2)
        values = torch.cat([first[1], second[1]], dim=2)
        case.subject.set_entry(cache, layer, (keys, values))
    return continue_text(case, cache, case.tokens)


def fill_cache(case: Case, tokens: Tokens) -> Any:
    cache = case.subject.new_cache()
    case.subject.read(tokens, cache=cache)
    return cache


def list_whole_entries(
    case: Case,
    cache: Any,
    length: int,
) -> list[tuple[Tensor, Tensor]]:
    """Return keys and values of all layers; UnaskedError if one keeps less than all of
    them.
    """
    entries = [e for e in case.subject.entries(cache) if e and e[0].shape[2] == length]
    windows = any(getattr(layer, "is_sliding", False) for layer in cache["held"].layers)
    if windows or len(entries) != len(case.subject.entries(cache)):
        raise UnaskedError("a layer keeps a window or a state instead of all keys")
    return entries


def continue_text(case: Case, cache: Any, text: Tokens, first: int = 0) -> Comparison:
    """Read the rest of a text, which begins at `first`, and compare with one pass."""
    length = text.shape[1]
    places = range(length - (TOKENS - PREFILLED), length)
    at = case.make_positions(first + places.start, len(places))
    got = case.subject.read(text[:, places.start :], at, cache=cache)
    whole = case.subject.read(
        text, case.make_positions(first, length) if first else None
    )
    expected = [stage[:, places.start :] for stage in whole]
    return Comparison(got, expected, places, reach=first + TOKENS)


def compare_short_after_long(case: Case) -> Comparison:
    """Read the same before and after a text at positions beyond the trained length."""
    subject = case.subject
    before = case.whole
    if subject.across is not None:
        subject.read(case.tokens, case.make_positions(subject.across))
    return Comparison(subject.read(case.tokens), before, exact=True)


def compare_saved(case: Case) -> Comparison:
    """Save the model, load it (its skeleton is built without memory), and read the
    same.
    """
    model = require_transformers(case).model
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    if weights > MOST_SAVED:
        raise UnaskedError(
            f"more than {MOST_SAVED >> 30} GiB of weights are not saved again"
        )

    with (
        tempfile.TemporaryDirectory(prefix="ropelab-") as folder,
        refusing("cannot save", "it"),
    ):
        model.save_pretrained(folder)
        again = type(model).from_pretrained(folder, dtype=case.dtype)
    loaded = TransformersSubject(again.to(require_transformers(case).device))
    return Comparison(loaded.read(case.tokens), case.whole, exact=True)


def compare_compiled(case: Case) -> Comparison:
    """Read with torch.compile, near after short texts and then far, and compare with
    eager code.
    """
    # What was compiled for one length or place may stay in the graph.
    torch.compiler.reset()
    subject = case.subject.compile()
    for length in (2, TOKENS // 2):
        subject.read(case.tokens[:, :length], case.make_positions(0, length))

    got = [
        subject.read(case.tokens, case.make_positions(first))[-1] for first in (0, FAR)
    ]
    plain = case.subject
    expected = [
        plain.read(case.tokens, case.make_positions(first))[-1] for first in (0, FAR)
    ]
    places = [*range(TOKENS), *range(FAR, FAR + TOKENS)]
    return Comparison(
        [torch.cat(got)], [torch.cat(expected)], places, reach=FAR + TOKENS
    )


def compare_autocast(case: Case) -> Found:
    """Compare the rotary modules' cosines under autocast to bfloat16 with those
    without.
    """
    at = [0, 1, (require_transformers(case).across or 2**12) - 1]
    for number, module in enumerate(list_rotary_modules(case)):
        plain = module.cosines(at)
        with torch.autocast(require_transformers(case).device.type, torch.bfloat16):
            apart = (module.cosines(at).double() - plain.double()).abs().max()
        if apart > 0:
            return Found(
                "broken", f"rotary module {number}: cosines in bfloat16", float(apart)
            )
    return Found("holds", "cosines are the same bit for bit")


def compare_converted(case: Case) -> Found:
    """Convert copies of the rotary modules to bfloat16, and compare their
    frequencies.
    """
    off = 0.0
    for module in list_rotary_modules(case):
        copied = deepcopy(module)
        if isinstance(copied, SineTables):
            copied = SineTables([copied.modules[0].to(torch.bfloat16)])
        else:
            copied.module.to(torch.bfloat16)
        before = module.inv_freq.double()
        after = copied.inv_freq.double()
        off = max(off, float(((after - before) / before).abs().nan_to_num().max()))
    if not off:
        return Found("holds", "inv_freq stays float32")
    says = "inv_freq is rounded to bfloat16; load with dtype= instead of .to()"
    return Found("rounding only" if off <= HALF else "broken", says, off)


def require_transformers(case: Case) -> TransformersSubject:
    if not isinstance(case.subject, TransformersSubject):
        raise UnaskedError("it is no model of transformers")
    return case.subject


def list_rotary_modules(case: Case) -> Sequence[RotaryModule | SineTables]:
    subject = require_transformers(case)
    modules = Positions(subject.model, subject.text).modules
    if not modules:
        raise UnaskedError("it has no module with frequencies")
    return modules


KSHIFT = Law(
    "K-shift",
    "Are cached keys that are rotated to new positions those computed there?",
    (
        Trial("by 1", partial(compare_moved, by=1)),
        Trial("by 1,000", partial(compare_moved, by=1000)),
        Trial("ten times by 100", partial(compare_moved, by=100, times=10)),
        Trial("tokens dropped", compare_dropped, cost=True),
        Trial("block moved", compare_reused, cost=True),
    ),
)
STATE = Law(
    "state",
    "Are frequencies the same after long texts, conversion, saving, autocast?",
    (
        Trial("short after long", compare_short_after_long, once=True),
        Trial(".to(bfloat16)", compare_converted, once=True),
        Trial("saved and loaded", compare_saved, once=True),
        Trial("under autocast", compare_autocast, once=True),
    ),
)
# Compiling takes longer than all other trials together.
COMPILED = Trial("torch.compile", compare_compiled, once=True)
