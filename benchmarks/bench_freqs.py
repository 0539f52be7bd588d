"""What an answer costs beside the imports it cannot do without: `freqs --json` and numpy, pandas.

Processor time of processes of their own, started in turns, the quickest of several, so that a busy
machine disturbs all alike.

    python benchmarks/bench_freqs.py
"""

import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence

ROUNDS = 9
IMPORTS = [sys.executable, "-c", "import numpy, pandas"]
FREQS = [sys.executable, "-m", "ropelab", "freqs", "--json", "--results"]


def seconds(command: Sequence[str]) -> float:
    """Processor seconds of one process and its children."""
    start = _used()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return _used() - start


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the ratios."""
    with tempfile.TemporaryDirectory() as results:
        commands = {
            "python -c 'import numpy, pandas'": IMPORTS,
            "freqs --json, computed": [*FREQS, results, "--force"],
            "freqs --json, reused": [*FREQS, results],
        }
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(ROUNDS):
            for name, command in commands.items():
                times[name].append(seconds(command))
    best = {name: min(found) for name, found in times.items()}
    unit = next(iter(best.values()))
    for name, found in best.items():
        print(f"{name:36} {found:7.3f} s {found / unit:6.2f}")


if __name__ == "__main__":
    main()
