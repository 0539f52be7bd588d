"""From a config to the cells of a run: every way to read, asked everything."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ropelab.experiments.extrapolate.given.config import GivenConfig
from ropelab.models.methods.attention import UNSCALED
from ropelab.models.tasks import grid
from ropelab.models.tasks.copying import Copying
from ropelab.models.tasks.given import AskedOfGiven
from ropelab.models.tasks.needles import Needles
from ropelab.models.tasks.readers import AsShipped, Reader, Sliding, Under
from ropelab.models.tasks.text import Texts
from ropelab.runs.labels import AS_SHIPPED, WINDOW


@dataclass(frozen=True)
class Row:
    """One way to read a long context: what it is called, and how it is done."""

    method: str
    factor: float
    reader: Reader


def rows(config: GivenConfig) -> Iterator[Row]:
    """As shipped first: it is what all others are compared with.

    Where the checkpoint scales nothing, that is what unscaled means, and it is measured once.
    """
    yield Row(AS_SHIPPED, 1.0, AsShipped())
    geometry = config.geometry()
    as_it_is = config.facts.rope_type == "default"
    for method in config.parsed_methods():
        same = as_it_is and method.label == UNSCALED.label
        reader = AsShipped() if same else Under(method, geometry)
        yield Row(method.label, method.reach, reader)


def window_row(config: GivenConfig) -> Row:
    """As shipped, and never more of the text at once than the window."""
    return Row(WINDOW, 1.0, Sliding(AsShipped(), window_of(config)))


def window_of(config: GivenConfig) -> int:
    """Tokens of the sliding window: the length that the model claims, if more is tested."""
    claimed = config.facts.claimed_len
    return claimed if claimed < config.test_len else config.facts.train_len


def question(config: GivenConfig, task: str) -> Texts | Copying | Needles:
    """What the model is asked in a task."""
    train, test, text = config.facts.train_len, config.test_len, config.text()
    contexts = tuple(grid.retrieval_contexts(train, test))
    if task == "text":
        return Texts(
            corpus=text,
            documents=config.documents,
            buckets=tuple(grid.buckets(train, test)),
            contexts=tuple(grid.contexts(train, test)),
            last=grid.last_window(train),
        )
    if task == "copy":
        places = grid.places(grid.distances(train, test), contexts)
        return Copying(places=places, sequences=config.sequences, text=text)
    return Needles(
        name="passkey" if task == "passkey" else "multiquery",
        contexts=contexts,
        depths=config.depths,
        sequences=config.sequences,
        text=text,
    )


def cells(config: GivenConfig, task: str) -> list[AskedOfGiven]:
    """A task under every row, as shipped first."""
    asked, subject = question(config, task), config.given()
    last = at_the_end(asked, config.test_len)
    pairs = [*((row, asked) for row in rows(config)), (window_row(config), last)]
    return [
        AskedOfGiven(subject=subject, trial=trial, reader=row.reader, labels=labels(row))
        for row, trial in pairs
    ]


def at_the_end(asked: Texts | Copying | Needles, test_len: int) -> Texts | Copying | Needles:
    """What a sliding window is asked: the same, in the longest context only."""
    if isinstance(asked, Copying):
        places = tuple(place for place in asked.places if place.context == test_len)
        return replace(asked, places=places)
    return replace(asked, contexts=(test_len,))


def probe(config: GivenConfig, task: str) -> AskedOfGiven | None:
    """What shows whether a task is decidable: as shipped, inside the trained length; text is.

    For copying, from half of that length back; for keys, at all depths.
    """
    asked, length = question(config, task), config.facts.train_len
    if isinstance(asked, Copying):
        asked = replace(asked, places=(grid.Place(length // 2, length),))
    elif isinstance(asked, Needles):
        asked = replace(asked, contexts=(length,))
    else:
        return None
    shipped = next(rows(config))
    return AskedOfGiven(
        subject=config.given(), trial=asked, reader=shipped.reader, labels=labels(shipped)
    )


def labels(row: Row) -> tuple[tuple[str, object], ...]:
    """The first columns of its rows; nothing was drawn and nothing tuned."""
    return ("method", row.method), ("factor", row.factor), ("seed", 0), ("arm", "zero_shot")
