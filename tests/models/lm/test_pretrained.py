"""The models that come with the package: they are what the manifest says of them."""

import gzip
import hashlib
import math
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load

from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.experiments.extrapolate.pretrained import (
    PRETRAINED_VALUES,
    describe_pretrained,
)
from ropelab.experiments.extrapolate.rows import make_trainings
from ropelab.models.lm import pretrained
from ropelab.models.lm.model import LanguageModel
from ropelab.models.lm.pretrained import (
    FOLDER,
    find_pretrained,
    list_pretrained,
    write_pretrained,
)
from ropelab.models.lm.training import train
from ropelab.runs.cell import Context
from ropelab.runs.errors import InputError, MachineError

SEEDS = (0, 1, 2, 3, 4)
# Steps that are trained again.
FIRST_STEPS = 40


def config(**changes):
    values = {
        "train_len": 512,
        "test_len": 1024,
        "seeds": SEEDS,
        "pretrained": True,
        **changes,
    }
    return ExtrapolateConfig(**values)


def models(**changes):
    made = config(**changes)
    return make_trainings(made, made.geometry())


def test_five_models_are_those_of_the_default_recipe():
    assert tuple(list_pretrained()) == SEEDS
    for training in models():
        training.check_stored()
        stored = training.stored
        content = (FOLDER / stored.file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == stored.sha256
        assert stored.made["command"] == "make reference-models"


def test_all_of_them_take_no_more_than_twelve_megabytes():
    sizes = [path.stat().st_size for path in FOLDER.glob("*.safetensors.gz")]
    assert len(sizes) == len(SEEDS)
    assert sum(sizes) < 12e6


def test_a_model_is_read_and_has_learned_what_its_losses_say():
    training = models()[0]
    model, losses = training.model_and_losses(Context())
    assert len(losses) == training.recipe.steps
    assert losses[0] == pytest.approx(math.log(training.size.vocabulary), abs=1e-3)
    tensors = load(gzip.decompress((FOLDER / training.stored.file).read_bytes()))
    for name, weight in model.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, tensors[f"model.{name}"].float()), name
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_what_is_read_has_another_name_than_what_is_trained_here():
    (read,) = models(seeds=(3,))
    trained = replace(read, pretrained=False)
    assert read.key != trained.key
    assert read.key["weights"] == read.stored.sha256
    assert read.folders == ()
    assert read.resources.operations == 0


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"steps": 7}, "steps"),
        ({"base": 500.0}, "base"),
        ({"train_len": 256}, "train_len"),
        ({"heads": 2}, "heads"),
        ({"seeds": (9,)}, "seed 9"),
    ],
)
def test_a_model_that_did_not_come_with_ropelab_is_refused_by_what_differs(
    changes, named
):
    with pytest.raises(InputError, match=named):
        models(**changes)[0].check_stored()


def test_a_damaged_file_is_not_read(tmp_path, monkeypatch):
    (training,) = models(seeds=(0,))
    stored = training.stored
    content = bytearray((FOLDER / stored.file).read_bytes())
    content[-1] ^= 1
    (tmp_path / stored.file).write_bytes(content)
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    with pytest.raises(MachineError, match="install ropelab again"):
        stored.read()
    (tmp_path / stored.file).unlink()
    with pytest.raises(MachineError, match="cannot read"):
        stored.read()


def test_what_is_written_is_read_again(tmp_path, monkeypatch):
    (training,) = models(seeds=(0,))
    key = replace(training, pretrained=False).key
    weights = {"a.weight": torch.tensor([[1.0, 2.5]]), "b": torch.tensor([0.1])}
    write_pretrained(tmp_path, [(key, weights, [5.5, 1.0])], {"command": "x"})
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path)
    list_pretrained.cache_clear()
    try:
        read, losses = find_pretrained(key).read()
    finally:
        list_pretrained.cache_clear()
    assert losses == [5.5, 1.0]
    assert torch.equal(read["a.weight"], weights["a.weight"])
    assert torch.equal(read["b"], weights["b"].bfloat16().float())


@pytest.mark.parametrize(
    ("given", "are_there"),
    [
        ({}, True),
        ({"methods": ("yarn",), "test_len": 1024}, True),
        ({"seeds": (1, 2)}, True),
        ({"train_len": 512}, True),
        ({"seeds": (7,)}, False),
        ({"train_len": 256}, False),
        ({"preset": "tiny"}, False),
        ({"corpus": "a folder"}, False),
    ],
)
def test_quick_takes_these_models_where_they_can_answer(given, are_there):
    assert bool(describe_pretrained(given)) is are_there


def test_what_decides_a_model_is_what_the_manifest_says():
    # A field that changes the training and is not in the list would be ignored.
    (default,) = models(seeds=(0,))
    for name, value in PRETRAINED_VALUES.items():
        assert getattr(config(), name) == value, name
    assert default.recipe.window == PRETRAINED_VALUES["train_len"]


@pytest.mark.slow
def test_the_first_steps_of_a_training_have_the_losses_of_the_manifest(tmp_path):
    (read,) = models(seeds=(0,))
    stored = read.stored
    training = replace(read, pretrained=False)
    if training.key["task"]["corpus"] != stored.made["text"]:
        pytest.skip("trained on the standard library of another Python")

    # The schedule of the rates is that of all steps; only the first are made.
    class EnoughError(Exception):
        pass

    def first_batches(step, window, rows):
        if step == FIRST_STEPS:
            raise EnoughError
        return training.batch(step, window, rows)

    losses = []

    @contextmanager
    def progress(total):
        def advance(steps=1, *, note="", left=None):
            losses.append(float(note.removeprefix("loss ")))

        yield advance

    model = LanguageModel(training.size, training.encoding(), training.seed)
    with pytest.raises(EnoughError):
        train(model, first_batches, training.recipe, tmp_path, progress, training.dtype)
    _, before = stored.read()
    # Processors and formats of products differ by rounding, which grows with steps.
    assert losses == pytest.approx(before[:FIRST_STEPS], abs=0.05)
