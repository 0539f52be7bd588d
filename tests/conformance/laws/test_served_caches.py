"""Evictions and joins of servers' caches: mistakes by their names, and right code."""

from dataclasses import replace
from typing import Any

import pytest

from ropelab.conformance.laws.eviction import EVICTION
from ropelab.conformance.laws.forgetting import KEPT, MOVED
from ropelab.conformance.laws.joining import JOINED, JOINED_ANEW
from ropelab.conformance.laws.subject import Function
from tests.conformance.laws.closed_forgetting import CLOSED_RIGHT, FORGETTING_PLANTS
from tests.conformance.laws.served_caches import SERVED_RIGHT, close
from tests.conformance.laws.served_words import (
    CLOSED_WORDS,
    EVICTIONS,
    JOINS,
    SERVED,
    WORDS,
)
from tests.conformance.laws.test_eviction import ask
from tests.small import mostly_slow

ITSELF = "own, by itself"
# Joins share most of their code, and so do mistakes that evictions and joins share.
FEW = ("FirstRow", "ByFirstGap", "CountsFirstGapKept", "OtherLayers", "ValuesExchanged")
FEW_CLOSED = ("Backwards", "OneTooFew", "CoarseTable")


@pytest.mark.parametrize("name", SERVED_RIGHT)
def test_right_code_is_not_accused(name: str) -> None:
    rows = ask(Function(SERVED_RIGHT[name]()), *EVICTIONS, *JOINS)
    refused = {row["trial"] for row in rows.values() if row["verdict"] != "holds"}
    if name == "one gap only":
        assert refused == {"own, two gaps"}
        said = rows["own, two gaps"]
        assert said["verdict"] == "cannot be asked"
        assert said["says"].startswith("it refuses to drop several runs of tokens")
    elif name == "joined anew":
        # Its cache remembers one text.
        assert refused == {"own, two rows joined"}
        assert rows["own, two rows joined"]["verdict"] == "cannot be asked"
        assert rows["own, fragments joined"]["says"] == JOINED_ANEW
    else:
        assert refused == set()
        assert rows["own, fragments joined"]["says"] == JOINED
        kept_or_moved = KEPT if "kept" in name else MOVED
        assert rows["own, two gaps"]["says"] == kept_or_moved


@pytest.mark.parametrize("name", mostly_slow(SERVED, FEW))
def test_a_mistake_is_named(name: str) -> None:
    check_words(ask(Function(SERVED[name]()), *dict(WORDS[name])), WORDS[name])


@pytest.mark.parametrize("name", mostly_slow(CLOSED_WORDS, FEW_CLOSED))
def test_a_mistake_of_a_closed_cache_is_named_by_logits(name: str) -> None:
    rows = ask(Function(close(SERVED[name])()), *dict(CLOSED_WORDS[name]))
    check_words(rows, CLOSED_WORDS[name])


def check_words(
    rows: dict[str, dict[str, Any]], wanted: tuple[tuple[str, tuple[str, ...]], ...]
) -> None:
    for trial, words in wanted:
        row = rows[trial]
        assert row["verdict"] == "broken"
        assert [each for each in words if each not in row["says"]] == []


@pytest.mark.parametrize("name", mostly_slow(CLOSED_RIGHT, ["closed, moved up"]))
def test_a_cache_that_forgets_by_itself_is_not_accused(name: str) -> None:
    row = ask(CLOSED_RIGHT[name].make(), ITSELF)[ITSELF]
    assert row["verdict"] in ("holds", "rounding only")
    assert row["says"].startswith(KEPT if "kept" in name else MOVED)
    if name == "closed, moved up":
        assert row["says"].endswith("the first 4 tokens and at most the last 17")


FEW_FORGETTING = ("backwards", "values of the last tokens")
FORGETTING_WORDS = {
    "backwards": "keys behind the gap are rotated by +1 positions",
    "one too many": "keys behind the gap are rotated by -2 positions",
    "counts one more": "keys end at positions 0 to 3, 5 to 20, where kept they are at",
    "values of the last tokens": "keys of tokens 0 to 3 have values of tokens 1 to 4",
    "values of the first tokens": "keys of tokens 5 to 20 have values of tokens 4 to 19",
    "keys one slot late": "keys of tokens 20, 0 to 3, 5 to 19 have values of tokens 0 to 3,",
    "values of other heads": "from token 20 on values are those of other heads",
    "keys of other heads": "keys are those of other heads",
    "second layer alone": "by +0 positions in layer 0, and by -1 in layer 1",
    "keys halved": "are multiplied by 0.5 besides being rotated",
}


@pytest.mark.parametrize("name", mostly_slow(FORGETTING_WORDS, FEW_FORGETTING))
def test_a_mistake_of_a_forgetting_cache_is_named(name: str) -> None:
    row = ask(FORGETTING_PLANTS[name].make(), ITSELF)[ITSELF]
    assert row["verdict"] == "broken"
    assert FORGETTING_WORDS[name] in row["says"]


CLOSED_FORGETTING = {
    "backwards": "in the wrong direction, by +1 positions at each eviction",
    "one too many": "rotated by -2 positions at each eviction",
    "counts tokens": "moved up at each eviction, and new tokens are counted on from 21",
    "keys stay": "keys keep their rotation, and new tokens are counted from 20",
    "newest key stays": "moved up at each eviction, but not the newest key",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CLOSED_FORGETTING)
def test_a_closed_forgetting_cache_is_named_by_logits(name: str) -> None:
    row = ask(replace(FORGETTING_PLANTS[name], is_closed=True).make(), ITSELF)[ITSELF]
    assert row["verdict"] == "broken"
    assert CLOSED_FORGETTING[name] in row["says"]


@pytest.mark.slow
def test_a_closed_forgetting_cache_that_logits_do_not_tell_is_not_judged() -> None:
    rules = replace(FORGETTING_PLANTS["values of other heads"], is_closed=True)
    row = ask(rules.make(), ITSELF)[ITSELF]
    assert row["verdict"] == "cannot be asked"
    assert "its logits do not tell which tokens it holds" in row["says"]


def test_trials_of_the_law_have_different_names() -> None:
    names = [trial.name for trial in EVICTION.trials]
    assert len(set(names)) == len(names)
