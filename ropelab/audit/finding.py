"""One finding of an audit, made from its code and the values of its sentence."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from ropelab.audit.audit_case import AuditCase
from ropelab.readers.registry import explain_missing_class
from ropelab.runs.files import read_table_beside
from ropelab.runs.sentences import escape_unprintable

Level = Literal["error", "warn", "note"]
LEVELS: tuple[Level, ...] = ("error", "warn", "note")
CODES = read_table_beside(__file__, "codes")
# The forms of a verb in a sentence: after one name, and after several.
VERB = re.compile(r"\[(\w*)\|(\w*)\]")


@dataclass(frozen=True)
class AuditFinding:
    """One finding of an audit, such as a contradiction in a file."""

    # A stable name, such as W05; codes.toml lists them.
    code: str
    level: Level
    # The sentence about what was found, and the advice what to type instead.
    says: str
    do: str = ""


def make_finding(
    code: str, which: str = "", level: Level = "warn", **values: Any
) -> AuditFinding:
    """Return a finding with its sentence and its advice.

    Args:
        code: the code of the finding.
        which: the name of the sentence, for a code that has several.
        level: how bad it is; codes that begin with N are always notes.
        values: what replaces the braces in the sentence and in the advice.
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
    says = escape_unprintable(sentence.format(**values))
    return AuditFinding(code, level, says, escape_unprintable(advice.format(**values)))


def agree_verbs(sentence: str, several: bool) -> str:
    """Take the form of each verb in brackets that fits one name or several.

    >>> agree_verbs("{names} multipl[ies|y] scores", several=True)
    '{names} multiply scores'
    """
    return VERB.sub(r"\2" if several else r"\1", sentence)


def say_where(case: AuditCase, names: Collection[str]) -> str:
    """Return ` in A, B` for runtimes of which alone a sentence is true; empty if it is
    true of the reference, too.
    """
    if case.reference.runtime.name in names:
        return ""
    return f" in {', '.join(names)}"


def blame_runtimes(
    case: AuditCase, code: str, names: Collection[str], which: str = "", **values: Any
) -> AuditFinding:
    """Return a finding about some runtimes, as an error or a warning.

    It is an error if, for at least one of these runtimes, our reader was compared with
    the runtime itself for this model type.
    """
    level: Level = "warn"
    for reading in case.readings:
        was_compared = reading.model_type in reading.runtime.compared_types
        if reading.runtime.name in names and was_compared:
            level = "error"

    # That a runtime finds no class for a model type is certain, even if our reader was
    # not compared.
    if values.get("reason") == explain_missing_class(case.document.config):
        level = "error"
    return make_finding(code, which, level, names=names, **values)
