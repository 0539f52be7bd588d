"""All that waits for a GPU, in one go and under nine minutes: `python tools/on_gpu.py
FOLDER`.

Each part has an answer of its own, a time after which it is ended, and a line in
FOLDER/gpu.md as soon as it is done; one that fails says why in one line, and the next
begins. Runs are kept in FOLDER/results. `--tiny --device cpu` goes the same way in
small sizes, on any machine.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
SMALLEST = (
    "--preset tiny --steps 4 --train-len 64 --test-len 128 --documents 2 --sequences 1"
)
"""What stands for every training under `--tiny`."""
SAME_TOKENS = (
    "--steps 1200 --tokens-per-step 4096 --methods unscaled,ntk,yarn --documents 12"
)
"""Of a larger model, as many tokens as the default one learns from, and few questions."""


@dataclass(frozen=True)
class Part:
    """One question, what is typed to answer it, and the seconds that it may take."""

    asks: str
    words: str
    seconds: int


def parts(device: str, tiny: bool) -> list[Part]:
    """Return all parts, the quickest and surest first."""
    here = f"tools/on_gpu.py --device {device}{' --tiny' * tiny} --part"
    options = (
        f"--device {device} {SMALLEST if tiny else ''} --no-figures --results RESULTS"
    )
    large = f"-m ropelab extrapolate --preset large {SAME_TOKENS} {options}"
    shape, tokens = ("tiny", "256") if tiny else ("7b", "32768 131072")
    reading = f"--shape {shape} --device {device} --tokens {tokens} --rounds 1"
    found = [
        Part("Does the device round as the cast plans say?", f"{here} casts", 30),
        Part("By how much does a model differ from the CPU's?", f"{here} model", 45),
        Part("What is said where memory does not suffice?", f"{here} memory", 45),
        Part(
            "Tokens per second, and GiB at most",
            f"benchmarks/bench_reading.py {reading}",
            95,
        ),
        Part(
            "How long does one answer take?", f"-m ropelab extrapolate {options}", 100
        ),
        Part("Are the verdicts those of the CPU?", f"{here} verdicts", 110),
    ]
    return (
        found if tiny else [*found, Part("And of 38 million parameters?", large, 110)]
    )


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
    """Run a part in a process of its own; what it printed, or in one line why there is
    nothing.
    """
    words = [
        word.replace("RESULTS", str(folder / "results")) for word in part.words.split()
    ]
    places = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": places, "COLUMNS": "100"}
    start = time.perf_counter()
    begun = subprocess.Popen(
        [sys.executable, *words], cwd=ROOT, env=environment, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        out, error = begun.communicate(timeout=part.seconds)
    except subprocess.TimeoutExpired:
        os.killpg(begun.pid, signal.SIGKILL)  # with all that it has begun
        begun.communicate()
        return f"Ended after {part.seconds} seconds without an answer."
    seconds = f"{time.perf_counter() - start:.0f} seconds: `{' '.join(words)}`"
    if begun.returncode:
        last = (error or out).strip().rpartition("\n")[2]
        return f"Failed with status {begun.returncode}: {last}\n\n{seconds}"
    return f"```\n{out.strip() or error.strip()}\n```\n\n{seconds}"


def casts(device: str, tiny: bool) -> Iterator[str]:
    """Angles as real code computes them there, beside those that the cast plan
    predicts.
    """
    import numpy as np
    import torch

    from ropelab.math.frequencies import inverse_frequencies
    from ropelab.math.numerics.casts import find_preset
    from ropelab.math.numerics.chain import Chain, Spectrum

    count, base, head_dim = (4096 if tiny else 131_072), 1e6, 128
    positions = np.arange(count, dtype=np.float64)
    spectrum = Spectrum(inverse_frequencies(head_dim, base), base, head_dim)
    at = torch.arange(count, device=device, dtype=torch.float32)
    exponents = (
        torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
    )
    stored = 1 / base**exponents
    # Seven further terms of zero: products of one term are not given to the TF32 units.
    long = [torch.zeros(8, len(each), device=device) for each in (stored, at)]
    long[0][0], long[1][0] = stored, at
    computed = {
        "transformers_llama": {"elementwise": lambda: stored[:, None] * at},
        "transformers_to_bfloat16": {
            "elementwise": lambda: stored.bfloat16().float()[:, None] * at
        },
        "half_cache_bfloat16": {
            "elementwise": lambda: stored.bfloat16()[:, None] * at.bfloat16()
        },
        "tf32_matmul": {
            "[64, 1] @ [1, n]": lambda: stored[:, None] @ at[None],
            "one of a batch of 2": lambda: (
                stored[None, :, None].expand(2, -1, 1) @ at[None, None].expand(2, 1, -1)
            )[1],
            "[n, 1] @ [1, 64]": lambda: (at[:, None] @ stored[None]).T,
            "[64, 8] @ [8, n]": lambda: long[0].T @ long[1],
        },
    }
    if device == "cuda":
        from triton_dot import product

        computed["tf32_matmul"]["tl.dot"] = lambda: product(long[0].T, long[1])
    torch.set_float32_matmul_precision("high")  # TF32 where the device has it
    for name, forms in computed.items():
        predicted = Chain(find_preset(name).plan, spectrum).angles(positions)
        exact = spectrum.inv_freq[:, None] * positions
        expected = np.abs(predicted - exact).max()
        yield f"{name}: worst error {expected:.3g} rad predicted"
        for form, compute in forms.items():
            angles = compute().double().cpu().numpy()
            equal, worst = (predicted == angles).mean(), np.abs(angles - exact).max()
            # The frequency of the first pair is 1: its angle is what the position was
            # rounded to.
            told = " ".join(f"{at:g}" for at in angles[0, 2049:2056])
            line = f"{form:20} {equal:9.4%} as predicted; worst {worst:.3g} rad"
            yield f"  {line}; 2049 to 2055: {told}"
    angles = (stored[:, None] * at).double().cpu()
    for name, cosine in cosines(device).items():
        error = (
            (cosine(stored[:, None] * at).double().cpu() - angles.cos())
            .abs()
            .max()
            .item()
        )
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
    tokens = torch.randint(
        1024, (1, 256 if tiny else 4096), generator=torch.manual_seed(0)
    )
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode():
        save(Path(folder), shape, "float32")
        logits = [
            ReleasedModel(Path(folder), device=where, dtype=dtype)
            .lm(tokens.to(where))
            .logits
            for where, dtype in (
                ("cpu", "float32"),
                (device, "float32"),
                (device, "bfloat16"),
            )
        ]
    here, *others = (each.double().cpu() for each in logits)
    spacing = torch.finfo(torch.float32).eps * here.abs().max()
    for name, there in zip(("float32", "bfloat16"), others, strict=True):
        far = (there - here).abs().max()
        ulps = far / spacing
        yield (
            f"{name:9} logits differ by at most {far:.3g}: {ulps:.0f} ulps of the"
            " largest"
        )


def verdicts(device: str, tiny: bool) -> Iterator[str]:
    """The tiny preset on both devices in float32: verdicts of the same pairs, side by
    side.
    """
    import tempfile

    import pandas as pd

    asked = (
        SMALLEST
        if tiny
        else "--preset tiny --train-len 256 --test-len 1024 --seeds 0,1"
    )
    with tempfile.TemporaryDirectory() as folder:
        words = (
            f"extrapolate {asked} --dtype float32 --methods unscaled,ntk,yarn --json"
        )
        begun = [
            typing(f"{words} --device {where} --results {folder}/{where}")
            for where in ("cpu", device)
        ]
        tables = []
        for each in begun:
            out, error = each.communicate()
            if each.returncode:
                sys.exit(error)
            tables.append(pd.DataFrame(json.loads(out)["tables"]["comparisons"]))
    pair = ["metric", "at_tokens", "context_tokens", "method_a", "method_b"]
    both = tables[0].merge(tables[1], on=pair, suffixes=("_cpu", "_device"))
    same = both.verdict_cpu == both.verdict_device
    yield f"{same.sum()} of {len(both)} verdicts are the same"
    for row in both[~same].itertuples():
        yield (
            f"{row.metric} at {row.at_tokens}, {row.method_a} / {row.method_b}: "
            f"{row.verdict_cpu} on the CPU, {row.verdict_device} there"
        )


def measure_memory(device: str, tiny: bool) -> Iterator[str]:
    """A context for which no device has memory: status, and the one line."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        words = (
            "extrapolate --preset xl --steps 1 --tokens-per-step 4194304 --test-len"
            " 4096"
        )
        if device == "cpu":  # where all memory would be taken before it is refused
            from random_llama import SMOLLM2_WIDTH, save

            save(
                Path(folder, "model"),
                SMOLLM2_WIDTH | {"num_hidden_layers": 2},
                "bfloat16",
            )
            words = (
                f"evaluate {folder}/model --limit-memory 1GB --context 65536 --tasks"
                " copy"
            )
        begun = typing(f"{words} --device {device} --results {folder}/results")
        lines = begun.communicate()[1].strip().splitlines()
    yield (
        f"status {begun.returncode}, {len(lines)} line(s): {lines[-1] if lines else ''}"
    )


def typing(words: str) -> "subprocess.Popen[str]":
    """Begin one command of ropelab, quietly."""
    line = [sys.executable, "-m", "ropelab", *words.split(), "-q", "--no-figures"]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


ANSWERS = {
    "casts": casts,
    "model": model,
    "verdicts": verdicts,
    "memory": measure_memory,
}

if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
