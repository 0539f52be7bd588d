"""The encoding with which a context is evaluated, and what comes of it per document."""

import numpy as np
import pytest
import torch

from ropelab.math.frequencies import Geometry
from ropelab.models.encoding.absolute import Learned
from ropelab.models.encoding.base import Encoding
from ropelab.models.lm.evaluation import compute_token_losses
from ropelab.models.lm.model import LanguageModel, ModelSize
from ropelab.models.methods.method import FixedMethod
from ropelab.models.methods.registry import parse_methods
from ropelab.models.tasks import grid
from ropelab.models.tasks.modes import AsTrained, SlidingWindow, WithMethod
from ropelab.models.tasks.retrieval import Retrieval
from ropelab.models.tasks.task import Texts
from tests.models.tasks.running import corpus_of, nothing

GEOMETRY = Geometry(16, 10000.0, 64)


@pytest.fixture(scope="module")
def texts(corpora) -> Texts:
    return Texts(
        corpus=corpus_of(corpora[0]),
        documents=2,
        buckets=tuple(grid.list_buckets(64, 256)),
        contexts=tuple(grid.list_context_lengths(64, 256)),
        last=16,
    )


def under(method: str) -> WithMethod:
    return WithMethod(parse_methods([method], GEOMETRY, 256)[0], GEOMETRY)


def encoding_at(mode: WithMethod, length: int) -> Encoding:
    assert isinstance(mode.method, FixedMethod)
    return mode.method.encoding(GEOMETRY, length)


def model_with(encoding: Encoding) -> LanguageModel:
    """A model that says something, without training."""
    size = ModelSize(vocabulary=256, layers=1, width=16, heads=1, head_dim=16)
    model = LanguageModel(size, encoding)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model


def test_a_dynamic_method_is_measured_as_a_prompt_of_each_length_would_be_read(texts):
    mode = under("dynamic_ntk")
    model = model_with(encoding_at(mode, 64))
    measured = texts.measure(model, mode, nothing)
    tokens, _ = texts.corpus.documents(257, 2)
    for start, end in texts.buckets:
        model.encoding = encoding_at(mode, end)
        expected = (
            compute_token_losses(model, tokens[:, : end + 1])[:, start:]
            .double()
            .mean(dim=1)
        )
        rows = measured["buckets"].query("bucket_end_tokens == @end")
        np.testing.assert_allclose(rows["nll_nats_per_byte"], expected, rtol=1e-5)
    for context in texts.contexts:
        model.encoding = encoding_at(mode, context)
        expected = (
            compute_token_losses(model, tokens[:, -context - 1 :], 16)
            .double()
            .mean(dim=1)
        )
        rows = measured["last_window"].query("context_tokens == @context")
        np.testing.assert_allclose(rows["nll_nats_per_byte"], expected, rtol=1e-5)


def test_inside_the_window_a_sliding_window_changes_nothing(texts):
    plain = under("unscaled")
    model = model_with(encoding_at(plain, 64))
    whole, sliding = (
        texts.measure(model, mode, nothing)
        for mode in (plain, SlidingWindow(plain, 64))
    )
    inside = whole["buckets"]["bucket_end_tokens"] <= 64
    one, other = (rows["buckets"]["nll_nats_per_byte"] for rows in (whole, sliding))
    # products of other shapes round otherwise
    same = np.isclose(one, other, rtol=1e-6, atol=0)
    assert same[inside].all()
    assert not same[~inside].any()


def test_where_an_encoding_is_not_defined_nothing_is_measured(texts):
    model = model_with(Learned(64, 16))
    measured = texts.measure(model, AsTrained(), nothing)
    assert measured["buckets"]["bucket_end_tokens"].max() == 64
    assert measured["last_window"]["context_tokens"].unique().tolist() == [16, 32, 64]
    places = grid.pair_places(
        grid.list_retrieval_distances(64, 256), grid.list_retrieval_contexts(64, 256)
    )
    copying = Retrieval(name="copy", places=places, sequences=2, corpus=texts.corpus)
    found = copying.measure(model, AsTrained(), nothing)["trials"]
    assert found["context_tokens"].max() == 64
    assert set(found["distance_tokens"]) == {8, 16, 32, 48}
