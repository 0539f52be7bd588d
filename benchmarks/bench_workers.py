"""What is gained by computing cells side by side, and what does it cost?

In one run on one machine, so that all sides see the same processor:

efficiency   trainings on 1, 2, 4 ... workers: the time of one worker for two of them
over that of
             n workers for 2 n, in short windows and in long ones
ray          the same trainings on Ray, on this machine alone, against as many local
workers finished     a run whose cells are all there, with workers and on Ray against
without

Before the clock starts, all processes have loaded torch and the text. Numbers are
ratios; the machine should be idle. One to four minutes, the more the more cores.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import torch

from ropelab.experiments.encodings import EncodingsConfig, quality
from ropelab.models.lm.corpus import CorpusRef
from ropelab.models.lm.trained import Training
from ropelab.runs.cell import Cell, Context, Resources
from ropelab.runs.config import build
from ropelab.runs.engine import Engine, Here
from ropelab.runs.engine.local import Workers
from ropelab.runs.engine.on_ray import OnRay
from ropelab.runs.machine import count_cores, explain_dtype

WINDOWS = (64, 1024)
SECONDS = 5.0
"""Of one training on one worker, roughly."""
TRIED = 20
"""Steps by which the speed of this machine is estimated."""
AIM = 0.85
"""Of efficiency."""
RAY_AIM = 1.15
"""Of the time on Ray, as a share of that of local workers."""
ROUNDS = 3
CONFIG = Path(__file__).parents[1] / "configs" / "smoke" / "extrapolate.toml"
numbers = count()
"""Every cell is another one, so that none is found finished."""


@dataclass(frozen=True)
class Meeting:
    """Ends when as many are computed at once as there are workers, and each has read
    the text.
    """

    corpus: CorpusRef
    folder: str
    workers: int
    number: int
    kind: ClassVar[str] = "meeting"
    version: ClassVar[int] = 1
    starts: ClassVar[tuple[Cell, ...]] = ()

    @property
    def key(self) -> dict[str, Any]:
        return {"number": self.number}

    @property
    def title(self) -> str:
        return "waiting for the other workers"

    @property
    def resources(self) -> Resources:
        return Resources(inputs=(self.corpus,))

    def tables(self, context: Context) -> dict[str, pd.DataFrame]:
        self.corpus.corpus()
        (Path(self.folder) / str(self.number)).touch()
        while len(list(Path(self.folder).iterdir())) < self.workers:
            time.sleep(0.01)
        return {"met": pd.DataFrame({"workers": [self.workers]})}


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--most", type=int, default=count_cores(), help="workers at most"
    )
    most = parser.parse_args().most
    print(
        explain_dtype(plan_config(64, 1).dtype, "cpu"),
        f"and {count_cores()} cores; torch:",
        capability(),
    )
    for window in WINDOWS:
        steps = steps_of(window)
        alone = seconds(Workers(1), 1, window, steps)
        for workers in doubled(most):
            local = seconds(Workers(workers), workers, window, steps)
            met = "aim met" if alone / local >= AIM else f"aim {AIM} MISSED"
            print(
                f"window {window}: {workers} workers, efficiency"
                f" {alone / local:.2f} ({met})",
                flush=True,
            )
        if find_spec("ray"):
            ratio = seconds(OnRay(None, most), most, window, steps) / local
            met = "aim met" if ratio <= RAY_AIM else f"aim {RAY_AIM} MISSED"
            print(
                f"window {window}: Ray over {most} local workers {ratio:.2f} ({met})",
                flush=True,
            )
    finished(most)


def capability() -> str:
    """What torch computes with on this processor."""
    return torch.backends.cpu.get_cpu_capability()


def doubled(most: int) -> list[int]:
    """2, 4, 8 ... and the most."""
    powers = [1 << power for power in range(1, most.bit_length())]
    return sorted({*(each for each in powers if each <= most), most} - {1}) or [1]


def plan_config(window: int, steps: int) -> EncodingsConfig:
    """Models of the experiment `encodings`, trained in windows of one length."""
    values = {
        "train_len": window,
        "test_len": window,
        "first_window": window,
        "steps": steps,
        "encodings": "rope",
        "documents": 2,
        "device": "cpu",
    }
    return build(EncodingsConfig, values)


def make_trainings(config: EncodingsConfig, number: int) -> list[Training]:
    """So many, each with a seed that was not used before."""
    return [quality.training(config, "rope", next(numbers)) for _ in range(number)]


def steps_of(window: int) -> int:
    """How many steps take SECONDS on one core."""
    compute(Here(), make_trainings(plan_config(window, TRIED), 1))
    start = time.perf_counter()
    compute(Here(), make_trainings(plan_config(window, TRIED), 1))
    return max(TRIED, round(TRIED * SECONDS / (time.perf_counter() - start)))


def seconds(engine: Engine, workers: int, window: int, steps: int) -> float:
    """Seconds for two trainings per worker."""
    config = plan_config(window, steps)
    corpus = config.text
    try:
        with tempfile.TemporaryDirectory() as folder:
            compute(
                engine,
                [
                    Meeting(corpus, folder, workers, next(numbers))
                    for _ in range(workers)
                ],
            )
        start = time.perf_counter()
        compute(engine, make_trainings(config, 2 * workers))
        return time.perf_counter() - start
    finally:
        engine.stop()


def compute(engine: Engine, cells: Sequence[Cell]) -> None:
    """Compute cells; a failure is raised."""
    for _, error in engine.compute(cells, Context()):
        if error:
            raise error


def finished(most: int) -> None:
    """Time the command for a run that is finished already."""
    ways = {"workers": ["--workers", str(most)]}
    if find_spec("ray"):
        ways["Ray"] = ["--engine", "ray"]
    with tempfile.TemporaryDirectory() as folder:
        plain = command(folder, ["--workers", "1"])
        timed(plain)
        for name, flags in ways.items():
            ratios = [
                timed(command(folder, flags)) / timed(plain) for _ in range(ROUNDS)
            ]
            print(
                f"a finished run: with {name} over without"
                f" {statistics.median(ratios):.2f}"
            )


def command(folder: str, flags: Sequence[str]) -> list[str]:
    """The command that makes the run of CONFIG, or finds it finished."""
    run = [sys.executable, "-m", "ropelab", "run", str(CONFIG), "--quiet"]
    return [*run, "--results", folder, *flags]


def timed(command: Sequence[str]) -> float:
    """Seconds of a command."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
