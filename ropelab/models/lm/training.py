"""Training a small model so that it can be trusted: seeded, resumable, and loud when it
diverges.

The window grows by doubling to the trained length over the first half of the steps, at
a constant number of tokens a step: a model that is shown 2048 tokens from the start
does not learn to copy in the same time, and short windows cost little attention.
Batches and learning rates are functions of (seed, step) alone, so a continued run ends
in the same weights as an uninterrupted one, bit for bit. Its checkpoint is one
safetensors file, written whole or not at all.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer

from ropelab.models.encoding.base import list_parts
from ropelab.models.lm.model import LanguageModel, ModelSize
from ropelab.models.lm.muon import Muon
from ropelab.models.lm.source import Batch
from ropelab.runs import interrupts
from ropelab.runs.cell import Advance
from ropelab.runs.errors import MachineError, say
from ropelab.runs.folders import remove, replaced_file
from ropelab.runs.machine import DtypeName, computing_in, one_thread
from ropelab.runs.own import is_own

FIRST_WINDOW = 64
SECONDS_BETWEEN_CHECKPOINTS = 20.0
# The learning rate of the last step, as a share of the highest one.
FINAL_RATE = 0.05
# Gradients are scaled down to this norm: where a model discovers copying they can be
# steep.
LARGEST_GRADIENT = 1.0
# Parts of a batch, by rows, that several cores compute at the same time.
PARTS = 4
# Times the loss of a uniform guess.
DIVERGED = 3.0
FILE = "checkpoint.safetensors"
# A tensor with the hash of all others: a damaged checkpoint is not used.
HASH = "sha256"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything about a training run except the model, the data and the seed."""

    steps: int
    window: int  # the trained length, in tokens
    tokens_per_step: int = 4096  # the rows follow from the window of the step
    # The highest learning rates: of matrices (Muon) and biases (AdamW), of all else
    # (AdamW).
    matrix_rate: float = 0.02
    other_rate: float = 6e-3
    warmup: int = 20  # steps over which rates rise from 0
    weight_decay: float = 0.01  # decoupled, of the matrices only (arXiv:1711.05101)
    first_window: int = FIRST_WINDOW  # equal to `window`, there is no curriculum

    def window_at(self, step: int) -> int:
        """Return the window of a step; each but the last has an equal share of the
        first half.
        """
        stage = int(2 * step / self.steps * self.doublings)
        return self.window if stage >= self.doublings else self.first_window << stage

    @property
    def doublings(self) -> int:
        return max(0, math.ceil(math.log2(self.window / self.first_window)))

    def stages(self) -> Iterator[tuple[int, int]]:
        """Yield (window, number of steps), from the first window to the last."""
        shares = max(1, 2 * self.doublings)
        starts = (
            -(-self.steps * stage // shares) for stage in range(self.doublings + 1)
        )
        windows = [
            *(self.first_window << stage for stage in range(self.doublings)),
            self.window,
        ]
        for window, (start, stop) in zip(
            windows, pairwise((*starts, self.steps)), strict=True
        ):
            yield window, stop - start

    def rate_at(self, step: int) -> float:
        """Share of the highest rates: linear warm-up, then half a cosine down to
        FINAL_RATE.
        """
        if step < self.warmup:
            return (step + 1) / self.warmup
        share = (step - self.warmup) / max(1, self.steps - self.warmup)
        return FINAL_RATE + (1 - FINAL_RATE) * (1 + math.cos(math.pi * share)) / 2


# Batches as a pure function of the step, the window and the number of rows.
Data = Callable[[int, int, int], Batch]


def batch_loss(
    model: LanguageModel, batch: Batch, among: int | None = None
) -> Float[Tensor, ""]:
    """Cross-entropy in nats, each scored token predicted from those before it: their
    mean.

    Of a part of a batch with `among` scored tokens, its share of the mean.
    """
    scored = batch.scored[:, 1:]
    # Only scored tokens pass through the head: the logits are most of the memory of a
    # small model.
    hidden = model.hidden(batch.tokens[:, :-1])[scored]
    # float32, whatever the autocast: near ln 256 = 5.5 bfloat16 has steps of 0.03 nats.
    logits, targets = model.head(hidden).float(), batch.tokens[:, 1:][scored]
    return cross_entropy(logits, targets, reduction="sum") / (among or len(targets))


def set_gradients(
    model: LanguageModel, batch: Batch, dtype: DtypeName, threads: Executor | None
) -> float:
    """Set the gradients of the batch's loss, and return that loss."""
    device = model.head.weight.device.type
    parameters = [
        parameter for parameter in model.parameters() if parameter.requires_grad
    ]
    # The same parts and the same order of their sums for any number of threads: the
    # same bytes.
    count = min(PARTS, len(batch.tokens)) if device == "cpu" else 1
    parts = map(
        Batch, batch.tokens.tensor_split(count), batch.scored.tensor_split(count)
    )
    among = int(batch.scored[:, 1:].sum())

    def gradients(part: Batch) -> tuple[float, Sequence[Tensor | None]]:
        with computing_in(dtype, device):
            loss = batch_loss(model, part, among)
        return loss.item(), torch.autograd.grad(loss, parameters, allow_unused=True)

    losses, found = zip(
        *(threads.map if threads else map)(gradients, parts), strict=True
    )
    for parameter, each in zip(parameters, zip(*found, strict=True), strict=True):
        # Code of one's own may use a parameter in some parts only.
        used = [gradient for gradient in each if gradient is not None]
        parameter.grad = sum(used[1:], start=used[0]) if used else None
    return sum(losses)


def make_optimizers(
    model: LanguageModel, recipe: Recipe, dtype: DtypeName
) -> list[Optimizer]:
    """Return Muon for the matrices of the layers, AdamW for everything else."""

    def adamw(parameters: list[nn.Parameter], rate: float) -> AdamW:
        return AdamW(
            parameters, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True
        )

    # Muon (Jordan et al. 2024) gives each matrix an orthogonal step. With it models
    # discover copying sooner than with AdamW where steps are small (4096 tokens).
    matrices = [
        matrix for layer in model.matrices_by_layer() for matrix in layer.values()
    ]
    rate, decay = recipe.matrix_rate, recipe.weight_decay
    muon = Muon(matrices, lr=rate, weight_decay=decay, dtype=getattr(torch, dtype))
    # An encoding's bare parameters (biases per distance, vectors added to keys) learn
    # at the rate of the matrices, its layers and tables that these project at that of
    # the embedding. At the lower rate a bias of T5 hardly moves in a short training, at
    # the higher DeBERTa fails to copy.
    layers = [
        m for m in model.encoding.modules() if isinstance(m, nn.Linear | nn.Embedding)
    ]
    inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
    biases = [p for p in model.encoding.parameters() if id(p) not in inside]
    known = {id(parameter) for parameter in (*matrices, *biases)}
    others = [
        parameter for parameter in model.parameters() if id(parameter) not in known
    ]
    optimizers: list[Optimizer] = [muon, adamw(others, recipe.other_rate)]
    return [*optimizers, adamw(biases, recipe.matrix_rate)] if biases else optimizers


def train(
    model: LanguageModel,
    data: Data,
    recipe: Recipe,
    folder: Path,
    progress: Callable[[float], AbstractContextManager[Advance]],
    dtype: DtypeName = "float32",
    cores: int = 1,
) -> list[float]:
    """Train `model` in place from the checkpoint in `folder`, and return the loss of
    every step.

    `dtype` is of matrix products; weights are float32. `progress` counts steps of
    average length. The weights are the same, bit for bit, for any number of `cores`.
    MachineError: the loss is no longer finite, or the disk is full.
    """
    optimizers = make_optimizers(model, recipe, dtype)
    losses = load_checkpoint(folder, model, optimizers)
    if len(losses) >= recipe.steps:
        return losses
    # In steps of average length: counted alike, the short windows of the beginning
    # would promise an end that the long ones do not keep.
    windows = [recipe.window_at(step) for step in range(recipe.steps)]
    operations = [operations_per_token(model.size, window) for window in windows]
    work = [each * recipe.steps / sum(operations) for each in operations]
    threads_of_step: AbstractContextManager[Executor | None] = one_thread()
    # An encoding of one's own may keep something from one call to the next.
    if cores > 1 and not any(is_own(type(part)) for part in list_parts(model.encoding)):
        threads_of_step = ThreadPoolExecutor(
            cores, initializer=torch.set_num_threads, initargs=(1,)
        )
    with (
        progress(sum(work[len(losses) :])) as advance,
        threads_of_step as threads,
        interrupts.held() as interrupted,
        torch.random.fork_rng(devices=[]),
    ):
        saved = time.monotonic()
        while len(losses) < recipe.steps:
            step = len(losses)
            torch.manual_seed(step)  # for encodings of one's own that draw
            losses.append(
                one_step(model, optimizers, data, recipe, step, dtype, threads)
            )
            check_finite(losses, model.size.vocabulary)
            advance(work[step], note=f"loss {losses[-1]:.3f}")
            if interrupted() or time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                save_checkpoint(folder, model, optimizers, losses)
                saved = time.monotonic()
            if interrupted():
                raise KeyboardInterrupt
    save_checkpoint(folder, model, [], losses)  # a finished run needs no optimizer
    return losses


def one_step(
    model: LanguageModel,
    optimizers: list[Optimizer],
    data: Data,
    recipe: Recipe,
    step: int,
    dtype: DtypeName = "float32",
    threads: Executor | None = None,
) -> float:
    """Make one optimizer step, its matrix products in `dtype`, and return its loss."""
    window = recipe.window_at(step)
    batch = data(step, window, max(1, recipe.tokens_per_step // window))
    loss = set_gradients(model, batch.to(model.head.weight.device), dtype, threads)
    nn.utils.clip_grad_norm_(model.parameters(), LARGEST_GRADIENT)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = optimizer.defaults["lr"] * recipe.rate_at(step)
        optimizer.step()
        optimizer.zero_grad()
    return loss


def check_finite(losses: list[float], vocabulary: int) -> None:
    """Raise MachineError when the last loss is not a number or far above a uniform
    guess.
    """
    # Not above the first loss: a fine-tuned model starts low, and a single hard
    # sequence is no divergence.
    nothing = math.log(vocabulary)
    if not losses[-1] <= DIVERGED * nothing:
        raise MachineError(
            f"training diverged at step {len(losses)}: loss {losses[-1]:.4g}, when"
            f" knowing nothing gives {nothing:.4g}; lower the learning rate"
        )


def operations_of_training(size: ModelSize, recipe: Recipe) -> int:
    return sum(
        steps * max(recipe.tokens_per_step, window) * operations_per_token(size, window)
        for window, steps in recipe.stages()
    )


def operations_per_token(size: ModelSize, window: int) -> int:
    """Count the operations of a forward and a backward pass over a window, per
    token.
    """
    # Forward 2 for every weight of a matrix, and 4 for every earlier token and feature
    # of attention, half of the window on average, since later keys do not count;
    # backward twice that.
    multiplied = size.matrices + size.vocabulary * size.width
    return 6 * (multiplied + size.layers * size.heads * size.head_dim * window)


def save_checkpoint(
    folder: Path, model: nn.Module, optimizers: Sequence[Optimizer], losses: list[float]
) -> None:
    """Replace the previous checkpoint, or raise MachineError and leave it untouched."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for place, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            tensors |= {
                f"optimizer.{place}.{index}.{name}": state[name] for name in state
            }
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    tensors["cell"] = torch.tensor([*folder.name.encode()])
    kept = {name: value.contiguous().cpu() for name, value in tensors.items()}
    path = folder / FILE
    try:
        with replaced_file(path) as fresh:
            fresh.write_bytes(save({**kept, HASH: hash_of(kept)}))
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from None


def load_checkpoint(
    folder: Path, model: nn.Module, optimizers: Sequence[Optimizer]
) -> list[float]:
    """Restore the last checkpoint in place and return the losses so far, none without
    one.

    One that is damaged or of another folder is removed with a notice. MachineError:
    unreadable, or of another model.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        return []
    try:
        tensors = load_file(path) if path.is_file() else {}
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from None
    except (SafetensorError, ValueError, KeyError, RuntimeError):
        tensors = {}
    written, mine = tensors.pop(HASH, None), torch.tensor([*folder.name.encode()])
    right = written is not None and torch.equal(written, hash_of(tensors))
    # Another model's may have the same shapes; those of earlier versions do not say
    # whose they are.
    if not right or not torch.equal(tensors.get("cell", mine), mine):
        say(f"{path} is not what was written: training begins again")
        remove(path)
        return []
    try:
        model.load_state_dict(_below(tensors, "model."))
        for place, optimizer in enumerate(optimizers):
            states: dict[int, dict[str, Tensor]] = {}
            for key, value in _below(tensors, f"optimizer.{place}.").items():
                index, name = key.split(".")
                states.setdefault(int(index), {})[name] = value
            # Moments only: hyperparameters stay as the caller built them.
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": states, "param_groups": groups})
    except (RuntimeError, KeyError) as error:
        message = f"cannot continue from {path} (delete it to start over): {error}"
        raise MachineError(message) from None
    return tensors["losses"].tolist()


def hash_of(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return the sha256 over names, types, shapes and values of tensors in main
    memory.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def _below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {
        k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)
    }
