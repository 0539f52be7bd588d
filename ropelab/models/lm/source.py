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

TEXT, QUOTATION, SYMBOLS, LOOK_UPS = range(4)


@dataclass(frozen=True)
class Batch:
    """Sequences and which of their tokens are to be predicted from those before."""

    tokens: Int[Tensor, "batch tokens"]
    scored: Bool[Tensor, "batch tokens"]

    @property
    def asked(self) -> int:
        """The number of final tokens among which are all that are to be predicted."""
        found = self.scored[:, 1:].any(dim=0)  # the first token of a row cannot be
        return len(found) - int(found.nonzero()[0])

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.tokens.to(device), self.scored.to(device))


@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Shares of the stretches in a window; the rest is text."""

    quotations: float = 0.35  # text instead, where too little text is before it
    symbols: float = 0.3
    look_ups: float = 0.15  # records whose value is scored
    # Records whose key an earlier record has, too, with another value: the nearer one
    # counts.
    contested: float = 0.5
    shortest: int = 8  # tokens in a stretch
    longest: float = 1 / 2  # of the window
    # quotations and look-ups whose distance is uniform instead of log-uniform
    far: float = 0.3
    # First steps, of periodic symbols, and tokens in a row. In rows of 16 copying is
    # found in a third of the steps that it takes in rows of 64.
    periodic_steps: int = 160
    periodic_window: int = 16
    lists: float = 0.0  # of rows, which are text around a list instead

    def __post_init__(self) -> None:
        shares = (self.quotations, self.symbols, self.look_ups)
        if min(shares) < 0 or sum(shares) > 1 + 1e-9:
            raise ValueError(
                f"the shares {shares} of a mixture must be 0 or more and 1 at most"
            )

    @property
    def key(self) -> dict[str, float]:
        # Models without lists keep the keys that they had before there were any.
        return {
            name: value
            for name, value in asdict(self).items()
            if name != "lists" or value
        }


def training_batch(
    mixture: Mixture, corpus: Corpus, seed: int, step: int, window: int, rows: int
) -> Batch:
    """Return the batch of a step: `rows` rows of `window` bytes; more and shorter at
    first.
    """
    random = np.random.default_rng((TRAINING, seed, step, window, rows))
    if step < mixture.periodic_steps:
        shorter = min(window, mixture.periodic_window)
        return periodic_batch(random, shorter, rows * window // shorter)
    text = corpus.windows(seed, step, window, rows).numpy()
    batch = mixed_batch(mixture, random, text)
    for row in np.flatnonzero(random.random(rows) < mixture.lists):
        batch.tokens[row], batch.scored[row] = map(
            torch.from_numpy, list_row(random, text[row])
        )
    return batch


def random_symbols(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw symbols independently, of equal probability."""
    return ALPHABET[random.integers(len(ALPHABET), size=shape)]


def periodic_batch(random: np.random.Generator, window: int, rows: int) -> Batch:
    """Return rows that repeat a segment of their own to the end; only the repeats are
    scored.
    """
    # Lengths of segments are log-uniform from a record to three quarters of the window.
    periods = log_uniform(
        random.random((rows, 1)), RECORD, max(RECORD, 3 * window // 4)
    )
    places = np.arange(window)
    tokens = np.take_along_axis(
        random_symbols(random, rows, window), places % periods, axis=1
    )
    return Batch(torch.from_numpy(tokens), torch.from_numpy(places >= periods))


def log_uniform(
    share: np.ndarray, low: np.ndarray | int, high: np.ndarray | int
) -> np.ndarray:
    """Map shares in [0, 1) to log-uniform whole numbers from `low` to at most
    `high`.
    """
    high = np.maximum(high, low)
    return np.clip((low * ((high + 1) / low) ** share).astype(np.int64), low, high)


@dataclass(frozen=True)
class Stretches:
    """Every token's stretch, in arrays of shape [rows, window]."""

    number: np.ndarray  # in the row
    kind: np.ndarray  # TEXT, QUOTATION, SYMBOLS or LOOK_UPS
    start: np.ndarray  # the place of its first token
    length: np.ndarray  # in tokens, those included that the end of the window cuts off

    @property
    def inside(self) -> np.ndarray:
        return np.arange(self.start.shape[1]) - self.start

    def records(self, kind: int) -> np.ndarray:
        """Return the places of first tokens of whole records, ascending in the
        flattened batch.
        """
        whole = np.arange(self.start.shape[1]) + RECORD <= self.start + self.length
        whole[:, 1 - RECORD :] = False
        return np.flatnonzero((self.kind == kind) & whole & (self.inside % RECORD == 0))


def draw_stretches(
    mixture: Mixture, random: np.random.Generator, rows: int, window: int
) -> Stretches:
    """Cut every row into stretches and draw the kind of each."""
    count = math.ceil(window / mixture.shortest)
    longest = max(mixture.shortest, int(mixture.longest * window))
    lengths = log_uniform(random.random((rows, count)), mixture.shortest, longest)
    starts = np.cumsum(lengths, axis=1) - lengths
    first = np.zeros((rows, window), np.int64)
    within = starts < window
    first[np.nonzero(within)[0], starts[within]] = 1
    number = np.cumsum(first, axis=1) - 1

    borders = np.cumsum([mixture.quotations, mixture.symbols, mixture.look_ups])
    drawn = np.searchsorted(borders, random.random((rows, count)), side="right")
    kinds = np.array([QUOTATION, SYMBOLS, LOOK_UPS, TEXT])[drawn]
    kinds[(kinds == QUOTATION) & (lengths > starts)] = TEXT
    return Stretches(
        number,
        *(
            np.take_along_axis(each, number, axis=1)
            for each in (kinds, starts, lengths)
        ),
    )


def mixed_batch(
    mixture: Mixture, random: np.random.Generator, text: np.ndarray
) -> Batch:
    """Return windows of the mixture, over rows of text that are as long as the
    window.
    """
    # Every token first gets the place that it is taken from: its own, a quoted token's,
    # or a record's. Then places are followed to their origin, and text and symbols
    # filled in there.
    rows, window = text.shape
    stretches = draw_stretches(mixture, random, rows, window)
    # A quotation's source ends before the quotation begins, and is anywhere before
    # that.
    drawn = (random.random((rows, window)) for _ in range(2))
    share, which = (
        np.take_along_axis(draw, stretches.number, axis=1) for draw in drawn
    )
    distance = drawn_distance(mixture, share, which, stretches.length, stretches.start)
    origin = np.arange(rows * window)
    origin -= np.where(stretches.kind == QUOTATION, distance, 0).ravel()
    answers = add_look_ups(mixture, random, stretches, origin)

    is_text = stretches.kind == TEXT
    tokens = random_symbols(random, rows, window)
    going_on = np.cumsum(is_text, axis=1) - 1
    tokens[is_text] = np.take_along_axis(text, going_on, axis=1)[is_text]
    filled = torch.from_numpy(tokens.ravel()[followed(origin)].reshape(rows, window))

    scored = is_text | ((stretches.kind == QUOTATION) & (stretches.inside >= CUE))
    # Quoted since, or drawn twice by chance, a key may have another nearest value: not
    # scored then.
    known = ngram_predictions(filled, KEY) == filled
    return Batch(filled, torch.from_numpy(scored) | (torch.from_numpy(answers) & known))


def drawn_distance(
    mixture: Mixture,
    share: np.ndarray,
    which: np.ndarray,
    low: np.ndarray | int,
    high: np.ndarray,
) -> np.ndarray:
    """Return numbers from `low` to `high`: uniform in a share `far` of cases, else
    log-uniform.
    """
    uniform = low + (share * np.maximum(high - low + 1, 1)).astype(np.int64)
    return np.where(which < mixture.far, uniform, log_uniform(share, low, high))


def followed(origin: np.ndarray) -> np.ndarray:
    """Follow places until they point at themselves: quotations of quotations are
    chains.
    """
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
    """Add look-ups of earlier records to `origin`; return True at their values [rows,
    window].
    """
    # The records of a row go in pairs. The second of a pair may be asked for, and where
    # its key is contested, the first of the same or of an earlier pair gets that key
    # too.
    rows, window = stretches.kind.shape
    records, questions = stretches.records(SYMBOLS), stretches.records(LOOK_UPS)
    first = np.searchsorted(records, questions // window * window)
    pairs = (np.searchsorted(records, questions) - first) // 2
    questions, first, pairs = (each[pairs > 0] for each in (questions, first, pairs))

    share, which, contest, other = random.random((4, len(questions)))
    pair = pairs - drawn_distance(mixture, share, which, 1, pairs)
    asked = records[first + 2 * pair + 1]
    for offset in range(RECORD):
        origin[questions + offset] = asked + offset

    contested = contest < mixture.contested
    older = records[first + 2 * (other * (pair + 1)).astype(np.int64)]
    for offset in range(KEY):
        origin[older[contested] + offset] = asked[contested] + offset
    answers = np.zeros(rows * window, np.bool_)
    answers[questions + KEY] = True
    return answers.reshape(rows, window)
