"""Training a small model so that it can be trusted: seeded, resumable, loud on failure.

A window is the number of tokens in a row of a batch. Over the first half of the steps
the window doubles until it is the trained length, while the number of tokens in a step
stays the same. There are two reasons: a model that is shown 2048 tokens from the start
does not learn to copy in the same time, and attention over short windows costs little.

Batches and learning rates depend only on (seed, step), so a continued run ends in the
same weights as an uninterrupted one, bit for bit. A checkpoint is one safetensors file,
written whole or not at all.

The file has four parts: the recipe, the gradients and optimizers of a step, the loop
(`train`), and checkpoints.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW, Optimizer

from ropelab.models.encoding.base import list_nested_encodings
from ropelab.models.lm.model import LanguageModel, ModelSize
from ropelab.models.lm.muon import Muon
from ropelab.models.lm.source import Batch
from ropelab.runs import interrupts
from ropelab.runs.cell import Advance
from ropelab.runs.errors import MachineError, say
from ropelab.runs.folders import remove, replace_file
from ropelab.runs.machine import DtypeName, computing_in, one_thread
from ropelab.runs.own import is_own

# The window of the first steps, in tokens.
FIRST_WINDOW = 64
SECONDS_BETWEEN_CHECKPOINTS = 20.0
# The learning rate of the last step, as a share of the highest one.
FINAL_RATE = 0.05
# Gradients of a larger norm are scaled down to this norm. They become large at the time
# when a model discovers copying.
LARGEST_GRADIENT_NORM = 1.0
# The number of parts, by rows, into which a batch is cut. Cores compute them side by
# side.
PARTS = 4
# The loss, as a multiple of the loss of a uniform guess, above which training has
# failed.
DIVERGED_LOSS = 3.0
# The name of the file of a checkpoint.
CHECKPOINT = "checkpoint.safetensors"
# The name of the tensor in a checkpoint that holds the hash of all its other tensors.
# The hash shows whether the file is damaged.
HASH = "sha256"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything about a training run except the model, the data and the seed."""

    steps: int
    # The trained length, which is the window of the second half of the steps.
    window: int
    # The number of tokens in a batch, which is the number of rows times the window.
    tokens_per_step: int = 4096
    # The highest learning rate of matrices (Muon) and biases (AdamW).
    matrix_rate: float = 0.02
    # The highest learning rate of all other parameters (AdamW).
    other_rate: float = 6e-3
    # The number of steps over which rates rise from 0.
    warmup: int = 20
    # The decoupled weight decay of the matrices (arXiv:1711.05101). Other parameters do
    # not decay.
    weight_decay: float = 0.01
    # If this equals `window`, all steps have the same window.
    first_window: int = FIRST_WINDOW

    @property
    def doublings(self) -> int:
        """How often the first window doubles until it is the trained length or more."""
        return max(0, math.ceil(math.log2(self.window / self.first_window)))

    def window_at(self, step: int) -> int:
        """Return the window of a step.

        Each window but the last has an equal share of the first half of the steps.
        """
        share_of_first_half = 2 * step / self.steps
        doublings_so_far = int(share_of_first_half * self.doublings)
        if doublings_so_far >= self.doublings:
            return self.window
        return self.first_window << doublings_so_far

    def stages(self) -> Iterator[tuple[int, int]]:
        """Yield (window, number of steps), from the first window to the last."""
        # The first half of the steps is cut into an equal share for each window but the
        # last. The second half, with the last window, is as long as all these shares.
        share_count = max(1, 2 * self.doublings)
        start = 0
        for doublings_so_far in range(self.doublings):
            # Rounded up, this is the first step that `window_at` gives the next window.
            stop = math.ceil(Fraction(self.steps * (doublings_so_far + 1), share_count))
            yield self.first_window << doublings_so_far, stop - start
            start = stop
        yield self.window, self.steps - start

    def rate_at(self, step: int) -> float:
        """Return the share of the highest learning rates at a step.

        The share rises linearly in the warm-up, then falls by half a cosine to
        FINAL_RATE.
        """
        if step < self.warmup:
            return (step + 1) / self.warmup
        steps_after_warmup = max(1, self.steps - self.warmup)
        share = (step - self.warmup) / steps_after_warmup
        return FINAL_RATE + (1 - FINAL_RATE) * (1 + math.cos(math.pi * share)) / 2


# A function from the step, the window and the number of rows to the batch of a step.
Data = Callable[[int, int, int], Batch]


def compute_batch_loss(
    model: LanguageModel, batch: Batch, scored_tokens: int | None = None
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy in nats of the scored tokens.

    Each token is predicted from the tokens before it. The sum of the losses is divided by
    `scored_tokens`. None stands for the number of scored tokens in this batch. For a part
    of a batch, the caller gives the number in the whole batch, so that the results of
    all parts add up to the mean.
    """
    # The first token of a row has no token before it.
    scored = batch.scored[:, 1:]
    targets = batch.tokens[:, 1:][scored]
    # Only scored tokens pass through the head, since the logits of all tokens would be
    # most of the memory of a small model.
    hidden = model.hidden_states(batch.tokens[:, :-1])[scored]
    # The loss is computed in float32 under any autocast. Near ln 256 = 5.5, the loss of
    # an untrained model, bfloat16 has steps of 0.03 nats.
    logits = model.head(hidden).float()
    if scored_tokens is None:
        scored_tokens = len(targets)
    return cross_entropy(logits, targets, reduction="sum") / scored_tokens


def set_gradients(
    model: LanguageModel, batch: Batch, dtype: DtypeName, threads: Executor | None
) -> float:
    """Set the gradients of the batch's loss, and return that loss.

    If `threads` is None, this thread computes the parts of the batch one after another.
    """
    device = model.head.weight.device.type
    scored_tokens = int(batch.scored[:, 1:].sum())
    parameters = [
        parameter for parameter in model.parameters() if parameter.requires_grad
    ]

    def compute(part: Batch) -> tuple[float, Sequence[Tensor | None]]:
        with computing_in(dtype, device):
            loss = compute_batch_loss(model, part, scored_tokens)
        return loss.item(), torch.autograd.grad(loss, parameters, allow_unused=True)

    # The parts, and the order in which they are added up, do not depend on the number of
    # threads, so that the result does not either, bit for bit.
    part_count = 1
    if device == "cpu":
        part_count = min(PARTS, len(batch.tokens))
    parts = batch.split(part_count)
    if threads is None:
        results = [compute(part) for part in parts]
    else:
        results = list(threads.map(compute, parts))

    for number, parameter in enumerate(parameters):
        gradients_of_parts = [gradients[number] for _, gradients in results]
        parameter.grad = sum_gradients(gradients_of_parts)
    return sum(loss for loss, _ in results)


def sum_gradients(gradients: Sequence[Tensor | None]) -> Tensor | None:
    """Add up the gradients of one parameter over the parts of a batch.

    A gradient is None where the part does not use the parameter, which can happen in an
    encoding of the user. The result is None if no part uses it.
    """
    total: Tensor | None = None
    for gradient in gradients:
        if gradient is None:
            continue
        if total is None:
            total = gradient
        else:
            total = total + gradient
    return total


def make_optimizers(
    model: LanguageModel, recipe: Recipe, dtype: DtypeName
) -> list[Optimizer]:
    """Return Muon for the matrices of the layers, AdamW for everything else."""
    # Muon (Jordan et al. 2024) gives each matrix an orthogonal step. With few tokens a
    # step (4096), models discover copying sooner with Muon than with AdamW.
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
    matrices_and_biases = {id(parameter) for parameter in (*matrices, *biases)}
    other_parameters = []
    for parameter in model.parameters():
        if id(parameter) not in matrices_and_biases:
            other_parameters.append(parameter)
    optimizers: list[Optimizer] = [
        muon,
        make_adamw(other_parameters, recipe.other_rate),
    ]
    if biases:
        optimizers.append(make_adamw(biases, recipe.matrix_rate))
    return optimizers


def list_biases(model: LanguageModel) -> list[nn.Parameter]:
    """Return the parameters of a model's encoding outside of linear layers and tables."""
    # These are biases of distances and vectors that are added to keys. They learn at the
    # higher rate, that of the matrices. All other parameters of the encoding learn at
    # the lower rate, that of the embedding. At the lower rate a bias of T5 hardly moves
    # in a short training. At the higher rate DeBERTa, which has linear layers and a
    # table, fails to copy.
    ids_in_layers: set[int] = set()

    for module in model.encoding.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            ids_in_layers |= {id(parameter) for parameter in module.parameters()}

    return [
        parameter
        for parameter in model.encoding.parameters()
        if id(parameter) not in ids_in_layers
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

    Matrix products are in `dtype`, weights in float32. `progress` opens a progress
    line, given the work that is left in steps of average length. The weights are the
    same, bit for bit, for any number of `cores`. MachineError: training diverged
    (`check_finite`), or the disk is full.
    """
    optimizers = make_optimizers(model, recipe, dtype)
    losses = load_checkpoint(folder, model, optimizers)
    if len(losses) >= recipe.steps:
        return losses

    work = compute_step_work(model.size, recipe)
    work_left = sum(work[len(losses) :])
    with (
        progress(work_left) as advance,
        open_threads(model, cores) as threads,
        interrupts.hold_first_signal() as is_interrupted,
        torch.random.fork_rng(devices=[]),
    ):
        time_of_saving = time.monotonic()
        while len(losses) < recipe.steps:
            step = len(losses)
            # An encoding of the user may draw random numbers. With this seed, a
            # continued run draws the same numbers.
            torch.manual_seed(step)
            loss = make_step(model, optimizers, data, recipe, step, dtype, threads)
            losses.append(loss)
            check_finite(losses, model.size.vocabulary)
            advance(work[step], note=f"loss {loss:.3f}")

            seconds_unsaved = time.monotonic() - time_of_saving
            if is_interrupted() or seconds_unsaved > SECONDS_BETWEEN_CHECKPOINTS:
                save_checkpoint(folder, model, optimizers, losses)
                time_of_saving = time.monotonic()
            if is_interrupted():
                raise KeyboardInterrupt

    # The final checkpoint is not trained further, so it has no state of optimizers.
    save_checkpoint(folder, model, [], losses)
    return losses


def compute_step_work(size: ModelSize, recipe: Recipe) -> list[float]:
    """Return the work of each step, in steps of average length.

    If every step counted as 1, progress would be quick at first, while windows are
    short, and the expected end would be too early.
    """
    windows = [recipe.window_at(step) for step in range(recipe.steps)]
    operations = [count_operations_per_token(size, window) for window in windows]
    total = sum(operations)
    return [each * recipe.steps / total for each in operations]


def open_threads(
    model: LanguageModel, cores: int
) -> AbstractContextManager[Executor | None]:
    """Open the threads that compute the parts of a batch side by side.

    The block gets None if this thread computes the parts one after another.
    """
    # An encoding of the user may keep something from one call to the next, which threads
    # would mix up.
    is_of_user = any(
        is_own(type(nested)) for nested in list_nested_encodings(model.encoding)
    )
    if cores > 1 and not is_of_user:
        return ThreadPoolExecutor(
            cores, initializer=torch.set_num_threads, initargs=(1,)
        )
    return one_thread()


def make_step(
    model: LanguageModel,
    optimizers: list[Optimizer],
    data: Data,
    recipe: Recipe,
    step: int,
    dtype: DtypeName = "float32",
    threads: Executor | None = None,
) -> float:
    """Make one optimizer step and return the loss of its batch.

    Matrix products are in `dtype`.
    """
    window = recipe.window_at(step)
    rows = max(1, recipe.tokens_per_step // window)
    batch = data(step, window, rows).to(model.head.weight.device)
    loss = set_gradients(model, batch, dtype, threads)

    nn.utils.clip_grad_norm_(model.parameters(), LARGEST_GRADIENT_NORM)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = optimizer.defaults["lr"] * recipe.rate_at(step)
        optimizer.step()
        optimizer.zero_grad()
    return loss


def check_finite(losses: list[float], vocabulary: int) -> None:
    """Raise MachineError if the last loss is nan, or far above a uniform guess's."""
    # The loss is not compared with the first loss: a fine-tuned model starts with a low
    # loss, and a single hard sequence after that does not mean divergence.
    uniform_loss = math.log(vocabulary)
    last_loss = losses[-1]
    if math.isnan(last_loss) or last_loss > DIVERGED_LOSS * uniform_loss:
        raise MachineError(
            f"training diverged at step {len(losses)}: loss {last_loss:.4g}, when"
            f" knowing nothing gives {uniform_loss:.4g}; lower the learning rate"
        )


def count_training_operations(size: ModelSize, recipe: Recipe) -> int:
    """Count the multiplications and additions in matrix products of all steps."""
    operations = 0
    for window, steps in recipe.stages():
        tokens = max(recipe.tokens_per_step, window)
        operations += steps * tokens * count_operations_per_token(size, window)
    return operations


def count_operations_per_token(size: ModelSize, window: int) -> int:
    """Count the operations per token of a forward and a backward pass over a window."""
    # A forward pass has 2 operations for every weight of a matrix, and 4 for every
    # feature of every earlier token in attention. On average half of the tokens of the
    # window are earlier, which makes 2 operations for every feature and token of the
    # window. A backward pass has twice as many operations as a forward pass.
    weights = size.weights_in_matrices + size.vocabulary * size.width
    features = size.layers * size.heads * size.head_dim
    return 6 * (weights + features * window)


def save_checkpoint(
    folder: Path, model: nn.Module, optimizers: Sequence[Optimizer], losses: list[float]
) -> None:
    """Replace the previous checkpoint, or raise MachineError and leave it untouched.

    The tensors of a checkpoint are `model.<name>`,
    `optimizer.<number>.<parameter>.<name>`, the losses, the name of the folder, and the
    hash of all these.
    """
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for number, optimizer in enumerate(optimizers):
        for parameter, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{number}.{parameter}.{name}"] = value
    tensors["losses"] = torch.tensor(losses, dtype=torch.float64)
    tensors["cell"] = encode_name(folder)

    tensors = {name: value.contiguous().cpu() for name, value in tensors.items()}
    path = folder / CHECKPOINT
    try:
        with replace_file(path) as fresh:
            fresh.write_bytes(save({**tensors, HASH: hash_tensors(tensors)}))
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from None


def load_checkpoint(
    folder: Path, model: nn.Module, optimizers: Sequence[Optimizer]
) -> list[float]:
    """Restore the last checkpoint in place, and return the losses so far.

    Without a checkpoint the list of losses is empty. A checkpoint that is damaged, or
    that was copied from another folder, is removed with a notice. MachineError: the
    file cannot be read, or has the tensors of another model.
    """
    path = folder / CHECKPOINT
    if not os.path.lexists(path):
        return []
    tensors = read_checkpoint(path)
    if tensors is None:
        say(f"{path} is not what was written: training begins again")
        remove(path)
        return []

    try:
        model.load_state_dict(_select(tensors, "model."))
        for number, optimizer in enumerate(optimizers):
            restore_moments(optimizer, _select(tensors, f"optimizer.{number}."))
    except (RuntimeError, KeyError) as error:
        message = f"cannot continue from {path} (delete it to start over): {error}"
        raise MachineError(message) from None
    return tensors["losses"].tolist()


def read_checkpoint(path: Path) -> dict[str, Tensor] | None:
    """Return the tensors of a checkpoint; None if it is damaged or of another folder."""
    tensors: dict[str, Tensor] = {}
    try:
        # A path that is no file, such as a folder of that name, leaves `tensors` empty.
        # It then has no hash and is refused below.
        if path.is_file():
            tensors = load_file(path)
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from None
    except (SafetensorError, ValueError, KeyError, RuntimeError):
        return None

    written_hash = tensors.pop(HASH, None)
    if written_hash is None or not torch.equal(written_hash, hash_tensors(tensors)):
        return None
    # The checkpoint of another folder may have the same shapes. A checkpoint of an
    # earlier version does not name its folder, and is taken as a checkpoint of this
    # folder.
    expected_name = encode_name(path.parent)
    if not torch.equal(tensors.get("cell", expected_name), expected_name):
        return None
    return tensors


def restore_moments(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state of an optimizer; hyperparameters stay as the caller set them.

    The names of `tensors` are `<number of the parameter>.<name>`.
    """
    states: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        parameter, name = key.split(".")
        states.setdefault(int(parameter), {})[name] = value
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": states, "param_groups": groups})


def encode_name(folder: Path) -> Tensor:
    """Return the bytes of a folder's name, which is a hash of the model's description."""
    return torch.tensor([*folder.name.encode()])


def hash_tensors(tensors: Mapping[str, Tensor]) -> Tensor:
    """Return the sha256 over names, types, shapes and values of tensors on the CPU."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return torch.frombuffer(bytearray(digest.digest()), dtype=torch.uint8)


def _select(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, by the rest of the name."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
