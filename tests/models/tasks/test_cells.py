"""The pieces of a run: what a value depends on is in the key, and all of it can be sent
away.
"""

import pickle
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from shutil import copytree
from typing import Any, NamedTuple

import pytest
from torch.utils.flop_counter import FlopCounterMode

from ropelab.experiments.base_empirical import BaseEmpiricalConfig
from ropelab.experiments.base_empirical import retrieval as bases
from ropelab.experiments.encodings import EncodingsConfig
from ropelab.experiments.encodings import quality as encodings
from ropelab.experiments.evaluate import EvaluateConfig
from ropelab.experiments.evaluate import results as evaluate
from ropelab.experiments.extrapolate import ExtrapolateConfig
from ropelab.experiments.extrapolate import results as extrapolate
from ropelab.experiments.extrapolate.rows import make_trainings
from ropelab.experiments.spectrum import SpectrumConfig
from ropelab.experiments.spectrum import schemes as frequencies
from ropelab.models.lm.source import Mixture
from ropelab.models.lm.trained import Training
from ropelab.models.tasks.cells import Evaluation, collect
from ropelab.models.tasks.grid import RetrievalPlace
from ropelab.models.tasks.retrieval import NgramBaseline, Retrieval
from ropelab.runs.cell import Advance, Context, Values, list_with_prerequisites, silent
from ropelab.runs.config import Config, build
from ropelab.runs.errors import MachineError
from tests.models.released.tiny import reader_of_bytes
from tests.models.tasks.running import corpus_of
from tests.small import SMALL


class Lab(NamedTuple):
    config: type[Config]
    cells: Callable[[Any], list[Any]]
    values: dict[str, Any]

    def configured(self, **changes: Any) -> Config:
        return build(self.config, {**self.values, **changes})

    def evaluations(self, config: Config) -> list[Evaluation]:
        cells = [cell for cell in self.cells(config) if isinstance(cell, Evaluation)]
        # The behaviour of encodings is observed, not evaluated.
        return [cell for cell in cells if cell.kind != "behaviour"]


TINY = {"device": "cpu", "dtype": "float32", "documents": 3, "sequences": 2}
LABS = {
    "extrapolate": Lab(
        ExtrapolateConfig,
        extrapolate.cells,
        {
            **TINY,
            "train_len": 64,
            "test_len": 256,
            "head_dim": 16,
            "methods": "yarn",
            "tasks": "text,copy,copy_in_text,passkey",
            "arms": "zero_shot,finetuned",
            "finetune_steps": 1,
            "steps": 2,
            "casts": "position:bfloat16",
        },
    ),
    "encodings": Lab(
        EncodingsConfig,
        encodings.cells,
        {**SMALL, "dtype": "float32", "encodings": "nope,rope"},
    ),
    "spectrum": Lab(
        SpectrumConfig,
        frequencies.cells,
        {
            **SMALL,
            "dtype": "float32",
            "schemes": "unscaled,one(period=64)",
            "bands": "fast",
        },
    ),
    "base-empirical": Lab(
        BaseEmpiricalConfig,
        bases.cells,
        {
            **TINY,
            "bases": "10,1000",
            "train_len": 256,
            "layers": 1,
            "width": 32,
            "head_dim": 16,
            "steps": 2,
            "tokens_per_step": 512,
        },
    ),
}
# Another value for each field; `train_len` and `corpus` are filled in by the test.
OTHER = {
    "test_len": 320,
    "methods": "yarn(beta_fast=8)",
    "encodings": "nope,alibi",
    "bases": "10,2000",
    "schemes": "unscaled,one(period=32)",
    "bands": "slow",
    "tasks": "copy",
    "arms": "zero_shot,ceiling",
    "base": 500.0,
    "head_dim": 32,
    "width": 48,
    "heads": 4,
    "layers": 3,
    "preset": "base",
    "steps": 3,
    "lr_scale": 2.0,
    "finetune_steps": 2,
    "finetune_len": 128,
    "tokens_per_step": 1024,
    "first_window": 8,
    "seeds": "1",
    "documents": 4,
    "sequences": 3,
    "search": 3,
    "factor": 8.0,
    "depths": "10,90",
    "dtype": "bfloat16",
    "casts": "angle:bfloat16",
    "against": "table:bfloat16",
    "cache": "int8",
    "offsets": "0,64",
}
# Where it is computed, what is no task of a model, and models that come with the
# package, which have another size (tests/models/lm/test_pretrained.py).
NO_OWN_VALUE = {"device", "draws", "pretrained"}


def keys(lab: Lab, **values: Any) -> set[str]:
    return {
        f"{cell.kind} {cell.key}" for cell in lab.evaluations(lab.configured(**values))
    }


@pytest.mark.parametrize(
    ("lab", "field"),
    [
        (lab, field)
        for lab in LABS
        for field in LABS[lab].config.model_fields
        if field not in NO_OWN_VALUE
    ],
)
def test_any_field_that_changes_a_value_changes_a_key(lab, field, corpora):
    given = LABS[lab]
    others = {
        **OTHER,
        "train_len": given.values["train_len"] + 96,
        "corpus": corpora[1],
    }
    values = {"corpus": corpora[0]}
    assert keys(given, **values) != keys(given, **{**values, field: others[field]})


@pytest.mark.parametrize("lab", LABS)
def test_a_changed_corpus_changes_every_model_and_every_task_with_text(lab, corpora):
    given = LABS[lab]
    cells = [given.evaluations(given.configured(corpus=path)) for path in corpora]
    same = set()
    for one, two in zip(*cells, strict=True):
        assert one.key != two.key
        assert one.subject.key != two.subject.key
        if one.task.key == two.task.key:
            same.add(one.kind)
    tasks = set(given.config.model_fields["tasks"].default)
    assert same == {"copy", "associative_recall", "most_recent"} & tasks


def described(corpora: tuple[str, str], **changes: Any) -> Training:
    """A model of the extrapolation lab."""
    config = build(
        ExtrapolateConfig, {**LABS["extrapolate"].values, "corpus": corpora[0]}
    )
    return make_trainings(config.replace(**changes), config.geometry())[0]


def changed_by_one(one: Any) -> list[Any]:
    """A dataclass of numbers, with one field after the other another number."""
    values = {field.name: getattr(one, field.name) for field in fields(one)}
    return [replace(one, **{name: value / 2 or 0.5}) for name, value in values.items()]


def test_every_number_of_the_mixture_the_shape_and_the_recipe_is_in_the_key(corpora):
    training = described(corpora)
    others = [replace(training, mixture=each) for each in changed_by_one(Mixture())]
    for part in ("size", "recipe"):
        parts = changed_by_one(getattr(training, part))
        others += [replace(training, **{part: each}) for each in parts]
    keys = {str(each.key) for each in (training, *others)}
    assert len(keys) == 1 + len(others) > 20


def test_every_field_of_retrieval_is_in_its_key(corpora):
    one, two = (corpus_of(path) for path in corpora)
    task = Retrieval(
        name="copy_in_text", places=(RetrievalPlace(16, 64),), sequences=2, corpus=one
    )
    others: dict[str, Any] = {
        "name": "copy",
        "places": (RetrievalPlace(16, 128),),
        "sequences": 3,
        "corpus": two,
        "own": ("mine:Task", "0123"),
    }
    assert set(others) == {field.name for field in fields(Retrieval)}
    for name, value in others.items():
        other = replace(task, **{name: value})
        assert task.key != other.key
        assert NgramBaseline(task=task).key != NgramBaseline(task=other).key


# A released model

RELEASED = {
    "context": 256,
    "methods": "yarn",
    "device": "cpu",
    "tasks": "text,copy,passkey",
}
RELEASED |= {"casts": "position:bfloat16"}
RELEASED_OTHER = {
    "context": 320,
    "methods": "yarn(beta_fast=8)",
    "tasks": "multiquery",
    "documents": 4,
    "sequences": 3,
    "depths": "10,90",
    "packed": True,
    "bos": "no",
    "factor": 3.0,
    "dtype": "bfloat16",
    "casts": "angle:bfloat16",
    "against": "table:bfloat16",
    "cache": "int8",
    "offsets": "0,64",
}
WHERE_AND_WHETHER = {"device", "device_map", "limit_memory"}
"""Where it is computed, and whether at all: neither is part of a value."""


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> tuple[str, str]:
    """Two models of the same shape with different weights."""
    one, two = (tmp_path_factory.mktemp(name) for name in ("one", "two"))
    return reader_of_bytes(one), reader_of_bytes(two, initializer_range=0.03)


def released_keys(values: Mapping[str, Any]) -> set[str]:
    config = build(EvaluateConfig, values)
    return {str((cell.kind, cell.key)) for cell in evaluate.cells(config)}


@pytest.mark.parametrize(
    "field", sorted(set(EvaluateConfig.model_fields) - WHERE_AND_WHETHER)
)
def test_any_field_that_changes_a_value_of_a_released_model_changes_a_key(
    field, models, corpora
):
    values = {**RELEASED, "model": models[0], "corpus": corpora[0]}
    other = {**RELEASED_OTHER, "model": models[1], "corpus": corpora[1]}[field]
    assert released_keys(values) != released_keys({**values, field: other})


def test_another_model_or_another_text_is_asked_everything_anew(models, corpora):
    values = {**RELEASED, "model": models[0], "corpus": corpora[0]}
    assert not released_keys(values) & released_keys({**values, "model": models[1]})
    both = released_keys(values) & released_keys({**values, "corpus": corpora[1]})
    assert {key.split("'")[1] for key in both} == {"given-copy"}


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_a_changed_file_of_a_model_is_another_model(name, models, corpora, tmp_path):
    copytree(models[0], tmp_path / "copy")
    values = {**RELEASED, "model": models[0], "corpus": corpora[0]}
    same = released_keys({**values, "model": str(tmp_path / "copy")})
    assert same == released_keys(values)
    (tmp_path / "copy" / name).write_text((tmp_path / "copy" / name).read_text() + "\n")
    assert not same & released_keys({**values, "model": str(tmp_path / "copy")})


def test_what_a_pass_of_a_released_model_costs_is_known_from_its_files(models, corpora):
    """Within a factor of three, as for models trained here."""
    values = {**RELEASED, "tasks": "text,copy", "corpus": corpora[0], "documents": 3}
    config = build(EvaluateConfig, {**values, "model": models[0], "methods": "pi"})
    for task in config.tasks:
        cell = next(cell for cell in evaluate.cells(config) if cell.task.name == task)
        with FlopCounterMode(display=False) as counter:
            replace(cell, probe=None).tables(Context())
        assert 1 / 3 < cell.resources.operations / counter.get_total_flops() < 3
        assert cell.resources.exclusive


@pytest.mark.parametrize("lab", LABS)
def test_cells_are_small_and_can_be_sent_to_another_process(lab, corpora):
    given = LABS[lab]
    for cell in given.cells(given.configured(corpus=corpora[0])):
        sent = pickle.dumps(cell)
        assert len(sent) < 4000
        assert pickle.loads(sent).key == cell.key


def test_what_is_sent_away_gives_the_same_values(corpora, tiny_preset):
    lab = LABS["extrapolate"]
    here = lab.evaluations(lab.configured(corpus=corpora[0], arms="finetuned"))[:1]
    tables = [
        collect(cells, Values()) for cells in (here, pickle.loads(pickle.dumps(here)))
    ]
    for name, table in tables[0]["text"].items():
        assert table.equals(tables[1]["text"][name])


def test_every_model_is_trained_once_and_after_the_one_it_starts_from(
    corpora, tiny_preset
):
    lab = LABS["extrapolate"]
    changes = {
        "tasks": "copy",
        "methods": "unscaled,yarn,drope(steps=1)",
        "arms": "finetuned",
    }
    lines: list[str] = []

    def progress(
        description: str, total: float | None = None
    ) -> AbstractContextManager[Advance, bool | None]:
        lines.append(description)
        return silent(description, total)

    context = Context(progress=progress)
    config = lab.configured(corpus=corpora[0], **changes)
    for cell in list_with_prerequisites(lab.evaluations(config)).values():
        if isinstance(cell, Training):
            context.compute(cell)
    # The model as it was trained; it without rotations, three fine-tuned, and the
    # window's.
    of_models = [line for line in lines if line.endswith("model, seed 0")]
    kinds = [line.split()[0] for line in of_models]
    assert kinds == ["training", *["fine-tuning"] * 5]


def test_text_that_changed_since_is_not_taken_for_what_it_was(corpora):
    source = replace(corpus_of(corpora[0]), fingerprint="another")
    with pytest.raises(MachineError, match="changed while the run was going on"):
        source.corpus()


@pytest.mark.parametrize("lab", ["encodings", "base-empirical"])
def test_operations_are_known_before_as_they_are_counted_after(lab, corpora):
    """Within a factor of three: attention is counted in halves, and all of a block is
    computed.
    """
    given = LABS[lab]
    evaluations = given.evaluations(given.configured(corpus=corpora[0], seeds="0"))
    labels, subject = evaluations[0].labels, evaluations[0].subject
    first = {cell.kind: cell for cell in evaluations if cell.labels[0] == labels[0]}
    context = Context()
    assert isinstance(subject, Training)
    cells: list[Training | Evaluation] = [subject, *first.values()]
    for cell in cells:
        with FlopCounterMode(display=False) as counter:
            cell.tables(context)
        assert 1 / 3 < cell.resources.operations / counter.get_total_flops() < 3
    assert all(cell.prerequisites[0].key == subject.key for cell in first.values())


def test_cells_need_a_gpu_where_they_compute_on_one(corpora):
    lab = LABS["encodings"]
    evaluation = lab.evaluations(lab.configured(corpus=corpora[0]))[0]
    assert isinstance(evaluation.subject, Training)
    assert not (evaluation.resources.gpu or evaluation.subject.resources.gpu)
    on_gpu = replace(evaluation.subject, device="cuda")
    assert replace(evaluation, subject=on_gpu).resources.gpu
    assert on_gpu.resources.gpu
