"""Models by construction: they are sure of one next token, and know nothing where that
is -1.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.functional import one_hot

from ropelab.models.encoding.base import Encoding
from ropelab.models.lm.matcher import predict_by_ngrams
from ropelab.models.lm.model import start_of_last


@dataclass(frozen=True)
class Size:
    vocabulary: int


class Certain(nn.Module):
    """Predicts by a function of all tokens so far.

    Args:
        predictions: at place t of its result the prediction of token t from those before it.
    """

    def __init__(
        self, predictions: Callable[[Tensor], Tensor], vocabulary: int = 256
    ) -> None:
        super().__init__()
        self.size = Size(vocabulary)
        self.encoding = Encoding()
        self.predictions = predictions
        self.head = nn.Linear(vocabulary + 1, vocabulary, bias=False)
        nn.init.eye_(self.head.weight)

    def hidden_states(self, tokens: Tensor, *, last: int | None = None) -> Tensor:
        """The prediction of the token after each, from those up to it."""
        known = nn.functional.pad(tokens, (0, 1))
        following = self.predictions(known)[:, 1:]
        vocabulary = self.size.vocabulary
        hidden = one_hot(
            following.where(following >= 0, vocabulary), vocabulary + 1
        ).float()
        return hidden[:, start_of_last(hidden.shape[1], last) :]

    def unmodified_passes(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """As a released model: one pass for all lengths."""
        yield list(lengths)


def looking_back(distance: int, vocabulary: int = 256) -> Certain:
    """A model that repeats what stood exactly so far back."""
    return Certain(lambda tokens: tokens.roll(distance, dims=1), vocabulary)


def matching(n: int, vocabulary: int = 256) -> Certain:
    """A model that says what followed the last n tokens when they stood here before."""
    return Certain(lambda tokens: predict_by_ngrams(tokens, n, vocabulary), vocabulary)
