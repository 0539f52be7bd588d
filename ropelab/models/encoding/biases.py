"""Encodings that add a number to each score and change nothing else.

The number, the bias, depends on the head and on the positions of query and key; for
most of these encodings only on the distance (query position minus key position).
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ropelab.models.encoding.absolute import sinusoid
from ropelab.models.encoding.base import Encoding, Heads, Positions, Scores, encoding
from ropelab.models.encoding.relative import distances

Bias = Float[Tensor, "heads queries keys"]
# Distances of at least 0, and the bias of each head at each distance.
Distances = Int[Tensor, "distances"]
BiasOfDistances = Float[Tensor, "heads distances"]


class AdditiveBias(Encoding):
    """scores = q k^T / sqrt(head_dim) + bias."""

    fused: bool = False

    def scores(
        self,
        q: Heads,
        k: Heads,
        q_positions: Positions,
        k_positions: Positions,
    ) -> Scores:
        scaled_q = q * q.shape[-1] ** -0.5
        scores = scaled_q @ k.mT

        # Distances do not fit into 16 bits, so no autocast may reach them.
        with torch.autocast(q.device.type, enabled=False):
            bias = self.bias(q_positions, k_positions)
        return scores + bias.to(scores.dtype)

    def bias(self, q_positions: Positions, k_positions: Positions) -> Bias:
        """Return the numbers to add.

        At a key after the query, which is masked, any finite number will do.
        """
        raise NotImplementedError


class DistanceBias(AdditiveBias):
    """A bias that depends only on the distance, and is computed once per distance."""

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        """Return the bias of each head at each distance."""
        raise NotImplementedError

    def bias(self, q_positions: Positions, k_positions: Positions) -> Bias:
        # The distances fall from the largest distance. The last column is a distance
        # that does not occur. Distances below 0 belong to masked keys, for which the
        # bias of distance 0 will do.
        falling = distances(q_positions, k_positions)
        occurring = falling[:-1].clamp(min=0)
        by_distance = self.by_distance(occurring)

        # The row of the last query begins at the first distance, and the row of each
        # earlier query one distance later. `unfold` makes all these overlapping rows as
        # views, the row of the last query first, and `flip` puts them in the order of
        # the queries.
        queries = len(q_positions)
        keys = len(occurring) - queries + 1
        rows = by_distance.unfold(-1, keys, 1)
        return rows.flip(-2)


def slopes(heads: int) -> Float[Tensor, " heads"]:
    """Return ALiBi's penalty per token of each head, in float64.

    For head h = 1..heads the slope is 2^(-8 h / heads) if `heads` is a power of two.
    The paper gives slopes only for powers of two. For other numbers of heads, the
    authors' code takes the slopes of the next lower power p, then every second slope of
    2 p heads.

    >>> slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """

    def slopes_of_power(count: int) -> Tensor:
        numbers = torch.arange(1, count + 1, dtype=torch.float64)
        exponents = -8 * numbers / count
        return 2.0**exponents

    # The largest power of two that is not above `heads`.
    lower_power = 1 << (heads.bit_length() - 1)
    first = slopes_of_power(lower_power)
    every_second = slopes_of_power(2 * lower_power)[::2]
    return torch.cat((first, every_second))[:heads]


@encoding("alibi")
class Alibi(DistanceBias):
    """bias = -slope * distance, fixed slopes (Press et al. 2021, arXiv:2108.12409)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slopes: Tensor
        self.register_buffer("slopes", slopes(heads).float(), persistent=False)

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        return -self.slopes[:, None] * distance


@encoding("t5")
class T5(DistanceBias):
    """bias = table[head, bucket(distance)], with one table for all layers.

    Raffel et al. 2019, arXiv:1910.10683. T5 does not divide scores by sqrt(head_dim),
    and draws smaller query weights instead. Here all encodings start with the same
    weights, and scores are divided. Without the division a softmax over random keys
    would be nearly one-hot and learn nothing.
    """

    # The number of buckets, each of which holds one or more distances.
    BUCKETS = 32
    # The distance at which the formula of the buckets reaches BUCKETS. Numbers of
    # buckets are rounded down, so that the last bucket begins at 113. The last bucket
    # holds all distances from 113 on.
    FARTHEST = 128

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        # N(0, 1 / width), as in the authors' code.
        self.table = nn.Parameter(torch.randn(heads, self.BUCKETS) * width**-0.5)

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        return self.table[:, self.bucket(distance)]

    @classmethod
    def bucket(cls, distance: Int[Tensor, "*distances"]) -> Int[Tensor, "*distances"]:
        """Return the number of the bucket of each distance.

        For distances below 16 it is the distance itself, and for larger distances it is
        16 + floor(16 ln(distance / 16) / ln(8)), at most 31.
        """
        # Each of the first buckets holds one distance.
        single_buckets = cls.BUCKETS // 2
        wide_buckets = cls.BUCKETS - single_buckets

        # The logarithm is computed in float64. In float32 a distance on the border of two
        # buckets would fall into the lower one.
        far_distance = distance.clamp(min=single_buckets).double()
        growth = torch.log(far_distance / single_buckets)
        share = growth / math.log(cls.FARTHEST / single_buckets)
        bucket = single_buckets + (share * wide_buckets).long()

        bucket = bucket.clamp(max=cls.BUCKETS - 1)
        return torch.where(distance < single_buckets, distance, bucket)


# The smallest start value of a parameter of the two Kerple encodings (Chi et al. 2022,
# arXiv:2205.09921), as in the authors' code, which draws start values uniformly from 0
# on. The parameters are positive, one or two for each head. They are kept as
# logarithms, or as a logit if they have an upper bound, so that training cannot leave
# their ranges.
SMALLEST_START = 1e-2


def draw_logarithms(heads: int, largest: float) -> nn.Parameter:
    """Return logarithms of numbers drawn uniformly between 0 and `largest`.

    Numbers below SMALLEST_START are raised to it.
    """
    numbers = largest * torch.rand(heads)
    return nn.Parameter(numbers.clamp(min=SMALLEST_START).log())


@encoding("kerple_log")
class KerpleLog(DistanceBias):
    """bias = -r1 ln(1 + r2 distance); r1 starts in (0, 2), r2 in (0, 1)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.log_r1 = draw_logarithms(heads, 2)
        self.log_r2 = draw_logarithms(heads, 1)

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        r1 = self.log_r1.exp()[:, None]
        r2 = self.log_r2.exp()[:, None]
        return -r1 * torch.log1p(r2 * distance)


@encoding("kerple_power")
class KerplePower(DistanceBias):
    """bias = -r1 distance^r2 with r2 < 2; r1 starts in (0, 1), r2 in (0, 2)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.log_r1 = draw_logarithms(heads, 1)
        halves_of_r2 = torch.rand(heads)
        # `eps` keeps the halves between SMALLEST_START and 1 - SMALLEST_START.
        self.logit_r2 = nn.Parameter(torch.logit(halves_of_r2, eps=SMALLEST_START))

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        r1 = self.log_r1.exp()[:, None]
        r2 = 2 * self.logit_r2.sigmoid()[:, None]

        # 0 ** r2 is 0, but autograd computes its derivative by r2 as 0 * ln 0, which is
        # nan. So at distance 0 the power of 1 is computed, and then replaced by 0.
        power = distance.clamp(min=1) ** r2
        power = torch.where(distance > 0, power, 0)
        return -r1 * power


@encoding("fire")
class Fire(AdditiveBias):
    """bias(i, j) = f(psi(i - j) / psi(max(L, i))), with psi(x) = ln(c x + 1).

    f is a network with one input, 32 hidden features and an output for each head. Its
    argument is a share between 0 and 1, whatever the length, so that f sees no new
    argument in a longer text. c, L and f are learned (Li et al. 2023,
    arXiv:2310.04418).
    """

    HIDDEN = 32
    # The most numbers of the hidden layer that are computed at once (16 MiB in float32).
    HIDDEN_PER_CHUNK = 2**22

    def __init__(self, heads: int, trained_len: int) -> None:
        super().__init__()
        # L is `start` times the learned `stretch`. The paper starts L at 512 for 2048
        # trained tokens, which is a quarter of the trained length.
        self.start: float = max(1, trained_len // 4)
        self.c = nn.Parameter(torch.tensor(0.1))
        self.stretch = nn.Parameter(torch.tensor(1.0))
        self.network = nn.Sequential(
            nn.Linear(1, self.HIDDEN),
            nn.ReLU(),
            nn.Linear(self.HIDDEN, heads),
        )

    def bias(self, q_positions: Positions, k_positions: Positions) -> Bias:
        distance = q_positions[:, None] - k_positions[None, :]
        # Keys after the query are masked. Without the clamp the logarithm of their
        # negative distance could be nan.
        distance = distance.clamp(min=0)
        threshold = (self.stretch * self.start).abs()
        largest = torch.maximum(q_positions, threshold)
        # [queries, keys]
        share = self.psi(distance) / self.psi(largest)[:, None]

        hidden_per_query = self.HIDDEN * len(k_positions)
        queries_per_chunk = max(1, self.HIDDEN_PER_CHUNK // hidden_per_query)
        biases = []
        for chunk in share.split(queries_per_chunk):
            biases.append(self.network(chunk[..., None]))
        # From [queries, keys, heads] to [heads, queries, keys].
        bias = torch.cat(biases)
        return bias.permute(2, 0, 1)

    def psi(self, x: Float[Tensor, "*x"]) -> Float[Tensor, "*x"]:
        """Return ln(c x + 1), which distinguishes small distances better than large
        distances.
        """
        return torch.log1p(self.c.abs() * x)


@encoding("tupe")
class Tupe(AdditiveBias):
    """scores = (q_i k_j + (p_i U_q)(p_j U_k)) / sqrt(2 head_dim) + b[head, bucket].

    TUPE-R (Ke et al. 2020, arXiv:2006.15595). p is a learned vector of each position;
    its projections U_q and U_k are shared by all layers, and b is T5's bias. The paper
    has a separate rule for the token [CLS], which models here do not have. IndexError:
    a position from `trained_len` on.
    """

    def __init__(
        self,
        trained_len: int,
        width: int,
        heads: int,
        head_dim: int,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.table = nn.Embedding(trained_len, width)
        with torch.no_grad():
            # With rows drawn from N(0, 1) the scores of positions would be larger than
            # the scores of tokens.
            self.table.weight.mul_(0.1)

        width_of_heads = heads * head_dim
        self.to_query = nn.Linear(width, width_of_heads, bias=False)
        self.to_key = nn.Linear(width, width_of_heads, bias=False)
        self.relative = T5(heads, width)
        self.max_position = trained_len - 1

    def query(self, q: Heads, positions: Positions) -> Heads:
        # The scores are a sum of two products. Each gets half of the variance that the
        # product q_i k_j has in plain attention.
        return q * 2**-0.5

    def bias(self, q_positions: Positions, k_positions: Positions) -> Bias:
        q = self._project(self.to_query, q_positions)
        k = self._project(self.to_key, k_positions)
        head_dim = q.shape[-1]
        scale = (2 * head_dim) ** -0.5
        absolute = (q * scale) @ k.mT
        return absolute + self.relative.bias(q_positions, k_positions)

    def _project(
        self,
        projection: nn.Linear,
        positions: Positions,
    ) -> Float[Tensor, "heads positions head_dim"]:
        projected = projection(self.table(positions))
        heads = projected.unflatten(-1, (self.heads, -1))
        return heads.transpose(0, 1)


# The classes below are plain functions of the distance r with learned weights for each
# head. Tutorials list them as possible relative encodings.


@encoding("polynomial")
class Polynomial(DistanceBias):
    """bias = w0 + w1 r + w2 r^2 + w3 r^3 for r = distance / trained_len.

    Beyond r = 1, which was not trained, the bias grows without bound.
    """

    DEGREE = 3

    def __init__(self, heads: int, trained_len: int) -> None:
        super().__init__()
        self.trained_len = trained_len
        terms = self.DEGREE + 1
        self.weights = nn.Parameter(torch.randn(heads, terms))

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        r = distance.to(self.weights.dtype) / self.trained_len
        terms = self.DEGREE + 1
        # [heads, terms] @ [terms, distances]
        powers = [r**exponent for exponent in range(terms)]
        return self.weights @ torch.stack(powers)


@encoding("sines")
class Sines(DistanceBias):
    """bias = sum_i (a_i sin(w_i r) + b_i cos(w_i r)); w_i are the frequencies of
    `sinusoid`.
    """

    def __init__(self, heads: int, head_dim: int) -> None:
        super().__init__()
        amplitudes = torch.randn(heads, head_dim) * head_dim**-0.5
        self.amplitudes = nn.Parameter(amplitudes)

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        head_dim = self.amplitudes.shape[-1]
        waves = sinusoid(distance, head_dim)
        waves = waves.to(self.amplitudes.dtype)
        return self.amplitudes @ waves.T


@encoding("exponential")
class Exponential(DistanceBias):
    """bias = h exp(-r / s); s starts between 1 and `trained_len` tokens."""

    def __init__(self, heads: int, trained_len: int) -> None:
        super().__init__()
        largest_log = math.log(trained_len)
        self.height = nn.Parameter(torch.randn(heads))
        self.log_scale = nn.Parameter(torch.rand(heads) * largest_log)

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        height = self.height[:, None]
        scale = self.log_scale.exp()[:, None]
        return height * torch.exp(-distance / scale)


@encoding("gaussian")
class Gaussian(DistanceBias):
    """bias = h exp(-((r - c) / s)^2 / 2); c and s start between 1 and `trained_len`."""

    def __init__(self, heads: int, trained_len: int) -> None:
        super().__init__()
        largest_log = math.log(trained_len)
        self.height = nn.Parameter(torch.randn(heads))
        self.log_centre = nn.Parameter(torch.rand(heads) * largest_log)
        self.log_scale = nn.Parameter(torch.rand(heads) * largest_log)

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        height = self.height[:, None]
        centre = self.log_centre.exp()[:, None]
        scale = self.log_scale.exp()[:, None]

        deviations = (distance - centre) / scale
        return height * torch.exp(-(deviations**2) / 2)


@encoding("learned_distance")
class LearnedDistance(DistanceBias):
    """bias = table[head, r] for each trained distance. IndexError: a longer one."""

    def __init__(self, heads: int, trained_len: int) -> None:
        super().__init__()
        table = torch.randn(heads, trained_len) * trained_len**-0.5
        self.table = nn.Parameter(table)
        self.max_position = trained_len - 1

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        return self.table[:, distance]


@encoding("convolution")
class Convolution(DistanceBias):
    """bias = kernel[head, r] for the nearest TAPS tokens, 0 for all other tokens."""

    # The number of distances, from 0 on, that have a weight.
    TAPS = 16

    def __init__(self, heads: int) -> None:
        super().__init__()
        kernel = torch.randn(heads, self.TAPS) * self.TAPS**-0.5
        self.kernel = nn.Parameter(kernel)

    def by_distance(self, distance: Distances) -> BiasOfDistances:
        last = self.TAPS - 1
        near = self.kernel[:, distance.clamp(max=last)]
        return torch.where(distance <= last, near, 0)
