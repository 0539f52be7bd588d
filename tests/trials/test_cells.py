"""The pieces of a run: what a value depends on is in the key, and all of it can be sent away."""

import pickle
from dataclasses import replace

import pytest

from ropelab.config import build
from ropelab.context import Context
from ropelab.errors import MachineError
from ropelab.experiments.base_empirical import plan as bases
from ropelab.experiments.base_empirical.config import BaseEmpiricalConfig
from ropelab.experiments.encodings import plan as encodings
from ropelab.experiments.encodings.config import EncodingsConfig
from ropelab.experiments.extrapolate import plan as extrapolate
from ropelab.experiments.extrapolate.config import ExtrapolateConfig
from ropelab.trials.cells import ask_all, train_all
from ropelab.trials.corpora import Source
from ropelab.trials.given import Given

TINY = {"device": "cpu", "dtype": "float32", "documents": 3, "sequences": 2}
LABS = {
    "extrapolate": (
        ExtrapolateConfig,
        extrapolate.questions,
        {
            **TINY,
            "train_len": 64,
            "test_len": 256,
            "head_dim": 16,
            "methods": "yarn",
            "arms": "zero_shot,finetuned",
            "finetune_steps": 1,
            "text_steps": 2,
            "copy_steps": 2,
        },
    ),
    "encodings": (
        EncodingsConfig,
        encodings.questions,
        {
            **TINY,
            "train_len": 64,
            "test_len": 256,
            "width": 16,
            "heads": 2,
            "head_dim": 8,
            "encodings": "nope,rope",
            "text_steps": 2,
            "copy_steps": 2,
            "tokens_per_step": 128,
        },
    ),
    "base-empirical": (
        BaseEmpiricalConfig,
        bases.questions,
        {
            **TINY,
            "bases": "10,1000",
            "train_len": 128,
            "layers": 1,
            "width": 32,
            "head_dim": 16,
            "text_steps": 2,
            "retrieval_steps": 2,
            "tokens_per_step": 512,
        },
    ),
}
# Another value for each field; `corpus` is filled in by the test.
OTHER = {
    "train_len": 80,
    "test_len": 320,
    "methods": "yarn(beta_fast=8)",
    "encodings": "nope,alibi",
    "bases": "10,2000",
    "tasks": "copy",
    "arms": "zero_shot,ceiling",
    "base": 500.0,
    "head_dim": 32,
    "width": 48,
    "heads": 4,
    "layers": 3,
    "preset": "base",
    "text_steps": 3,
    "copy_steps": 3,
    "retrieval_steps": 3,
    "finetune_steps": 2,
    "finetune_len": 128,
    "tokens_per_step": 1024,
    "first_window": 8,
    "seeds": "1",
    "documents": 4,
    "sequences": 3,
    "dtype": "bfloat16",
}
NO_OWN_VALUE = {"device", "hf"}
"""Where it is computed; and a model given, which brings its own test below."""


def keys(config, questions) -> set[str]:
    return {f"{cell.kind} {cell.key}" for cell in questions(config)}


@pytest.mark.parametrize(
    ("lab", "field"),
    [
        (lab, field)
        for lab, (config, _, _) in LABS.items()
        for field in config.model_fields
        if field not in NO_OWN_VALUE
    ],
)
def test_any_field_that_changes_a_value_changes_a_key(lab, field, corpora):
    config_class, questions, values = LABS[lab]
    values = {**values, "corpus": corpora[0]}
    other = corpora[1] if field == "corpus" else 160 if field == "train_len" else OTHER[field]
    one, two = (build(config_class, v) for v in (values, {**values, field: other}))
    assert keys(one, questions) != keys(two, questions)


@pytest.mark.parametrize("lab", LABS)
def test_a_changed_corpus_changes_every_key_of_text_and_no_other(lab, corpora):
    config_class, questions, values = LABS[lab]
    one, two = (
        [(c.kind, str(c.key)) for c in questions(build(config_class, {**values, "corpus": path}))]
        for path in corpora
    )
    same = [kind for (kind, key), (_, other) in zip(one, two, strict=True) if key == other]
    assert set(same) == {"copy"}
    assert "text" in {kind for kind, _ in one}


def test_a_model_given_is_asked_about_one_corpus_and_one_set_of_weights(corpora):
    config_class, questions, values = LABS["extrapolate"]
    cell = next(c for c in questions(build(config_class, {**values, "corpus": corpora[0]})))
    given = replace(cell, subject=Given("/a/model", "its weights"))
    other_text = replace(cell.trial, source=Source.of(corpora[1], 257))
    for changed in (
        replace(given, subject=Given("/a/model", "other weights")),
        replace(given, trial=other_text),
        replace(given, trial=replace(cell.trial, tokenizer="/a/model")),
    ):
        assert changed.key != given.key


@pytest.mark.parametrize("lab", LABS)
def test_cells_are_small_and_can_be_sent_to_another_process(lab, corpora):
    config_class, questions, values = LABS[lab]
    for cell in questions(build(config_class, {**values, "corpus": corpora[0]})):
        sent = pickle.dumps(cell)
        assert len(sent) < 4000
        assert pickle.loads(sent).key == cell.key


def test_what_is_sent_away_gives_the_same_values(corpora):
    config_class, questions, values = LABS["extrapolate"]
    config = build(config_class, {**values, "corpus": corpora[0], "arms": "finetuned"})
    here, there = questions(config)[:1], pickle.loads(pickle.dumps(questions(config)[:1]))
    tables = ask_all(here, Context()), ask_all(there, Context())
    for name, table in tables[0].items():
        assert table.equals(tables[1][name])


def test_every_model_is_trained_once_and_after_the_one_it_starts_from(corpora):
    config_class, questions, values = LABS["extrapolate"]
    methods = {"methods": "unscaled,yarn,drope(steps=1)", "arms": "finetuned"}
    config = build(config_class, {**values, "tasks": "copy", **methods})
    lines: list[str] = []

    def progress(line: str, total: float | None = None):
        lines.append(line)
        return Context().progress(line, total)

    train_all(questions(config), Context(progress=progress))
    # The model as it was trained; it without rotations, and three that are fine-tuned.
    assert lines == ["training copy model, seed 0", *["fine-tuning copy model, seed 0"] * 4]


def test_text_that_changed_since_is_not_taken_for_what_it_was(corpora):
    source = replace(Source.of(corpora[0], 257), fingerprint="another")
    with pytest.raises(MachineError, match="changed while the run was going on"):
        source.corpus()
