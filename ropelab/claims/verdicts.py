"""The tables of the ledger, and its answer: claims checked, findings and figures' data
kept.
"""

# Arithmetic is a cell per claim; stored runs are asked when the tables are made.

from collections.abc import Mapping, Sequence
from csv import DictReader
from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from textwrap import shorten
from typing import Any, cast

import pandas as pd

from ropelab.claims.experiment import VERSION, ClaimsConfig
from ropelab.claims.ledger import (
    QUESTIONS,
    SOURCES,
    Question,
    choose,
    cited,
    find,
)
from ropelab.claims.record import OUTCOMES, Claim, Findings, Kind, Passage, Role
from ropelab.runs.cell import Cell, Computation, Resources, Values
from ropelab.runs.errors import is_installed
from ropelab.runs.files import table_beside
from ropelab.runs.tables import Tables

# Years are unknown for some sources, which would make all of them floats.
YEAR = {"year": "Int64"}
AGREES = {True: "yes", False: "no", None: "unknown"}
HERE, COMMITTED, CLOSED = (
    "here",
    "committed results",
    "committed results, without torch",
)
# Findings of the committed results on the claims that read runs; tools/notes.py writes
# the file.
FINDINGS = ["id", "role", "what", "measured", "value", "agrees"]
COMMITTED_FILE = files("ropelab.claims") / "committed.csv"
# Characters of a measurement in the table for the terminal, beside the id and the
# verdict.
WIDTH = 26
# All checks together take 5 s, and 0.6 GB for the libraries.
NEEDS = Resources(seconds=0.04, memory_bytes=600_000_000)


def cells(config: ClaimsConfig) -> list[Cell]:
    claims = [find(id_) for id_ in _needed(config)]
    return [
        _cell(claim, config)
        for claim in claims
        if not (claim.reads or _is_closed(claim))
    ]


def _is_closed(claim: Claim) -> bool:
    """Return True for a claim whose check cannot be computed in this installation."""
    return claim.needs_torch and not is_installed("torch")


def tables(config: ClaimsConfig, values: Values) -> dict[str, pd.DataFrame]:
    """Make the tables of the ledger: claims, findings, passages, questions, and
    figures' series.
    """
    # A claim's verdict rests on the finding `decided_by`, `decided_at`, which has the
    # full number. Many claims read the same runs, which are files.
    stored = cache(values.stored)
    found: dict[str, Findings] = {}
    decided_from: dict[str, str] = {}
    needed = _needed(config)
    with values.context.progress("checking claims", total=len(needed)) as advance:
        for id_ in needed:
            claim = find(id_)
            if _is_closed(claim):
                found[id_], decided_from[id_] = committed()[id_], CLOSED
            elif claim.reads:
                runs = tuple(stored(claim.reads))
                found[id_] = claim.evidence(runs=runs)
                if (not runs or found[id_].is_missing) and id_ in committed():
                    found[id_] = replace(committed()[id_], expected=found[id_].expected)
                    decided_from[id_] = COMMITTED
            else:
                series = dict(values[_cell(claim, config)])
                text = series.pop("evidence")["evidence"].iloc[0]
                found[id_] = Findings.from_json(text, series)
            advance(1, note=id_)
    chosen = choose(config.id, config.source)
    answers = [
        {**_place(q.asked), "answer": q.answered(found), "claims": ", ".join(q.claims)}
        for q in _asked(config)
    ]
    findings = [
        {"id": claim.id, **asdict(one), "agrees": AGREES[one.agrees]}
        for claim in chosen
        for one in found[claim.id].findings
    ]
    claims = [
        _row(claim, found[claim.id], decided_from.get(claim.id, HERE))
        for claim in chosen
    ]
    made = {
        "claims": pd.DataFrame(claims),
        "findings": pd.DataFrame(findings, columns=FINDINGS),
        "passages": pd.DataFrame(_passages(chosen, config.source, found)).astype(YEAR),
    }
    if answers:
        made["questions"] = pd.DataFrame(answers).astype(YEAR)
    for claim in chosen:
        made |= found[claim.id].series
    return {name: table for name, table in made.items() if len(table)}


def _asked(config: ClaimsConfig) -> list[Question]:
    return [
        q for q in QUESTIONS if not config.id and config.source in ("", q.asked.source)
    ]


def _needed(config: ClaimsConfig) -> list[str]:
    """List the claims of the run, then those that only answers to questions rest on."""
    answering = [id_ for question in _asked(config) for id_ in question.claims]
    return list(
        dict.fromkeys(
            [claim.id for claim in choose(config.id, config.source)] + answering
        )
    )


def _cell(claim: Claim, config: ClaimsConfig) -> Cell:
    seed = {"seed": config.seed} if claim.takes_seed else {}
    return Computation(
        kind="claims-check",
        version=VERSION,
        title=f"claim {claim.id}",
        function=checked,
        inputs={"claim": claim.id, "inputs": {**claim.inputs, **seed}},
        resources=NEEDS,
    )


def checked(claim: str, inputs: Mapping[str, Any]) -> dict[str, pd.DataFrame]:
    # Findings are JSON: in a CSV column a text such as 1.00 would be read back as a
    # number.
    found = find(claim).evidence(**inputs)
    return {"evidence": pd.DataFrame({"evidence": [found.to_json()]}), **found.series}


@cache
def committed() -> dict[str, Findings]:
    """Read the findings that travel with the package, for where neither runs nor torch
    are.
    """
    stored: dict[str, Findings] = {}
    agrees = {name: value for value, name in AGREES.items()}
    for row in DictReader(COMMITTED_FILE.read_text(encoding="utf-8").splitlines()):
        found = stored.setdefault(row["id"], Findings(row["expected"], row["models"]))
        value = float(row["value"]) if row["value"] else None
        role = cast(Role, row["role"])
        found.add(role, row["what"], row["measured"], agrees[row["agrees"]], value)
    return stored


def _row(claim: Claim, found: Findings, decided_from: str) -> dict[str, Any]:
    return {
        "id": claim.id,
        # Two sentences of one section are one place.
        "source": "; ".join(
            dict.fromkeys(cited(passage) for passage in claim.passages)
        ),
        "statement": claim.statement,
        "evidence": str(claim.kind),
        "models": found.models,
        "decided_from": decided_from,
        "measured": found.measured,
        "expected": found.expected,
        "command": claim.command,
        **_decided(claim, found),
    }


def _passages(
    chosen: Sequence[Claim], only: str, found: Mapping[str, Findings]
) -> list[dict[str, Any]]:
    rows = [
        (p, claim) for claim in chosen for p in claim.passages if only in ("", p.source)
    ]
    if only and (order := SOURCES[only].sections):
        rows.sort(key=lambda row: order.index(row[0].section))
    return [
        {
            **_place(passage),
            "id": claim.id,
            **_decided(claim, found[claim.id].about(passage.by)),
        }
        for passage, claim in rows
    ]


def _decided(claim: Claim, found: Findings) -> dict[str, str]:
    decides, verdict = found.deciding, str(found.verdict(claim.kind))
    return {
        "verdict": verdict,
        "decided_by": decides.what,
        "decided_at": decides.measured,
    }


def _place(passage: Passage) -> dict[str, Any]:
    source = SOURCES[passage.source]
    about = {
        name: getattr(source, name) for name in ("title", "author", "year", "link")
    }
    said = {
        "place": passage.section,
        "quote": passage.quote,
        "english": passage.english,
    }
    return {"source": passage.source, **about, **said}


# The answer in words and the short table for the terminal, both from the tables alone


WORDS = table_beside(__file__)


def answer(tables: Tables) -> str:
    claims, passages = tables["claims"], tables["passages"]
    if len(claims) == 1:
        return _one(claims.iloc[0], passages)
    sentences = []
    if is_page(tables):
        first = passages.astype(object).where(passages.notna(), "").iloc[0]
        sentences.append(f"{_named(first)}{f', {first.link}' if first.link else ''}.")
    # A page lists sentences, of which several may rest on one claim.
    listed, noun = (
        (passages, "sentences") if is_page(tables) else (claims, "statements")
    )
    evidence = listed["id"].map(claims.set_index("id")["evidence"])
    for kind in Kind:
        mine = listed[evidence == str(kind)]
        if len(mine):
            counts = mine["verdict"].value_counts()
            said = []
            for verdict in OUTCOMES[kind]:
                number = int(counts.get(str(verdict), 0))
                one, several = WORDS["counted"][verdict]
                said.append(f"{number} {one if number == 1 else several}")
            about = WORDS["about"][kind]
            sentences.append(f"Of {len(mine)} {noun} {about} {', '.join(said)}.")
    if elsewhere := int((claims["decided_from"] == COMMITTED).sum()):
        sentences.append(
            f"No run stored here decides {elsewhere} of them: their verdicts are those"
            " of the committed results, and `ropelab claims --run` decides them anew."
        )
    if closed := int((claims["decided_from"] == CLOSED).sum()):
        sentences.append(
            f"{closed} of arithmetic need torch, which is not installed: theirs are"
            " those of the committed results (pip install 'ropelab[train]')."
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
    short = claims["decided_at"].map(
        lambda text: shorten(text, WIDTH, placeholder=" …")
    )
    return claims[["id", "verdict"]].assign(measured=short)


def is_page(tables: Tables) -> bool:
    return tables["passages"]["source"].nunique() == 1 and len(tables["claims"]) > 1


def page(tables: Tables) -> pd.DataFrame:
    said, passages = tables["claims"].set_index("id")["statement"], tables["passages"]
    quoted, english = passages["quote"].fillna(""), passages["english"].fillna("")
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


def _one(claim: pd.Series, passages: pd.DataFrame) -> str:
    # Our wording is marked as ours and quotations as quotations: they may differ.
    said = " ".join(
        _quoted(passage, claim["verdict"]) for _, passage in passages.iterrows()
    )
    models = (
        f" ({claim['models']})" if pd.notna(claim["models"]) and claim["models"] else ""
    )
    way = f"`{claim['command']}` makes a run that decides anew"
    if claim["decided_from"] == CLOSED:
        way = "its check needs torch (pip install 'ropelab[train]')"
    anew = (
        ""
        if claim["decided_from"] == HERE
        else f" These are the committed results; {way}."
    )
    return (
        f"{claim['id']}, in our words: {claim['statement']} {said} Verdict:"
        f" {claim['verdict']}{models}. {claim['measured']}.{anew}"
    )


def _quoted(stored: pd.Series, verdict: str) -> str:
    passage = stored.astype(object).where(stored.notna(), "")
    where = f"{_named(passage)}{f', {passage.place}' if passage.place else ''}"
    words = (f"“{passage.quote}”" if passage.quote else "", passage.english)
    said = " ".join(f"({x})" if x == passage.english else x for x in words if x)
    alone = f" (this sentence: {passage.verdict})" if passage.verdict != verdict else ""
    return f"Said in {where}{f': {said}' if said else ''}{alone}."


def _named(passage: pd.Series) -> str:
    about = " ".join(
        filter(None, (passage.author, f"{passage.year:.0f}" if passage.year else ""))
    )
    return f"“{passage.title}”" + (f" ({about})" if about else "")
