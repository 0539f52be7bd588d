"""The numbers of docs/audit.md are those of the golden data."""

import re
from itertools import combinations
from pathlib import Path

from ropelab.audit.finding import CODES
from ropelab.readers.ollama import WRITERS
from ropelab.readers.registry import RUNTIMES
from tests.conformance import test_kinds, test_planted
from tests.texts import mentions

TEXT = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()


def test_the_table_of_runtimes(golden):
    rows = re.findall(
        r"^\| ([\w.+-]+) \| (\S+) \| (\w+) \| (\S+) \| (\S+) \| (\S+) \|$",
        TEXT,
        re.MULTILINE,
    )
    stated = {
        row[0]: row[1:] for row in rows if row[0] != "runtime" and row[0] != "---"
    }
    assert list(stated) == list(RUNTIMES)
    for name, runtime in RUNTIMES.items():
        answers = list(golden.answers.get(name, {}).values())
        computed = sum(isinstance(answer, dict) for answer in answers)
        counts = (
            (computed, answers.count("refused"), len(runtime.compared_types))
            if answers
            else "---"
        )
        assert stated[name] == (runtime.version, runtime.proof, *map(str, counts))


def test_the_converters_of_ollama_that_were_read():
    assert set(WRITERS) == {
        f"{name}ForCausalLM" for name in ("Llama", "Mixtral", "Qwen2", "Phi3", "GptOss")
    }
    covered = "Llama", "Mixtral", "Qwen2", "Phi-3", "gpt-oss"
    assert mentions(TEXT, "It covers", *covered)
    assert mentions(TEXT, "None of the five", "`rope_parameters`")


def test_the_numbers_of_configurations(golden):
    random = [name for name in golden.configs if name.startswith("random")]
    assert f"{len(golden.configs)} configurations: {len(random)} random Llamas" in TEXT
    assert f"{len(golden.configs) - len(random)} published or reported ones" in TEXT
    releases = [
        golden.answers[f"transformers-{v}"]
        for v in ("4.44", "4.48", "4.55", "4.57", "5")
    ]
    apart = [
        sum(a[name] != b[name] for name in random) for a, b in combinations(releases, 2)
    ]
    assert f"differ on {min(apart)} to {max(apart)}." in TEXT


def test_the_number_of_planted_bugs_is_that_of_the_tables() -> None:
    planted = len(test_planted.PLANTED) + len(test_kinds.PLANTED)
    assert f"{planted} planted bugs are named" in TEXT
    assert f"none of {len(test_kinds.RIGHT)} styles of right code is" in TEXT


def test_the_table_of_codes_has_each_with_its_title():
    rows = re.findall(r"^\| ([EWN]\d\d) \| (.+) \|$", TEXT, re.MULTILINE)
    assert dict(rows) == {code: row["title"] for code, row in CODES.items()}
