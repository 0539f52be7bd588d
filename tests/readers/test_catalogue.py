"""Known models compute with `freqs` what `audit` reads from their configurations."""

from typing import Any

import numpy as np
import pytest

from ropelab.experiments.freqs import FreqsConfig
from ropelab.experiments.freqs.pairs import compute
from ropelab.math.methods import parse_scaling
from ropelab.math.models import MODELS, KnownModel
from ropelab.readers import registry
from ropelab.readers.spec import RopeSpec
from ropelab.runs.config import build

# Published configurations under other names, in tests/readers/oracles/real.json.
NAMES = {"qwen2.5-7b": "qwen2.5-7b-yarn", "qwen3-8b": "qwen3-8b-yarn"}
TYPES = {"yarn": "yarn", "llama3": "llama3", "pi": "linear"}
LEFT_OUT = {"attention_factor", "mscale", "mscale_all_dim"}


def built(model: KnownModel) -> dict[str, Any]:
    """A configuration with the numbers of a model that has no published one here."""
    scaling = parse_scaling(model.method)
    config: dict[str, Any] = {
        "model_type": "llama" if model.rotary_width == model.head_dim else "phi",
        "hidden_size": model.head_dim,
        "num_attention_heads": 1,
        "rope_theta": model.base,
        "partial_rotary_factor": model.rotary_width / model.head_dim,
        "max_position_embeddings": model.promised_len,
    }
    if scaling.name != "unscaled":
        values = {
            k: v for k, v in vars(scaling).items() if k not in LEFT_OUT or v is not None
        }
        original = {"original_max_position_embeddings": model.trained_len}
        config["rope_scaling"] = {
            "rope_type": TYPES[scaling.name],
            **values,
            **original,
        }
    return config


def audited(name: str, configs: dict[str, dict[str, Any]]) -> RopeSpec:
    return registry.read_main_rotation(
        name, configs.get(NAMES.get(name, name)) or built(MODELS[name])
    )


@pytest.mark.parametrize("name", sorted(MODELS))
def test_freqs_and_audit_agree(name: str, golden: Any) -> None:
    model, spec = MODELS[name], audited(name, golden.configs)
    tables = compute(**build(FreqsConfig, {"model": name}).model_dump())
    scaled = tables["pairs"]["scaled_inv_freq"]
    np.testing.assert_allclose(scaled, spec.inv_freq(model.promised_len), rtol=1e-12)
    multiplier = tables["scaling"]["logit_multiplier"].item()
    assert multiplier == pytest.approx(spec.logit_multiplier, rel=1e-12)


def test_deepseek_multiplies_whole_scores(golden: Any) -> None:
    assert audited("deepseek-v3", golden.configs).logit_multiplier == pytest.approx(
        1.8739, abs=1e-4
    )
