"""This machine: its cores, memory and GPUs, and the number format of training and
evaluation.

bfloat16 pays where a processor multiplies it in hardware: on a GPU, and on a CPU with
matrix units (Intel's AMX). Training steps of two small models, one thread, against
float32: 1.4 to 2.3 times as fast with AMX, 0.6 to 0.8 with AVX512-BF16 alone, a tenth
and less where it is emulated (docs/notebook.md). Weights are float32; bfloat16 means torch's
autocast of matrix products.
"""

# The rule asks the processor, not a clock: a probe would answer differently on a busy
# machine, and the same config would not give the same tables twice.

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

from ropelab.runs.errors import InputError

# A number format as a config names it; `auto` is resolved before anything is computed.
DtypeName = Literal["auto", "float32", "bfloat16"]
# Operations per second of one core, in whole trainings: in bfloat16 with AMX; in
# float32 as rates without it make it (docs/notebook.md). AVX512-BF16 alone reads long
# contexts at the former rate.
RATES = {"bfloat16": 1.4e11, "float32": 6e10}
# bfloat16 where it is emulated, against float32.
EMULATED = 0.1


@contextmanager
def as_by_default() -> Iterator[None]:
    """Compute as torch does by default, whatever other code of this process has set it
    to.
    """
    if (torch := sys.modules.get("torch")) is None:
        yield
        return

    dtype = torch.get_default_dtype()
    precision = "highest"
    # set by torch's newer names for it, which cannot be read so
    with suppress(RuntimeError):
        precision = torch.get_float32_matmul_precision()
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")

    try:
        with torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)


def cores() -> int:
    """Return the cores that affinity and the limits of a container leave this
    process.
    """
    from loky import cpu_count

    try:
        return int(cpu_count())
    except ValueError:
        # It reads one variable of the environment, which may hold anything.
        limit = os.environ.get("LOKY_MAX_CPU_COUNT", "")
        raise InputError(
            f"LOKY_MAX_CPU_COUNT must be a whole number of cores, got '{limit}'"
        ) from None


def available_memory(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that the kernel and the limits of a container (cgroup v2) leave
    free.
    """
    import psutil

    free = psutil.virtual_memory().available
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return free
    if limit == "max":
        return free
    # The cache of files gives way when memory is needed.
    cache = int(dict(line.split() for line in lines).get("inactive_file", "0"))
    return min(free, max(0, int(limit) - used + cache))


def resolve_device(device: str) -> str:
    """Resolve `auto`: `cuda` if torch sees a GPU, else `cpu`."""
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise ValueError(
            "cuda is not available on this machine; allowed here: auto, cpu"
        )
    return "cpu"


def resolve_dtype(asked: DtypeName, device: str) -> DtypeName:
    """Resolve `auto`: `bfloat16` where its products are quicker, else `float32`."""
    if asked == "auto":
        return "bfloat16" if multiplies_bfloat16(device) else "float32"
    return asked


def about_dtype(dtype: str, device: str) -> str:
    """Say in one line why a number format is used on a device."""
    if dtype not in RATES:  # of a released model: it is its own, or was asked for
        return f"computing in {'the format of the model' if dtype == 'auto' else dtype}"
    quick = multiplies_bfloat16(device)
    processor = "CPU" if device == "cpu" else "GPU"
    fact = f"this {processor} has {'' if quick else 'no '}matrix units for bfloat16"
    if dtype == "bfloat16":
        return f"computing in bfloat16: {fact}" + (
            "" if quick else ", so this will be slow"
        )
    return f"computing in float32{', though' if quick else ':'} {fact}"


def multiplies_bfloat16(device: str) -> bool:
    """Return True if bfloat16 products are quicker than float32 ones on a device."""
    import torch

    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return has_instructions("amx_bf16")


def has_instructions(name: str) -> bool:
    """Return True if this processor has those instructions for bfloat16, and they are
    used.
    """
    import torch

    # The second question is to the library that makes the products: it may have been
    # told to leave them alone (ONEDNN_MAX_CPU_ISA), and a build of torch may come
    # without it.
    found = torch.cpu.get_capabilities().get(name, False)
    return bool(found and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def rate(dtype: str) -> float:
    """Return operations per second in products of a number format, on one core."""
    if dtype == "bfloat16" and not has_instructions("avx512_bf16"):
        return EMULATED * RATES["float32"]
    return RATES[dtype]


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread: their number changes the last digits."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def one_gpu(number: int) -> Iterator[None]:
    """Make `cuda` mean one GPU while the block runs; its cached memory is then free."""
    import torch

    with torch.cuda.device(number):
        yield
        torch.cuda.empty_cache()


def computing_in(dtype: DtypeName, device: str) -> AbstractContextManager[object]:
    """Make matrix products in `dtype` on a device while the block runs."""
    import torch

    return (
        torch.autocast(device, torch.bfloat16) if dtype == "bfloat16" else nullcontext()
    )


def return_freed_memory() -> None:
    """Hand back to the system what the C library keeps of freed memory, where it can
    (glibc).
    """
    import psutil

    # Blocks that grow a little from one allocation to the next leave holes that no
    # later one fits.
    if hasattr(psutil, "heap_trim"):
        psutil.heap_trim()
