"""A rotary code's answers at given positions: from tables, from a model folder, or from a function.

Pairs, width and direction are recovered from rotated unit vectors where the code rotates vectors.
"""

import importlib
import inspect
import pickle
import subprocess
import sys
import traceback
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from ropelab.audit.document import load
from ropelab.audit.runtimes.spec import RopeSpec
from ropelab.audit.runtimes.trace import language_part
from ropelab.runs.errors import InputError, RopelabError, say
from ropelab.runs.files import check_regular

Positions = Int[np.ndarray, " n"]
Partner = Literal["half", "adjacent", "irregular", "unknown"]
Rotate = Callable[[Float[np.ndarray, "tokens head_dim"], Int[np.ndarray, " tokens"]], np.ndarray]

LARGEST_FACTOR = 1e100  # on cos and sin; sums of such numbers do not overflow
ZERO = 1e-6  # a component below this share of the largest one counts as none
SHEARED = 0.1  # of the gain: so far apart 8-bit formats do not bring equal numbers
LARGEST_POSITION = 2**53  # positions beyond are not exact in float64
LONGEST_SECONDS = 600  # that a factory and its function may take
# numpy and zipfile raise these for damaged files; NotImplementedError for a compression that Python
# does not know, RuntimeError for an encrypted file.
UNREADABLE = (
    *(OSError, ValueError, EOFError, NotImplementedError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True)
class Observed:
    """cos and sin of every pair at some positions, gain included, float64."""

    positions: Positions
    cos: Float[np.ndarray, "n pairs"]
    sin: Float[np.ndarray, "n pairs"]
    partner: Partner  # unknown if only tables were seen

    @property
    def gain(self) -> float:
        return float(np.median(np.hypot(self.cos, self.sin)))

    @property
    def finite(self) -> bool:
        """True if every number is one, and none is so large that sums would overflow."""
        return all(bool((np.abs(t) < LARGEST_FACTOR).all()) for t in (self.cos, self.sin))


def from_tables(
    positions: Positions,
    cos: Float[np.ndarray, "n width"],
    sin: Float[np.ndarray, "n width"],
    pairs: int | None,
) -> Observed:
    """Return tables with a column per pair; given one per feature, each angle is there twice."""
    if cos.shape != sin.shape or cos.ndim != 2 or len(cos) != len(positions):
        raise InputError(f"cos {cos.shape} and sin {sin.shape} for {len(positions)} positions")
    width, half = cos.shape[1], cos.shape[1] // 2
    partner: Partner = "unknown"
    if width % 2 == 0 and width != pairs:
        if all(np.array_equal(t[:, :half], t[:, half:]) for t in (cos, sin)):
            cos, sin, partner = cos[:, :half], sin[:, :half], "half"
        elif all(np.array_equal(t[:, 0::2], t[:, 1::2]) for t in (cos, sin)):
            cos, sin, partner = cos[:, 0::2], sin[:, 0::2], "adjacent"
    return Observed(positions, cos, sin, partner)


def from_rotation(rotate: Rotate, head_dim: int, positions: Positions) -> Observed:
    """Rotate unit vectors at every position, and read off partner, width and sign."""
    images = []  # row j of an image: the j-th unit vector, rotated
    for position in positions.tolist():
        image = np.asarray(rotate(np.eye(head_dim), np.full(head_dim, position)), dtype=np.float64)
        if image.shape != (head_dim, head_dim):
            raise InputError(f"rotating {head_dim} vectors of {head_dim} gave shape {image.shape}")
        images.append(image)
    stacked = np.stack(images)
    if not (positions > 0).any():
        raise InputError("no position above 0 to look at")
    first, second, partner = _pairs(np.abs(stacked[positions > 0]).max(axis=0))
    cos, sin = stacked[:, first, first], stacked[:, first, second]
    # What the second feature of a pair becomes: (-sin, cos) in a rotation.
    apart = np.maximum(
        np.abs(stacked[:, second, first] + sin), np.abs(stacked[:, second, second] - cos)
    ).max(axis=0)
    gain = float(np.median(np.hypot(cos, sin)))
    if wrong := np.flatnonzero(apart > SHEARED * gain).tolist():
        i, j = first[wrong[0]], second[wrong[0]]
        raise InputError(
            f"features {i} and {j} do not rotate: where one becomes (cos, sin), the other must "
            "become (-sin, cos)"
        )
    return Observed(positions, cos, sin, partner)


def _pairs(
    mixed: Float[np.ndarray, "from to"],
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"], Partner]:
    """Return first and second features of the pairs; features that mix with none do not rotate."""
    off = mixed - np.diag(np.diag(mixed))
    partners = off.argmax(axis=1)
    rotated = off.max(axis=1) > ZERO
    first = np.array([j for j in np.flatnonzero(rotated) if partners[j] > j], dtype=int)
    second = partners[first]
    if not len(first):
        raise InputError("no rotation: the output equals the input")
    if not np.array_equal(partners[second], first):
        raise InputError("features do not rotate in pairs")
    gaps = np.unique(second - first)
    if len(gaps) == 1 and gaps[0] == 1 and np.array_equal(first % 2, np.zeros_like(first)):
        return first, second, "adjacent"
    if len(gaps) == 1 and gaps[0] == len(first):
        return first, second, "half"
    return first, second, "irregular"


def frequencies(observed: Observed) -> Float[np.ndarray, " pairs"]:
    """Return radians per token, from the smallest positions on and refined at larger ones."""
    order = np.argsort(observed.positions)
    angles = np.arctan2(observed.sin, observed.cos)[order]
    places = observed.positions[order].astype(np.float64)
    start = int(np.flatnonzero(places == 1)[0])
    found = angles[start].copy()
    # At every further position the angle is known up to whole rotations, and the frequency so far
    # says how many, as long as its error times the position stays below half a rotation: below
    # 2^6 rad, as its relative error is about 2^-8 where tables are in bfloat16.
    for place, angle in zip(places[start + 1 :], angles[start + 1 :], strict=True):
        rotations = np.round((found * place - angle) / (2 * np.pi))
        refined = (angle + 2 * np.pi * rotations) / place
        sure = np.abs(found) * place < 2**6
        found = np.where(sure, refined, found)
    return found


def observe(target: str, spec: RopeSpec, positions: Positions, dtype: str) -> Observed:
    """Return the target's answers; InputError if it gives neither tables nor vectors."""
    path = Path(target)
    if path.is_dir():
        return from_folder(path, spec, positions, dtype)
    if path.suffix == ".npz":
        return from_file(path, spec)
    module, colon, factory = target.partition(":")
    if not colon:
        raise InputError(f"{target} is not a folder, an .npz or a package.module:factory")
    return in_a_child(module, factory, spec, positions)


def from_file(path: Path, spec: RopeSpec) -> Observed:
    """Read arrays `cos` and `sin`, a row per position, and `positions` if not 0, 1, 2, ..."""
    try:
        check_regular(path)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            found = {}
            for name in stored.files:
                array = stored[name]
                if array.dtype.kind not in "fiub":
                    raise ValueError(f"{name} holds {array.dtype}, not real numbers")
                found[name] = np.asarray(array, np.float64)
    except UNREADABLE as error:
        raise InputError(f"cannot read {path}: {error}") from None
    if "cos" not in found or "sin" not in found:
        raise InputError(f"{path} needs arrays cos and sin, it has {', '.join(found) or 'none'}")
    count = len(found["cos"]) if found["cos"].ndim else 0
    places = found.get("positions", np.arange(count, dtype=np.float64))
    exact = (places >= 0) & (places <= LARGEST_POSITION) & (np.floor(places) == places)
    if places.ndim != 1 or not exact.all():
        raise InputError(f"{path}: positions must be a list of whole numbers from 0 to 2^53")
    positions = places.astype(np.int64)
    if 1 not in positions:
        raise InputError(f"{path} has no row for position 1")
    return from_tables(positions, found["cos"], found["sin"], spec.rotary_dim // 2)


# The path comes first: what is unpickled after it is imported from there.
CHILD = """
import os, pickle, sys
sys.path = pickle.load(sys.stdin.buffer)
answers, *job = pickle.load(sys.stdin.buffer)
from ropelab.audit.observed import from_factory
from ropelab.runs.errors import RopelabError
me = os.getpid()
try:
    answer = from_factory(*job)
except RopelabError as error:
    answer = error
if os.getpid() == me:
    with open(answers, "wb") as file:
        pickle.dump(answer, file)
os._exit(0)
"""


def in_a_child(module: str, factory: str, spec: RopeSpec, positions: Positions) -> Observed:
    """Ask a factory in a process of its own, which is refused if it ends without an answer."""
    name = f"{module}:{factory}"
    with TemporaryDirectory(prefix="ropelab-") as place:
        answers, printed = Path(place, "answers"), Path(place, "printed")
        job = (str(answers), module, factory, spec, positions)
        # A file for its output: what it forks may hold a pipe open.
        with printed.open("wb") as output:
            try:
                done = subprocess.run(
                    [sys.executable, "-P", "-u", "-c", CHILD],
                    input=pickle.dumps(sys.path) + pickle.dumps(job),
                    stdout=output,
                    stderr=output,
                    timeout=LONGEST_SECONDS,
                )
                problem = f"ended with status {done.returncode}, no answer"
            except subprocess.TimeoutExpired:
                problem = f"gave no answer within {LONGEST_SECONDS} seconds"
        if text := printed.read_bytes().decode(errors="replace").rstrip():
            say(text)
        try:
            answer = pickle.loads(answers.read_bytes())
        except Exception:
            raise InputError(f"{name} {problem}") from None
    if isinstance(answer, RopelabError):
        raise answer
    return answer


def from_factory(module: str, factory: str, spec: RopeSpec, positions: Positions) -> Observed:
    """Ask the function that the user's factory returns for tables or for rotated vectors."""
    name = f"{module}:{factory}"
    try:
        sys.path.insert(0, str(Path.cwd()))
        try:
            made = getattr(importlib.import_module(module), factory)()
        except (ImportError, AttributeError) as error:
            raise InputError(f"cannot load {name}: {error}") from None
        if not callable(made):
            raise InputError(f"{name} made a {type(made).__name__}, which cannot be called")
        # One required argument: positions; two: vectors and positions.
        parameters = inspect.signature(made).parameters.values()
        positional = [
            p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if sum(p.default is p.empty for p in positional) != 1:
            return from_rotation(lambda x, p: as_array(call(made, x, p)), spec.head_dim, positions)
        answer = call(made, positions)
        try:
            cos, sin = answer
        except (TypeError, ValueError):
            kind = type(answer).__name__
            raise InputError(f"{name} answers with a {kind}, not with cos and sin") from None
        return from_tables(positions, as_array(cos), as_array(sin), spec.rotary_dim // 2)
    except RopelabError:
        raise
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        inside = where.filename not in (__file__, inspect.__file__) and where.lineno
        at = f" ({Path(where.filename).name}, line {where.lineno})" if inside else ""
        raise InputError(f"{name} raised {type(error).__name__}: {error}{at}") from None


def call(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """Call with float32 arrays; code that refuses them is given torch tensors."""

    def given() -> list[np.ndarray]:
        # Copies, as the code may change what it is given.
        return [a.astype(np.float32 if a.dtype == np.float64 else a.dtype) for a in arrays]

    try:
        return function(*given())
    except (TypeError, AttributeError):
        if "torch" not in sys.modules:
            raise
    import torch

    with torch.no_grad():
        return function(*map(torch.from_numpy, given()))


def as_array(value: Any) -> np.ndarray:
    """Return a tensor or array as float64; a leading dimension of one is dropped."""
    if hasattr(value, "detach"):
        value = value.detach().double().cpu().numpy()
    if np.iscomplexobj(value):
        raise InputError("complex numbers were returned: give cos and sin, or rotated vectors")
    array = np.asarray(value, dtype=np.float64)
    return array[0] if array.ndim == 3 and len(array) == 1 else array


def from_folder(folder: Path, spec: RopeSpec, positions: Positions, dtype: str) -> Observed:
    """Ask transformers' own rotary class, built from the folder's config.json alone."""
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
    try:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    except ImportError:
        problem = "checking a model folder needs transformers: pip install '.[hf]'"
        raise InputError(problem) from None
    _, text = language_part(load(str(folder)).config)
    kind = str(text.get("model_type"))
    if kind not in CONFIG_MAPPING:
        raise InputError(f"the installed transformers has no model type '{kind}'")
    config_class = CONFIG_MAPPING[kind]
    package = config_class.__module__.rpartition(".configuration_")
    classes = importlib.import_module(f"{package[0]}.modeling_{package[2]}")
    for name, found in vars(classes).items():
        own = getattr(found, "__module__", "") == classes.__name__
        if own and name.endswith("RotaryEmbedding") and "Vision" not in name:
            try:
                return found(config=config_class.from_dict(dict(text)).get_text_config())
            except (KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
                raise InputError(f"{name} refuses the configuration: {error}") from None
    raise InputError(f"no rotary embedding in {classes.__name__}")
