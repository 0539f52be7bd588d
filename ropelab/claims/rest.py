"""What stands in the notes between the sentences that claims quote, and why it is no claim.

With the passages of the claims and the questions these rows cover every line of the five notes, so
that a reader who comes from a note finds each of its lines: decided, decided elsewhere, or left
out for a reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Rest:
    """Lines of a note that make no claim of their own.

    Attributes:
        source: the note.
        first, last: its lines, both included; lines among them that a claim quotes are decided
            there.
        about: what they hold, and why they are not decided.
        claims: the claims that decide what is said here again.
    """

    source: str
    first: int
    last: int
    about: str
    claims: tuple[str, ...] = ()


ATTENTION = "attention explained; no positions"
HEADING = "heading"
LANGUAGE = "examples of word order; a matter of language"
LISTING = "listing, run as the claim says"
METHOD = "definition of the method, run in `ropelab encodings`"
OPINION = "an opinion, nothing to compute"
PAGE = "the page, not its subject"
REPEATED = "said again"
SET_UP = "notation, nothing to decide"
BANDS = "what fast and slow frequencies are for"

# first line, last line, what stands there, claims
Row = tuple[int, int, str] | tuple[int, int, str, str]

NOTE_000: tuple[Row, ...] = (
    (1, 3, HEADING),
    (4, 4, REPEATED, "relative-only absolute-too"),
    (5, 24, ATTENTION),
    (25, 28, "order in attention without weights, in pictures", "order-blind score-example"),
    (30, 33, SET_UP),
    (35, 43, "the proof step by step", "three-forms relative-matrix-sign"),
    (44, 44, "another proof is invited: there are three forms", "three-forms"),
    (45, 46, REPEATED, "sparse-elementwise one-rotation"),
    (48, 50, HEADING),
    (51, 51, "the formula, as `ropelab freqs` has it; an odd width is refused there"),
    (52, 54, REPEATED, "one-rotation"),
    (57, 57, HEADING),
    (58, 58, "praise", "rope-efficient"),
)
NOTE_001: tuple[Row, ...] = (
    (1, 20, PAGE),
    (22, 40, LISTING, "same-output"),
    (44, 44, "invariant, or rather equivariant", "order-blind same-output"),
    (46, 59, "what the page will answer; its questions have answers here"),
    (61, 63, HEADING),
    (65, 70, "definition of invariance", "same-output"),
    (72, 75, "sums and means, school arithmetic"),
    (77, 84, LISTING, "order-blind"),
    (88, 104, "two score matrices", "score-example"),
    (108, 115, LANGUAGE),
    (117, 120, "conclusion", "order-blind"),
    (124, 124, "fixed, though the listing trains it", "absolute-fixed"),
    (126, 144, METHOD + " (learned)", "learned-stops"),
    (146, 149, "simple and trainable", "absolute-fixed"),
    (151, 151, HEADING),
    (159, 169, LISTING, "t5-listing t5-relative"),
    (171, 176, HEADING),
    (180, 180, "how laborious code is: not measured"),
    (182, 184, "the year", "three-generations"),
    (186, 192, METHOD + " (rope)", "rope-relative"),
    (194, 194, HEADING),
    (199, 199, OPINION),
    (202, 207, "table, its marks lost in the text", "rope-relative t5-relative learned-stops"),
    (208, 208, "space of the three", "parameter-column relative-space rope-space"),
    (209, 209, "how difficult code is: not measured"),
    (210, 210, "who uses which", "gpt-3-rope llama-rope"),
    (212, 226, "turning by m theta; degrees here, radians in all code"),
    (228, 228, REPEATED, "clock-like-rope"),
    (230, 245, SET_UP, "counterclockwise"),
    (247, 255, "the derivation", "relative-only"),
    (259, 266, "an angle for each position", "many-unique absolute-too"),
    (269, 275, "positions 5 and 8, 0 and 3", "relative-only thirty-degrees"),
    (277, 277, REPEATED, "relative-only absolute-too"),
    (280, 284, HEADING),
    (288, 288, PAGE),
    (290, 298, "one slow frequency; 2 pi is lost in line 295", "one-frequency-degrees"),
    (300, 303, "back after a million tokens", "one-frequency-unique script-covers-everything"),
    (
        305,
        309,
        "feasible in theory, not in practice",
        "one-frequency-neighbours one-frequency-learned",
    ),
    (311, 317, "cosines of positions 0 and 1", "one-frequency-cos"),
    (322, 328, "the same by Taylor's series", "one-frequency-cos"),
    (330, 334, REPEATED, "float32-precision one-frequency-neighbours"),
    (336, 342, "32 frequencies of a head of 64: `ropelab freqs --model minimind`"),
    (347, 349, "cosines at position 0 are 1", "position-1-code"),
    (356, 362, "the clock; 60 s for the second hand", "second-hand"),
    (365, 367, "3600 s for the minute hand", "clock-hour"),
    (370, 372, "12 h for the hour hand", "clock-unique"),
    (377, 398, LISTING, "note-001-code"),
    (400, 413, LISTING, "note-001-code rotate-half"),
    (415, 415, REPEATED, "three-forms"),
    (417, 433, LISTING, "note-001-attention"),
    (435, 435, "line numbers of another repository"),
    (438, 440, HEADING),
    (444, 444, REPEATED, "unseen-angles plain-fails"),
    (449, 449, HEADING),
    (453, 453, HEADING),
    (458, 463, PAGE),
    (465, 466, REPEATED, "order-blind relative-only"),
    (468, 468, BANDS, "detail-and-whole"),
    (469, 469, REPEATED, "relative-only absolute-too"),
    (472, 476, OPINION),
    (483, 487, "line numbers of another repository"),
    (489, 505, "three scripts; what they say is in the ledger under their own names"),
    (507, 528, PAGE),
)
NOTE_002: tuple[Row, ...] = (
    (1, 9, PAGE),
    (11, 17, SET_UP),
    (19, 19, HEADING),
    (23, 23, METHOD + " (sinusoidal), with a slip of an index", "sinusoid-index"),
    (25, 25, HEADING),
    (29, 31, METHOD + " (shaw)", "relative-trained"),
    (33, 35, "equation 6", "four-terms"),
    (37, 39, METHOD + " (transformer_xl)", "transformer-xl-cache"),
    (43, 43, METHOD + " (t5 for equation 8, tupe for 9)", "t5-relative"),
    (47, 47, METHOD + " (deberta)", "deberta-as-noted deberta-distance"),
    (49, 55, "what is wanted", "relative-only"),
    (57, 59, "the complex form", "three-forms"),
    (63, 63, "the matrix form", "three-forms counterclockwise"),
    (67, 80, "the worked example set up", "worked-example"),
    (82, 82, HEADING),
    (86, 120, LISTING, "worked-example worked-example-matrix"),
    (122, 124, "further rows of the table", "worked-example"),
    (128, 130, PAGE),
)
NOTE_003: tuple[Row, ...] = (
    (1, 9, PAGE),
    (11, 11, LANGUAGE, "order-blind"),
    (13, 15, METHOD + " (multiplied)", "multiplication-stronger"),
    (17, 29, "the elementwise product, school arithmetic (its numbers are right)"),
    (31, 31, METHOD + " (sinusoidal)"),
    (37, 43, PAGE),
    (46, 59, METHOD + " (sinusoidal)", "parameter-column"),
    (61, 70, PAGE),
    (72, 82, "the Fourier series beside the code", "sinusoid-periodic code-coefficients"),
    (84, 84, HEADING),
    (85, 85, "linear and exponential frequencies", "uniform-geometric exponential-spacing"),
    (86, 86, "a code of width d has d/2 waves, a series may have infinitely many"),
    (89, 91, "frequencies fall with the dimension", "angle-falls"),
    (95, 95, REPEATED, "angle-falls uniform-geometric"),
    (97, 97, BANDS, "detail-and-whole"),
    (100, 105, "summary", "sinusoidal-extrapolates"),
    (111, 139, "the sum F(t) as a periodic function", "sinusoid-periodic period-needs-multiples"),
    (141, 149, "an analogy", "sinusoid-periodic"),
    (151, 151, SET_UP),
    (153, 153, "why columns should not overlap", "sinusoid-orthogonal"),
    (155, 166, "why exponential", "exponential-spacing uniform-geometric"),
    (168, 172, "distance as an angle", "sinusoid-shift"),
    (174, 174, REPEATED, "sinusoidal-extrapolates"),
    (177, 177, "summary", "sinusoid-orthogonal exponential-spacing sinusoid-shift"),
    (179, 187, HEADING),
    (193, 199, "pairs turn by a fixed angle", "sinusoid-shift sinusoid-shift-as-printed"),
    (203, 217, REPEATED, "sinusoid-shift sinusoid-shift-as-printed"),
    (218, 221, REPEATED, "exponential-spacing sinusoid-orthogonal"),
    (222, 223, "how RoPE differs", "rope-relative position-terms-absolute"),
    (225, 236, "absolute beside relative", "only-at-the-product"),
    (238, 242, "why in attention", "only-at-the-product"),
    (244, 256, ATTENTION),
    (259, 277, "the four terms", "four-terms position-terms-absolute"),
    (282, 302, "a function of q and of q - k", "query-bias position-terms-absolute"),
    (304, 314, METHOD + " (polynomial)", "polynomial-distance"),
    (318, 321, METHOD + " (sines, exponential, gaussian)"),
    (323, 329, METHOD + " (learned_distance)", "relative-table"),
    (331, 331, METHOD + " (learned_distance)"),
    (333, 333, OPINION),
    (335, 337, METHOD + " (convolution)"),
    (340, 355, "the two biases", "query-bias"),
    (358, 368, "an example", "vector-on-score query-bias"),
    (370, 374, "the rotation factor", "rotation-factor"),
    (376, 378, "summary", "only-at-the-product"),
    (381, 386, REPEATED, "rope-multiplies rotation-factor"),
    (388, 388, REPEATED, "rope-extrapolates relative-only"),
    (390, 390, "both have merits and are combined: `tupe` in `ropelab encodings`"),
    (392, 392, OPINION),
    (394, 408, METHOD + " (sinusoidal)"),
    (410, 410, REPEATED, "sinusoidal-extrapolates"),
    (414, 414, SET_UP),
    (416, 418, METHOD + " (learned)"),
    (
        420,
        420,
        "its end, decided; that it needs more data would take models trained on several amounts "
        "of text, and none are",
        "learned-stops learned-worse",
    ),
    (422, 426, METHOD + " (learned)"),
    (430, 434, METHOD + " (shaw)", "relative-trained"),
    (436, 436, HEADING),
    (
        438,
        438,
        "segments whose states are carried on: a way to train and to run a model, not a position "
        "encoding, so left out; it may be what is slow in line 440",
        "transformer-xl-cache",
    ),
    (442, 464, METHOD + " (rope)", "sparse-elementwise one-rotation"),
    (468, 468, HEADING),
    (470, 470, REPEATED, "relative-only absolute-too rope-extrapolates"),
    (474, 474, HEADING),
    (479, 502, LISTING, "rotate-half-words rotate-half"),
    (503, 542, LISTING, "note-003-code squeeze-unsqueeze"),
    (543, 550, REPEATED, "rotate-half-words"),
    (552, 554, SET_UP),
    (555, 555, OPINION, "sinusoid-smooth"),
    (557, 559, "why rotate_half", "rotate-half"),
    (562, 569, REPEATED, "rotate-half rotate-half-words"),
    (571, 576, REPEATED, "rotate-half rotate-half-words"),
    (578, 588, METHOD + " (alibi)"),
    (594, 594, "alpha trained or fixed", "alibi-trainable alibi-sign"),
    (596, 596, HEADING),
    (600, 600, OPINION),
    (602, 604, REPEATED, "alibi-stores-nothing"),
    (607, 609, HEADING),
    (612, 612, "relative encodings", "relative-trained parameter-column"),
    (616, 618, OPINION),
    (619, 619, "which models choose what: a matter of taste and of dates", "llama-rope"),
    (620, 622, OPINION),
    (634, 634, REPEATED, "parameter-column"),
    (636, 636, REPEATED, "rope-beats-sinusoidal alibi-beats-others"),
    (646, 656, "summary", "parameter-column learned-stops"),
)
NOTE_004: tuple[Row, ...] = (
    (1, 7, PAGE),
    (11, 21, "formulas lost with the page's images"),
    (23, 23, REPEATED, "relative-only"),
    (25, 25, REPEATED, "one-rotation"),
    (29, 29, SET_UP),
    (33, 39, HEADING),
    (42, 42, "DeepSeek's MLA is announced: `mla` in `ropelab encodings`"),
    (44, 71, PAGE),
)


def _rows(source: str, rows: tuple[Row, ...]) -> Iterator[Rest]:
    for first, last, about, *claims in rows:
        yield Rest(source, first, last, about, tuple(" ".join(claims).split()))


REST: tuple[Rest, ...] = (
    *_rows("000", NOTE_000),
    *_rows("001", NOTE_001),
    *_rows("002", NOTE_002),
    *_rows("003", NOTE_003),
    *_rows("004", NOTE_004),
)
