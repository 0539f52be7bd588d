"""Ask the ONNX builder what it computes: `python observe_onnx.py WHEEL SITE TRANSFORMERS
OUT.json`.

WHEEL is the unpacked wheel of onnxruntime-genai, SITE a folder with onnx_ir, ml_dtypes and
tqdm, TRANSFORMERS a folder with one of its releases, or `-` for the installed one. The
builder of each class is made without weights, and its tables of cos and sin are read.

The builder imports classes of images that transformers 4 lacks, and so does not start there.
What it makes of a configuration of transformers 4, the subject of its pull request 2609, is
asked with empty classes under these names.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import standins

SIZES = {
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 64,
    "vocab_size": 64,
    "max_position_embeddings": 32768,
    "rope_theta": 1e6,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
BETAS = {"beta_fast": 32.0, "beta_slow": 1.0}
BANDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, **BANDS}
LISTS = {
    "short_factor": [1.0 + i / 64 for i in range(32)],
    "long_factor": [1.0 + i for i in range(32)],
}
ORIGINAL = "original_max_position_embeddings"

LATER = ("Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration")
# No token beyond the small vocabulary.
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

# A model type, and the keys that are laid over the sizes.
ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        (kind, {})
        for kind in ("llama", "mistral", "qwen2", "qwen3", "gemma", "granite")
    ),
    *(
        (kind, {"rope_scaling": None})
        for kind in ("llama", "mistral", "qwen2", "qwen3")
    ),
    ("phi", {"partial_rotary_factor": 0.5}),
    ("llama", {"partial_rotary_factor": 0.5}),
    ("llama", {"head_dim": 32}),
    ("qwen2", {"rope_scaling": {"rope_type": "default"}}),
    ("qwen2", {"rope_scaling": {"type": "default"}}),
    ("qwen2", {"rope_scaling": {"type": "linear", "factor": 4.0}}),
    ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}),
    ("llama", {"rope_scaling": {**LLAMA3, ORIGINAL: 8192}}),
    ("llama", {"rope_scaling": {**LLAMA3, "low_freq_factor": 2.0, ORIGINAL: 4096}}),
    ("mistral", {"rope_scaling": {**LLAMA3, ORIGINAL: 8192}}),
    ("llama", {"rope_scaling": YARN}),
    ("llama", {"rope_scaling": {**YARN, **BETAS}}),
    ("qwen2", {"rope_scaling": {**YARN, **BETAS}}),
    ("qwen2", {"rope_scaling": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0}}),
    ("qwen2", {"rope_scaling": {**YARN, **BETAS, "attention_factor": 1.5}}),
    ("qwen2", {"rope_scaling": {**YARN, **BETAS, "mscale": 1.25}}),
    (
        "qwen2",
        {"rope_scaling": {**YARN, **BETAS, "mscale": 0.707, "mscale_all_dim": 0.5}},
    ),
    ("mistral", {"rope_scaling": {**YARN, **BETAS}}),
    ("mistral", {"rope_scaling": {**YARN, **BETAS, ORIGINAL: 128}}),
    ("granite", {"rope_scaling": {**YARN, "beta_fast": 32.0}}),
    ("gemma", {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    ("phi", {"partial_rotary_factor": 0.5, "rope_scaling": {**YARN, **BETAS}}),
    ("phi3", {}),
    ("phi3", {ORIGINAL: 32768}),
    ("phi3", {"rope_scaling": None, ORIGINAL: 32768}),
    ("phi3", {"rope_scaling": {"type": "longrope", **LISTS}, ORIGINAL: 4096}),
    ("phi3", {"rope_scaling": {"rope_type": "longrope", **LISTS}, ORIGINAL: 4096}),
    (
        "phi3",
        {
            "rope_scaling": {"type": "longrope", "rope_type": "longrope", **LISTS},
            ORIGINAL: 4096,
        },
    ),
    (
        "phi3",
        {
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0] * 24,
                "long_factor": [1.0 + i for i in range(24)],
            },
            ORIGINAL: 4096,
            "partial_rotary_factor": 0.75,
        },
    ),
)
BUILDERS = {
    "llama": ("llama", "LlamaModel"),
    "mistral": ("mistral", "MistralModel"),
    "qwen2": ("qwen", "QwenModel"),
    "qwen3": ("qwen", "Qwen3Model"),
    "gemma": ("gemma", "GemmaModel"),
    "granite": ("granite", "GraniteModel"),
    "phi": ("phi", "PhiModel"),
}


def builder_of(kind: str, config: Any) -> Any:
    """Return the class that builder.py chooses."""
    from importlib import import_module

    if kind == "phi3":
        longer = (
            config.max_position_embeddings != config.original_max_position_embeddings
        )
        name = "Phi3MiniLongRoPEModel" if longer else "Phi3MiniModel"
        return getattr(import_module("builders.phi"), name)
    module, name = BUILDERS[kind]
    return getattr(import_module(f"builders.{module}"), name)


def table_row(cos: Any, sin: Any) -> tuple[list[float], float]:
    """Return the angles and the factor of position 1."""
    factor = math.hypot(float(cos[0, 0]), float(sin[0, 0]))
    pairs = zip(cos[1].double().tolist(), sin[1].double().tolist(), strict=True)
    return [float(f"{math.atan2(s, c):.9g}") for c, s in pairs], float(f"{factor:.9g}")


def ask(kind: str, keys: dict[str, Any]) -> dict[str, Any]:
    import onnx_ir as ir
    from transformers import AutoConfig

    given = {**SIZES, **TOKENS, **keys}
    row: dict[str, Any] = {"config": {**given, "model_type": kind}}
    folder = Path(sys.argv[4]).parent / "asked"
    folder.mkdir(exist_ok=True)
    names = {"phi3": "Phi3ForCausalLM"}
    architecture = names.get(kind, f"{kind.capitalize()}ForCausalLM")
    written = {**row["config"], "architectures": [architecture]}
    (folder / "config.json").write_text(json.dumps(written))
    try:
        config = AutoConfig.from_pretrained(folder)
        float32 = ir.DataType.FLOAT
        made = builder_of(kind, config)
        built = made(config, float32, float32, "cpu", "", {})
        attributes = built.rope_attrs
        if "multi_cache" in attributes:
            tables = []
            for name in ("short", "long"):
                attributes["rescale_factors"] = attributes["multi_cache"][
                    f"{name}_factor"
                ]
                attributes["mscale"] = attributes["multi_cache"][f"{name}_mscale"]
                attributes["create_caches"] = True
                attributes["save_caches"] = False
                tables.append(table_row(*built.make_rotary_embedding_caches()))
            row["short"], row["factor"] = tables[0]
            row["inv_freq"], row["long_factor"] = tables[1]
            return row
        attributes["create_caches"] = True
        attributes["save_caches"] = False
        row["inv_freq"], row["factor"] = table_row(
            *built.make_rotary_embedding_caches()
        )
    except Exception as error:
        row["refused"] = f"{type(error).__name__}: {str(error)[:80]}"
    return row


def main(wheel: str, site: str, transformers: str, out: str) -> None:
    sys.path[:0] = [site, str(Path(wheel) / "onnxruntime_genai" / "models")]
    if transformers != "-":
        sys.path.insert(0, transformers)
    standins.install("", "onnxruntime", ("\0",), {})
    import transformers as package

    for name in LATER:
        if not hasattr(package, name):
            setattr(package, name, type(name, (), {}))

    rows = [ask(kind, keys) for kind, keys in ROWS]
    answers = {"transformers": package.__version__, "rows": rows}
    Path(out).write_text(json.dumps(answers, separators=(",", ":")) + "\n")


main(*sys.argv[1:])
