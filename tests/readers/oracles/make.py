"""Ask the runtimes anew: `python make.py FOLDER` installs each there and packs the
answers.

Needs the package index, about 3 GB of disk, a C++ compiler and the project's own
environment, whose torch all of them share. Nothing of theirs is kept but what they
computed.
"""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
TRANSFORMERS = {
    "4.44.2": ("tokenizers>=0.19,<0.20", "huggingface_hub>=0.23.2,<0.35"),
    "4.48.3": ("tokenizers>=0.21,<0.22", "huggingface_hub>=0.24,<0.35"),
    "4.51.3": ("tokenizers>=0.21,<0.22", "huggingface_hub>=0.30,<0.35"),
    "4.55.4": ("tokenizers>=0.21,<0.22", "huggingface_hub>=0.34,<1.0"),
    "4.57.1": ("tokenizers>=0.22,<0.23", "huggingface_hub>=0.34,<1.0"),
}
SMALL = (
    "requests",
    "urllib3",
    "idna",
    "certifi",
    "charset_normalizer",
    "filelock",
    "fsspec",
)
WHEELS = {"vllm": "0.33.0", "sglang": "0.5.23", "exllamav3": "1.6.5"}
# The releases of transformers that the servers ask for: SGLang 5.19.0, vLLM one below
# 5.21. Newer ones keep no rotated share beside the block.
PINNED = {"sglang": "5.19.0", "vllm": "5.20.2"}
LLAMA_CPP = ("llama-cpp-python", "0.3.36", "0c1e570")
PINNED_BY_THE_CONVERTER = "4.57.6"
MLX = ("mlx[cpu]", "mlx-lm==0.32.2")
ONNX = ("onnxruntime-genai", "0.18.0")


def python(*arguments: str) -> None:
    """This interpreter, with one thread."""
    print("$", *arguments, flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *arguments], check=True, env=environment, cwd=HERE)


def pip(*arguments: str) -> None:
    python("-m", "pip", "--disable-pip-version-check", *arguments)


def observe(script: str, *arguments: str) -> None:
    python(f"observe_{script}.py", *arguments)


def transformers(folder: Path, version: str, pins: tuple[str, ...]) -> Path:
    """A folder with that version, installed if it is not there."""
    site = folder / f"transformers-{version}"
    if not site.exists():
        wanted = (f"transformers=={version}", *pins, *SMALL)
        pip("install", "--quiet", "--no-deps", "--target", str(site), *wanted)
    return site


def from_transformers(folder: Path, out: Path) -> None:
    for version, pins in TRANSFORMERS.items():
        site = transformers(folder, version, pins)
        short = version.rsplit(".", 1)[0]
        observe("transformers", str(site), str(out / f"transformers-{short}.json"))
    observe("transformers", "-", str(out / "transformers-5.json"))


def from_wheels(folder: Path, out: Path) -> None:
    for name, version in WHEELS.items():
        place = folder / f"{name}-{version}"
        if not place.exists():
            options = (
                "--quiet",
                "--no-deps",
                "--only-binary",
                ":all:",
                "-d",
                str(folder),
            )
            pip("download", *options, f"{name}=={version}")
            wheel = next(folder.glob(f"{name}-{version}-*.whl"))
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(
                    place, [n for n in archive.namelist() if n.endswith(".py")]
                )
        answers = [str(place), version, str(out / f"{name}.json")]
        if name in PINNED:
            answers.append(str(transformers(folder, PINNED[name], ())))
        observe(name, *answers)


def kernel(folder: Path, source: Path) -> Path:
    """The folder with the two libraries that turn positions, of all that llama.cpp
    would build.
    """
    built = folder / "ggml"
    libraries = built / "bin"
    if not (libraries / "libggml-cpu.so").exists():
        pip("install", "--quiet", "--target", str(folder / "cmake"), "cmake")
        cmake = str(folder / "cmake" / "cmake" / "data" / "bin" / "cmake")
        parts = ("COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER")
        without = [f"-DLLAMA_BUILD_{part}=OFF" for part in parts]
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_OPENMP=OFF", *without]
        subprocess.run([cmake, "-S", source, "-B", built, *options], check=True)
        targets = ["--target", "ggml-base", "ggml-cpu"]
        subprocess.run(
            [cmake, "--build", built, "--parallel", "2", *targets], check=True
        )
    return libraries


def from_converter(folder: Path, out: Path) -> None:
    """The converter and its kernel's source are in the source distribution of the
    bindings.
    """
    name, version, commit = LLAMA_CPP
    site = transformers(folder, PINNED_BY_THE_CONVERTER, TRANSFORMERS["4.57.1"])
    place = folder / f"llama_cpp_python-{version}"
    if not place.exists():
        options = ("--quiet", "--no-deps", "--no-binary", name, "-d", str(folder))
        pip("download", *options, f"{name}=={version}")
        with tarfile.open(folder / f"llama_cpp_python-{version}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
    source = place / "vendor" / "llama.cpp"
    places = (str(site), str(source), str(kernel(folder, source)))
    observe("llamacpp", *places, commit, str(out / "llama.cpp.json"))


def from_builder(folder: Path, out: Path) -> None:
    """The builder of ONNX Runtime GenAI; its runtime is not needed."""
    name, version = ONNX
    place = folder / f"{name}-{version}"
    if not place.exists():
        pip(
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            str(place),
            f"{name}=={version}",
        )
        wanted = ("onnx_ir", "onnx", "ml_dtypes", "protobuf", "tqdm")
        pip("install", "--quiet", "--no-deps", "--target", str(place / "site"), *wanted)
    older = transformers(folder, "4.57.1", TRANSFORMERS["4.57.1"])
    for suffix, site in (("", "-"), ("-4.57", str(older))):
        answers = str(out / f"{name}{suffix}.json")
        observe("onnx", str(place), str(place / "site"), site, answers)


def main(folder: Path) -> None:
    out = folder / "observed"
    out.mkdir(parents=True, exist_ok=True)
    from_transformers(folder, out)
    from_wheels(folder, out)
    from_converter(folder, out)
    from_builder(folder, out)
    site = folder / "mlx"
    if not site.exists():
        pip("install", "--quiet", "--target", str(site), *MLX)
    observe("mlx", str(site), str(out / "mlx-lm.json"))
    python("pack.py", str(out), str(HERE.parent / "golden"))
    builder = {
        name: json.loads((out / f"{name}.json").read_text())
        for name in (ONNX[0], f"{ONNX[0]}-4.57")
    }
    written = json.dumps(builder, separators=(",", ":")) + "\n"
    (HERE.parent / "onnx.json").write_text(written)


main(Path(sys.argv[1]).resolve())
