"""The process is asked to end, by Ctrl-C, a termination or a closed terminal, at file
operations of every situation.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.stress.bench import told
from tests.stress.kills import child
from tests.stress.operations import Operations, counted
from tests.stress.promise import Trial, require_whole
from tests.stress.scenes import Scene, scenes

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NO_ORDERLY_END = 99
"""The status of a child whose command let an exception through."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """One trial per situation and operation; the three signals take turns."""
    for scene in scenes(folder):
        for turn, number in enumerate(scene.numbers(few)):
            yield interrupted_at(scene, number, SIGNALS[turn % len(SIGNALS)], folder)


def interrupted_at(
    scene: Scene, number: int, asked: signal.Signals, folder: Path
) -> Trial:
    """The signal arrives just before the operation of that number."""
    written = folder / "stderr"

    def interrupt(count: int, name: str, path: str) -> None:
        if count == number:
            os.kill(os.getpid(), asked)

    def work() -> None:
        # A program that a script starts in the background may ignore them.
        for each in SIGNALS:
            signal.signal(each, signal.SIG_DFL)
        try:
            with counted(Operations(scene.results, interrupt)):
                answer = told(*scene.arguments)
        except BaseException as failure:
            written.write_text(f"{type(failure).__name__}: {failure}")
            os._exit(NO_ORDERLY_END)
        written.write_text(answer.err)
        os._exit(answer.status)

    scene.begin()
    written.write_text("")
    status = os.waitstatus_to_exitcode(os.waitpid(child(work), 0)[1])
    problems = list(find_disorder(status, asked, written.read_text()))
    problems += require_whole(scene.results, scene.before, scene.right)
    problems += scene.repeated(None)
    what = f"{scene.name}: {asked.name} at operation {number}"
    return Trial(what, "; ".join(problems), met=status != 0)


def find_disorder(status: int, asked: signal.Signals, err: str) -> Iterator[str]:
    """Problems of how the command ended: with the status of its signal and one line, or
    with 0, since it had all but finished.
    """
    if status not in (0, 128 + asked):
        yield f"status {status}: {err!r}"
    lines = [line for line in err.splitlines() if line.startswith("ropelab: ")]
    if status and (len(lines) != 1 or "Traceback" in err or "a defect" in err):
        yield f"stderr {err!r}"
