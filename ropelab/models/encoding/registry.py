"""Every encoding by name: its record in encodings.toml, and how it is built.

The class that implements a record's encoding stands under the decorator
`@encoding(name)` in a file of this folder. These files import torch. Names and records
are read without torch.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ropelab.runs.errors import InputError, check_known, make_name_error
from ropelab.runs.files import read_table_beside
from ropelab.runs.own import find_own

if TYPE_CHECKING:
    from ropelab.models.encoding.base import Encoding

# This is added to the seed of a model to make the seed of its encoding, so that model
# and encoding draw different numbers. torch uses the lowest 32 bits of a seed: models
# have the seeds below 2**31 (LARGEST_SEED), and encodings the seeds from 2**31 on.
RANDOM_STREAM = 2**31


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of the model that an encoding is built for."""

    layers: int
    # The features of a token between the layers.
    width: int
    # The heads of a layer, and the features of one head.
    heads: int
    head_dim: int
    # The number of tokens in the longest context seen in training.
    trained_len: int


# The names of sizes that an encoding may take as arguments.
SIZES = tuple(field.name for field in fields(Shape))


@dataclass(frozen=True, kw_only=True)
class EncodingRecord:
    """The facts about an encoding that are known without building it.

    encodings.toml explains the fields.
    """

    label: str
    source: str
    family: str
    options: Mapping[str, Any] = field(default_factory=dict)
    per_layer: bool = False
    # A formula for the number of weights that it adds, as "trained_len * width".
    parameters: str = "0"
    # What the paper says about positions beyond the trained length.
    claim: str = "none"
    further: bool = False

    @property
    def least_head_dim(self) -> int:
        """The smallest head_dim whose rotated share holds a pair, two features."""
        rotated_share = self.options.get("share", 1.0)
        return int(2 / rotated_share)


ENCODINGS = {
    name: EncodingRecord(**row)
    for name, row in read_table_beside(__file__, "encodings").items()
}
# `ropelab encodings` compares the standard encodings by default, and further encodings
# only where they are named.
STANDARD = {name: record for name, record in ENCODINGS.items() if not record.further}
FURTHER = {name: record for name, record in ENCODINGS.items() if record.further}


def find_record(name: str, *groups: str) -> EncodingRecord:
    """Return the record of an encoding, or make one for an encoding without a record.

    Encodings without a record are composed encodings, such as `window(rope, 64)`, and
    classes of the user, such as `mymodule:MyEncoding`.

    InputError: the name has no meaning. The error suggests the nearest name, of an
    encoding or of one of the `groups`, which each stand for several encodings.
    """
    if name in ENCODINGS:
        return ENCODINGS[name]
    is_composed = "(" in name
    if is_composed:
        source = "composed of encodings by name"
        # A composed encoding may have another family in each layer.
        return EncodingRecord(label=name, source=source, family="by layer")

    own_class = _find_own_class(name)
    if own_class is None:
        raise make_name_error("encoding", name, (*ENCODINGS, *groups))
    return EncodingRecord(
        label=own_class.__name__, source=name, family=_guess_family(own_class)
    )


def _find_own_class(name: str) -> "type[Encoding] | None":
    """Return the user's class of this name; None if the name is not the user's.

    InputError: the name refers to something else than an encoding.
    """
    own_class = find_own("encodings", name)
    if own_class is None:
        return None
    from ropelab.models.encoding.base import Encoding

    if not (isinstance(own_class, type) and issubclass(own_class, Encoding)):
        raise InputError(f"{name} must be a class below Encoding (docs/own.md)")
    # The base class has no positions: it is the encoding `nope`.
    if own_class is Encoding:
        raise InputError(f"{name} is no encoding of its own (docs/own.md)")
    return own_class


def _guess_family(own_class: "type[Encoding]") -> str:
    """Return the family of a user's class, judged by the hooks that it defines."""
    methods = own_class.__dict__
    if "embed" in methods:
        return "embeddings"
    if "query" in methods or "key" in methods:
        return "rotation"
    return "scores"


def make_encoding(name: str, shape: Shape, seed: int = 0) -> "Encoding":
    """Return an encoding by name, its parameters drawn from `seed` only.

    InputError: the name is unknown.
    """
    with drawing_from(seed):
        return build_encoding(name, shape, {})


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Draw the parameters of encodings from a seed only, in the block.

    The random state of torch outside the block is not changed.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(RANDOM_STREAM + seed)
        yield


def find_constructor(name: str) -> "Callable[..., Encoding]":
    """Return the function that builds an encoding: its class, or a method of the class.

    The name is one that `find_record` accepts.
    """
    if name in ENCODINGS:
        return import_classes()[name].constructor()
    own_class = _find_own_class(name)
    assert own_class is not None, "find_record refuses unknown names"
    return own_class


def import_classes() -> "Mapping[str, type[Encoding]]":
    """Return the class of each record."""
    # Each module that defines classes registers them when it is imported.
    from ropelab.models.encoding import (  # noqa: F401
        absolute,
        base,
        biases,
        from_input,
        relative,
        rope,
        rope_variants,
    )

    return base.CLASSES


def build_encoding(name: str, shape: Shape, options: Mapping[str, Any]) -> "Encoding":
    """Return an encoding by name; torch's random state decides its parameters.

    Its class gets the sizes of the model that it asks for, the options of its record,
    and `options`, which replace options of the record. InputError: the name or an
    option is unknown.
    """
    from ropelab.models.encoding.base import PerLayer

    record = find_record(name)
    construct = find_constructor(name)
    signature = inspect.signature(construct)
    argument_names = []
    for parameter in signature.parameters.values():
        # `*args` and `**kwargs` are not names of arguments.
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            argument_names.append(parameter.name)
    allowed = [argument for argument in argument_names if argument not in SIZES]
    _check_options(name, options, allowed)

    sizes = {size: getattr(shape, size) for size in SIZES if size in argument_names}
    arguments = {**sizes, **record.options, **options}
    try:
        signature.bind(**arguments)
    except TypeError as error:
        raise InputError(f"{name}: {error}; write it as in rope(base=500000)") from None

    if record.per_layer:
        return PerLayer(construct(**arguments) for _ in range(shape.layers))
    return construct(**arguments)


def _check_options(name: str, options: Mapping[str, Any], allowed: list[str]) -> None:
    # Users know the options as parameters of the encoding.
    if options and not allowed:
        raise InputError(f"{name} takes no parameters, so not {', '.join(options)}")
    for option in options:
        check_known(f"parameter of {name}", option, allowed)
