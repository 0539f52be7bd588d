"""Pass keys in natural text, asked for at its end: by depth and length of the context.

passkey
    one key (Mohtashami and Jaggi 2023, arXiv:2305.16300), at one of the depths
multiquery
    a named key at every depth, all asked for in turn, each after the right answers to
    the earlier ones, as in RULER (Hsieh et al. 2024, arXiv:2404.06654)
indexing, keyed
    one of four values by its place in a list, and by its key: see
    `ropelab.models.lm.lists`

The wording is ours. Scored are greedy decoding of the whole answer and its
log-probability.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from ropelab.models.lm.corpus import EVALUATION, CorpusRef
from ropelab.models.lm.evaluation import Readable
from ropelab.models.lm.lists import FOR_BYTES, FOR_TOKENS, LISTS, draw_list, insert
from ropelab.models.tasks.modes import Mode
from ropelab.models.tasks.task import EvaluationTask, Windows
from ropelab.runs.cell import Advance
from ropelab.runs.errors import InputError
from ropelab.runs.files import table_beside

# The names of keys where there are several.
NAMES = (
    "amber",
    "basil",
    "cedar",
    "delta",
    "fjord",
    "grove",
    "heron",
    "inlet",
    "jungle",
    "kettle",
    "lotus",
    "mirror",
    "nickel",
    "oyster",
    "pepper",
    "quartz",
)
# The least share of a context that has to be text of the corpus.
LEAST_TEXT = 0.5
# Rows of a search; they follow those that are measured.
SEARCH_ROWS = 2
# How keys are introduced, stated and asked for; their names and values are filled in.
WORDINGS: dict[str, dict[str, str]] = table_beside(__file__)
NEEDLES = (*WORDINGS, *LISTS)


class Query(NamedTuple):
    """A key or list in words, and the question for it."""

    # In percent of the text.
    depth: int
    statement: str
    question: str
    # The text after the question, its space included.
    answer: str


class Answer(NamedTuple):
    """The place of an answer in a row, in tokens, and the place of its key."""

    depth: int
    start: int
    size: int
    # From the answer back to the key.
    distance: int


class Needle(NamedTuple):
    """One row: a context, and the answers that it asks for, the last one at its end."""

    tokens: Int[Tensor, "1 length"]
    answers: tuple[Answer, ...]


@dataclass(frozen=True, kw_only=True)
class Needles(EvaluationTask):
    """Keys to be found, in the words of WORDINGS: one in a row, or one at every depth."""

    # Tokens before the last one of the answer.
    contexts: tuple[int, ...]
    # In percent of the text; 0 is its beginning.
    depths: tuple[int, ...]
    # Of each length, each in other text; single keys and lists are at the depths in
    # turn, at least once at each.
    sequences: int

    @property
    def version(self) -> int:
        return 2

    @property
    def text_key(self) -> dict[str, Any]:
        return self.corpus.stretch_key

    @property
    def rows(self) -> int:
        if self.name == "multiquery":
            return self.sequences
        return max(self.sequences, len(self.depths))

    @property
    def windows(self) -> Windows:
        return [(self.rows, context) for context in self.contexts]

    @property
    def search_windows(self) -> Windows:
        return [(SEARCH_ROWS, self.contexts[-1])]

    def check(self) -> None:
        for context in self.contexts:
            self.needle(context, 0)

    def inside(self, length: int) -> Self:
        return replace(self, contexts=(length,))

    def at_the_end(self, length: int) -> Self:
        """Return the same task in the longest context only."""
        return self.inside(length)

    def measure(
        self, model: Readable, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return `answers`: 1 for each one that was found, and its log-probability."""
        records: list[dict[str, Any]] = []
        for context in self.contexts:
            for number in range(self.rows):
                needle = self.needle(context, number)
                for _ in mode.passes(model, [context]):
                    row = {"context_tokens": context, "sequence": number}
                    for result in _measure_answers(model, mode, needle):
                        records.append({**row, **result})
                advance(1)
        columns = [
            "context_tokens",
            "sequence",
            "depth_percent",
            "distance_tokens",
            "correct",
            "log_probability_nats",
        ]
        answers = pd.DataFrame(records, columns=columns)
        return {"answers": answers.assign(trials=1)}

    def search_loss(self, model: Readable, mode: Mode) -> float:
        """Return the mean loss of the last answer of rows that are not measured."""
        losses = []
        for number in range(self.rows, self.rows + SEARCH_ROWS):
            tokens, answers = self.needle(self.contexts[-1], number)
            mode.prepare(model, [self.contexts[-1]])
            losses_of_answer, _ = evaluate_last(model, tokens, answers[-1].size)
            losses.append(losses_of_answer.mean())
        return float(torch.stack(losses).mean())

    def needle(self, context: int, number: int) -> Needle:
        """Make the row of that number, with text and keys of its own.

        InputError: the context is too short.
        """
        queries = self._draw_queries(context, number)
        statements = [self.corpus.ids(query.statement) for query in queries]
        ends = [self._tokenize(query.question, query.answer) for query in queries]
        introduction = ""
        if self.name in WORDINGS:
            introduction = WORDINGS[self.name]["introduction"]
        before = self.corpus.front + self.corpus.ids(f"{introduction}\n\n")

        around = len(before) + sum(len(statement) for statement in statements)
        around += sum(len(question) + len(answer) for question, answer in ends)
        room = context + 1 - around
        if room < LEAST_TEXT * context:
            raise InputError(
                f"{context} tokens are too few for {self.name}: {around} are no text"
            )

        depths = [query.depth for query in queries]
        text, starts = insert(self.corpus.stretch(number, room), statements, depths)
        row = [*before, *text]
        answers = []
        for depth, start, (question, answer) in zip(depths, starts, ends, strict=True):
            place = len(row) + len(question)
            distance = place - len(before) - start
            answers.append(Answer(depth, place, len(answer), distance))
            row += question
            row += answer
        return Needle(torch.tensor([row]), tuple(answers))

    def _draw_queries(self, context: int, number: int) -> list[Query]:
        """Draw the keys of a row with their depths, in the order of the questions."""
        random = np.random.default_rng(
            (EVALUATION, NEEDLES.index(self.name), context, number)
        )
        single_depth = self.depths[number % len(self.depths)]
        if self.name in LISTS:
            words = FOR_BYTES if isinstance(self.corpus, CorpusRef) else FOR_TOKENS
            statement, questions = draw_list(random, self.name, words)
            return [Query(single_depth, statement, *questions[0])]

        if self.name == "passkey":
            depths = [single_depth]
        else:
            depths = random.permutation(self.depths).tolist()
        names = random.permutation(NAMES)[: len(depths)].tolist()
        # Five digits, none of them a leading zero.
        values = (random.choice(90_000, len(names), replace=False) + 10_000).tolist()
        wording = WORDINGS[self.name]
        queries = []
        for depth, name, value in zip(depths, names, values, strict=True):
            statement = wording["statement"].format(name=name, value=value)
            question = wording["question"].format(name=name)
            queries.append(Query(depth, statement, question, f" {value}"))
        return queries

    def _tokenize(self, question: str, answer: str) -> tuple[list[int], list[int]]:
        """Return the tokens of the question, and those that the answer adds to it."""
        # A tokenizer may join the last token of the question with the first of the
        # answer.
        alone = self.corpus.ids(question)
        whole = self.corpus.ids(question + answer)
        cut = 0
        while cut < min(len(alone), len(whole)) and alone[cut] == whole[cut]:
            cut += 1
        return whole[:cut], whole[cut:]


def _measure_answers(
    model: Readable, mode: Mode, needle: Needle
) -> Iterator[dict[str, Any]]:
    """Yield for each answer of a row if it was found, and its log-probability."""
    first = needle.answers[0].start
    last = needle.tokens.shape[1] - first
    losses, is_right = evaluate_last(model, mode.visible(needle.tokens), last)
    for answer in needle.answers:
        place = slice(answer.start - first, answer.start - first + answer.size)
        yield {
            "depth_percent": answer.depth,
            "distance_tokens": answer.distance,
            "correct": int(is_right[0, place].all()),
            "log_probability_nats": -float(losses[0, place].sum()),
        }


@torch.inference_mode()
def evaluate_last(
    model: Readable, tokens: Int[Tensor, "rows tokens"], last: int
) -> tuple[Float[Tensor, "rows last"], Bool[Tensor, "rows last"]]:
    """Return losses of the last tokens in nats, and True at the most probable token."""
    # Under greedy decoding an answer comes out exactly if each of its tokens is the
    # most probable one after those before it: one pass over a row that ends in the
    # right answer shows both.
    tokens = tokens.to(model.head.weight.device)
    hidden = model.hidden_states(tokens[:, :-1], last=last)
    logits = model.head(hidden).float()
    targets = tokens[:, -last:].to(logits.device)
    losses = cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    is_right = logits.argmax(dim=-1) == targets
    return losses.double().cpu(), is_right.cpu()
