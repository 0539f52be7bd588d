"""A pass key hidden in natural text, asked for at its end: by depth and length of the context.

One key is the pass key of Mohtashami and Jaggi (2023, arXiv:2305.16300), several of which one is
asked for the needle with several keys of RULER (Hsieh et al. 2024, arXiv:2404.06654); the haystack
is the corpus, the wording is ours. What is scored is the whole answer: whether greedy decoding
gives it, and its log-probability.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ropelab.context import Advance
from ropelab.errors import InputError
from ropelab.lm.batch import EVALUATION
from ropelab.lm.evaluation import Readable
from ropelab.trials.answers import answered
from ropelab.trials.readers import Reader
from ropelab.trials.tokens import TokenText

NeedleName = Literal["passkey", "multikey"]
KEYS = {"passkey": 1, "multikey": 4}
"""How many keys are hidden; one is asked for."""
NAMES = ("amber", "basil", "cedar", "delta", "fjord", "grove", "heron", "inlet")
"""What keys are told apart by where there are several."""
LEAST_TEXT = 0.5
"""The least share of a context that has to be text of the corpus."""


@dataclass(frozen=True)
class Wording:
    """What is said about a key, for one key or several."""

    introduction: str
    hidden: str
    question: str

    def of(self, what: str, name: str, value: int) -> str:
        """One of its texts, about a key."""
        return getattr(self, what).format(name=name, value=value)


WORDINGS = {
    "passkey": Wording(
        "A pass key is hidden in the text below. Remember it: it is asked for at the end.\n\n",
        "\nThe pass key is {value}. Remember it: {value} is the pass key.\n",
        "\nWhat is the pass key? The pass key is",
    ),
    "multikey": Wording(
        "Pass keys are hidden in the text below. Remember them: one is asked for at the end.\n\n",
        "\nThe pass key of {name} is {value}. Remember it: {value} is the pass key of {name}.\n",
        "\nWhat is the pass key of {name}? The pass key of {name} is",
    ),
}


@dataclass(frozen=True)
class Needle:
    """One row: a context and the answer that it asks for.

    Attributes:
        tokens: [1, context + 1], the answer at the end.
        answer: how many tokens it has.
        distance: how many tokens before the answer the key begins.
    """

    tokens: Tensor
    answer: int
    distance: int


@dataclass(frozen=True, kw_only=True)
class Needles:
    """Keys to be found.

    Attributes:
        name: one key, or several.
        contexts: how many tokens are read before the last one of the answer.
        depths: where the key is hidden, in percent of the text; 0 is its beginning.
        sequences: how many for each depth and context, each in text of its own.
        text: what they are hidden in.
    """

    name: NeedleName
    contexts: tuple[int, ...]
    depths: tuple[int, ...]
    sequences: int
    text: TokenText
    version: ClassVar[int] = 1

    @property
    def key(self) -> dict[str, Any]:
        """What the values depend on besides the model, which has its tokenizer, and the reader."""
        return {
            "contexts": self.contexts,
            "depths": self.depths,
            "sequences": self.sequences,
            **self.text.key,
        }

    @property
    def steps(self) -> int:
        """How many times a measurement advances."""
        return len(self.contexts) * len(self.depths) * self.sequences

    def measure(self, model: Readable, reader: Reader, advance: Advance) -> dict[str, pd.DataFrame]:
        """`answers`: whether each was found, and the log-probability of its answer."""
        records = []
        for context in self.contexts:
            for number in range(len(self.depths) * self.sequences):
                needle = self.needle(context, number)
                for _ in reader.passes(model, [context]):
                    losses, right = answered(model, reader.seen(needle.tokens), needle.answer)
                    said = (int(right.all()), -float(losses.sum()))
                    records.append((*self._about(context, number), needle.distance, *said))
                advance(1)
        columns = ["context_tokens", "depth_percent", "sequence", "distance_tokens"]
        found = pd.DataFrame(records, columns=[*columns, "correct", "log_probability_nats"])
        return {"answers": found.assign(trials=1)}

    def needle(self, context: int, number: int) -> Needle:
        """The row of that number; each has a depth, text and keys of its own.

        Raises:
            InputError: the context is too short for question and answer in some text.
        """
        _, depth, sequence = self._about(context, number)
        random = np.random.default_rng((EVALUATION, KEYS[self.name], context, depth, sequence))
        names = random.permutation(NAMES)[: KEYS[self.name]].tolist()
        values = random.choice(90_000, len(names), replace=False) + 10_000
        depths = [depth, *random.uniform(0, 100, len(names) - 1)]
        wording = WORDINGS[self.name]
        hidden = [
            self.text.ids(wording.of("hidden", name, value))
            for name, value in zip(names, values, strict=True)
        ]
        question, answer = self._question(wording.of("question", names[0], 0), int(values[0]))
        before = self.text.front + self.text.ids(wording.introduction)
        around = len(before) + sum(map(len, hidden)) + len(question) + len(answer)
        room = context + 1 - around
        if room < LEAST_TEXT * context:
            raise InputError(
                f"{context} tokens are too few for {self.name}: {around} of them are no text"
            )
        filled, start = hide(self.text.stretch(number, room), hidden, depths)
        row = [*before, *filled, *question, *answer]
        distance = len(row) - len(answer) - len(before) - start
        return Needle(torch.tensor([row]), len(answer), distance)

    def _about(self, context: int, number: int) -> tuple[int, int, int]:
        sequence, depth = divmod(number, len(self.depths))
        return context, self.depths[depth], sequence

    def _question(self, question: str, value: int) -> tuple[list[int], list[int]]:
        """The tokens of the question, and those that the answer adds to it."""
        alone, whole = self.text.ids(question), self.text.ids(f"{question} {value}")
        same = next((i for i, (a, b) in enumerate(zip(alone, whole, strict=False)) if a != b), None)
        cut = min(len(alone), len(whole)) if same is None else same
        return whole[:cut], whole[cut:]


def hide(
    text: Sequence[int], hidden: Sequence[Sequence[int]], depths: Sequence[float]
) -> tuple[list[int], int]:
    """The text with each of `hidden` put in at its depth, and where the first of them starts.

    Args:
        depths: in percent of the text.
    """
    places = [round(len(text) * depth / 100) for depth in depths]
    filled: list[int] = []
    before = start = 0
    for number in sorted(range(len(hidden)), key=lambda n: places[n]):
        filled += text[before : places[number]]
        start = len(filled) if number == 0 else start
        filled += hidden[number]
        before = places[number]
    return [*filled, *text[before:]], start
