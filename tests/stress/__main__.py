"""`python -m tests.stress`: try everything, say what did not hold, and keep the counts.

`--few` tries a small part and keeps nothing; names choose among the ideas. The counts
of an idea are kept as soon as it has been tried, with the commit, and written into
docs/promises.md.
"""

import csv
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from ropelab.runs.surroundings import describe_surroundings
from tests.stress import bench

IDEAS = (
    "faults",
    "kills",
    "limits",
    "corruption",
    "together",
    "corpora",
    "mutations",
    "workers",
    "forms",
    "code",
    "surroundings",
    "arrays",
    "words",
    "kits",
    "headers",
    "servers",
    "settings",
    "parts",
    "interrupts",
    "beside",
    "options",
)
TALLY = Path(__file__).parent / "tally.csv"
PAGE = Path(__file__).parents[2] / "docs" / "promises.md"
HEAD = ("idea", "tried", "held", "commit")
Counts = Mapping[str, tuple[str, str, str]]
"""Of each idea: how many were tried, how many held, at which commit."""
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where files are in memory, so that flushing them a million times costs no time."""
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
    """Write the counts of an idea beside those of the others' last trials, and into the
    page.
    """
    where = describe_surroundings()
    commit = f"{where['commit'] or 'none'}{'+' if where['dirty'] else ''}"
    counts = {**read_tally(), name: (str(tried), str(held), commit)}
    rows = [(idea, *counts[idea]) for idea in IDEAS if idea in counts]
    with TALLY.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *rows])
    PAGE.write_text(told(PAGE.read_text(encoding="utf-8"), counts), encoding="utf-8")


def read_tally() -> Counts:
    """The counts that were kept."""
    with TALLY.open() as file:
        return {
            idea: (row[0], row[1], row[2]) for idea, *row in list(csv.reader(file))[1:]
        }


def told(page: str, counts: Counts) -> str:
    """The page with these counts in its table, and the commits that were tried."""
    for idea, (tried, held, _) in counts.items():
        row = re.compile(rf"^(\| `{idea}` \|.*)\| [\d,]+ \| [\d,]+ \|$", re.MULTILINE)
        page = row.sub(rf"\1| {int(tried):,} | {int(held):,} |", page)
    commits = dict.fromkeys(f"`{commit[:10]}`" for _, _, commit in counts.values())
    return re.sub(r"Tested commit: .*\.", f"Tested commit: {', '.join(commits)}.", page)


def spent() -> float:
    """Seconds of processor time, of children that have ended too."""
    return sum(os.times()[:4])


def tally(name: str, few: bool) -> tuple[int, int]:
    """How many trials of an idea were made, and of how many the promise held."""
    start, tried, vain, problems = spent(), 0, 0, 0
    with tempfile.TemporaryDirectory(prefix="ropelab-stress-", dir=FAST) as folder:
        for trial in import_module(f"tests.stress.{name}").trials(Path(folder), few):
            if trial.problem:
                problems += 1
                if problems <= SHOWN:
                    print(f"  {trial.what}: {trial.problem}", flush=True)
            if trial.problem or trial.met:
                tried += 1
            else:
                vain += 1
    held, seconds = tried - problems, spent() - start
    told = (
        f"{name}: tried {tried}, held {held}; {vain} more met nothing; {seconds:.0f} s"
    )
    print(told, flush=True)
    return tried, held


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
