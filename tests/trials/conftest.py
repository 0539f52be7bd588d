"""A small corpus, so that no test here reads the standard library."""

import numpy as np
import pytest


def written(folder, seed: int) -> str:
    """Forty short documents of random words."""
    random = np.random.default_rng(seed)
    for number in range(40):
        words = random.choice(["alpha", "beta", "gamma", "delta"], size=150)
        (folder / f"{number}.txt").write_text(f"{number} " + " ".join(words))
    return str(folder)


@pytest.fixture(scope="session")
def corpora(tmp_path_factory) -> tuple[str, str]:
    """Two folders with different text."""
    return tuple(written(tmp_path_factory.mktemp(f"corpus{seed}"), seed) for seed in (0, 1))
