"""The tables of the ledger, and its answer in words.

A claim that arithmetic decides is a cell of its own. Claims about stored runs are
decided when the tables are made.
"""

from collections.abc import Mapping, Sequence
from csv import DictReader
from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from typing import Any, cast

import pandas as pd

from ropelab.claims.experiment import VERSION, ClaimsConfig
from ropelab.claims.ledger import (
    QUESTIONS,
    SOURCES,
    Question,
    choose,
    cite,
    find,
)
from ropelab.claims.margins import Number
from ropelab.claims.record import OUTCOMES, Claim, Findings, Kind, Passage, Role
from ropelab.runs.cell import Cell, Computation, Resources, Values
from ropelab.runs.errors import is_installed
from ropelab.runs.files import table_beside
from ropelab.runs.tables import Tables

# Years are unknown for some sources, which would make all of them floats.
YEAR = {"year": "Int64"}
AGREES = {True: "yes", False: "no", None: "unknown"}
# The words for where a verdict comes from.
HERE = "here"
COMMITTED = "committed results"
CLOSED = "committed results, without torch"
# The columns of findings, in the table and in the file of committed findings.
FINDINGS = ["id", "role", "what", "measured", "value", "agrees", "margin"]
# The findings of the committed results on the claims that read runs or need torch;
# tools/notes.py writes the file.
COMMITTED_FILE = files("ropelab.claims") / "committed.csv"
# All checks together take 5 s, and 0.6 GB for the libraries.
NEEDS = Resources(seconds=0.04, memory_bytes=600_000_000)


def cells(config: ClaimsConfig) -> list[Cell]:
    """Return a computation for each claim that needs no stored run."""
    claims = [find(id_) for id_ in list_needed(config)]
    computed = [c for c in claims if not c.reads and not _is_closed(c)]
    return [_cell(claim, config) for claim in computed]


def _is_closed(claim: Claim) -> bool:
    """Return True for a claim whose check cannot be computed in this installation."""
    return claim.needs_torch and not is_installed("torch")


def tables(config: ClaimsConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make the tables of the ledger: claims, findings, passages, questions, and
    figures' series.
    """
    # Many claims read the same runs, which are files.
    read_runs = cache(values.stored)
    evidence: dict[str, Findings] = {}
    decided_from: dict[str, str] = {}
    needed = list_needed(config)
    with values.context.progress("checking claims", total=len(needed)) as advance:
        for id_ in needed:
            claim = find(id_)
            if _is_closed(claim):
                evidence[id_] = read_committed()[id_]
                decided_from[id_] = CLOSED
            elif claim.reads:
                runs = tuple(read_runs(claim.reads))
                evidence[id_] = claim.evidence(runs=runs)
                undecided = not runs or evidence[id_].is_missing
                if undecided and id_ in read_committed():
                    expected = evidence[id_].expected
                    evidence[id_] = replace(read_committed()[id_], expected=expected)
                    decided_from[id_] = COMMITTED
            else:
                series = dict(values[_cell(claim, config)])
                text = series.pop("evidence")["evidence"].iloc[0]
                evidence[id_] = Findings.from_json(text, series)
            advance(1, note=id_)

    chosen = choose(config.id, config.source)
    claims = []
    findings = []
    for claim in chosen:
        origin = decided_from.get(claim.id, HERE)
        claims.append(_claim_row(claim, evidence[claim.id], origin))
        for finding in evidence[claim.id].findings:
            agrees = AGREES[finding.agrees]
            findings.append({"id": claim.id, **asdict(finding), "agrees": agrees})

    passages = _passages(chosen, config.source, evidence)
    made = {
        "claims": pd.DataFrame(claims),
        "findings": pd.DataFrame(findings, columns=FINDINGS),
        "passages": pd.DataFrame(passages).astype(YEAR),
    }
    if answers := _answers(config, evidence):
        made["questions"] = pd.DataFrame(answers).astype(YEAR)
    for claim in chosen:
        made |= evidence[claim.id].series
    return {name: table for name, table in made.items() if len(table)}


def _answers(
    config: ClaimsConfig, evidence: Mapping[str, Findings]
) -> list[dict[str, Any]]:
    """Return a row for each question of the run, with its answer."""
    rows = []
    for question in list_questions(config):
        row = _source_columns(question.asked)
        row["answer"] = question.write_answer(evidence)
        row["claims"] = ", ".join(question.claims)
        rows.append(row)
    return rows


def list_questions(config: ClaimsConfig) -> list[Question]:
    """List the questions of the chosen source, or of all; none beside a single
    claim.
    """
    if config.id:
        return []
    return [q for q in QUESTIONS if config.source in ("", q.asked.source)]


def list_needed(config: ClaimsConfig) -> list[str]:
    """List the claims of the run, then those that only answers to questions rest on."""
    needed = [claim.id for claim in choose(config.id, config.source)]
    for question in list_questions(config):
        needed.extend(question.claims)
    return list(dict.fromkeys(needed))


def _cell(claim: Claim, config: ClaimsConfig) -> Cell:
    seed = {"seed": config.seed} if claim.takes_seed else {}
    return Computation(
        kind="claims-check",
        version=VERSION,
        title=f"claim {claim.id}",
        function=check_claim,
        inputs={"claim": claim.id, "inputs": {**claim.inputs, **seed}},
        resources=NEEDS,
    )


def check_claim(claim: str, inputs: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    findings = find(claim).evidence(**inputs)
    # Findings are JSON: in a CSV column a text such as 1.00 would be read back as a
    # number.
    evidence = pd.DataFrame({"evidence": [findings.to_json()]})
    return {"evidence": evidence, **findings.series}


@cache
def read_committed() -> dict[str, Findings]:
    """Read the findings that travel with the package, for where neither runs nor torch
    are.
    """
    evidence: dict[str, Findings] = {}
    answers = {name: value for value, name in AGREES.items()}
    lines = COMMITTED_FILE.read_text(encoding="utf-8").splitlines()
    for row in DictReader(lines):
        none_yet = Findings(row["expected"], row["models"])
        findings = evidence.setdefault(row["id"], none_yet)

        role = cast(Role, row["role"])
        agrees = answers[row["agrees"]]
        value = _read_number(row["value"])
        margin = _read_number(row["margin"])
        findings.add(role, row["what"], row["measured"], agrees, value, margin)
    return evidence


def _read_number(text: str) -> Number:
    return float(text) if text else None


def _claim_row(claim: Claim, findings: Findings, decided_from: str) -> dict[str, Any]:
    return {
        "id": claim.id,
        # Two sentences of one section are one place.
        "source": "; ".join(dict.fromkeys(cite(passage) for passage in claim.passages)),
        "statement": claim.statement,
        "evidence": str(claim.kind),
        "models": findings.models,
        "decided_from": decided_from,
        "measured": findings.measured,
        "expected": findings.expected,
        "command": claim.command,
        **_verdict_columns(claim, findings),
    }


def _passages(
    chosen: Sequence[Claim], only: str, evidence: Mapping[str, Findings]
) -> list[dict[str, Any]]:
    """Return a row for each passage of the chosen claims.

    Args:
        chosen: the claims.
        only: the source whose passages are chosen; empty for all sources.
        evidence: the findings of each claim, by its id.
    """
    said = []
    for claim in chosen:
        for passage in claim.passages:
            if only in ("", passage.source):
                said.append((passage, claim))
    if only and SOURCES[only].sections:
        # Sections are sorted in the order of the text.
        order = SOURCES[only].sections
        said.sort(key=lambda pair: order.index(pair[0].section))

    rows = []
    for passage, claim in said:
        verdict = _verdict_columns(claim, evidence[claim.id].about(passage.by))
        rows.append({**_source_columns(passage), "id": claim.id, **verdict})
    return rows


def _verdict_columns(claim: Claim, findings: Findings) -> dict[str, str]:
    deciding = findings.deciding
    return {
        "verdict": str(findings.verdict(claim.kind)),
        "decided_by": deciding.what,
        "decided_at": deciding.measured,
    }


def _source_columns(passage: Passage) -> dict[str, Any]:
    source = SOURCES[passage.source]
    return {
        "source": passage.source,
        "title": source.title,
        "author": source.author,
        "year": source.year,
        "link": source.link,
        "place": passage.section,
        "quote": passage.quote,
        "english": passage.english,
    }


# The answer in words and the short table for the terminal, both from the tables alone


WORDS = table_beside(__file__)


def answer(tables: Tables) -> str:
    claims = tables["claims"]
    passages = tables["passages"]
    if len(claims) == 1:
        return _explain_claim(claims.iloc[0], passages)
    sentences = []
    if is_page(tables):
        first = passages.astype(object).where(passages.notna(), "").iloc[0]
        named = _name_source(first)
        if first.link:
            named += f", {first.link}"
        sentences.append(f"{named}.")
    # A page lists sentences, of which several may rest on one claim.
    listed = claims
    noun = "statements"
    if is_page(tables):
        listed = passages
        noun = "sentences"
    evidence = listed["id"].map(claims.set_index("id")["evidence"])
    for kind in Kind:
        of_kind = listed[evidence == str(kind)]
        if of_kind.empty:
            continue
        numbers = of_kind["verdict"].value_counts()
        counted = []
        for verdict in OUTCOMES[kind]:
            number = int(numbers.get(str(verdict), 0))
            singular, plural = WORDS["counted"][verdict]
            counted.append(f"{number} {singular if number == 1 else plural}")
        about = WORDS["about"][kind]
        sentences.append(f"Of {len(of_kind)} {noun} {about} {', '.join(counted)}.")
    if elsewhere := int((claims["decided_from"] == COMMITTED).sum()):
        sentences.append(
            f"No run stored here decides {elsewhere} of them: their verdicts are those"
            " of the committed results, and `ropelab claims --run` decides them anew."
        )
    if closed := int((claims["decided_from"] == CLOSED).sum()):
        sentences.append(
            f"{closed} of arithmetic need torch, which is not installed: theirs are"
            " those of the committed results (pip install '.[train]')."
        )
    if drawn := int(claims["id"].map(_is_drawn).sum()):
        sentences.append(
            f"{drawn} claims measure random vectors: another --seed gives other digits"
            " and the same verdicts."
        )
    if is_page(tables) and "questions" in tables:
        asked = tables["questions"].itertuples()
        sentences += [f"\n“{row.quote}” ({row.english}) {row.answer}" for row in asked]
    return " ".join(sentences)


def summary(tables: Tables) -> pd.DataFrame:
    """List claims; of a single source its sentences, of a single claim its findings."""
    claims = tables["claims"]
    if len(claims) == 1:
        return tables["findings"][["role", "what", "measured", "agrees"]]
    if is_page(tables):
        rows = page(tables)
        # Chinese has no spaces at which a narrow column could be broken.
        rendered = rows["english"] != ""
        readable = rows["english"].where(rendered, rows["sentence"])
        original = rows["sentence"].where(rendered, "")
        rows = rows.assign(sentence=readable, original=original)
        # Where a terminal is narrow, the last columns are left out.
        return rows[["id", "verdict", "why", "sentence", "section", "original"]]
    # A terminal ends these at its edge.
    return claims[["id", "verdict"]].assign(measured=claims["decided_at"])


def is_page(tables: Tables) -> bool:
    """Return True for the claims of one source, which are shown by its sentences."""
    return tables["passages"]["source"].nunique() == 1 and len(tables["claims"]) > 1


def page(tables: Tables) -> pd.DataFrame:
    """Return the passages as they are read: a row for each sentence.

    A passage without a quotation shows our words for it, or the statement of its claim.
    """
    passages = tables["passages"]
    said = tables["claims"].set_index("id")["statement"]
    quoted = passages["quote"].fillna("")
    english = passages["english"].fillna("")
    unquoted = english.where(english != "", passages["id"].map(said))
    return pd.DataFrame(
        {
            "section": passages["place"].fillna(""),
            "sentence": quoted.where(quoted != "", unquoted),
            "english": english.where(quoted != "", ""),
            "verdict": passages["verdict"],
            "why": passages["decided_by"] + ": " + passages["decided_at"],
            "id": passages["id"],
        }
    ).reset_index(drop=True)


def _explain_claim(claim: pd.Series, passages: pd.DataFrame) -> str:
    # Our wording is marked as ours and quotations as quotations: they may differ.
    verdict = claim["verdict"]
    quotations = [
        _write_passage(passage, verdict) for _, passage in passages.iterrows()
    ]
    models = ""
    if pd.notna(claim["models"]) and claim["models"]:
        models = f" ({claim['models']})"

    anew = ""
    if claim["decided_from"] == CLOSED:
        way = "its check needs torch (pip install '.[train]')"
        anew = f" These are the committed results; {way}."
    elif claim["decided_from"] == COMMITTED:
        way = f"`{claim['command']}` makes a run that decides anew"
        anew = f" These are the committed results; {way}."
    if _is_drawn(claim["id"]):
        anew += " The vectors are random: another --seed gives other digits."
    statement = claim["statement"].removesuffix(".")
    return (
        f"{verdict.capitalize()}{models}: {statement} ({claim['id']}, in our words)."
        f" Measured: {claim['measured']}.{anew} {' '.join(quotations)}"
    )


def _is_drawn(id_: str) -> bool:
    """Tell whether a claim's check draws random vectors here.

    A check that needs PyTorch is not even imported where there is none.
    """
    claim = find(id_)
    return not _is_closed(claim) and claim.takes_seed


def _write_passage(stored: pd.Series, verdict: str) -> str:
    passage = stored.astype(object).where(stored.notna(), "")
    text = f"Said in {_name_source(passage)}"
    if passage.place:
        text += f", {passage.place}"

    words = []
    if passage.quote:
        words.append(f"“{passage.quote}”")
    if passage.english:
        words.append(f"({passage.english})")
    if words:
        text += f": {' '.join(words)}"

    if passage.verdict != verdict:
        text += f" (this sentence: {passage.verdict})"
    return f"{text}."


def _name_source(passage: pd.Series) -> str:
    about = []
    if passage.author:
        about.append(passage.author)
    if passage.year:
        about.append(f"{passage.year:.0f}")
    title = f"“{passage.title}”"
    return f"{title} ({' '.join(about)})" if about else title
