"""Write which models each runtime has a class for:
ropelab/readers/model_lists.json.

python tools/model_lists.py FOLDER

FOLDER holds the wheels of vllm, sglang, mlx-lm and exllamav3, the source distribution
of llama-cpp-python (for llama.cpp's converter), _arch_index.py of
tensorrt_llm/_torch/models, and tgi.py, text-generation-inference's
server/text_generation_server/models/__init__.py. They are parsed, not run.
"""

import ast
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from transformers.models.auto import modeling_auto

TARGET = Path(__file__).parents[1] / "ropelab/readers/model_lists.json"
Files = Iterator[tuple[str, str]]


def in_wheel(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".py"):
                yield name, archive.read(name).decode()


def in_sources(path: Path) -> Files:
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(".py") and (file := archive.extractfile(member)):
                yield member.name, file.read().decode()


def values(text: str, pattern: str) -> Iterator[ast.expr]:
    """Yield what is assigned to the names of a module that match."""
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(
            isinstance(target, ast.Name) and re.fullmatch(pattern, target.id)
            for target in targets
        ):
            yield node.value  # type: ignore[attr-defined]


def vllm(files: Files) -> set[str]:
    text = next(
        text
        for name, text in files
        if name.endswith("model_executor/models/registry.py")
    )
    # The other tables name models that it runs by transformers' classes, or no longer.
    tables = values(text, r"_(?!TRANSFORMERS|PREVIOUSLY|OOT)[A-Z_]+_MODELS")
    rows = (
        key for table in tables if isinstance(table, ast.Dict) for key in table.keys
    )
    return {key.value for key in rows if isinstance(key, ast.Constant)}


def sglang(files: Files) -> set[str]:
    found: set[str] = set()
    for name, text in files:
        if "srt/models/" in name:
            for value in values(text, "EntryClass"):
                nodes = (
                    value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
                )
                found |= {node.id for node in nodes if isinstance(node, ast.Name)}
    return found


def mlx(files: Files) -> set[str]:
    found: set[str] = set()
    for name, text in files:
        if "mlx_lm/models/" in name and re.search(
            r"^class Model\b", text, re.MULTILINE
        ):
            found.add(Path(name).stem)
        if name.endswith("mlx_lm/utils.py"):
            for table in values(text, "MODEL_REMAPPING"):
                found |= set(ast.literal_eval(table))
    return found


def exllamav3(files: Files) -> set[str]:
    texts = (text for name, text in files if "/architecture/" in name)
    return {
        found for text in texts for found in re.findall(r'arch_string = "(\w+)"', text)
    }


def llamacpp(files: Files) -> set[str]:
    found: set[str] = set()
    for name, text in files:
        if "/conversion/" in name or name.endswith("convert_hf_to_gguf.py"):
            for names in re.findall(r"@ModelBase\.register\(([^)]*)\)", text):
                found |= set(re.findall(r'"(\w+)"', names))
    return found


def tensorrt(text: str) -> set[str]:
    (table,) = values(text, "MODEL_ARCH_TO_MODULE")
    return set(ast.literal_eval(table))


def tgi(text: str) -> set[str]:
    return set(re.findall(r'"type": "([\w-]+)"', text))


def architectures() -> dict[str, str]:
    """Return the class of each model type, for files that name none."""
    tables = (
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    )
    found: dict[str, Any] = {}
    for table in tables:
        found |= getattr(modeling_auto, table)
    return {kind: name for kind, name in sorted(found.items()) if isinstance(name, str)}


def main(folder: Path) -> None:
    def only(pattern: str) -> Path:
        return next(folder.glob(pattern))

    lists = {
        "vllm": vllm(in_wheel(only("vllm-*.whl"))),
        "sglang": sglang(in_wheel(only("sglang-*.whl"))),
        "mlx-lm": mlx(in_wheel(only("mlx_lm-*.whl"))),
        "exllamav3": exllamav3(in_wheel(only("exllamav3-*.whl"))),
        "llama.cpp": llamacpp(in_sources(only("llama_cpp_python-*.tar.gz"))),
        "tensorrt-llm": tensorrt(only("_arch_index.py").read_text()),
        "tgi": tgi(only("tgi.py").read_text()),
    }
    joined = {name: " ".join(sorted(names)) for name, names in lists.items()}
    kinds = " ".join(f"{kind}:{name}" for kind, name in architectures().items())
    TARGET.write_text(json.dumps({**joined, "architectures": kinds}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
