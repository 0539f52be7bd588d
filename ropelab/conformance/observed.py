"""A rotary code's answers at given positions.

The code is a function, or a class of transformers.
"""

import importlib.util
import inspect
import os
import pickle
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ropelab.conformance import (
    answers,
    calls,
    calls_of_axes,
    calls_of_images,
    parameters,
    ways,
)
from ropelab.conformance.answers import name_parts, split_complex_table, to_numbers
from ropelab.conformance.calls import ask_function
from ropelab.conformance.observation import Observed, Positions
from ropelab.conformance.parameters import list_parameters, list_required
from ropelab.conformance.rotations import observe_tables
from ropelab.readers.axes import VISION_CONFIG
from ropelab.readers.document import load
from ropelab.readers.families import WHOLES
from ropelab.readers.spec import RopeSpec
from ropelab.readers.trace import Trace, language_part
from ropelab.runs.errors import (
    InputError,
    MachineError,
    RopelabError,
    cut_text,
    known,
    require,
    say,
)
from ropelab.runs.from_source import importing
from ropelab.runs.temporary import TemporaryFolder

# Endings of the names of transformers' rotary classes; the last are DINOv3's.
ROTARY_CLASSES = ("RotaryEmbedding", "RopePositionEmbedding")
# A factory and its function may take so long.
LONGEST_SECONDS = 600


def recover_frequencies(observed: Observed) -> Float[np.ndarray, " pairs"]:
    """Return radians per token, refined from small positions to large ones."""
    order = np.argsort(observed.positions)
    angles = np.arctan2(observed.sin, observed.cos)[order]
    places = observed.positions[order].astype(np.float64)
    start = int(np.flatnonzero(places == 1)[0])
    frequencies = angles[start].copy()

    # At every further position the angle is known up to whole rotations, and the
    # frequency so far says how many, as long as its error times the position stays
    # below half a rotation: below 2^6 rad, as its relative error is about 2^-8 where
    # tables are in bfloat16.
    for place, angle in zip(places[start + 1 :], angles[start + 1 :], strict=True):
        rotations = np.round((frequencies * place - angle) / (2 * np.pi))
        refined = (angle + 2 * np.pi * rotations) / place
        is_known = np.abs(frequencies) * place < 2**6
        frequencies = np.where(is_known, refined, frequencies)
    return frequencies


# The status of a process that could not write its answer (EX_IOERR of sysexits.h).
NOT_WRITTEN = 74

# The path comes first: what is unpickled after it is imported from there.
CHILD = """
import pickle, sys
sys.path = pickle.load(sys.stdin.buffer)
from ropelab.conformance.observed import answer_job
answer_job(*pickle.load(sys.stdin.buffer))
"""


def answer_job(answers: str, *job: Any) -> None:
    """Write what a factory answers, or its error, and end the process."""
    me = os.getpid()
    answer: Any
    try:
        try:
            answer = ask_factory(*job)
        except RopelabError as error:
            answer = error
        # The factory may have forked.
        if os.getpid() == me:
            Path(answers).write_bytes(pickle.dumps(answer))
    except OSError:
        os._exit(NOT_WRITTEN)
    finally:
        # The code may have changed Python itself, so that even this fails. The process
        # ends here without a traceback, and its parent says that it gave no answer.
        os._exit(0)


def observe(target: str, spec: RopeSpec, positions: Positions) -> dict[str, Observed]:
    """Ask `package.module:factory` for tables or vectors, in a process of its own.

    InputError if it ends without an answer.
    """
    module, colon, factory = target.partition(":")
    if not colon:
        raise InputError(
            f"{target} is not a folder, an .npz or a package.module:factory"
        )
    with TemporaryFolder() as place:
        answers = Path(place, "answers")
        job = (str(answers), module, factory, spec, positions)
        problem = run_child(Path(place, "printed"), job)
        try:
            answer = pickle.loads(answers.read_bytes())
        # There is nothing, or a part of an answer.
        except Exception:
            raise InputError(f"{target} {problem}") from None
    if isinstance(answer, RopelabError):
        raise answer
    return answer


def run_child(printed: Path, job: tuple[Any, ...]) -> str:
    """Ask in a process of its own, repeat what it prints, and return how it ended."""
    sent = pickle.dumps(sys.path) + pickle.dumps(job)
    command = [sys.executable, "-P", "-u", "-c", CHILD]
    # A file for its output: what it forks may hold a pipe open.
    with printed.open("wb") as output:
        try:
            done = subprocess.run(
                command,
                input=sent,
                stdout=output,
                stderr=output,
                timeout=LONGEST_SECONDS,
            )
            if done.returncode == NOT_WRITTEN:
                raise MachineError(
                    f"no answer could be written to {printed.parent}: is the disk full?"
                )
            problem = f"ended with status {done.returncode}, no answer"
        except subprocess.TimeoutExpired:
            problem = f"gave no answer within {LONGEST_SECONDS} seconds"

    text = printed.read_bytes().decode(errors="replace").rstrip()
    if text:
        say(text)
    return problem


def ask_factory(
    module: str,
    factory: str,
    spec: RopeSpec,
    positions: Positions,
) -> dict[str, Observed]:
    """Ask what the user's factory returns.

    A function that needs arguments is asked itself.
    """
    name = f"{module}:{factory}"
    try:
        made = load_factory(module, factory)
        if not inspect.isfunction(made) or not list_required(list_parameters(made)):
            made = made()
        return ask_function(made, name, spec, positions)
    except RopelabError:
        raise
    except BaseException as error:
        kind = type(error).__name__
        place = describe_place(error)
        text = cut_text(str(error))
        raise InputError(f"{name} raised {kind}: {text}{place}") from None


def load_factory(module: str, factory: str) -> Any:
    """Import a module from the working folder, or an installed one."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        with importing(module):
            return getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot load {module}:{factory}: {error}") from None


def describe_place(error: BaseException) -> str:
    """Return the file and line in which the user's code stopped, in brackets."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    # Where this code calls the user's, the call itself failed.
    callers = (answers, calls, calls_of_axes, calls_of_images, parameters, ways)
    ours = {__file__, inspect.__file__}
    ours |= {str(module.__file__) for module in callers}
    if where.filename in ours or not where.lineno:
        return ""
    return f" ({Path(where.filename).name}, line {where.lineno})"


def ask_module(
    module: Any,
    spec: RopeSpec,
    positions: Positions,
    dtype: str,
    layer: str = "",
) -> Observed:
    """Ask a rotary class of transformers, for layers of that type if it has several."""
    import torch

    name = known("--dtype", dtype, ("float32", "bfloat16", "float16"))
    # The module takes the format of these values.
    values = torch.zeros(1, dtype=getattr(torch, name))
    arguments: list[Any] = [values, shape_positions(module, positions)]
    if hasattr(module, "num_patches_h"):
        arguments = [make_image(module, positions, values)]
    if has_layer_types(module):
        arguments.append(layer)
    with torch.no_grad():
        try:
            answer = module(*arguments)
        # Sections of positions may have another sum than its pairs.
        except RuntimeError as error:
            raise InputError(f"{type(module).__name__} stops: {error}") from None

    parts = name_parts(answer, [])
    numbers = {name: to_numbers(part) for name, part in parts.items()}
    tables = split_complex_table(numbers)
    cos = tables["cos"]
    sin = tables["sin"]
    # Encoders of images have no axis of rows.
    if cos.ndim == 3:
        cos = cos[0]
        sin = sin[0]
    order = positions
    if positions.ndim > 1:
        order = np.arange(positions.shape[-1])
    return observe_tables(order, cos, sin, spec)


def shape_positions(module: Any, positions: Positions) -> Any:
    """Return position ids [1, n], [3, 1, n] of text and images, or [n, 2] of patches."""
    import torch

    if positions.ndim == 1:
        return torch.from_numpy(positions)[None]
    if len(positions) == 2:
        return torch.from_numpy(positions.T.copy())
    return torch.from_numpy(positions)[:, None]


def make_image(module: Any, positions: Positions, values: Any) -> Any:
    """Return an image of so many patches, for a class that takes pixels."""
    rows, columns = (positions.max(axis=-1) + 1).tolist()
    size = module.config.patch_size
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return values.new_zeros(1, 3, rows * height, columns * width)


def has_layer_types(module: Any) -> bool:
    kinds = getattr(module, "rope_type", None)
    # ESM's is empty.
    return isinstance(kinds, dict) and bool(kinds)


def build_rotary(folder: Path, vision: bool = False) -> Any:
    """Return transformers' rotary class, built from the folder's config.json alone.

    ``vision``: that of the encoder of images instead of the language model's.
    """
    document = load(str(folder), images=True)
    if document.encoding:
        raise InputError(
            f"{document.name} is {document.encoding}, which transformers refuses: save"
            " it as UTF-8, without a byte order mark"
        )
    config = document.config
    _, text = language_part(config)
    if vision:
        text = config
    # A class that has defaults of its own for its text is asked itself, or that names
    # its type.
    has_defaults = str(config.get("model_type")) in WHOLES
    if has_defaults or Trace(config).model_type != text.get("model_type"):
        text = config

    require("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = str(text.get("model_type"))
    if kind not in CONFIG_MAPPING:
        raise InputError(f"the installed transformers has no model type '{kind}'")
    try:
        whole = CONFIG_MAPPING[kind].from_dict(dict(text))
        made = whole.get_text_config()
        if vision:
            made = getattr(whole, VISION_CONFIG, whole)
        # Encoders of images jitter positions while they are trained.
        return find_rotary_class(type(made))(config=made).eval()
    except InputError:
        raise
    # The class, or what checks its fields, may raise anything.
    except Exception as error:
        problem = " ".join(str(error).split())
        raise InputError(
            f"{kind}'s class refuses the configuration: {problem}"
        ) from None


def find_rotary_class(config_class: Any) -> Any:
    """Return the rotary class of a configuration class's language model.

    A type without code of its own has that of another: InternLM3's models are Llamas.
    """
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    path = config_class.__module__.replace(".configuration_", ".modeling_")
    if not importlib.util.find_spec(path):
        model: Any = MODEL_MAPPING[config_class]
        return find_rotary_class(model.config_class)

    # A module keeps its classes in the order of the file, in which the language model's
    # come first.
    module = importlib.import_module(path)
    candidates = []
    for value in vars(module).values():
        is_own = inspect.isclass(value) and value.__module__ == module.__name__
        if is_own and value.__name__.endswith(ROTARY_CLASSES):
            candidates.append(value)

    # A model of several parts has a class for each; its annotation names the
    # configuration.
    for candidate in candidates:
        signature = inspect.signature(candidate.__init__)
        annotation = signature.parameters["config"].annotation
        name = str(getattr(annotation, "__name__", annotation))
        if config_class.__name__ in re.findall(r"\w+", name):
            return candidate
    for candidate in candidates:
        if not any(part in candidate.__name__ for part in ("Vision", "Audio")):
            return candidate
    raise InputError(f"no rotary embedding in {module.__name__}")
