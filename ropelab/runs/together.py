"""Several runs at once: while one waits for its cells, another goes on.

Each run has a thread, and one of them at a time has the turn: it resolves, computes tables and
draws as if it were alone. It gives the turn away while its cells are with the workers. So models of
all runs are trained side by side, and nothing else has to be safe for threads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from queue import Queue
from threading import Condition, Lock, Thread

from ropelab.errors import RopelabError, naming
from ropelab.experiments import Experiment
from ropelab.lab import Lab, Run
from ropelab.runs.config import Config, Label
from ropelab.runs.context import Cell, Context, Engine

Plan = tuple[Experiment, Config] | tuple[Experiment, Config, Label]


def carry_out_all(lab: Lab, plans: Sequence[Plan]) -> Iterator[tuple[int, Run]]:
    """Carry out runs, yielding the number of a plan and its run as they are finished.

    Runs that read the results of others, and repeated ones, come when those are there.

    Raises:
        RopelabError: a run failed; the others are finished.
    """
    first, later = _order(plans)
    failures: list[RopelabError] = []
    yield from _side_by_side(lab, {number: plans[number] for number in first}, failures)
    for number in later:
        try:
            with naming(_origin(plans[number])):
                run = lab.carry_out(*plans[number])
            yield number, run
        except RopelabError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _side_by_side(
    lab: Lab, plans: Mapping[int, Plan], failures: list[RopelabError]
) -> Iterator[tuple[int, Run]]:
    """Runs as they are finished; the errors of those that fail are added to `failures`.

    The threads are daemons: whoever interrupts does not wait until each has the turn once more.
    """
    turn, start = Lock(), Start([number for number in plans if _trains(plans[number])])
    finished: Queue[tuple[int, Run | BaseException]] = Queue()

    def one(number: int) -> None:
        try:
            if not _trains(plans[number]):
                start.wait()
            with turn, naming(_origin(plans[number])):
                engine = GivingWay(lab.engine, turn, start, number)
                finished.put((number, replace(lab, engine=engine).carry_out(*plans[number])))
        except BaseException as error:
            finished.put((number, error))
        finally:
            start.ready(number)

    for number in plans:
        Thread(target=one, args=(number,), daemon=True).start()
    try:
        for _ in plans:
            number, outcome = finished.get()
            if isinstance(outcome, RopelabError):
                failures.append(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                yield number, outcome
    except BaseException:
        lab.engine.stop()
        raise


class Start:
    """The first cells of all runs that train are begun together, so that the longest is first.

    Args:
        expected: numbers of the runs that are waited for.
    """

    def __init__(self, expected: Sequence[int]) -> None:
        self._expected = set(expected)
        self._changed = Condition()

    def ready(self, number: int) -> None:
        """A run knows its first cells, or has ended without."""
        with self._changed:
            self._expected.discard(number)
            self._changed.notify_all()

    def wait(self) -> None:
        """Wait until all of them are ready."""
        with self._changed:
            self._changed.wait_for(lambda: not self._expected)


@dataclass(frozen=True)
class GivingWay:
    """An engine during whose work another run has the turn."""

    engine: Engine
    turn: Lock
    start: Start
    number: int

    def compute(self, cells: Sequence[Cell], context: Context) -> None:
        """See `Engine.compute`."""
        self.turn.release()
        try:
            if cells:
                self.start.ready(self.number)
                self.start.wait()
            self.engine.compute(cells, context)
        finally:
            self.turn.acquire()

    def stop(self) -> None:
        """End what is being computed."""
        self.engine.stop()


def _origin(plan: Plan) -> str:
    """What asked for the run, as far as is known."""
    return plan[2].origin if len(plan) > 2 else ""


def _trains(plan: Plan) -> bool:
    return hasattr(plan[1], "dtype")


def _order(plans: Sequence[Plan]) -> tuple[list[int], list[int]]:
    """Which runs can go together, and which come after them.

    Runs that train come first: their cells are then with the workers while others, which compute
    here, have the turn.
    """
    first: list[int] = []
    for number, plan in enumerate(plans):
        config = plan[1]
        alone = config.reads() or config.requires()
        if not alone and plan not in [plans[earlier] for earlier in first]:
            first.append(number)
    later = [number for number in range(len(plans)) if number not in first]
    return sorted(first, key=lambda number: not _trains(plans[number])), later
