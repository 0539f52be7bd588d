"""List what each model class of a server does with the keys of the rotation.

python tools/rope_uses.py WHEEL [NAME ...] [--digest]

WHEEL is one of vllm, sglang or mlx-lm; NAMEs are classes or files, all without any. The
files are parsed, not run. For each class the list has its bases, the calls that build a
rotation, and every use of a key about it. A person reads them and writes the row of
ropelab/readers/served.toml. With `--digest` each file is one line with a digest of its
uses, so that a comparison of two releases shows which rows have to be read again.
"""

import argparse
import ast
import hashlib
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

KEYS = re.compile(
    r"rope|rotary|rotate|alibi|position_embedding|(?<!v_)head_dim|head_size"
    r"|kv_channels|neox|yarn|mscale|original_max_pos|layer_types|sliding_window_pattern"
)
BUILDERS = re.compile(r"get_rope\w*|\w*Rotary\w*|\w*RoPE\w*|\w*Rope\w*|initialize_rope")
# Calls that take the size of a head and say nothing more about it.
LAYERS = re.compile(r"\w*Linear|\w*Norm\w*|\w*Attention\w*|\w*MoE\w*|\w*attn_cls")
LONGEST = 300  # characters of an expression


@dataclass
class ModelClass:
    """What one class does with rotation."""

    name: str
    bases: list[str]
    uses: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        if not self.uses:
            return
        yield f"  {self.name}({', '.join(self.bases)})"
        for use in self.uses:
            yield f"    {use}"


def read_files(wheel: Path) -> Iterator[tuple[str, list[ModelClass]]]:
    """Yield the model files of a wheel, by their names without ending."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if "/models/" not in name or not name.endswith(".py"):
                continue
            stem = name.split("/models/", 1)[1].removesuffix(".py")
            tree = ast.parse(archive.read(name))
            nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
            yield stem, [read_class(node) for node in nodes]


def read_class(node: ast.ClassDef) -> ModelClass:
    """Return the uses of a class, in the order of its code and each once."""
    found = ModelClass(node.name, [ast.unparse(base) for base in node.bases])
    uses = [use for inner in ast.walk(node) for use in find_uses(inner)]
    found.uses = list(dict.fromkeys(uses))
    return found


def find_uses(node: ast.AST) -> Iterator[str]:
    """Yield what one node of the code does with a key about rotation."""
    if isinstance(node, ast.Call):
        name = called(node)
        text = ast.unparse(node)
        asks = name in ("getattr", "hasattr") and KEYS.search(text)
        if BUILDERS.fullmatch(name) or asks:
            yield text[:LONGEST]

    if isinstance(node, ast.Assign | ast.AnnAssign):
        text = ast.unparse(node)
        builds = isinstance(node.value, ast.Call) and (
            LAYERS.fullmatch(called(node.value))
            or BUILDERS.fullmatch(called(node.value))
        )
        declares = node.value is None or "config" in text
        if KEYS.search(text) and declares and not builds:
            yield text[:LONGEST]

    if isinstance(node, ast.If | ast.IfExp):
        text = ast.unparse(node.test)
        if KEYS.search(text):
            yield f"if {text[:LONGEST]}"


def called(node: ast.Call) -> str:
    """Return the last part of the name that is called."""
    return ast.unparse(node.func).rsplit(".", 1)[-1]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("wheel", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--digest", action="store_true")
    options = parser.parse_args()

    for file, classes in read_files(options.wheel):
        known = {file, *(one.name for one in classes)}
        if options.names and not known & {*options.names}:
            continue
        lines = [line for one in classes for line in one.lines()]
        if options.digest:
            print(file, hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12])
            continue
        print(file)
        for line in lines:
            print(line)


if __name__ == "__main__":
    main()
