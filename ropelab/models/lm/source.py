"""The training data: real text in stretches, with quotations, symbols and look-ups.

A window of text is interrupted by stretches of log-uniform length of three other kinds:
a quotation copies an earlier stretch of the same window, symbols are random, and
look-ups ask for the values of records among the symbols before. Text alone does not
teach a model of this size to look far back. Training begins with short periodic rows of
symbols: copying is found there in 60 to 160 steps, and in the mixture only with luck.
Everything is a pure function of (seed, step, window, rows).
"""

import math
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ropelab.models.lm.corpus import ALPHABET, TRAINING, Corpus
from ropelab.models.lm.lists import list_row
from ropelab.models.lm.matcher import ngram_predictions

# The first tokens of a quotation, which are not scored: they identify the quoted
# passage.
CUE = 4
# Symbols in a key: 64^3 keys, so that long windows need not use one twice by chance.
KEY = 3
# A key and its value, one symbol.
RECORD = KEY + 1

# Kinds of stretches.
TEXT, QUOTATION, SYMBOLS, LOOK_UPS = range(4)


@dataclass(frozen=True)
class Batch:
    """Sequences and which of their tokens are to be predicted from those before."""

    tokens: Int[Tensor, "batch tokens"]
    scored: Bool[Tensor, "batch tokens"]

    @property
    def last_scored(self) -> int:
        """The number of final tokens that include all that are scored in any row."""
        # The first token of a row cannot be predicted.
        is_scored = self.scored[:, 1:].any(dim=0)
        return len(is_scored) - int(is_scored.nonzero()[0])

    def split(self, count: int) -> list["Batch"]:
        """Return parts of the batch, by rows."""
        parts = zip(
            self.tokens.tensor_split(count),
            self.scored.tensor_split(count),
            strict=True,
        )
        return [Batch(tokens, scored) for tokens, scored in parts]

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.tokens.to(device), self.scored.to(device))


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Shares of the stretches in a window; the rest is text."""

    # Text is put instead of a quotation with too little text before it.
    quotations: float = 0.35
    symbols: float = 0.3
    # Records whose value is scored.
    look_ups: float = 0.15
    # Records whose key an earlier record has, too, with another value: the nearer one
    # counts.
    contested: float = 0.5
    # Tokens in a stretch, and the same as a share of the window.
    shortest: int = 8
    longest: float = 1 / 2
    # Quotations and look-ups whose distance is uniform instead of log-uniform.
    far: float = 0.3
    # First steps, of periodic symbols, and tokens in a row. In rows of 16 copying is
    # found in a third of the steps that it takes in rows of 64.
    periodic_steps: int = 160
    periodic_window: int = 16
    # Of rows, which are text around a list instead.
    lists: float = 0.0

    def __post_init__(self) -> None:
        shares = (self.quotations, self.symbols, self.look_ups)
        if min(shares) < 0 or sum(shares) > 1 + 1e-9:
            raise ValueError(
                f"the shares {shares} of a mixture must be 0 or more and 1 at most"
            )

    @property
    def key(self) -> dict[str, float]:
        key = asdict(self)
        # Models without lists keep the keys that they had before there were any.
        if not self.lists:
            del key["lists"]
        return key


def training_batch(
    mixture: Mixture, corpus: Corpus, seed: int, step: int, window: int, rows: int
) -> Batch:
    """Return the batch of a step: `rows` rows of `window` bytes.

    The first steps have more and shorter rows.
    """
    random = np.random.default_rng((TRAINING, seed, step, window, rows))
    if step < mixture.periodic_steps:
        shorter = min(window, mixture.periodic_window)
        return periodic_batch(random, shorter, rows * window // shorter)

    text = corpus.windows(seed, step, window, rows).numpy()
    batch = mixed_batch(mixture, random, text)
    for row in np.flatnonzero(random.random(rows) < mixture.lists):
        tokens, scored = list_row(random, text[row])
        batch.tokens[row] = torch.from_numpy(tokens)
        batch.scored[row] = torch.from_numpy(scored)
    return batch


def random_symbols(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw symbols independently, of equal probability."""
    return ALPHABET[random.integers(len(ALPHABET), size=shape)]


def periodic_batch(random: np.random.Generator, window: int, rows: int) -> Batch:
    """Return rows that repeat a segment of their own; only the repeats are scored."""
    # Lengths of segments are log-uniform from a record to three quarters of the window.
    longest = max(RECORD, 3 * window // 4)
    periods = log_uniform(random.random((rows, 1)), RECORD, longest)
    places = np.arange(window)
    segments = random_symbols(random, rows, window)
    tokens = np.take_along_axis(segments, places % periods, axis=1)
    return Batch(torch.from_numpy(tokens), torch.from_numpy(places >= periods))


def log_uniform(
    share: np.ndarray, low: np.ndarray | int, high: np.ndarray | int
) -> np.ndarray:
    """Map shares in [0, 1) to log-uniform whole numbers from `low` to `high`."""
    high = np.maximum(high, low)
    numbers = (low * ((high + 1) / low) ** share).astype(np.int64)
    return np.clip(numbers, low, high)


@dataclass(frozen=True)
class Stretches:
    """Every token's stretch, in arrays of shape [rows, window]."""

    # The number of the stretch in its row.
    number: np.ndarray
    # TEXT, QUOTATION, SYMBOLS or LOOK_UPS.
    kind: np.ndarray
    # The place of its first token.
    start: np.ndarray
    # In tokens, those included that the end of the window cuts off.
    length: np.ndarray

    @property
    def inside(self) -> np.ndarray:
        """The place of every token in its stretch."""
        return np.arange(self.start.shape[1]) - self.start

    def record_places(self, kind: int) -> np.ndarray:
        """Return the first places of whole records, rising in the flattened batch."""
        places = np.arange(self.start.shape[1])
        is_whole = places + RECORD <= self.start + self.length
        is_whole[:, 1 - RECORD :] = False
        begins = self.inside % RECORD == 0
        return np.flatnonzero((self.kind == kind) & is_whole & begins)


def draw_stretches(
    mixture: Mixture, random: np.random.Generator, rows: int, window: int
) -> Stretches:
    """Cut every row into stretches and draw the kind of each."""
    count = math.ceil(window / mixture.shortest)
    longest = max(mixture.shortest, int(mixture.longest * window))
    lengths = log_uniform(random.random((rows, count)), mixture.shortest, longest)
    starts = np.cumsum(lengths, axis=1) - lengths

    is_first = np.zeros((rows, window), np.int64)
    within = starts < window
    is_first[np.nonzero(within)[0], starts[within]] = 1
    number = np.cumsum(is_first, axis=1) - 1

    borders = np.cumsum([mixture.quotations, mixture.symbols, mixture.look_ups])
    drawn = np.searchsorted(borders, random.random((rows, count)), side="right")
    kinds = np.array([QUOTATION, SYMBOLS, LOOK_UPS, TEXT])[drawn]
    kinds[(kinds == QUOTATION) & (lengths > starts)] = TEXT
    return Stretches(
        number,
        np.take_along_axis(kinds, number, axis=1),
        np.take_along_axis(starts, number, axis=1),
        np.take_along_axis(lengths, number, axis=1),
    )


def mixed_batch(
    mixture: Mixture, random: np.random.Generator, text: np.ndarray
) -> Batch:
    """Return windows of the mixture, made of rows of text as long as the window."""
    # Every token first gets the place that it is taken from: its own, a quoted token's,
    # or a record's. Then places are followed to their origin, and text and symbols
    # filled in there.
    rows, window = text.shape
    stretches = draw_stretches(mixture, random, rows, window)
    is_quoted = stretches.kind == QUOTATION

    # A quotation's source ends before the quotation begins, and is anywhere before
    # that.
    shares = random.random((rows, window))
    choices = random.random((rows, window))
    distance = quantiles_of_distance(
        mixture,
        np.take_along_axis(shares, stretches.number, axis=1),
        np.take_along_axis(choices, stretches.number, axis=1),
        stretches.length,
        stretches.start,
    )
    origin = np.arange(rows * window)
    origin -= np.where(is_quoted, distance, 0).ravel()
    answers = add_look_ups(mixture, random, stretches, origin)

    is_text = stretches.kind == TEXT
    tokens = random_symbols(random, rows, window)
    places_in_text = np.cumsum(is_text, axis=1) - 1
    tokens[is_text] = np.take_along_axis(text, places_in_text, axis=1)[is_text]
    taken = tokens.ravel()[follow_origins(origin)].reshape(rows, window)
    filled = torch.from_numpy(taken)

    # A key that was quoted since, or drawn twice by chance, may have another nearest
    # value, and is not scored then.
    is_nearest = ngram_predictions(filled, KEY) == filled
    scored = is_text | (is_quoted & (stretches.inside >= CUE))
    scored_answers = torch.from_numpy(answers) & is_nearest
    return Batch(filled, torch.from_numpy(scored) | scored_answers)


def quantiles_of_distance(
    mixture: Mixture,
    share: np.ndarray,
    choice: np.ndarray,
    low: np.ndarray | int,
    high: np.ndarray,
) -> np.ndarray:
    """Map shares in [0, 1) to numbers from `low` to `high`.

    They are uniform where `choice` is below `mixture.far`, else log-uniform.
    """
    uniform = low + (share * np.maximum(high - low + 1, 1)).astype(np.int64)
    return np.where(choice < mixture.far, uniform, log_uniform(share, low, high))


def follow_origins(origin: np.ndarray) -> np.ndarray:
    """Follow places until they point at themselves: quotations may be of quotations."""
    while True:
        further = origin[origin]
        if np.array_equal(further, origin):
            return origin
        origin = further


def add_look_ups(
    mixture: Mixture,
    random: np.random.Generator,
    stretches: Stretches,
    origin: np.ndarray,
) -> np.ndarray:
    """Add look-ups of earlier records to `origin`; return True at their values.

    The result has the shape [rows, window].
    """
    # The records of a row go in pairs. The second of a pair may be asked for, and where
    # its key is contested, the first of the same or of an earlier pair gets that key
    # too.
    rows, window = stretches.kind.shape
    records = stretches.record_places(SYMBOLS)
    questions = stretches.record_places(LOOK_UPS)
    first_records = np.searchsorted(records, questions // window * window)
    earlier_pairs = (np.searchsorted(records, questions) - first_records) // 2

    has_pairs = earlier_pairs > 0
    questions = questions[has_pairs]
    first_records = first_records[has_pairs]
    earlier_pairs = earlier_pairs[has_pairs]

    share, choice, contest, other_share = random.random((4, len(questions)))
    back = quantiles_of_distance(mixture, share, choice, 1, earlier_pairs)
    pair = earlier_pairs - back
    asked = records[first_records + 2 * pair + 1]
    for offset in range(RECORD):
        origin[questions + offset] = asked + offset

    other_pair = (other_share * (pair + 1)).astype(np.int64)
    older = records[first_records + 2 * other_pair]
    contested = contest < mixture.contested
    for offset in range(KEY):
        origin[older[contested] + offset] = asked[contested] + offset

    answers = np.zeros(rows * window, np.bool_)
    answers[questions + KEY] = True
    return answers.reshape(rows, window)
