"""The laws that each architecture of transformers keeps, as docs/doctor.md says.

python -m tests.conformance.laws.architectures            where the document differs
python -m tests.conformance.laws.architectures --write    write it
"""

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from ropelab.conformance.laws.doctor import LAWS, Diagnosis, doctor
from ropelab.conformance.laws.model import make_random_model
from tests.models.released.architectures import ARCHITECTURES, PLAIN
from tests.models.released.tiny import TRAINED, config

DOCUMENT = Path(__file__).parents[3] / "docs" / "doctor.md"
BEGIN, END = "<!-- laws -->", "<!-- end of laws -->"
PRICES = [trial.name for law in LAWS for trial in law.trials if trial.cost]
MARKS = {"holds": "=", "rounding only": "~", "cannot be asked": "-"}
# Sizes beside which heads would have more features than hidden states, which no real
# model has, and sections of positions.
MORE: dict[str, dict[str, Any]] = {
    "gemma4_text": {"global_head_dim": 16},
    "mimo_v2_flash": {"v_head_dim": 16},
    "qwen3_5_text": {
        "head_dim": 24,
        "rope_parameters": {
            **PLAIN["rope_parameters"],
            "partial_rotary_factor": 1.0,
            "mrope_section": [6, 3, 3],
            "mrope_interleaved": True,
        },
    },
}
SCALED: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, dynamic": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "dynamic",
                "rope_theta": 10000.0,
                "factor": 4.0,
            }
        },
    ),
    "phi3, longrope": (
        "phi3",
        {
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0] * 4,
                "long_factor": [4.0] * 4,
                "original_max_position_embeddings": TRAINED,
            },
            "original_max_position_embeddings": TRAINED,
            "max_position_embeddings": 4 * TRAINED,
            "head_dim": None,
        },
    ),
}
MODELS = {
    name: (name, {**ARCHITECTURES[name], **MORE.get(name, {})})
    for name in ARCHITECTURES
}
MODELS |= SCALED


def diagnosed(name: str) -> Diagnosis:
    """What the doctor finds in a tiny random model."""
    model_type, changes = MODELS[name]
    return doctor(make_random_model(config(model_type, **changes), torch.float32)[0])


def row(name: str, done: Diagnosis) -> str:
    """A line of the table of laws: packing has a column for each judged trial."""
    by_law: dict[str, list[Mapping[str, Any]]] = {law.name: [] for law in LAWS}
    for trial in done.rows["trials"]:
        by_law[trial["law"]].append(trial)
    worst = {each["law"]: each for each in done.rows["laws"]}
    cells = []
    for law, trials in by_law.items():
        judged = [t for t in trials if t["verdict"] != "cost"]
        cells += [mark(t) for t in judged] if law == "packing" else [mark(worst[law])]
    return f"| {name} | {' | '.join(cells)} |"


def mark(found: Mapping[str, Any]) -> str:
    if found["verdict"] != "broken":
        return MARKS[found["verdict"]]
    return f"**{found['size']:.1g}**" if found["size"] else "**no**"


def reasons(name: str, done: Diagnosis) -> Iterable[str]:
    """A line per broken law, with where it begins and why."""
    for law in LAWS:
        said: dict[str, list[Mapping[str, Any]]] = {}
        for trial in done.rows["trials"]:
            if trial["law"] == law.name and trial["verdict"] == "broken":
                said.setdefault(
                    f"{trial['kind']} | {trial['says']} | {trial['fix']}", []
                ).append(trial)
        for text, trials in said.items():
            names = "; ".join(trial["trial"] for trial in trials)
            first = max(trials, key=lambda trial: trial["size"])
            place = "-" if first["position"] is None else first["position"]
            yield f"| {name} | {law.name}: {names} | {place} | {text} |"


def cost(name: str, done: Diagnosis) -> str:
    trials = [trial for trial in done.rows["trials"] if trial["trial"] in PRICES]
    cells = [f"{t['size']:.1g}" if t["verdict"] == "cost" else "-" for t in trials]
    return f"| {name} | {' | '.join(cells)} |"


def table(head: str, rows: Iterable[str]) -> str:
    return "\n".join([head, "|" + " --- |" * (head.count("|") - 1), *rows])


def written() -> str:
    """The document as it must be."""
    found = {name: diagnosed(name) for name in MODELS}
    parts = [
        table(
            "| architecture | shift | padding | packing, no mask | packing, mask |"
            " cache | K-shift | eviction | rotation | M-RoPE | state |",
            [row(name, done) for name, done in found.items()],
        ),
        "Every broken law, looked into by hand:",
        table(
            "| architecture | law: trials | from position | kind | reason | what to"
            " do |",
            [line for name, done in found.items() for line in reasons(name, done)],
        ),
        (
            "What is no law, and its price (the largest difference of logits over their"
            " spread):"
        ),
        table(
            "| architecture | mask, positions go on | no mask, positions go on | the"
            " same, texts begin with BOS | first tokens of a cache dropped | tokens"
            " behind four sinks dropped, positions kept | the same, moved up | a block"
            " behind others |",
            [cost(name, done) for name, done in found.items()],
        ),
    ]
    start, rest = DOCUMENT.read_text(encoding="utf-8").split(BEGIN)
    return f"{start}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}{rest.split(END)[1]}"


def verdicts(text: str) -> list[str]:
    """The lines of the table of laws without sizes and roundings, which differ between
    machines.
    """
    lines = text.replace("| ~ ", "| = ").splitlines()
    return [re.sub(r"\*\*[^*]*\*\*", "broken", line) for line in lines]


def main() -> int:
    """Compare the document with what is found now, or write it."""
    now = written()
    if "--write" in sys.argv:
        DOCUMENT.write_text(now, encoding="utf-8")
        return 0
    differing = set(verdicts(now)) ^ set(verdicts(DOCUMENT.read_text(encoding="utf-8")))
    said = (f"transformers {transformers.__version__}", *sorted(differing))
    sys.stdout.write("\n".join(said) + "\n")
    return bool(differing)


if __name__ == "__main__":
    sys.exit(main())
