"""Call the user's function, and read its answer as arrays with a name each.

A function may answer with tables, cos and sin or cos + i sin, or with the rotated
vectors: one array, or one for each of the vectors that it was given.
"""

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ropelab.conformance.parameters import UNNAMED_PARAMETERS, list_parameters
from ropelab.runs.errors import InputError
from ropelab.runs.estimate import write_size
from ropelab.runs.machine import find_free_memory

# The largest difference between the sums cos^2 + sin^2 of a table, as a share of the
# largest sum, if all pairs are on one circle. In bfloat16 these sums differ by 0.008.
CIRCLE_TOLERANCE = 0.02

# The most bytes of an answer that is taken to fit into memory. Asking how much memory
# is free takes longer than everything else that is done with a vector, and some code is
# asked one position at a time.
SURELY_FITS_BYTES = 2**20


def call(function: Callable[..., Any], value_of_parameter: Mapping[str, Any]) -> Any:
    """Call a function with float32 arrays, or with torch tensors if it refuses arrays.

    Code of PyTorch is given tensors first: a call that it refuses may leave what it
    remembers half changed.

    ``value_of_parameter`` has the value of each parameter by its name.
    """
    signature = inspect.Signature(list_parameters(function) or UNNAMED_PARAMETERS)

    def call_with(convert: Callable[[np.ndarray], Any]) -> Any:
        # The code may change the arrays that it is given, so that these are copies.
        values = dict(value_of_parameter)
        for name, value in value_of_parameter.items():
            if isinstance(value, np.ndarray):
                dtype = np.float32 if value.dtype == np.float64 else value.dtype
                values[name] = convert(value.astype(dtype))

        arguments = inspect.BoundArguments(signature, values)
        return function(*arguments.args, **arguments.kwargs)

    def call_with_arrays() -> Any:
        return call_with(lambda array: array)

    def call_with_tensors() -> Any:
        import torch

        with torch.no_grad():
            return call_with(torch.from_numpy)

    if is_module(function):
        return call_with_tensors()
    if is_of_torch(function):
        try:
            return call_with_tensors()
        except Exception as error:
            refusal = error
        try:
            return call_with_arrays()
        except Exception:
            raise refusal from None

    try:
        return call_with_arrays()
    except Exception as error:
        if "torch" not in sys.modules:
            raise
        refusal = error
    try:
        return call_with_tensors()
    except Exception:
        # Compiled, scripted and mapped functions refuse arrays by errors of their own.
        # Any other code that raises such an error raised it for itself.
        if isinstance(refusal, TypeError | AttributeError):
            raise
        raise refusal from None


def is_module(function: Callable[..., Any]) -> bool:
    """Return True for a module of PyTorch, and for a method of one."""
    torch = sys.modules.get("torch")
    owner = getattr(function, "__self__", function)
    return torch is not None and isinstance(owner, torch.nn.Module)


def is_of_torch(function: Callable[..., Any]) -> bool:
    """Return True for a function whose file has PyTorch, and not NumPy, among its
    names.
    """
    code = inspect.unwrap(getattr(function, "__func__", function))
    names = getattr(code, "__globals__", {})
    modules = {value for value in names.values() if inspect.ismodule(value)}
    torch = sys.modules.get("torch")
    return torch in modules and np not in modules


def to_numbers(value: Any) -> np.ndarray:
    """Return an array or torch tensor as a float64 or complex128 array.

    InputError: it has no numbers, or more than memory has room for.
    """
    _refuse_numberless(value)
    _check_memory(value)
    if hasattr(value, "detach"):
        value = _read_tensor(value)
    if isinstance(value, np.ma.MaskedArray):
        # `asarray` would return the numbers that the mask hides.
        value = np.where(value.mask, np.nan, value.data)
    array = np.asarray(value)
    is_one_object = array.dtype == object and array.ndim == 0
    if is_one_object and value is not None and not hasattr(value, "__float__"):
        # A generator, or an object with tables as its attributes.
        raise InputError(f"answers with a {type(value).__name__}, not with an array")
    dtype = np.complex128 if array.dtype.kind == "c" else np.float64
    return array.astype(dtype)


def _refuse_numberless(value: Any) -> None:
    """Raise InputError for a coroutine, and for a tensor without numbers in rows."""
    if inspect.iscoroutine(value):
        # Python would warn that nobody waited for it.
        value.close()
        raise InputError("answers with a coroutine: give a function without async")
    if getattr(value, "is_nested", False) is True:
        raise InputError("answers with a nested tensor, whose rows are no table")
    if getattr(value, "is_meta", False) is True:
        raise InputError("answers with a tensor on the device meta, without numbers")


def _read_tensor(tensor: Any) -> np.ndarray:
    """Return a torch tensor of any layout and format as an array."""
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    tensor = tensor.cpu()
    if tensor.is_complex():
        # The sign of a conjugate may be kept beside its numbers, which NumPy cannot read.
        return tensor.cdouble().resolve_conj().numpy()
    return tensor.double().numpy()


def _check_memory(value: Any) -> None:
    """Raise InputError for an array that does not fit into memory in float64.

    An array may state a shape that its own numbers do not fill, by strides of 0.
    """
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple):
        return
    needed = 8 * math.prod(shape)
    if needed <= SURELY_FITS_BYTES:
        return
    free = find_free_memory()
    if needed > free:
        raise InputError(
            f"an answer of {' x '.join(map(str, shape))} numbers needs {write_size(needed)},"
            f" and {write_size(free)} are free"
        )


def name_parts(answer: Any, vector_names: list[str]) -> dict[str, Any]:
    """Return the parts of an answer by name.

    Tables are named `cos` and `sin`, or `table` for cos + i sin. Rotated vectors have
    the names in ``vector_names``, which are the parameters that were given vectors. If
    there is a single parameter, its rotated vectors have the name "".
    """
    if isinstance(answer, Mapping):
        parts = {str(name): part for name, part in answer.items()}
        if "cos" in parts:
            return {"cos": parts["cos"], "sin": parts["sin"]}
        return parts

    names = ["cos", "sin"]
    expected = "cos and sin"
    if len(vector_names) > 1:
        names = vector_names
        expected = "a rotation of each of them"

    # The fields of a named tuple may be in any order.
    fields = getattr(answer, "_fields", ())
    if isinstance(answer, tuple) and sorted(fields) == sorted(names):
        return {name: getattr(answer, name) for name in names}
    if isinstance(answer, tuple | list):
        if len(answer) == len(names):
            return dict(zip(names, answer, strict=True))
    elif np.iscomplexobj(to_numbers(answer)):
        return {"table": answer}
    elif len(vector_names) == 1:
        return {"": answer}
    elif not vector_names:
        tables = split_real_table(to_numbers(answer))
        if tables is not None:
            return tables
    raise InputError(f"answers with a {type(answer).__name__}, not with {expected}")


def split_real_table(table: np.ndarray) -> dict[str, np.ndarray] | None:
    """Return cos and sin of one table with both; None if it has another content.

    A row has cos and then sin, as vLLM's cos_sin_cache, or each cos beside its sin, in
    turns or on an axis of two. The squares of both add up to the same in every pair, as
    they do in no other order.
    """
    orders = []
    if table.ndim > 2 and table.shape[-1] == 2:
        orders.append((table[..., 0], table[..., 1]))
    elif table.ndim > 1 and table.shape[-1] % 2 == 0:
        first, second = np.split(table, 2, axis=-1)
        orders += [(first, second), (table[..., 0::2], table[..., 1::2])]

    for cos, sin in orders:
        squares = cos**2 + sin**2
        is_one_circle = np.ptp(squares) <= CIRCLE_TOLERANCE * np.abs(squares).max()
        if squares.size > 1 and is_one_circle:
            return {"cos": cos, "sin": sin}
    return None


def split_complex_table(parts: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return parts with cos and sin in place of one table of cos + i sin.

    InputError: another part has imaginary numbers.
    """
    table = parts.get("table")
    if table is not None:
        return {"cos": table.real, "sin": table.imag}

    real_parts = {}
    for name, part in parts.items():
        if np.any(part.imag):
            raise InputError(f"{name or 'the answer'} holds imaginary numbers")
        real_parts[name] = part.real
    return real_parts


def join_rows(answers: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Put the rows of each part of several answers one behind another."""
    joined = {}
    for name in answers[0]:
        joined[name] = np.concatenate([answer[name] for answer in answers])
    return joined


def agree(first: Mapping[str, np.ndarray], second: Mapping[str, np.ndarray]) -> bool:
    """Return True if two answers have the same parts with nearly the same numbers."""
    if first.keys() != second.keys():
        return False
    for name, part in first.items():
        if part.shape != second[name].shape:
            return False
        if not np.allclose(part, second[name], atol=1e-3, equal_nan=True):
            return False
    return True
