"""What a configuration says about positions, against models built from it."""

import json

import pytest

from ropelab.models.released.facts import read_facts
from ropelab.runs.errors import InputError
from tests.models.released.architectures import DEEPSEEK
from tests.models.released.test_unmodified import LLAMA3, YARN
from tests.models.released.tiny import config

LAYERS = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 24}


def facts(folder, model_type, **changes):
    config(model_type, **changes).save_pretrained(folder)
    return read_facts(str(folder))


@pytest.mark.parametrize(
    ("model_type", "changes", "expected"),
    [
        ("llama", {}, (64, 1e4, 16)),
        ("llama", {"head_dim": None}, (64, 1e4, 8)),
        (
            "gpt_neox",
            {"rotary_pct": 0.25, "rotary_emb_base": 5e3, "head_dim": None},
            (64, 5e3, 2),
        ),
        ("stablelm", {"partial_rotary_factor": 0.5, "head_dim": None}, (64, 1e4, 4)),
        (
            "llama",
            {"rope_parameters": LLAMA3, "max_position_embeddings": 512},
            (64, 1e4, 16),
        ),
        (
            "qwen2",
            {"rope_parameters": YARN, "max_position_embeddings": 256},
            (64, 1e4, 16),
        ),
        ("deepseek_v3", DEEPSEEK, (64, 1e4, 8)),
        ("gptj", {"rotary_dim": 4, "head_dim": None}, (64, 1e4, 4)),
        ("gemma3_text", LAYERS, (64, 1e6, 16)),
        ("minimax_m2", {"rotary_dim": 8}, (64, 5e6, 8)),
    ],
)
def test_length_base_and_width(tmp_path, model_type, changes, expected):
    found = facts(tmp_path, model_type, **changes)
    assert (found.train_len, found.base, found.rotary_dim) == expected


@pytest.mark.parametrize(
    ("model_type", "changes", "expected"),
    [
        ("llama", {}, 16),
        ("gpt_neox", {"rotary_pct": 0.25, "head_dim": None}, 8),
        ("minimax_m2", {"rotary_dim": 8}, 16),
        # 8 features that do not rotate, and 8 that do.
        ("deepseek_v3", DEEPSEEK, 16),
    ],
)
def test_a_score_comes_from_the_whole_head(tmp_path, model_type, changes, expected):
    assert facts(tmp_path, model_type, **changes).head_dim == expected


def test_the_trained_length_may_stand_beside_the_scaling(tmp_path):
    """Phi-3: original_max_position_embeddings at the top level of config.json."""
    values = {"model_type": "phi3", **config("phi3", head_dim=None).to_dict()}
    del values["rope_parameters"]
    values |= {"max_position_embeddings": 256, "original_max_position_embeddings": 64}
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}
    values["rope_scaling"] = {"type": "longrope", **factors}
    (tmp_path / "config.json").write_text(json.dumps(values))
    found = read_facts(str(tmp_path))
    assert (found.train_len, found.claimed_len, found.rope_type) == (
        64,
        256,
        "longrope",
    )


def test_windows_are_those_of_the_layers_that_have_one(tmp_path):
    assert facts(tmp_path / "a", "gemma3_text", **LAYERS).windows == (24,)
    assert facts(tmp_path / "a", "gemma3_text", **LAYERS).windowed_layers == 1
    mistral = facts(tmp_path / "b", "mistral", sliding_window=32)
    assert (mistral.windows, mistral.windowed_layers) == ((32,), 2)
    assert facts(tmp_path / "c", "llama").windows == ()
    assert (
        facts(
            tmp_path / "d", "qwen2", sliding_window=32, use_sliding_window=False
        ).windows
        == ()
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must hold a JSON object, not a list"),
        ("{", "is not valid JSON"),
        ("{}", "no configuration of a language model"),
        (
            '{"model_type": "llama", "num_hidden_layers": 1000000}',
            "num_hidden_layers is 1,000,000",
        ),
        (
            '{"model_type": "llama", "hidden_size": "wide"}',
            "no configuration of a language model",
        ),
        ('{"model_type": "llama", "hidden_size": 10000000000000}', "above any model's"),
        ('{"model_type": "mamba"}', "names no max_position_embeddings"),
        ('{"model_type": "no-such-model"}', "has no 'no-such-model'"),
        (
            '{"auto_map": {"AutoConfig": "evil.Config"}}',
            "no configuration of a language model",
        ),
        ("[" * 5000 + "]" * 5000, "is nested too deeply"),
    ],
)
def test_what_is_no_configuration_is_refused_in_one_line(tmp_path, text, message):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=message) as refusal:
        read_facts(str(tmp_path))
    assert len(str(refusal.value).splitlines()) == 1
