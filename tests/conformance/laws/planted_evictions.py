"""Right evictions, and mistakes with the words that must name them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from ropelab.conformance.laws.subject import Function, Subject
from tests.conformance.laws.evictions import (
    FAMILIES,
    AdjacentPairs,
    AdjacentTables,
    Anew,
    EverySecond,
    Eviction,
    Exchanged,
    FirstHead,
    HalvesOfAdjacent,
    KeysBackwards,
    KeysOfOtherHeads,
    LastKeys,
    OnceAlone,
    OneSign,
    OtherLayersValues,
    OtherTokens,
    Overwriting,
    Repeating,
    SinksForward,
    ToNewPlaces,
    count_tokens,
    fast_half,
    other_base,
    plain_frequencies,
    stay,
    whole_head,
)
from tests.conformance.laws.listed_caches import (
    Closed,
    ClosedBackwards,
    ClosedGreedy,
    ClosedRestarting,
    ListedKept,
    ListedMoved,
    SplitBackwards,
    SplitMoved,
    Streaming,
)


def function_of(code: Callable[[], nn.Module]) -> Callable[[], Subject]:
    """Return a maker of the subject for a class of models that are callables."""
    return lambda: Function(code())


RIGHT: dict[str, Callable[[], Subject]] = {
    **{f"moved up, {name}": Eviction(name).make for name in FAMILIES},
    **{
        f"kept, {name}": Eviction(name, move=stay, count=count_tokens).make
        for name in FAMILIES
    },
    "sinks moved towards the others": SinksForward(count=count_tokens).make,
    "in another order": Eviction(
        choose=lambda keep: keep[:4] + keep[10:] + keep[4:10],
        move=stay,
        count=count_tokens,
    ).make,
    "all keys moved alike": Eviction(
        move=lambda slot, place: -7,
        count=lambda each, held: count_tokens(each, held) - 7 * each.evictions,
    ).make,
    "computed anew": Anew().make,
    "a list, kept": function_of(ListedKept),
    "a list, moved up": function_of(ListedMoved),
    "two layers in a list, moved up": function_of(SplitMoved),
    "rotated when they are read": function_of(Streaming),
    "a closed cache, moved up": function_of(Closed),
}


@dataclass(frozen=True)
class Mistake:
    name: str
    make: Callable[[], Subject]
    # Words of the row that must name it.
    says: tuple[str, ...]
    trial: str = "own, middle dropped"


def planted(name: str, says: Sequence[str], **changes: Any) -> Mistake:
    return Mistake(name, Eviction(**changes).make, tuple(says))


MISTAKES = (
    planted(
        "positions restart, keys not rotated",
        ["keys keep their rotation", "the number of keys"],
        move=stay,
    ),
    planted(
        "positions restart at 0",
        ["keys keep their rotation", "counted from 0"],
        move=stay,
        count=lambda each, held: 0,
    ),
    planted(
        "moved up, and the count goes on",
        ["keys behind the gap are moved up", "go on counting from 24"],
        count=count_tokens,
    ),
    planted(
        "moved up, counted one too far",
        ["keys behind the gap are moved up", "counted from 17"],
        count=lambda each, held: held + 1,
    ),
    planted(
        "kept, counted one too few",
        ["keys keep their rotation", "counted from 23"],
        move=stay,
        count=lambda each, held: count_tokens(each, held) - 1,
    ),
    planted(
        "in the wrong direction",
        ["keys behind the gap are rotated by +8 positions"],
        move=lambda slot, place: slot - place,
    ),
    planted(
        "one position too many",
        ["keys behind the gap are rotated by -9 positions"],
        move=lambda slot, place: place - slot - (slot != place),
    ),
    planted(
        "only the sinks are rotated",
        ["keys behind the gap keep their rotation", "in front of it by -8"],
        move=lambda slot, place: -8 if slot < 4 else 0,
    ),
    planted(
        "the sinks are rotated, too",
        ["all keys are rotated by -8", "go on counting from 24"],
        move=lambda slot, place: -8,
        count=count_tokens,
    ),
    planted("the other layout", ["pairs of the other layout"], layout="adjacent"),
    planted(
        "the other layout, partial",
        ["pairs of the other layout"],
        family="glm",
        layout="half",
    ),
    planted(
        "unscaled frequencies",
        ["frequencies that have no scaling"],
        family="yarn",
        frequencies=plain_frequencies,
    ),
    planted(
        "the attention factor twice",
        [
            "all keys are multiplied by 1.139",
            "attention factor, which keys have already",
        ],
        family="yarn",
        gain=lambda factor: factor,
    ),
    planted(
        "the attention factor taken out",
        ["are multiplied by 0.878", "the attention factor is taken"],
        family="yarn",
        gain=lambda factor: 1 / factor,
    ),
    planted(
        "the whole head rotated",
        ["features of the head"],
        family="glm",
        frequencies=whole_head,
    ),
    planted(
        "values rotated",
        ["values are rotated, too"],
        change_values=lambda each, values, moves: each.rotate(values, moves),
    ),
    planted(
        "values of neighbours",
        ["values are not those of their keys' tokens"],
        change_values=lambda each, values, moves: values.roll(1, dims=2),
    ),
    planted(
        "values one slot late",
        ["values are not those of their keys' tokens"],
        change_values=lambda each, values, moves: values[
            :, :, [0, *range(values.shape[2] - 1)]
        ],
    ),
    planted(
        "one layer not rotated",
        ["by -8 positions in layer 0, and by +0 in layer 1"],
        layers=(0,),
    ),
    planted(
        "one dropped too many",
        ["layer 0 holds 15 keys, where 16 were to stay"],
        choose=lambda keep: keep[:4] + keep[5:],
    ),
    planted(
        "another one dropped",
        ["are dropped: 23", "are kept: 4"],
        choose=lambda keep: [*keep[:4], 4, *keep[4:-1]],
        move=stay,
        count=count_tokens,
    ),
    Mistake(
        "right once, then by all that was dropped",
        Repeating().make,
        (
            "each eviction moves keys by all that was ever dropped",
            "after 6 evictions",
            "4 times -80, 4 times -72",
        ),
        "own, rolling",
    ),
    Mistake(
        "closed, in the wrong direction",
        function_of(ClosedBackwards),
        ("keys behind the gap are rotated by +8 positions",),
    ),
    Mistake(
        "two layers in a list, in the wrong direction",
        function_of(SplitBackwards),
        ("keys behind the gap are rotated by +8 positions",),
    ),
    Mistake(
        "closed, one dropped too many", function_of(ClosedGreedy), ("the code raises",)
    ),
    Mistake(
        "closed, positions restart",
        function_of(ClosedRestarting),
        ("keys keep their rotation", "the number of keys"),
    ),
)
# Others, which were planted when the first were named.
FURTHER = (
    planted("another base", ["frequencies: pair 1 by -1.55"], frequencies=other_base),
    planted("half of the pairs", ["frequencies: pair 4 by +0"], frequencies=fast_half),
    planted(
        "by the number of keys that are left",
        ["are rotated by -16 positions, where moving up takes -8"],
        move=lambda slot, place: -16 if slot != place else 0,
    ),
    planted(
        "by the number of sinks",
        ["are rotated by -4 positions, where moving up takes -8"],
        move=lambda slot, place: -4 if slot != place else 0,
    ),
    Mistake("one head alone", FirstHead().make, ("-8, 0 positions, head by head",)),
    Mistake(
        "rotated to new places without being rotated back",
        ToNewPlaces().make,
        ("in front of the gap are rotated by 0 to 3 positions, slot by slot",),
    ),
    Mistake(
        "keys and values exchanged",
        Exchanged(move=stay, count=count_tokens).make,
        ("keys and values are exchanged",),
    ),
    Mistake(
        "one layer keeps other tokens",
        OtherTokens().make,
        ("layer 1: tokens that were to stay are dropped: 23; others are kept: 11",),
    ),
    Mistake(
        "values of the other layer",
        OtherLayersValues().make,
        ("layer 0: values are those of layer 1",),
    ),
    Mistake(
        "first features overwritten too early",
        Overwriting().make,
        ("first features of pairs that were overwritten",),
    ),
    Mistake(
        "moved up once, and not later",
        OnceAlone().make,
        (
            "the first eviction alone moves keys up",
            "after 6 evictions",
            "4 times 0, 4 times -8, 4 times -12",
        ),
        "own, rolling",
    ),
    Mistake(
        "nothing dropped",
        Eviction(choose=lambda keep: list(range(keep[-1] + 1)), move=stay).make,
        ("layer 0 holds 24 keys, where 20 were to stay",),
        "own, rolling",
    ),
    Mistake(
        "one dropped too few",
        Eviction(choose=lambda keep: [*keep[:4], keep[4] - 1, *keep[4:]]).make,
        ("layer 0 holds 21 keys, where 20 were to stay",),
        "own, rolling",
    ),
    Mistake(
        "moved up again and again, counted one too far",
        Eviction(count=lambda each, held: held + 1).make,
        ("keys behind the gap are moved up", "counted from 21"),
        "own, rolling",
    ),
    Mistake(
        "moved up again and again, and the count goes on",
        Eviction(count=count_tokens).make,
        ("keys behind the gap are moved up", "go on counting from 24"),
        "own, rolling",
    ),
    Mistake(
        "kept again and again, and the count is that of keys",
        Eviction(move=stay, count=lambda each, held: held).make,
        ("keys keep their rotation", "counted from 20, the number of keys"),
        "own, rolling",
    ),
    Mistake(
        "sin with one sign",
        OneSign().make,
        ("keys behind the gap have sin with the same sign in both features",),
    ),
    Mistake(
        "keys in reverse",
        KeysBackwards(move=stay, count=count_tokens).make,
        ("keys are not in the slots of their values",),
    ),
    Mistake(
        "the last keys, and the values of sinks",
        LastKeys(move=stay, count=count_tokens).make,
        (
            "keys are not in the slots of their values: values of slots 0 to 3 have keys"
            " of slots 8 to 11",
        ),
    ),
    Mistake(
        "adjacent pairs with tables of halves",
        AdjacentPairs().make,
        ("the pairs of the other layout, by cos and sin that are in the model's",),
    ),
    Mistake(
        "pairs of halves with tables of adjacent pairs",
        AdjacentTables().make,
        ("by cos and sin in the order of the other layout, in the model's pairs",),
    ),
    Mistake(
        "pairs of halves with tables of adjacent pairs, partial",
        HalvesOfAdjacent(family="glm").make,
        ("the pairs of the other layout, by cos and sin that are in the model's",),
    ),
    Mistake(
        "keys of other heads",
        KeysOfOtherHeads(move=stay, count=count_tokens).make,
        ("keys are those of other heads",),
    ),
    planted(
        "values of other heads",
        ["values are those of other heads"],
        change_values=lambda each, values, moves: values.roll(1, dims=1),
    ),
    Mistake(
        "every second slot",
        EverySecond().make,
        ("keys behind the gap are rotated by -8, 0, -8, 0", "slot by slot"),
    ),
    planted(
        "to the beginning of a page",
        ["keys behind the gap are rotated by -16 positions"],
        move=lambda slot, place: (place - slot) // 16 * 16,
    ),
    planted(
        "keys halved",
        ["are multiplied by 0.5 besides being rotated"],
        gain=lambda factor: 0.5,
    ),
)
