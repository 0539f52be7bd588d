"""How much memory does a context take in a model given, and how much was said before?

Random Llamas of SmolLM2's width read contexts at once and in parts, each in a process
of its own. What a context adds to the memory in use is measured as the highest resident
size while it is read (Linux counts it), and stands beside the bound by which `ropelab
evaluate` plans. The last row is of a vocabulary sixteen times as large, which may add
little.

Bytes do not depend on how busy a machine is. A minute.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

HIGHEST = "VmHWM"
NOW = "VmRSS"


@dataclass(frozen=True)
class Case:
    """One reading; `at_once` is how many tokens. Layers beyond a few add keys and
    values only.
    """

    tokens: int
    at_once: int
    layers: int = 2
    vocabulary: int = 16_384
    dtype: str = "bfloat16"


CASES = (
    Case(4096, 4096),
    Case(12288, 12288),
    Case(4096, 2048),
    Case(12288, 2048),
    Case(12288, 2048, dtype="float32"),
    Case(1024, 1024),
    Case(1024, 1024, vocabulary=262_144),
)
QUICK = (Case(1024, 1024), Case(1024, 256))


def resident(which: str) -> int:
    """Bytes of this process in memory, now or at most."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    line = next(line for line in lines if line.startswith(which))
    return int(line.split()[1]) * 1024


def measure(case: Case, folder: Path) -> None:
    """Print what is said of a case and what is measured, in bytes that reading adds."""
    import torch
    from random_llama import SMOLLM2_WIDTH, save

    from ropelab.models.lm.evaluation import compute_token_losses
    from ropelab.models.released import forward
    from ropelab.models.released.model import ReleasedModel

    shape = SMOLLM2_WIDTH | {
        "vocab_size": case.vocabulary,
        "num_hidden_layers": case.layers,
        "tie_word_embeddings": True,
    }
    save(folder, shape, case.dtype)
    model = ReleasedModel(folder, dtype=case.dtype)
    forward.LONGEST_PASS = case.at_once
    tokens = torch.arange(case.tokens + 1)[None] % case.vocabulary
    compute_token_losses(model, tokens[:, :129])
    before = resident(NOW)
    said = model.estimate_pass_bytes(case.tokens)
    # forgets the highest size
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    compute_token_losses(model, tokens)
    print(json.dumps({"said": said, "measured": resident(HIGHEST) - before}))


def asked(case: Case) -> dict[str, int]:
    """The two numbers, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            __file__,
            "--case",
            json.dumps(asdict(case)),
            "--folder",
            folder,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small model")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        measure(Case(**json.loads(arguments.case)), Path(arguments.folder))
        return
    if not Path("/proc/self/clear_refs").exists():
        print("not measured: only Linux says what a process took at most")
        return
    print(
        f"{'tokens':>8} {'at once':>8} {'layers':>7} {'vocabulary':>11} {'format':>9}",
        end="",
    )
    print(f" {'said, MiB':>10} {'measured':>9} {'ratio':>6}")
    for case in QUICK if arguments.quick else CASES:
        found = asked(case)
        said, measured = (found[name] / 2**20 for name in ("said", "measured"))
        print(
            f"{case.tokens:>8} {case.at_once:>8} {case.layers:>7} {case.vocabulary:>11} "
            f"{case.dtype:>9} {said:>10.0f} {measured:>9.0f} {measured / said:>6.2f}"
        )


if __name__ == "__main__":
    main()
