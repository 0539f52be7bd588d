"""Write which models each runtime has a class for:
ropelab/readers/model_lists.json.

python tools/model_lists.py FOLDER

FOLDER holds the wheels of vllm, sglang, mlx-lm and exllamav3, the source distribution
of llama-cpp-python (for llama.cpp's converter), _arch_index.py of
tensorrt_llm/_torch/models, and tgi.py, text-generation-inference's
server/text_generation_server/models/__init__.py. They are parsed, not run. The list of
a runtime that is not in the folder stays as it is. vLLM's and SGLang's lists have the
model file behind each name.
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
    found: set[str] = set()
    for rows in tables:
        if not isinstance(rows, ast.Dict):
            continue
        for key, value in zip(rows.keys, rows.values, strict=True):
            if isinstance(key, ast.Constant):
                module, _ = ast.literal_eval(value)
                # `vllm.models.NAME` and what is inside that folder.
                stem = module.removeprefix("vllm.models.").split(".")[0]
                found.add(f"{key.value}:{stem}")
    return found


def sglang(files: Files) -> set[str]:
    found: set[str] = set()
    for name, text in files:
        if "srt/models/" not in name:
            continue
        stem = name.split("srt/models/")[1].removesuffix(".py")
        for value in values(text, "EntryClass"):
            nodes = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
            names = [node.id for node in nodes if isinstance(node, ast.Name)]
            found |= {f"{one}:{stem}" for one in names}
    return found


def mlx(files: Files) -> set[str]:
    found: set[str] = set()
    for name, text in files:
        if "mlx_lm/models/" in name and re.search(
            r"^(class|from .* import) Model\b", text, re.MULTILINE
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
    readers: dict[str, tuple[str, Any]] = {
        "vllm": ("vllm-*.whl", lambda path: vllm(in_wheel(path))),
        "sglang": ("sglang-*.whl", lambda path: sglang(in_wheel(path))),
        "mlx-lm": ("mlx_lm-*.whl", lambda path: mlx(in_wheel(path))),
        "exllamav3": ("exllamav3-*.whl", lambda path: exllamav3(in_wheel(path))),
        "llama.cpp": (
            "llama_cpp_python-*.tar.gz",
            lambda path: llamacpp(in_sources(path)),
        ),
        "tensorrt-llm": ("_arch_index.py", lambda path: tensorrt(path.read_text())),
        "tgi": ("tgi.py", lambda path: tgi(path.read_text())),
    }
    lists = json.loads(TARGET.read_text())
    for name, (pattern, read) in readers.items():
        for path in folder.glob(pattern):
            lists[name] = " ".join(sorted(read(path)))
    kinds = " ".join(f"{kind}:{name}" for kind, name in architectures().items())
    lists["architectures"] = kinds
    TARGET.write_text(json.dumps(lists, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
