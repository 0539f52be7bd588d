"""All that waits for a GPU, in one go and under nine minutes: `python tools/on_gpu.py FOLDER`.

Each part has an answer of its own, a time after which it is ended, and a line in FOLDER/gpu.md as
soon as it is done; one that fails says why in one line, and the next begins. Runs are kept in
FOLDER/results. `--tiny --device cpu` goes the same way in small sizes, on any machine.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
SEEDS = "0,1,2,3,4"
SMALLEST = "--preset tiny --steps 4 --train-len 64 --test-len 128 --documents 2 --sequences 1"
"""What stands for every training under `--tiny`."""

CASTS = ("transformers_llama", "transformers_to_bfloat16", "half_cache_bfloat16", "tf32_matmul")


@dataclass(frozen=True)
class Part:
    """One question, what is typed to answer it, and the seconds that it may take."""

    asks: str
    words: str
    seconds: int


def parts(device: str, tiny: bool) -> list[Part]:
    """Return all parts, the quickest and surest first."""
    here = f"tools/on_gpu.py --device {device}{' --tiny' * tiny} --part"
    extrapolate = f"-m ropelab extrapolate --device {device} --no-figures --results RESULTS"
    sizes = [
        ("five models of 1.1 million, trained side by side", f"--seeds {SEEDS} --workers 5", 140),
        ("ten million parameters", "--preset base --steps 600", 80),
        ("120 million parameters, a short training", "--preset large --steps 100", 80),
    ]
    shape, tokens = ("tiny", "256") if tiny else ("7b", "32768 131072")
    reading = f"--shape {shape} --device {device} --tokens {tokens} --rounds 1"
    return [
        Part("Does the device round as the cast plans say?", f"{here} casts", 30),
        Part("By how much does a model differ from the CPU's?", f"{here} model", 30),
        Part("Are the verdicts those of the CPU?", f"{here} verdicts", 75),
        *(
            Part(f"extrapolate: {name}", f"{extrapolate} {SMALLEST if tiny else asked}", seconds)
            for name, asked, seconds in sizes[: 1 if tiny else None]
        ),
        Part("Tokens per second, and GiB at most", f"benchmarks/bench_reading.py {reading}", 70),
        Part("What is said where memory does not suffice?", f"{here} memory", 30),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("build/gpu"))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="the smallest sizes")
    parser.add_argument("--part", choices=ANSWERS, help="one part, in this process")
    asked = parser.parse_args()
    if asked.part:
        for line in ANSWERS[asked.part](asked.device, asked.tiny):
            print(line, flush=True)
        return
    asked.folder.mkdir(parents=True, exist_ok=True)
    report = asked.folder / "gpu.md"
    report.write_text(f"# On {device_name(asked.device)}\n", encoding="utf-8")
    for part in parts(asked.device, asked.tiny):
        text = f"\n## {part.asks}\n\n{answer(part, asked.folder)}\n"
        print(text, flush=True)
        with report.open("a", encoding="utf-8") as file:
            file.write(text)


def device_name(device: str) -> str:
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("no GPU here: --device cpu --tiny tries the script without one")
    name = torch.cuda.get_device_name() if device == "cuda" else "this CPU"
    return f"{name}, torch {torch.__version__}"


def answer(part: Part, folder: Path) -> str:
    """Run a part in a process of its own; what it printed, or in one line why there is nothing."""
    words = [word.replace("RESULTS", str(folder / "results")) for word in part.words.split()]
    places = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": places, "COLUMNS": "100"}
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=environment, capture_output=True, text=True,
            timeout=part.seconds,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"Ended after {part.seconds} seconds without an answer."
    seconds = f"{time.perf_counter() - start:.0f} seconds: `{' '.join(words)}`"
    if done.returncode:
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        return f"Failed with status {done.returncode}: {last}\n\n{seconds}"
    return f"```\n{done.stdout.strip() or done.stderr.strip()}\n```\n\n{seconds}"


def casts(device: str, tiny: bool) -> Iterator[str]:
    """Angles as real code computes them there, beside those that the cast plan predicts."""
    import numpy as np
    import torch

    from ropelab.math.frequencies import inverse_frequencies
    from ropelab.math.numerics.casts import preset_named
    from ropelab.math.numerics.chain import Chain, Spectrum

    count, base, head_dim = (4096 if tiny else 131_072), 1e6, 128
    positions = np.arange(count, dtype=np.float64)
    spectrum = Spectrum(inverse_frequencies(head_dim, base), base, head_dim)
    at = torch.arange(count, device=device, dtype=torch.float32)
    exponents = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
    stored = 1 / base**exponents
    computed = {
        "transformers_llama": lambda: stored[:, None] * at,
        "transformers_to_bfloat16": lambda: stored.bfloat16().float()[:, None] * at,
        "half_cache_bfloat16": lambda: stored.bfloat16()[:, None] * at.bfloat16(),
        "tf32_matmul": lambda: stored[:, None] @ at[None],
    }
    torch.set_float32_matmul_precision("high")  # TF32 where the device has it
    for name in CASTS:
        predicted = Chain(preset_named(name).plan, spectrum).angles(positions)
        measured = computed[name]().double().cpu().numpy()
        exact = spectrum.inv_freq[:, None] * positions
        worst = [np.abs(angles - exact).max() for angles in (predicted, measured)]
        equal = (predicted == measured).mean()
        yield f"{name:26} {equal:8.4%} of the angles as predicted; worst error " + (
            f"{worst[0]:.3g} rad predicted, {worst[1]:.3g} rad measured"
        )
    angles = (stored[:, None] * at).double().cpu()
    for name, cosine in cosines(device).items():
        error = (cosine(stored[:, None] * at).double().cpu() - angles.cos()).abs().max().item()
        yield f"{name:26} worst error of a cosine {error:.3g}"


def cosines(device: str) -> dict[str, Any]:
    """Return the cosines of the device by name; on CUDA the fast intrinsic too."""
    import torch

    found: dict[str, Any] = {"torch.cos": torch.cos}
    if device == "cuda":
        source = "template <typename T> T fast_cosine(T x) { return __cosf(x); }"
        found["__cosf"] = torch.cuda.jiterator._create_jit_fn(source)
    return found


def model(device: str, tiny: bool) -> Iterator[str]:
    """One random model, the same weights and tokens, on the device and on the CPU."""
    import tempfile

    import torch
    from random_llama import save

    from ropelab.models.released.model import ReleasedModel

    shape = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024}  # fmt: skip
    tokens = torch.randint(1024, (1, 256 if tiny else 4096), generator=torch.manual_seed(0))
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        save(Path(folder), shape, "float32")
        logits = [
            ReleasedModel(Path(folder), device=where, dtype=dtype).lm(tokens.to(where)).logits
            for where, dtype in (("cpu", "float32"), (device, "float32"), (device, "bfloat16"))
        ]
    here, *others = (each.double().cpu() for each in logits)
    spacing = torch.finfo(torch.float32).eps * here.abs().max()
    for name, there in zip(("float32", "bfloat16"), others, strict=True):
        far = (there - here).abs().max()
        ulps = far / spacing
        yield f"{name:9} logits differ by at most {far:.3g}: {ulps:.0f} ulps of the largest"


def verdicts(device: str, tiny: bool) -> Iterator[str]:
    """The tiny preset on both devices in float32: verdicts of the same pairs, side by side."""
    import tempfile

    import pandas as pd

    asked = SMALLEST if tiny else "--preset tiny --train-len 256 --test-len 1024"
    with tempfile.TemporaryDirectory() as folder:
        tables = []
        for where in ("cpu", device):
            done = typed(
                f"extrapolate {asked} --device {where} --dtype float32 --json "
                f"--results {folder}/{where}"
            )
            done.check_returncode()
            tables.append(pd.DataFrame(json.loads(done.stdout)["tables"]["comparisons"]))
    pair = ["metric", "at_tokens", "context_tokens", "method_a", "method_b"]
    both = tables[0].merge(tables[1], on=pair, suffixes=("_cpu", "_device"))
    same = both.verdict_cpu == both.verdict_device
    yield f"{same.sum()} of {len(both)} verdicts are the same"
    for row in both[~same].itertuples():
        yield (
            f"{row.metric} at {row.at_tokens}, {row.method_a} / {row.method_b}: "
            f"{row.verdict_cpu} on the CPU, {row.verdict_device} there"
        )


def memory(device: str, tiny: bool) -> Iterator[str]:
    """A context for which no device has memory: status, and the one line."""
    import tempfile

    from random_llama import SMOLLM2_WIDTH, save

    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder, "model"), SMOLLM2_WIDTH | {"num_hidden_layers": 2}, "bfloat16")
        length = "--limit-memory 1GB --context 65536" if tiny else "--context 64M"
        words = f"evaluate {folder}/model {length} --tasks copy --device {device}"
        done = typed(f"{words} --results {folder}/results")
        lines = done.stderr.strip().splitlines()
    yield f"status {done.returncode}, {len(lines)} line(s): {lines[-1] if lines else ''}"


def typed(words: str) -> subprocess.CompletedProcess[str]:
    """Run one command of ropelab, quietly."""
    line = [sys.executable, "-m", "ropelab", *words.split(), "-q", "--no-figures"]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True)


ANSWERS = {"casts": casts, "model": model, "verdicts": verdicts, "memory": memory}

if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
