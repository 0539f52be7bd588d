"""Training a small model so that it can be trusted: seeded, resumable, loud on failure.

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
from ropelab.runs.folders import remove, replace_file
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
    # The trained length, in tokens.
    window: int
    # The rows follow from the window of the step.
    tokens_per_step: int = 4096
    # The highest learning rates: of matrices (Muon) and biases (AdamW), of all else
    # (AdamW).
    matrix_rate: float = 0.02
    other_rate: float = 6e-3
    # Steps over which rates rise from 0.
    warmup: int = 20
    # Decoupled, of the matrices only (arXiv:1711.05101).
    weight_decay: float = 0.01
    # If it equals `window`, there is no curriculum.
    first_window: int = FIRST_WINDOW

    @property
    def doublings(self) -> int:
        return max(0, math.ceil(math.log2(self.window / self.first_window)))

    def window_at(self, step: int) -> int:
        """Return the window of a step.

        Each window but the last has an equal share of the first half of the steps.
        """
        stage = int(2 * step / self.steps * self.doublings)
        if stage >= self.doublings:
            return self.window
        return self.first_window << stage

    def stages(self) -> Iterator[tuple[int, int]]:
        """Yield (window, number of steps), from the first window to the last."""
        shares = max(1, 2 * self.doublings)
        start = 0
        for stage in range(self.doublings):
            # Rounded up: the first step that `window_at` gives the next window.
            stop = -(-self.steps * (stage + 1) // shares)
            yield self.first_window << stage, stop - start
            start = stop
        yield self.window, self.steps - start

    def rate_at(self, step: int) -> float:
        """Return the share of the highest learning rates at a step.

        It rises linearly in the warm-up, then falls by half a cosine to FINAL_RATE.
        """
        if step < self.warmup:
            return (step + 1) / self.warmup
        share = (step - self.warmup) / max(1, self.steps - self.warmup)
        return FINAL_RATE + (1 - FINAL_RATE) * (1 + math.cos(math.pi * share)) / 2


# Batches as a pure function of the step, the window and the number of rows.
Data = Callable[[int, int, int], Batch]


def batch_loss(
    model: LanguageModel, batch: Batch, scored_tokens: int | None = None
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy in nats of the scored tokens.

    Each is predicted from those before it. If the batch is a part of one with so many
    `scored_tokens`, it is the part's share of the mean.
    """
    scored = batch.scored[:, 1:]
    targets = batch.tokens[:, 1:][scored]
    # Only scored tokens pass through the head: the logits are most of the memory of a
    # small model.
    hidden = model.hidden_states(batch.tokens[:, :-1])[scored]
    # float32, whatever the autocast: near ln 256 = 5.5 bfloat16 has steps of 0.03 nats.
    logits = model.head(hidden).float()
    if scored_tokens is None:
        scored_tokens = len(targets)
    return cross_entropy(logits, targets, reduction="sum") / scored_tokens


def set_gradients(
    model: LanguageModel, batch: Batch, dtype: DtypeName, threads: Executor | None
) -> float:
    """Set the gradients of the batch's loss, and return that loss."""
    device = model.head.weight.device.type
    scored_tokens = int(batch.scored[:, 1:].sum())
    parameters = [
        parameter for parameter in model.parameters() if parameter.requires_grad
    ]

    def compute(part: Batch) -> tuple[float, Sequence[Tensor | None]]:
        with computing_in(dtype, device):
            loss = batch_loss(model, part, scored_tokens)
        return loss.item(), torch.autograd.grad(loss, parameters, allow_unused=True)

    # Any number of threads has the same parts, and sums them in the same order: the
    # same bytes.
    count = min(PARTS, len(batch.tokens)) if device == "cpu" else 1
    parts = batch.split(count)
    if threads is None:
        results = [compute(part) for part in parts]
    else:
        results = list(threads.map(compute, parts))

    for index, parameter in enumerate(parameters):
        parameter.grad = sum_gradients([gradients[index] for _, gradients in results])
    return sum(loss for loss, _ in results)


def sum_gradients(gradients: Sequence[Tensor | None]) -> Tensor | None:
    """Add up the gradients of the parts of a batch.

    Code of one's own may use a parameter in some parts only, or in none.
    """
    total: Tensor | None = None
    for gradient in gradients:
        if gradient is not None:
            total = gradient if total is None else total + gradient
    return total


def make_optimizers(
    model: LanguageModel, recipe: Recipe, dtype: DtypeName
) -> list[Optimizer]:
    """Return Muon for the matrices of the layers, AdamW for everything else."""
    # Muon (Jordan et al. 2024) gives each matrix an orthogonal step. With it models
    # discover copying sooner than with AdamW where steps are small (4096 tokens).
    matrices: list[Tensor] = []
    for layer in model.matrices_by_layer():
        matrices += layer.values()
    muon = Muon(
        matrices,
        lr=recipe.matrix_rate,
        weight_decay=recipe.weight_decay,
        dtype=getattr(torch, dtype),
    )

    biases = list_biases(model)
    known = {id(parameter) for parameter in (*matrices, *biases)}
    others = [
        parameter for parameter in model.parameters() if id(parameter) not in known
    ]
    optimizers: list[Optimizer] = [muon, make_adamw(others, recipe.other_rate)]
    if biases:
        optimizers.append(make_adamw(biases, recipe.matrix_rate))
    return optimizers


def list_biases(model: LanguageModel) -> list[nn.Parameter]:
    """Return the bare parameters of a model's encoding, those of no layer or table."""
    # Bare parameters (biases per distance, vectors added to keys) learn at the rate of the
    # matrices. The encoding's layers, and the tables that they project, learn at the rate
    # of the embedding. At the lower rate a bias of T5 hardly moves in a short training; at
    # the higher rate DeBERTa fails to copy.
    inside: set[int] = set()
    for module in model.encoding.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            inside |= {id(parameter) for parameter in module.parameters()}
    return [
        parameter
        for parameter in model.encoding.parameters()
        if id(parameter) not in inside
    ]


def make_adamw(parameters: list[nn.Parameter], rate: float) -> AdamW:
    return AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=0.0, fused=True)


def train(
    model: LanguageModel,
    data: Data,
    recipe: Recipe,
    folder: Path,
    progress: Callable[[float], AbstractContextManager[Advance]],
    dtype: DtypeName = "float32",
    cores: int = 1,
) -> list[float]:
    """Train `model` in place from the checkpoint in `folder`; return all losses.

    `dtype` is of matrix products; weights are float32. `progress` counts steps of
    average length. The weights are the same, bit for bit, for any number of `cores`.
    MachineError: the loss is no longer finite, or the disk is full.
    """
    optimizers = make_optimizers(model, recipe, dtype)
    losses = load_checkpoint(folder, model, optimizers)
    if len(losses) >= recipe.steps:
        return losses

    work = work_of_steps(model.size, recipe)
    with (
        progress(sum(work[len(losses) :])) as advance,
        threads_for(model, cores) as threads,
        interrupts.hold_first_signal() as interrupted,
        torch.random.fork_rng(devices=[]),
    ):
        saved = time.monotonic()
        while len(losses) < recipe.steps:
            step = len(losses)
            # Encodings of one's own may draw random numbers.
            torch.manual_seed(step)
            loss = one_step(model, optimizers, data, recipe, step, dtype, threads)
            losses.append(loss)
            check_finite(losses, model.size.vocabulary)
            advance(work[step], note=f"loss {loss:.3f}")

            if interrupted() or time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                save_checkpoint(folder, model, optimizers, losses)
                saved = time.monotonic()
            if interrupted():
                raise KeyboardInterrupt

    # A finished run needs no optimizer.
    save_checkpoint(folder, model, [], losses)
    return losses


def work_of_steps(size: ModelSize, recipe: Recipe) -> list[float]:
    """Return the work of each step, in steps of average length.

    Counted alike, the short windows of the beginning would promise an end that the long
    ones do not keep.
    """
    windows = [recipe.window_at(step) for step in range(recipe.steps)]
    operations = [operations_per_token(size, window) for window in windows]
    total = sum(operations)
    return [each * recipe.steps / total for each in operations]


def threads_for(
    model: LanguageModel, cores: int
) -> AbstractContextManager[Executor | None]:
    """Return the threads that compute parts of a batch; None: they follow each other."""
    # An encoding of one's own may keep something from one call to the next.
    has_own_code = any(is_own(type(part)) for part in list_parts(model.encoding))
    if cores > 1 and not has_own_code:
        return ThreadPoolExecutor(
            cores, initializer=torch.set_num_threads, initargs=(1,)
        )
    return one_thread()


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
    """Raise MachineError if the last loss is no number, or far above a uniform guess."""
    # Not above the first loss: a fine-tuned model starts low, and a single hard
    # sequence is no divergence.
    uniform_loss = math.log(vocabulary)
    if not losses[-1] <= DIVERGED * uniform_loss:
        raise MachineError(
            f"training diverged at step {len(losses)}: loss {losses[-1]:.4g}, when"
            f" knowing nothing gives {uniform_loss:.4g}; lower the learning rate"
        )


def operations_of_training(size: ModelSize, recipe: Recipe) -> int:
    """Count the operations of all steps."""
    operations = 0
    for window, steps in recipe.stages():
        tokens = max(recipe.tokens_per_step, window)
        operations += steps * tokens * operations_per_token(size, window)
    return operations


def operations_per_token(size: ModelSize, window: int) -> int:
    """Count the operations per token of a forward and a backward pass over a window."""
    # Forward 2 for every weight of a matrix, and 4 for every earlier token and feature
    # of attention, half of the window on average, since later keys do not count;
    # backward twice that.
    multiplied = size.weights_in_matrices + size.vocabulary * size.width
    return 6 * (multiplied + size.layers * size.heads * size.head_dim * window)


def save_checkpoint(
    folder: Path, model: nn.Module, optimizers: Sequence[Optimizer], losses: list[float]
) -> None:
    """Replace the previous checkpoint, or raise MachineError and leave it untouched."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for place, optimizer in enumerate(optimizers):
        for index, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{place}.{index}.{name}"] = value
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    tensors["cell"] = name_tensor(folder)

    tensors = {name: value.contiguous().cpu() for name, value in tensors.items()}
    path = folder / FILE
    try:
        with replace_file(path) as fresh:
            fresh.write_bytes(save({**tensors, HASH: hash_of(tensors)}))
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from None


def load_checkpoint(
    folder: Path, model: nn.Module, optimizers: Sequence[Optimizer]
) -> list[float]:
    """Restore the last checkpoint in place, and return the losses so far.

    There are none without a checkpoint. One that is damaged or of another folder is
    removed with a notice. MachineError: unreadable, or of another model.
    """
    path = folder / FILE
    if not os.path.lexists(path):
        return []
    tensors = read_checkpoint(path)
    if tensors is None:
        say(f"{path} is not what was written: training begins again")
        remove(path)
        return []

    try:
        model.load_state_dict(_below(tensors, "model."))
        for place, optimizer in enumerate(optimizers):
            restore_moments(optimizer, _below(tensors, f"optimizer.{place}."))
    except (RuntimeError, KeyError) as error:
        message = f"cannot continue from {path} (delete it to start over): {error}"
        raise MachineError(message) from None
    return tensors["losses"].tolist()


def read_checkpoint(path: Path) -> dict[str, Tensor] | None:
    """Return the tensors of a checkpoint; None if it is damaged or of another folder."""
    try:
        tensors = load_file(path) if path.is_file() else {}
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from None
    except (SafetensorError, ValueError, KeyError, RuntimeError):
        return None

    written_hash = tensors.pop(HASH, None)
    if written_hash is None or not torch.equal(written_hash, hash_of(tensors)):
        return None
    # Another model's may have the same shapes; those of earlier versions do not say
    # whose they are.
    expected_name = name_tensor(path.parent)
    if not torch.equal(tensors.get("cell", expected_name), expected_name):
        return None
    return tensors


def restore_moments(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state of an optimizer; hyperparameters stay as the caller set them."""
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".")
        states.setdefault(int(index), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})


def name_tensor(folder: Path) -> Tensor:
    """Return the name of a folder, which is a hash of the model's description."""
    return torch.tensor([*folder.name.encode()])


def hash_of(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return the sha256 over names, types, shapes and values of tensors on the CPU."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names have a prefix, without it."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
