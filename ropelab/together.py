"""Several runs at once: while one waits for its cells, another goes on.

Each run has a thread, and one of them at a time has the turn: it resolves, computes tables and
draws as if it were alone. It gives the turn away while its cells are with the workers. So models of
all runs are trained side by side, and nothing else has to be safe for threads.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from threading import Lock

from ropelab.config import Config
from ropelab.context import Cell, Context, Engine
from ropelab.errors import RopelabError
from ropelab.experiments import Experiment
from ropelab.lab import Lab, Run

Plan = tuple[Experiment, Config]


def carry_out_all(lab: Lab, plans: Sequence[Plan]) -> Iterator[tuple[int, Run]]:
    """Carry out runs, yielding the number of a plan and its run as they are finished.

    Runs that read the results of others, and repeated ones, come when those are there.

    Raises:
        RopelabError: a run failed; the others are finished.
    """
    turn = Lock()
    shared = replace(lab, engine=GivingWay(lab.engine, turn))
    failures: list[RopelabError] = []

    def one(plan: Plan) -> Run:
        with turn:
            return shared.carry_out(*plan)

    first, later = _order(plans)
    with ThreadPoolExecutor(max_workers=max(1, len(first))) as threads:
        futures = {threads.submit(one, plans[number]): number for number in first}
        try:
            yield from _finished(futures, failures)
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            lab.engine.stop()
            raise
    for number in later:
        try:
            yield number, lab.carry_out(*plans[number])
        except RopelabError as error:
            failures.append(error)
    if failures:
        raise failures[0]


@dataclass(frozen=True)
class GivingWay:
    """An engine during whose work another run has the turn."""

    engine: Engine
    turn: Lock

    def compute(self, cells: Sequence[Cell], context: Context) -> None:
        """See `Engine.compute`."""
        self.turn.release()
        try:
            self.engine.compute(cells, context)
        finally:
            self.turn.acquire()

    def stop(self) -> None:
        """End what is being computed."""
        self.engine.stop()


def _order(plans: Sequence[Plan]) -> tuple[list[int], list[int]]:
    """Which runs can go together, and which come after them."""
    first: list[int] = []
    for number, plan in enumerate(plans):
        config = plan[1]
        alone = config.reads() or config.requires()
        if not alone and plan not in [plans[earlier] for earlier in first]:
            first.append(number)
    return first, [number for number in range(len(plans)) if number not in first]


def _finished(
    futures: "dict[Future[Run], int]", failures: list[RopelabError]
) -> Iterator[tuple[int, Run]]:
    for future in as_completed(futures):
        try:
            yield futures[future], future.result()
        except RopelabError as error:
            failures.append(error)
