"""Pass keys in natural text, asked for at its end: by depth and length of the context.

passkey     one key (Mohtashami and Jaggi 2023, arXiv:2305.16300) multiquery  a named
key at every depth, all asked for in turn, each after the right answers to the
            earlier ones, as in RULER (Hsieh et al. 2024, arXiv:2404.06654)
indexing    one of four values by its place in a list, and
keyed       by its key: see `ropelab.models.lm.lists`

The wording is ours. Scored are greedy decoding of the whole answer and its
log-probability.
"""

from dataclasses import dataclass, replace
from itertools import chain
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
    *("amber", "basil", "cedar", "delta", "fjord", "grove", "heron", "inlet"),
    *("jungle", "kettle", "lotus", "mirror", "nickel", "oyster", "pepper", "quartz"),
)
# The least share of a context that has to be text of the corpus.
LEAST_TEXT = 0.5
# Rows that a search looks at; they follow those that are measured.
SEARCH_ROWS = 2
# How keys are introduced, stated and asked for; their names and values are filled in.
WORDINGS: dict[str, dict[str, str]] = table_beside(__file__)
NEEDLES = (*WORDINGS, *LISTS)


class Asked(NamedTuple):
    """A key or list in words, and the question for it."""

    depth: int  # in percent of the text
    statement: str
    question: str
    answer: str  # what follows the question, its space included


class Answer(NamedTuple):
    depth: int  # of its key, in percent
    start: int  # in the row, in tokens
    size: int
    distance: int  # of the key


class Needle(NamedTuple):
    """One row: a context, and the answers that it asks for, the last one at its end."""

    tokens: Int[Tensor, "1 length"]
    answers: tuple[Answer, ...]


@dataclass(frozen=True, kw_only=True)
class Needles(EvaluationTask):
    """Keys to be found, worded as WORDINGS says: one in a row, or one at every
    depth.
    """

    contexts: tuple[int, ...]  # tokens before the last one of the answer
    depths: tuple[int, ...]  # in percent of the text; 0 is its beginning
    sequences: int  # for each depth and context, each in other text

    @property
    def text_key(self) -> dict[str, Any]:
        return self.corpus.stretch_key

    @property
    def rows(self) -> int:
        return self.sequences * (1 if self.name == "multiquery" else len(self.depths))

    @property
    def windows(self) -> Windows:
        return [(self.rows, context) for context in self.contexts]

    @property
    def searched(self) -> Windows:
        return [(SEARCH_ROWS, self.contexts[-1])]

    def check(self) -> None:
        for context in self.contexts:
            self.needle(context, 0)

    def inside(self, length: int) -> Self:
        return replace(self, contexts=(length,))

    # In the longest context only.
    at_the_end = inside

    def measure(
        self, model: Readable, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return `answers`: 1 for each one that was found, and its log-probability."""
        records = []
        for context in self.contexts:
            for number in range(self.rows):
                tokens, answers = self.needle(context, number)
                first = answers[0].start
                for _ in mode.passes(model, [context]):
                    losses, right = answered(
                        model, mode.visible(tokens), tokens.shape[1] - first
                    )
                    for depth, start, size, distance in answers:
                        place = slice(start - first, start - first + size)
                        correct, nats = (
                            int(right[0, place].all()),
                            -float(losses[0, place].sum()),
                        )
                        records.append(
                            (context, number, depth, distance, correct, nats)
                        )
                advance(1)
        columns = ["context_tokens", "sequence", "depth_percent", "distance_tokens"]
        found = pd.DataFrame(
            records, columns=[*columns, "correct", "log_probability_nats"]
        )
        return {"answers": found.assign(trials=1)}

    def search_loss(self, model: Readable, mode: Mode) -> float:
        """Return the mean loss of the last answer of rows that are not measured."""
        losses = []
        for number in range(self.rows, self.rows + SEARCH_ROWS):
            tokens, answers = self.needle(self.contexts[-1], number)
            next(mode.passes(model, [self.contexts[-1]]))
            losses.append(answered(model, tokens, answers[-1].size)[0].mean())
        return float(torch.stack(losses).mean())

    def needle(self, context: int, number: int) -> Needle:
        """Make the row of that number, with text and keys of its own. InputError if too
        short.
        """
        asked, ids = self._asked(context, number), self.corpus.ids
        pieces = [ids(each.statement) for each in asked]
        ends = [self._question(each.question, each.answer) for each in asked]
        introduction = (
            WORDINGS[self.name]["introduction"] if self.name in WORDINGS else ""
        )
        before = self.corpus.front + ids(f"{introduction}\n\n")
        around = sum(map(len, [before, *pieces, *chain(*ends)]))
        room = context + 1 - around
        if room < LEAST_TEXT * context:
            raise InputError(
                f"{context} tokens are too few for {self.name}: {around} are no text"
            )
        depths = [each.depth for each in asked]
        text, starts = insert(self.corpus.stretch(number, room), pieces, depths)
        row, answers = [*before, *text], []
        for depth, start, (question, answer) in zip(depths, starts, ends, strict=True):
            place = len(row) + len(question)
            answers.append(
                Answer(depth, place, len(answer), place - len(before) - start)
            )
            row += [*question, *answer]
        return Needle(torch.tensor([row]), tuple(answers))

    def _asked(self, context: int, number: int) -> list[Asked]:
        """Draw the keys of a row with their depths, in the order of the questions."""
        random = np.random.default_rng(
            (EVALUATION, NEEDLES.index(self.name), context, number)
        )
        one = self.depths[number % len(self.depths)]
        if self.name in LISTS:
            words = FOR_BYTES if isinstance(self.corpus, CorpusRef) else FOR_TOKENS
            stated, asked = draw_list(random, self.name, words)
            return [Asked(one, stated, *asked[0])]
        depths = (
            [one]
            if self.name == "passkey"
            else random.permutation(self.depths).tolist()
        )
        names = random.permutation(NAMES)[: len(depths)].tolist()
        # Five digits, none of them a leading zero.
        values = (random.choice(90_000, len(names), replace=False) + 10_000).tolist()
        state, ask = (
            WORDINGS[self.name][part].format for part in ("statement", "question")
        )
        return [
            Asked(depth, state(name=name, value=value), ask(name=name), f" {value}")
            for depth, name, value in zip(depths, names, values, strict=True)
        ]

    def _question(self, question: str, answer: str) -> tuple[list[int], list[int]]:
        """Return the tokens of the question, and those that the answer adds to it."""
        # A tokenizer may join the last token of the question with the first of the
        # answer.
        alone, whole = self.corpus.ids(question), self.corpus.ids(question + answer)
        same = next(
            (i for i, (a, b) in enumerate(zip(alone, whole, strict=False)) if a != b),
            None,
        )
        cut = min(len(alone), len(whole)) if same is None else same
        return whole[:cut], whole[cut:]


@torch.inference_mode()
def answered(
    model: Readable, tokens: Int[Tensor, "rows tokens"], last: int
) -> tuple[Float[Tensor, "rows last"], Bool[Tensor, "rows last"]]:
    """Return losses of the last tokens in nats, and True where one is the most probable
    token.
    """
    # Under greedy decoding an answer comes out exactly if each of its tokens is the
    # most probable one after those before it: one pass over a row that ends in the
    # right answer shows both.
    tokens = tokens.to(model.head.weight.device)
    hidden, targets = model.hidden_states(tokens[:, :-1], last=last), tokens[:, -last:]
    logits = model.head(hidden).float()
    losses = cross_entropy(
        logits.transpose(1, 2), targets.to(logits.device), reduction="none"
    )
    return losses.double().cpu(), (
        logits.argmax(dim=-1) == targets.to(logits.device)
    ).cpu()
