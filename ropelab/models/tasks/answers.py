"""What a model makes of the last tokens of a row: how probable they were, and whether it says them.

Under greedy decoding an answer comes out exactly if each of its tokens is the most probable one
after those before it. So one pass over a row that ends in the right answer tells both.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from ropelab.models.lm.evaluation import Readable


@torch.inference_mode()
def answered(
    model: Readable, tokens: Int[Tensor, "rows tokens"], last: int
) -> tuple[Float[Tensor, "rows last"], Bool[Tensor, "rows last"]]:
    """The losses of the last tokens of each row, in nats, and whether each is the most probable."""
    tokens = tokens.to(model.head.weight.device)
    hidden, targets = model.hidden(tokens[:, :-1])[:, -last:], tokens[:, -last:]
    logits = model.head(hidden).float()
    losses = cross_entropy(logits.transpose(1, 2), targets.to(logits.device), reduction="none")
    return losses.double().cpu(), (logits.argmax(dim=-1) == targets.to(logits.device)).cpu()
