"""The answer of the ledger in words, and its short table, both from the tables of a run.

The tables list claims, and passages: the sentences of sources that make the claims. A
page is a run about a single source: it is shown sentence by sentence.
"""

import pandas as pd

from ropelab.claims.committed import COMMITTED, WITHOUT_TORCH
from ropelab.claims.record import OUTCOMES, Kind
from ropelab.runs.files import read_table_beside
from ropelab.runs.tables import Tables

# The words for counts of verdicts.
WORDS = read_table_beside(__file__, "verdicts")
# The columns of the table of claims that an index shows, and their names there: a verdict
# is read beside its statement.
INDEX_COLUMNS = {
    "id": "id",
    "statement": "statement",
    "verdict": "verdict",
    "decided_by": "decided by",
    "decided_at": "measured",
}


def answer(tables: Tables) -> str:
    """Count the verdicts by kind of evidence; explain the claim if there is only one."""
    claims = tables["claims"]
    passages = tables["passages"]
    if len(claims) == 1:
        return _explain_claim(claims.iloc[0], tables)

    sentences = []
    if is_page(tables):
        # All passages are of one source, so that the first one names it.
        first_passage = _fill_missing(passages.iloc[0])
        source = _name_source(first_passage)
        # A page lists sentences, of which several may make the same claim.
        evidence_of = claims.set_index("id")["evidence"]
        evidence = passages["id"].map(evidence_of)
        counts = _count_verdicts(passages["verdict"], evidence, "sentences")
        # A terminal shows the first sentence above the table, so that it has a count.
        first_count, *other_counts = counts
        sentences.append(f"{source}: {first_count[0].lower()}{first_count[1:]}")
        sentences += other_counts
        if first_passage["link"]:
            sentences.append(f"Its text: {first_passage['link']}.")
    else:
        sentences += _count_verdicts(
            claims["verdict"], claims["evidence"], "statements"
        )
    sentences += _describe_origins(claims)
    sentences += _describe_draws(tables)

    if is_page(tables) and "questions" in tables:
        for row in tables["questions"].itertuples():
            sentences.append(f"\n“{row.quote}” ({row.english}) {row.answer}")
    return " ".join(sentences)


def _count_verdicts(verdicts: pd.Series, evidence: pd.Series, noun: str) -> list[str]:
    """Return a sentence per kind of evidence that counts its verdicts."""
    sentences = []
    for kind in Kind:
        verdicts_of_kind = verdicts[evidence == str(kind)]
        if verdicts_of_kind.empty:
            continue

        number_of = verdicts_of_kind.value_counts()
        counts = []
        for verdict in OUTCOMES[kind]:
            number = int(number_of.get(str(verdict), 0))
            singular, plural = WORDS["counted"][verdict]
            words = singular if number == 1 else plural
            counts.append(f"{number} {words}")

        about = WORDS["about"][kind]
        total = len(verdicts_of_kind)
        sentences.append(f"Of {total} {noun} {about} {', '.join(counts)}.")
    return sentences


def _describe_origins(claims: pd.DataFrame) -> list[str]:
    """Say how many verdicts are not computed here."""
    sentences = []
    committed = int((claims["decided_from"] == COMMITTED).sum())
    if committed:
        sentences.append(
            f"No run stored here decides {committed} statements: their verdicts are those"
            " of the committed results, and `ropelab claims --run` decides them anew."
        )

    without_torch = int((claims["decided_from"] == WITHOUT_TORCH).sum())
    if without_torch:
        sentences.append(
            f"{without_torch} of arithmetic need torch, which is not installed: theirs are"
            " those of the committed results (pip install '.[train]')."
        )
    return sentences


def _describe_draws(tables: Tables) -> list[str]:
    """Say how many claims have numbers that are means of random draws."""
    drawn_claims = len(_list_drawn(tables))
    if not drawn_claims:
        return []
    return [
        f"{drawn_claims} claims measure means of random draws, each with an interval of"
        " 95 %: another --seed gives other digits and the same verdicts."
    ]


def _list_drawn(tables: Tables) -> set[str]:
    """List the claims that have a number which is a mean of random draws."""
    findings = tables["findings"]
    # A stored run of an earlier version does not say what was drawn.
    if "draws" not in findings:
        return set()
    return set(findings.loc[findings["draws"].notna(), "id"])


def summary(tables: Tables) -> pd.DataFrame:
    """Return the short table: the claims, or the sentences of a single source, or the
    findings on a single claim.
    """
    claims = tables["claims"]
    if len(claims) == 1:
        return tables["findings"][["role", "what", "measured", "agrees"]]

    if is_page(tables):
        rows = page(tables)
        # The column `sentence` shows a translation if there is one: Chinese has no spaces
        # at which a narrow column could be broken.
        is_translated = rows["english"] != ""
        readable = rows["english"].where(is_translated, rows["sentence"])
        original = rows["sentence"].where(is_translated, "")
        rows = rows.assign(sentence=readable, original=original)
        # A narrow terminal leaves out the last columns.
        return rows[["id", "verdict", "why", "sentence", "section", "original"]]

    # A terminal cuts the last column at its edge.
    return claims[["id", "verdict"]].assign(measured=claims["decided_at"])


def summarize_for_index(tables: Tables) -> pd.DataFrame:
    """Return the short table, in which each of several claims has its statement."""
    claims = tables["claims"]
    if len(claims) < 2:
        return summary(tables)
    return claims[list(INDEX_COLUMNS)].rename(columns=INDEX_COLUMNS)


def is_page(tables: Tables) -> bool:
    """Return True for the claims of a single source, which are shown sentence by
    sentence.
    """
    return tables["passages"]["source"].nunique() == 1 and len(tables["claims"]) > 1


def page(tables: Tables) -> pd.DataFrame:
    """Return the passages as they are read: a row for each sentence.

    ``sentence``: the quotation. A passage without a quotation has our words for it, or the
    statement of its claim. ``english``: the translation of the quotation, if there is one.
    """
    passages = tables["passages"]
    statement_of = tables["claims"].set_index("id")["statement"]
    quotes = passages["quote"].fillna("")
    english = passages["english"].fillna("")
    # Without a quotation, `english` has our words for the passage.
    statements = passages["id"].map(statement_of)
    our_words = english.where(english != "", statements)

    is_quoted = quotes != ""
    rows = pd.DataFrame(
        {
            "section": passages["place"].fillna(""),
            "sentence": quotes.where(is_quoted, our_words),
            "english": english.where(is_quoted, ""),
            "verdict": passages["verdict"],
            "why": passages["decided_by"] + ": " + passages["decided_at"],
            "id": passages["id"],
        }
    )
    return rows.reset_index(drop=True)


def _explain_claim(claim: pd.Series, tables: Tables) -> str:
    """Give the verdict on a claim, a row of `claims`, what was measured, and the passages
    that make the claim.
    """
    passages = tables["passages"]
    verdict = claim["verdict"]
    quotations = []
    for _, passage in passages.iterrows():
        quotations.append(_write_passage(_fill_missing(passage), verdict))
    models = ""
    if pd.notna(claim["models"]) and claim["models"]:
        models = f" ({claim['models']})"

    notes = ""
    if claim["decided_from"] == WITHOUT_TORCH:
        reason = "its check needs torch (pip install '.[train]')"
        notes = f" These are the committed results; {reason}."
    elif claim["decided_from"] == COMMITTED:
        way = f"`{claim['command']}` makes a run that decides anew"
        notes = f" These are the committed results; {way}."
    if claim["id"] in _list_drawn(tables):
        notes += (
            " The vectors are random and the intervals of 95 %: another --seed gives other"
            " digits."
        )
    # The statement is marked as our wording: the quotations may differ from it.
    statement = claim["statement"].removesuffix(".")
    return (
        f"{verdict.capitalize()}{models}: {statement} ({claim['id']}, in our words)."
        f" Measured: {claim['measured']}.{notes} {' '.join(quotations)}"
    )


def _fill_missing(row: pd.Series) -> pd.Series:
    """Return a row with empty texts for missing values."""
    return row.astype(object).where(row.notna(), "")


def _write_passage(passage: pd.Series, verdict: str) -> str:
    """Write a passage with its source, and its own verdict if that is not the claim's."""
    text = f"Said in {_name_source(passage)}"
    if passage["place"]:
        text += f", {passage['place']}"

    words = []
    if passage["quote"]:
        words.append(f"“{passage['quote']}”")
    if passage["english"]:
        words.append(f"({passage['english']})")
    if words:
        text += f": {' '.join(words)}"

    if passage["verdict"] != verdict:
        text += f" (this sentence: {passage['verdict']})"
    return f"{text}."


def _name_source(passage: pd.Series) -> str:
    """Write the title of a passage's source, with its author and year if they are known."""
    facts = []
    if passage["author"]:
        facts.append(passage["author"])
    if passage["year"]:
        facts.append(f"{passage['year']:.0f}")
    title = f"“{passage['title']}”"
    if not facts:
        return title
    return f"{title} ({' '.join(facts)})"
