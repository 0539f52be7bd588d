"""One finding of an audit, made from its code and the values of its sentence."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from ropelab.audit.audit_case import AuditCase
from ropelab.readers.registry import explain_untyped
from ropelab.runs.files import table_beside
from ropelab.runs.sentences import printable

Level = Literal["error", "warn", "note"]
LEVELS: tuple[Level, ...] = ("error", "warn", "note")
CODES = table_beside(__file__, "codes")
# The forms of a verb in a sentence: after one name, and after several.
VERB = re.compile(r"\[(\w*)\|(\w*)\]")


@dataclass(frozen=True)
class AuditFinding:
    """One finding: a stable code, its level, a sentence, and what to type instead."""

    code: str
    level: Level
    says: str
    do: str = ""


def make_finding(
    code: str, which: str = "", level: Level = "warn", **values: Any
) -> AuditFinding:
    """Return a finding with the values in its sentence; ``which`` of the code's
    sentences.
    """
    row = CODES[code]
    if which:
        row = row[which]
    if code.startswith("N"):
        level = "note"

    names = values.get("names", ())
    values["names"] = ", ".join(names)
    sentence = agree_verbs(row.get("says", ""), several=len(names) > 1)
    advice = row.get("do", "")
    says = printable(sentence.format(**values))
    return AuditFinding(code, level, says, printable(advice.format(**values)))


def agree_verbs(sentence: str, several: bool) -> str:
    """Take the form of each verb in brackets that fits one name or several.

    >>> agree_verbs("{names} multipl[ies|y] scores", several=True)
    '{names} multiply scores'
    """
    return VERB.sub(r"\2" if several else r"\1", sentence)


def blame_runtimes(
    case: AuditCase, code: str, names: Collection[str], which: str = "", **values: Any
) -> AuditFinding:
    """Return an error of some runtimes: a warning if none of their readers was
    compared.
    """
    level: Level = "warn"
    for reading in case.readings:
        compared = reading.model_type in reading.runtime.compared
        if reading.runtime.name in names and compared:
            level = "error"

    # Finding no class is a rule for all model types.
    if values.get("reason") == explain_untyped(case.document.config):
        level = "error"
    return make_finding(code, which, level, names=names, **values)
