"""Tasks that hide a key or a list in natural text and ask for it at the end of the text.

passkey
    One key is hidden at one depth, and asked for at the end (Mohtashami and Jaggi 2023,
    arXiv:2305.16300).
multiquery
    A named key is hidden at every depth. All keys are asked for in turn, each after the
    right answers to the earlier questions, as in RULER (Hsieh et al. 2024,
    arXiv:2404.06654).
indexing, keyed
    A list of four values is hidden. One value is asked for by its place in the list, or
    by its key (ropelab/models/lm/lists.py).

A depth is a place in the text, in percent. The wording was written for ropelab. An
answer is right if greedy decoding gives all of its tokens. Its log-probability is
measured, too.
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
from ropelab.models.lm.evaluation import EvaluableModel
from ropelab.models.lm.lists import (
    FOR_BYTES,
    FOR_TOKENS,
    LISTS,
    draw_list,
    insert_pieces,
)
from ropelab.models.tasks.modes import Mode
from ropelab.models.tasks.task import EvaluationTask, Windows
from ropelab.runs.cell import Advance
from ropelab.runs.errors import InputError
from ropelab.runs.files import read_table_beside

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
LEAST_TEXT_SHARE = 0.5
# The number of rows on which a search measures its loss. These rows have the numbers
# after the numbers of the measured rows.
SEARCH_ROWS = 2
# For `passkey` and `multiquery`: how keys are introduced, stated and asked for. Names and
# values are filled in.
WORDINGS: dict[str, dict[str, str]] = read_table_beside(__file__)
# The names of all tasks of this file.
NEEDLES = (*WORDINGS, *LISTS)


class Query(NamedTuple):
    """A key or list in words, and the question for it."""

    # The depth of the statement, in percent of the text.
    depth: int
    # The text that states the key or the list.
    statement: str
    question: str
    # The text after the question, with the space before it.
    answer: str


class Answer(NamedTuple):
    """The place of an answer in a row of tokens."""

    # The depth of the key or list, in percent of the text.
    depth: int
    # The place of the first token, and the number of tokens.
    start: int
    size: int
    # The number of tokens from the key or list to the answer.
    distance: int


class Needle(NamedTuple):
    """A row of tokens and all answers that it asks for; the row ends with the last."""

    tokens: Int[Tensor, "1 length"]
    answers: tuple[Answer, ...]


@dataclass(frozen=True, kw_only=True)
class Needles(EvaluationTask):
    """The evaluation of a model on rows of one of the tasks in NEEDLES."""

    # The lengths of context: the number of tokens before the last token of the answer.
    contexts: tuple[int, ...]
    # The depths of keys and lists, in percent of the text; 0 is its beginning.
    depths: tuple[int, ...]
    # The number of rows of each length, each in another text. For `multiquery` a row
    # has keys at all depths. For all other tasks each row has one depth, and the depths
    # take turns. More rows are made if a depth would not occur otherwise.
    sequences: int

    @property
    def version(self) -> int:
        return 2

    @property
    def text_key(self) -> dict[str, Any]:
        return self.corpus.stretch_key

    @property
    def rows(self) -> int:
        """The number of rows of each length."""
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

    def make_easy_version(self, length: int) -> Self:
        return replace(self, contexts=(length,))

    def restrict_to_context(self, length: int) -> Self:
        """Return the same task in contexts of one length only."""
        return replace(self, contexts=(length,))

    def measure(
        self, model: EvaluableModel, mode: Mode, advance: Advance
    ) -> dict[str, pd.DataFrame]:
        """Return `answers`: for each answer 1 if it was found, and its log-probability."""
        records: list[dict[str, Any]] = []

        for context in self.contexts:
            for number in range(self.rows):
                needle = self.needle(context, number)
                # The loop has one step, or none if the model's encoding is not defined
                # for the context.
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

    def search_loss(self, model: EvaluableModel, mode: Mode) -> float:
        """Return the mean loss of the last answers of rows that are not measured."""
        longest = self.contexts[-1]
        losses = []
        for number in range(self.rows, self.rows + SEARCH_ROWS):
            tokens, answers = self.needle(longest, number)
            mode.prepare(model, [longest])
            last_answer = answers[-1]
            losses_of_answer, _ = evaluate_last(model, tokens, last_answer.size)
            losses.append(losses_of_answer.mean())
        return float(torch.stack(losses).mean())

    def needle(self, context: int, number: int) -> Needle:
        """Make row `number` of a context. Every row has its own text and keys.

        A row is the introduction, then text with the statements in it, then each
        question with its answer. InputError: the context is too short.
        """
        queries = self._draw_queries(context, number)
        statements = [self.corpus.ids(query.statement) for query in queries]
        questions_and_answers = [
            self._tokenize(query.question, query.answer) for query in queries
        ]
        introduction = ""
        if self.name in WORDINGS:
            introduction = WORDINGS[self.name]["introduction"]
        opening = self.corpus.front + self.corpus.ids(f"{introduction}\n\n")

        # The text of the corpus fills what all other tokens leave of the context.
        other_tokens = len(opening) + sum(len(statement) for statement in statements)
        for question, answer in questions_and_answers:
            other_tokens += len(question) + len(answer)
        # The last token of the answer comes after the context.
        text_length = context + 1 - other_tokens
        if text_length < LEAST_TEXT_SHARE * context:
            raise InputError(
                f"{context} tokens are too few for {self.name}: {other_tokens} are no"
                " text"
            )

        depths = [query.depth for query in queries]
        text, starts = insert_pieces(
            self.corpus.stretch(number, text_length), statements, depths
        )
        row = [*opening, *text]
        answers = []
        for depth, start, (question, answer) in zip(
            depths, starts, questions_and_answers, strict=True
        ):
            start_of_answer = len(row) + len(question)
            start_of_statement = len(opening) + start
            distance = start_of_answer - start_of_statement
            answers.append(Answer(depth, start_of_answer, len(answer), distance))
            row += question
            row += answer
        return Needle(torch.tensor([row]), tuple(answers))

    def _draw_queries(self, context: int, number: int) -> list[Query]:
        """Draw the keys or the list of a row, in the order of the questions."""
        random = np.random.default_rng(
            (EVALUATION, NEEDLES.index(self.name), context, number)
        )
        # The depths take turns in the rows of tasks that have one statement in a row.
        single_depth = self.depths[number % len(self.depths)]
        if self.name in LISTS:
            words = FOR_TOKENS
            if isinstance(self.corpus, CorpusRef):
                words = FOR_BYTES
            statement, questions = draw_list(random, self.name, words)
            # Only the first of the questions for the list is used.
            question, answer = questions[0]
            return [Query(single_depth, statement, question, answer)]

        if self.name == "passkey":
            depths = [single_depth]
        else:
            depths = random.permutation(self.depths).tolist()
        names = random.permutation(NAMES)[: len(depths)].tolist()
        # Different numbers of five digits, the first of which is not 0.
        values = (random.choice(90_000, len(names), replace=False) + 10_000).tolist()
        wording = WORDINGS[self.name]
        queries = []
        for depth, name, value in zip(depths, names, values, strict=True):
            statement = wording["statement"].format(name=name, value=value)
            question = wording["question"].format(name=name)
            queries.append(Query(depth, statement, question, f" {value}"))
        return queries

    def _tokenize(self, question: str, answer: str) -> tuple[list[int], list[int]]:
        """Return the tokens of the question, and the tokens that the answer adds."""
        # A tokenizer may join the end of the question and the beginning of the answer
        # into one token. Both are therefore tokenized together. The answer begins at
        # the first of the joint tokens that differs from the tokens of the question
        # alone.
        question_tokens = self.corpus.ids(question)
        joint_tokens = self.corpus.ids(question + answer)
        shared = 0
        for token_alone, token_together in zip(
            question_tokens, joint_tokens, strict=False
        ):
            if token_alone != token_together:
                break
            shared += 1
        return joint_tokens[:shared], joint_tokens[shared:]


def _measure_answers(
    model: EvaluableModel, mode: Mode, needle: Needle
) -> Iterator[dict[str, Any]]:
    """Yield a record for each answer of a row: if it was found, and its probability."""
    # All tokens from the first answer on are evaluated, including tokens of later
    # questions.
    first = needle.answers[0].start
    last = needle.tokens.shape[1] - first
    visible_tokens = mode.cut_to_visible(needle.tokens)
    losses, is_right = evaluate_last(model, visible_tokens, last)

    # There is one row.
    (losses_of_row,) = losses
    (is_right_in_row,) = is_right
    for answer in needle.answers:
        start = answer.start - first
        in_answer = slice(start, start + answer.size)
        yield {
            "depth_percent": answer.depth,
            "distance_tokens": answer.distance,
            "correct": int(is_right_in_row[in_answer].all()),
            "log_probability_nats": -float(losses_of_row[in_answer].sum()),
        }


@torch.inference_mode()
def evaluate_last(
    model: EvaluableModel, tokens: Int[Tensor, "rows tokens"], last: int
) -> tuple[Float[Tensor, "rows last"], Bool[Tensor, "rows last"]]:
    """Return the losses of the last tokens, and which of them are the most probable.

    Losses are in nats.
    """
    # Greedy decoding gives an answer exactly if each of its tokens is the most probable
    # token after the tokens before it. So one pass over a row that ends in the right
    # answer shows whether greedy decoding would give this answer, and also its
    # probability.
    tokens = tokens.to(model.head.weight.device)
    hidden = model.hidden_states(tokens[:, :-1], last=last)
    logits = model.head(hidden).float()
    targets = tokens[:, -last:].to(logits.device)
    losses = cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    is_right = logits.argmax(dim=-1) == targets
    return losses.double().cpu(), is_right.cpu()
