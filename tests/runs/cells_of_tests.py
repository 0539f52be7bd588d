"""Cells small enough to be computed hundreds of times, and cells that misbehave."""

import errno
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ropelab.runs.cell import Cell, Context, Resources
from ropelab.runs.errors import MachineError


@dataclass(frozen=True)
class Sum:
    """Adds up random numbers, without torch, which takes a worker seconds to import."""

    seed: int
    prerequisites: tuple[Cell, ...] = ()
    kind: str = "sum"
    version: int = 1

    @property
    def key(self) -> dict[str, Any]:
        return {"seed": self.seed}

    @property
    def title(self) -> str:
        return f"sum {self.seed}"

    @property
    def resources(self) -> Resources:
        return Resources()

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        numbers = np.random.default_rng(self.seed).normal(size=400)
        with context.progress(self.title, 1) as advance:
            value = float(numbers.sum())
            advance(1, note="added")
        return {"sums": pd.DataFrame({"seed": [self.seed], "sum": [value]})}


@dataclass(frozen=True)
class Product(Sum):
    """Multiplies with torch, whose threads would change the last digits."""

    kind: str = "product"

    @property
    def resources(self) -> Resources:
        return Resources(dtype="float32")

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        import torch

        generator = torch.Generator().manual_seed(self.seed)
        one = torch.randn(400, 400, generator=generator)
        about = {
            "seed": [self.seed],
            "sum": [float((one @ one).sum())],
            "threads": [torch.get_num_threads()],
        }
        return {"sums": pd.DataFrame(about)}


@dataclass(frozen=True)
class Fails(Sum):
    """Fails in a way that a user is told about."""

    kind: str = "fails"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        raise MachineError(f"training diverged under seed {self.seed}")


@dataclass(frozen=True)
class Killed(Sum):
    """Its worker is killed the first `times` times that it is begun."""

    folder: str = ""
    times: int = 1
    kind: str = "killed"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        count = len(list(Path(self.folder).glob("begun-*")))
        (Path(self.folder) / f"begun-{count}").touch()
        if count < self.times:
            time.sleep(0.3)  # so that the message of its start has gone out
            os.kill(os.getpid(), signal.SIGKILL)
        return Sum.tables(self, context)


@dataclass(frozen=True)
class Slow(Sum):
    """Takes longer than `Killed` needs to kill its worker, and leaves a file when it
    begins.
    """

    folder: str = ""
    kind: str = "slow"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        (Path(self.folder) / f"slow-{time.monotonic_ns()}").touch()
        time.sleep(1.5)
        return Sum.tables(self, context)


@dataclass(frozen=True)
class Sleeps(Sum):
    """Tells its process id in a file and does not end by itself."""

    folder: str = ""
    kind: str = "sleeps"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        (Path(self.folder) / f"pid-{os.getpid()}").touch()
        time.sleep(600)
        return Sum.tables(self, context)


@dataclass(frozen=True)
class Steps(Sum):
    """Is inside of a step that may not be cut in two; leaves a file when it has ended
    whole.
    """

    folder: str = ""
    kind: str = "steps"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        from ropelab.runs.interrupts import hold_first_signal

        with hold_first_signal() as interrupted:
            (Path(self.folder) / f"pid-{os.getpid()}").touch()
            end = time.monotonic() + 600
            while not interrupted() and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(0.3)
            (Path(self.folder) / f"whole-{self.seed}").touch()
        raise KeyboardInterrupt


@dataclass(frozen=True)
class Chatters(Sum):
    """Sends far more messages than fit into a pipe."""

    kind: str = "chatters"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        for number in range(2000):
            with context.progress(f"line {number} " + "x" * 100, 1) as advance:
                advance(1)
        return Sum.tables(self, context)


@dataclass(frozen=True)
class Disk(Sum):
    """Finds no space left where it computes."""

    kind: str = "disk"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        raise OSError(errno.ENOSPC, "No space left on device", "checkpoint")


@dataclass(frozen=True)
class Waits(Sum):
    """Says that it has begun, with its process id, and goes on when there is a file
    `go`.
    """

    folder: str = ""
    kind: str = "waits"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        (Path(self.folder) / f"begun-{self.seed}-{os.getpid()}").touch()
        deadline = time.monotonic() + 600
        while not (Path(self.folder) / "go").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return Sum.tables(self, context)


@dataclass(frozen=True)
class Noted(Sum):
    """Leaves a file each time that it is computed."""

    folder: str = ""
    kind: str = "noted"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        (Path(self.folder) / f"computed-{os.getpid()}-{time.monotonic_ns()}").touch()
        time.sleep(0.5)  # so that others come for it meanwhile
        return Sum.tables(self, context)


@dataclass(frozen=True)
class Within(Sum):
    """Needs another cell while it is computed, as a measurement needs its model."""

    folder: str = ""
    kind: str = "within"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        return context.compute(Noted(99, folder=self.folder))


@dataclass(frozen=True)
class Sequel(Sum):
    """Adds one to the sums of the cells that it starts from."""

    kind: str = "sequel"

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        sums = [
            context.compute(start)["sums"]["sum"][0] for start in self.prerequisites
        ]
        about = {"seed": [self.seed], "sum": [sum(sums) + 1], "process": [os.getpid()]}
        return {"sums": pd.DataFrame(about)}


@dataclass(frozen=True)
class Alone(Sum):
    """Notes the process that computes it."""

    kind: str = "alone"

    @property
    def resources(self) -> Resources:
        return Resources(exclusive=True)

    def tables(self, context: Context) -> Mapping[str, pd.DataFrame]:
        return {"sums": pd.DataFrame({"sum": [1.0], "process": [os.getpid()]})}
