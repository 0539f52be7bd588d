"""Classes of transformers that have their rotation in their code, and read no scaling."""

import re
from pathlib import Path

import torch
import transformers
from transformers import CONFIG_MAPPING
from transformers.models.auto.configuration_auto import model_type_to_module_name
from transformers.models.roformer import modeling_roformer

from ropelab.readers import families, registry

# A class for rotation, or one of the two functions of classes that have none.
ROTATES = re.compile(
    r"^class \w*(Rotary|Rope|RoPE)\w*\(|def apply_rotary_position_embeddings"
    r"|^def rotate_every_two",
    re.MULTILINE,
)
READS = re.compile(r"rope_parameters|rope_scaling|ROPE_INIT_FUNCTIONS")


def test_classes_that_read_no_scaling_are_those_of_transformers() -> None:
    folder = Path(transformers.__file__).parent / "models"
    found = set()
    for kind in CONFIG_MAPPING:
        module = folder / model_type_to_module_name(kind)
        files = [*module.glob("modeling_*.py"), *module.glob("configuration_*.py")]
        text = "".join(file.read_text(encoding="utf-8") for file in files)
        if ROTATES.search(text) and not READS.search(text):
            found.add(kind)
    assert found == families.FIXED_TYPES


def test_roformer_rotates_by_numbers_in_its_code() -> None:
    config = {"model_type": "roformer", "hidden_size": 64, "num_attention_heads": 2}
    spec = registry.read(registry.RUNTIMES["transformers-5"], config).layers["all"]
    assert (spec.head_dim, spec.pairing) == (32, "interleaved")

    module = modeling_roformer.RoFormerSinusoidalPositionalEmbedding(16, 32)
    module.weight.data = module.create_weight()
    sine, cosine = module.weight[5].double().chunk(2)
    angles = 5 * torch.from_numpy(spec.inv_freq(16))
    assert torch.allclose(torch.cos(angles), cosine, atol=1e-6)
    assert torch.allclose(torch.sin(angles), sine, atol=1e-6)
