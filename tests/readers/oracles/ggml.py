"""ggml's rope kernel through its shared libraries: pairs (1, 0) turned at position 1.

The parameters are those that llama-context.cpp hands it for a file's keys without flags,
the ends of YaRN's ramp as if every architecture loaded them.
"""

import ctypes
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

F32, I32, NEOX = 0, 26, 2
POINTER, INT, LONG, FLOAT = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_float,
)


class Memory(ctypes.Structure):
    """ggml_init_params."""

    _fields_ = [
        ("size", ctypes.c_size_t),
        ("buffer", POINTER),
        ("no_alloc", ctypes.c_bool),
    ]


class Kernel:
    """The two libraries with the few functions that one rope needs."""

    def __init__(self, folder: Path) -> None:
        self.base = ctypes.CDLL(str(folder / "libggml-base.so"), ctypes.RTLD_GLOBAL)
        self.cpu = ctypes.CDLL(str(folder / "libggml-cpu.so"), ctypes.RTLD_GLOBAL)
        for name in (
            "init",
            "new_tensor_1d",
            "new_tensor_3d",
            "rope_ext",
            "new_graph",
            "get_data",
        ):
            getattr(self.base, f"ggml_{name}").restype = POINTER
        self.base.ggml_init.argtypes = [Memory]
        self.base.ggml_new_tensor_1d.argtypes = [POINTER, INT, LONG]
        self.base.ggml_new_tensor_3d.argtypes = [POINTER, INT, LONG, LONG, LONG]
        self.base.ggml_rope_ext.argtypes = [POINTER] * 4 + [INT] * 3 + [FLOAT] * 6
        self.base.ggml_build_forward_expand.argtypes = [POINTER, POINTER]
        self.base.ggml_get_data.argtypes = [POINTER]
        self.base.ggml_new_graph.argtypes = [POINTER]
        self.base.ggml_free.argtypes = [POINTER]
        self.cpu.ggml_graph_compute_with_ctx.argtypes = [POINTER, POINTER, INT]

    def turned(self, width: int, factors: Any, *parameters: Any) -> np.ndarray:
        """The rotated features of one head at position 1."""
        context = self.base.ggml_init(Memory(16 * 2**20, None, False))
        x = self.base.ggml_new_tensor_3d(context, F32, width, 1, 1)
        self._fill(
            x, np.r_[np.ones(width // 2), np.zeros(width // 2)].astype(np.float32)
        )
        place = self.base.ggml_new_tensor_1d(context, I32, 1)
        self._fill(place, np.ones(1, np.int32))
        divisors = None
        if factors is not None:
            divisors = self.base.ggml_new_tensor_1d(context, F32, width // 2)
            self._fill(divisors, np.asarray(factors, np.float32))
        result = self.base.ggml_rope_ext(
            context, x, place, divisors, width, NEOX, *parameters
        )
        graph = self.base.ggml_new_graph(context)
        self.base.ggml_build_forward_expand(graph, result)
        self.cpu.ggml_graph_compute_with_ctx(context, graph, 1)
        found = np.empty(width, np.float32)
        ctypes.memmove(found.ctypes.data, self.base.ggml_get_data(result), found.nbytes)
        self.base.ggml_free(context)
        return found

    def _fill(self, tensor: int, values: np.ndarray) -> None:
        ctypes.memmove(
            self.base.ggml_get_data(tensor), values.ctypes.data, values.nbytes
        )


def parameters(fields: Mapping[str, Any]) -> tuple[Any, ...]:
    """n_ctx_orig, base, scale, weight of the ramp, factor on cos and sin, and the two
    betas.
    """
    context = fields["context_length"]
    kind = fields.get("rope.scaling.type", "linear")
    factor = fields.get("rope.scaling.factor") or 1.0
    ramp = 1.0 if kind == "yarn" else 0.0
    attention = 1.0
    if ramp:
        equal = fields.get("rope.scaling.yarn_log_multiplier")
        attention = 1.0 if equal or factor <= 1 else 0.1 * math.log(factor) + 1
        attention /= 1 + 0.1 * math.log(factor)
    attention *= fields.get("rope.scaling.attn_factor", 1.0)
    return (
        int(fields.get("rope.scaling.original_context_length", context)),
        float(fields.get("rope.freq_base", 10000.0)),
        1 / factor,
        ramp,
        attention,
        float(fields.get("rope.scaling.yarn_beta_fast", 32.0)),
        float(fields.get("rope.scaling.yarn_beta_slow", 1.0)),
    )


def observed(kernel: Kernel, fields: Mapping[str, Any], head: int) -> dict[str, Any]:
    """Frequencies and factor of the kernel, at a short and at a long length, as the
    others have.
    """
    width = int(
        fields.get("rope.dimension_count", fields.get("attention.key_length", head))
    )
    tables = {
        "short": fields.get(
            "rope_freqs.weight", fields.get("rope_factors_short.weight")
        ),
        "long": fields.get("rope_freqs.weight", fields.get("rope_factors_long.weight")),
    }
    result = {}
    for name, factors in tables.items():
        turned = kernel.turned(width, factors, *parameters(fields)).astype(np.float64)
        cos, sin = turned[: width // 2], turned[width // 2 :]
        attention = float(np.hypot(cos, sin).mean())
        result[name] = {
            "inv_freq": np.arctan2(sin, cos).tolist(),
            "attention_factor": attention,
        }
    return result
