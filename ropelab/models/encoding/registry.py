"""Every encoding by name, the rows of encodings.toml, without importing torch."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ropelab.runs.errors import InputError, known, unknown_name
from ropelab.runs.files import table_beside
from ropelab.runs.own import find, reference_of

if TYPE_CHECKING:
    from ropelab.models.encoding.base import Encoding

# Keeps an encoding's draws apart from those of a model with the same seed (32 bits
# count).
RANDOM_STREAM = 2**31

# Places where positions enter, by the file of a class.
FAMILIES = table_beside(__file__, "families")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The model around an encoding, in features and tokens."""

    layers: int
    width: int
    heads: int
    head_dim: int
    trained_len: int  # the longest window seen in training


SIZES = tuple(field.name for field in fields(Shape))


@dataclass(frozen=True, kw_only=True)
class Record:
    """An encoding before it is measured; see encodings.toml."""

    label: str
    source: str
    make: str
    options: Mapping[str, Any] = field(default_factory=dict)
    per_layer: bool = False
    parameters: str = "0"
    claim: str = "none"
    further: bool = False

    @property
    def family(self) -> str:
        if ":" not in self.make:
            return FAMILIES[self.make.partition(".")[0]]
        # Of one's own: the place at which its class acts.
        made = vars(find("encodings", self.make))
        at = {"embed": "embeddings", "query": "rotation", "key": "rotation"}
        return next((family for name, family in at.items() if name in made), "scores")

    @property
    def least_head_dim(self) -> int:
        """The narrowest head whose rotated share has a pair of features."""
        return int(2 / self.options.get("share", 1.0))


ENCODINGS = {
    name: Record(**row) for name, row in table_beside(__file__, "encodings").items()
}
# Those compared by default, and those compared only where they are named.
STANDARD = {name: record for name, record in ENCODINGS.items() if not record.further}
FURTHER = {name: record for name, record in ENCODINGS.items() if record.further}


def record_of(name: str, *groups: str) -> Record:
    """Return the record of an encoding, also of one from outside; InputError if there
    is none.

    The error suggests the names of `groups`, too.
    """
    if name in ENCODINGS:
        return ENCODINGS[name]
    if "(" in name:
        return Record(
            label=name, source="composed of encodings by name", make="composed"
        )
    found = find("encodings", name)
    if found is None:
        raise unknown_name("encoding", name, (*ENCODINGS, *groups))
    from ropelab.models.encoding.base import Encoding

    if not (isinstance(found, type) and issubclass(found, Encoding)):
        raise InputError(f"{name} must be a class below Encoding (docs/own.md)")
    return Record(label=found.__name__, source=name, make=reference_of(found))


def make_encoding(name: str, shape: Shape, seed: int = 0) -> "Encoding":
    """Return an encoding by name with parameters drawn from `seed` only; InputError if
    unknown.
    """
    with drawing_from(seed):
        return made(name, shape, {})


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Draw the parameters of encodings from a seed only, and leave torch's own draws
    alone.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RANDOM_STREAM + seed)
        yield


def made(name: str, shape: Shape, options: Mapping[str, Any]) -> "Encoding":
    """Return an encoding by name with options of its class; InputError if one is
    unknown.
    """
    from ropelab.models.encoding.base import PerLayer

    record = record_of(name)
    make = find("encodings", record.make)
    if make is None:
        module, _, attribute = record.make.partition(".")
        make = attrgetter(attribute)(import_module(f"ropelab.models.encoding.{module}"))
    wanted = inspect.signature(make).parameters.values()
    named = [each.name for each in wanted if each.kind is not each.VAR_KEYWORD]
    free = [each for each in named if each not in SIZES]
    if options and not free:
        raise InputError(f"{name} takes no parameters, so not {', '.join(options)}")
    for option in options:
        known(f"parameter of {name}", option, free)
    arguments = {size: getattr(shape, size) for size in SIZES if size in named}
    arguments |= {**record.options, **options}
    try:
        inspect.signature(make).bind(**arguments)
    except TypeError as error:
        raise InputError(f"{name}: {error}; write it as in rope(base=500000)") from None
    if record.per_layer:
        return PerLayer(make(**arguments) for _ in range(shape.layers))
    return make(**arguments)
