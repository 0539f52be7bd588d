"""Records in encodings.toml and the classes under `@encoding` belong together."""

import pytest

from ropelab.models.encoding import base
from ropelab.models.encoding.base import Encoding, PerLayer
from ropelab.models.encoding.registry import (
    ENCODINGS,
    Shape,
    find_record,
    import_classes,
    make_encoding,
)
from ropelab.runs.errors import InputError

SHAPE = Shape(layers=2, width=32, heads=2, head_dim=16, trained_len=64)


def test_every_record_has_a_class_and_every_class_a_record() -> None:
    assert set(import_classes()) == set(ENCODINGS)


@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_a_name_makes_the_class_that_stands_under_it(name: str) -> None:
    made = make_encoding(name, SHAPE)
    if isinstance(made, PerLayer):
        made = made.for_layer(0)
    assert type(made) is import_classes()[name]


def test_records_of_one_class_differ_in_their_options() -> None:
    classes = import_classes()
    for name, record in ENCODINGS.items():
        for other, same in ENCODINGS.items():
            if name != other and classes[name] is classes[other]:
                assert record.options != same.options, (name, other)


def test_a_name_stands_over_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "CLASSES", {"nope": Encoding})
    with pytest.raises(AssertionError):

        @base.encoding("nope")
        class Second(Encoding):
            """Another class of the same name."""


def test_a_composed_encoding_is_a_family_of_its_own() -> None:
    assert find_record("window(rope, 3)").family == "by layer"
    with pytest.raises(InputError):
        find_record("nope2")
