"""`python -m tests.stress`: try everything, say what did not hold, and keep the counts.

`--few` tries a small part and keeps nothing; names choose among the ideas. The counts of an idea
are kept as soon as it has been tried, with the commit, and written into docs/promises.md.
"""

import csv
import re
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from ropelab.runs.store import surroundings
from tests.stress import bench

IDEAS = ("faults", "kills", "limits", "corruption", "together", "corpora", "mutations")
TALLY = Path(__file__).parent / "tally.csv"
PAGE = Path(__file__).parents[2] / "docs" / "promises.md"
HEAD = ("idea", "tried", "held", "commit")
Counts = dict[str, tuple[str, ...]]
"""Of each idea: how many were tried, how many held, at which commit."""
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files lie in memory, so that flushing them a million times costs no time."""
SHOWN = 20
"""Problems of an idea that are printed."""


def main(arguments: list[str]) -> int:
    """Try the ideas; 1 if anything did not hold."""
    few = "--few" in arguments
    names = [name for name in arguments if name in IDEAS] or list(IDEAS)
    bench.install()
    counts = {}
    for name in names:
        counts[name] = tally(name, few)
        if not few:
            keep(name, *counts[name])
    return int(any(tried != held or not tried for tried, held in counts.values()))


def keep(name: str, tried: int, held: int) -> None:
    """Write the counts of an idea beside those of the others' last trials."""
    where = surroundings()
    commit = f"{where['commit'] or 'none'}{'+' if where['dirty'] else ''}"
    counts = {**read_tally(), name: (str(tried), str(held), commit)}
    rows = [(idea, *counts[idea]) for idea in IDEAS if idea in counts]
    with TALLY.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])
    PAGE.write_text(told(PAGE.read_text(encoding="utf-8"), counts), encoding="utf-8")


def read_tally() -> Counts:
    """The counts that were kept."""
    with TALLY.open() as file:
        return {idea: tuple(of_idea) for idea, *of_idea in list(csv.reader(file))[1:]}


def told(page: str, counts: Counts) -> str:
    """The page with these counts in its table."""
    for idea, (tried, held, *_) in counts.items():
        row = re.compile(rf"^(\| `{idea}` \|.*)\| [\d,]+ \| [\d,]+ \|$", re.MULTILINE)
        page = row.sub(rf"\1| {int(tried):,} | {int(held):,} |", page)
    return page


def tally(name: str, few: bool) -> tuple[int, int]:
    """How many trials of an idea were made, and of how many the promise held."""
    start, tried, problems = time.monotonic(), 0, []
    with tempfile.TemporaryDirectory(prefix="ropelab-stress-", dir=FAST) as folder:
        for trial in import_module(f"tests.stress.{name}").trials(Path(folder), few):
            tried += 1
            if trial.problem:
                problems.append(trial)
                if len(problems) <= SHOWN:
                    print(f"  {trial.what}: {trial.problem}", flush=True)
    held = tried - len(problems)
    print(f"{name}: tried {tried}, held {held}, {time.monotonic() - start:.0f} s", flush=True)
    return tried, held


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
