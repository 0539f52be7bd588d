"""The three kinds of things that can be checked, each made to answer at given positions."""

import importlib
import inspect
import sys
import traceback
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ropelab.audit.check.observed import Observed, from_rotation, from_tables
from ropelab.audit.runtimes.document import load
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.audit.runtimes.trace import language_part
from ropelab.errors import InputError, RopelabError
from ropelab.runs.files import check_regular

LARGEST = 2**53
"""Beyond it positions are not exact in float64."""
UNREADABLE = (
    OSError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,  # a compression that Python does not know
    RuntimeError,  # an encrypted file
)


def observe(target: str, spec: RopeSpec, positions: Int[np.ndarray, " n"], dtype: str) -> Observed:
    """What the target does at those positions.

    Raises:
        InputError: it cannot be loaded, or answers with something else than tables or vectors.
    """
    path = Path(target)
    if path.is_dir():
        return from_folder(path, spec, positions, dtype)
    if path.suffix == ".npz":
        return from_file(path, spec)
    module, colon, factory = target.partition(":")
    if not colon:
        raise InputError(f"{target} is not a folder, an .npz or a package.module:factory")
    return from_factory(module, factory, spec, positions)


def from_file(path: Path, spec: RopeSpec) -> Observed:
    """Arrays `cos` and `sin`, a row per position, and `positions` if they are not 0, 1, 2, ..."""
    try:
        check_regular(path)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            found = {name: _real(name, stored[name]) for name in stored.files}
    except UNREADABLE as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if "cos" not in found or "sin" not in found:
        raise InputError(f"{path} needs arrays cos and sin, it has {', '.join(found) or 'none'}")
    count = len(found["cos"]) if found["cos"].ndim else 0
    positions = _whole(path, found.get("positions", np.arange(count, dtype=np.float64)))
    if 1 not in positions:
        raise InputError(f"{path} has no row for position 1")
    return from_tables(positions, found["cos"], found["sin"], spec.rotary_dim // 2)


def _real(name: str, array: np.ndarray) -> Float[np.ndarray, "..."]:
    if array.dtype.kind not in "fiub":
        raise ValueError(f"{name} holds {array.dtype}, not real numbers")
    return np.asarray(array, np.float64)


def _whole(path: Path, places: Float[np.ndarray, "..."]) -> Int[np.ndarray, " n"]:
    """Positions as whole numbers, and nothing else taken for one."""
    exact = (places >= 0) & (places <= LARGEST) & (np.floor(places) == places)
    if places.ndim != 1 or not exact.all():
        raise InputError(f"{path}: positions must be a list of whole numbers from 0 to 2^53")
    return places.astype(np.int64)


def from_factory(
    module: str, factory: str, spec: RopeSpec, positions: Int[np.ndarray, " n"]
) -> Observed:
    """The user's code: what the factory returns is asked for tables or for rotated vectors."""
    name = f"{module}:{factory}"
    with blamed(name):
        made = _made(module, factory)
        if not callable(made):
            raise InputError(f"{name} made a {type(made).__name__}, which cannot be called")
        if required(made) != 1:
            return from_rotation(lambda x, p: as_array(call(made, x, p)), spec.head_dim, positions)
        cos, sin = _two(name, call(made, positions))
        return from_tables(positions, cos, sin, spec.rotary_dim // 2)


def _made(module: str, factory: str) -> Any:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return getattr(importlib.import_module(module), factory)()
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot load {module}:{factory}: {error}") from None
    finally:
        sys.path.pop(0)


def _two(name: str, answer: Any) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin, if that is what the answer is."""
    try:
        cos, sin = answer
    except (TypeError, ValueError):
        kind = type(answer).__name__
        raise InputError(f"{name} answers with a {kind}, not with cos and sin") from None
    return as_array(cos), as_array(sin)


@contextmanager
def blamed(name: str) -> Iterator[None]:
    """Say in one line what the user's code raised; what it prints goes to stderr."""
    try:
        with redirect_stdout(sys.stderr):
            yield
    except RopelabError:
        raise
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        inside = where.filename not in (__file__, inspect.__file__) and where.lineno
        at = f" ({Path(where.filename).name}, line {where.lineno})" if inside else ""
        raise InputError(f"{name} raised {type(error).__name__}: {error}{at}") from None


def required(function: Callable[..., Any]) -> int:
    """How many arguments it insists on: one, positions; two, vectors and positions."""
    parameters = inspect.signature(function).parameters.values()
    empty = inspect.Parameter.empty
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.default is empty and p.kind in positional for p in parameters)


def call(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """With float32 arrays; code that wants torch tensors refuses them, and is given tensors."""
    given = [a.astype(np.float32) if a.dtype == np.float64 else a for a in arrays]
    try:
        return function(*given)
    except (TypeError, AttributeError):
        if "torch" not in sys.modules:
            raise
    import torch

    with torch.no_grad():
        return function(*map(torch.from_numpy, given))


def as_array(value: Any) -> np.ndarray:
    """A float64 array of a tensor or an array; a leading dimension of one is dropped."""
    if hasattr(value, "detach"):
        value = value.detach().double().cpu().numpy()
    array = np.asarray(value, dtype=np.float64)
    return array[0] if array.ndim == 3 and len(array) == 1 else array


def from_folder(
    folder: Path, spec: RopeSpec, positions: Int[np.ndarray, " n"], dtype: str
) -> Observed:
    """transformers' own rotary class, built from the folder's config.json alone."""
    import torch

    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if dtype not in kinds:
        raise InputError(f"--dtype must be one of {', '.join(kinds)}, not '{dtype}'")
    module = rotary_module(folder)
    placed = torch.from_numpy(positions)[None]
    with torch.no_grad():
        arguments = (torch.zeros(1, dtype=kinds[dtype]), placed)
        layered = isinstance(getattr(module, "rope_type", None), dict)
        answer = module(*arguments, "full_attention") if layered else module(*arguments)
    cos, sin = (as_array(part) for part in answer)
    return from_tables(positions, cos, sin, spec.rotary_dim // 2)


def rotary_module(folder: Path) -> Any:
    """The rotary embedding of the model's class in the installed transformers."""
    try:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError:
        raise InputError(
            "checking a model folder needs transformers: pip install '.[hf]'"
        ) from None
    _, text = language_part(load(str(folder)).config)
    kind = str(text.get("model_type"))
    if kind not in CONFIG_MAPPING:
        raise InputError(f"the installed transformers has no model type '{kind}'")
    config_class = CONFIG_MAPPING[kind]
    package = config_class.__module__.rpartition(".configuration_")
    classes = importlib.import_module(f"{package[0]}.modeling_{package[2]}")
    for name, found in vars(classes).items():
        if (
            name.endswith("RotaryEmbedding")
            and getattr(found, "__module__", "") == classes.__name__
        ):
            try:
                return found(config=config_class.from_dict(dict(text)))
            except (KeyError, ValueError, TypeError, RuntimeError) as error:
                raise InputError(f"{name} refuses the configuration: {error}") from None
    raise InputError(f"no rotary embedding in {classes.__name__}")
