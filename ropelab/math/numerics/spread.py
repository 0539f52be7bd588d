"""The spread of a score: how much it changes when two tokens move together.

With RoPE the score of a query and a key depends only on their distance. Where angles or
tables are rounded, the score also depends on the place of the two tokens. The spread is
the standard deviation of the score over the places, at one distance.

An implementation stores z_i(m) = cos + i sin of pair i at position m. The score of a
query at m and a key at m - D is the sum over pairs of Re(a_i z_i(m) conj z_i(m - D)),
divided by sqrt(d), where a_i is the product of the key's features and the conjugate of
the query's, and d is the number of features of the whole head. A pair that does not
rotate has z_i(m) = 1. For standard normal features the variance of the score is the mean
over pairs of |z_i(m) conj z_i(m - D)|^2, which is 1 without rounding. The part of this
variance that comes from the place m is

    spread(D)^2 = mean over pairs of the variance over m of z_i(m) conj z_i(m - D).

This formula needs only the stored table, so that no vector is drawn. The mean is over all
pairs of the head. Those that do not rotate have no variance.

Where every z has length 1, the variance of a pair is

    1 - |mean over m of exp(i (e_i(m) - e_i(m - D)))|^2,

with e_i the errors of the pair's angles. Errors that are equal at both positions
cancel. A score without errors therefore has no spread. A wrong frequency causes no
spread either if it is the same at all positions, since the difference of its errors
depends only on D.

The effect of rounding after the table depends on the vectors. This part of the spread is
therefore a mean over drawn vectors, with an interval.

The slip of a stored z_i(m) is z_i(m) exp(-i m theta_i) - 1, where theta_i is the
frequency that the stored angles follow. The slip is the error of z, relative to the
number that z would be without rounding. Slips are small numbers, with which sums over
all distances are computed precisely.
"""

import math
from typing import Final

import numpy as np
from numpy import fft

from ropelab.math.numerics.chain import Chain, Positions, list_positions
from ropelab.math.numerics.formats import FLOAT64_BITS, round_to
from ropelab.math.numerics.scores import compute_scores, draw
from ropelab.runs.arrays import Float
from ropelab.runs.stats import Interval, average_samples

# The length of the longest text, in tokens, in which every distance and every place is
# counted. In longer texts distances and places are drawn at random.
LONGEST_COUNTED = 1 << 18
# A variance below this share of the mean square of the slips is lost in the rounding of
# float32 transforms.
NOISE = 2 * float(np.finfo(np.float32).eps)

# The number of distances that are drawn for the mean over distances.
DISTANCES = 256
# The number of places that are drawn at each drawn distance.
PLACES = 256
# The number of places that are drawn for the spread at one given distance.
PLACES_AT_ONE_DISTANCE = 4096

# The number of groups in which rounding after the table is measured. Each group has one
# distance, drawn at random.
GROUPS = 32
# The number of queries and keys that are drawn in each group.
VECTORS_PER_GROUP = 8
# The number of places at which each query and key are scored.
PLACES_PER_GROUP = 32

# NumPy transforms float32 in float32 only if the norm has the type of the values, as it has
# with this word. Without it NumPy converts everything to float64 and back, which takes three
# times as long. The word divides a transform by its size.
DIVIDED_BY_SIZE: Final = "forward"

# The largest distance of two tokens, as a share of the number of positions.
FARTHEST_SHARE = 0.75

Variances = Float[np.ndarray, " distances"]


class SpreadMeter:
    """Measures the spread of scores over ``length`` positions from ``offset`` on.

    ``chain`` computes stored angles and tables: a plan of roundings on the frequencies
    of a head. Distances are uniform from 1 to three quarters of ``length``. Measured
    values are nan where a stored angle or score overflows.
    """

    def __init__(
        self,
        chain: Chain,
        offset: int,
        length: int,
        seed: int,
    ) -> None:
        self.chain = chain
        self.offset = offset
        self.length = length
        self.seed = seed
        self.farthest = max(1, int(length * FARTHEST_SHARE))
        # The chain without the roundings that come after the table.
        self.stored_chain = Chain(chain.plan.storage, chain.spectrum)
        # The result of `_compute_every_distance`; None until it is computed.
        self._variances: Variances | None = None

    @property
    def last_position(self) -> int:
        return self.offset + self.length - 1

    @property
    def overflows(self) -> bool:
        positions = list_positions(self.last_position, self.last_position + 1)
        angles = self.stored_chain.angles(positions)
        return not np.isfinite(angles).all()

    def measure_overall(self) -> Interval:
        """Return the root mean square of the spreads over distances.

        The interval has a width where distances are drawn. If all positions are stored
        as one number, no place changes a score, though all scores are wrong. The result
        is then the root mean square of the errors of scores instead.
        """
        if self.overflows:
            return Interval(math.nan, math.nan, math.nan, 0)
        if self._is_one_place():
            return _make_exact_interval(self._compute_error_of_one_place())

        variance = self._estimate_stored_variance()
        if self.chain.plan != self.chain.plan.storage:
            added_variance = self._measure_variance_after_table()
            variance = Interval(
                variance.value + added_variance.value,
                variance.low + added_variance.low,
                variance.high + added_variance.high,
                added_variance.n,
            )

        return _take_roots(variance)

    def measure_at_distance(self, distance: int) -> Interval:
        """Return the spread at one distance.

        The effect of rounding after the table is left out.
        """
        if self.overflows:
            return Interval(math.nan, math.nan, math.nan, 0)
        if self.chain.plan.consistent:
            return _make_exact_interval(0.0)
        if self.length <= LONGEST_COUNTED:
            variance = self._compute_every_distance()[distance - 1]
            return _make_exact_interval(math.sqrt(variance))

        random = np.random.default_rng((self.seed, distance))
        places = self._draw_places(random, distance, PLACES_AT_ONE_DISTANCE)
        squares = self._square_deviations(places, distance)
        means = squares.mean(0) * self.chain.spectrum.rotated_share
        return _take_roots(average_samples(means))

    def _estimate_stored_variance(self) -> Interval:
        """Return the mean over distances of the variance of a score.

        The effect of rounding after the table is left out.
        """
        if self.chain.plan.consistent:
            return _make_exact_interval(0.0)
        if self.length <= LONGEST_COUNTED:
            return _make_exact_interval(float(self._compute_every_distance().mean()))

        # The range of distances is cut into equal parts, and one distance is drawn in each.
        random = np.random.default_rng(self.seed)
        numbers = np.arange(DISTANCES) + random.random(DISTANCES)
        shares = numbers / DISTANCES
        distances = 1 + np.floor(shares * self.farthest)

        variances = []
        for distance in distances.astype(int).tolist():
            places = self._draw_places(random, distance, PLACES)
            squares = self._square_deviations(places, distance)
            variances.append(squares.mean() * self.chain.spectrum.rotated_share)
        return average_samples(np.array(variances))

    def _draw_places(
        self,
        random: np.random.Generator,
        distance: int,
        count: int,
    ) -> Positions:
        """Draw positions of keys. The query of each stands `distance` tokens later."""
        place_count = self.length - distance
        return self.offset + np.floor(random.random(count) * place_count)

    def _square_deviations(
        self,
        keys: Positions,
        distance: int,
    ) -> Float[np.ndarray, "pairs places"]:
        """Return |deviation|^2 of each rotation from the mean of its pair.

        The mean of these squares is an unbiased estimate of the variance.
        """
        query_table = self._read_table(keys + distance)
        key_table = self._read_table(keys)
        rotations = query_table * key_table.conj()
        # The mean over places, one for each pair.
        deviations = rotations - rotations.mean(1, keepdims=True)
        squares = deviations.real**2 + deviations.imag**2

        # The mean is taken from the same places, which makes the squares too small by
        # the factor (n - 1) / n (Bessel's correction).
        correction = keys.size / (keys.size - 1)
        return correction * squares

    def _read_table(self, positions: Positions) -> np.ndarray:
        cos, sin = self.stored_chain.table(positions)
        return cos + 1j * sin

    def _compute_every_distance(self) -> Variances:
        """Return the mean of the variance over the pairs of the head, for distances 1 to
        the farthest.

        Write z(m) = exp(i m theta) (1 + s(m)), where s is the slip of the query, and s'
        for the slip of the key at m - D. Rotating by the constant exp(-i D theta) changes no
        variance, and turns z(m) conj z(m - D) into (1 + s) (1 + conj s') = 1 + u with

            u = s + conj s' + s conj s',
            variance = mean of |u|^2 - |mean of u|^2.

        Let x = |1 + s|^2 - 1 = 2 Re s + |s|^2 be the excess of |z|^2 over 1 of the
        query, and x' the excess of the key. Then |1 + u|^2 = (1 + x) (1 + x'), from
        which follows

            |u|^2 = |s|^2 + |s'|^2 - 2 Re(s conj s') + x x'.

        The sum of each term over the places is a sum over a window, or a correlation
        with itself, which a Fourier transform gives for all distances at once. Slips
        are mostly small, so that no large numbers cancel, and float32 transforms are
        precise enough. Where large slips cancel, what float32 cannot tell from 0 is 0.
        """
        if self._variances is not None:
            return self._variances

        positions = list_positions(self.offset, self.offset + self.length)
        size = _find_fast_size(self.length + self.farthest)
        counts = self.length - np.arange(1, self.farthest + 1)
        theta = self._find_frequencies()

        # The sums of |u|^2 over places, and |mean of u|^2, both added up over the pairs.
        sums = np.zeros(self.farthest)
        sums_of_squares = np.zeros(self.farthest)
        squared_means = np.zeros(self.farthest)
        # The power spectra of the excesses. They are added up over the pairs and
        # transformed back once, into the sums of x x'.
        excess_power = np.zeros(size // 2 + 1)
        for pair in np.flatnonzero(theta).tolist():
            slip = self._compute_slip(pair, theta[pair], positions)
            squares = slip.real**2 + slip.imag**2
            if not squares.any():
                continue

            correlation = _correlate(slip, size, self.farthest)
            sums_of_pair = _sum_windows(squares, self.farthest)
            sums_of_squares += sums_of_pair
            sums += sums_of_pair - 2 * correlation.real
            # Only rounded tables have values z of another length than 1.
            if self.chain.plan.table.precision < FLOAT64_BITS:
                excess = 2 * slip.real + squares
                excess_power += _compute_power(excess, size)

            mean = (_sum_windows(slip, self.farthest) + correlation) / counts
            squared_means += mean.real**2 + mean.imag**2

        if excess_power.any():
            sums += fft.irfft(excess_power, size)[1 : self.farthest + 1]
        total = sums / counts - squared_means
        total[total < NOISE * sums_of_squares / counts] = 0
        self._variances = np.maximum(total / self.chain.spectrum.head_pairs, 0.0)
        return self._variances

    def _compute_slip(
        self,
        pair: int,
        theta: float,
        positions: Positions,
    ) -> np.ndarray:
        """Return z exp(-i m theta) - 1 of a pair at every position.

        The relative error of these small numbers is that of float64.
        """
        pair_slice = slice(pair, pair + 1)
        angles = self.stored_chain.angles(positions, pair_slice)[0]
        angle_error = angles - theta * positions
        # A wrong angle alone has the slip exp(i error) - 1. The real part, cos(error) -
        # 1, is written without cancellation. Real and imaginary parts are computed
        # separately here and below, since complex products take twice as long.
        angle_slip = np.zeros(len(positions), dtype=np.complex128)
        has_angle_errors = bool(angle_error.any())
        if has_angle_errors:
            angle_slip.real = -2 * np.sin(angle_error / 2) ** 2
            angle_slip.imag = np.sin(angle_error)

        table = self.stored_chain.plan.table
        if table.precision == FLOAT64_BITS:
            return angle_slip
        cos = np.cos(angles)
        sin = np.sin(angles)
        cos_error = round_to(cos, table) - cos
        sin_error = round_to(sin, table) - sin

        # A rounded table alone moves z to exp(i angle) + e with e = cos_error +
        # i sin_error, so that z exp(-i angle) - 1 is e (cos - i sin).
        slip = np.empty_like(angle_slip)
        slip.real = cos_error * cos + sin_error * sin
        slip.imag = sin_error * cos - cos_error * sin
        if has_angle_errors:
            # Two slips s and t together are (1 + s) (1 + t) - 1. This product is
            # multiplied out, because adding 1 would lose the last digits of small numbers.
            product = slip * angle_slip
            slip += angle_slip + product
        return slip

    def _find_frequencies(self) -> Float[np.ndarray, " pairs"]:
        """Return the frequencies that stored angles follow."""
        if not self.stored_chain.recurrent:
            return self.stored_chain.inv_freq
        last = max(self.last_position, 1)
        angles = self.stored_chain.angles(list_positions(last, last + 1))[:, 0]
        return angles / last

    def _is_one_place(self) -> bool:
        # Stored positions never fall, so equal ends mean that all are equal.
        ends = np.array([self.offset, self.last_position], dtype=np.float64)
        first, last = self.stored_chain.positions(ends)
        return bool(first == last)

    def _compute_error_of_one_place(self) -> float:
        # The stored rotation is 1 at every distance, the exact rotation exp(i angle).
        # The square of the error is |1 - exp(i angle)|^2 = 2 - 2 cos(angle).
        distances = np.arange(1, self.farthest + 1)
        angles = np.outer(self.chain.spectrum.inv_freq, distances)
        squares = 2 - 2 * np.cos(angles)
        mean = float(squares.mean()) * self.chain.spectrum.rotated_share
        return math.sqrt(mean)

    @np.errstate(invalid="ignore", over="ignore")
    def _measure_variance_after_table(self) -> Interval:
        """Return the variance that rounding of the rotation and of the score adds."""
        random = np.random.default_rng(self.seed)
        pairs = self.chain.spectrum.head_pairs

        added_variances = []
        for group in range(GROUPS):
            seed = self.seed * GROUPS + group
            vectors = draw(VECTORS_PER_GROUP, pairs, "random", seed)
            share = (group + random.random()) / GROUPS
            distance = 1 + math.floor(share * self.farthest)
            distance = min(distance, self.length - 1)
            keys = self._draw_places(random, distance, PLACES_PER_GROUP)
            queries = keys + distance

            scores_before = compute_scores(self.stored_chain, vectors, queries, keys)
            scores_after = compute_scores(self.chain, vectors, queries, keys)
            variance_before = scores_before.var(axis=1, ddof=1)
            variance_after = scores_after.var(axis=1, ddof=1)
            added_variances.append(float((variance_after - variance_before).mean()))
        return average_samples(np.array(added_variances))


def _make_exact_interval(value: float) -> Interval:
    """Return an interval without width, for a value that is not an estimate."""
    return Interval(value, value, value, 0)


def _take_roots(variance: Interval) -> Interval:
    """Return the standard deviation for a variance.

    The lower end of an estimated variance can fall below 0. It then counts as 0.
    """
    return Interval(
        math.sqrt(max(0.0, variance.value)),
        math.sqrt(max(0.0, variance.low)),
        math.sqrt(max(0.0, variance.high)),
        variance.n,
    )


def _find_fast_size(least: int) -> int:
    """Return a size, at least `least`, at which Fourier transforms are quick.

    The size is 5, 6, 7 or 8 times a power of two.
    """
    # `least` is at most 2^bits, which is 8 times this power of two.
    bits = (least - 1).bit_length()
    power = 1 << max(0, bits - 3)
    sizes = (5 * power, 6 * power, 7 * power, 8 * power)
    return next(size for size in sizes if size >= least)


def _sum_windows(values: np.ndarray, farthest: int) -> np.ndarray:
    """Return, for D = 1 .. farthest, the sum of v(m) + conj v(m - D) over the places m.

    Queries stand at m = D and after, keys D before them. The value of the key is
    conjugated because a score multiplies with the conjugate of the key's rotation.
    """
    count = len(values)
    # sums_before[k] is the sum of the first k values. Queries have the values from D on,
    # keys the first count - D values.
    sums_before = np.concatenate(([0], np.cumsum(values)))
    query_sums = sums_before[-1] - sums_before[1 : farthest + 1]
    key_sums = sums_before[count - farthest : count][::-1]
    return np.asarray(query_sums + key_sums.conj())


def _compute_power(values: Float[np.ndarray, " positions"], size: int) -> np.ndarray:
    """Return the power spectrum of real values.

    The inverse transform of this spectrum is the correlation of the values.
    """
    divided = fft.rfft(values.astype(np.float32), size, norm=DIVIDED_BY_SIZE)
    transform = size * divided
    return np.asarray(transform.real**2 + transform.imag**2)


def _correlate(values: np.ndarray, size: int, farthest: int) -> np.ndarray:
    """Return sum over m of v(m) conj v(m - D), for D = 1 .. farthest."""
    transform = fft.fft(values.astype(np.complex64), size, norm=DIVIDED_BY_SIZE)
    power = transform.real**2 + transform.imag**2
    # The power is real, so half of the inverse transform determines all of it.
    inverse = fft.rfft(power, norm=DIVIDED_BY_SIZE)
    correlation = inverse[1 : farthest + 1].conj()

    # The norm divides the power by size^2 and the inverse transform by size. Only the
    # inverse transform has to be divided by size, so that the factor size^2 is missing.
    return np.asarray(correlation * size**2)
