"""How often the 95 % intervals of the one rule hold the truth, over seeds, documents
and effects.

Beside them stand what one might use instead: Student's interval over the seeds alone,
and over the documents alone. The tests check a few of these places.

    python benchmarks/bench_intervals.py [--draws 4000]
"""

import argparse

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from ropelab.runs.stats import Interval, average_crossed, average_crossed_shares
from ropelab.runs.thresholds import TWO_KINDS

EFFECTS = ((0.0, 0.0), (0.1, 0.3), (0.3, 0.3), (1.0, 0.3), (3.0, 0.3), (0.3, 3.0))
"""Standard deviations between seeds and between documents; that of the rest is 1."""
SHARES = (0.5, 0.9, 0.99, 0.998)
TRIALS = 200


def main() -> None:
    """Print a row per number of seeds and documents, and effect."""
    parser = argparse.ArgumentParser(
        description="Coverage of the intervals, by simulation."
    )
    parser.add_argument("--draws", type=int, default=4000)
    draws = parser.parse_args().draws
    random = np.random.default_rng(0)
    print(
        "seeds documents   sd seeds  sd documents   both   seeds alone   documents"
        " alone"
    )
    for seeds, units in ((3, 6), (3, 50), (5, 6), (5, 50)):
        for effect in EFFECTS:
            x = drawn(random, draws, seeds, units, *effect)
            both, one, other = (covered(x, axes) for axes in ((1, 2), (1,), (2,)))
            print(
                f"{seeds:5}{units:10}{effect[0]:11}{effect[1]:14}{both:7.3f}{one:14.3f}{other:18.3f}"
            )
    print(
        "\nseed effects that are not normal, five seeds, 50 documents: coverage, and"
        " share tested"
    )
    for name in ("lognormal", "one in five does not learn"):
        shape = (draws, 5, 1)
        effect = (
            random.lognormal(-2, 1, shape)
            if name == "lognormal"
            else 0.9 * (random.random(shape) > 0.2)
        )
        truth = np.exp(-1.5) if name == "lognormal" else 0.72
        x = effect + drawn(random, draws, 5, 50, 0.0, 0.3) / 10
        steps = np.diff(np.sort(x.mean(axis=2), axis=1), axis=1)
        tested = (steps <= TWO_KINDS).all(axis=1)
        coverage = holding(
            [average_crossed(each).compute_interval() for each in x], float(truth)
        )
        print(f"{name:28}{coverage:7.3f}{tested.mean():7.2f}")
    print(
        "\nproportions, six sequences of 200 trials, standard deviations of 0.5 in the"
        " logits"
    )
    for seeds in (3, 5):
        found = [
            f"{share}: {proportions(random, draws // 4, seeds, share):.3f}"
            for share in SHARES
        ]
        print(f"{seeds} seeds  {'  '.join(found)}")


def drawn(
    random: np.random.Generator,
    draws: int,
    seeds: int,
    units: int,
    by_seed: float,
    by_unit: float,
) -> NDArray[np.float64]:
    """[draws, seeds, units] values with mean 0."""
    return (
        random.normal(0, by_seed, (draws, seeds, 1))
        + random.normal(0, by_unit, (draws, 1, units))
        + random.normal(0, 1, (draws, seeds, units))
    )


def covered(x: NDArray[np.float64], kept: tuple[int, ...]) -> float:
    """The share of intervals that hold 0, over seeds (1), documents (2) or both."""
    averaged = tuple({1, 2} - set(kept))
    values = x if not averaged else x.mean(axis=averaged)[:, None, :]
    return holding([average_crossed(each).compute_interval() for each in values], 0.0)


def proportions(
    random: np.random.Generator, draws: int, seeds: int, share: float
) -> float:
    """The share of intervals that hold a proportion whose seeds and sequences
    differ.
    """
    rates = expit(logit(share) + drawn(random, draws, seeds, 6, 0.5, 0.5))
    truth = expit(logit(share) + random.normal(0, np.sqrt(1.5), 10**6)).mean()
    found = [
        average_crossed_shares(random.binomial(TRIALS, p) / TRIALS, TRIALS)
        for p in rates
    ]
    return holding(found, float(truth))


def holding(intervals: list[Interval], truth: float) -> float:
    """How many hold the truth."""
    return float(np.mean([each.low <= truth <= each.high for each in intervals]))


if __name__ == "__main__":
    main()
