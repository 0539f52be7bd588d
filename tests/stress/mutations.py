"""Config files with one to four things changed at random, and command lines made of all
flags.

They are read and checked as far as the work would begin, in this process. A run that
would be made is asked for once more, by the command that its manifest would name, and
must be the same. What audit, emit and check are given is a model's configuration with
some keys changed.
"""

import contextlib
import json
import random
import shlex
import tomllib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w
import typer

from ropelab import experiments, lab
from ropelab.cli import app as cli
from ropelab.models.lm import corpus
from ropelab.plan import Plan
from ropelab.runs.errors import InputError
from tests.audit.test_bad_input import mutated
from tests.stress.bench import told
from tests.stress.promise import Trial, one_line

CONFIGS = Path(__file__).parents[2] / "configs"
FILES, LINES, MODELS = 1_200, 400, 400
FEW = 20
VALUES = (
    *(
        "0",
        "-1",
        "1",
        "0.5",
        "1.5",
        "2",
        "3",
        "7",
        "64",
        "128k",
        "1e6",
        "1e30",
        "1e300",
        "1e999",
        "-0.0",
    ),
    *(
        "nan",
        "inf",
        "-inf",
        "-0.0",
        "9" * 400,
        "9007199254740993",
        "18446744073709551616",
        "0x10",
    ),
    *(
        "true",
        "false",
        '""',
        '"x"',
        '"yarn"',
        '"yarn(factor=4)"',
        '"longrope(factors=[1,2])"',
    ),
    *(
        "[]",
        "[[]]",
        "[1, 2]",
        '["a"]',
        "[1, 'x', true]",
        "{}",
        "{a = 1}",
        "1979-05-27",
        "07:32:00",
    ),
    *(
        '"\\u0000"',
        '"\\u001b[2J"',
        "'''x\ny'''",
        '"×θ"',
        '"' + "x" * 5000 + '"',
        "[" * 3000,
    ),
    *(
        '["yarn", "pi"]',
        '["copy"]',
        "[0, 1]",
        "[64, 128]",
        "[1e4, 1e6]",
        "1_000",
        "4096",
    ),
    *(
        "auto",
        "cuda",
        "cpu",
        "bfloat16",
        "float61",
        "small",
        "..",
        "/",
        "~",
        "*",
        "--help",
        "-",
    ),
    *(
        '["one(period=5)", "spaced(n=2)"]',
        '["without(band=slow)"]',
        '"ntk(factor=1e308)"',
        '"sum"',
    ),
    *(
        '["tupe", "mla", "convolution"]',
        '["zero_shot", "finetuned"]',
        '"000"',
        '"all"',
        "1/2",
    ),
    *(
        "9/9",
        "ray",
        "local",
        "127.0.0.1:1",
        "config.json",
        "tables.npz",
        "json:loads",
        "smoke",
        "x.md",
    ),
)
INSIDE = {"--results", "--output", "--figures"}
"""Flags that say where something is written."""
LETTERS = "=[]{}\"'#.,\n\t \0\x1b\x7fé𝛉-+_ekm0123456789abc"


def trials(folder: Path, few: bool) -> Iterator[Trial]:
    """Files first, then lines; the same ones every time."""
    chance = random.Random(0)
    texts = [path.read_text() for path in sorted(CONFIGS.rglob("*.toml"))]
    path = folder / "config.toml"
    here = folder / "a" / "place" / "inside"
    here.mkdir(parents=True)
    angles = np.arange(64.0)[:, None] * 1e4 ** -(np.arange(32) / 32)
    np.savez(here / "tables.npz", cos=np.cos(angles), sin=np.sin(angles))
    with checked_only() as plans, contextlib.chdir(here):
        for _ in range(FEW if few else FILES):
            before = text = chance.choice(texts)
            for _ in range(chance.randint(1, 4)):
                text = chance.choice(CHANGES)(text, chance)
            path.write_bytes(text.encode("utf-8", "surrogatepass"))
            place = ("--results", str(folder / "results"))
            yield one(("run", str(path), *place), text, plans, text != before)
        for _ in range(FEW if few else LINES):
            line = quote_words(chance, folder)
            yield one(line, " ".join(line), plans)
        for _ in range(FEW if few else MODELS):
            text = json.dumps(mutated(MODEL, chance))
            Path("config.json").write_text(text)
            yield one(desk_line(chance), text, plans)


@contextmanager
def checked_only() -> Iterator[list[Plan]]:
    """Nothing is carried out, the standard library is read once, and a warning is an
    error.

    Yields a list that holds the runs that the last command would make.
    """
    plans: list[Plan] = []

    def stop(self: lab.Lab, asked: Sequence[Plan]) -> None:
        plans[:] = asked
        # The end of a command that typer knows; others count as code that ends it.
        raise typer.Exit(0)

    before = lab.Lab.run_all, corpus.read_corpus
    library = corpus.read_corpus(None, 4097)
    lab.Lab.run_all = stop  # type: ignore[assignment, method-assign]
    corpus.read_corpus = lambda path, piece: before[1](path, piece) if path else library
    try:
        with warnings.catch_warnings(action="error"):
            yield plans
    finally:
        lab.Lab.run_all, corpus.read_corpus = before  # type: ignore[method-assign]


def one(
    arguments: tuple[str, ...], what: str, plans: list[Plan], met: bool = True
) -> Trial:
    """A command that is accepted and can be repeated, or is refused in one line."""
    problems: list[str] = []
    plans.clear()
    try:
        answer = told(*arguments)
        if answer.status not in (0, 3):
            problems += one_line(answer)
        elif (
            "--json" in arguments and not plans and not {"--help", "-h"} & {*arguments}
        ):
            json.loads(answer.out)
        for plan in plans[:3]:
            command = plan.config.command(plan.experiment.name)
            again = told(*shlex.split(command)[1:])
            if again.status or [each.config for each in plans] != [plan.config]:
                problems.append(f"{command}: another run, {again.err!r}")
    except Exception as failure:
        problems.append(f"{type(failure).__name__}: {failure}")
    return Trial(repr(what)[-400:], "; ".join(problems), met)


Change = Callable[[str, random.Random], str]


def _letter(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + chance.choice(LETTERS) + text[at + chance.randint(0, 1) :]


def _drop_cells(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    return text[:at] + text[at + chance.randrange(30) :]


def _value(text: str, chance: random.Random) -> str:
    """Another value for a field of the experiment, whether the text has that field or
    not.
    """
    try:
        values = tomllib.loads(text)
        fields = experiments.load(values["experiment"]).config.model_fields
    except (
        ValueError,
        InputError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        return text
    values[chance.choice([*fields, "title"])] = _as_toml(chance.choice(VALUES))
    return tomli_w.dumps(values)


def _as_toml(text: str) -> Any:
    """A value as TOML reads it, or as text where it is none of TOML's."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except (ValueError, RecursionError):
        return text


def _many(text: str, chance: random.Random) -> str:
    """A table of many runs: lists of values for some fields, or runs of their own."""
    if "[grid]" in text or "[[case]]" in text:
        return _line_again(text, chance)
    try:
        fields = list(
            experiments.load(tomllib.loads(text)["experiment"]).config.model_fields
        )
        named = {
            chance.choice(fields): _as_toml(chance.choice(VALUES)) for _ in range(2)
        }
    except (
        ValueError,
        InputError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        return text
    listed = {
        field: [value, _as_toml(chance.choice(VALUES))]
        for field, value in named.items()
    }
    table = {"grid": listed} if chance.random() < 0.5 else {"case": [named, {}]}
    return f"{text}\n{tomli_w.dumps(table)}"


def _line_again(text: str, chance: random.Random) -> str:
    lines = text.splitlines() or [""]
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(lines))
    return "\n".join(lines) + "\n"


def _other_experiment(text: str, chance: random.Random) -> str:
    name = chance.choice([*experiments.NAMES, "x"])
    return f'experiment = "{name}"\n' + text.partition("\n")[2]


CHANGES: Sequence[Change] = (
    *[_value] * 12,
    *[_many] * 2,
    *(_letter, _drop_cells, _line_again, _other_experiment),
)


def quote_words(chance: random.Random, folder: Path) -> tuple[str, ...]:
    """A command with up to five of its flags, and values that any flag may be given."""
    app: Any = cli.make_application()
    name, command = chance.choice(sorted(app.commands.items()))
    words = [name]
    arguments = [each for each in command.params if not each.opts[0].startswith("-")]
    words += [chance.choice(VALUES).strip("\"'") for _ in arguments]
    flags = [each for each in command.params if each.opts[0].startswith("-")]
    for flag in chance.choices(flags, k=chance.randint(0, 5) if flags else 0):
        words.append(chance.choice(flag.opts))
        if not flag.is_flag:
            value = chance.choice(VALUES).strip("\"'")
            inside = not INSIDE.isdisjoint(flag.opts)
            words.append(str(folder / value.lstrip("/")) if inside else value)
    # An option is given once, and the folder of results may be among the words.
    has_results = any("--results" in flag.opts for flag in flags)
    if has_results and "--results" not in words:
        words += ["--results", str(folder / "results")]
    return tuple(words)


MODEL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "max_position_embeddings": 32768,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 8192,
        "short_factor": [1.0] * 32,
        "long_factor": [2.0] * 32,
    },
}
LENGTHS = ("2", "4096", "128k", "1e12", "2^40", "1e300")


def desk_line(chance: random.Random) -> tuple[str, ...]:
    """A command about the model whose configuration lies here."""
    length, more = chance.choice(LENGTHS), chance.choice((("--json",), ()))
    emitted: tuple[str, ...] = ("emit", "--from", "config.json")
    emitted += ("--context", length, "--target", "all")
    if chance.random() < 0.5:
        emitted += (
            "--method",
            chance.choice(("yarn", "ntk(factor=1e308)", "pi", "llama3")),
        )
    audited = ("audit", "config.json", "--length", length)
    checked = ("check", "tables.npz", "--config", "config.json", "--length", length)
    return (*chance.choice((emitted, audited, checked)), *more)
