"""The training data: real text, mixed with tasks whose answers are far back.

A row of a batch (a window) is cut into stretches of log-uniform length. A stretch has
one of four kinds:

text
    bytes of the corpus
quotation
    the same bytes as an earlier stretch of the same window
symbols
    random symbols, which are also read as records: a key of KEY symbols and a value of
    one symbol
look-ups
    records from the symbols before, so that their values can be predicted from their
    keys

From nothing but text, a model of this size does not learn to look far back. The first
steps of a training have short periodic rows of symbols instead: a model discovers
copying there in 60 to 160 steps, and in the mixture only with luck. `make_training_batch`
makes the batch of a step, a pure function of (seed, step, window, rows).
"""

import math
from dataclasses import asdict, dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ropelab.models.lm.corpus import ALPHABET, TRAINING, Corpus
from ropelab.models.lm.lists import hide_list
from ropelab.models.lm.matcher import predict_by_ngrams

# The number of first tokens of a quotation that are not scored. They cannot be predicted,
# since they say which passage is quoted.
CUE = 4
# The number of symbols in a key. There are 64^3 keys, so that a key hardly occurs twice
# by chance, even in a long window.
KEY = 3
# The number of symbols in a record: a key and a value of one symbol.
RECORD = KEY + 1

# The kinds of stretches.
TEXT, QUOTATION, SYMBOLS, LOOK_UPS = range(4)


@dataclass(frozen=True)
class Batch:
    """Rows of tokens, and True at the tokens whose prediction counts."""

    tokens: Int[Tensor, "batch tokens"]
    scored: Bool[Tensor, "batch tokens"]

    @property
    def last_scored(self) -> int:
        """The least number of final tokens that include all scored tokens of all rows."""
        # The first token of a row cannot be predicted.
        is_scored = self.scored[:, 1:].any(dim=0)
        first_scored = int(is_scored.nonzero()[0])
        return len(is_scored) - first_scored

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
    """How the training data is mixed; all experiments use the defaults."""

    # The share of stretches that are quotations. A quotation without enough text before
    # it becomes text.
    quotations: float = 0.35
    # The share of stretches that are symbols.
    symbols: float = 0.3
    # The share of stretches that are look-ups. All other stretches are text.
    look_ups: float = 0.15
    # The share of look-ups whose key two earlier records have, with different values.
    # The value of the nearer record is the right answer.
    contested: float = 0.5
    # The least number of tokens in a stretch.
    shortest: int = 8
    # The greatest number of tokens in a stretch, as a share of the window.
    longest: float = 1 / 2
    # The share of quotations and look-ups whose distance is drawn uniformly instead of
    # log-uniformly.
    far: float = 0.3
    # The number of first steps that have periodic rows.
    periodic_steps: int = 160
    # The number of tokens in a periodic row. In rows of 16 copying is discovered in a
    # third of the steps that it takes in rows of 64.
    periodic_window: int = 16
    # The share of rows that are not mixed, but text around a list
    # (ropelab/models/lm/lists.py).
    lists: float = 0.0

    def __post_init__(self) -> None:
        shares = (self.quotations, self.symbols, self.look_ups)
        if min(shares) < 0 or sum(shares) > 1 + 1e-9:
            raise ValueError(
                f"the shares {shares} of a mixture must be 0 or more and 1 at most"
            )

    @property
    def key(self) -> dict[str, float]:
        """Return the values that identify the mixture in the keys of cells."""
        key = asdict(self)
        # Models without lists leave this entry out, so that their keys equal the keys
        # of models that were stored before lists existed.
        if not self.lists:
            del key["lists"]
        return key


def make_training_batch(
    mixture: Mixture, corpus: Corpus, seed: int, step: int, window: int, rows: int
) -> Batch:
    """Return the batch of a step: `rows` rows of `window` bytes.

    The first steps have more and shorter rows, with the same number of tokens.
    """
    random = np.random.default_rng((TRAINING, seed, step, window, rows))
    if step < mixture.periodic_steps:
        shorter = min(window, mixture.periodic_window)
        return make_periodic_batch(random, shorter, rows * window // shorter)

    text = corpus.windows(seed, step, window, rows).numpy()
    batch = make_mixed_batch(mixture, random, text)
    has_list = random.random(rows) < mixture.lists
    for row in np.flatnonzero(has_list):
        tokens, scored = hide_list(random, text[row])
        batch.tokens[row] = torch.from_numpy(tokens)
        batch.scored[row] = torch.from_numpy(scored)
    return batch


def draw_symbols(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Draw symbols independently, of equal probability."""
    return ALPHABET[random.integers(len(ALPHABET), size=shape)]


def make_periodic_batch(random: np.random.Generator, window: int, rows: int) -> Batch:
    """Return rows that each repeat a segment of random symbols.

    The first occurrence of a segment is not scored.
    """
    # The lengths of segments are log-uniform, from the length of a record to three
    # quarters of the window: [rows, 1].
    longest = max(RECORD, 3 * window // 4)
    periods = log_uniform(random.random((rows, 1)), RECORD, longest)
    places = np.arange(window)
    segments = draw_symbols(random, rows, window)
    tokens = np.take_along_axis(segments, places % periods, axis=1)
    is_repeated = places >= periods
    return Batch(torch.from_numpy(tokens), torch.from_numpy(is_repeated))


def log_uniform(
    share: np.ndarray, low: np.ndarray | int, high: np.ndarray | int
) -> np.ndarray:
    """Map shares in [0, 1) to log-uniform whole numbers from `low` to `high`.

    Uniform random shares make numbers whose logarithms are uniform.
    """
    high = np.maximum(high, low)
    numbers = (low * ((high + 1) / low) ** share).astype(np.int64)
    return np.clip(numbers, low, high)


@dataclass(frozen=True)
class Stretches:
    """The stretch that each token is in, as arrays of shape [rows, window]."""

    # The number of the stretch in its row.
    number: np.ndarray
    # TEXT, QUOTATION, SYMBOLS or LOOK_UPS.
    kind: np.ndarray
    # The place in the row of the first token of the stretch.
    start: np.ndarray
    # The number of tokens of the stretch, including tokens that the end of the window
    # cuts off.
    length: np.ndarray

    @property
    def place_in_stretch(self) -> np.ndarray:
        """The place of every token in its stretch."""
        window = self.start.shape[1]
        return np.arange(window) - self.start

    def record_places(self, kind: int) -> np.ndarray:
        """Return the places of all whole records in the stretches of a kind.

        The place of a record is that of its first token. Places count through all rows,
        one row after the other.
        """
        window = self.start.shape[1]
        places = np.arange(window)
        is_whole = places + RECORD <= self.start + self.length
        # A record that begins later than this is cut off by the end of the window.
        is_whole[:, window - RECORD + 1 :] = False
        is_first = self.place_in_stretch % RECORD == 0
        return np.flatnonzero((self.kind == kind) & is_whole & is_first)


def draw_stretches(
    mixture: Mixture, random: np.random.Generator, rows: int, window: int
) -> Stretches:
    """Cut every row into stretches and draw the kind of each."""
    # The number of the shortest stretches that fill a window. If stretches are longer,
    # the last of them begin after the end of the window, and are not used. The arrays
    # are [rows, count].
    count = math.ceil(window / mixture.shortest)
    longest = max(mixture.shortest, int(mixture.longest * window))
    lengths = log_uniform(random.random((rows, count)), mixture.shortest, longest)
    starts = np.cumsum(lengths, axis=1) - lengths

    # Stretches are numbered from 0. The number of a token's stretch is the number of
    # stretches that have begun up to the token, less one.
    is_first = np.zeros((rows, window), np.int64)
    is_used = starts < window
    row_of_start, _ = np.nonzero(is_used)
    is_first[row_of_start, starts[is_used]] = 1
    number = np.cumsum(is_first, axis=1) - 1

    borders = np.cumsum([mixture.quotations, mixture.symbols, mixture.look_ups])
    drawn = np.searchsorted(borders, random.random((rows, count)), side="right")
    kinds = np.array([QUOTATION, SYMBOLS, LOOK_UPS, TEXT])[drawn]
    has_no_source = (kinds == QUOTATION) & (lengths > starts)
    kinds[has_no_source] = TEXT
    return Stretches(
        number,
        np.take_along_axis(kinds, number, axis=1),
        np.take_along_axis(starts, number, axis=1),
        np.take_along_axis(lengths, number, axis=1),
    )


def make_mixed_batch(
    mixture: Mixture, random: np.random.Generator, text: np.ndarray
) -> Batch:
    """Return windows of the mixture, made of rows of text as long as the window."""
    # Every token first gets an origin, the place from which it is copied: the place of
    # a quoted token, the place of a token in a record, or its own place. Then text and
    # symbols are filled in, and every token is copied from its origin.
    rows, window = text.shape
    stretches = draw_stretches(mixture, random, rows, window)
    is_quoted = stretches.kind == QUOTATION

    # A quotation and its source are equally long and do not overlap. The distance is thus
    # at least the length of the quotation, and at most its start.
    shares = random.random((rows, window))
    choices = random.random((rows, window))
    distance = draw_distances(
        mixture,
        # All tokens of a stretch get the same numbers.
        np.take_along_axis(shares, stretches.number, axis=1),
        np.take_along_axis(choices, stretches.number, axis=1),
        stretches.length,
        stretches.start,
    )
    # Places count through all rows, one row after the other.
    origin = np.arange(rows * window)
    origin -= np.where(is_quoted, distance, 0).ravel()
    is_answer = set_look_ups(mixture, random, stretches, origin)

    # The text of a row goes on after each interruption.
    is_text = stretches.kind == TEXT
    originals = draw_symbols(random, rows, window)
    places_in_text = np.cumsum(is_text, axis=1) - 1
    originals[is_text] = np.take_along_axis(text, places_in_text, axis=1)[is_text]
    copied = originals.ravel()[follow_origins(origin)].reshape(rows, window)
    tokens = torch.from_numpy(copied)

    # The nearest earlier occurrence of a key need not be in its record, since the key
    # may have been quoted later, or drawn twice by chance. If another value follows
    # that occurrence, the answer is not scored.
    is_nearest = predict_by_ngrams(tokens, KEY) == tokens
    scored = is_text | (is_quoted & (stretches.place_in_stretch >= CUE))
    scored_answers = torch.from_numpy(is_answer) & is_nearest
    return Batch(tokens, torch.from_numpy(scored) | scored_answers)


def draw_distances(
    mixture: Mixture,
    share: np.ndarray,
    choice: np.ndarray,
    low: np.ndarray | int,
    high: np.ndarray,
) -> np.ndarray:
    """Map random shares in [0, 1) to distances from `low` to `high`.

    Where the random number `choice` is below `mixture.far`, uniform shares make uniform
    distances. Elsewhere they make log-uniform distances.
    """
    uniform = low + (share * np.maximum(high - low + 1, 1)).astype(np.int64)
    return np.where(choice < mixture.far, uniform, log_uniform(share, low, high))


def follow_origins(origin: np.ndarray) -> np.ndarray:
    """Replace the origin of each token by a place that is its own origin.

    An origin may itself have another origin, since a quotation may contain a quotation.
    """
    while True:
        origin_of_origin = origin[origin]
        if np.array_equal(origin_of_origin, origin):
            return origin
        origin = origin_of_origin


def set_look_ups(
    mixture: Mixture,
    random: np.random.Generator,
    stretches: Stretches,
    origin: np.ndarray,
) -> np.ndarray:
    """Let each look-up have an earlier record as its origin, by changing `origin`.

    Return True at the values of look-ups, [rows, window].
    """
    # The records of a row are seen as pairs. A look-up repeats the second record of an
    # earlier pair. If the look-up is contested, the first record of that pair, or of a
    # pair before, gets the same key and keeps its own value. It is the older record.
    rows, window = stretches.kind.shape
    records = stretches.record_places(SYMBOLS)
    look_ups = stretches.record_places(LOOK_UPS)
    # For each look-up: the number of the first record of its row, and how many pairs of
    # records the row has before it.
    starts_of_rows = look_ups // window * window
    first_records = np.searchsorted(records, starts_of_rows)
    earlier_pairs = (np.searchsorted(records, look_ups) - first_records) // 2

    has_pairs = earlier_pairs > 0
    look_ups = look_ups[has_pairs]
    first_records = first_records[has_pairs]
    earlier_pairs = earlier_pairs[has_pairs]

    # Random numbers in [0, 1), four for each look-up.
    share, choice, contest, older_share = random.random((4, len(look_ups)))
    pairs_back = draw_distances(mixture, share, choice, 1, earlier_pairs)
    pair = earlier_pairs - pairs_back
    repeated_records = records[first_records + 2 * pair + 1]
    for offset in range(RECORD):
        origin[look_ups + offset] = repeated_records + offset

    older_pair = (older_share * (pair + 1)).astype(np.int64)
    older_records = records[first_records + 2 * older_pair]
    is_contested = contest < mixture.contested
    changed_records = older_records[is_contested]
    sources = repeated_records[is_contested]
    for offset in range(KEY):
        origin[changed_records + offset] = sources + offset

    is_answer = np.zeros(rows * window, np.bool_)
    is_answer[look_ups + KEY] = True
    return is_answer.reshape(rows, window)
