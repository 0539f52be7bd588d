"""Each option of the commands that print or convert: it changes what is printed or
written, is refused, or is said to have no effect.
"""

import contextlib
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tests.stress.arrays import ANY, COS, MODEL, PLACES, SIN
from tests.stress.bench import Told, told
from tests.stress.promise import Trial, find_unplain

WINDOWED = {
    **MODEL,
    "model_type": "gemma3_text",
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
    "sliding_window": 512,
    "rope_local_base_freq": 10000.0,
}
YARN = {
    **MODEL,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 1024,
    },
}
OWN_CODE = """
import numpy as np

def rope():
    rates = 10000.0 ** (-np.arange(0, 64, 2) / 64)
    rates = np.concatenate([rates, rates])
    return lambda positions: (np.cos(np.outer(positions, rates)),
                              np.sin(np.outer(positions, rates)))
"""
WRITTEN = ("written", "page.html")
"""Where commands write: a folder and a file."""
TIMES = re.compile(r"took .*|[\d.]+ s of processor.*")

# For each command: lines to which each of the options is added.
LINES = {
    # This configuration has findings, so that --fail-on has something to change.
    "audit": (
        "y.json",
        "y.json c.json",
        "y.json --json",
        "y.json --format sarif",
    ),
    "emit": (
        "--from c.json --context 16384",
        "--from y.json --context 4096",
        "--model llama-3-8b --context 32768",
    ),
    "check": (
        "own_code:rope --config c.json",
        "model",
        "tables.npz --config c.json",
        "windowed",
    ),
    "vectors": ("--config c.json --out written",),
    "export": ("RUN", "RUN --format markdown", "RUN --format latex"),
    "report": ("RUN -o page.html",),
    "methods": ("", "yarn"),
    "models": ("", "qwen3-8b"),
    "compare": ("RUN RUN",),
}
OPTIONS = {
    "audit": (
        "--runtime vllm",
        "--length 32768",
        "--dtype float16",
        "--flags '--max-model-len 2048'",
        "--fail-on warn",
        "--verbose",
        "--figures written",
    ),
    "emit": ("--method pi", "--target vllm", "--target all", "--json"),
    "check": (
        "--length 64",
        "--dtype bfloat16",
        "--tolerance 1e-7",
        "--layer-type sliding_attention",
        "--config d.json",
    ),
    "vectors": ("--length 64", "--prompt 'text 5'"),
    "export": (
        "--table pairs",
        "--table pairs --table scaling",
        "-o written",
    ),
    "report": ("--title Other", "--results elsewhere"),
    "methods": ("--json",),
    "models": ("--json",),
    "compare": ("--json",),
}

WITHOUT_EFFECT = {
    ("audit", "--json", "--verbose"),
    ("audit", "sarif", "--verbose"),
}
"""Of which command a word and an option do not change each other, as the pages say."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Each option with each line of its command."""
    with contextlib.chdir(folder):
        prepare()
        told("freqs", "--head-dim", "8", "--no-figures", "-q")
        run = str(next(Path("results").glob("freqs/*")))
        for command, lines in LINES.items():
            for line in lines[:1] if few else lines:
                words = [word.replace("RUN", run) for word in shlex.split(line)]
                without = give(command, words)
                options = list_options(command, words)
                for option in options[:1] if few else options:
                    yield judge(command, words, option, without)


def list_options(command: str, words: list[str]) -> list[str]:
    """Return the options that have to change a line."""
    options = []
    for option in OPTIONS[command]:
        name = option.split()[0]
        if not any((command, word, name) in WITHOUT_EFFECT for word in words):
            options.append(option)
    return options


def prepare() -> None:
    """Write the files that the lines name into the working folder."""
    Path("c.json").write_text(json.dumps(MODEL))
    Path("d.json").write_text(json.dumps({**MODEL, "rope_theta": 5e5}))
    Path("y.json").write_text(json.dumps(YARN))
    for name, config in {"model": MODEL, "windowed": WINDOWED}.items():
        Path(name).mkdir()
        (Path(name) / "config.json").write_text(json.dumps(config))
    Path("own_code.py").write_text(OWN_CODE)

    np.savez("tables.npz", cos=COS, sin=SIN, positions=PLACES)


def give(command: str, words: list[str]) -> tuple[Told, dict[str, bytes]]:
    """Type a command; return what it told, and the files that it wrote by their
    place.
    """
    for name in WRITTEN:
        path = Path(name)
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
    answer = told(command, *words)
    files = {}
    for path in Path().rglob("*"):
        if path.is_file() and path.parts[0] in WRITTEN:
            files[str(path)] = path.read_bytes()
    return answer, files


def judge(
    command: str,
    words: list[str],
    option: str,
    without: tuple[Told, dict[str, bytes]],
) -> Trial:
    """Whether an option has an effect on a line, is refused, or is said to have none."""
    what = f"{command} {' '.join(words)} {option}"
    try:
        answer, files = give(command, [*words, *shlex.split(option)])
    except Exception as failure:
        return Trial(what, f"{type(failure).__name__}: {failure}")
    problems = list(find_unplain(answer))
    if answer.status not in ANY:
        problems.append(f"status {answer.status}: {answer.err!r}")

    before, files_before = without
    is_same = (
        answer.status == before.status
        and drop_times(answer.out) == drop_times(before.out)
        and files == files_before
    )
    if is_same and drop_times(answer.err) == drop_times(before.err):
        problems.append("ignored without a word")
    return Trial(what, "; ".join(problems))


def drop_times(text: str) -> str:
    """Leave out how long a command took."""
    return TIMES.sub("", text)
