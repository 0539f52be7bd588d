"""A source read beside its verdicts: every line of it, from the tables of the ledger."""

import pandas as pd

from ropelab.runs.tables import Tables

NO_REST = pd.DataFrame(columns=["source", "line", "last_line", "about", "claims"])


def of_source(tables: Tables, source: str) -> dict[str, pd.DataFrame]:
    """What the whole ledger has on one source: claims, and its passages, questions, other lines."""
    return {"claims": tables["claims"]} | {
        name: tables[name][tables[name]["source"].map(_key) == source]
        for name in ("passages", "questions", "rest")
        if name in tables
    }


def read_line_by_line(tables: Tables) -> list[str]:
    """The sources whose every line is in the tables, in order."""
    return sorted(set(tables.get("rest", NO_REST)["source"].map(_key)))


def _key(source: object) -> str:
    """The key of a source; those of notes are three digits, which a file gives back as a number."""
    text = str(source)
    return f"{int(text):03d}" if text.isdecimal() else text


def page(tables: Tables) -> pd.DataFrame:
    """Every line of a source: what it says, the verdict, and why; other lines with what they hold.

    Returns:
        lines, sentence, english, verdict, why, id; in the order of the text.
    """
    told = pd.concat([_sentences(tables), _others(tables)])
    told = told.sort_values("line", kind="stable", na_position="last")
    return told.drop(columns="line").reset_index(drop=True)


def _sentences(tables: Tables) -> pd.DataFrame:
    """The sentences that claims quote."""
    about, passages = tables["claims"].set_index("id"), tables["passages"]
    quoted, id_ = passages["quote"].fillna(""), passages["id"]
    numbers = passages["line"]
    return pd.DataFrame(
        {
            "line": numbers.astype(float),
            "lines": [f"{n:.0f}" if pd.notna(n) else "" for n in numbers],
            "sentence": quoted.where(quoted != "", id_.map(about["statement"])),
            "english": passages["english"].fillna(""),
            "verdict": id_.map(about["verdict"]),
            "why": id_.map(about["decided_by"]) + ": " + id_.map(about["decided_at"]),
            "id": id_,
        }
    )


def _others(tables: Tables) -> pd.DataFrame:
    """The lines between them, with the claims that decide what they say again."""
    rest = tables.get("rest", NO_REST)
    spans = zip(rest["line"], rest["last_line"], strict=True)
    return pd.DataFrame(
        {
            "line": rest["line"].astype(float),
            "lines": [str(first) if first == last else f"{first}-{last}" for first, last in spans],
            "sentence": "",
            "english": "",
            "verdict": "",
            "why": rest["about"],
            "id": rest["claims"].fillna(""),
        }
    )
