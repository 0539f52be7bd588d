"""Laws of cached keys that are rotated to new positions, and of a model's state.

Rotating the keys of a cache to new positions is called K-shift. The model's own code does
it if it can, and otherwise the rotation that was recovered from its keys (`find_turns`).
A model's state is all that may change how it reads the same text later.
"""

import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ropelab.conformance.laws.cached import PREFILLED
from ropelab.conformance.laws.caches import CannotAskError
from ropelab.conformance.laws.kept import keep_configs
from ropelab.conformance.laws.law import (
    TOKENS,
    Case,
    Comparison,
    Law,
    Statement,
    Trial,
    measure_size,
)
from ropelab.conformance.laws.rotation import Turn, recover_turns
from ropelab.conformance.laws.subject import (
    Function,
    Subject,
    Tokens,
    TransformersSubject,
)
from ropelab.models.released.loading import refusing
from ropelab.models.released.positions import Positions, RotaryModule, SineTables

# A position far behind the first positions.
FAR = 1000
# The largest model, in bytes, that is written to disk to be read again.
MOST_SAVED = 2**30
# The largest difference, as a share of the spread, between logits in float32 and the
# logits of the mistake that explains them. Rounding grows with positions, but wrong
# positions change logits by more.
EXPLAINED_DIFFERENCE = 0.01
# Rounding to bfloat16 changes a frequency by at most this share.
BFLOAT16_ERROR = 2.0**-7
# The length up to which autocast is asked where a model has no trained length.
USUAL_LENGTH = 2**12


def compare_moved(case: Case, by: int, times: int = 1) -> Comparison:
    """Move the keys of a prefix by some positions, once or more often, and read on.

    The logits are compared with those of one pass at the positions to which the keys
    were moved.
    """
    cache = fill_cache(case, case.tokens[:, :PREFILLED])
    for _ in range(times):
        move_keys(case, cache, by)
    comparison = continue_text(case, cache, case.tokens, by * times)
    *_, logits = comparison.got
    explain = partial(explain_move, case, logits, by * times)
    return comparison._replace(explain=explain)


def explain_move(case: Case, got: Tensor, by: int) -> str:
    """Return in words what was done to keys in place of moving them.

    Empty: no known mistake gives the logits ``got`` of the tokens behind the moved
    keys.
    """
    for moved, says in (
        (0, "cached keys are moved without a rotation"),
        (-by, "cached keys are rotated in the wrong direction"),
        (2 * by, "cached keys are rotated twice"),
        (by + 1, "cached keys are rotated by one position too many"),
        (by - 1, "cached keys are rotated by one position too few"),
    ):
        # The prefilled tokens are placed where this mistake leaves their keys.
        positions = case.make_positions(by)
        positions[:, :PREFILLED] += moved - by
        # No position may be negative. A common shift changes nothing: only distances
        # count.
        positions -= min(0, int(positions.min()))

        *_, logits = case.subject.read(case.tokens, positions)
        expected = logits[:, PREFILLED:]
        if measure_size(got, expected) <= EXPLAINED_DIFFERENCE:
            return says
    return ""


def move_keys(case: Case, cache: Any, by: int) -> None:
    """Rotate all keys of a cache by some positions.

    The model's own code does it, or the rotation that was recovered from its keys.
    """
    subject = case.subject
    if isinstance(subject, Function) and hasattr(subject.function, "shift_keys"):
        subject.function.shift_keys(cache["code_cache"], by)
        return
    if isinstance(subject, Function) and not are_keys_open(case):
        raise CannotAskError("it has no shift_keys(cache, by)")

    entries = subject.entries(cache)
    for layer, turn in find_turns(case, [by]).items():
        entry = entries[layer]
        if turn is None or entry is None:
            continue
        # The matrix that rotates keys by the distance. Its rows are the rotated unit
        # vectors.
        (matrix,) = turn.rotated_units
        keys = entry[turn.part]
        parts = list(entry)
        parts[turn.part] = (keys.to(matrix.dtype) @ matrix).to(keys.dtype)
        first, second = parts
        subject.set_entry(cache, layer, (first, second))


def are_keys_open(case: Case) -> bool:
    """Return True if the keys of the cache can be read, and are rotated in it."""
    try:
        turns = find_turns(case, [1])
    except CannotAskError:
        return False
    return any(turn is not None for turn in turns.values())


def find_turns(case: Case, distances: Sequence[int]) -> dict[int, Turn | None]:
    """Return the rotation of each layer's keys by each distance, in positions.

    None stands for a layer that does not rotate. The case remembers the rotations.
    """
    key = tuple(distances)
    if key not in case.turns:
        # Formats of 16 bits are too coarse to recover a rotation.
        is_narrow = case.dtype in (torch.bfloat16, torch.float16)
        with case.subject.computing(torch.float32) if is_narrow else nullcontext():
            case.turns[key] = recover_turns(case, torch.tensor(key))
    turns: dict[int, Turn | None] = case.turns[key]
    return turns


def fill_cache(case: Case, tokens: Tokens) -> Any:
    """Return a cache with the keys of these tokens."""
    cache = case.subject.new_cache()
    case.subject.read(tokens, cache=cache)
    return cache


def list_whole_entries(
    case: Case,
    cache: Any,
    length: int,
) -> list[tuple[Tensor, Tensor]]:
    """Return the keys and values of all layers.

    CannotAskError: a layer does not keep the keys of all tokens.

    Args:
        case: the model and its tokens.
        cache: the cache.
        length: the number of tokens in it.
    """
    whole_entries = []
    is_partial = False
    for entry in case.subject.entries(cache):
        if entry is None:
            is_partial = True
            continue
        keys, _ = entry
        if keys.shape[2] == length:
            whole_entries.append(entry)
        else:
            is_partial = True

    for layer in getattr(cache["code_cache"], "layers", ()):
        if getattr(layer, "is_sliding", False):
            is_partial = True
    if is_partial:
        raise CannotAskError("a layer keeps a window or a state instead of all keys")
    return whole_entries


def continue_text(
    case: Case,
    cache: Any,
    text: Tokens,
    first: int = 0,
) -> Comparison:
    """Read the rest of a text behind a cache, and compare with one pass over the text.

    Args:
        case: the model.
        cache: the keys of the beginning of the text.
        text: the whole text.
        first: the position of its first token.
    """
    length = text.shape[1]
    count = TOKENS - PREFILLED
    start = length - count
    positions = case.make_positions(first + start, count)
    got = case.subject.read(text[:, start:], positions, cache=cache)

    all_positions = None
    if first:
        all_positions = case.make_positions(first, length)
    whole = case.subject.read(text, all_positions)
    expected = [stage[:, start:] for stage in whole]
    return Comparison(
        got, expected, range(start, length), largest_position=first + TOKENS
    )


def compare_short_after_long(case: Case) -> Comparison:
    """Read a text before and after one at positions beyond the trained length."""
    subject = case.subject
    before = case.whole
    if subject.trained_length is not None:
        far = case.make_positions(subject.trained_length)
        subject.read(case.tokens, far)
    after = subject.read(case.tokens)
    return Comparison(after, before, exact=True)


def compare_saved(case: Case) -> Comparison:
    """Save the model, load it, and read the same.

    A model that is loaded is first built without memory, so that tables may be lost.
    """
    subject = require_transformers(case)
    model = subject.model
    weight_bytes = 0
    for parameter in model.parameters():
        weight_bytes += parameter.numel() * parameter.element_size()
    if weight_bytes > MOST_SAVED:
        raise CannotAskError(
            f"more than {MOST_SAVED >> 30} GiB of weights are not saved again"
        )

    with (
        tempfile.TemporaryDirectory(prefix="ropelab-") as folder,
        refusing("cannot save", "it"),
    ):
        with keep_configs(model):
            model.save_pretrained(folder)
        # A config.json does not hold the kernel of attention that a model was built with.
        options = {}
        kernel = getattr(model.config, "_attn_implementation", None)
        if isinstance(kernel, str):
            options["attn_implementation"] = kernel
        loaded_model = type(model).from_pretrained(folder, dtype=case.dtype, **options)
    loaded = TransformersSubject(loaded_model.to(subject.device), is_borrowed=False)
    return Comparison(loaded.read(case.tokens), case.whole, exact=True)


def compare_compiled(case: Case) -> Comparison:
    """Read with torch.compile near and then far, and compare with eager code."""
    # Constants of the first lengths and positions may stay in the compiled code.
    torch.compiler.reset()
    compiled = case.subject.compile()
    for length in (2, TOKENS // 2):
        compiled.read(case.tokens[:, :length], case.make_positions(0, length))

    got = torch.cat(read_near_and_far(case, compiled))
    expected = torch.cat(read_near_and_far(case, case.subject))
    places = [*range(TOKENS), *range(FAR, FAR + TOKENS)]
    return Comparison([got], [expected], places, largest_position=FAR + TOKENS)


def read_near_and_far(case: Case, subject: Subject) -> list[Tensor]:
    """Return the logits of the text at positions from 0 and from FAR."""
    logits = []
    for first in (0, FAR):
        stages = subject.read(case.tokens, case.make_positions(first))
        logits.append(stages[-1])
    return logits


def compare_autocast(case: Case) -> Statement:
    """Compare cosines of rotary modules under autocast to bfloat16 and without."""
    subject = require_transformers(case)
    last = (subject.trained_length or USUAL_LENGTH) - 1
    positions = [0, 1, last]

    for number, module in enumerate(list_rotary_modules(case)):
        cosines_without_autocast = module.cosines(positions)
        with torch.autocast(subject.device.type, torch.bfloat16):
            under_autocast = module.cosines(positions)
        difference = (
            (under_autocast.double() - cosines_without_autocast.double()).abs().max()
        )
        if difference > 0:
            says = f"rotary module {number}: cosines in bfloat16"
            return Statement("broken", says, float(difference))
    return Statement("holds", "cosines are the same bit for bit")


def compare_converted(case: Case) -> Statement:
    """Convert copies of the rotary modules to bfloat16; compare their frequencies."""
    largest = 0.0
    for module in list_rotary_modules(case):
        copied = deepcopy(module)
        if isinstance(copied, SineTables):
            copied = SineTables([copied.modules[0].to(torch.bfloat16)])
        else:
            copied.module.to(torch.bfloat16)

        before = module.inv_freq.double()
        after = copied.inv_freq.double()
        # A frequency of 0 stays 0: the quotient is nan, which counts as no change.
        changes = ((after - before) / before).abs().nan_to_num()
        largest = max(largest, float(changes.max()))

    if not largest:
        return Statement("holds", "inv_freq stays float32")
    says = "inv_freq is rounded to bfloat16; load with dtype= instead of .to()"
    if largest <= BFLOAT16_ERROR:
        return Statement("rounding only", says, largest)
    return Statement("broken", says, largest)


def require_transformers(case: Case) -> TransformersSubject:
    if not isinstance(case.subject, TransformersSubject):
        raise CannotAskError("it is no model of transformers")
    return case.subject


def list_rotary_modules(case: Case) -> Sequence[RotaryModule | SineTables]:
    subject = require_transformers(case)
    modules = Positions(subject.model, subject.text_config).modules
    if not modules:
        raise CannotAskError("it has no module with frequencies")
    return modules


KSHIFT = Law(
    "K-shift",
    "Are cached keys that are rotated to new positions those computed there?",
    (
        Trial("by 1", partial(compare_moved, by=1)),
        Trial("by 1,000", partial(compare_moved, by=1000)),
        Trial("ten times by 100", partial(compare_moved, by=100, times=10)),
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
