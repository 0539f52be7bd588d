"""What light commands cost beside imports that `freqs --json` cannot do without: numpy,
pandas.

Processor time of processes of their own, started in turns, the quickest of several, so
that a busy machine disturbs all alike.

    python benchmarks/bench_freqs.py
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROUNDS = 9
IMPORTS = [sys.executable, "-c", "import numpy, pandas"]
ROPELAB = [sys.executable, "-m", "ropelab"]
FREQS = [*ROPELAB, "freqs", "--json", "--results"]
PRECISION = [*ROPELAB, "precision", "--base", "1e6", "--json", "--force", "--results"]
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "rope_theta": 5e5,
}


def seconds(command: Sequence[str]) -> float:
    """Processor seconds of one process and its children."""
    start = _used()
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    return _used() - start


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the ratios."""
    with tempfile.TemporaryDirectory() as results:
        config = Path(results, "config.json")
        config.write_text(json.dumps({**LLAMA, "max_position_embeddings": 8192}))
        commands = {
            "python -c 'import numpy, pandas'": IMPORTS,
            "freqs --json, computed": [*FREQS, results, "--force"],
            "freqs --json, reused": [*FREQS, results],
            "precision --base 1e6 --json": [*PRECISION, results],
            "audit config.json": [*ROPELAB, "audit", str(config), "--fail-on", "never"],
            "--help": [*ROPELAB, "--help"],
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
