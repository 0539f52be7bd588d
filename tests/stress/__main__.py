"""`python -m tests.stress`: try everything, say what did not hold, and keep the counts.

`--few` tries a small part and keeps nothing; names choose among the ideas. The counts of those that
were tried are kept beside those of the others.
"""

import csv
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

from tests.stress import bench

IDEAS = ("faults", "kills", "limits", "corruption", "together", "corpora", "mutations")
TALLY = Path(__file__).parent / "tally.csv"
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files lie in memory, so that flushing them a million times costs no time."""
SHOWN = 20
"""Problems of an idea that are printed."""


def main(arguments: list[str]) -> int:
    """Try the ideas; 1 if anything did not hold."""
    few = "--few" in arguments
    names = [name for name in arguments if name in IDEAS] or list(IDEAS)
    bench.install()
    counts = {name: tally(name, few) for name in names}
    if not few:
        keep(counts)
    return int(any(tried != held or not tried for tried, held in counts.values()))


def keep(counts: dict[str, tuple[int, int]]) -> None:
    """Write the counts of the ideas that were tried, beside those of the others' last trials."""
    known: dict[str, tuple[object, object]] = {}
    if TALLY.exists():
        with TALLY.open() as file:
            known = {row["idea"]: (row["tried"], row["held"]) for row in csv.DictReader(file)}
    rows = [(name, *(known | counts)[name]) for name in IDEAS if name in known | counts]
    with TALLY.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("idea", "tried", "held"), *rows])


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
