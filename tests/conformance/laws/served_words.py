"""The words that must name each of `served_mistakes`, by trial."""

from tests.conformance.laws import served_mistakes
from tests.conformance.laws.served_caches import Served

GAPS = "own, two gaps"
MIDDLE = "own, middle dropped"
ROLLING = "own, rolling"
FRONT = "own, front and middle dropped"
JOIN = "own, fragments joined"
TWO_ROWS = "own, two rows"
ROWS_JOINED = "own, two rows joined"
EVICTIONS = (MIDDLE, ROLLING, GAPS, TWO_ROWS)
JOINS = (JOIN, ROWS_JOINED)
SECOND = "keys of the second fragment"
# The trials of each mistake, and words that must name it.
WORDS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    "FirstLayer": (
        (MIDDLE, ("by -8 positions in layer 0, and by +0 in layers 1 to 2",)),
        (JOIN, (f"{SECOND} are rotated by +8", "0, and by +0 in layers 1 to 2")),
    ),
    "LastLayerNot": (
        (GAPS, ("behind the second gap are rotated by -8", "by +0 in layer 2")),
        (JOIN, (SECOND, "by +0 in layer 2")),
    ),
    "FirstRow": (
        (TWO_ROWS, ("row 1 of 2: keys keep their rotation",)),
        (ROWS_JOINED, (f"row 1 of 2: {SECOND} are joined without a rotation",)),
    ),
    "SecondHeadNot": (
        (GAPS, ("behind the first gap are rotated by -3, 0 positions, head by head",)),
        (JOIN, (f"{SECOND} are rotated by 8, 0 positions, head by head",)),
    ),
    "HeadsMixed": (
        (MIDDLE, ("keys are those of other heads",)),
        (JOIN, ("keys are those of other heads",)),
    ),
    "CoarseTable": (
        (MIDDLE, ("with errors of up to 0.", "rounded to fewer bits")),
        (JOIN, ("with errors of up to 0.", "rounded to fewer bits")),
    ),
    "HalfTable": (
        (MIDDLE, ("errors of up to 0.", "rounded to fewer bits")),
        (JOIN, ("errors of up to 0.", "rounded to fewer bits")),
    ),
    "ShortTable": (
        (MIDDLE, ("rotated by 4 times -8, -7 to 0 positions, slot by slot",)),
        (JOIN, (f"{SECOND} are rotated by 8 times 8, 7 to 0 positions, slot by slot",)),
    ),
    "WholeHead": (
        (MIDDLE, ("changed in features that do not rotate: 8 of 12 do",)),
        (JOIN, (f"{SECOND} are changed in features that do not rotate",)),
    ),
    "InHalves": (
        (MIDDLE, ("in the pairs of the other layout",)),
        (JOIN, (f"{SECOND} are rotated in the pairs of the other layout",)),
    ),
    "SlowPairsNot": (
        (MIDDLE, ("only pairs 0 to 1 of 4 are rotated",)),
        (JOIN, (SECOND, "only pairs 0 to 1 of 4 are rotated")),
    ),
    "OtherBase": (
        (MIDDLE, ("other frequencies", "as with the base 10,000")),
        (JOIN, (SECOND, "as with the base 10,000")),
    ),
    "Interpolated": (
        (GAPS, ("as with positions multiplied by 0.25",)),
        (JOIN, (f"{SECOND} are rotated by +2 positions where +8",)),
    ),
    "Backwards": (
        (GAPS, ("by +3 positions, those behind the second gap by +8",)),
        (JOIN, (f"{SECOND} are rotated by -8 positions where +8",)),
    ),
    "Twice": (
        (GAPS, ("by -6 positions, those behind the second gap by -16",)),
        (JOIN, (f"{SECOND} are rotated by +16 positions where +8",)),
    ),
    "NotForwards": (
        (MIDDLE, ("all keys are rotated back to position 0, and not forwards",)),
        (JOIN, ("all keys are rotated back to position 0, and not forwards",)),
    ),
    "NotBack": (
        (MIDDLE, ("all keys are rotated to new places without being rotated back",)),
        (JOIN, ("all keys are rotated to new places without being rotated back",)),
    ),
    "NotRotated": (
        (GAPS, ("keys keep their rotation", "16, the number of keys")),
        (JOIN, (f"{SECOND} are joined without a rotation",)),
    ),
    "FactorAgain": (
        (MIDDLE, ("are multiplied by 1.2 besides being rotated",)),
        (JOIN, ("all keys are multiplied by 1.2",)),
    ),
    "ByAllDropped": (
        (
            GAPS,
            ("first gap are rotated by -8 positions, those behind the second gap by",),
        ),
    ),
    "ByFirstGap": (
        (GAPS, ("by -3 positions, those behind the second gap by -3",)),
        (FRONT, ("all keys are rotated by -3 positions", "16, the number of keys")),
    ),
    "CountsFirstGap": (
        (GAPS, ("keys behind the gaps are moved up", "counted from 21")),
        (FRONT, ("keys behind the gaps are moved up", "counted from 21")),
    ),
    "CountsFirstGapKept": (
        (GAPS, ("keys keep their rotation", "counted from 19")),
        (ROLLING, ("after 2 evictions new tokens are counted from 24, where 28",)),
    ),
    "OneRun": (
        (GAPS, ("to stay are dropped: 7 to 11; others are kept: 12 to 16",)),
        (FRONT, ("to stay are dropped: 3 to 7; others are kept: 8 to 12",)),
    ),
    "OldPositions": (
        (ROLLING, ("at eviction 2: keys behind the gap", "slot by slot")),
    ),
    "FirstValues": (
        (MIDDLE, ("layer 2: values are not those of their keys' tokens",)),
    ),
    "ValuesOfHeads": ((GAPS, ("values are those of other heads",)),),
    "ValuesRotated": ((MIDDLE, ("values are rotated, too, behind the gap",)),),
    "LaterValues": ((ROLLING, ("at eviction 2: values are those of other heads",)),),
    "CoarseValues": ((MIDDLE, ("values have errors of up to 0.",)),),
    "Restarted": ((ROLLING, ("keys keep their rotation", "20, the number of keys")),),
    "GoesOn": ((ROLLING, ("are moved up", "go on counting from 24")),),
    "OneTooFew": ((ROLLING, ("rotated by -3 positions, where moving up takes -4",)),),
    "BySecondLength": ((JOIN, (f"{SECOND} are rotated by +16 positions where +8",)),),
    "FirstMoved": ((JOIN, ("the second fragment is put in front of the first",)),),
    "BothMoved": ((JOIN, ("first fragment are rotated by +8", "second by +8")),),
    "Overlapping": ((JOIN, (f"{SECOND} are joined without a rotation",)),),
    "OverlappingOn": ((JOIN, ("without a rotation", "counted from 16")),),
    "ValuesExchanged": ((JOIN, ("values are not", "those of tokens 8 to 23, 0 to 7")),),
    "SecondValuesRotated": ((JOIN, ("values are rotated, too, of the second",)),),
    "SecondValuesOfHeads": ((JOIN, ("of other heads, of the second fragment",)),),
    "KeysForValues": ((JOIN, ("keys and values are exchanged",)),),
    "FirstValuesTwice": ((JOIN, ("values are not", "tokens 0 to 7, 0 to 7, 16 to")),),
    "OrderExchanged": ((JOIN, ("the second fragment is put in front of the first",)),),
    "FirstKeyDropped": ((JOIN, ("23 keys", "without token 0 of the second fragment")),),
    "FirstKeyTwice": ((JOIN, ("is without token 0 of the second", "there twice: 7")),),
    "OneTooFar": ((JOIN, (f"{SECOND} are rotated by +9 positions where +8",)),),
    "CountsSecond": ((JOIN, ("moved behind the first", "counted from 16")),),
    "OtherLayers": ((JOIN, ("layer 1: keys are those of layer 2",)),),
    "SecondKeysReversed": ((JOIN, ("keys are not in the slots of their values",)),),
}
SERVED: dict[str, type[Served]] = {
    name: getattr(served_mistakes, name) for name in WORDS
}
# What logits alone tell of the same code with a closed cache.
BY_LOGITS = "its logits are those of a cache in which"
CLOSED_WORDS: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {
    name: tuple((trial, (BY_LOGITS, *words)) for trial, words in WORDS[name])
    for name in (
        "Backwards",
        "Twice",
        "NotRotated",
        "ByAllDropped",
        "ByFirstGap",
        "CountsFirstGap",
        "BySecondLength",
        "FirstMoved",
        "Overlapping",
        "OneTooFar",
        "CountsSecond",
    )
} | {
    "NotForwards": ((MIDDLE, (BY_LOGITS, "all keys are rotated back to position 0")),),
    "OneTooFew": ((ROLLING, (BY_LOGITS, "at the positions one behind their slots")),),
    "GoesOn": ((ROLLING, (BY_LOGITS, "at the positions of their slots", "24, 28")),),
    "OneRun": ((GAPS, (BY_LOGITS, "tokens 4 to 11 are dropped")),),
    "HalfTable": ((MIDDLE, ("differ by only 0.04%", "rounded to fewer bits")),),
    "CoarseTable": ((ROLLING, ("differ by only 0.4", "rounded to fewer bits")),),
    "ValuesOfHeads": ((ROLLING, ("logits alone do not tell what is wrong",)),),
    "ValuesExchanged": ((JOIN, ("logits alone do not tell what is wrong",)),),
    "FirstLayer": ((JOIN, ("logits alone do not tell what is wrong",)),),
}
