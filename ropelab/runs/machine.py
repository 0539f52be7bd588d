"""This machine: its cores, memory and GPUs, and the number format of training and
evaluation.

bfloat16 is faster than float32 where a processor multiplies it in hardware: on a GPU,
and on a CPU with matrix units (Intel's AMX). Training steps of two small models on one
thread were 1.4 to 2.3 times as fast as in float32 with AMX, 0.6 to 0.8 times with
AVX512-BF16 but no AMX, and at most a tenth as fast where bfloat16 is emulated
(docs/notebook.md). In bfloat16 the weights are float32, and torch's autocast makes the
matrix products in bfloat16.
"""

# The number format is chosen by the instructions that the processor has, not by measured
# times. On a busy machine a measurement could choose another format, and the same config
# would not give the same tables twice.

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

from ropelab.runs.errors import InputError

# A number format as a config names it. `auto` is resolved before anything is computed.
DtypeName = Literal["auto", "float32", "bfloat16"]
# Operations per second of one core in whole trainings (docs/notebook.md). The rate of
# bfloat16 was measured with AMX, and AVX512-BF16 reaches it in long contexts.
RATES = {"bfloat16": 1.4e11, "float32": 6e10}
# The rate of emulated bfloat16, as a share of the rate of float32.
EMULATED_SHARE = 0.1


@contextmanager
def use_library_defaults() -> Iterator[None]:
    """Compute with the default settings of NumPy and torch, whatever other code of this
    process has set.
    """
    with _use_numpy_defaults(), use_torch_defaults():
        yield


@contextmanager
def _use_numpy_defaults() -> Iterator[None]:
    """Let NumPy warn as it does by itself, and print numbers with all their digits.

    Under `legacy="1.13"` floats have 12 digits in texts, and pandas writes those texts.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None:
        yield
        return

    with (
        numpy.errstate(divide="warn", over="warn", under="ignore", invalid="warn"),
        numpy.printoptions(legacy=False),
    ):
        yield


@contextmanager
def use_torch_defaults() -> Iterator[None]:
    """Compute with torch's default settings, whatever other code of this process has
    set.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        # Nothing has imported torch, so no setting was changed.
        yield
        return

    dtype = torch.get_default_dtype()
    precision = "highest"
    # Other code may have set the precision with a newer function of torch. The older
    # function that is called here then raises an error, and `highest` is set at the end.
    with suppress(RuntimeError), warnings.catch_warnings():
        # torch 2.9 advises newer settings here, which older versions do not have.
        warnings.filterwarnings("ignore", "Please use the new API settings")
        precision = torch.get_float32_matmul_precision()
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")

    # `with torch.device(...)` makes each call of torch slower. It is needed only if other
    # code has set a default device that is not the CPU.
    device: AbstractContextManager[object] = nullcontext()
    if torch.get_default_device().type != "cpu":
        device = torch.device("cpu")
    try:
        with (
            torch.autocast("cpu", enabled=False),
            torch.inference_mode(False),
            torch.enable_grad(),
            device,
        ):
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)


def count_cores() -> int:
    """Return the cores that affinity and the limits of a container leave this
    process.
    """
    from loky import cpu_count

    try:
        return int(cpu_count())
    except ValueError:
        # loky reads this variable of the environment, which may hold any text.
        limit = os.environ.get("LOKY_MAX_CPU_COUNT", "")
        raise InputError(
            f"LOKY_MAX_CPU_COUNT must be a whole number of cores, got '{limit}'"
        ) from None


def find_free_memory(group: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that the kernel and the limits of a container (cgroup v2) leave
    free.
    """
    import psutil

    free_bytes = psutil.virtual_memory().available
    try:
        limit = (group / "memory.max").read_text(encoding="ascii").strip()
        used_bytes = int((group / "memory.current").read_text(encoding="ascii"))
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return free_bytes
    if limit == "max":
        return free_bytes
    # The used bytes include cached files, which the kernel drops when memory is needed.
    statistics = dict(line.split() for line in lines)
    cached_bytes = int(statistics.get("inactive_file", "0"))
    free_in_container = max(0, int(limit) - used_bytes + cached_bytes)
    return min(free_bytes, free_in_container)


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


def resolve_dtype(dtype: DtypeName, device: str) -> DtypeName:
    """Resolve `auto`: `bfloat16` where its products are quicker, else `float32`."""
    if dtype != "auto":
        return dtype
    return "bfloat16" if is_bfloat16_quick(device) else "float32"


def explain_dtype(dtype: str, device: str) -> str:
    """Say in one line why a number format is used on a device."""
    if dtype not in RATES:
        # A released model computes in its own format, or in one that was asked for.
        if dtype == "auto":
            return "computing in the format of the model"
        return f"computing in {dtype}"

    is_quick = is_bfloat16_quick(device)
    processor = "CPU" if device == "cpu" else "GPU"
    if is_quick:
        fact = f"this {processor} has matrix units for bfloat16"
    else:
        fact = f"this {processor} has no matrix units for bfloat16"

    if dtype == "bfloat16":
        warning = "" if is_quick else ", so this will be slow"
        return f"computing in bfloat16: {fact}{warning}"
    if is_quick:
        return f"computing in float32, though {fact}"
    return f"computing in float32: {fact}"


def is_bfloat16_quick(device: str) -> bool:
    """Return True if a device computes bfloat16 products more quickly than float32
    products.
    """
    import torch

    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return has_instructions("amx_bf16")


def has_instructions(name: str) -> bool:
    """Return True if this processor has the instructions of that name for bfloat16, and
    torch uses them.
    """
    import torch

    # oneDNN makes the products. It may have been told not to use the instructions
    # (ONEDNN_MAX_CPU_ISA), and a build of torch may come without oneDNN.
    has_them = _list_instructions().get(name, False)
    return bool(has_them and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _list_instructions() -> Mapping[str, object]:
    """Return which instructions for bfloat16 this processor has, as torch names them."""
    import torch

    if hasattr(torch.cpu, "get_capabilities"):
        return torch.cpu.get_capabilities()
    # torch 2.9 has no such list. It tells whether the processor has the tiles of AMX, and
    # every processor that has tiles multiplies bfloat16 in them.
    return {
        "amx_bf16": torch.cpu._is_amx_tile_supported(),
        "avx512_bf16": torch.cpu._is_avx512_bf16_supported(),
    }


def find_rate(dtype: str) -> float:
    """Return operations per second in products of a number format, on one core."""
    if dtype == "bfloat16" and not has_instructions("avx512_bf16"):
        return EMULATED_SHARE * RATES["float32"]
    return RATES[dtype]


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread, since the number of threads changes the last digits."""
    import torch

    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)


@contextmanager
def one_gpu(number: int) -> Iterator[None]:
    """Make `cuda` mean one GPU while the block runs, and free its cached memory at the
    end.
    """
    import torch

    with torch.cuda.device(number):
        yield
        torch.cuda.empty_cache()


def computing_in(dtype: DtypeName, device: str) -> AbstractContextManager[object]:
    """Make matrix products in `dtype` on a device while the block runs."""
    import torch

    if dtype == "bfloat16":
        # With a cache, torch keeps the rounded weights until the outermost autocast
        # block ends. If this block is inside another one, as in `use_torch_defaults`,
        # every step of a training would use the weights of the first step.
        return torch.autocast(device, torch.bfloat16, cache_enabled=False)
    return nullcontext()


def return_freed_memory() -> None:
    """Return freed memory that the C library keeps to the system, where it can
    (glibc).
    """
    import psutil

    # The C library keeps freed memory for later allocations. If each allocation is a
    # little larger than the last one, it fits into no piece of freed memory, and
    # memory grows.
    if hasattr(psutil, "heap_trim"):
        psutil.heap_trim()
