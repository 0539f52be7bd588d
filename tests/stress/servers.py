"""Flags of servers with odd values, given to `ropelab audit --flags`."""

import contextlib
import json
import random
import shlex
from collections.abc import Iterator
from pathlib import Path

from ropelab.readers.flags import KNOWN_FLAGS
from tests.stress.arrays import ANY, MODEL
from tests.stress.bench import told
from tests.stress.promise import Trial, find_unplain

VALUES = (
    *("1e400", "NaN", "-0", "0", "-1", "٣", "1_000", "1,000", "x", "", "4096", "128k"),
    *("1e3", "0x10", "4096.5", "-inf", "\x1b[2J", "\u202e", "a" * 5000, "null", "true"),
    *("{}", "[]", '{"factor": NaN}', '{"factor": 1e400}', '{"rope_type": "yarn"}'),
    *('{"rope_type": 5}', '{"rope_theta": "1e4"}', '{"rope_scaling": []}', "[1,2]*"),
    '{"rope_parameters": {"rope_type": "linear", "factor": -1}}',
    '{"text_config": {"max_position_embeddings": 1}}',
    '{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 4096}',
    '{"a":' * 500,
)
FORMS = ((), ("--json",), ("--verbose",), ("--format", "sarif"))
RUNTIMES = ("vllm", "sglang", "llama.cpp", "transformers", "v,s,m")
TOGETHER, FEW = 400, 40
"""Lines of several flags; each flag alone is tried with each value."""


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Each flag with each value, then several by chance; the same ones every time."""
    chance = random.Random(5)
    with contextlib.chdir(folder):
        Path("config.json").write_text(json.dumps(MODEL))
        alone = [
            f"{flag}={shlex.quote(value)}" for flag in KNOWN_FLAGS for value in VALUES
        ]
        for flags in alone[:: FEW if few else 1]:
            yield give(flags, chance.choice(FORMS))
        for _ in range(FEW if few else TOGETHER):
            several = chance.choices(alone, k=chance.randint(2, 5))
            runtime = chance.choice(RUNTIMES)
            yield give(" ".join(several), ("--runtime", runtime))


def give(flags: str, more: tuple[str, ...]) -> Trial:
    """Audit a model under some flags: they are used, or refused in one line."""
    what = f"{flags[:150]} {' '.join(more)}"
    try:
        answer = told("audit", "config.json", f"--flags={flags}", *more)
    except Exception as failure:
        return Trial(what, f"{type(failure).__name__}: {failure}")
    problems = list(find_unplain(answer))
    if answer.status not in ANY:
        problems.append(f"status {answer.status}: {answer.err!r}")
    if answer.status != 2 and "--json" in more:
        json.loads(answer.out)
    return Trial(what, "; ".join(problems))
