"""Workers on this machine or on Ray, and the process that asked them, are killed or
interrupted.
"""

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import psutil

from tests.processes import descendants, is_alive
from tests.stress.bench import PAUSE, Told, told
from tests.stress.kills import child
from tests.stress.promise import State, Trial, ended, everything, require_whole, state
from tests.stress.scenes import begin, config_of, config_of_training, of_file

SECONDS = 150.0
"""How long something is waited for; Ray itself waits for a minute."""

MOMENTS = 6
"""How many moments are tried at most where each way is to be met once."""

Way = Callable[[int], object]
"""Disturbs a process and its family; LookupError where there is nobody to disturb."""


def kill(*names: str) -> Way:
    """Kill the first descendant with such a name."""
    return lambda process: descendants(process, *names)[0].kill()


LOCAL: dict[str, Way] = {
    "a worker is killed": kill("popen_loky"),
    "the parent is killed": lambda process: os.kill(process, signal.SIGKILL),
    "all are killed": lambda process: os.killpg(process, signal.SIGKILL),
    "Ctrl-C": lambda process: os.killpg(process, signal.SIGINT),
}
ON_RAY: dict[str, Way] = {
    "a worker is killed": kill("ray::square"),
    "the control store is killed": kill("gcs_server"),
    "the parent is killed": lambda process: os.kill(process, signal.SIGKILL),
    "Ctrl-C": lambda process: os.kill(process, signal.SIGINT),
}


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Trials at random moments, with each engine and way."""
    results, chance = folder / "results", random.Random(0)
    small, training = config_of(folder), config_of_training(folder)
    for name, config, more, ways, turns, seconds in (
        ("workers", small, (), LOCAL, 3, 0.6),
        ("a training in workers", training, (), LOCAL, 1, 2.0),
        ("Ray", small, ("--engine", "ray"), ON_RAY, 1, 0.3),
    ):
        if (few and name != "workers") or (name == "Ray" and not find_spec("ray")):
            continue
        begin(results, None)
        again = of_file(config, results)
        assert told(*again).status == 0
        right = state(results)
        for what, way in list(ways.items())[: 2 if few else None]:
            # Of a few each is to be met once; at some moments there is nobody left to
            # disturb.
            for _ in range(MOMENTS if few else turns):
                begin(results, None)
                arguments = of_file(config, results, 2, *more)
                disturbed = Disturbed(folder, right, arguments, again)
                trial = disturbed.made(
                    f"{name}: {what}", way, seconds * chance.random()
                )
                yield trial
                if few and trial.met:
                    break


class Disturbed:
    """A command in a process of its own, and what must be there afterwards."""

    def __init__(
        self,
        folder: Path,
        right: State,
        arguments: tuple[str, ...],
        again: tuple[str, ...],
    ) -> None:
        self.results, self.right = folder / "results", right
        self.arguments, self.again = arguments, again
        self.steps, self.answer = folder / "steps", folder / "answer.json"
        begin(self.steps, None)
        self.steps.mkdir()
        self.answer.unlink(missing_ok=True)

    def made(self, what: str, way: Way, seconds: float) -> Trial:
        """Disturb it so long after its first step, and give the command again."""
        process = child(self._work)
        met, workers = True, set[psutil.Process]()
        try:
            wait_until(lambda: self._has_begun() or not is_alive(process))
            time.sleep(seconds)
            # Ray's agents, which compute nothing, take a minute to notice.
            workers = {*descendants(process)} - {*descendants(process, "gent")}
            way(process)
        except (LookupError, OSError, psutil.Error, TimeoutError):
            met = False
        problems = list(self._after(process, workers))
        problems += everything(told(*self.again), self.results, self.right)
        return Trial(f"{what} after {seconds:.2f} s", "; ".join(problems), met)

    def _work(self) -> None:
        os.setsid()
        os.environ[PAUSE] = str(self.steps)
        # Whoever starts this in the background has Ctrl-C ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        answer = told(*self.arguments)
        self.answer.write_text(json.dumps(asdict(answer)))

    def _has_begun(self) -> bool:
        models = self.results.glob(".cells/model/*/cell.json")
        return any(self.steps.iterdir()) or any(models)

    def _after(self, process: int, workers: set[psutil.Process]) -> Iterator[str]:
        try:
            wait_until(lambda: os.waitpid(process, os.WNOHANG)[0])
        except TimeoutError:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            yield "did not end"
        try:
            wait_until(lambda: not any(map(is_alive, workers)), 20)
        except TimeoutError:
            yield f"still there: {[each for each in workers if is_alive(each)]}"
        if not self.answer.exists():
            yield from require_whole(self.results, {}, self.right)
            return
        answer = Told(**json.loads(self.answer.read_text()))
        if answer.status != 130:
            yield from ended(answer, self.results, {}, self.right)
        elif not answer.err.splitlines()[-1].startswith("ropelab: interrupted"):
            yield f"stderr {answer.err!r}"
        yield from require_whole(self.results, {}, self.right)


def wait_until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait for something, at most so long; TimeoutError."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.02)
