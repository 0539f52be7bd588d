"""Every architecture of the table in docs/models.md, compared with transformers' own
results.
"""

import pytest

from ropelab.models.released.model import ReleasedModel
from ropelab.runs.errors import InputError
from tests.models.released.architectures import (
    ARCHITECTURES,
    DOCUMENT,
    METHODS,
    NEAR,
    REFUSED,
    refusal,
    row,
    served,
)
from tests.models.released.tiny import config, untouched
from tests.small import mostly_slow

# One of each kind of place and cache; the others are asked by `make test-all`.
FEW = ("llama", "gemma3_text", "deepseek_v3", "gpt_neox", "cohere")
LINES = DOCUMENT.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("model_type", mostly_slow(ARCHITECTURES, FEW))
def test_an_architecture_is_read_as_transformers_reads_it(model_type, tmp_path):
    found = served(model_type, tmp_path)
    assert found.unmodified < NEAR
    assert found.parts < NEAR
    for method, difference in found.methods.items():
        assert difference is None or difference < NEAR, method
    assert row(model_type, found) in LINES, (
        "python -m tests.models.released.architectures --write"
    )


@pytest.mark.parametrize("model_type", REFUSED)
def test_what_cannot_be_served_is_refused_in_the_words_of_the_document(
    model_type, tmp_path
):
    untouched(model_type).save_pretrained(tmp_path)
    with pytest.raises(InputError) as error:
        ReleasedModel(tmp_path)
    assert refusal(model_type, error.value) in LINES


def test_the_table_is_of_these_architectures_and_of_most_methods():
    rows = [
        line
        for line in LINES
        if line.startswith("| ") and line.endswith((" yes |", " no |"))
    ]
    assert [line.split(" | ")[0].removeprefix("| ") for line in rows] == list(
        ARCHITECTURES
    )
    compared = sum(line.count("| =") for line in rows)
    assert compared > 0.9 * len(ARCHITECTURES) * (1 + len(METHODS))
    assert (
        len({config(name, **ARCHITECTURES[name]).model_type for name in ARCHITECTURES})
        >= 25
    )
